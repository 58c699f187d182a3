"""The synthetic population: seed households copied into zones until every zone meets its controls.

The region's tables become arrays here, `balancing` finds whole households for all zones at once,
and the arrays become tables again. Household totals are exact in every zone; whatever else is not
met stands in the fit table. Reading and checking the region's files is `region`'s work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm.balancing import (
    MOST_EXPANSION,
    NEWTON_STEPS,
    Problem,
    balance,
    linked,
    one_thread,
    round_weights,
)
from pemand_abm.errors import TableError, listed
from pemand_abm.expressions import incidence, table_of
from pemand_abm.ids import as_ids, some
from pemand_abm.region import Region
from pemand_abm.tables import write_csv, write_parquet

HOUSEHOLD_COLUMNS = (
    "hhsize", "num_workers", "auto_ownership", "income", "HHT", "tenure", "age_of_head", "children",
)  # fmt: skip
# A slip of the unit, not a region: the largest metropolis has fewer.
MOST_HOUSEHOLDS = 50_000_000
RELAXED = "relaxed: the other controls, the seed or the expansion limit do not allow it"


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """The synthesized households and persons of a region, and how well they meet the controls."""

    households: pd.DataFrame
    """Index `household_id` (int64, 1..N by zone, then seed); the columns of docs/design.md, then
    whatever else the seed has."""
    persons: pd.DataFrame
    """Index `person_id` (int64, 1..M); `household_id`, `PNUM` and the seed's person columns."""
    group_quarters: pd.DataFrame
    """Index `zone_id`, column `persons`: people outside households, none of them in `persons`."""
    fit: pd.DataFrame
    """A row for each `geography`, `zone` and `target`, in the order of the controls: `control`
    (wanted), `balanced`, `result`, `difference` (result - control) and `note`."""


@dataclass(frozen=True, slots=True, eq=False)
class Control:
    """One control: what each seed household adds (n,), and what each area of a geography wants."""

    target: str
    geography: str
    importance: float
    values: np.ndarray
    wanted: np.ndarray

    def is_of(self, target: str, geography: str) -> bool:
        return self.target == target and self.geography == geography


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """What a population is asked to meet, whatever files said so.

    `geographies` are from coarse to fine, the last one the zone; `crosswalk` (index `zones`) has
    the others as columns, `totals` the control totals by geography. `files` names where the totals
    of each geography, the `controls` and the `seed` came from, for messages. With `drawn_from` a
    zone takes only seed households of its own area of that geography, a column of the seed.
    """

    zones: pd.Index
    geographies: tuple[str, ...]
    crosswalk: pd.DataFrame
    totals: Mapping[str, pd.DataFrame]
    controls: pd.DataFrame
    household_total: str
    files: Mapping[str, str]
    drawn_from: str = ""

    @property
    def zone(self) -> str:
        return self.geographies[-1]


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """Whole households: how often a zone (row) takes a seed household (column), and the fit."""

    counts: np.ndarray
    fit: pd.DataFrame


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """Which seed households some zones take, how often: an entry for each pair that is there."""

    zone: np.ndarray
    """Places of zones in the frame, ascending."""
    kind: np.ndarray
    """Places of households in the seed, ascending within a zone."""
    times: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Reached:
    """What some zones came to: a row for each of them, a column for each control."""

    zones: np.ndarray
    """Places in the frame."""
    balanced: np.ndarray
    result: np.ndarray
    steps: np.ndarray
    """Of the balancing, by zone."""
    persons: np.ndarray
    """Members of the households, by zone."""
    copies: np.ndarray
    """How often each of the seed's households was taken, by all these zones."""


