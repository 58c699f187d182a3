"""One run from scenario to history: population, draws, calibration, sample, calendar.

What a run leaves behind is `records`'s matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm import keys
from pemand_abm.agreements import PlanTalk
from pemand_abm.calibration import Calibration, read_calibration
from pemand_abm.demand import (
    Demand,
    DemandSettings,
    attractiveness,
    check_demand,
    trip_matrices,
    zone_demand,
)
from pemand_abm.dialogue import Model
from pemand_abm.domains import RELOCATION, TRIPS, Domain
from pemand_abm.errors import TableError
from pemand_abm.facts import households_of, read_map
from pemand_abm.housing import YEAR, HousingSettings, vacancies
from pemand_abm.lengths import calibrated
from pemand_abm.levers import Levers, Policy, check, enact
from pemand_abm.liferates import LifeRates, read_life, within_region
from pemand_abm.persona import PersonaSettings
from pemand_abm.plans import Plan, Stake, read_plan
from pemand_abm.protocols.mind import MindSettings
from pemand_abm.protocols.pemand import PemandSettings, marks_in_order
from pemand_abm.region import Region, read_region
from pemand_abm.relocation import Relocation, calibrate, schedule
from pemand_abm.responses import read_responses
from pemand_abm.sample import draw_sample
from pemand_abm.scenario import Negotiate, Scenario
from pemand_abm.surrogate import Rates, move_rates, purpose_shares, read_rates
from pemand_abm.synthesis import Population, synthesize
from pemand_abm.tables import writing
from pemand_abm.talks import Talk
from pemand_abm.terms import TermWeights, places, work_zones
from pemand_abm.world import TRAVEL_MINUTE, History, Homes, Terms, run_year

TRAVEL_DAY, RELOCATION_YEAR = "travel_day:1", "relocation:1"
TERMS, SHARED_TRIP = "terms:1", "shared_trip:1"


@dataclass(frozen=True, slots=True, eq=False)
class Plain:
    """A region and its population as they are before any lever acts."""

    region: Region
    population: Population


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
    talks: list[tuple[int, Talk | PlanTalk]]
    terms: Terms | None
    policy: Policy
    """What the levers change in this year; region and population have it in them."""
    plain: Plain
    """The region and the population without levers."""
    life: LifeRates | None
    """The rates of life events; None where the scenario has one year."""
    calibration: Calibration
    """The region's own, the same in every year."""
    year: int = 1
    """Of the calendar, whose decisions these are; 1 is the base year."""

    @property
    def start(self) -> int:
        """The minute at which the year begins."""
        return (self.year - 1) * YEAR

    @property
    def travel_day(self) -> str:
        """The event of the year's travel day."""
        return f"travel_day:{self.year}"

    @property
    def relocation_year(self) -> str:
        """The event of the year's decision on moving."""
        return f"relocation:{self.year}"

    @property
    def most_calls(self) -> int:
        """The most model calls that the sampled households can take together."""
        moving = self.terms.talks.values() if self.terms else ()
        return sum(t.most_calls for t in (*(talk for _, talk in self.talks), *moving))


def prepare(scenario: Scenario, say: Callable[[str], None]) -> Study:
    """Synthesize the population, draw the surrogate's decisions.

    Calibrate the moves and sample the households that talk.
    """
    region, rates = read_region(scenario.region), read_rates(scenario.rates)
    life = read_life(scenario.rates) if scenario.years > 1 else None
    calibration = read_calibration(region.folder)
    say(f"Synthesizing {region.recipe.title}")
    population = inhabited(region, scenario.seed)
    households = population.households
    say(f"Drawing the travel day of {len(households):,} households")
    expected, trips = day_of(households, rates, calibration, scenario.seed, TRAVEL_DAY)
    demand = demand_of(scenario, region, households, trips, calibration)
    plain = Plain(region, population)
    _check_levers(scenario, plain, trips, demand)
    say("Calibrating the year's moves to the census rates")
    homes = homes_of(region, households, scenario)
    moving_rates = calibration.moving(move_rates(households, rates))
    relocation = calibrate(
        within_region(moving_rates, life) if life else moving_rates,
        lambda year: run_year(
            movers_of(households, year), homes, scenario.seed, scenario.days
        ).moved(),
        scenario.seed,
        RELOCATION_YEAR,
        scenario.days,
    )
    samples = _samples(scenario, households, expected["sd"], relocation)
    # Moves were calibrated and the sample was drawn without levers, so that scenarios share both;
    # what follows is the region with them.
    policy = policy_of(scenario, plain, demand)
    if policy.levers:
        say(f"Letting the levers act: {len(policy.changed):,} households learn of them")
        population = replace(population, households=policy.households, persons=policy.persons)
        expected, trips = day_of(
            policy.households, rates, calibration, scenario.seed, TRAVEL_DAY, policy
        )
        region = replace(region, zones=policy.zones)
        # Before the skims: a road price takes no home farther away from another.
        homes = homes_of(region, population.households, scenario)
        region = replace(region, skims=dict(policy.skims))
        check_demand(trips, region.zones, region.skims, demand)
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
        talks=_scheduled(scenario, samples, population, rates, policy, relocation),
        terms=_terms(scenario, region, population, relocation, homes, demand, policy),
        policy=policy,
        plain=plain,
        life=life,
        calibration=calibration,
    )


