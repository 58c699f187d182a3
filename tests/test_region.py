import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import openmatrix
import pandas as pd
import pytest
import yaml
from regions import MEMBERS, write_region

from pemand_abm.errors import SettingsError, TableError
from pemand_abm.geography import read_polygons
from pemand_abm.region import inputs_sha256, read_recipe, read_region

SF25 = Path(__file__).parents[1] / "synthpop" / "sf25"


@pytest.fixture
def folder(tmp_path):
    return write_region(tmp_path / "tiny")


def edit(file: Path, old: str, new: str, count: int = 1) -> None:
    """Replace a piece of a text file."""
    text = file.read_text()
    assert old in text, text
    file.write_text(text.replace(old, new, count))


def recipe_with(folder: Path, **changes: object) -> None:
    held = yaml.safe_load((folder / "recipe.yaml").read_text())
    (folder / "recipe.yaml").write_text(yaml.safe_dump(held | changes))


def fault_of(folder: Path) -> str:
    """Return what read_region says of a faulty region."""
    with pytest.raises(TableError) as caught:
        read_region(folder)
    return caught.value.message


# Valid, and odd but valid.


def test_a_valid_region_is_read_whole(folder):
    region = read_region(folder)
    assert region.zones.index.tolist() == [10, 20, 35]
    assert region.zones["district"].tolist() == ["West", "West", "East"]
    assert region.zones["TOTEMP"].tolist() == [100, 200, 300]
    assert region.seed_persons.groupby("seed_id").size().tolist() == [1, 2, 3, 4, 5, 12]
    assert region.seed_households.loc[5, "income"] == -400
    assert region.totals["zone"].loc[35, "TOTHH"] == 0
    assert region.crosswalk["region"].tolist() == [1, 1, 1]
    assert region.group_quarters.sum() == 21


def test_unsorted_zones_are_ascending_in_every_table_and_in_the_skims(tmp_path):
    region = read_region(write_region(tmp_path / "r", ids=(35, 10, 20)))
    tables = (region.zones, region.polygons, region.totals["zone"], region.crosswalk)
    for table in (*tables, region.group_quarters):
        assert table.index.tolist() == [10, 20, 35]
    # Zone 35 is the westernmost square and 20 the easternmost: two miles, and 0.01 by row.
    assert region.skims["DIST"][2, 1] == 2.0
    assert region.skims["DIST"][1, 2] == 2.02
    assert region.polygons.loc[35].geometry.bounds[0] == -122.4


@pytest.mark.parametrize(
    ("ids", "whole", "ordered"),
    [
        ((41003010300, 41003010200, 7), True, [7, 41003010200, 41003010300]),
        (("SF-Mission", "NA", "10"), False, ["10", "NA", "SF-Mission"]),
        (("010", "020", "003"), False, ["003", "010", "020"]),
    ],
)
def test_ids_beyond_32_bits_and_text_ids_are_kept(tmp_path, ids, whole, ordered):
    region = read_region(write_region(tmp_path / "r", ids=ids))
    assert pd.api.types.is_integer_dtype(region.zones.index) == whole
    assert region.zones.index.tolist() == ordered
    assert region.polygons.index.tolist() == ordered
    origin, west = ordered.index(ids[2]), ordered.index(ids[0])
    assert region.skims["DIST"][origin, west] == 2.02


def test_skims_in_another_order_give_the_same_region(folder):
    expected = read_region(folder).skims["DIST"]
    with openmatrix.open_file(str(folder / "skims.omx"), "w") as file:
        file["DIST"] = expected[np.ix_([2, 0, 1], [2, 0, 1])]
        file.create_mapping("zone_number", [35, 10, 20])
    assert (read_region(folder).skims["DIST"] == expected).all()


def test_skims_can_be_left_unread(folder):
    (folder / "skims.omx").write_text("not looked at")
    assert read_region(folder, skims=False).skims == {}


