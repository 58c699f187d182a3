"""Time and memory of a whole run at 10,000, 100,000 and a million households.

    python benchmarks/scale.py [HOUSEHOLDS ...]

The region is sf25 with all its households, dwellings and jobs multiplied; 2,000 households
negotiate with the scripted model. Each run is a process of its own. Time is stated per household
against the first run's, and against what a million may take: 10 minutes and 6 GB.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import yaml

ROOT = Path(__file__).resolve().parents[1]
SIZES = (10_000, 100_000, 1_000_000)
MINUTES, GIGABYTES = 10, 6
# What is multiplied in land_use.csv besides all that is counted in households or persons.
AREAS = ("zone_id", "DISTRICT", "SD", "COUNTY", "district", "area_type", "TOPOLOGY", "TERMINAL")


def region(folder: Path, households: int) -> float:
    """Write sf25 with so many households into *folder*, and return the factor."""
    source = ROOT / "synthpop" / "sf25"
    shutil.copytree(source, folder)
    totals = pd.read_csv(source / "control_totals_zone.csv").set_index("zone")
    factor = households / totals["TOTHH"].sum()
    grown = totals.mul(factor)
    grown["TOTHH"] = grown["TOTHH"].round().astype("int64")
    grown.to_csv(folder / "control_totals_zone.csv")
    land = pd.read_csv(source / "land_use.csv")
    counted = [
        c for c in land if c not in AREAS and pd.api.types.is_numeric_dtype(land[c]) and not rate(c)
    ]
    land[counted] = land[counted].mul(factor)
    land["dwellings"] = land["dwellings"].round() + 1
    land.to_csv(folder / "land_use.csv", index=False)
    return factor


def rate(column: str) -> bool:
    """Return whether a column of the land use is no count: areas, prices, shares."""
    return bool(re.search(r"ACRE|CST|SHPOP|hhlds|^access|density", column))


def run(households: int, place: Path) -> dict[str, float]:
    """Run the study of so many households, and return its figures."""
    region(place / "region", households)
    scenario = {
        "title": f"{households:,} households",
        "region": "region",
        "rates": str(ROOT / "synthpop" / "rates"),
        "model": "scripted",
        "negotiate": {"trips": 1_500, "relocation": 500},
    }
    (place / "scenario.yaml").write_text(yaml.safe_dump(scenario), encoding="utf-8")
    command = [sys.executable, "-m", "pemand_abm", "run", str(place / "scenario.yaml")]
    command += ["--out", str(place / "out")]
    # A process that starts the run alone: its children's memory is this run's.
    measured = (
        "import resource, subprocess, sys; r = subprocess.run(sys.argv[1:], capture_output=True);"
        "sys.stderr.buffer.write(r.stderr if r.returncode else b'');"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(r.returncode)"
    )
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", measured, *command], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"the run of {households:,} households failed")
    manifest = yaml.safe_load((place / "out" / "run.yaml").read_text(encoding="utf-8"))
    held = sum((manifest.get("negotiations") or {}).values())
    return {"seconds": seconds, "gigabytes": int(done.stdout) * 1024 / 1e9, "negotiations": held}


def main() -> None:
    sizes = [int(a) for a in sys.argv[1:]] or list(SIZES)
    first = None
    print("households  negotiations  minutes  us/household  to the first  GB")
    over = False
    for households in sizes:
        with tempfile.TemporaryDirectory() as folder:
            found = run(households, Path(folder))
        each = found["seconds"] / households
        first = first or each
        print(
            f"{households:>10,}  {found['negotiations']:>12,.0f}  {found['seconds'] / 60:7.2f}"
            f"  {1e6 * each:12,.0f}  {each / first:12.2f}  {found['gigabytes']:4.2f}",
            flush=True,
        )
        over |= found["seconds"] > 60 * MINUTES or found["gigabytes"] > GIGABYTES
    if over:
        sys.exit(f"over {MINUTES} minutes or {GIGABYTES} GB")


if __name__ == "__main__":
    main()
