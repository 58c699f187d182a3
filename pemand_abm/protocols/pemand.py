"""PEMAND's negotiation: parallel proposals, a moderator, and consensus rounds.

PEMAND §3.2, appendices A and D; PROTOCOLS, PEMAND 6 to 8.

What one member says is checked before another hears it. All speakers of a phase are asked at once,
so that a round costs one batch, and one judge call scores all that was said in it. A statement that
stays rejected never enters the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pemand_abm.answers import Answer, labelled
from pemand_abm.dialogue import Dialogue, Request, seed_of
from pemand_abm.domains import Domain
from pemand_abm.people import Decision, Household, Member, Persona, Turn, Utterance, Verdict
from pemand_abm.prompting import grammar, phrase, render

CRITERIA = ("persona", "constraints", "interaction", "quality")
# An unreadable judge is asked once more where its word binds.
JUDGE_TRIES = {"judge": 2, "advise": 1}


@dataclass(frozen=True, slots=True)
class PemandSettings:
    """The protocol's numbers (PEMAND A.3; those marked ours in PROTOCOLS).

    `moderator` is `judge` (deterministic checks, then an LLM judge that can reject), `advise` (the
    judge's scores are kept to be read, only the checks reject: for a judge that nobody has
    calibrated), `checks` (the checks alone) or `none`. `history` is the number of latest statements
    that a speaker is shown.
    """

    max_rounds: int = 5
    max_regenerations: int = 2
    moderator: str = "judge"
    history: int = 12
    temperature: float = 0.7

    def most_calls(self, speakers: int) -> int:
        """Return the most calls that a talk of this many speakers can take, personas apart."""
        attempts = 1 + self.max_regenerations
        judged = {"judge": attempts * JUDGE_TRIES["judge"], "advise": JUDGE_TRIES["advise"]}
        phases = 1 if speakers == 1 else 1 + self.max_rounds
        return phases * (attempts * speakers + judged.get(self.moderator, 0))


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
    turns = yield from _propose(table)
    proposals = [t.utterance for t in turns if t.kept]
    if len(proposals) < len(table.personas):
        return Decision(None, "undecided", None, tuple(turns))
    score = _score(proposals)
    values = [p.value for p in proposals] + ([dependents] if dependents else [])
    first = domain.shared.pool(values)
    if len(proposals) == 1:
        return Decision(first, "one speaker", first, tuple(turns), score)
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
        reason = labelled(text, "REASON")
        value = table.domain.own.parse(labelled(text, f"FINAL_{table.domain.label}"))
        likelihood = _percent(labelled(text, "LIKELIHOOD")) if table.domain.likelihood else None
        if reason is None or value is None or (table.domain.likelihood and likelihood is None):
            return _unread(text, "REASON", f"FINAL_{table.domain.label}", table.domain.own)
        return Utterance(persona.member.name, "proposal", reason, value, likelihood)

    return (yield from _phase(table, "proposal", request, read, estimate="none yet"))


def _refine(
    table: _Table,
    turns: list[Turn],
    proposals: list[Utterance],
    first: int | str,
    score: float | None,
) -> Dialogue[Decision]:
    shared, settings = table.domain.shared, table.settings
    current = {p.speaker: first for p in proposals}
    history: list[Utterance] = []
    for number in range(1, settings.max_rounds + 1):
        said = yield from _round(table, number, proposals, first, dict(current), history)
        turns = turns + said
        heard = [t.utterance for t in said if t.kept and not t.utterance.skipped]
        history += heard
        moved = any(u.value != current[u.speaker] for u in heard)
        current |= {u.speaker: u.value for u in heard if u.value is not None}
        # All skipped, or nobody moved for a whole round (adaptive stopping), or all agree.
        if not heard or not moved or len(set(current.values())) == 1:
            break
    value, outcome = shared.settle(list(current.values()))
    return Decision(value, outcome, first, tuple(turns), score, number)


def _round(
    table: _Table,
    number: int,
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
            others=[
                {"name": p.member.name, "narrative": p.narrative}
                for p in table.personas
                if p is not persona
            ],
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
        if None in parts or spoken is None:
            return _unread(text, "ACKNOWLEDGE, SUPPORT and DELTA_FROM_LAST", label, domain.shared)
        bounded = domain.shared.bound(spoken, current[name], first)
        said = spoken if bounded != spoken else None  # Only a count can be bounded.
        return Utterance(name, phase, " ".join(p for p in parts if p), bounded, said=said)

    return (
        yield from _phase(
            table,
            phase,
            request,
            read,
            estimate=str(domain.shared.settle(list(current.values()))[0]),
        )
    )


def _phase(
    table: _Table,
    phase: str,
    request: Callable[[Persona, str, int], Request],
    read: Callable[[Persona, str], Utterance | Unread],
    estimate: str,
) -> Dialogue[list[Turn]]:
    """Ask every speaker, check and judge what they say, and ask the rejected ones again.

    Return all turns, rejected ones too. A judge that binds is asked after every attempt, one that
    advises once, when the checks have had their say.
    """
    owing = {p.member.name: "" for p in table.personas}
    turns: list[Turn] = []
    advised: list[Utterance] = []
    for attempt in range(1 + table.settings.max_regenerations):
        asking = [p for p in table.personas if p.member.name in owing]
        replies = yield [request(p, owing[p.member.name], attempt) for p in asking]
        said = [read(p, reply.text) for p, reply in zip(asking, replies, strict=True)]
        settled, passed = _check(table, phase, asking, said)
        if table.settings.moderator == "judge":
            verdicts = yield from _judge(table, phase, attempt, passed, estimate)
            settled += [Turn(u, v, v.passed) for u, v in zip(passed, verdicts, strict=True)]
        else:
            advised += passed
        turns += settled
        spoken_for = {u.speaker for u in advised} | {t.utterance.speaker for t in turns if t.kept}
        rejected = {t.utterance.speaker: t.verdict.feedback for t in settled if not t.kept}
        owing = {name: rejected[name] for name in owing if name not in spoken_for}
        if not owing:
            break
    verdicts = yield from _judge(table, phase, 0, advised, estimate)
    return turns + [Turn(u, v, kept=True) for u, v in zip(advised, verdicts, strict=True)]


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
    system, user = render(
        "pemand/moderator",
        words=table.domain.words,
        constraints=table.constraints,
        speakers=[
            {"name": p.member.name, "narrative": p.narrative}
            for p in table.personas
            if p.member.name in names
        ],
        estimate=estimate,
        statements=statements,
    )
    form = grammar("pemand/moderator", n=len(statements))
    for again in range(JUDGE_TRIES[table.settings.moderator]):
        seed = seed_of(*table.key, "moderator", phase, attempt, again)
        label = (f"household {table.household.id}", "moderator", phase)
        (reply,) = yield [Request(system, user, seed, label, 60 * len(statements), 0.0, form)]
        read = [_scores(reply.text, i) for i in range(1, len(statements) + 1)]
        if all(read):
            return [v for v in read if v]
    # A judge that cannot be read has no say; the deterministic checks have passed, and the
    # transcript shows that no scores were given.
    return [Verdict(True, phrase("unscored")) for _ in statements]


def _scores(text: str, number: int) -> Verdict | None:
    found = re.findall(rf"^\[{number}\] SCORES:(.*?)FEEDBACK:[ \t]*(.*)$", text, flags=re.M)
    if len(found) != 1:
        return None
    line, feedback = found[0]
    pairs = re.findall(r"(\w+)[ \t]*=[ \t]*([1-3])\b", line)
    scores = {name: int(score) for name, score in pairs if name in CRITERIA}
    if len(pairs) != len(CRITERIA) or len(scores) != len(CRITERIA):
        return None
    passed = all(score == 3 for score in scores.values())
    return Verdict(passed, feedback.strip(), scores)


_WORDS = (
    "no", "one", "two", "three", "four", "five", "six",
    "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip
_NUMBERS = {word: number for number, word in enumerate(_WORDS)}


def invented(text: str, speaker: Member, household: Household) -> str:
    """Return what a statement invents.

    A member, vehicles, another age than the speaker's, or an empty text.

    Deterministic and free; it catches what a small model gets wrong most often, before the judge is
    asked.
    """
    names = {m.name for m in household.members}
    strangers = [n for n in re.findall(r"\bmember \d+\b", text.lower()) if n not in names]
    if strangers:
        return phrase("no_such_member", who=strangers[0])
    for age in re.findall(r"\bI(?: am|'m) (?:a |an )?(\d+)[ -]years?[ -]old\b", text):
        if int(age) != speaker.age:
            return phrase("other_age", who=speaker.name, age=speaker.age, said=age)
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


def _percent(text: str | None) -> int | None:
    if text is None or not re.fullmatch(r"[0-9]{1,3}", text) or int(text) > 100:
        return None
    return int(text)


def _score(proposals: list[Utterance]) -> float | None:
    stated = [p.likelihood for p in proposals if p.likelihood is not None]
    return sum(stated) / len(stated) if stated else None


def _unread(text: str, parts: str, label: str, answer: Answer) -> Unread:
    return Unread(text.strip(), phrase("unread", parts=parts, label=label, value=answer.form))
