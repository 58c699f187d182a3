"""Balancing and rounding: from a seed's weights to whole households that meet the controls.

*Balancing* finds the weights nearest to the seed's, in relative entropy, that meet the controls; it
is a Newton iteration on the dual, whose linear system falls apart into one block a zone, bordered
by the controls of the coarser geographies. *Rounding* makes whole households of the weights: a
systematic draw, then swaps that lessen the error over all controls. Arrays alone: what they mean
in a region is `synthesis`'s work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from pemand_abm import keys

# PopulationSim's customary limit: no seed household stands for more than 30 times its own weight.
MOST_EXPANSION = 30.0
NEWTON_STEPS = 200
NEAR, LOOSE = 1e-7, 1e-3
CAP_STEPS = 30
SWAP_CYCLES = 12
SWAP_PASSES = 3
SWAP_BLOCK = 64
# From this importance on, a zone whose control asks for nothing takes no household that adds to it.
FIRM = 100.0
# One thread: sums in one order for any number of cores, and no loss on matrices this small.
one_thread = threadpool_limits.wrap(limits=1, user_api="blas")


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """The controls as arrays: Z zones, n seed households, K controls but for the household total.

    Each control in each zone or coarser area is one of C cells.

    Controls and incidence are in units of what a typical household adds, so that importance means
    the same for counts of households and for dollars.
    """

    zones: list[int | str]
    totals: np.ndarray
    """(Z,) int64, the households of each zone, always met."""
    base: np.ndarray
    """(n,) the seed's weights."""
    incidence: np.ndarray
    """(n, K), the zones' controls before those of coarser geographies."""
    fine: int
    """How many of the K controls are the zones'."""
    cells: np.ndarray
    """(Z, K) int64, the cell of each control that a zone adds to."""
    targets: np.ndarray
    """(C,)"""
    slack: np.ndarray
    """(C,) size over importance: how far off its target a unit of its multiplier leaves a cell."""
    area: np.ndarray
    """(Z,) the coarsest geography's area, in which expansion is bounded."""
    linked: np.ndarray
    """(Z,) zones of one number share a coarse control; others are independent."""
    belongs: np.ndarray
    """(n,) the only area that takes a seed household; -1 for every area."""

    def parts(self) -> list[np.ndarray]:
        """Return the zones of each part that depends on no other: areas, and what links them."""
        number = linked([self.area, self.linked], len(self.zones))
        return [np.flatnonzero(number == part) for part in range(number.max(initial=-1) + 1)]

    def part(self, zones: np.ndarray) -> tuple[Problem, np.ndarray]:
        """Return the problem of these zones alone, and the seed households that it is left with.

        These are a whole part's (`parts`), so that nothing else has a say in it.
        """
        cells, cell = np.unique(self.cells[zones], return_inverse=True)
        areas, area = np.unique(self.area[zones], return_inverse=True)
        left = np.flatnonzero((self.belongs < 0) | np.isin(self.belongs, areas))
        belongs = self.belongs[left]
        of_part = Problem(
            zones=[self.zones[z] for z in zones],
            totals=self.totals[zones],
            base=self.base[left],
            incidence=self.incidence[left],
            fine=self.fine,
            cells=cell.reshape(len(zones), -1),
            targets=self.targets[cells],
            slack=self.slack[cells],
            area=area,
            linked=np.unique(self.linked[zones], return_inverse=True)[1],
            belongs=np.where(belongs < 0, -1, np.searchsorted(areas, belongs)),
        )
        return of_part, left


def linked(codes: list[np.ndarray], zones: int) -> np.ndarray:
    """Return a number a zone, equal where zones are tied by a chain of common areas."""
    number = np.arange(zones)
    while True:
        before = number
        for code in codes:
            first = np.full(code.max(initial=-1) + 1, zones)
            np.minimum.at(first, code, number)
            number = first[code]
        if (number == before).all():
            return np.unique(number, return_inverse=True)[1]


# Balancing.


