"""A population that others made is read as the region's, checked like our own."""

import numpy as np
import pandas as pd
import pytest
import yaml
from regions import recipe, write_region
from test_run import RATES, pemand, run

from pemand_abm.errors import SettingsError, TableError
from pemand_abm.region import read_region
from pemand_abm.synthesis import synthesize

LEFT_OUT = ("seed", "geographies", "crosswalk", "totals", "controls", "household_total")


def given(folder, ids=(10, 20, 35), **changes):
    """Write a region, synthesize it, and write the region again with that as its population."""
    first = write_region(folder / "first", ids)
    made = synthesize(read_region(first, skims=False), 3)
    second = write_region(folder / "second", ids)
    homes = made.households.drop(columns="seed_id").rename(columns={"hhsize": "NP"})
    homes.rename_axis("hh_id").rename(columns={"home_zone_id": "TAZ"}).sample(
        frac=1, random_state=1
    ).to_csv(second / "their_households.csv")
    people = made.persons.rename(columns={"household_id": "hh_id"})
    people.to_csv(second / "their_persons.csv")
    told = {k: v for k, v in recipe().items() if k not in LEFT_OUT}
    told["population"] = {
        "households": "their_households.csv",
        "persons": "their_persons.csv",
        "id": "hh_id",
        "zone": "TAZ",
        "columns": {"hhsize": "NP"},
    } | changes
    (second / "recipe.yaml").write_text(yaml.safe_dump(told, sort_keys=False))
    return made, second


@pytest.mark.parametrize("ids", [(10, 20, 35), ("SF-Mission", "A", "Z 9")])
def test_a_given_population_is_the_regions(tmp_path, ids):
    made, folder = given(tmp_path, ids)
    read = synthesize(read_region(folder, skims=False), 0)
    assert len(read.households) == len(made.households)
    assert len(read.persons) == len(made.persons)
    counts = [p.households.groupby("home_zone_id").size().to_dict() for p in (made, read)]
    assert counts[0] == counts[1]
    # Each household keeps its members, its income and its zone under its own id.
    again = read.households.set_index("seed_id").sort_index()
    for column in ("hhsize", "income", "tenure", "home_zone_id", "age_of_head"):
        assert again[column].tolist() == made.households[column].tolist(), column
    ages = read.persons.groupby("household_id")["age"].sum()
    theirs = made.persons.groupby("household_id")["age"].sum()
    back = ages.set_axis(read.households.loc[ages.index, "seed_id"]).sort_index()
    assert back.tolist() == theirs.tolist()


def test_a_run_takes_a_given_population(tmp_path):
    made, folder = given(tmp_path)
    scenario = tmp_path / "given.yaml"
    told = {"title": "Given", "region": str(folder), "rates": str(RATES), "model": "scripted"}
    scenario.write_text(yaml.safe_dump(told | {"negotiate": {"trips": 2, "relocation": 1}}))
    printed = run(scenario, tmp_path / "out")
    assert f"{len(made.households):,} households" in printed
    demand = pd.read_csv(tmp_path / "out" / "demand.csv")
    assert demand["zone_id"].tolist() == [10, 20, 35]  # The zone without households too.
    assert demand["households"].sum() == len(made.households)
    assert (tmp_path / "out" / "report.html").exists()
    printed = pemand("synthesize", folder, "--out", tmp_path / "population")
    assert "households" in printed and not (tmp_path / "population" / "fit.html").exists()


def test_what_is_wrong_with_a_given_population_is_told_at_once(tmp_path):
    _, folder = given(tmp_path)
    homes = pd.read_csv(folder / "their_households.csv")
    homes.loc[0, "TAZ"] = 99
    homes.loc[1, "NP"] = 9
    homes.to_csv(folder / "their_households.csv", index=False)
    with pytest.raises(TableError) as fault:
        read_region(folder, skims=False)
    said = fault.value.message
    assert "1 households live in zones without a polygon" in said and ": 99" in said
    assert "column hhsize: 1 households differ from persons in their_persons.csv" in said


def test_a_recipe_has_one_population(tmp_path):
    _, folder = given(tmp_path)
    told = yaml.safe_load((folder / "recipe.yaml").read_text())
    (folder / "recipe.yaml").write_text(yaml.safe_dump(told | {"controls": "controls.csv"}))
    with pytest.raises(SettingsError, match="so controls are of no use"):
        read_region(folder, skims=False)
    none = {k: v for k, v in told.items() if k != "population"} | {"controls": "controls.csv"}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(none))
    with pytest.raises(SettingsError, match=r"'seed', 'geographies'.* lacking"):
        read_region(folder, skims=False)


def test_the_order_of_given_households_does_not_matter(tmp_path):
    _, folder = given(tmp_path)
    one = synthesize(read_region(folder, skims=False), 0)
    path = folder / "their_households.csv"
    homes = pd.read_csv(path)
    homes.iloc[np.arange(len(homes))[::-1]].to_csv(path, index=False)
    other = synthesize(read_region(folder, skims=False), 0)
    pd.testing.assert_frame_equal(one.households, other.households)
