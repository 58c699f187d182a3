"""Totals from a sample: against all samples of a tiny population, a textbook, and another library."""

from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest

from pemand_abm import keys
from pemand_abm.estimator import (
    ALL,
    benchmarked,
    between_variance,
    estimate_totals,
    estimate_zones,
    folds_of,
    joined_domains,
    left_out_factors,
    policy_effect,
    respondents,
    update_surrogate,
    used_effects,
    variance,
)
from pemand_abm.sample import anticipated_error, design_sample, draw_sample

HOMES = pd.Index(range(1, 9), name="household_id")
ANSWER = pd.Series([3.0, 0, 7, 2, 11, 6, 9, 30], index=HOMES)
SURROGATE = pd.Series([2.0, 2, 5, 5, 9, 9, 9, 20], index=HOMES)
STRATUM = pd.Series(list("aaaabbbb"), index=HOMES)
KIND = pd.Series("any", index=HOMES)
PLACE = pd.Series(list("NSNSNSNS"), index=HOMES)


def found(sampled, answer=ANSWER, domains=None):
    """Return the estimates of the tiny population from the households of *sampled*."""
    told = answer.loc[sampled.index].to_frame(ALL)
    domains = pd.DataFrame({"district": PLACE}) if domains is None else domains
    return estimate_totals(SURROGATE.to_frame(ALL), sampled, told, KIND, domains)


def simple(ids, n=2):
    """Return a simple random sample of *n* of four a stratum."""
    return pd.DataFrame({"stratum": STRATUM.loc[list(ids)], "inclusion": n / 4})


def test_over_all_samples_total_and_variance_are_exactly_right():
    a, b = (list(HOMES[s == STRATUM]) for s in "ab")
    samples = [x + y for x, y in product(combinations(a, 2), combinations(b, 2))]
    tables = [found(simple(ids)) for ids in samples]
    region = [t.loc[("region", ALL, ALL)] for t in tables]
    totals = np.array([r["estimate"] for r in region])
    assert totals.mean() == pytest.approx(ANSWER.sum())
    # With equal probabilities the formula is unbiased: its mean is the variance over all samples.
    assert np.mean([r["se"] ** 2 for r in region]) == pytest.approx(totals.var())
    north = np.mean([t.loc[("district", "N", ALL), "estimate"] for t in tables])
    assert north == pytest.approx(ANSWER[PLACE == "N"].sum())


def test_with_unequal_probabilities_the_total_is_exactly_right_over_all_samples():
    # Conditional Poisson sampling: a sample's chance is the product of its members' odds.
    odds = np.array([0.4, 0.6, 1.0, 1.3, 0.8, 1.0, 1.5, 3.0])
    samples = list(combinations(range(8), 4))
    chance = np.array([odds[list(s)].prod() for s in samples])
    chance /= chance.sum()
    inclusion = np.array([sum(c for s, c in zip(samples, chance, strict=True) if i in s)
                          for i in range(8)])  # fmt: skip
    whole = pd.DataFrame({"stratum": "all", "inclusion": inclusion}, index=HOMES)
    rows = [found(whole.iloc[list(s)]).loc[("region", ALL, ALL)] for s in samples]
    totals = np.array([r["estimate"] for r in rows])
    assert (chance * totals).sum() == pytest.approx(ANSWER.sum())
    truth = (chance * (totals - ANSWER.sum()) ** 2).sum()
    told = (chance * np.array([r["se"] ** 2 for r in rows])).sum()
    # An approximation that needs no joint probabilities; 4 of 8 is a hard case for it.
    assert told == pytest.approx(truth, rel=0.25)


