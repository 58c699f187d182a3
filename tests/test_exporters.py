"""`pemand export`: what it writes is read here by the rules, and where installed by the readers, of other programs."""

import gzip
import json
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import geopandas
import numpy as np
import openmatrix
import pandas as pd
import pytest
import shapely
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from test_matrices import overall
from test_run import pemand, run, write_study

from pemand_abm.errors import PemandError
from pemand_abm.exporters import BUILT_IN, MARKER, export_run
from pemand_abm.exporters.activitysim import JOBS
from pemand_abm.exporters.matsim import ACTIVITIES, HOURS, make_tours
from pemand_abm.exporters.shapefile import short_names
from pemand_abm.exporters.source import home_based, open_source
from pemand_abm.tables import replacing

DOCS = Path(__file__).resolve().parents[1] / "docs"
TITLE = 'Three <squares> & "more", é'


@pytest.fixture(
    scope="module", params=[(35, 10, 20), ("SF-Mission", "A", "Ü & <é>")], ids=["numbers", "texts"]
)
def done(request, tmp_path_factory):
    """A run of a tiny region and its exports."""
    folder = tmp_path_factory.mktemp("exports")
    out = folder / "out"
    run(write_study(folder, request.param, title=TITLE), out)
    said = pemand("export", out, "--to", "all")
    return SimpleNamespace(
        run=out, folder=out / "export", source=open_source(out), said=said, ids=request.param
    )


def test_every_format_has_a_folder_that_says_of_which_run_it_is(done):
    assert sorted(p.name for p in done.folder.iterdir()) == sorted(BUILT_IN)
    for name in BUILT_IN:
        held = yaml.safe_load((done.folder / name / MARKER).read_text(encoding="utf-8"))
        assert (held["format"], held["title"]) == (name, TITLE)
        assert "survey surrogate's" in held["notes"][0]
        assert str(done.folder / name) in done.said


def test_every_file_of_an_export_is_documented(done):
    told = (DOCS / "files.md").read_text(encoding="utf-8").partition("## An export's folder")[2]
    told = told.partition("\n## ")[0]
    for path in done.folder.rglob("*"):
        if path.is_file():
            assert f"`{path.name}`" in told or f"`{path.suffix}`" in told, path


def test_exports_of_the_same_run_are_the_same_bytes(done, tmp_path):
    export_run(done.run, ["all"], tmp_path)
    for path in done.folder.rglob("*"):
        # A shapefile's table carries the day on which it was written.
        if path.is_file() and path.suffix != ".dbf":
            again = tmp_path / path.relative_to(done.folder)
            assert again.read_bytes() == path.read_bytes(), path


def test_the_runs_own_matrices_and_the_exported_skims_pass_omx_validate(done):
    for path in ("trips.omx", "moves.omx", "export/activitysim/data/skims.omx"):
        assert overall(done.run / path) == "Pass", path


# --- ActivitySim: the rules of 1.6.0's tables and of its example's input checks ---------------------


@pytest.fixture
def asim(done):
    data = done.folder / "activitysim" / "data"
    tables = {n: pd.read_csv(data / f"{n}.csv") for n in ("households", "persons", "land_use")}
    return SimpleNamespace(data=data, **tables)


def test_households_and_persons_meet_activitysims_rules(asim):
    households, persons = asim.households, asim.persons
    whole = ["household_id", "home_zone_id", "hhsize", "income", "auto_ownership", "HHT"]
    assert (households[whole].dtypes == "int64").all()
    assert households["household_id"].is_unique
    assert (households["household_id"] > 0).all()
    assert households["hhsize"].gt(0).all()
    assert households["auto_ownership"].between(0, 6).all()
    assert households["HHT"].between(1, 7).all()
    assert households["home_zone_id"].isin(asim.land_use["zone_id"]).all()
    assert persons["person_id"].is_unique
    assert persons["age"].between(0, 100).all()
    assert persons["sex"].isin([1, 2, 3]).all()
    assert persons["ptype"].between(1, 8).all()
    assert set(persons["household_id"]) == set(households["household_id"])
    own = households.set_index("household_id")
    by_home = persons.groupby("household_id")
    assert (by_home.size() == own["hhsize"]).all()
    workers = persons["pemploy"].isin([1, 2]).groupby(persons["household_id"]).sum()
    assert (workers == own["num_workers"]).all()


