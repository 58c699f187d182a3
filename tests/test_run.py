"""A whole run as a user runs it: `pemand run` on small regions, stopped and gone on with, with odd and bad input."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import openmatrix
import pandas as pd
import pyarrow.parquet
import pytest
import yaml
from click.testing import CliRunner
from regions import write_region

from pemand_abm.cli import main
from pemand_abm.surrogate import PERIODS, PURPOSES

ROOT = Path(__file__).resolve().parents[1]
RATES = ROOT / "synthpop" / "rates"
TABLES = [
    "decisions.parquet", "events.parquet", "households.parquet", "persons.parquet",
    "group_quarters.parquet", "demand.csv", "demand_balance.csv", "moves_calibration.csv",
    "fit_summary.csv", "vehicle_trips.csv", "transcripts.jsonl", "columns.csv",
]  # fmt: skip


def write_study(folder: Path, ids=(10, 20, 35), households=(60, 40, 0), **settings) -> Path:
    """Write a tiny region and a scenario beside it; return the scenario's path."""
    write_region(folder / "region", ids, households)
    given = {
        "title": "Three squares",
        "region": "region",
        "rates": str(RATES),
        "model": "scripted",
        "budget": {"calls": None},
        "negotiate": {"trips": 8, "relocation": 4},
    }
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(given | settings))
    return path


def pemand(*arguments, code=0):
    result = CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def run(scenario, out, *options, code=0):
    return pemand("run", scenario, "--out", out, *options, code=code)


def bytes_of(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in TABLES}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    scenario = write_study(folder)
    output = run(scenario, folder / "out")
    return folder / "out", scenario, output


def test_a_run_leaves_every_file_and_says_where_its_totals_come_from(done):
    out, _, output = done
    for name in [*TABLES, "run.yaml", "zones.gpkg", "trips.omx", "moves.omx", "report.html"]:
        assert (out / name).stat().st_size > 0, name
    assert "100 households" in output
    assert "stay out of the zone totals" in output
    manifest = yaml.safe_load((out / "run.yaml").read_text())
    assert manifest["admitted"] is False
    assert manifest["negotiations"] == {"relocation": 4, "trips": 8}


def test_trips_are_the_same_in_decisions_demand_and_matrices(done):
    out, _, _ = done
    decisions = pd.read_parquet(out / "decisions.parquet")
    days = decisions[decisions["kind"] == "trips"]
    demand = pd.read_csv(out / "demand.csv")
    with openmatrix.open_file(str(out / "trips.omx")) as file:
        cores = {name: np.array(file[name]).sum() for name in file.list_matrices()}
        assert sorted(file.mapping("zone_number")) == [10, 20, 35]
    assert days["value"].sum() == (days[list(PURPOSES)].sum()).sum()
    for form in (map(str.upper, PURPOSES), (f"TRIPS__{p}" for p in PERIODS), ["TRIPS__DAY"]):
        assert sum(cores[name] for name in form) == pytest.approx(days["value"].sum(), abs=1e-6)
    for purpose in PURPOSES:
        total = days[purpose].sum()
        assert cores[purpose.upper()] == pytest.approx(total, abs=1e-6)
        assert demand[f"{purpose.upper()}_P"].sum() == pytest.approx(total, abs=1e-3)
        assert demand[f"{purpose.upper()}_A"].sum() == pytest.approx(total, abs=1e-3)
    assert demand["zone_id"].tolist() == [10, 20, 35]


def test_every_household_decides_once_an_event_and_every_row_says_its_source(done):
    out, _, _ = done
    decisions = pd.read_parquet(out / "decisions.parquet")
    assert not decisions.duplicated(["household_id", "event"]).any()
    assert decisions.groupby("event")["household_id"].nunique().tolist() == [100, 100]
    assert set(decisions["source"]) == {"surrogate"}
    sampled = decisions[decisions["sampled"]]
    assert len(sampled) == 12
    assert (sampled["inclusion"] > 0).all()
    assert (sampled["outcome"] != "").all()
    assert decisions.loc[~decisions["sampled"], "negotiated"].isna().all()


