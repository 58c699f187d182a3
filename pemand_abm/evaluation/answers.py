"""What each method answers for each household of a trial, one row a method and household."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

from pemand_abm.dialogue import Model, converse
from pemand_abm.evaluation import baselines
from pemand_abm.evaluation.methods import BY_MODEL, Method, Setting, Told, ask
from pemand_abm.evaluation.trial import Trial
from pemand_abm.facts import households_of, read_map
from pemand_abm.people import Household
from pemand_abm.protocols.single import Exemplar

SPEAKING_AGE = 12
IN_FLIGHT = 64
NEIGHBOURS = 3
"""How many similar households RAG is shown (PEMAND D.6.4)."""

COUNTED = ("rounds", "skips", "rejected", "bounded")
WHOLE = (*COUNTED, "calls", "persona_calls", "prompt_tokens", "completion_tokens", "hhsize")


def learned(method: str, trial: Trial) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return what a statistical baseline predicts, and what must be known of it.

    A household whose probability of a move is a half or more counts as a mover.
    """
    ids = trial.chosen.index
    if trial.survey.target == "moved":
        found = baselines.cross_predict(method, trial.survey, trial.chosen["fold"], trial.seed)
        score = found.values.loc[ids]
        predicted = (score >= 0.5).astype(float)
    else:
        test = ~trial.trained.to_numpy()
        found = baselines.fit_predict(method, trial.survey, test, trial.seed)
        predicted, score = found.values.loc[ids], np.nan
    columns = {"method": method, "predicted": predicted, "score": score, "outcome": "predicted"}
    return pd.DataFrame(columns, index=ids), found.notes


def homes_of(trial: Trial, ids: Sequence[int | str]) -> list[Household]:
    """Return households of the survey as their members know them."""
    return households_of(
        trial.survey.households,
        trial.survey.persons,
        ids,
        SPEAKING_AGE,
        read_map(trial.survey.facts),
    )


def asked(
    method: Method, trial: Trial, setting: Setting, model: Model, in_flight: int = IN_FLIGHT
) -> Iterator[Told]:
    """Let a method answer by model for all households of the trial, *in_flight* of them at once."""
    homes = homes_of(trial, list(trial.chosen.index))
    beside = exemplars(trial) if method.exemplars else {}
    for start in range(0, len(homes), in_flight):
        wave = homes[start : start + in_flight]
        yield from converse([ask(method, h, setting, beside.get(h.id, ())) for h in wave], model)


def exemplars(trial: Trial) -> dict[int | str, tuple[Exemplar, ...]]:
    """Return the similar households of the training split, for each household of the trial."""
    ids = trial.chosen.index
    near = baselines.nearest(trial.survey, trial.trained.to_numpy(), ids, NEIGHBOURS)
    wanted = list(dict.fromkeys(near.to_numpy().ravel().tolist()))
    known = dict(zip(wanted, homes_of(trial, wanted), strict=True))
    target = trial.survey.households[trial.survey.target]
    said = _option if trial.survey.target == "moved" else lambda trips: str(int(trips))
    return {
        key: tuple(Exemplar(_told(known[n]), said(target[n])) for n in some)
        for key, *some in near.itertuples()
    }


def _option(moved: float) -> str:
    return "move" if moved else "stay"


def _told(home: Household) -> str:
    members = " ".join(f"{m.name}: {' '.join(m.facts)}" for m in home.members)
    return f"{' '.join(home.facts)} {members}"


def told_table(method: str, answers: Sequence[Told]) -> pd.DataFrame:
    """Return one row a household.

    `predicted` (trips, or 1 for a move; NaN where undecided), `score` (probability of a move),
    `outcome`, what the talk took (`rounds`, `skips`, `rejected`, `bounded` turns) and what it cost
    (`calls`, `persona_calls`, `prompt_tokens`, `completion_tokens`).
    """
    rows = [_row(told) for told in answers]
    index = pd.Index([told.talk.household.id for told in answers], name="household_id")
    return pd.DataFrame(rows, index=index).assign(method=method)


def _row(told: Told) -> dict[str, object]:
    decision, turns = told.decision, told.decision.turns
    value = {"stay": 0, "move": 1}.get(str(decision.value), decision.value)
    both = told.persona_cost + told.talk_cost
    return {
        "predicted": np.nan if value is None else float(value),
        "score": np.nan if decision.score is None else decision.score / 100,
        "outcome": decision.outcome,
        "rounds": decision.rounds,
        "skips": sum(t.utterance.skipped for t in turns),
        "rejected": sum(not t.kept for t in turns),
        "bounded": sum(t.utterance.said is not None for t in turns),
        "calls": told.talk_cost.calls,
        "persona_calls": told.persona_cost.calls,
        "prompt_tokens": both.prompt_tokens,
        "completion_tokens": both.completion_tokens,
    }


def by_model(
    name: str,
    trial: Trial,
    setting: Setting,
    model: Model,
    heard: Callable[[Told], None] = lambda told: None,
) -> pd.DataFrame:
    """Return a method's table, and pass each talk to *heard* as it ends."""
    answers = []
    for told in asked(BY_MODEL[name], trial, setting, model):
        heard(told)
        answers.append(told)
    return told_table(name, answers)
