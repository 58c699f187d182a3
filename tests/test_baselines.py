"""The statistical baselines, on households whose relation is known."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pemand_abm import keys
from pemand_abm.errors import SettingsError, TableError
from pemand_abm.evaluation.baselines import (
    CHOICES,
    COUNTS,
    cross_predict,
    design,
    encode,
    fit_predict,
    nearest,
)
from pemand_abm.evaluation.metrics import average_precision, split
from pemand_abm.surveys import Features, Survey

N = 1500
COUNTY = {"King": 0.0, "Pierce": 0.4, "Kitsap": -0.5}
FEATURES = Features(("vehicles", "income"), ("county",), ("work",))


def survey(target="trips", n=N, alpha=0.0):
    """Trips of log mean 1 + 0.3 vehicles + the county's; moves of logit -2 + vehicles."""
    g = keys.generator("baselines", target)
    homes = pd.DataFrame(
        {
            "hhsize": g.integers(1, 5, n),
            "vehicles": g.integers(0, 4, n),
            "income": np.where(g.uniform(size=n) < 0.2, np.nan, g.lognormal(11, 0.6, n)),
            "county": g.choice(list(COUNTY), n, p=[0.6, 0.3, 0.1]),
            "weight": g.uniform(1, 9, n),
        },
        index=pd.Index(np.arange(n) * 10 + 3, name="household_id"),
    )
    mean = np.exp(1 + 0.3 * homes["vehicles"] + homes["county"].map(COUNTY))
    if target == "moved":
        homes[target] = (g.uniform(size=n) < 1 / (1 + np.exp(2 - homes["vehicles"]))).astype(int)
    else:
        homes[target] = g.poisson(mean * (g.gamma(1 / alpha, alpha, n) if alpha else 1))
    ids = np.repeat(homes.index, homes["hhsize"])
    persons = pd.DataFrame({"household_id": ids, "work": g.choice(["yes", "no", ""], len(ids))})
    persons.index.name = "person_id"
    return Survey("known", "", 2023, target, "", homes, persons, pd.DataFrame(), "", FEATURES)


def held_out(known):
    return split(known.households.index, 0.2, seed=0)


def having(known, **columns):
    return replace(known, households=known.households.assign(**columns))


def test_poisson_regression_gives_the_coefficients_of_statsmodels():
    import statsmodels.api as sm

    known = replace(survey(), features=Features(("vehicles", "income"), ("county",)))
    test = held_out(known)
    x = sm.add_constant(encode(design(known), ~test))
    y = known.households["trips"]
    fit = sm.GLM(y[~test], x[~test], family=sm.families.Poisson()).fit(tol=1e-10)
    ours = fit_predict("poisson", known, test, 0).values
    assert ours.to_numpy() == pytest.approx(fit.predict(x[test]).to_numpy(), rel=1e-4)


@pytest.mark.parametrize("method", ["linear", "poisson", "negbin"])
def test_columns_that_others_add_up_to_change_no_regression(method):
    known = survey(n=600)
    test = held_out(known)
    doubled = having(known, cars=2 * known.households["vehicles"] + 1)
    doubled = replace(doubled, features=Features(("vehicles", "cars", "income"), ("county",)))
    plain = replace(known, features=Features(("vehicles", "income"), ("county",)))
    one, two = (fit_predict(method, s, test, 0).values for s in (plain, doubled))
    assert two.to_numpy() == pytest.approx(one.to_numpy(), rel=1e-5)


def test_features_that_never_vary_are_refused():
    known = having(survey(n=60), vehicles=1)
    known = replace(known, features=Features(("vehicles",), ()))
    with pytest.raises(TableError, match="no feature varies"):
        fit_predict("poisson", known, held_out(known), 0)


@pytest.mark.parametrize("method", ["poisson", "negbin"])
def test_count_regressions_find_the_simulated_relation(method):
    known = survey(n=6000, alpha=0.3)
    test = held_out(known)
    log = np.log(fit_predict(method, known, test, 0).values)
    homes = known.households[test]
    x = pd.get_dummies(homes[["vehicles", "county"]], dtype=float).drop(columns="county_King")
    slope = np.linalg.lstsq(np.column_stack([np.ones(len(x)), x]), log, rcond=None)[0]
    assert slope.tolist() == pytest.approx([1, 0.3, -0.5, 0.4], abs=0.12)