@one_thread
def balance(problem: Problem, most: float = MOST_EXPANSION) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights (Z, n) that meet the controls, and the Newton steps of each zone (Z,).

    The weights minimize their relative entropy to the seed's plus, for each cell, importance / (2
    size) x residual squared; so a cell's relative residual is its multiplier over its importance,
    as in PopulationSim's relaxation to first order. A zone's household total is a hard constraint.
    A zone takes households of its own seed area alone (`Problem.belongs`), and none that adds to a
    firm control which asks for nothing there (`FIRM`); in an area no household expands more than
    *most* times the area's mean expansion. Zones of no households have zeros. A zone that took
    `NEWTON_STEPS` steps is not converged.
    """
    live = np.flatnonzero(problem.totals > 0)
    steps = np.zeros(len(problem.zones), dtype="int64")
    if not len(live):
        return np.zeros((len(problem.zones), len(problem.base))), steps
    kinds, share = _kinds(problem)
    found, steps[live] = _balance(kinds, live, most)
    weights = np.zeros((len(problem.zones), len(problem.base)))
    weights[live] = found[:, share[0]] * share[1]
    return weights, steps


def _kinds(problem: Problem) -> tuple[Problem, tuple[np.ndarray, np.ndarray]]:
    """Return the problem with households that add the same to every control taken as one.

    And of each household its kind and its share of the kind's weight, which balancing leaves as
    they are.
    """
    alike = np.column_stack([problem.incidence, problem.belongs])
    _, first, kind = np.unique(alike, axis=0, return_index=True, return_inverse=True)
    kind = kind.ravel()
    base = np.bincount(kind, problem.base)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.nan_to_num(problem.base / base[kind])
    kinds = replace(
        problem,
        base=base,
        incidence=problem.incidence[first],
        belongs=problem.belongs[first],
    )
    return kinds, (kind, share)


def _balance(problem: Problem, live: np.ndarray, most: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights (live, n) and steps (live,)."""
    totals, area = problem.totals[live].astype("float64"), problem.area[live]
    own = _own(problem, np.arange(problem.area.max() + 1)) * problem.base
    shares = own / np.maximum(own.sum(axis=1, keepdims=True), 1e-300)
    limit = most * np.bincount(area, totals, problem.area.max() + 1)[:, None] * shares
    pulls, bounded = np.zeros(limit.shape), np.zeros(limit.shape, dtype=bool)
    size = len(problem.targets)
    open_to = _open(problem, live)
    multipliers = _alone(problem, live, open_to)
    for _ in range(CAP_STEPS):
        held = np.flatnonzero(bounded.any(axis=0))
        start = np.concatenate([multipliers, pulls[:, held].ravel()])
        capped = _capped(problem, limit, bounded, held)
        found, end, steps = _newton(capped, live, start, open_to)
        multipliers, pulls[:, held] = end[:size], end[size:].reshape(len(pulls), len(held))
        expanded = np.zeros(limit.shape)
        np.add.at(expanded, area, found)
        over, slackened = expanded > 1.001 * limit, bounded & (pulls > 0)
        if not (over & ~bounded).any() and not slackened.any():
            break
        bounded = (bounded | over) & ~slackened
        pulls = np.where(bounded, np.minimum(pulls, 0.0), 0.0)
    return found, steps


def _open(problem: Problem, live: np.ndarray) -> np.ndarray:
    """Return which households a zone may take at all, (live, n).

    Not those that add to a control of its own that asks for nothing, where that matters (`FIRM`)
    and leaves any: balancing would approach nothing in a hundred small steps.
    """
    own = _own(problem, problem.area[live])
    x, cells = problem.incidence[:, : problem.fine], problem.cells[live][:, : problem.fine]
    nothing = (problem.targets[cells] == 0) & (problem.slack[cells] <= 1.0 / FIRM)
    nothing &= (x >= 0).all(axis=0)
    taken = nothing.astype(np.float32) @ (x != 0).T.astype(np.float32) > 0
    some = ((own & ~taken) @ problem.base) > 0
    return own & (~taken | ~some[:, None])


def _own(problem: Problem, areas: np.ndarray) -> np.ndarray:
    """Return which households zones of these areas may take, (areas, n)."""
    return (problem.belongs < 0) | (problem.belongs == areas[:, None])


def _alone(problem: Problem, live: np.ndarray, open_to: np.ndarray) -> np.ndarray:
    """Return multipliers (C,) that meet the zones' own controls, each zone by itself.

    From there the controls that tie zones together are near, so that one step length fits all.
    """
    coarse = np.zeros(len(problem.targets), dtype=bool)
    coarse[problem.cells[:, problem.fine :]] = True
    start = np.zeros(len(problem.targets))
    if not coarse.any():
        return start
    own = replace(
        problem,
        incidence=problem.incidence[:, : problem.fine],
        cells=problem.cells[:, : problem.fine],
        linked=np.arange(len(problem.zones)),
    )
    _, found, _ = _newton(own, live, start, open_to, LOOSE)
    return np.where(coarse, 0.0, found)


