"""MIND's negotiation: hidden willingness, private appraisal, tone, a quorum, and a fallback.

MIND §3.2, appendices B and C; PROTOCOLS, MIND.

Every point of a plan is a case of its own: nothing said about one enters the prompts of another, so
all points of a plan are negotiated at once, and all voters of a round are asked together. What one
member hears of another is what was said aloud (`Said`) and nothing else: willingness stays with its
owner and an appraisal with its maker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pemand_abm.answers import labelled
from pemand_abm.dialogue import Dialogue, Reply, Request, seed_of, together
from pemand_abm.plans import Item, Plan, Stake
from pemand_abm.prompting import grammar, quoted, render

QUORUM = 0.75
INTENTS = ("accept", "yield", "compromise", "push")
BOTH = ("AGREE", "DISAGREE")
_DIGIT = r"(?:10|[0-9]|ten|nine|eight|seven|six|five|four|three|two)"
_NUMBERED = re.compile(
    rf"\b{_DIGIT}\s*(?:/|out of|of|on)\s*(?:a scale (?:of|to)\s*)?(?:10|ten)\b"
    rf"|\b(?:willingness|importance|alpha|priority)\W+(?:\w+\W+){{0,4}}{_DIGIT}\b"
    rf"|\b(?:matters?|weighs?)\W+(?:an?\W+)?{_DIGIT}\b",
    flags=re.I,
)
"""Words that would give a willingness away in numbers."""

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class MindSettings:
    """The protocol's numbers and switches (PROTOCOLS, MIND).

    `tone` tells a speaker how to sound by how much the point matters to him; with `appraisal` a
    voter judges the proposer first, in private; `social` (the paper's social rules) orders members
    to give way where others sound firmer. None of the three is the paper's base, all are MIND.
    `tries` is how often an answer is asked for in all; `temperature` and the numbers of tokens are
    the paper's (appendix F.1), the latter as far as a sentence here needs them.
    """

    tone: bool = True
    appraisal: bool = True
    social: bool = True
    max_rounds: int = 3
    quorum: float = QUORUM
    tries: int = 3
    temperature: float = 0.4
    appraisal_tokens: int = 40
    speech_tokens: int = 90

    def most_calls(self, members: int, items: int) -> int:
        """Return the most calls that so many points among so many members can take."""
        voting = (members - 1) * (2 if self.appraisal else 1)
        each = 1 + self.max_rounds * voting + max(0, self.max_rounds - 1)
        return items * each * self.tries if members > 1 else 0


@dataclass(frozen=True, slots=True)
class Delegate:
    """One who negotiates: what is said of him, and his stakes by item, which nobody else sees."""

    name: str
    about: str
    stakes: Mapping[str, Stake]


@dataclass(frozen=True, slots=True)
class Said:
    """What one member said aloud: all that the others get to know of him.

    `act` is `proposal`, `agrees`, `does not agree`, or the proposer's `keeps`, `updates`,
    `compromises`.
    `value` is the value proposed or asked for, None where he agrees. `text` is empty where what he
    said could not be used.
    """

    speaker: str
    phase: str
    act: str
    text: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Appraisal:
    """A voter's private judgement of the proposer (MIND, phase 2a)."""

    voter: str
    proposer: str
    phase: str
    guess: int
    room: bool
    intent: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A reply that could not be used, and why; it entered nothing."""

    speaker: str
    phase: str
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class Case:
    """One point as it was settled.

    `outcome` is `agreed`, or `fallback`: no quorum, the wish that matters most counts. `rounds` are
    the rounds held. `wishes` are the members' values before the talk, in their order.
    """

    item: str
    proposer: str
    value: str
    outcome: str
    rounds: int
    wishes: Mapping[str, Stake]
    said: tuple[Said, ...]
    appraisals: tuple[Appraisal, ...]
    faults: tuple[Fault, ...]

    def insisted(self) -> tuple[str, ...]:
        """Return whose firm wish (willingness 7 and more) became the value, others objecting."""
        if not self.rounds:
            return ()
        return tuple(n for n, s in self.wishes.items() if s.weight >= 7 and s.value == self.value)

    def yielded(self) -> tuple[str, ...]:
        """Return whose wish did not become the value."""
        return tuple(n for n, s in self.wishes.items() if s.value != self.value)


@dataclass(frozen=True, slots=True)
class _Table:
    """All that stays the same while a point is settled."""

    plan: Plan
    item: Item
    delegates: Mapping[str, Delegate]
    settings: MindSettings
    key: tuple[str | int, ...]


@dataclass
class _Minutes:
    """What was said on a point so far, in order."""

    said: list[Said]
    appraisals: list[Appraisal]
    faults: list[Fault]


def mind(
    delegates: Sequence[Delegate],
    plan: Plan,
    items: Sequence[str],
    settings: MindSettings,
    key: tuple[str | int, ...],
) -> Dialogue[list[Case]]:
    """Let the delegates settle the named items of a plan, each item a case of its own.

    *key* is (run seed, group, event kind, event ordinal, replicate), from which the seed of every
    request and the draw of every proposer follow. Items that all want the same of, and those of a
    single member, are settled without a word.
    """
    return (
        yield from together(
            [
                _settle(
                    _Table(
                        plan,
                        plan.item(name),
                        {d.name: d for d in delegates},
                        settings,
                        (*key, "mind", name),
                    )
                )
                for name in items
            ]
        )
    )


def _settle(table: _Table) -> Dialogue[Case]:
    names = list(table.delegates)
    wishes = {n: d.stakes[table.item.name] for n, d in table.delegates.items()}
    proposer = names[seed_of(*table.key, "proposer") % len(names)]
    current, minutes = wishes[proposer].value, _Minutes([], [], [])
    if len({s.value for s in wishes.values()}) == 1:
        return _case(table, proposer, current, "agreed", 0, wishes, minutes)
    yield from _propose(table, proposer, minutes)
    for number in range(1, table.settings.max_rounds + 1):
        votes = yield from _vote(table, proposer, current, number, minutes)
        agree = 1 + sum(vote.act == "agrees" for vote in votes)
        if agree >= table.settings.quorum * len(names):
            return _case(table, proposer, current, "agreed", number, wishes, minutes)
        if number < table.settings.max_rounds:
            current = yield from _update(table, proposer, current, votes, number, minutes)
    # Ties go to the earliest proposal: the proposer's, then the members' in their order.
    ranked = [proposer, *(n for n in names if n != proposer)]
    value = wishes[max(ranked, key=lambda n: wishes[n].weight)].value
    return _case(table, proposer, value, "fallback", table.settings.max_rounds, wishes, minutes)


def _case(
    table: _Table,
    proposer: str,
    value: str,
    outcome: str,
    rounds: int,
    wishes: Mapping[str, Stake],
    minutes: _Minutes,
) -> Case:
    return Case(
        table.item.name,
        proposer,
        value,
        outcome,
        rounds,
        wishes,
        tuple(minutes.said),
        tuple(minutes.appraisals),
        tuple(minutes.faults),
    )


# --- asking and reading -------------------------------------------------------------------------


def _asked(
    table: _Table,
    speaker: str,
    phase: str,
    prompt: str,
    read: Callable[[str], Read],
    tokens: int,
    minutes: _Minutes,
    form: Mapping[str, object],
    **values: object,
) -> Dialogue[Read | None]:
    """Ask until *read* can use a reply (it raises `_Unfit`), a bounded number of times."""
    feedback = ""
    settings, own = table.settings, table.delegates[speaker]
    stake = own.stakes[table.item.name]
    for attempt in range(settings.tries):
        system, user = render(
            f"mind/{prompt}",
            you=speaker,
            size=len(table.delegates),
            plan=table.plan.words,
            about=own.about,
            item=table.item,
            own=stake,
            tone=stake.band.tone if settings.tone else "",
            social=settings.social,
            feedback=feedback,
            **values,
        )
        request = Request(
            system,
            user,
            seed_of(*table.key, speaker, phase, prompt, attempt),
            (str(table.key[1]), speaker, f"{table.item.name}, {phase}"),
            tokens,
            settings.temperature,
            grammar(f"mind/{prompt}", **form),
        )
        (reply,) = yield [request]
        try:
            return read(_whole(reply))
        except _Unfit as fault:
            feedback = str(fault)
            minutes.faults.append(Fault(speaker, phase, reply.text, feedback))
    return None


class _Unfit(Exception):
    """A reply that cannot be used; its text says what an answer must be."""


def _whole(reply: Reply) -> str:
    if reply.cut:
        raise _Unfit("it was too long and broke off; say less")
    return reply.text


def _spoken(text: str, label: str) -> str:
    said = labelled(text, label)
    if not said:
        raise _Unfit(f"there must be one line that begins with {label}:")
    if _NUMBERED.search(quoted(said, len(said) + 99)):  # As the others would read it.
        raise _Unfit("how much a wish matters must not be said in numbers")
    return said


def _one_of(text: str, label: str, allowed: Sequence[str]) -> str:
    said = labelled(text, label)
    if said is None or said not in allowed:
        raise _Unfit(f"{label}: must be one of {', '.join(allowed)}, copied exactly")
    return said


def _rule(values: Sequence[str]) -> str:
    """Return the GBNF alternatives of these texts."""
    return " | ".join('"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"' for v in values)


# --- the phases ---------------------------------------------------------------------------------


def _propose(table: _Table, proposer: str, minutes: _Minutes) -> Dialogue[None]:
    """Let the proposer give his wish and his reason (phase 1).

    Only the one whose proposal was drawn is asked: what the others would propose is their wish as
    it stands, and nobody would hear it.
    """
    wish = table.delegates[proposer].stakes[table.item.name].value

    def read(text: str) -> str:
        _one_of(text, "VALUE", [wish])
        return _spoken(text, "RATIONALE")

    text = yield from _asked(
        table,
        proposer,
        "proposal",
        "proposal",
        read,
        table.settings.speech_tokens,
        minutes,
        {"value": _rule([wish])},
    )
    minutes.said.append(Said(proposer, "proposal", "proposal", text or "", wish))


def _vote(
    table: _Table, proposer: str, current: str, number: int, minutes: _Minutes
) -> Dialogue[list[Said]]:
    """Let all others appraise and vote, at once; what they hear is what was said before."""
    heard = tuple(s for s in minutes.said if s.text)
    voters = [n for n in table.delegates if n != proposer]
    told = yield from together(
        [_ballot(table, voter, proposer, current, number, heard) for voter in voters]
    )
    for vote, judged, faults in told:
        minutes.said.append(vote)
        minutes.appraisals += [judged] if judged else []
        minutes.faults += faults
    return [vote for vote, _, _ in told]


def _ballot(
    table: _Table,
    voter: str,
    proposer: str,
    current: str,
    number: int,
    heard: Sequence[Said],
) -> Dialogue[tuple[Said, Appraisal | None, list[Fault]]]:
    phase, own = f"round {number}", _Minutes([], [], [])
    wish = table.delegates[voter].stakes[table.item.name]
    asked = [s.value for s in heard if s.speaker == voter and s.value]
    if current in (wish.value, *asked[-1:]):
        # Who wants what is proposed, or asked for it himself, needs no call to agree.
        return Said(voter, phase, "agrees", "", None), None, []
    talk = {"proposer": proposer, "current": current, "history": heard}
    judged = None
    if table.settings.appraisal:
        judged = yield from _appraise(table, voter, proposer, phase, wish, own, talk)
    vote = yield from _cast(table, voter, phase, wish, current, judged, own, talk)
    return vote, judged, own.faults


def _appraise(
    table: _Table,
    voter: str,
    proposer: str,
    phase: str,
    wish: Stake,
    minutes: _Minutes,
    talk: Mapping[str, object],
) -> Dialogue[Appraisal | None]:
    """Judge in private how much the point matters to the proposer, and what to do (phase 2a)."""

    def read(text: str) -> Appraisal:
        guess = int(_one_of(text, "GUESS", [str(k) for k in range(1, 11)]))
        room = _one_of(text, "ROOM", ["yes", "no"])
        intent = _one_of(text, "INTENT", INTENTS)
        if intent == "push" and guess > wish.weight:
            # The logical guard (MIND, table B8): nobody insists on what he holds for the lesser.
            raise _Unfit("you judge that it matters more to the other than to you, yet you push")
        return Appraisal(voter, proposer, phase, guess, room == "yes", intent)

    return (
        yield from _asked(
            table,
            voter,
            phase,
            "appraisal",
            read,
            table.settings.appraisal_tokens,
            minutes,
            {},
            **talk,
        )
    )


def _cast(
    table: _Table,
    voter: str,
    phase: str,
    wish: Stake,
    current: str,
    judged: Appraisal | None,
    minutes: _Minutes,
    talk: Mapping[str, object],
) -> Dialogue[Said]:
    """Say and vote what was made up one's mind to (phase 2b).

    With an appraisal that intends to yield the vote is AGREE, with a compromise DISAGREE with a
    middle value, with a push DISAGREE with one's own; without one the vote is free.
    """
    intent = judged.intent if judged else ""
    votes = {"": BOTH, "accept": BOTH[:1], "yield": BOTH[:1]}.get(intent, BOTH[1:])
    middle = tuple(v for v in table.item.between(wish.value, current) if v != current)
    free = tuple(v for v in table.item.values if v != current)
    choices = {"compromise": middle or (wish.value,), "push": (wish.value,)}.get(intent, free)

    def read(text: str) -> Said:
        said = _spoken(text, "COMMENT")
        if _one_of(text, "VOTE", votes) == "AGREE":
            _one_of(text, "VALUE", ["none"])
            return Said(voter, phase, "agrees", said, None)
        value = _one_of(text, "VALUE", choices)
        return Said(voter, phase, "does not agree", said, value)

    vote = yield from _asked(
        table,
        voter,
        phase,
        "vote",
        read,
        table.settings.speech_tokens,
        minutes,
        {"votes": votes, "value": _rule(choices)},
        intent=intent,
        votes=list(votes),
        choices=choices,
        **talk,
    )
    return vote or Said(voter, phase, "does not agree", "", None)


def _update(
    table: _Table,
    proposer: str,
    current: str,
    votes: Sequence[Said],
    number: int,
    minutes: _Minutes,
) -> Dialogue[str]:
    """Let the proposer keep, update or compromise (phase 3); its result is the new proposal.

    Under the social rules a proposal that more than half do not agree to must change, unless the
    proposer's willingness is 10 (MIND, table B9).
    """
    dissent = [v for v in votes if v.act != "agrees"]
    wanted = tuple(dict.fromkeys(v.value for v in dissent if v.value))
    others = tuple(v for v in table.item.values if v != current)
    wish, size = table.delegates[proposer].stakes[table.item.name], len(table.delegates)
    pressed = table.settings.social and len(dissent) > size / 2 and wish.weight < 10
    acts = ("KEEP", *(["UPDATE"] if wanted else []), *(["COMPROMISE"] if others else []))

    def read(text: str) -> tuple[str, str, str]:
        said = _spoken(text, "RATIONALE")
        act = _one_of(text, "ACTION", acts)
        allowed = {"KEEP": (current,), "UPDATE": wanted, "COMPROMISE": others}[act]
        value = _one_of(text, "VALUE", allowed)
        if act == "KEEP" and pressed:
            raise _Unfit("more than half do not agree, so the proposal must change")
        return said, act, value

    told = yield from _asked(
        table,
        proposer,
        f"update {number}",
        "update",
        read,
        table.settings.speech_tokens,
        minutes,
        {"kept": _rule([current]), "wanted": _rule(wanted), "others": _rule(others)},
        proposer=proposer,
        current=current,
        history=tuple(s for s in minutes.said if s.text),
        dissent=dissent,
    )
    said, act, value = told or ("", "KEEP", current)
    done = {"KEEP": "keeps", "UPDATE": "updates", "COMPROMISE": "compromises"}[act]
    minutes.said.append(Said(proposer, f"update {number}", done, said, value))
    return value


# --- the survey of wishes -----------------------------------------------------------------------


def survey(
    about: str,
    plan: Plan,
    items: Sequence[Item],
    settings: MindSettings,
    key: tuple[str | int, ...],
    label: tuple[str, ...],
    notice: str = "",
) -> Dialogue[dict[str, Stake] | None]:
    """Let the person described by *about* say what he wants of each item (MIND, appendix A).

    Its result is his stakes by item, an importance of 0 counted as 1; None where no reply could be
    read.
    """
    feedback = ""
    names = [item.name.upper() for item in items]
    form = grammar(
        "mind/survey",
        values=tuple((n, _rule(i.values)) for n, i in zip(names, items, strict=True)),
    )
    for attempt in range(settings.tries):
        system, user = render(
            "mind/survey",
            about=about,
            plan=plan.words,
            items=items,
            notice=notice,
            feedback=feedback,
        )
        own = seed_of(*key, "survey", attempt)
        tokens = 40 * len(items)
        (reply,) = yield [Request(system, user, own, label, tokens, settings.temperature, form)]
        try:
            text = _whole(reply)
            return {i.name: _wished(text, i) for i in items}
        except _Unfit as fault:
            feedback = str(fault)
    return None


def _wished(text: str, item: Item) -> Stake:
    label = item.name.upper()
    parts = [part.strip() for part in (labelled(text, label) or "").split(";", 2)]
    if len(parts) != 3 or parts[0] not in item.values or not re.fullmatch(r"10|[0-9]", parts[1]):
        raise _Unfit(f"{label}: must be one of the values; a number from 0 to 10; and a reason")
    reason = parts[2].removeprefix("because").strip()
    return Stake(parts[0], max(1, int(parts[1])), reason)


def with_switches(settings: MindSettings, variant: str) -> MindSettings:
    """Return the settings of one of the four variants (MIND §4.3)."""
    tone, appraisal, social = VARIANTS[variant]
    return replace(settings, tone=tone, appraisal=appraisal, social=social)


VARIANTS = {
    "base": (False, False, False),
    "tone": (True, False, False),
    "appraisal": (False, True, False),
    "mind": (True, True, True),
}
"""The switches tone, appraisal and social rules of each variant."""
