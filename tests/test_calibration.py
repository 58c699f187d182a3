"""A calibrated region has the targets' rates and lengths in every year; without the file nothing has changed."""

import numpy as np
import openmatrix
import pandas as pd
import pytest
import yaml
from test_forecast import prepared
from test_run import bytes_of, pemand, run, write_study

from pemand_abm import study
from pemand_abm.calibration import FILE, NONE, Calibration, read_calibration, read_targets
from pemand_abm.demand import mean_minutes
from pemand_abm.errors import TableError
from pemand_abm.forecast import forecast
from pemand_abm.sample import household_types
from pemand_abm.scenario import read_scenario
from pemand_abm.surrogate import (
    PURPOSES,
    draw_trips,
    expected_trips,
    move_rates,
    purpose_shares,
    read_rates,
)
from pemand_abm.tables import sha256

HEADER = "measure,purpose,group,value,source\n"
TARGETS = """\
trips,hbw,one person,0.9,survey A
trips,hbw,adults only,2.5,survey A
trips,nhb,all,3.1,survey A
trips,hbshop,with children,0.4,
moves,,rent,0.11,survey B
moves,,own 45-54,0.09,survey B
minutes,hbw,,4.2,survey A
"""
NOBODY = {"trips": 0, "relocation": 0}


def written(folder, rows, header=HEADER):
    path = folder / "targets.csv"
    path.write_text(header + rows)
    return path


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Return a scenario, the calibration that its region has, what was printed, and a run."""
    folder = tmp_path_factory.mktemp("calibrated")
    scenario = write_study(folder, households=(900, 700, 0))
    printed = pemand("calibrate", scenario, written(folder, TARGETS))
    run(scenario, folder / "out")
    return scenario, read_calibration(folder / "region"), printed, folder


def quiet(_):
    pass


def expected_of(known, calibration):
    """Return the expected trips by purpose of each household, by what totals are made of."""
    homes, rates = known.population.households, known.rates
    shares = purpose_shares(homes, calibration.rates(rates))
    return shares.mul(calibration.expected(homes, rates)["mean"], axis=0)


def test_expected_trips_equal_the_targets(done):
    scenario, calibration, _, _ = done
    known = study.prepare(read_scenario(scenario), quiet)
    kind = household_types(known.population.households)
    means = expected_of(known, calibration).groupby(kind).mean()
    assert means.loc["one person", "hbw"] == pytest.approx(0.9)
    assert means.loc["adults only", "hbw"] == pytest.approx(2.5)
    assert means.loc["with children", "hbshop"] == pytest.approx(0.4)
    assert expected_of(known, calibration)["nhb"].mean() == pytest.approx(3.1)
    # What no target names is the survey's.
    for group, purpose in (("with children", "hbw"), ("one person", "hbo")):
        plain = expected_of(known, NONE).groupby(kind).mean().loc[group, purpose]
        assert means.loc[group, purpose] == pytest.approx(plain)
    assert known.expected["mean"].to_numpy() == pytest.approx(
        expected_of(known, calibration).sum(axis=1).to_numpy()
    )


def test_drawn_trips_equal_the_targets_within_sampling_error(done):
    _, _, _, folder = done
    days = pd.read_parquet(folder / "out" / "decisions.parquet").query("kind == 'trips'")
    homes = pd.read_parquet(folder / "out" / "households.parquet")
    days = days.set_index("household_id")
    kind = household_types(homes)
    for group, purpose, target in (
        ("one person", "hbw", 0.9),
        ("adults only", "hbw", 2.5),
        ("with children", "hbshop", 0.4),
        ("all", "nhb", 3.1),
    ):
        drawn = days[purpose] if group == "all" else days.loc[kind.index[kind == group], purpose]
        error = drawn.std() / np.sqrt(len(drawn))
        assert drawn.mean() == pytest.approx(target, abs=4 * error), (group, purpose)
    assert (days[list(PURPOSES)].sum(axis=1) == days["value"]).all()


def test_completed_moves_follow_the_new_rates(done):
    _, calibration, _, folder = done
    groups = pd.read_csv(folder / "out" / "moves_calibration.csv").set_index("group")
    assert (groups["difference"] == 0).all()
    rent = groups[groups["tenure"] == "rent"]
    # Each group's number of moves is rounded.
    assert rent["completed"].sum() == pytest.approx(0.11 * rent["households"].sum(), abs=len(rent))
    assert groups.loc["own 45-54", "target_rate"] == pytest.approx(0.09)
    plain = move_rates(
        study.prepare(read_scenario(done[0]), quiet).population.households,
        read_rates(read_scenario(done[0]).rates),
    )
    own = plain.groupby("group")["target"].first()["own 35-44"]
    assert groups.loc["own 35-44", "target_rate"] == own
    assert calibration.moves["own 35-44"] == 1


def test_mean_minutes_are_reached_and_the_decay_is_the_files(done):
    _, calibration, _, folder = done
    balance = pd.read_csv(folder / "out" / "demand_balance.csv").set_index("purpose")
    assert balance.loc["hbw", "mean_minutes"] == pytest.approx(4.2, abs=1e-3)
    assert balance.loc["hbw", "wanted_minutes"] == 4.2
    assert balance.loc["hbw", "decay_per_minute"] == pytest.approx(calibration.decay["hbw"])
    with openmatrix.open_file(str(folder / "region" / "skims.omx")) as file:
        minutes = np.array(file["SOV_TIME__AM"])
    with openmatrix.open_file(str(folder / "out" / "trips.omx")) as file:
        assert mean_minutes(np.array(file["HBW"]), minutes) == pytest.approx(4.2, abs=1e-4)
    assert balance["wanted_minutes"].notna().sum() == 1


def test_the_factors_are_printed_written_and_told_by_the_run(done):
    _scenario, calibration, printed, folder = done
    table = pd.read_csv(folder / "region" / FILE)
    rates = table[table["measure"] != "minutes"]
    assert rates["value"].to_numpy() == pytest.approx(
        (rates["target"] / rates["modelled"]).to_numpy()
    )
    assert len(table) == 7 and set(table["seed"]) == {0} and set(table["scenario"]) == {"small"}
    digest = sha256(folder / "targets.csv")
    assert table["targets"].str.contains(digest).all()
    for row in calibration.rows:
        assert f"{row['modelled']:,.4f}" in printed and f"{row['value']:,.4f}" in printed
    manifest = yaml.safe_load((folder / "out" / "run.yaml").read_text())
    assert manifest["inputs"][f"region/{FILE}"] == sha256(folder / "region" / FILE)
    assert manifest["calibration"] == [dict(row) for row in calibration.rows]
    assert any(
        "4 of trip rates, 2 of move rates, 1 of trip lengths" in n for n in manifest["notes"]
    )


def test_calibrating_again_gives_the_same_file(done):
    scenario, _, _, folder = done
    before = (folder / "region" / FILE).read_bytes()
    pemand("calibrate", scenario, folder / "targets.csv")
    assert (folder / "region" / FILE).read_bytes() == before


def test_removing_the_file_restores_the_bytes_and_factors_of_one_change_none(tmp_path):
    scenario = write_study(tmp_path)
    run(scenario, tmp_path / "plain")
    pemand("calibrate", scenario, written(tmp_path, TARGETS))
    run(scenario, tmp_path / "out")
    file = tmp_path / "region" / FILE
    table = pd.read_csv(file)
    assert bytes_of(tmp_path / "out") != bytes_of(tmp_path / "plain")
    table[table["measure"] != "minutes"].assign(value=1.0).to_csv(file, index=False)
    run(scenario, tmp_path / "ones")
    assert bytes_of(tmp_path / "ones") == bytes_of(tmp_path / "plain")
    file.unlink()
    run(scenario, tmp_path / "out")
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "plain")
    manifest = yaml.safe_load((tmp_path / "out" / "run.yaml").read_text())
    assert "calibration" not in manifest and f"region/{FILE}" not in manifest["inputs"]


def test_a_forecast_keeps_the_factors_and_decays(tmp_path):
    scenario = write_study(tmp_path, households=(300, 200, 0), negotiate=NOBODY, years=3)
    plain = forecast(*prepared(scenario), quiet).study
    rows = "trips,all,one person,2,\ntrips,all,with children,20,\nmoves,,all,0.06,\nminutes,nhb,,2.6,\n"
    pemand("calibrate", scenario, written(tmp_path, rows))
    known, history = prepared(scenario)
    last = forecast(known, history, quiet).study
    assert last.year == 3
    homes = last.population.households
    ratio = last.expected["mean"] / expected_trips(homes, last.rates)["mean"]
    by = {(r["measure"], r["group"]): r["value"] for r in known.calibration.rows}
    kind = household_types(homes)
    for name in ("one person", "with children"):
        assert ratio[kind == name].to_numpy() == pytest.approx(by["trips", name])
    assert (ratio[kind == "adults only"] == 1).all()
    base = draw_trips(homes, last.rates, 0, "travel_day:3")["trips"]
    less, same = last.trips["trips"][kind == "one person"], kind == "adults only"
    assert (less <= base[kind == "one person"]).all() and less.sum() < base.sum()
    assert last.trips.loc[same, "trips"].equals(base[same])
    assert last.demand.decay["nhb"] == known.calibration.decay["nhb"]
    share = [s.relocation.households["probability"].mean() for s in (last, plain)]
    assert share[0] < share[1] * (by["moves", "all"] + 0.1)


def test_a_lever_acts_on_the_calibrated_trips(done):
    scenario, calibration, _, _folder = done
    held = yaml.safe_load(scenario.read_text()) | {"levers": {"fuel_price": [{"percent": 50}]}}
    other = scenario.with_name("lever.yaml")
    other.write_text(yaml.safe_dump(held))
    known = study.prepare(read_scenario(other), quiet)
    homes = known.population.households
    before = calibration.drawn(homes, known.rates, 0, study.TRAVEL_DAY)
    assert (known.trips["trips"] <= before["trips"]).all()
    shares = purpose_shares(homes, calibration.rates(known.rates))
    wanted = calibration.expected(homes, known.rates)["mean"] * (shares * known.policy.factors).sum(
        axis=1
    )
    assert known.expected["mean"].to_numpy() == pytest.approx(wanted.to_numpy())


def test_a_scenarios_own_decay_stands_before_the_calibrated_one(done, tmp_path):
    scenario, _calibration, _, folder = done
    own = dict.fromkeys(PURPOSES, 0.2)
    held = yaml.safe_load(scenario.read_text()) | {"demand": {"decay": own}}
    other = scenario.with_name("decay.yaml")
    other.write_text(yaml.safe_dump(held))
    known = study.prepare(read_scenario(other), quiet)
    assert dict(known.demand.decay) == own
    assert "stands before" in known.calibration.note(True)[0]
    said = pemand("calibrate", other, folder / "targets.csv", code=1)
    assert "minutes: the scenario gives demand.decay" in said


BAD = {
    "a misspelt measure": ("trip,all,all,5,\n", "line 2, measure: 'trip' is not known; did you mean 'trips'"),
    "a misspelt purpose": ("trips,hbww,all,5,\n", "did you mean 'hbw'"),
    "a misspelt type": ("trips,hbw,one persn,5,\n", "did you mean 'one person'"),
    "a misspelt group": ("moves,,rnt 25-34,0.1,\n", "did you mean 'rent 25-34'"),
    "moves have no purpose": ("moves,hbw,all,0.1,\n", "purpose: must be empty for moves"),
    "lengths have no group": ("minutes,hbw,all,9,\n", "group: must be empty for minutes"),
    "lengths are of one purpose": ("minutes,all,,9,\n", "'all' is not known for minutes"),
    "no number": ("trips,hbw,all,many,\n", "line 2, value: must be a number of 0 or more"),
    "a rate of one": ("moves,,all,1,\n", "between 0 and 1"),
    "no minutes": ("minutes,hbw,,0,\n", "above 0 (minutes)"),
    "a cell twice": ("trips,all,one person,5,\ntrips,hbw,all,1,\n", "line 3: answers for what line 2"),
    "a group twice": ("moves,,rent,0.1,\nmoves,,rent 25-34,0.2,\n", "line 3: answers for what line 2"),
    "nothing": ("", "has no row"),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "said"), BAD.values(), ids=BAD)
def test_faulty_targets_are_told_with_line_and_mend(tmp_path, rows, said):
    with pytest.raises(TableError, match=r"targets\.csv") as refused:
        read_targets(written(tmp_path, rows))
    assert said in refused.value.message


def test_all_faults_of_the_targets_are_told_at_once(tmp_path):
    rows = "trips,hbw,al,x,\nmoves,,all,2,\nminute,hbw,,3,\n"
    with pytest.raises(TableError) as refused:
        read_targets(written(tmp_path, rows))
    assert all(f"line {n}" in refused.value.message for n in (2, 3, 4))
    assert "line 2, value" in refused.value.message and "line 2, group" in refused.value.message
    with pytest.raises(TableError, match="more cells than the header"):
        read_targets(written(tmp_path, "moves,,all,0.1,ACS 2019, my county\n"))
    with pytest.raises(TableError, match=r"column measure is missing[\s\S]*did you mean 'measure'"):
        read_targets(written(tmp_path, "trips,all,all,1,\n", HEADER.replace("measure", "mesure")))


def test_targets_that_the_population_cannot_meet_are_told_and_nothing_is_written(tmp_path):
    scenario = write_study(tmp_path, negotiate=NOBODY)
    rows = "moves,,own 15-24,0.1,\nmoves,,rent,0.9,\n"
    said = pemand("calibrate", scenario, written(tmp_path, rows), code=1)
    assert "no household of 'own 15-24'" in said and "finer group of 'rent'" in said
    said = pemand("calibrate", scenario, written(tmp_path, "minutes,hbw,,500,\n"), code=1)
    assert "targets.csv: hbw: 500 minutes cannot be reached" in said
    assert not (tmp_path / "region" / FILE).exists()


def test_a_file_that_pemand_did_not_write_is_told_and_kept(tmp_path):
    scenario = write_study(tmp_path, negotiate=NOBODY)
    file = tmp_path / "region" / FILE
    file.write_text("zone,count\n1,2\n")
    said = pemand("calibrate", scenario, written(tmp_path, "trips,all,all,9,\n"), code=1)
    assert "calibration.csv" in said and "column measure is missing" in said
    assert file.read_text() == "zone,count\n1,2\n"
    assert "calibration.csv" in run(scenario, tmp_path / "out", code=1)


def test_a_target_of_no_trips_takes_them_all():
    rows = [("trips", "all", "one person", 4.0, 0.0, 0.0)]
    names = ["measure", "purpose", "group", "modelled", "target", "value"]
    none = Calibration.of(pd.DataFrame(rows, columns=names))
    assert (none.trips.loc["one person"] == 0).all()
    assert (none.trips.drop("one person") == 1).all(axis=None)
