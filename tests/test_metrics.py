"""Error measures, their intervals, and which households are compared."""

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics as sk

from pemand_abm import keys
from pemand_abm.evaluation.metrics import (
    average_precision,
    by_size,
    calibration,
    choice_metrics,
    count_metrics,
    folds,
    paired_bootstrap,
    split,
    weighted_stratified_sample,
)


def counts(n=400):
    g = keys.generator("test metrics")
    y = g.poisson(5, n)
    return y, np.maximum(y + g.normal(0, 3, n), 0.2), g.uniform(0.5, 4, n)


def choices(n=400):
    g = keys.generator("test choices")
    score = g.integers(0, 21, n) / 20  # Many equal scores.
    y = (g.uniform(size=n) < 0.1 + 0.6 * score).astype(int)
    return y, (score >= 0.5).astype(int), score, g.uniform(0.5, 4, n)


@pytest.mark.parametrize("weighted", [False, True])
def test_count_metrics_agree_with_scikit_learn(weighted):
    y, p, w = counts()
    ours = count_metrics(y, p, w if weighted else None)
    told = {"sample_weight": w if weighted else None}
    assert ours["n"] == 400
    assert ours["mae"] == pytest.approx(sk.mean_absolute_error(y, p, **told))
    assert ours["rmse"] == pytest.approx(sk.root_mean_squared_error(y, p, **told))
    assert ours["poisson_deviance"] == pytest.approx(sk.mean_poisson_deviance(y, p, **told))
    assert ours["bias"] == pytest.approx(np.average(p - y, weights=told["sample_weight"]))


def test_smape_is_the_formula_of_the_paper_with_nothing_for_two_zeros():
    # |3-1|/2 = 1, |0-2|/1 = 2, 0/0 = 0, 4 and 4 = 0: 100 · 3/4 %.
    assert count_metrics([1, 2, 0, 4], [3, 0, 0, 4])["smape"] == pytest.approx(75.0)


def test_within_two_takes_trips_as_whole_and_rounds_halves_up():
    assert count_metrics([4, 4, 4, 4], [6.4, 6.5, 1.5, 1.4])["within_2"] == pytest.approx(0.5)


def test_a_predicted_zero_enters_the_deviance_at_the_floor_and_stays_finite():
    by_hand = 2 * (3 * np.log(3 / 0.01) - (3 - 0.01))
    assert count_metrics([3], [0])["poisson_deviance"] == pytest.approx(by_hand)


def test_zero_shares_count_what_rounds_to_no_trip():
    found = count_metrics([0, 0, 0, 5], [0.4, 0.6, 0, 5], [1, 1, 2, 4])
    assert found["zero_share"] == pytest.approx(3 / 8)
    assert found["zero_share_observed"] == pytest.approx(4 / 8)


def test_undecided_households_are_counted_and_not_measured():
    found = count_metrics([1, 2, 30], [1, 4, np.nan], [1, 1, 9])
    assert (found["n"], found["undecided"], found["mae"]) == (2, 1, 1.0)


def test_measures_of_nobody_are_not_numbers():
    found = count_metrics([3], [np.nan])
    assert found["n"] == 0
    assert all(np.isnan(v) for k, v in found.items() if k not in ("n", "undecided"))


@pytest.mark.parametrize("weighted", [False, True])
def test_choice_metrics_agree_with_scikit_learn(weighted):
    y, p, score, w = choices()
    ours = choice_metrics(y, p, score, w if weighted else None)
    told = {"sample_weight": w if weighted else None}
    near = np.clip(score, 1e-6, 1 - 1e-6)
    theirs = {
        "accuracy": sk.accuracy_score(y, p, **told),
        "precision": sk.precision_score(y, p, **told),
        "recall": sk.recall_score(y, p, **told),
        "f1": sk.f1_score(y, p, **told),
        "pr_auc": sk.average_precision_score(y, score, **told),
        "brier": sk.brier_score_loss(y, score, **told),
        "log_loss": sk.log_loss(y, near, **told),
        "bias_score": np.average(score - y, weights=told["sample_weight"]),
    }
    assert {k: ours[k] for k in theirs} == pytest.approx(theirs)


def test_precision_is_undefined_where_nobody_was_predicted_to_move():
    found = choice_metrics([1, 0, 0], [0, 0, 0])
    assert np.isnan(found["precision"])
    assert (found["recall"], found["f1"]) == (0.0, 0.0)


