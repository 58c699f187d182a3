"""Who decides to move in the year, so that completed moves match the census rate of each group.

ARCHITECTURE §6.

Relocation is one decision, not a hazard times a decision: P = logit^-1(alpha_g + s), with s the
household's score and alpha_g the level of its group (tenure by age of head). A household moves when
its own random number lies below P, so it moves exactly when alpha_g exceeds its *critical level*
logit(u) - s. Solving alpha_g for a wanted number of movers is then a matter of sorting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pemand_abm import keys
from pemand_abm.housing import DAY

MORNING = 9 * 60


@dataclass(frozen=True, slots=True)
class Relocation:
    """The year's relocation decisions.

    `households` (index household_id): `group`, `minute` of the decision, `order` in the queue
    within a minute, `probability` (annual, of deciding to move), `moves` (bool). `groups` (index
    group): households, target_rate, wanted, decided, completed, difference, alpha.
    """

    households: pd.DataFrame
    groups: pd.DataFrame


def critical_levels(score: pd.Series, seed: int, event: str) -> pd.Series:
    """Return logit(u) - score for each household.

    The group level above which it decides to move.
    """
    u = keys.uniforms(score.index, seed, event, "decide")
    return pd.Series(np.log(u / (1 - u)), index=score.index) - score


def decide(critical: pd.Series, group: pd.Series, movers: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Return (moves, alpha by group) such that *movers* households of each group decide to move."""
    alpha = {
        name: _level(np.sort(levels.to_numpy()), int(movers[name]))
        for name, levels in critical.groupby(group)
    }
    alpha = pd.Series(alpha, dtype="float64", name="alpha")
    return critical < group.map(alpha).astype("float64"), alpha


def _level(ordered: np.ndarray, count: int) -> float:
    """Return a level above exactly *count* of the ordered critical levels.

    It lies midway between its neighbours.
    """
    below = ordered[count - 1] if count else ordered[0] - 1.0
    above = ordered[count] if count < len(ordered) else ordered[-1] + 1.0
    return float(below + above) / 2


def calibrate(
    rates: pd.DataFrame,
    completed: Callable[[pd.DataFrame], pd.Index],
    seed: int,
    event: str = "relocation:1",
    days: int = 365,
    most: int = 12,
) -> Relocation:
    """Solve the groups' levels so that the moves that the market completes match the census rates.

    *rates* (index household_id): `group`, `target` (annual rate of the group), `score` (log-odds).
    *completed* runs the housing market for a table of movers and returns the ids of the households
    that moved. Some who decide to move find no home, so more must decide than move.
    """
    year = schedule(rates.index, seed, event, days).assign(group=rates["group"])
    critical = critical_levels(rates["score"], seed, event)
    grouped = rates.groupby("group")
    households = grouped.size().rename("households")
    target = grouped["target"].first()
    wanted = np.floor(target * households * days / 365 + 0.5).astype("int64")
    decided = wanted.copy()
    best: tuple[int, Relocation] | None = None
    for _ in range(most):
        moves, alpha = decide(critical, rates["group"], decided)
        done = completed(year[moves])
        count = rates.loc[done, "group"].value_counts().reindex(households.index, fill_value=0)
        groups = pd.DataFrame(
            {
                "households": households,
                "target_rate": target,
                "wanted": wanted,
                "decided": decided,
                "completed": count,
                "difference": count - wanted,
                "alpha": alpha,
            }
        )
        probability = 1 / (1 + np.exp(-(rates["group"].map(alpha) + rates["score"])))
        found = Relocation(year.assign(probability=probability, moves=moves), groups)
        off = int(groups["difference"].abs().sum())
        if best is None or off < best[0]:
            best = (off, found)
        if off == 0:
            break
        decided = (decided - groups["difference"]).clip(lower=0, upper=households)
    assert best is not None
    return best[1]


def frozen_levels(rates: pd.DataFrame, groups: pd.DataFrame) -> pd.Series:
    """Return the levels of the groups that forecasts keep, from the calibrated base year.

    The level at which the expected number of the base year's households (*rates*: `group`, `score`)
    that decide to move is the target rate, raised by what the base year's market needed so that
    enough of them completed (*groups*: `target_rate`, `wanted`, `decided`). Unlike the calibrated
    level it does not carry the chance of one year's draws.
    """
    needed = (groups["decided"] / groups["wanted"]).where(groups["wanted"] > 0, 1.0)
    share = (groups["target_rate"] * needed).clip(1e-6, 1 - 1e-6)
    level = {
        name: _solve(score.to_numpy(), float(share[name]))
        for name, score in rates["score"].groupby(rates["group"])
    }
    return pd.Series(level, dtype="float64", name="alpha")


def _solve(score: np.ndarray, share: float) -> float:
    """Return the level at which the mean of logit^-1(level + score) is *share*."""
    low, high = -60.0, 60.0
    for _ in range(80):
        middle = (low + high) / 2
        below = (1 / (1 + np.exp(-(middle + score)))).mean() < share
        low, high = (middle, high) if below else (low, middle)
    return (low + high) / 2


def decide_by_levels(
    rates: pd.DataFrame, levels: pd.Series, seed: int, event: str, days: int = 365
) -> Relocation:
    """Return the decisions of a forecast year, by levels that an earlier year was solved for.

    A group that the base year did not have has the level 0: the survey's own rates.
    """
    alpha = rates["group"].map(levels).astype("float64").fillna(0.0)
    year = schedule(rates.index, seed, event, days).assign(
        group=rates["group"],
        probability=1 / (1 + np.exp(-(alpha + rates["score"]))),
        moves=critical_levels(rates["score"], seed, event) < alpha,
    )
    grouped = year.groupby("group")
    groups = pd.DataFrame({"households": grouped.size(), "decided": grouped["moves"].sum()})
    return Relocation(year, groups)


def schedule(ids: pd.Index, seed: int, event: str, days: int) -> pd.DataFrame:
    """Return each household's day of the decision as `minute`.

    Integer, nine in the morning and its `order` in that minute's queue.
    """
    day = np.floor(keys.uniforms(ids, seed, event, "date") * days).astype("int64")
    order = keys.uniforms(ids, seed, event, "order")
    return pd.DataFrame({"minute": day * DAY + MORNING, "order": order}, index=ids)
