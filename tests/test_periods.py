"""Periods move trips through the day and lose none; modes and vehicle trips are shares of them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pemand_abm.periods import od_matrices
from pemand_abm.surrogate import (
    MODE_CELLS,
    MODES,
    PERIOD_CELLS,
    PERIODS,
    PURPOSES,
    read_rates,
)
from pemand_abm.vehicles import vehicle_trips

RATES = Path(__file__).parents[1] / "synthpop" / "rates"
DATA = Path(__file__).parents[2] / "shared" / "data"
with_surveys = pytest.mark.skipif(not DATA.exists(), reason=f"the survey files are not at {DATA}")


def shares_of(**by_row):
    """Return shares of a purpose's trips by direction and period: the same for all home-based."""
    shares = pd.Series(0.0, index=PERIOD_CELLS)
    for purpose in PURPOSES[:-1]:
        for row, share in by_row.items():
            direction, _, period = row.rpartition("_")
            shares[purpose, direction, period] = share
    shares["nhb", "any", "MD"] = 1.0
    return shares


def cores_of(trips):
    return {p.upper(): np.asarray(trips, float) for p in PURPOSES}


def test_who_leaves_in_the_morning_comes_back_in_the_evening_the_other_way():
    # Ten trips produced in the first zone and attracted by the second: five leave, five return.
    od = od_matrices(
        cores_of([[0, 10], [0, 0]]), shares_of(from_home_AM=0.5, to_home_PM=0.4, to_home_EV=0.1)
    )
    assert od["HBW__AM"].tolist() == [[0, 5], [0, 0]]
    assert od["HBW__PM"].tolist() == [[0, 0], [4, 0]]
    assert od["HBW__EV"].tolist() == [[0, 0], [1, 0]]
    assert od["HBW__MD"].sum() == od["HBW__EA"].sum() == 0
    assert od["TRIPS__AM"].tolist() == [[0, 25], [0, 0]]


def test_a_trip_that_is_not_home_based_begins_where_it_is_produced():
    od = od_matrices(cores_of([[1, 10], [2, 0]]), shares_of(from_home_AM=1.0))
    assert od["NHB__MD"].tolist() == [[1, 10], [2, 0]]


def test_no_trip_is_lost_or_made_by_the_periods():
    rng = np.random.default_rng(7)
    cores = {p.upper(): rng.random((9, 9)) * 1e4 for p in PURPOSES}
    rates = read_rates(RATES).periods
    od = od_matrices(cores, rates)
    for purpose, trips in cores.items():
        leaving = rates[purpose.lower()].get("from_home", rates[purpose.lower()]).sum()
        found = sum(od[f"{purpose}__{t}"] for t in PERIODS)
        assert found == pytest.approx(leaving * trips + (1 - leaving) * trips.T, rel=1e-12)
    total = sum(trips.sum() for trips in cores.values())
    assert od["TRIPS__DAY"].sum() == pytest.approx(total, rel=1e-12)
    assert sum(od[f"TRIPS__{t}"].sum() for t in PERIODS) == pytest.approx(total, rel=1e-12)


def homes(vehicles, **trips):
    households = pd.DataFrame(
        {"auto_ownership": vehicles}, index=pd.RangeIndex(1, 1 + len(vehicles), name="household_id")
    )
    table = pd.DataFrame({p: trips.get(p, 0) for p in PURPOSES}, index=households.index)
    days = table.reset_index().assign(event="travel_day:1", kind="trips")
    return days, households


def test_a_vehicle_is_counted_by_who_drives_it():
    modes = pd.DataFrame(0.0, index=MODE_CELLS, columns=list(MODES))
    modes["walk"] = 1.0
    modes.loc[("hbw", 1), ["driver", "passenger", "walk"]] = [0.5, 0.25, 0.25]
    modes.loc[("hbw", 2), ["driver", "walk"]] = [1.0, 0.0]
    # Three cars are of the class of two and more.
    found = vehicle_trips(*homes([0, 1, 3], hbw=[4, 8, 6], nhb=[0, 0, 2]), modes)
    assert found.loc["hbw", ["person_trips", "vehicle_trips", "passenger"]].tolist() == [18, 10, 2]
    assert found.loc["hbw", "walk"] == 4 + 2
    assert found.loc["hbw", "occupancy"] == 1.2
    assert found.loc["nhb", "vehicle_trips"] == 0 and np.isnan(found.loc["nhb", "occupancy"])
    assert found.loc["all", "person_trips"] == 20


def test_modes_sum_to_the_persons_trips():
    trips = {p: [1, 2, 3, 4] for p in PURPOSES}
    found = vehicle_trips(*homes([0, 1, 2, 5], **trips), read_rates(RATES).modes)
    by_mode = found.drop(columns=["person_trips", "occupancy"]).sum(axis=1)
    assert by_mode.to_numpy() == pytest.approx(found["person_trips"].to_numpy(), abs=1e-5)
    assert found["person_trips"].tolist() == [10.0] * 6 + [60.0]


# --- the shipped numbers, by another road -------------------------------------------------------


def urban_weekday_trips():
    home = pd.read_parquet(DATA / "nhts/nhts2022_household.parquet").query("urbrur == '01'")
    trips = pd.read_parquet(DATA / "nhts/nhts2022_trip.parquet").query("wttrdfin5d > 0")
    return trips.merge(home[["houseid", "hhvehcnt"]], on="houseid")


@with_surveys
def test_shipped_morning_share_of_work_trips_is_nhts_2022s():
    trips = urban_weekday_trips().query("trippurp == '01'").dropna(subset="strttime")
    clock = trips["strttime"].dt.strftime("%H:%M")
    leaves = trips["whyfrom"].isin(["01", "02"]) & (clock >= "06:00") & (clock < "10:00")
    share = trips.loc[leaves, "wttrdfin5d"].sum() / trips["wttrdfin5d"].sum()
    assert read_rates(RATES).periods["hbw", "from_home", "AM"] == pytest.approx(share, abs=1e-6)


@with_surveys
def test_trips_after_midnight_are_of_the_evening():
    trips = urban_weekday_trips().query("trippurp == '05'").dropna(subset="strttime")
    clock = trips["strttime"].dt.strftime("%H:%M")
    late = (clock >= "19:00") | (clock < "03:00")
    share = trips.loc[late, "wttrdfin5d"].sum() / trips["wttrdfin5d"].sum()
    assert read_rates(RATES).periods["nhb", "any", "EV"] == pytest.approx(share, abs=1e-6)


@with_surveys
def test_shipped_share_of_drivers_is_nhts_2022s():
    trips = urban_weekday_trips().query("trippurp == '02' and hhvehcnt == 1")
    drives = trips["drvr_flg"].eq("01")
    share = trips.loc[drives, "wttrdfin5d"].sum() / trips["wttrdfin5d"].sum()
    assert read_rates(RATES).modes.loc[("hbshop", 1), "driver"] == pytest.approx(share, abs=1e-6)