def resampled(study: Study, negotiate: Negotiate) -> Study:
    """Return a study with other numbers of negotiating households, as `prepare` makes it of them.

    Who settles the terms of a move is left as it is.
    """
    scenario = study.scenario.model_copy(update={"negotiate": negotiate})
    households = study.plain.population.households
    sd = study.calibration.expected(households, study.rates)["sd"]
    samples = _samples(scenario, households, sd, study.relocation)
    talks = _scheduled(
        scenario, samples, study.population, study.rates, study.policy, study.relocation
    )
    return replace(study, scenario=scenario, samples=samples, talks=talks)


def _samples(
    scenario: Scenario, households: pd.DataFrame, sd: pd.Series, relocation: Relocation
) -> dict[str, pd.DataFrame]:
    """Return who negotiates trips and moves; *households* and *sd* (trips) are without levers."""
    p = relocation.households["probability"]
    uncertain = {"trips": sd, "relocation": np.sqrt(p * (1 - p))}
    counts = {"trips": scenario.negotiate.count("trips")}
    counts["relocation"] = scenario.negotiate.count("relocation")
    return {
        kind: draw_sample(households, uncertain[kind], counts[kind], scenario.seed, kind)
        for kind in counts
    }


def _scheduled(
    scenario: Scenario,
    samples: Mapping[str, pd.DataFrame],
    population: Population,
    rates: Rates,
    policy: Policy,
    relocation: Relocation,
) -> list[tuple[int, Talk | PlanTalk]]:
    """Return the talks of the year with the minutes at which they begin."""
    talks = _talks(samples["trips"], TRIPS, TRAVEL_DAY, scenario, population, rates, policy)
    moving = _talks(
        samples["relocation"], RELOCATION, RELOCATION_YEAR, scenario, population, rates, policy
    )
    minutes = relocation.households["minute"]
    scheduled: list[tuple[int, Talk | PlanTalk]] = [(TRAVEL_MINUTE, talk) for talk in talks]
    scheduled += [(int(minutes[talk.household.id]), talk) for talk in moving]
    return scheduled + _shared_trips(scenario, population, policy)


def inhabited(region: Region, seed: int) -> Population:
    """Return the region's population (`synthesis.synthesize`), which has somebody."""
    population = synthesize(region, seed)
    if population.households.empty:
        raise TableError(
            f"{region.recipe.totals[region.recipe.zone]}: no zone has a household, so nobody "
            "travels or moves; check the control_field of the household total in "
            f"{region.recipe.controls}"
        )
    return population


