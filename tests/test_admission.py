"""Cards: which runs they admit, and what then happens to the totals."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import openmatrix
import pandas as pd
import pytest
import yaml
from surveys_made import survey_of
from test_evaluation import ANCHORS, found, setting
from test_run import run, write_study

from pemand_abm.anchors import read_anchors
from pemand_abm.domains import TRIPS
from pemand_abm.evaluation.cards import level_card, write_cards
from pemand_abm.evaluation.trial import design_trial
from pemand_abm.figures import synthetic
from pemand_abm.geopackage import read_zones
from pemand_abm.models.scripted import Scripted
from pemand_abm.surrogate import PURPOSES

TALKS = {"moderator": "advise"}


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    """Return a level card of the scripted model, made from answers that are the observed ones."""
    trial = design_trial(survey_of(400), 120, 0)
    truth = trial.survey.households["trips"].to_dict()
    result = found(trial, ["pemand"], read_anchors(ANCHORS))
    right = result.answers.assign(predicted=[float(truth[i]) for i in result.answers.index])
    made = level_card(replace(result, answers=right))
    assert made.passed, [c for c in made.criteria if not c.passed]
    assert setting(None, TRIPS).pemand.moderator == TALKS["moderator"]
    folder = tmp_path_factory.mktemp("card")
    write_cards([made], folder)
    return folder / "level_card.yaml"


@pytest.fixture(scope="module")
def admitted(card, tmp_path_factory):
    folder = tmp_path_factory.mktemp("admitted")
    scenario = write_study(
        folder,
        cards=str(card),
        talks=TALKS,
        negotiate={"trips": 30, "relocation": 4},
    )
    return folder / "out", scenario, run(scenario, folder / "out")


def changed(original: Path, folder: Path, **keys) -> Path:
    held = yaml.safe_load(original.read_text())
    path = folder / "level_card.yaml"
    path.write_text(yaml.safe_dump(held | keys))
    return path


def manifest(out: Path) -> dict:
    return yaml.safe_load((out / "run.yaml").read_text())


def estimates(out: Path) -> pd.DataFrame:
    return pd.read_csv(out / "estimates.csv").set_index(["level", "domain", "purpose"]).sort_index()


def test_with_a_level_card_demand_is_what_the_estimates_say(admitted):
    out, _, output = admitted
    assert "has a level card" in output and "negotiation-sampling interval" in str(manifest(out))
    assert manifest(out)["admitted"] is True
    table, demand = estimates(out), pd.read_csv(out / "demand.csv")
    assert set(table["use"]) == {"used"}
    region = table.loc["region"].loc["all", "estimate"]
    with openmatrix.open_file(str(out / "trips.omx")) as file:
        for purpose in PURPOSES:
            core = purpose.upper()
            for total in (demand[f"{core}_P"], demand[f"{core}_A"], np.array(file[core])):
                assert total.sum() == pytest.approx(region[purpose], abs=1e-4)
    persons = pd.read_csv(out / "vehicle_trips.csv").set_index("purpose")["person_trips"]
    assert persons[list(PURPOSES)].tolist() == pytest.approx(region[list(PURPOSES)].tolist())
    home_based = [p for p in PURPOSES if p != "nhb"]
    by_district = demand.groupby("district")[[f"{p.upper()}_P" for p in home_based]].sum()
    for name, row in by_district.iterrows():
        told = table.loc[("district", name)]["estimate"]
        assert row.to_numpy() == pytest.approx(told[home_based].to_numpy(), abs=1e-4)
    zones = table.loc["zone"]["estimate"].groupby(level="domain").first()
    assert zones.sum() == pytest.approx(region["all"], abs=1e-4)
    assert region["all"] == pytest.approx(region[list(PURPOSES)].sum(), abs=1e-4)


def test_the_map_says_how_each_zones_trips_were_estimated_and_hatches_synthetic_ones(
    card, tmp_path
):
    out = tmp_path / "out"
    # Ten negotiations give a zone a word of its own: too few fall to the last one.
    scenario = write_study(
        tmp_path,
        households=(60, 60, 8),
        cards=str(card),
        talks=TALKS,
        negotiate={"trips": 40, "relocation": 0},
    )
    run(scenario, out)
    zones = read_zones(out / "zones.gpkg")
    table = estimates(out).xs("zone").xs("all", level="purpose").rename(index=str)
    assert set(table["use"]) == {"used"}
    assert zones["trips_method"].rename(index=str).to_dict() == table["method"].to_dict()
    assert table.loc["35", "n"] < 10 and synthetic(zones)[35]
    assert synthetic(zones).tolist() == (zones["trips_method"] == "synthetic").tolist()
    assert "Hatched zones are synthetic" in (out / "report.html").read_text(encoding="utf-8")


def test_every_household_row_says_where_its_value_comes_from(admitted):
    out, _, _ = admitted
    rows = pd.read_parquet(out / "decisions.parquet")
    days = rows[rows["kind"] == "trips"]
    told = days[days["source"] == "negotiated"]
    assert len(told) == 30 and (told["value"] == told["negotiated"]).all()
    assert (days[list(PURPOSES)].sum(axis=1) == days["value"]).all()
    # No card is defined for moves, so none enters.
    assert set(rows.loc[rows["kind"] == "relocation", "source"]) == {"surrogate"}
    table = estimates(out)
    assert table.loc[("region", "all", "all"), "rows"] == days["value"].sum()


def test_without_a_card_the_estimates_are_shown_and_every_total_is_the_surrogates(
    admitted, tmp_path
):
    _, scenario, _ = admitted
    plain = scenario.with_name("plain.yaml")
    held = yaml.safe_load(scenario.read_text())
    del held["cards"]
    plain.write_text(yaml.safe_dump(held))
    run(plain, tmp_path / "out")
    held["negotiate"] = {"trips": 0, "relocation": 0}
    plain.write_text(yaml.safe_dump(held))
    run(plain, tmp_path / "none")
    table = estimates(tmp_path / "out")
    assert set(table["use"]) == {"shown, not used"}
    assert set(read_zones(tmp_path / "out" / "zones.gpkg")["trips_method"]) == {"surrogate"}
    assert "Hatched zones" not in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert (table.loc["region"]["n"] == 30).all()
    for name in ("demand.csv", "demand_balance.csv"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "none" / name).read_bytes()
    # The same negotiations give the same estimates, used or not, but for the rows beside them.
    used = estimates(admitted[0]).loc["region"]
    assert table.loc["region"]["estimate"].tolist() == used["estimate"].tolist()
    nobody = estimates(tmp_path / "none")
    assert (nobody["n"] == 0).all() and nobody["se"].loc["region"].isna().all()


OTHERS = {
    "another model": ({"model": Scripted.identity | {"version": 1}}, "version 1, here 2"),
    "other prompts": ({"prompts_sha256": "0" * 64}, "other prompts"),
    "another moderator": ({"moderator": "judge"}, "moderator judge, here advise"),
}


@pytest.mark.parametrize(("keys", "said"), OTHERS.values(), ids=OTHERS.keys())
def test_a_card_of_something_else_admits_nothing_and_says_why(card, tmp_path, keys, said):
    other = changed(card, tmp_path, **keys)
    scenario = write_study(
        tmp_path, cards=str(other), talks=TALKS, negotiate={"trips": 4, "relocation": 0}
    )
    output = run(scenario, tmp_path / "out")
    assert said in output and "stay out of the zone totals" in output
    told = manifest(tmp_path / "out")
    assert told["admitted"] is False and told["cards"] == []
    assert any(said in note for note in told["notes"])


def test_a_card_that_was_not_passed_admits_nothing(card, tmp_path):
    held = yaml.safe_load(card.read_text())
    held["criteria"][0]["passed"] = False
    other = changed(card, tmp_path, criteria=held["criteria"], passed=False)
    scenario = write_study(
        tmp_path, cards=str(other), talks=TALKS, negotiate={"trips": 4, "relocation": 0}
    )
    assert "was not passed: weighted bias, all households" in run(scenario, tmp_path / "out")
    assert manifest(tmp_path / "out")["cards"][0]["passed"] is False


def test_a_run_that_talks_otherwise_than_the_card_is_not_admitted(card, tmp_path):
    scenario = write_study(
        tmp_path,
        cards=str(card),
        talks=TALKS | {"max_rounds": 2, "personas": False},
        negotiate={"trips": 4, "relocation": 0},
    )
    output = run(scenario, tmp_path / "out")
    assert "another way to talk (max_rounds 5, here 2; personas True, here False)" in output


FAULTS = {
    "a verdict that does not follow": ({"passed": False}, "does not follow from the criteria"),
    "another kind": ({"card": "levle"}, "must be one of level, response"),
    "no criteria": ({"criteria": []}, "criteria"),
}


@pytest.mark.parametrize(("keys", "said"), FAULTS.values(), ids=FAULTS.keys())
def test_a_faulty_card_is_one_clear_error_before_anybody_talks(card, tmp_path, keys, said):
    other = changed(card, tmp_path, **keys)
    output = run(write_study(tmp_path, cards=str(other)), tmp_path / "out", code=1)
    assert output.count("Error:") == 1 and said in output and "level_card.yaml" in output
    assert not (tmp_path / "out" / "journal.sqlite").exists()


def test_a_folder_without_a_card_and_a_path_that_is_not_there_are_told(tmp_path):
    (tmp_path / "empty").mkdir()
    assert "no file *_card.yaml" in run(
        write_study(tmp_path, cards="empty"), tmp_path / "out", code=1
    )
    assert "cards: there is no file" in run(
        write_study(tmp_path, cards="nowhere"), tmp_path / "out", code=1
    )
