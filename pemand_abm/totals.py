"""A run's totals: what its negotiations say of all households, and what enters zone demand.

Without a level card (`admission`) the estimates are shown and not used: every total is the sum of
the household rows, as the surrogate drew them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pemand_abm import estimator
from pemand_abm.estimator import ALL, COLUMNS, LEAST_DIRECT, respondents
from pemand_abm.sample import household_types
from pemand_abm.study import TRAVEL_DAY, Study
from pemand_abm.surrogate import PURPOSES, purpose_shares, split_trips

Estimating = Callable[[pd.DataFrame, list[str]], pd.DataFrame]
"""From domains (columns) and targets to `estimator.estimate_totals`."""
USED, SHOWN = "used", "shown, not used"
INTERVAL = (
    "The 95 % negotiation-sampling interval says how far a total could lie off because only a"
    " sample of the households negotiated. It covers neither the survey, nor the synthetic"
    " population, nor whether the model's households behave like people."
)


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """`table` is estimates.csv; `at_home` the trips at the homes that demand is made of.

    `at_home` (zones x purposes) is None where the household rows add up to the demand themselves;
    `notes` say why estimates are not used though the model is admitted.
    """

    table: pd.DataFrame
    at_home: pd.DataFrame | None
    notes: tuple[str, ...] = ()

    @property
    def zone_methods(self) -> pd.Series | None:
        """Return how each zone's trips were estimated; None where no negotiation entered."""
        if self.at_home is None:
            return None
        return self.table["method"].xs("zone").xs(ALL, level="purpose").rename_axis("zone_id")


def settle(study: Study, decisions: pd.DataFrame, admitted: bool) -> tuple[pd.DataFrame, Totals]:
    """Return a run's decisions and totals: with the negotiations in them where they are used."""
    if not admitted:
        return decisions, totals_of(study, decisions, False)
    entered = with_sources(study, decisions)
    totals = totals_of(study, entered, True)
    if totals.at_home is not None:
        return entered, totals
    shown = totals_of(study, decisions, False)
    return decisions, Totals(shown.table, None, totals.notes)


def with_sources(study: Study, decisions: pd.DataFrame) -> pd.DataFrame:
    """Return the decisions with the negotiated trips of an admitted model in them.

    A household that stayed undecided keeps the surrogate's draw, and its `source` says so.
    """
    trips = decisions["kind"] == "trips"
    told = trips & decisions["negotiated"].notna()
    values = decisions.loc[told].set_index("household_id")["negotiated"].astype("int64")
    rates = study.calibration.rates(study.rates)
    split = split_trips(values, study.population.households, rates, study.scenario.seed, TRAVEL_DAY)
    table = decisions.copy()
    table.loc[told, ["value", *PURPOSES]] = split[["trips", *PURPOSES]].to_numpy()
    source = table["source"].where(~told, "negotiated")
    undecided = trips & ~told & (decisions["outcome"] == "undecided")
    return table.assign(source=source.where(~undecided, "undecided"))


