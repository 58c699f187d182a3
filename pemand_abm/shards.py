"""A population in shards: solved by coarse areas, written by blocks, on any worker.

No process holds the whole population. Coarse areas that share nothing are solved one by one; then
the tables are made block by block, and appended to their files in the order of the zones. Where
work is done, here or on a Ray cluster, changes no byte of a file: blocks are those of the region,
and all ids and draws follow from the zones' totals and the households' ids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pemand_abm.balancing import MOST_EXPANSION, Problem
from pemand_abm.calibration import Calibration
from pemand_abm.geography import points_in
from pemand_abm.region import Region
from pemand_abm.study import TRAVEL_DAY, day_of
from pemand_abm.surrogate import PURPOSES, Rates
from pemand_abm.synthesis import (
    FIT,
    Control,
    Population,
    Reached,
    Taken,
    check_population,
    fit_of,
    frame_of,
    problem_of,
    solve_part,
    tables_of,
    write_fit,
)
from pemand_abm.tables import appending, as_arrow, write_csv, write_parquet

BLOCK = 50_000
"""Households of a block, but for the last."""


class Work(Protocol):
    """Where functions are done: `Here`, or `models.machines.Workers`."""

    at_once: int

    def put(self, value: Any) -> Any:
        """Return what stands for a value that many calls are given."""

    def call(self, function: Callable, *given: Any, returns: int = 1) -> Any:
        """Return what stands for the result, or for each of several results."""

    def get(self, standing: Any) -> Any:
        """Return the result itself."""


class Here:
    """One function after the other, in this process."""

    at_once = 1

    def put(self, value: Any) -> Any:
        """Return the value."""
        return value

    def call(self, function: Callable, *given: Any, returns: int = 1) -> Any:
        """Return what the function returns."""
        del returns
        return function(*given)

    def get(self, standing: Any) -> Any:
        """Return the value."""
        return standing


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What every shard is given."""

    region: Region
    seed: int
    size: np.ndarray
    """Members of each of the seed's households."""
    problem: Problem | None
    controls: list[Control]
    points: bool
    rates: Rates | None
    calibration: Calibration | None


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A population that was written: how well it fits, and how many there are."""

    fit: pd.DataFrame
    copies: np.ndarray
    """How often each of the seed's households was taken."""
    households: int
    persons: int


def write_shards(
    region: Region,
    seed: int,
    out: Path,
    work: Work,
    points: bool = False,
    rates: Rates | None = None,
    calibration: Calibration | None = None,
    told: Callable[[int, int], None] = lambda done, of: None,
    block: int = BLOCK,
) -> Made:
    """Write a region's population into *out*, as `synthesis.write_population` writes it.

    Parameters
    ----------
    points : bool
        Give each household a random point of its zone (`geography.points_in`).
    rates, calibration : optional
        With them, everybody's trips of the travel day are drawn too, as in a run without levers:
        `trips.parquet`, and `trips_by_zone.csv`.
    told : callable
        Called with the households written, and those there will be.
    block : int
        `BLOCK`; it changes no file.

    Raises
    ------
    TableError
        As `synthesis.synthesize`.
    """
    # Skims are large, and nobody here asks how far away something is.
    region = replace(region, skims={})
    homes = region.seed_households
    of = homes.index.get_indexer(region.seed_persons["seed_id"])
    size = np.bincount(of, minlength=len(homes))
    problem: Problem | None = None
    controls: list[Control] = []
    if region.placed is None:
        problem, controls = problem_of(frame_of(region), homes, region.seed_persons)
    asked = Asked(region, seed, size, problem, controls, points, rates, calibration)
    standing = work.put(asked)
    shards, reached = _solved(asked, standing, work)
    copies = sum((part.copies for part in reached), np.zeros(len(homes), dtype="int64"))
    totals, persons = _by_zone(asked, reached)
    zones = []
    with ExitStack() as files:
        tables = {
            name: files.enter_context(appending(out / f"{name}.parquet", table.schema))
            for name, table in _shapes(asked).items()
        }
        for found, by_zone in _blocks(standing, work, shards, totals, block):
            found["persons"] = _numbered(found["persons"], tables["persons"].rows)
            for name, table in found.items():
                tables[name].add(table)
            zones.append(by_zone)
            told(tables["households"].rows, int(totals.sum()))
    write_parquet(
        region.group_quarters.rename("persons").rename_axis("zone_id").to_frame(),
        out / "group_quarters.parquet",
    )
    if rates is not None:
        counts = {"households": totals, "persons": persons}
        trips = pd.concat(zones).groupby(level=0).sum().reindex(region.zones.index, fill_value=0)
        write_csv(pd.DataFrame(counts, region.zones.index).join(trips), out / "trips_by_zone.csv")
    fit = pd.DataFrame(columns=FIT)
    if problem is not None:
        fit = fit_of(frame_of(region), controls, problem, reached)
    write_fit(fit, out)
    return Made(fit, copies, int(totals.sum()), int(persons.sum()))


def _numbered(persons: pa.Table, before: int) -> pa.Table:
    """Return a block's persons with their ids, where so many persons were before."""
    at = persons.schema.get_field_index("person_id")
    return persons.set_column(at, persons.field(at), pc.add(persons.column(at), before))


def _solved(
    asked: Asked, standing: Any, work: Work
) -> tuple[list[tuple[np.ndarray, Any]], list[Reached]]:
    """Return each part's zones with what stands for the households taken there, and the fit."""
    if asked.problem is None:
        taken, all_zones = _given(asked)
        return [(all_zones.zones, work.put(taken))], [all_zones]
    parts = asked.problem.parts()
    handed = [work.call(_solve, standing, zones, returns=2) for zones in parts]
    reached = [work.get(came) for _, came in handed]
    return [(zones, taken) for zones, (taken, _) in zip(parts, handed, strict=True)], reached


