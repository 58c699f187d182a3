"""The map of a survey: which files, columns and codes mean what (docs/surveys.md).

A shipped map is a YAML file in `maps/`; a planner's own has the same form. The neutralization
filter (`nonresponse`) and the missing-data rules (`missing`) are thus data (PEMAND B.2.1).
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pemand_abm.errors import SettingsError
from pemand_abm.facts import known_maps
from pemand_abm.settings import Strict, read_settings, suggestion

Code = str | int | float | bool
NUMBERS = (
    "hhsize",
    "num_workers",
    "auto_ownership",
    "children",
    "age_of_head",
    "income",
    "weight",
    "urban",
    "trips",
    "moved",
    "age",
    "age_to",
    "PNUM",
)
CANONICAL = {
    "households": {*NUMBERS[:10], "tenure", "home_zone_id", "weekday"},
    "persons": {"PNUM", "age", "age_to", "sex", "pemploy", "pstudent", "trips", "inferred"},
}
"""The columns that the rest of the package knows (`surveys.Survey`); a map may make others."""


class Instead(Strict):
    """The value that stands in where an answer lacks."""

    to: Code


Rule = Literal["drop", "keep", "median", "mode"] | Instead


class Column(Strict):
    """Where one canonical column comes from.

    `from` names the file's column. `codes` gives each code's value; a code that is not listed is no
    answer, or `other` where that is given. `bands` gives the two ends of an age band by its code.
    `missing` says what becomes of a household of which the answer lacks: it is dropped, kept
    without the answer, or the column's median, its mode or a value (``to: 0``) stands in.
    """

    source: str = Field(alias="from")
    codes: dict[Code, Code] | None = None
    other: Code | None = None
    bands: dict[Code, tuple[int, int]] | None = None
    missing: Rule | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Column:
        if self.codes is not None and self.bands is not None:
            raise ValueError("give `codes` or `bands`, not both")
        for code, (low, high) in (self.bands or {}).items():
            if low > high:
                raise ValueError(f"the band {code!r} ends ({high}) before it begins ({low})")
        return self


class Table(Strict):
    """One table of the survey.

    `files` are names without ending in the data folder (.parquet or .csv), stacked where there are
    several. `id` names the column, or the columns, that identify a row; `household` the column of
    the household's id in the persons. `where` keeps the rows whose column holds one of the values.
    """

    files: Annotated[list[str], Field(min_length=1)]
    id: list[str]
    household: str | None = None
    where: dict[str, list[Code]] = Field(default_factory=dict)
    columns: dict[str, Column]

    @model_validator(mode="before")
    @classmethod
    def _one_is_a_list(cls, given: dict) -> dict:
        for key in ("files", "id"):
            if isinstance(given, dict) and isinstance(given.get(key), str):
                given = given | {key: [given[key]]}
        return given


class Extra(Strict):
    """A file besides, for the step in Python that `prepare` names."""

    files: list[str]


class FeatureMap(Strict):
    """The columns that the baselines may use (`Features`)."""

    numeric: list[str] = Field(default_factory=list)
    categorical: list[str] = Field(default_factory=list)
    persons: list[str] = Field(default_factory=list)


class Days(Strict):
    """The column that says the day of the week, and the codes of an average weekday."""

    source: str = Field(alias="from")
    weekdays: list[Code]


class SurveyMap(Strict):
    """All that is needed to read one survey cycle."""

    survey: str
    title: str
    year: int
    source: str
    target: Literal["trips", "moved"]
    unit: str
    facts: str
    nonresponse: list[Code] = Field(default_factory=list)
    households: Table
    persons: Table | None = None
    others: dict[str, Extra] = Field(default_factory=dict)
    prepare: str | None = None
    days: Days | None = None
    features: FeatureMap = FeatureMap()

    @model_validator(mode="after")
    def _known_columns(self) -> SurveyMap:
        """Refuse a misspelt canonical column; a new name that is like none is let through."""
        tables = {"households": self.households, "persons": self.persons}
        faults = [
            f"{name}.columns: {key!r} is not known{suggestion(key, CANONICAL[name])}"
            for name, table in tables.items()
            for key, column in (table.columns if table else {}).items()
            if key not in CANONICAL[name]
            and key.lower() != column.source.lower()
            and suggestion(key, CANONICAL[name])
        ]
        faults += [
            f"{name}.columns.{key}.missing: a median is of numbers; take the mode"
            for name, table in tables.items()
            for key, column in (table.columns if table else {}).items()
            if column.missing == "median" and key not in NUMBERS
        ]
        used = (*self.features.numeric, *self.features.categorical)
        source = self.households.columns.get(self.target)
        answer = {self.target, source.source.lower() if source else self.target}
        faults += [
            f"features: {name!r} is what is predicted; take it out"
            for name in used
            if name.lower() in answer
        ]
        if faults:
            raise ValueError("; ".join(faults))
        return self


def shipped() -> list[str]:
    """Return the names of the surveys whose maps the package brings."""
    folder = resources.files("pemand_abm").joinpath("surveys", "maps")
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name[-5:] == ".yaml")


def map_of(name: str | Path) -> tuple[SurveyMap, Path | None]:
    """Return a map by a shipped survey's name or by a file's path, and the file's folder if it is.

    Raises
    ------
    SettingsError
        For a name that is neither, or a map with faults.
    """
    path = Path(name)
    if path.is_dir():
        path = path / "survey.yaml"
    if path.suffix in (".yaml", ".yml"):
        return _with_facts(read_settings(path, SurveyMap), path), path.parent
    known = shipped()
    if str(name) not in known:
        raise SettingsError(
            f"--survey {name}: no such survey{suggestion(str(name), known)}"
            f" (known: {', '.join(known)}; your own is the path of its map, docs/surveys.md)"
        )
    file = resources.files("pemand_abm").joinpath("surveys", "maps", f"{name}.yaml")
    with resources.as_file(file) as path:
        return _with_facts(read_settings(path, SurveyMap), path), None


def _with_facts(given: SurveyMap, path: Path) -> SurveyMap:
    """Return the map, whose translation map there must be."""
    if given.facts not in (known := known_maps()):
        raise SettingsError(
            f"{path}: facts: there is no translation map {given.facts!r}"
            f"{suggestion(given.facts, known)} (known: {', '.join(known)})"
        )
    return given
