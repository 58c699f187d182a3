"""Two runs compared: differences by hand, intervals by their formulas, files as others open them."""

import json
import math
import shutil
import sqlite3
import xml.etree.ElementTree as ET
from contextlib import closing

import numpy as np
import openmatrix
import pandas as pd
import pyogrio
import pytest
import yaml
from test_run import pemand, run, write_study

from pemand_abm.comparison import (
    compare,
    elasticity,
    paired,
    write_comparison,
)
from pemand_abm.comparison_page import write_page
from pemand_abm.errors import PemandError
from pemand_abm.geopackage import DIVERGING, diverging_breaks
from pemand_abm.responses import read_responses
from pemand_abm.surrogate import PURPOSES


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of a base, of dearer fuel, of a lever set to its present value, of two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    scenario = write_study(folder)
    run(scenario, folder / "base")
    run(scenario, folder / "seed1", "--seed", 1)
    run(scenario, folder / "seed2", "--seed", 2)
    for name, percent in (("policy", 100), ("null", 0)):
        levers = {"levers": {"fuel_price": {"percent": percent}}}
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(scenario.read_text()) | levers))
        run(path, folder / name)
    return folder


@pytest.fixture(scope="module")
def found(runs):
    return compare(runs / "base", runs / "policy", read_responses(runs_rates(runs)))


def runs_rates(runs):
    return yaml.safe_load((runs / "small.yaml").read_text())["rates"]


def trips_of(folder):
    table = pd.read_parquet(folder / "decisions.parquet")
    return table[table["kind"] == "trips"].set_index("household_id")


# --- the numbers ----------------------------------------------------------------------------------


def test_totals_and_intervals_are_those_computed_by_hand():
    # Group a: d = 0, 0, 3, so D = 3, V = 3/2 (1 + 1 + 4) = 9 and t(2) = 4.302653; R = 15/12.
    base = pd.DataFrame({"trips": [2.0, 4.0, 6.0, 5.0]})
    policy = pd.DataFrame({"trips": [2.0, 4.0, 9.0, 4.0]})
    table = paired(base, policy, pd.Series(["a", "a", "a", "b"]))
    a = table.loc[("a", "trips")]
    assert (a["households"], a["base"], a["policy"], a["difference"]) == (3, 12, 15, 3)
    assert a["low"] == pytest.approx(3 - 4.302653 * 3, abs=1e-5)
    assert a["high"] == pytest.approx(3 + 4.302653 * 3, abs=1e-5)
    # Residuals p - 1.25 b = -0.5, -1, 1.5: V(R) = 3/2 (0.25 + 1 + 2.25) / 12**2.
    half = 100 * 4.302653 * math.sqrt(1.5 * 3.5) / 12
    assert a["percent"] == pytest.approx(25)
    assert a["percent_high"] == pytest.approx(25 + half, abs=1e-4)
    # One household has no variance to be seen.
    b = table.loc[("b", "trips")]
    assert (b["difference"], b["percent"]) == (-1, pytest.approx(-20))
    assert math.isnan(b["low"]) and math.isnan(b["percent_low"])


def test_a_base_of_nothing_has_a_difference_and_no_percentage():
    base = pd.DataFrame({"moves": [0.0, 0.0]})
    row = paired(base, base + 1, pd.Series(["a", "a"])).loc[("a", "moves")]
    assert row["difference"] == 2 and row["low"] == 2  # both changed by 1: no spread
    assert math.isnan(row["percent"])


def test_intervals_cover_the_mean_difference_as_often_as_they_say():
    rng = np.random.default_rng(7)
    groups = pd.Series(np.repeat(np.arange(1000), 40))
    base = rng.poisson(6.0, len(groups)).astype(float)
    policy = base - rng.binomial(2, 0.2, len(groups))  # 0.4 trips fewer on average
    rows = paired(pd.DataFrame({"trips": base}), pd.DataFrame({"trips": policy}), groups)
    cover = ((rows["low"] <= -0.4 * 40) & (rows["high"] >= -0.4 * 40)).mean()
    assert 0.92 <= cover <= 0.98  # 0.95, with more than four standard errors of 1,000 draws