def test_a_region_without_group_quarters_has_none_in_every_zone(folder):
    recipe_with(folder, group_quarters=None)
    assert read_region(folder).group_quarters.tolist() == [0, 0, 0]


def test_a_file_in_another_encoding_is_read_once_the_recipe_says_so(folder):
    land_use = (folder / "land_use.csv").read_text().replace("West", "Cañón")
    (folder / "land_use.csv").write_bytes(land_use.encode("cp1252"))
    said = fault_of(folder)
    assert "land_use.csv: byte 0xf1" in said
    assert "`encoding: cp1252`" in said
    recipe_with(folder, encoding="cp1252")
    assert read_region(folder).zones["district"].tolist() == ["Cañón", "Cañón", "East"]


def test_excels_byte_order_mark_does_not_hide_the_first_column(folder):
    text = (folder / "land_use.csv").read_text()
    (folder / "land_use.csv").write_text(text, encoding="utf-8-sig")
    assert read_region(folder).zones.index.tolist() == [10, 20, 35]


def test_intermediate_geographies_may_have_text_ids(folder):
    pd.DataFrame({"zone": [10, 20, 35], "tract": ["A1", "A1", "0601"], "region": [1, 1, 1]}).to_csv(
        folder / "crosswalk.csv", index=False
    )
    pd.DataFrame({"tract": ["A1", "0601"], "OLD": [30, 0]}).to_csv(
        folder / "totals_tract.csv", index=False
    )
    totals = yaml.safe_load((folder / "recipe.yaml").read_text())["totals"]
    recipe_with(
        folder,
        geographies=["region", "tract", "zone"],
        totals=totals | {"tract": "totals_tract.csv"},
    )
    region = read_region(folder)
    assert region.crosswalk["tract"].tolist() == ["A1", "A1", "0601"]
    assert region.totals["tract"]["OLD"].to_dict() == {"0601": 0, "A1": 30}


# Bad input: one error that names the file, the column, the first bad rows and the mend.


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("totals_zone.csv", "35,0", "36,0", ["zones without a polygon in zones.geojson: 36"]),
        ("land_use.csv", "\n35,", "\n36,", ["without a polygon", "36", "lacks the zones 35"]),
        ("crosswalk.csv", "35,1\n", "", ["crosswalk.csv: lacks the zones 35 of zones.geojson"]),
        ("group_quarters.csv", "35,", "99,", ["group_quarters.csv", "without a polygon", "99"]),
        ("land_use.csv", "\n20,", "\n10,", ["column zone_id: ids occur twice: 10"]),
        ("land_use.csv", "\n20,", "\n,", ["column zone_id: is empty in lines 3"]),
        ("land_use.csv", "\n10,", "\n10.0,", ["ids are written as decimals: 10.0"]),
        ("land_use.csv", ",200,", ",NaN,", ["column TOTEMP", "first zone_id 20: 'NaN'"]),
        ("land_use.csv", ",200,", ",-200,", ["column TOTEMP", "zone_id 20: '-200'"]),
        ("land_use.csv", ",50.5,", ",many,", ["column TOTACRE", "zone_id 10: 'many'"]),
        ("land_use.csv", "West", "", ["column district: is empty for zones 10"]),
        ("land_use.csv", "dwellings", "Dwelling", ["no column 'dwellings'", "'Dwelling'?"]),
        ("totals_zone.csv", "35,0,", "35,,", ["column TOTHH", "zone 35: ''"]),
        ("totals_region.csv", "\n1,", "\n2,", ["2 are not in crosswalk.csv", "lacks 1"]),
        ("seed_persons.csv", "\n1,1,", "\n99,1,", ["1 persons belong to no household", "99"]),
        ("seed_persons.csv", "\n1,1,", "\n2,3,", ["households without persons", ": 1;"]),
        ("seed_households.csv", "\n2,3.0", "\n1,3.0", ["ids occur twice: 1"]),
        ("seed_households.csv", "6,0.5,12,", "6,0.5,11,", ["column hhsize", "6: 11, not 12"]),
        ("seed_households.csv", "4,1.5,4,2", "4,1.5,4,1", ["column num_workers", "pemploy 1 or 2"]),
        ("seed_households.csv", "own,45", "own,54", ["age_of_head", "2: 54, not 45"]),
        ("seed_households.csv", ",28000,", ",NA,", ["column income", "seed_id 1: 'NA'"]),
        ("seed_households.csv", ",rent,34", ",renter,34", ["column tenure", "'renter'"]),
        ("seed_persons.csv", "1,1,34", "1,1,34.5", ["column age", "whole numbers", "34.5"]),
        ("seed_persons.csv", "44,2,1,3,1,spouse", "44,3,1,3,1,spouse", ["column sex", "1, 2"]),
        ("seed_persons.csv", "3,2,9", "3,5,9", ["column PNUM", "in 3"]),
        ("seed_persons.csv", "spouse", "reference person", ["not one reference person", "2: 2"]),
        ("controls.csv", "persons,zone", "persons,Zone", ["geography 'Zone'", "mean 'zone'?"]),
        ("controls.csv", "HHPOP", "HHPOPS", ["no column 'HHPOPS'", "did you mean 'HHPOP'?"]),
        ("controls.csv", "zone,households,500", "zone,homes,500", ["seed_table 'homes'"]),
        ("controls.csv", "households.income <", "households.incom <", ["'incom'", "'income'?"]),
        ("controls.csv", "income < 50000", "income < ", ["target low", "cannot be parsed"]),
        ("controls.csv", "households,zone", "total,zone", ["no target 'households'"]),
    ],
)
def test_a_fault_of_a_table_is_named(folder, file, old, new, said):
    edit(folder / file, old, new)
    message = fault_of(folder)
    for piece in [file, *said]:
        assert piece in message


