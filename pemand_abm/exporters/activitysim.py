"""ActivitySim: households, persons, land use and skims by its names and codes, with settings.

Names and rules are those of ActivitySim 1.6.0's MTC example (`prototype_mtc/configs`) and of its
input checks (`prototype_mtc_extended/data_model/input_checks.py`). What a region's land use does
not have is not made up: the notes say which columns of the example are lacking.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from pemand_abm.errors import TableError, listed
from pemand_abm.exporters.source import Source
from pemand_abm.ids import some
from pemand_abm.matrices import numbers_are_ids, write_matrices, zone_numbers
from pemand_abm.tables import write_csv, write_text

HOUSEHOLDS = ("home_zone_id", "hhsize", "num_workers", "auto_ownership", "income", "HHT")
PERSONS = ("household_id", "PNUM", "age", "sex", "pemploy", "pstudent", "ptype")
JOBS = ("RETEMPN", "FPSEMPN", "HEREMPN", "OTHEMPN", "AGREMPN", "MWTEMPN")
# The columns that the MTC example keeps (configs/settings.yaml).
LAND_USE = (
    "DISTRICT", "SD", "county_id", "TOTHH", "TOTPOP", "TOTACRE", "RESACRE", "CIACRE", "TOTEMP",
    "AGE0519", *JOBS, "PRKCST", "OPRKCST", "area_type", "HSENROLL", "COLLFTE", "COLLPTE",
    "TOPOLOGY", "TERMINAL",
)  # fmt: skip
# Those that its input checks require to be whole numbers.
WHOLE = ("DISTRICT", "SD", "county_id", "area_type", "TOTHH", "TOTPOP", "TOTEMP", *JOBS)
# The largest that its input checks take.
MOST_VEHICLES, OLDEST = 6, 100
# Its periods of the day (configs/network_los.yaml), hours.
PERIOD_STARTS = [0, 3, 5, 9, 14, 18, 24]
PERIODS = ["EA", "EA", "AM", "MD", "PM", "EV"]


def write(source: Source, out: Path) -> list[str]:
    """Write `data/` (households, persons, land use, skims) and `configs/` (two settings files)."""
    numbers = zone_numbers(source.region.zones.index)
    notes = _unlevered(source)
    households, persons = _people(source, numbers, notes)
    land_use = _land_use(source, households, numbers, notes)
    data, configs = out / "data", out / "configs"
    write_csv(households, data / "households.csv")
    write_csv(persons, data / "persons.csv")
    write_csv(land_use, data / "land_use.csv")
    write_matrices(data / "skims.omx", source.region.skims, source.region.zones.index)
    settings = _settings(households, persons, land_use)
    write_text(_HEAD + yaml.safe_dump(settings, sort_keys=False), configs / "settings.yaml")
    write_text(
        yaml.safe_dump(_network(source, notes), sort_keys=False), configs / "network_los.yaml"
    )
    if not numbers_are_ids(numbers.index):
        notes.append(
            "ActivitySim's zones are numbers: data/skims_zones.csv gives the region's id of each."
        )
    return notes


def _people(
    source: Source, numbers: pd.Series, notes: list[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return households at the homes of the travel day, and persons."""
    given = source.households
    households = given.drop(columns=["home_zone_id_before", "district", "seed_id"]).assign(
        home_zone_id=given["home_zone_id_before"].map(numbers),
        home_zone_id_after=given["home_zone_id"].map(numbers),
        income=given["income"].round().astype("int64"),
        auto_ownership=_at_most(given["auto_ownership"], MOST_VEHICLES, "auto_ownership", notes),
    )
    households = households[[*HOUSEHOLDS, *(c for c in households if c not in HOUSEHOLDS)]]
    persons = source.persons.assign(age=_at_most(source.persons["age"], OLDEST, "age", notes))
    problems = []
    for name, lacking in (
        ("households without persons", households.index.difference(persons["household_id"])),
        ("persons without household", pd.Index(persons["household_id"]).difference(given.index)),
    ):
        if len(lacking):
            problems.append(f"{len(lacking)} {name}: household_id {some(lacking)}")
    if problems:
        raise TableError(listed(problems, str(source.folder)))
    return households, persons[[*PERSONS, *(c for c in persons if c not in PERSONS)]]


def _unlevered(source: Source) -> list[str]:
    """Say which levers of the run changed the region, whose files are exported as they are."""
    changed = [
        str(lever.get("lever"))
        for lever in source.manifest.get("levers") or []
        if any(str(f).startswith(("zones.", "skims.")) for f in lever.get("facts") or [])
    ]
    if not changed:
        return []
    return [
        "land_use.csv and skims.omx are the region's, WITHOUT what this run's levers changed in "
        f"them ({', '.join(dict.fromkeys(changed))}): change them by hand before ActivitySim reads "
        "them. Households and persons are those of the run."
    ]


