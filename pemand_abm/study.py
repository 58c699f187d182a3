"""One run from scenario to history: population, draws, calibration, sample, calendar.

What a run leaves behind is `records`'s matter.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm.demand import DemandSettings, check_demand
from pemand_abm.dialogue import Model
from pemand_abm.domains import RELOCATION, TRIPS, Domain
from pemand_abm.errors import TableError
from pemand_abm.facts import households_of, read_map
from pemand_abm.housing import HousingSettings, vacancies
from pemand_abm.persona import PersonaSettings
from pemand_abm.protocols.pemand import PemandSettings
from pemand_abm.region import Region, read_region
from pemand_abm.relocation import Relocation, calibrate
from pemand_abm.sample import draw_sample
from pemand_abm.scenario import Scenario
from pemand_abm.surrogate import (
    Rates,
    draw_trips,
    expected_trips,
    move_rates,
    read_rates,
)
from pemand_abm.synthesis import Population, synthesize
from pemand_abm.tables import writing
from pemand_abm.talks import Talk
from pemand_abm.world import TRAVEL_MINUTE, History, Homes, run_year

TRAVEL_DAY, RELOCATION_YEAR = "travel_day:1", "relocation:1"


@dataclass(frozen=True, slots=True)
class Study:
    """All of a run that is known before the first negotiation."""

    scenario: Scenario
    region: Region
    rates: Rates
    population: Population
    trips: pd.DataFrame
    expected: pd.DataFrame
    demand: DemandSettings
    relocation: Relocation
    homes: Homes
    samples: dict[str, pd.DataFrame]
    talks: list[tuple[int, Talk]]

    @property
    def most_calls(self) -> int:
        """The most model calls that the sampled households can take together."""
        return sum(talk.most_calls for _, talk in self.talks)


def prepare(scenario: Scenario, say: Callable[[str], None]) -> Study:
    """Synthesize the population, draw the surrogate's decisions.

    Calibrate the moves and sample the households that talk.
    """
    region, rates = read_region(scenario.region), read_rates(scenario.rates)
    say(f"Synthesizing {region.recipe.title}")
    population = synthesize(region, scenario.seed)
    households = population.households
    if households.empty:
        raise TableError(
            f"{region.recipe.totals[region.recipe.zone]}: no zone has a household, so nobody "
            "travels or moves; check the control_field of the household total in "
            f"{region.recipe.controls}"
        )
    say(f"Drawing the travel day of {len(households):,} households")
    expected = expected_trips(households, rates)
    trips = draw_trips(households, rates, scenario.seed, TRAVEL_DAY)
    wanted = scenario.demand
    demand = DemandSettings(wanted.attraction_rates, wanted.decay, wanted.minutes)
    check_demand(trips, region.zones, region.skims, demand)
    say("Calibrating the year's moves to the census rates")
    homes = _homes(region, households, scenario)
    relocation = calibrate(
        move_rates(households, rates),
        lambda year: run_year(
            _movers(households, year), homes, scenario.seed, scenario.days
        ).moved(),
        scenario.seed,
        RELOCATION_YEAR,
        scenario.days,
    )
    p = relocation.households["probability"]
    samples = {
        "trips": draw_sample(
            households, expected["sd"], scenario.negotiate.trips, scenario.seed, "trips"
        ),
        "relocation": draw_sample(
            households,
            np.sqrt(p * (1 - p)),
            scenario.negotiate.relocation,
            scenario.seed,
            "relocation",
        ),
    }
    talks = _talks(samples["trips"], TRIPS, TRAVEL_DAY, scenario, population, rates)
    moving = _talks(samples["relocation"], RELOCATION, RELOCATION_YEAR, scenario, population, rates)
    minutes = relocation.households["minute"]
    scheduled = [(TRAVEL_MINUTE, talk) for talk in talks]
    scheduled += [(int(minutes[talk.household.id]), talk) for talk in moving]
    return Study(
        scenario=scenario,
        region=region,
        rates=rates,
        population=population,
        trips=trips,
        expected=expected,
        demand=demand,
        relocation=relocation,
        homes=homes,
        samples=samples,
        talks=scheduled,
    )


def _homes(region: Region, households: pd.DataFrame, scenario: Scenario) -> Homes:
    zones = pd.DataFrame(
        {
            "dwellings": np.floor(region.zones["dwellings"]).astype("int64"),
            "vacant": vacancies(region.zones["dwellings"], households["home_zone_id"]),
            "median_income": households.groupby("home_zone_id")["income"]
            .median()
            .reindex(region.zones.index)
            .fillna(households["income"].median()),
        }
    )
    minutes = region.skims[scenario.demand.minutes["hbw"]]
    return Homes(zones, minutes, HousingSettings(**scenario.housing.model_dump()))


def _movers(households: pd.DataFrame, year: pd.DataFrame) -> pd.DataFrame:
    return households.loc[year.index, ["home_zone_id", "income"]].join(year[["minute", "order"]])


def _talks(
    sample: pd.DataFrame,
    domain: Domain,
    event: str,
    scenario: Scenario,
    population: Population,
    rates: Rates,
) -> list[Talk]:
    given = scenario.talks
    pemand = PemandSettings(
        given.max_rounds,
        given.max_regenerations,
        given.moderator,
        given.history,
        adaptive=given.adaptive,
    )
    persona = PersonaSettings(
        given.narrative_tries,
        given.avr_rounds,
        reasoned=given.personas,
        anchored=given.anchors,
    )
    asked = domain.for_all() if given.one_agent else domain
    known = households_of(
        population.households,
        population.persons,
        sample.index,
        given.speaking_age,
        read_map("activitysim"),
    )
    return [
        Talk(household, asked, event, scenario.seed, rates.anchors, pemand, persona)
        for household in known
    ]


def run(study: Study, model: Model) -> History:
    """Run the calendar with the sampled households' talks."""
    year = study.relocation.households
    return run_year(
        _movers(study.population.households, year[year["moves"]]),
        study.homes,
        study.scenario.seed,
        study.scenario.days,
        study.talks,
        model,
        study.scenario.budget.calls,
        study.scenario.talks.in_flight,
    )


def check_writable(out: Path) -> None:
    """Fail now, not after the talks, when *out* cannot be written; leave no trace."""
    new = not out.exists()
    with writing(out / ".writable") as temporary:
        temporary.write_bytes(b"\0" * 4096)
    (out / ".writable").unlink(missing_ok=True)
    if new:
        with suppress(OSError):  # Another run may have begun to write there.
            out.rmdir()
