"""A PopulationSim project folder, run as it is: its settings, controls and data, by our balancing.

INTERFACES B1. The folder is laid out as PopulationSim's examples are (`configs/settings.yaml`,
`data/`) or flat. What of a settings file steers PopulationSim's own solver (run list, integerizer)
does not matter here and is left unread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from pemand_abm.balancing import MOST_EXPANSION
from pemand_abm.errors import TableError, listed
from pemand_abm.ids import as_ids, some
from pemand_abm.region import CONTROL_COLUMNS
from pemand_abm.settings import read_settings, suggestion
from pemand_abm.synthesis import Frame, Solution, fit_summary, solve, summaries
from pemand_abm.tables import write_csv, write_parquet

SEEDS = ("households", "persons")
CROSSWALK = "geo_cross_walk"


class _Loose(BaseModel):
    """A part of PopulationSim's settings, of which we read some keys and leave the others."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Input(_Loose):
    tablename: str
    filename: str
    column_map: dict[str, str] = Field(default_factory=dict)
    drop_columns: list[str] = Field(default_factory=list)


class _Output(_Loose):
    filename: str
    columns: list[str] = Field(default_factory=list)


class _Outputs(_Loose):
    household_id: str = "household_id"
    households: _Output = _Output(filename="synthetic_households.csv")
    persons: _Output = _Output(filename="synthetic_persons.csv")


class Settings(_Loose):
    """What we read of PopulationSim's settings.yaml (its documentation, "Configuration")."""

    geographies: list[str]
    seed_geography: str
    data_dir: str = "data"
    input_table_list: list[_Input]
    household_weight_col: str
    household_id_col: str
    total_hh_control: str
    max_expansion_factor: float = MOST_EXPANSION
    control_file_name: str = "controls.csv"
    output_synthetic_population: _Outputs = _Outputs()


@dataclass(frozen=True, slots=True, eq=False)
class Project:
    """A project, read and checked.

    `households` (index: its household id, with `weight`) and `persons` hold the columns of the
    files; `notices` are sentences on how the folder was read.
    """

    name: str
    settings: Settings
    frame: Frame
    households: pd.DataFrame
    persons: pd.DataFrame
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Synthesized:
    """The project's population: expanded households and persons, and the solution."""

    project: Project
    solution: Solution
    households: pd.DataFrame
    persons: pd.DataFrame


