"""Our synthesis beside PopulationSim's on the same folder: time, memory and fit, in one run.

    python benchmarks/synthesis_vs_populationsim.py [--data ../shared/data/calm] [--peer PYTHON]

The peer runs in an environment of its own (it pins numpy below 2): *PYTHON*'s, else one that is
made in build/populationsim by pip. Both are whole processes, one after the other, ours first; wall
seconds and the most memory that a process held are the operating system's. The fit of both is
computed here from who lives in which zone, by the same code: the total absolute difference as a
share of the controls, the root mean squared difference over the mean control, the mean absolute
percentage of the cells whose control is not 0, and the largest cell error.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm.populationsim import Project, read_project
from pemand_abm.synthesis import problem_of

ROOT = Path(__file__).resolve().parents[1]
CALM = ROOT.parent / "shared" / "data" / "calm"
PEER = "populationsim==0.10.*"


def peer_python(given: Path | None) -> Path:
    """Return the Python that has PopulationSim."""
    if given is not None:
        return given
    folder = ROOT / "build" / "populationsim"
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"making {folder} ({PEER})", flush=True)
        venv.create(folder, with_pip=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", PEER], check=True)
    return python


def measured(command: list[str], log: Path) -> tuple[float, float]:
    """Run a command to its end; give wall seconds and the most memory it held, GB."""
    started = time.perf_counter()
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        raise SystemExit(f"{' '.join(command)} failed; see {log}\n{log.read_text()[-2000:]}")
    return seconds, used.ru_maxrss / 1e6


def laid_out(data: Path, place: Path) -> Path:
    """Lay a flat folder out as PopulationSim wants it: configs, data, output."""
    for name in ("configs", "data", "output"):
        (place / name).mkdir(parents=True)
    configs, own = data / "configs", data / "data"
    for file in (configs if configs.is_dir() else data).iterdir():
        if file.suffix == ".yaml" or file.name == "controls.csv":
            shutil.copy(file, place / "configs")
    for file in (own if own.is_dir() else data).glob("*.csv"):
        shutil.copy(file, place / "data")
    return place


def fit_of(project: Project, zones: pd.Series, households: pd.Series) -> pd.DataFrame:
    """Return the measures by geography of a population: a zone and a seed household a row."""
    frame = project.frame
    _, controls = problem_of(frame, project.households, project.persons)
    counts = np.zeros((len(frame.zones), len(project.households)))
    np.add.at(
        counts,
        (frame.zones.get_indexer(zones), project.households.index.get_indexer(households)),
        1,
    )
    rows = {}
    for geography in frame.totals:
        wanted, found = [], []
        for control in (c for c in controls if c.geography == geography):
            areas = frame.totals[geography].index
            own = frame.zones if geography == frame.zone else frame.crosswalk[geography]
            code = areas.get_indexer(pd.Index(own))
            wanted.append(control.wanted)
            found.append(np.bincount(code, counts @ control.values, len(areas)))
        target, result = np.concatenate(wanted), np.concatenate(found)
        gap, some = result - target, target != 0
        rows[geography] = {
            "absolute %": 100 * np.abs(gap).sum() / target.sum(),
            "% RMSE": 100 * np.sqrt((gap**2).mean()) / target.mean(),
            "mean absolute %": 100 * (np.abs(gap[some]) / target[some]).mean(),
            "largest error": np.abs(gap).max(),
        }
    return pd.DataFrame(rows).T


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=CALM)
    parser.add_argument("--peer", type=Path)
    given = parser.parse_args()
    peer = peer_python(given.peer)
    project = read_project(given.data)
    zone, key = project.frame.zone, project.settings.household_id_col
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        ours = [sys.executable, "-m", "pemand_abm", "synthesize", "--populationsim"]
        ours += [str(given.data), "--out", str(place / "ours")]
        own_seconds, own_memory = measured(ours, place / "ours.log")
        made = pd.read_parquet(place / "ours" / "households.parquet")
        own_fit = fit_of(project, made[zone], made[key])
        theirs = laid_out(given.data, place / "theirs")
        command = [str(peer.parent / "populationsim")]
        for name in ("configs", "data", "output"):
            command += [f"--{name}" if name == "output" else f"-{name[0]}", str(theirs / name)]
        seconds, memory = measured(command, place / "theirs.log")
        ids = pd.read_csv(theirs / "output" / "final_expanded_household_ids.csv")
        fit = fit_of(project, ids[zone], ids[key])
    table = pd.concat({"pemand-abm": own_fit, "PopulationSim": fit}, axis=1)
    print(table.swaplevel(axis=1).sort_index(axis=1, sort_remaining=False).round(3).to_string())
    print(
        f"households: {len(made):,} and {len(ids):,}\n"
        f"wall seconds: {own_seconds:.1f} and {seconds:.1f}, ratio {own_seconds / seconds:.3f}\n"
        f"most memory, GB: {own_memory:.2f} and {memory:.2f}, ratio {own_memory / memory:.2f}"
    )


if __name__ == "__main__":
    main()
