"""Time and money under `negotiate`: how many households they become, and that only the count acts."""

import os

import pytest
import yaml
from test_run import bytes_of, pemand, run, write_study

from pemand_abm.errors import SettingsError
from pemand_abm.scenario import EVERYBODY, Limit, Negotiate, read_scenario
from pemand_abm.study import prepare

PACE = {"calls_per_minute": 2}
PRICES = {
    "usd_per_million_tokens_in": 1000.0,
    "usd_per_million_tokens_out": 2000.0,
    "tokens_out_per_call": 10.0,
}


def manifest(out):
    return yaml.safe_load((out / "run.yaml").read_text())


def measured(out, pace):
    """Let a run's manifest tell a pace, which the scripted model is too quick to have."""
    path = out / "run.yaml"
    path.write_text(yaml.safe_dump(manifest(out) | {"calls_per_minute": pace}))


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (24, 24),
        (24.0, 24),
        ("24", 24),
        ("24 households", 24),
        ("1 household", 1),
        ("all", EVERYBODY),
        ("none", 0),
        ("2 hours", Limit(120, "minutes", "2 hours")),
        ("90 minutes", Limit(90, "minutes", "90 minutes")),
        ("2.5 usd", Limit(2.5, "USD", "2.5 usd")),
    ],
)
def test_words_are_read(words, meant):
    assert Negotiate(trips=words).trips == meant
    assert Negotiate(relocation=words).relocation == meant


@pytest.mark.parametrize("words", ["2 weeks", "al", "1.5 households", -1, 2.5, True, [3], float("inf"), "-2 hours"])  # fmt: skip
def test_other_words_are_one_error_that_names_the_key(tmp_path, words):
    scenario = write_study(tmp_path, negotiate={"trips": words})
    with pytest.raises(SettingsError) as fault:
        read_scenario(scenario)
    assert str(fault.value).count("negotiate.trips: must be a whole number of households") == 1
    assert "`90 minutes`" in str(fault.value)


def test_a_run_of_limited_time_is_the_run_of_its_count(tmp_path):
    asked = {"trips": "30 minutes", "relocation": "20 minutes"}
    scenario = write_study(tmp_path, negotiate=asked, budget=PACE)
    told = run(scenario, tmp_path / "limited")
    made = manifest(tmp_path / "limited")
    counts = made["settings"]["negotiate"]
    for kind, minutes in (("trips", 30), ("relocation", 20)):
        held = made["converted"][kind]
        assert held["given"] == asked[kind] and held["unit"] == "minutes"
        each = held["calls_per_household"] / PACE["calls_per_minute"]
        assert held["each"] == pytest.approx(each, abs=1e-3)
        assert counts[kind] == held["households"] == int(minutes / held["each"]) > 0
        assert f"negotiate.{kind}: {asked[kind]} are {counts[kind]} households" in told
        assert made["sampled"][kind] == counts[kind]
    card = (tmp_path / "limited" / "report.html").read_text(encoding="utf-8")
    assert f"30 minutes, converted into {counts['trips']} households" in card
    numbers = {kind: counts[kind] for kind in asked}
    run(write_study(tmp_path, negotiate=numbers, budget=PACE), tmp_path / "counted")
    assert bytes_of(tmp_path / "limited") == bytes_of(tmp_path / "counted")
    assert "converted" not in manifest(tmp_path / "counted")
    assert not (tmp_path / "counted" / "negotiate.yaml").exists()


def test_twice_the_money_pays_for_twice_the_households(tmp_path):
    counts = []
    for usd in (100, 200):
        asked = {"trips": f"{usd} USD", "relocation": 0}
        scenario = write_study(tmp_path, negotiate=asked, budget=PRICES)
        run(scenario, tmp_path / str(usd))
        held = manifest(tmp_path / str(usd))["converted"]["trips"]
        assert held["households"] == int(usd / held["each"])
        paid = held["tokens_in"] * 1000 + held["tokens_out"] * 2000
        assert held["each"] == pytest.approx(held["calls_per_household"] * paid / 1e6, rel=1e-3)
        counts.append(held["households"])
    assert counts[1] - 2 * counts[0] in (0, 1) and counts[0] > 0


