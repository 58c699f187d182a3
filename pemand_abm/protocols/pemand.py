"""PEMAND's negotiation: parallel proposals, a moderator, and consensus rounds.

PEMAND §3.2, appendices A and D; PROTOCOLS, PEMAND 6 to 8.

What one member says is checked before another hears it. All speakers of a phase are asked at once,
so that a round costs one batch, and one judge call scores all that was said in it. A statement that
stays rejected never enters the conversation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pemand_abm.answers import Answer, labelled, percent
from pemand_abm.dialogue import Dialogue, Reply, Request, seed_of
from pemand_abm.domains import Domain
from pemand_abm.people import (
    Decision,
    Household,
    Member,
    Persona,
    Turn,
    Utterance,
    Verdict,
    mean_likelihood,
)
from pemand_abm.prompting import grammar, phrase, render

CRITERIA = ("persona", "constraints", "interaction", "quality")
PASS = 3
"""The mark that passes where nothing else is said (PEMAND 8)."""
# An unreadable judge is asked once more where its word binds.
JUDGE_TRIES = {"judge": 2, "advise": 1}
MOST_JUDGED = 12
"""How many statements one call of an advising judge scores: more would not fit a small context."""


def marks_in_order(given: Mapping[Any, int]) -> tuple[int, ...]:
    """Return the marks that pass in the order of `CRITERIA`, those that are not given too.

    >>> marks_in_order({"quality": 2})
    (3, 3, 3, 2)
    """
    return tuple(given.get(c, PASS) for c in CRITERIA)


@dataclass(frozen=True, slots=True)
class PemandSettings:
    """The protocol's numbers (PEMAND A.3; those marked ours in PROTOCOLS).

    `moderator` is `judge` (deterministic checks, then an LLM judge that can reject), `advise` (the
    judge scores the whole talk at its end, to be read; only the checks reject: for a judge that
    nobody has calibrated), `checks` (the checks alone) or `none`. `history` is the number of latest
    statements that a speaker is shown. `max_rounds` 0 leaves it at the proposals. With `adaptive`,
    the first round is everybody's and each later one that of the member who stands farthest off,
    and the rounds end as soon as another promises little: nobody moved, all stand near the
    household's value, or a round brought them no closer. Without it everybody speaks in every round
    until all agree or skip (PEMAND §3.2). `pass_marks` is the mark that a statement needs on each
    of `CRITERIA` to pass: 3 on all (PEMAND 8), or what a calibration found (`training.judge`).
    """

    max_rounds: int = 5
    max_regenerations: int = 2
    moderator: str = "judge"
    history: int = 12
    temperature: float = 0.7
    adaptive: bool = True
    pass_marks: tuple[int, ...] = (PASS,) * len(CRITERIA)

    def most_calls(self, speakers: int) -> int:
        """Return the most calls that a talk of this many speakers can take, personas apart."""
        attempts = 1 + self.max_regenerations
        phases = 1 if speakers == 1 else 1 + self.max_rounds
        judged = {
            "judge": phases * attempts * JUDGE_TRIES["judge"],
            "advise": math.ceil(phases * speakers / MOST_JUDGED),
        }
        return phases * attempts * speakers + judged.get(self.moderator, 0)


@dataclass(frozen=True, slots=True)
class Unread:
    """A reply that does not have the form asked for, and what it lacks."""

    text: str
    fault: str


@dataclass(frozen=True, slots=True)
class _Table:
    """All that stays the same while a household talks."""

    household: Household
    personas: tuple[Persona, ...]
    domain: Domain
    settings: PemandSettings
    constraints: str
    key: tuple[str | int, ...]


def pemand(
    household: Household,
    personas: Sequence[Persona],
    domain: Domain,
    settings: PemandSettings,
    constraints: str,
    dependents: int,
    key: tuple[str | int, ...],
) -> Dialogue[Decision]:
    """Let the household's speakers settle one decision.

    *dependents* is added to a count for the members who do not speak; *constraints* says what holds
    for all; *key* is (run seed, household, event kind, event ordinal, replicate), from which every
    request's seed follows.
    """
    table = _Table(household, tuple(personas), domain, settings, constraints, key)
    decision = yield from _decide(table, dependents)
    if settings.moderator == "advise":
        decision = replace(decision, turns=(yield from _advise(table, decision)))
    return decision


def _decide(table: _Table, dependents: int) -> Dialogue[Decision]:
    turns = yield from _propose(table)
    proposals = [t.utterance for t in turns if t.kept]
    if len(proposals) < len(table.personas):
        return Decision(None, "undecided", None, tuple(turns))
    score = mean_likelihood(proposals)
    values = [p.value for p in proposals] + ([dependents] if dependents else [])
    first = table.domain.shared.pool(values)
    if len(proposals) == 1:
        return Decision(first, "one speaker", first, tuple(turns), score)
    if table.settings.max_rounds == 0:
        return Decision(first, "proposals only", first, tuple(turns), score)
    return (yield from _refine(table, turns, proposals, first, score))


def _propose(table: _Table) -> Dialogue[list[Turn]]:
    def request(persona: Persona, feedback: str, attempt: int) -> Request:
        system, user = render(
            "pemand/proposal",
            persona=persona,
            constraints=table.constraints,
            feedback=feedback,
            words=table.domain.words,
            label=table.domain.label,
            likelihood=table.domain.likelihood,
        )
        form = grammar(
            "pemand/proposal",
            value=table.domain.own.rule,
            label=table.domain.label,
            likelihood=table.domain.likelihood,
            start=table.domain.words["own_start"],
        )
        return _request(table, persona.member, "proposal", attempt, system, user, form, 110)

    def read(persona: Persona, text: str) -> Utterance | Unread:
        reason = labelled(text, "REASON") or None
        value = table.domain.own.parse(labelled(text, f"FINAL_{table.domain.label}"))
        likelihood = percent(labelled(text, "LIKELIHOOD")) if table.domain.likelihood else None
        if reason is None or value is None or (table.domain.likelihood and likelihood is None):
            return _unread(text, "REASON", f"FINAL_{table.domain.label}", table.domain.own)
        return Utterance(persona.member.name, "proposal", reason, value, likelihood)

    speakers = list(table.personas)
    return (yield from _phase(table, "proposal", speakers, request, read, estimate="none yet"))


def _refine(
    table: _Table,
    turns: list[Turn],
    proposals: list[Utterance],
    first: int | str,
    score: float | None,
) -> Dialogue[Decision]:
    shared, adaptive = table.domain.shared, table.settings.adaptive
    current = {p.speaker: first for p in proposals}
    history: list[Utterance] = []
    apart = math.inf
    for number in range(1, table.settings.max_rounds + 1):
        asked = list(table.personas)
        if adaptive and number > 1:
            asked = [p for p in asked if p.member.name == _outlier(shared, current, first)]
        said = yield from _round(table, number, asked, proposals, first, dict(current), history)
        turns = turns + said
        heard = [t.utterance for t in said if t.kept and not t.utterance.skipped]
        history += heard
        moved = any(u.value != current[u.speaker] for u in heard)
        current |= {u.speaker: u.value for u in heard if u.value is not None}
        gaps = _gaps(shared, current)
        before, apart = apart, sum(gaps.values())
        if not heard or apart == 0:
            break
        near = max(gaps.values()) <= shared.close
        if adaptive and (not moved or near or apart >= before):
            break
    value, outcome = shared.settle(list(current.values()))
    if not history:  # Nothing that was said in the rounds could be kept.
        outcome = "proposals only"
    return Decision(value, outcome, first, tuple(turns), score, number)


def _gaps(shared: Answer, current: dict[str, int | str]) -> dict[str, int]:
    """Return how far each speaker stands from the household's value."""
    value = shared.settle(list(current.values()))[0]
    return {name: shared.distance(own, value) for name, own in current.items()}