def test_faults_of_several_files_are_told_at_once(folder):
    edit(folder / "totals_zone.csv", "35,0", "36,0")
    edit(folder / "land_use.csv", ",200,", ",NaN,")
    edit(folder / "seed_persons.csv", "\n1,1,", "\n99,1,")
    with openmatrix.open_file(str(folder / "skims.omx"), "w") as file:
        file["DIST"] = np.ones((3, 3))
    message = fault_of(folder)
    for file in ("totals_zone.csv", "land_use.csv", "seed_persons.csv", "skims.omx: has no lookup"):
        assert file in message


def test_every_missing_file_is_named(folder):
    (folder / "land_use.csv").unlink()
    (folder / "skims.omx").unlink()
    message = fault_of(folder)
    assert "has no file land_use.csv" in message
    assert "has no file skims.omx" in message


def test_skims_that_lack_a_zone_are_refused(folder):
    with openmatrix.open_file(str(folder / "skims.omx"), "w") as file:
        file["DIST"] = np.ones((2, 2))
        file.create_mapping("zone_number", [10, 20])
    assert "skims.omx: lacks 1 of 3 zones: 35" in fault_of(folder)


def test_an_empty_file_is_told_as_no_table(folder):
    (folder / "controls.csv").write_text("")
    assert "controls.csv: is not a CSV table" in fault_of(folder)


# The recipe.


def test_a_misspelt_key_of_the_recipe_gets_its_likely_form(folder):
    edit(folder / "recipe.yaml", "land_use:", "landuse:")
    edit(folder / "recipe.yaml", "  lookup:", "  lookups:")
    with pytest.raises(SettingsError) as caught:
        read_recipe(folder)
    said = caught.value.message
    assert "key 'landuse' is not known; did you mean 'land_use'?" in said
    assert "key 'skims.lookups' is not known; did you mean 'lookup'?" in said
    assert "key 'land_use' is lacking" in said