def _solve(asked: Asked, zones: np.ndarray) -> tuple[Taken, Reached]:
    assert asked.problem is not None
    return solve_part(asked.problem, asked.controls, zones, asked.size, asked.seed, MOST_EXPANSION)


def _given(asked: Asked) -> tuple[Taken, Reached]:
    """Return the households that a region brings as if they had been solved for."""
    places, count = asked.region.zones.index, len(asked.region.zones)
    at = places.get_indexer(asked.region.placed)
    kind = np.argsort(at, kind="stable")
    none = np.zeros((count, 0))
    ones = np.ones(len(at), dtype="int64")
    persons = np.bincount(at, asked.size, count).astype("int64")
    steps = np.zeros(count, dtype="int64")
    return (
        Taken(at[kind], kind, ones),
        Reached(np.arange(count), none, none, steps, persons, ones),
    )


def _by_zone(asked: Asked, reached: list[Reached]) -> tuple[np.ndarray, np.ndarray]:
    """Return each zone's households and persons."""
    persons = np.zeros(len(asked.region.zones), dtype="int64")
    for part in reached:
        persons[part.zones] = part.persons
    if asked.problem is not None:
        return asked.problem.totals, persons
    at = asked.region.zones.index.get_indexer(asked.region.placed)
    return np.bincount(at, minlength=len(persons)), persons


def _blocks(
    standing: Any,
    work: Work,
    shards: list[tuple[np.ndarray, Any]],
    totals: np.ndarray,
    block: int,
) -> Iterator[tuple[dict[str, pa.Table], pd.DataFrame]]:
    """Yield the blocks in the order of the zones; few more than are worked on are ever there."""
    ends = np.cumsum(totals)
    ahead: deque[Any] = deque()
    for start in range(0, max(int(ends[-1]), 1), block):
        stop = min(start + block, int(ends[-1]))
        zones = np.arange(np.searchsorted(ends, start, "right"), np.searchsorted(ends, stop) + 1)
        zones = zones[zones < len(totals)]
        before = ends[zones] - totals[zones]
        own = [taken for held, taken in shards if np.isin(held, zones).any()]
        counts = np.minimum(ends[zones], stop) - np.maximum(before, start)
        skipped = start - int(before[0]) if len(zones) else 0
        # Two results, since what is kept of one would keep both in the workers' store.
        given = (standing, zones, counts, skipped, start + 1, *own)
        ahead.append(work.call(_block, *given, returns=2))
        if len(ahead) >= 2 * work.at_once - 1:
            yield tuple(map(work.get, ahead.popleft()))
    while ahead:
        yield tuple(map(work.get, ahead.popleft()))


def _block(
    asked: Asked, zones: np.ndarray, counts: np.ndarray, skipped: int, first: int, *parts: Taken
) -> tuple[dict[str, pa.Table], pd.DataFrame]:
    """Return tables of so many households of consecutive zones, and their trips by zone.

    *skipped* households of the first zone are another block's; *first* is the first one's id.
    Persons are numbered from 1, for nobody knows here how many were before.
    """
    held = [np.isin(part.zone, zones) for part in parts]

    def inside(field: str) -> np.ndarray:
        pieces = [getattr(p, field)[own] for p, own in zip(parts, held, strict=True)]
        return np.concatenate([*pieces, np.zeros(0, dtype="int64")])

    zone, kind, times = map(inside, ("zone", "kind", "times"))
    order = np.argsort(zone, kind="stable")
    mine = slice(skipped, skipped + int(counts.sum()))
    zone, kind = (np.repeat(a[order], times[order])[mine] for a in (zone, kind))
    tables = _tables(asked, zone, kind, first)
    homes = tables["households"]
    within = asked.region.zones.index[zones]
    nobody = pd.DataFrame(columns=["persons"], index=within)
    check_population(
        Population(homes, tables["persons"], nobody, nobody), pd.Series(counts, within)
    )
    trips = pd.DataFrame(index=within)
    if "trips" in tables:
        drawn = tables["trips"][["value", *PURPOSES]].rename(columns={"value": "trips"})
        trips = drawn.groupby(homes["home_zone_id"]).sum()
    return {name: as_arrow(table) for name, table in tables.items()}, trips


def _tables(
    asked: Asked, zone: np.ndarray, kind: np.ndarray, first: int = 1
) -> dict[str, pd.DataFrame]:
    region = asked.region
    homes, people = tables_of(region, region.seed_households, zone, kind, first)
    tables = {"households": homes, "persons": people}
    if asked.points:
        drawn = points_in(region.polygons, homes["home_zone_id"], asked.seed)
        tables["households"] = homes.join(drawn)
    if asked.rates is not None and asked.calibration is not None:
        tables["trips"] = trips_table(
            *day_of(homes, asked.rates, asked.calibration, asked.seed, TRAVEL_DAY)
        )
    return tables


def trips_table(expected: pd.DataFrame, trips: pd.DataFrame) -> pd.DataFrame:
    """Return drawn and expected trips by household, under the names of `decisions.parquet`."""
    columns = {
        "value": trips["trips"],
        **{p: trips[p] for p in PURPOSES},
        "expected": expected["mean"],
        **{f"expected_{p}": expected[p] for p in PURPOSES},
    }
    return pd.DataFrame(columns).rename_axis("household_id")


def _shapes(asked: Asked) -> Mapping[str, pa.Table]:
    """Return tables with the columns of the blocks', made of each seed household once."""
    kind = np.arange(len(asked.region.seed_households))
    made = _tables(asked, np.zeros(len(kind), dtype="int64"), kind)
    return {name: as_arrow(table) for name, table in made.items()}