def test_the_negative_binomial_finds_the_overdispersion_of_statsmodels_and_says_that_it_converged():
    import statsmodels.api as sm

    known = survey(alpha=0.4)
    known = replace(known, features=Features(("vehicles",), ("county",)))
    test = held_out(known)
    found = fit_predict("negbin", known, test, 0)
    x = sm.add_constant(encode(design(known), ~test))
    theirs = sm.NegativeBinomial(known.households["trips"][~test], x[~test]).fit(disp=0)
    assert found.notes == (
        f"the negative binomial regression converged at alpha {theirs.params['alpha']:.3f}",
    )
    assert found.values.to_numpy() == pytest.approx(theirs.predict(x[test]), rel=1e-3)


@pytest.mark.parametrize("method", COUNTS)
def test_every_count_baseline_is_better_than_the_mean(method):
    known = survey()
    test = held_out(known)
    y = known.households["trips"]
    found = fit_predict(method, known, test, 0).values
    assert found.index.equals(known.households.index[test])
    assert ((found - y[test]) ** 2).mean() < 0.8 * ((y[~test].mean() - y[test]) ** 2).mean()


@pytest.mark.parametrize("method", CHOICES)
def test_every_choice_baseline_ranks_movers_first_with_probabilities(method):
    known = survey("moved")
    test = held_out(known)
    y = known.households["moved"][test]
    score = fit_predict(method, known, test, 0).values
    assert score.between(0, 1).all()
    assert average_precision(y, score) > y.mean() + 0.12
    assert score.mean() == pytest.approx(y.mean(), abs=0.08)


@pytest.mark.parametrize("method", COUNTS)
def test_no_baseline_sees_the_answers_of_the_test_split(method):
    known = survey(n=600)
    test = held_out(known)
    other = having(known, trips=known.households["trips"].mask(test, 0))
    one, two = (fit_predict(method, s, test, 0).values for s in (known, other))
    assert (one == two).all()


def test_target_weight_and_id_are_no_features():
    names = " ".join(design(survey()).columns)
    assert names.split("=")[0] == "vehicles income county work"
    assert not any(word in names for word in ("trips", "weight", "household_id"))


def test_a_feature_that_is_the_answer_under_another_name_is_refused():
    known = survey()
    known = having(known, cnttdhh=known.households["trips"] + 1.0)
    known = replace(known, features=Features(("vehicles", "cnttdhh", "trips"), ()))
    with pytest.raises(TableError, match="'trips' is no feature"):
        design(known)
    known = replace(known, features=Features(("vehicles", "cnttdhh"), ()))
    with pytest.raises(TableError, match=r"cnttdhh: correlates at 1\.000 with the target"):
        design(known)


def test_all_faulty_features_are_named_at_once():
    known = replace(survey(), features=Features(("cars",), ("county",), ("job",)))
    with pytest.raises(TableError, match=r"2 problems\n.*'cars'.*\n.*'job'"):
        design(known)
    known = having(replace(survey(), features=Features(("band",), ())), band="75-100k")
    with pytest.raises(TableError, match="band: 1500 values are no numbers, first '75-100k'"):
        design(known)


def test_members_are_counted_by_category_and_shared_among_those_who_told():
    homes = pd.DataFrame({"trips": [3, 4], "weight": 1.0}, index=[20, 10])
    persons = pd.DataFrame({"household_id": [10, 20, 20, 20], "work": ["", "yes", "no", "yes"]})
    known = replace(
        survey(), households=homes, persons=persons, features=Features((), (), ("work",))
    )
    made = design(known)
    assert made["work=yes number"].to_dict() == {20: 2.0, 10: 0.0}
    assert made["work=no share"].round(3).to_dict() == pytest.approx(
        {20: 0.333, 10: np.nan}, nan_ok=True
    )


def test_medians_scales_and_modes_are_those_of_the_training_split():
    known = survey()
    test = held_out(known)
    frame = design(known)
    plain = encode(frame, ~test)
    # The test split's own values must not move what training rows look like.
    wild = frame.assign(
        income=frame["income"].mask(test & frame["income"].notna(), 9e9),
        county=frame["county"].astype("string").mask(test, "Kitsap").astype("category"),
    )
    pd.testing.assert_frame_equal(encode(wild, ~test)[~test], plain[~test])
    gap = plain["income"][frame["income"].isna()]
    filled = frame["income"][~test].fillna(frame["income"][~test].median())
    z = (frame["income"][~test].median() - filled.mean()) / filled.std(ddof=0)
    assert gap.to_numpy() == pytest.approx(z)