def _at_most(column: pd.Series, most: int, name: str, notes: list[str]) -> pd.Series:
    """Return a column as ActivitySim codes it, whose highest code is open above."""
    above = int((column > most).sum())
    if above:
        notes.append(
            f"{name}: {above:,} values above {most}, the highest that ActivitySim's checks "
            f"take, stand as {most}."
        )
    return column.clip(upper=most).astype("int64")


def _land_use(
    source: Source, households: pd.DataFrame, numbers: pd.Series, notes: list[str]
) -> pd.DataFrame:
    """Return the region's land use by ActivitySim's names, with households and persons counted."""
    table = source.region.zones.rename(columns={"COUNTY": "county_id", "district": "district_name"})
    names = table["district_name"]
    if "DISTRICT" not in table:
        table = table.assign(DISTRICT=names.rank(method="dense").astype("int64"))
    table = table.set_axis(table.index.map(numbers)).rename_axis("zone_id").sort_index()
    by_zone = households.groupby("home_zone_id")["hhsize"]
    quarters = source.group_quarters.set_axis(source.group_quarters.index.map(numbers))
    persons = by_zone.sum().reindex(table.index, fill_value=0)
    table = table.assign(
        TOTHH=by_zone.size().reindex(table.index, fill_value=0),
        TOTPOP=persons,
        HHPOP=persons,
        GQPOP=quarters.reindex(table.index, fill_value=0),
    )
    table = table.assign(**{c: table[c].round().astype("int64") for c in WHOLE if c in table})
    table = _with_sum_of_jobs(table, notes)
    lacking = [c for c in LAND_USE if c not in table]
    if lacking:
        notes.append(
            f"land_use.csv lacks {', '.join(lacking)}, which the MTC example reads: add these to "
            "the region's land use, or leave out what uses them."
        )
    order = [c for c in LAND_USE if c in table]
    return table[[*order, *(c for c in table if c not in order)]]


def _with_sum_of_jobs(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Return TOTEMP as the sum of its categories, as ActivitySim checks, where rounding parts them.

    A larger difference is the region's own, and is left and told.
    """
    if not {*JOBS} <= {*table}:
        return table
    total = table[list(JOBS)].sum(axis=1)
    off = (total - table["TOTEMP"]).abs()
    rounded = off <= len(JOBS) / 2
    if not rounded.all():
        notes.append(
            f"land_use.csv: in {int((~rounded).sum())} zones TOTEMP is not the sum of "
            f"{', '.join(JOBS)}, first in zone {some(table.index[~rounded])}; ActivitySim's checks "
            "refuse that."
        )
    return table.assign(TOTEMP=np.where(rounded, total, table["TOTEMP"]))


_HEAD = """# Merged with a model's own settings: name this folder before the model's, as in
#   activitysim run -c THIS/configs -c MODEL/configs -d THIS/data -o OUTPUT
"""


def _settings(
    households: pd.DataFrame, persons: pd.DataFrame, land_use: pd.DataFrame
) -> dict[str, Any]:
    # Zones are recoded as in the example, which its compiled mode (sharrow) needs.
    tables = [
        ("households", households, HOUSEHOLDS, {"home_zone_id": "land_use.zone_id"}),
        ("persons", persons, PERSONS, {}),
        ("land_use", land_use, LAND_USE, {"zone_id": "zero-based"}),
    ]
    return {
        "inherit_settings": True,
        "households_sample_size": 0,
        "input_table_list": [
            {
                "tablename": name,
                "filename": f"{name}.csv",
                "index_col": str(table.index.name),
                **({"recode_columns": recoded} if recoded else {}),
                "keep_columns": [c for c in kept if c in table],
            }
            for name, table, kept, recoded in tables
        ],
    }


def _network(source: Source, notes: list[str]) -> dict[str, Any]:
    network: dict[str, Any] = {"zone_system": 1, "taz_skims": {"omx": "skims.omx"}}
    held = {core.split("__")[1] for core in source.region.skims if "__" in core}
    labels = list(dict.fromkeys(PERIODS))
    network["skim_time_periods"] = {
        "time_window": 1440,
        "period_minutes": 60,
        "periods": PERIOD_STARTS,
        "labels": PERIODS,
    }
    if strange := sorted(held - {*labels}):
        notes.append(
            f"skims.omx has the periods {', '.join(strange)}: write them into skim_time_periods of "
            f"network_los.yaml, which has {', '.join(labels)} of the MTC example."
        )
    if lacking := [p for p in labels if p not in held]:
        notes.append(
            f"skims.omx has no cores of the periods {', '.join(lacking)}: a model that looks them "
            "up needs skims of its own."
        )
    return network
