import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from regions import MEMBERS, write_region
from scipy.optimize import minimize

from pemand_abm import balancing, synthesis
from pemand_abm.errors import PemandError, TableError
from pemand_abm.expressions import incidence
from pemand_abm.region import CONTROL_COLUMNS, read_region
from pemand_abm.synthesis import (
    NEWTON_STEPS,
    RELAXED,
    check_population,
    fit_summary,
    synthesize,
    write_population,
)

SF25 = Path(__file__).parents[1] / "synthpop" / "sf25"
ZONES = (10, 20, 35)
TOTAL = ("households", "zone", "households", 10**9, "HH", "households.weight > 0")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return read_region(write_region(tmp_path_factory.mktemp("region") / "tiny"), skims=False)


@pytest.fixture(scope="module")
def sf25():
    return read_region(SF25, skims=False)


@pytest.fixture(scope="module")
def downtown(sf25):
    return synthesize(sf25, 0)


def asking(region, controls=(), regional=None, weights=None, **by_zone):
    """Return the tiny region with other controls: (target, geography, importance, expression)."""
    rows = [TOTAL]
    for target, geography, importance, expression in controls:
        rows.append(
            (target, geography, expression.split(".")[0].strip("("), importance, target, expression)
        )
    totals = {
        "zone": pd.DataFrame(by_zone, index=pd.Index(ZONES, name="zone")),
        "region": pd.DataFrame(regional or {"none": 0}, index=pd.Index([1], name="region")),
    }
    seed = region.seed_households
    return dataclasses.replace(
        region,
        controls=pd.DataFrame(rows, columns=list(CONTROL_COLUMNS)),
        totals=totals,
        seed_households=seed if weights is None else seed.assign(weight=weights),
    )


def cell(population, target, zone):
    fit = population.fit
    return fit[(fit["target"] == target) & (fit["zone"] == zone)].iloc[0]


SIZE_1 = ("size_1", "zone", 10**6, "households.hhsize == 1")
OWN = ("own", "zone", 10**6, 'households.tenure == "own"')


# Expressions


@pytest.fixture
def tables():
    households = pd.DataFrame(
        {"income": [-5, 10, 20], "tenure": ["own", "rent", "own"]}, index=pd.Index([7, 8, 9])
    ).rename_axis("seed_id")
    persons = pd.DataFrame({"seed_id": [9, 7, 9], "age": [70, 30, 4]})
    return {"households": households, "persons": persons}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("households.income", [-5, 10, 20]),
        ("households.income / 5 + 2 * (1 - households.income)", [11, -16, -34]),
        ("(households.income > -999999999) & (households.income <= 10)", [1, 1, 0]),
        ("(households.income > 10) | ~(households.tenure == 'own')", [0, 1, 1]),
        ("0 <= households.income < 20", [0, 1, 0]),
        ("(households.income > 0) & (households.income < np.inf)", [0, 1, 1]),
        ("households.tenure.isin(['rent', 'lease'])", [0, 1, 0]),
        ("households.income.between(-5, 10)", [1, 1, 0]),
        ("households.seed_id != 8", [1, 0, 1]),
        ("persons.age >= 0", [1, 0, 2]),
        ("persons.age", [30, 0, 74]),
        ("(persons.age < 5) + (persons.age < 80)", [1, 0, 3]),
    ],
)
def test_expression_counts_what_it_says(tables, expression, expected):
    found = incidence(expression, tables)
    assert found.index.tolist() == [7, 8, 9]
    assert found.tolist() == expected


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "households.__class__.__base__",
        "households.income.__class__",
        "households.income.sum()",
        "households.income.isin(households.tenure)",
        "households.income.isin([i for i in (1, 2)])",
        "households.income.between(1, 2, inclusive='neither')",
        "households['income'] > 0",
        "(lambda: 1)()",
        "open('/etc/passwd')",
        "np.zeros(3)",
        "households.income ** 2",
        "households.income if households.income else 1",
        "households.income > 0 and households.income < 5",
        "not households.income",
        "income > 0",
        "households.incom > 0",
        "seeds.income > 0",
        "households.income > 0 & households.income < 5",
        "(households.income > 0) & (persons.age > 3)",
        "households.income / (households.income - 10)",
        "households.tenure > 3",
        "households.tenure",
        "'a' * households.income",
        "f'{households.income}'",
        "1 < 2",
        "households.income >",
        "",
        "(" * 5000 + "1" + ")" * 5000,
    ],
)
def test_expression_outside_the_whitelist_is_refused_by_name(tables, expression):
    with pytest.raises(TableError) as refusal:
        incidence(expression, tables, "rich")
    assert "control rich" in refusal.value.message
    assert ".between(low, high)" in refusal.value.message