def test_yeo_johnson_takes_the_skew_away_and_leaves_shares_alone():
    known = survey("moved")
    test = held_out(known)
    frame = design(known)
    made = encode(frame, ~test, power=True)[~test]
    assert abs(made["income"].skew()) < 0.3 < frame["income"].skew()
    assert made["vehicles"].std(ddof=0) == pytest.approx(1)
    told = frame["work=yes share"][~test].dropna()
    assert made["work=yes share"][told.index].equals(told)


@pytest.mark.parametrize("method", ["linear", "poisson", "negbin", "rf", "gbm", "mlp"])
def test_a_category_that_only_the_test_split_has_is_taken_for_the_commonest_or_a_gap(method):
    known = survey(n=600)
    test = held_out(known)
    known = having(known, county=known.households["county"].mask(test, "Snohomish"))
    found = fit_predict(method, known, test, 0).values
    assert np.isfinite(found).all()
    if method != "gbm":
        common = having(known, county=known.households["county"].mask(test, "King"))
        assert found.to_numpy() == pytest.approx(fit_predict(method, common, test, 0).values)


@pytest.mark.parametrize("method", COUNTS)
def test_neither_the_order_of_the_rows_nor_the_threads_change_a_prediction(method):
    from threadpoolctl import threadpool_limits

    known = survey(n=600)
    test = held_out(known)
    turned = replace(known, households=known.households[::-1], persons=known.persons[::-1])
    one = fit_predict(method, known, test, 4).values
    with threadpool_limits(2):
        two = fit_predict(method, turned, test[::-1], 4).values
    assert two.index.equals(one.index[::-1])
    assert (two[::-1] == one).all()


def test_households_may_have_text_ids():
    known = survey(n=600)
    text = known.households.set_axis([f"SF-{i}" for i in known.households.index])
    persons = known.persons.assign(household_id=[f"SF-{i}" for i in known.persons["household_id"]])
    known = replace(known, households=text, persons=persons)
    found = fit_predict("poisson", known, held_out(known), 0).values
    assert found.index.equals(text.index[held_out(known)])


def test_cross_prediction_learns_from_all_households_outside_the_fold():
    known = survey("moved", n=400)
    fold = pd.Series([0, 1] * 50, index=known.households.index[:100])
    found = cross_predict("logistic", known, fold, 0).values
    assert found.index.equals(fold.index)
    test = known.households.index.isin(fold.index[fold == 1])
    alone = fit_predict("logistic", known, test, 0).values
    assert found[alone.index].to_numpy() == pytest.approx(alone.to_numpy())


def test_neighbours_are_alike_of_the_training_split_and_never_oneself():
    known = survey(n=600)
    test = held_out(known)
    ids = known.households.index[test][:20]
    near = nearest(known, ~test, ids)
    assert near.shape == (20, 3)
    assert not near.isin(known.households.index[test]).to_numpy().any()
    cars = known.households["vehicles"]
    gap = (near.apply(lambda c: c.map(cars)).sub(cars[ids], axis=0)).abs().to_numpy().mean()
    assert gap < 0.4
    own = nearest(known, np.ones(600, bool), ids)
    assert not own.eq(pd.Series(ids, index=ids), axis=0).to_numpy().any()


def test_neighbours_are_those_of_scikit_learn():
    from sklearn.neighbors import NearestNeighbors

    known = replace(survey(n=600), features=Features(("income", "vehicles"), ("county",)))
    test = held_out(known)
    told = known.households["income"].notna().to_numpy()
    x = encode(design(known), ~test & told)
    ids = x.index[test & told]
    learned = x.index[~test & told]
    place = NearestNeighbors(n_neighbors=3).fit(x.loc[learned]).kneighbors(x.loc[ids])[1]
    ours = nearest(known, ~test & told, ids)
    assert (ours.to_numpy() == learned.to_numpy()[place]).mean() > 0.99


def test_a_method_for_the_other_target_and_an_empty_split_are_refused():
    known = survey(n=60)
    with pytest.raises(SettingsError, match="no baseline 'logistic' for trips; there are linear"):
        fit_predict("logistic", known, held_out(known), 0)
    with pytest.raises(SettingsError, match="needs training and test households"):
        fit_predict("gbm", known, np.ones(60, bool), 0)
    with pytest.raises(SettingsError, match="has 3 rows, the survey 60"):
        fit_predict("gbm", known, np.ones(3, bool), 0)
