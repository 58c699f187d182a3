"""From decisions to zone demand: productions, attractions, and who travels from where to where.

Demand is in production-attraction form: person trips of an average weekday, by purpose, made inside
the region. A home-based trip is produced at the home, whichever way it goes. Files are `export`'s
matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from pemand_abm.errors import SettingsError, TableError, listed
from pemand_abm.ids import some
from pemand_abm.surrogate import PURPOSES

# Trip ends of a weekday for each worker, student, child or household of the land use. They shape
# where attractions lie; levels come from the productions.
# `hbw`, `hbshop` and `nhb` are equations of WFRC and MAG (Salt Lake City), as a planning document
# of Park City, Utah (parkcity.gov, document 43465) gives them; we read them second hand. `nhb` is
# half of the sum of its trips to and from work and of others. HBW lies in the 1.20 to 1.55 an
# employee of the TMIP reasonableness manual (2010).
# `hbsch`, `hbsocrec` and `hbo` are our assumptions, round numbers not estimated from any survey.
# AGE0519 stands for the schools below high school, which the land use does not count; HEREMPN
# holds health, schools and recreation. `hbo` is near the same source's personal business (0.69 a
# household, 0.98 a retail job, 0.19 another job), with more for the care and the taking of others
# that NHTS counts here.
RATES: Mapping[str, Mapping[str, float]] = {
    "hbw": {"TOTEMP": 1.2167},
    "hbsch": {"HSENROLL": 1.4, "COLLFTE": 1.0, "COLLPTE": 0.5, "AGE0519": 1.0},
    "hbshop": {"RETEMPN": 1.6208, "TOTHH": 0.7221},
    "hbsocrec": {"HEREMPN": 1.0, "RETEMPN": 0.5, "TOTHH": 0.5},
    "hbo": {"HEREMPN": 1.5, "RETEMPN": 1.0, "FPSEMPN": 0.2, "OTHEMPN": 0.2, "TOTHH": 0.7},
    "nhb": {
        "TOTEMP": 0.6065,
        "RETEMPN": 2.9935,
        "HEREMPN": 0.3375,
        "FPSEMPN": 0.3375,
        "OTHEMPN": 0.3375,
        "TOTHH": 1.7717,
    },
}

# Our assumptions too: the loss of attraction for each minute by car, and the skim that gives the
# minutes.
DECAY: Mapping[str, float] = {
    "hbw": 0.08,
    "hbsch": 0.15,
    "hbshop": 0.14,
    "hbsocrec": 0.10,
    "hbo": 0.12,
    "nhb": 0.10,
}
MINUTES: Mapping[str, str] = {
    "hbw": "SOV_TIME__AM",
    "hbsch": "SOV_TIME__AM",
    "hbshop": "SOV_TIME__MD",
    "hbsocrec": "SOV_TIME__MD",
    "hbo": "SOV_TIME__MD",
    "nhb": "SOV_TIME__MD",
}

COLUMNS: dict[str, str] = {
    "zone_id": "the region's own zone id",
    "district": "name of the zone's district",
    "households": "households that live in the zone on the travel day (households)",
    "persons": "persons of those households (persons)",
    "group_quarters_persons": "persons in group quarters, not among the households (persons)",
    **{
        f"{purpose.upper()}_{end}": f"{words}: {ends} (person trips of an average weekday)"
        for purpose, words in {
            "hbw": "home-based work",
            "hbsch": "home-based school and college",
            "hbshop": "home-based shopping and meals",
            "hbsocrec": "home-based social visits and recreation",
            "hbo": "home-based other",
            "nhb": "non-home-based",
        }.items()
        for end, ends in {
            "P": "productions of households",
            "A": "attractions, scaled to the productions",
        }.items()
    },
    "NHB_P": "non-home-based trips of all households that begin in this zone, placed by what "
    "attracts them (person trips of an average weekday)",
    "TRIPS_P": "home-based productions of the zone's households and non-home-based trips that "
    "begin here; not to be divided by the households, see trips_per_household "
    "(person trips of an average weekday)",
    "TRIPS_A": "attractions, all purposes (person trips of an average weekday)",
    **{
        f"GQ_{purpose.upper()}": "productions of group quarters, not in the columns _P and _A nor "
        "in trips.omx "
        "(person trips of an average weekday)"
        for purpose in PURPOSES
    },
}


@dataclass(frozen=True, slots=True)
class DemandSettings:
    """Attraction rates by purpose and land use, decay a minute, and the skim of the minutes.

    `wanted` is the observed mean of these minutes by purpose, where it is known.
    """

    rates: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: RATES)
    decay: Mapping[str, float] = field(default_factory=lambda: DECAY)
    minutes: Mapping[str, str] = field(default_factory=lambda: MINUTES)
    wanted: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = [
            f"{name}: has no purpose {', '.join(lacking)}"
            for name, given in (
                ("attraction rates", self.rates),
                ("decay", self.decay),
                ("minutes", self.minutes),
            )
            if (lacking := [p for p in PURPOSES if p not in given])
        ]
        problems += [
            f"{name}: {', '.join(extra)} is no purpose; purposes are {', '.join(PURPOSES)}"
            for name, given in (
                ("attraction rates", self.rates),
                ("decay", self.decay),
                ("minutes", self.minutes),
            )
            if (extra := [str(p) for p in given if p not in PURPOSES])
        ]
        problems += [
            f"decay of {p}: {self.decay[p]} is not a number of 0 or more a minute"
            for p in PURPOSES
            if p in self.decay and not 0 <= self.decay[p] < np.inf
        ]
        if problems:
            raise SettingsError(listed(problems, "demand settings"))


@dataclass(frozen=True, slots=True)
class Demand:
    """Zone demand by purpose: tables of zones x purposes, in person trips of an average weekday.

    `productions` and `attractions` have the same total in every purpose; `raw` is what the land use
    alone attracts, and `at_home` the households' trips of all purposes at their homes.
    """

    productions: pd.DataFrame
    attractions: pd.DataFrame
    raw: pd.DataFrame
    at_home: pd.Series

    @property
    def ratio(self) -> pd.Series:
        """Productions over raw attractions by purpose, NaN where the land use attracts nothing."""
        return (self.productions.sum() / self.raw.sum().where(lambda total: total > 0)).rename(
            "ratio"
        )


def productions(
    decisions: pd.DataFrame, households: pd.DataFrame, zones: pd.DataFrame
) -> pd.DataFrame:
    """Return the households' trips of an average weekday at their homes, zones x purposes.

    Several travel days are averaged. Non-home-based trips stand at the home here; `zone_demand`
    moves them.

    Raises
    ------
    TableError
        A decision without household, a household without decision or decided twice on a day, a home
        outside the zones.
    """
    days = decisions[decisions["kind"] == "trips"]
    problems = _orphans(days, households)
    homes = zones.index.get_indexer(households["home_zone_id"])
    if (homes < 0).any():
        lost = households["home_zone_id"][homes < 0]
        problems.append(
            f"home_zone_id: {len(lost)} households live in no zone of the region, first "
            f"{some(lost.unique())}"
        )
    if problems:
        raise TableError(listed(problems, "decisions"))
    at_home = trips_of_households(days, households).groupby(homes).sum()
    return at_home.reindex(range(len(zones)), fill_value=0.0).set_axis(zones.index)


def trips_of_households(decisions: pd.DataFrame, households: pd.DataFrame) -> pd.DataFrame:
    """Return each household's person trips of an average weekday, households x purposes."""
    days = decisions[decisions["kind"] == "trips"]
    trips = days.groupby("household_id")[list(PURPOSES)].sum() / max(days["event"].nunique(), 1)
    return trips.reindex(households.index, fill_value=0.0).astype("float64")


