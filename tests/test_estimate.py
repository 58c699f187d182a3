"""`pemand estimate`: what it says before a run is what the run then takes."""

import re

import pytest
import yaml
from test_run import pemand, run, write_study


def test_calls_are_those_that_the_run_then_takes(tmp_path):
    scenario = write_study(tmp_path, negotiate={"trips": 8, "relocation": 4})
    told = pemand("estimate", scenario)
    run(scenario, tmp_path / "out")
    manifest = yaml.safe_load((tmp_path / "out" / "run.yaml").read_text())
    about = int(re.search(r"about ([\d,]+) for 12 negotiations", told)[1].replace(",", ""))
    # The run shares personas of the same facts through its journal but counts them as calls.
    assert about == manifest["calls"]
    assert "8 of 100 households negotiate" in told and "standard error" in told


def test_time_and_money_follow_from_the_rates_and_convert_a_budget(tmp_path):
    scenario = write_study(tmp_path, negotiate={"trips": 4, "relocation": 0})
    rates = ["--calls-per-minute", 2, "--usd-per-million-tokens-in", 1_000_000]
    rates += ["--usd-per-million-tokens-out", 0, "--tokens-out-per-call", 10]
    told = pemand("estimate", scenario, *rates, "--budget", "30 minutes")
    calls = int(re.search(r"about ([\d,]+) for 4 negotiations", told)[1].replace(",", ""))
    tokens = int(re.search(r"about ([\d,]+) read", told)[1].replace(",", ""))
    money = float(re.search(r"about ([\d,.]+) USD", told)[1].replace(",", ""))
    assert f"{calls * 10:,} written" in told
    assert money == pytest.approx(tokens, abs=1)  # A USD a token.
    households = int(re.search(r"30 minutes pay for about ([\d,]+)", told)[1])
    assert households == int(30 / (calls / 2 / 4))
    cut = write_study(tmp_path, negotiate={"trips": 4, "relocation": 0}, budget={"calls": 5})
    assert "about 5 for 4 negotiations of all kinds, at most 5" in pemand("estimate", cut)


def test_pace_and_tokens_come_from_an_earlier_run(tmp_path):
    scenario = write_study(tmp_path, negotiate={"trips": 4, "relocation": 0})
    run(scenario, tmp_path / "out")
    path = tmp_path / "out" / "run.yaml"
    made = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(made | {"calls_per_minute": 30.0}))
    told = pemand("estimate", scenario, "--from", tmp_path / "out")
    assert "at 30 calls a minute" in told
    # Of a call that was asked: those that the run took from its journal cost it no tokens.
    read, written = (
        made["calls"] * made["tokens"][kind] / made["calls_asked"]
        for kind in ("prompt", "completion")
    )
    assert f"about {read:,.0f} read, {written:,.0f} written" in told
    run(scenario, tmp_path / "out")
    assert yaml.safe_load(path.read_text())["calls_asked"] == 0
    again = pemand("estimate", scenario, "--from", tmp_path / "out")
    assert "rule of thumb" in again and "written" not in again
    assert "run.yaml: cannot be read" in pemand(
        "estimate", scenario, "--from", tmp_path / "region", code=1
    )


def test_all_and_none_are_counts_and_unknown_budgets_are_refused(tmp_path):
    scenario = write_study(tmp_path, negotiate={"trips": "none", "relocation": "none"})
    told = pemand("estimate", scenario, "--budget", "1 hour")
    assert "None of 100 households" in told and "nobody negotiates" in told
    assert "finite" in pemand("estimate", scenario, "--calls-per-minute", "nan", code=2)
    assert "give both" in pemand("estimate", scenario, "--usd-per-million-tokens-in", 1, code=2)
    assert "write a number" in pemand("estimate", scenario, "--budget", "2 weeks", code=2)
    everybody = write_study(tmp_path, negotiate={"trips": "all", "relocation": 0})
    assert "100 of 100 households negotiate" in pemand("estimate", everybody)
    typo = write_study(tmp_path, negotiate={"trips": "al", "relocation": 0})
    assert "negotiate.trips" in run(typo, tmp_path / "out", code=1)
