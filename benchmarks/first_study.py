"""Benchmarks in asv's form (`track_*` with a `unit`); `make bench` prints them all.

The desk is measured against its peer, the same talks without a clock, in the same run.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import simpy

from pemand_abm.desk import Desk
from pemand_abm.dialogue import converse
from pemand_abm.domains import TRIPS
from pemand_abm.models.scripted import Scripted
from pemand_abm.people import Household, Member, Persona
from pemand_abm.protocols.pemand import PemandSettings, pemand

ROOT = Path(__file__).resolve().parents[1]
TALKS = 1_000


def _talks():
    facts = ("I am 40 years old.",)
    members = tuple(Member(n, f"member {n}", 40, True, facts, True) for n in (1, 2))
    personas = [Persona(m, facts[0], "I like walking.", False, 3) for m in members]
    settings = PemandSettings(max_rounds=3, moderator="checks")
    for key in range(TALKS):
        home = Household(key, 1, 2, 1, "rent", 40, facts, members)
        yield pemand(home, personas, TRIPS, settings, facts[0], 0, (0, key, "trips", 1, 0))


def _without_clock() -> float:
    talks, started = list(_talks()), time.perf_counter()
    converse(talks, Scripted())
    return time.perf_counter() - started


def _in_the_calendar() -> float:
    env = simpy.Environment()
    desk = Desk(env, Scripted(), in_flight=TALKS)
    for talk in _talks():
        env.process(desk.hold(talk, 100))
    started = time.perf_counter()
    env.run()
    return time.perf_counter() - started


def track_talks_in_the_calendar_over_talks_without_a_clock():
    """Return the time of the desk over that of its peer: 1 is no overhead."""
    pairs = [(_in_the_calendar(), _without_clock()) for _ in range(3)]
    return min(a for a, _ in pairs) / min(b for _, b in pairs)


track_talks_in_the_calendar_over_talks_without_a_clock.unit = "ratio"


def track_first_study_scripted_share_of_a_minute():
    """Return the wall time of the whole scripted run over the minute that it may take."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pemand_abm", "run", "scenarios/baseline.yaml"]
        started = time.perf_counter()
        subprocess.run(
            [*command, "--model", "scripted", "--out", folder],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        return (time.perf_counter() - started) / 60


track_first_study_scripted_share_of_a_minute.unit = "of 60 s"


def track_first_study_scripted_memory_share():
    """Return the largest memory of the runs so far over the 1.5 GB that they may take."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1.5e9


track_first_study_scripted_memory_share.unit = "of 1.5 GB"


if __name__ == "__main__":
    for name, track in list(globals().items()):
        if name.startswith("track_"):
            print(f"{track():8.3f} {track.unit:10} {name[6:].replace('_', ' ')}", flush=True)
