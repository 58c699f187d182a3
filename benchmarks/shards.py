"""Memory of the process that writes a population: whole, in blocks, and with workers.

    python benchmarks/shards.py [HOUSEHOLDS ...] [--workers 2]

The region is sf25 with all its households multiplied; everybody's trips of a weekday are drawn,
too. *Whole* makes the population and the trips in memory, and then writes them; the other two are
`pemand synthesize --trips`, in one process and with workers. Each is a process of its own whose own
largest memory is told, without that of its workers. The files must be the same.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scale import ROOT, region

SIZES = (250_000, 1_000_000, 4_000_000)
RATES = ROOT / "synthpop" / "rates"
WHOLE = """
from pathlib import Path
from pemand_abm.calibration import read_calibration
from pemand_abm.region import read_region
from pemand_abm.shards import trips_table
from pemand_abm.study import TRAVEL_DAY, day_of
from pemand_abm.surrogate import read_rates
from pemand_abm.synthesis import synthesize, write_population
from pemand_abm.tables import write_parquet
known, rates = read_region(Path({region!r}), skims=False), read_rates(Path({rates!r}))
made = synthesize(known, 0)
write_population(made, Path({out!r}))
drawn = day_of(made.households, rates, read_calibration(Path({region!r})), 0, TRAVEL_DAY)
write_parquet(trips_table(*drawn), Path({out!r}) / "trips.parquet")
"""
SHARDS = """
from pemand_abm.cli import main
arguments = ["synthesize", {region!r}, "--trips", {rates!r}, "--out", {out!r}, *{options!r}]
main(arguments, standalone_mode=False)
"""
MEASURED = """
import resource
print("kilobytes", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
SAME = ("households.parquet", "persons.parquet", "trips.parquet", "fit.csv")


def measured(code: str, place: Path, out: str, options: list[str]) -> tuple[float, float]:
    """Run *code* in a process of its own, and return its seconds and gigabytes."""
    told = {"region": str(place / "region"), "rates": str(RATES), "out": str(place / out)}
    (place / out).mkdir()
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code.format(**told, options=options) + MEASURED],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return time.perf_counter() - started, int(done.stdout.split()[-1]) * 1024 / 1e9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("households", type=int, nargs="*", default=SIZES)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    spread = ["--workers", str(given.workers)]
    ways = {"whole": (WHOLE, []), "blocks": (SHARDS, []), "workers": (SHARDS, spread)}
    print("households  way      GB of the driver  to the whole  seconds  to the whole", flush=True)
    for households in given.households:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            region(place / "region", households)
            first = None
            for way, (code, options) in ways.items():
                seconds, gigabytes = measured(code, place, way, options)
                first = first or (seconds, gigabytes)
                print(
                    f"{households:>10,}  {way:<7}  {gigabytes:16.2f}  {gigabytes / first[1]:12.2f}"
                    f"  {seconds:7.1f}  {seconds / first[0]:12.2f}",
                    flush=True,
                )
                for name in SAME:
                    if (place / way / name).read_bytes() != (place / "whole" / name).read_bytes():
                        sys.exit(f"{name} of {way} is not that of the whole")


if __name__ == "__main__":
    main()