def test_land_use_meets_activitysims_rules(asim):
    land_use = asim.land_use
    assert land_use["zone_id"].is_monotonic_increasing
    assert land_use["zone_id"].is_unique
    whole = ["zone_id", "DISTRICT", "area_type", "TOTHH", "TOTPOP", "TOTEMP", *JOBS]
    assert (land_use[whole].dtypes == "int64").all()
    assert (land_use[list(JOBS)].sum(axis=1) == land_use["TOTEMP"]).all()
    lived = asim.households["home_zone_id"].value_counts()
    assert land_use.set_index("zone_id")["TOTHH"].to_dict() == {
        zone: lived.get(zone, 0) for zone in land_use["zone_id"]
    }


def test_activitysims_skims_are_the_regions_in_the_order_of_one_lookup(done, asim):
    with openmatrix.open_file(str(asim.data / "skims.omx")) as file:
        assert file.list_mappings() == ["zone_number"]
        assert list(file.mapping("zone_number")) == asim.land_use["zone_id"].tolist()
        for name, values in done.source.region.skims.items():
            assert np.array(file[name]).tolist() == values.tolist()


def test_activitysims_homes_are_those_of_the_travel_day_and_zone_numbers_lead_to_ids(done, asim):
    names = asim.data / "skims_zones.csv"
    assert names.exists() == isinstance(done.ids[0], str)
    back = {z: z for z in done.ids}
    if names.exists():
        back = pd.read_csv(names).set_index("zone_number")["original_id"].to_dict()
    zone = asim.households.set_index("household_id")["home_zone_id"].map(back)
    assert (zone == done.source.households["home_zone_id_before"]).all()


def test_activitysims_settings_name_tables_and_columns_that_are_there(done, asim):
    configs = done.folder / "activitysim" / "configs"
    settings = yaml.safe_load((configs / "settings.yaml").read_text())
    for table in settings["input_table_list"]:
        held = pd.read_csv(asim.data / table["filename"], nrows=0).columns
        assert {table["index_col"], *table["keep_columns"]} <= {*held}
    los = yaml.safe_load((configs / "network_los.yaml").read_text())
    assert (asim.data / los["taz_skims"]["omx"]).is_file()


def test_what_the_region_does_not_have_is_told_and_not_made_up(done, asim):
    notes = yaml.safe_load((done.folder / "activitysim" / MARKER).read_text())["notes"]
    assert "county_id" not in asim.land_use
    assert any("lacks SD, county_id" in note for note in notes)
    assert any("periods EA, PM, EV" in note for note in notes)


# --- MATSim -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def population(done):
    """The population file, parsed and checked against the declarations of MATSim's DTD."""
    etree = pytest.importorskip("lxml.etree")
    text = gzip.decompress((done.folder / "matsim" / "population.xml.gz").read_bytes())
    tree = etree.fromstring(text)
    dtd = etree.DTD(str(Path(__file__).parent / "matsim_population_v6.dtd"))
    assert dtd.validate(tree), dtd.error_log
    assert tree.getroottree().docinfo.system_url.endswith("/population_v6.dtd")
    return tree


def test_a_dtd_refuses_what_is_no_population(population):
    etree = pytest.importorskip("lxml.etree")
    dtd = etree.DTD(str(Path(__file__).parent / "matsim_population_v6.dtd"))
    assert not dtd.validate(etree.fromstring("<population><person/></population>"))