def test_misspelt_column_is_told_with_its_likely_form(tables):
    with pytest.raises(TableError, match="did you mean 'income'"):
        incidence("households.Income > 0", tables)


# Balancing


def test_balanced_weights_are_those_of_iterative_proportional_fitting(tiny):
    region = asking(
        tiny, [SIZE_1, OWN, ("many", "zone", 10**6, "households.hhsize >= 5")],
        HH=[100, 0, 0], size_1=[40, 0, 0], own=[35, 0, 0], many=[15, 0, 0],
    )  # fmt: skip
    # IPF by hand over {size 1, 2 to 4, 5 and more} x {own, rent}.
    seed = tiny.seed_households
    size = np.digitize(seed["hhsize"], [2, 5])
    own = (seed["tenure"] == "own").to_numpy()
    weight = seed["weight"].to_numpy(dtype="float64")
    for _ in range(500):
        weight = weight * (np.array([40, 45, 15]) / np.bincount(size, weight))[size]
        weight = weight * np.where(own, 35 / weight[own].sum(), 65 / weight[~own].sum())
    problem = synthesis.problem_of(
        synthesis.frame_of(region), region.seed_households, region.seed_persons
    )[0]
    found, _ = balancing.balance(problem, most=1e9)
    assert found[0] == pytest.approx(weight, rel=1e-4)


def test_soft_controls_of_two_geographies_are_balanced_as_a_general_optimizer_does(tiny):
    region = asking(
        tiny,
        [
            ("pop", "zone", 20, "households.hhsize"),
            ("kids", "zone", 5, "persons.age < 18"),
            ("own", "region", 3, 'households.tenure == "own"'),
        ],
        {"own": 70}, HH=[60, 40, 0], pop=[120, 130, 0], kids=[20, 50, 0],
    )  # fmt: skip
    problem = synthesis.problem_of(
        synthesis.frame_of(region), region.seed_households, region.seed_persons
    )[0]
    found, _ = balancing.balance(problem, most=1e9)

    seed = tiny.seed_households
    size = seed["hhsize"].to_numpy(dtype="float64")
    kids = seed["children"].to_numpy(dtype="float64")
    own = (seed["tenure"] == "own").to_numpy(dtype="float64")
    prior = np.outer([60, 40], seed["weight"] / seed["weight"].sum())
    share = seed["weight"].to_numpy()

    def penalty(value, target, importance, mean):
        # Importance acts on residuals in units of what a typical household adds.
        return importance / 2 * ((value - target) / mean) ** 2 / (target / mean)

    def objective(x):
        w = x.reshape(2, -1)
        mean_size = (share @ size) / share.sum()
        mean_kids = (share @ kids) / share[kids > 0].sum()
        soft = sum(penalty(w[z] @ size, (120, 130)[z], 20, mean_size) for z in (0, 1))
        soft += sum(penalty(w[z] @ kids, (20, 50)[z], 5, mean_kids) for z in (0, 1))
        return (w * np.log(w / prior)).sum() + soft + penalty(w.sum(0) @ own, 70, 3, 1)

    sums = [{"type": "eq", "fun": lambda x: x.reshape(2, -1).sum(1) - [60, 40]}]
    best = minimize(
        objective, prior.ravel(), method="SLSQP", bounds=[(1e-9, None)] * 12,
        constraints=sums, options={"maxiter": 1000, "ftol": 1e-13},
    )  # fmt: skip
    assert best.success
    assert found[:2] == pytest.approx(best.x.reshape(2, -1), abs=2e-3)
    assert (found[2] == 0).all()