def test_a_textbooks_stratified_sample_gives_its_standard_error():
    # Lohr, Sampling: Design and Analysis, the stratified sample of counties of the Census of
    # Agriculture (means and variances of acres by region, from memory; the total and the error
    # that the book derives agree with them to its rounding).
    size, n = np.array([1054, 220, 1382, 422]), np.array([103, 21, 135, 41])
    mean = np.array([300_504.2, 97_629.8, 211_315.0, 662_295.5])
    s2 = np.array([29_618_183_543, 7_647_472_708, 53_587_487_856, 396_185_950_266])
    values, stratum = [], np.repeat(range(4), n)
    for k in range(4):
        unit = np.linspace(-1, 1, n[k])
        values.append(mean[k] + unit * np.sqrt(s2[k] / unit.var(ddof=1)))
    y, inclusion = np.concatenate(values), (n / size)[stratum]
    assert (y / inclusion).sum() == pytest.approx(909_736_034, rel=1e-6)
    squared, df = variance(y[:, None], inclusion, stratum)
    assert np.sqrt(squared[0]) == pytest.approx(50_417_248, rel=1e-5)
    assert df[0] == 300 - 4


def test_another_library_gives_the_same_error_where_both_apply():
    samplics = pytest.importorskip("samplics", reason="pip install samplics to compare with it")
    draw = keys.generator(1, "samplics")
    stratum = np.repeat(["a", "b", "c"], [5, 8, 11])
    y, code = draw.gamma(2.0, 3.0, 24), np.repeat([0, 1, 2], [5, 8, 11])
    share = np.array([0.1, 0.5, 0.25])
    other = samplics.TaylorEstimator(samplics.PopParam.total)
    fpc = dict(zip("abc", 1 - share, strict=True))
    other.estimate(y=y, samp_weight=1 / share[code], stratum=stratum, fpc=fpc)
    squared, df = variance(y[:, None], share[code], code)
    assert other.stderror == pytest.approx(np.sqrt(squared[0]))
    assert df[0] == 21


def test_the_interval_is_student_ts_on_households_less_strata():
    row = found(simple([1, 2, 5, 6])).loc[("region", ALL, ALL)]
    assert row["df"] == 2
    # t of 0.975 on 2 degrees of freedom is 4.303 in every table.
    assert row["high"] - row["estimate"] == pytest.approx(4.3027 * row["se"], rel=1e-4)


def test_when_everybody_negotiated_the_total_is_known():
    everybody = pd.DataFrame({"stratum": STRATUM, "inclusion": 1.0})
    row = found(everybody).loc[("region", ALL, ALL)]
    assert row["estimate"] == ANSWER.sum()
    assert (row["se"], row["low"], row["high"]) == (0, ANSWER.sum(), ANSWER.sum())


def test_where_nobody_negotiated_the_surrogate_stands_without_an_error():
    some = simple([1, 3, 5, 7])
    south = found(some).loc[("district", "S", ALL)]
    assert south["estimate"] == SURROGATE[PLACE == "S"].sum()
    assert (south["n"], south["method"]) == (0, "none") and np.isnan(south["se"])
    none = found(some.iloc[:0]).loc[("region", ALL, ALL)]
    assert none["estimate"] == SURROGATE.sum() and np.isnan(none["se"])


def test_an_answer_of_one_who_stands_for_others_alone_has_no_error():
    row = found(simple([1, 2, 5, 6]), domains=pd.DataFrame({"own": (HOMES == 1).astype(int)},
                index=HOMES)).loc[("own", 1, ALL)]  # fmt: skip
    assert row["n"] == 1 and np.isnan(row["se"])


def test_the_decided_stand_for_the_undecided_of_their_stratum():
    drawn = pd.DataFrame(
        {"stratum": list("aaaabbb"), "inclusion": [0.5, 0.5, 0.5, 0.5, 0.2, 0.2, 0.2]},
        index=range(1, 8),
    )
    decided = pd.Series([True, True, True, False, True, True, True], index=drawn.index)
    left = respondents(drawn, decided)
    assert left["inclusion"].tolist() == pytest.approx([0.375] * 3 + [0.2] * 3)
    assert (1 / left["inclusion"]).sum() == pytest.approx((1 / drawn["inclusion"]).sum())


