"""Draws follow the survey's distributions and depend on their key; broken tables are named."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pemand_abm import surrogate
from pemand_abm.errors import TableError
from pemand_abm.surrogate import PURPOSES

RATES = Path(__file__).parents[1] / "synthpop" / "rates"
DATA = Path(__file__).parents[2] / "shared" / "data"
with_surveys = pytest.mark.skipif(not DATA.exists(), reason=f"the survey files are not at {DATA}")


@pytest.fixture(scope="module")
def rates():
    return surrogate.read_rates(RATES)


def homes(n=1, start=1, **columns):
    """Return *n* like households: two workers, one car, renters of 30, unless said otherwise."""
    common = {
        "hhsize": 2,
        "num_workers": 2,
        "auto_ownership": 1,
        "children": 0,
        "tenure": "rent",
        "age_of_head": 30,
    }
    return pd.DataFrame(
        common | columns, index=pd.RangeIndex(start, start + n, name="household_id").astype("int64")
    )


def mixed(n=4000):
    """Return households of many kinds, deterministic."""
    i = np.arange(n)
    size = 1 + i % 7
    return homes(
        n,
        hhsize=size,
        num_workers=np.minimum(i // 7 % 5, size),
        auto_ownership=i // 11 % 6,
        children=np.minimum(i // 13 % 3, size - 1),
        tenure=np.where(i % 3 == 0, "own", "rent"),
        age_of_head=18 + i % 70,
    )


# --- draws --------------------------------------------------------------------------------------


def test_purposes_of_every_household_sum_to_its_trips(rates):
    drawn = surrogate.draw_trips(mixed(), rates, 0, "travel_day:1")
    assert (drawn[list(PURPOSES)].sum(axis=1) == drawn["trips"]).all()
    assert set(map(str, drawn.dtypes)) == {"int64"}
    assert (drawn >= 0).all(axis=None)


@pytest.mark.parametrize("cell", [(1, 0, 0), (2, 2, 1), (4, 1, 2), (5, 3, 3)])
def test_mean_and_zero_share_of_many_draws_match_the_survey_cell(rates, cell):
    size, workers, vehicles = cell
    n = 60_000
    table = homes(n, hhsize=size, num_workers=workers, auto_ownership=vehicles)
    drawn = surrogate.draw_trips(table, rates, 3, "travel_day:1")["trips"]
    published = (
        pd.read_csv(RATES / "trips_cells.csv").set_index(["size", "workers", "vehicles"]).loc[cell]
    )
    assert abs(drawn.mean() - published["mean"]) < 4 * np.sqrt(published["variance"] / n)
    zero = published["zero_share"]
    assert abs((drawn == 0).mean() - zero) < 4 * np.sqrt(zero * (1 - zero) / n)
    assert abs(drawn.var() / published["variance"] - 1) < 0.1


def test_purpose_shares_of_many_draws_match_the_survey(rates):
    drawn = surrogate.draw_trips(
        homes(50_000, hhsize=4, num_workers=2, children=2), rates, 5, "travel_day:1"
    )
    shares = drawn[list(PURPOSES)].sum() / drawn["trips"].sum()
    published = (
        pd.read_csv(RATES / "purposes.csv")
        .set_index(["size", "workers", "children"])
        .loc[(2, 2, 1)]
    )
    bound = 4 * np.sqrt(0.25 / drawn["trips"].sum())
    assert (shares - published[list(PURPOSES)].astype(float)).abs().max() < bound


def test_draw_depends_neither_on_order_nor_on_the_other_households(rates):
    table = mixed()
    whole = surrogate.draw_trips(table, rates, 1, "travel_day:1")
    shuffled = table.sample(frac=1, random_state=4)
    assert surrogate.draw_trips(shuffled, rates, 1, "travel_day:1").sort_index().equals(whole)
    some = table.iloc[5::17]
    assert surrogate.draw_trips(some, rates, 1, "travel_day:1").equals(whole.loc[some.index])


def test_another_seed_or_event_gives_another_draw(rates):
    table = mixed()
    first = surrogate.draw_trips(table, rates, 1, "travel_day:1")["trips"]
    for seed, event in ((2, "travel_day:1"), (1, "travel_day:2")):
        other = surrogate.draw_trips(table, rates, seed, event)["trips"]
        assert 0.02 < (first == other).mean() < 0.3


def test_households_beyond_the_top_classes_take_the_open_classes(rates):
    large = surrogate.draw_trips(
        homes(500, hhsize=12, num_workers=9, auto_ownership=7, children=3), rates, 0, "d"
    )
    top = surrogate.draw_trips(
        homes(500, hhsize=5, num_workers=3, auto_ownership=3, children=1), rates, 0, "d"
    )
    assert large.equals(top)


def test_ids_beyond_32_bits_are_drawn(rates):
    drawn = surrogate.draw_trips(homes(50, start=2**40), rates, 0, "d")
    assert drawn.index[0] == 2**40
    assert drawn["trips"].nunique() > 3


def test_table_without_households_gives_empty_tables_of_the_same_columns(rates):
    none = mixed(10).iloc[:0]
    assert list(surrogate.draw_trips(none, rates, 0, "d").columns) == ["trips", *PURPOSES]
    assert surrogate.move_rates(none, rates).empty
    assert surrogate.expected_trips(none, rates).empty


def test_expected_trips_are_the_mean_and_sd_of_the_distribution(rates):
    long = pd.read_csv(RATES / "trips.csv").query("size == 3 and workers == 2 and vehicles == 2")
    mean = (long["trips"] * long["share"]).sum()
    expected = surrogate.expected_trips(homes(hhsize=3, auto_ownership=2), rates).iloc[0]
    assert expected["mean"] == pytest.approx(mean, rel=1e-6)
    assert expected["sd"] == pytest.approx(
        np.sqrt((long["share"] * (long["trips"] - mean) ** 2).sum()), rel=1e-6
    )


def test_a_bad_household_table_names_every_column_and_the_first_household(rates):
    broken = homes(3, auto_ownership=[1, -1, 1], hhsize=[2, 2, np.nan])
    with pytest.raises(
        TableError,
        match=r"(?s)hhsize: 1 values.*household_id \[3\].*auto_ownership.*household_id \[2\]",
    ):
        surrogate.draw_trips(broken, rates, 0, "d")
    with pytest.raises(TableError, match="more than hhsize"):
        surrogate.draw_trips(homes(num_workers=3), rates, 0, "d")
    with pytest.raises(TableError, match="column children"):
        surrogate.expected_trips(homes().drop(columns="children"), rates)
    with pytest.raises(TableError, match="come twice"):
        surrogate.draw_trips(pd.concat([homes(), homes()]), rates, 0, "d")


# --- moves --------------------------------------------------------------------------------------


def test_move_rate_is_the_groups_and_score_the_logit_of_the_finer_cell(rates):
    got = surrogate.move_rates(
        homes(3, age_of_head=[24, 25, 93], children=[0, 2, 0], tenure=["rent", "own", "own"]), rates
    )
    assert got["group"].tolist() == ["rent 15-24", "own 25-34", "own 75+"]
    published = pd.read_csv(RATES / "moves.csv", dtype={"children": "str"}).set_index(
        ["tenure", "age_band", "children"]
    )["rate"]
    assert got["target"].tolist() == [
        published[("rent", "15-24", "all")],
        published[("own", "25-34", "all")],
        published[("own", "75+", "all")],
    ]
    odds = 1 / (1 + np.exp(-got["score"]))
    finer = [
        published[("rent", "15-24", "0")],
        published[("own", "25-34", "1")],
        published[("own", "75+", "0")],
    ]
    assert odds.to_numpy() == pytest.approx(finer)


def test_unknown_tenure_is_an_error_not_a_guess(rates):
    with pytest.raises(TableError, match=r"tenure: 1 values.*\[2\]"):
        surrogate.move_rates(homes(2, tenure=["own", "squat"]), rates)


# --- group quarters -----------------------------------------------------------------------------


def test_group_quarters_keep_every_zone_and_the_proxy_rate(rates):
    persons = pd.Series([100.0, 0.0], index=pd.Index(["SF-Mission", "SF-Marina"], name="zone_id"))
    trips = surrogate.group_quarters_trips(persons, rates)
    assert trips.index.equals(persons.index)
    assert trips.loc["SF-Marina"].sum() == 0
    alone = pd.read_csv(RATES / "trips_cells.csv").set_index(["size", "workers", "vehicles"])[
        "mean"
    ][(1, 0, 0)]
    assert trips.loc["SF-Mission"].sum() == pytest.approx(100 * alone)


# --- broken tables ------------------------------------------------------------------------------


def spoilt(tmp_path, name, change):
    """Return a copy of the rates folder with one table changed."""
    folder = tmp_path / "rates"
    shutil.copytree(RATES, folder)
    change(pd.read_csv(folder / name, dtype={"children": "str"})).to_csv(folder / name, index=False)
    return folder


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        (
            "trips.csv",
            lambda t: t.assign(share=t["share"].where(t.index != 3, 0.9)),
            "share: shares of 1 cells do not sum to 1",
        ),
        (
            "trips.csv",
            lambda t: t[t["size"].ne(4) | t["vehicles"].ne(2)],
            "cell is missing, first (4, 0, 2)",
        ),
        ("trips.csv", lambda t: t.drop(columns="share"), "column share is missing"),
        (
            "trips_cells.csv",
            lambda t: t.assign(mean=t["mean"] + 1),
            "mean: 68 cells do not agree with trips.csv",
        ),
        ("trips_cells.csv", lambda t: t.iloc[1:], "1 cells are missing, first (1, 0, 0)"),
        ("purposes.csv", lambda t: t.assign(hbw=t["hbw"] / 2), "do not sum to 1"),
        (
            "purposes.csv",
            lambda t: t.assign(hbw=t["hbw"].where(t.index != 2)),
            "hbw: 1 values are not numbers of 0 or more, first in line 4",
        ),
        (
            "moves.csv",
            lambda t: t.assign(rate=t["rate"].where(t.index != 0, 1.0)),
            "rate: 1 values not between 0 and 1",
        ),
        ("moves.csv", lambda t: pd.concat([t, t.tail(1)]), "1 rows come twice"),
        (
            "anchors.csv",
            lambda t: t[t["level"].ne("member")],
            "anchors of trips member are missing for 14 of 14 cells",
        ),
        ("group_quarters.csv", lambda t: t[t["purpose"].ne("hbo")], "purpose hbo is missing"),
        (
            "periods.csv",
            lambda t: t.assign(share=t["share"].where(t.index != 1, 0.9)),
            "share: shares of 1 cells do not sum to 1, first hbw",
        ),
        (
            "periods.csv",
            lambda t: t[t["period"].ne("EV")],
            "11 cells are missing, first (hbo, from_home, EV)",
        ),
        ("periods.csv", lambda t: t.replace({"period": {"EA": "NT"}}), "no such row in line 2, 7"),
        ("modes.csv", lambda t: t.assign(walk=0), "do not sum to 1"),
        ("modes.csv", lambda t: t.drop(columns="taxi"), "column taxi is missing"),
    ],
)
def test_a_broken_rate_table_names_file_column_and_mend(tmp_path, name, change, says):
    with pytest.raises(TableError) as fault:
        surrogate.read_rates(spoilt(tmp_path, name, change))
    message = str(fault.value.message)
    assert name in message
    assert says in message


def test_a_rates_folder_without_a_table_says_which(tmp_path):
    with pytest.raises(TableError, match=r"trips\.csv: no such file"):
        surrogate.read_rates(tmp_path)


# --- the shipped numbers, by another road -------------------------------------------------------


@with_surveys
def test_shipped_trip_cell_is_nhts_2017s(rates):
    survey = pd.read_parquet(DATA / "nhts/nhts2017_household.parquet")
    cell = survey.query(
        "urbrur == '01' and travday >= '02' and travday <= '06'"
        " and hhsize == 2 and wrkcount == 1 and hhvehcnt == 2"
    )
    mean = sum(cell["cnttdhh"] * cell["wthhfin"]) / sum(cell["wthhfin"])
    zero = cell.loc[cell["cnttdhh"] == 0, "wthhfin"].sum() / cell["wthhfin"].sum()
    shipped = rates.cells.loc[(2, 1, 2)]
    assert shipped["n"] == len(cell)
    assert shipped["mean"] == pytest.approx(mean, abs=1e-6)
    assert shipped["zero_share"] == pytest.approx(zero, abs=1e-6)


@with_surveys
def test_shipped_school_share_is_of_trips_between_home_and_school(rates):
    home = pd.read_parquet(DATA / "nhts/nhts2022_household.parquet").query(
        "urbrur == '01' and hhsize > 1 and wrkcount == 1"
    )
    home = home[home["ppt517"] + home["youngchild"] > 0]
    trips = pd.read_parquet(DATA / "nhts/nhts2022_trip.parquet").query(
        "wttrdfin5d > 0 and trippurp != '-9'"
    )
    trips = trips[trips["houseid"].isin(home["houseid"])]
    ends = [set(pair) for pair in zip(trips["whyfrom"], trips["whyto"], strict=True)]
    school = np.array(["06" in pair and bool(pair & {"01", "02"}) for pair in ends])
    share = trips["wttrdfin5d"][school].sum() / trips["wttrdfin5d"].sum()
    assert rates.purposes.loc[(2, 1, 1), "hbsch"] == pytest.approx(share, abs=1e-6)
    persons = pd.read_parquet(
        DATA / "nhts/nhts2022_person.parquet", columns=["houseid", "personid", "r_age"]
    )
    assert trips[school].merge(persons, on=["houseid", "personid"])["r_age"].lt(25).mean() > 0.95


@with_surveys
def test_shipped_move_rate_is_the_census_samples(rates):
    moved = total = 0
    for state in ("26", "53"):
        home = pd.read_parquet(DATA / f"pums/h_{state}.parquet", filters=[("TEN", "in", (3, 4))])
        home = home.set_index("SERIALNO")["WGTP"]
        young = [("SPORDER", "==", 1), ("AGEP", ">=", 25), ("AGEP", "<=", 34)]
        head = pd.read_parquet(DATA / f"pums/p_{state}.parquet", filters=young)
        weight = head["SERIALNO"].map(home).fillna(0).astype(int)
        total += weight.sum()
        moved += weight[head["MIGSP"].notna()].sum()
    assert rates.moves.loc[("rent", "25-34", "all"), "rate"] == pytest.approx(
        moved / total, abs=1e-6
    )