def test_differences_are_those_of_the_two_runs_decisions(runs, found):
    base, policy = trips_of(runs / "base"), trips_of(runs / "policy")
    total = found.total("trips")
    assert total["difference"] == policy["value"].sum() - base["value"].sum() < 0
    for p in PURPOSES:
        assert found.total(p)["difference"] == policy[p].sum() - base[p].sum()
    # Fuel is paid by who has a vehicle; all others have the same trips to the last one.
    homes = pd.read_parquet(runs / "base" / "households.parquet")
    rows = found.groups.set_index(["grouping", "group", "measure"])
    assert rows.loc[("vehicles", "0", "trips"), "difference"] == 0
    without = homes.index[homes["auto_ownership"] == 0]
    assert (base.loc[without, "value"] == policy.loc[without, "value"]).all()


@pytest.mark.parametrize("of", ["districts", "groups", "zones"])
def test_the_parts_add_up_to_the_region(found, of):
    total = found.total("trips")["difference"]
    if of == "zones":
        assert found.zones["trips_difference"].sum() == total
        assert found.zones["TRIPS_P_difference"].sum() == pytest.approx(total, abs=1e-3)
    elif of == "districts":
        rows = found.districts[found.districts["measure"] == "trips"]
        assert rows["difference"].sum() == total
    else:
        rows = found.groups[found.groups["measure"] == "trips"]
        assert (rows.groupby("grouping")["difference"].sum() == total).all()
        assert (rows.groupby("grouping")["households"].sum() == 100).all()


def test_a_zone_without_households_stays_with_zeros_and_without_interval(found):
    row = found.zones.loc[35]
    assert row["households"] == 0 and row["trips_difference"] == 0
    assert math.isnan(row["trips_low"])


def test_who_makes_more_and_fewer_trips_is_counted_by_household(runs, found):
    change = trips_of(runs / "policy")["value"] - trips_of(runs / "base")["value"]
    row = found.changes.set_index("grouping").loc["all"]
    assert row["fewer_trips"] == (change < 0).sum() > 0
    assert row["more_trips"] == (change > 0).sum()
    assert row[["more_trips", "fewer_trips", "same_trips"]].sum() == row["households"] == 100


# --- elasticities ---------------------------------------------------------------------------------


def test_a_price_that_doubles_gives_the_logarithm_of_the_ratio_over_that_of_two():
    assert elasticity(0.5, 1.0, "elasticity") == pytest.approx(-1)
    assert elasticity(2**-0.3, 1.0, "elasticity") == pytest.approx(-0.3)
    # Half of the workers stay at home, and a tenth of the trips goes: a fifth if all did.
    assert elasticity(0.9, 0.5, "arc") == pytest.approx(-0.2)


def test_the_published_range_of_a_group_is_weighted_by_its_trips(runs, found):
    table = found.elasticities.set_index(["grouping", "group", "measure"])
    base = trips_of(runs / "base")
    homes = pd.read_parquet(runs / "base" / "households.parquet")
    own = read_responses(runs_rates(runs)).query("lever == 'fuel_price'")
    (low,) = own["low"].unique()
    answering = [p for p in PURPOSES if p != "hbsch"]  # no published answer of school trips
    concerned = base.loc[homes.index[homes["auto_ownership"] > 0], answering].to_numpy().sum()
    row = table.loc[("all", "all", "trips")]
    assert row["published_low"] == pytest.approx(low * concerned / base["value"].sum())
    assert row["published_high"] == 0
    assert row["value"] == pytest.approx(elasticity(found.total("trips")["policy"] / found.total("trips")["base"], 1.0, "elasticity"))  # fmt: skip
    assert row["low"] < row["value"] < row["high"]
    assert math.isnan(table.loc[("all", "all", "moves"), "published_low"])


def test_an_elasticity_outside_the_published_range_is_flagged(runs):
    table = read_responses(runs_rates(runs))
    narrow = table.assign(low=table["elasticity"] * 3, high=table["elasticity"] * 2)
    flags = compare(runs / "base", runs / "policy", narrow).elasticities
    assert flags.set_index(["grouping", "measure"]).loc[("all", "trips"), "flag"] == "outside"
    positive = table.assign(low=0.1, high=0.2)
    flags = compare(runs / "base", runs / "policy", positive).elasticities
    assert flags.set_index(["grouping", "measure"]).loc[("all", "trips"), "flag"] == "wrong sign"