def totals_of(study: Study, decisions: pd.DataFrame, admitted: bool) -> Totals:
    """Return the estimates of a run, and the demand at home that follows where they are used."""
    households, zones = study.population.households, study.region.zones
    rows = decisions[decisions["kind"] == "trips"].set_index("household_id")
    rows = rows.reindex(households.index)
    sample = rows.loc[rows["sampled"], ["stratum", "inclusion"]]
    sampled = respondents(sample, rows["negotiated"].notna())
    kind, home = household_types(households), households["home_zone_id"]
    district = home.map(zones["district"]).astype("str")
    shares = purpose_shares(households, study.calibration.rates(study.rates))
    predicted = shares.mul(study.expected["mean"], axis=0).assign(**{ALL: study.expected["mean"]})
    told = rows.loc[sampled.index, "negotiated"].astype(float)
    observed = shares.loc[sampled.index].mul(told, axis=0).assign(**{ALL: told})
    known = sampled.assign(
        kind=kind.reindex(sampled.index),
        observed=told,
        predicted=predicted[ALL].reindex(sampled.index),
    )
    update = estimator.update_surrogate(known)

    def estimate(domains: pd.DataFrame, targets: list[str]) -> pd.DataFrame:
        return estimator.estimate_totals(
            predicted[targets], sampled, observed[targets], kind, domains, update
        )

    targets = [*PURPOSES, ALL]
    group, by_group = _groups(district, sampled.index, estimate, targets)
    held = rows[list(PURPOSES)].astype(float)
    # The drawn rows scatter about the mean as the households themselves do: twice, but for what
    # the sample shows beyond the surrogate's spread.
    scatter = study.expected["sd"] ** 2 * (1 + _dispersion(known, study.expected["sd"]))
    by_type = estimate(pd.DataFrame({"type": kind}), targets)
    own_zone = _zones(zones, home, district, group, held, scatter, sampled, by_group, estimate)
    made = _at_home(zones, home, district, group, held, predicted, by_group, own_zone)
    # A zone's trips are the sum of its purposes', which are scaled each to its own estimate.
    shift = made.sum(axis=1).to_numpy() - own_zone["estimate"]
    own_zone = own_zone.assign(**{c: own_zone[c] + shift for c in ("estimate", "low", "high")})
    by_district = _districts(zones, district, group, made, by_group, scatter, shares, sampled.index)
    region = by_type.xs("region", drop_level=False)
    parts = [region, by_district, by_type.xs("type", drop_level=False), own_zone]
    drawn = pd.concat(
        [
            _sums(held, pd.Series(ALL, held.index), "region"),
            _sums(held, district, "district"),
            _sums(held, kind, "type"),
            _sums(held, home, "zone"),
        ]
    )
    table = pd.concat([part.astype({"df": "Int64"}) for part in parts])
    positive = bool((region["estimate"] > 0).all()) and len(sampled) >= 2
    used = admitted and positive
    table = table.assign(rows=drawn.reindex(table.index), use=USED if used else SHOWN)
    table["factor"] = (table["estimate"] / table["rows"]).where(table["rows"] > 0)
    notes = (
        ()
        if used or not admitted or not len(sampled)
        else (
            "The negotiated households are too few, or settled on so few trips that no positive "
            "total of every purpose is left; the estimates are shown and not used.",
        )
    )
    return Totals(_rounded(table), made if used else None, notes)


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    numbers = ["estimate", "se", "low", "high", "rows", "factor"]
    return table.assign(**{c: table[c].astype(float).round(6) for c in numbers})


def _groups(
    district: pd.Series, heard: pd.Index, estimate: Estimating, targets: list[str]
) -> tuple[pd.Series, pd.DataFrame]:
    """Return everybody's group of districts, and the groups' estimates (group x purpose).

    A district with fewer than ten negotiations, or whose estimate is not positive in every
    purpose, is joined with others.
    """
    least = LEAST_DIRECT
    while True:
        group = estimator.joined_domains(district, heard, least)
        found = estimate(pd.DataFrame({"group": group}), targets).xs("group")
        if group.nunique() == 1 or (found["estimate"] > 0).all():
            return group, found
        least *= 2


def _dispersion(known: pd.DataFrame, sd: pd.Series) -> float:
    """Return the respondents' variance over the surrogate's; 1 where there are too few to tell."""
    if len(known) < LEAST_DIRECT:
        return 1.0
    weight = 1 / known["inclusion"]
    ratio = (weight * known["observed"]).sum() / max((weight * known["predicted"]).sum(), 1e-9)
    square = (known["observed"] - ratio * known["predicted"]) ** 2
    return float((weight * square).sum() / (weight * sd.reindex(known.index) ** 2).sum())


def _sums(held: pd.DataFrame, domain: pd.Series, level: str) -> pd.Series:
    """Return the sums of the household rows by level, domain and purpose."""
    sums = held.groupby(domain.to_numpy()).sum()
    sums = sums.assign(**{ALL: sums.sum(axis=1)})
    long = sums.rename_axis(index="domain", columns="purpose").stack()
    return pd.concat({level: long}, names=["level"])


