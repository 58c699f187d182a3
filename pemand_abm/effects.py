"""A policy's effect on trips: by published figures, by negotiations, and the one that counts.

The same households negotiate in a base and a policy run, so what a model always says too much or
too little falls out of their differences (ARCHITECTURE §5.4). Tables of two or three runs in, one
table out (`effects.csv`); the arithmetic is `estimator`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pemand_abm.errors import PemandError
from pemand_abm.estimator import (
    ALL,
    LEAST_DIRECT,
    LEVEL,
    policy_effect,
    respondents,
    used_effects,
)
from pemand_abm.ids import some
from pemand_abm.report import Run, changed_by_levers
from pemand_abm.responses import is_type, purposes_of
from pemand_abm.surrogate import PURPOSES

REGION = ("region", ALL, ALL)
GROSS, NET = "gross", "net of placebo"
MEANS = {**{p: f"expected_{p}" for p in PURPOSES}, ALL: "expected"}
KEYS = ("level", "domain", "purpose")
COLUMNS = (
    "changed", "sampled", "n", "not_in_both", "otherwise",
    "effect_published", "se_published",
    "effect_negotiated", "se_negotiated", "low", "high", "df", "placebo",
    "effect_used", "se_used", "used", "note",
)  # fmt: skip
NOBODY = "no household negotiated its trips in both runs"
NO_CARD = "no response card covers this model, prompts and way to talk"


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """`table` is effects.csv (index level, domain, purpose; `COLUMNS`), in person trips a weekday.

    `lacking`: why nothing negotiated can be told, empty where it can. `missing`: the households
    that were drawn and whose facts change, but that did not settle on trips in every run.
    `negotiated_share`: the weight of the negotiated effect in the used one, 0 to 1.
    """

    table: pd.DataFrame
    lacking: str
    missing: pd.Index
    negotiated_share: float

    def region(self) -> pd.Series:
        """Return the row of all trips of the region."""
        return self.table.loc[REGION]


def policy_effects(
    base: Run,
    policy: Run,
    homes: pd.DataFrame,
    district: pd.Series,
    responses: pd.DataFrame | None = None,
    lever: Mapping[str, Any] | None = None,
    placebo: Run | None = None,
) -> Effects:
    """Return the effects by region, district and purpose.

    Parameters
    ----------
    base, policy, placebo : Run
        Of one region and seed. The placebo's households are told what is none of their business;
        what that does is taken off.
    homes, district
        All households of the base and the policy, and the district of each on the travel day.
    responses, lever
        Published elasticities, and the entry of the one lever that differs: from the range of its
        elasticities follows the error of the published effect. Without either it is not known.

    Raises
    ------
    PemandError
        A placebo that leaves households out whom the policy concerns.
    """
    ids = homes.index
    days = [_day(run, ids) for run in (base, policy, *([placebo] if placebo else []))]
    d = surrogate_means(days[1]) - surrogate_means(days[0])
    told = changed_by_levers(base).union(changed_by_levers(policy))
    # What differs without a lever (an input, a household of one run only) is an effect as well.
    changed = ids[ids.isin(told) | (d != 0).any(axis=1)]
    if placebo is not None:
        _check_placebo(placebo, ids[ids.isin(told)])
    lacking = _lacking([base, policy, *([placebo] if placebo else [])], days)
    both = np.logical_and.reduce([day["negotiated"].notna() for day in days])
    otherwise = both & (days[0]["negotiated"] != days[1]["negotiated"])
    drawn = days[0]["sampled"]
    errors = published_error(d, changed, homes, responses, lever)
    answers = [_answers(day) for day in days]
    heard = respondents(days[0].loc[drawn, ["stratum", "inclusion"]], pd.Series(both, ids))
    names = pd.Index(base.zones["district"].astype("str").unique()).sort_values()
    domains = [("region", pd.Series(ALL, ids), pd.Index([ALL]))]
    domains += [("district", district.astype("str"), names)]
    parts = []
    for level, domain, known in domains:
        for name in known:
            own = ids[(domain == name).to_numpy()]
            concerned = changed[changed.isin(own)]
            counts = {
                "changed": len(concerned),
                "sampled": int(drawn[concerned].sum()),
                "not_in_both": int((drawn & ~both)[concerned].sum()),
                "otherwise": 0 if lacking else int((drawn & otherwise)[concerned].sum()),
            }
            part = _of_domain(d, errors, own, concerned, None if lacking else heard, answers)
            part = part.assign(**counts, level=level, domain=str(name))
            parts.append(part.rename_axis("purpose").reset_index())
    table = pd.concat(parts, ignore_index=True).set_index(list(KEYS))
    table["placebo"] = (NET if placebo else GROSS) if not lacking else ""
    table["placebo"] = table["placebo"].where(table["effect_negotiated"].notna(), "")
    table, share, why = _used(table, has_response_card(policy.manifest))
    table["note"] = [_note(row, lacking, why) for row in table.to_dict("records")]
    silent = drawn & ~both & ids.isin(changed)
    return Effects(table[list(COLUMNS)], lacking, ids[silent.to_numpy()], share)


def has_response_card(manifest: Mapping[str, Any]) -> bool:
    """Say whether a run's cards let its negotiations into policy effects: level and response."""
    answers = [c["passed"] for c in manifest.get("cards") or [] if c["card"] == "response"]
    return bool(manifest.get("admitted") and answers and all(answers))