@pytest.mark.parametrize("levers", [[], [{"lever": "fuel_price", "percent": 100.0, "area": ["West"]}], [{"lever": "fuel_price", "percent": 100.0}, {"lever": "income_growth", "percent": 1.0}], [{"lever": "new_housing", "dwellings": 5}]])  # fmt: skip
def test_no_elasticity_is_told_of_several_levers_or_a_part_of_the_region(runs, tmp_path, levers):
    shutil.copytree(runs / "policy", tmp_path / "policy")
    manifest = yaml.safe_load((tmp_path / "policy" / "run.yaml").read_text())
    (tmp_path / "policy" / "run.yaml").write_text(yaml.safe_dump(manifest | {"levers": levers}))
    found = compare(runs / "base", tmp_path / "policy", read_responses(runs_rates(runs)))
    assert found.elasticities.empty
    assert len(found.levers) == len(levers)


# --- what can be compared -------------------------------------------------------------------------


def test_runs_of_other_seeds_zones_and_households_are_one_clear_error(runs, tmp_path):
    with pytest.raises(PemandError, match=r"seed: 0 and 1; run the policy with the base's seed"):
        compare(runs / "base", runs / "seed1")
    run(write_study(tmp_path, (10, 20, 36), households=(60, 30, 0)), tmp_path / "out")
    with pytest.raises(PemandError, match=r"(?s)zones: 2 are in one run.*households: 10 are in"):
        compare(runs / "base", tmp_path / "out")


def test_runs_of_different_length_are_refused(runs, tmp_path):
    shutil.copytree(runs / "policy", tmp_path / "short")
    path = tmp_path / "short" / "run.yaml"
    manifest = yaml.safe_load(path.read_text())
    manifest["settings"]["days"] = 30
    path.write_text(yaml.safe_dump(manifest))
    with pytest.raises(PemandError, match="days: 365 and 30"):
        compare(runs / "base", tmp_path / "short")


def test_a_comparison_is_not_written_into_a_run(runs):
    before = sorted(p.name for p in (runs / "policy").iterdir())
    one = pemand("compare", runs / "base", runs / "policy", "--out", runs / "policy", code=2)
    assert "holds a run" in one
    pemand("compare", runs / "base", runs / "policy", runs / "null", "--out", runs, code=2)
    assert sorted(p.name for p in (runs / "policy").iterdir()) == before


def test_a_folder_that_is_no_run_is_told(runs, tmp_path):
    said = pemand("compare", runs / "base", tmp_path, "--out", tmp_path / "out", code=1)
    assert "not a whole run" in said and not (tmp_path / "out").exists()


def test_identical_runs_differ_by_exactly_nothing_and_the_page_says_so(runs, tmp_path):
    said = pemand("compare", runs / "base", runs / "null", "--out", tmp_path)
    assert "identical: every difference is exactly 0" in said
    for name in ("by_group.csv", "by_district.csv"):
        table = pd.read_csv(tmp_path / name)
        assert (table[["difference", "low", "high"]].fillna(0) == 0).all().all()
    zones = pd.read_csv(tmp_path / "by_zone.csv").filter(like="_difference")
    assert (zones.fillna(0) == 0).all().all()
    with openmatrix.open_file(str(tmp_path / "trips_difference.omx")) as file:
        assert all((np.array(file[core]) == 0).all() for core in file.list_matrices())
    assert "every difference is exactly 0" in (tmp_path / "compare.html").read_text()
    assert yaml.safe_load((tmp_path / "compare.yaml").read_text())["identical"] is True


def test_a_single_moved_trip_is_seen(runs, tmp_path):
    shutil.copytree(runs / "base", tmp_path / "other")
    table = pd.read_parquet(tmp_path / "other" / "decisions.parquet")
    table.loc[0, ["hbw", "nhb"]] = [table.loc[0, "hbw"] + 1, table.loc[0, "nhb"] - 1]
    table.to_parquet(tmp_path / "other" / "decisions.parquet")
    found = compare(runs / "base", tmp_path / "other")
    assert not found.identical
    assert found.total("trips")["difference"] == 0 and found.total("hbw")["difference"] == 1


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(found, tmp_path_factory):
    out = tmp_path_factory.mktemp("comparison")
    write_comparison(found, out)
    write_page(found, out)
    return out


def test_the_map_opens_coloured_about_zero(written, found):
    layer = pyogrio.read_dataframe(written / "differences.gpkg", layer="zones")
    assert layer.crs.to_epsg() == 4326
    assert layer["zone_id"].tolist() == [10, 20, 35]
    assert layer["trips_difference"].tolist() == found.zones["trips_difference"].tolist()
    with closing(sqlite3.connect(written / "differences.gpkg")) as file:
        (qml,) = file.execute("SELECT styleQML FROM layer_styles WHERE useAsDefault").fetchone()
    ranges = ET.fromstring(qml.split("\n", 1)[1]).findall(".//range")
    bounds = [float(r.get("lower")) for r in ranges] + [float(ranges[-1].get("upper"))]
    assert bounds == [-b for b in reversed(bounds)]
    assert [r.get("label") for r in ranges].count("no change") == 1
    assert layer["trips_difference"].between(bounds[0], bounds[-1]).all()


