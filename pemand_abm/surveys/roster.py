"""Persons where a survey has no person file, or leaves some of a household's members out.

Rows made here are flagged `inferred`: they say how many members of which kind a household has, not
who they are.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pemand_abm.surveys.maps import SurveyMap
from pemand_abm.surveys.reading import Raw

GROWN = (18, 64)
RETIRED = (65, 99)
YOUNG = (0, 4)
# NHTS life cycle (LIF_CYC): the youngest child's age in years; 9 and 10 are retired adults.
YOUNGEST = {3: (5, 5), 4: (5, 5), 5: (6, 15), 6: (6, 15), 7: (16, 17), 8: (16, 17)}
OTHER_CHILD = (5, 17)
# NHTS 2017 asks the household's respondent how often he uses these; the answers are his alone.
RESPONDENTS = (
    *("pc", "sphone", "tab", "webuse17"),
    *("walk", "bike", "car", "taxi", "bus", "train", "para"),
)


def from_counts(raw: Raw, given: SurveyMap) -> Raw:
    """Make the persons of NHTS 2017 from each household's counts.

    `numadlt` adults, the first `wrkcount` of them at work; `youngchild` children under 5; the rest
    of `hhsize` children from 5 to 17, in the ages that the life cycle allows its youngest. The
    first adult answers for the household, and gets the respondent's own answers (`RESPONDENTS`).
    Workers beyond the adults, who must be 16 or 17, are not placed. Households without an adult, or
    with more counted than `hhsize`, are dropped.
    """
    homes = raw.households
    size, adults, young, work = (
        homes[c].astype("int64") for c in ("hhsize", "numadlt", "youngchild", "wrkcount")
    )
    older = size - adults - young
    good = (adults >= 1) & (older >= 0) & (young >= 0)
    raw.drop(given.households.files[0], "dropped: counts of members do not add up", (~good).sum())
    homes = homes[good].reset_index(drop=True)
    size, adults, young, work, older = (
        s[good].reset_index(drop=True) for s in (size, adults, young, work, older)
    )
    place = np.repeat(np.arange(len(homes)), size)
    number = np.arange(len(place)) - np.repeat((size.cumsum() - size).to_numpy(), size) + 1
    cycle = pd.to_numeric(homes["lif_cyc"], errors="coerce").to_numpy()[place]
    is_adult = number <= adults.to_numpy()[place]
    is_young = number > (adults + older).to_numpy()[place]
    works = is_adult & (number <= work.to_numpy()[place])
    retired = is_adult & ~works & np.isin(cycle, (9, 10))
    # The youngest of the older children is the last of them.
    last = number == (adults + older).to_numpy()[place]
    child = np.array([YOUNGEST.get(int(c), OTHER_CHILD) if c == c else OTHER_CHILD for c in cycle])
    child = np.where((last & (young.to_numpy()[place] == 0))[:, None], child, OTHER_CHILD)
    kinds = [is_adult & ~retired, retired, is_young]
    low = np.select(kinds, [GROWN[0], RETIRED[0], YOUNG[0]], child[:, 0])
    high = np.select(kinds, [GROWN[1], RETIRED[1], YOUNG[1]], child[:, 1])
    key = given.households.id[0].lower()
    ids = homes[key].astype(str).to_numpy()[place]
    persons = pd.DataFrame(
        {
            "household_id": homes[key].to_numpy()[place],
            "PNUM": number,
            "age": low,
            "age_to": high,
            "sex": 0,
            "pemploy": np.select([works, is_adult], [1, 3], 4),
            "inferred": True,
        },
        index=pd.Index(np.char.add(np.char.add(ids.astype("U"), "-"), number.astype("U"))),
    )
    own = {c: _own(homes[c].to_numpy()[place], number) for c in RESPONDENTS if c in homes}
    raw.persons = persons.assign(**own).rename_axis("person_id")
    raw.households = homes
    file = given.households.files[0]
    raw.drop(file, "made: members from their household's counts (inferred)", len(persons))
    unplaced = (work - adults).clip(lower=0).sum()
    raw.drop(file, "untold: which of the children is at work", unplaced)
    return raw


def _own(codes: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return a respondent's answers as numbers, NaN for other members and where not told."""
    answers = pd.to_numeric(pd.Series(codes), errors="coerce").to_numpy("float64")
    return np.where((number == 1) & (answers > 0), answers, np.nan)