def read_project(folder: Path) -> Project:
    """Read a PopulationSim project folder.

    Settings and controls lie in FOLDER/configs, else in FOLDER; data in FOLDER's `data_dir`, else
    in FOLDER, with a notice. Rows of a CSV that begin with ``#`` are comments.

    Raises
    ------
    SettingsError, TableError
        What is missing or cannot be read, all faults of the tables at once.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise TableError(f"{folder}: there is no such folder")
    notices: list[str] = []
    configs = folder / "configs" if (folder / "configs" / "settings.yaml").exists() else folder
    settings = read_settings(configs / "settings.yaml", Settings)
    data = folder / settings.data_dir
    if not data.is_dir():
        notices.append(f"{data} is not there; data are read from {folder}")
        data = folder
    faults: list[str] = []
    tables = {
        t.tablename: table
        for t in settings.input_table_list
        if (table := _attempt(partial(_read, data / t.filename, t), faults)) is not None
    }
    controls = _attempt(partial(_controls, configs / settings.control_file_name, settings), faults)
    wanted = [*SEEDS, CROSSWALK, f"{settings.geographies[-1]}_control_data"]
    known = {t.tablename for t in settings.input_table_list}
    faults += [
        f"{configs / 'settings.yaml'}: input_table_list has no table {name!r}"
        for name in wanted
        if name not in known
    ]
    if faults or controls is None:
        raise TableError(listed(faults, str(folder)))
    frame, households, persons = _framed(settings, tables, controls, folder)
    return Project(folder.resolve().name, settings, frame, households, persons, tuple(notices))


def _attempt(act: Callable[[], Any], faults: list[str]) -> Any:
    try:
        return act()
    except TableError as fault:
        faults.append(fault.message)
        return None


def _read(path: Path, given: _Input) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, comment="#", low_memory=False)
    except (OSError, ValueError) as fault:
        raise TableError(f"{path}: cannot be read as CSV ({fault})") from fault
    table = table.rename(columns=given.column_map)
    table = table.drop(columns=[c for c in given.drop_columns if c in table])
    twice = table.columns[table.columns.duplicated()].unique()
    if len(twice):
        raise TableError(f"{path}: columns {some(twice)} stand there twice after column_map")
    return table


def _controls(path: Path, settings: Settings) -> pd.DataFrame:
    try:
        controls = pd.read_csv(path, comment="#")
    except (OSError, ValueError) as fault:
        raise TableError(f"{path}: cannot be read as CSV ({fault})") from fault
    lacking = [c for c in CONTROL_COLUMNS if c not in controls]
    if lacking:
        raise TableError(f"{path}: column {', '.join(lacking)} is missing")
    strange = controls[~controls["geography"].isin(settings.geographies)]
    if len(strange):
        raise TableError(
            f"{path}: column geography: {some(strange['geography'].unique())} is none of"
            f" {', '.join(settings.geographies)}"
        )
    return controls[list(CONTROL_COLUMNS)]


def _framed(
    settings: Settings, tables: Mapping[str, pd.DataFrame], controls: pd.DataFrame, folder: Path
) -> tuple[Frame, pd.DataFrame, pd.DataFrame]:
    """Return what the project asks for, and its seed."""
    faults: list[str] = []
    files = {t.tablename: t.filename for t in settings.input_table_list}
    geographies, zone = settings.geographies, settings.geographies[-1]
    crosswalk = tables[CROSSWALK]
    _lacks(crosswalk, geographies, files[CROSSWALK], faults)
    asked = [g for g in geographies if g in set(controls["geography"])]
    totals = {}
    for geography in asked:
        name = f"{geography}_control_data"
        if name not in tables:
            faults.append(f"settings.yaml: input_table_list has no table {name!r}")
            continue
        fields = controls.loc[controls["geography"] == geography, "control_field"]
        _lacks(tables[name], [geography, *fields], files[name], faults)
        totals[geography] = tables[name]
    ids = [settings.household_id_col]
    _lacks(tables["households"], [*ids, settings.household_weight_col], files["households"], faults)
    _lacks(tables["persons"], ids, files["persons"], faults)
    if faults:
        raise TableError(listed(faults, str(folder)))
    crosswalk = crosswalk[geographies].apply(as_ids)
    if len(spread := _spread(crosswalk, zone)):
        said = f"{len(spread)} {zone} lie in several areas, first {some(spread)}"
        raise TableError(f"{files[CROSSWALK]}: {said}; give each {zone} one row of areas")
    crosswalk = crosswalk.drop_duplicates(zone).set_index(zone).sort_index()
    held = {g: _indexed(t, g, files[f"{g}_control_data"]) for g, t in totals.items()}
    zones = held[zone].index
    missing = zones.difference(crosswalk.index)
    if len(missing):
        raise TableError(f"{files[CROSSWALK]}: lacks {zone} {some(missing)}")
    households, persons = _seed(settings, tables, files)
    frame = Frame(
        zones,
        tuple(geographies),
        crosswalk.loc[zones],
        held,
        controls,
        settings.total_hh_control,
        {
            **{g: files[f"{g}_control_data"] for g in held},
            "controls": settings.control_file_name,
            "seed": files["households"],
        },
        settings.seed_geography,
    )
    return frame, households, persons


def _lacks(table: pd.DataFrame, columns: list[str], file: str, faults: list[str]) -> None:
    faults += [
        f"{file}: column {c} is missing{suggestion(c, map(str, table.columns))}"
        for c in dict.fromkeys(columns)
        if c not in table
    ]


def _spread(crosswalk: pd.DataFrame, zone: str) -> pd.Index:
    """Return the zones that stand in several areas of a geography."""
    areas = crosswalk.groupby(zone).nunique()
    return areas.index[(areas > 1).any(axis=1)]


def _indexed(table: pd.DataFrame, geography: str, file: str) -> pd.DataFrame:
    ids = as_ids(table[geography])
    twice = ids[ids.duplicated()].unique()
    if len(twice):
        raise TableError(f"{file}: column {geography}: {some(twice)} stand there twice; leave one")
    return table.set_axis(pd.Index(ids, name=geography), axis=0).sort_index()


def _seed(
    settings: Settings, tables: Mapping[str, pd.DataFrame], files: Mapping[str, str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    key, households = settings.household_id_col, tables["households"]
    twice = households[key][households[key].duplicated()].unique()
    if len(twice):
        raise TableError(
            f"{files['households']}: column {key}: {some(twice)} stand there twice; map a column of"
            " unique ids to it (column_map)"
        )
    if settings.seed_geography not in households:
        raise TableError(f"{files['households']}: column {settings.seed_geography} is missing")
    households = households.set_index(key)
    extra = {
        "weight": households[settings.household_weight_col],
        settings.seed_geography: as_ids(households[settings.seed_geography]),
    }
    rest = households.drop(columns=[c for c in extra if c in households])
    households = pd.concat([rest, pd.DataFrame(extra)], axis=1)
    # PopulationSim leaves seed households of no weight out.
    households = households[households["weight"] > 0]
    persons = tables["persons"]
    return households, persons[persons[key].isin(households.index)]


def synthesize_project(project: Project, seed: int) -> Synthesized:
    """Synthesize the project's population; household totals are exact in every zone."""
    most = project.settings.max_expansion_factor
    solution = solve(project.frame, project.households, project.persons, seed, most)
    key, outputs = project.settings.household_id_col, project.settings.output_synthetic_population
    zone, kind = np.nonzero(solution.counts)
    times = solution.counts[zone, kind]
    zone, kind = np.repeat(zone, times), np.repeat(kind, times)
    ids = pd.Index(np.arange(1, len(kind) + 1, dtype="int64"), name=outputs.household_id)
    areas = project.frame.crosswalk.iloc[zone].reset_index()
    areas = areas[list(project.frame.geographies)].set_axis(ids, axis=0)
    copied = project.households.iloc[kind].reset_index()
    rest = [c for c in copied if c not in areas and c != outputs.household_id]
    households = pd.concat([areas, copied[rest].set_axis(ids, axis=0)], axis=1)
    persons = _persons(project, key, ids, copied[key].to_numpy(), areas)
    return Synthesized(project, solution, households, persons)


