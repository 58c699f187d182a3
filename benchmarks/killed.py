"""A run that is killed five times (SIGKILL) at random moments, and then finished.

    python benchmarks/killed.py [--model scripted] [--seed 0]

Its tables, matrices and map must have the bytes of an undisturbed run, and its journal the same
calls, each once. That is promised for the scripted model and for the embedded one in exact mode
(the default here, about twice an undisturbed run's time). A moment is uniform over what the run
would still take by the undisturbed run's time and what the journal holds. Ends with 1 if anything
differs, and if fewer than five kills came before the run had ended.
"""

import argparse
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import yaml

from pemand_abm import keys

ROOT = Path(__file__).resolve().parents[1]
KILLS = 5
TIMES = {"run", "report", "journal"}  # The names of files that hold times.


def calls(out: Path) -> list[tuple[str, ...]]:
    """Return the rows of a run's journal, without the order in which they came."""
    # Only to read: else this would fold the -wal file in, which is for the next run to do.
    address = (out / "journal.sqlite").as_uri() + "?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as file:
            rows = file.execute("SELECT key, model, request, reply, label FROM replies")
            return sorted(rows.fetchall())
    except sqlite3.OperationalError:  # There is none yet.
        return []


def contents(out: Path) -> dict[str, bytes]:
    files = (p for p in out.iterdir() if p.is_file() and p.name.partition(".")[0] not in TIMES)
    return {p.name: p.read_bytes() for p in files}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenario", type=Path, default=ROOT / "scenarios" / "baseline.yaml")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    given = parser.parse_args()
    command = [sys.executable, "-m", "pemand_abm", "run", str(given.scenario)]
    command += ["--model", given.model, "--out"]
    with tempfile.TemporaryDirectory() as folder:
        whole, out = Path(folder) / "whole", Path(folder) / "out"
        started = time.perf_counter()
        subprocess.run([*command, str(whole)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        taken = time.perf_counter() - started
        talks = yaml.safe_load((whole / "run.yaml").read_text())["wall_seconds"]["negotiations"]
        total = len(calls(whole))
        print(f"undisturbed: {taken:.1f} s, {talks:.1f} of them talks; {total} calls")
        print("kill  after s  calls kept  whole run there")
        killed = 0
        for kill in range(2 * KILLS):
            left = taken - talks + talks * (1 - len(calls(out)) / total)
            moment = left * keys.uniform(given.seed, "killed", kill)
            process = subprocess.Popen(
                [*command, str(out)],
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                process.wait(moment)
                print(f"   -  {moment:7.1f}  the run had ended", flush=True)
                continue
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            killed += 1
            there = "yes" if (out / "run.yaml").exists() else "no"
            print(f"{killed:4}  {moment:7.1f}  {len(calls(out)):10}  {there}", flush=True)
            if killed == KILLS:
                break
        subprocess.run([*command, str(out)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        one, other = contents(whole), contents(out)
        differ = sorted(n for n in one.keys() | other.keys() if one.get(n) != other.get(n))
        print(f"{len(one)} files compared, different: {', '.join(differ) or 'none'}")
        same = calls(out) == calls(whole)
        print(f"journal: {len(calls(out))} calls, {'the same' if same else 'NOT the same'}")
    if differ or not same or killed < KILLS:
        sys.exit(1)


if __name__ == "__main__":
    main()