def test_a_stratum_with_one_decider_is_joined_with_another():
    drawn = pd.DataFrame({"stratum": list("aabb"), "inclusion": 0.5}, index=range(1, 5))
    left = respondents(drawn, pd.Series([True, False, True, True], index=drawn.index))
    assert left["stratum"].unique().tolist() == ["a; b"]
    assert left["inclusion"].tolist() == pytest.approx([0.375] * 3)
    assert respondents(drawn, pd.Series(False, index=drawn.index)).empty


def large(n=3000, seed=3):
    """Return a population of two types whose answers are half as high again as the surrogate's."""
    draw = keys.generator(seed, "large")
    ids = pd.RangeIndex(1, n + 1, name="household_id")
    size = draw.integers(1, 5, n)
    homes = pd.DataFrame(
        {
            "hhsize": size,
            "children": np.where(size > 2, 1, 0),
            "district": np.where(draw.random(n) < 0.6, "North", "South"),
            "mean": 3.0 * size,
            "sd": 1.5 * size,
        },
        index=ids,
    )
    homes["answer"] = draw.poisson(1.5 * homes["mean"])
    return homes


def test_no_households_own_answer_reaches_its_own_factor():
    homes = large(400)
    f, pi, kind = homes["mean"].to_numpy(), np.full(400, 0.5), np.zeros(400, dtype=int)
    fold = folds_of(keys.uniforms(homes.index, "fold"), kind, 5)
    y = homes["answer"].to_numpy(float)
    before = left_out_factors(y, f, pi, kind, 1, fold, 5)
    after = left_out_factors(np.where(fold == 2, y + 50, y), f, pi, kind, 1, fold, 5)
    assert after[2, 0] == before[2, 0]
    assert (after[[0, 1, 3, 4], 0] > before[[0, 1, 3, 4], 0] + 1).all()
    assert np.bincount(fold).tolist() == [80] * 5


def test_from_two_hundred_on_the_sample_updates_the_surrogate():
    homes = large(4000)
    kind = homes["children"].astype("str")
    whole = homes.rename(columns={"answer": "observed", "mean": "predicted"})
    some = whole.assign(stratum="all", inclusion=0.1, kind=kind)
    few, many = update_surrogate(some.iloc[:199]), update_surrogate(some.iloc[:400])
    assert not few.updated and (few.left_out == 1).all()
    assert many.everybody.to_numpy() == pytest.approx([1.5, 1.5], rel=0.06)


def test_updating_the_surrogate_narrows_the_interval_and_leaves_no_bias():
    # Where inclusion follows the mean, a factor on the means tells nothing new; here it does not.
    draw, homes = keys.generator(4, "more"), large()
    homes = homes.assign(mean=homes["mean"] * draw.uniform(0.2, 1.8, len(homes)), sd=2.0)
    homes["answer"] = draw.poisson(1.5 * homes["mean"])
    kind = pd.Series("any", index=homes.index)
    means = homes["mean"].to_frame(ALL)
    got = []
    for seed in range(60):
        sample = draw_sample(homes, homes["sd"], 240, seed, "trips")
        told = homes.loc[sample.index, "answer"].astype(float).to_frame(ALL)
        none = pd.DataFrame(index=homes.index)
        row = estimate_totals(means, sample, told, kind, none).loc[("region", ALL, ALL)]
        e = (told[ALL] - means.loc[sample.index, ALL]).to_numpy()
        plain = variance(e[:, None], sample["inclusion"].to_numpy(),
                         pd.factorize(sample["stratum"])[0])[0][0]  # fmt: skip
        got.append((row["estimate"], row["se"], np.sqrt(plain)))
    total, se, plain = np.array(got).T
    assert se.mean() < 0.95 * plain.mean()
    error = total.std(ddof=1) / np.sqrt(len(total))
    assert total.mean() == pytest.approx(homes["answer"].sum(), abs=3.5 * error)


