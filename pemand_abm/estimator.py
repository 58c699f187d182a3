"""What the negotiations of a sample say of all households (ARCHITECTURE §5, 3 and 4).

A difference estimator: the surrogate's mean for everybody, plus what the sampled households differ
from it, each weighted by the inverse of its inclusion probability. Pure functions of tables:
nothing here knows a run, a model or a file.

Intervals are *negotiation-sampling intervals*: how far the total could lie off because only a
sample negotiated. They cover neither the survey, nor the synthetic population, nor whether the
model's households resemble people.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from pemand_abm import keys

LEVEL = 0.95
LEAST_UPDATE = 200
"""Negotiations from which on the sample updates the surrogate."""
FOLDS = 5
LEAST_DIRECT = 10
"""Negotiations from which on a district or a zone has a word of its own."""
ALL = "all"
COLUMNS = ["estimate", "se", "low", "high", "n", "df", "method"]


def respondents(sample: pd.DataFrame, decided: pd.Series) -> pd.DataFrame:
    """Return the households that decided, weighted for those of their stratum that did not.

    Parameters
    ----------
    sample : DataFrame
        Index household_id; `stratum` and `inclusion` of every household drawn.
    decided : Series of bool
        Whether it came to a decision, by household_id.

    Returns
    -------
    DataFrame
        `stratum` and `inclusion` of the deciders; `inclusion` is multiplied by the share of the
        stratum that decided. A stratum with fewer than two deciders is joined with the next by
        name, since one household tells nothing of a spread.
    """
    joined = sample["stratum"].astype("str")
    held = decided.reindex(sample.index).fillna(False).astype(bool)
    names = sorted(joined.unique())
    count = held.groupby(joined).sum()
    while len(names) > 1:
        thin = [name for name in names if count[name] < 2]
        if not thin:
            break
        place = names.index(thin[0])
        mate = names[place + 1] if place + 1 < len(names) else names[place - 1]
        both = f"{thin[0]}; {mate}"
        joined = joined.where(~joined.isin([thin[0], mate]), both)
        names = sorted(joined.unique())
        count = held.groupby(joined).sum()
    share = held.groupby(joined).transform("mean")
    return pd.DataFrame({"stratum": joined, "inclusion": sample["inclusion"] * share})[held]


def variance(
    residuals: np.ndarray, inclusion: np.ndarray, stratum: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the variance of estimated totals, and its degrees of freedom.

    :math:`\sum_h \frac{n_h}{n_h-1}\sum_i(1-\pi_i)(e_i/\pi_i-\overline{e/\pi}_h)^2`, on n - H
    degrees of freedom, where n counts the households with a residual in the domain and H the
    strata that have such households.

    Parameters
    ----------
    residuals : ndarray, shape (n, T)
        Of each household and target; NaN where it does not belong to the target's domain.
    inclusion, stratum : ndarray, shape (n,)
        Probabilities, and the strata as numbers from 0.

    Returns
    -------
    tuple of ndarray, shape (T,)
        NaN where nobody of the domain stands for others, where a stratum has one household that
        does, or no degree of freedom is left.
    """
    inside = ~np.isnan(residuals)
    z = np.where(inside, residuals, 0.0) / inclusion[:, None]
    n = np.bincount(stratum)
    mean = _sums(z, stratum, len(n)) / n[:, None]
    spread = _sums((1 - inclusion)[:, None] * (z - mean[stratum]) ** 2, stratum, len(n))
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(spread > 0, n[:, None] / (n[:, None] - 1) * spread, 0.0)
    # A stratum that is taken whole adds nothing to be off by.
    chance = inclusion < 1
    alone = (n == 1) & (np.bincount(stratum, chance, len(n)) > 0)
    here = inside & chance[:, None]
    strata_hit = (_sums(here.astype(float), stratum, len(n)) > 0).sum(axis=0)
    df = here.sum(axis=0) - strata_hit
    unknown = (df < 1) | alone.any()
    return np.where(unknown, np.nan, terms.sum(axis=0)), df


