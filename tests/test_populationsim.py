"""PopulationSim project folders: run as they are, with what is wrong with one told at once."""

import numpy as np
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner

from pemand_abm.cli import main
from pemand_abm.errors import SettingsError, TableError
from pemand_abm.populationsim import read_project, synthesize_project
from pemand_abm.synthesis import summaries

SETTINGS = {
    "INTEGERIZE_WITH_BACKSTOPPED_CONTROLS": True,
    "geographies": ["REGION", "PUMA", "TRACT", "TAZ"],
    "seed_geography": "PUMA",
    "data_dir": "data",
    "input_table_list": [
        {"tablename": "households", "filename": "hh.csv", "column_map": {"hhnum": "hh_id"}},
        {"tablename": "persons", "filename": "pp.csv", "column_map": {"hhnum": "hh_id"}},
        {"tablename": "geo_cross_walk", "filename": "cw.csv", "column_map": {"TRACTCE": "TRACT"}},
        {"tablename": "TAZ_control_data", "filename": "taz.csv"},
        {"tablename": "TRACT_control_data", "filename": "tract.csv"},
        {"tablename": "REGION_control_data", "filename": "region.csv"},
    ],
    "household_weight_col": "WGTP",
    "household_id_col": "hh_id",
    "total_hh_control": "num_hh",
    "control_file_name": "controls.csv",
    "output_synthetic_population": {
        "household_id": "household_id",
        "households": {"filename": "synthetic_households.csv", "columns": ["NP"]},
        "persons": {"filename": "synthetic_persons.csv", "columns": ["AGEP"]},
    },
    "run_list": {"steps": ["input_pre_processor"]},
}
CONTROLS = """target,geography,seed_table,importance,control_field,expression
num_hh,TAZ,households,1000000000,HH,(households.WGTP > 0) & (households.WGTP < np.inf)
size_1,TAZ,households,5000,SIZE1,households.NP == 1
size_2,TAZ,households,5000,SIZE2,households.NP >= 2
workers,TRACT,persons,1000,WORK,persons.ESR == 1
old,REGION,persons,500,OLD,(persons.AGEP >= 65) & (persons.AGEP < np.inf)
"""


def write_project(folder, flat=False):
    """Write a region of six zones, three tracts and two seed areas; targets that can be met."""
    rng = np.random.default_rng(3)
    n = 400
    homes = pd.DataFrame(
        {
            "hhnum": 1000 + np.arange(n),
            "PUMA": np.where(np.arange(n) < 250, 600, 700),
            "WGTP": rng.integers(0, 40, n),  # some have no weight and are left out
            "NP": rng.integers(1, 4, n),
        }
    )
    size = homes["NP"].to_numpy()
    people = pd.DataFrame(
        {
            "hhnum": np.repeat(homes["hhnum"], size),
            "AGEP": rng.integers(5, 90, size.sum()),
            "ESR": rng.integers(1, 3, size.sum()),
        }
    )
    cross = pd.DataFrame(
        {
            "TAZ": [12, 11, 13, 21, 22, 99],
            "TRACTCE": [1, 1, 2, 3, 3, 2],
            "PUMA": [600, 600, 600, 700, 700, 600],
            "REGION": 1,
        }
    )
    taz = pd.DataFrame({"TAZ": [11, 12, 13, 21, 22, 99], "HH": [60, 41, 80, 55, 70, 0]})
    taz["SIZE1"] = taz["HH"] // 3
    taz["SIZE2"] = taz["HH"] - taz["SIZE1"]
    tract = pd.DataFrame({"TRACT": [1, 2, 3], "WORK": [110, 85, 130]})
    region = "REGION,OLD\n#1,999\n1,170\n"
    configs, data = (folder, folder) if flat else (folder / "configs", folder / "data")
    for place in (configs, data):
        place.mkdir(parents=True, exist_ok=True)
    (configs / "settings.yaml").write_text(yaml.safe_dump(SETTINGS))
    (configs / "controls.csv").write_text(CONTROLS)
    for name, table in {"hh": homes, "pp": people, "cw": cross, "taz": taz, "tract": tract}.items():
        table.to_csv(data / f"{name}.csv", index=False)
    (data / "region.csv").write_text(region)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return synthesize_project(read_project(write_project(tmp_path_factory.mktemp("ps"))), 0)


def test_every_zone_has_its_households_and_every_control_is_met(made):
    counts = made.households.groupby("TAZ").size()
    assert counts.to_dict() == {11: 60, 12: 41, 13: 80, 21: 55, 22: 70}
    fit = made.solution.fit
    assert fit["difference"].abs().max() <= 1
    assert set(fit["geography"]) == {"TAZ", "TRACT", "REGION"}
    assert 99 in fit.loc[fit["geography"] == "TAZ", "zone"].tolist()


def test_a_zone_takes_seed_households_of_its_own_area_alone(made):
    seed = made.project.households
    own = seed.loc[made.households["hh_id"], "PUMA"].to_numpy()
    assert (own == made.households["PUMA"].to_numpy()).all()
    assert (seed["weight"] > 0).all() and len(seed) < 400