def _outlier(shared: Answer, current: dict[str, int | str], first: int | str) -> str:
    """Return who stands farthest from the household's value, then from its first value."""
    gaps = _gaps(shared, current)
    return max(current, key=lambda name: (gaps[name], shared.distance(current[name], first)))


def _round(
    table: _Table,
    number: int,
    asked: list[Persona],
    proposals: list[Utterance],
    first: int | str,
    current: dict[str, int | str],
    history: list[Utterance],
) -> Dialogue[list[Turn]]:
    phase, domain = f"round {number}", table.domain
    may_skip = number > 1
    label = f"PREFERRED_{domain.label}"

    def request(persona: Persona, feedback: str, attempt: int) -> Request:
        system, user = render(
            "pemand/round",
            speaker=persona.member.name,
            persona=persona,
            members=[{"name": p.member.name, "narrative": p.narrative} for p in table.personas],
            constraints=table.constraints,
            proposals=proposals,
            first=first,
            history=history[-table.settings.history :],
            current=list(current.items()),
            feedback=feedback,
            may_skip=may_skip,
            words=domain.words,
            label=domain.label,
        )
        form = grammar(
            "pemand/round",
            value=domain.shared.rule,
            label=domain.label,
            may_skip=may_skip,
            start=domain.words["shared_start"],
        )
        return _request(table, persona.member, phase, attempt, system, user, form, 170)

    def read(persona: Persona, text: str) -> Utterance | Unread:
        name = persona.member.name
        if text.strip() == "SKIP" and may_skip:
            return Utterance(name, phase, "", current[name], skipped=True)
        parts = [labelled(text, part) for part in ("ACKNOWLEDGE", "SUPPORT", "DELTA_FROM_LAST")]
        spoken = domain.shared.parse(labelled(text, label))
        if not all(parts) or spoken is None:
            return _unread(text, "ACKNOWLEDGE, SUPPORT and DELTA_FROM_LAST", label, domain.shared)
        bounded = domain.shared.bound(spoken, current[name], first)
        said = spoken if bounded != spoken else None  # Only a count can be bounded.
        return Utterance(name, phase, " ".join(p for p in parts if p), bounded, said=said)

    return (
        yield from _phase(
            table,
            phase,
            asked,
            request,
            read,
            estimate=str(domain.shared.settle(list(current.values()))[0]),
        )
    )


