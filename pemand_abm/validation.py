"""What planners check of a run: trip rates beside the survey, equity, health of the talks, flags.

Ranges ask for a look; none is a test that a run passes or fails.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pandas as pd

from pemand_abm import transcript
from pemand_abm.figures import PURPOSE_WORDS
from pemand_abm.groups import GROUPINGS, household_groups
from pemand_abm.pages import LEAST, Table, number
from pemand_abm.surrogate import CELLS, PURPOSES, Rates

if TYPE_CHECKING:
    from pemand_abm.report import Run

# The TMIP manual's range of productions over attractions for a whole region.
RATIO = (0.9, 1.1)
TMIP = "TMIP Validation and Reasonableness Checking Manual, 2nd edition (2010)"
OURS = "a choice of this project"


# --- trip rates beside the survey -----------------------------------------------------------------


def trip_rates(decisions: pd.DataFrame, households: pd.DataFrame, rates: Rates) -> pd.DataFrame:
    """Return `trip_rates.csv`: what households of each type do, beside the survey's.

    Returns
    -------
    DataFrame
        Index `size`, `workers`, `vehicles` (`CELLS`); `households`, `trips` (person trips of an
        average weekday a household), `zero_share` (0 to 1), and of the survey `survey_households`,
        `survey_trips`, `survey_se`, `survey_zero_share`.
    """
    days = decisions[decisions["kind"] == "trips"]
    kinds = pd.DataFrame(
        {
            "size": households["hhsize"].clip(1, 5),
            "workers": households["num_workers"].clip(0, 3),
            "vehicles": households["auto_ownership"].clip(0, 3),
        }
    )
    each = days[["household_id", "value"]].join(kinds, on="household_id")
    by = each.assign(zero=each["value"] == 0).groupby(list(CELLS.names))
    found = pd.DataFrame({"trips": by["value"].mean(), "zero_share": by["zero"].mean()})
    survey = rates.cells.rename(
        columns={"n": "survey_households", "mean": "survey_trips", "se": "survey_se"}
    ).rename(columns={"zero_share": "survey_zero_share"})
    counts = kinds.value_counts().reindex(CELLS, fill_value=0).rename("households")
    names = ["survey_households", "survey_trips", "survey_se", "survey_zero_share"]
    return pd.concat([counts, found.reindex(CELLS), survey[names]], axis=1).rename_axis(CELLS.names)


def _weighed(rates: pd.DataFrame, column: str) -> float:
    """Return the mean of a column over the run's households; NaN without any."""
    held = rates[rates["households"] > 0]
    total = held["households"].sum()
    return float((held[column] * held["households"]).sum() / total) if total else float("nan")


def size_by_vehicles(rates: pd.DataFrame) -> Table:
    """Return trips a household by size and vehicles beside the survey's, not of few households."""
    sizes, cars = range(1, 6), range(4)

    def cell(part: pd.DataFrame) -> str:
        n = int(part["households"].sum())
        if n < LEAST:
            return f"n {n}" if n else "none"
        here, there = _weighed(part, "trips"), _weighed(part, "survey_trips")
        ratio = number(here / there, 2) if there else "none"
        return f"{here:.2f}\nsurvey {there:.2f}\nratio {ratio}\nn {n:,}"

    rows = [
        [
            "5 and more" if n == 5 else str(n),
            *(cell(rates[(rates["size"] == n) & (rates["vehicles"] == c)]) for c in cars),
            cell(rates[rates["size"] == n]),
        ]
        for n in sizes
    ]
    rows.append(["All", *(cell(rates[rates["vehicles"] == c]) for c in cars), cell(rates)])
    return Table(
        ["Persons", "No vehicle", "1 vehicle", "2 vehicles", "3 and more", "All"],
        rows,
        "Person trips of an average weekday a household by persons and vehicles; beneath, the "
        "survey's households of the same kinds, weighed as here (n households of the run; cells "
        f"under {LEAST} are not shown)",
    )


def zero_trips(rates: pd.DataFrame) -> Table:
    """Return the shares of households without a trip by size, beside the survey's."""
    rows = []
    for name, part in [
        *((f"{n}", rates[rates["size"] == n]) for n in range(1, 5)),
        ("5 and more", rates[rates["size"] == 5]),
        ("All", rates),
    ]:
        n = int(part["households"].sum())
        told = ["not shown"] * 3
        if n >= LEAST:
            here, there = (100 * _weighed(part, c) for c in ("zero_share", "survey_zero_share"))
            told = [number(here, 1), number(there, 1), number(here - there, 1, sign=True)]
        rows.append([name, f"{n:,}", *told])
    return Table(
        ["Persons", "Households", "Run, %", "Survey, %", "Difference, points"],
        rows,
        "Households that make no trip on the day (%)",
    )


