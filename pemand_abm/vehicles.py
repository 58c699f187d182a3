"""Modes and vehicle trips: the households' trips times the survey's shares of modes.

No mode is chosen here: the shares are those of a purpose and of a household's vehicles, and they
know neither the zones nor the times and costs of travel.
"""

from __future__ import annotations

import pandas as pd

from pemand_abm.demand import trips_of_households
from pemand_abm.surrogate import MODE_CELLS, MODES, PURPOSES


def vehicle_trips(
    decisions: pd.DataFrame,
    households: pd.DataFrame,
    modes: pd.DataFrame,
    totals: pd.Series | None = None,
) -> pd.DataFrame:
    """Return the table of `vehicle_trips.csv`: modes and vehicle trips of a weekday by purpose.

    A vehicle trip is a trip that a member of a household drives, so every vehicle counts once,
    whoever rides along; taxis and buses are not among them.

    Parameters
    ----------
    decisions, households : DataFrame
        Of the run; the households' `auto_ownership` is used, two and more as one class.
    modes : DataFrame
        Shares by `surrogate.MODE_CELLS` x MODES.
    totals : Series, optional
        Person trips by purpose to which the decisions' are scaled, where negotiations are expanded
        to all households.

    Returns
    -------
    DataFrame
        Index `purpose`, the last row `all`: `person_trips`, `vehicle_trips`, `occupancy` (persons a
        vehicle), and the person trips by each mode but driving.
    """
    owned = households["auto_ownership"].clip(upper=2)
    trips = trips_of_households(decisions, households).groupby(owned).sum()
    if totals is not None:
        trips = trips * (totals / trips.sum()).where(trips.sum() > 0, 1.0)
    held = trips.reindex(range(3), fill_value=0.0).T.stack().reindex(MODE_CELLS)
    by_mode = modes.mul(held, axis=0).groupby("purpose").sum().loc[list(PURPOSES)]
    by_mode.loc["all"] = by_mode.sum()
    ride = by_mode["driver"] + by_mode["passenger"]
    table = pd.DataFrame(
        {
            "person_trips": by_mode.sum(axis=1),
            "vehicle_trips": by_mode["driver"],
            "occupancy": ride / by_mode["driver"].where(by_mode["driver"] > 0),
            **{mode: by_mode[mode] for mode in MODES if mode != "driver"},
        }
    )
    return table.round({"occupancy": 3}).round(6).rename_axis("purpose")
