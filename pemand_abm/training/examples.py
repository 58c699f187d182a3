"""Examples: prompts of real talks about training households, and the replies to be learnt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm import keys
from pemand_abm.anchors import shipped_anchors
from pemand_abm.answers import half_up, labelled
from pemand_abm.dialogue import Model, Reply, Request, converse
from pemand_abm.domains import DOMAINS, TRIPS
from pemand_abm.errors import SettingsError
from pemand_abm.evaluation.answers import IN_FLIGHT, SPEAKING_AGE
from pemand_abm.evaluation.trial import held_out
from pemand_abm.facts import households_of, read_map
from pemand_abm.people import Household
from pemand_abm.persona import PersonaSettings
from pemand_abm.protocols.pemand import PemandSettings
from pemand_abm.surveys import Survey, read_survey
from pemand_abm.tables import write_json_lines
from pemand_abm.talks import Talk
from pemand_abm.training.recipe import Recipe, Source
from pemand_abm.training.targets import expected_moves, expected_trips, whole_trips
from pemand_abm.training.teacher import Lesson, MovesTeacher, Teacher, fits

MOVES = "panel2014"
"""Whose anchors of moves are told, from an earlier census, of no answer of the panel itself."""
FULL = 3
"""The mark that a statement needs on persona and constraints to be learnt (PEMAND §3.2.3)."""


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt and the reply to be learnt; `source` and `scores` say where it comes from."""

    survey: str
    household: int | str
    phase: str
    messages: tuple[dict[str, str], ...]
    reply: str
    source: str
    scores: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict:
        """Return the example in the chat form that fine-tuning programs read."""
        return {
            "messages": [*self.messages, {"role": "assistant", "content": self.reply}],
            "survey": self.survey,
            "household_id": self.household,
            "phase": self.phase,
            "source": self.source,
            "scores": self.scores,
        }


class _Recorder:
    """A model that keeps what it was asked and what it answered."""

    def __init__(self, model: Model) -> None:
        self._model, self.identity = model, model.identity
        self.heard: list[tuple[Request, Reply]] = []

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        for i, reply in self._model.complete(requests):
            self.heard.append((requests[i], reply))
            yield i, reply


def make_examples(recipe: Recipe, model: Model | None = None) -> list[Example]:
    """Return the examples of a recipe, the same for the same recipe, files and model.

    *model* answers where the recipe's teacher is the model itself.
    """
    found: list[Example] = []
    for source in recipe.surveys:
        survey = read_survey(source.survey, source.data)
        taught = training_households(survey, source, recipe.seed)
        if source.decision == "relocation":
            found += _moves_by_rule(recipe, survey, taught)
        elif recipe.teacher == "rules":
            found += _by_rule(recipe, survey, taught)
        else:
            assert model is not None
            found += _by_model(recipe, survey, taught, model)
    return _shares(found, recipe)


def training_households(survey: Survey, source: Source, seed: int) -> list[int | str]:
    """Return the ids of the source's households, none of them in the survey's test split."""
    ids = survey.households.index
    if source.decision == "trips" and "trips" not in survey.persons:
        raise SettingsError(
            f"{survey.name}: it has no trips by person, so its members cannot be taught any"
        )
    able = ids[~held_out(survey, seed)]
    if source.households > len(able):
        raise SettingsError(
            f"{survey.name}: its training split has {len(able):,} households, not"
            f" {source.households:,}"
        )
    order = np.argsort(keys.uniforms(able, seed, "training"), kind="stable")
    return able[order[: source.households]].tolist()


def _by_rule(recipe: Recipe, survey: Survey, ids: list[int | str]) -> list[Example]:
    trained = pd.Series(~held_out(survey, recipe.seed), index=survey.households.index)
    expected = expected_trips(survey, trained, recipe.seed)
    homes = homes_of(survey, ids)
    talks = [talk_of(h, survey, recipe, "checks", 1) for h in homes]
    if recipe.lean:
        times = _elsewhere([t.household.id for t in talks], recipe)
        talks = [replace(t, table=t.table.scaled(x)) for t, x in zip(talks, times, strict=True)]
        lessons = [_leaning(t, expected, x, recipe.lean) for t, x in zip(talks, times, strict=True)]
        source = "rules; the told figure of similar people, or trips expected (cross-fitted)"
    else:
        lessons = [_lesson(t, expected) for t in talks]
        source = "rules; trips expected of such members (cross-fitted)"
    found = _taught(survey, talks, Teacher(lessons), source)
    if "moderator" in recipe.phases:
        judged = [replace(t, pemand=replace(t.pemand, moderator="judge")) for t in talks]
        heard = _taught(survey, judged, Teacher(lessons, spoil=True), "rules; marks by rule")
        found += [e for e in heard if e.phase == "moderator"]
    return found


def _moves_by_rule(recipe: Recipe, survey: Survey, ids: list[int | str]) -> list[Example]:
    assert recipe.rates is not None
    expected = expected_moves(survey, recipe.rates)
    homes = homes_of(survey, [key for key in ids if key in expected.index])
    talks = [talk_of(h, survey, recipe, "checks", 1, "relocation") for h in homes]
    teacher = MovesTeacher({f"household {h.id}": h for h in homes}, expected)
    return _taught(survey, talks, teacher, "rules; census rate of moves of such households")


def _taught(survey: Survey, talks: list[Talk], teacher: Model, source: str) -> list[Example]:
    recorder = _Recorder(teacher)
    converse([t.dialogue() for t in talks], recorder)
    return [
        example_of(survey, request, reply, source, {})
        for request, reply in recorder.heard
        if request.label[-1] != "narrative" or fits(reply.text)
    ]