def _orphans(days: pd.DataFrame, households: pd.DataFrame) -> list[str]:
    problems = []
    unknown = days["household_id"][~days["household_id"].isin(households.index)]
    if len(unknown):
        problems.append(
            f"household_id: {len(unknown)} decisions of no household, first "
            f"{some(unknown.unique())}"
        )
    twice = days["household_id"][days.duplicated(["household_id", "event"])]
    if len(twice):
        problems.append(
            f"household_id: {len(twice)} decisions taken twice on one day, first "
            f"{some(twice.unique())}"
        )
    silent = households.index[~households.index.isin(days["household_id"])]
    if len(days) and len(silent):
        problems.append(
            f"household_id: {len(silent)} households decided no trips, first {some(silent)}"
        )
    return problems


def attractiveness(
    zones: pd.DataFrame, purpose_rates: Mapping[str, Mapping[str, float]] = RATES
) -> pd.DataFrame:
    """Return the unscaled trip ends that the land use attracts, zones x purposes.

    Raises
    ------
    TableError
        Land-use columns that the rates name and the region lacks, or that hold NaN or negative
        values.
    """
    wanted = list(dict.fromkeys(column for rates in purpose_rates.values() for column in rates))
    lacking = [c for c in wanted if c not in zones]
    problems = (
        [
            f"lacks the columns {', '.join(lacking)}; add them or leave them out of the "
            "attraction rates"
        ]
        if lacking
        else []
    )
    for column in (c for c in wanted if c in zones):
        values = pd.to_numeric(zones[column], errors="coerce")
        bad = zones.index[~(np.isfinite(values) & (values >= 0))]
        if len(bad):
            problems.append(
                f"{column}: {len(bad)} values are not numbers of 0 or more, first in zones "
                f"{some(bad)}"
            )
    if problems:
        raise TableError(listed(problems, "land use"))
    return pd.DataFrame(
        {
            purpose: sum(
                (zones[c].astype("float64") * rate for c, rate in rates.items()),
                pd.Series(0.0, zones.index),
            )
            for purpose, rates in purpose_rates.items()
        }
    )[list(PURPOSES)]


