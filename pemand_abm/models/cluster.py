"""One model as many: replicas of another backend in Ray actors, on this machine or on a cluster.

A replica is a process that opens the hosted backend for itself and answers what it is sent. The
driver, the process that runs the study, keeps everything else: the queue, the budget, the journal.
So a replica that dies takes nothing with it but the requests that it had, and those are sent again.

Ray is asked for three things only: to start processes on machines, to carry messages, and to say
that a process is gone (docs/design.md, "Many replicas"). Its actors are neither restarted nor
their calls repeated by Ray, which could not know what the journal has already.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from pemand_abm import keys
from pemand_abm.dialogue import Model, Reply, Request
from pemand_abm.errors import ModelError, PemandError
from pemand_abm.models import open_model
from pemand_abm.models.machines import Joined, first_line, join, require

MOST_SENT = 3
"""How often one request is sent: a request that ends three replicas is at fault itself."""
MOST_STARTS = 3
"""How often in a row a replica may die before it has answered anything."""
SHORTEST_BEGINNING = 40
"""Letters of a first line that says something of a household or person; shorter is a heading."""
START_SECONDS = 1800.0
"""A model of 70B parameters takes many minutes to load from a network's disk."""
ON_A_CARD = ("vllm", "transformers")
OBJECT_STORE_BYTES = 100_000_000  # Of a local cluster: prompts and replies are small.
GO_ON = "what was answered is in the journal; run the same command again to go on"


@dataclass(frozen=True, slots=True)
class Hosted:
    """How every replica opens its backend; the arguments are those of `models.open_model`."""

    name: str
    base_url: str | None = None
    workers: int | None = None
    exact: bool = True
    adapter: str | None = None

    @property
    def backend(self) -> str:
        """The name before the colon."""
        return self.name.partition(":")[0].partition("+")[0]


class Answers(NamedTuple):
    """What a replica has to say: replies by the driver's numbers, its notes, and its fault."""

    replies: list[tuple[int, Reply]]
    notes: tuple[str, ...] = ()
    fault: str | None = None


class Replica:
    """What runs in an actor: the hosted backend in a thread, with a box for each direction.

    The thread goes on with what it has while a message is under way, so that a replica is never
    idle for the time of a message.
    """

    def __init__(self, hosted: Hosted, folder: str) -> None:
        self._hosted, self._folder = hosted, folder
        self._model: Model | None = None
        self._todo: SimpleQueue[list[tuple[int, Request]]] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, Reply] | str] = SimpleQueue()

    def hello(self) -> tuple[dict[str, Any], str | None]:
        """Open the backend, and return its identity, or the fault that kept it from opening."""
        if Path(self._folder).is_dir():
            os.chdir(self._folder)  # A model's folder may be named from where the user stands.
        try:
            # Whether data may come here was decided where the study runs.
            self._model = open_model(**asdict(self._hosted), remote="allow")
        except Exception as fault:
            return {}, _said(fault)
        threading.Thread(target=self._work, daemon=True).start()
        return dict(self._model.identity), None

    def exchange(self, requests: list[tuple[int, Request]]) -> Answers:
        """Take more requests, wait until one reply or more is there, and return what is there."""
        if requests:
            self._todo.put(requests)
        found = [self._done.get()]
        while True:
            try:
                found.append(self._done.get_nowait())
            except Empty:
                break
        notes = tuple(getattr(self._model, "notes", ()))
        replies = [answer for answer in found if not isinstance(answer, str)]
        fault = next((answer for answer in found if isinstance(answer, str)), None)
        return Answers(replies, notes, fault)

    def _work(self) -> None:
        assert self._model is not None
        while True:
            batch = self._todo.get()
            while not self._todo.empty():
                batch += self._todo.get()
            try:
                for position, reply in self._model.complete([request for _, request in batch]):
                    self._done.put((batch[position][0], reply))
            except BaseException as fault:
                self._done.put(_said(fault))


def _said(fault: BaseException) -> str:
    return fault.message if isinstance(fault, PemandError) else f"{type(fault).__name__}: {fault}"


