import numpy as np
import pandas as pd
import pytest

from pemand_abm.demand import (
    PURPOSES,
    DemandSettings,
    attractiveness,
    demand_table,
    gravity,
    intrazonal,
    moves_matrix,
    productions,
    trip_matrices,
    zone_demand,
)
from pemand_abm.errors import SettingsError, TableError

RATES = {
    "hbw": {"JOBS": 1.2},
    "hbsch": {"PUPILS": 2.0},
    "hbshop": {"SHOPS": 3.0},
    "hbsocrec": {"SHOPS": 1.0},
    "hbo": {"SHOPS": 3.0},
    "nhb": {"JOBS": 0.5},
}


@pytest.fixture
def zones():
    index = pd.Index([10, 20, 35], name="zone_id")
    return pd.DataFrame(
        {
            "district": ["West", "West", "East"],
            "JOBS": [0, 100, 300],
            "PUPILS": [50, 0, 0],
            "SHOPS": [5, 5, 10],
        },
        index=index,
    )


@pytest.fixture
def households():
    index = pd.Index([1, 2, 3], name="household_id")
    return pd.DataFrame({"home_zone_id": [10, 20, 10], "hhsize": [1, 2, 12]}, index=index)


@pytest.fixture
def decisions():
    table = pd.DataFrame(
        {
            "household_id": [1, 2, 3, 1],
            "event": ["travel_day:1"] * 3 + ["relocation:1"],
            "kind": ["trips"] * 3 + ["relocation"],
            "hbw": [2, 2, 0, 0],
            "hbsch": [0, 0, 4, 0],
            "hbshop": [0, 1, 0, 0],
            "hbsocrec": [0, 0, 2, 0],
            "hbo": [1, 0, 8, 0],
            "nhb": [0, 3, 5, 0],
        }
    )
    return table.assign(value=table[list(PURPOSES)].sum(axis=1))


def test_home_based_trips_are_produced_at_home(decisions, households, zones):
    found = productions(decisions, households, zones)
    assert found["hbw"].tolist() == [2, 2, 0]
    assert found["hbo"].tolist() == [9, 0, 0]


def test_two_travel_days_are_averaged(decisions, households, zones):
    second = decisions[decisions["kind"] == "trips"].assign(event="travel_day:2", hbw=0)
    found = productions(pd.concat([decisions, second]), households, zones)
    assert found["hbw"].sum() == 2
    assert found["hbo"].sum() == 9


def test_non_home_based_trips_start_where_such_trips_are_attracted(decisions, households, zones):
    demand = zone_demand(decisions, households, zones, RATES)
    # A quarter of the jobs is in zone 20 and three quarters in 35; households make 8 such trips.
    assert demand.productions["nhb"].tolist() == [0, 2, 6]
    assert demand.at_home.tolist() == [2 + 1 + 4 + 2 + 8 + 5, 2 + 1 + 3, 0]


def test_productions_are_held_and_attractions_scaled(decisions, households, zones):
    demand = zone_demand(decisions, households, zones, RATES)
    trips = decisions[decisions["kind"] == "trips"]
    for purpose in PURPOSES:
        assert demand.productions[purpose].sum() == pytest.approx(trips[purpose].sum(), abs=1e-9)
        assert demand.attractions[purpose].sum() == pytest.approx(trips[purpose].sum(), abs=1e-9)
    assert demand.ratio["hbw"] == pytest.approx(4 / (1.2 * 400))


def test_missing_land_use_is_one_error_that_names_every_column(zones):
    with pytest.raises(TableError) as fault:
        attractiveness(zones.drop(columns=["JOBS", "SHOPS"]), RATES)
    assert "JOBS, SHOPS" in str(fault.value)


def test_land_use_that_is_nan_or_negative_is_an_error(zones):
    zones = zones.astype({"JOBS": float, "SHOPS": float})
    zones.loc[20, "JOBS"], zones.loc[35, "SHOPS"] = np.nan, -1
    with pytest.raises(TableError, match=r"(?s)JOBS.*20.*SHOPS.*35"):
        attractiveness(zones, RATES)


def test_trips_that_no_zone_attracts_are_an_error(decisions, households, zones):
    with pytest.raises(TableError, match="HBSCH"):
        zone_demand(decisions, households, zones.assign(PUPILS=0), RATES)


def test_decisions_without_household_and_households_without_decision_are_one_error(
    decisions, households, zones
):
    with pytest.raises(TableError, match=r"(?s)no household, first 3.*decided no trips, first 4"):
        productions(decisions, households.rename(index={3: 4}), zones)


def test_a_home_outside_the_region_is_an_error(decisions, households, zones):
    with pytest.raises(TableError, match="first 99"):
        productions(decisions, households.replace({"home_zone_id": {20: 99}}), zones)


def test_gravity_equals_a_table_solved_by_hand():
    # T = [[x, 10 - x], [10 - x, x]]; its cross ratio x^2 / (10 - x)^2 is that of the friction, e^2:
    # x = 10 e / (1 + e).
    found = gravity(np.array([10, 10]), np.array([10, 10]), np.array([[0, 1], [1, 0]]), 1.0)
    x = 10 * np.e / (1 + np.e)
    assert found == pytest.approx(np.array([[x, 10 - x], [10 - x, x]]), abs=1e-8)


