"""How households' trips answer to levers by published figures (ARCHITECTURE §5.1).

`responses.csv` of the rates folder holds elasticities and arc responses by lever, purpose and
household type; its README says what the columns mean. Draws are paired: a trip has its own keyed
number, so a factor of 1 leaves every household's trips as they are, and a larger change takes the
trips that a smaller one took, and more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm import keys
from pemand_abm.errors import TableError, listed
from pemand_abm.sample import household_types
from pemand_abm.settings import suggestion
from pemand_abm.surrogate import PURPOSES
from pemand_abm.tables import read_columns

FILE = "responses.csv"
COLUMNS = ("lever", "purpose", "household_type", "form", "elasticity", "low", "high", "source")
LEVERS = (
    "announcement", "vehicle_ownership", "employment", "income_growth", "telework", "fuel_price",
    "parking_price", "road_pricing", "transit_fare", "free_fare", "transit_service",
    "land_use_intensity", "opening", "new_housing", "rent_change",
)  # fmt: skip
"""The names that the table may answer to: the levers, and `free_fare` for a transit fare of 0."""
FORMS = ("elasticity", "arc")
SIZES = ("one person", "adults only", "with children")
VEHICLES = ("no vehicle", "with vehicle")
TYPES = ("all", *SIZES, *VEHICLES)
SINGLE = ("hbw", "hbsch", "hbshop", "hbsocrec", "hbo", "nhb")
"""Purposes that a table may name, whether this version tells them apart or not."""
GROUPS: Mapping[str, tuple[str, ...]] = {
    "all": SINGLE,
    "home-based": SINGLE[:-1],
    "home-based other": ("hbshop", "hbsocrec", "hbo"),
    "work": ("hbw",),
    "school": ("hbsch",),
}


def purposes_of(name: str) -> tuple[str, ...]:
    """Return the engine's purposes that a purpose or a group of purposes names.

    >>> purposes_of("home-based other")[-1], purposes_of("nhb")
    ('hbo', ('nhb',))
    """
    return tuple(p for p in GROUPS.get(name, (name,)) if p in PURPOSES)


def read_responses(folder: Path) -> pd.DataFrame:
    """Read and check `responses.csv`; a TableError names the lines, columns and mend.

    Columns `lever`, `purpose`, `household_type`, `form`, `elasticity`, `low`, `high`, `source`. No
    lever may answer twice for one purpose and household.
    """
    path = Path(folder) / FILE
    table = read_columns(
        path,
        COLUMNS,
        "levers need it: copy it from synthpop/rates of a new study (`pemand init`)",
        dtype=str,
        keep_default_na=False,
        encoding="utf-8-sig",
    )
    known = {
        "lever": LEVERS,
        "purpose": (*SINGLE, *GROUPS),
        "household_type": TYPES,
        "form": FORMS,
    }
    problems = [
        f"line {line + 2}, {column}: {value!r} is not known{_near(value, names)}"
        for column, names in known.items()
        for line, value in table.loc[~table[column].isin(names), column].items()
    ]
    for column in ("elasticity", "low", "high"):
        table[column] = pd.to_numeric(table[column], errors="coerce")
        bad = ~np.isfinite(table[column])
        problems += [f"line {line + 2}, {column}: is not a number" for line in table.index[bad]]
    order = (table["low"] <= table["elasticity"]) & (table["elasticity"] <= table["high"])
    problems += [f"line {n + 2}: is not in the order low, elasticity, high" for n in _not(order)]
    problems += [f"line {n + 2}, source: is empty" for n in _not(table["source"].str.strip() != "")]
    arc = (table["form"] == "arc") & (table["elasticity"] < -1)
    problems += [f"line {n + 2}: an arc response below -1 takes more than all" for n in _not(~arc)]
    problems = problems or _twice(table)
    if problems:
        raise TableError(listed(problems, str(path)))
    return table[list(COLUMNS)]


def _not(holds: pd.Series) -> list[int]:
    return holds.index[~holds].tolist()


def _near(value: str, names: tuple[str, ...]) -> str:
    return suggestion(value, names) or f"; known are {', '.join(names)}"


def _twice(table: pd.DataFrame) -> list[str]:
    """Return a problem for each row that answers where one above it has answered."""
    problems: list[str] = []
    seen: dict[tuple[str, str, str, str], int] = {}
    for line, lever, purpose, kind in zip(
        table.index, table["lever"], table["purpose"], table["household_type"], strict=True
    ):
        cells = [
            (lever, p, size, vehicles)
            for p in GROUPS.get(purpose, (purpose,))
            for size in SIZES
            for vehicles in VEHICLES
            if kind in ("all", size, vehicles)
        ]
        first = next((seen[cell] for cell in cells if cell in seen), None)
        if first is not None:
            problems.append(
                f"line {line + 2}: {lever} answers for {purpose} and {kind} already in line "
                f"{first + 2}; leave one"
            )
        seen.update(dict.fromkeys(cells, line))
    return problems


def is_type(households: pd.DataFrame, kind: str) -> np.ndarray:
    """Say which households are of a `household_type` of the table."""
    if kind == "all":
        return np.ones(len(households), dtype=bool)
    if kind in VEHICLES:
        return ((households["auto_ownership"] > 0) == (kind == "with vehicle")).to_numpy()
    return (household_types(households) == kind).to_numpy()


def response_factors(
    table: pd.DataFrame,
    lever: str,
    households: pd.DataFrame,
    change: pd.DataFrame,
    share: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return by what each household's trips of each purpose are multiplied (households x purposes).

    *change* (households x purposes): for an elasticity the new price over the old, for an arc
    response how much of the whole change is made (0 to 1). *share*: the part of the trips that the
    change is for; None is all of them. What the table does not name keeps exactly 1.
    """
    factors = pd.DataFrame(1.0, index=households.index, columns=list(PURPOSES))
    rows = table[table["lever"] == lever]
    for purpose, kind, form, size in zip(
        rows["purpose"], rows["household_type"], rows["form"], rows["elasticity"], strict=True
    ):
        mask = is_type(households, kind)
        for name in purposes_of(purpose):
            given = change[name].to_numpy(float)[mask]
            moved = given**size - 1 if form == "elasticity" else size * given
            part = 1.0 if share is None else share[name].to_numpy(float)[mask]
            factors.loc[mask, name] = 1 + part * moved
    return factors


def respond(trips: pd.DataFrame, factors: pd.DataFrame, seed: int, event: str) -> pd.DataFrame:
    """Multiply drawn trips by *factors* in the mean, trip by trip, and keep whole numbers.

    The k-th trip of a household and purpose stays with the probability *factor* below 1; above it,
    it is made again as often as the whole part says, and once more with the rest's probability. Its
    number depends on (seed, household, event, purpose, k) alone. A household without trips of a
    purpose gains none. Columns as of *trips*.
    """
    drawn = {}
    for purpose in PURPOSES:
        count, factor = trips[purpose].to_numpy("int64"), factors[purpose].to_numpy(float)
        whole = np.floor(factor).astype("int64")
        kept, rest = count * whole, factor - whole
        at = np.flatnonzero((rest > 0) & (count > 0))
        for ordinal in range(int(count[at].max(initial=0))):
            at = at[count[at] > ordinal]
            u = keys.uniforms(trips.index[at], seed, event, "response", purpose, ordinal)
            kept[at] += u < rest[at]
        drawn[purpose] = kept
    found = pd.DataFrame(drawn, index=trips.index)
    return found.assign(trips=found.sum(axis=1))[["trips", *PURPOSES]]
