"""Which households negotiate.

A stratified sample with probabilities that grow with the surrogate's uncertainty (ARCHITECTURE §5,
2).

Permanent random numbers with Pareto sampling (Rosén 1997) fix the size of each stratum and let
scenarios share their sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pemand_abm import keys

LEAST = 4  # Negotiations a stratum: fewer give no variance to rely on.
LOWEST = 0.3  # Of the mean inclusion probability: no household weighs more than 3.3 times the mean.


def household_types(households: pd.DataFrame) -> pd.Series:
    """Return `one person`, `adults only` or `with children` for each household."""
    kind = np.select(
        [households["hhsize"] == 1, households["children"] > 0],
        ["one person", "with children"],
        "adults only",
    )
    return pd.Series(kind, index=households.index)


def strata(households: pd.DataFrame, uncertainty: pd.Series, n: int) -> pd.Series:
    """Return household type x district, joined until *n* negotiations give each stratum four.

    Negotiations are shared in proportion to the uncertainty, so the strata are joined before
    anybody is drawn: the one with the least uncertainty with the next smallest of its type, and
    where it is the last of its type with the next smallest of all. 24 negotiations allow six.
    """
    kind, district = household_types(households), households["district"].astype("str")
    sizes = uncertainty.groupby([kind, district]).sum()
    shares = sizes * n / sizes.sum()
    parts = [({cell}, float(share)) for cell, share in shares.items()]
    while len(parts) > 1:
        parts.sort(key=lambda part: (part[1], sorted(part[0])))
        (cells, share), others = parts[0], parts[1:]
        if share >= LEAST:
            break
        mine = {k for k, _ in cells}
        mate = next((o for o in others if {k for k, _ in o[0]} == mine), others[0])
        parts = [(cells | mate[0], share + mate[1]), *(o for o in others if o is not mate)]
    all_of = shares.index.to_frame(index=False, name=["kind", "district"]).groupby("kind")
    every = {k: set(rows["district"]) for k, rows in all_of}
    name_of = {cell: _named(cells, every) for cells, _ in parts for cell in cells}
    cells = pd.MultiIndex.from_arrays([kind, district])
    return pd.Series(cells.map(name_of), index=households.index, dtype="str", name="stratum")


def _named(cells: set[tuple[str, str]], every: dict[str, set[str]]) -> str:
    """Return a stratum's name: `one person, North or South`; a type alone where it is whole."""
    if len(cells) == sum(map(len, every.values())):
        return "all households"
    parts = []
    for kind in sorted({k for k, _ in cells}):
        own = sorted(d for k, d in cells if k == kind)
        parts.append(kind if set(own) == every[kind] else f"{kind}, {' or '.join(own)}")
    return "; ".join(parts)


def design_sample(households: pd.DataFrame, uncertainty: pd.Series, n: int) -> pd.DataFrame:
    """Return each household's `stratum`, `inclusion` (probability) and `taken` (its stratum's n).

    *uncertainty* is the surrogate's standard deviation of the decision, *n* the negotiations.
    Probabilities are in proportion to it, at least 0.3 n / N and at most 1; in a stratum they add
    up to the negotiations that it gets.
    """
    size = uncertainty.clip(lower=1e-9)
    frame = pd.DataFrame({"stratum": strata(households, size, n), "size": size})
    sums = frame.groupby("stratum")["size"].agg(["sum", "count"])
    taken = _allocate(sums, min(n, len(frame)))
    inclusion = pd.Series(1.0, index=households.index)
    for stratum, part in frame.groupby("stratum", sort=True):
        inclusion.loc[part.index] = _inclusion(
            part["size"].to_numpy(float), int(taken[stratum]), LOWEST * n / len(frame)
        )
    return frame[["stratum"]].assign(
        inclusion=inclusion, taken=frame["stratum"].map(taken).astype("int64")
    )


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """A design made ready for many draws; rows stand for households in the design's order.

    `odds` of inclusion of each row; `strata` the rows of each stratum with the n taken from it.
    """

    odds: np.ndarray
    strata: tuple[tuple[np.ndarray, int], ...]

    @classmethod
    def of(cls, design: pd.DataFrame) -> Draw:
        inclusion = design["inclusion"].to_numpy(float)
        with np.errstate(divide="ignore"):
            odds = inclusion / (1 - inclusion)
        rows = sorted(design.groupby("stratum").indices.items())
        return cls(odds, tuple((at, int(design["taken"].iat[at[0]])) for _, at in rows))

    def rows(self, u: np.ndarray) -> np.ndarray:
        """Return the rows drawn with the households' random numbers *u*, stratum by stratum.

        Pareto sampling: the smallest odds of *u* over the odds of inclusion (Rosén 1997).
        """
        rank = u / (1 - u) / self.odds
        drawn = [
            at if n >= len(at) else at[np.argpartition(rank[at], n - 1)[:n]]
            for at, n in self.strata
            if n
        ]
        return np.concatenate(drawn) if drawn else np.array([], dtype="int64")


def draw_sample(
    households: pd.DataFrame, uncertainty: pd.Series, n: int, seed: int, kind: str
) -> pd.DataFrame:
    """Return the sampled households in the order in which they start.

    *uncertainty* is the surrogate's standard deviation of the decision. Index household_id, columns
    `stratum` and `inclusion` (probability).
    """
    n = min(n, len(households))
    if n == 0:
        nobody = pd.DataFrame({"stratum": "", "inclusion": 0.0}, index=households.index)
        return nobody.iloc[:0]
    design = design_sample(households, uncertainty, n)
    u = keys.uniforms(households.index, seed, "permanent", kind)
    drawn = Draw.of(design).rows(u)
    return design.iloc[drawn[np.argsort(u[drawn], kind="stable")]][["stratum", "inclusion"]]


def anticipated_error(design: pd.DataFrame, uncertainty: pd.Series) -> float:
    """Return the standard error of an estimated total that the uncertainty promises.

    In the unit of *uncertainty*; for negotiations that scatter about the surrogate's mean as the
    survey's households do.
    """
    odds = 1 / design["inclusion"] - 1
    return float(np.sqrt((uncertainty**2 * odds).sum()))


def _allocate(totals: pd.DataFrame, n: int) -> pd.Series:
    """Share *n* among strata in proportion to their uncertainty, no more than each has."""
    sizes = pd.Series(0, index=totals.index)
    open_ = totals["count"] > 0
    share = pd.Series(0.0, index=totals.index)
    while open_.any():
        share[open_] = (n - sizes[~open_].sum()) * totals["sum"] / totals["sum"][open_].sum()
        full = open_ & (share >= totals["count"])
        if not full.any():
            break
        sizes[full], open_ = totals["count"][full], open_ & ~full
    whole = np.floor(share[open_]).astype("int64")
    sizes[open_] = whole
    rest = (share[open_] - whole).sort_values(ascending=False, kind="stable")
    sizes[rest.index[: n - int(sizes.sum())]] += 1
    return sizes


def _inclusion(size: np.ndarray, n: int, least: float) -> np.ndarray:
    """Return probabilities in proportion to *size*, in [least, 1], that add up to *n*."""
    if n >= len(size):
        return np.ones(len(size))
    least = min(least, n / len(size))
    low, high = 0.0, 1.0 / size.min() * max(n, 1)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if np.clip(middle * size, least, 1.0).sum() < n else (low, middle)
        )
    return np.clip(high * size, least, 1.0)