def test_recall_and_the_precision_curve_are_undefined_where_nobody_moved():
    found = choice_metrics([0, 0], [0, 0], [0.1, 0.2])
    assert all(np.isnan(found[k]) for k in ("precision", "recall", "f1", "pr_auc"))
    assert found["accuracy"] == 1.0


def test_measures_of_a_score_are_none_without_one():
    found = choice_metrics([0, 1], [0, 1])
    assert [found[k] for k in ("n_score", "pr_auc", "log_loss", "brier")] == [None] * 4


def test_a_score_out_of_its_range_is_refused():
    with pytest.raises(ValueError, match=r"0\.\.1"):
        choice_metrics([0, 1], [0, 1], [0, 70])


def test_weights_act_like_repeated_households():
    y, p, score, _ = choices(60)
    times = np.arange(60) % 3 + 1
    weighted = choice_metrics(y, p, score, times)
    repeated = choice_metrics(*(np.repeat(v, times) for v in (y, p, score)))
    for measure in ("accuracy", "precision", "recall", "f1", "pr_auc", "log_loss", "brier"):
        assert weighted[measure] == pytest.approx(repeated[measure])


def test_the_order_of_equal_scores_does_not_matter():
    y, _, score, _ = choices()
    turned = np.lexsort((y, score))
    assert average_precision(y, score) == pytest.approx(average_precision(y[turned], score[turned]))


def test_the_bootstrap_interval_has_the_width_of_the_normal_one():
    error = keys.generator("errors").exponential(3, 900)
    row = paired_bootstrap({"a": error}, "a", seed=3).loc["a"]
    se = error.std(ddof=1) / 30
    assert row["measure"] == pytest.approx(error.mean())
    assert row["high"] - row["low"] == pytest.approx(2 * 1.96 * se, rel=0.12)


def test_the_bootstrap_interval_covers_the_known_mean_about_as_often_as_it_says():
    covered = 0
    for trial in range(200):
        error = keys.generator("cover", trial).exponential(3, 150)
        row = paired_bootstrap({"a": error}, "a", seed=trial, repeats=300).loc["a"]
        covered += row["low"] <= 3 <= row["high"]
    assert 0.89 <= covered / 200 <= 0.98


def test_the_difference_of_a_method_to_itself_is_nothing():
    y, p, w = counts()
    row = paired_bootstrap({"a": abs(p - y)}, "a", w).loc["a"]
    assert row[["difference", "difference_low", "difference_high"]].tolist() == [0, 0, 0]


def test_a_constant_difference_has_an_interval_of_no_width():
    y, p, w = counts()
    error = abs(p - y)
    row = paired_bootstrap({"a": error, "b": error + 0.5}, "a", w).loc["b"]
    # Drawn one by one, the households of two methods would differ by chance.
    assert row[["difference_low", "difference_high"]].tolist() == pytest.approx([0.5, 0.5])
    assert row["high"] - row["low"] > 0.2


def test_differences_are_of_the_households_that_both_decided():
    errors = {"a": [1.0, 2.0, np.nan], "b": [2.0, np.nan, 5.0]}
    row = paired_bootstrap(errors, "a").loc["b"]
    assert (row["n"], row["measure"], row["pairs"], row["difference"]) == (2, 3.5, 1, 1.0)


def test_rows_of_one_household_are_drawn_together():
    error = keys.generator("clusters").exponential(3, 200)
    twice = np.repeat(error, 4)
    single = paired_bootstrap({"a": error}, "a", seed=1, households=np.arange(200))
    together = paired_bootstrap({"a": twice}, "a", seed=1, households=np.repeat(np.arange(200), 4))
    apart = paired_bootstrap({"a": twice}, "a", seed=1)
    width = [t.loc["a", "high"] - t.loc["a", "low"] for t in (single, together, apart)]
    assert width[0] == pytest.approx(width[1])
    assert width[2] < 0.6 * width[0]


def test_the_bootstrap_is_the_same_for_the_same_seed():
    y, p, _ = counts()
    one, same, other = (paired_bootstrap({"a": p - y}, "a", seed=s) for s in (1, 1, 2))
    pd.testing.assert_frame_equal(one, same)
    assert one.loc["a", "low"] != other.loc["a", "low"]