def solve(
    frame: Frame,
    households: pd.DataFrame,
    persons: pd.DataFrame,
    seed: int,
    most: float = MOST_EXPANSION,
) -> Solution:
    """Balance and round the seed's households to the frame's controls.

    *households*: index of the seed's id, `weight`. *persons*: the same id as a column. *most*:
    how many times the mean expansion of its area no household may exceed. Raises TableError as
    `synthesize`.
    """
    problem, controls = problem_of(frame, households, persons)
    size = np.zeros(len(households))
    parts = [solve_part(problem, controls, z, size, seed, most) for z in problem.parts()]
    counts = np.zeros((len(frame.zones), len(households)), dtype="int64")
    for taken, _ in parts:
        counts[taken.zone, taken.kind] = taken.times
    return Solution(counts, fit_of(frame, controls, problem, [reached for _, reached in parts]))


@one_thread
def solve_part(
    problem: Problem,
    controls: list[Control],
    zones: np.ndarray,
    size: np.ndarray,
    seed: int,
    most: float = MOST_EXPANSION,
) -> tuple[Taken, Reached]:
    """Solve one part of a problem (`balancing.Problem.parts`), which no other part depends on.

    *size* (n,) are the members of each of the seed's households.
    """
    own, kinds = problem.part(zones)
    weights, steps = balance(own, most)
    counts = round_weights(own, weights, seed)
    values = np.column_stack([c.values[kinds] for c in controls])
    zone, kind = np.nonzero(counts)
    taken = Taken(zones[zone], kinds[kind], counts[zone, kind])
    reached = Reached(
        zones,
        weights @ values,
        counts @ values,
        steps,
        (counts @ size[kinds]).astype("int64"),
        np.bincount(kinds, counts.sum(axis=0), len(problem.base)).astype("int64"),
    )
    return taken, reached


def problem_of(
    frame: Frame, households: pd.DataFrame, persons: pd.DataFrame
) -> tuple[Problem, list[Control]]:
    """Return the frame's controls over this seed as arrays."""
    households = _weighted(frame, households)
    controls = _controls(frame, households, persons)
    return _problem(frame, households, controls), controls


def frame_of(region: Region) -> Frame:
    """Return what a region asks for."""
    recipe = region.recipe
    return Frame(
        region.zones.index,
        tuple(recipe.geographies),
        region.crosswalk.reindex(region.zones.index),
        region.totals,
        region.controls,
        recipe.household_total,
        {**recipe.totals, "controls": recipe.controls, "seed": recipe.sources.households},
    )


def synthesize(region: Region, seed: int, workers: int = 1) -> Population:
    """Synthesize the households and persons of a region.

    A zone's draw has its own key, so without coarser controls a zone's households do not depend on
    other zones. The work is a few matrix products, done in this process whatever *workers* says:
    more of them would cost more than they save.

    Raises
    ------
    TableError
        Household totals that are no whole numbers, controls or expressions that cannot be read, a
        seed without weight. Controls that contradict each other or ask for what the seed lacks are
        no errors: they are met as nearly as can be, and noted.
    """
    del workers
    if region.placed is not None:
        return _given(region, region.placed)
    frame, households = frame_of(region), region.seed_households
    solution = solve(frame, households, region.seed_persons, seed)
    population = Population(
        *_expand(region, households, solution.counts),
        region.group_quarters.rename("persons").rename_axis("zone_id").to_frame(),
        solution.fit,
    )
    wanted = solution.fit.query("geography == @frame.zone and target == @frame.household_total")
    totals = wanted.set_index("zone")["control"].reindex(region.zones.index)
    check_population(population, totals)
    return population


FIT = ["geography", "zone", "target", "control", "balanced", "result", "difference", "note"]
FIT_SUMMARY = [
    "control", "result", "mean_percent_difference", "percent_rmse", "absolute_percent",
    "largest_error", "cells", "n",
]  # fmt: skip


def _given(region: Region, placed: pd.Series) -> Population:
    """Return the population that a region brings, numbered as one of our own."""
    at = region.zones.index.get_indexer(placed)
    kind = np.argsort(at, kind="stable")
    population = Population(
        *tables_of(region, region.seed_households, at[kind], kind),
        region.group_quarters.rename("persons").rename_axis("zone_id").to_frame(),
        pd.DataFrame(columns=FIT),
    )
    totals = placed.value_counts().reindex(region.zones.index, fill_value=0)
    check_population(population, totals)
    return population


