"""A region as its folder gives it, read and checked once, so that what follows can trust it.

`recipe.yaml` names the files. Faults of all files are told in one error; nothing is repaired.
The tables of a region are described in `synthpop/sf25/README.md`.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field, model_validator

from pemand_abm.errors import SettingsError, TableError, listed
from pemand_abm.geography import read_polygons
from pemand_abm.ids import are_whole, as_text, some
from pemand_abm.matrices import read_skims, sidecar
from pemand_abm.settings import Strict, read_settings, suggestion
from pemand_abm.surrogate import PURPOSES
from pemand_abm.tables import sha256

RECIPE = "recipe.yaml"
RELATES = (
    "reference person", "spouse", "partner", "child",
    "parent", "sibling", "other relative", "housemate",
)  # fmt: skip
# ActivitySim's codes (docs/design.md); None stands for any number of 0 or more.
HOUSEHOLD_COLUMNS: dict[str, tuple[int, ...] | None] = {
    "hhsize": None, "num_workers": None, "auto_ownership": None, "income": None,
    "HHT": (1, 2, 3, 4, 5, 6, 7), "age_of_head": None, "children": None,
}  # fmt: skip
PERSON_COLUMNS: dict[str, tuple[int, ...] | None] = {
    "PNUM": None, "age": None, "sex": (1, 2), "pemploy": (1, 2, 3, 4), "pstudent": (1, 2, 3),
    "ptype": (1, 2, 3, 4, 5, 6, 7, 8),
}  # fmt: skip
# Columns that the engine writes; a column of the same name in the seed would take their place.
OWN_COLUMNS = (
    "seed_id", "weight", "household_id", "person_id", "home_zone_id", "home_zone_id_before",
    "district",
)  # fmt: skip
ZONE = "home_zone_id"  # of a given population
MAY_BE_NEGATIVE = ("income",)  # a loss from self-employment, in PUMS
LARGEST = 2.0**53  # Beyond it float64 skips whole numbers.
YOUNGEST_HEAD = 15  # The age from which the survey tables know heads of households.
LAND_USE_COLUMNS = ("district", "dwellings", "TOTEMP")
CONTROL_COLUMNS = (
    "target", "geography", "seed_table", "importance", "control_field", "expression",
)  # fmt: skip


class ZonesFile(Strict):
    """The polygons: their file, and the properties that hold a zone's id and its name."""

    file: str
    id: str = "zone_id"
    label: str | None = None


class SkimsFile(Strict):
    """The skims and the lookup that says which zone each row is; None takes the only lookup."""

    file: str
    lookup: str | None = None


class SeedFiles(Strict):
    """The surveyed households and persons, their common id, and the households' weight."""

    households: str
    persons: str
    id: str = "seed_id"
    weight: str = "weight"


class PopulationFiles(Strict):
    """A population that others made: its households and persons, and the columns of id and zone.

    `columns` says for each of our columns that has another name in the files what that is.
    """

    households: str
    persons: str
    id: str = "household_id"
    zone: str = "home_zone_id"
    columns: dict[str, str] = Field(default_factory=dict)


SYNTHESIZED = ("seed", "geographies", "crosswalk", "totals", "controls", "household_total")


