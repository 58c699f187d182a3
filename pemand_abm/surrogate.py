"""Decisions drawn from survey tables for households that do not negotiate.

The tables are those of `synthpop/rates` (its README is their data dictionary). A household takes
the distribution of its class, size x workers x vehicles, and draws from it: a mean for everybody
would leave no household without a trip. Trips are person trips of residents aged 5 and over on an
average weekday; move rates are annual. This module opens no survey and knows no scenario.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm import keys
from pemand_abm.anchors import AGE_BANDS, AGE_EDGES, TENURES, AnchorTable, read_anchors
from pemand_abm.errors import TableError, listed
from pemand_abm.tables import read_columns

PURPOSES = ("hbw", "hbsch", "hbshop", "hbsocrec", "hbo", "nhb")
# MTC's and ActivitySim's periods of a weekday: 3 to 6, 6 to 10, 10 to 15, 15 to 19, 19 to 3.
PERIODS = ("EA", "AM", "MD", "PM", "EV")
MODES = ("driver", "passenger", "transit", "school_bus", "taxi", "bicycle", "walk", "other")

# The top classes are open: five persons and more, three workers and more, three vehicles and more.
CELLS = pd.MultiIndex.from_tuples(
    [(s, w, v) for s in range(1, 6) for w in range(min(s, 3) + 1) for v in range(4)],
    names=["size", "workers", "vehicles"],
)
PURPOSE_CELLS = pd.MultiIndex.from_tuples(
    [(s, w, c) for s in (1, 2) for w in range(s + 1) for c in (0, 1)],
    names=["size", "workers", "children"],
)
MOVE_CELLS = pd.MultiIndex.from_product(
    [TENURES, AGE_BANDS, ("all", "0", "1")], names=["tenure", "age_band", "children"]
)
# A home-based trip leaves home or returns to it; a non-home-based one goes any way.
PERIOD_CELLS = pd.MultiIndex.from_tuples(
    [
        (purpose, direction, period)
        for purpose in PURPOSES
        for direction in (("any",) if purpose == "nhb" else ("from_home", "to_home"))
        for period in PERIODS
    ],
    names=["purpose", "direction", "period"],
)
MODE_CELLS = pd.MultiIndex.from_product([PURPOSES, range(3)], names=["purpose", "vehicles"])
_CELL_AT = {cell: place for place, cell in enumerate(CELLS)}
# The place of (size, workers, vehicles) in CELLS; -1 where there are more workers than persons.
_PLACE = np.array(
    [[[_CELL_AT.get((s, w, v), -1) for v in range(4)] for w in range(4)] for s in range(6)]
)

MEND = "build the tables again with `python synthpop/rates/build.py`, or correct the row"


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """The checked survey tables; `read_rates` makes them.

    `cells`: mean, se, variance, zero_share, n by CELLS. `trips`: cell (place in CELLS), trips,
    share, in that order. `purposes`: shares by PURPOSE_CELLS x PURPOSES. `moves`: rate, se, n
    by MOVE_CELLS. `anchors`: what negotiating households are told. `quarters`: share,
    trips_per_person, se by purpose (`all` and PURPOSES). `periods`: share of a purpose's trips by
    PERIOD_CELLS. `modes`: shares of a purpose's trips by MODE_CELLS x MODES.
    """

    cells: pd.DataFrame
    trips: pd.DataFrame
    purposes: pd.DataFrame
    moves: pd.DataFrame
    anchors: AnchorTable
    quarters: pd.DataFrame
    periods: pd.Series
    modes: pd.DataFrame


# --- reading ------------------------------------------------------------------------------------


def _read(
    folder: Path, name: str, by: list[str], numbers: list[str], texts: dict[str, str] | None = None
) -> pd.DataFrame:
    """Return one table whose columns are there and hold numbers of 0 or more, each key once."""
    path = folder / name
    table = read_columns(path, (*by, *numbers), MEND, MEND, dtype=texts)
    problems = []
    for column in numbers:
        values = pd.to_numeric(table[column], errors="coerce")
        bad = ~(values >= 0) | np.isinf(values)
        if bad.any():
            problems.append(
                f"{column}: {bad.sum()} values are not numbers of 0 or more,"
                f" first in {_rows(bad)}; {MEND}"
            )
    twice = table.duplicated(by)
    if by and twice.any():
        problems.append(
            f"{', '.join(by)}: {twice.sum()} rows come twice, first in {_rows(twice)}; leave one"
        )
    if problems:
        raise TableError(listed(problems, str(path)))
    return table


def _rows(bad: pd.Series) -> str:
    """Return the first bad rows as line numbers of the file."""
    return "line " + ", ".join(str(i + 2) for i in np.flatnonzero(bad)[:3])


def _named(cell: object) -> str:
    """Return a cell's key as plain text, without NumPy's type names."""
    return f"({', '.join(map(str, cell))})" if isinstance(cell, tuple) else str(cell)


def _indexed(
    table: pd.DataFrame, cells: pd.MultiIndex, path: Path, problems: list[str]
) -> pd.DataFrame:
    """Return the table by *cells*, in their order; a cell that is missing is a problem."""
    table = table.set_index(list(cells.names))
    missing = cells.difference(table.index)
    if len(missing):
        first = ", ".join(map(_named, missing[:3]))
        problems.append(
            f"{' x '.join(cells.names)}: {len(missing)} cells are missing, first {first}; {MEND}"
        )
        raise TableError(listed(problems, str(path)))
    return table.reindex(cells)


def _off(sums: pd.Series, what: str) -> list[str]:
    """Return a problem when sums of shares are not 1."""
    bad = sums[(sums - 1).abs() > 1e-6]
    if bad.empty:
        return []
    return [
        f"{what}: shares of {len(bad)} cells do not sum to 1,"
        f" first {_named(bad.index[0])}: {bad.iloc[0]:.6f}; {MEND}"
    ]


def _read_trips(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    by = list(CELLS.names)
    long = _read(folder, "trips.csv", [*by, "trips"], [*by, "trips", "share"])
    problems = _off(long.groupby(by)["share"].sum(), "share")
    if (long["trips"] % 1 != 0).any():
        problems.append(
            f"trips: whole numbers only, first fault in {_rows(long['trips'] % 1 != 0)}; {MEND}"
        )
    place = pd.Series(CELLS.get_indexer(pd.MultiIndex.from_frame(long[by])), index=long.index)
    if place.eq(-1).any():
        problems.append(
            f"{' x '.join(by)}: no such household type in {_rows(place.eq(-1))}; leave the row out"
        )
    if place.nunique() - place.eq(-1).any() < len(CELLS):
        first = CELLS[~np.isin(np.arange(len(CELLS)), place)][0]
        problems.append(f"{' x '.join(by)}: a cell is missing, first {_named(first)}; {MEND}")
    if problems:
        raise TableError(listed(problems, str(folder / "trips.csv")))
    trips = pd.DataFrame(
        {"cell": place, "trips": long["trips"].astype("int64"), "share": long["share"]}
    )
    trips = trips.sort_values(["cell", "trips"], ignore_index=True)

    path = folder / "trips_cells.csv"
    cells = _indexed(
        _read(folder, path.name, by, [*by, "n", "mean", "se", "zero_share", "variance"]),
        CELLS,
        path,
        [],
    )
    mean = (trips["trips"] * trips["share"]).groupby(trips["cell"]).sum().to_numpy()
    square = (trips["trips"] ** 2 * trips["share"]).groupby(trips["cell"]).sum().to_numpy()
    zero = trips["share"].where(trips["trips"].eq(0), 0.0).groupby(trips["cell"]).sum().to_numpy()
    for column, truth in (("mean", mean), ("variance", square - mean**2), ("zero_share", zero)):
        bad = np.abs(cells[column] - truth) > 1e-4 * (1 + np.abs(truth))
        if bad.any():
            problems.append(
                f"{column}: {bad.sum()} cells do not agree with trips.csv,"
                f" first {_named(cells.index[bad][0])}:"
                f" {cells[column][bad].iloc[0]:.4f}, there {truth[bad][0]:.4f}; {MEND}"
            )
    if problems:
        raise TableError(listed(problems, str(path)))
    return cells, trips


def _read_purposes(folder: Path) -> pd.DataFrame:
    by, path = list(PURPOSE_CELLS.names), folder / "purposes.csv"
    table = _read(folder, path.name, by, [*by, "n_trips", "n_households", *PURPOSES])
    problems = _off(table.set_index(by)[list(PURPOSES)].sum(axis=1), ", ".join(PURPOSES))
    table = _indexed(table, PURPOSE_CELLS, path, problems)
    if problems:
        raise TableError(listed(problems, str(path)))
    return table


def _read_moves(folder: Path) -> pd.DataFrame:
    by, path = list(MOVE_CELLS.names), folder / "moves.csv"
    table = _read(folder, path.name, by, ["n", "rate", "se"], dict.fromkeys(by, "str"))
    bad = ~table["rate"].between(0, 1, inclusive="neither")
    # A rate of 0 or 1 has no logit, so it could not be calibrated.
    problems = (
        [f"rate: {bad.sum()} values not between 0 and 1, first in {_rows(bad)}; merge the cell"]
        if bad.any()
        else []
    )
    table = _indexed(table, MOVE_CELLS, path, problems)
    if problems:
        raise TableError(listed(problems, str(path)))
    return table


def _read_quarters(folder: Path) -> pd.DataFrame:
    path = folder / "group_quarters.csv"
    table = _read(folder, path.name, ["purpose"], ["share", "trips_per_person", "se"]).set_index(
        "purpose"
    )
    missing = [p for p in ("all", *PURPOSES) if p not in table.index]
    if missing:
        raise TableError(f"{path}: purpose {', '.join(missing)} is missing; {MEND}")
    problems = _off(pd.Series({"all": table.loc[list(PURPOSES), "share"].sum()}), "share")
    if problems:
        raise TableError(listed(problems, str(path)))
    return table


def _read_periods(folder: Path) -> pd.Series:
    by, path = list(PERIOD_CELLS.names), folder / "periods.csv"
    table = _read(folder, path.name, by, ["share"], dict.fromkeys(by, "str"))
    unknown = ~pd.MultiIndex.from_frame(table[by]).isin(PERIOD_CELLS)
    problems = (
        [f"{', '.join(by)}: no such row in {_rows(pd.Series(unknown))}; leave it out"]
        if unknown.any()
        else []
    )
    problems += _off(table.groupby("purpose")["share"].sum(), "share")
    periods = _indexed(table, PERIOD_CELLS, path, problems)["share"]
    if problems:
        raise TableError(listed(problems, str(path)))
    # Ten digits are in the file; whole tables of trips are to sum to the day's trips.
    return periods / periods.groupby("purpose").transform("sum")


def _read_modes(folder: Path) -> pd.DataFrame:
    by, path = list(MODE_CELLS.names), folder / "modes.csv"
    table = _read(folder, path.name, by, ["vehicles", *MODES], {"purpose": "str"})
    problems = _off(table.set_index(by)[list(MODES)].sum(axis=1), ", ".join(MODES))
    table = _indexed(table, MODE_CELLS, path, problems)
    if problems:
        raise TableError(listed(problems, str(path)))
    shares = table[list(MODES)]
    return shares.div(shares.sum(axis=1), axis=0)


def read_rates(folder: Path) -> Rates:
    """Read and check the tables of a rates folder; a TableError names file, column and mend."""
    folder = Path(folder)
    cells, trips = _read_trips(folder)
    return Rates(
        cells=cells,
        trips=trips,
        purposes=_read_purposes(folder),
        moves=_read_moves(folder),
        anchors=read_anchors(folder / "anchors.csv"),
        quarters=_read_quarters(folder),
        periods=_read_periods(folder),
        modes=_read_modes(folder),
    )


# --- trips --------------------------------------------------------------------------------------


def _whole(households: pd.DataFrame, lowest: dict[str, int]) -> dict[str, np.ndarray]:
    """Return columns as int64 arrays; raise one TableError that lists every fault of the table."""
    missing = [c for c in lowest if c not in households.columns]
    if missing:
        raise TableError(f"households: column {', '.join(missing)} is missing")
    problems, columns = [], {}
    if not pd.api.types.is_integer_dtype(households.index.dtype):
        problems.append(
            f"household_id: the index must be whole numbers (int64), not {households.index.dtype}"
        )
    elif not households.index.is_unique:
        problems.append(
            f"household_id: {households.index[households.index.duplicated()][:3].tolist()}"
            " come twice"
        )
    for column, least in lowest.items():
        values = pd.to_numeric(households[column], errors="coerce").to_numpy(
            dtype="float64", na_value=np.nan
        )
        bad = ~(np.isfinite(values) & (values >= least) & (values % 1 == 0))
        if bad.any():
            first = households.index[bad][:3].tolist()
            problems.append(
                f"{column}: {bad.sum()} values are not whole numbers of {least} or more,"
                f" first at household_id {first}"
            )
        columns[column] = np.where(bad, least, values).astype("int64")
    if problems:
        raise TableError(listed(problems, "households"))
    return columns


def _places(households: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return each household's place in CELLS and in PURPOSE_CELLS."""
    columns = _whole(
        households, {"hhsize": 1, "num_workers": 0, "auto_ownership": 0, "children": 0}
    )
    size, workers = columns["hhsize"], columns["num_workers"]
    for column, part in (("num_workers", workers), ("children", columns["children"])):
        if (part > size).any():
            first = households.index[part > size][:3].tolist()
            raise TableError(
                f"households: {column}: more than hhsize in {(part > size).sum()} households,"
                f" first at household_id {first}"
            )
    cell = _PLACE[
        np.minimum(size, 5), np.minimum(workers, 3), np.minimum(columns["auto_ownership"], 3)
    ]
    large = size >= 2
    purpose = 4 * large + 2 * np.minimum(workers, 1 + large) + (columns["children"] > 0)
    return cell, purpose


