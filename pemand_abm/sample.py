"""Which households negotiate.

A stratified sample with probabilities that grow with the surrogate's uncertainty (ARCHITECTURE §5,
2).

Permanent random numbers with Pareto sampling (Rosén 1997) fix the size of each stratum and let
scenarios share their sample.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pemand_abm import keys

LEAST = 4  # Negotiations a stratum: fewer give no variance.


def household_types(households: pd.DataFrame) -> pd.Series:
    """Return `one person`, `adults only` or `with children` for each household."""
    kind = np.select(
        [households["hhsize"] == 1, households["children"] > 0],
        ["one person", "with children"],
        "adults only",
    )
    return pd.Series(kind, index=households.index)


def strata(households: pd.DataFrame, n: int) -> pd.Series:
    """Return the finest strata that *n* negotiations fill with four each.

    Household type by district, else type, else all in one.
    """
    kind = household_types(households)
    for finest in (kind + ", " + households["district"].astype(str), kind):
        if finest.nunique() * LEAST <= n and finest.value_counts().min() >= LEAST:
            return finest
    return pd.Series("all households", index=households.index)


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
    frame = pd.DataFrame({"stratum": strata(households, n), "size": uncertainty.clip(lower=1e-9)})
    frame["u"] = keys.uniforms(frame.index, seed, "permanent", kind)
    sizes = _allocate(frame.groupby("stratum")["size"].agg(["sum", "count"]), n)
    chosen = [
        _pareto(part, int(sizes[stratum]), 0.3 * n / len(frame))
        for stratum, part in frame.groupby("stratum", sort=True)
    ]
    return pd.concat(chosen).sort_values("u", kind="stable")[["stratum", "inclusion"]]


def _allocate(totals: pd.DataFrame, n: int) -> pd.Series:
    """Share *n* among strata in proportion to their uncertainty.

    Each gets at least four, and never more than it has.
    """
    least = np.minimum(LEAST if len(totals) > 1 else n, totals["count"])
    free = n - least.sum()
    share = free * totals["sum"] / totals["sum"].sum()
    sizes = np.minimum(least + np.floor(share).astype(int), totals["count"])
    order = (share - np.floor(share)).sort_values(ascending=False, kind="stable").index
    while sizes.sum() < n:
        for stratum in order:
            if sizes.sum() < n and sizes[stratum] < totals.loc[stratum, "count"]:
                sizes[stratum] += 1
    return sizes


def _pareto(part: pd.DataFrame, n: int, least: float) -> pd.DataFrame:
    inclusion = _inclusion(part["size"].to_numpy(float), n, least)
    if n >= len(part):
        return part.assign(inclusion=1.0)
    odds = part["u"] / (1 - part["u"])
    with np.errstate(divide="ignore"):
        rank = odds / (inclusion / (1 - inclusion))
    return part.assign(inclusion=inclusion, rank=rank).nsmallest(n, "rank")


def _inclusion(size: np.ndarray, n: int, least: float) -> np.ndarray:
    """Return probabilities in proportion to *size*, in [least, 1], that add up to *n*."""
    least = min(least, n / len(size))
    low, high = 0.0, 1.0 / size.min() * max(n, 1)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if np.clip(middle * size, least, 1.0).sum() < n else (low, middle)
        )
    return np.clip(high * size, least, 1.0)