class Recipe(Strict):
    """What `recipe.yaml` says: the files of a region and how they belong together.

    Its population is synthesized from a seed and controls, or given (`population`).
    """

    name: str
    title: str
    base_year: int
    money_year: int
    zones: ZonesFile
    land_use: str
    skims: SkimsFile
    seed: SeedFiles | None = None
    geographies: tuple[str, ...] = ()
    crosswalk: str = ""
    totals: dict[str, str] = Field(default_factory=dict)
    controls: str = ""
    household_total: str = ""
    population: PopulationFiles | None = None
    group_quarters: str | None = None
    mean_minutes: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    encoding: str = "utf-8-sig"

    @model_validator(mode="after")
    def _one_population(self) -> Recipe:
        given = [k for k in SYNTHESIZED if getattr(self, k)]
        lacking = [k for k in SYNTHESIZED if not getattr(self, k)]
        if self.population and given:
            raise ValueError(
                f"population: is given, so {', '.join(given)} are of no use; leave them out"
            )
        if not self.population and lacking:
            said = f"key {', '.join(map(repr, lacking))} is lacking"
            raise ValueError(f"{said}; a population that others made is named by population")
        return self

    @model_validator(mode="after")
    def _lengths_are_of_purposes(self) -> Recipe:
        for name in self.mean_minutes:
            if name not in PURPOSES:
                raise ValueError(
                    f"mean_minutes: {name!r} is no purpose; purposes are {', '.join(PURPOSES)}"
                    f"{suggestion(name, PURPOSES)}"
                )
        return self

    @model_validator(mode="after")
    def _totals_are_of_geographies(self) -> Recipe:
        if self.population:
            return self
        for name in self.totals:
            if name not in self.geographies:
                raise ValueError(
                    f"totals: {name!r} is no geography; geographies lists "
                    f"{', '.join(self.geographies)}{suggestion(name, self.geographies)}"
                )
        if self.zone not in self.totals:
            raise ValueError(f"totals: has no file for {self.zone!r}, the zones")
        return self

    @property
    def zone(self) -> str:
        """The finest geography, that of the zones."""
        return self.geographies[-1] if self.geographies else "zone"

    @property
    def sources(self) -> SeedFiles:
        """The households and persons, surveyed or given; given ones have no weight."""
        if self.population:
            own = self.population
            return SeedFiles(households=own.households, persons=own.persons, id=own.id)
        assert self.seed is not None
        return self.seed

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that the recipe names."""
        names = [self.zones.file, self.land_use, self.skims.file]
        names += [self.sources.households, self.sources.persons]
        if not self.population:
            names += [self.crosswalk, *self.totals.values(), self.controls]
        return (*names, self.group_quarters) if self.group_quarters else tuple(names)


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A region, checked. All tables and skims keep the zones in the ascending order of `zones`."""

    folder: Path
    recipe: Recipe
    zones: pd.DataFrame
    """Index `zone_id` (int64 or text), columns `district`, `label` (text) and the land use."""
    polygons: Any
    """GeoDataFrame in EPSG:4326, index `zone_id`, one MultiPolygon each."""
    skims: dict[str, np.ndarray]
    """Core name to float64 (zones, zones); empty where they were not asked for."""
    seed_households: pd.DataFrame
    """Index `seed_id`, columns of the design's households without zone, and the `weight`."""
    seed_persons: pd.DataFrame
    """Columns `seed_id`, `PNUM` and those of the design's persons, sorted by both."""
    controls: pd.DataFrame
    """PopulationSim's header, in the order of the file."""
    totals: dict[str, pd.DataFrame]
    """Geography to control totals, indexed by its ids."""
    crosswalk: pd.DataFrame
    """Index zone, columns the coarser geographies."""
    group_quarters: pd.Series
    """Persons outside households by zone; 0 where the file has none."""
    placed: pd.Series | None = None
    """Of a given population: each household's zone, by `seed_id`; then nothing is synthesized."""


