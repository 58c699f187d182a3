"""The turn of a year: the accounts close, no draw depends on others, and nobody lives nowhere."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pemand_abm.errors import TableError
from pemand_abm.housing import HousingSettings
from pemand_abm.lifecourse import (
    Residents,
    Stock,
    counted,
    household_types,
    person_types,
    place,
    reseated,
    turn_of_year,
)
from pemand_abm.liferates import groups, read_life, within_region
from pemand_abm.relocation import decide_by_levels, frozen_levels
from pemand_abm.surrogate import move_rates, read_rates

ROOT = Path(__file__).resolve().parents[1]
RATES = ROOT / "synthpop" / "rates"
LIFE = read_life(RATES)
MINUTES = np.array([[2.0, 9, 15], [9, 2, 8], [15, 8, 2]])


def town(copies=3):
    """Return the surveyed households of sf25, each *copies* times, over three zones."""
    homes = pd.read_csv(ROOT / "synthpop/sf25/seed_households.csv").rename_axis("household_id")
    people = pd.read_csv(ROOT / "synthpop/sf25/seed_persons.csv")
    n = len(homes)
    place = homes["seed_id"].reset_index().set_index("seed_id")["household_id"]
    many = pd.concat([homes] * copies, ignore_index=True).rename_axis("household_id")
    many.index = many.index * 3 + 1_000_000_000_000  # Ids need no order from 1.
    zone = np.array([10, 20, 35])[np.arange(len(many)) % 3]
    many = many.assign(home_zone_id=zone, district="here").drop(columns="weight")
    home = people["seed_id"].map(place)
    parts = [
        people.assign(household_id=(home + n * c) * 3 + 1_000_000_000_000) for c in range(copies)
    ]
    persons = pd.concat(parts, ignore_index=True).drop(columns="seed_id")
    persons.index = pd.RangeIndex(7, 7 + len(persons), name="person_id")
    return many, persons


def stock(homes, spare=1.05):
    zones = pd.Index([10, 20, 35], name="zone_id")
    lived = homes["home_zone_id"].value_counts().reindex(zones)
    table = pd.DataFrame(
        {"dwellings": np.floor(lived * spare).astype(int), "median_income": 40_000}, index=zones
    )
    return Stock(table, MINUTES, HousingSettings())


def years(n=6, spare=1.01, copies=2):
    """Run *n* turns; give the residents before and the turn, for each."""
    homes, people = town(copies)
    residents, have = Residents.of(homes, people), stock(homes, spare)
    for year in range(2, n + 2):
        turn = turn_of_year(residents, have, LIFE, 0, year, 1000 * year)
        yield residents, turn, have
        residents = turn.residents


@pytest.fixture(scope="module")
def run():
    return list(years())


def test_households_and_persons_are_those_before_plus_who_came_less_who_went(run):
    for before, turn, _ in run:
        f, after = turn.flows, turn.residents
        assert len(after.households) - len(before.households) == (
            f["households_formed"] + f["households_in"]
            - f["households_dissolved"] - f["households_out"]
        )  # fmt: skip
        assert len(after.persons) - len(before.persons) == (
            f["births"] + f["persons_in"] - f["deaths"] - f["persons_out"]
        )
        # Who is in both lists is the same person: a year older, of the same sex.
        same = before.persons.index.intersection(after.persons.index)
        old, new = before.persons.loc[same], after.persons.loc[same]
        assert (new["age"] == old["age"] + 1).all() and (new["sex"] == old["sex"]).all()
        assert len(before.persons) - len(same) == f["deaths"] + f["persons_out"]


def test_every_household_has_members_one_reference_person_and_a_dwelling(run):
    for _, turn, have in run:
        homes, people = turn.residents.households, turn.residents.persons
        assert set(people["household_id"]) == set(homes.index)
        heads = people[people["relate"] == "reference person"]
        assert heads["household_id"].is_unique and len(heads) == len(homes)
        assert heads["age"].min() >= 15
        assert not people.duplicated(["household_id", "PNUM"]).any()
        assert (heads["PNUM"] == 1).all()
        assert counted(homes, people).equals(homes)
        assert homes.notna().all(axis=None) and people.notna().all(axis=None)
        lived = homes["home_zone_id"].value_counts().reindex(have.zones.index, fill_value=0)
        assert (lived <= have.zones["dwellings"]).all()


def test_new_ids_follow_all_that_were_and_none_comes_back(run):
    gone_homes, gone_people = set(), set()
    for before, turn, _ in run:
        after = turn.residents
        for old, new, gone, first in (
            (before.households.index, after.households.index, gone_homes, before.next_household),
            (before.persons.index, after.persons.index, gone_people, before.next_person),
        ):
            assert new.is_unique and new.dtype == "int64"
            assert new.difference(old).min() >= first
            assert not gone & set(new)
            gone |= set(old.difference(new))


def test_the_events_are_those_of_the_accounts(run):
    kinds = {
        "born": "births", "died": "deaths", "formed": "households_formed",
        "dissolved": "households_dissolved", "arrived": "households_in",
        "left_region": "households_out", "found_no_home": "no_home",
    }  # fmt: skip
    for before, turn, _ in run:
        counts = turn.events["kind"].value_counts()
        assert all(counts.get(kind, 0) == turn.flows[flow] for kind, flow in kinds.items())
        dead = turn.events.loc[turn.events["kind"] == "died", "person_id"].astype("int64")
        assert set(dead) <= set(before.persons.index)
        assert not set(dead) & set(turn.residents.persons.index)
        born = turn.events.loc[turn.events["kind"] == "born", "person_id"].astype("int64")
        babies = turn.residents.persons.loc[born]
        assert (babies["age"] == 0).all()
        assert set(turn.residents.persons.index[turn.residents.persons["age"] == 0]) >= set(born)


def test_the_order_of_the_rows_changes_nothing():
    homes, people = town(1)
    have = stock(homes)
    plain = turn_of_year(Residents.of(homes, people), have, LIFE, 0, 2, 0)
    mixed = Residents(
        homes.sample(frac=1, random_state=1),
        people.sample(frac=1, random_state=2),
        int(homes.index.max()) + 1,
        int(people.index.max()) + 1,
    )
    other = turn_of_year(mixed, have, LIFE, 0, 2, 0)
    assert plain.residents.households.equals(other.residents.households)
    assert plain.residents.persons.equals(other.residents.persons)
    assert plain.events.equals(other.events) and plain.flows == other.flows


def test_who_dies_or_leaves_does_not_depend_on_who_else_lives_there():
    homes, people = town(1)
    half = homes.iloc[::2]
    few = people[people["household_id"].isin(half.index)]
    whole = turn_of_year(Residents.of(homes, people), stock(homes), LIFE, 0, 2, 0).events
    part = turn_of_year(Residents.of(half, few), stock(homes), LIFE, 0, 2, 0).events
    for kind in ("died", "left_region"):
        own = whole[(whole["kind"] == kind) & whole["household_id"].isin(half.index)]
        assert set(own["household_id"]) == set(part.loc[part["kind"] == kind, "household_id"])


def test_other_seeds_and_other_years_draw_anew():
    homes, people = town(1)
    residents, have = Residents.of(homes, people), stock(homes)
    turns = [
        turn_of_year(residents, have, LIFE, seed, year, 0)
        for seed, year in ((0, 2), (1, 2), (0, 3))
    ]
    dead = [set(t.events.loc[t.events["kind"] == "died", "person_id"]) for t in turns]
    assert dead[0] != dead[1] and dead[0] != dead[2]


def test_events_come_as_often_as_their_rates_say():
    homes, people = town(12)
    turn = turn_of_year(Residents.of(homes, people), stock(homes, 1.2), LIFE, 3, 2, 0)
    counts = turn.events["kind"].value_counts()
    leave, arrive = (LIFE.migrating(homes, way) for way in ("leave", "arrive"))
    stays = people[~people["household_id"].isin(homes.index[leave > 1])]
    expected = {
        "left_region": leave,
        "died": LIFE.dying(stays) * (1 - leave.mean()),
        "arrived": arrive * (1 - leave.mean()),
    }
    for kind, p in expected.items():
        assert abs(counts[kind] - p.sum()) < 4 * np.sqrt(p.sum()), kind
    # Half of those born are boys, within four standard errors.
    babies = turn.residents.persons.query("age == 0")
    assert abs((babies["sex"] == 1).mean() - 0.512) < 4 * 0.5 / np.sqrt(len(babies))


def test_a_full_town_takes_in_only_as_many_as_it_loses():
    for _, turn, _ in years(2, spare=1.0):
        f = turn.flows
        assert f["no_home"] + f["turned_away"] > 0
        assert f["households_formed"] + f["households_in"] <= (
            f["households_out"] + f["households_dissolved"]
        )
        # Who found no home is still there.
        lost = turn.events.loc[turn.events["kind"] == "found_no_home", "person_id"]
        assert set(lost) <= set(turn.residents.persons.index)


def test_places_go_by_rank_then_order_and_never_beyond_what_is_vacant():
    choices = np.array([[0, 1], [0, 2], [0, 1], [1, 0]])
    got = place(choices, np.array([0.4, 0.1, 0.3, 0.2]), np.array([1, 1, 0]))
    assert got.tolist() == [-1, 0, -1, 1]


def people_of(*rows):
    table = pd.DataFrame(rows, columns=["household_id", "age", "sex", "relate"])
    table.index = pd.RangeIndex(1, len(table) + 1, name="person_id")
    return table.assign(PNUM=table.groupby("household_id").cumcount() + 1)


def test_a_widow_heads_the_household_and_her_children_stay_her_children():
    people = people_of((1, 60, 2, "spouse"), (1, 30, 1, "child"), (1, 85, 2, "parent"))
    assert reseated(people)["relate"].tolist() == ["reference person", "child", "other relative"]


def test_the_eldest_of_orphaned_siblings_heads_the_household():
    people = people_of((1, 19, 2, "child"), (1, 25, 1, "child"), (1, 14, 1, "child"))
    after = reseated(people)
    assert after["relate"].tolist() == ["sibling", "reference person", "sibling"]
    assert after["PNUM"].tolist() == [2, 1, 3]


def test_types_of_persons_and_households_are_those_of_the_shipped_seed():
    homes, people = town(1)
    assert (person_types(people) == people["ptype"]).all()
    assert (household_types(people).reindex(homes.index) == homes["HHT"]).all()
    assert reseated(people).equals(people)


def test_the_life_table_gives_the_published_expectation_of_life():
    # SSA, period life table 2017: e(0) is 75.97 years for men and 80.96 for women.
    alive = np.cumprod(1 - LIFE.deaths, axis=1)
    expectation = 0.5 + alive[:, :-1].sum(axis=1)
    assert expectation == pytest.approx([75.97, 80.96], abs=0.1)


def test_levels_that_forecasts_keep_give_the_census_rate():
    homes, _ = town(4)
    rates = within_region(move_rates(homes, read_rates(RATES)), LIFE)
    grouped = rates.groupby("group")
    table = pd.DataFrame({"target_rate": grouped["target"].first(), "wanted": 10, "decided": 10})
    levels = frozen_levels(rates, table)
    found = decide_by_levels(rates, levels, 0, "relocation:2")
    p = found.households["probability"].groupby(rates["group"]).mean()
    assert np.allclose(p, table["target_rate"], atol=1e-9)
    expected = found.households["probability"].sum()
    assert abs(found.households["moves"].sum() - expected) < 4 * np.sqrt(expected)
    # A market that needed a tenth more deciders needs them in later years too.
    higher = frozen_levels(rates, table.assign(decided=11))
    again = decide_by_levels(rates, higher, 0, "relocation:2").households["probability"]
    assert np.allclose(again.groupby(rates["group"]).mean(), 1.1 * table["target_rate"])


def test_a_group_without_households_in_the_base_year_moves_by_the_surveys_rate():
    homes, _ = town(1)
    rates = move_rates(homes, read_rates(RATES))
    found = decide_by_levels(rates, pd.Series(dtype="float64"), 0, "relocation:2").households
    assert np.allclose(np.log(found["probability"] / (1 - found["probability"])), rates["score"])


def test_movers_from_elsewhere_do_not_count_twice():
    homes, _ = town(1)
    rates = move_rates(homes, read_rates(RATES))
    moves = pd.read_csv(RATES / "moves.csv").query("children == 'all'")
    local = moves["rate"] * (1 - moves["from_elsewhere"])
    local.index = moves["tenure"] + " " + moves["age_band"]
    targets = within_region(rates, LIFE)["target"]
    assert np.allclose(targets, local.reindex(groups(homes)), rtol=1e-6)


FAULTS = {
    "no file": ("life_income.csv", None, "no such file"),
    "no column": ("life_events.csv", ("probability", "chance"), "column probability is missing"),
    "no probability": ("life_deaths.csv", ("0.005229", "5.2"), "not numbers of 0 to 1"),
    "an age twice": ("life_deaths.csv", ("1,1,", "1,0,"), "not one row for each sex"),
    "overlapping ages": ("life_events.csv", ("birth,2,single,20,24", "birth,2,single,19,24"), "overlaps"),
    "an unknown group": ("life_migration.csv", ("own,75+", "own,80+"), "not one row for each tenure"),
}  # fmt: skip


@pytest.mark.parametrize(("file", "change", "said"), FAULTS.values(), ids=FAULTS.keys())
def test_faulty_rates_are_one_clear_error(tmp_path, file, change, said):
    for table in RATES.glob("life_*.csv"):
        shutil.copy(table, tmp_path)
    text = (tmp_path / file).read_text()
    (tmp_path / file).unlink()
    if change:
        assert change[0] in text
        (tmp_path / file).write_text(text.replace(*change, 1))
    with pytest.raises(TableError, match=said) as fault:
        read_life(tmp_path)
    assert file in str(fault.value)