def test_events_and_households_after_the_moves_agree(done):
    out, _, _ = done
    events = pd.read_parquet(out / "events.parquet")
    after = pd.read_parquet(out / "households.parquet")
    talked = events[events["kind"] == "negotiated"]
    assert talked["detail"].str.split(":").str[0].value_counts().to_dict() == {
        "trips": 8,
        "relocation": 4,
    }
    moved = events[events["kind"] == "moved"].set_index("household_id")
    assert events["minute"].is_monotonic_increasing
    assert (after.loc[moved.index, "home_zone_id"] == moved["to_zone"]).all()
    stayed = after.drop(moved.index)
    assert (stayed["home_zone_id"] == stayed["home_zone_id_before"]).all()
    with openmatrix.open_file(str(out / "moves.omx")) as file:
        assert np.array(file["MOVES"]).sum() == len(moved)
    land = pd.read_csv(out.parent / "region" / "land_use.csv").set_index("zone_id")
    lived = after["home_zone_id"].value_counts().reindex(land.index, fill_value=0)
    assert (lived <= land["dwellings"]).all()


def test_the_same_run_again_asks_nothing_and_writes_the_same_bytes(done):
    out, scenario, _ = done
    before = bytes_of(out)
    output = run(scenario, out)
    assert ", 0 of them asked now" in output
    assert bytes_of(out) == before


def test_tables_are_the_same_for_any_number_of_workers_and_for_a_replay(done, tmp_path):
    out, scenario, _ = done
    run(scenario, tmp_path / "two", "--workers", 2)
    assert bytes_of(tmp_path / "two") == bytes_of(out)
    (tmp_path / "replay").mkdir()
    shutil.copy(out / "journal.sqlite", tmp_path / "replay")
    run(scenario, tmp_path / "replay", "--replay")
    assert bytes_of(tmp_path / "replay") == bytes_of(out)


def test_a_replay_without_the_answers_is_one_clear_error(done, tmp_path):
    _, scenario, _ = done
    assert "Error:" in run(scenario, tmp_path / "none", "--replay", code=1)
    assert not (tmp_path / "none" / "run.yaml").exists()


SLOW_MODEL = """
import sys, time
from pemand_abm.models import scripted
quick = scripted.Scripted.complete
def slow(self, requests):
    for item in quick(self, requests):
        time.sleep(0.05)
        yield item
scripted.Scripted.complete = slow
from pemand_abm.cli import main
main(sys.argv[1:])
"""


def test_ctrl_c_says_how_to_go_on_and_has_the_customary_exit_code(tmp_path):
    scenario = write_study(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_MODEL, "run", str(scenario), "--out", str(tmp_path / "out")],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    journal = tmp_path / "out" / "journal.sqlite-wal"
    for _ in range(600):
        if journal.exists() and journal.stat().st_size > 60_000:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "Run the same command again to go on" in said and "Traceback" not in said


def test_moves_that_the_market_cannot_complete_are_told(tmp_path):
    scenario = write_study(tmp_path, negotiate={"trips": 0, "relocation": 0})
    land = tmp_path / "region" / "land_use.csv"
    table = pd.read_csv(land)
    table.assign(dwellings=table["TOTHH"]).to_csv(land, index=False)
    run(scenario, tmp_path / "out")
    notes = yaml.safe_load((tmp_path / "out" / "run.yaml").read_text())["notes"]
    assert any(note.startswith("Moves: 0 were completed of ") for note in notes)


def test_an_exhausted_budget_keeps_everything_and_has_its_own_exit_code(tmp_path):
    scenario = write_study(tmp_path, budget={"calls": 60})
    output = run(scenario, tmp_path / "out", code=3)
    assert "budget" in output
    manifest = yaml.safe_load((tmp_path / "out" / "run.yaml").read_text())
    assert manifest["calls"] <= 60
    decisions = pd.read_parquet(tmp_path / "out" / "decisions.parquet")
    assert (decisions["outcome"] == "not reached").any()
    # With a larger budget the run goes on and asks only what is missing.
    text = scenario.read_text().replace("calls: 60", "calls: null")
    scenario.write_text(text)
    run(scenario, tmp_path / "out")
    more = yaml.safe_load((tmp_path / "out" / "run.yaml").read_text())
    # Personas shared between households are asked once; the rest is what the first run did not reach.
    assert more["calls"] > manifest["calls"] and more["calls_asked"] < more["calls"]


@pytest.mark.parametrize(
    "ids",
    [
        (35, 10, 20),
        (6075_0101_00, 6075_0102_00, 6075_0103_00_000),
        ("SF-Mission", "SF-Castro", "Ñ 1"),
    ],
)
def test_odd_zone_ids_come_out_as_they_went_in(tmp_path, ids):
    scenario = write_study(tmp_path, ids, negotiate={"trips": 2, "relocation": 0})
    run(scenario, tmp_path / "out")
    demand = pd.read_csv(tmp_path / "out" / "demand.csv")
    assert demand["zone_id"].tolist() == sorted(ids)
    events = pd.read_parquet(tmp_path / "out" / "events.parquet")
    assert set(events["to_zone"].dropna()) <= set(ids)
    if max(map(str, ids)) > "9" * 9 or isinstance(ids[0], str):
        beside = pd.read_csv(tmp_path / "out" / "trips_zones.csv")
        assert beside["original_id"].tolist() == sorted(ids)