def test_purposes_and_districts_add_up():
    homes = large()
    share = pd.DataFrame({"work": 0.25, "other": 0.75}, index=homes.index)
    predicted = share.mul(homes["mean"], axis=0).assign(**{ALL: homes["mean"]})
    sample = draw_sample(homes, homes["sd"], 300, 0, "trips")
    told = homes.loc[sample.index, "answer"].astype(float)
    observed = share.loc[sample.index].mul(told, axis=0).assign(**{ALL: told})
    kind = homes["children"].astype("str")
    table = estimate_totals(predicted, sample, observed, kind, homes[["district"]])["estimate"]
    region = table.loc["region"].loc[ALL]
    assert region["work"] + region["other"] == pytest.approx(region[ALL])
    by_district = table.loc["district"].groupby(level="purpose").sum()
    assert by_district.to_numpy() == pytest.approx(region[by_district.index].to_numpy())


def test_the_promised_error_is_the_one_that_samples_show():
    homes = large()
    homes["answer"] = homes["mean"] + homes["sd"] * keys.generator(5, "z").standard_normal(3000)
    design = design_sample(homes, homes["sd"], 120)
    promised = anticipated_error(design, homes["sd"])
    errors = []
    for seed in range(200):
        s = draw_sample(homes, homes["sd"], 120, seed, "trips")
        e = (homes["answer"] - homes["mean"]).loc[s.index] / s["inclusion"]
        errors.append(e.sum() + homes["mean"].sum() - homes["answer"].sum())
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(promised, rel=0.15)


def test_thin_districts_are_joined_until_each_has_ten():
    district = pd.Series(list("a" * 30 + "b" * 12 + "c" * 6 + "d" * 5), index=range(53))
    joined = joined_domains(district, district.index)
    assert sorted(joined.unique()) == ["a", "b", "c + d"]
    assert joined_domains(district, district.index[:4]).nunique() == 1


def zones_of(n, estimate, base=100.0, se=5.0):
    index = pd.Index(range(1, len(n) + 1), name="zone")
    zones = pd.DataFrame({"group": "g", "base": base, "spread": 30.0}, index=index)
    direct = pd.DataFrame({"estimate": estimate, "se": se, "n": n}, index=index)
    groups = pd.DataFrame({"estimate": [110.0 * len(n)], "se": [20.0]}, index=["g"])
    return estimate_zones(zones, direct, groups)


def test_a_zone_with_few_negotiations_is_its_surrogate_scaled_to_its_district():
    table = zones_of([9, 0, 3], [150.0, 90, 95])
    assert table["method"].unique().tolist() == ["synthetic"]
    assert table["estimate"].tolist() == pytest.approx([110.0] * 3)
    # Of the district's relative error, and of the zone's own households.
    assert table["se"].to_numpy() ** 2 == pytest.approx((100 * 20 / 300) ** 2 + 30)


def test_a_zone_with_ten_negotiations_has_a_word_as_far_as_zones_differ():
    own = np.array([150.0, 80, 120, 95, 105])
    table = zones_of([12, 15, 20, 10, 4], own)
    # Equal sampling variances: the moment equation has the root below in closed form (Fay and
    # Herriot 1979), with four zones and one district.
    psi, theta = 0.05**2, 1.10
    between = ((own[:4] / 100 - theta) ** 2).sum() / 3 - psi
    gamma = between / (between + psi)
    expected = np.append(gamma * own[:4] / 100 + (1 - gamma) * theta, theta) * 100
    expected *= 550 / expected.sum()
    assert table["method"].tolist() == ["composite"] * 4 + ["synthetic"]
    assert table["estimate"].to_numpy() == pytest.approx(expected)
    assert table["estimate"].sum() == pytest.approx(550)
    assert (table["se"].iloc[:4] < 5).all()


def test_zones_that_differ_no_more_than_chance_stay_synthetic():
    table = zones_of([12] * 4, [110.5, 109.5, 110.2, 109.8])
    assert table["method"].unique().tolist() == ["synthetic"]
    assert between_variance(np.array([1.2]), np.array([1.0]), np.array([0.01]), 1) == 0


def test_an_empty_zone_stays_empty():
    table = zones_of([12, 12, 12, 0], [90.0, 150, 100, 0], base=[100.0, 100, 100, 0])
    assert table["estimate"].iloc[3] == 0 and table["estimate"].sum() == pytest.approx(440)


# --- policies ------------------------------------------------------------------------------------