def test_totals_of_an_unknown_geography_get_a_hint_of_its_case(folder):
    edit(folder / "recipe.yaml", "  zone: totals_zone.csv", "  ZONE: totals_zone.csv")
    with pytest.raises(SettingsError, match=r"'ZONE' is no geography.*did you mean 'zone'"):
        read_recipe(folder)


@pytest.mark.parametrize("text", ["- a list", "name: [unclosed", ""])
def test_a_recipe_that_is_no_mapping_is_one_error(folder, text):
    (folder / "recipe.yaml").write_text(text)
    with pytest.raises(SettingsError, match=r"recipe\.yaml"):
        read_region(folder)


def test_a_folder_without_recipe_is_one_error(tmp_path):
    with pytest.raises(SettingsError, match=r"recipe\.yaml: cannot be read"):
        read_region(tmp_path)


def test_the_inputs_digest_changes_with_its_file_only(folder):
    before = inputs_sha256(folder, read_recipe(folder))
    edit(folder / "land_use.csv", "West", "Waste")
    after = inputs_sha256(folder, read_recipe(folder))
    assert {name for name in before if before[name] != after[name]} == {"land_use.csv"}
    told = subprocess.run(
        ["sha256sum", folder / "land_use.csv"], capture_output=True, text=True, check=True
    )
    assert after["land_use.csv"] == told.stdout.split()[0]


def test_the_sidecar_of_text_zones_is_among_the_inputs(tmp_path):
    folder = write_region(tmp_path / "r", ids=("a", "b", "c"))
    assert "skims_zones.csv" in inputs_sha256(folder, read_recipe(folder))


# Polygons.


def polygons_with(folder: Path, change) -> str:
    held = json.loads((folder / "zones.geojson").read_text())
    change(held["features"])
    (folder / "zones.geojson").write_text(json.dumps(held))
    return fault_of(folder)


def test_polygons_with_faults_are_refused(folder):
    def spoil(features):
        features[1]["properties"]["zone_id"] = 10
        features[2]["geometry"] = None

    said = polygons_with(folder, spoil)
    assert "zones.geojson: 2 problems" in said
    assert "several features have the ids 10" in said
    assert "zones without geometry: 35" in said


def test_polygons_without_the_id_property_are_refused(folder):
    def rename(features):
        for feature in features:
            feature["properties"]["TAZ"] = feature["properties"].pop("zone_id")

    assert "have no property 'zone_id'" in polygons_with(folder, rename)


def test_a_polygon_without_land_use_is_told(folder):
    said = polygons_with(
        folder,
        lambda features: features.append(
            features[0] | {"properties": {"zone_id": 50}},
        ),
    )
    assert "land_use.csv: lacks the zones 50 of zones.geojson" in said


def test_a_point_is_no_zone(folder):
    def spoil(features):
        features[0]["geometry"] = {"type": "Point", "coordinates": [-122.4, 37.7]}

    assert "zones that are no polygon: 10" in polygons_with(folder, spoil)


def test_projected_polygons_come_back_in_longitude_and_latitude(folder, tmp_path):
    degrees = read_polygons(folder / "zones.geojson", "zone_id")
    degrees.to_crs("EPSG:32610").reset_index().to_file(tmp_path / "utm.gpkg")
    back = read_polygons(tmp_path / "utm.gpkg", "zone_id", zones=pd.Index([35, 10]))
    assert back.index.tolist() == [35, 10]
    assert back.crs.to_epsg() == 4326
    assert set(back.geom_type) == {"MultiPolygon"}
    assert back.total_bounds == pytest.approx([-122.4, 37.7, -122.37, 37.71], abs=1e-7)


def test_a_wanted_zone_without_polygon_is_named(folder):
    with pytest.raises(TableError, match="1 zones have no polygon: 99"):
        read_polygons(folder / "zones.geojson", "zone_id", zones=pd.Index([10, 99]))


# The real region.


@pytest.fixture(scope="module")
def sf25():
    return read_region(SF25)


