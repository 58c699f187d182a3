"""Kinds of households by which results are split: what a household is, never what it did."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd

from pemand_abm.anchors import AGE_BANDS, AGE_EDGES

GROUPINGS: dict[str, str] = {
    "size": "Persons",
    "income": "Income, dollars a year",
    "vehicles": "Vehicles",
    "workers": "Workers",
    "tenure": "Tenure",
    "age_of_head": "Age of head",
    "children": "Children",
    "race": "Race of the reference person",
    "disability": "Disability",
}
"""The groupings in the order of the tables, with their words."""

# The names under which a seed may hold them: words of its own, or the codes of ACS PUMS.
RACE = ("race", "RAC1P", "HHLDRRAC1P")
DISABILITY = ("disability", "DIS")
# ACS PUMS data dictionary, RAC1P; the three codes of American Indians and Alaska Natives in one.
RACES = {
    "1": "White alone",
    "2": "Black or African American alone",
    "3": "American Indian or Alaska Native alone",
    "4": "American Indian or Alaska Native alone",
    "5": "American Indian or Alaska Native alone",
    "6": "Asian alone",
    "7": "Native Hawaiian or Pacific Islander alone",
    "8": "some other race alone",
    "9": "two or more races",
}
# ACS PUMS data dictionary, DIS: 1 with a disability, 2 without one.
WITHOUT = {"2", "0", "no", "none", "false", "without"}
UNKNOWN = "not known"


def household_groups(households: pd.DataFrame, persons: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return each household's group in every grouping that its columns allow.

    Parameters
    ----------
    households : DataFrame
        Indexed by `household_id`, with any of `hhsize`, `income`, `auto_ownership`,
        `num_workers`, `tenure`, `age_of_head`, `children` and the columns of `RACE`.
    persons : DataFrame, optional
        With `household_id` and `relate`; may hold the columns of `RACE` and `DISABILITY`.

    Returns
    -------
    DataFrame
        Same index; ordered categories, a column a grouping of `GROUPINGS`.
    """
    found = {
        "size": _counts(households, "hhsize", 5, least=1),
        "income": _fifths(households),
        "vehicles": _counts(households, "auto_ownership", 3),
        "workers": _counts(households, "num_workers", 3),
        "tenure": _words(households, "tenure", {"own": "owners", "rent": "renters"}),
        "age_of_head": _ages(households),
        "children": _children(households),
        "race": _race(households, persons),
        "disability": _disability(households, persons),
    }
    return pd.DataFrame({name: held for name, held in found.items() if held is not None})


def _ordered(values: pd.Series, order: list[str]) -> pd.Series:
    return values.astype(pd.CategoricalDtype([o for o in order if (values == o).any()], True))


def _counts(households: pd.DataFrame, column: str, top: int, least: int = 0) -> pd.Series | None:
    if column not in households:
        return None
    order = [*map(str, range(least, top)), f"{top} and more"]
    place = households[column].clip(lower=least, upper=top).astype("int64") - least
    return _ordered(place.map(dict(enumerate(order))), order)


def _fifths(households: pd.DataFrame) -> pd.Series | None:
    """Return fifths of the households by income, named by their bounds."""
    if "income" not in households:
        return None
    bounds = households["income"].quantile([0.2, 0.4, 0.6, 0.8]).drop_duplicates().tolist()
    order = [f"up to {bounds[0]:,.0f}"]
    order += [f"{a:,.0f} to {b:,.0f}" for a, b in pairwise(bounds)]
    order.append(f"over {bounds[-1]:,.0f}")
    place = pd.Series(pd.Index(bounds).searchsorted(households["income"]), households.index)
    return _ordered(place.map(dict(enumerate(order))), order)


def _ages(households: pd.DataFrame) -> pd.Series | None:
    if "age_of_head" not in households:
        return None
    age = households["age_of_head"].clip(lower=AGE_EDGES[0])
    place = AGE_EDGES.searchsorted(age, side="right") - 1
    held = pd.Series(place, households.index).map(dict(enumerate(AGE_BANDS)))
    return _ordered(held, list(AGE_BANDS))


def _children(households: pd.DataFrame) -> pd.Series | None:
    if "children" not in households:
        return None
    order = ["without children", "with children"]
    return _ordered((households["children"] > 0).map({False: order[0], True: order[1]}), order)


def _words(households: pd.DataFrame, column: str, words: dict[str, str]) -> pd.Series | None:
    if column not in households:
        return None
    held = households[column].astype(str)
    known = held.map(words).where(held.isin(list(words)), held)
    return _ordered(known, [*words.values(), *sorted(set(known) - {*words.values()})])


def _codes(values: pd.Series) -> pd.Series:
    """Return codes as text; whole numbers that a reader made decimals of get their form back."""
    text = values.astype("object").where(values.notna(), "").astype(str).str.strip()
    return text.str.replace(r"\.0$", "", regex=True)


def _race(households: pd.DataFrame, persons: pd.DataFrame | None) -> pd.Series | None:
    held = next((households[c] for c in RACE if c in households), None)
    if held is None and persons is not None:
        column = next((c for c in RACE if c in persons), None)
        if column:
            heads = persons[persons["relate"] == "reference person"]
            held = heads.set_index("household_id")[column].reindex(households.index)
    if held is None:
        return None
    codes = _codes(held)
    named = codes.map(RACES).where(codes.isin(list(RACES)), codes).replace("", UNKNOWN)
    order = [*dict.fromkeys(RACES.values()), *sorted(set(named) - {*RACES.values(), UNKNOWN})]
    return _ordered(named, [*order, UNKNOWN])


def _disability(households: pd.DataFrame, persons: pd.DataFrame | None) -> pd.Series | None:
    """Return whether a member has a disability, where the seed's persons say so."""
    column = next((c for c in DISABILITY if persons is not None and c in persons), None)
    if persons is None or column is None:
        return None
    codes = _codes(persons[column]).str.lower()
    has = ~codes.isin([*WITHOUT, ""])
    members = has.groupby(persons["household_id"]).any().reindex(households.index, fill_value=False)
    order = ["no member with a disability", "a member with a disability"]
    return _ordered(members.map({False: order[0], True: order[1]}), order)