def zone_demand(
    decisions: pd.DataFrame,
    households: pd.DataFrame,
    zones: pd.DataFrame,
    purpose_rates: Mapping[str, Mapping[str, float]] = RATES,
    at_home: pd.DataFrame | None = None,
) -> Demand:
    """Return productions by zone and purpose, and attractions scaled to them.

    Non-home-based trips are generated by households and start where such trips start: their
    production zones follow their attractiveness, the convention that puts the production at the
    origin. *at_home* (zones x purposes, trips of an average weekday at the homes) stands in for
    what the decisions add up to, where negotiations are expanded to all households.

    Raises
    ------
    TableError
        As `productions` and `attractiveness`; trips of a purpose that no zone attracts.
    """
    produced = productions(decisions, households, zones)
    if at_home is not None:
        produced = at_home.reindex(zones.index)[list(PURPOSES)]
    raw = attractiveness(zones, purpose_rates)
    totals, drawn = produced.sum(), raw.sum()
    _check_attracted(totals, drawn)
    shares = raw / drawn.where(drawn > 0, 1.0)
    attractions = shares * totals
    return Demand(produced.assign(nhb=attractions["nhb"]), attractions, raw, produced.sum(axis=1))


def _check_attracted(totals: pd.Series, drawn: pd.Series) -> None:
    nowhere = [p.upper() for p in PURPOSES if totals[p] > 0 and drawn[p] <= 0]
    if nowhere:
        raise TableError(
            f"land use: households make {', '.join(nowhere)} trips, but no zone attracts any; "
            "give the region land use that the rates name, or other attraction rates"
        )


def check_demand(
    trips: pd.DataFrame,
    zones: pd.DataFrame,
    skims: Mapping[str, np.ndarray],
    settings: DemandSettings,
) -> None:
    """Refuse, before anybody talks, land use and skims that the trips could not be sent through.

    Raises
    ------
    TableError, SettingsError
        As `attractiveness`, `zone_demand` and `trip_matrices`.
    """
    _check_skims(skims, settings)
    _check_attracted(trips[list(PURPOSES)].sum(), attractiveness(zones, settings.rates).sum())


def _check_skims(skims: Mapping[str, np.ndarray], settings: DemandSettings) -> None:
    lacking = sorted({settings.minutes[p] for p in PURPOSES} - set(skims))
    if lacking:
        raise SettingsError(
            f"the region has no skim {', '.join(lacking)}, which demand.minutes names; it has "
            f"{', '.join(skims) or 'none'}"
        )


def intrazonal(minutes: np.ndarray) -> tuple[np.ndarray, int]:
    """Return minutes whose zero diagonal is half the nearest neighbour's, and how many were zero.

    A zone that has no neighbour keeps its zero.
    """
    minutes = np.array(minutes, dtype="float64")
    others = np.where(np.eye(len(minutes), dtype=bool), np.inf, minutes)
    nearest = others.min(axis=1, initial=np.inf)
    zero = (np.diag(minutes) == 0) & np.isfinite(nearest)
    np.fill_diagonal(minutes, np.where(zero, nearest / 2, np.diag(minutes)))
    return minutes, int(zero.sum())