def test_sf25_adds_up_to_the_published_totals(sf25):
    totals = sf25.totals["zone"]
    assert len(sf25.zones) == 25
    assert totals[["TOTHH", "HHPOP", "EMPRES"]].sum().tolist() == [48_743, 80_823, 47_985]
    assert totals.filter(like="HHINCQ").sum().sum() == 48_743
    assert sf25.zones["dwellings"].sum() == 53_041
    assert sf25.group_quarters.sum() == 6_600
    assert len(sf25.seed_households) == 1_968
    assert sf25.seed_households["weight"].sum() == 4_427


def test_sf25_ages_and_shares_add_up_to_persons_and_households(sf25):
    ages = sf25.totals["zone"].filter(like="AGE").sum(axis=1)
    assert ages.to_numpy() == pytest.approx(sf25.totals["zone"]["HHPOP"].to_numpy(), abs=0.01)
    totals = sf25.totals["zone"]
    for classes in ("HHSIZE", "WORKERS"):
        homes = totals.filter(like=classes).sum(axis=1)
        assert homes.to_numpy() == pytest.approx(totals["TOTHH"].to_numpy(), abs=0.01)
    assert (totals["HHOWN"] <= totals["TOTHH"]).all()


def test_sf25_sizes_and_workers_hold_the_persons_and_workers_of_the_zones(sf25):
    totals, seed = sf25.totals["zone"], sf25.seed_households
    for classes, column, total in (
        (["HHSIZE1", "HHSIZE2", "HHSIZE3", "HHSIZE4P"], "hhsize", "HHPOP"),
        (["WORKERS1", "WORKERS2", "WORKERS3P"], "num_workers", "EMPRES"),
    ):
        last = seed[seed[column] >= len(classes)]
        counts = [*range(1, len(classes)), np.average(last[column], weights=last["weight"])]
        assert (totals[classes] @ counts).to_numpy() == pytest.approx(totals[total], abs=0.01)


def test_sf25_districts_are_each_of_one_piece(sf25):
    assert sf25.zones["district"].nunique() == 4
    joined = sf25.polygons.set_geometry(sf25.polygons.to_crs(32610).buffer(0.5))
    joined = joined.dissolve("district")
    assert set(joined.geom_type) == {"Polygon"}


def test_sf25_walking_takes_twenty_minutes_a_mile(sf25):
    walk, miles = sf25.skims["WALK_TIME"], sf25.skims["DISTWALK"]
    assert walk == pytest.approx(miles * 20)
    cost = 18.29 * sf25.skims["SOV_DIST__AM"] + sf25.skims["SOV_BTOLL__AM"]
    assert sf25.skims["SOV_COST__AM"] == pytest.approx(cost)


def test_sf25_workers_are_the_persons_with_pemploy_one_or_two(sf25):
    persons = sf25.seed_persons
    workers = persons[persons["pemploy"] <= 2].groupby("seed_id").size()
    households = sf25.seed_households
    assert (workers.reindex(households.index, fill_value=0) == households["num_workers"]).all()


def test_sf25_couples_are_told_by_relation_and_by_household_type_alike(sf25):
    spouses = sf25.seed_persons.query("relate == 'spouse'")["seed_id"]
    married = sf25.seed_households.query("HHT == 1").index
    assert set(spouses) == set(married)


def test_the_tiny_regions_members_are_of_the_sizes_it_promises():
    assert [len(members) for members in MEMBERS.values()] == [1, 2, 3, 4, 5, 12]