@pytest.mark.parametrize("ids", [np.arange(5000) * 7 - 3000, [f"SF-{i}" for i in range(5000)]])
def test_a_split_has_its_exact_share_and_follows_the_id(ids):
    ids = pd.Index(ids)
    test = split(ids, 0.1, seed=0)
    assert test.sum() == 500
    turned = np.argsort(keys.uniforms(np.arange(5000), "turn"))
    assert (split(ids[turned], 0.1, seed=0) == test[turned]).all()
    assert not (split(ids, 0.1, seed=1) == test).all()


def test_a_larger_test_split_contains_the_smaller_one():
    small, large = (split(np.arange(1000), share, seed=0) for share in (0.1, 0.2))
    assert (large[small]).all()


def test_all_rows_of_a_household_are_on_one_side_of_a_split():
    ids = np.repeat(np.arange(100), 3)
    test = pd.Series(split(ids, 0.2, seed=0))
    assert test.groupby(ids).nunique().max() == 1
    assert test.groupby(ids).first().sum() == 20


def test_random_numbers_of_text_ids_are_even():
    number = keys.uniforms(pd.Index([f"h{i}" for i in range(4000)]), 0)
    assert np.histogram(number, 4, (0, 1))[0] == pytest.approx(np.full(4, 1000), abs=110)


def test_folds_hold_an_even_share_of_every_label_in_any_order():
    labels = pd.Series(np.where(np.arange(1603) < 115, 1, 0), index=np.arange(1603) + 20)
    fold = folds(labels, 5, seed=0)
    assert labels.groupby(fold).sum().tolist() == [23] * 5
    assert fold.value_counts().max() - fold.value_counts().min() <= 1
    pd.testing.assert_series_equal(folds(labels[::-1], 5, seed=0)[::-1], fold)


def test_the_sample_of_movers_restores_their_weighted_share():
    labels = pd.Series(np.where(np.arange(1603) < 115, 1, 0), index=np.arange(1603))
    survey = pd.Series(keys.generator("w").uniform(1, 50, 1603), index=labels.index)
    drawn = weighted_stratified_sample(labels, {1: 115, 0: 345}, 0, survey)
    assert labels[drawn.index].value_counts().to_dict() == {0: 345, 1: 115}
    share = np.average(labels[drawn.index], weights=drawn)
    assert share == pytest.approx(np.average(labels, weights=survey))


def test_a_smaller_sample_of_movers_is_part_of_a_larger_one():
    labels = pd.Series([0, 1] * 100, index=np.arange(200))
    small, large = (
        weighted_stratified_sample(labels, {1: n, 0: n}, seed=5).index for n in (10, 30)
    )
    assert set(small) < set(large)


def test_a_sample_without_one_of_the_labels_is_refused():
    labels = pd.Series([0, 0, 1], index=[7, 8, 9])
    with pytest.raises(ValueError, match="0 of the 1 households of label 1"):
        weighted_stratified_sample(labels, {0: 2}, seed=0)


def test_calibration_groups_are_even_and_equal_predictions_stay_together():
    y, p, w = counts()
    table = calibration(p, y, w, bins=8)
    assert table["n"].tolist() == [50] * 8
    first = np.argsort(p)[:50]
    assert table["observed"].iloc[0] == pytest.approx(np.average(y[first], weights=w[first]))
    assert calibration(np.r_[np.ones(90), 2], np.ones(91), bins=10)["n"].sum() == 91
    assert calibration(np.full(9, 4.0), np.arange(9), bins=10)["observed"].tolist() == [4.0]


def test_the_standard_error_of_a_calibration_group_is_that_of_a_mean():
    y, p, _ = counts()
    table = calibration(p, y, bins=1)
    assert table["se"].iloc[0] == pytest.approx(y.std(ddof=1) / 20)


def test_errors_by_size_are_those_of_the_households_of_that_size():
    y, p, w = counts()
    size = np.arange(400) % 7 + 1
    table = by_size(y, p, size, w)
    assert table.index.tolist() == ["1", "2", "3", "4", "5+"]
    large = size >= 5
    assert table.loc["5+", "mae"] == pytest.approx(np.average(abs(p - y)[large], weights=w[large]))
    assert table["n"].sum() == 400
