"""A teacher by rule: sentences that hold to the facts, and numbers that carry what was observed.

It is a Model that answers the protocol's own requests, so what is learnt are the prompts of real
talks. Its sentences are made by the rules below and are no transcripts of people; only its numbers
(`training.targets`) come from a survey.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pemand_abm import keys
from pemand_abm.answers import half_up
from pemand_abm.dialogue import Reply, Request
from pemand_abm.people import Household, Member
from pemand_abm.protocols.pemand import CRITERIA

MOST_SENTENCES, MOST_WORDS = 6, 17
"""What the grammar of a narrative allows (prompts/persona/narrative.gbnf)."""
NEAR = 0.5
"""Trips within which a member does about as much as similar people."""
MANY, MOST = 8, 12
"""Trips of one person above which a statement gets 2, then 1, for the household's constraints."""
SPOILT = 0.45
"""The share of statements that a spoiling teacher makes faulty, for the judge to find."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """A household and the trips that each of its speakers is taught to say, by member's name.

    `read` says that a review repeats the figure of similar people as a whole number.
    """

    household: Household
    own: Mapping[str, int]
    read: bool = False


class _Rules:
    """A model that answers by rule; of a narrative, whatever the decision is about."""

    identity: dict[str, str | int | float | bool] = {"model": "teacher", "version": 1}  # noqa: RUF012

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        for i, request in enumerate(requests):
            yield i, Reply(self.reply(request))

    def reply(self, request: Request) -> str:
        """Return what the teacher says to one prompt."""
        if request.label[-1] == "narrative":
            return narrative(re.findall(r"^- (.*)$", request.user, flags=re.M))
        return self._say(request)

    def _say(self, request: Request) -> str:
        raise NotImplementedError


class Teacher(_Rules):
    """Answer the requests of PEMAND about trips, by rule (see the module).

    With *spoil* a share of what its members say is faulty (`spoilt`): talks from which only the
    moderator's marks are to be learnt.
    """

    def __init__(self, lessons: Sequence[Lesson], spoil: bool = False) -> None:
        self._lessons = {f"household {one.household.id}": one for one in lessons}
        self._spoil = spoil

    def _say(self, request: Request) -> str:
        home, name, phase = request.label
        lesson = self._lessons[home]
        if name == "moderator":
            return _judged(request, lesson.household)
        member = next(m for m in lesson.household.members if m.name == name)
        trips = lesson.own[name]
        if phase == "reasoning":
            return _reasoning(member, lesson.household)
        if phase == "review":
            return _review(request, trips, lesson.read)
        if phase == "revise":
            return f"I {day_of(member, trips)}, which makes {told(trips)} on an ordinary weekday."
        if phase == "proposal":
            day = day_of(member, trips)
            said = f"On an ordinary weekday I {day}, which makes {told(trips)}."
            if self._spoil:
                said, trips = spoilt(said, trips, member, request.seed)
            return f"REASON: {said}\nFINAL_TRIPS: {trips}"
        together = re.search(r"^Together: (\d+)\.$", request.user, flags=re.M)
        assert together is not None
        total = int(together[1])
        other = self._spoil and keys.uniform(request.seed, "spoil") < SPOILT
        return _round(total, total + 2 + request.seed % 5 if other else total)


class MovesTeacher(_Rules):
    """Answer the requests of PEMAND about relocation, by rule.

    *expected* is each household's annual probability of a move; it is what its members say of how
    likely a move is, and they would move where it is a half or more.
    """

    def __init__(self, homes: Mapping[str, Household], expected: Mapping[int | str, float]) -> None:
        self._homes, self._expected = homes, expected

    def _say(self, request: Request) -> str:
        phase = request.label[-1]
        home = self._homes[request.label[0]]
        chance = float(self._expected[home.id])
        choice = "move" if chance >= 0.5 else "stay"
        how, often = _SELDOM if chance < 0.08 else _AT_TIMES if chance < 0.2 else _OFTEN
        if phase == "reasoning":
            return _leaning(next(m for m in home.members if m.name == request.label[1]), home)
        if phase == "review":
            return f"REVIEW: The reasoning fits, and such households {often}.\nINTENTION: {choice}"
        if phase == "revise":
            return f"I would {choice}, and a move within the year is {how}."
        if phase == "proposal":
            return (
                f"REASON: In the coming year I would rather {choice}, and a move is {how}.\n"
                f"LIKELIHOOD: {round(100 * chance)}\nFINAL_HOME: {choice}"
            )
        return (
            f"ACKNOWLEDGE: I heard that each of us would rather {choice}.\n"
            f"SUPPORT: For all of us it is better to {choice}.\n"
            f"PREFERRED_HOME: {choice}\nDELTA_FROM_LAST: I keep to what I said."
        )


_SELDOM = ("unlikely", "seldom move")
_AT_TIMES = ("possible", "move now and then")
_OFTEN = ("quite possible", "move often")


def _leaning(member: Member, home: Household) -> str:
    can = (
        "stay, or sell this home and buy another"
        if home.tenure == "own"
        else "stay, or give up this home and rent another"
    )
    if any(m.age < 18 for m in home.members if m is not member):
        owe = "keep the children near their school and friends"
    elif home.size == 1:
        owe = "have nobody here to ask"
    else:
        owe = "must agree with the others on a new home"
    like = (
        "a change when work or study asks for it"
        if member.age < 35
        else "the place and the people that I know"
    )
    return (
        f"CONTROL: With our cars, money and home, I can {can}.\n"
        f"NORM: For the others at home, I {owe}.\nATTITUDE: I like {like}."
    )


def narrative(facts: Sequence[str]) -> str:
    """Return the facts as a paragraph of at most six sentences.

    >>> narrative(["I am 30 years old.", "I work full time."])
    'I am 30 years old. I work full time.'
    """
    sentences = [fact.removesuffix(".") for fact in facts]
    while len(sentences) > MOST_SENTENCES:
        pairs = range(len(sentences) - 1)
        shortest = min(pairs, key=lambda i: len(f"{sentences[i]} {sentences[i + 1]}".split()))
        first, second = sentences[shortest : shortest + 2]
        joined = second if second.startswith("I ") else second[:1].lower() + second[1:]
        sentences[shortest : shortest + 2] = [f"{first}, and {joined}"]
    return ". ".join(sentences) + "."


def fits(text: str) -> bool:
    """Return whether the grammar of a narrative lets it be said: long ones are left to the facts.

    >>> fits("I am 30 years old. I work full time.")
    True
    """
    lengths = [len(sentence.split()) for sentence in text.split(". ")]
    return len(lengths) <= MOST_SENTENCES and max(lengths) <= MOST_WORDS


def told(trips: int) -> str:
    """Return a number of trips in words.

    >>> told(1), told(4)
    ('1 trip', '4 trips')
    """
    return f"{trips} trip" if trips == 1 else f"{trips} trips"


def day_of(member: Member, trips: int) -> str:
    """Return a day of that many one-way trips, in words: out and home are a trip each."""
    where = "to school" if member.age < 18 else "to work" if member.works else "out"
    tours, stop = trips // 2, trips % 2
    if trips == 0:
        return "stay at home all day"
    if trips == 1:
        return f"go {where} and do not come back the same day"
    way = f"go {where} and come home"
    if stop:
        way = f"go {where}, stop on the way and come home"
    if tours == 1:
        return way
    again = "once" if tours == 2 else f"{tours - 1} times"
    return f"{way}, and go out again {again}"


def _reasoning(member: Member, home: Household) -> str:
    grown = sum(m.age >= 18 for m in home.members)
    if home.vehicles is None:
        can = "do what the facts about us allow"
    elif home.vehicles == 0:
        can = "go on foot or by public transit, since we have no car"
    elif home.vehicles < grown:
        can = "have a car when the others leave it to me"
    else:
        can = "take a car whenever I need one"
    if home.size == 1:
        owe = "have nobody to look after here"
    elif any(m.age < 18 for m in home.members if m is not member):
        owe = "help to bring the children where they must be"
    else:
        owe = "do my part of the errands"
    like = "being with my friends and at school" if member.age < 18 else "days that have an order"
    return (
        f"CONTROL: With our cars, money and home, I can {can}.\n"
        f"NORM: For the others at home, I {owe}.\n"
        f"ATTITUDE: I like {like}."
    )


def _review(request: Request, trips: int, read: bool) -> str:
    similar = re.search(r"Similar people: .*? make about ([\d.]+) trips", request.user)
    if similar is None:
        found = "fits what this household can do"
    elif read:
        theirs = half_up(float(similar[1]))
        departs = "" if trips == theirs else f", but I make {'more' if trips > theirs else 'fewer'}"
        found = f"fits, and similar people make about {told(theirs)}{departs}"
    else:
        gap = trips - float(similar[1])
        more = "as much as" if abs(gap) <= NEAR else "more than" if gap > 0 else "less than"
        found = f"fits, and this person goes out about {more} similar people"
        found = found if abs(gap) <= NEAR else found.replace("about ", "")
    return f"REVIEW: The reasoning {found}.\nINTENTION: {trips}"


def _round(total: int, preferred: int) -> str:
    return (
        f"ACKNOWLEDGE: I heard that our own numbers come to {told(total)}.\n"
        "SUPPORT: Together we do what each of us said we would do.\n"
        f"PREFERRED_TRIPS: {preferred}\n"
        "DELTA_FROM_LAST: I stay with that number."
    )


def spoilt(said: str, trips: int, member: Member, seed: int) -> tuple[str, int]:
    """Return a statement, for a share of the seeds with a fault that a moderator should find."""
    u = keys.uniform(seed, "spoil") / SPOILT
    if u >= 1:
        return said, trips
    kind, amount = int(u * 5), int(keys.uniform(seed, "amount") * 12)
    start = "On an ordinary weekday I"
    if kind == 0:  # another number than the reason's
        return said, trips + 2 + amount % 5
    if kind == 1:  # more than one person makes
        many = MANY + 1 + amount
        return f"{start} go out again and again, which makes {told(many)}.", many
    if kind == 2:  # no reason
        return f"{start} do what I do.", trips
    if kind == 3:  # not what is asked
        return "The music was loud and everybody in the room liked it.", trips
    if member.works:
        return f"{start} do not work and have no job, which makes {told(trips)}.", trips
    return f"{start} go to my full-time job and come home, which makes {told(trips)}.", trips


def marks(value: int, said: str, member: Member, heads: int) -> tuple[dict[str, int], str]:
    """Return a statement's marks by rule, and the words for the lowest of them.

    *value* are the trips of *heads* persons.
    """
    each, words = value / heads, said.lower()
    job = bool(re.search(r"\b(to work|job)\b", words)) and "no job" not in words
    belies = ("no job" in words and member.works) or (job and not member.works)
    numbers = [int(n) for n in re.findall(r"\d+", words)]
    topic = re.search(r"\b(trips?|weekday|work|school|home|errands?|number)\b", words)
    given = {
        "persona": 1 if belies else 3,
        "constraints": 1 if each > MOST else 2 if each > MANY else 3,
        "interaction": 3 if topic else 1,
        "quality": 3 if value in numbers else 1,
    }
    worst = min(CRITERIA, key=lambda name: given[name])
    return given, _FEEDBACK[worst] if given[worst] < 3 else "It fits the facts."


_FEEDBACK = {
    "persona": "It says of work what the speaker's facts deny.",
    "constraints": "It is more than one person makes on a weekday.",
    "interaction": "It does not answer what is asked.",
    "quality": "It gives no reason for that number.",
}


def _judged(request: Request, home: Household) -> str:
    form = r'^\[(\d+)\] (.*?) answers (\d+): "(.*)"$'
    members = {m.name: m for m in home.members}
    heads = 1 if request.label[-1] == "proposal" else home.size
    lines = []
    for number, name, value, said in re.findall(form, request.user, flags=re.M):
        given, feedback = marks(int(value), said, members[name], heads)
        scores = "; ".join(f"{c}={given[c]}" for c in CRITERIA)
        lines.append(f"[{number}] SCORES: {scores} FEEDBACK: {feedback}")
    return "\n".join(lines)
