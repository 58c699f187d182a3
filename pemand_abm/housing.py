"""The housing market: vacant dwellings a zone, movers who look for one, queue, and give up.

A zone's capacity is its stock of dwellings; a move takes a vacant one and frees the one left
behind, so dwellings and households are both conserved.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import simpy

from pemand_abm import keys
from pemand_abm.errors import TableError

DAY = 24 * 60
YEAR = 365 * DAY  # The calendar has no leap years.


@dataclass(frozen=True, slots=True)
class HousingSettings:
    """How movers choose, how many zones a mover considers, and how long he waits.

    Utility of a zone = ln(dwellings) + per_minute * minutes from the present zone + per_income *
    |ln(income / zone's median income)| + Gumbel. These weights are this project's assumptions, not
    estimates.
    """

    considered: int = 3
    patience_days: int = 60
    per_minute: float = -0.1
    per_income: float = -0.5


def vacancies(dwellings: pd.Series, households: pd.Series) -> pd.Series:
    """Return vacant dwellings a zone (int64, same index).

    More households than dwellings is an error in the region.
    """
    occupied = households.value_counts().reindex(dwellings.index, fill_value=0)
    vacant = np.floor(dwellings).astype("int64") - occupied
    if (vacant < 0).any():
        worst = vacant[vacant < 0].sort_values()
        zones = ", ".join(f"zone {z} ({-v} too few)" for z, v in worst.head(3).items())
        raise TableError(
            f"land_use.csv, dwellings: {len(worst)} zones have fewer dwellings than households: "
            f"{zones}. Raise `dwellings` or lower the zone's household total."
        )
    return vacant


def preferred_zones(
    movers: pd.DataFrame,
    zones: pd.DataFrame,
    minutes: np.ndarray,
    settings: HousingSettings,
    seed: int,
    terms: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Return each mover's best zones, best first, as positions in *zones*.

    Int array (movers, considered). *terms* is added to the utility: what agreed terms are worth.

    *movers*: index household_id, `home_zone_id`, `income`. *zones*: index zone_id, `dwellings`,
    `median_income`. *minutes*: (zones, zones).
    """
    home = zones.index.get_indexer(movers["home_zone_id"])
    income = np.log(movers["income"].clip(lower=1000).to_numpy(float))[:, None]
    reference = np.log(zones["median_income"].clip(lower=1000).to_numpy(float))[None, :]
    with np.errstate(divide="ignore"):
        size = np.log(zones["dwellings"].to_numpy(float))[None, :]
    utility = (
        size
        + settings.per_minute * minutes[home]
        + settings.per_income * np.abs(income - reference)
        + terms
    )
    noise = np.column_stack(
        [keys.uniforms(movers.index, seed, "home", str(zone)) for zone in zones.index]
    )
    utility = utility - np.log(-np.log(noise))
    considered = min(settings.considered, len(zones))
    return np.argsort(-utility, axis=1, kind="stable")[:, :considered]


class Market:
    """Vacant dwellings, one SimPy container a zone; movers wait in the order in which they came."""

    def __init__(self, env: simpy.Environment, vacant: pd.Series, dwellings: pd.Series):
        self.env = env
        self.vacant = [
            simpy.Container(env, capacity=max(int(stock), 1), init=int(free))
            for stock, free in zip(dwellings, vacant, strict=True)
        ]

    def take(self, considered: np.ndarray) -> int | None:
        """Take a dwelling in the first zone of *considered* that has one free.

        Gives the zone's position, or None when none is free.
        """
        for zone in considered:
            # A queue is served first: a newcomer does not take what others wait for.
            if self.vacant[zone].level >= 1 and not self.vacant[zone].get_queue:
                self.vacant[zone].get(1)
                return int(zone)
        return None

    def wait(
        self, considered: np.ndarray, patience_days: int
    ) -> Generator[simpy.Event, Any, int | None]:
        """Queue in all zones of *considered*.

        Gives the position of the first that frees a dwelling, or None when patience ends.
        """
        wanted = {int(zone): self.vacant[zone].get(1) for zone in considered}
        yield self.env.any_of([*wanted.values(), self.env.timeout(patience_days * DAY)])
        got = [zone for zone, get in wanted.items() if get.triggered]
        for get in wanted.values():
            if not get.triggered:
                get.cancel()
        for zone in got[1:]:
            self.leave(zone)
        return got[0] if got else None

    def leave(self, zone: int) -> None:
        """Free the dwelling that a household has left."""
        self.vacant[zone].put(1)