def test_every_person_has_one_plan_from_home_to_home(done, population):
    persons = population.findall("person")
    assert [int(p.get("id")) for p in persons] == done.source.persons.index.tolist()
    assert population.get("desc") == TITLE
    for person in persons:
        (plan,) = person.findall("plan")
        kinds = [part.tag for part in plan]
        assert kinds == ["activity" if i % 2 == 0 else "leg" for i in range(len(kinds))]
        activities = plan.findall("activity")
        assert activities[0].get("type") == activities[-1].get("type") == "home"
        assert all(a.get("type") in {"home", *HOURS} for a in activities)
        assert [a.get("end_time") is None for a in activities] == [
            a is activities[-1] for a in activities
        ]


def test_times_ascend_and_a_day_ends_by_four_in_the_morning(population):
    def seconds(text):
        hours, minutes, rest = map(int, text.split(":"))
        return 3600 * hours + 60 * minutes + rest

    for plan in population.iter("plan"):
        ends = [seconds(a.get("end_time")) for a in plan.findall("activity")[:-1]]
        assert all(a <= b for a, b in pairwise(ends))
        assert not ends or ends[-1] <= 28 * 3600


def test_activities_lie_in_metres_within_zones_and_homes_within_the_home_zone(done, population):
    (crs,) = population.find("attributes")
    zones = done.source.zones.to_crs(crs.text)
    assert zones.crs.axis_info[0].unit_name == "metre"
    everywhere = shapely.union_all(zones.geometry.buffer(0.1))
    homes = done.source.households["home_zone_id_before"]
    for person in population.findall("person"):
        activities = person.findall("plan/activity")
        points = [shapely.Point(float(a.get("x")), float(a.get("y"))) for a in activities]
        assert all(everywhere.covers(p) for p in points)
        told = {a.get("name"): a.text for a in person.find("attributes")}
        zone = homes[int(told["householdId"])]
        assert told["homeZone"] == str(zone)
        assert zones.geometry[zone].buffer(0.1).covers(points[0])
        assert points[0] == points[-1]


def test_workers_go_to_work_and_students_to_school_where_a_household_has_them(done, population):
    persons = done.source.persons
    kinds = {
        "work": persons["pemploy"].isin([1, 2]),
        "education": persons["pstudent"].isin([1, 2]),
    }
    seen = 0
    for person in population.findall("person"):
        own = int(person.get("id"))
        family = persons["household_id"] == persons["household_id"][own]
        for kind, who in kinds.items():
            if any(a.get("type") == kind for a in person.iter("activity")):
                seen += 1
                assert who[own] or not (who & family).any()
    assert seen > 20


def test_legs_are_counted_beside_the_trips_that_they_are_made_of(done, population):
    counts = pd.read_csv(done.folder / "matsim" / "legs.csv").set_index("purpose")
    assert counts["trips"].drop("all").to_dict() == done.source.trips.sum().to_dict()
    assert counts.loc["all", "legs"] == counts["legs"].drop("all").sum()
    assert counts.loc["all", "legs"] == sum(1 for _ in population.iter("leg"))
    assert abs(counts.loc["all", "legs"] / counts.loc["all", "trips"] - 1) < 0.1


PURPOSES = ("hbw", "hbsch", "hbshop", "hbo", "nhb")
HOMES = st.lists(
    st.tuples(*(st.integers(0, 5) for _ in PURPOSES)), min_size=1, max_size=6
)  # fmt: skip


@settings(deadline=None)
@given(HOMES)
@pytest.mark.slow
def test_tours_take_up_all_trips_but_a_last_single_one(rows):
    index = pd.RangeIndex(1, len(rows) + 1, name="household_id")
    trips = pd.DataFrame(rows, columns=list(PURPOSES), index=index)
    tours = make_tours(trips, 3)
    assert (tours["stops"] >= 1).all()
    legs = (tours["stops"] + 1).groupby(tours["household_id"]).sum().reindex(index, fill_value=0)
    based = trips[[p for p in PURPOSES if home_based(p)]].sum(axis=1)
    made = tours.groupby("household_id").size().reindex(index, fill_value=0)
    even = based % 2 == 0
    assert (2 * made[even] == based[even]).all()
    assert ((2 * made - based)[~even].abs() == 1).all()
    # Trips between other places need a tour of the household, and then none is lost.
    assert (legs == 2 * made + trips["nhb"].where(made > 0, 0)).all()
    assert not ((made == 0) & (trips["nhb"] > 0) & (based > 0)).any()