def expected_trips(households: pd.DataFrame, rates: Rates) -> pd.DataFrame:
    """Return the mean and the standard deviation of each household's trips on a weekday.

    Index household_id; `mean`, `sd` (of the household's day, not of the mean), both in trips a
    weekday.
    """
    cell, _ = _places(households)
    mean, sd = rates.cells["mean"].to_numpy(float), np.sqrt(rates.cells["variance"].to_numpy(float))
    return pd.DataFrame({"mean": mean[cell], "sd": sd[cell]}, index=households.index)


def draw_trips(households: pd.DataFrame, rates: Rates, seed: int, event: str) -> pd.DataFrame:
    """Draw each household's trips of the day and their purposes.

    A draw depends on (seed, event, household_id) alone. Trips by the inverse of the cell's
    distribution; the purpose of every trip by its own number, independently, so a household's
    trips from home and back need not match. Index household_id; int64 `trips` and PURPOSES.
    """
    cell, kind = _places(households)
    ids = households.index.to_numpy()

    # All distributions lie end to end on one line, cell c on (c, c + 1]: one search serves all.
    place = rates.trips["cell"].to_numpy()
    first = np.searchsorted(place, np.arange(len(CELLS) + 1))
    share = rates.trips["share"].groupby(place)
    line = place + (share.cumsum() / share.transform("sum")).to_numpy(float)
    line[first[1:] - 1] = np.arange(1, len(CELLS) + 1)
    found = np.searchsorted(line, cell + keys.uniforms(ids, seed, event, "trips"))
    trips = rates.trips["trips"].to_numpy()[np.clip(found, first[cell], first[cell + 1] - 1)]

    return _split(pd.Series(trips, index=households.index), kind, rates, seed, event)