def read_region(folder: Path, skims: bool = True) -> Region:
    """Read and check a region's folder; `skims=False` leaves the OMX file unread.

    Raises
    ------
    SettingsError
        A recipe that is missing, no YAML, or has a key lacking, misspelt or of a wrong kind.
    TableError
        Every fault that could be found in the files, in one message.
    """
    folder = Path(folder)
    recipe = read_recipe(folder)
    missing = [name for name in recipe.files if not (folder / name).is_file()]
    if missing:
        raise TableError(
            listed([f"has no file {n} (named in {RECIPE})" for n in missing], str(folder))
        )
    reader = _Reader(folder, recipe)
    tables = reader.tables()
    polygons = reader.attempt(lambda: read_polygons(folder / recipe.zones.file, recipe.zones.id))
    reader.label(polygons)
    reader.stop_if_faulty()

    zone_columns = [
        tables[recipe.land_use]["zone_id"],
    ]
    if recipe.population:
        zone_columns.append(tables[recipe.population.households][ZONE])
    else:
        zone_columns.append(tables[recipe.crosswalk][recipe.zone])
        zone_columns.append(tables[recipe.totals[recipe.zone]][recipe.zone])
    if recipe.group_quarters:
        zone_columns.append(tables[recipe.group_quarters]["zone_id"])
    kind = _kind(polygons.index.to_series(), *zone_columns)
    polygons = polygons.set_axis(polygons.index.astype(kind)).sort_index().rename_axis("zone_id")
    zones = polygons.index

    land_use = reader.land_use(tables[recipe.land_use], zones)
    sources = recipe.sources
    households, persons = reader.seed(tables[sources.households], tables[sources.persons])
    crosswalk = pd.DataFrame(index=zones)
    totals: dict[str, pd.DataFrame] = {}
    controls, placed = pd.DataFrame(columns=list(CONTROL_COLUMNS)), None
    if recipe.population:
        households, placed = reader.placed(households, zones)
    else:
        crosswalk, totals = reader.geographies(tables, zones)
        controls = reader.controls(tables[recipe.controls], totals)
        reader.expressions(controls, households, persons)
    quarters = reader.group_quarters(tables, zones)
    cores: dict[str, np.ndarray] = {}
    if skims:
        file = folder / recipe.skims.file
        cores = reader.attempt(lambda: read_skims(file, zones, recipe.skims.lookup)) or {}
    reader.stop_if_faulty()

    labels = polygons.get(recipe.zones.label, zones.to_series()).astype(str)
    land_use = land_use.drop(columns="label", errors="ignore")
    land_use.insert(1, "label", labels.reindex(zones))
    return Region(
        folder=folder, recipe=recipe, zones=land_use, polygons=polygons, skims=cores,
        seed_households=households, seed_persons=persons, controls=controls, totals=totals,
        crosswalk=crosswalk, group_quarters=quarters, placed=placed,
    )  # fmt: skip


def read_recipe(folder: Path) -> Recipe:
    """Read `recipe.yaml` of a region's folder."""
    return read_settings(Path(folder) / RECIPE, Recipe)


def inputs_sha256(region_folder: Path, recipe: Recipe) -> dict[str, str]:
    """Return the SHA-256 of the recipe and of every file that it names, by name, ascending."""
    folder = Path(region_folder)
    names = {RECIPE, *recipe.files}
    beside = sidecar(folder / recipe.skims.file)
    if beside.is_file():
        names.add(beside.relative_to(folder).as_posix())
    return {n: sha256(folder / n) for n in sorted(names)}


def _kind(*columns: pd.Series) -> str:
    """Return the dtype that ids of several files share: int64 where all are whole, else text."""
    return "int64" if all(are_whole(as_text(c)) for c in columns) else "str"