@pytest.mark.parametrize("values", [[0.0], [-5.0], [1e-9, 3.0], [-1e6, 1.0, 2.0, np.nan]])
def test_every_difference_has_a_class_and_only_zero_the_middle_one(values):
    breaks = diverging_breaks(pd.Series(values))
    middle = len(breaks) // 2
    for value in (v for v in values if not math.isnan(v)):
        assert breaks[0] <= value <= breaks[-1]
        assert (breaks[middle - 1] < value < breaks[middle]) == (value == 0)
    assert len(breaks) - 1 <= len(DIVERGING)


def test_the_matrices_are_policy_less_base(runs, written):
    def cores(path):
        with openmatrix.open_file(str(path)) as file:
            assert list(file.mapping("zone_number")) == [10, 20, 35]
            assert file.version() == b"0.2"
            return {name: np.array(file[name]) for name in file.list_matrices()}

    for name in ("trips", "moves"):
        base, policy = (cores(runs / which / f"{name}.omx") for which in ("base", "policy"))
        difference = cores(written / f"{name}_difference.omx")
        assert set(difference) == set(base)
        for core, values in difference.items():
            assert values.dtype == np.float64
            np.testing.assert_array_equal(values, policy[core] - base[core])
    assert cores(written / "trips_difference.omx")["HBW"].min() < 0


def test_the_talks_that_changed_stand_side_by_side(runs, found, written):
    base, policy = (
        {t["household_id"]: t for t in map(json.loads, (runs / f / "transcripts.jsonl").read_text().splitlines()) if t["kind"] == "trips"}
        for f in ("base", "policy")
    )  # fmt: skip
    told = [(a["household_id"], b["household_id"]) for a, b in found.talks]
    assert told and all(a == b for a, b in told)
    differ = {h for h in base.keys() & policy.keys() if base[h]["constraints"] != policy[h]["constraints"]}  # fmt: skip
    assert differ <= {a for a, _ in told}
    text = (written / "compare.html").read_text(encoding="utf-8")
    assert f"Household {told[0][0]} in zone" in text


def test_several_policies_get_a_folder_each_and_a_table_of_all(runs, tmp_path):
    said = pemand("compare", runs / "base", runs / "policy", runs / "null", "--out", tmp_path)
    assert (tmp_path / "policy" / "compare.html").exists()
    assert (tmp_path / "null" / "compare.html").exists()
    table = pd.read_csv(tmp_path / "summary.csv", keep_default_na=False).set_index(
        ["policy_folder", "measure"]
    )
    assert table.loc[("null", "trips"), "difference"] == 0
    assert table.loc[("policy", "trips"), "difference"] < 0
    assert "policy less base" in said and "All trips" in said


def test_a_comparison_written_again_has_the_same_bytes(runs, tmp_path):
    for name in ("one", "two"):
        pemand("compare", runs / "base", runs / "policy", "--out", tmp_path / name)
    for file in (tmp_path / "one").glob("*.csv"):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


# --- seeds ----------------------------------------------------------------------------------------


def test_the_spread_over_seeds_is_that_of_the_runs_totals(runs, tmp_path):
    folders = [runs / name for name in ("base", "seed1", "seed2")]
    said = pemand("compare", "--seeds", *folders, "--out", tmp_path)
    totals = [trips_of(folder)["value"].sum() for folder in folders]
    row = pd.read_csv(tmp_path / "seeds.csv").set_index("figure").loc["trips"]
    assert row["mean"] == pytest.approx(np.mean(totals))
    assert row["sd"] == pytest.approx(np.std(totals, ddof=1))
    assert (row["least"], row["most"]) == pytest.approx((min(totals), max(totals)))
    assert [row[f"seed_{n}"] for n in range(3)] == pytest.approx(totals)
    assert "completed moves" in said


def test_seeds_of_different_scenarios_and_the_same_seed_twice_are_refused(runs):
    said = pemand("compare", "--seeds", runs / "base", runs / "null", code=1)
    assert "seed: 0 comes twice" in said
    said = pemand("compare", "--seeds", runs / "policy", runs / "seed1", code=1)
    assert "settings: policy and seed1 differ" in said
