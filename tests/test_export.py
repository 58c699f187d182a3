import sqlite3
import xml.etree.ElementTree as ET
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import geopandas
import numpy as np
import openmatrix
import pandas as pd
import pyogrio
import pytest
from shapely.geometry import box

from pemand_abm.demand import PURPOSES, RATES
from pemand_abm.errors import TableError
from pemand_abm.export import write_demand
from pemand_abm.geopackage import class_breaks, read_zones, write_zones
from pemand_abm.surrogate import PERIODS, read_rates

SURVEY = read_rates(Path(__file__).parents[1] / "synthpop" / "rates")
LAND_USE = sorted({column for rates in RATES.values() for column in rates})


def region_of(ids):
    """Four square zones in a row, the last without households."""
    index = pd.Index(ids, name="zone_id")
    zones = pd.DataFrame({c: [10, 20, 30, 40] for c in LAND_USE}, index=index)
    zones = zones.assign(district=["West", "West", "East", "East"], dwellings=[3, 3, 3, 3])
    squares = geopandas.GeoDataFrame(
        geometry=[box(i, 0, i + 1, 1) for i in range(4)], index=index, crs="EPSG:4326"
    )
    minutes = np.abs(np.subtract.outer(range(4), range(4))) * 5.0
    return SimpleNamespace(
        zones=zones,
        polygons=squares,
        skims={"SOV_TIME__AM": minutes, "SOV_TIME__MD": minutes},
        group_quarters=pd.Series([0, 0, 0, 9], index=index),
    )


def run_of(ids):
    rng = np.random.default_rng(5)
    homes = [ids[0], ids[0], ids[1], ids[2], ids[2]]
    index = pd.RangeIndex(1, 6, name="household_id")
    households = pd.DataFrame(
        {"home_zone_id": homes, "hhsize": [1, 2, 3, 4, 12], "auto_ownership": [0, 1, 1, 2, 3]},
        index=index,
    )
    trips = pd.DataFrame(rng.integers(0, 9, (5, len(PURPOSES))), columns=list(PURPOSES))
    decisions = trips.assign(household_id=index, event="travel_day:1", kind="trips")
    decisions["value"] = trips.sum(axis=1)
    events = pd.DataFrame({"kind": ["moved", "gave_up"], "household_id": [1, 2]})
    events["from_zone"], events["to_zone"] = [ids[0], ids[0]], [ids[3], None]
    return households, decisions, events


@pytest.fixture(params=["numbers", "texts"])
def written(request, tmp_path):
    ids = [10, 20, 35, 40] if request.param == "numbers" else ["A-1", "B", "SF-Mission", "Z 9"]
    households, decisions, events = run_of(ids)
    notes = write_demand(tmp_path, region_of(ids), households, decisions, events, SURVEY)
    return SimpleNamespace(out=tmp_path, ids=ids, decisions=decisions, notes=notes)


def test_demand_matrices_and_decisions_have_the_same_totals(written):
    demand = pd.read_csv(written.out / "demand.csv")
    with openmatrix.open_file(str(written.out / "trips.omx")) as file:
        by_period = {f"{p}__{t}" for p in ("TRIPS", *map(str.upper, PURPOSES)) for t in PERIODS}
        assert {*file.list_matrices()} == by_period | {"TRIPS__DAY", *map(str.upper, PURPOSES)}
        for purpose in PURPOSES:
            core = np.array(file[purpose.upper()])
            total = written.decisions[purpose].sum()
            assert core.sum() == pytest.approx(total, abs=1e-6)
            for end, axis in (("P", 1), ("A", 0)):
                column = demand[f"{purpose.upper()}_{end}"]
                assert column.sum() == pytest.approx(total, abs=1e-6)
                assert core.sum(axis=axis) == pytest.approx(column.to_numpy(), abs=1e-6)
    assert demand["TRIPS_P"].sum() == pytest.approx(written.decisions["value"].sum(), abs=1e-6)


def test_every_purposes_periods_sum_to_its_day_and_all_to_the_households_trips(written):
    trips = written.decisions["value"].sum()
    with openmatrix.open_file(str(written.out / "trips.omx")) as file:
        core = {name: np.array(file[name]) for name in file.list_matrices()}
    for purpose in map(str.upper, PURPOSES):
        by_period = sum(core[f"{purpose}__{t}"] for t in PERIODS)
        assert by_period.sum() == pytest.approx(core[purpose].sum(), abs=1e-9)
        # Both ends together are those of the day, whichever way the trips go.
        ends = core[purpose].sum(axis=0) + core[purpose].sum(axis=1)
        assert by_period.sum(axis=0) + by_period.sum(axis=1) == pytest.approx(ends, abs=1e-9)
    assert core["TRIPS__DAY"].sum() == pytest.approx(trips, abs=1e-9)
    assert sum(core[f"TRIPS__{t}"].sum() for t in PERIODS) == pytest.approx(trips, abs=1e-9)
    vehicles = pd.read_csv(written.out / "vehicle_trips.csv").set_index("purpose")
    assert vehicles.loc["all", "person_trips"] == pytest.approx(trips, abs=1e-5)