def purpose_shares(households: pd.DataFrame, rates: Rates) -> pd.DataFrame:
    """Return the expected shares of the purposes in each household's trips, of its survey class."""
    _, kind = _places(households)
    shares = rates.purposes[list(PURPOSES)].to_numpy(float)[kind]
    return pd.DataFrame(shares, index=households.index, columns=list(PURPOSES))


def split_trips(
    trips: pd.Series, households: pd.DataFrame, rates: Rates, seed: int, event: str
) -> pd.DataFrame:
    """Draw the purposes of trips that are known, for example negotiated ones.

    *trips* (whole numbers) are by household_id; the k-th trip of a household has the purpose that
    `draw_trips` gives its k-th trip of that event. Columns as there.
    """
    homes = households.loc[trips.index]
    return _split(trips.astype("int64"), _places(homes)[1], rates, seed, event)


def _split(trips: pd.Series, kind: np.ndarray, rates: Rates, seed: int, event: str) -> pd.DataFrame:
    ids, number = trips.index.to_numpy(), trips.to_numpy()
    bounds = rates.purposes[list(PURPOSES)].to_numpy(float).cumsum(axis=1)[:, :-1]
    drawn = np.zeros((len(ids), len(PURPOSES)), dtype="int64")
    still = np.arange(len(ids))
    for ordinal in range(int(number.max(initial=0))):
        still = still[number[still] > ordinal]
        u = keys.uniforms(ids[still], seed, event, "purpose", ordinal)
        drawn[still, (u[:, None] > bounds[kind[still]]).sum(axis=1)] += 1
    return pd.DataFrame(drawn, index=trips.index, columns=list(PURPOSES)).assign(trips=trips)[
        ["trips", *PURPOSES]
    ]


