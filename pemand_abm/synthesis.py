"""The synthetic population: seed households copied into zones until every zone meets its controls.

Two steps, for all zones and geographies at once. *Balancing* finds the weights nearest to the
seed's, in relative entropy, that meet the controls; it is a Newton iteration on the dual, whose
linear system falls apart into one block a zone, bordered by the controls of the coarser
geographies. *Rounding* makes whole households of the weights: a systematic draw, then swaps that
lessen the error over all controls. Household totals are exact in every zone; whatever else is not
met stands in the fit table. Reading and checking the region's files is `region`'s work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from pemand_abm import keys
from pemand_abm.errors import TableError, listed
from pemand_abm.expressions import incidence, table_of
from pemand_abm.ids import as_ids, some
from pemand_abm.region import Region
from pemand_abm.tables import write_csv, write_parquet

# PopulationSim's customary limit: no seed household stands for more than 30 times its own weight.
MOST_EXPANSION = 30.0
NEWTON_STEPS = 200
CAP_STEPS = 30
SWAP_CYCLES = 12
SWAP_PASSES = 3
SWAP_BLOCK = 64
HOUSEHOLD_COLUMNS = (
    "hhsize", "num_workers", "auto_ownership", "income", "HHT", "tenure", "age_of_head", "children",
)  # fmt: skip
# One thread: sums in one order for any number of cores, and no loss on matrices this small.
one_thread = threadpool_limits.wrap(limits=1, user_api="blas")
RELAXED = "relaxed: the other controls, the seed or the expansion limit do not allow it"


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """The synthesized households and persons of a region, and how well they meet the controls."""

    households: pd.DataFrame
    """Index `household_id` (int64, 1..N by zone, then seed); the columns of docs/design.md, then
    whatever else the seed has."""
    persons: pd.DataFrame
    """Index `person_id` (int64, 1..M); `household_id`, `PNUM` and the seed's person columns."""
    group_quarters: pd.DataFrame
    """Index `zone_id`, column `persons`: people outside households, none of them in `persons`."""
    fit: pd.DataFrame
    """A row for each `geography`, `zone` and `target`, in the order of the controls: `control`
    (wanted), `balanced`, `result`, `difference` (result - control) and `note`."""


@dataclass(frozen=True, slots=True, eq=False)
class Control:
    """One control: what each seed household adds (n,), and what each area of a geography wants."""

    target: str
    geography: str
    importance: float
    values: np.ndarray
    wanted: np.ndarray

    def is_of(self, target: str, geography: str) -> bool:
        return self.target == target and self.geography == geography


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


def synthesize(region: Region, seed: int, workers: int = 1) -> Population:
    """Synthesize the households and persons of a region.

    A zone's draw has its own key, so without coarser controls a zone's households do not depend on
    other zones. The work is a few matrix products, done in this process whatever *workers* says:
    more of them would cost more than they save.

    Raises
    ------
    TableError
        Household totals that are no whole numbers, controls or expressions that cannot be read, a
        seed without weight. Controls that contradict each other or ask for what the seed lacks are
        no errors: they are met as nearly as can be, and noted.
    """
    del workers
    households = _weighted(region)
    controls = _controls(region, households)
    problem = _problem(region, households, controls)
    weights, steps = balance(problem)
    counts = round_weights(problem, weights, seed)
    population = Population(
        *_expand(region, households, counts),
        region.group_quarters.rename("persons").rename_axis("zone_id").to_frame(),
        _fit(region, controls, problem, weights, counts, steps),
    )
    check_population(population, pd.Series(problem.totals, index=region.zones.index))
    return population


# Reading the controls into arrays.


def _weighted(region: Region) -> pd.DataFrame:
    """Return the seed's households with their weights; a seed without weights counts each once."""
    households = region.seed_households
    if "weight" not in households:
        return households.assign(weight=1.0)
    weight = pd.to_numeric(households["weight"], errors="coerce").to_numpy("float64")
    bad = households.index[~(np.isfinite(weight) & (weight >= 0))]
    if len(bad):
        said = (
            f"column weight: {len(bad)} are not numbers of 0 or more, first at seed_id {some(bad)}"
        )
        raise TableError(f"{region.recipe.seed.households}: {said}")
    if not weight.sum() > 0:
        raise TableError(
            f"{region.recipe.seed.households}: column weight: no household has a weight above 0"
        )
    return households