def test_a_single_trip_is_a_tour_half_of_the_time_so_that_legs_are_trips_on_average():
    index = pd.RangeIndex(1, 4001, name="household_id")
    trips = pd.DataFrame({"hbw": 1, "nhb": 0}, index=index)
    # 4,000 coins: the standard error of the mean is 0.016 legs.
    assert 2 * len(make_tours(trips, 0)) / len(trips) == pytest.approx(1, abs=0.06)


def test_nobody_travels_where_nobody_makes_a_trip():
    index = pd.RangeIndex(1, 4, name="household_id")
    assert make_tours(pd.DataFrame(0, columns=list(PURPOSES), index=index), 0).empty


def test_a_day_without_trips_is_spent_at_home(done, tmp_path):
    shutil.copytree(done.run, tmp_path / "run")
    decisions = pd.read_parquet(done.run / "decisions.parquet")
    decisions[done.source.purposes] = 0
    decisions.to_parquet(tmp_path / "run" / "decisions.parquet")
    export_run(tmp_path / "run", ["matsim"], tmp_path)
    text = gzip.decompress((tmp_path / "matsim" / "population.xml.gz").read_bytes()).decode()
    assert text.count("<activity") == text.count("<person ") == len(done.source.persons)
    assert "<leg" not in text


def test_activities_are_named_for_purposes_that_there_are():
    from pemand_abm.surrogate import PURPOSES as known

    assert {"hbw", "hbsch"} <= {*known}
    assert {*ACTIVITIES.values()} <= {*HOURS}


# --- GMNS, UrbanSim ---------------------------------------------------------------------------------


def test_gmns_has_every_zone_with_its_boundary_and_demand_between_them(done):
    folder = done.folder / "gmns"
    zones = pd.read_csv(folder / "zone.csv", dtype={"zone_id": str}).set_index("zone_id")
    assert zones.index.tolist() == done.source.zones.index.astype(str).tolist()
    shapes = shapely.from_wkt(zones["boundary"].to_numpy())
    own = done.source.zones.geometry.to_numpy()
    assert shapely.is_valid(shapes).all()
    assert shapely.area(shapely.symmetric_difference(shapes, own)).max() < 1e-9
    config = pd.read_csv(folder / "config.csv")
    assert config["id_type"].tolist() == ["string" if isinstance(done.ids[0], str) else "integer"]
    assert geopandas.GeoSeries(shapes, crs=config["crs"][0]).crs == done.source.zones.crs
    demand = pd.read_csv(folder / "demand.csv", dtype={"o_zone_id": str, "d_zone_id": str})
    assert {*demand["o_zone_id"], *demand["d_zone_id"]} <= {*zones.index}
    assert demand["volume"].gt(0).all()
    assert demand["volume"].sum() == pytest.approx(done.source.trips.to_numpy().sum())


def test_as_many_home_based_trips_go_as_come(done):
    demand = pd.read_csv(done.folder / "gmns" / "demand.csv", dtype={"o_zone_id": str})
    demand["d_zone_id"] = demand["d_zone_id"].astype(str)
    based = demand[[p for p in done.source.purposes if home_based(p)]].sum(axis=1)
    table = based.groupby([demand["o_zone_id"], demand["d_zone_id"]]).sum().unstack(fill_value=0)
    assert table.to_numpy() == pytest.approx(table.reindex(columns=table.index).to_numpy().T)
    assert table.to_numpy().sum() > 100