def _sums(values: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """Return column sums of the rows of each group, shape (groups, T)."""
    total = np.zeros((groups, values.shape[1]))
    np.add.at(total, group, values)
    return total


def with_interval(table: pd.DataFrame) -> pd.DataFrame:
    """Return `estimate`, `se` and `df` with the ends of the 95 % interval by Student's t."""
    half = stats.t.ppf((1 + LEVEL) / 2, table["df"].clip(lower=1)) * table["se"]
    return table.assign(low=table["estimate"] - half, high=table["estimate"] + half)


# --- the surrogate, updated by the sample -------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Updated:
    """The surrogate as the sample updates it: factors on its means by household type.

    `everybody` (index type) is the mean over folds; `left_out` (index household_id) the factor from
    the other folds than the household's own.
    """

    everybody: pd.Series
    left_out: pd.Series
    updated: bool


def update_surrogate(
    sampled: pd.DataFrame, least: int = LEAST_UPDATE, folds: int = FOLDS
) -> Updated:
    """Return factors on the surrogate's means by household type, cross-fitted.

    Below *least* negotiations, and for a type of which a fold leaves fewer than ten, they are 1.

    Parameters
    ----------
    sampled : DataFrame
        Index household_id; `stratum`, `inclusion`, `kind` (household type), `observed` and
        `predicted` (trips).
    """
    code, kinds = pd.factorize(sampled["kind"], sort=True)
    if len(sampled) < least:
        return Updated(pd.Series(1.0, kinds), pd.Series(1.0, sampled.index), False)
    stratum = pd.factorize(sampled["stratum"], sort=True)[0]
    fold = folds_of(keys.uniforms(sampled.index, "fold"), stratum, folds)
    inclusion, observed, predicted = (
        sampled[c].to_numpy(float) for c in ("inclusion", "observed", "predicted")
    )
    factor = left_out_factors(observed, predicted, inclusion, code, len(kinds), fold, folds)
    return Updated(
        pd.Series(factor.mean(axis=0), index=kinds),
        pd.Series(factor[fold, code], index=sampled.index),
        True,
    )


def left_out_factors(
    observed: np.ndarray,
    predicted: np.ndarray,
    inclusion: np.ndarray,
    kind: np.ndarray,
    kinds: int,
    fold: np.ndarray,
    folds: int,
) -> np.ndarray:
    """Return observed over predicted totals by fold left out and kind, shape (folds, kinds).

    1 where the other folds have fewer than ten households of the kind.
    """
    place = fold * kinds + kind
    y, f, n = (
        np.bincount(place, w, folds * kinds).reshape(folds, kinds)
        for w in (observed / inclusion, predicted / inclusion, np.ones(len(fold)))
    )
    y, f, n = (values.sum(axis=0) - values for values in (y, f, n))
    return np.where((n >= LEAST_DIRECT) & (f > 0), y / np.where(f > 0, f, 1.0), 1.0)


def folds_of(u: np.ndarray, stratum: np.ndarray, folds: int = FOLDS) -> np.ndarray:
    """Return each household's fold by its random number *u*: balanced within strata.

    Strata begin at folds of their own, else the first folds would take all that is left over.
    """
    order = np.lexsort((u, stratum))
    starts = np.searchsorted(stratum[order], stratum[order])
    fold = np.empty(len(u), dtype="int64")
    fold[order] = (np.arange(len(u)) - starts + stratum[order]) % folds
    return fold


# --- totals --------------------------------------------------------------------------------------


def estimate_totals(
    predicted: pd.DataFrame,
    sampled: pd.DataFrame,
    observed: pd.DataFrame,
    kind: pd.Series,
    domains: pd.DataFrame,
    update: Updated | None = None,
) -> pd.DataFrame:
    """Return estimated totals of every target in every domain.

    Parameters
    ----------
    predicted : DataFrame
        The surrogate's means, everybody (index household_id) x targets (purposes and `all`).
    sampled : DataFrame
        `respondents`: index household_id, `stratum` and `inclusion`.
    observed : DataFrame
        What the respondents settled on, respondents x targets.
    kind : Series
        Everybody's household type, along which the sample may update the surrogate.
    domains : DataFrame
        Everybody's domain on each level (columns), for example `district`; the level `region`
        with the one domain `all` is added.
    update : Updated, optional
        `update_surrogate`'s; made here by default, from the target `all`.

    Returns
    -------
    DataFrame
        Index level, domain, purpose; `estimate`, `se`, `low`, `high` (in the unit of *predicted*),
        `n` (respondents in the domain), `df`, `method` (`direct`; `none` where nobody of the domain
        negotiated: the estimate is then the surrogate's, and no error is known). Domains of a
        level add up to the region.
    """
    if update is None:
        update = update_surrogate(
            sampled.assign(
                kind=kind.reindex(sampled.index),
                observed=observed[ALL],
                predicted=predicted[ALL].reindex(sampled.index),
            )
        )
    # A type that nobody sampled has keeps the surrogate's mean.
    means = predicted.mul(kind.map(update.everybody).astype(float).fillna(1.0), axis=0)
    own = predicted.reindex(sampled.index).mul(update.left_out, axis=0)
    errors = observed.reindex(sampled.index) - own
    inclusion = sampled["inclusion"].to_numpy(float)
    stratum = pd.factorize(sampled["stratum"], sort=True)[0]
    targets = list(predicted.columns)
    parts = []
    for level, domain in domains.assign(region=ALL).items():
        base = means.groupby(domain).sum()
        own = domain.reindex(sampled.index)
        place = base.index.get_indexer(own)
        # Respondents x (domain, target), NaN outside the domain.
        inside = place[:, None] == np.arange(len(base))[None, :]
        wide = np.where(inside[:, :, None], errors.to_numpy(float)[:, None, :], np.nan)
        wide = wide.reshape(len(own), len(base) * len(targets))
        variances, df = variance(wide, inclusion, stratum)
        gain = np.nansum(wide / inclusion[:, None], axis=0)
        count = np.repeat(inside.sum(axis=0), len(targets))
        whole = np.repeat(_all_certain(domain, own, inclusion, base.index), len(targets))
        parts.append(
            pd.DataFrame(
                {
                    "level": str(level),
                    "domain": np.repeat(base.index.to_numpy(), len(targets)),
                    "purpose": np.tile(targets, len(base)),
                    "estimate": base.to_numpy(float).ravel() + gain,
                    "se": np.where(whole, 0.0, np.sqrt(variances)),
                    "n": count,
                    "df": df,
                    "method": np.where(count > 0, "direct", "none"),
                }
            )
        )
    table = with_interval(pd.concat(parts, ignore_index=True))
    return table.set_index(["level", "domain", "purpose"])[COLUMNS]


def _all_certain(
    domain: pd.Series, own: pd.Series, inclusion: np.ndarray, names: pd.Index
) -> np.ndarray:
    """Say of which domains every household negotiated."""
    certain = own[inclusion >= 1].value_counts().reindex(names, fill_value=0)
    return (certain == domain.value_counts().reindex(names)).to_numpy()


def joined_domains(domain: pd.Series, sampled: pd.Index, least: int = LEAST_DIRECT) -> pd.Series:
    """Return everybody's domain, thin ones joined until each has *least* respondents.

    The thinnest joins the next thinnest. Households of a joined domain share its estimate in
    proportion to the surrogate, so domains still add up to the region.
    """
    counts = domain.reindex(sampled).value_counts().reindex(sorted(domain.unique()), fill_value=0)
    groups: list[tuple[tuple[object, ...], int]] = [((k,), int(n)) for k, n in counts.items()]
    while len(groups) > 1:
        groups.sort(key=lambda group: (group[1], tuple(map(str, group[0]))))
        if groups[0][1] >= least:
            break
        (a, n), (b, m) = groups[:2]
        groups = [((*a, *b), n + m), *groups[2:]]
    label = {name: " + ".join(sorted(map(str, group))) for group, _ in groups for name in group}
    return domain.map(label)


# --- zones ---------------------------------------------------------------------------------------


def estimate_zones(zones: pd.DataFrame, direct: pd.DataFrame, groups: pd.DataFrame) -> pd.DataFrame:
    r"""Return every zone's total: synthetic, with its own residual where it has ten negotiations.

    A zone's surrogate total is scaled to its group's (district's) estimate. With
    :math:`\theta_z` the ratio of a zone's total to its surrogate's, the area-level model of Fay and
    Herriot (1979) is :math:`\hat\theta_z=\theta_g+v_z+e_z`, with the variance A of v by their
    moment equation over the zones with at least ten negotiations, and
    :math:`\gamma_z=A/(A+\psi_z)`. The zones of a group are then scaled to add up to it.

    Parameters
    ----------
    zones : DataFrame
        Index zone; `group`, `base` (the surrogate's total) and `spread` (the variance of the
        zone's total about its base that comes from its households' own scatter).
    direct : DataFrame
        Index zone; `estimate`, `se`, `n` of `estimate_totals`, one target.
    groups : DataFrame
        Index group; `estimate` and `se` of its total.

    Returns
    -------
    DataFrame
        Index zone; `estimate`, `se`, `low`, `high`, `n`, `df` (empty: normal), `method`
        (`synthetic` or `composite`). The error is the model's: of the group's estimate, of zones
        about it, and of a zone's households about their mean. Zones without households are 0.
    """
    base = zones["base"].to_numpy(float)
    sums = zones.groupby("group")["base"].sum()
    sums = sums.where(sums > 0)  # A group without trips has no ratio.
    theta = zones["group"].map(groups["estimate"] / sums).fillna(1.0).to_numpy(float)
    error = zones["group"].map((groups["se"] / sums) ** 2).to_numpy(float)
    known = direct.reindex(zones.index)
    n = known["n"].fillna(0).to_numpy("int64")
    with np.errstate(divide="ignore", invalid="ignore"):
        own = known["estimate"].to_numpy(float) / base
        psi = (known["se"].to_numpy(float) / base) ** 2
    heard = (n >= LEAST_DIRECT) & (base > 0) & np.isfinite(psi)
    between = between_variance(
        own[heard], theta[heard], psi[heard], zones["group"][heard].nunique()
    )
    # A residual so large that no trip would be left says nothing of a zone.
    total = between + np.where(heard, psi, 1.0)
    gamma = np.divide(between, total, out=np.zeros_like(total), where=total > 0)
    heard &= gamma * (own - theta) + theta > 0
    own = np.where(heard, own, theta)
    psi, gamma = np.where(heard, [psi, gamma], 0.0)
    estimate = (gamma * own + (1 - gamma) * theta) * base
    found = pd.Series(estimate).groupby(zones["group"].to_numpy()).sum()
    scale = (groups["estimate"] / found.where(found > 0)).fillna(1.0)
    estimate = estimate * zones["group"].map(scale).to_numpy(float)
    # A heard zone's own sampling error already covers its households' scatter about their mean.
    mse = np.where(
        gamma > 0,
        base**2 * (gamma * psi + (1 - gamma) ** 2 * error),
        base**2 * (between + error) + zones["spread"].to_numpy(float),
    )
    se = np.sqrt(mse)
    half = stats.norm.ppf((1 + LEVEL) / 2) * se
    return pd.DataFrame(
        {
            "estimate": estimate,
            "se": se,
            "low": estimate - half,
            "high": estimate + half,
            "n": n,
            "df": pd.array([pd.NA] * len(zones), dtype="Int64"),
            "method": np.where(gamma > 0, "composite", "synthetic"),
        },
        index=zones.index,
    )


def between_variance(own: np.ndarray, mean: np.ndarray, psi: np.ndarray, groups: int) -> float:
    r"""Return A of Fay and Herriot's moment equation, 0 where it has no positive root.

    :math:`\sum_z(\hat\theta_z-\theta_g)^2/(A+\psi_z)=m-p`, by bisection; m zones, p *groups*.
    """
    free = len(own) - groups
    if free < 1:
        return 0.0
    squares = (own - mean) ** 2

    def excess(a: float) -> float:
        return float((squares / (a + psi)).sum()) - free

    if (psi <= 0).any() or excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, float(squares.sum() / free)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


# --- policies ------------------------------------------------------------------------------------


def policy_effect(
    surrogate: pd.DataFrame,
    sampled: pd.DataFrame,
    base: pd.DataFrame,
    policy: pd.DataFrame,
    placebo: pd.DataFrame | None = None,
) -> pd.DataFrame:
    r"""Return the paired effect of a policy on totals, net of a placebo.

    :math:`\hat\Delta=\sum_{U_c}d_i+\sum_{S\cap U_c}(\delta_i-d_i)/\pi_i`.

    Parameters
    ----------
    surrogate : DataFrame
        d, the surrogate's published difference (policy less base) of the households whose facts
        change, U_c: index household_id x targets.
    sampled : DataFrame
        `respondents`: `stratum`, `inclusion`; households outside U_c may be among them, and count
        in their strata.
    base, policy, placebo : DataFrame
        What was settled on, index household_id, columns replicates (or (target, replicate) where
        there are several targets). With a *placebo* (an announcement that is none of their
        business) the response is the policy's less the placebo's: what an announcement as such
        does falls out.

    Returns
    -------
    DataFrame
        Index target; `estimate`, `se`, `low`, `high`, `n`, `df`, `method`, and `se_replicates`,
        the standard error of the estimate between replicates (empty with one).

    A household that is undecided under either is left to the caller, who takes it out of *sampled*
    with `respondents`.
    """
    before = base if placebo is None else placebo
    inside = sampled.index.isin(surrogate.index)
    inclusion = sampled["inclusion"].to_numpy(float)
    stratum = pd.factorize(sampled["stratum"], sort=True)[0]
    certain = int((inside & (inclusion >= 1)).sum()) == len(surrogate)
    rows = []
    for target, d in surrogate.items():
        told = policy[target] if policy.columns.nlevels > 1 else policy
        held = before[target] if before.columns.nlevels > 1 else before
        delta = (told - held).reindex(sampled.index).to_numpy(float)
        own = d.reindex(sampled.index).to_numpy(float)[:, None]
        each = np.where(inside[:, None], delta - own, np.nan)
        if np.isnan(each[inside]).any():
            raise ValueError("a sampled household has no answer; take it out with `respondents`")
        mean = each.mean(axis=1, keepdims=True)
        variances, df = variance(mean, inclusion, stratum)
        totals = d.sum() + np.nansum(each / inclusion[:, None], axis=0)
        several = len(totals) > 1
        rows.append(
            {
                "target": target,
                "estimate": totals.mean(),
                "se": 0.0 if certain else np.sqrt(variances[0]),
                "n": int(inside.sum()),
                "df": df[0],
                "method": "paired" if placebo is None else "paired, net of placebo",
                "se_replicates": totals.std(ddof=1) / np.sqrt(len(totals)) if several else np.nan,
            }
        )
    table = with_interval(pd.DataFrame(rows).set_index("target"))
    return table[[*COLUMNS, "se_replicates"]]


def used_effects(effects: pd.DataFrame, of: Hashable | None = None) -> pd.DataFrame:
    """Return the published and the negotiated response with the used one, weighted by precision.

    Parameters
    ----------
    effects : DataFrame
        `effect_published`, `se_published`, `effect_negotiated`, `se_negotiated`, in one unit. An
        empty negotiated effect or error (no card, too few households) leaves the published one;
        an empty published one the negotiated.
    of : optional
        The row whose precisions hold for all, so that parts of a total add up to it; every row's
        own by default. An empty effect counts for nothing either way.

    Returns
    -------
    DataFrame
        The same with `effect_used` and `se_used`.
    """
    kinds = ("published", "negotiated")
    values, errors = (
        effects[[f"{what}_{kind}" for kind in kinds]].set_axis(kinds, axis=1).astype("float64")
        for what in ("effect", "se")
    )
    with np.errstate(divide="ignore"):
        weight = (1 / errors**2).where(values.notna(), 0.0).fillna(0.0)
    # An effect that is known without error (0 households concerned) leaves no room for another.
    exact = np.isinf(weight)
    weight = weight.where(~exact.any(axis=1), exact.astype(float), axis=0)
    if of is not None:
        held = np.broadcast_to(weight.loc[of].to_numpy(float), weight.shape)
        weight = pd.DataFrame(held, weight.index, list(kinds)).where(values.notna(), 0.0)
    total = weight.sum(axis=1)
    part = weight.div(total.where(total > 0), axis=0)
    error = np.sqrt(((part * errors) ** 2).where(part != 0, 0.0).sum(axis=1, skipna=False))
    used = (part * values.fillna(0.0)).sum(axis=1, skipna=False)
    return effects.assign(effect_used=used, se_used=error.where(total > 0))


def benchmarked(survey: pd.Series, effect: pd.Series, base: pd.Series) -> pd.Series:
    """Return policy totals on the survey's level: survey x (1 + effect / base), aligned by index.

    Where the base is 0 nothing can change in proportion: the survey's total stays.
    """
    relative = (effect / base.where(base > 0)).fillna(0.0)
    return survey * (1 + relative)