def test_gravity_holds_both_margins_with_empty_rows_and_columns():
    rng = np.random.default_rng(3)
    p, a = rng.random(30) * 1e4, rng.random(30) * 1e4
    p[[0, 7]], a[[0, 3]] = 0, 0
    a *= p.sum() / a.sum()
    found = gravity(p, a, rng.random((30, 30)) * 60, 0.1)
    assert found.sum(axis=1) == pytest.approx(p, abs=1e-6)
    assert found.sum(axis=0) == pytest.approx(a, abs=1e-5)
    assert found.sum() == pytest.approx(p.sum(), abs=1e-6)
    assert (found >= 0).all()


def test_gravity_without_decay_is_the_product_of_the_margins():
    p, a = np.array([1.0, 3.0]), np.array([2.0, 2.0])
    assert gravity(p, a, np.ones((2, 2)), 0.0) == pytest.approx(np.outer(p, a) / 4)


def test_gravity_reaches_zones_whose_friction_would_underflow():
    p, a = np.array([5.0, 5.0]), np.array([5.0, 5.0])
    found = gravity(p, a, np.full((2, 2), 1e5), 0.1)
    assert found == pytest.approx(np.full((2, 2), 2.5))


@pytest.mark.parametrize(
    ("p", "a", "words"),
    [
        ([1, 1], [0, 0], "no zone attracts"),
        ([1, 1], [1, 2], "sum to"),
        ([-1, 1], [0, 0], "productions"),
        ([np.nan, 1], [1, 0], "productions"),
    ],
)
def test_gravity_refuses_what_no_table_can_hold(p, a, words):
    with pytest.raises(TableError, match=words):
        gravity(np.array(p), np.array(a), np.ones((2, 2)), 0.1)


def test_gravity_of_no_trips_is_empty():
    assert gravity(np.zeros(2), np.zeros(2), np.ones((2, 2)), 0.1).sum() == 0


def test_zero_intrazonal_times_are_half_the_nearest_neighbours():
    found, replaced = intrazonal(np.array([[0.0, 4, 6], [3, 0, 8], [5, 9, 2]]))
    assert np.diag(found).tolist() == [2, 1.5, 2]
    assert replaced == 2


def test_a_region_of_one_zone_keeps_its_intrazonal_zero():
    found, replaced = intrazonal(np.zeros((1, 1)))
    assert found.tolist() == [[0]]
    assert replaced == 0


def test_a_skim_that_the_region_lacks_is_named(decisions, households, zones):
    demand = zone_demand(decisions, households, zones, RATES)
    with pytest.raises(SettingsError, match=r"SOV_TIME__AM, SOV_TIME__MD.*has TIME"):
        trip_matrices(demand, {"TIME": np.ones((3, 3))})


def test_settings_name_every_purpose_that_they_lack():
    with pytest.raises(SettingsError, match=r"(?s)decay.*hbsch, hbshop, hbsocrec, hbo, nhb"):
        DemandSettings(decay={"hbw": 0.1})


@pytest.mark.parametrize(
    "ids", [[10, 20, 35], ["SF-Mission", "SF-Sunset", "Z"], [2**40, 2**41, 2**42]]
)
def test_completed_moves_are_counted_from_zone_to_zone(ids):
    zones = pd.Index(ids)
    a, b, _ = ids
    events = pd.DataFrame(
        {
            "kind": ["moved", "moved", "moved", "gave_up", "moved"],
            "from_zone": [a, a, b, b, None],
            "to_zone": [b, a, a, a, b],
        }
    )
    if isinstance(a, int):
        events = events.astype({"from_zone": "Int64"})
    assert moves_matrix(events, zones).tolist() == [[1, 1, 0], [1, 0, 0], [0, 0, 0]]


def test_a_move_to_an_unknown_zone_is_an_error():
    events = pd.DataFrame({"kind": ["moved"], "from_zone": [10], "to_zone": [11]})
    with pytest.raises(TableError, match="to_zone: 1 moves"):
        moves_matrix(events, pd.Index([10, 20]))


def test_every_zone_stands_in_the_demand_table(decisions, households, zones):
    demand = zone_demand(decisions, households, zones, RATES)
    quarters = pd.DataFrame({"persons": [7], "hbw": [1.5]}, index=pd.Index([35]))
    table = demand_table(demand, zones, households, quarters)
    assert table.index.tolist() == [10, 20, 35]
    assert table["households"].tolist() == [2, 1, 0]
    assert table["persons"].tolist() == [13, 2, 0]
    assert table["group_quarters_persons"].tolist() == [0, 0, 7]
    assert table["GQ_HBW"].tolist() == [0, 0, 1.5]
    assert table["TRIPS_P"].sum() == pytest.approx(decisions["value"].sum())
    assert not table.isna().any(axis=None)


def test_purposes_that_do_not_exist_are_named():
    with pytest.raises(SettingsError, match=r"decay: shopping is no purpose"):
        DemandSettings(decay=dict.fromkeys((*PURPOSES, "shopping"), 0.1))


def test_zones_out_of_reach_are_told_without_a_warning(recwarn):
    trips, minutes = np.array([10.0, 20]), np.array([[0.0, 1e7], [2e7, 4e7]])
    with pytest.raises(TableError, match="so far apart"):
        gravity(trips, trips[::-1].copy(), minutes, 1.0)
    assert not recwarn.list