# --- what each run says ---------------------------------------------------------------------------


def _day(run: Run, households: pd.Index) -> pd.DataFrame:
    """Return the rows of the travel day, a row a household; 0 trips for those it does not have."""
    rows = run.decisions[run.decisions["kind"] == "trips"].set_index("household_id")
    lacking = [c for c in MEANS.values() if c not in rows]
    if lacking:
        raise PemandError(
            f"{run.folder / 'decisions.parquet'}: column {', '.join(lacking)} is missing, as an "
            "older version wrote it; run `pemand run` again"
        )
    rows = rows.reindex(households)
    return rows.assign(
        **rows[[*MEANS.values()]].astype("float64").fillna(0.0),
        negotiated=rows["negotiated"].astype("Float64").astype("float64"),
        sampled=rows["sampled"].eq(True),
    )


def surrogate_means(day: pd.DataFrame) -> pd.DataFrame:
    """Return the surrogate's expected trips, households x (purposes and `all`).

    Means and not draws: a drawn trip more or less is so rare that a sample can miss every one, and
    would then seem to agree with the published effect to the last trip.
    """
    return pd.DataFrame({target: day[column] for target, column in MEANS.items()})


def _answers(day: pd.DataFrame) -> pd.DataFrame:
    """Return what was settled on, households x (target, replicate), NaN where nothing was.

    A talk settles the number of trips; purposes have the household's expected shares of its run.
    """
    means = surrogate_means(day)[list(PURPOSES)]
    sums = means.sum(axis=1)
    shares = means.where(sums > 0, 1.0).div(sums.where(sums > 0, float(len(PURPOSES))), axis=0)
    table = shares.mul(day["negotiated"], axis=0).assign(**{ALL: day["negotiated"]})
    return table.set_axis(pd.MultiIndex.from_product([table.columns, [0]]), axis=1)


def published_error(
    d: pd.DataFrame,
    changed: pd.Index,
    homes: pd.DataFrame,
    responses: pd.DataFrame | None,
    lever: Mapping[str, Any] | None,
) -> pd.DataFrame:
    """Return by how much *d* moves when the lever's elasticities rise by one standard error.

    The published range is taken for a 95 % interval and the effect for proportional to the
    elasticity; one error holds for all households and purposes. What the table does not name does
    not answer, by the table. NaN where no error is known: several levers, a lever that the table
    lacks, an elasticity of 0 with a range. Shape of *d* of the *changed* households.
    """
    shift = pd.DataFrame(0.0, index=changed, columns=[c for c in d if c != ALL])
    rows = pd.DataFrame()
    if responses is not None and lever is not None:
        rows = responses[responses["lever"] == (lever.get("response") or lever["lever"])]
    if rows.empty:
        shift[:] = np.nan
    own = homes.loc[changed]
    width = 2 * stats.norm.ppf((1 + LEVEL) / 2)
    for row in rows.to_dict("records"):
        spread, size = (row["high"] - row["low"]) / width, row["elasticity"]
        each = spread / size if size else (np.nan if spread else 0.0)
        mask = is_type(own, row["household_type"])
        for purpose in (p for p in purposes_of(row["purpose"]) if p in shift):
            shift.loc[mask, purpose] = d.loc[changed, purpose][mask] * each
    return shift.assign(**{ALL: shift.sum(axis=1, skipna=False)})


# --- what can be paired ---------------------------------------------------------------------------