def answers(*replicates):
    return pd.DataFrame(dict(enumerate(replicates)))


def test_the_paired_effect_is_exactly_right_over_all_samples():
    delta = pd.Series([-1.0, 0, -2, 1, 0, -3, -1, -4], index=HOMES)
    changed = HOMES[[0, 2, 3, 4, 6, 7]]
    d = pd.Series(-0.5, index=changed).to_frame("trips")
    a, b = (list(HOMES[s == STRATUM]) for s in "ab")
    rows = []
    for ids in (x + y for x, y in product(combinations(a, 2), combinations(b, 2))):
        ids = list(ids)
        base, policy = answers(ANSWER.loc[ids]), answers((ANSWER + delta).loc[ids])
        rows.append(policy_effect(d, simple(ids), base, policy).loc["trips"])
    totals = np.array([r["estimate"] for r in rows])
    assert totals.mean() == pytest.approx(delta[changed].sum())
    known = [r for r in rows if not np.isnan(r["se"])]
    assert 0 < len(known) <= len(rows)


def test_a_policy_that_changes_no_answer_has_no_effect():
    ids = list(HOMES)
    d = pd.Series(0.0, index=HOMES).to_frame("trips")
    row = policy_effect(d, simple(ids, 4), answers(ANSWER), answers(ANSWER)).loc["trips"]
    assert (row["estimate"], row["se"], row["n"]) == (0, 0, 8)


def test_what_any_announcement_does_falls_out():
    ids = [1, 2, 3, 5, 6, 7]
    sampled = pd.DataFrame({"stratum": STRATUM.loc[ids], "inclusion": 0.75})
    d = pd.Series(0.0, index=HOMES).to_frame("trips")
    base = answers(ANSWER.loc[ids])
    placebo, policy = base + 2.0, base + 2.0 - 0.5
    raw = policy_effect(d, sampled, base, policy).loc["trips"]
    net = policy_effect(d, sampled, base, policy, placebo).loc["trips"]
    assert raw["estimate"] == pytest.approx(1.5 * 8)
    assert net["estimate"] == pytest.approx(-0.5 * 8)
    assert net["method"] == "paired, net of placebo"


def test_replicates_are_averaged_and_their_spread_told():
    ids = list(HOMES)
    d = pd.Series(0.0, index=HOMES).to_frame("trips")
    base = answers(*[ANSWER] * 3)
    policy = answers(ANSWER - 1, ANSWER - 2, ANSWER - 3)
    row = policy_effect(d, simple(ids, 4), base, policy).loc["trips"]
    assert row["estimate"] == -16
    assert row["se_replicates"] == pytest.approx(8 / np.sqrt(3))


def test_a_household_without_an_answer_is_not_taken_for_one():
    d = pd.Series(0.0, index=HOMES).to_frame("trips")
    base = answers(ANSWER.loc[[1, 2, 5]])
    with pytest.raises(ValueError, match="no answer"):
        policy_effect(d, simple([1, 2, 5, 6]), base, base)


def test_the_used_response_weighs_both_by_their_precision():
    table = pd.DataFrame(
        {
            "effect_published": [-100.0, -100, -100, np.nan],
            "se_published": [20.0, 20, 20, np.nan],
            "effect_negotiated": [-40.0, np.nan, -40, -40],
            "se_negotiated": [10.0, np.nan, np.nan, 10],
        }
    )
    used = used_effects(table)
    # Weights 1/400 and 1/100: a fifth and four fifths.
    assert used["effect_used"].tolist() == pytest.approx([-52, -100, -100, -40])
    assert used["se_used"].tolist() == pytest.approx([1 / np.sqrt(1 / 400 + 1 / 100), 20, 20, 10])


def test_policy_totals_keep_the_surveys_level():
    survey, base = pd.Series({"a": 900.0, "b": 50.0}), pd.Series({"a": 1000.0, "b": 0.0})
    policy = benchmarked(survey, pd.Series({"a": -100.0, "b": -1.0}), base)
    assert policy.tolist() == pytest.approx([810, 50])
