"""Runs of several years: one year is what it was, the accounts close, a policy begins when it should."""

from dataclasses import replace

import numpy as np
import openmatrix
import pandas as pd
import pytest
import yaml
from test_run import bytes_of, run, write_study

from pemand_abm import study
from pemand_abm.forecast import forecast
from pemand_abm.scenario import read_scenario

YEAR = 365 * 24 * 60


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("years")
    (folder / "one").mkdir()
    (folder / "four").mkdir()
    asked = {"trips": 4, "relocation": 2}
    one = write_study(folder / "one", households=(300, 200, 0), negotiate=asked)
    four = write_study(folder / "four", households=(300, 200, 0), negotiate=asked, years=4)
    printed = run(four, folder / "four" / "out")
    run(one, folder / "one" / "out")
    return folder / "one" / "out", folder / "four" / "out", four, printed


def table(out, name):
    return pd.read_parquet(out / f"{name}.parquet")


def test_one_year_said_or_not_said_is_the_same_run(tmp_path, done):
    one = done[0]
    said = write_study(
        tmp_path, households=(300, 200, 0), negotiate={"trips": 4, "relocation": 2}, years=1
    )
    run(said, tmp_path / "out")
    assert bytes_of(tmp_path / "out") == bytes_of(one)
    assert not (one / "years.csv").exists()
    assert "person_id" not in table(one, "events")


def test_the_accounts_of_the_years_close(done):
    years = pd.read_csv(done[1] / "years.csv").set_index("year")
    assert years.index.tolist() == [2020, 2021, 2022, 2023]
    flow = years.shift(-1)
    came = years["households"] + flow["households_formed"] + flow["households_in"]
    after = came - flow["households_dissolved"] - flow["households_out"]
    assert (after[:-1] == flow["households"][:-1]).all()
    after = years["persons"] + flow["births"] + flow["persons_in"] - flow["deaths"]
    assert (after - flow["persons_out"])[:-1].equals(flow["persons"][:-1])
    assert (years["households"] <= years["dwellings"]).all()
    assert (years["moves"] + years["gave_up"] == years["decided_to_move"]).all()


def test_population_and_demand_are_those_of_the_last_year(done):
    _, out, _, printed = done
    last = pd.read_csv(out / "years.csv").iloc[-1]
    homes, people = table(out, "households"), table(out, "persons")
    assert (len(homes), len(people)) == (last["households"], last["persons"])
    demand = pd.read_csv(out / "demand.csv").set_index("zone_id")
    assert demand["TRIPS_P"].sum() == pytest.approx(last["trips"], abs=1e-2)
    lived = homes["home_zone_id_before"].value_counts().reindex(demand.index, fill_value=0)
    assert (demand["households"] == lived).all()
    with openmatrix.open_file(str(out / "moves.omx")) as file:
        assert np.array(file["MOVES"]).sum() == last["moves"]
    assert f"{last['households']:,} households" in printed and "in 4 years" in printed
    manifest = yaml.safe_load((out / "run.yaml").read_text())
    assert any("year 4 of the calendar" in note for note in manifest["notes"])
    assert "Year by year" in (out / "report.html").read_text(encoding="utf-8")


def test_the_events_tell_the_years_moves_and_life(done):
    events = table(done[1], "events")
    years = pd.read_csv(done[1] / "years.csv")
    assert events["minute"].is_monotonic_increasing
    assert events.index.tolist() == list(range(1, len(events) + 1))
    year = events["minute"] // YEAR
    moved = year[events["kind"] == "moved"].value_counts().reindex(range(4), fill_value=0)
    assert moved.tolist() == years["moves"].tolist()
    died = events[events["kind"] == "died"]
    assert (died["minute"] % YEAR == 0).all()
    assert (died["minute"] // YEAR).value_counts().reindex(range(4), fill_value=0).tolist() == (
        years["deaths"].tolist()
    )
    people = table(done[1], "persons")
    assert not set(died["person_id"]) & set(people.index)
    # Following a household's moves from its first home leads to its last.
    homes = table(done[1], "households")
    steps = events[events["kind"].isin(["moved", "formed", "arrived"])]
    last = steps.drop_duplicates("household_id", keep="last").set_index("household_id")["to_zone"]
    known = last.index.intersection(homes.index)
    assert len(known) and (homes.loc[known, "home_zone_id"] == last[known]).all()