@pytest.mark.parametrize("importance", [100, 10**9])
def test_expansion_is_bounded_however_important_the_control(tiny, importance):
    region = asking(
        tiny, [("own", "zone", importance, OWN[3])], weights=[99.0, 0, 0, 0, 0, 1.0],
        HH=[1000, 0, 0], own=[900, 0, 0],
    )  # fmt: skip
    population = synthesize(region, 0)
    # One in a hundred of the seed owns, so 30 times its share is 300 of the 900 asked for.
    assert cell(population, "own", 10)["balanced"] == pytest.approx(300, rel=2e-3)
    assert cell(population, "own", 10)["note"] == RELAXED


def test_expansion_is_bounded_over_all_zones_of_the_coarsest_area(sf25):
    problem = synthesis.problem_of(
        synthesis.frame_of(sf25), sf25.seed_households, sf25.seed_persons
    )[0]
    weights, _ = balancing.balance(problem, most=5)
    expansion = weights.sum(axis=0) / problem.base * problem.base.sum() / weights.sum()
    assert 4.99 < expansion.max() < 5.01


def test_importance_decides_between_controls_that_disagree(tiny):
    def owners(importance):
        region = asking(
            tiny,
            [
                ("own", "zone", importance, OWN[3]),
                ("rent", "zone", 100, 'households.tenure == "rent"'),
            ],
            HH=[100, 0, 0], own=[80, 0, 0], rent=[40, 0, 0],
        )  # fmt: skip
        return cell(synthesize(region, 0), "own", 10)["balanced"]

    assert owners(10_000) == pytest.approx(80, abs=0.5)
    assert owners(1) == pytest.approx(60, abs=0.5)


def test_numeric_controls_hold_whatever_their_unit(tiny):
    region = asking(
        tiny, [("dollars", "zone", 1000, "households.income")],
        HH=[200, 100, 0], dollars=[12_000_000, 9_000_000, 0],
    )  # fmt: skip
    fit = synthesize(region, 0).fit.query("target == 'dollars' and control > 0")
    assert fit["result"].to_numpy() == pytest.approx(fit["control"].to_numpy(), rel=0.002)


# Rounding, draws


def test_counts_are_weights_rounded_down_or_up(sf25):
    problem = synthesis.problem_of(
        synthesis.frame_of(sf25), sf25.seed_households, sf25.seed_persons
    )[0]
    weights, steps = balancing.balance(problem)
    counts = balancing.round_weights(problem, weights, 3)
    assert (np.abs(counts - weights) < 1).all()
    assert (counts.sum(axis=1) == problem.totals).all()
    assert steps.max() < NEWTON_STEPS


def test_draws_follow_the_weights_where_no_control_interferes(tiny):
    region = asking(tiny, HH=[1, 0, 0])
    problem = synthesis.problem_of(
        synthesis.frame_of(region), region.seed_households, region.seed_persons
    )[0]
    weights, _ = balancing.balance(problem)
    counts = [balancing.round_weights(problem, weights, seed)[0] for seed in range(400)]
    assert (np.sum(counts, axis=1) == 1).all()
    expected = tiny.seed_households["weight"] / tiny.seed_households["weight"].sum()
    # Four standard errors of a share of 400 draws are below 0.1.
    assert np.mean(counts, axis=0) == pytest.approx(expected.to_numpy(), abs=0.1)


