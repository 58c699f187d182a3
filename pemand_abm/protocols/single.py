"""The LLM baselines: one model answers for the household, and nobody negotiates.

PEMAND appendix D.6: from the facts alone, from the members' narratives, by the middle of several
such answers, and with similar households before its eyes. Ours besides: the whole talk written in
one completion, as the paper's published code does it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pemand_abm.answers import labelled, percent
from pemand_abm.dialogue import Dialogue, Reply, Request, seed_of
from pemand_abm.domains import Domain
from pemand_abm.people import Decision, Household, Turn, Utterance, Verdict, mean_likelihood
from pemand_abm.prompting import grammar, phrase, render

WRITER = "one model"


@dataclass(frozen=True, slots=True)
class SingleSettings:
    """How often an answer that cannot be read is asked for, and how several are sampled.

    `samples` and `sampling_temperature` are the paper's K = 10 and T = 0.7 (PEMAND D.6.3).
    """

    tries: int = 3
    temperature: float = 0.2
    samples: int = 10
    sampling_temperature: float = 0.7


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A surveyed household that is like the one asked about: its facts, and what it did."""

    text: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Case:
    """All that one model is told of a household.

    `texts` say by the member's name what is known of him; `anchor` is what similar households do,
    empty where it is not told.
    """

    household: Household
    domain: Domain
    texts: dict[str, str]
    constraints: str
    key: tuple[str | int, ...]
    anchor: str = ""
    exemplars: tuple[Exemplar, ...] = ()


def from_facts(case: Case, settings: SingleSettings) -> Dialogue[Decision]:
    """Predict from the members' facts alone (demographics only)."""
    return _tried(case, "demographics", settings, 90)


def from_personas(case: Case, settings: SingleSettings) -> Dialogue[Decision]:
    """Predict from the members' narratives in one step; with exemplars, that is RAG."""
    return _tried(case, "persona", settings, 130)


def self_consistent(case: Case, settings: SingleSettings) -> Dialogue[Decision]:
    """Ask the same several times, and take the median or the majority of what can be read."""
    requests = [
        _request(case, "persona", k, settings.sampling_temperature, 130)
        for k in range(settings.samples)
    ]
    replies = yield requests
    turns = [_turn(case, reply, k) for k, reply in enumerate(replies)]
    read = [t.utterance for t in turns if t.kept]
    if not read:
        return Decision(None, "undecided", None, tuple(turns))
    value, outcome = case.domain.shared.settle([u.value for u in read])
    return Decision(value, outcome, read[0].value, tuple(turns), mean_likelihood(read))


def written_talk(case: Case, settings: SingleSettings) -> Dialogue[Decision]:
    """Let one completion write all members' turns and the household's decision (single pass)."""
    return _tried(case, "talk", settings, 60 + 60 * len(case.texts))


def _tried(case: Case, prompt: str, settings: SingleSettings, most: int) -> Dialogue[Decision]:
    turns: list[Turn] = []
    for attempt in range(settings.tries):
        (reply,) = yield [_request(case, prompt, attempt, settings.temperature, most)]
        turns.append(_turn(case, reply, attempt))
        if turns[-1].kept:
            said = turns[-1].utterance
            return Decision(said.value, "one answer", said.value, tuple(turns), said.likelihood)
    return Decision(None, "undecided", None, tuple(turns))


def _request(case: Case, prompt: str, attempt: int, temperature: float, most: int) -> Request:
    domain = case.domain
    speakers = [{"name": name, "text": text} for name, text in case.texts.items()]
    system, user = render(
        f"single/{prompt}",
        speakers=speakers,
        constraints=case.constraints,
        anchor=case.anchor,
        exemplars=case.exemplars,
        words=domain.words,
        label=domain.label,
        likelihood=domain.likelihood,
    )
    form = grammar(
        f"single/{prompt}",
        speakers=tuple(case.texts),
        start=domain.words["outside_start"],
        value=domain.shared.rule,
        label=domain.label,
        likelihood=domain.likelihood,
    )
    seed = seed_of(*case.key, prompt, bool(case.exemplars), attempt)
    label = (f"household {case.household.id}", WRITER, prompt)
    return Request(system, user, seed, label, most, temperature, form)


def _turn(case: Case, reply: Reply, attempt: int) -> Turn:
    domain, text = case.domain, reply.text
    value = domain.shared.parse(labelled(text, f"FINAL_{domain.label}"))
    likelihood = percent(labelled(text, "LIKELIHOOD")) if domain.likelihood else None
    said = Utterance(WRITER, f"answer {attempt + 1}", text.strip(), value, likelihood)
    if reply.cut or value is None or (domain.likelihood and likelihood is None):
        parts = "LIKELIHOOD" if domain.likelihood else "the form"
        fault = phrase(
            "unread", parts=parts, label=f"FINAL_{domain.label}", value=domain.shared.form
        )
        return Turn(said, Verdict(False, fault), kept=False)
    return Turn(said, Verdict(True), kept=True)
