"""Anchors come from earlier cycles alone, add up to their survey, and carry honest errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pemand_abm import anchoring, anchors
from pemand_abm.anchoring import compute_anchors
from pemand_abm.anchors import COLUMNS, MEMBER_BANDS, read_anchors
from pemand_abm.errors import TableError
from pemand_abm.evaluation.metrics import split
from pemand_abm.surveys import Features, Survey, read_survey

RATES = Path(__file__).parents[1] / "synthpop" / "rates" / "anchors.csv"
DATA = Path(__file__).parents[2] / "shared" / "data"
with_surveys = pytest.mark.skipif(not DATA.exists(), reason=f"the survey files are not at {DATA}")

AGES = dict(zip(MEMBER_BANDS, (8, 14, 25, 42, 57, 68, 80), strict=True))


def survey(target="trips", year=2001, copies=40, seed=1):
    """Return *copies* households of every size x vehicles, each with members of mixed ages.

    Trips are drawn per person, so what each kind of person makes is known.
    """
    draw = np.random.default_rng(seed)
    homes = pd.DataFrame(
        [(s, v) for s in range(1, 6) for v in range(4) for _ in range(copies)],
        columns=["hhsize", "auto_ownership"],
    )
    homes.index = pd.RangeIndex(1, len(homes) + 1, name="household_id")
    homes["weight"] = draw.uniform(0.2, 5, len(homes))
    homes["tenure"] = np.where(draw.random(len(homes)) < 0.6, "own", "rent")
    homes["age_of_head"] = draw.integers(18, 90, len(homes))
    homes["moved"] = (draw.random(len(homes)) < 0.2).astype(int)
    owner = np.repeat(homes.index, homes["hhsize"])
    people = pd.DataFrame({"household_id": owner})
    people["age"] = draw.choice(list(AGES.values()), len(people))
    people["age_to"] = people["age"]
    people["pemploy"] = np.where(people["age"] < 18, 4, draw.choice([1, 3], len(people)))
    people["trips"] = draw.poisson(2 + people["age"].eq(42) + people["pemploy"].eq(1))
    homes["trips"] = people.groupby("household_id")["trips"].sum()
    return Survey(
        name=f"made{year}",
        title=f"Made {year}",
        year=year,
        target=target,
        unit="trips of a day",
        households=homes,
        persons=people,
        dropped=pd.DataFrame(),
        facts="none",
        features=Features((), ()),
    )


def written(table, tmp_path):
    path = tmp_path / "anchors.csv"
    table.to_csv(path, index=False)
    return path


def household_rows(table):
    return table[table["level"].eq("household")].set_index(["hhsize", "vehicles"])


def member_rows(table):
    return table[table["level"].eq("member")].set_index("age_band")


def workers(table):
    return table[table["works"].eq(1)]


def given(homes, table, column="value"):
    """Return what the table gives each household."""
    cell = pd.MultiIndex.from_arrays(
        [homes["hhsize"].clip(upper=5), homes["auto_ownership"].clip(upper=3)]
    )
    return household_rows(table)[column].astype(float).loc[cell].to_numpy()


# --- earlier cycles only ------------------------------------------------------------------------


@pytest.mark.parametrize("year", [2017, 2022])
def test_a_survey_of_the_model_year_or_later_gives_no_shape(year):
    with pytest.raises(TableError, match=rf"made{year} is of {year}.*earlier survey cycle"):
        compute_anchors([survey(year=2001), survey(year=year)], 2017)


def test_a_table_of_the_model_year_is_refused_with_its_lines(tmp_path):
    table = compute_anchors([survey(year=2001)], 2017)
    path = written(table.assign(year=table["year"].where(table.index != 3, 2017)), tmp_path)
    assert read_anchors(path, 2018, ("trips",)).household_trips(1, 0).survey == "Made 2001"
    with pytest.raises(TableError, match=r"1 anchors are of 2017 or later.*line 5"):
        read_anchors(path, 2017, ("trips",))


def test_a_table_without_its_surveys_year_is_refused(tmp_path):
    table = compute_anchors([survey()], 2017).drop(columns="year")
    with pytest.raises(TableError, match="column year is missing"):
        read_anchors(written(table, tmp_path))


@pytest.fixture(scope="module")
def shipped():
    return read_anchors(RATES)


# --- trips --------------------------------------------------------------------------------------


def test_household_anchors_over_their_own_survey_add_up_to_its_trips():
    made = survey()
    homes = made.households
    table = compute_anchors([made], 2017)
    assert list(table.columns) == COLUMNS
    assert (household_rows(table)["n"] >= 40).all()
    assert np.average(given(homes, table), weights=homes["weight"]) == pytest.approx(
        np.average(homes["trips"], weights=homes["weight"])
    )


def test_one_factor_brings_the_anchors_to_the_level_of_the_training_split():
    old, new = survey(), survey(year=2017, seed=2, copies=3)
    homes = new.households.assign(trips=new.households["trips"] // 2)
    table = compute_anchors([old], 2017, replace(new, households=homes))
    assert table["factor"].nunique() == 1
    assert (given(homes, table) * homes["weight"]).sum() == pytest.approx(
        (homes["trips"] * homes["weight"]).sum()
    )
    raw = compute_anchors([old], 2017)
    assert table["raw"].to_numpy() == pytest.approx(raw["value"].to_numpy())
    assert (table["se"] / table["raw_se"]).to_numpy() == pytest.approx(table["factor"].to_numpy())


def test_weekend_households_do_not_count_where_the_survey_marks_them():
    made = survey()
    homes = made.households.assign(weekday=True)
    weekend = homes.assign(weekday=False, trips=99).set_axis(homes.index + 10**6)
    both = replace(made, households=pd.concat([homes, weekend]))
    assert compute_anchors([both], 2017)["value"].equals(compute_anchors([made], 2017)["value"])


def test_a_thin_cell_takes_its_neighbours_of_the_same_size():
    made = survey()
    homes = made.households
    kept = homes[~(homes["hhsize"].eq(3) & homes["auto_ownership"].eq(0) & (homes.index % 4 > 0))]
    row = household_rows(compute_anchors([replace(made, households=kept)], 2017)).loc[(3, 0)]
    pool = kept[kept["hhsize"].eq(3) & kept["auto_ownership"].le(1)]
    assert row["n"] == len(pool)
    assert row["raw"] == pytest.approx(np.average(pool["trips"], weights=pool["weight"]))
    assert "merged: size 3 to 3, vehicles 0 to 1" in row["note"]


def test_standard_error_of_a_cell_is_that_of_resampled_households():
    made = survey()
    homes = made.households
    row = household_rows(compute_anchors([made], 2017)).loc[(5, 2)]
    cell = homes[homes["hhsize"].eq(5) & homes["auto_ownership"].eq(2)]
    y, w = cell["trips"].to_numpy(), cell["weight"].to_numpy()
    pick = np.random.default_rng(0).integers(0, len(y), (4000, len(y)))
    means = (y[pick] * w[pick]).sum(axis=1) / w[pick].sum(axis=1)
    assert row["se"] == pytest.approx(means.std(), rel=0.1)


def test_members_trips_are_the_persons_own_where_the_survey_has_them():
    made = survey()
    rows = compute_anchors([made], 2017).query("level == 'member'")
    assert set(rows["label"]) == {"measured"}
    people = made.persons.join(made.households["weight"], on="household_id")
    some = people[people["age"].eq(42) & people["pemploy"].eq(1)]
    row = rows[rows["age_band"].eq("35-49") & rows["works"].eq(1)].iloc[0]
    assert row["value"] == pytest.approx(np.average(some["trips"], weights=some["weight"]))
    assert row["n"] == some["household_id"].nunique()


def test_inferred_members_trips_are_weighted_least_squares_with_robust_errors():
    sm = pytest.importorskip("statsmodels.api")
    made = survey()
    people = made.persons.drop(columns="trips")
    rows = compute_anchors([replace(made, persons=people)], 2017).query("level == 'member'")
    assert set(rows["label"]) == {"inferred"}
    kind = people["age"].astype(str) + np.where(
        people["age"] < 18, "", people["pemploy"].eq(1).astype(str)
    )
    x = pd.crosstab(people["household_id"], kind)
    homes = made.households.loc[x.index]
    fit = sm.WLS(homes["trips"], x, weights=homes["weight"]).fit(cov_type="HC1")
    row = rows[rows["age_band"].eq("35-49") & rows["works"].eq(1)].iloc[0]
    assert row["value"] == pytest.approx(fit.params["42True"])
    assert row["se"] == pytest.approx(fit.bse["42True"])
    assert row["value"] == pytest.approx(4, abs=4 * row["se"])  # made with 2 + 1 + 1


def test_where_the_survey_does_not_know_work_the_anchor_ignores_it(tmp_path):
    made = survey()
    table = compute_anchors([replace(made, persons=made.persons.drop(columns="pemploy"))], 2017)
    assert member_rows(table)["works"].isna().all()
    read = read_anchors(written(table, tmp_path), 2017, ("trips",))
    assert read.member_trips(40, True) == read.member_trips(40, False)


def test_where_the_model_years_survey_does_not_know_work_the_anchor_ignores_it():
    new = survey(year=2017, seed=2)
    new = replace(new, persons=new.persons.drop(columns="pemploy"))
    assert member_rows(compute_anchors([survey()], 2017, new))["works"].isna().all()


def test_a_person_whose_work_is_not_known_gets_the_mean_of_both(shipped):
    idle, busy = (shipped.member_trips(40, works) for works in (False, True))
    unknown = shipped.member_trips(40, None)
    assert unknown.n == idle.n + busy.n
    assert unknown.value == pytest.approx(
        (idle.n * idle.value + busy.n * busy.value) / (idle.n + busy.n)
    )
    assert min(idle.value, busy.value) < unknown.value < max(idle.value, busy.value)


def test_a_thin_band_of_members_is_joined_with_its_neighbour():
    made = survey()
    old = made.persons["age"].eq(80) & made.persons["pemploy"].eq(1)
    age = made.persons["age"].where(~old, 70)
    people = made.persons.assign(age=age, age_to=age)
    rows = workers(compute_anchors([replace(made, persons=people)], 2017))
    pair = rows[rows["age_band"].isin(["65-74", "75+"])]
    assert pair["value"].nunique() == 1
    assert pair["note"].str.contains("merged: 65-74 to 75+", regex=False).all()


def test_an_age_band_too_wide_to_place_joins_the_bands_that_it_covers():
    made = survey()
    adult = made.persons["age"].between(18, 64)
    people = made.persons.assign(
        age=made.persons["age"].where(~adult, 18), age_to=made.persons["age"].where(~adult, 64)
    )
    rows = workers(compute_anchors([replace(made, persons=people)], 2017))
    rows = rows.set_index("age_band")["value"]
    assert rows[["18-34", "35-49", "50-64"]].nunique() == 1
    assert rows["65-74"] != rows["18-34"]


def test_cycles_count_by_their_households_whatever_their_weights_sum_to():
    first, second = survey(), survey(year=2005, seed=5)
    heavy = replace(
        second, households=second.households.assign(weight=second.households["weight"] * 1000)
    )
    one, other = (compute_anchors([first, s], 2017)["value"] for s in (second, heavy))
    assert one.to_numpy() == pytest.approx(other.to_numpy())


# --- moves --------------------------------------------------------------------------------------


def test_a_move_anchor_blends_its_band_with_its_tenure():
    made = survey("moved")
    homes = made.households
    row = compute_anchors([made], 2017).query("tenure == 'rent' and age_band == '35-44'").iloc[0]
    renters = homes[homes["tenure"].eq("rent")]
    cell = renters[renters["age_of_head"].between(35, 44)]
    shares = [np.average(t["moved"], weights=t["weight"]) for t in (cell, renters)]
    part = len(cell) / (len(cell) + 100)
    assert row["value"] == pytest.approx(part * shares[0] + (1 - part) * shares[1])
    assert row["raw"] == pytest.approx(shares[0])
    assert row["n"] == len(cell)
    draw = np.random.default_rng(0)
    means = []
    for _ in range(1500):
        drawn = renters.iloc[draw.integers(0, len(renters), len(renters))]
        some = drawn[drawn["age_of_head"].between(35, 44)]
        means.append(
            part * np.average(some["moved"], weights=some["weight"])
            + (1 - part) * np.average(drawn["moved"], weights=drawn["weight"])
        )
    assert row["se"] == pytest.approx(np.std(means), rel=0.1)


def test_a_label_of_two_years_becomes_the_chance_of_one():
    made = survey("moved")
    two = replace(made, households=made.households.assign(span_years=2))
    one = compute_anchors([made], 2017)
    half = compute_anchors([two], 2017)
    assert (1 - (1 - half["raw"]) ** 2).to_numpy() == pytest.approx(one["raw"].to_numpy())
    assert anchoring.annual(0.19, 2) == pytest.approx(0.1)


def test_a_survey_too_small_for_anchors_is_an_error_not_a_guess():
    made = survey("moved")
    few = replace(made, households=made.households[made.households["tenure"].eq("own")])
    with pytest.raises(TableError, match="0 households that rent, 30 needed"):
        compute_anchors([few], 2017)


# --- reading ------------------------------------------------------------------------------------


def test_anchor_comes_from_an_earlier_survey_than_the_rates(shipped):
    surveys = {
        shipped.household_trips(12, 7).survey,
        shipped.member_trips(40, True).survey,
        shipped.moves("rent", 30).survey,
    }
    assert surveys == {"NHTS 2001", "PSRC panel 2014-2015"}
    assert shipped.household_trips(12, 7) == shipped.household_trips(5, 3)
    assert read_anchors(RATES, 2017).household_trips(1, 0) == shipped.household_trips(1, 0)


def test_every_age_has_a_member_anchor_and_toddlers_make_no_counted_trips(shipped):
    assert shipped.member_trips(4, False).value == 0
    for age in range(5, 100):
        for works in (False, True):
            anchor = shipped.member_trips(age, works)
            assert 1 < anchor.value < 6
            assert anchor.label == "inferred"
            assert anchor.n >= 30


def test_every_household_has_a_move_anchor_with_its_error(shipped):
    for tenure in ("own", "rent"):
        for age in range(15, 100):
            anchor = shipped.moves(tenure, age)
            assert 0 < anchor.value < 0.5
            assert 0 < anchor.se < anchor.value


def test_a_household_that_cannot_be_is_an_error(shipped):
    for ask in (
        lambda: shipped.household_trips(0, 1),
        lambda: shipped.member_trips(-1, True),
        lambda: shipped.moves("squat", 30),
    ):
        with pytest.raises(TableError, match="anchor: no"):
            ask()


def test_a_domain_that_the_table_lacks_is_named_when_asked(tmp_path):
    table = read_anchors(written(compute_anchors([survey()], 2017), tmp_path), 2017, ("trips",))
    with pytest.raises(TableError, match=r"anchors\.csv: no anchor of own, 25-34"):
        table.moves("own", 30)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t[t["level"].ne("member")], "trips member are missing for 14 of 14 cells"),
        (
            lambda t: t[t["vehicles"].ne(2)],
            "trips household are missing for 5 of 20 cells, first (1, 2)",
        ),
        (
            lambda t: t.assign(value=t["value"].where(t.index != 1, -1)),
            "value: 1 values are not numbers",
        ),
        (lambda t: pd.concat([t, t.tail(1)]), "1 rows come twice, first in line 49"),
        (
            lambda t: t.assign(value=t["value"].where(t["domain"].eq("trips"), 7)),
            "14 shares that move are over 1",
        ),
    ],
)
def test_a_broken_table_of_anchors_names_file_column_and_mend(tmp_path, change, says):
    path = written(change(pd.read_csv(RATES)), tmp_path)
    with pytest.raises(TableError) as fault:
        read_anchors(path)
    assert str(fault.value.message).startswith(str(path))
    assert says in fault.value.message


def test_a_missing_file_of_anchors_is_named(tmp_path):
    with pytest.raises(TableError, match=r"nowhere\.csv: no such file"):
        read_anchors(tmp_path / "nowhere.csv")


def test_every_fault_of_a_table_is_named_at_once(tmp_path):
    table = pd.read_csv(RATES)
    table.loc[0, "value"] = np.nan
    with pytest.raises(
        TableError, match=r"(?s)2 problems.*value: 1 values.*year: 33 anchors are of"
    ):
        read_anchors(written(table.query("domain == 'trips'"), tmp_path), 2001, ("trips",))


# --- the shipped tables -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["nhts2017", "nhts2022", "psrc2017", "psrc2019", "psrc2021", "psrc2023"]
)
def test_shipped_anchors_are_of_earlier_years_and_of_no_thin_cell(name):
    table = anchors.shipped_anchors(name, int(name[4:]))
    held = [table.household_trips(s, v) for s in range(1, 6) for v in range(4)]
    held += [
        table.member_trips(age, works) for age in range(5, 99) for works in (True, False, None)
    ]
    assert min(a.n for a in held) >= 30
    assert all(0 < a.se < a.value for a in held)
    with pytest.raises(TableError, match="or later"):
        anchors.shipped_anchors(name, 2001)


def test_a_survey_without_shipped_anchors_says_how_to_make_them():
    with pytest.raises(TableError, match=r"pemand anchors nhts2001"):
        anchors.shipped_anchors("nhts2001", 2001)


def test_every_survey_with_earlier_cycles_has_its_anchors_shipped():
    folder = Path(anchors.__file__).parent / "anchor_tables"
    assert {f.stem for f in folder.glob("*.csv")} == set(anchoring.SOURCES)


@with_surveys
def test_shipped_level_is_that_of_the_training_split_alone():
    table = pd.read_csv(Path(anchors.__file__).parent / "anchor_tables" / "nhts2022.csv")
    homes = pd.read_parquet(DATA / "nhts/nhts2022_household.parquet")
    homes = homes[homes["travday"].isin(["02", "03", "04", "05", "06"])]
    ids = read_survey("nhts2022", DATA / "nhts").households.index
    homes = homes[homes["houseid"].astype(ids.dtype).isin(ids)]
    tested = ids[split(ids, 0.1, 0)]
    cells = table.query("level == 'household'").set_index(["hhsize", "vehicles"])["raw"]
    homes = homes.assign(
        raw=cells.reindex(
            pd.MultiIndex.from_arrays(
                [homes["hhsize"].clip(upper=5), homes["hhvehcnt"].clip(upper=3)]
            )
        ).to_numpy()
    )
    trained = homes[~homes["houseid"].astype(ids.dtype).isin(tested)]
    for some, same in ((trained, True), (homes, False)):
        factor = (some["cnttdhh"] * some["wthhfin"]).sum() / (some["raw"] * some["wthhfin"]).sum()
        assert (abs(factor - table["factor"].iloc[0]) < 1e-6) == same
