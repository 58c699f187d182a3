"""The decay is found again from the mean trip length that it gives; impossible lengths are told."""

import numpy as np
import pandas as pd
import pytest
import yaml
from test_run import run, write_study

from pemand_abm.demand import gravity, mean_minutes
from pemand_abm.errors import SettingsError
from pemand_abm.lengths import calibrated_decay


def town(zones=30, seed=4):
    """Return productions, attractions and minutes between points in a square of half an hour."""
    rng = np.random.default_rng(seed)
    at = rng.random((zones, 2)) * 30
    minutes = 2 + np.hypot(*(at[:, None, :] - at[None, :, :]).T).T
    p, a = rng.random(zones) * 1e4, rng.random(zones) * 1e4
    p[3], a[5] = 0, 0
    return p, a * p.sum() / a.sum(), minutes


@pytest.mark.parametrize("decay", [0.0, 0.004, 0.137, 1.1])
def test_a_known_decay_is_found_from_the_mean_it_gives(decay):
    p, a, minutes = town()
    mean = mean_minutes(gravity(p, a, minutes, decay), minutes)
    assert calibrated_decay(p, a, minutes, mean) == pytest.approx(decay, rel=1e-6, abs=1e-9)


def test_the_mean_is_that_of_the_trips_not_of_the_pairs():
    assert mean_minutes(np.array([[3, 1], [0, 0]]), np.array([[10.0, 30], [7, 7]])) == 15
    assert np.isnan(mean_minutes(np.zeros((2, 2)), np.ones((2, 2))))


def test_a_mean_above_that_without_decay_cannot_be_reached():
    p, a, minutes = town()
    with pytest.raises(SettingsError, match=r"90 minutes cannot be reached: without any decay"):
        calibrated_decay(p, a, minutes, 90)


def test_a_mean_below_what_the_totals_allow_cannot_be_reached():
    # All trips of the first zone must go to the second, 10 minutes away, whatever the decay.
    p, a, minutes = np.array([5.0, 0]), np.array([0.0, 5]), np.array([[1.0, 10], [10, 1]])
    with pytest.raises(SettingsError, match=r"cannot be reached: with a decay of .* still take 10"):
        calibrated_decay(p, a, minutes, 4)


def with_lengths(folder, lengths, **settings):
    scenario = write_study(folder, negotiate={"trips": 0, "relocation": 0}, **settings)
    recipe = folder / "region" / "recipe.yaml"
    held = yaml.safe_load(recipe.read_text()) | {"mean_minutes": lengths}
    recipe.write_text(yaml.safe_dump(held))
    return scenario


def balance(folder):
    return pd.read_csv(folder / "out" / "demand_balance.csv").set_index("purpose")


def test_a_run_meets_the_recipes_lengths_and_its_decays_give_them_again(tmp_path):
    lengths = {"hbw": 4.4, "hbo": 3.25}
    run(with_lengths(tmp_path / "a", lengths), tmp_path / "a" / "out")
    first = balance(tmp_path / "a")
    assert first.loc[list(lengths), "mean_minutes"].tolist() == [4.4, 3.25]
    assert first["wanted_minutes"].dropna().to_dict() == lengths
    # A what-if gives its baseline's decays, and the recipe's lengths then ask for nothing.
    decay = first["decay_per_minute"].to_dict()
    frozen = with_lengths(tmp_path / "b", {"hbw": 4.5}, demand={"decay": decay})
    run(frozen, tmp_path / "b" / "out")
    assert balance(tmp_path / "b")["mean_minutes"].equals(first["mean_minutes"])


def test_lengths_that_no_decay_gives_and_purposes_that_are_none_are_told(tmp_path):
    said = run(with_lengths(tmp_path / "a", {"hbw": 400}), tmp_path / "a" / "out", code=1)
    assert "hbw: 400 minutes cannot be reached" in said and "SOV_TIME__AM" in said
    said = run(with_lengths(tmp_path / "b", {"hbshp": 4}), tmp_path / "b" / "out", code=1)
    assert "did you mean 'hbshop'" in said
