"""From rows to people: a translation map turns coded answers into sentences.

A neutralization filter drops what is no answer. A map is a YAML file in `prompts/facts/`, one a
survey or population, with its code book cited.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources

import pandas as pd
import yaml

from pemand_abm.people import Household, Member


def read_map(name: str = "activitysim") -> dict[str, dict]:
    """Return the translation map *name*."""
    file = resources.files("pemand_abm").joinpath("prompts", "facts", f"{name}.yaml")
    return yaml.safe_load(file.read_text(encoding="utf-8"))


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
    return isinstance(value, (int, float)) and not pd.isna(value) and value >= least


def households_of(
    households: pd.DataFrame,
    persons: pd.DataFrame,
    ids: Iterable[int],
    speaking_age: int,
    rules: Mapping[str, Mapping],
) -> list[Household]:
    """Return the named households as negotiators know them, in the order of *ids*.

    *households* and *persons* are the population's tables (docs/files.md). Members of
    *speaking_age* and over speak; where none is that old, the eldest does.
    """
    wanted = list(ids)
    rows = households.loc[wanted]
    people = persons[persons["household_id"].isin(wanted)].sort_values(
        ["household_id", "PNUM"], kind="stable"
    )
    members = {
        key: group.reset_index().to_dict("records") for key, group in people.groupby("household_id")
    }
    return [
        _household(key, row, members[key], speaking_age, rules)
        for key, row in zip(wanted, rows.to_dict("records"), strict=True)
    ]


def _household(
    key: int, row: dict, people: list[dict], speaking_age: int, rules: Mapping[str, Mapping]
) -> Household:
    shared = rules["alone" if row["hhsize"] == 1 else "household"]
    speaking = {p["person_id"] for p in people if p["age"] >= speaking_age}
    if not speaking:
        speaking = {max(people, key=lambda p: p["age"])["person_id"]}
    members = tuple(
        Member(
            id=int(p["person_id"]),
            name=f"member {p['PNUM']}",
            age=int(p["age"]),
            works=p["pemploy"] in (1, 2),
            facts=translate(rules["person"], p),
            speaks=p["person_id"] in speaking,
        )
        for p in people
    )
    return Household(
        id=int(key),
        zone=row["home_zone_id"],
        size=int(row["hhsize"]),
        vehicles=int(row["auto_ownership"]),
        tenure=str(row["tenure"]),
        age_of_head=int(row["age_of_head"]),
        facts=translate(shared, row),
        members=members,
    )
