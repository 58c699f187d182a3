"""Moves: calibrated to the wanted number, within the housing stock, with nobody lost."""

import numpy as np
import pandas as pd
import pytest

from pemand_abm.errors import TableError
from pemand_abm.housing import HousingSettings, preferred_zones, vacancies
from pemand_abm.relocation import calibrate, critical_levels, decide
from pemand_abm.world import Homes, run_year

DAYS = 365


def town(vacant=(5, 0, 2), households=(40, 30, 20), considered=2, patience=60):
    """Three zones, some full; returns (households, homes)."""
    zones = pd.Index([10, 20, 35], name="zone_id")
    home = np.repeat(zones, households)
    people = pd.DataFrame(
        {"home_zone_id": home, "income": 50_000},
        index=pd.RangeIndex(1, len(home) + 1, name="household_id"),
    )
    table = pd.DataFrame(
        {
            "dwellings": np.add(households, vacant),
            "vacant": vacant,
            "median_income": [40_000, 50_000, 60_000],
        },
        index=zones,
    )
    minutes = np.array([[1.0, 5, 9], [5, 1, 4], [9, 4, 1]])
    return people, Homes(table, minutes, HousingSettings(considered, patience))


def movers(people, share=1.0, per_day=1):
    n = int(len(people) * share)
    minute = (np.arange(n) // per_day) * 1440 + 540
    return people.iloc[:n].assign(minute=minute, order=np.linspace(0, 1, n))


def test_dwellings_and_households_are_conserved_and_capacity_is_never_exceeded():
    people, homes = town()
    history = run_year(movers(people, per_day=30), homes, 0, DAYS)
    left = {row[2]: row for row in history.moves if row[1] != "queued"}
    assert set(left) == set(
        people.index
    )  # Each mover moved, gave up, or still waits: nobody is lost.
    living = people["home_zone_id"].copy()
    living[history.moved()] = [homes.zones.index[left[i][4]] for i in history.moved()]
    lived = living.value_counts().reindex(homes.zones.index, fill_value=0)
    assert (lived + history.vacant == homes.zones["dwellings"]).all()
    assert (lived <= homes.zones["dwellings"]).all()


def test_a_full_town_makes_movers_wait_and_give_up_after_their_patience():
    people, homes = town(vacant=(0, 0, 0), patience=30)
    history = run_year(movers(people, per_day=10), homes, 0, DAYS)
    kinds = pd.Series([row[1] for row in history.moves]).value_counts()
    assert kinds["queued"] == kinds["gave_up"] == len(people)
    waited = {row[2]: row[0] for row in history.moves if row[1] == "queued"}
    assert all(row[0] - waited[row[2]] == 30 * 1440 for row in history.moves if row[1] == "gave_up")


def test_who_queued_first_moves_first():
    people, homes = town(vacant=(0, 1, 0), considered=1)
    # One vacancy in the whole town: whoever leaves a zone frees a home for the first in that zone's
    # queue.
    history = run_year(movers(people, per_day=3), homes, 1, DAYS)
    asked = {}
    for minute, kind, household, _, to, _ in history.moves:
        if kind == "queued":
            asked[household] = minute
        elif kind == "moved" and household in asked:
            assert minute >= asked[household] and to is not None


def test_completed_moves_match_the_wanted_number_although_some_give_up():
    people, homes = town(vacant=(4, 1, 2), households=(400, 300, 200), considered=1, patience=5)
    rates = pd.DataFrame(
        {
            "group": np.where(people.index % 2, "rent", "own"),
            "target": np.where(people.index % 2, 0.25, 0.05),
            "score": np.linspace(-3, 0, len(people)),
        },
        index=people.index,
    )

    def completed(year):
        return run_year(people.join(year, how="right"), homes, 0, DAYS).moved()

    groups = calibrate(rates, completed, seed=0).groups
    assert (groups["decided"] >= groups["completed"]).all()
    assert groups["difference"].abs().max() <= 1
    assert groups["wanted"].to_dict() == {"own": 23, "rent": 113}  # 22.5 and 112.5, half up


def test_exactly_the_wanted_households_decide_and_the_likelier_ones_more_often():
    index = pd.RangeIndex(20_000, name="household_id")
    score = pd.Series(np.where(index < 10_000, -1.0, 1.0), index=index)
    group = pd.Series("all", index=index)
    critical = critical_levels(score, 0, "relocation:1")
    moves, alpha = decide(critical, group, pd.Series({"all": 3_000}))
    assert moves.sum() == 3_000
    odds = [moves[:10_000].mean(), moves[10_000:].mean()]
    odds = [p / (1 - p) for p in odds]
    # Scores two apart: the odds ratio is e^2, within its sampling error.
    assert np.log(odds[1] / odds[0]) == pytest.approx(2.0, abs=0.15)
    expected = (1 / (1 + np.exp(-(alpha["all"] + score)))).sum()
    assert expected == pytest.approx(3_000, rel=0.05)


def test_nobody_and_everybody_can_be_wanted():
    index = pd.RangeIndex(10, name="household_id")
    critical = critical_levels(pd.Series(0.0, index=index), 0, "e")
    group = pd.Series("all", index=index)
    assert decide(critical, group, pd.Series({"all": 0}))[0].sum() == 0
    assert decide(critical, group, pd.Series({"all": 10}))[0].sum() == 10


def test_a_households_preferred_zones_do_not_depend_on_the_other_movers():
    people, homes = town()
    everyone = preferred_zones(people, homes.zones, homes.minutes, homes.settings, 0)
    few = preferred_zones(people.iloc[[5, 77]], homes.zones, homes.minutes, homes.settings, 0)
    assert (few == everyone[[5, 77]]).all()


def test_movers_prefer_near_zones():
    people, homes = town(households=(3000, 10, 10), vacant=(9, 2999, 2999), considered=1)
    near = homes.minutes[0].argsort()[1]
    first = preferred_zones(people.iloc[:3000], homes.zones, homes.minutes, homes.settings, 0)[:, 0]
    assert (first == near).mean() > (first == 2).mean()


def test_more_households_than_dwellings_is_one_clear_error():
    with pytest.raises(TableError, match=r"dwellings: 1 zones .* zone 20 \(2 too few\)"):
        vacancies(pd.Series([5, 1], index=[10, 20]), pd.Series([10, 20, 20, 20]))
