"""What a run's folder tells ActivitySim: where its households live, and their trips."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow.parquet

IDS = ("household_id", "seed_id")
"""Columns of a run's households that may hold ActivitySim's ids: the second of a given one."""


class RunError(Exception):
    """A run, or the settings that name it, which ActivitySim's households cannot be joined with."""


def read_homes(run: Path, key: str) -> pd.DataFrame:
    """Return the run's households, indexed by their ids in column *key*.

    Columns: `home_zone_id_before` and `home_zone_id` (zones before and after the run's moves),
    `hhsize`, `moved` (whether the household completed a move, within its zone or to another),
    and both columns of ids.
    """
    columns = [*IDS, "home_zone_id_before", "home_zone_id", "hhsize"]
    homes = _table(run, "households.parquet", columns)
    events = _table(run, "events.parquet", ["household_id", "kind"])
    movers = events.loc[events["kind"] == "moved", "household_id"]
    homes["moved"] = homes["household_id"].isin(movers)
    twice = homes.loc[homes[key].duplicated(), key].unique()
    if len(twice):
        raise RunError(
            f"{run / 'households.parquet'}: column {key}: {len(twice):,} ids stand more than once, "
            f"first {listed(twice)}. A synthesized household's seed_id tells of whom it is a copy, "
            "and is no id: write `household_id: household_id` into pemand.yaml"
        )
    return homes.set_index(key, drop=False).rename_axis(None)


def in_zones_of(run: Path, homes: pd.DataFrame, known: pd.Series) -> pd.DataFrame:
    """Return *homes* with the zone numbers of the run's matrices, if its own ids are not *known*.

    ActivitySim's zones are numbers; `trips_zones.csv` stands beside matrices whose ids are text or
    too large, and says which number each has.
    """
    file = run / "trips_zones.csv"
    columns = ["home_zone_id_before", "home_zone_id"]
    if not file.exists() or homes[columns].isin(set(known)).all(axis=None):
        return homes
    table = pd.read_csv(file, dtype={"original_id": str})
    numbers = table.set_index("original_id")["zone_number"]
    return homes.assign(**{c: homes[c].astype(str).map(numbers) for c in columns})


def read_trips(run: Path, columns: Sequence[str] | None) -> pd.DataFrame:
    """Return trips of a weekday by household of the run, indexed by the run's `household_id`.

    Without *columns* they are `value`, the trips by purpose, and `negotiated`. Of several travel
    days the latest counts.
    """
    file = run / "decisions.parquet"
    known = _columns(file)
    wanted = list(columns) if columns else ["value", *purposes(run, known), "negotiated"]
    if strange := [c for c in wanted if c not in known]:
        raise RunError(
            f"{file}: has no column {listed(strange)}; it has {listed(known, len(known))}"
        )
    table = _table(run, file.name, list(dict.fromkeys(["household_id", "kind", "minute", *wanted])))
    days = table[table["kind"] == "trips"].sort_values("minute", kind="stable")
    return days.drop_duplicates("household_id", keep="last").set_index("household_id")[wanted]


def purposes(run: Path, known: Sequence[str]) -> list[str]:
    """Return the columns of *known* that hold trips of one purpose: `demand.csv` has them all."""
    file = run / "demand.csv"
    try:
        header = pd.read_csv(file, nrows=0).columns
    except (OSError, ValueError) as fault:
        raise RunError(f"{file}: cannot be read ({fault})") from fault
    return [c for end in header if end.endswith("_P") and (c := end[:-2].lower()) in known]


def listed(values: Sequence[object], most: int = 3) -> str:
    """Return the first values, separated by commas."""
    return ", ".join(str(v) for v in list(values)[:most])


def _columns(file: Path) -> list[str]:
    if not (file.parent / "run.yaml").exists():
        raise RunError(
            f"{file.parent}: is no finished run of pemand-abm (it has no run.yaml); "
            "name its folder under `run` in pemand.yaml, as seen from that file"
        )
    try:
        return list(pyarrow.parquet.read_schema(file).names)
    except (OSError, pyarrow.ArrowInvalid) as fault:
        raise RunError(f"{file}: cannot be read ({fault})") from fault


def _table(run: Path, name: str, columns: list[str]) -> pd.DataFrame:
    """Read columns of a run's table as plain columns.

    What pandas noted of its own types in the file is left aside: the run's pandas is newer.
    """
    file = run / name
    if lacking := [c for c in columns if c not in _columns(file)]:
        raise RunError(f"{file}: has no column {listed(lacking)}; was it made by another version?")
    return pyarrow.parquet.read_table(file, columns=columns).to_pandas(ignore_metadata=True)
