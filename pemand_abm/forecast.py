"""The years after the base year: life events at each turn, a travel day, a year of moves.

What no household negotiates: talks belong to the base year. The move rates' levels are those that
the base year was solved for. What the years leave behind is `records`'s matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pandas as pd

from pemand_abm import keys
from pemand_abm.housing import YEAR
from pemand_abm.levers import Policy, built
from pemand_abm.lifecourse import EVENT_COLUMNS, FLOWS, Residents, Stock, Turn, turn_of_year
from pemand_abm.liferates import within_region
from pemand_abm.records import raw_events, settled
from pemand_abm.region import Region
from pemand_abm.relocation import decide_by_levels, frozen_levels
from pemand_abm.study import Plain, Study, day_of, homes_of, levers_of, movers_of, policy_of
from pemand_abm.surrogate import Rates, move_rates
from pemand_abm.world import History, run_year

# Every household has one of these every year; after the base year they are counted, not listed.
UNLISTED = ("travel_day", "decided_to_stay")
ON_TALKS = "Forecast: households negotiated in the base year alone."


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What a year's decisions rest on: its households and persons, the region, the survey rates.

    The skims of the region are those without levers; `policy` has the year's own.
    """

    households: pd.DataFrame
    persons: pd.DataFrame
    region: Region
    rates: Rates
    policy: Policy | None = None


Change = Callable[[int, Facts], Facts]
"""Gives the facts of a year (the base year is 1) from those without a policy.

It changes dwellings, land use or skims of the region, columns of the households, or rates. Ids,
homes and the number of rows must stay. The change is made anew each year on unchanged facts, so it
does not add up. The scenario's levers act after it, in the same way.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """What came after the base year.

    `study` and `history` are of the last year; `years` (index year, docs/files.md) keeps the
    accounts of all; `events` (lifecourse.EVENT_COLUMNS) and `notes` are of all years but the first.
    """

    study: Study
    history: History
    years: pd.DataFrame
    events: pd.DataFrame
    notes: list[str]


def forecast(
    study: Study, history: History, say: Callable[[str], None], change: Change | None = None
) -> Forecast:
    """Run the years after the base year, whose *history* is given."""
    assert study.life is not None
    seed, first = study.scenario.seed, study.plain.population
    moving = study.calibration.moving(move_rates(first.households, study.rates))
    rates = within_region(moving, study.life)
    levels = frozen_levels(rates, study.relocation.groups)
    # Levers act anew each year on what would be without them.
    moved = first.households.assign(home_zone_id=_after(study, history)["home_zone_id"])
    residents = Residents.of(_districts(moved, study.region), first.persons)
    rows, listed, last = [_account(study, history, None)], [], study
    for year in range(2, study.scenario.years + 1):
        say(f"Year {year} of {study.scenario.years}: {len(residents.households):,} households")
        region = _built(change, year, residents, study)
        turn = turn_of_year(
            residents, _stock(region, residents, study), study.life, seed, year, (year - 1) * YEAR
        )
        residents = replace(
            turn.residents, households=_districts(turn.residents.households, region)
        )
        last = _year(study, _changed(change, year, residents, study), levels, year)
        history = _moves(last)
        rows.append(_account(last, history, turn))
        raw = raw_events(last, history)
        listed += [turn.events, raw[~raw["kind"].isin(UNLISTED)]]
        homes = _after(last, history)["home_zone_id"]
        residents = replace(
            residents,
            households=_districts(residents.households.assign(home_zone_id=homes), region),
        )
    years = pd.DataFrame(rows).set_index("year")
    events = pd.concat(
        [t.reindex(columns=EVENT_COLUMNS).astype(object) for t in listed], ignore_index=True
    )
    return Forecast(last, history, years, events, _notes(years))


def _facts(change: Change | None, year: int, residents: Residents, study: Study) -> Facts:
    """Return the facts of a year without the scenario's levers."""
    facts = Facts(residents.households, residents.persons, study.plain.region, study.rates)
    return change(year, facts) if change else facts


def _built(change: Change | None, year: int, residents: Residents, study: Study) -> Region:
    """Return the region of a year as the turn into it finds it: what stands there by then."""
    region = _facts(change, year, residents, study).region
    return replace(region, zones=built(levers_of(study.scenario, region, year), region.zones))


