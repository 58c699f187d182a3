"""ReST: let the model negotiate, reward whole negotiations, learn from the best, and repeat.

PEMAND §3.2.3; PROTOCOLS, PEMAND 13. Households are of the training splits alone. Every negotiation
is kept with its reward.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm.dialogue import Dialogue, Model, Reply, Request, Result, converse
from pemand_abm.errors import SettingsError
from pemand_abm.evaluation.answers import IN_FLIGHT
from pemand_abm.people import Decision
from pemand_abm.surveys import Survey, read_survey
from pemand_abm.tables import write_csv, write_json_lines, write_text
from pemand_abm.talks import Talk
from pemand_abm.training import lora
from pemand_abm.training.examples import Example, example_of, homes_of, talk_of, training_households
from pemand_abm.training.recipe import Recipe, Rest
from pemand_abm.training.rewards import reward, rubric, truth
from pemand_abm.training.sft import base_folder, card, losses_of, same_recipe, write_losses


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One whole negotiation of a training household, and what it earned."""

    survey: str
    household: int | str
    replicate: int
    decided: int | None
    observed: float
    truth: float
    rubric: float
    examples: tuple[Example, ...]

    @property
    def reward(self) -> float:
        return reward(self.truth, self.rubric)

    def as_dict(self) -> dict:
        """Return the negotiation as one JSON object (docs/training.md)."""
        return {
            "survey": self.survey,
            "household_id": self.household,
            "replicate": self.replicate,
            "decided": self.decided,
            "observed": self.observed,
            "reward": self.reward,
            "truth": self.truth,
            "rubric": self.rubric,
            "examples": [e.as_dict() for e in self.examples],
        }


def recorded(dialogue: Dialogue[Result], heard: list[tuple[Request, Reply]]) -> Dialogue[Result]:
    """Run a dialogue, and keep in *heard* what it asked and what it was answered."""
    try:
        requests = next(dialogue)
        while True:
            replies = yield requests
            heard += zip(requests, replies, strict=True)
            requests = dialogue.send(replies)
    except StopIteration as end:
        return end.value


def grow(recipe: Recipe, rest: Rest, model: Model) -> Iterator[Trajectory]:
    """Let training households negotiate trips `candidates` times, and reward each negotiation."""
    sources = [s for s in recipe.surveys if s.decision == "trips"]
    total = sum(s.households for s in sources)
    for source in sources:
        survey = read_survey(source.survey, source.data)
        some = max(1, round(rest.households * source.households / total))
        share = source.model_copy(update={"households": some})
        homes = homes_of(survey, training_households(survey, share, recipe.seed))
        talks = [
            replace(talk_of(h, survey, recipe, rest.moderator, rest.max_rounds), replicate=k)
            for h in homes
            for k in range(rest.candidates)
        ]
        mean = float(survey.households["trips"].mean())
        for start in range(0, len(talks), IN_FLIGHT):
            part = talks[start : start + IN_FLIGHT]
            heard: list[list[tuple[Request, Reply]]] = [[] for _ in part]
            told = converse(
                [recorded(t.dialogue(), h) for t, h in zip(part, heard, strict=True)], model
            )
            for talk, (_, decision), said in zip(part, told, heard, strict=True):
                yield _trajectory(survey, talk, decision, said, mean, model)


def _trajectory(
    survey: Survey,
    talk: Talk,
    decision: Decision,
    said: Sequence[tuple[Request, Reply]],
    mean: float,
    model: Model,
) -> Trajectory:
    home = talk.household.id
    observed = float(survey.households.at[home, "trips"])
    decided = None if decision.value is None else int(decision.value)
    kept = {(t.utterance.speaker, t.utterance.phase): t.kept for t in decision.turns}
    source = f"the model's own, rewarded: {model.identity.get('model')}"
    examples = tuple(
        example_of(survey, request, reply, source, {})
        for request, reply in said
        # What the talk did not keep is not learnt, and the judge's part is another training.
        if "moderator" not in request.label
        and kept.get((request.label[-2], request.label[-1]), True)
    )
    return Trajectory(
        survey.name, home, talk.replicate, decided, observed,
        truth(decided, observed, mean), rubric(decision.turns), examples,
    )  # fmt: skip