def day_of(
    households: pd.DataFrame,
    rates: Rates,
    calibration: Calibration,
    seed: int,
    event: str,
    policy: Policy | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a travel day's expected and drawn trips: the survey's, calibrated, then the policy's.

    As `surrogate.expected_trips`, with a column of means for each purpose, and
    `surrogate.draw_trips`.
    """
    expected = calibration.expected(households, rates)
    trips = calibration.drawn(households, rates, seed, event)
    shares = purpose_shares(households, calibration.rates(rates))
    purposes = shares.mul(expected["mean"], axis=0)
    if policy is not None:
        # Not shares of the new mean: a purpose that does not answer keeps its mean to the last bit.
        purposes = purposes * policy.factors
        expected = policy.expected(expected, calibration.rates(rates))
        trips = policy.answered(trips, event)
    return expected.join(purposes), trips


def _check_levers(
    scenario: Scenario, plain: Plain, trips: pd.DataFrame, demand: DemandSettings
) -> None:
    """Refuse, before anybody talks, levers that could not act in their year (`levers.check`)."""

    def distribute(zones: pd.DataFrame, skims: Mapping[str, np.ndarray]) -> object:
        region = replace(plain.region, zones=zones)
        made = zone_demand_of(trips, plain.population.households, region, demand)
        return trip_matrices(made, skims, demand)

    days = (_travel_minute(year) for year in range(1, scenario.years + 1))
    persons = plain.population.persons
    check(scenario.levers, plain.region, persons, demand, days, distribute)


def _travel_minute(year: int) -> int:
    """Return the minute of a year's travel day, from the start of the base year."""
    return (year - 1) * YEAR + TRAVEL_MINUTE


def levers_of(scenario: Scenario, region: Region, year: int = 1) -> Levers:
    """Return the levers that act on a year's travel day."""
    return scenario.levers.active(_travel_minute(year), region.recipe.base_year)


def policy_of(scenario: Scenario, plain: Plain, demand: DemandSettings, year: int = 1) -> Policy:
    """Return what the levers change that act on a year's travel day."""
    some = next(scenario.levers.entries(), None)
    responses = read_responses(scenario.rates) if some else None
    active = levers_of(scenario, plain.region, year)
    return enact(active, plain.region, plain.population, demand, responses, scenario.seed)


def demand_of(
    scenario: Scenario,
    region: Region,
    households: pd.DataFrame,
    trips: pd.DataFrame,
    calibration: Calibration,
) -> DemandSettings:
    """Return the settings of the demand, checked, with decays for the recipe's trip lengths.

    The region's calibration stands before the recipe's lengths. A scenario that gives its decays
    keeps them: so a what-if has those of its baseline.
    """
    given = scenario.demand
    settings = DemandSettings(
        given.attraction_rates, given.decay, given.minutes, region.recipe.mean_minutes
    )
    check_demand(trips, region.zones, region.skims, settings)
    if "decay" in given.model_fields_set:
        return settings
    wanted = {p: m for p, m in settings.wanted.items() if p not in calibration.decay}
    settings = calibration.demand(settings)
    if not wanted:
        return settings
    demand = zone_demand_of(trips, households, region, settings)
    return calibrated(settings, demand, region.skims, wanted)


def zone_demand_of(
    trips: pd.DataFrame, households: pd.DataFrame, region: Region, settings: DemandSettings
) -> Demand:
    """Return the zone demand of the base year's drawn trips (`demand.zone_demand`)."""
    day = trips.rename_axis("household_id").reset_index().assign(event=TRAVEL_DAY, kind="trips")
    return zone_demand(day, households, region.zones, settings.rates)


def homes_of(region: Region, households: pd.DataFrame, scenario: Scenario) -> Homes:
    """Return the housing market's inputs for where *households* live."""
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
    given = scenario.housing
    settings = HousingSettings(
        given.considered, given.patience_days, given.per_minute, given.per_income
    )
    return Homes(zones, minutes, settings)


def movers_of(households: pd.DataFrame, year: pd.DataFrame) -> pd.DataFrame:
    """Return the housing market's movers: those of the households that *year* has rows for."""
    return households.loc[year.index, ["home_zone_id", "income"]].join(year[["minute", "order"]])


def _talks(
    sample: pd.DataFrame,
    domain: Domain,
    event: str,
    scenario: Scenario,
    population: Population,
    rates: Rates,
    policy: Policy,
) -> list[Talk]:
    given = scenario.talks
    pemand = PemandSettings(
        given.max_rounds,
        given.max_regenerations,
        given.moderator,
        given.history,
        adaptive=given.adaptive,
        pass_marks=marks_in_order(given.pass_marks),
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
        for household in policy.tell(known)
    ]


def _mind(scenario: Scenario) -> MindSettings:
    given = scenario.mind
    return MindSettings(
        given.tone,
        given.appraisal,
        given.social_rules,
        given.max_rounds,
        given.quorum,
        given.tries,
        given.temperature,
    )


def _terms(
    scenario: Scenario,
    region: Region,
    population: Population,
    relocation: Relocation,
    homes: Homes,
    demand: DemandSettings,
    policy: Policy,
) -> Terms | None:
    """Return the sampled movers who settle their terms; None where nobody is asked to."""
    moves = relocation.households["moves"]
    movers = population.households.loc[moves.index[moves]]
    sample = _several(movers, population, scenario, scenario.negotiate.terms, "terms")
    if not len(sample):
        return None
    talks = _plan_talks(sample, read_plan("move"), TERMS, scenario, population, policy)
    own = population.households.loc[list(talks)]
    at = dict(
        zip(own.index, region.zones.index.get_indexer(own["home_zone_id"]).tolist(), strict=True)
    )
    raw = attractiveness(region.zones, demand.rates)["hbw"].to_numpy(float)
    return Terms(
        talks,
        work_zones(population.persons, at, raw, homes.minutes, demand.decay["hbw"], scenario.seed),
        places(region.zones, population.households, homes.minutes),
        TermWeights(scenario.housing.per_term, scenario.housing.per_work_minute),
    )


def _shared_trips(
    scenario: Scenario, population: Population, policy: Policy
) -> list[tuple[int, PlanTalk]]:
    """Return the sampled households that plan a journey, each on a day of the year of its own."""
    sample = _several(
        population.households, population, scenario, scenario.negotiate.shared_trip, "shared_trip"
    )
    plan = read_plan("shared_trip")
    talks = _plan_talks(sample, plan, SHARED_TRIP, scenario, population, policy)
    minutes = schedule(sample, scenario.seed, SHARED_TRIP, scenario.days)["minute"]
    return [(int(minutes[key]), talk) for key, talk in talks.items()]


def _several(
    households: pd.DataFrame, population: Population, scenario: Scenario, n: int, kind: str
) -> pd.Index:
    """Return *n* of the households with several speakers, those of the smallest random numbers."""
    speaks = population.persons["age"] >= scenario.talks.speaking_age
    speakers = population.persons.loc[speaks, "household_id"].value_counts()
    able = households.index[households.index.isin(speakers.index[speakers >= 2])]
    u = keys.uniforms(able, scenario.seed, "permanent", kind)
    return able[np.argsort(u, kind="stable")][:n]


def _plan_talks(
    sample: pd.Index,
    plan: Plan,
    event: str,
    scenario: Scenario,
    population: Population,
    policy: Policy,
) -> dict[int, PlanTalk]:
    known = households_of(
        population.households,
        population.persons,
        sample,
        scenario.talks.speaking_age,
        read_map("activitysim"),
    )
    wishes = wishes_by_rule(sample, plan, population, scenario.seed)
    settings = _mind(scenario)
    persona = PersonaSettings(scenario.talks.narrative_tries)
    asked = scenario.mind.willingness == "model"
    return {
        int(home.id): PlanTalk(
            home, plan, event, scenario.seed, settings, persona, wishes[home.id], asked
        )
        for home in policy.tell(known)
    }


def wishes_by_rule(
    sample: pd.Index, plan: Plan, population: Population, seed: int
) -> dict[int | str, dict[str, dict[str, Stake]]]:
    """Return what each member of the sampled households wants by the plan's rules, by name.

    The draws are keyed by the person and the plan (`plans.Plan.wishes`).
    """
    rank = population.households["income"].rank(pct=True)
    homes = population.households.loc[sample].assign(income_rank=rank.loc[sample])
    rows = dict(zip(homes.index, homes.to_dict("records"), strict=True))
    people = population.persons[population.persons["household_id"].isin(sample)]
    draws = plan.draws(people.index, seed, plan.name)
    found: dict[int | str, dict[str, dict[str, Stake]]] = {key: {} for key in sample}
    for person, own in zip(people.to_dict("records"), draws, strict=True):
        row = rows[person["household_id"]] | person
        found[person["household_id"]][f"member {person['PNUM']}"] = plan.wishes(row, own)
    return found


def run(study: Study, model: Model) -> History:
    """Run the calendar with the sampled households' talks."""
    year = study.relocation.households
    return run_year(
        movers_of(study.population.households, year[year["moves"]]),
        study.homes,
        study.scenario.seed,
        study.scenario.days,
        study.talks,
        model,
        study.scenario.budget.calls,
        study.scenario.talks.in_flight,
        study.terms,
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