def _lacking(runs: Sequence[Run], days: Sequence[pd.DataFrame]) -> str:
    """Say why the runs' negotiations cannot be paired; nothing where they can."""
    silent = [
        run.folder.name
        for run, day in zip(runs, days, strict=True)
        if not day["negotiated"].notna().any()
    ]
    if silent:
        return f"{NOBODY}: none did in {' and '.join(silent)}"
    made = [_talking(run.manifest) for run in runs]
    differ = sorted({k for m in made[1:] for k in m if m[k] != made[0][k]})
    if differ:
        return f"the runs talk by other means ({', '.join(differ)}), so their answers do not pair"
    first = days[0]
    for day in days[1:]:
        same = (day["sampled"] == first["sampled"]).all()
        same &= (day["stratum"].fillna("") == first["stratum"].fillna("")).all()
        if not same or not np.allclose(day["inclusion"], first["inclusion"], equal_nan=True):
            return "the runs drew other samples (negotiate.trips), so their answers do not pair"
    if not np.logical_and.reduce([day["negotiated"].notna() for day in days]).any():
        return NOBODY
    return ""


def _talking(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be the same for answers to differ by the policy alone."""
    return {
        "model": manifest.get("model"),
        "prompts": manifest.get("prompts_sha256"),
        "talks": (manifest.get("settings") or {}).get("talks"),
    }


def _check_placebo(placebo: Run, concerned: pd.Index) -> None:
    left = concerned.difference(changed_by_levers(placebo))
    if len(left):
        raise PemandError(
            f"{placebo.folder}: is no placebo for this policy: its levers tell nothing to "
            f"{len(left)} of the {len(concerned)} households that the policy concerns, first "
            f"household_id {some(left)}; give its announcement to the whole region"
        )


# --- estimates ------------------------------------------------------------------------------------


def _of_domain(
    d: pd.DataFrame,
    errors: pd.DataFrame,
    own: pd.Index,
    concerned: pd.Index,
    heard: pd.DataFrame | None,
    answers: Sequence[pd.DataFrame],
) -> pd.DataFrame:
    """Return the published and the negotiated effect of one domain, a row a purpose."""
    table = pd.DataFrame(
        {
            "effect_published": d.loc[own].sum(),
            "se_published": errors.loc[concerned].sum(skipna=False).abs(),
        }
    )
    n = 0 if heard is None else int(heard.index.isin(concerned).sum())
    if heard is None or (len(concerned) and not n):
        empty = dict.fromkeys(("effect_negotiated", "se_negotiated", "low", "high", "df"), np.nan)
        return table.assign(n=n, **empty)
    inside = [a.reindex(heard.index) for a in answers]
    found = policy_effect(d.loc[concerned], heard, *inside)
    return table.assign(
        n=n,
        effect_negotiated=found["estimate"],
        se_negotiated=found["se"],
        low=found["low"],
        high=found["high"],
        df=found["df"],
    )


def _used(table: pd.DataFrame, admitted: bool) -> tuple[pd.DataFrame, float, str]:
    """Return the table with the used effect, the negotiated one's weight, and why it is so.

    One weight holds for every row, the precision of the region's, so that parts add up.
    """
    row = table.loc[REGION]
    why = ""
    if not admitted:
        why = NO_CARD
    elif pd.isna(row["effect_negotiated"]):
        why = "there is no negotiated one"
    elif 0 < row["n"] < LEAST_DIRECT and row["n"] < row["changed"]:
        why = f"fewer than {LEAST_DIRECT} households negotiated"
    elif pd.isna(row["se_negotiated"]):
        why = "the negotiated effect has no known error"
    elif pd.isna(row["se_published"]):
        why = "the published effect has no known error to weigh it by"
    if why:
        told = {"effect_used": table["effect_published"], "se_used": table["se_published"]}
        return table.assign(**told, used="published"), 0.0, why
    weighed = used_effects(table, of=REGION)
    share = _share(row["se_published"], row["se_negotiated"])
    heard = table["effect_negotiated"].notna()
    return weighed.assign(used=np.where(heard, "weighted", "published")), share, ""


def _share(published: float, negotiated: float) -> float:
    """Return the weight of the negotiated effect; half where neither has an error.

    >>> _share(20.0, 10.0), _share(1.0, 0.0), _share(0.0, 0.0)
    (0.8, 1.0, 0.5)
    """
    total = published**2 + negotiated**2
    return published**2 / total if total else 0.5


def _note(row: Mapping[Any, Any], lacking: str, why: str) -> str:
    """Return what a reader of one row must know."""
    parts = []
    if lacking:
        parts.append(f"no negotiated effect: {lacking}")
    elif not row["changed"]:
        parts.append("the policy changes nobody's facts here")
    elif not row["n"]:
        parts.append("no negotiated effect: none of the households concerned was heard in both")
    elif pd.isna(row["se_negotiated"]):
        parts.append("too few negotiated for an interval")
    elif row["n"] < min(LEAST_DIRECT, row["changed"]):
        parts.append(f"fewer than {LEAST_DIRECT} negotiated: the interval is not to be relied on")
    if why:
        parts.append(f"used is the published effect: {why}")
    return "; ".join(parts)