class _Reader:
    """Reads the files of one region and gathers their faults."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder, self.recipe = folder, recipe
        self.problems: list[str] = []

    def stop_if_faulty(self) -> None:
        if self.problems:
            raise TableError(listed(self.problems, str(self.folder)))

    def fault(self, file: str, said: str) -> None:
        self.problems.append(f"{file}: {said}")

    def attempt(self, read: Callable[[], Any]) -> Any:
        """Return what *read* gives, or None and keep its fault."""
        try:
            return read()
        except TableError as fault:
            self.problems.append(fault.message.removeprefix(f"{self.folder}/"))
            return None

    # Reading: all cells as text, so that a message can show what the file holds.

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return every CSV file as text, and keep a fault for each column that one lacks."""
        r, s = self.recipe, self.recipe.sources
        needed: dict[str, tuple[str, ...]] = {
            r.land_use: ("zone_id", *LAND_USE_COLUMNS),
            s.households: (s.id, "tenure", *HOUSEHOLD_COLUMNS),
            s.persons: (s.id, "relate", *PERSON_COLUMNS),
        }
        if r.population:
            needed[s.households] += (ZONE,)
        else:
            needed[s.households] += (s.weight,)
            needed |= {r.crosswalk: r.geographies, r.controls: CONTROL_COLUMNS}
        needed |= {file: (geography,) for geography, file in r.totals.items()}
        if r.group_quarters:
            needed[r.group_quarters] = ("zone_id", "persons")
        tables = {file: self.table(file, columns) for file, columns in needed.items()}
        if r.population:
            return self.given(tables)
        self.reserved(s.households, tables[s.households], {s.id, s.weight})
        self.reserved(s.persons, tables[s.persons], {s.id})
        return tables

    def given(self, tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """Return the tables of a given population with a weight of 1, without names of our own."""
        s = self.recipe.sources
        own = [c for c in OWN_COLUMNS if c != s.id]
        people = tables[s.persons].drop(columns=own, errors="ignore")
        homes = tables[s.households].drop(columns=[c for c in own if c != ZONE], errors="ignore")
        return tables | {s.households: homes.assign(weight="1"), s.persons: people}

    def placed(
        self, households: pd.DataFrame, zones: pd.Index
    ) -> tuple[pd.DataFrame, pd.Series | None]:
        """Return a given population's households without their zones, and the zones."""
        file = self.recipe.sources.households
        zone = as_text(households[ZONE])
        zone = zone.astype(zones.dtype) if zones.dtype == "int64" and are_whole(zone) else zone
        strange = zone[~zone.isin(zones)]
        if len(strange):
            shown = "; ".join(f"{i}: {z!r}" for i, z in strange.head(3).items())
            said = f"{len(strange)} households live in zones without a polygon, first {shown}"
            self.fault(file, f"column {ZONE}: {said}")
        return households.drop(columns=ZONE), zone

    def table(self, file: str, needed: tuple[str, ...]) -> pd.DataFrame:
        path, encoding = self.folder / file, self.recipe.encoding
        empty = pd.DataFrame(columns=list(needed))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)
                table = pd.read_csv(
                    path, dtype=str, keep_default_na=False, index_col=False, encoding=encoding
                )
        except pd.errors.ParserWarning:
            said = "rows have more cells than the header; put cells that hold a comma into quotes"
            self.fault(file, said)
            return empty
        except UnicodeDecodeError as fault:
            byte = f"byte {fault.object[fault.start]:#x} at {fault.start}"
            mend = f"if Excel saved the file, write `encoding: cp1252` into {RECIPE}"
            self.fault(file, f"{byte} is not {encoding}; {mend}, or save it as CSV UTF-8")
            return empty
        except LookupError as fault:
            raise SettingsError(f"{self.folder / RECIPE}: encoding: {fault}") from fault
        except (pd.errors.ParserError, pd.errors.EmptyDataError) as fault:
            self.fault(file, f"is not a CSV table ({str(fault).strip()})")
            return empty
        table = table.rename(columns=str.strip).fillna("")
        table = self.renamed(file, table)
        table = table.apply(lambda column: column.str.strip())
        # A spreadsheet leaves rows of empty cells below its table.
        table = table[(table != "").any(axis=1)]
        if len(table.columns) == 1 and (marks := set(";\t|") & set(table.columns[0])):
            said = f"its columns are separated by {marks.pop()!r}; save it with commas"
            self.fault(file, said)
            return empty
        for column in needed:
            if column not in table:
                self.fault(file, f"has no column {column!r}{suggestion(column, table.columns)}")
        return table

    def renamed(self, file: str, table: pd.DataFrame) -> pd.DataFrame:
        """Return a given population's table with our names for its columns."""
        own = self.recipe.population
        if own is None or file not in (own.households, own.persons):
            return table
        theirs = {**own.columns, ZONE: own.columns.get(ZONE, own.zone)}
        found = {t: o for o, t in theirs.items() if t in table}
        table = table.drop(columns=[o for o in found.values() if o in table and o not in found])
        return table.rename(columns=found)

    def numbers(self, file: str, column: pd.Series, rows: pd.Index) -> pd.Series:
        """Return a column as numbers of 0 or more; a fault names the first bad cells by *rows*."""
        signed = column.name in MAY_BE_NEGATIVE
        values = pd.to_numeric(column.str.strip(), errors="coerce")
        bad = ~(np.abs(values.to_numpy(dtype="float64")) <= LARGEST)
        if not signed:
            bad |= values.to_numpy() < 0
        if bad.any():
            told = "numbers" if signed else "numbers of 0 or more"
            cells = zip(rows[bad][:3], column[bad][:3], strict=True)
            shown = "; ".join(f"{rows.name} {i}: {cell!r}" for i, cell in cells)
            said = f"column {column.name}: {int(bad.sum())} cells are not {told}, first {shown}"
            self.fault(file, said)
        return values

    def numeric(self, file: str, table: pd.DataFrame, *text: str) -> pd.DataFrame:
        """Return a table with numbers in every column but *text* and those without any number."""

        def is_text(column: pd.Series) -> bool:
            if column.name in text:
                return True
            needed = column.name in {*LAND_USE_COLUMNS, *HOUSEHOLD_COLUMNS, *PERSON_COLUMNS}
            return not needed and bool(pd.to_numeric(column, errors="coerce").isna().all())

        columns = (table[name] for name in table.columns)
        return pd.DataFrame(
            {c.name: c if is_text(c) else self.numbers(file, c, table.index) for c in columns},
            index=table.index,
        )

    def indexed(self, file: str, table: pd.DataFrame, column: str, kind: str) -> pd.DataFrame:
        """Return a table indexed by its ids, ascending; ids lacking or twice are a fault."""
        ids = as_text(table[column])
        twice = ids[ids.duplicated() & (ids != "")].unique()
        if len(twice):
            self.fault(file, f"column {column}: ids occur twice: {some(twice)}; keep one row each")
        lines = ids.index[ids == ""] + 2
        if len(lines):
            self.fault(file, f"column {column}: is empty in lines {some(lines)}; give each an id")
        decimals = ids[ids.str.fullmatch(r"-?[0-9]+\.0+")]
        if len(decimals):
            said = f"ids are written as decimals: {some(decimals)}; write whole numbers"
            self.fault(file, f"column {column}: {said}")
        ids = ids.astype(kind if are_whole(ids) else "str").rename(column)
        return table.drop(columns=column).set_index(ids).sort_index()

    def match(self, file: str, ids: pd.Index, zones: pd.Index, reverse: bool = True) -> None:
        """Keep a fault for zones of a file without polygon, and for polygons that it lacks."""
        polygons = self.recipe.zones.file
        extra = ids[~ids.isin(zones)].unique()
        if len(extra):
            said = f"zones without a polygon in {polygons}: {some(extra)}"
            self.fault(file, f"column {ids.name}: {said}; draw them or drop their rows")
        lacking = zones[~zones.isin(ids)]
        if reverse and len(lacking):
            said = f"lacks the zones {some(lacking)} of {polygons}"
            self.fault(file, f"{said}; add a row each, with zeros where there is nothing")

    # What each file must hold.

    def label(self, polygons: pd.DataFrame | None) -> None:
        wanted = self.recipe.zones.label
        if polygons is None or wanted is None or wanted in (polygons.index.name, *polygons):
            return
        near = suggestion(wanted, map(str, polygons.columns))
        said = f"features have no property {wanted!r}, which {RECIPE} names as zones.label{near}"
        self.fault(self.recipe.zones.file, said)

    def land_use(self, raw: pd.DataFrame, zones: pd.Index) -> pd.DataFrame:
        file = self.recipe.land_use
        table = self.indexed(file, raw, "zone_id", str(zones.dtype))
        self.match(file, table.index, zones)
        nameless = table.index[table["district"].str.strip() == ""]
        if len(nameless):
            self.fault(file, f"column district: is empty for zones {some(nameless)}; name one")
        table = self.numeric(file, table, "district")
        table.insert(0, "district", table.pop("district"))
        return table

    def geographies(
        self, tables: dict[str, pd.DataFrame], zones: pd.Index
    ) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
        """Return the crosswalk and the totals, whose ids agree."""
        r = self.recipe
        crosswalk = self.indexed(r.crosswalk, tables[r.crosswalk], r.zone, str(zones.dtype))
        crosswalk = crosswalk[list(r.geographies[:-1])].copy()
        self.match(r.crosswalk, crosswalk.index, zones)
        totals = {}
        for geography, file in r.totals.items():
            if geography == r.zone:
                table = self.indexed(file, tables[file], geography, str(zones.dtype))
                self.match(file, table.index, zones)
            else:
                kind = _kind(crosswalk[geography], tables[file][geography])
                table = self.indexed(file, tables[file], geography, kind)
                crosswalk[geography] = as_text(crosswalk[geography]).astype(kind)
                self.match_coarser(file, table.index, crosswalk[geography])
            totals[geography] = self.numeric(file, table)
        return crosswalk, totals

    def match_coarser(self, file: str, ids: pd.Index, known: pd.Series) -> None:
        extra, lacking = ids[~ids.isin(known)], known[~known.isin(ids)].unique()
        if len(extra):
            said = f"{some(extra)} are not in {self.recipe.crosswalk}; drop their rows"
            self.fault(file, f"column {ids.name}: {said}")
        if len(lacking):
            said = f"lacks {some(lacking)} of {self.recipe.crosswalk}; add a row each"
            self.fault(file, f"column {ids.name}: {said}")

    def controls(self, raw: pd.DataFrame, totals: dict[str, pd.DataFrame]) -> pd.DataFrame:
        r, file = self.recipe, self.recipe.controls
        table = raw[list(CONTROL_COLUMNS)].apply(lambda column: column.str.strip())
        twice = table["target"][table["target"].duplicated()]
        if len(twice):
            self.fault(file, f"column target: occur twice: {some(twice)}; give each its own name")
        for row in table.itertuples():
            where = f"target {row.target}"
            if row.seed_table not in ("households", "persons"):
                said = f"seed_table {row.seed_table!r} is neither households nor persons"
                self.fault(file, f"{where}: {said}")
            if row.geography not in totals:
                said = (
                    f"geography {row.geography!r} has no totals; {RECIPE} has {', '.join(totals)}"
                )
                self.fault(file, f"{where}: {said}{suggestion(row.geography, totals)}")
            elif row.control_field not in totals[row.geography]:
                near = suggestion(row.control_field, totals[row.geography].columns)
                said = f"{r.totals[row.geography]} has no column {row.control_field!r}{near}"
                self.fault(file, f"{where}: {said}")
        targets = pd.Index(table["target"])
        table["importance"] = self.numbers(file, table["importance"], targets)
        if r.household_total not in set(targets[table["geography"] == r.zone]):
            said = f"has no target {r.household_total!r} at geography {r.zone!r}"
            self.fault(file, f"{said}, which {RECIPE} names as household_total")
        return table

    def seed(self, homes: pd.DataFrame, members: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the seed's households and persons, which agree with each other."""
        names, before = self.recipe.sources, len(self.problems)
        kind = _kind(homes[names.id], members[names.id])
        households = self.indexed(names.households, homes, names.id, kind)
        of = as_text(members[names.id]).astype(kind).rename(names.id)
        persons = members.drop(columns=names.id).set_index(of)
        households = self.numeric(names.households, households, "tenure", ZONE)
        persons = self.numeric(names.persons, persons, "relate")
        orphans = persons.index[~persons.index.isin(households.index)]
        if len(orphans):
            said = f"{len(orphans)} persons belong to no household of {names.households}"
            mend = "drop them or add their households"
            self.fault(
                names.persons, f"column {names.id}: {said}: {some(orphans.unique())}; {mend}"
            )
        empty = households.index[~households.index.isin(persons.index)]
        if len(empty):
            said = f"households without persons in {names.persons}: {some(empty)}"
            self.fault(names.households, f"{said}; drop them or add their persons")
        households = households.rename(columns={names.weight: "weight"}).rename_axis("seed_id")
        persons = persons.rename_axis("seed_id")
        self.codes(names.households, households, HOUSEHOLD_COLUMNS | {"tenure": ("own", "rent")})
        self.codes(names.persons, persons, PERSON_COLUMNS | {"relate": RELATES})
        if len(self.problems) > before:
            return households, persons.reset_index()
        self.counts(households, persons)
        households = households.astype(dict.fromkeys(HOUSEHOLD_COLUMNS, "int64"))
        persons = persons.astype(dict.fromkeys(PERSON_COLUMNS, "int64")).reset_index()
        return households, persons.sort_values(["seed_id", "PNUM"], ignore_index=True)

    def reserved(self, file: str, table: pd.DataFrame, named: set[str]) -> None:
        """Keep a fault for columns of the engine's own names, and for a column of two meanings."""
        for column in sorted((set(OWN_COLUMNS) - named) & set(table.columns)):
            self.fault(file, f"column {column}: this name is the engine's own; rename the column")
        for column in sorted(named & {"tenure", "relate", *HOUSEHOLD_COLUMNS, *PERSON_COLUMNS}):
            self.fault(file, f"column {column}: cannot be the id or the weight too; see {RECIPE}")

    def codes(
        self, file: str, table: pd.DataFrame, allowed: Mapping[str, tuple[object, ...] | None]
    ) -> None:
        """Keep a fault for values that are no code of their column, or no whole number."""
        for name, codes in allowed.items():
            values = table[name].dropna()
            bad = values[~values.isin(codes)] if codes else values[values % 1 != 0]
            if len(bad):
                told = f"one of {', '.join(map(str, codes))}" if codes else "whole numbers"
                shown = "; ".join(f"seed_id {i}: {v!r}" for i, v in bad.head(3).items())
                self.fault(file, f"column {name}: {len(bad)} are not {told}, first {shown}")

    def counts(self, households: pd.DataFrame, persons: pd.DataFrame) -> None:
        """Keep a fault for households that differ from what their persons say."""
        names = self.recipe.sources
        head = persons["relate"] == "reference person"
        heads = head.groupby(level=0).sum()
        wrong = heads[heads != 1]
        if len(wrong):
            shown = "; ".join(f"seed_id {i}: {n}" for i, n in wrong.head(3).items())
            said = f"{len(wrong)} households have not one reference person, first {shown}"
            self.fault(names.persons, f"column relate: {said}")
        young = households.index[households["age_of_head"] < YOUNGEST_HEAD]
        if len(young):
            said = f"{len(young)} heads are under {YOUNGEST_HEAD}, first seed_id {some(young)}"
            mend = "choose another reference person or drop the household"
            self.fault(names.households, f"column age_of_head: {said}; {mend}")
        order = persons["PNUM"].groupby(level=0)
        size = order.size()
        numbered = (order.min() == 1) & (order.max() == size) & (order.nunique() == size)
        if not numbered.all():
            said = f"persons are not numbered 1, 2, 3 ... in {some(numbered.index[~numbered])}"
            self.fault(names.persons, f"column PNUM: {said}")
        told_by_persons = {
            "hhsize": ("persons", pd.Series(1, index=persons.index)),
            "num_workers": ("persons with pemploy 1 or 2", persons["pemploy"].isin([1, 2])),
            "children": ("persons under 18", persons["age"] < 18),
            "age_of_head": ("the reference person's age", persons["age"].where(head, 0)),
        }
        for column, (meaning, values) in told_by_persons.items():
            counted = values.groupby(level=0).sum().reindex(households.index)
            bad = households.index[households[column] != counted]
            if len(bad):
                pairs = [f"{i}: {households.at[i, column]:g}, not {counted[i]:g}" for i in bad[:3]]
                said = f"{len(bad)} households differ from {meaning} in {names.persons}"
                self.fault(names.households, f"column {column}: {said}, first {'; '.join(pairs)}")

    def expressions(
        self, controls: pd.DataFrame, households: pd.DataFrame, persons: pd.DataFrame
    ) -> None:
        """Keep a fault for expressions that are no Python or name a column that the seed lacks."""
        file = self.recipe.controls
        held = {"households": {*households.columns, "seed_id"}, "persons": {*persons.columns}}
        for target, expression in zip(controls["target"], controls["expression"], strict=True):
            try:
                tree = ast.parse(expression, mode="eval")
            except (SyntaxError, ValueError):
                self.fault(file, f"target {target}: expression {expression!r} cannot be parsed")
                continue
            for node in ast.walk(tree):
                if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
                    continue
                table, column = node.value.id, node.attr
                if table in held and column not in held[table]:
                    said = f"the seed's {table} have no column {column!r}"
                    self.fault(file, f"target {target}: {said}{suggestion(column, held[table])}")

    def group_quarters(self, tables: dict[str, pd.DataFrame], zones: pd.Index) -> pd.Series:
        file = self.recipe.group_quarters
        if file is None:
            return pd.Series(0, index=zones, name="persons")
        table = self.indexed(file, tables[file], "zone_id", str(zones.dtype))
        self.match(file, table.index, zones, reverse=False)
        persons = self.numbers(file, table["persons"], table.index)
        return persons.groupby(level=0).sum().reindex(zones, fill_value=0).rename("persons")