def _changed(change: Change | None, year: int, residents: Residents, study: Study) -> Facts:
    """Return the facts of a year's decisions."""
    facts = _facts(change, year, residents, study)
    people = replace(study.population, households=facts.households, persons=facts.persons)
    policy = policy_of(study.scenario, Plain(facts.region, people), study.demand, year)
    return replace(
        facts,
        households=policy.households,
        persons=policy.persons,
        region=replace(facts.region, zones=policy.zones),
        policy=policy,
    )


def _stock(region: Region, residents: Residents, study: Study) -> Stock:
    homes = homes_of(region, residents.households, study.scenario)
    return Stock(homes.zones, homes.minutes, homes.settings)


def _districts(households: pd.DataFrame, region: Region) -> pd.DataFrame:
    names = households["home_zone_id"].map(region.zones["district"])
    return households.assign(district=names.astype(households["district"].dtype))


def _after(study: Study, history: History) -> pd.DataFrame:
    """Return the study's households after the year's moves."""
    zones = study.region.zones.index
    moved = [
        (row[2], zones[row[4]]) for row in history.moves if row[1] == "moved" and row[4] is not None
    ]
    events = pd.DataFrame(moved, columns=["household_id", "to_zone"]).assign(kind="moved")
    after = settled(study.population.households, events, study.region.zones["district"])
    return after.drop(columns="home_zone_id_before")


def _year(study: Study, facts: Facts, levels: pd.Series, year: int) -> Study:
    """Return a study of a later year: its population and the decisions drawn for it."""
    scenario, households, policy = study.scenario, facts.households, facts.policy
    assert policy is not None
    nobody = pd.DataFrame({"stratum": "", "inclusion": 0.0}, index=households.index).iloc[:0]
    own = replace(
        study,
        year=year,
        region=replace(facts.region, skims=dict(policy.skims)),
        policy=policy,
        rates=facts.rates,
        population=replace(study.population, households=households, persons=facts.persons),
        samples={"trips": nobody, "relocation": nobody},
        talks=[],
        terms=None,
        homes=homes_of(facts.region, households, scenario),
    )
    calibration, seed = study.calibration, scenario.seed
    expected, trips = day_of(households, facts.rates, calibration, seed, own.travel_day, policy)
    moving = calibration.moving(move_rates(households, facts.rates))
    return replace(
        own,
        expected=expected,
        trips=trips,
        relocation=decide_by_levels(moving, levels, seed, own.relocation_year),
    )


def _moves(study: Study) -> History:
    year = study.relocation.households
    return run_year(
        movers_of(study.population.households, year[year["moves"]]),
        study.homes,
        # Else who moves again would weigh the zones by the same draws as before.
        keys.digest(study.scenario.seed, "year", study.year),
        study.scenario.days,
    )


def _account(study: Study, history: History, turn: Turn | None) -> dict:
    """Return a row of years.csv: the flows at the turn into the year, then its stocks."""
    households, base = study.population.households, study.region.recipe.base_year
    ended = pd.Series([row[1] for row in history.moves], dtype="str").value_counts()
    return {
        "year": base + study.year - 1,
        "households": len(households),
        "persons": len(study.population.persons),
        **(turn.flows if turn else dict.fromkeys(FLOWS, 0)),
        "dwellings": int(study.homes.zones["dwellings"].sum()),
        "trips": int(study.trips["trips"].sum()),
        "decided_to_move": int(study.relocation.households["moves"].sum()),
        "moves": int(ended.get("moved", 0)),
        "gave_up": int(ended.get("gave_up", 0) + ended.get("still_queued", 0)),
    }


def _notes(years: pd.DataFrame) -> list[str]:
    first, last = years.index[[0, -1]]
    lost, away = (int(years[c].sum()) for c in ("no_home", "turned_away"))
    found = [
        f"Forecast: population, demand, matrices and map are those of {last}, year {len(years)} of"
        f" the calendar; years.csv has the accounts from {first} on.",
        ON_TALKS,
    ]
    if lost or away:
        found.append(
            f"Forecast: {lost:,} households could not form and {away:,} could not arrive, since"
            " no dwelling was vacant in the zones that they considered."
        )
    return found