# --- equity ---------------------------------------------------------------------------------------


def equity_tables(run: Run) -> list[Table]:
    """Return trips a person and household, zero-trip share and moves by kind of household.

    Cells under `LEAST` households are not shown.
    """
    days = run.decisions[run.decisions["kind"] == "trips"]
    moved = run.events.loc[run.events["kind"] == "moved", "household_id"]
    homes = run.households
    each = pd.DataFrame(
        {
            "trips": days.groupby("household_id")["value"].mean(),
            "persons": homes["hhsize"],
            "moves": homes.index.isin(moved),
        },
        index=homes.index,
    )
    each["zero"] = each["trips"] == 0
    groups = household_groups(homes, run.persons)
    return [_equity(each, groups[g], GROUPINGS[g]) for g in GROUPINGS if g in groups]


def _equity(each: pd.DataFrame, groups: pd.Series, title: str) -> Table:
    rows = []
    for name, part in each.groupby(groups, observed=True):
        n = len(part)
        told = ["not shown"] * 5
        if n >= LEAST:
            told = [
                f"{part['persons'].sum():,.0f}",
                number(part["trips"].mean(), 2),
                number(part["trips"].sum() / part["persons"].sum(), 2),
                number(100 * part["zero"].mean(), 1),
                number(100 * part["moves"].mean(), 1),
            ]
        rows.append([str(name), f"{n:,}" if n >= LEAST else f"under {LEAST}", *told])
    columns = ["Households", "Persons", "Trips a household", "Trips a person"]
    return Table([title, *columns, "No trip, %", "Moved, %"], rows)


# --- health of the talks --------------------------------------------------------------------------


def health(run: Run) -> list[tuple[str, str]]:
    """Return how well the language model kept to the talks, as names and values."""
    talks = [r for r in run.transcripts if not r.get("items")]
    plans = len(run.transcripts) - len(talks)
    turns = [t for r in talks for t in r.get("turns", []) if not t.get("skipped")]
    asked = run.asked[run.asked["outcome"].fillna("") != ""]
    if not run.transcripts and asked.empty:
        return []
    unread = sum(_unread(t) for t in turns)
    rejected = [t for t in turns if t.get("verdict") == "reject" and not _unread(t)]
    dropped = sum(not t.get("kept", True) for t in rejected)
    ends = asked["outcome"].value_counts()
    rounds = [int(r.get("rounds") or 0) for r in talks]
    calls = sum(int(r.get("calls") or 0) for r in run.transcripts)
    rows = [
        ("Households asked", f"{len(asked):,} of trips and moves, {plans:,} of plans"),
        (
            "Without a decision",
            f"{int(ends.get('undecided', 0)):,} undecided, {int(ends.get('not reached', 0)):,} not "
            "reached before the budget ended; none was filled in",
        ),
    ]
    if turns:
        share = 100 * (len(turns) - unread) / len(turns)
        rows += [
            ("Statements", f"{len(turns):,}"),
            ("Parse rate", f"{share:.1f} % could be read; {unread:,} could not and were said anew"),
            (
                "Rejected",
                f"{dropped:,} left out of the talk, {len(rejected) - dropped:,} objected to and "
                f"kept ({100 * len(rejected) / len(turns):.0f} % of the statements)",
            ),
            ("Bounded", f"{sum(_bounded(t) for t in turns):,} named a value beyond its bounds"),
        ]
    if rounds:
        told = f"{sum(rounds) / len(rounds):.1f} a talk on average, {max(rounds)} at most"
        rows.append(("Rounds", told))
    if run.transcripts:
        told = f"{calls:,}, {calls / len(run.transcripts):.1f} a talk"
        rows.append(("Model calls of the talks", told))
    tokens = run.manifest.get("tokens") or {}
    if tokens:
        asked_now = run.manifest.get("calls_asked")
        replayed = (
            f"; {asked_now:,} calls were asked in the last run" if asked_now is not None else ""
        )
        rows.append(
            (
                "Tokens",
                f"{tokens.get('prompt', 0):,} read, {tokens.get('completion', 0):,} written"
                f"{replayed}",
            )
        )
    return rows


