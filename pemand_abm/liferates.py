"""The rates of life events: births, deaths, couples, leaving home, work, migration, income.

The tables are `life_*.csv` of a rates folder (`synthpop/rates/README.md`); `synthpop/rates/
build_life.py` makes them. All rates are probabilities a year.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm.anchors import AGE_BANDS, AGE_EDGES, TENURES
from pemand_abm.errors import TableError, listed
from pemand_abm.tables import read_columns

OLDEST = 119  # The last age of the tables; who is older has its rate.
SEXES = ("1", "2")  # ActivitySim's codes: man, woman
GROUPS = ("single", "married")
EVENTS = (
    "birth", "boy", "marry", "part", "leave_home", "alone", "leave_work", "start_work",
    "full_time", "change_job", "begin_college", "end_college",
)  # fmt: skip
MEND = "build the tables again with `python synthpop/rates/build_life.py`, or correct the row"


@dataclass(frozen=True, slots=True, eq=False)
class LifeRates:
    """The checked tables. Arrays are by sex (0 man, 1 woman), group (0 single, 1 married), age.

    `deaths` (2, 120); `events` name to (2, 2, 120); `migration` index group (`rent 25-34`) with
    `arrive` and `leave`; `income` (4,), the household income by persons at work (3 and more) as a
    ratio to that of one.
    """

    deaths: np.ndarray
    events: dict[str, np.ndarray]
    migration: pd.DataFrame
    income: np.ndarray

    def of(self, event: str, persons: pd.DataFrame, married: np.ndarray | int = 0) -> np.ndarray:
        """Return the yearly probability of *event* for persons with `sex` and `age`."""
        age = np.minimum(persons["age"].to_numpy(), OLDEST)
        return self.events[event][persons["sex"].to_numpy() - 1, married, age]

    def dying(self, persons: pd.DataFrame) -> np.ndarray:
        """Return the probability of dying within a year for persons with `sex` and `age`."""
        age = np.minimum(persons["age"].to_numpy(), OLDEST)
        return self.deaths[persons["sex"].to_numpy() - 1, age]

    def migrating(self, households: pd.DataFrame, way: str) -> np.ndarray:
        """Return the probability to `arrive` or `leave` for households' tenure and age of head."""
        return self.migration[way].reindex(groups(households)).to_numpy(float)


def within_region(rates: pd.DataFrame, life: LifeRates) -> pd.DataFrame:
    """Return the move rates (`surrogate.move_rates`) without the movers from elsewhere.

    The census rate counts them; where households arrive as such, they must not count twice.
    """
    arrive = life.migration["arrive"].reindex(rates["group"]).to_numpy(float)
    return rates.assign(target=(rates["target"] - arrive).clip(lower=0.0))


def groups(households: pd.DataFrame) -> pd.Index:
    """Return each household's group of tenure and age of the head, such as `rent 25-34`."""
    band = np.searchsorted(AGE_EDGES, households["age_of_head"].to_numpy(), side="right") - 1
    names = np.array(AGE_BANDS, dtype=object)[np.maximum(band, 0)]
    return pd.Index(households["tenure"].astype(object).to_numpy() + " " + names)


def read_life(folder: Path) -> LifeRates:
    """Read and check the tables of life events of a rates folder.

    Raises
    ------
    TableError
        A file or column that is missing, values that are no probabilities, overlapping rows.
    """
    folder = Path(folder)
    return LifeRates(
        deaths=_deaths(folder / "life_deaths.csv"),
        events=_events(folder / "life_events.csv"),
        migration=_migration(folder / "life_migration.csv"),
        income=_income(folder / "life_income.csv"),
    )


def _read(path: Path, texts: tuple[str, ...], numbers: dict[str, float]) -> pd.DataFrame:
    """Return a table whose *numbers* lie between 0 and the limit given for each."""
    absent = f"a scenario of more than one year needs it; {MEND}"
    table = read_columns(path, (*texts, *numbers), absent, MEND, dtype=dict.fromkeys(texts, "str"))
    problems = []
    for column, most in numbers.items():
        values = pd.to_numeric(table[column], errors="coerce")
        bad = ~values.between(0, most)
        if bad.any():
            lines = ", ".join(str(i + 2) for i in np.flatnonzero(bad)[:3])
            problems.append(
                f"{column}: {bad.sum()} values are not numbers of 0 to {most:g},"
                f" first in line {lines}; {MEND}"
            )
    if problems:
        raise TableError(listed(problems, str(path)))
    return table


def _deaths(path: Path) -> np.ndarray:
    table = _read(path, ("sex",), {"age": OLDEST, "probability": 1})
    table = table.set_index(["sex", "age"])["probability"]
    wanted = pd.MultiIndex.from_product([SEXES, range(OLDEST + 1)])
    if table.index.has_duplicates or len(wanted.difference(table.index)):
        raise TableError(f"{path}: not one row for each sex (1, 2) and age 0 to {OLDEST}; {MEND}")
    return table.reindex(wanted).to_numpy(float).reshape(2, OLDEST + 1)


def _events(path: Path) -> dict[str, np.ndarray]:
    ages = {"age_from": OLDEST, "age_to": OLDEST}
    table = _read(path, ("event", "sex", "group"), {**ages, "probability": 1})
    problems = [f"event {e} has no row; {MEND}" for e in EVENTS if e not in set(table["event"])]
    found = {event: np.full((2, 2, OLDEST + 1), np.nan) for event in EVENTS}
    for line, row in enumerate(table.to_dict("records"), 2):
        where = f"line {line}: "
        if row["event"] not in found or row["sex"] not in ("all", *SEXES):
            problems.append(f"{where}no such event or sex: {row['event']}, {row['sex']}; {MEND}")
            continue
        if row["group"] not in ("all", *GROUPS):
            problems.append(f"{where}no such group: {row['group']}; {MEND}")
            continue
        sex = [0, 1] if row["sex"] == "all" else [SEXES.index(row["sex"])]
        group = [0, 1] if row["group"] == "all" else [GROUPS.index(row["group"])]
        span = np.arange(int(row["age_from"]), int(row["age_to"]) + 1)
        cell = np.ix_(np.array(sex), np.array(group), span)
        if not np.isnan(found[row["event"]][cell]).all():
            problems.append(f"{where}overlaps an earlier row of {row['event']}; leave one")
        found[row["event"]][cell] = row["probability"]
    if problems:
        raise TableError(listed(problems, str(path)))
    return {event: np.nan_to_num(array) for event, array in found.items()}


def _migration(path: Path) -> pd.DataFrame:
    table = _read(path, ("tenure", "age_band"), {"arrive": 1, "leave": 1})
    table = table.set_index(table["tenure"] + " " + table["age_band"])[["arrive", "leave"]]
    wanted = [f"{t} {a}" for t in TENURES for a in AGE_BANDS]
    if table.index.has_duplicates or set(wanted) - set(table.index):
        raise TableError(f"{path}: not one row for each tenure and age_band; {MEND}")
    return table.reindex(wanted)


def _income(path: Path) -> np.ndarray:
    table = _read(path, (), {"workers": 3, "ratio": 100}).set_index("workers")["ratio"]
    if sorted(table.index) != [0, 1, 2, 3] or (table <= 0).any():
        raise TableError(f"{path}: not one ratio above 0 for each of workers 0 to 3; {MEND}")
    return table.reindex(range(4)).to_numpy(float)
