"""Surveys of movers: what the maps of the census samples and of PSID cannot say.

The label of all of them is asked after the event, so whatever the new home decides (tenure, rent,
size, vehicles, the way to work) is measured too late to explain it. The tables keep it, for rates
by tenure; no feature and no fact names it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pemand_abm.surveys.maps import SurveyMap
from pemand_abm.surveys.reading import OLDEST, Prepare, Raw

FULL_TIME = 35  # hours a week (Census: usual hours of a full-time worker)
EMPLOYED = (1, 2, 4, 5)  # ESR: civilian or in the armed forces, at work or with a job but not at it
MOVED = (2, 3)  # MIG: lived abroad, or elsewhere in the country, a year before
COLLEGE = (6, 7)  # SCHG of 2006-2010: undergraduate, graduate or professional
BANDS = {0: "0-17", 18: "18-34", 35: "35-49", 50: "50-64", 65: "65+"}
PSID_SPAN = 2  # years: moves since January 2021, told in 2023


def _banded(age: pd.Series) -> pd.Series:
    edges = [*BANDS, np.inf]
    return pd.cut(age.astype("float64"), edges, right=False, labels=list(BANDS.values())).astype(
        str
    )


def census(raw: Raw, given: SurveyMap) -> Raw:
    """Add to PUMS records who moved, the age of the reference person, and who works or studies.

    A household moved where its reference person (`sporder` 1) lived elsewhere a year before: `mig`
    says so in 2006-2010; in 2024 `migsp`, the place lived in then, is filled for movers only.
    Households of weight 0 are dropped.
    """
    homes, people = raw.households, raw.persons
    assert people is not None
    file = given.households.files[0]
    weightless = homes["wgtp"].eq(0)
    raw.drop(file, "dropped: households of weight 0", weightless.sum())
    homes = homes[~weightless].reset_index(drop=True)

    head = people[people["sporder"].eq(1)].drop_duplicates("serialno").set_index("serialno")
    moved = head["mig"].isin(MOVED) if "mig" in head else head["migsp"].notna()
    homes = homes.assign(
        moved=homes["serialno"].map(moved).astype("float64"),
        age_of_head=homes["serialno"].map(head["agep"]).astype("float64"),
    )
    hours = people["wkhp"].astype("float64")
    work = people["esr"].astype("float64")
    employed = work.isin(EMPLOYED)
    kinds = [employed & (hours >= FULL_TIME), employed, work.notna()]
    columns = {"pemploy": np.select(kinds, [1, 2, 3], 4), "age_band": _banded(people["agep"])}
    if "schg" in people:
        grade, attends = (
            people["schg"].astype("float64"),
            people["sch"].astype("float64").isin([2, 3]),
        )
        college = grade.isin(COLLEGE)
        columns["pstudent"] = np.select([attends & college, attends & grade.notna()], [2, 1], 3)
    raw.households, raw.persons = homes, people.assign(**columns)
    return raw


def panel(raw: Raw, given: SurveyMap) -> Raw:
    """Mark PSID's ages that are none (999 and the like), the bands, and the label's two years."""
    assert raw.persons is not None
    age = raw.persons["er35104"].astype("float64")
    age = age.where(age.between(0, OLDEST))
    head = raw.households["er82018"].astype("float64")
    raw.persons = raw.persons.assign(er35104=age, age_band=_banded(age))
    raw.households = raw.households.assign(
        er82018=head.where(head.between(0, OLDEST)), span_years=PSID_SPAN
    )
    return raw


STEPS: dict[str, Prepare] = {"census movers": census, "psid": panel}