def _unread(turn: transcript.Record) -> bool:
    """Say whether a statement could not be read: no value, and rejected for its form."""
    return turn.get("value") is None and turn.get("verdict") == "reject" and not turn.get("act")


def _bounded(turn: transcript.Record) -> bool:
    return turn.get("said") is not None and turn.get("said") != turn.get("value")


# --- flags ----------------------------------------------------------------------------------------


def flags(run: Run) -> Table:
    """Return what is usual and what this run has, with a flag where they differ."""
    rows = [*_balance(run), *_rates(run), *_fit(run), *_moves(run), *_talks(run)]
    flagged = frozenset(i for i, row in enumerate(rows) if row[-1] == "flag")
    return Table(
        ["Check", "This run", "Usual", "Source of the range", ""],
        rows,
        "Validation flags",
        labels=4,
        flagged=flagged,
    )


def _row(check: str, value: float, low: float, high: float, source: str, digits: int) -> list[str]:
    if pd.isna(value):
        return [check, "none", "", source, ""]
    usual = f"{low:.{digits}f} to {high:.{digits}f}"
    return [check, number(value, digits), usual, source, "" if low <= value <= high else "flag"]


def _balance(run: Run) -> list[list[str]]:
    if run.balance is None:
        return []
    return [
        _row(
            f"Productions over raw attractions, {PURPOSE_WORDS.get(r['purpose'], r['purpose'])}",
            r["ratio"],
            *RATIO,
            f"{TMIP}, for a whole region",
            2,
        )
        for r in run.balance.to_dict("records")
    ]


def _rates(run: Run) -> list[list[str]]:
    demand, rows = run.demand, []
    total = demand["TRIPS_P"].sum()
    if total:
        # The project's notes give these as rules of thumb, without a page.
        shares = {p: 100 * demand[f"{p.upper()}_P"].sum() / total for p in PURPOSES}
        other = sum(v for p, v in shares.items() if p not in ("hbw", "nhb"))
        thumb = "rule of thumb, from memory, not verified"
        rows += [
            _row("Share of home-based work, %", shares["hbw"], 18, 27, thumb, 0),
            _row("Share of all other home-based purposes, %", other, 47, 54, thumb, 0),
            _row("Share of non-home-based, %", shares["nhb"], 22, 31, thumb, 0),
        ]
    if run.rates is None:
        return rows
    here, there = (_weighed(run.rates, c) for c in ("trips", "survey_trips"))
    zero, survey_zero = (_weighed(run.rates, c) for c in ("zero_share", "survey_zero_share"))
    by_size = [run.rates[run.rates["size"] == n] for n in range(1, 6)]
    means = [_weighed(p, "trips") for p in by_size if p["households"].sum() >= LEAST]
    falls = sum(b < a for a, b in pairwise(means))
    return [
        _row("Trips a household over the survey's", here / there, 0.95, 1.05, OURS, 2),
        _row(
            "Share without a trip less the survey's, points",
            100 * (zero - survey_zero),
            -3,
            3,
            "level card of an evaluation",
            1,
        ),
        _row("Falls of the trip rate with household size", float(falls), 0, 0, TMIP, 0),
        *rows,
    ]


def _fit(run: Run) -> list[list[str]]:
    if run.fit is None or "percent_rmse" not in run.fit:
        return []
    off = int((run.fit["percent_rmse"] > 10).sum())
    check = f"Controls of {len(run.fit)} that are off by more than 10 % RMSE"
    return [_row(check, float(off), 0, 0, OURS, 0)]


def _moves(run: Run) -> list[list[str]]:
    if run.calibration is None:
        return []
    groups = run.calibration
    off = groups["difference"].abs() > (0.05 * groups["wanted"]).clip(lower=1.0)
    check = f"Groups of {len(groups)} whose moves are off the census rate by a twentieth"
    return [_row(check, float(off.sum()), 0, 0, OURS, 0)]


def _talks(run: Run) -> list[list[str]]:
    talks = [r for r in run.transcripts if not r.get("items")]
    turns = [t for r in talks for t in r.get("turns", []) if not t.get("skipped")]
    rows = []
    if turns:
        read = 100 * sum(not _unread(t) for t in turns) / len(turns)
        rows.append(_row("Statements that could be read, %", read, 95, 100, OURS, 0))
    if talks:
        lost = 100 * sum(r.get("value") is None for r in talks) / len(talks)
        rows.append(_row("Negotiations that ended undecided, %", lost, 0, 5, OURS, 0))
    return rows