# Reading the controls into arrays.


def _weighted(frame: Frame, households: pd.DataFrame) -> pd.DataFrame:
    """Return the seed's households with their weights; a seed without weights counts each once."""
    if "weight" not in households:
        return households.assign(weight=1.0)
    weight = pd.to_numeric(households["weight"], errors="coerce").to_numpy("float64")
    bad = households.index[~(np.isfinite(weight) & (weight >= 0))]
    if len(bad):
        said = (
            f"column weight: {len(bad)} are not numbers of 0 or more, first at seed_id {some(bad)}"
        )
        raise TableError(f"{frame.files['seed']}: {said}")
    if not weight.sum() > 0:
        raise TableError(f"{frame.files['seed']}: column weight: no household has a weight above 0")
    return households


def _controls(frame: Frame, households: pd.DataFrame, persons: pd.DataFrame) -> list[Control]:
    """Return the controls: the household total first, then the zones', then the coarser ones."""
    problems = []
    tables = {"households": households, "persons": persons}
    controls = []
    for row in frame.controls.itertuples():
        target, expression = str(row.target), str(row.expression)
        try:
            values = incidence(expression, tables, target).to_numpy()
        except TableError as fault:
            problems.append(fault.message)
            continue
        if (named := table_of(expression)) != row.seed_table:
            said = f"seed_table is {row.seed_table}, but its expression names {named}"
            problems.append(f"control {target}: {said}; make them agree")
        column = frame.totals[row.geography][row.control_field]
        wanted = pd.to_numeric(column, errors="coerce").to_numpy("float64")
        if not np.isfinite(wanted).all():
            said = f"{frame.files[row.geography]}: column {row.control_field}"
            problems.append(f"control {target}: {said} has cells that are no numbers")
        # An importance of 0 asks for a report alone; the least positive one does that.
        importance = max(float(row.importance), 1e-6)
        controls.append(Control(target, row.geography, importance, values, wanted))
    totals = [c for c in controls if c.is_of(frame.household_total, frame.zone)]
    if not problems and len(totals) != 1:
        said = f"must hold the target {frame.household_total!r} once at geography {frame.zone!r}"
        problems.append(f"{said}, holds it {len(totals)} times")
    if problems:
        raise TableError(listed(problems, frame.files["controls"]))
    _check_totals(frame, totals[0], households)
    others = [c for c in controls if c is not totals[0]]
    return totals + sorted(others, key=lambda c: c.geography != frame.zone)


def _check_totals(frame: Frame, total: Control, households: pd.DataFrame) -> None:
    if not (total.values[households["weight"].to_numpy() > 0] == 1).all():
        said = f"control {total.target}: the household total must count every household once"
        counts = f"{said}; write the expression households.weight > 0"
        raise TableError(f"{frame.files['controls']}: {counts}")
    wanted = pd.Series(total.wanted, index=frame.totals[frame.zone].index)
    bad = wanted[(wanted % 1 != 0) | (wanted < 0)]
    if not len(bad) and wanted.sum() > MOST_HOUSEHOLDS:
        said = f"asks for {wanted.sum():,.0f} households, more than {MOST_HOUSEHOLDS:,}"
        raise TableError(
            f"{frame.files[frame.zone]}: control {total.target}: {said}; check its unit"
        )
    if len(bad):
        shown = "; ".join(f"zone {zone}: {value:g}" for zone, value in bad.head(3).items())
        said = f"{len(bad)} household totals are not whole numbers of 0 or more, first {shown}"
        raise TableError(f"{frame.files[frame.zone]}: control {total.target}: {said}; round them")