def from_columns(raw: Raw, given: SurveyMap) -> Raw:
    """Make the persons of NHTS 2001 from the household file's columns AGE_P1 to WKR_P14.

    The person file holds only those who were interviewed, and gives their sex. Households of which
    a member's age is not told are dropped.
    """
    homes = raw.households
    ages = homes[[f"age_p{i}" for i in range(1, 15)]].to_numpy()
    work = homes[[f"wkr_p{i}" for i in range(1, 15)]].to_numpy()
    drive = homes[[f"drv_p{i}" for i in range(1, 15)]].to_numpy()
    good = (ages >= 0).sum(axis=1) == homes["hhsize"].to_numpy()
    raw.drop(given.households.files[0], "dropped: a member's age is not told", (~good).sum())
    homes = homes[good].reset_index(drop=True)
    row, column = np.nonzero(ages[good] >= 0)
    age, works = ages[good][row, column], work[good][row, column]
    sex = _sex(raw.others["person"], homes["houseid"].to_numpy()[row], column + 1)
    key = given.households.id[0].lower()
    first = np.r_[True, row[1:] != row[:-1]]
    number = np.arange(len(row)) - np.flatnonzero(first)[np.cumsum(first) - 1] + 1
    ids = homes[key].astype(str).to_numpy()[row]
    persons = pd.DataFrame(
        {
            "household_id": homes[key].to_numpy()[row],
            "PNUM": number,
            "age": age,
            "age_to": age,
            "sex": sex,
            "pemploy": np.select([works == 1, age < 16, works == 2], [1, 4, 3], 0),
            "driver": drive[good][row, column],
            "inferred": False,
        },
        index=pd.Index(np.char.add(np.char.add(ids.astype("U"), "-"), number.astype("U"))),
    )
    raw.persons = persons.rename_axis("person_id")
    raw.households = homes
    return raw


def _sex(persons: pd.DataFrame, homes: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return 1 male, 2 female, or 0 for a member who was not interviewed or did not say."""
    told = persons[persons["r_sex"].isin([1, 2])]
    by_member = told.set_index([told["houseid"].astype("str"), told["personid"]])["r_sex"]
    wanted = pd.MultiIndex.from_arrays([pd.Series(homes).astype("str"), number])
    return by_member.reindex(wanted).fillna(0).to_numpy("int64")


def with_young(raw: Raw, given: SurveyMap) -> Raw:
    """Add the children under 5, whom NHTS 2022 counts in `hhsize` but does not list."""
    assert raw.persons is not None and given.persons is not None
    homes, persons = raw.households, raw.persons
    listed = persons.groupby("houseid").size().reindex(homes["houseid"], fill_value=0).to_numpy()
    lacking = np.clip(homes["hhsize"].to_numpy("int64") - listed, 0, None)
    lacking = np.minimum(lacking, homes["youngchild"].to_numpy("int64"))
    place = np.repeat(np.arange(len(homes)), lacking)
    number = np.arange(len(place)) - np.repeat(lacking.cumsum() - lacking, lacking) + 1
    young = pd.DataFrame(
        {
            "houseid": homes["houseid"].to_numpy()[place],
            "personid": [f"young{k}" for k in number],
            "r_age": float(YOUNG[0]),
            "age_to": float(YOUNG[1]),
            "worker": "-1",
            "inferred": True,
        }
    )
    persons = persons.assign(inferred=False, age_to=persons["r_age"])
    raw.drop(given.persons.files[0], "added: children under 5, whom it does not list", len(young))
    raw.persons = pd.concat([persons, young], ignore_index=True)
    return raw
