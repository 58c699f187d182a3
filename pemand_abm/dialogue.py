"""What a negotiation is made of: requests, replies, and the drivers that need no clock.

A *dialogue* is a generator that yields a list of requests, is sent the list of replies in the same
order, and returns its result. It never sees a model, a clock, a thread or a file.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pemand_abm import keys


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a language model.

    `label` says who asks what for progress and transcripts, for example ``("household 12",
    "proposal", "member 2")``; it never reaches the model. `grammar` is a GBNF grammar that the
    reply must match where the backend can constrain its output.
    """

    system: str
    user: str
    seed: int
    label: tuple[str, ...]
    max_tokens: int = 80
    temperature: float = 0.7
    grammar: str | None = None

    @property
    def messages(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: `text` as the model wrote it, the tokens it cost, and why it ended.

    `stop` or `length`.
    """

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish: str = "stop"

    @property
    def cut(self) -> bool:
        """Whether the limit of tokens ended it, so that its end may be missing."""
        return self.finish == "length"


class Model(Protocol):
    """A language model: one batched method, whose replies come in finishing order."""

    identity: dict[str, str | int | float | bool]
    """What the replies depend on beyond the request (name, weights' SHA-256, backend settings).

    Goes to journal key and manifest. No secret.
    """

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yield (position in *requests*, reply) for every request, each as soon as it is there."""
        ...


Result = TypeVar("Result")
Dialogue = Generator[list[Request], list[Reply], Result]
"""A generator of requests that is sent replies and returns its result."""


def answer(model: Model, requests: Sequence[Request]) -> list[Reply]:
    """Return the model's replies in the order of the requests."""
    replies: list[Reply | None] = [None] * len(requests)
    for position, reply in model.complete(requests):
        replies[position] = reply
    missing = [i for i, reply in enumerate(replies) if reply is None]
    if missing:
        raise RuntimeError(f"the model left {len(missing)} of {len(requests)} requests unanswered")
    return [reply for reply in replies if reply is not None]


def together(dialogues: Sequence[Dialogue[Result]]) -> Dialogue[list[Result]]:
    """Join dialogues into one that asks all their open requests at once.

    Its result is the list of theirs, in order.
    """
    results: dict[int, Result] = {}
    waiting: dict[int, list[Request]] = {}

    def advance(i: int, replies: list[Reply] | None) -> None:
        try:
            waiting[i] = next(dialogues[i]) if replies is None else dialogues[i].send(replies)
        except StopIteration as end:
            waiting.pop(i, None)
            results[i] = end.value

    for i in range(len(dialogues)):
        advance(i, None)
    while waiting:
        asked = sorted(waiting.items())
        replies = iter((yield [request for _, requests in asked for request in requests]))
        for i, requests in asked:
            advance(i, [next(replies) for _ in requests])
    return [results[i] for i in range(len(dialogues))]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a dialogue asked for: calls, and tokens of prompts and replies.

    Replies that a journal remembered count like new ones: it is what the talk costs without it.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


def counted(dialogue: Dialogue[Result]) -> Dialogue[tuple[Result, Cost]]:
    """Run a dialogue and return its result with what it cost."""
    cost = Cost()
    try:
        requests = next(dialogue)
        while True:
            replies = yield requests
            cost += Cost(
                len(replies),
                sum(r.prompt_tokens for r in replies),
                sum(r.completion_tokens for r in replies),
            )
            requests = dialogue.send(replies)
    except StopIteration as end:
        return end.value, cost


def converse(dialogues: Sequence[Dialogue[Result]], model: Model) -> list[Result]:
    """Run dialogues in lockstep without a clock and return their results in order."""
    talk = together(dialogues)
    try:
        requests = next(talk)
        while True:
            requests = talk.send(answer(model, requests))
    except StopIteration as end:
        return end.value


def seed_of(*parts: str | int) -> int:
    """Return the request's own seed for this key: 31 bits, which every backend accepts."""
    return keys.digest(*parts) & 0x7FFFFFFF