def _problem(frame: Frame, households: pd.DataFrame, controls: list[Control]) -> Problem:
    zones = frame.zones
    base = households["weight"].to_numpy("float64")
    codes = {g: _codes(frame, g) for g in frame.totals}
    total, *others = controls
    units = [_unit(c.values, base) for c in others]
    targets = [c.wanted / unit for c, unit in zip(others, units, strict=True)]
    starts = np.cumsum([0, *map(len, targets)])
    flat = np.concatenate([*targets, np.zeros(0)])
    importance = np.repeat([c.importance for c in others], np.diff(starts))
    values = [c.values / unit for c, unit in zip(others, units, strict=True)]
    cells = [start + codes[c.geography] for start, c in zip(starts, others, strict=False)]
    coarse = {c.geography for c in others} - {frame.zone}
    area, belongs = _drawn_from(frame, households)
    totals = total.wanted[codes[frame.zone]].astype("int64")
    _check_drawn(frame, area, belongs, base, totals)
    return Problem(
        zones=zones.tolist(),
        totals=totals,
        base=base,
        incidence=np.column_stack([*values, np.zeros((len(base), 0))]),
        fine=sum(c.geography == frame.zone for c in others),
        cells=np.column_stack([*cells, np.zeros((len(zones), 0))]).astype("int64"),
        targets=flat,
        slack=np.maximum(np.abs(flat), 1.0) / importance,
        area=area,
        linked=linked([codes[g] for g in frame.geographies if g in coarse], len(zones)),
        belongs=belongs,
    )