def _phase(
    table: _Table,
    phase: str,
    speakers: list[Persona],
    request: Callable[[Persona, str, int], Request],
    read: Callable[[Persona, str], Utterance | Unread],
    estimate: str,
) -> Dialogue[list[Turn]]:
    """Ask the speakers, check and judge what they say, and ask the rejected ones again.

    Return all turns, rejected ones too.
    """
    owing = {p.member.name: "" for p in speakers}
    turns: list[Turn] = []
    for attempt in range(1 + table.settings.max_regenerations):
        asking = [p for p in speakers if p.member.name in owing]
        replies = yield [request(p, owing[p.member.name], attempt) for p in asking]
        said = [_read(read, p, reply) for p, reply in zip(asking, replies, strict=True)]
        settled, passed = _check(table, phase, asking, said)
        if table.settings.moderator == "judge":
            verdicts = yield from _judge(table, phase, attempt, passed, estimate)
            settled += [Turn(u, v, v.passed) for u, v in zip(passed, verdicts, strict=True)]
        else:
            settled += [Turn(u, Verdict(True), kept=True) for u in passed]
        turns += settled
        owing = {t.utterance.speaker: t.verdict.feedback for t in settled if not t.kept}
        if not owing:
            break
    return turns


def _read(
    read: Callable[[Persona, str], Utterance | Unread], persona: Persona, reply: Reply
) -> Utterance | Unread:
    # Of a reply that was cut, the last number may be half of one.
    return Unread(reply.text.strip(), phrase("cut")) if reply.cut else read(persona, reply.text)


def _advise(table: _Table, decision: Decision) -> Dialogue[tuple[Turn, ...]]:
    """Let a judge that does not bind score what entered the talk.

    Nobody waits for its word, so it reads the whole talk at once.
    """
    turns = list(decision.turns)
    said = [i for i, t in enumerate(turns) if t.kept and not t.utterance.skipped]
    for start in range(0, len(said), MOST_JUDGED):
        part = said[start : start + MOST_JUDGED]
        statements = [turns[i].utterance for i in part]
        estimate = "none" if decision.value is None else str(decision.value)
        verdicts = yield from _judge(table, "talk", start, statements, estimate)
        for i, verdict in zip(part, verdicts, strict=True):
            turns[i] = replace(turns[i], verdict=verdict)
    return tuple(turns)


def _check(
    table: _Table, phase: str, asking: list[Persona], said: list[Utterance | Unread]
) -> tuple[list[Turn], list[Utterance]]:
    """Return the turns that need no judge (unreadable, invented, skipped), and what is left."""
    settled: list[Turn] = []
    passed: list[Utterance] = []
    for persona, spoken in zip(asking, said, strict=True):
        name = persona.member.name
        if isinstance(spoken, Unread):
            unread = Utterance(name, phase, spoken.text, None)
            settled.append(Turn(unread, Verdict(False, spoken.fault), kept=False))
        elif spoken.skipped:
            settled.append(Turn(spoken, Verdict(True), kept=True))
        elif table.settings.moderator != "none" and (
            fault := invented(spoken.text, persona.member, table.household)
        ):
            settled.append(Turn(spoken, Verdict(False, fault), kept=False))
        else:
            passed.append(spoken)
    return settled, passed


