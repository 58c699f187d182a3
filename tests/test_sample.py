"""The sample of households that negotiate."""

import numpy as np
import pandas as pd
import pytest

from pemand_abm.sample import design_sample, draw_sample, household_types


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
    assert sample["stratum"].value_counts().min() >= 4
    full = draw_sample(homes, homes["hhsize"].astype(float), 300, 0, "trips")
    assert full["stratum"].nunique() == 6


@pytest.mark.parametrize("n", [8, 24, 61, 100])
def test_strata_are_joined_until_each_has_four_and_share_by_uncertainty(n):
    homes = population().assign(district=lambda d: [f"D{i % 9}" for i in d.index])
    uncertain = homes["hhsize"].astype(float)
    design = design_sample(homes, uncertain, n)
    taken = design.groupby("stratum")["taken"].first()
    assert taken.sum() == n and taken.min() >= 4 and len(taken) <= n // 4
    fair = n * uncertain.groupby(design["stratum"]).sum() / uncertain.sum()
    assert ((taken - fair).abs() < 1).all()
    assert design.groupby("stratum")["inclusion"].sum().to_numpy() == pytest.approx(taken)
    # Types stay apart as long as there are enough negotiations for each.
    names = design.groupby("stratum").ngroup().groupby(household_types(homes)).nunique()
    assert n < 24 or names.max() > 1


def test_a_household_of_little_uncertainty_keeps_a_third_of_the_mean_chance():
    homes = population()
    uncertain = pd.Series(np.where(homes.index % 5, 0.001, 10.0), index=homes.index)
    design = design_sample(homes, uncertain, 40)
    assert design["inclusion"].min() >= 0.3 * 40 / len(homes) - 1e-12


def test_everybody_is_taken_where_as_many_are_asked_for():
    homes = population(40)
    design = design_sample(homes, homes["hhsize"].astype(float), 40)
    assert (design["inclusion"] == 1).all() and design.groupby("stratum")[
        "taken"
    ].first().sum() == 40


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
