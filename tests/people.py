"""Small households and models that several tests use."""

from collections.abc import Callable, Iterator, Sequence

from pemand_abm.dialogue import Reply, Request
from pemand_abm.models.scripted import fill
from pemand_abm.people import Household, Member, Persona

FACTS = ("We are 3 people at home.", "We have one car.", "We rent our home.")


def member(number: int, age: int = 40, works: bool = True, speaks: bool = True) -> Member:
    return Member(number, f"member {number}", age, works, (f"I am {age} years old.",), speaks)


def household(*members: Member, vehicles: int = 1, key: int = 12) -> Household:
    members = members or (member(1), member(2, 43, False))
    return Household(key, 6, len(members), vehicles, "rent", 41, FACTS, members)


def personas(home: Household) -> list[Persona]:
    return [
        Persona(m, f"I am {m.age} years old.", "I like walking.", False, 3) for m in home.speakers
    ]


class Says:
    """A model whose replies are what *say* makes of a request; it keeps what it was asked."""

    identity = {"model": "says"}  # noqa: RUF012

    def __init__(self, say: Callable[[Request], str] = fill):
        self.say, self.asked = say, []

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        # Replies arrive in another order than asked, as from a real server.
        for i, request in reversed(list(enumerate(requests))):
            self.asked.append(request)
            yield i, Reply(self.say(request))


def proposal(value: object, reason: str = "On an ordinary weekday I go to work.") -> str:
    return f"REASON: {reason}\nFINAL_TRIPS: {value}"


def statement(value: object, support: str = "Together we go out.") -> str:
    return (
        f"ACKNOWLEDGE: I heard that you work.\nSUPPORT: {support}\n"
        f"PREFERRED_TRIPS: {value}\nDELTA_FROM_LAST: I listened."
    )


def scores(*each: int) -> str:
    return "\n".join(
        f"[{i}] SCORES: persona={s}; constraints={s}; interaction={s}; quality={s} FEEDBACK: It is so."
        for i, s in enumerate(each, 1)
    )