def _drawn_from(frame: Frame, households: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return each zone's area of the seed's geography, and each household's; -1: of every area."""
    if not frame.drawn_from:
        coarsest = frame.crosswalk.iloc[:, :1].to_numpy().ravel()
        area = pd.factorize(coarsest)[0] if len(coarsest) else np.zeros(len(frame.zones))
        return area.astype("int64"), np.full(len(households), -1)
    area, names = pd.factorize(frame.crosswalk[frame.drawn_from], sort=True)
    return area.astype("int64"), pd.Index(names).get_indexer(households[frame.drawn_from])


def _check_drawn(
    frame: Frame, area: np.ndarray, belongs: np.ndarray, base: np.ndarray, totals: np.ndarray
) -> None:
    if not frame.drawn_from:
        return
    known = belongs >= 0
    held = np.bincount(belongs[known], base[known], area.max() + 1)
    empty = np.flatnonzero((held[area] <= 0) & (totals > 0))
    if len(empty):
        raise TableError(
            f"{frame.files['seed']}: no household of weight for the {frame.drawn_from} of zones"
            f" {some(frame.zones[empty])}; every {frame.drawn_from} needs a seed of its own"
        )


def _codes(frame: Frame, geography: str) -> np.ndarray:
    """Return for each zone the row of its area in a geography's totals."""
    zones, held = frame.zones, frame.totals[geography].index
    fine = geography == frame.zone
    code = held.get_indexer(zones if fine else pd.Index(frame.crosswalk[geography]))
    if (code < 0).any():
        lacking = some(zones[code < 0])
        raise TableError(f"{frame.files[geography]}: lacks the area of zones {lacking}")
    return code


def _unit(values: np.ndarray, base: np.ndarray) -> float:
    """Return a control's mean over the households that add to it; 1 for a count of households."""
    held = (values != 0) & (base > 0)
    return float((base[held] @ np.abs(values[held])) / base[held].sum()) if held.any() else 1.0


# The tables.


def _expand(
    region: Region, seed: pd.DataFrame, counts: np.ndarray
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return households and persons, each seed household as often as a zone counts it."""
    zone, kind = np.nonzero(counts)
    times = counts[zone, kind]
    return tables_of(region, seed, np.repeat(zone, times), np.repeat(kind, times))


def tables_of(
    region: Region,
    seed: pd.DataFrame,
    zone: np.ndarray,
    kind: np.ndarray,
    first: int = 1,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables of households by the positions of their zones and seed households.

    *first* is the id of the first household; persons are numbered from 1.
    """
    ids = np.arange(first, first + len(kind), dtype="int64")
    places, copied = (
        region.zones.iloc[zone],
        seed.drop(columns="weight", errors="ignore").iloc[kind],
    )
    columns = {"home_zone_id": places.index.array, "district": places["district"].array}
    columns |= {c: copied[c].array for c in HOUSEHOLD_COLUMNS}
    columns |= {"seed_id": copied.index.array}
    columns |= {c: copied[c].array for c in copied if c not in HOUSEHOLD_COLUMNS}
    households = pd.DataFrame(columns, index=pd.Index(ids, name="household_id"))

    members = region.seed_persons
    of = seed.index.get_indexer(members["seed_id"])
    members = members.iloc[np.lexsort((members["PNUM"].to_numpy(), of))].drop(columns="seed_id")
    members = members[["PNUM", *(c for c in members if c != "PNUM")]]
    size = np.bincount(of, minlength=len(seed))
    many = size[kind]
    start = (np.cumsum(size) - size)[kind]
    rows = np.repeat(start - (np.cumsum(many) - many), many) + np.arange(many.sum())
    index = pd.RangeIndex(1, len(rows) + 1, name="person_id").astype("int64")
    persons = members.iloc[rows].set_axis(index)
    persons.insert(0, "household_id", np.repeat(ids, many))
    return households, persons


def check_population(population: Population, totals: pd.Series) -> None:
    """Refuse a population whose persons, sizes or zone totals disagree.

    Raises
    ------
    TableError
        Persons without household, households whose `hhsize` is not their count of persons, zones
        off their total.
    """
    households, persons = population.households, population.persons
    problems = []
    orphans = persons.index[~persons["household_id"].isin(households.index)]
    if len(orphans):
        problems.append(
            f"{len(orphans)} persons belong to no household, first person_id {some(orphans)}"
        )
    size = persons.groupby("household_id").size().reindex(households.index, fill_value=0)
    bad = households[households["hhsize"] != size]
    if len(bad):
        said = f"{len(bad)} households differ from their count of persons"
        problems.append(f"column hhsize: {said}, from seed_id {some(bad['seed_id'].unique())}")
    lived = households.groupby("home_zone_id").size().reindex(totals.index, fill_value=0)
    wrong = totals.index[lived != totals]
    if len(wrong):
        problems.append(f"column home_zone_id: household totals are not met in zones {some(wrong)}")
    if problems:
        raise TableError(listed(problems, "synthesized population"))


def fit_of(
    frame: Frame, controls: list[Control], problem: Problem, parts: list[Reached]
) -> pd.DataFrame:
    """Return the fit of every control in the file's order, with notes on what was not met."""
    zones = np.concatenate([part.zones for part in parts])
    order = np.argsort(zones)

    def together(field: str) -> np.ndarray:
        return np.concatenate([getattr(part, field) for part in parts])[order]

    balanced, result, steps = map(together, ("balanced", "result", "steps"))
    column = {(c.geography, c.target): k for k, c in enumerate(controls)}
    found = []
    for row in frame.controls.itertuples():
        k = column[row.geography, row.target]
        control = controls[k]
        areas, code = frame.totals[row.geography].index, _codes(frame, row.geography)
        part = pd.DataFrame(
            {
                "geography": row.geography,
                "zone": areas.astype(str),
                "target": row.target,
                "control": control.wanted,
                "balanced": np.bincount(code, balanced[:, k], len(areas)),
                "result": np.bincount(code, result[:, k], len(areas)),
            }
        ).assign(difference=lambda d: d["result"] - d["control"])
        live = np.bincount(code, problem.totals, len(areas)) > 0
        stuck = np.bincount(code, steps >= NEWTON_STEPS, len(areas)) > 0
        absent = not control.values[problem.base > 0].any()
        off = (part["balanced"] - part["control"]).abs()
        loose = off > np.maximum(0.5, 0.01 * part["control"].abs())
        wants = part["control"] != 0
        notes = {
            "there are no households here": ~live & wants,
            "no seed household adds to it": live & wants & absent,
            RELAXED: live & loose & (not absent),
            f"balancing stopped after {NEWTON_STEPS} steps": live & stuck,
        }
        found.append(part.assign(note=_joined(notes)))
    fit = pd.concat(found, ignore_index=True)
    return fit.assign(zone=as_ids(fit["zone"]))


def _joined(notes: dict[str, pd.Series]) -> list[str]:
    """Return for each row the notes that hold of it."""
    held = [np.where(where, text, "") for text, where in notes.items()]
    return ["; ".join(filter(None, row)) for row in zip(*held, strict=True)]


def fit_summary(fit: pd.DataFrame) -> pd.DataFrame:
    """Return the fit by geography and target.

    Returns
    -------
    pandas.DataFrame
        `control` and `result` (totals); `mean_percent_difference` of a cell and `percent_rmse`, the
        root of the mean squared difference over the mean control, both over the n cells whose
        control is not 0 (the mean divides by n, not n - 1); `absolute_percent`, the sum of absolute
        differences of all cells as % of the total control; `largest_error`; `cells`; `n`. NaN where
        no cell has a control.
    """
    if fit.empty:  # A given population has no controls.
        return pd.DataFrame(
            columns=FIT_SUMMARY,
            index=pd.MultiIndex.from_arrays([[], []], names=["geography", "target"]),
        )
    wanted = fit["control"].where(fit["control"] != 0)
    # A cell whose control is 0 has no percentage; absolute_percent and largest_error count it.
    parts = fit.assign(
        percent=100 * fit["difference"] / wanted,
        square=(fit["difference"] ** 2).where(wanted.notna()),
        wanted=wanted,
        off=fit["difference"].abs(),
    )
    by = parts.groupby(["geography", "target"], sort=False)
    sums = by[["control", "result", "off"]].sum()
    total = sums["control"].where(sums["control"] != 0)
    return pd.DataFrame(
        {
            "control": sums["control"],
            "result": sums["result"],
            "mean_percent_difference": by["percent"].mean(),
            "percent_rmse": 100 * np.sqrt(by["square"].mean()) / by["wanted"].mean(),
            "absolute_percent": 100 * sums["off"] / total,
            "largest_error": by["off"].max(),
            "cells": by.size(),
            "n": by["wanted"].count(),
        }
    )


def summaries(fit: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return PopulationSim's `summary_GEOGRAPHY` tables of the controls' geographies, by name.

    Index (`geography`, `id`); for each target `TARGET_control`, `TARGET_result`, `TARGET_diff`.
    """
    found = {}
    for geography, part in fit.groupby("geography", sort=False):
        wide = part.pivot(
            index="zone", columns="target", values=["control", "result", "difference"]
        )
        columns = {
            f"{target}_{name}": wide[held, target]
            for name, held in (("control", "control"), ("result", "result"), ("diff", "difference"))
            for target in part["target"].unique()
        }
        table = pd.DataFrame(columns).rename_axis("id").reset_index()
        table.insert(0, "geography", geography)
        found[f"summary_{geography}"] = table.set_index(["geography", "id"])
    return found


def write_population(population: Population, out: Path) -> None:
    """Write the population's tables as parquet, and its fit and the summary as CSV."""
    out = Path(out)
    write_parquet(population.households, out / "households.parquet")
    write_parquet(population.persons, out / "persons.parquet")
    write_parquet(population.group_quarters, out / "group_quarters.parquet")
    write_fit(population.fit, out)


def write_fit(fit: pd.DataFrame, out: Path) -> None:
    """Write how well the controls are met, as `fit.csv` and its summaries."""
    write_csv(fit.set_index(["geography", "zone", "target"]), out / "fit.csv")
    write_csv(fit_summary(fit), out / "fit_summary.csv")
    for name, table in summaries(fit).items():
        write_csv(table, out / f"{name}.csv")