def _controls(region: Region, households: pd.DataFrame) -> list[Control]:
    """Return the controls: the household total first, then the zones', then the coarser ones."""
    recipe, problems = region.recipe, []
    tables = {"households": households, "persons": region.seed_persons}
    controls = []
    for row in region.controls.itertuples():
        target, expression = str(row.target), str(row.expression)
        try:
            values = incidence(expression, tables, target).to_numpy()
        except TableError as fault:
            problems.append(fault.message)
            continue
        if (named := table_of(expression)) != row.seed_table:
            said = f"seed_table is {row.seed_table}, but its expression names {named}"
            problems.append(f"control {target}: {said}; make them agree")
        column = region.totals[row.geography][row.control_field]
        wanted = pd.to_numeric(column, errors="coerce").to_numpy("float64")
        if not np.isfinite(wanted).all():
            said = f"{recipe.totals[row.geography]}: column {row.control_field}"
            problems.append(f"control {target}: {said} has cells that are no numbers")
        # An importance of 0 asks for a report alone; the least positive one does that.
        importance = max(float(row.importance), 1e-6)
        controls.append(Control(target, row.geography, importance, values, wanted))
    totals = [c for c in controls if c.is_of(recipe.household_total, recipe.zone)]
    if not problems and len(totals) != 1:
        said = f"must hold the target {recipe.household_total!r} once at geography {recipe.zone!r}"
        problems.append(f"{said}, holds it {len(totals)} times")
    if problems:
        raise TableError(listed(problems, recipe.controls))
    _check_totals(region, totals[0], households)
    others = [c for c in controls if c is not totals[0]]
    return totals + sorted(others, key=lambda c: c.geography != recipe.zone)


def _check_totals(region: Region, total: Control, households: pd.DataFrame) -> None:
    recipe = region.recipe
    if not (total.values[households["weight"].to_numpy() > 0] == 1).all():
        said = f"control {total.target}: the household total must count every household once"
        raise TableError(f"{recipe.controls}: {said}; write the expression households.weight > 0")
    wanted = pd.Series(total.wanted, index=region.totals[recipe.zone].index)
    bad = wanted[(wanted % 1 != 0) | (wanted < 0)]
    if len(bad):
        shown = "; ".join(f"zone {zone}: {value:g}" for zone, value in bad.head(3).items())
        said = f"{len(bad)} household totals are not whole numbers of 0 or more, first {shown}"
        raise TableError(
            f"{recipe.totals[recipe.zone]}: control {total.target}: {said}; round them"
        )


def _problem(region: Region, households: pd.DataFrame, controls: list[Control]) -> Problem:
    zones, recipe = region.zones.index, region.recipe
    base = households["weight"].to_numpy("float64")
    codes = {g: _codes(region, g) for g in region.totals}
    total, *others = controls
    units = [_unit(c.values, base) for c in others]
    targets = [c.wanted / unit for c, unit in zip(others, units, strict=True)]
    starts = np.cumsum([0, *map(len, targets)])
    flat = np.concatenate([*targets, np.zeros(0)])
    importance = np.repeat([c.importance for c in others], np.diff(starts))
    values = [c.values / unit for c, unit in zip(others, units, strict=True)]
    cells = [start + codes[c.geography] for start, c in zip(starts, others, strict=False)]
    coarse = {c.geography for c in others} - {recipe.zone}
    nested = region.crosswalk.reindex(zones).iloc[:, :1].to_numpy().ravel()
    return Problem(
        zones=zones.tolist(),
        totals=total.wanted[codes[recipe.zone]].astype("int64"),
        base=base,
        incidence=np.column_stack([*values, np.zeros((len(base), 0))]),
        fine=sum(c.geography == recipe.zone for c in others),
        cells=np.column_stack([*cells, np.zeros((len(zones), 0))]).astype("int64"),
        targets=flat,
        slack=np.maximum(np.abs(flat), 1.0) / importance,
        area=pd.factorize(nested)[0] if len(nested) else np.zeros(len(zones), dtype="int64"),
        linked=_linked([codes[g] for g in recipe.geographies if g in coarse], len(zones)),
    )


def _codes(region: Region, geography: str) -> np.ndarray:
    """Return for each zone the row of its area in a geography's totals."""
    zones, held = region.zones.index, region.totals[geography].index
    fine = geography == region.recipe.zone
    code = held.get_indexer(zones if fine else pd.Index(region.crosswalk[geography].reindex(zones)))
    if (code < 0).any():
        lacking = some(zones[code < 0])
        raise TableError(f"{region.recipe.totals[geography]}: lacks the area of zones {lacking}")
    return code


def _unit(values: np.ndarray, base: np.ndarray) -> float:
    """Return a control's mean over the households that add to it; 1 for a count of households."""
    held = (values != 0) & (base > 0)
    return float((base[held] @ np.abs(values[held])) / base[held].sum()) if held.any() else 1.0