def test_reading_tables_does_not_import_the_heavy_libraries():
    code = (
        "import sys, pemand_abm.region\n"
        "print([m for m in ('geopandas', 'openmatrix', 'tables', 'shapely') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


# As spreadsheets and other machines leave files.


def test_empty_rows_and_blanks_around_cells_are_no_fault(folder):
    plain = read_region(folder).seed_persons
    for name in ("land_use.csv", "seed_persons.csv", "totals_zone.csv"):
        file = folder / name
        file.write_text(file.read_text().replace(",", " , ") + ",,,\n\n")
    pd.testing.assert_frame_equal(read_region(folder).seed_persons, plain)


@pytest.mark.parametrize("mark", [";", "\t"])
def test_another_separator_is_named(folder, mark):
    file = folder / "land_use.csv"
    file.write_text(file.read_text().replace(",", mark))
    assert f"separated by {mark!r}; save it with commas" in fault_of(folder)


def test_a_comma_without_quotes_is_told(folder):
    edit(folder / "land_use.csv", "10,West", "10,Far, West")
    assert "land_use.csv: rows have more cells than the header" in fault_of(folder)


@pytest.mark.parametrize(
    ("file", "column"),
    [("seed_persons.csv", "household_id"), ("seed_households.csv", "home_zone_id")],
)
def test_columns_with_the_engines_own_names_are_refused(folder, file, column):
    pd.read_csv(folder / file).assign(**{column: 7}).to_csv(folder / file, index=False)
    assert f"{file}: column {column}: this name is the engine's own" in fault_of(folder)


def test_a_column_cannot_be_the_weight_and_the_size(folder):
    recipe_with(
        folder,
        seed={"households": "seed_households.csv", "persons": "seed_persons.csv"}
        | {"weight": "hhsize"},
    )
    assert "column hhsize: cannot be the id or the weight too" in fault_of(folder)


def test_a_land_use_column_named_label_does_not_matter(folder):
    table = pd.read_csv(folder / "land_use.csv").assign(label="x")
    table.to_csv(folder / "land_use.csv", index=False)
    assert "x" not in set(read_region(folder).zones["label"])


def test_numbers_that_no_count_can_have_are_refused(folder):
    table = pd.read_csv(folder / "land_use.csv", dtype={"dwellings": "object"})
    table.loc[1, "dwellings"] = "1e30"
    table.to_csv(folder / "land_use.csv", index=False)
    assert "column dwellings: 1 cells" in fault_of(folder)


def test_heads_too_young_for_the_survey_tables_are_named(folder):
    edit(folder / "seed_persons.csv", "1,1,34,", "1,1,14,")
    table = pd.read_csv(folder / "seed_households.csv").set_index("seed_id")
    table.loc[1, ["age_of_head", "children"]] = 14, 1
    table.to_csv(folder / "seed_households.csv")
    assert "column age_of_head: 1 heads are under 15, first seed_id 1" in fault_of(folder)


def test_a_label_that_no_polygon_has_is_named(folder):
    recipe_with(folder, zones={"file": "zones.geojson", "id": "zone_id", "label": "nowhere"})
    assert "no property 'nowhere', which recipe.yaml names as zones.label" in fault_of(folder)


def test_metres_without_a_reference_system_are_no_longitudes(folder):
    held = json.loads((folder / "zones.geojson").read_text())
    for feature in held["features"]:
        for ring in feature["geometry"]["coordinates"]:
            ring[:] = [[550_000 + 100 * x, 4_180_000 + 100 * y] for x, y in ring]
    (folder / "zones.geojson").write_text(json.dumps(held))
    assert "are no longitudes and latitudes" in fault_of(folder)


def test_ids_that_no_64_bits_hold_are_a_fault(folder):
    held = json.loads((folder / "zones.geojson").read_text())
    for k, feature in enumerate(held["features"]):
        feature["properties"]["zone_id"] = 2**64 + k
    (folder / "zones.geojson").write_text(json.dumps(held))
    assert "property zone_id" in fault_of(folder)


def test_a_key_that_stands_twice_is_an_error(folder):
    file = folder / "recipe.yaml"
    file.write_text(file.read_text() + "\nname: another\n")
    with pytest.raises(SettingsError, match="key 'name' stands twice"):
        read_recipe(folder)
