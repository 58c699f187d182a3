"""From rows to people: a translation map turns coded answers into sentences.

A neutralization filter drops what is no answer. A map is a YAML file in `prompts/facts/`, one a
survey or population, with its code book cited. Attitudes (`prompts/markers/`) and constraints
(`prompts/vetoes/`) are imputed from the same answers by stated rules.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd

from pemand_abm.people import Household, Member
from pemand_abm.prompting import data_file

GROWN_UP = 16  # The age from which a member may drive.
Imputing = Callable[[Mapping[str, object]], tuple[str, ...]]
"""Gives the names of the rules that hold for a row of coded answers."""
_TESTS = {"least": operator.ge, "most": operator.le, "below": operator.lt}


def read_map(name: str = "activitysim") -> dict[str, dict]:
    """Return the translation map *name*."""
    return data_file("facts", name)


def known_maps() -> list[str]:
    """Return the names of the translation maps."""
    folder = resources.files("pemand_abm").joinpath("prompts", "facts")
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir())


@cache
def rules_of(kind: str) -> dict[str, dict]:
    """Return the rules of `markers` or `vetoes` of all domains, by name."""
    return {
        n: rule for domain in ("trips", "relocation") for n, rule in data_file(kind, domain).items()
    }


def said_by(kind: str, domain: str, names: Iterable[str]) -> list[dict[str, str]]:
    """Return the rules of this kind and domain that *names* holds, in the file's order."""
    held = set(names)
    return [rule for name, rule in data_file(kind, domain).items() if name in held]


def imputed(rules: Mapping[str, Mapping], row: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of the rules that hold for a row of coded answers.

    >>> rules = {"no-car": {"when": [{"cars": {"most": 0}}]}, "pupil": {"when": [{"school": [1]}]}}
    >>> imputed(rules, {"cars": 0, "school": -9})
    ('no-car',)
    """
    return tuple(
        name
        for name, rule in rules.items()
        if any(all(_holds(test, c, row) for c, test in line.items()) for line in rule["when"])
    )


def _imputing(kind: str) -> Imputing:
    """Return `imputed` by the rules of *kind*, which looks at each combination of answers once.

    A region's households are copies of its seed's.
    """
    rules = rules_of(kind)
    lines = [line for rule in rules.values() for line in rule["when"]]
    tests = [test for line in lines for test in line.values() if not isinstance(test, list)]
    limits = (limit for test in tests for limit in test.values() if isinstance(limit, str))
    columns = tuple(dict.fromkeys((*(c for line in lines for c in line), *limits)))
    found: dict[tuple[object, ...], tuple[str, ...]] = {}

    def of(row: Mapping[str, object]) -> tuple[str, ...]:
        answers = tuple(map(row.get, columns))
        if answers not in found:
            found[answers] = imputed(rules, row)
        return found[answers]

    return of


def _holds(test: list | Mapping[str, float | str], column: str, row: Mapping[str, object]) -> bool:
    value: Any = row.get(column)
    if isinstance(test, list):
        return value in test
    if not _answered(value, float("-inf")):
        return False
    for name, given in test.items():
        limit: Any = row.get(given) if isinstance(given, str) else given  # another column
        if not _answered(limit, float("-inf")) or not _TESTS[name](value, limit):
            return False
    return True


def translate(rules: Mapping[str, Mapping], row: Mapping[str, object]) -> tuple[str, ...]:
    """Return one sentence for each coded answer that the rules know.

    Codes of non-response say nothing.

    >>> rule = {"codes": {0: "We have no car."}, "sentence": "We have {value} cars."}
    >>> translate({"cars": rule}, {"cars": 2})
    ('We have 2 cars.',)
    >>> translate({"cars": rule}, {"cars": -9})
    ()
    """
    sentences = []
    for column, rule in rules.items():
        value = row.get(column)
        sentence = rule.get("codes", {}).get(value)
        if sentence is None and "sentence" in rule and _answered(value, rule.get("least", 0)):
            sentence = rule["sentence"].format(value=value)
        if sentence is not None:
            sentences.append(sentence)
    return tuple(sentences)


def _answered(value: object, least: float) -> bool:
    # Not numbers.Real, whose instance check is slow; NaN is not at least anything.
    return isinstance(value, (int, float, np.number)) and bool(value >= least)


def households_of(
    households: pd.DataFrame,
    persons: pd.DataFrame,
    ids: Iterable[int | str],
    speaking_age: int,
    rules: Mapping[str, Mapping],
) -> list[Household]:
    """Return the named households as negotiators know them, in the order of *ids*.

    *households* and *persons* are a population's or a survey's tables (docs/files.md,
    docs/surveys.md). Members of *speaking_age* and over speak; where none is that old, the eldest
    does.
    """
    wanted = list(ids)
    rows = households.loc[wanted]
    people = persons[persons["household_id"].isin(wanted)].sort_values(
        ["household_id", "PNUM"], kind="stable"
    )
    members: dict[int | str, list[dict]] = {}
    for person in people.reset_index().to_dict("records"):
        members.setdefault(person["household_id"], []).append(person)
    markers, vetoes = _imputing("markers"), _imputing("vetoes")
    return [
        _household(key, row, members[key], speaking_age, rules, markers, vetoes)
        for key, row in zip(wanted, rows.to_dict("records"), strict=True)
    ]


def _household(
    key: int | str,
    row: dict,
    people: list[dict],
    speaking_age: int,
    rules: Mapping[str, Mapping],
    markers: Imputing,
    vetoes: Imputing,
) -> Household:
    shared = rules["alone" if row["hhsize"] == 1 else "household"]
    speaking = {p["person_id"] for p in people if p["age"] >= speaking_age}
    if not speaking:
        speaking = {max(people, key=lambda p: p["age"])["person_id"]}
    members = tuple(_member(p, row, p["person_id"] in speaking, rules, markers) for p in people)
    adults = sum(p["age"] >= GROWN_UP for p in people)
    return Household(
        id=key,
        zone=row["home_zone_id"],
        size=int(row["hhsize"]),
        vehicles=int(row["auto_ownership"]) if "auto_ownership" in row else None,
        tenure=str(row.get("tenure", "")),
        age_of_head=int(row["age_of_head"]),
        facts=translate(shared, row),
        members=members,
        vetoes=vetoes(row | {"adults": adults}),
    )


def _member(
    person: dict, row: dict, speaks: bool, rules: Mapping[str, Mapping], markers: Imputing
) -> Member:
    age, oldest = int(person["age"]), int(person.get("age_to", person["age"]))
    return Member(
        id=person["person_id"],
        name=f"member {person['PNUM']}",
        age=age,
        works=person["pemploy"] in (1, 2) if "pemploy" in person else None,
        facts=translate(rules["person"], person),
        speaks=speaks,
        oldest=oldest if oldest > age else None,
        markers=markers(row | person),
    )
