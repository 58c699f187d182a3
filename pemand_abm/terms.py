"""What agreed terms are worth in each zone to a mover who looks for a home.

A zone's *match* with an agreed value lies from 0 to 1 and comes from what a region can tell of its
zones. Where its land use lacks the columns, the term says nothing (0.5 everywhere) and is named in
`Places.unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pemand_abm import keys
from pemand_abm.agreements import Agreement

LAND_USE = {
    "dwelling": ("SFDU", "MFDU"),
    "place": ("TOTPOP", "TOTEMP", "TOTACRE"),
    "school": ("HSENROLL",),
}
"""The land-use columns that a term reads: dwellings in houses and apartments; population, jobs and
acres; places at high schools."""
SCHOOL_MINUTES = 10.0
NEITHER = 0.5


@dataclass(frozen=True, slots=True)
class TermWeights:
    """What terms weigh in the utility of a zone; assumptions of this project, not estimates.

    `per_term`: a wholly matched term that matters 10 of 10 to all members. `per_work_minute`: a
    minute of the mean way to the workers' zones.
    """

    per_term: float = 2.0
    per_work_minute: float = -0.05


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """What the zones are like: `match[item][value]` by zone, `minutes` between them.

    `unknown` names the terms that the region's land use cannot tell.
    """

    match: Mapping[str, Mapping[str, np.ndarray]]
    minutes: np.ndarray
    unknown: tuple[str, ...]

    def utility(
        self, agreement: Agreement, work_zones: np.ndarray, weights: TermWeights
    ) -> np.ndarray:
        """Return what the agreed terms add to each zone's utility (zones).

        per_term times the sum over terms of (mean willingness / 10) times the zone's match, and
        per_work_minute times the mean minutes to *work_zones* (positions; none: no such part).
        """
        way = self.minutes[:, work_zones].mean(axis=1) if len(work_zones) else None
        worth = np.zeros(len(self.minutes))
        for case in agreement.cases:
            matters = float(np.mean([s.weight for s in case.wishes.values()])) / 10
            if case.item == "work":
                if way is None:
                    continue
                most = {"at most 15 minutes": 15.0, "at most 30 minutes": 30.0}.get(case.value)
                fits = np.ones(len(way)) if most is None else (way <= most).astype(float)
            else:
                fits = self.match[case.item][case.value]
            worth += weights.per_term * matters * fits
        return worth if way is None else worth + weights.per_work_minute * way


def places(zones: pd.DataFrame, households: pd.DataFrame, minutes: np.ndarray) -> Places:
    """Return what the region's zones are like.

    *zones*: the land use, index zone_id, with `dwellings`. *households*: `home_zone_id`, `tenure`,
    `income`. The shares of owners and the price tier (thirds of the zones' median incomes, since
    no rents are known) are those of the households that live there on the travel day.
    """
    home = households.groupby("home_zone_id")
    owners = home["tenure"].agg(lambda t: float((t == "own").mean())).reindex(zones.index)
    owners = owners.fillna(float((households["tenure"] == "own").mean())).to_numpy(float)
    income = home["income"].median().reindex(zones.index).fillna(households["income"].median())
    unknown = tuple(
        term for term, columns in LAND_USE.items() if any(c not in zones for c in columns)
    )
    flat = np.full(len(zones), NEITHER)
    match = {
        "tenure": {"own": owners, "rent": 1 - owners},
        "budget": _tiers(income, ("low", "middle", "high")),
        "dwelling": {"a house": flat, "an apartment": flat},
        "place": dict.fromkeys(("quiet", "in between", "central and lively"), flat),
        "school": {"nearby": flat, "no matter": np.ones(len(zones))},
    }
    if "dwelling" not in unknown:
        houses, flats = (zones[c].to_numpy(float) for c in LAND_USE["dwelling"])
        share = np.divide(houses, houses + flats, out=flat.copy(), where=houses + flats > 0)
        match["dwelling"] = {"a house": share, "an apartment": 1 - share}
    if "place" not in unknown:
        people, jobs, acres = (zones[c].to_numpy(float) for c in LAND_USE["place"])
        density = np.divide(people + jobs, acres, out=np.zeros(len(zones)), where=acres > 0)
        steps = ("quiet", "in between", "central and lively")
        match["place"] = _tiers(pd.Series(density, index=zones.index), steps)
    if "school" not in unknown:
        near = minutes <= SCHOOL_MINUTES
        np.fill_diagonal(near, True)
        match["school"]["nearby"] = (near @ (zones["HSENROLL"].to_numpy() > 0)).astype(float)
    return Places(match, minutes, unknown)


def _tiers(values: pd.Series, names: tuple[str, str, str]) -> dict[str, np.ndarray]:
    """Return each third's match by zone: 1 in it, 0.5 in the next, 0 in the one beyond."""
    third = np.minimum((values.rank(method="average", pct=True) * 3 - 1e-9).astype(int), 2)
    return {
        name: (1 - np.abs(third.to_numpy(float) - place) / 2) for place, name in enumerate(names)
    }


def work_zones(
    persons: pd.DataFrame,
    home: Mapping[int, int],
    attraction: np.ndarray,
    minutes: np.ndarray,
    decay: float,
    seed: int,
) -> dict[int, np.ndarray]:
    """Return positions of the zones in which each household's workers are taken to work.

    The population has no workplaces: each worker's zone is a keyed draw in proportion to the zones'
    work attraction times e^(-decay minutes from home), as in the gravity model of the trips.
    *home*: zone position by household id.
    """
    workers = persons[persons["pemploy"].isin([1, 2])]
    workers = workers[workers["household_id"].isin(list(home))]
    found: dict[int, list[int]] = {key: [] for key in home}
    u = keys.uniforms(workers.index, seed, "work zone")
    for household, draw in zip(workers["household_id"], u, strict=True):
        weight = attraction * np.exp(-decay * minutes[home[household]])
        if (total := weight.sum()) > 0:
            place = int(np.searchsorted(np.cumsum(weight), draw * total, side="right"))
            found[household].append(min(place, len(weight) - 1))
    return {key: np.array(zones, dtype=int) for key, zones in found.items()}