def _linked(codes: list[np.ndarray], zones: int) -> np.ndarray:
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
    as in PopulationSim's relaxation to first order. A zone's household total is a hard constraint,
    and in an area no household expands more than *most* times the area's mean expansion. Zones of
    no households have zeros. A zone that took `NEWTON_STEPS` steps is not converged.
    """
    live = np.flatnonzero(problem.totals > 0)
    weights = np.zeros((len(problem.zones), len(problem.base)))
    steps = np.zeros(len(problem.zones), dtype="int64")
    if not len(live):
        return weights, steps
    totals, area = problem.totals[live].astype("float64"), problem.area[live]
    shares = problem.base / problem.base.sum()
    limit = most * np.bincount(area, totals, problem.area.max() + 1)[:, None] * shares
    pulls, bounded = np.zeros(limit.shape), np.zeros(limit.shape, dtype=bool)
    multipliers, size = np.zeros(len(problem.targets)), len(problem.targets)
    for _ in range(CAP_STEPS):
        held = np.flatnonzero(bounded.any(axis=0))
        start = np.concatenate([multipliers, pulls[:, held].ravel()])
        found, end, steps[live] = _newton(_capped(problem, limit, bounded, held), live, start)
        multipliers, pulls[:, held] = end[:size], end[size:].reshape(len(pulls), len(held))
        expanded = np.zeros(limit.shape)
        np.add.at(expanded, area, found)
        over, slackened = expanded > 1.001 * limit, bounded & (pulls > 0)
        if not (over & ~bounded).any() and not slackened.any():
            break
        bounded = (bounded | over) & ~slackened
        pulls = np.where(bounded, np.minimum(pulls, 0.0), 0.0)
    weights[live] = found
    return weights, steps


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
        linked=_linked([problem.linked, np.where(busy, problem.area, apart)], len(problem.zones)),
    )


def _newton(
    problem: Problem, live: np.ndarray, multipliers: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return weights (live, n), multipliers (C,) and steps (live,), started at *multipliers*.

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
        log_base = np.log(problem.base / problem.base.sum())
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
        open_groups &= worst > 1e-7
        if not open_groups.any():
            break
        curvature = np.stack([(x * w[:, None]).T @ x for w in weights])
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
    x = problem.incidence * scale
    norm = np.einsum("nk,nk->n", x, x)
    taken = counts[z] - lower[z]
    free = (taken == 0) & (share > _negligible(share))
    changed = False
    for _ in range(SWAP_CYCLES):
        improved = False
        inside = np.flatnonzero(taken > 0)
        for at in range(0, len(inside), SWAP_BLOCK):
            out, into = inside[at : at + SWAP_BLOCK], np.flatnonzero(free)
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
            counts[z, a] -= 1
            counts[z, b] += 1
            taken[a] -= 1
            taken[b] += 1
            free[a], free[b] = share[a] > 0, False
            gap[cells] += problem.incidence[b] - problem.incidence[a]
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


# The tables.


def _expand(
    region: Region, seed: pd.DataFrame, counts: np.ndarray
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return households and persons, each seed household as often as a zone counts it."""
    zone, kind = np.nonzero(counts)
    times = counts[zone, kind]
    zone, kind = np.repeat(zone, times), np.repeat(kind, times)
    ids = np.arange(1, len(kind) + 1, dtype="int64")
    places, copied = region.zones.iloc[zone], seed.drop(columns="weight").iloc[kind]
    columns = {"home_zone_id": places.index.array, "district": places["district"].array}
    columns |= {c: copied[c].array for c in HOUSEHOLD_COLUMNS}
    columns |= {"seed_id": copied.index.array}
    columns |= {c: copied[c].array for c in copied if c not in HOUSEHOLD_COLUMNS}
    households = pd.DataFrame(columns, index=pd.Index(ids, name="household_id"))

    members = region.seed_persons
    of = seed.index.get_indexer(members["seed_id"])
    members = members.iloc[np.lexsort((members["PNUM"].to_numpy(), of))].drop(columns="seed_id")
    members = members[["PNUM", *(c for c in members if c != "PNUM")]]
    size = np.bincount(of, minlength=len(seed))
    many = size[kind]
    start = (np.cumsum(size) - size)[kind]
    rows = np.repeat(start - (np.cumsum(many) - many), many) + np.arange(many.sum())
    index = pd.RangeIndex(1, len(rows) + 1, name="person_id").astype("int64")
    persons = members.iloc[rows].set_axis(index)
    persons.insert(0, "household_id", np.repeat(ids, many))
    return households, persons