def test_every_household_meets_one_row_of_urbansims_relocation_rates(done):
    folder = done.folder / "urbansim"
    households = pd.read_csv(folder / "households.csv").set_index("household_id")
    rates = pd.read_csv(folder / "household_relocation_rates_annual.csv")
    assert {*rates.columns} == {
        "tenure", "age_of_head_min", "age_of_head_max", "probability_of_relocating",
    }  # fmt: skip
    met = pd.Series(0, index=households.index)
    expected = 0.0
    for row in rates.to_dict("records"):
        age = households["age_of_head"]
        mask = (households["tenure"] == row["tenure"]) & (age >= row["age_of_head_min"])
        mask &= (age < row["age_of_head_max"]) | np.isnan(row["age_of_head_max"])
        met += mask
        expected += mask.sum() * row["probability_of_relocating"]
    assert (met == 1).all()
    wanted = done.source.run.calibration["wanted"]
    assert expected == pytest.approx(wanted.sum(), abs=len(wanted) / 2)
    zones = pd.read_csv(folder / "zones.csv").set_index("zone_id")
    lived = households["zone_id"].value_counts().reindex(zones.index, fill_value=0)
    assert (zones["residential_units"] - zones["vacant_residential_units"] == lived).all()


# --- SimWrapper, shapefile, GeoJSON -----------------------------------------------------------------


def test_simwrappers_panels_name_files_and_columns_that_are_there(done):
    folder = done.folder / "simwrapper"
    kinds = set()
    for path in folder.glob("dashboard-*.yaml"):
        board = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert board["header"]["title"] == TITLE
        for panel in [panel for row in board["layout"].values() for panel in row]:
            kinds.add(panel["type"])
            if panel["type"] == "bar":
                held = pd.read_csv(folder / panel["dataset"])
                assert {panel["x"], *panel["columns"]} <= {*held}
            elif panel["type"] == "map":
                fill = panel["display"]["fill"]
                held = pd.read_csv(folder / panel["datasets"][fill["dataset"]]["file"])
                shapes = json.loads((folder / panel["shapes"]["file"]).read_text("utf-8"))
                joins = [f["properties"][panel["shapes"]["join"]] for f in shapes["features"]]
                assert held[fill["join"]].tolist() == joins
                assert held[fill["columnName"]].notna().all()
    assert kinds == {"tile", "map", "bar"}
    tiles = dict(pd.read_csv(folder / "summary.csv", header=None, dtype=str).to_numpy().tolist())
    assert tiles["Households"] == "100"


def test_a_shapefile_reader_of_others_finds_the_maps_values_under_short_names(done):
    pyshp = pytest.importorskip("shapefile")
    folder = done.folder / "shapefile"
    names = pd.read_csv(folder / "columns.csv").set_index("short")["column"]
    zones = done.source.zones.reset_index()
    with pyshp.Reader(str(folder / "zones.shp"), encoding="utf-8") as reader:
        assert reader.shapeTypeName == "POLYGON"
        fields = [f[0] for f in reader.fields if f[0] != "DeletionFlag"]
        assert fields == names.index.tolist()
        for record, (_, zone) in zip(reader.iterRecords(), zones.iterrows(), strict=True):
            for short, value in record.as_dict().items():
                own = zone[names[short]]
                if value is None:
                    assert np.isnan(own)
                else:
                    assert value == (own if isinstance(own, str) else pytest.approx(own))
    assert "4326" in str(geopandas.read_file(folder / "zones.shp").crs)


