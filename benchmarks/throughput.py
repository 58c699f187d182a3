"""Households a minute with a live model: all at once, one after another, call after call.

    python benchmarks/throughput.py --model vllm:FOLDER

Two-person households settle their trips by PEMAND with the first study's settings (two rounds, one
new try, an advising judge) from ready personas. They run in lockstep by `converse`, as the desk
runs them at one instant. "One after another" starts a household when the one before is through,
whose two members still speak at once; "call after call" asks one request at a time, as a script
without batches would. All three are measured in the same run.

No household runs twice, so nothing is answered from a cache of whole prompts, and the model is
loaded and warmed by one household more before the clock starts. The ratios "by work" are of
processor seconds: on a shared machine without a graphics card they say what the others would be if
nothing else ran, but for what several cores gain at once.
"""

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pemand_abm.dialogue import Model, Reply, Request, converse
from pemand_abm.domains import TRIPS
from pemand_abm.models import open_model
from pemand_abm.people import Household, Member, Persona
from pemand_abm.protocols.pemand import PemandSettings, pemand

SETTINGS = PemandSettings(max_rounds=2, max_regenerations=1, moderator="advise")
JOBS = ("I work in an office.", "I work in a shop.", "I study.", "I am retired.", "I do not work.")
CARS = ("We have no car.", "We have one car.", "We have two cars.")


class Counted:
    """A model that counts its calls and tokens."""

    def __init__(self, model: Model) -> None:
        self.model, self.identity = model, model.identity
        self.calls = self.read = self.written = 0

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        for position, reply in self.model.complete(requests):
            self.calls += 1
            self.read += reply.prompt_tokens
            self.written += reply.completion_tokens
            yield position, reply


class CallAfterCall:
    """A model that is asked one request at a time."""

    def __init__(self, model: Model) -> None:
        self.model, self.identity = model, model.identity

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        for position, request in enumerate(requests):
            for _, reply in self.model.complete([request]):
                yield position, reply


@dataclass(frozen=True, slots=True)
class Measured:
    """A number of households, and what they took."""

    households: int
    undecided: int
    seconds: float
    processor_seconds: float
    calls: int
    read: int
    written: int

    @property
    def a_minute(self) -> float:
        return 60 * self.households / self.seconds

    def __str__(self) -> str:
        return (
            f"{self.a_minute:6.1f} households a minute ({self.households} in {self.seconds:.0f} s, "
            f"{self.processor_seconds:.0f} s of processor time; {self.calls} calls, "
            f"{self.read:,} tokens read, {self.written:,} written, "
            f"{self.written / self.seconds:.0f} a second; {self.undecided} undecided)"
        )


def talk(key: int):
    """Return the dialogue of household *key*: two persons whose facts differ by the key."""
    cars = key % 3
    shared = ("We are 2 people at home.", CARS[cars], "We rent our home.")
    members = tuple(
        Member(n, f"member {n}", age, job < 2, (f"I am {age} years old.", JOBS[job]), True)
        for n, age, job in ((1, 24 + key % 60, key % 5), (2, 24 + key * 7 % 60, key // 5 % 5))
    )
    home = Household(key, 1, 2, cars, "rent", members[0].age, shared, members)
    personas = [
        Persona(m, " ".join((*m.facts, *shared)), "I weigh cost, duty and taste.", False, 3)
        for m in members
    ]
    return pemand(home, personas, TRIPS, SETTINGS, " ".join(shared), 0, (0, key, "trips", 1, 0))


def measure(model: Model, keys: range, at_once: bool) -> Measured:
    counted = Counted(model)
    started, worked = time.perf_counter(), time.process_time()
    groups = [list(keys)] if at_once else [[key] for key in keys]
    decisions = [d for group in groups for d in converse([talk(key) for key in group], counted)]
    return Measured(
        len(keys),
        sum(d.value is None for d in decisions),
        time.perf_counter() - started,
        time.process_time() - worked,
        counted.calls,
        counted.read,
        counted.written,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="as in pemand run: vllm:FOLDER, embedded")
    parser.add_argument("--households", type=int, default=64, help="how many at once")
    parser.add_argument("--sequential", type=int, default=8, help="how many one after another")
    parser.add_argument("--workers", type=int, help="as in pemand run")
    parser.add_argument("--base-url", help="as in pemand run")
    chosen = parser.parse_args()
    model = open_model(chosen.model, base_url=chosen.base_url, workers=chosen.workers)
    many, few = chosen.households, chosen.sequential
    measure(model, range(1000, 1001), at_once=True)
    print(model.identity)
    threads = os.environ.get("OMP_NUM_THREADS", "not set")
    print(f"{os.cpu_count()} cores, OMP_NUM_THREADS={threads}, {load()} before", flush=True)
    single = measure(CallAfterCall(model), range(2000, 2000 + few), at_once=False)
    print(f"call after call   {single}; {load()}", flush=True)
    alone = measure(model, range(3000, 3000 + few), at_once=False)
    print(f"one after another {alone}; {load()}", flush=True)
    together = measure(model, range(many), at_once=True)
    print(f"all at once       {together}; {load()}")
    for name, slow in (("call after call", single), ("one after another", alone)):
        by_clock = together.a_minute / slow.a_minute
        work = [m.processor_seconds / m.households for m in (slow, together)]
        print(f"all at once over {name:17} {by_clock:6.2f}, by work {work[0] / work[1]:6.2f}")


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    main()