def group_quarters_trips(persons_by_zone: pd.Series, rates: Rates) -> pd.DataFrame:
    """Return the expected weekday trips of group-quarters persons, zone x purpose, by a proxy rate.

    Household surveys do not ask them: see the README of the rates for the proxy.
    """
    persons = pd.to_numeric(persons_by_zone, errors="coerce")
    bad = ~(persons >= 0) | np.isinf(persons)
    if bad.any():
        raise TableError(
            f"group quarters: {bad.sum()} zones without a number of persons,"
            f" first {persons.index[bad][:3].tolist()}"
        )
    rate = rates.quarters["trips_per_person"]["all"] * rates.quarters["share"][list(PURPOSES)]
    expected = np.outer(persons.to_numpy(float), rate.to_numpy(float))
    return pd.DataFrame(expected, index=persons_by_zone.index, columns=list(PURPOSES))


# --- moves --------------------------------------------------------------------------------------


def move_rates(households: pd.DataFrame, rates: Rates) -> pd.DataFrame:
    """Return each household's calibration group, the group's annual move rate, and a score.

    Index household_id; `group` (such as `rent 25-34`), `target` (share of the group's households a
    year), `score` (logit of the rate of tenure x age x children). Tenure is what the table says;
    the survey asked it after the move.
    """
    columns = _whole(households, {"age_of_head": 15, "children": 0})
    if "tenure" not in households.columns:
        raise TableError("households: column tenure is missing")
    tenure = pd.Index(TENURES).get_indexer(pd.Index(households["tenure"].astype("str")))
    if (tenure < 0).any():
        first = households.index[tenure < 0][:3].tolist()
        raise TableError(
            f"households: tenure: {(tenure < 0).sum()} values other than own and rent,"
            f" first at household_id {first}"
        )
    age = np.searchsorted(AGE_EDGES, columns["age_of_head"], side="right") - 1
    group = tenure * len(AGE_BANDS) + age
    rate = rates.moves["rate"].to_numpy(float).reshape(-1, 3)  # all, without, with children
    finer = rate[group, 1 + (columns["children"] > 0)]
    names = np.array([f"{t} {a}" for t in TENURES for a in AGE_BANDS], dtype=object)
    return pd.DataFrame(
        {
            "group": pd.array(names[group], dtype="str"),
            "target": rate[group, 0],
            "score": np.log(finer / (1 - finer)),
        },
        index=households.index,
    )
