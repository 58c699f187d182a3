"""Movers who settle their terms, and households that plan a journey, within a run."""

import json

import numpy as np
import pandas as pd
import pytest
import yaml
from test_run import pemand, run, write_study

from pemand_abm.agreements import Agreement
from pemand_abm.plans import Stake, read_plan
from pemand_abm.protocols.mind import Case
from pemand_abm.terms import TermWeights, places, work_zones

NOBODY = {"trips": 0, "relocation": 0}


def zones_and_homes():
    zones = pd.DataFrame(
        {
            "dwellings": [100.0, 100.0, 100.0],
            "SFDU": [90.0, 50.0, 0.0],
            "MFDU": [10.0, 50.0, 0.0],
            "TOTPOP": [10.0, 100.0, 1000.0],
            "TOTEMP": [0.0, 100.0, 5000.0],
            "TOTACRE": [100.0, 100.0, 100.0],
            "HSENROLL": [0.0, 0.0, 300.0],
            "AGE0519": [5.0, 5.0, 5.0],
        },
        index=pd.Index([10, 20, 35], name="zone_id"),
    )
    homes = pd.DataFrame(
        {
            "home_zone_id": [10, 10, 20, 20],
            "tenure": ["own", "own", "own", "rent"],
            "income": [30_000, 40_000, 90_000, 80_000],
        },
        index=pd.Index([1, 2, 3, 4], name="household_id"),
    )
    minutes = np.array([[1.0, 8.0, 40.0], [8.0, 1.0, 12.0], [40.0, 12.0, 1.0]])
    return zones, homes, minutes


def agreed(item, value, weight=10):
    wishes = {"member 1": Stake(value, weight)}
    return Agreement((Case(item, "member 1", value, "agreed", 1, wishes, (), (), ()),), ())


@pytest.mark.parametrize(
    ("item", "value", "match"),
    [
        ("dwelling", "a house", [0.9, 0.5, 0.5]),  # no dwelling known: it says nothing
        ("dwelling", "an apartment", [0.1, 0.5, 0.5]),
        ("place", "quiet", [1, 0.5, 0]),
        ("place", "central and lively", [0, 0.5, 1]),
        ("tenure", "own", [1, 0.5, 0.75]),  # nobody lives in 35: the region's share
        ("school", "nearby", [0, 0, 1]),
        ("school", "no matter", [1, 1, 1]),
        ("work", "at most 15 minutes", [1, 1, 0]),
        ("work", "no matter", [1, 1, 1]),
    ],
)
def test_a_term_is_worth_what_the_zone_is_like(item, value, match):
    zones, homes, minutes = zones_and_homes()
    here = places(zones, homes, minutes)
    work = np.array([0])  # The only worker works in zone 10.
    told = here.utility(agreed(item, value, 5), work, TermWeights(2.0, 0.0))
    assert told == pytest.approx(2.0 * 0.5 * np.array(match))
    assert here.unknown == ()


def test_the_way_to_work_counts_by_the_minute_and_only_for_who_works():
    zones, homes, minutes = zones_and_homes()
    here = places(zones, homes, minutes)
    far = here.utility(agreed("school", "no matter"), np.array([0, 2]), TermWeights(0.0, -0.1))
    assert far == pytest.approx(-0.1 * (minutes[:, 0] + minutes[:, 2]) / 2)
    nobody = here.utility(agreed("work", "at most 15 minutes"), np.array([]), TermWeights())
    assert nobody.tolist() == [0, 0, 0]


def test_land_use_that_tells_nothing_is_named_and_favours_no_zone():
    zones, homes, minutes = zones_and_homes()
    here = places(zones[["dwellings"]], homes, minutes)
    assert here.unknown == ("dwelling", "place", "school")
    for item, value in (("dwelling", "a house"), ("place", "quiet"), ("school", "nearby")):
        worth = here.utility(agreed(item, value), np.array([]), TermWeights())
        assert len(set(worth)) == 1


def test_workers_are_taken_to_work_as_the_gravity_model_has_it():
    ids = pd.Index(np.arange(1, 20_001), name="person_id")
    persons = pd.DataFrame({"household_id": 7, "pemploy": 1}, index=ids)
    persons.iloc[:500, 1] = 3
    attraction = np.array([1.0, 2.0, 0.0])
    minutes = np.array([[1.0, 10.0, 2.0]] * 3)
    found = work_zones(persons, {7: 0}, attraction, minutes, 0.1, 0)[7]
    assert len(found) == 19_500 and not (found == 2).any()
    weight = attraction * np.exp(-0.1 * minutes[0])
    assert (found == 1).mean() == pytest.approx(weight[1] / weight.sum(), abs=0.015)


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("terms")
    plain = write_study(folder, (10, 20, 35), (300, 200, 0), negotiate=NOBODY)
    run(plain, folder / "plain")
    given = write_study(folder, (10, 20, 35), (300, 200, 0), negotiate=NOBODY | {"terms": 5})
    printed = run(given, folder / "out")
    return folder, given, printed


def test_movers_settle_their_terms_before_they_look_for_a_home(moved):
    folder, _, printed = moved
    plans = pd.read_parquet(folder / "out" / "plans.parquet")
    events = pd.read_parquet(folder / "out" / "events.parquet")
    homes = pd.read_parquet(folder / "out" / "households.parquet")
    items = [i.name for i in read_plan("move").items]
    assert plans.groupby("household_id")["item"].apply(list).map(lambda own: own == items).all()
    assert plans["household_id"].nunique() == 5
    for household, own in events[events["household_id"].isin(plans["household_id"])].groupby("household_id"):  # fmt: skip
        kinds = own["kind"].tolist()
        assert kinds[:3] == ["travel_day", "decided_to_move", "settled_terms"]
        assert kinds[-1] in ("moved", "gave_up", "still_queued")
        taken = plans.loc[plans["household_id"] == household, "zone_taken"].iloc[0]
        if kinds[-1] == "moved":
            assert taken == homes.loc[household, "home_zone_id"] == own["to_zone"].iloc[-1]
    assert "but for where 5 movers go" in printed