def _zones(
    zones: pd.DataFrame,
    home: pd.Series,
    district: pd.Series,
    group: pd.Series,
    held: pd.DataFrame,
    scatter: pd.Series,
    sampled: pd.DataFrame,
    by_group: pd.DataFrame,
    estimate: Estimating,
) -> pd.DataFrame:
    """Return the zones' totals of all purposes; every zone of the region is there."""
    group_of = group.groupby(district).first()
    frame = pd.DataFrame(
        {
            "group": zones["district"].astype("str").map(group_of).fillna(""),
            "base": held.sum(axis=1).groupby(home).sum().reindex(zones.index, fill_value=0.0),
            "spread": scatter.groupby(home).sum().reindex(zones.index, fill_value=0.0),
        },
        index=zones.index,
    )
    heard = home.loc[sampled.index].value_counts()
    alone = heard.index[heard >= LEAST_DIRECT]
    # Only zones that may have a word of their own need an estimate; the rest is one domain.
    place = pd.Series(pd.Index(alone).get_indexer(home), index=home.index)
    direct = estimate(pd.DataFrame({"zone": place}), [ALL]).xs("zone").xs(ALL, level="purpose")
    direct = direct[direct.index >= 0]
    direct = direct.set_axis(alone[direct.index.astype("int64")])
    groups = by_group.xs(ALL, level="purpose")
    table = estimator.estimate_zones(frame, direct, groups)
    table["n"] = heard.reindex(zones.index, fill_value=0).astype("int64")
    keys = pd.MultiIndex.from_product(
        [["zone"], zones.index, [ALL]], names=["level", "domain", "purpose"]
    )
    return table.set_axis(keys)[COLUMNS]


def _at_home(
    zones: pd.DataFrame,
    home: pd.Series,
    district: pd.Series,
    group: pd.Series,
    held: pd.DataFrame,
    predicted: pd.DataFrame,
    by_group: pd.DataFrame,
    own_zone: pd.DataFrame,
) -> pd.DataFrame:
    """Return trips at the homes, zones x purposes: the rows, scaled to the groups' estimates.

    Where the rows of a group have no trip of a purpose that the estimate has, the surrogate's
    means stand in for them.
    """
    names = list(PURPOSES)
    rows = held.groupby(home).sum().reindex(zones.index, fill_value=0.0)
    means = predicted[names].groupby(home).sum().reindex(zones.index, fill_value=0.0)
    group_of = group.groupby(district).first()
    member = zones["district"].astype("str").map(group_of).fillna("")
    own = rows.sum(axis=1)
    ratio = own_zone["estimate"].to_numpy(float) / own.where(own > 0)
    theta = own_zone["estimate"].groupby(member.to_numpy()).sum() / own.groupby(member).sum()
    # What a zone has of its own beyond its group; 1 where it is synthetic.
    shaped = rows.mul((ratio / member.map(theta)).fillna(1.0), axis=0)
    sums = shaped.groupby(member).transform("sum")
    base = shaped.where(sums > 0, means)
    wanted = by_group["estimate"].unstack()[names].reindex(member).set_axis(zones.index)
    sums = base.groupby(member).transform("sum")
    return (base / sums.where(sums > 0) * wanted).fillna(0.0)


def _districts(
    zones: pd.DataFrame,
    district: pd.Series,
    group: pd.Series,
    made: pd.DataFrame,
    by_group: pd.DataFrame,
    scatter: pd.Series,
    shares: pd.DataFrame,
    heard: pd.Index,
) -> pd.DataFrame:
    """Return the districts' totals: direct, or a share of their joined group's estimate."""
    names = zones["district"].astype("str")
    sums = made.groupby(names).sum()
    sums = sums.assign(**{ALL: sums.sum(axis=1)})
    group_of = group.groupby(district).first().reindex(sums.index)
    members = group_of.map(group_of.value_counts())
    spread = shares.pow(2).assign(**{ALL: 1.0}).mul(scatter, axis=0).groupby(district).sum()
    parts = {}
    for purpose in sums:
        found = by_group.xs(purpose, level="purpose").reindex(group_of)
        found = found.set_axis(sums.index)
        joint = members > 1
        estimate = sums[purpose]
        relative = (found["se"] / found["estimate"]) ** 2
        error = np.sqrt(estimate**2 * relative + spread[purpose].reindex(sums.index).fillna(0.0))
        parts[purpose] = found.assign(
            estimate=estimate,
            se=found["se"].where(~joint, error),
            n=district.loc[heard].value_counts().reindex(sums.index, fill_value=0),
            method=found["method"].where(~joint, "synthetic"),
        )
    table = pd.concat(parts, names=["purpose"]).reset_index().rename(columns={"district": "domain"})
    table = estimator.with_interval(table.astype({"df": float})).assign(level="district")
    table = table.set_index(["level", "domain", "purpose"])
    order = pd.MultiIndex.from_product([["district"], sums.index, sums.columns])
    return table.reindex(order.set_names(table.index.names))[COLUMNS]