@given(st.lists(st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,20}", fullmatch=True), unique=True))
def test_short_names_fit_and_differ_without_regard_to_case(columns):
    names = short_names(columns)
    assert list(names) == columns
    assert all(1 <= len(name) <= 10 for name in names.values())
    assert len({name.lower() for name in names.values()}) == len(columns)


def test_geojson_follows_rfc_7946(done):
    text = (done.folder / "geojson" / "zones.geojson").read_text(encoding="utf-8")
    held = json.loads(text)
    assert held["type"] == "FeatureCollection"
    assert "crs" not in held
    assert [f["properties"]["zone_id"] for f in held["features"]] == list(done.source.zones.index)
    for feature in held["features"]:
        for polygon in feature["geometry"]["coordinates"]:
            outer, *holes = (shapely.LinearRing(ring) for ring in polygon)
            assert outer.is_ccw
            assert not any(hole.is_ccw for hole in holes)
            west, south, east, north = outer.bounds
            assert -180 <= west <= east <= 180
            assert -90 <= south <= north <= 90
    read = geopandas.read_file(done.folder / "geojson" / "zones.geojson").set_index("zone_id")
    assert read["TRIPS_P"].tolist() == pytest.approx(done.source.zones["TRIPS_P"].tolist())


# --- the command ------------------------------------------------------------------------------------


def test_only_what_is_asked_for_is_written_where_it_is_asked_for(done, tmp_path):
    said = pemand("export", done.run, "--to", "gmns, geojson", "--out", tmp_path / "new")
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["geojson", "gmns"]
    assert "DTALite" not in said
    assert "person trips" in said


def test_a_format_that_is_not_known_is_told_with_its_nearest_name(done, tmp_path):
    said = pemand("export", done.run, "--to", "gmns,matsin", "--out", tmp_path, code=1)
    assert "matsin: no such format" in said
    assert "did you mean 'matsim'?" in said
    assert not list(tmp_path.iterdir())


def test_files_of_others_are_not_replaced_and_an_export_is(done, tmp_path):
    (tmp_path / "gmns").mkdir()
    (tmp_path / "gmns" / "thesis.txt").write_text("mine")
    with pytest.raises(PemandError, match="did not write"):
        export_run(done.run, ["gmns", "geojson"], tmp_path)
    assert (tmp_path / "gmns" / "thesis.txt").read_text() == "mine"
    assert (tmp_path / "geojson" / MARKER).is_file()
    (tmp_path / "geojson" / "old.csv").write_text("of an older version")
    export_run(done.run, ["geojson"], tmp_path)
    assert not (tmp_path / "geojson" / "old.csv").exists()


def test_a_fault_on_the_way_leaves_the_old_export_and_nothing_else(tmp_path):
    with replacing(tmp_path / "made", MARKER) as folder:
        (folder / MARKER).write_text("first")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "made", MARKER) as folder:
        (folder / MARKER).write_text("second")
        raise ZeroDivisionError
    assert [p.name for p in tmp_path.iterdir()] == ["made"]
    assert (tmp_path / "made" / MARKER).read_text() == "first"


def test_land_use_and_skims_are_those_of_the_run_or_none(done, tmp_path):
    shutil.copytree(done.run.parent, tmp_path / "moved")
    own = tmp_path / "moved" / "out"
    manifest = yaml.safe_load((own / "run.yaml").read_text(encoding="utf-8"))
    gone = manifest | {"region_folder": str(tmp_path / "gone")}
    (own / "run.yaml").write_text(yaml.safe_dump(gone), encoding="utf-8")
    with pytest.raises(PemandError, match="--region"):
        export_run(own, ["activitysim"])
    export_run(own, ["activitysim"], region=tmp_path / "moved" / "region")
    (tmp_path / "moved" / "region" / "land_use.csv").open("a").write("\n")
    with pytest.raises(PemandError, match=r"land_use\.csv changed since"):
        export_run(own, ["activitysim"], region=tmp_path / "moved" / "region")


def test_a_folder_that_is_no_run_is_told_as_such(tmp_path):
    assert "not a whole run" in pemand("export", tmp_path, "--to", "gmns", code=1)


def test_another_package_adds_a_format(done, tmp_path, monkeypatch):
    folder = tmp_path / "counter-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: counter\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[pemand_abm.exporters]\ncount = counter:write\n")
    (tmp_path / "counter.py").write_text(
        "def write(source, out):\n"
        "    (out / 'count.txt').write_text(str(len(source.households)))\n"
        "    return ['counted']\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    made = export_run(done.run, ["count"], tmp_path / "out")
    assert made["count"][1] == ["counted"]
    assert (tmp_path / "out" / "count" / "count.txt").read_text() == "100"
