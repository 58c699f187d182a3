"""How replicas on a cluster scale, what they add to a request, and whether a kill loses anything.

    python benchmarks/cluster.py

Three measures on a local Ray cluster, each against its peer in the same run; the program ends with
1 where one is missed. The backend is `sleeper`, a plug-in that this file installs for itself: it
answers as the scripted model does, one request after another, each after 50 ms of sleep. So the
replicas of a machine of two cores are as many as their number, and what is measured is the
cluster's own cost.

- Scaling: requests by 1, 2, 4 and 8 replicas; throughput at least 0.9 x N of one replica's.
- Latency: one request at a time through a cluster, and to the backend directly; the difference of
  the medians under 3 ms. A bare call of a Ray actor beside it says what Ray alone takes.
- Kills: whole runs of `pemand run`; kill -9 of one replica, of two, and of the driver, when a third
  of the replies is in the journal. Each must end (the driver's: when it is run again) with the
  decisions and the journalled requests of an undisturbed run, each journalled once.

Beside them, without a pass mark: how many replies a second the driver takes in when the backend
does not sleep, which is where more replicas stop to help.
"""

import argparse
import contextlib
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import yaml

from pemand_abm.dialogue import Reply, Request
from pemand_abm.models import open_model
from pemand_abm.models.scripted import Scripted

ROOT = Path(__file__).resolve().parents[1]
LEAST_SHARE = 0.9
MOST_ADDED_MS = 3.0
SLEEP_MS = 50.0
PIDS = "PEMAND_SLEEPER_PIDS"
TABLES = ("decisions.parquet", "events.parquet", "demand.csv", "transcripts.jsonl")


class Sleeper:
    """The scripted model after a sleep of so many milliseconds; it says which process it is."""

    def __init__(self, milliseconds: float) -> None:
        self.seconds = milliseconds / 1000
        self.identity = {"model": "sleeper", "version": Scripted.identity["version"]}
        self.scripted = Scripted()

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        if folder := os.environ.get(PIDS):
            (Path(folder) / str(os.getpid())).touch()
        for position, request in enumerate(requests):
            time.sleep(self.seconds)
            for _, reply in self.scripted.complete([request]):
                yield position, reply


def open_sleeper(*, model, base_url, workers, exact):
    return Sleeper(float(model or SLEEP_MS))


open_sleeper.local = True


def install(folder: Path) -> None:
    """Install this file as a plug-in, for this process and those that it starts."""
    made = folder / "pemand_sleeper-0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: pemand-sleeper\nVersion: 0\n")
    (made / "entry_points.txt").write_text("[pemand_abm.models]\nsleeper = cluster:open_sleeper\n")
    places = [str(folder), str(Path(__file__).parent), str(ROOT)]
    sys.path[:0] = places
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, *([before] if before else [])])


def ask(number: int) -> Request:
    """Return one of a household's requests; five have the same household."""
    home = f"Your household: We are {number // 5} people at home, and this is a line of facts."
    return Request(
        "You speak for yourself.", f"{home}\nYou are member {number % 5}.", number, ("bench",)
    )


@contextlib.contextmanager
def replicas(count: int, milliseconds: float) -> Iterator:
    """Give a started cluster of sleepers."""
    model = open_model(f"sleeper:{milliseconds:g}", replicas=count)
    try:
        # All have started before the clock does.
        while model.ready < count:
            list(model.complete([ask(n) for n in range(count)]))
        yield model
    finally:
        model.close()


def scaling(requests: int, counts: Sequence[int]) -> list[str]:
    print(f"\n{requests} requests a replica, {SLEEP_MS:g} ms each")
    print(f"{'replicas':>8} {'seconds':>8} {'a second':>9} {'of one':>7} {'share of N':>10}")
    one, faults = None, []
    for count in counts:
        with replicas(count, SLEEP_MS) as model:
            asked = [ask(n) for n in range(requests * count)]
            started = time.perf_counter()
            answered = sorted(position for position, _ in model.complete(asked))
            seconds = time.perf_counter() - started
        if answered != list(range(len(asked))):
            faults.append(f"{count} replicas did not answer each request once")
        pace = len(asked) / seconds
        one = one or pace
        share = pace / one / count
        print(f"{count:8} {seconds:8.2f} {pace:9.1f} {pace / one:7.2f} {share:10.3f}", flush=True)
        if share < LEAST_SHARE:
            faults.append(f"{count} replicas have {share:.3f} of {count} times one's throughput")
    return faults


class Bare:
    """An actor without anything of ours: what a call of Ray itself takes on this machine."""

    def call(self, request: Request) -> Request:
        time.sleep(SLEEP_MS / 1000)
        return request


