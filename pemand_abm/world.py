"""The calendar: a travel day, a year of relocations, the talks of the sampled households.

Time is integer minutes from the start of the base year. A SimPy process exists only for who has
something to do: the clock, the households that talk, and the movers.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import simpy

from pemand_abm.agreements import Agreement, PlanTalk
from pemand_abm.desk import Desk
from pemand_abm.dialogue import Model
from pemand_abm.housing import DAY, HousingSettings, Market, preferred_zones
from pemand_abm.people import Decision, Persona
from pemand_abm.talks import Talk
from pemand_abm.terms import Places, TermWeights

TRAVEL_MINUTE = 4 * 60  # A survey's travel day starts at four in the morning.


@dataclass(frozen=True, slots=True)
class Homes:
    """The housing market's inputs: `zones` (index zone_id.

    Dwellings, vacant, median_income) and `minutes` between them.
    """

    zones: pd.DataFrame
    minutes: np.ndarray
    settings: HousingSettings


@dataclass(frozen=True, slots=True)
class Heard:
    """A talk that was held, or that the budget did not reach (`decision` None)."""

    talk: Talk
    minute: int
    personas: list[Persona]
    decision: Decision | None
    calls: int


@dataclass(frozen=True, slots=True)
class Settled:
    """A plan's talk that was held, or that the budget did not reach (`agreement` None)."""

    talk: PlanTalk
    minute: int
    agreement: Agreement | None
    calls: int


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The movers who settle their terms before they look for a home.

    `talks` and `work_zones` by household id.
    """

    talks: Mapping[int, PlanTalk]
    work_zones: Mapping[int, np.ndarray]
    places: Places
    weights: TermWeights


@dataclass
class History:
    """What happened: the movers' events in order, the talks, and vacant dwellings at the end.

    Index zone_id.
    """

    moves: list[tuple[int, str, int, int, int | None, str]] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    vacant: list[int] = field(default_factory=list)

    def moved(self) -> pd.Index:
        """Return the ids of the households that completed a move."""
        return pd.Index([row[2] for row in self.moves if row[1] == "moved"], dtype="int64")


def run_year(
    movers: pd.DataFrame,
    homes: Homes,
    seed: int,
    days: int,
    talks: Sequence[tuple[int, Talk | PlanTalk]] = (),
    model: Model | None = None,
    calls: int | None = None,
    in_flight: int = 64,
    terms: Terms | None = None,
) -> History:
    """Run one year and return its history.

    *movers* (index household_id): `home_zone_id`, `income`, `minute`, `order`. *talks* are (minute,
    talk); they and *terms* need a *model*.
    """
    env = simpy.Environment()
    market = Market(env, homes.zones["vacant"], homes.zones["dwellings"])
    history = History()
    desk = None
    if talks or terms:
        assert model is not None
        desk = Desk(env, model, calls, in_flight)
        for minute, talk in talks:
            env.process(_talk(env, desk, minute, talk, history))
    ordered = movers.sort_values(["minute", "order"], kind="stable")
    if len(ordered):
        choices = preferred_zones(ordered, homes.zones, homes.minutes, homes.settings, seed)
        home = homes.zones.index.get_indexer(ordered["home_zone_id"])
        looking = _Looking(env, market, homes, ordered, home, choices, seed, history, desk, terms)
        env.process(_clock(looking))
    env.run(until=days * DAY)
    settled = {row[2] for row in history.moves if row[1] != "queued"}
    history.moves += [
        (days * DAY, "still_queued", household, home, None, "the year ended first")
        for _, kind, household, home, _, _ in history.moves
        if kind == "queued" and household not in settled
    ]
    history.vacant = [int(container.level) for container in market.vacant]
    return history


@dataclass(frozen=True, slots=True, eq=False)
class _Looking:
    """What the movers' processes share."""

    env: simpy.Environment
    market: Market
    homes: Homes
    movers: pd.DataFrame
    home: np.ndarray
    choices: np.ndarray
    seed: int
    history: History
    desk: Desk | None
    terms: Terms | None


def _clock(looking: _Looking) -> Generator[simpy.Event, Any, None]:
    """Wake the movers of each minute in the order of their queue."""
    env = looking.env
    for i, minute in enumerate(looking.movers["minute"].to_numpy()):
        if minute > env.now:
            yield env.timeout(int(minute) - int(env.now))
        env.process(_move(looking, i))


def _move(looking: _Looking, i: int) -> Generator[simpy.Event, Any, None]:
    """Settle the terms, look for a home, wait for one, move into it, or give up and stay."""
    env, market, history = looking.env, looking.market, looking.history
    household, home = int(looking.movers.index[i]), int(looking.home[i])
    choices, detail = looking.choices[i], ""
    if looking.terms and household in looking.terms.talks:
        ranked = yield from _by_terms(looking, i, looking.terms)
        if ranked is not None:
            choices, detail = ranked, "by agreed terms"
    asked = env.now
    found = market.take(choices)
    if found is None:
        history.moves.append(
            (int(env.now), "queued", household, home, None, "no vacancy in the zones considered")
        )
        found = yield from market.wait(choices, looking.homes.settings.patience_days)
        waited = f"waited {(env.now - asked) // DAY} days"
        detail = f"{detail}, {waited}" if detail else waited
    if found is None:
        history.moves.append((int(env.now), "gave_up", household, home, None, detail))
        return
    market.leave(home)
    history.moves.append((int(env.now), "moved", household, home, found, detail))


def _by_terms(
    looking: _Looking, i: int, terms: Terms
) -> Generator[simpy.Event, Any, np.ndarray | None]:
    """Let the mover's household settle its terms; gives the zones that suit them, best first.

    None where the budget did not reach it.
    """
    assert looking.desk is not None
    household = int(looking.movers.index[i])
    agreement = yield from _settle(
        looking.env, looking.desk, terms.talks[household], looking.history
    )
    if agreement is None:
        return None
    worth = terms.places.utility(agreement, terms.work_zones[household], terms.weights)
    homes = looking.homes
    own = looking.movers.iloc[[i]]
    return preferred_zones(
        own, homes.zones, homes.minutes, homes.settings, looking.seed, worth[None, :]
    )[0]


def _settle(
    env: simpy.Environment, desk: Desk, talk: PlanTalk, history: History
) -> Generator[simpy.Event, Any, Agreement | None]:
    """Let a household settle a plan; None where the budget did not reach it."""
    agreement, calls = yield from desk.hold(talk.dialogue(), talk.most_calls)
    history.settled.append(Settled(talk, int(env.now), agreement, calls))
    return agreement


def _talk(
    env: simpy.Environment, desk: Desk, minute: int, talk: Talk | PlanTalk, history: History
) -> Generator[simpy.Event, Any, None]:
    yield env.timeout(minute)
    if isinstance(talk, PlanTalk):
        yield from _settle(env, desk, talk, history)
        return
    result, calls = yield from desk.hold(talk.dialogue(), talk.most_calls)
    personas, decision = result if result is not None else ([], None)
    history.heard.append(Heard(talk, minute, personas, decision, calls))