def best(trajectories: Sequence[Trajectory], rest: Rest) -> list[Trajectory]:
    """Return each household's best negotiation, where its reward is above `least`.

    Of equals the first. A household whose candidates all earn the same teaches nothing and is left
    out, unless it has one alone.
    """
    groups: dict[tuple[str, int | str], list[Trajectory]] = {}
    for one in trajectories:
        groups.setdefault((one.survey, one.household), []).append(one)
    chosen = []
    for group in groups.values():
        rewards = [t.reward for t in group]
        if len(group) > 1 and np.ptp(rewards) == 0:
            continue
        top = group[int(np.argmax(rewards))]
        if top.reward > rest.least:
            chosen.append(top)
    return chosen


@dataclass(frozen=True, slots=True)
class Repeat:
    """One repeat: `table` has a row a negotiation; the adapter that came of it."""

    number: int
    adapter: Path
    table: pd.DataFrame
    learnt: int


def reinforce(
    recipe: Recipe,
    start: Path,
    out: Path,
    opened: Callable[[Path], AbstractContextManager[Model]],
    show: Callable[[str], None],
) -> list[Repeat]:
    """Repeat growing and improving from the adapter *start*, and write all into *out*.

    Each ``repeat-N`` holds ``trajectories.jsonl`` (every negotiation with its reward),
    ``rewards.csv``, ``examples.jsonl`` and what fine-tuning writes. *opened* gives the model with
    an adapter. Run again, it goes on.
    """
    lora.require()
    if recipe.rest is None:
        raise SettingsError(f"{recipe.name}: the recipe has no `rest`; see docs/training.md")
    same_recipe(recipe, out)
    base = base_folder(recipe, show)
    adapter, done = start, []
    for number in range(1, recipe.rest.repeats + 1):
        folder = out / f"repeat-{number}"
        rows = folder / "rewards.csv"
        if not rows.is_file():
            show(f"Repeat {number}: growing")
            with opened(adapter) as model:
                grown = list(grow(recipe, recipe.rest, model))
            chosen = best(grown, recipe.rest)
            if len(chosen) < 2:
                raise SettingsError(
                    f"repeat {number}: {len(chosen)} negotiations earn more than"
                    f" {recipe.rest.least} (rest.least); there is nothing to learn from"
                )
            write_json_lines([t.as_dict() for t in grown], folder / "trajectories.jsonl")
            learnt = [e.as_dict() for t in chosen for e in t.examples]
            write_json_lines(learnt, folder / "examples.jsonl")
            write_csv(_table(grown, chosen), rows)
        table = pd.read_csv(rows, index_col="row")
        text = (folder / "examples.jsonl").read_text(encoding="utf-8")
        examples = [json.loads(line) for line in text.splitlines()]
        show(f"Repeat {number}: learning from {int(table['learnt'].sum())} negotiations")
        tuned = recipe.model_copy(
            update={"fit": recipe.fit.model_copy(update=recipe.rest.fit_changes)}
        )
        began = adapter
        fitted = lora.fit(tuned, base, examples, folder, show=show, start=adapter)
        losses = losses_of(fitted.log)
        write_losses(losses, folder)
        adapter = folder / "adapter"
        write_text(card(tuned, examples, fitted, losses, began), adapter / "README.md")
        done.append(Repeat(number, adapter, table, int(table["learnt"].sum())))
    return done


def _table(grown: Sequence[Trajectory], chosen: Sequence[Trajectory]) -> pd.DataFrame:
    """Return one row a negotiation: what it decided, what was observed, what it earned."""
    taken = {id(t) for t in chosen}
    rows = [
        {
            "survey": t.survey,
            "household_id": t.household,
            "replicate": t.replicate,
            "decided": t.decided,
            "observed": t.observed,
            "reward": round(t.reward, 6),
            "truth": round(t.truth, 6),
            "rubric": round(t.rubric, 6),
            "learnt": int(id(t) in taken),
        }
        for t in grown
    ]
    return pd.DataFrame(rows).rename_axis("row")
