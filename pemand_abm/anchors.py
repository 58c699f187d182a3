"""Anchors: what such people did in an earlier survey cycle, as a prior that agents are told.

One table holds the anchors of one survey or region: trips a weekday of households (size x vehicles)
and of members (age x work), and the share of households (tenure x age of the head) that move in a
year. Its shape never comes from the model year. This module reads and checks such tables;
`anchoring` computes them from surveys, and what is said with an anchor is said elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm.errors import TableError, listed
from pemand_abm.tables import read_columns

AGE_EDGES = np.array([15, 25, 35, 45, 55, 65, 75])
AGE_BANDS = ("15-24", "25-34", "35-44", "45-54", "55-64", "65-74", "75+")
TENURES = ("own", "rent")
MEMBER_EDGES = np.array([5, 12, 18, 35, 50, 65, 75])
MEMBER_BANDS = ("5-11", "12-17", "18-34", "35-49", "50-64", "65-74", "75+")
MINORS = MEMBER_BANDS[:2]
# The top classes are open: five persons and more, three vehicles and more.
SIZES, VEHICLES = range(1, 6), range(4)
DOMAINS = ("trips", "relocation")

BY = ["domain", "level", "hhsize", "vehicles", "age_band", "works", "tenure"]
FIGURES = ["value", "raw", "factor", "n", "se", "raw_se"]
COLUMNS = [*BY, *FIGURES, "label", "survey", "year", "note"]
MEND = "compute the table again with `pemand anchors`, or correct the row"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A prior from an earlier survey cycle: trips a weekday, or the chance of a move in a year."""

    value: float
    n: int
    se: float
    label: str
    survey: str


NOT_COUNTED = Anchor(0.0, 0, 0.0, "not counted under 5", "")


@dataclass(frozen=True, slots=True, eq=False)
class AnchorTable:
    """The anchors of one survey or region; `read_anchors` makes it.

    `of_homes` by (size, vehicles), `of_members` by (age band, works), `of_movers` by (tenure, age
    band of the head); `source` is the file's name, for messages. A domain that the table does not
    hold is empty.
    """

    of_homes: Mapping[tuple[int, int], Anchor]
    of_members: Mapping[tuple[str, bool | None], Anchor]
    of_movers: Mapping[tuple[str, str], Anchor]
    source: str

    def household_trips(self, hhsize: int, vehicles: int) -> Anchor:
        """Return the mean trips of households of this size and number of vehicles."""
        if hhsize < 1 or vehicles < 0:
            raise TableError(f"anchor: no household of {hhsize} persons and {vehicles} vehicles")
        return self._held(self.of_homes, (min(hhsize, SIZES[-1]), min(vehicles, VEHICLES[-1])))

    def member_trips(self, age: int, works: bool | None) -> Anchor:
        """Return the trips of such a person, or what one adds to a household's where inferred.

        Under 5 it is 0: their trips are not counted. Work counts from 18 on, and only where the
        table knows it; *works* is None where nobody was asked, which takes both together.
        """
        if age < 0:
            raise TableError(f"anchor: no person of age {age}")
        if age < MEMBER_EDGES[0]:
            return NOT_COUNTED
        return self._held(self.of_members, (_band(age, MEMBER_EDGES, MEMBER_BANDS), works))

    def moves(self, tenure: str, age_of_head: int) -> Anchor:
        """Return the share of such households that moved in a year, a blend of groups."""
        if tenure not in TENURES or age_of_head < AGE_EDGES[0]:
            raise TableError(
                f"anchor: no households of tenure {tenure!r} and age {age_of_head};"
                " own or rent, 15 and over"
            )
        return self._held(self.of_movers, (tenure, _band(age_of_head, AGE_EDGES, AGE_BANDS)))

    def scaled(self, times: float) -> AnchorTable:
        """Return the table of a region whose people make *times* as many trips, and move alike."""

        def larger(a: Anchor) -> Anchor:
            return replace(a, value=a.value * times, se=a.se * times)

        return replace(
            self,
            of_homes={cell: larger(a) for cell, a in self.of_homes.items()},
            of_members={cell: larger(a) for cell, a in self.of_members.items()},
        )

    def _held(self, anchors: Mapping, cell: tuple) -> Anchor:
        try:
            return anchors[cell]
        except KeyError:
            raise TableError(
                f"{self.source}: no anchor of {', '.join(map(str, cell))}; {MEND}"
            ) from None


def _band(age: int, edges: np.ndarray, bands: Sequence[str]) -> str:
    """Return the band of an age at or above the first edge."""
    return bands[bisect_right(edges, age) - 1]


# --- reading ------------------------------------------------------------------------------------


def read_anchors(
    path: Path, model_year: int | None = None, domains: Iterable[str] = DOMAINS
) -> AnchorTable:
    """Read and check a table of anchors.

    Parameters
    ----------
    model_year : int, optional
        The year of the survey or population that the anchors are told to. A row whose shape comes
        from that year or later is refused; without it no year is.
    domains : iterable of str
        The domains of which every cell must be there.

    Raises
    ------
    TableError
        Every fault at once.
    """
    path = Path(path)
    texts = dict.fromkeys(["domain", "level", "age_band", "tenure", "label", "survey"], "str")
    needed = [*BY, "value", "n", "se", "label", "survey", "year"]
    table = read_columns(path, needed, MEND, MEND, dtype=texts)
    problems = _faults(table, model_year)
    homes, members, movers = _cells(table)
    problems += _gaps(homes, members, movers, domains)
    if problems:
        raise TableError(listed(problems, str(path)))
    return AnchorTable(homes, members, movers, path.name)