def check_population(population: Population, totals: pd.Series) -> None:
    """Refuse a population whose persons, sizes or zone totals disagree.

    Raises
    ------
    TableError
        Persons without household, households whose `hhsize` is not their count of persons, zones
        off their total.
    """
    households, persons = population.households, population.persons
    problems = []
    orphans = persons.index[~persons["household_id"].isin(households.index)]
    if len(orphans):
        problems.append(
            f"{len(orphans)} persons belong to no household, first person_id {some(orphans)}"
        )
    size = persons.groupby("household_id").size().reindex(households.index, fill_value=0)
    bad = households[households["hhsize"] != size]
    if len(bad):
        said = f"{len(bad)} households differ from their count of persons"
        problems.append(f"column hhsize: {said}, from seed_id {some(bad['seed_id'].unique())}")
    lived = households.groupby("home_zone_id").size().reindex(totals.index, fill_value=0)
    wrong = totals.index[lived != totals]
    if len(wrong):
        problems.append(f"column home_zone_id: household totals are not met in zones {some(wrong)}")
    if problems:
        raise TableError(listed(problems, "synthesized population"))


@one_thread
def _fit(
    region: Region,
    controls: list[Control],
    problem: Problem,
    weights: np.ndarray,
    counts: np.ndarray,
    steps: np.ndarray,
) -> pd.DataFrame:
    """Return the fit of every control in the file's order, with notes on what was not met."""
    by_name = {(c.geography, c.target): c for c in controls}
    parts = []
    for row in region.controls.itertuples():
        control = by_name[row.geography, row.target]
        areas, code = region.totals[row.geography].index, _codes(region, row.geography)
        part = pd.DataFrame(
            {
                "geography": row.geography,
                "zone": areas.astype(str),
                "target": row.target,
                "control": control.wanted,
                "balanced": np.bincount(code, weights @ control.values, len(areas)),
                "result": np.bincount(code, counts @ control.values, len(areas)),
            }
        ).assign(difference=lambda d: d["result"] - d["control"])
        live = np.bincount(code, problem.totals, len(areas)) > 0
        stuck = np.bincount(code, steps >= NEWTON_STEPS, len(areas)) > 0
        absent = not control.values[problem.base > 0].any()
        off = (part["balanced"] - part["control"]).abs()
        loose = off > np.maximum(0.5, 0.01 * part["control"].abs())
        wants = part["control"] != 0
        notes = {
            "there are no households here": ~live & wants,
            "no seed household adds to it": live & wants & absent,
            RELAXED: live & loose & (not absent),
            f"balancing stopped after {NEWTON_STEPS} steps": live & stuck,
        }
        parts.append(part.assign(note=_joined(notes)))
    fit = pd.concat(parts, ignore_index=True)
    return fit.assign(zone=as_ids(fit["zone"]))


def _joined(notes: dict[str, pd.Series]) -> list[str]:
    """Return for each row the notes that hold of it."""
    held = [np.where(where, text, "") for text, where in notes.items()]
    return ["; ".join(filter(None, row)) for row in zip(*held, strict=True)]


def fit_summary(fit: pd.DataFrame) -> pd.DataFrame:
    """Return the fit by geography and target.

    Returns
    -------
    pandas.DataFrame
        `control` and `result` (totals); `mean_percent_difference` of a cell and `percent_rmse`, the
        root of the mean squared difference over the mean control, both over the n cells whose
        control is not 0 (the mean divides by n, not n - 1); `absolute_percent`, the sum of absolute
        differences of all cells as % of the total control; `largest_error`; `cells`; `n`. NaN where
        no cell has a control.
    """
    wanted = fit["control"].where(fit["control"] != 0)
    # A cell whose control is 0 has no percentage; absolute_percent and largest_error count it.
    parts = fit.assign(
        percent=100 * fit["difference"] / wanted,
        square=(fit["difference"] ** 2).where(wanted.notna()),
        wanted=wanted,
        off=fit["difference"].abs(),
    )
    by = parts.groupby(["geography", "target"], sort=False)
    sums = by[["control", "result", "off"]].sum()
    total = sums["control"].where(sums["control"] != 0)
    return pd.DataFrame(
        {
            "control": sums["control"],
            "result": sums["result"],
            "mean_percent_difference": by["percent"].mean(),
            "percent_rmse": 100 * np.sqrt(by["square"].mean()) / by["wanted"].mean(),
            "absolute_percent": 100 * sums["off"] / total,
            "largest_error": by["off"].max(),
            "cells": by.size(),
            "n": by["wanted"].count(),
        }
    )


def write_population(population: Population, out: Path) -> None:
    """Write the population's tables as parquet, and its fit and the summary as CSV."""
    out = Path(out)
    write_parquet(population.households, out / "households.parquet")
    write_parquet(population.persons, out / "persons.parquet")
    write_parquet(population.group_quarters, out / "group_quarters.parquet")
    write_csv(population.fit.set_index(["geography", "zone", "target"]), out / "fit.csv")
    write_csv(fit_summary(population.fit), out / "fit_summary.csv")