def test_same_seed_gives_the_same_tables_and_another_seed_another_draw(sf25, downtown):
    again, other = synthesize(sf25, 0), synthesize(sf25, 1)
    pd.testing.assert_frame_equal(again.households, downtown.households)
    pd.testing.assert_frame_equal(again.persons, downtown.persons)
    assert not other.households.equals(downtown.households)


def test_files_are_the_same_bytes_for_any_number_of_workers(tiny, tmp_path):
    for workers in (1, 2):
        write_population(synthesize(tiny, 5, workers), tmp_path / str(workers))
    names = sorted(p.name for p in (tmp_path / "1").iterdir())
    assert names == [
        "fit.csv", "fit_summary.csv", "group_quarters.parquet",
        "households.parquet", "persons.parquet", "summary_region.csv", "summary_zone.csv",
    ]  # fmt: skip
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_order_of_zones_in_the_files_changes_nothing(tiny, tmp_path):
    turned = write_region(tmp_path / "turned", ids=(35, 20, 10), households=(0, 40, 60))
    ours = synthesize(tiny, 0).households.drop(columns="district")
    theirs = synthesize(read_region(turned, skims=False), 0).households.drop(columns="district")
    pd.testing.assert_frame_equal(ours, theirs)


def test_zones_without_common_controls_do_not_depend_on_each_other(tiny):
    def first_zone(others):
        region = asking(tiny, [SIZE_1], HH=[33, *others], size_1=[11, others[0] // 2, others[1]])
        return synthesize(region, 0).households.query("home_zone_id == 10")["seed_id"].tolist()

    assert first_zone([40, 0]) == first_zone([0, 0]) == first_zone([500, 9])


# What cannot be met


def test_zone_without_households_stays_in_the_tables_and_its_persons_are_noted(tiny):
    region = asking(tiny, [("pop", "zone", 100, "households.hhsize")], HH=[6, 4, 0], pop=[12, 9, 5])
    population = synthesize(region, 0)
    assert population.group_quarters.index.tolist() == list(ZONES)
    empty = cell(population, "pop", 35)
    assert (empty["result"], empty["difference"]) == (0, -5)
    assert "no households here" in empty["note"]
    assert cell(population, "households", 35)["note"] == ""


def test_region_without_households_gives_empty_tables(tiny, tmp_path):
    population = synthesize(asking(tiny, [SIZE_1], HH=[0, 0, 0], size_1=[0, 0, 0]), 0)
    assert len(population.households) == len(population.persons) == 0
    assert len(population.fit) == 6
    write_population(population, tmp_path)
    assert pd.read_parquet(tmp_path / "households.parquet").columns[0] == "home_zone_id"


def test_controls_that_contradict_the_total_are_met_as_nearly_as_can_be(tiny):
    region = asking(tiny, [SIZE_1], HH=[3, 10, 0], size_1=[5, 4, 0])
    population = synthesize(region, 0)
    torn = cell(population, "size_1", 10)
    assert (torn["result"], torn["difference"], torn["note"]) == (3, -2, RELAXED)
    assert cell(population, "size_1", 20)["result"] == 4
    assert cell(population, "households", 10)["result"] == 3


def test_category_that_the_seed_lacks_is_named(tiny):
    region = asking(
        tiny, [SIZE_1, ("size_7", "zone", 10**6, "households.hhsize == 7")],
        HH=[10, 0, 0], size_1=[4, 0, 0], size_7=[2, 0, 0],
    )  # fmt: skip
    population = synthesize(region, 0)
    assert cell(population, "size_7", 10)["note"] == "no seed household adds to it"
    assert cell(population, "size_1", 10)["result"] == 4


def test_zero_control_keeps_its_category_out(tiny):
    population = synthesize(asking(tiny, [SIZE_1], HH=[50, 50, 0], size_1=[0, 20, 0]), 0)
    assert cell(population, "size_1", 10)["result"] == 0


def test_seed_without_weights_counts_each_household_once(tiny):
    unweighted = tiny.seed_households.drop(columns="weight")
    region = dataclasses.replace(asking(tiny, HH=[6000, 0, 0]), seed_households=unweighted)
    counts = synthesize(region, 0).households["seed_id"].value_counts()
    assert (counts == 1000).all()


def test_seed_household_of_weight_zero_is_not_drawn(tiny):
    region = asking(tiny, [SIZE_1], weights=[0, 1, 1, 1, 1, 1], HH=[50, 0, 0], size_1=[9, 0, 0])
    population = synthesize(region, 0)
    assert 1 not in set(population.households["seed_id"])
    assert cell(population, "size_1", 10)["note"] == "no seed household adds to it"


def test_zone_of_one_household_may_hold_twelve_people(tiny):
    region = asking(
        tiny, [("pop", "zone", 10**5, "households.hhsize")], HH=[1, 0, 0], pop=[12, 0, 0]
    )
    population = synthesize(region, 0)
    assert population.households["hhsize"].tolist() == [12]
    assert population.persons["PNUM"].tolist() == list(range(1, 13))
    assert population.persons["age"].tolist() == [member[0] for member in MEMBERS[6]]


def test_zones_of_one_household_with_torn_controls_do_not_stop_the_rest(tiny):
    region = asking(
        tiny, [SIZE_1, ("size_2", "zone", 10**6, "households.hhsize == 2")],
        HH=[1, 1, 1], size_1=[1, 0, 1], size_2=[1, 1, 0],
    )  # fmt: skip
    population = synthesize(region, 0)
    assert population.households["hhsize"].iloc[1:].tolist() == [2, 1]
    assert population.households["hhsize"].iloc[0] in (1, 2)
    assert population.fit.query("zone == 10 and target != 'households'")["difference"].sum() == -1


def test_fractional_household_total_is_one_clear_error(tiny):
    with pytest.raises(TableError, match=r"zone 20: 4\.5.*round them"):
        synthesize(asking(tiny, HH=[10, 4.5, 0]), 0)


def test_household_total_that_does_not_count_all_is_refused(tiny):
    region = asking(tiny, HH=[10, 4, 0])
    controls = region.controls.assign(expression="households.hhsize == 1")
    with pytest.raises(TableError, match="must count every household once"):
        synthesize(dataclasses.replace(region, controls=controls), 0)


def test_all_faulty_controls_are_told_at_once(tiny):
    region = asking(
        tiny, [("a", "zone", 1, "households.sqrt()"), ("b", "zone", 1, "persons.aeg > 3")],
        HH=[1, 1, 1], a=[1, 1, 1], b=[1, 1, 1],
    )  # fmt: skip
    with pytest.raises(TableError) as fault:
        synthesize(region, 0)
    assert "control a" in fault.value.message
    assert "control b" in fault.value.message


def test_seed_table_must_be_that_of_the_expression(tiny):
    region = asking(tiny, [SIZE_1], HH=[1, 1, 1], size_1=[1, 1, 1])
    controls = region.controls.assign(seed_table=["households", "persons"])
    with pytest.raises(TableError, match="seed_table is persons, but its expression names househ"):
        synthesize(dataclasses.replace(region, controls=controls), 0)


def test_population_with_orphans_is_refused(tiny):
    population = synthesize(tiny, 0)
    lost = dataclasses.replace(population, persons=population.persons.assign(household_id=999))
    totals = pd.Series([60, 40, 0], index=ZONES)
    with pytest.raises(TableError, match=r"belong to no household(.|\n)*hhsize"):
        check_population(lost, totals)
    with pytest.raises(TableError, match="not met in zones 10"):
        check_population(population, totals.replace(60, 61))


def test_text_zone_ids_stay_text(tmp_path):
    folder = write_region(tmp_path / "text", ids=("SF-Mission", "SF-Bay", "010"))
    population = synthesize(read_region(folder, skims=False), 0)
    assert population.households["home_zone_id"].unique().tolist() == ["SF-Bay", "SF-Mission"]
    assert set(population.fit.query("geography == 'zone'")["zone"]) == {
        "SF-Mission",
        "SF-Bay",
        "010",
    }


# The fit and the files


def test_summary_is_what_its_columns_say():
    fit = pd.DataFrame(
        {
            "geography": "zone",
            "zone": [1, 2, 3],
            "target": "own",
            "control": [10.0, 30.0, 0.0],
            "balanced": [10.0, 30.0, 0.0],
            "result": [11.0, 27.0, 2.0],
            "difference": [1.0, -3.0, 2.0],
            "note": "",
        }
    )
    summary = fit_summary(fit).loc[("zone", "own")]
    assert (summary["control"], summary["result"]) == (40, 40)
    assert summary["mean_percent_difference"] == pytest.approx((10 - 10) / 2)
    # Two cells have a control: root of (1 + 9) / 2, over their mean of 20.
    assert summary["percent_rmse"] == pytest.approx(100 * 5**0.5 / 20)
    assert summary["absolute_percent"] == pytest.approx(100 * 6 / 40)
    assert (summary["largest_error"], summary["cells"], summary["n"]) == (3, 3, 2)


def test_fit_counts_what_the_tables_hold(sf25, downtown):
    households, persons = downtown.households, downtown.persons
    fit = downtown.fit.set_index(["geography", "target", "zone"])["result"]
    elders = persons[persons["age"] >= 65]["household_id"].map(households["home_zone_id"])
    poor = households[households["income"] < 30_000].groupby("home_zone_id").size()
    zones = sf25.zones.index
    assert (fit["zone"]["age_65p"] == elders.value_counts().reindex(zones, fill_value=0)).all()
    assert (fit["zone"]["income_1"] == poor.reindex(zones, fill_value=0)).all()
    alone = households[households["hhsize"] == 1].groupby("home_zone_id").size()
    assert (fit["zone"]["size_1"] == alone.reindex(zones, fill_value=0)).all()


def test_population_passes_the_rules_of_activitysim(downtown):
    households, persons = downtown.households, downtown.persons
    assert households.index.tolist() == list(range(1, len(households) + 1))
    assert persons.index.is_unique
    by = persons.groupby("household_id")
    assert (by.size() == households["hhsize"]).all()
    assert (persons["pemploy"].isin([1, 2]).groupby(persons["household_id"]).sum()
            == households["num_workers"]).all()  # fmt: skip
    assert (by["PNUM"].max() == households["hhsize"]).all()
    assert households["home_zone_id"].is_monotonic_increasing
    assert households.dtypes[["home_zone_id", "income", "seed_id"]].eq("int64").all()
    assert households.columns[:11].tolist() == [
        "home_zone_id", "district", "hhsize", "num_workers", "auto_ownership", "income", "HHT",
        "tenure", "age_of_head", "children", "seed_id",
    ]  # fmt: skip
    assert persons.columns[:2].tolist() == ["household_id", "PNUM"]


def test_downtown_meets_its_controls(sf25, downtown):
    wanted = sf25.totals["zone"]
    lived = downtown.households.groupby("home_zone_id")
    assert lived.size().tolist() == wanted["TOTHH"].tolist()
    persons = lived["hhsize"].sum()
    assert (persons - wanted["HHPOP"]).abs().max() <= 2
    summary = fit_summary(downtown.fit).loc["zone"]
    assert len(summary) == 21
    assert summary.filter(like="income", axis=0)["absolute_percent"].max() < 0.1
    assert summary["absolute_percent"].max() < 1
    assert summary["percent_rmse"].max() < 2


def test_group_quarters_are_no_households(sf25, downtown):
    assert downtown.group_quarters["persons"].sum() == 6600
    assert len(downtown.households) == 48_743


def test_output_that_cannot_be_written_is_one_error(tiny, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PemandError, match="cannot write"):
        write_population(synthesize(tiny, 0), tmp_path / "file" / "out")