def test_persons_are_the_members_of_their_households(made):
    sizes = made.persons.groupby("household_id").size()
    assert (sizes == made.households["NP"]).all()
    person = made.persons.iloc[0]
    assert made.households.loc[person["household_id"], "TAZ"] == person["TAZ"]
    seed = made.project.persons
    assert set(made.persons["hh_id"]) <= set(seed["hh_id"])


def test_summaries_have_populationsims_columns_and_what_was_synthesized(made):
    tables = summaries(made.solution.fit)
    taz = tables["summary_TAZ"]
    assert list(taz.columns)[:1] == ["num_hh_control"] and "size_2_diff" in taz.columns
    assert taz.index.names == ["geography", "id"]
    ones = made.households[made.households["NP"] == 1].groupby("TAZ").size()
    assert taz.loc[("TAZ", 13), "size_1_result"] == ones[13]
    work = made.persons[made.persons["ESR"] == 1].groupby("TRACT").size()
    assert tables["summary_TRACT"].loc[("TRACT", 3), "workers_result"] == work[3]


def test_a_flat_folder_is_read_with_a_notice_and_gives_the_same(made, tmp_path):
    project = read_project(write_project(tmp_path, flat=True))
    assert project.notices and "data are read from" in project.notices[0]
    again = synthesize_project(project, 0)
    pd.testing.assert_frame_equal(again.households, made.households)
    other = synthesize_project(project, 1)
    assert not other.households["hh_id"].equals(made.households["hh_id"])


def test_the_order_of_the_files_rows_does_not_matter(made, tmp_path):
    folder = write_project(tmp_path)
    for name in ("cw", "taz", "tract"):
        path = folder / "data" / f"{name}.csv"
        pd.read_csv(path).iloc[::-1].to_csv(path, index=False)
    again = synthesize_project(read_project(folder), 0)
    pd.testing.assert_frame_equal(again.households, made.households)


def test_the_command_writes_populationsims_files(tmp_path):
    folder = write_project(tmp_path / "mine")
    out = tmp_path / "out"
    arguments = ["synthesize", "--populationsim", str(folder), "--out", str(out)]
    ran = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert ran.exit_code == 0 and "306 households" in ran.output
    homes = pd.read_csv(out / "synthetic_households.csv")
    assert homes.columns.tolist() == ["household_id", "REGION", "PUMA", "TRACT", "TAZ", "NP"]
    people = pd.read_csv(out / "synthetic_persons.csv")
    assert "AGEP" in people and people["household_id"].isin(homes["household_id"]).all()
    assert (out / "summary_REGION.csv").exists() and (out / "households.parquet").exists()
    both = CliRunner().invoke(main, [*arguments, str(folder)])
    assert both.exit_code == 2 and "one of the two" in both.output


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda c, d: (d / "hh.csv").unlink(), "hh.csv: cannot be read"),
        (lambda c, d: (d / "taz.csv").write_text("TAZ,HH,SIZE1\n11,5,2\n"), "column SIZE2 is missing"),
        (lambda c, d: (d / "taz.csv").write_text("TAZ,HH,SIZE1,SIZE2\n11,5,2,3\n11,5,2,3\n"), "11 stand there twice"),
        (lambda c, d: (d / "taz.csv").write_text("TAZ,HH,SIZE1,SIZE2\n77,5,2,3\n"), "lacks TAZ 77"),
        (lambda c, d: (d / "cw.csv").write_text("TAZ,TRACTCE,PUMA,REGION\n11,1,600,1\n11,2,600,1\n"), "lie in several areas"),
        (lambda c, d: (c / "controls.csv").write_text(CONTROLS.replace("TRACT,persons", "BLOCK,persons")), "BLOCK is none of"),
        (lambda c, d: (c / "controls.csv").write_text(CONTROLS.replace("persons.ESR == 1", "__import__('os')")), "is not allowed"),
        (lambda c, d: (c / "settings.yaml").write_text("geographies: [TAZ]"), "seed_geography"),
    ],
)  # fmt: skip
def test_a_faulty_folder_is_one_clear_error(tmp_path, spoil, said):
    folder = write_project(tmp_path)
    spoil(folder / "configs", folder / "data")
    with pytest.raises((TableError, SettingsError), match=said.replace("(", r"\(")):
        synthesize_project(read_project(folder), 0)


def test_a_seed_area_without_a_household_is_told(tmp_path):
    folder = write_project(tmp_path)
    path = folder / "data" / "hh.csv"
    homes = pd.read_csv(path)
    homes[homes["PUMA"] == 600].to_csv(path, index=False)
    with pytest.raises(TableError, match="no household of weight for the PUMA of zones 21, 22"):
        synthesize_project(read_project(folder), 0)


@pytest.mark.slow
def test_calm_is_met_in_every_zone_and_almost_every_cell(shared_data):
    done = synthesize_project(read_project(shared_data / "calm"), 0)
    fit = done.solution.fit
    assert len(done.households) == 62_041
    total = fit[fit["target"] == "num_hh"]
    assert (total["difference"] == 0).all()
    off = fit["difference"].abs().groupby(fit["geography"]).sum()
    wanted = fit["control"].groupby(fit["geography"]).sum()
    assert (off / wanted).max() < 0.001