def _capped(problem: Problem, limit: np.ndarray, bounded: np.ndarray, held: np.ndarray) -> Problem:
    """Return the problem with each bounded household as one more control of its area.

    *limit* and *bounded* are (areas, n); *held* are the households that any area bounds. Those that
    an area does not bound have a slack there that leaves them alone.
    """
    if not len(held):
        return problem
    at = len(problem.targets) + problem.area[:, None] * len(held) + np.arange(len(held))
    targets = limit[:, held].ravel()
    slack = np.maximum(targets, 1.0) * np.where(bounded[:, held].ravel(), 1e-12, 1e9)
    busy = np.any(bounded, axis=1)[problem.area]
    apart = problem.area.max(initial=0) + 1 + np.arange(len(problem.zones))
    return replace(
        problem,
        incidence=np.hstack([problem.incidence, np.eye(len(problem.base))[:, held]]),
        cells=np.hstack([problem.cells, at]),
        targets=np.concatenate([problem.targets, targets]),
        slack=np.concatenate([problem.slack, slack]),
        linked=linked([problem.linked, np.where(busy, problem.area, apart)], len(problem.zones)),
    )


def _newton(
    problem: Problem,
    live: np.ndarray,
    multipliers: np.ndarray,
    open_to: np.ndarray,
    near: float = NEAR,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return weights (live, n), multipliers (C,) and steps (live,), started at *multipliers*.

    A cell is met where its gradient is within *near* of its target; *open_to* (live, n) says which
    households a zone may take.

    Groups of linked zones take their own step lengths and stop by themselves, so none depends on
    another group.
    """
    x, cells, fine = problem.incidence, problem.cells[live], problem.fine
    totals = problem.totals[live].astype("float64")
    group = np.unique(problem.linked[live], return_inverse=True)[1]
    groups, size = int(group.max()) + 1, len(problem.targets)
    of_cell = np.full(size, -1)
    of_cell[cells] = group[:, None]
    used = of_cell >= 0
    with np.errstate(divide="ignore"):
        log_base = np.where(open_to, np.log(problem.base / problem.base.sum()), -np.inf)
    first = int(cells[:, fine:].min(initial=size))

    def weigh(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights and the dual's value by group."""
        logits = theta[cells] @ x.T + log_base
        top = logits.max(axis=1, keepdims=True)
        shares = np.exp(logits - top)
        sums = shares.sum(axis=1, keepdims=True)
        value = np.bincount(group, totals * (np.log(sums) + top)[:, 0], groups)
        penalty = 0.5 * problem.slack * theta**2 - problem.targets * theta
        return totals[:, None] * shares / sums, value + np.bincount(
            of_cell[used], penalty[used], groups
        )

    theta, steps = multipliers, np.zeros(groups, dtype="int64")
    weights, value = weigh(theta)
    open_groups = np.ones(groups, dtype=bool)
    for _ in range(NEWTON_STEPS):
        sums = weights @ x
        gradient = (
            np.bincount(cells.ravel(), sums.ravel(), size) - problem.targets + problem.slack * theta
        )
        off = np.abs(gradient) / np.maximum(np.abs(problem.targets), 1.0)
        worst = np.zeros(groups)
        np.maximum.at(worst, of_cell[used], off[used])
        open_groups &= worst > near
        if not open_groups.any():
            break
        curvature = _curvature(x, weights, open_groups[group])
        curvature -= sums[:, :, None] * sums[:, None, :] / totals[:, None, None]
        step = _arrow_solve(curvature, gradient, problem.slack, cells, fine, first)
        step = np.where(used & open_groups[of_cell], step, 0.0)
        slope = np.bincount(of_cell[used], (gradient * step)[used], groups)
        length = np.ones(groups)
        for _ in range(40):
            tried, tried_value = weigh(theta - length[of_cell] * step)
            # Near the end the gain drowns in the value's rounding.
            short = tried_value > value - 1e-4 * length * slope + 1e-13 * np.abs(value)
            if not short.any():
                break
            length = np.where(short, length / 2, length)
        theta = theta - length[of_cell] * step
        weights, value = tried, tried_value
        steps += open_groups
    return weights, theta, steps[group]


def _curvature(x: np.ndarray, weights: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return each wanted zone's sum of w x x' (live, K, K), zeros for the others.

    Households of no weight to speak of are left out of a zone's sum.
    """
    found = np.zeros((len(weights), x.shape[1], x.shape[1]))
    for z in np.flatnonzero(wanted):
        w = weights[z]
        held = np.flatnonzero(w > 1e-12 * w.sum())
        part = x[held]
        found[z] = (part * w[held, None]).T @ part
    return found


def _arrow_solve(
    curvature: np.ndarray,
    gradient: np.ndarray,
    slack: np.ndarray,
    cells: np.ndarray,
    fine: int,
    first: int,
) -> np.ndarray:
    """Solve Newton's system by Schur complement.

    Each zone is a block (fine, fine); the coarse cells, from *first* on, border them all.
    """
    step = np.zeros(len(gradient))
    own, border = cells[:, :fine], cells[:, fine:] - first
    coarse = len(gradient) - first
    block = curvature[:, :fine, :fine] + slack[own][:, :, None] * np.eye(fine)
    cross = curvature[:, :fine, fine:]
    solved = np.linalg.solve(block, np.concatenate([cross, gradient[own][:, :, None]], axis=2))
    inner, right = solved[:, :, :-1], solved[:, :, -1]
    if coarse:
        complement = np.diag(slack[first:])
        corner = curvature[:, fine:, fine:] - cross.transpose(0, 2, 1) @ inner
        np.add.at(complement, (border[:, :, None], border[:, None, :]), corner)
        reduced = gradient[first:].copy()
        np.add.at(reduced, border, -np.einsum("zfq,zf->zq", cross, right))
        step[first:] = np.linalg.solve(complement, reduced)
        right = right - np.einsum("zfq,zq->zf", inner, step[first:][border])
    step[own] = right
    return step


# Rounding.


@one_thread
def round_weights(problem: Problem, weights: np.ndarray, seed: int) -> np.ndarray:
    """Return whole counts (Z, n) that sum to the zones' totals, each the weight rounded down or up.

    A systematic draw by the zone's own random number gives the first counts: its expectation is the
    weight. Swaps within a zone of a household rounded up for one rounded down then lessen the sum
    of importance / size x residual squared over the zone's and its areas' controls, until no swap
    helps or a fixed number of cycles has passed; no clock is involved.
    """
    x = problem.incidence
    order = np.lexsort(x.T[::-1]) if x.shape[1] else np.arange(len(problem.base))
    lower = np.floor(weights + 1e-9).astype("int64")
    counts = lower.copy()
    live = [int(z) for z in np.flatnonzero(problem.totals)]
    for z in live:
        counts[z, order] += _systematic(
            np.maximum(weights[z] - lower[z], 0.0)[order],
            int(problem.totals[z] - lower[z].sum()),
            keys.uniform(seed, "synthesis", problem.zones[z]),
        )
    gap = (
        np.bincount(problem.cells.ravel(), (counts @ x).ravel(), len(problem.targets))
        - problem.targets
    )
    passes = SWAP_PASSES if x.shape[1] > problem.fine else 1
    for _ in range(passes):
        changed = False
        for z in live:
            changed |= _swap(problem, z, counts, lower, weights[z] - lower[z], gap)
        if not changed:
            break
    return counts


def _systematic(shares: np.ndarray, picks: int, start: float) -> np.ndarray:
    """Return 0 or 1 for each share, *picks* in all, each with the probability of its share."""
    if picks <= 0:
        return np.zeros(len(shares), dtype="int64")
    passed = np.cumsum(shares)
    # The last sum must be exact, or rounding could lose a household.
    passed = np.floor(passed * (picks / passed[-1]) + start)
    passed[-1] = picks
    return np.diff(passed, prepend=0.0).astype("int64")


def _swap(
    problem: Problem,
    z: int,
    counts: np.ndarray,
    lower: np.ndarray,
    share: np.ndarray,
    gap: np.ndarray,
) -> bool:
    """Swap households of zone *z* while that lessens the error, and say whether any was.

    *counts* and *gap* (C,) are changed in place.
    """
    cells = problem.cells[z]
    scale = 1.0 / np.sqrt(problem.slack[cells])
    taken = counts[z] - lower[z]
    free = (taken == 0) & (share > _negligible(share))
    rows = np.flatnonzero((taken > 0) | free)  # No other household is drawn or could be.
    own, spare, open_to = taken[rows], free[rows], share[rows] > 0
    plain = problem.incidence[rows]
    x = plain * scale
    norm = np.einsum("nk,nk->n", x, x)
    changed = False
    for _ in range(SWAP_CYCLES):
        improved = False
        inside = np.flatnonzero(own > 0)
        for at in range(0, len(inside), SWAP_BLOCK):
            out, into = inside[at : at + SWAP_BLOCK], np.flatnonzero(spare)
            if not len(into):
                break
            pull = 2.0 * (x @ (gap[cells] * scale))
            gain = (
                (norm - pull)[out][:, None]
                + (norm + pull)[into][None, :]
                - 2.0 * x[out] @ x[into].T
            )
            i, j = np.unravel_index(int(gain.argmin()), gain.shape)
            if gain[i, j] > -1e-9:
                continue
            a, b = out[i], into[j]
            counts[z, rows[a]] -= 1
            counts[z, rows[b]] += 1
            own[a] -= 1
            own[b] += 1
            spare[a], spare[b] = open_to[a], False
            gap[cells] += plain[b] - plain[a]
            improved = changed = True
        if not improved:
            break
    return changed


def _negligible(share: np.ndarray) -> float:
    """Return the share below which households make up a hundredth of all.

    Swaps must not bring in what the weights all but exclude.
    """
    ascending = np.sort(share)
    passed = np.cumsum(ascending)
    return float(ascending[np.searchsorted(passed, 0.01 * passed[-1])]) if passed[-1] > 0 else 0.0