def _judge(
    table: _Table, phase: str, attempt: int, statements: list[Utterance], estimate: str
) -> Dialogue[list[Verdict]]:
    """Score statements in one call.

    PASS is computed here from the scores, whatever the reply says of it.
    """
    if not statements or table.settings.moderator not in JUDGE_TRIES:
        return [Verdict(True) for _ in statements]
    names = {s.speaker for s in statements}
    told = {p.member.name: p.narrative for p in table.personas if p.member.name in names}
    for again in range(JUDGE_TRIES[table.settings.moderator]):
        seed = seed_of(*table.key, "moderator", phase, attempt, again)
        label = (f"household {table.household.id}", "moderator", phase)
        (reply,) = yield [
            judging(table.domain, table.constraints, told, estimate, statements, seed, label)
        ]
        verdicts = verdicts_of(reply, len(statements), table.settings.pass_marks)
        if verdicts:
            return verdicts
    # A judge that cannot be read has no say; the deterministic checks have passed, and the
    # transcript shows that no scores were given.
    return [Verdict(True, phrase("unscored")) for _ in statements]


def judging(
    domain: Domain,
    constraints: str,
    speakers: Mapping[str, str],
    estimate: str,
    statements: Sequence[Utterance],
    seed: int,
    label: tuple[str, ...],
) -> Request:
    """Return the request that lets a judge score statements; *speakers* are narratives by name."""
    system, user = render(
        "pemand/moderator",
        words=domain.words,
        constraints=constraints,
        speakers=[{"name": n, "narrative": said} for n, said in speakers.items()],
        estimate=estimate,
        statements=statements,
    )
    form = grammar("pemand/moderator", n=len(statements))
    return Request(system, user, seed, label, 60 * len(statements), 0.0, form)


def verdicts_of(reply: Reply, count: int, needed: Sequence[int]) -> list[Verdict]:
    """Return a judge's verdict on each of *count* statements; none where a line cannot be read."""
    read = [_scores(reply.text, i, needed) for i in range(1, count + 1)]
    return [v for v in read if v] if all(read) and not reply.cut else []


def _scores(text: str, number: int, needed: Sequence[int]) -> Verdict | None:
    # The paper's form lets a judge write PASS or REJECT too; the scores alone count.
    form = rf"^\[{number}\] SCORES:(.*?)(?:DECISION: (?:PASS|REJECT)[ \t]*)?FEEDBACK:[ \t]*(.*)$"
    found = re.findall(form, text, flags=re.M)
    if len(found) != 1:
        return None
    line, feedback = found[0]
    given = [part.partition("=") for part in line.strip().rstrip(";").split(";")]
    scores = {name.strip(): score.strip() for name, _, score in given}
    if len(given) != len(CRITERIA) or set(scores) != set(CRITERIA):
        return None
    if not set(scores.values()) <= {"1", "2", "3"}:
        return None
    numbers = {name: int(scores[name]) for name in CRITERIA}
    passed = all(numbers[name] >= mark for name, mark in zip(CRITERIA, needed, strict=True))
    return Verdict(passed, feedback.strip(), numbers)


_WORDS = (
    "no", "one", "two", "three", "four", "five", "six",
    "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip
_NUMBERS = {word: number for number, word in enumerate(_WORDS)}


def invented(text: str, speaker: Member, household: Household) -> str:
    """Return what a statement invents.

    A member, vehicles, or another age than the speaker's.

    Deterministic and free; it catches what a small model gets wrong most often, before the judge is
    asked.
    """
    names = {m.name for m in household.members}
    strangers = [n for n in re.findall(r"\bmember \d+\b", text.lower()) if n not in names]
    if strangers:
        return phrase("no_such_member", who=strangers[0])
    for age in re.findall(r"\bI(?: am|'m) (?:a |an )?(\d+)[ -]years?[ -]old\b", text):
        if not speaker.age <= int(age) <= (speaker.oldest or speaker.age):
            return phrase("other_age", who=speaker, said=age)
    if household.vehicles is None:
        return ""
    for word in re.findall(
        r"\b(\d+|" + "|".join(_NUMBERS) + r") (?:cars?|vehicles?)\b", text.lower()
    ):
        number = int(word) if word.isdigit() else _NUMBERS[word]
        if number > household.vehicles:
            return phrase("too_many_cars", cars=household.vehicles, said=number)
    if household.vehicles == 0 and re.search(
        r"\b(?:my|our) (?:car|vehicle|truck|van)\b", text.lower()
    ):
        return phrase("no_car")
    return ""


def _request(
    table: _Table,
    member: Member,
    phase: str,
    attempt: int,
    system: str,
    user: str,
    form: str,
    most: int,
) -> Request:
    seed = seed_of(*table.key, member.name, phase, attempt)
    label = (f"household {table.household.id}", member.name, phase)
    return Request(system, user, seed, label, most, table.settings.temperature, form)


def _unread(text: str, parts: str, label: str, answer: Answer) -> Unread:
    return Unread(text.strip(), phrase("unread", parts=parts, label=label, value=answer.form))