def _by_model(recipe: Recipe, survey: Survey, ids: list[int | str], model: Model) -> list[Example]:
    """Return the proposals of the model that its judge gives full marks (PEMAND §3.2.3)."""
    recorder = _Recorder(model)
    talks = [
        replace(talk_of(h, survey, recipe, "judge", 0), replicate=k)
        for h in homes_of(survey, ids)
        for k in range(recipe.candidates)
    ]
    source = f"the model's own, judged: {model.identity.get('model')}"
    found = []
    for start in range(0, len(talks), IN_FLIGHT):
        recorder.heard.clear()
        told = converse([t.dialogue() for t in talks[start : start + IN_FLIGHT]], recorder)
        good = {
            (f"household {t.household.id}", turn.utterance.speaker, turn.utterance.text): turn
            for t, (_, decision) in zip(talks[start : start + IN_FLIGHT], told, strict=True)
            for turn in decision.turns
            if turn.kept
            and min(turn.verdict.scores.get(c, 0) for c in ("persona", "constraints")) == FULL
        }
        for request, reply in recorder.heard:
            said = labelled(reply.text, "REASON")
            if request.label[-1] != "proposal" or "moderator" in request.label or said is None:
                continue
            turn = good.pop((request.label[0], request.label[1], said), None)
            if turn is not None:
                scores = dict(turn.verdict.scores)
                found.append(example_of(survey, request, reply, source, scores))
    return found


def example_of(
    survey: Survey, request: Request, reply: Reply, source: str, scores: dict[str, int]
) -> Example:
    """Return a request and its reply as an example."""
    phase = request.label[-1]
    # Households of the same facts share a narrative, so its request names none.
    home = request.label[0].removeprefix("household ") if phase != "narrative" else ""
    phase = "round" if phase.startswith("round") else phase
    if "moderator" in request.label:
        phase = "moderator"
    return Example(survey.name, home, phase, tuple(request.messages), reply.text, source, scores)


def homes_of(survey: Survey, ids: list[int | str]) -> list[Household]:
    """Return the households of a survey as their members know them, those where somebody speaks."""
    known = read_map(survey.facts)
    homes = households_of(survey.households, survey.persons, ids, SPEAKING_AGE, known)
    return [h for h in homes if h.speakers]


def talk_of(
    home: Household,
    survey: Survey,
    recipe: Recipe,
    moderator: str,
    max_rounds: int,
    decision: str = TRIPS.name,
) -> Talk:
    """Return a household's talk, as an evaluation would hold it."""
    # Surveys of trips have no anchors of moves.
    table = shipped_anchors(survey.name if decision == TRIPS.name else MOVES, survey.year)
    settings = PemandSettings(max_rounds=max_rounds, moderator=moderator)
    event = f"{decision}:1"
    return Talk(home, DOMAINS[decision], event, recipe.seed, table, settings, PersonaSettings())


def _lesson(talk: Talk, expected: pd.Series) -> Lesson:
    """Share what the household is expected to make, less what is added for those too young."""
    home = talk.household
    by_member = expected.reindex([m.id for m in home.members]).fillna(0.0)
    speakers = [float(by_member[m.id]) for m in home.speakers]
    whole = whole_trips(speakers, float(by_member.sum()) - talk.added)
    return Lesson(home, {m.name: n for m, n in zip(home.speakers, whole, strict=True)})


def _elsewhere(ids: list[int | str], recipe: Recipe) -> list[float]:
    """Return by how much more the region of each household travels than its survey's: 0.5 to 2."""
    stays, times = (keys.uniforms(ids, recipe.seed, "elsewhere", part) for part in ("who", "times"))
    return np.where(stays < recipe.elsewhere, 2 ** (2 * times - 1), 1.0).tolist()


def _leaning(talk: Talk, expected: pd.Series, times: float, lean: float) -> Lesson:
    """Teach what similar people make, and what is expected where that differs by *lean* trips.

    Where people travel so many *times* as much, both the expected trips and *lean* are multiplied.
    """
    own = {}
    for member in talk.household.speakers:
        # As the prompt tells it, with one decimal.
        similar = round(talk.member_anchor(member), 1)
        mine = times * float(expected[member.id]) if member.id in expected.index else similar
        own[member.name] = half_up(mine if abs(mine - similar) >= times * lean else similar)
    return Lesson(talk.household, own, read=True)


def _shares(found: list[Example], recipe: Recipe) -> list[Example]:
    """Return the recipe's number of examples, each phase by its share, in a keyed order.

    A phase that has fewer gives all it has. No prompt stands twice.
    """
    unique = list({(e.messages[-1]["content"], e.reply): e for e in found}.values())
    draws = keys.uniforms(np.arange(len(unique)), recipe.seed, "examples")
    order = np.argsort(draws, kind="stable")
    total = sum(recipe.phases.values())
    left = {p: round(recipe.examples * s / total) for p, s in recipe.phases.items()}
    chosen = []
    for i in order:
        phase = unique[i].phase
        if left.get(phase, 0) > 0:
            left[phase] -= 1
            chosen.append(unique[i])
    if not chosen:
        raise SettingsError(f"{recipe.name}: no example was found for its phases")
    return chosen


def write_examples(examples: Sequence[Example], path: Path) -> None:
    """Write one JSON object an example (docs/training.md)."""
    write_json_lines([e.as_dict() for e in examples], path)
