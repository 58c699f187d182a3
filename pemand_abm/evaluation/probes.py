"""The attitude items of a survey that personas are asked and never told (PEMAND appendix G).

An item's wording, scale and codes stand in `prompts/probes/`, one file a questionnaire. This
module reads them, makes sure that no persona is told one, and takes the persons' answers out of the
survey.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Literal

import pandas as pd
from pydantic import model_validator

from pemand_abm.errors import SettingsError, TableError, listed
from pemand_abm.facts import read_map, rules_of
from pemand_abm.settings import Strict, read_settings, suggestion
from pemand_abm.surveys import Survey


class Probe(Strict):
    """One attitude item of a survey, held out of the personas.

    `code` is the column of `table` in which the survey has its answers; `answers` turns the file's
    values into 1, 2, ... of `scale`, and `silent` are its values that are no answer. Leading zeros
    of a value do not matter.
    """

    code: str
    table: Literal["households", "persons"] = "households"
    statement: str
    ask: str
    scale: tuple[str, ...]
    answers: dict[str, int]
    silent: tuple[str, ...] = ()
    source: str
    note: str = ""

    @model_validator(mode="after")
    def _on_the_scale(self) -> Probe:
        if not 2 <= len(self.scale) <= 9:
            raise ValueError(f"{self.code}: a scale has 2 to 9 answers")
        if off := [k for k in self.answers.values() if not 1 <= k <= len(self.scale)]:
            raise ValueError(f"{self.code}: answers stand outside 1..{len(self.scale)}: {off}")
        return self


class _Probes(Strict):
    probes: tuple[Probe, ...]


def read_probes(path: Path) -> tuple[Probe, ...]:
    """Return the probes of a YAML file; SettingsError names every fault in it."""
    return read_settings(path, _Probes).probes


def probes_of(survey: Survey, codes: Sequence[str] = ()) -> tuple[Probe, ...]:
    """Return the probes shipped for a survey, all of them or those named.

    Raises SettingsError for a survey without probes and for names that are none of them.
    """
    folder = resources.files("pemand_abm").joinpath("prompts", "probes")
    kept = sorted(f.name.removesuffix(".yaml") for f in folder.iterdir())
    # Cycles of one questionnaire share their translation map, and so their probes.
    name = next((n for n in (survey.name, survey.facts) if n in kept), None)
    if name is None:
        raise SettingsError(
            f"{survey.name}: no attitude items are known of this survey; they are of"
            f" {', '.join(kept)} (prompts/probes/)"
        )
    with resources.as_file(folder.joinpath(f"{name}.yaml")) as path:
        known = {item.code: item for item in read_probes(path)}
    unknown = [
        f"{code!r} is no item of {name}"
        + (suggestion(code, known) or f"; known: {', '.join(known)}")
        for code in codes
        if code not in known
    ]
    if unknown:
        raise SettingsError(listed(unknown, "--items"))
    return tuple(known[code] for code in dict.fromkeys(codes)) or tuple(known.values())


def check_held_out(survey: Survey, items: Sequence[Probe]) -> None:
    """Fail where a persona would be told what it is to be asked.

    Looks through the survey's translation map and the rules of markers and vetoes.
    """
    rules = read_map(survey.facts)
    told = {
        f"prompts/facts/{survey.facts}.yaml ({section})": set(rules.get(section, {}))
        for section in ("person", "household", "alone")
    } | {
        f"prompts/{kind} ({name})": _columns(rule)
        for kind in ("markers", "vetoes")
        for name, rule in rules_of(kind).items()
    }
    problems = [
        f"the column '{item.code}' is told to the persona by {where}; take it out there, or do not"
        " ask it"
        for item in items
        for where, columns in told.items()
        if item.code in columns
    ]
    if problems:
        raise SettingsError(listed(problems, f"{survey.name}: held-out items"))


def _columns(rule: Mapping) -> set[str]:
    """Return the columns that a marker's or veto's conditions look at."""
    tests = [(column, test) for line in rule["when"] for column, test in line.items()]
    limits = [v for _, test in tests if isinstance(test, Mapping) for v in test.values()]
    return {column for column, _ in tests} | {v for v in limits if isinstance(v, str)}


def respondents(survey: Survey) -> pd.DataFrame:
    """Return the persons who answered for their households: PNUM 1, one a household."""
    return survey.persons[survey.persons["PNUM"] == 1]


def human_answers(survey: Survey, items: Sequence[Probe]) -> pd.DataFrame:
    """Return what the respondents answered, 1, 2, ... of each item's scale.

    Index person_id, a column an item, NaN where the survey has no answer. Raises TableError for a
    column that is missing and for values that the item does not know.
    """
    asked = respondents(survey)
    problems, found = [], {}
    for item in items:
        table: pd.DataFrame = getattr(survey, item.table)
        if item.code not in table:
            problems.append(f"{item.table}.{item.code}: no such column; leave the item out")
            continue
        own = item.table == "persons"
        column = asked[item.code] if own else asked["household_id"].map(table[item.code])
        said = _spelt(column)
        known = {_plain(k): v for k, v in item.answers.items()}
        silent = {_plain(k) for k in item.silent} | {""}
        strange = said[~said.isin([*known, *silent])]
        if len(strange):
            problems.append(
                f"{item.table}.{item.code}: {len(strange)} values are no answer of the item, first"
                f" {strange.iloc[0]!r} of person {strange.index[0]}; add them to the item's"
                " `answers` or `silent`"
            )
        found[item.code] = said.map(known).astype(float)
    if problems:
        raise TableError(listed(problems, survey.name))
    return pd.DataFrame(found, index=asked.index)


def _spelt(column: pd.Series) -> pd.Series:
    return column.astype("string").fillna("").map(_plain).astype(object)


def _plain(value: str) -> str:
    """Return a code's plain spelling.

    >>> _plain("01"), _plain("1.0"), _plain(" Agree ")
    ('1', '1', 'Agree')
    """
    text = value.strip().removesuffix(".0")
    return text.lstrip("0") or "0" if text.isdigit() else text