def shipped_anchors(name: str, model_year: int) -> AnchorTable:
    """Return the anchors that the package brings for the survey *name*."""
    folder = resources.files("pemand_abm").joinpath("anchor_tables")
    held = sorted(f.name.removesuffix(".csv") for f in folder.iterdir() if f.name.endswith(".csv"))
    if name not in held:
        raise TableError(
            f"anchors: none are shipped for {name} (there are {', '.join(held)});"
            f" compute them with `pemand anchors {name}`"
        )
    with resources.as_file(folder.joinpath(f"{name}.csv")) as path:
        table = pd.read_csv(path, usecols=["domain"])
        return read_anchors(path, model_year, tuple(table["domain"].unique()))


def _faults(table: pd.DataFrame, model_year: int | None) -> list[str]:
    """Return what is wrong with single rows."""
    problems = []
    for column in ("value", "n", "se", "year"):
        values = pd.to_numeric(table[column], errors="coerce")
        bad = ~(values >= 0) | np.isinf(values)
        if bad.any():
            problems.append(
                f"{column}: {bad.sum()} values are not numbers of 0 or more,"
                f" first in {_lines(bad)}; {MEND}"
            )
    moves = table["domain"].eq("relocation") & pd.to_numeric(table["value"], errors="coerce").gt(1)
    if moves.any():
        problems.append(f"value: {moves.sum()} shares that move are over 1, in {_lines(moves)}")
    twice = table.duplicated(BY)
    if twice.any():
        problems.append(
            f"{', '.join(BY)}: {twice.sum()} rows come twice, first in {_lines(twice)}; leave one"
        )
    late = pd.to_numeric(table["year"], errors="coerce") >= (model_year or np.inf)
    if late.any():
        problems.append(
            f"year: {late.sum()} anchors are of {model_year} or later, the year that they are told"
            f" to, first in {_lines(late)}; an anchor must come from an earlier survey cycle"
        )
    return problems


def _lines(bad: pd.Series) -> str:
    """Return the first bad rows as line numbers of the file."""
    return "line " + ", ".join(str(i + 2) for i in np.flatnonzero(bad)[:3])


def _cells(table: pd.DataFrame) -> tuple[dict, dict, dict]:
    """Return the anchors of households, members and movers by their cells.

    A member's row without `works` stands for both.
    """
    homes: dict[tuple, Anchor] = {}
    members: dict[tuple, Anchor] = {}
    movers: dict[tuple, Anchor] = {}
    numbers = table.assign(
        **{c: pd.to_numeric(table[c], errors="coerce").fillna(-1) for c in ("value", "n", "se")}
    )
    for row in numbers[[*BY, "value", "n", "se", "label", "survey"]].itertuples(index=False):
        anchor = Anchor(
            float(row.value), int(row.n), float(row.se), str(row.label), str(row.survey)
        )
        match (row.domain, row.level):
            case ("trips", "household"):
                homes[row.hhsize, row.vehicles] = anchor
            case ("trips", "member"):
                for works in (False, True) if pd.isna(row.works) else (bool(row.works),):
                    members[row.age_band, works] = anchor
                both = [members[k] for k in _by_work(row.age_band) if k in members]
                members[row.age_band, None] = _together(both)
            case ("relocation", "household"):
                movers[row.tenure, row.age_band] = anchor
    return homes, members, movers


def _by_work(age_band: str) -> tuple[tuple[str, bool], tuple[str, bool]]:
    return (age_band, False), (age_band, True)


def _together(anchors: Sequence[Anchor]) -> Anchor:
    """Return the mean of anchors by their numbers of households: of those who work and who do not.

    Where one row stands for both it is that row.
    """
    first = anchors[0]
    total = sum(a.n for a in anchors)
    if len({a.value for a in anchors}) == 1 or total == 0:
        return first
    shares = [a.n / total for a in anchors]
    value = sum(share * a.value for share, a in zip(shares, anchors, strict=True))
    se = sum((share * a.se) ** 2 for share, a in zip(shares, anchors, strict=True)) ** 0.5
    return Anchor(value, total, se, first.label, first.survey)


def _gaps(homes: dict, members: dict, movers: dict, domains: Iterable[str]) -> list[str]:
    """Return which cells of the domains are missing."""
    needed: dict[tuple[str, str], tuple[dict, set]] = {
        ("trips", "household"): (homes, set(product(SIZES, VEHICLES))),
        ("trips", "member"): (members, set(product(MEMBER_BANDS, (False, True)))),
        ("relocation", "household"): (movers, set(product(TENURES, AGE_BANDS))),
    }
    problems = []
    wanted = set(domains)
    for (domain, level), (held, cells) in needed.items():
        missing = sorted(cells - held.keys()) if domain in wanted else []
        if missing:
            problems.append(
                f"domain, level: anchors of {domain} {level} are missing for {len(missing)} of"
                f" {len(cells)} cells, first ({', '.join(map(str, missing[0]))}); {MEND}"
            )
    return problems