def test_terms_change_where_these_movers_go_and_nothing_else(moved):
    folder, _, _ = moved
    tables = [pd.read_parquet(folder / name / "decisions.parquet") for name in ("plain", "out")]
    pd.testing.assert_frame_equal(*tables)
    one, other = (pd.read_csv(folder / n / "demand.csv")["TRIPS_P"] for n in ("plain", "out"))
    assert one.tolist() == other.tolist()
    groups = pd.read_csv(folder / "out" / "moves_calibration.csv")
    events = pd.read_parquet(folder / "out" / "events.parquet")
    assert groups["completed"].sum() == (events["kind"] == "moved").sum()
    assert (groups["difference"] == groups["completed"] - groups["wanted"]).all()


def test_terms_that_weigh_nothing_lead_nobody_elsewhere(moved):
    folder, _, _ = moved
    nothing = {"per_term": 0.0, "per_work_minute": 0.0}
    scenario = write_study(
        folder, (10, 20, 35), (300, 200, 0), negotiate=NOBODY | {"terms": 5}, housing=nothing
    )
    run(scenario, folder / "nothing")
    one, other = (
        pd.read_parquet(folder / n / "events.parquet").query("kind == 'moved'")
        for n in ("plain", "nothing")
    )
    columns = ["household_id", "from_zone", "to_zone", "minute"]
    ordered = [t[columns].sort_values("household_id", ignore_index=True) for t in (one, other)]
    pd.testing.assert_frame_equal(*ordered)


def test_the_same_run_again_gives_the_same_bytes(moved):
    folder, scenario, _ = moved
    write_study(folder, (10, 20, 35), (300, 200, 0), negotiate=NOBODY | {"terms": 5})
    names = ("plans.parquet", "events.parquet", "transcripts.jsonl", "households.parquet")
    before = [(folder / "out" / name).read_bytes() for name in names]
    run(scenario, folder / "out", "--replay")
    assert [(folder / "out" / name).read_bytes() for name in names] == before


def test_a_transcript_and_the_report_show_who_insisted_and_who_yielded(moved):
    folder, _, _ = moved
    plans = pd.read_parquet(folder / "out" / "plans.parquet")
    talked = plans[plans["rounds"] > 0]
    assert len(talked)
    household = talked["household_id"].iloc[0]
    printed = pemand("transcript", folder / "out", household)
    assert "To own or to rent:" in printed and "wishes:" in printed and "yielded" in printed
    report = (folder / "out" / "report.html").read_text()
    assert "Plans that households settled" in report and 'id="figure-flows"' in report
    assert f"{len(set(plans['household_id']))} movers looked for a home" in report


def test_who_the_budget_does_not_reach_looks_without_terms(tmp_path):
    scenario = write_study(
        tmp_path, (10, 20, 35), (300, 200, 0), negotiate=NOBODY | {"terms": 3}, budget={"calls": 1}
    )
    said = run(scenario, tmp_path / "out", code=3)
    assert "before 3 of 3 sampled households" in said
    events = pd.read_parquet(tmp_path / "out" / "events.parquet")
    assert (events.loc[events["kind"] == "settled_terms", "detail"] == "not reached").all()
    assert not events["detail"].str.contains("by agreed terms").any()
    assert not (tmp_path / "out" / "plans.parquet").exists()


def test_a_journey_is_an_event_of_its_own_day_and_in_no_total(tmp_path):
    scenario = write_study(tmp_path, negotiate=NOBODY | {"shared_trip": 4})
    run(scenario, tmp_path / "out")
    plain = write_study(tmp_path, negotiate=NOBODY)
    run(plain, tmp_path / "plain")
    events = pd.read_parquet(tmp_path / "out" / "events.parquet")
    planned = events[events["kind"] == "planned_trip"]
    assert len(planned) == 4 and planned["minute"].nunique() > 1
    for name in ("demand.csv", "moves_calibration.csv", "decisions.parquet"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    plans = pd.read_parquet(tmp_path / "out" / "plans.parquet")
    assert plans["item"].tolist()[:4] == ["destination", "budget", "dates", "mode"]
    assert plans["zone_taken"].isna().all()


def test_wishes_can_be_asked_of_the_personas(tmp_path):
    scenario = write_study(
        tmp_path,
        (10, 20, 35),
        (300, 200, 0),
        negotiate=NOBODY | {"terms": 2},
        mind={"willingness": "model"},
    )
    run(scenario, tmp_path / "out")
    talks = [json.loads(x) for x in (tmp_path / "out" / "transcripts.jsonl").open()]
    reasons = {w["reason"] for t in talks for m in t["members"] for w in m.get("wishes", [])}
    assert reasons == {"I like it"}  # The scripted model's, not the rules'.
    made = yaml.safe_load((tmp_path / "out" / "run.yaml").read_text())
    assert made["negotiations"] == {"terms": 2}


def test_the_shipped_scenarios_of_plans_are_read(tmp_path):
    from pathlib import Path

    from pemand_abm.scenario import read_scenario

    folder = Path(__file__).resolve().parents[1] / "scenarios"
    assert read_scenario(folder / "relocation.yaml").negotiate.terms > 0
    assert read_scenario(folder / "shared_trip.yaml").negotiate.shared_trip > 0