class Queues:
    """The requests of one batch that no replica has: a queue for each, by how prompts begin.

    An engine that has read a prompt's beginning once need not read it again. So prompts that begin
    alike prefer one replica, always the same for the same number of replicas; a replica that has
    nothing to do takes from the longest queue of others.
    """

    def __init__(self, requests: Sequence[Request], replicas: int) -> None:
        self._prefers = [preferred(request, replicas) for request in requests]
        self._queues: list[deque[int]] = [deque() for _ in range(replicas)]
        for position, replica in enumerate(self._prefers):
            self._queues[replica].append(position)

    def own(self, replica: int, most: int) -> list[int]:
        """Take *most* of the requests that prefer a replica, the first ones first."""
        queue = self._queues[replica]
        return [queue.popleft() for _ in range(min(most, len(queue)))]

    def steal(self, most: int) -> list[int]:
        """Take *most* from the longest queue, but only half of it, the last ones first."""
        longest = max(self._queues, key=len)
        return [longest.pop() for _ in range(min(most, (len(longest) + 1) // 2))]

    def give_back(self, positions: Sequence[int]) -> None:
        """Put requests that a replica has lost before all that wait."""
        for position in reversed(positions):
            self._queues[self._prefers[position]].appendleft(position)


def preferred(request: Request, replicas: int) -> int:
    r"""Return the replica that a request prefers, by the beginning of its prompt.

    That is the system prompt and the first line of what follows, where prompts have what all
    members of a household share; all of it where that line is a mere heading.

    >>> home = "Your household: We are 2 people at home. We have one car."
    >>> one, two = (Request("You speak.", f"{home}\nYou: {i}", 0, ()) for i in "12")
    >>> preferred(one, 8) == preferred(two, 8)
    True
    """
    line = request.user.partition("\n")[0]
    begins = line if len(line) >= SHORTEST_BEGINNING else request.user
    return keys.digest("replica", request.system, begins) % replicas


@dataclass(slots=True)
class _Seat:
    """A replica's place: its actor, what it has, and the message that is under way."""

    actor: Any = None
    has: dict[int, None] = field(default_factory=dict)
    """Positions that it was sent and has not answered, in order."""
    message: Any = None
    ready: bool = False
    deaths: int = 0
    """In a row, without an answer between them."""


class Cluster:
    """A model that lets replicas of *model* answer; they start at the first request.

    Parameters
    ----------
    model : Model
        The hosted backend as opened here. It is asked nothing: it gives the identity, which every
        replica must share, so that a journal does not depend on how many replicas there were.
    hosted : Hosted
        How a replica opens the same.
    replicas : int
        How many, 1 or more.
    address : str, optional
        The Ray cluster: ``ray://HOST:10001``, ``HOST:6379``, or ``auto`` for that of this machine.
        Without it, a cluster of this machine alone is started, and ended by `close`.
    stay : bool
        Refuse a cluster that has other machines (`remote: refuse`).

    Attributes
    ----------
    lost, sent_again : int
        Replicas that died, and requests that were sent anew for it.
    """

    def __init__(
        self,
        model: Model,
        hosted: Hosted,
        replicas: int,
        address: str | None = None,
        stay: bool = True,
    ) -> None:
        if replicas < 1:
            raise ModelError(f"replicas must be 1 or more, found {replicas}")
        require()
        self._hosted, self._address, self._stay = hosted, address, stay
        self.identity = model.identity
        self._at_once = max(1, int(getattr(model, "at_once", 1)))
        self._seats = [_Seat() for _ in range(replicas)]
        self._joined: Joined | None = None
        self._ray: Any = None
        self._cards = 0
        self.lost = self.sent_again = 0
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> list[str]:
        """Sentences for the manifest: what happened to replicas, and the hosted backend's own."""
        if not self.lost:
            return list(self._notes)
        return [
            f"Replicas that were lost and started anew: {self.lost}; requests that were sent again "
            f"for it: {self.sent_again}.",
            *self._notes,
        ]

    @property
    def ready(self) -> int:
        """How many replicas have opened their backend and live, as far as is known."""
        return sum(seat.ready for seat in self._seats)

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yield (position, reply) in finishing order; a fault of one stops all, as ModelError."""
        if not requests:
            return
        self._connect()
        queues = Queues(requests, len(self._seats))
        sent = [0] * len(requests)
        left = len(requests)
        whole = False
        try:
            while left:
                self._hand_out(queues, requests, sent)
                for seat in self._heard():
                    replies = self._taken(seat, queues, requests, sent)
                    left -= len(replies)
                    yield from replies
            whole = True
        finally:
            if not whole:
                # What they still work on is nobody's any more, and would be in the way.
                for seat in self._seats:
                    if seat.has:
                        self._end(seat)

    def close(self) -> None:
        """End the replicas, and the cluster where it was started here."""
        if self._joined is None:
            return
        for seat in self._seats:
            self._end(seat)
        self._joined.leave()
        self._joined = self._ray = None

    def _hand_out(self, queues: Queues, requests: Sequence[Request], sent: list[int]) -> None:
        """Start replicas that are lacking, and send requests to those that can take them."""
        open_seats = []
        for seat in self._seats:
            if seat.actor is None:
                self._start(seat)
            elif seat.ready and seat.message is None:
                open_seats.append(seat)
        # Everybody's own first: nobody steals what its own replica is about to take.
        new = {
            id(seat): queues.own(self._seats.index(seat), 2 * self._at_once - len(seat.has))
            for seat in open_seats
        }
        for seat in open_seats:
            mine = new[id(seat)]
            if (room := self._at_once - len(seat.has) - len(mine)) > 0:
                mine += queues.steal(room)
            for position in mine:
                sent[position] += 1
            seat.has |= dict.fromkeys(mine)
            if seat.has:
                seat.message = seat.actor.exchange.remote([(p, requests[p]) for p in mine])

    def _heard(self) -> list[_Seat]:
        """Wait for messages, and return the replicas that have one."""
        under_way = {seat.message: seat for seat in self._seats if seat.message is not None}
        if len(under_way) == 1 and all(seat.has for seat in under_way.values()):
            return list(under_way.values())  # Whoever gets it waits for it.
        ready, _ = self._ray.wait(
            list(under_way),
            num_returns=1,
            fetch_local=False,
            timeout=None if any(s.has for s in under_way.values()) else START_SECONDS,
        )
        if not ready:
            raise ModelError(
                f"no replica of {self._hosted.name} was ready within {START_SECONDS / 60:.0f} "
                f"minutes; `ray status` on the cluster says what it waits for; {GO_ON}"
            )
        return [under_way[message] for message in ready]

    def _taken(
        self, seat: _Seat, queues: Queues, requests: Sequence[Request], sent: list[int]
    ) -> list[tuple[int, Reply]]:
        """Return the replies in a replica's message; where it is lost, give back what it had."""
        from ray import exceptions

        message, seat.message = seat.message, None
        try:
            heard = self._ray.get(message)
        except (
            exceptions.RayActorError,
            exceptions.WorkerCrashedError,
            exceptions.NodeDiedError,
            exceptions.ObjectLostError,
        ) as fault:
            self._lose(seat, queues, requests, sent, fault)
            return []
        except (exceptions.RayError, ConnectionError) as fault:
            raise ModelError(f"the Ray cluster failed: {first_line(fault)}; {GO_ON}") from fault
        if not seat.ready:
            self._welcome(seat, *heard)
            return []
        self._notes |= dict.fromkeys(heard.notes)
        if heard.fault is not None:
            raise ModelError(heard.fault)
        seat.deaths = 0
        for position, _ in heard.replies:
            del seat.has[position]
        return heard.replies

    def _welcome(self, seat: _Seat, identity: dict[str, Any], fault: str | None) -> None:
        if fault is not None:
            raise ModelError(f"a replica cannot open {self._hosted.name}: {fault}")
        if identity != self.identity:
            other = sorted(
                k for k in {*identity, *self.identity} if identity.get(k) != self.identity.get(k)
            )
            told = [f"{k} {identity.get(k)!r}, here {self.identity.get(k)!r}" for k in other]
            raise ModelError(
                f"a replica's {self._hosted.name} is not the one of this machine: "
                + ", ".join(told)
                + "; install the same versions and weights on all machines of the cluster"
            )
        seat.ready = True

    def _lose(
        self,
        seat: _Seat,
        queues: Queues,
        requests: Sequence[Request],
        sent: list[int],
        fault: Exception,
    ) -> None:
        had = list(seat.has)
        self._end(seat)
        self.lost += 1
        self.sent_again += len(had)
        seat.deaths += 1
        if seat.deaths >= MOST_STARTS:
            raise ModelError(
                f"a replica of {self._hosted.name} died {seat.deaths} times without an answer: "
                f"{first_line(fault)}; its log is in Ray's folder, /tmp/ray/session_latest/logs; "
                + GO_ON
            )
        for position in had:
            if sent[position] >= MOST_SENT:
                who = ", ".join(requests[position].label) or "a request"
                raise ModelError(
                    f"{sent[position]} replicas died with the request of {who}: "
                    f"{first_line(fault)}; {GO_ON}"
                )
        queues.give_back(had)

    def _start(self, seat: _Seat) -> None:
        actor = self._ray.remote(Replica).options(
            num_cpus=1, num_gpus=self._cards, scheduling_strategy="SPREAD", max_restarts=0
        )
        seat.actor = actor.remote(self._hosted, os.getcwd())
        seat.message = seat.actor.hello.remote()

    def _end(self, seat: _Seat) -> None:
        actor, seat.actor, seat.message, seat.ready = seat.actor, None, None, False
        seat.has = {}
        if actor is not None:
            self._ray.kill(actor)

    def _connect(self) -> None:
        if self._joined is not None:
            return
        self._joined = join(self._address, len(self._seats), OBJECT_STORE_BYTES, self._stay)
        self._ray = self._joined.ray
        has = self._joined.has
        self._cards = int(self._hosted.backend in ON_A_CARD and has.get("GPU", 0) > 0)
        for what, name, each in (("CPU", "cores", 1), ("GPU", "graphics cards", self._cards)):
            if len(self._seats) * each > has.get(what, 0):
                self.close()
                raise ModelError(
                    f"{len(self._seats)} replicas need {len(self._seats) * each} {name}, one each; "
                    f"the Ray cluster has {has.get(what, 0):g}"
                )
