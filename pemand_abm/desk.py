"""Where SimPy's households meet the language model.

The requests of one simulated instant are answered as one batch.

SimPy runs URGENT (0), then NORMAL (1) events of a minute; the desk answers after them, when the
instant has gone quiet. The desk also keeps the budget: a household's worst case is reserved before
it starts, so that no talk is left half held.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, cast

import simpy

from pemand_abm.dialogue import Dialogue, Model, Reply, Request, Result, answer

if TYPE_CHECKING:
    from simpy.events import EventPriority

LAST = cast("EventPriority", 2)


class Desk:
    """Gathers the requests of one simulation instant and answers them as one batch.

    `calls` is the most model calls that the run may make (replayed ones count, so that a resumed
    run is the same run), None for no limit; `in_flight` the most households that talk at once.
    """

    def __init__(
        self, env: simpy.Environment, model: Model, calls: int | None = None, in_flight: int = 64
    ):
        self.env, self.model = env, model
        self.waiting: list[tuple[list[Request], simpy.Event]] = []
        self.left = float("inf") if calls is None else calls
        self.in_flight = in_flight
        self.talking = 0
        self.line: list[tuple[int, simpy.Event]] = []

    def ask(self, requests: list[Request]) -> simpy.Event:
        """Return an event that succeeds with one reply per request."""
        if not self.waiting:
            quiet = self.env.event()
            quiet.callbacks.append(self._flush)
            quiet._ok, quiet._value = True, None
            self.env.schedule(quiet, priority=LAST)
        reply = self.env.event()
        self.waiting.append((requests, reply))
        return reply

    def _flush(self, _: simpy.Event) -> None:
        batch, self.waiting = self.waiting, []
        replies = iter(
            answer(self.model, [request for requests, _ in batch for request in requests])
        )
        for requests, reply in batch:
            reply.succeed([next(replies) for _ in requests])

    def hold(
        self, dialogue: Dialogue[Result], reserve: int
    ) -> Generator[simpy.Event, Any, tuple[Result | None, int]]:
        """Run a dialogue to its end inside a process.

        `yield from` gives (its result, the calls it took).

        The result is None, and no call is made, when what is left of the budget cannot cover
        *reserve*.
        """
        admitted = self.env.event()
        self.line.append((reserve, admitted))
        self._admit()
        if not (yield admitted):
            return None, 0
        calls = 0
        try:
            requests = next(dialogue)
            while True:
                calls += len(requests)
                replies: list[Reply] = yield self.ask(requests)
                requests = dialogue.send(replies)
        except StopIteration as end:
            self.talking -= 1
            self.left += reserve - calls
            self._admit()
            return end.value, calls

    def _admit(self) -> None:
        """Let households start in the order they came, each when its worst case is covered.

        Turn away what never can be.
        """
        while self.line and self.talking < self.in_flight:
            reserve, admitted = self.line[0]
            if reserve > self.left and self.talking:
                return
            self.line.pop(0)
            if reserve <= self.left:
                self.left -= reserve
                self.talking += 1
                admitted.succeed(True)
            else:
                admitted.succeed(False)
