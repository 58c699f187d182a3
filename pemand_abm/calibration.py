"""A region's calibration: trip rates, move rates and trip lengths as the user's targets have them.

`pemand calibrate` solves `calibration.csv` of the region's folder from targets; every later run of
the region, and every year of it, applies the same numbers (docs/howto-calibrate.md). Trips are
multiplied by factors, trip by trip as `responses.respond` does it; move rates are multiplied in the
mean; the decays of the gravity model are the file's. A factor of 1 changes no draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pemand_abm.anchors import AGE_BANDS, TENURES
from pemand_abm.demand import DemandSettings
from pemand_abm.errors import TableError, listed
from pemand_abm.responses import SIZES, respond
from pemand_abm.sample import household_types
from pemand_abm.settings import suggestion
from pemand_abm.surrogate import PURPOSES, Rates, draw_trips, expected_trips, purpose_shares
from pemand_abm.tables import write_csv

FILE = "calibration.csv"
ALL = "all"
MOVE_GROUPS = tuple(f"{tenure} {band}" for tenure in TENURES for band in AGE_BANDS)
# What a row may name, by measure: purposes, then groups.
KNOWN: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "trips": ((ALL, *PURPOSES), (ALL, *SIZES)),
    "moves": (("",), (ALL, *TENURES, *MOVE_GROUPS)),
    "minutes": (PURPOSES, ("",)),
}
TARGET_COLUMNS = ("measure", "purpose", "group", "value")
SOLVED = (*TARGET_COLUMNS[:3], "modelled", "target", "value")
PROVENANCE = ("source", "scenario", "seed", "targets", "version")


def _units() -> pd.DataFrame:
    return pd.DataFrame(1.0, index=list(SIZES), columns=list(PURPOSES))


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What multiplies a region's trips and move rates, and its frozen decays; without rows nothing.

    `trips` (household types x purposes) and `moves` (by group such as `rent 25-34`) are factors;
    `decay` is a minute, by purpose, `minutes` the mean minutes that it was solved for. `rows` are
    those of the file, with the keys `SOLVED`.
    """

    trips: pd.DataFrame = field(default_factory=_units)
    moves: pd.Series = field(default_factory=lambda: pd.Series(1.0, index=list(MOVE_GROUPS)))
    decay: Mapping[str, float] = field(default_factory=dict)
    minutes: Mapping[str, float] = field(default_factory=dict)
    rows: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Calibration:
        """Return the calibration that rows with the columns `SOLVED` say."""
        held = tuple(rows[list(SOLVED)].to_dict("records"))
        made = cls(rows=held)
        for row in held:
            if row["measure"] == "trips":
                cells = list(_cells(row))
                kinds, purposes = {k for k, _ in cells}, {p for _, p in cells}
                made.trips.loc[sorted(kinds), sorted(purposes)] = row["value"]
            elif row["measure"] == "moves":
                made.moves.loc[[name for name, _ in _cells(row)]] = row["value"]
        lengths = [row for row in held if row["measure"] == "minutes"]
        return replace(
            made,
            decay={row["purpose"]: row["value"] for row in lengths},
            minutes={row["purpose"]: row["target"] for row in lengths},
        )

    def factors(self, households: pd.DataFrame) -> pd.DataFrame:
        """Return by what each household's trips are multiplied, households x purposes."""
        return self.trips.loc[household_types(households)].set_axis(households.index)

    def expected(self, households: pd.DataFrame, rates: Rates) -> pd.DataFrame:
        """Return `surrogate.expected_trips`, mean and sd times the household's mean factor."""
        shares = purpose_shares(households, rates)
        factor = 1 + (shares * (self.factors(households) - 1)).sum(axis=1)
        return expected_trips(households, rates).mul(factor, axis=0)

    def drawn(self, households: pd.DataFrame, rates: Rates, seed: int, event: str) -> pd.DataFrame:
        """Return `surrogate.draw_trips` with trips taken away or added by the factors."""
        trips = draw_trips(households, rates, seed, event)
        return respond(trips, self.factors(households), seed, f"calibration {event}")

    def rates(self, rates: Rates) -> Rates:
        """Return the survey tables with the shares of purposes that the factors give."""
        cells = rates.purposes.index
        kinds = np.where(cells.get_level_values("children") > 0, SIZES[2], SIZES[1])
        kinds = np.where(cells.get_level_values("size") == 1, SIZES[0], kinds)
        factors = self.trips.loc[kinds].to_numpy()
        if (factors == factors[:, :1]).all():  # Shares stay; not even their rounding changes.
            return rates
        shares = rates.purposes[list(PURPOSES)] * factors
        total = shares.sum(axis=1)
        # Where no trip is left, there is nothing to share.
        shares = shares.div(total.where(total > 0, 1.0), axis=0)
        shares = shares.where(total > 0, rates.purposes[list(PURPOSES)])
        return replace(rates, purposes=rates.purposes.assign(**{p: shares[p] for p in PURPOSES}))

    def moving(self, rates: pd.DataFrame) -> pd.DataFrame:
        """Return `surrogate.move_rates` with the groups' targets multiplied.

        The score takes the same change as a logit, so that the group's own rate stays what a level
        of 0 stands for (`relocation.decide_by_levels`).
        """
        target = rates["target"] * rates["group"].map(self.moves).astype("float64")
        if (target >= 1).any():
            names = sorted(set(rates.loc[target >= 1, "group"]))
            raise TableError(
                f"{FILE}: the move rates of {', '.join(names)} would be 1 a year or more with "
                "these survey rates; calibrate the region anew"
            )
        shift = _logit(target) - _logit(rates["target"])  # Exactly 0 where the factor is 1.
        return rates.assign(target=target, score=rates["score"] + shift)

    def demand(self, settings: DemandSettings) -> DemandSettings:
        """Return the settings with the frozen decays, and the minutes that they were solved for."""
        return replace(
            settings,
            decay={**settings.decay, **self.decay},
            wanted={**settings.wanted, **self.minutes},
        )

    def note(self, decays: bool) -> list[str]:
        """Say what is calibrated; *decays* whether the scenario has decays of its own."""
        if not self.rows:
            return []
        counts = pd.Series([row["measure"] for row in self.rows]).value_counts()
        words = {"trips": "trip rates", "moves": "move rates", "minutes": "trip lengths"}
        told = ", ".join(f"{counts[m]} of {w}" for m, w in words.items() if m in counts)
        own = "; the scenario's own demand.decay stands before its decays"
        return [
            f"Calibration: {FILE} of the region holds ({told}); `calibration` in run.yaml lists "
            f"the numbers{own if decays and self.decay else ''}."
        ]