def _persons(
    project: Project, key: str, ids: pd.Index, of: np.ndarray, areas: pd.DataFrame
) -> pd.DataFrame:
    """Return the members of every household, in the order of the households and of the seed."""
    people = project.persons.sort_values(key, kind="stable").reset_index(drop=True)
    first = people[key].searchsorted(of, side="left")
    many = people[key].searchsorted(of, side="right") - first
    rows = np.repeat(first - (np.cumsum(many) - many), many) + np.arange(many.sum())
    owner = np.repeat(np.arange(len(ids)), many)
    found = people.iloc[rows].reset_index(drop=True)
    finest = areas.iloc[owner].reset_index()
    rest = [c for c in found if c not in finest]
    return pd.concat([finest, found[rest]], axis=1)


def write_project(synthesized: Synthesized, out: Path) -> None:
    """Write the population under PopulationSim's names and as parquet, and how well it fits."""
    settings = synthesized.project.settings
    outputs = settings.output_synthetic_population
    always = (outputs.household_id, *settings.geographies)
    for table, given in (
        (synthesized.households, outputs.households),
        (synthesized.persons, outputs.persons),
    ):
        name = Path(given.filename).stem
        plain = table.reset_index() if table.index.name else table
        asked = [c for c in given.columns if c in plain and c not in always]
        shown = plain[[*(c for c in plain if c in always), *asked]] if asked else plain
        write_csv(shown.set_index(shown.columns[0]), out / f"{name}.csv")
    write_parquet(synthesized.households.pipe(_plain), out / "households.parquet")
    write_parquet(synthesized.persons.pipe(_plain), out / "persons.parquet")
    for name, table in summaries(synthesized.solution.fit).items():
        write_csv(table, out / f"{name}.csv")
    fit = synthesized.solution.fit
    write_csv(fit.set_index(["geography", "zone", "target"]), out / "fit.csv")
    write_csv(fit_summary(fit), out / "fit_summary.csv")


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """Return columns of mixed kinds as text, which parquet can hold."""
    mixed = [c for c in table if table[c].dtype == object]
    return table.assign(**{c: table[c].astype("str") for c in mixed})
