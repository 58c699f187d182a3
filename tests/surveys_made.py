"""A made-up survey whose trips follow a known rule, for tests of what is evaluated."""

import numpy as np
import pandas as pd

from pemand_abm import keys
from pemand_abm.surveys import Features, Survey

DROPPED = pd.DataFrame({"file": ["homes"], "what": ["dropped: trips is not told"], "rows": [3]})


def survey_of(households=60, target="trips", note="", text_ids=False):
    """Return *households* of one to four members; trips are 3 a member, one off at random.

    *note* is added to a fact column, to try what text from a file can do.
    """
    draw = keys.generator(7, "made")
    size = draw.integers(1, 5, households)
    ids = 9_000_000_000 + 7 * np.arange(households)
    index = pd.Index(ids.astype(str) if text_ids else ids, name="household_id")
    homes = pd.DataFrame(
        {
            "hhsize": size,
            "num_workers": np.minimum(size, 2),
            "auto_ownership": draw.integers(0, 3, households),
            "children": np.maximum(size - 2, 0),
            "age_of_head": 45,
            "tenure": np.where(draw.random(households) < 0.5, "own", "rent"),
            "income": 1000.0 * draw.integers(20, 200, households),
            "home_zone_id": "Somewhere",
            "weight": 1 + draw.random(households),
            "weekday": True,
            "note": note,
        },
        index=index,
    )
    if target == "trips":
        homes["trips"] = np.maximum(3 * size + draw.integers(-1, 2, households), 0)
    else:
        homes["moved"] = (draw.random(households) < 0.3).astype("int64")
    place = np.repeat(np.arange(households), size)
    number = np.concatenate([np.arange(1, n + 1) for n in size])
    persons = pd.DataFrame(
        {
            "household_id": index[place],
            "PNUM": number,
            "age": np.where(number <= 2, 40 + number, 9),
            "age_to": np.where(number <= 2, 40 + number, 9),
            "sex": 1 + number % 2,
            "pemploy": np.where(number <= 2, 1, 4),
            "pstudent": np.where(number <= 2, 3, 1),
            "inferred": False,
        },
        index=pd.Index(np.arange(1, len(place) + 1), name="person_id"),
    )
    return Survey(
        "made",
        "A made survey",
        2030,
        target,
        "person trips of a weekday" if target == "trips" else "moves of a year",
        homes,
        persons,
        DROPPED,
        "activitysim",
        Features(("hhsize", "auto_ownership"), ("tenure",), ("sex",)),
    )
