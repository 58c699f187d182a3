"""How the synthesis scales: the Bay Area's 1,454 zones, and fewer of them, in one run.

    python benchmarks/synthesis_bayarea.py [--data ../shared/data/mtc] [--zones 25,250,1454]

A test of scale, not of fit: the only seed at hand is San Francisco's, so all zones draw from it,
with zone controls alone and without a bound on expansion. Each size is a process of its own;
seconds and memory are those of the whole process, which writes no files.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

from pemand_abm.synthesis import Frame, fit_summary, solve

ROOT = Path(__file__).resolve().parents[1]
MTC = ROOT.parent / "shared" / "data" / "mtc"
UNBOUNDED = 1e9
YEAR = "2023/TAZ1454 2023 Popsim Vars.csv"
CONTROLS = {
    "TOTHH": "households.weight > 0",
    "hh_own": "households.own == 1",
    "hh_rent": "households.own == 0",
    "hh_size_1": "households.PERSONS == 1",
    "hh_size_2": "households.PERSONS == 2",
    "hh_size_3": "households.PERSONS == 3",
    "hh_size_4_plus": "households.PERSONS >= 4",
    "hh_wrks_0": "households.workers == 0",
    "hh_wrks_1": "households.workers == 1",
    "hh_wrks_2": "households.workers == 2",
    "hh_wrks_3_plus": "households.workers >= 3",
    "HHINCQ1": "households.income < 30000",
    "HHINCQ2": "(households.income >= 30000) & (households.income < 60000)",
    "HHINCQ3": "(households.income >= 60000) & (households.income < 100000)",
    "HHINCQ4": "households.income >= 100000",
    "AGE0004": "persons.age < 5",
    "AGE0519": "(persons.age >= 5) & (persons.age < 20)",
    "AGE2044": "(persons.age >= 20) & (persons.age < 45)",
    "AGE4564": "(persons.age >= 45) & (persons.age < 65)",
    "AGE65P": "persons.age >= 65",
}


def frame_of(data: Path, zones: int) -> tuple[Frame, pd.DataFrame, pd.DataFrame]:
    """Return the first *zones* zones' controls, and San Francisco's seed."""
    totals = pd.read_csv(data / YEAR).rename(columns=str.strip).set_index("TAZ").sort_index()
    totals = totals[list(CONTROLS)].iloc[:zones]
    controls = pd.DataFrame(
        {
            "target": list(CONTROLS),
            "geography": "TAZ",
            "seed_table": [e.strip("(").split(".")[0] for e in CONTROLS.values()],
            "importance": [1e9, *[1000.0] * (len(CONTROLS) - 1)],
            "control_field": list(CONTROLS),
            "expression": list(CONTROLS.values()),
        }
    )
    homes = pd.read_csv(data / "households.csv")
    homes = homes[homes["UNITTYPE"] == 0].drop_duplicates("SERIALNO")
    people = pd.read_csv(data / "persons.csv")
    people = people.rename(columns={"household_id": "HHID"})
    people = people[people["HHID"].isin(homes["HHID"])]
    homes = homes.set_index("HHID").assign(weight=1.0, own=lambda t: (t["TENURE"] <= 2) * 1)
    frame = Frame(
        totals.index,
        ("TAZ",),
        pd.DataFrame(index=totals.index),
        {"TAZ": totals},
        controls,
        "TOTHH",
        {"TAZ": YEAR, "controls": "the benchmark", "seed": "households.csv"},
    )
    return frame, homes, people


def one(data: Path, zones: int) -> None:
    """Synthesize, and print what was made."""
    frame, homes, people = frame_of(data, zones)
    solution = solve(frame, homes, people, 0, UNBOUNDED)
    made = solution.counts.sum(axis=1)
    assert (made == frame.totals["TAZ"]["TOTHH"]).all()
    fit = fit_summary(solution.fit)
    off = 100 * (fit["absolute_percent"] * fit["control"]).sum() / fit["control"].sum() / 100
    print(f"{int(made.sum())} {off:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=MTC)
    parser.add_argument("--zones", default="25,250,1454")
    parser.add_argument("--one", type=int)
    given = parser.parse_args()
    if given.one:
        one(given.data, given.one)
        return
    print("zones  households  seconds  most GB  off %  ms a zone")
    for zones in map(int, given.zones.split(",")):
        command = [sys.executable, __file__, "--data", str(given.data), "--one", str(zones)]
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        said = process.stdout.read().split()
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        if status:
            raise SystemExit(f"{zones} zones failed")
        memory = used.ru_maxrss / 1e6
        print(
            f"{zones:5,} {int(said[0]):11,} {seconds:8.1f} {memory:8.2f} {said[1]:>6} "
            f"{1000 * seconds / zones:10.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
