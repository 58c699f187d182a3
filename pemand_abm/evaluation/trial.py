"""A trial: the surveyed households that every method is asked about, and how they were chosen.

Trips are predicted for households that no method was trained on. Movers are few, so the panel takes
all of them and three times as many stayers, weighted back to the survey's share and cross-validated
(PROTOCOLS, PEMAND 11). Splits are by household: NHTS 90/10, PSRC 80/20 (PEMAND B.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pemand_abm import keys
from pemand_abm.domains import RELOCATION, TRIPS, Domain
from pemand_abm.errors import SettingsError
from pemand_abm.evaluation.metrics import folds, split, weighted_stratified_sample
from pemand_abm.surveys import Survey

STAYERS_A_MOVER = 3
FOLDS = 5
ENOUGH = 200
"""From how many households on a comparison of methods is put in words (PROTOCOLS, PEMAND 11)."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """What is asked of whom.

    `chosen` has a row for every household asked about (index household_id): `observed` (trips, or 1
    where it moved), `sampling` (restores the survey's share of movers; 1 for trips), `weight` (the
    survey's times `sampling`), `hhsize`, `fold` (of the cross-validation; -1 for trips). `trained`
    marks the households of the survey that a method may learn from; in a cross-validation those of
    the other folds.
    """

    survey: Survey
    domain: Domain
    chosen: pd.DataFrame
    trained: pd.Series
    how: str
    seed: int


def design_trial(
    survey: Survey, households: int | None, seed: int, members: int = 1, share: float | None = None
) -> Trial:
    """Choose the households: all of the test split, or *households* of them.

    *members* leaves out smaller households; *share* is the test split's part, by default a tenth of
    an NHTS cycle and a fifth of any other survey.
    """
    if survey.target == "moved":
        return _panel(survey, households, seed, members)
    share = share or _test_share(survey)
    homes = survey.households
    test = pd.Series(held_out(survey, seed, share), index=homes.index)
    able = homes.index[test & (homes["hhsize"] >= members)]
    if able.empty:
        raise SettingsError(
            f"{survey.name}: no household of the test split has {members} members or more; give a"
            " smaller --members"
        )
    ids = _first(able, households, seed)
    chosen = pd.DataFrame(
        {
            "observed": homes.loc[ids, "trips"],
            "sampling": 1.0,
            "weight": homes.loc[ids, "weight"],
            "hhsize": homes.loc[ids, "hhsize"],
            "fold": -1,
        },
        index=ids,
    )
    how = (
        f"{len(ids):,} of the {int(test.sum()):,} households of the test split"
        f" ({share:.0%} by household, seed {seed}); methods that learn saw the other"
        f" {int((~test).sum()):,}" + _larger(members)
    )
    return Trial(survey, TRIPS, chosen, ~test, how, seed)


def held_out(survey: Survey, seed: int, share: float | None = None) -> np.ndarray:
    """Return whether each household is of the test split, which no method is trained on."""
    return split(survey.households.index, share or _test_share(survey), seed)


def _test_share(survey: Survey) -> float:
    return 0.1 if survey.name.startswith("nhts") else 0.2


def _panel(survey: Survey, households: int | None, seed: int, members: int) -> Trial:
    homes = survey.households[survey.households["hhsize"] >= members]
    movers, stayers = (int((homes["moved"] == k).sum()) for k in (1, 0))
    if households is None:
        taken = {1: movers, 0: min(stayers, STAYERS_A_MOVER * movers)}
    else:
        some = min(movers, households // 2)
        taken = {1: some, 0: min(stayers, households - some)}
    if min(taken.values()) == 0:
        raise SettingsError(
            f"{survey.name}: {movers} movers and {stayers} stayers to choose"
            f" {'all' if households is None else households} from; a trial needs at least one of"
            " each, so --households 2 or more"
        )
    sampling = weighted_stratified_sample(homes["moved"], taken, seed)
    part = homes.loc[sampling.index]
    chosen = pd.DataFrame(
        {
            "observed": part["moved"],
            "sampling": sampling,
            "weight": sampling * part["weight"],
            "hhsize": part["hhsize"],
            "fold": folds(part["moved"], FOLDS, seed),
        }
    ).rename_axis("household_id")
    how = (
        f"{taken[1]} of {movers} movers and {taken[0]} of {stayers:,} stayers, reweighted to the"
        f" survey's share of movers; methods that learn are cross-validated in {FOLDS} folds"
        + _larger(members)
    )
    trained = pd.Series(True, index=survey.households.index)
    return Trial(survey, RELOCATION, chosen, trained, how, seed)


def _first(ids: pd.Index, households: int | None, seed: int) -> pd.Index:
    """Return *households* of the ids, those of the smallest random numbers, in their order."""
    if households is None or households >= len(ids):
        return ids
    ranked = ids[np.argsort(keys.uniforms(ids, seed, "evaluate"), kind="stable")]
    return ranked[:households]


def _larger(members: int) -> str:
    return f"; households of {members} members and more" if members > 1 else ""