def gravity(
    p: np.ndarray,
    a: np.ndarray,
    impedance: np.ndarray,
    decay: float,
    tolerance: float = 1e-10,
    most: int = 20_000,
) -> np.ndarray:
    r"""Distribute trips by the doubly constrained gravity model.

    :math:`T_{ij}=u_i v_j e^{-\beta c_{ij}}`, balanced by Furness's rounds.

    Parameters
    ----------
    p, a : ndarray, shape (N,)
        Productions and attractions of the same total; zeros give rows and columns of zeros.
    impedance : ndarray, shape (N, N)
        Minutes.
    decay : float
        :math:`\beta`, a minute.
    tolerance : float
        The largest relative error of a column total; row totals are exact to rounding.
    most : int
        Iterations after which the balancing is given up.

    Returns
    -------
    ndarray, shape (N, N)

    Raises
    ------
    TableError
        Values that no table of trips can have: negative, not finite, totals that differ, trips that
        no zone attracts or reaches.
    """
    p, a, impedance = (np.asarray(x, dtype="float64") for x in (p, a, impedance))
    _check_gravity(p, a, impedance)
    # A factor a row leaves the balanced table as it is, and keeps far zones from underflowing to
    # zero.
    friction = (
        np.exp(-decay * (impedance - impedance.min(axis=1, initial=np.inf, keepdims=True)))
        if len(p)
        else impedance
    )
    friction = friction * (p > 0)[:, None] * (a > 0)[None, :]
    rows, columns = p > 0, a > 0
    u, v, error = np.zeros_like(p), columns.astype("float64"), 0.0
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        for _ in range(most):
            u[rows] = p[rows] / (friction @ v)[rows]
            reached = u @ friction
            error = np.max(np.abs(v * reached - a)[columns] / a[columns], initial=0.0)
            if error <= tolerance:
                return u[:, None] * friction * v[None, :]
            if not np.isfinite(error):
                raise TableError(
                    "gravity model: some zones are so far apart that no trip reaches them; use a "
                    "smaller decay or check the travel times"
                )
            v[columns] = a[columns] / reached[columns]
    raise TableError(
        f"gravity model: not balanced after {most} rounds, attractions still off by {error:.2g}; "
        "use a smaller decay or check the travel times"
    )


def mean_minutes(trips: np.ndarray, minutes: np.ndarray) -> float:
    """Return the mean of the minutes over the trips; NaN without trips."""
    total = float(trips.sum())
    return float((trips * minutes).sum()) / total if total > 0 else float("nan")


def _check_gravity(p: np.ndarray, a: np.ndarray, impedance: np.ndarray) -> None:
    problems = []
    if p.ndim != 1 or a.shape != p.shape or impedance.shape != (len(p), len(p)):
        raise TableError(
            f"gravity model: shapes differ: productions {p.shape}, attractions {a.shape}, minutes "
            f"{impedance.shape}"
        )
    for name, values in (("productions", p), ("attractions", a), ("minutes", impedance)):
        bad = ~(np.isfinite(values) & (values >= 0))
        if bad.any():
            problems.append(
                f"{name}: {int(bad.sum())} values are not finite numbers of 0 or more, first at "
                f"{np.argwhere(bad)[0].tolist()}"
            )
    if not problems and p.sum() > 0 and a.sum() == 0:
        problems.append(f"{p.sum():g} trips are produced and no zone attracts any")
    elif not problems and not np.isclose(p.sum(), a.sum(), rtol=1e-9, atol=1e-9):
        problems.append(
            f"productions sum to {p.sum():.9g} and attractions to {a.sum():.9g}; scale them to "
            "one total first"
        )
    if problems:
        raise TableError(listed(problems, "gravity model"))