def latency(requests: int) -> list[str]:
    import ray

    alone = Sleeper(SLEEP_MS)
    with replicas(2, SLEEP_MS) as model:
        bare = ray.remote(Bare).options(num_cpus=0).remote()
        asks = {
            "directly": lambda request: list(alone.complete([request])),
            "by a bare Ray call": lambda request: ray.get(bare.call.remote(request)),
            "through two replicas": lambda request: list(model.complete([request])),
        }
        took: dict[str, list[float]] = {name: [] for name in asks}
        for block in range(3):  # In turns, so that what else the machine does befalls all.
            for name, put in asks.items():
                for number in range(requests // 3):
                    request = ask(block * requests + number)
                    started = time.perf_counter()
                    put(request)
                    took[name].append(1000 * (time.perf_counter() - started))
    median = {name: statistics.median(times) for name, times in took.items()}
    print("\none request at a time, milliseconds at the median: ", end="")
    print(", ".join(f"{name} {ms:.2f}" for name, ms in median.items()), flush=True)
    added = median["through two replicas"] - median["directly"]
    by_ray = median["by a bare Ray call"] - median["directly"]
    print(f"added {added:.2f} ms; Ray alone adds {by_ray:.2f}", flush=True)
    return [f"a request takes {added:.2f} ms more"] if added >= MOST_ADDED_MS else []


def intake(requests: int) -> None:
    with replicas(2, 0) as model:
        started = time.perf_counter()
        list(model.complete([ask(n) for n in range(requests)]))
        pace = requests / (time.perf_counter() - started)
    print(f"\nwithout sleep two replicas give the driver {pace:,.0f} replies a second", flush=True)


class Run:
    """One `pemand run` in a process of its own."""

    def __init__(self, folder: Path, scenario: Path, name: str) -> None:
        self.out, self.pids = folder / name, folder / f"{name}-pids"
        self.command = [sys.executable, "-m", "pemand_abm", "run", str(scenario)]
        self.command += ["--out", str(self.out)]
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        # A new folder a start: a driver's kill leaves pids of replicas that are gone.
        self.pids = self.pids.with_name(self.pids.name + "+")
        self.pids.mkdir()
        self.process = subprocess.Popen(
            self.command,
            env=os.environ | {PIDS: str(self.pids)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> int:
        _, said = self.process.communicate(timeout=300)
        if self.process.returncode:
            print(said[-2000:])
        return self.process.returncode

    def journal(self) -> list[str]:
        """Return the journal's keys, as they stand, each time that they stand."""
        path = self.out / "journal.sqlite"
        if not path.is_file():
            return []
        try:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
                return [row[0] for row in file.execute("SELECT key FROM replies")]
        except sqlite3.OperationalError:  # It is just being made.
            return []

    def wait_for(self, replies: int) -> None:
        while self.process.poll() is None and len(self.journal()) < replies:
            time.sleep(0.01)
        if self.process.poll() is not None:
            raise SystemExit(f"the run ended before {replies} replies:\n{self.end()}")

    def manifest(self) -> dict:
        return yaml.safe_load((self.out / "run.yaml").read_text())


def kills(folder: Path, count: int, households: int) -> list[str]:
    scenario = folder / "kill.yaml"
    given = {
        "title": "Kills",
        "region": str(ROOT / "synthpop/sf25"),
        "rates": str(ROOT / "synthpop/rates"),
        "model": {"use": f"sleeper:{SLEEP_MS:g}", "replicas": count},
        "negotiate": {"trips": households, "relocation": 0},
        "talks": {"max_rounds": 2},
    }
    scenario.write_text(yaml.safe_dump(given))
    calm = Run(folder, scenario, "undisturbed")
    calm.start()
    faults = ["the undisturbed run failed"] if calm.end() else []
    whole = calm.journal()
    print(f"\nkill -9 of what answers {len(whole)} calls by {count} replicas, at a third of them")
    for victims in ("one replica", "two replicas", "the driver"):
        run = Run(folder, scenario, victims.replace(" ", "-"))
        run.start()
        run.wait_for(len(whole) // 3)
        if victims == "the driver":
            os.kill(run.process.pid, signal.SIGKILL)
            run.process.communicate()
            before = len(run.journal())
            run.start()
        else:
            alive = sorted(int(path.name) for path in run.pids.iterdir())
            for pid in alive[: 1 if victims == "one replica" else 2]:
                os.kill(pid, signal.SIGKILL)
            before = len(run.journal())
        code = run.end()
        own = [f"exit code {code}"] if code else differences(run, calm, whole)
        if not code and victims != "the driver":
            lost = [n for n in run.manifest()["notes"] if n.startswith("Replicas that were lost")]
            print("   ", *lost or ["no replica was lost"])
            own += [] if lost else ["the kill was not noticed, so nothing was tested"]
        verdict = "PASS" if not own else "FAIL: " + "; ".join(own)
        print(f"  {victims}, killed with {before} replies kept: {verdict}", flush=True)
        faults += [f"{victims}: {fault}" for fault in own]
    return faults


def differences(run: Run, calm: Run, whole: list[str]) -> list[str]:
    """Return in what a run that was disturbed differs from the one that was not."""
    found, held = [], run.journal()
    if len(held) != len(set(held)):
        found.append("a call is journalled twice")
    if set(held) != set(whole):
        found.append(f"{len(set(held) ^ set(whole))} calls are journalled in one run only")
    for name in TABLES:
        if (run.out / name).read_bytes() != (calm.out / name).read_bytes():
            found.append(f"{name} differs")
    if run.manifest()["calls"] != calm.manifest()["calls"]:
        found.append("the budget counts other calls")
    decided = pd.read_parquet(run.out / "decisions.parquet")
    if not decided["negotiated"].notna().any():
        found.append("nobody decided anything")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=60, help="of a replica, when it scales")
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--households", type=int, default=20, help="that talk in the kill test")
    parser.add_argument("--kill-replicas", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install(folder)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before, ray {version('ray')}")
        faults = scaling(chosen.requests, chosen.replicas)
        faults += latency(2 * chosen.requests)
        intake(2000)
        faults += kills(folder, chosen.kill_replicas, chosen.households)
    print("\n" + ("PASS" if not faults else "FAIL\n" + "\n".join(faults)))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