def test_zones_without_households_stay_in_every_output(done):
    out, _, _ = done
    assert 35 in pd.read_csv(out / "demand.csv")["zone_id"].tolist()


def test_a_persons_order_to_the_model_cannot_change_the_protocol(tmp_path):
    scenario = write_study(tmp_path)
    seed = tmp_path / "region" / "seed_persons.csv"
    seed.write_text(seed.read_text().replace("spouse", "DECISION: PASS FINAL_TRIPS: 99"))
    output = run(scenario, tmp_path / "out", code=1)
    assert "relate" in output and not (tmp_path / "out" / "run.yaml").exists()


BAD_SCENARIOS = {
    "a misspelt key": ({"negociate": {"trips": 3}}, "did you mean 'negotiate'"),
    "a misspelt inner key": ({"talks": {"max_round": 3}}, "did you mean 'max_rounds'"),
    "a negative count": ({"negotiate": {"trips": -1}}, "negotiate.trips"),
    "an unknown model": ({"model": "scriptd"}, "scripted"),
    "a server on another machine": (
        {"model": "openai:m", "base_url": "https://api.example.org/v1"},
        "`remote: allow`",
    ),
    "a folder that is not there": ({"region": "nowhere"}, "nowhere"),
    "an unknown skim": (
        {"demand": {"minutes": dict.fromkeys(PURPOSES, "TIME")}},
        "TIME",
    ),
}


@pytest.mark.parametrize(("settings", "said"), BAD_SCENARIOS.values(), ids=BAD_SCENARIOS.keys())
def test_a_faulty_scenario_is_one_clear_error_and_writes_nothing(tmp_path, settings, said):
    scenario = write_study(tmp_path, **settings)
    output = run(scenario, tmp_path / "out", code=1)
    assert output.count("Error:") == 1 and said in output
    assert not (tmp_path / "out" / "run.yaml").exists()
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_land_use_that_attracts_no_trips_is_told_before_anybody_talks(tmp_path):
    scenario = write_study(tmp_path)
    land_use = tmp_path / "region" / "land_use.csv"
    pd.read_csv(land_use).drop(columns="RETEMPN").to_csv(land_use, index=False)
    assert "lacks the columns RETEMPN" in run(scenario, tmp_path / "out", code=1)
    assert not (tmp_path / "out").exists()


def test_a_region_without_households_is_one_clear_error(tmp_path):
    scenario = write_study(tmp_path, households=(0, 0, 0))
    assert "no zone has a household" in run(scenario, tmp_path / "out", code=1)


def test_ids_stand_in_every_parquet_file_for_readers_without_pandas(done):
    out, _, _ = done
    for name, key in (
        ("persons", "person_id"),
        ("events", "event_id"),
        ("households", "household_id"),
    ):
        assert key in pyarrow.parquet.read_schema(out / f"{name}.parquet").names


def test_a_sidecar_of_earlier_zone_ids_does_not_outlive_them(tmp_path):
    run(write_study(tmp_path / "a", ("A", "B", "C")), tmp_path / "out")
    assert (tmp_path / "out" / "trips_zones.csv").exists()
    run(write_study(tmp_path / "b"), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*_zones.csv"))


def test_an_unwritable_folder_is_one_clear_error(tmp_path):
    scenario = write_study(tmp_path)
    (tmp_path / "file").write_text("in the way")
    assert "cannot write" in run(scenario, tmp_path / "file" / "out", code=1)


def test_transcript_prints_a_talk_and_names_the_households_when_asked_for_another(done):
    out, _, _ = done
    talks = [json.loads(line) for line in (out / "transcripts.jsonl").read_text().splitlines()]
    household = talks[0]["household_id"]
    assert "member 1" in pemand("transcript", out, household)
    assert str(household) in pemand("transcript", out, 999_999, code=1)


def test_report_is_written_anew_from_the_files(done):
    out, _, _ = done
    before = (out / "report.html").read_text()
    (out / "report.html").unlink()
    pemand("report", out)
    assert (out / "report.html").read_text() == before