def trip_matrices(
    demand: Demand, skims: Mapping[str, np.ndarray], settings: DemandSettings | None = None
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return one matrix a purpose (rows produce, columns attract), and notes on assumptions.

    Raises
    ------
    SettingsError
        A skim that the settings name and the region lacks.
    """
    settings = settings or DemandSettings()
    _check_skims(skims, settings)
    cores, notes = {}, []
    for name in dict.fromkeys(settings.minutes[p] for p in PURPOSES):
        _, replaced = intrazonal(skims[name])
        if replaced:
            notes.append(
                f"{name}: {replaced} intrazonal times of zero replaced by half the time to the "
                "nearest neighbour"
            )
    for purpose in PURPOSES:
        minutes, _ = intrazonal(skims[settings.minutes[purpose]])
        cores[purpose.upper()] = gravity(
            demand.productions[purpose].to_numpy(),
            demand.attractions[purpose].to_numpy(),
            minutes,
            settings.decay[purpose],
        )
    return cores, notes


def moves_matrix(events: pd.DataFrame, zones: pd.Index) -> np.ndarray:
    """Return the completed moves from zone (row) to zone (column), shape (N, N).

    Moves over the region's border are not in it.

    Raises
    ------
    TableError
        A move from or to a zone that the region does not have.
    """
    moved = events[
        (events["kind"] == "moved") & events["from_zone"].notna() & events["to_zone"].notna()
    ]
    ends = [
        zones.get_indexer(pd.Index(moved[c]).astype(zones.dtype)) for c in ("from_zone", "to_zone")
    ]
    problems = [
        f"{column}: {int((rows < 0).sum())} moves with a zone that the region lacks, first "
        f"{some(moved[column][rows < 0].unique())}"
        for column, rows in zip(("from_zone", "to_zone"), ends, strict=True)
        if (rows < 0).any()
    ]
    if problems:
        raise TableError(listed(problems, "events"))
    matrix = np.zeros((len(zones), len(zones)))
    np.add.at(matrix, tuple(ends), 1.0)
    return matrix


def demand_table(
    demand: Demand,
    zones: pd.DataFrame,
    households: pd.DataFrame,
    quarters: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return the table of `demand.csv`: every zone, with the columns of `COLUMNS`.

    *quarters* (index `zone_id`) has the `persons` of group quarters, and their trips by purpose
    where these are known.

    Raises
    ------
    TableError
        Group quarters in a zone that the region lacks.
    """
    lived = (
        households.groupby("home_zone_id")["hhsize"]
        .agg(["size", "sum"])
        .reindex(zones.index, fill_value=0)
    )
    if quarters is None:
        quarters = pd.DataFrame({"persons": 0}, index=zones.index)
    unknown = quarters.index[~quarters.index.isin(zones.index)]
    if len(unknown):
        raise TableError(
            f"group quarters: {len(unknown)} zones that the region lacks, first {some(unknown)}"
        )
    quarters = quarters.reindex(zones.index, fill_value=0)
    ends = {
        f"{p.upper()}_{end}": table[p]
        for p in PURPOSES
        for end, table in (("P", demand.productions), ("A", demand.attractions))
    }
    return pd.DataFrame(
        {
            "district": zones["district"],
            "households": lived["size"],
            "persons": lived["sum"],
            "group_quarters_persons": quarters["persons"],
            **ends,
            "TRIPS_P": demand.productions.sum(axis=1),
            "TRIPS_A": demand.attractions.sum(axis=1),
            **{f"GQ_{p.upper()}": quarters[p] for p in PURPOSES if p in quarters},
        },
        index=zones.index.rename("zone_id"),
    )


def balance_table(
    demand: Demand,
    cores: Mapping[str, np.ndarray],
    skims: Mapping[str, np.ndarray],
    settings: DemandSettings,
) -> pd.DataFrame:
    """Return `demand_balance.csv`: by purpose, unscaled totals, their ratio, and mean minutes."""
    minutes = {p: intrazonal(skims[settings.minutes[p]])[0] for p in PURPOSES}
    trips = {p: cores[p.upper()] for p in PURPOSES}
    return (
        pd.DataFrame(
            {
                "productions": demand.productions.sum().round(6),
                "attractions_raw": demand.raw.sum().round(6),
                "ratio": demand.ratio.round(4),
                "rates": {
                    p: "; ".join(
                        f"{rate:g} for each {column}" for column, rate in settings.rates[p].items()
                    )
                    for p in PURPOSES
                },
                "decay_per_minute": dict(settings.decay),
                "skim": dict(settings.minutes),
                "mean_minutes": {p: round(mean_minutes(trips[p], minutes[p]), 3) for p in PURPOSES},
                "wanted_minutes": pd.Series(settings.wanted, dtype="float64"),
                "intrazonal_share": {
                    p: round(float(np.trace(trips[p]) / max(trips[p].sum(), 1e-300)), 4)
                    for p in PURPOSES
                },
            }
        )
        .loc[list(PURPOSES)]
        .rename_axis("purpose")
    )
