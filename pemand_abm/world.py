"""The calendar: a travel day, a year of relocations, the talks of the sampled households.

Time is integer minutes from the start of the base year. A SimPy process exists only for who has
something to do: the clock, the households that talk, and the movers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import simpy

from pemand_abm.desk import Desk
from pemand_abm.dialogue import Model
from pemand_abm.housing import DAY, HousingSettings, Market, preferred_zones
from pemand_abm.people import Decision, Persona
from pemand_abm.talks import Talk

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


@dataclass
class History:
    """What happened: the movers' events in order, the talks, and vacant dwellings at the end.

    Index zone_id.
    """

    moves: list[tuple[int, str, int, int, int | None, str]] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    vacant: list[int] = field(default_factory=list)

    def moved(self) -> pd.Index:
        """Return the ids of the households that completed a move."""
        return pd.Index([row[2] for row in self.moves if row[1] == "moved"], dtype="int64")


def run_year(
    movers: pd.DataFrame,
    homes: Homes,
    seed: int,
    days: int,
    talks: Sequence[tuple[int, Talk]] = (),
    model: Model | None = None,
    calls: int | None = None,
    in_flight: int = 64,
) -> History:
    """Run one year and return its history.

    *movers* (index household_id): `home_zone_id`, `income`, `minute`, `order`. *talks* are (minute,
    talk); they need a *model*.
    """
    env = simpy.Environment()
    market = Market(env, homes.zones["vacant"], homes.zones["dwellings"])
    history = History()
    if talks:
        assert model is not None
        desk = Desk(env, model, calls, in_flight)
        for minute, talk in talks:
            env.process(_talk(env, desk, minute, talk, history))
    ordered = movers.sort_values(["minute", "order"], kind="stable")
    if len(ordered):
        choices = preferred_zones(ordered, homes.zones, homes.minutes, homes.settings, seed)
        home = homes.zones.index.get_indexer(ordered["home_zone_id"])
        env.process(
            _clock(env, market, ordered, home, choices, homes.settings.patience_days, history)
        )
    env.run(until=days * DAY)
    settled = {row[2] for row in history.moves if row[1] != "queued"}
    history.moves += [
        (days * DAY, "still_queued", household, home, None, "the year ended first")
        for _, kind, household, home, _, _ in history.moves
        if kind == "queued" and household not in settled
    ]
    history.vacant = [int(container.level) for container in market.vacant]
    return history


def _clock(
    env: simpy.Environment,
    market: Market,
    ordered: pd.DataFrame,
    home: np.ndarray,
    choices: np.ndarray,
    patience: int,
    history: History,
) -> Generator[simpy.Event, Any, None]:
    """Wake the movers of each minute in the order of their queue."""
    ids = ordered.index.to_numpy()
    for i, minute in enumerate(ordered["minute"].to_numpy()):
        if minute > env.now:
            yield env.timeout(int(minute) - int(env.now))
        env.process(_move(env, market, int(ids[i]), int(home[i]), choices[i], patience, history))


def _move(
    env: simpy.Environment,
    market: Market,
    household: int,
    home: int,
    choices: np.ndarray,
    patience: int,
    history: History,
) -> Generator[simpy.Event, Any, None]:
    """Look for a home, wait for one, move into it and free the old one, or give up and stay."""
    asked, detail = env.now, ""
    found = market.take(choices)
    if found is None:
        history.moves.append(
            (int(env.now), "queued", household, home, None, "no vacancy in the zones considered")
        )
        found = yield from market.wait(choices, patience)
        detail = f"waited {(env.now - asked) // DAY} days"
    if found is None:
        history.moves.append((int(env.now), "gave_up", household, home, None, detail))
        return
    market.leave(home)
    history.moves.append((int(env.now), "moved", household, home, found, detail))


def _talk(
    env: simpy.Environment, desk: Desk, minute: int, talk: Talk, history: History
) -> Generator[simpy.Event, Any, None]:
    yield env.timeout(minute)
    result, calls = yield from desk.hold(talk.dialogue(), talk.most_calls)
    personas, decision = result if result is not None else ([], None)
    history.heard.append(Heard(talk, minute, personas, decision, calls))
