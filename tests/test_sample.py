"""The sample of households that negotiate."""

import numpy as np
import pandas as pd
import pytest

from pemand_abm.sample import draw_sample


def population(n=4000):
    index = pd.RangeIndex(1, n + 1, name="household_id")
    size = 1 + index % 4
    return pd.DataFrame(
        {
            "hhsize": size,
            "children": np.where(size > 2, size - 2, 0),
            "district": np.where(index % 3, "North", "South"),
        },
        index=index,
    )


def test_the_sample_has_the_wanted_size_and_at_least_four_a_stratum():
    homes = population()
    sample = draw_sample(homes, homes["hhsize"].astype(float), 60, 0, "trips")
    assert len(sample) == 60
    assert sample["stratum"].nunique() == 6
    assert sample["stratum"].value_counts().min() >= 4


def test_six_negotiations_allow_one_stratum():
    homes = population()
    sample = draw_sample(homes, homes["hhsize"].astype(float), 6, 0, "trips")
    assert sample["stratum"].unique().tolist() == ["all households"]
    assert len(sample) == 6


def test_inclusion_grows_with_uncertainty_and_expands_to_the_population():
    homes = population()
    uncertain = homes["hhsize"].astype(float)
    counts = []
    for seed in range(60):
        sample = draw_sample(homes, uncertain, 60, seed, "trips")
        counts.append((1 / sample["inclusion"]).sum())
        by_size = sample["inclusion"].groupby(homes.loc[sample.index, "hhsize"]).mean()
        assert by_size.max() > by_size.min()
        assert sample["inclusion"].min() >= 0.3 * 60 / len(homes) - 1e-12
    # Horvitz-Thompson: the inverse probabilities add up to the number of households, on average.
    error = np.std(counts) / np.sqrt(len(counts))
    assert np.mean(counts) == pytest.approx(len(homes), abs=4 * error)


def test_a_household_keeps_its_place_when_others_are_taken_away():
    homes = population()
    uncertain = homes["hhsize"].astype(float)
    full = draw_sample(homes, uncertain, 40, 7, "trips")
    some = homes.index.isin(full.index[:20]) | (np.arange(len(homes)) % 2 == 0)
    part = draw_sample(homes[some], uncertain[some], 40, 7, "trips")
    assert set(full.index[:20]) <= set(part.index) | set(full.index)
    assert len(set(full.index[:20]) & set(part.index)) >= 15


@pytest.mark.parametrize("n", [0, 1, 3, 5, 9])
def test_small_and_empty_samples_and_regions_work(n):
    homes = population(5)
    sample = draw_sample(homes, homes["hhsize"].astype(float), n, 0, "trips")
    assert len(sample) == min(n, 5)
