"""What members are taught to say: their share of the trips that households like theirs made.

One observed day is mostly chance: a model that learns it learns the spread, and its draws scatter
as much. What is taught is therefore the *expected* number, from a regression of the members' own
observed trips on what the prompts tell of them. It is cross-fitted: what a household is taught
comes from a regression that has not seen it. All of it stays within the training split.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm import keys
from pemand_abm.answers import half_up
from pemand_abm.surrogate import move_rates, read_rates
from pemand_abm.surveys import Survey

FOLDS = 5
OWN = ("age", "age_to", "sex", "pemploy", "pstudent", "PNUM")
SHARED = ("hhsize", "auto_ownership", "income", "num_workers", "children", "age_of_head", "urban")
ANSWERS = ("transit_freq", "license", "gcdwork", "home_county", "hhincome_broad")
YOUNGEST = 5
"""Trips are counted for persons of five and over (PROTOCOLS §0)."""


def expected_trips(survey: Survey, trained: pd.Series, seed: int) -> pd.Series:
    """Return each person's expected trips of a weekday, by ``person_id``.

    *trained* marks the households of the training split (bool, by household); the others get none.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    persons = survey.persons
    known = persons[persons["household_id"].isin(trained.index[trained])]
    known = known[known["age"] >= YOUNGEST]
    x = _features(survey, known)
    y = known["trips"].astype(float)
    fold = (keys.uniforms(known["household_id"].to_numpy(), seed, "targets") * FOLDS).astype(int)
    found = pd.Series(np.nan, index=known.index)
    for k in range(FOLDS):
        held = fold == k
        model = HistGradientBoostingRegressor(
            loss="poisson",
            max_leaf_nodes=15,
            learning_rate=0.05,
            max_iter=200,
            min_samples_leaf=25,
            categorical_features="from_dtype",
            random_state=seed,
        )
        # Spinning threads beside other programs took a hundred times as long as one.
        with threadpool_limits(1):
            found[held] = model.fit(x[~held], y[~held]).predict(x[held])
    return found


def expected_moves(survey: Survey, rates: Path) -> pd.Series:
    """Return each household's annual probability of a move, by ``household_id``.

    The census rate of its tenure, age of head and children (``moves.csv`` of a rates folder): no
    answer of the survey itself is used. Households of unknown tenure get none.
    """
    known = survey.households[survey.households["tenure"].isin(["own", "rent"])]
    adults = known[known["age_of_head"] >= 15]
    score = move_rates(adults, read_rates(rates))["score"]
    return 1 / (1 + np.exp(-score))


def _features(survey: Survey, persons: pd.DataFrame) -> pd.DataFrame:
    homes = survey.households.reindex(persons["household_id"])
    columns = {n: persons[n] for n in (*OWN, *ANSWERS) if n in persons}
    columns |= {
        n: homes[n].set_axis(persons.index)
        for n in (*SHARED, *ANSWERS)
        if n in homes and n not in columns
    }
    table = pd.DataFrame(columns)
    texts = [n for n in table if not pd.api.types.is_numeric_dtype(table[n])]
    return table.assign(**{n: table[n].astype("category") for n in texts})


def whole_trips(expected: list[float], total: float) -> list[int]:
    """Return whole numbers near *expected* whose sum is *total* rounded: largest remainders.

    >>> whole_trips([2.6, 3.6, 1.4], 7.6)
    [3, 4, 1]
    >>> whole_trips([0.2, 0.2], -1.0)
    [0, 0]
    """
    wanted = max(0, half_up(total))
    whole = sum(expected) or 1.0
    parts = np.array(expected) * wanted / whole
    down = np.floor(parts).astype(int)
    order = np.argsort(-(parts - down), kind="stable")
    down[order[: wanted - int(down.sum())]] += 1
    return [int(n) for n in down]