def test_every_zone_is_in_every_file(written):
    ids = [str(i) for i in written.ids]
    assert pd.read_csv(written.out / "demand.csv", dtype=str)["zone_id"].tolist() == ids
    assert [str(i) for i in read_zones(written.out / "zones.gpkg").index] == ids
    for name in ("trips.omx", "moves.omx"):
        with openmatrix.open_file(str(written.out / name)) as file:
            assert tuple(file.shape()) == (4, 4)


def test_text_zones_have_row_numbers_and_a_sidecar(written):
    beside = written.out / "trips_zones.csv"
    assert beside.exists() == isinstance(written.ids[0], str)
    if beside.exists():
        assert pd.read_csv(beside)["original_id"].tolist() == written.ids


def test_moves_matrix_holds_the_completed_moves(written):
    with openmatrix.open_file(str(written.out / "moves.omx")) as file:
        moves = np.array(file["MOVES"])
    assert moves[0, 3] == 1
    assert moves.sum() == 1


def test_zero_intrazonal_times_and_odd_ratios_are_noted(written):
    assert any("SOV_TIME__AM: 4 intrazonal times" in n for n in written.notes)
    assert any(n.startswith("HBW: productions are") for n in written.notes)


def test_every_column_has_a_meaning(written):
    meanings = pd.read_csv(written.out / "columns.csv").set_index("column")["meaning"]
    held = set(pd.read_csv(written.out / "demand.csv").columns)
    held |= set(read_zones(written.out / "zones.gpkg").columns) - {"geometry"}
    assert held <= set(meanings.index)
    assert meanings.notna().all()


def test_map_counts_moves_and_vacant_dwellings_at_the_end(written):
    zones = read_zones(written.out / "zones.gpkg")
    # 2, 1, 2 and 0 households in 3 dwellings each, and one moves from the first zone to the last.
    assert zones["vacant_dwellings"].tolist() == [2, 2, 1, 2]
    assert zones["moves_out"].tolist() == [1, 0, 0, 0]
    assert np.isnan(zones["trips_per_household"].iloc[3])


def test_geopackage_carries_the_style_that_qgis_takes_by_default(written):
    with closing(sqlite3.connect(written.out / "zones.gpkg")) as file:
        styles = file.execute(
            "SELECT f_table_name, f_geometry_column, useAsDefault, styleQML FROM layer_styles"
        ).fetchall()
        kinds = dict(file.execute("SELECT table_name, data_type FROM gpkg_contents").fetchall())
        dates = {d for (d,) in file.execute("SELECT last_change FROM gpkg_contents")}
        kind = file.execute("SELECT geometry_type_name, srs_id FROM gpkg_geometry_columns")
        assert kind.fetchone() == ("MULTIPOLYGON", 4326)
    assert kinds == {"zones": "features", "layer_styles": "attributes"}
    assert len(dates) == 1
    ((table, geometry, default, qml),) = styles
    assert (table, geometry, default) == ("zones", "geom", 1)
    renderer = ET.fromstring(qml).find("renderer-v2")
    assert renderer.get("type") == "graduatedSymbol"
    ranges = [(float(r.get("lower")), float(r.get("upper"))) for r in renderer.iter("range")]
    values = read_zones(written.out / "zones.gpkg")[renderer.get("attr")]
    assert all(any(low <= v <= high for low, high in ranges) for v in values)
    assert len(renderer.findall("symbols/symbol")) == len(ranges)


def test_geopackage_is_the_same_when_written_again(written):
    first = read_zones(written.out / "zones.gpkg")
    households, decisions, events = run_of(written.ids)
    write_demand(written.out, region_of(written.ids), households, decisions, events, SURVEY)
    again = read_zones(written.out / "zones.gpkg")
    pd.testing.assert_frame_equal(pd.DataFrame(first), pd.DataFrame(again))
    assert pyogrio.list_layers(written.out / "zones.gpkg")[0].tolist()[0] == "zones"


def test_a_fault_in_the_decisions_leaves_no_file(tmp_path):
    ids = [1, 2, 3, 4]
    households, decisions, events = run_of(ids)
    with pytest.raises(TableError):
        write_demand(tmp_path, region_of(ids), households, decisions.iloc[1:], events, SURVEY)
    assert not list(tmp_path.iterdir())


def test_polygons_without_a_reference_system_and_columns_named_fid_are_one_error(tmp_path):
    region = region_of([1, 2, 3, 4])
    table = region.zones.assign(fid=1)
    with pytest.raises(TableError, match=r"(?s)reference system.*fid.*NONE"):
        write_zones(
            tmp_path / "z.gpkg", region.polygons.set_crs(None, allow_override=True), table, "NONE"
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "values",
    [
        [0, 0, 0, 0],
        [3.7],
        [0.001, 0.0011, 0.5],
        [1e6, 1e6 + 1, 2e7],
        [-5, 0.3, 12],
        [5, np.nan, 7],
    ],
)
def test_class_breaks_ascend_and_hold_every_value(values):
    values = pd.Series(values, dtype=float)
    breaks = class_breaks(values)
    assert all(low < high for low, high in pairwise(breaks))
    assert breaks[0] <= values.min()
    assert values.max() <= breaks[-1]
    assert len(breaks) <= 6