def test_the_count_stays_whatever_pace_is_measured_since(tmp_path):
    out = tmp_path / "out"
    run(write_study(tmp_path, negotiate={"trips": 4, "relocation": 0}), out)
    measured(out, 2)
    scenario = write_study(tmp_path, negotiate={"trips": "30 minutes", "relocation": 0})
    run(scenario, out)
    before, count = bytes_of(out), manifest(out)["converted"]["trips"]["households"]
    measured(out, 20)
    assert ", 0 of them asked now" in run(scenario, out)
    assert bytes_of(out) == before
    # A run that was killed has no run.yaml, and goes on with its count.
    os.remove(out / "run.yaml")
    run(scenario, out)
    assert bytes_of(out) == before
    # Other words are converted anew, by the pace of the run that stands there.
    measured(out, 1)
    run(write_study(tmp_path, negotiate={"trips": "31 minutes", "relocation": 0}), out)
    assert manifest(out)["converted"]["trips"]["households"] < count


def test_a_scenario_negotiates_with_as_many_as_its_base(tmp_path):
    asked = {"trips": "30 minutes", "relocation": 0}
    scenario = write_study(tmp_path, negotiate=asked, budget=PACE)
    run(scenario, tmp_path / "small")
    policy = tmp_path / "policy.yaml"
    own = {"title": "Fuel", "base": "small.yaml", "levers": {"fuel_price": {"percent": 50}}}
    policy.write_text(yaml.safe_dump(own | {"budget": {"calls_per_minute": 4}}))
    run(policy, tmp_path / "policy")
    one, other = (manifest(tmp_path / name) for name in ("small", "policy"))
    assert one["converted"] == other["converted"]
    assert one["sampled"] == other["sampled"]


def test_without_a_rate_one_error_says_what_to_do_and_nothing_is_begun(tmp_path):
    out = tmp_path / "out"
    asked = {"trips": "2 hours", "relocation": "10 USD"}
    said = run(write_study(tmp_path, negotiate=asked), out, code=1)
    assert said.count("Error:") == 1 and "Synthesizing" not in said
    for word in (
        "negotiate.trips: '2 hours'",
        "budget.calls_per_minute",
        "negotiate.relocation: '10 USD'",
        "budget.usd_per_million_tokens_in",
        "budget.tokens_out_per_call",
        "run it once",
    ):
        assert word in said, word
    assert not out.exists()
    half = write_study(tmp_path, budget={"usd_per_million_tokens_in": 1})
    assert "give both" in run(half, out, code=1)


@pytest.mark.parametrize("other", ["openai:another", {"use": "scripted", "replicas": 8}])
def test_the_pace_of_another_model_or_of_more_replicas_is_none_of_this_ones(tmp_path, other):
    out = tmp_path / "out"
    run(write_study(tmp_path, negotiate={"trips": 4, "relocation": 0}), out)
    path = out / "run.yaml"
    made = manifest(out) | {"calls_per_minute": 30.0}
    made["settings"]["model"] = other
    path.write_text(yaml.safe_dump(made))
    limited = write_study(tmp_path, negotiate={"trips": "2 hours", "relocation": 0})
    assert "no pace of the model 'scripted' is known" in run(limited, out, code=1)


def test_a_limit_that_is_none_and_one_that_pays_for_nobody_are_refused(tmp_path):
    free = PRICES | {"usd_per_million_tokens_in": 0, "usd_per_million_tokens_out": 0}
    asked = {"trips": "1 USD", "relocation": 0}
    said = run(write_study(tmp_path, negotiate=asked, budget=free), tmp_path / "out", code=1)
    assert "negotiate.trips: '1 USD' is no limit" in said
    asked = {"trips": "1 minute", "relocation": 0}
    scenario = write_study(tmp_path, negotiate=asked, budget={"calls_per_minute": 0.1})
    assert "pays for nobody" in run(scenario, tmp_path / "out", code=1)


def test_estimate_tells_the_count_that_a_run_takes(tmp_path):
    asked = {"trips": "30 minutes", "relocation": 0}
    scenario = write_study(tmp_path, negotiate=asked, budget=PACE)
    told = pemand("estimate", scenario)
    run(scenario, tmp_path / "out")
    count = manifest(tmp_path / "out")["converted"]["trips"]["households"]
    assert f"negotiate.trips: 30 minutes are {count} households" in told
    assert f"{count} of 100 households negotiate" in told


def test_a_study_is_not_prepared_with_words_that_nobody_converted(tmp_path):
    scenario = read_scenario(write_study(tmp_path, negotiate={"trips": "2 hours"}))
    with pytest.raises(SettingsError, match="is not converted into households"):
        prepare(scenario, lambda _: None)
