"""The files of a run that planning tools read: zone demand, trip and move matrices, the map."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pandas as pd

from pemand_abm.demand import (
    COLUMNS,
    Demand,
    DemandSettings,
    balance_table,
    demand_table,
    moves_matrix,
    trip_matrices,
    zone_demand,
)
from pemand_abm.geopackage import write_zones
from pemand_abm.matrices import write_matrices
from pemand_abm.periods import od_matrices
from pemand_abm.surrogate import PURPOSES, Rates
from pemand_abm.tables import write_csv
from pemand_abm.vehicles import vehicle_trips

if TYPE_CHECKING:
    from geopandas import GeoDataFrame

SURROGATE = "surrogate"
# Columns that only the map has.
MAP_COLUMNS: dict[str, str] = {
    "trips_per_household": "trips of the zone's households wherever they start, over the "
    "households "
    "(person trips of an average weekday a household; empty without households)",
    "moves_out": "completed moves that left a dwelling of the zone (moves of the run)",
    "moves_in": "completed moves into a dwelling of the zone (moves of the run)",
    "dwellings": "dwellings, occupied and vacant (dwellings)",
    "vacant_dwellings": "dwellings without a household at the end of the run (dwellings)",
    "trips_method": "how the trips of the zone's households were estimated: surrogate (no "
    "negotiation entered), synthetic (a share of its district's estimate), composite (with what "
    "its own negotiations say)",
}


class Zoned(Protocol):
    """What the exports need to know of a region."""

    @property
    def zones(self) -> pd.DataFrame: ...
    @property
    def polygons(self) -> GeoDataFrame: ...
    @property
    def skims(self) -> dict[str, np.ndarray]: ...
    @property
    def group_quarters(self) -> pd.Series: ...


def write_demand(
    out: Path,
    region: Zoned,
    households: pd.DataFrame,
    decisions: pd.DataFrame,
    events: pd.DataFrame,
    rates: Rates,
    quarters_trips: pd.DataFrame | None = None,
    settings: DemandSettings | None = None,
    at_home: pd.DataFrame | None = None,
    methods: pd.Series | None = None,
) -> list[str]:
    """Write a run's demand, matrices and map, and return notes for the manifest.

    The files are `demand.csv`, `columns.csv`, `demand_balance.csv`, `vehicle_trips.csv`,
    `trips.omx`, `moves.omx` and `zones.gpkg`. Everything is computed before the first file is
    written.

    Parameters
    ----------
    out : Path
        The run's folder.
    region : Zoned
        `zones` (indexed by `zone_id`, ascending, with `district` and land use), with the
        `polygons`, `skims` and persons in `group_quarters` of the same zones.
    households, decisions, events : DataFrame
        Of the run (docs/design.md). Trips stand at the `home_zone_id` given here: the homes of the
        travel day, before the moves.
    rates : Rates
        Its shares of periods and modes are used.
    quarters_trips : DataFrame, optional
        Trips of the persons in group quarters, zones x purposes; they get columns of their own.
    settings : DemandSettings, optional
        Attraction rates, decays and skims.
    at_home : DataFrame, optional
        Trips at the homes, zones x purposes, in place of what the decisions add up to.
    methods : Series, optional
        How each zone's trips at home were estimated; the surrogate's by default.
    """
    out, settings, zones = Path(out), settings or DemandSettings(), region.zones
    demand = zone_demand(decisions, households, zones, settings.rates, at_home)
    cores, notes = trip_matrices(demand, region.skims, settings)
    moves = moves_matrix(events, zones.index)
    table = demand_table(
        demand, zones, households, _quarters(region.group_quarters, quarters_trips)
    )
    layer = map_table(table, demand.at_home, moves, zones["dwellings"], methods)
    balance = balance_table(demand, cores, region.skims, settings)
    vehicles = vehicle_trips(
        decisions, households, rates.modes, None if at_home is None else at_home.sum()
    )
    flows = od_matrices(cores, rates.periods)
    write_csv(table, out / "demand.csv")
    write_csv(column_meanings({"demand.csv": table, "zones.gpkg": layer}), out / "columns.csv")
    write_csv(balance, out / "demand_balance.csv")
    write_csv(vehicles, out / "vehicle_trips.csv")
    write_matrices(out / "trips.omx", cores | flows, zones.index)
    write_matrices(out / "moves.omx", {"MOVES": moves}, zones.index)
    write_zones(out / "zones.gpkg", region.polygons, layer, "TRIPS_P")
    return notes + ratio_notes(demand)


def _quarters(persons: pd.Series, trips: pd.DataFrame | None) -> pd.DataFrame:
    table = persons.to_frame("persons")
    return table if trips is None else table.join(trips[list(PURPOSES)])


def map_table(
    table: pd.DataFrame,
    at_home: pd.Series,
    moves: np.ndarray,
    stock: pd.Series,
    methods: pd.Series | None = None,
) -> pd.DataFrame:
    """Return the columns of `demand.csv` with those that only the map has."""
    lived = table["households"]
    layer = table.assign(
        trips_per_household=(at_home / lived.where(lived > 0)).round(4),
        moves_out=moves.sum(axis=1).astype("int64"),
        moves_in=moves.sum(axis=0).astype("int64"),
    )
    # A move within the zone frees one dwelling and takes another.
    at_end = lived + layer["moves_in"] - layer["moves_out"]
    return layer.assign(
        dwellings=stock,
        vacant_dwellings=stock - at_end,
        trips_method=SURROGATE if methods is None else methods.reindex(layer.index),
    )


def column_meanings(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return `columns.csv`: each column with its files, its meaning and its unit."""
    held = {name: {str(table.index.name), *table.columns} for name, table in tables.items()}
    rows = [
        {
            "column": column,
            "files": " ".join(name for name, columns in held.items() if column in columns),
            "meaning": meaning,
        }
        for column, meaning in {**COLUMNS, **MAP_COLUMNS}.items()
    ]
    return pd.DataFrame(rows).query("files != ''").set_index("column")


def ratio_notes(demand: Demand) -> list[str]:
    """Return a note for each purpose whose productions and raw attractions differ by a tenth.

    0.90 to 1.10 is the TMIP manual's range for a whole region; it is a flag, not a test.
    """
    ratio = demand.ratio.dropna()
    return [
        f"{purpose.upper()}: productions are {value:.2f} times what the land use attracts (0.90 "
        "to 1.10 is usual for a whole region); "
        "attractions were scaled to the productions"
        for purpose, value in ratio[(ratio < 0.9) | (ratio > 1.1)].items()
    ]