def test_talks_are_of_the_base_year_and_every_decision_names_its_year(done):
    one, out, _, _ = done
    decisions = table(out, "decisions")
    assert set(decisions["event"]) == {
        "travel_day:1", "relocation:1", "travel_day:4", "relocation:4",
    }  # fmt: skip
    assert not decisions.duplicated(["household_id", "event"]).any()
    asked = decisions[decisions["sampled"]]
    assert len(asked) == 6 and asked["event"].str.endswith(":1").all()
    # The base year's travel day is that of a run of one year: the draws are keyed by the event.
    columns = ["household_id", "value", "negotiated"]
    first = [
        t.loc[t["event"] == "travel_day:1", columns].reset_index(drop=True)
        for t in (decisions, table(one, "decisions"))
    ]
    assert first[0].equals(first[1])
    days = decisions[decisions["event"] == "travel_day:4"]
    assert set(days["household_id"]) == set(table(out, "households").index)
    assert (days["minute"] == 3 * YEAR + 240).all()


def test_a_forecast_again_with_other_workers_writes_the_same_bytes(done, tmp_path):
    _, out, scenario, _ = done
    run(scenario, tmp_path / "out", "--workers", 2)
    assert bytes_of(tmp_path / "out") == bytes_of(out)
    assert (tmp_path / "out" / "years.csv").read_bytes() == (out / "years.csv").read_bytes()


def prepared(scenario):
    known = study.prepare(read_scenario(scenario), lambda _: None)
    known = replace(known, talks=[])
    return known, study.run(known, None)


def test_a_policy_acts_from_its_year_on_and_not_before(done):
    known, history = prepared(done[2])

    def new_housing(year, facts):
        zones = facts.region.zones
        extra = np.where(zones.index == 35, 40, 0) if year >= 3 else 0
        more = replace(facts.region, zones=zones.assign(dwellings=zones["dwellings"] + extra))
        return replace(facts, region=more)

    plain = forecast(known, history, lambda _: None)
    same = forecast(known, history, lambda _: None, lambda _, facts: facts)
    built = forecast(known, history, lambda _: None, new_housing)
    assert plain.years.equals(same.years) and plain.events.equals(same.events)
    assert (built.years["dwellings"] - plain.years["dwellings"]).tolist() == [0, 0, 40, 40]
    assert built.years.iloc[:2].equals(plain.years.iloc[:2])
    lived = [f.study.population.households["home_zone_id"] == 35 for f in (plain, built)]
    assert lived[0].sum() < lived[1].sum()


def test_incomes_of_a_policy_are_those_of_its_years_and_do_not_add_up(done):
    known, history = prepared(done[2])

    def richer(year, facts):
        homes = facts.households
        return replace(facts, households=homes.assign(income=homes["income"] * 2))

    plain = forecast(known, history, lambda _: None).study.population.households["income"]
    raised = forecast(known, history, lambda _: None, richer).study.population.households["income"]
    both = plain.index.intersection(raised.index)
    same = (raised[both] == 2 * plain[both]).mean()
    # Homes of other zones change who finds one, and so a few donors; nobody's income is fourfold.
    assert same > 0.8
    assert (raised[both] <= 2 * plain[both]).mean() > 0.9


def test_years_need_whole_years_and_their_rates(tmp_path):
    scenario = write_study(tmp_path, years=2, days=100)
    assert "days: must be 365" in run(scenario, tmp_path / "out", code=1)
    (tmp_path / "rates").mkdir()
    for file in (study.Path(read_scenario(write_study(tmp_path)).rates)).glob("[!l]*.csv"):
        (tmp_path / "rates" / file.name).write_bytes(file.read_bytes())
    one = write_study(tmp_path, rates="rates", negotiate={"trips": 0, "relocation": 0})
    run(one, tmp_path / "out")  # A year needs no rates of life events.
    two = write_study(tmp_path, rates="rates", years=2)
    assert "life_deaths.csv: no such file" in run(two, tmp_path / "out", code=1)


def test_years_of_an_earlier_run_do_not_outlive_it(tmp_path):
    nobody = {"trips": 0, "relocation": 0}
    run(write_study(tmp_path, years=2, negotiate=nobody), tmp_path / "out")
    assert (tmp_path / "out" / "years.csv").exists()
    run(write_study(tmp_path, negotiate=nobody), tmp_path / "out")
    assert not (tmp_path / "out" / "years.csv").exists()