NONE = Calibration()


def _logit(rate: pd.Series) -> pd.Series:
    return np.log(rate / (1 - rate))


def _cells(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the smallest cells that a row answers for: (household type or group, purpose)."""
    measure, purpose, group = (str(row[c]) for c in TARGET_COLUMNS[:3])
    if measure == "trips":
        purposes = PURPOSES if purpose == ALL else (purpose,)
        return [(k, p) for k in SIZES if group in (ALL, k) for p in purposes]
    if measure == "moves":
        return [(g, "") for g in MOVE_GROUPS if group in (ALL, g, g.split(" ")[0])]
    return [("", purpose)]


# --- files --------------------------------------------------------------------------------------


def read_targets(path: Path) -> pd.DataFrame:
    """Read and check a table of targets: `measure`, `purpose`, `group`, `value`, `source`.

    Values are trips a household and weekday, annual probabilities, or mean minutes.

    Raises
    ------
    TableError
        Every fault of the file at once, with line and column; no cell may be answered twice.
    """
    table = _read(path, TARGET_COLUMNS, ("source",))
    most = {"moves": (0.0, 1.0), "minutes": (0.0, np.inf)}
    words = {
        "trips": "a number of 0 or more (trips a household and weekday)",
        "moves": "between 0 and 1 (annual probability)",
        "minutes": "a number above 0 (minutes)",
    }
    problems = []
    for line, measure, value in zip(table.index, table["measure"], table["value"], strict=True):
        low, high = most.get(measure, (-np.inf, np.inf))
        fine = np.isfinite(value) and low < value < high and value >= 0
        if measure in words and not fine:
            problems.append(f"line {line + 2}, value: must be {words[measure]}")
    _stop(path, table, problems)
    return table.assign(source=table.get("source", ""))


def read_calibration(folder: Path) -> Calibration:
    """Read `calibration.csv` of a region's folder; without the file nothing is calibrated.

    Raises
    ------
    TableError
        A file that `pemand calibrate` did not write, or that was made faulty.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        return NONE
    table = _read(path, SOLVED, PROVENANCE)
    problems = [
        f"line {line + 2}, {column}: must be a number of 0 or more"
        for column in ("modelled", "target", "value")
        for line in table.index[~(table[column] >= 0) | np.isinf(table[column])]
    ]
    none = (table["measure"] == "moves") & (table["value"] == 0)
    problems += [f"line {line + 2}, value: must be above 0" for line in table.index[none]]
    _stop(path, table, problems)
    return Calibration.of(table)


def write_calibration(rows: pd.DataFrame, folder: Path) -> Path:
    """Write *rows* (`SOLVED` and `PROVENANCE`) as the region's calibration; return its path."""
    path = Path(folder) / FILE
    write_csv(rows[[*SOLVED, *PROVENANCE]].set_index("measure"), path)
    return path


def _read(path: Path, needed: tuple[str, ...], more: tuple[str, ...]) -> pd.DataFrame:
    """Return a table of texts whose number columns are float64, NaN where they hold none."""
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (OSError, ValueError) as fault:
        raise TableError(f"{path}: cannot be read as CSV ({fault})") from fault
    if not isinstance(table.index, pd.RangeIndex):  # pandas takes the first column for names then.
        raise TableError(
            f"{path}: rows have more cells than the header has columns; put texts with commas in "
            "double quotes"
        )
    known = (*needed, *more)
    problems = [f"column {c} is missing" for c in needed if c not in table]
    problems += [
        f"column {c!r} is not known{suggestion(str(c), known) or '; known are ' + ', '.join(known)}"
        for c in table
        if c not in known
    ]
    if problems:
        raise TableError(listed(problems, str(path)))
    if table.empty:
        raise TableError(f"{path}: has no row")
    numbers = [c for c in ("modelled", "target", "value") if c in needed]
    texts = {c: table[c].str.strip() for c in table if c not in numbers}
    return table.assign(**texts, **{c: table[c].map(_number) for c in numbers})


def _number(text: str) -> float:
    """Return the number that a text spells, digit by digit; NaN where it spells none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _stop(path: Path, table: pd.DataFrame, problems: list[str]) -> None:
    """Raise one error of *problems*, of names that are not known and of cells answered twice."""
    seen: dict[tuple[str, str, str], int] = {}
    names = []
    for line, row in zip(table.index, table.to_dict("records"), strict=True):
        faults = list(_unknown(row))
        names += [f"line {line + 2}, {fault}" for fault in faults]
        cells = [] if faults else [(row["measure"], *cell) for cell in _cells(row)]
        first = next((seen[cell] for cell in cells if cell in seen), None)
        if first is not None:
            names.append(
                f"line {line + 2}: answers for what line {first + 2} answers for; leave one"
            )
        seen |= {cell: line for cell in cells if cell not in seen}
    if names or problems:
        raise TableError(listed([*names, *problems], str(path)))


def _unknown(row: Mapping[str, Any]) -> list[str]:
    """Return what a row names that its measure does not know."""
    measure = row["measure"]
    if measure not in KNOWN:
        return [f"measure: {measure!r} is not known{_near(measure, tuple(KNOWN))}"]
    return [
        f"{column}: must be empty for {measure}, is {row[column]!r}"
        if known == ("",)
        else f"{column}: {row[column]!r} is not known for {measure}{_near(row[column], known)}"
        for column, known in zip(("purpose", "group"), KNOWN[measure], strict=True)
        if row[column] not in known
    ]


def _near(value: str, names: tuple[str, ...]) -> str:
    return suggestion(value, names) or f"; known are {', '.join(names)}"


# --- solving ------------------------------------------------------------------------------------


def solve_rates(
    targets: pd.DataFrame, households: pd.DataFrame, moving: pd.DataFrame, rates: Rates
) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of trips and moves with their factors (`SOLVED`), and faults of the targets.

    *moving* is `surrogate.move_rates`. The modelled value is the uncalibrated model's expectation
    for these households: of trips, the mean times the purposes' shares; of moves, the mean rate.
    """
    kind = household_types(households)
    trips = purpose_shares(households, rates).mul(expected_trips(households, rates)["mean"], axis=0)
    found, problems = [], []
    for line, row in zip(targets.index, targets.to_dict("records"), strict=True):
        cells = _cells(row)
        if row["measure"] == "trips":
            purposes = list(dict.fromkeys(p for _, p in cells))
            each = trips.loc[kind.isin([k for k, _ in cells]), purposes].sum(axis=1)
        elif row["measure"] == "moves":
            each = moving.loc[moving["group"].isin([g for g, _ in cells]), "target"]
        else:
            continue
        if each.empty:
            problems.append(f"line {line + 2}: the population has no household of {row['group']!r}")
            continue
        modelled, target = float(each.mean()), row["value"]
        if modelled == 0:
            problems.append(
                f"line {line + 2}: no trip of {row['purpose']!r} is modelled, so none can be scaled"
            )
            continue
        factor = target / modelled
        if row["measure"] == "moves" and float(each.max()) * factor >= 1:
            problems.append(
                f"line {line + 2}: a finer group of {row['group']!r} would move with a probability "
                "of 1 or more; give targets of the finer groups"
            )
        found.append(row | {"modelled": modelled, "target": target, "value": factor})
    return pd.DataFrame(found, columns=[*SOLVED, "source"]), problems
