"""Policy levers: what a scenario changes, and whose facts change with it.

A lever changes facts and features (columns of households, persons and zones, travel times, prices,
sentences that members are told), never an outcome. What follows from them is the surrogate's
published response (`responses`), the survey cells of the changed households, the housing market,
and what the members of a household make of their new facts. Sentences stand in
`prompts/phrases/lever_*.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
import pandas as pd
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from pemand_abm import keys
from pemand_abm.demand import DemandSettings, attractiveness, intrazonal
from pemand_abm.errors import PemandError, SettingsError, TableError, listed
from pemand_abm.housing import DAY, YEAR
from pemand_abm.ids import some
from pemand_abm.people import Household
from pemand_abm.prompting import phrase
from pemand_abm.region import Region
from pemand_abm.responses import respond, response_factors
from pemand_abm.settings import Strict, suggestion
from pemand_abm.surrogate import PURPOSES, Rates, purpose_shares
from pemand_abm.synthesis import Population

JOBS = ("TOTEMP", "RETEMPN", "FPSEMPN", "HEREMPN", "OTHEMPN", "AGREMPN", "MWTEMPN")
"""The land-use columns of jobs that regions of MTC's form have."""
OPENED = {"school": ("HSENROLL",), "office": ("TOTEMP", "FPSEMPN")}
BUILT = {"house": "SFDU", "apartment": "MFDU"}


def _whole_day(start: str | None) -> str | None:
    """Refuse what is no year and no day of the calendar."""
    if start is not None:
        if not re.fullmatch(r"(19|20|21)\d\d(-\d\d-\d\d)?", start):
            raise ValueError("must be a year (2030) or a day (2030-07-01)")
        try:
            pd.Timestamp(start)
        except ValueError:
            raise ValueError("is no day of the calendar") from None
    return start


def start_minute(start: str | None, base_year: int) -> int:
    """Return the minute at which a lever begins to act, from the start of the base year.

    A year of the calendar has 365 days, so 29 February is the same day as 1 March.

    >>> start_minute("2001", 2000) == 365 * 24 * 60, start_minute(None, 2000)
    (True, 0)
    """
    if start is None:
        return 0
    day = pd.Timestamp(start)
    passed = day.day_of_year - 1 - (day.is_leap_year and day.month > 2)
    return (day.year - base_year) * YEAR + passed * DAY


def _as_text(value: Any) -> Any:
    """YAML reads 2030 as a number and 2030-07-01 as a date."""
    return value if value is None or isinstance(value, bool) else str(value)


def _listed(value: Any) -> Any:
    """Let one entry stand without the dash of a list."""
    if isinstance(value, bool):
        raise ValueError("must be a name or a number, or a list of them")
    return [value] if isinstance(value, (dict, int, str)) else value


Start = Annotated[str | None, BeforeValidator(_as_text), AfterValidator(_whole_day)]


def _some(area: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Refuse a list that a script left empty; no `area` at all is everywhere."""
    if not area:
        raise ValueError("names nothing; leave `area` out for everywhere")
    return area


Area = Annotated[tuple[int | str, ...], BeforeValidator(_listed), AfterValidator(_some)]
Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Number = Annotated[float, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """What a lever's entry finds: the tables so far, and the zones that it is for (bool)."""

    households: pd.DataFrame
    persons: pd.DataFrame
    zones: pd.DataFrame
    skims: Mapping[str, np.ndarray]
    here: np.ndarray
    demand: DemandSettings
    seed: int

    @property
    def home(self) -> np.ndarray:
        """Return each household's zone, as a position in `zones`."""
        return self.zones.index.get_indexer(self.households["home_zone_id"])

    @property
    def at_home(self) -> np.ndarray:
        """Return which households live here."""
        return self.here[self.home]

    @property
    def lives_here(self) -> np.ndarray:
        """Return which persons live here."""
        homes = pd.Series(self.at_home, index=self.households.index)
        return self.persons["household_id"].map(homes).to_numpy(bool)

    @property
    def drives(self) -> np.ndarray:
        """Return which households have a vehicle."""
        return (self.households["auto_ownership"] > 0).to_numpy()

    @property
    def places(self) -> str:
        """Return the names of these zones as a text; none where they are all zones."""
        if self.here.all():
            return ""
        names = self.zones.loc[self.here, "label"].drop_duplicates().tolist()
        return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"

    def all_purposes(self, by_household: np.ndarray) -> pd.DataFrame:
        """Return one number a household as a table of households x purposes."""
        wide = np.repeat(np.asarray(by_household, dtype=float)[:, None], len(PURPOSES), axis=1)
        return pd.DataFrame(wide, index=self.households.index, columns=list(PURPOSES))

    def destinations(self) -> dict[str, np.ndarray]:
        """Return the share of trips from each zone (row) to each zone, by purpose.

        By attractiveness and the decay of travel time; a zone from which nothing is reached has
        zeros.
        """
        drawn = attractiveness(self.zones, self.demand.rates)
        shares = {}
        for purpose in PURPOSES:
            minutes, _ = intrazonal(self.skims[self.demand.minutes[purpose]])
            near = np.exp(-self.demand.decay[purpose] * (minutes - minutes.min(axis=1)[:, None]))
            pull = near * drawn[purpose].to_numpy()
            total = pull.sum(axis=1, keepdims=True)
            shares[purpose] = np.divide(pull, total, out=np.zeros_like(pull), where=total > 0)
        return shares


@dataclass(frozen=True, slots=True, eq=False)
class Effect:
    """What an entry changes. Tables that it leaves alone are None.

    `changed`: whose facts change by their rows; `told`: who is told the lever's sentence;
    `members`: persons who are told one about themselves. `change` and `share` go to
    `responses.response_factors` under the name `response`. `facts` names what changes.
    """

    households: pd.DataFrame | None = None
    persons: pd.DataFrame | None = None
    zones: pd.DataFrame | None = None
    skims: Mapping[str, np.ndarray] | None = None
    changed: np.ndarray | None = None
    told: np.ndarray | None = None
    members: pd.Index | None = None
    response: str = ""
    change: pd.DataFrame | None = None
    share: pd.DataFrame | None = None
    facts: tuple[str, ...] = ()


class Lever(Strict):
    """What all levers share: `area` (zones or districts; none is everywhere) and `start`.

    A lever's percentage is of the base year's value; where two entries of one lever hold for a
    zone, the later start counts. What is built or opened (`adds`) adds up.
    """

    area: Area = ()
    start: Start = None
    name: ClassVar[str]
    adds: ClassVar[bool] = False

    def enact(self, scene: Scene) -> Effect:
        """Return what the entry changes in the *scene*."""
        raise NotImplementedError

    def fit(self, zones: pd.DataFrame, persons: pd.DataFrame) -> None:
        """Raise a SettingsError where the tables lack what the entry names."""

    def built(self, zones: pd.DataFrame, here: np.ndarray) -> pd.DataFrame:
        """Return the land use with what the entry builds or opens; a SettingsError if it cannot."""
        return zones

    def charged(
        self, skims: Mapping[str, np.ndarray], here: np.ndarray, demand: DemandSettings
    ) -> Mapping[str, np.ndarray]:
        """Return the travel times with what the entry charges."""
        return skims


class _Place(Lever):
    """A lever that needs an area."""

    area: Area

    @model_validator(mode="after")
    def _somewhere(self) -> _Place:
        if not self.area:
            raise ValueError("area: name the zones or districts")
        return self


class Announcement(Lever):
    """A sentence that households are told, of no consequence for costs or times."""

    text: Annotated[
        str, Field(min_length=3, max_length=200), StringConstraints(strip_whitespace=True)
    ]
    name: ClassVar[str] = "announcement"
    adds: ClassVar[bool] = True

    def enact(self, scene: Scene) -> Effect:
        return Effect(told=scene.at_home)


class VehicleOwnership(Lever):
    """Percent of the households' vehicles: each is given up, or doubled, with this probability."""

    percent: Annotated[Number, Field(ge=-100, le=100)]
    name: ClassVar[str] = "vehicle_ownership"

    def enact(self, scene: Scene) -> Effect:
        held = scene.households["auto_ownership"].to_numpy("int64")
        change = np.zeros(len(held), dtype="int64")
        for ordinal in range(int(held.max(initial=0))):
            at = np.flatnonzero((held > ordinal) & scene.at_home)
            u = keys.uniforms(scene.households.index[at], scene.seed, self.name, ordinal)
            change[at] += u < abs(self.percent) / 100
        new = held + np.sign(self.percent).astype("int64") * change
        return Effect(
            households=_with(scene.households, "auto_ownership", new),
            changed=new != held,
            facts=("households.auto_ownership",),
        )


class Employment(Lever):
    """Below 0: percent of workers who lose their job.

    Above 0: percent of persons of 18 to 64 without a job and not at school who find one.
    """

    percent: Annotated[Number, Field(ge=-100, le=100)]
    name: ClassVar[str] = "employment"

    def enact(self, scene: Scene) -> Effect:
        people = scene.persons
        works = people["pemploy"].isin([1, 2])
        able = (people["pemploy"] == 3) & people["age"].between(18, 64) & (people["pstudent"] == 3)
        drawn = keys.uniforms(people.index, scene.seed, self.name) < abs(self.percent) / 100
        hit = (works if self.percent < 0 else able).to_numpy() & drawn & scene.lives_here
        if self.percent < 0:
            age, school = people["age"], people["pstudent"]
            kinds = [school == 2, (school == 1) & (age >= 16), school == 1, age >= 65]
            ptype = np.select(kinds, [3, 6, 7, 5], 4)  # ActivitySim's codes of who has no job
            pemploy = np.full(len(people), 3)
        else:
            ptype, pemploy = np.ones((2, len(people)), dtype="int64")
        persons = people.assign(
            pemploy=people["pemploy"].where(~hit, pemploy).astype(people["pemploy"].dtype),
            ptype=people["ptype"].where(~hit, ptype).astype(people["ptype"].dtype),
        )
        homes = people.loc[hit, "household_id"].value_counts()
        count = homes.reindex(scene.households.index, fill_value=0).to_numpy("int64")
        workers = scene.households["num_workers"].to_numpy("int64")
        workers = workers + np.sign(self.percent).astype("int64") * count
        return Effect(
            households=_with(scene.households, "num_workers", workers),
            persons=persons,
            changed=count > 0,
            facts=("persons.pemploy", "persons.ptype", "households.num_workers"),
        )


class IncomeGrowth(Lever):
    """Percent of household income; losses (incomes below 0) stay as they are."""

    percent: Annotated[Number, Field(ge=-90, le=300)]
    name: ClassVar[str] = "income_growth"

    def enact(self, scene: Scene) -> Effect:
        held = scene.households["income"]
        hit = scene.at_home & (held > 0).to_numpy()
        ratio = np.where(hit, 1 + self.percent / 100, 1.0)
        new = held.to_numpy(float) * ratio
        if pd.api.types.is_integer_dtype(held.dtype):
            new = np.floor(new + 0.5)
        return Effect(
            households=_with(scene.households, "income", new),
            changed=new != held.to_numpy(float),
            change=scene.all_purposes(ratio),
            response=self.name,
            facts=("households.income",),
        )


class Telework(Lever):
    """Percent of workers who, besides those who do today, work at home on a weekday.

    `column` and `values` choose the workers by a column of the persons, such as their occupation.
    """

    percent: Annotated[Number, Field(ge=0, le=100)]
    column: str | None = None
    values: Area = ()
    name: ClassVar[str] = "telework"

    @model_validator(mode="after")
    def _both(self) -> Telework:
        if bool(self.column) != bool(self.values):
            raise ValueError("column and values: give both (whose share it is), or neither")
        return self

    def enact(self, scene: Scene) -> Effect:
        people = scene.persons
        works = people["pemploy"].isin([1, 2]).to_numpy()
        # An entry before this one, for other workers, may have sent some home already.
        before = people["teleworks"].to_numpy(bool) if "teleworks" in people else ~works & works
        commutes = works & ~before
        able = commutes & scene.lives_here
        if self.column is not None:
            able &= self._held(people).isin(map(str, self.values)).to_numpy()
        hit = able & (keys.uniforms(people.index, scene.seed, self.name) < self.percent / 100)
        homes = scene.households.index
        count = people["household_id"][hit].value_counts().reindex(homes, fill_value=0)
        workers = people["household_id"][commutes].value_counts().reindex(homes, fill_value=0)
        share = (count / workers.clip(lower=1)).to_numpy(float)
        at_home = (hit | before).astype("int64")
        return Effect(
            persons=people.assign(teleworks=at_home) if hit.any() else None,
            members=people.index[hit],
            change=scene.all_purposes(share),
            response=self.name,
            facts=("persons.teleworks",),
        )

    def fit(self, zones: pd.DataFrame, persons: pd.DataFrame) -> None:
        if self.column is None:
            return
        if self.column not in persons:
            near = suggestion(self.column, persons.columns)
            raise SettingsError(
                f"levers.telework: persons have no column {self.column!r}{near}; they have "
                f"{', '.join(persons.columns)}"
            )
        held = self._held(persons).unique().tolist()
        if lacking := [v for v in self.values if str(v) not in held]:
            raise SettingsError(
                f"levers.telework: {self.column} is nowhere {some(lacking)}; it holds "
                f"{some(sorted(held))}"
            )

    def _held(self, persons: pd.DataFrame) -> pd.Series:
        """Return by what the workers are chosen, as text."""
        return persons[self.column].astype(str)


class FuelPrice(Lever):
    """Percent of the price of fuel, for households with a vehicle that live in the area."""

    percent: Annotated[Number, Field(ge=-90, le=400)]
    name: ClassVar[str] = "fuel_price"

    def enact(self, scene: Scene) -> Effect:
        return _priced(self, scene, scene.at_home & scene.drives, self.percent)


class ParkingPrice(Lever):
    """Percent of the price of parking *in* the area, for all households with a vehicle."""

    percent: Annotated[Number, Field(ge=-90, le=400)]
    name: ClassVar[str] = "parking_price"

    def enact(self, scene: Scene) -> Effect:
        if scene.here.all():
            return _priced(self, scene, scene.drives, self.percent)
        to_here = scene.destinations()
        parked = {p: to_here[p][:, scene.here].sum(axis=1)[scene.home] for p in PURPOSES}
        share = pd.DataFrame(parked, index=scene.households.index)
        return _priced(self, scene, scene.drives, self.percent, share)


class RoadPricing(_Place):
    """Dollars for driving into the area from outside, for all households with a vehicle.

    `hour_dollars` is what an hour is worth: with it the charge lengthens the travel time by car.
    """

    dollars: Annotated[Number, Field(ge=0, le=100)]
    hour_dollars: Annotated[Number, Field(gt=0, le=500)] = 15.0
    name: ClassVar[str] = "road_pricing"

    def enact(self, scene: Scene) -> Effect:
        charge = self._minutes(scene.here)
        change = {}
        for purpose, share in scene.destinations().items():
            now, _ = intrazonal(scene.skims[scene.demand.minutes[purpose]])
            cost, added = (share * now).sum(axis=1), (share * charge).sum(axis=1)
            ratio = 1 + np.divide(added, cost, out=np.zeros_like(added), where=cost > 0)
            change[purpose] = np.where(scene.drives, ratio[scene.home], 1.0)
        table = pd.DataFrame(change, index=scene.households.index)
        return Effect(
            skims=self.charged(scene.skims, scene.here, scene.demand),
            told=scene.drives & (table > 1).any(axis=1).to_numpy(),
            change=table,
            response=self.name,
            facts=tuple(f"skims.{n}" for n in _driven(scene.demand)),
        )

    def charged(
        self, skims: Mapping[str, np.ndarray], here: np.ndarray, demand: DemandSettings
    ) -> Mapping[str, np.ndarray]:
        return {**skims, **{n: skims[n] + self._minutes(here) for n in _driven(demand)}}

    def _minutes(self, here: np.ndarray) -> np.ndarray:
        """Return the minutes that the charge is worth, from zone (row) to zone."""
        return 60 * self.dollars / self.hour_dollars * (~here[:, None] & here[None, :])


class TransitFare(Lever):
    """Percent of the transit fare; -100 is free of charge."""

    percent: Annotated[Number, Field(ge=-100, le=400)]
    name: ClassVar[str] = "transit_fare"

    def enact(self, scene: Scene) -> Effect:
        if self.percent > -100:
            return _priced(self, scene, scene.at_home, self.percent)
        # A ratio of 0 has no power: the change to a free fare is an arc, and wholly made.
        return Effect(
            told=scene.at_home, change=scene.all_purposes(scene.at_home), response="free_fare"
        )


class TransitService(Lever):
    """Percent of the transit service (vehicle hours)."""

    percent: Annotated[Number, Field(ge=-90, le=300)]
    name: ClassVar[str] = "transit_service"

    def enact(self, scene: Scene) -> Effect:
        return _priced(self, scene, scene.at_home, self.percent)


class LandUseIntensity(Lever):
    """Percent of the jobs of the area, by the land-use `columns`."""

    percent: Annotated[Number, Field(ge=-90, le=300)]
    columns: Names = ()
    name: ClassVar[str] = "land_use_intensity"

    def enact(self, scene: Scene) -> Effect:
        effect = _priced(self, scene, scene.at_home, self.percent)
        return replace(
            effect,
            zones=self.built(scene.zones, scene.here),
            facts=tuple(f"zones.{c}" for c in self._of(scene.zones)),
        )

    def fit(self, zones: pd.DataFrame, persons: pd.DataFrame) -> None:
        self._of(zones)

    def built(self, zones: pd.DataFrame, here: np.ndarray) -> pd.DataFrame:
        factor = pd.Series(np.where(here, 1 + self.percent / 100, 1.0), zones.index)
        return zones.assign(**{c: zones[c] * factor for c in self._of(zones)})

    def _of(self, zones: pd.DataFrame) -> list[str]:
        return _land_use(self.name, self.columns, JOBS, zones)


class Opening(_Place):
    """A school or an office that opens (or closes: `places` below 0) in each zone of the area.

    `places`: pupils, or jobs.
    """

    kind: Literal["school", "office"]
    places: Annotated[Whole, Field(ge=-1_000_000, le=1_000_000)]
    columns: Names = ()
    name: ClassVar[str] = "opening"
    adds: ClassVar[bool] = True

    def enact(self, scene: Scene) -> Effect:
        return Effect(
            zones=self.built(scene.zones, scene.here),
            told=scene.at_home & (self.places != 0),
            facts=tuple(f"zones.{c}" for c in self._of(scene.zones)),
        )

    def fit(self, zones: pd.DataFrame, persons: pd.DataFrame) -> None:
        self._of(zones)

    def built(self, zones: pd.DataFrame, here: np.ndarray) -> pd.DataFrame:
        columns = self._of(zones)
        made = _more(zones, columns, here, self.places)
        if short := [c for c in columns if (made[c] < 0).any()]:
            where = " and ".join(f"{c} in zones {some(made.index[made[c] < 0])}" for c in short)
            raise SettingsError(
                f"levers.opening: {self.places:,} {self.kind} places leave fewer than none of "
                f"{where}"
            )
        return made

    def _of(self, zones: pd.DataFrame) -> list[str]:
        return _land_use(self.name, self.columns, OPENED[self.kind], zones)


class NewHousing(_Place):
    """Dwellings built in each zone of the area, houses or apartments where the region has both."""

    dwellings: Annotated[Whole, Field(ge=0, le=1_000_000)]
    kind: Literal["house", "apartment"] | None = None
    name: ClassVar[str] = "new_housing"
    adds: ClassVar[bool] = True

    def enact(self, scene: Scene) -> Effect:
        return Effect(
            zones=self.built(scene.zones, scene.here),
            told=scene.at_home & (self.dwellings > 0),
            facts=tuple(f"zones.{c}" for c in self._of(scene.zones)),
        )

    def fit(self, zones: pd.DataFrame, persons: pd.DataFrame) -> None:
        self._of(zones)

    def built(self, zones: pd.DataFrame, here: np.ndarray) -> pd.DataFrame:
        return _more(zones, self._of(zones), here, self.dwellings)

    def _of(self, zones: pd.DataFrame) -> list[str]:
        own = _land_use(self.name, (), (BUILT[self.kind],), zones) if self.kind else []
        return ["dwellings", *own]


class RentChange(Lever):
    """Percent of the rent (`rent`) or of what homes sell for (`own`) in the area."""

    percent: Annotated[Number, Field(ge=-90, le=300)]
    tenure: Literal["rent", "own"] = "rent"
    name: ClassVar[str] = "rent_change"

    def enact(self, scene: Scene) -> Effect:
        return Effect(told=scene.at_home & (scene.households["tenure"] == self.tenure).to_numpy())


def _with(table: pd.DataFrame, column: str, values: np.ndarray) -> pd.DataFrame:
    return table.assign(**{column: values.astype(table[column].dtype)})


def _more(
    zones: pd.DataFrame, columns: Sequence[str], here: np.ndarray, number: int
) -> pd.DataFrame:
    """Return the land use with this number more in each zone that is meant."""
    more = pd.Series(np.where(here, number, 0), index=zones.index)
    return zones.assign(**{c: zones[c] + more for c in columns})


def _driven(demand: DemandSettings) -> list[str]:
    """Return the skims that travel times come from."""
    return list(dict.fromkeys(demand.minutes[p] for p in PURPOSES))


def _priced(
    lever: Lever, scene: Scene, who: np.ndarray, percent: float, share: pd.DataFrame | None = None
) -> Effect:
    """Return what a change of a price, or of a service, does to the households *who*."""
    ratio = np.where(who, 1 + percent / 100, 1.0)
    return Effect(told=who, change=scene.all_purposes(ratio), share=share, response=lever.name)


def _land_use(
    name: str, given: Sequence[str], usual: Sequence[str], zones: pd.DataFrame
) -> list[str]:
    """Return the land-use columns that a lever changes: those given, else the usual ones held."""
    lacking = [c for c in given if c not in zones or not pd.api.types.is_numeric_dtype(zones[c])]
    if lacking:
        near = suggestion(lacking[0], map(str, zones.columns))
        raise SettingsError(f"levers.{name}: the land use has no numbers {some(lacking)}{near}")
    held = [c for c in (given or usual) if c in zones]
    if not held:
        raise SettingsError(
            f"levers.{name}: the land use has none of {', '.join(usual)}; it has "
            f"{', '.join(map(str, zones.columns))}"
        )
    return held


Entry = TypeVar("Entry", bound=Lever)
Entries = Annotated[tuple[Entry, ...], BeforeValidator(_listed)]


class Levers(Strict):
    """A scenario's levers, in the order in which they act; each holds one entry or several."""

    announcement: Entries[Announcement] = ()
    vehicle_ownership: Entries[VehicleOwnership] = ()
    employment: Entries[Employment] = ()
    income_growth: Entries[IncomeGrowth] = ()
    telework: Entries[Telework] = ()
    fuel_price: Entries[FuelPrice] = ()
    parking_price: Entries[ParkingPrice] = ()
    road_pricing: Entries[RoadPricing] = ()
    transit_fare: Entries[TransitFare] = ()
    transit_service: Entries[TransitService] = ()
    land_use_intensity: Entries[LandUseIntensity] = ()
    opening: Entries[Opening] = ()
    new_housing: Entries[NewHousing] = ()
    rent_change: Entries[RentChange] = ()

    def entries(self) -> Iterator[Lever]:
        """Give every entry in the order in which they act."""
        for name in type(self).model_fields:
            yield from getattr(self, name)

    def active(self, minute: int, base_year: int) -> Levers:
        """Return the levers that act at this minute from the start of the base year."""
        held = {
            name: tuple(
                e for e in getattr(self, name) if start_minute(e.start, base_year) <= minute
            )
            for name in type(self).model_fields
        }
        return self.model_copy(update=held)

    def given(self) -> dict[str, list[dict[str, Any]]]:
        """Return what the scenario sets, without levers that it does not name."""
        return {
            name: [e.model_dump(mode="json", exclude_defaults=True) for e in getattr(self, name)]
            for name in type(self).model_fields
            if getattr(self, name)
        }


Distribute = Callable[[pd.DataFrame, Mapping[str, np.ndarray]], object]
"""Sends trips through a land use and travel times, or raises a PemandError."""


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """Sentences of a lever: to households (by whether one lives alone), and to persons."""

    households: pd.Index
    shared: str
    alone: str
    persons: pd.Index
    own: str


@dataclass(frozen=True, eq=False)
class Policy:
    """What the levers of a run changed; without any, nothing (`changed` is empty).

    `changes`: columns `household_id` and `lever`, a row for each household whose facts a lever
    changes. `factors` (households x purposes): by what trips are multiplied, 1 for most.
    `levers`: what `run.yaml` tells of them.
    """

    households: pd.DataFrame
    persons: pd.DataFrame
    zones: pd.DataFrame
    skims: Mapping[str, np.ndarray]
    factors: pd.DataFrame
    changes: pd.DataFrame
    told: tuple[Told, ...] = ()
    levers: tuple[dict[str, Any], ...] = ()
    seed: int = 0
    notes: tuple[str, ...] = field(default=())

    @cached_property
    def changed(self) -> pd.Index:
        """The households whose facts changed: those that negotiate again."""
        return pd.Index(self.changes["household_id"].unique(), name="household_id")

    def answered(self, trips: pd.DataFrame, event: str) -> pd.DataFrame:
        """Return the drawn *trips* of a day after the published response."""
        return respond(trips, self.factors, self.seed, event)

    def expected(self, expected: pd.DataFrame, rates: Rates) -> pd.DataFrame:
        """Return the expected trips after the published response; `mean` and `sd` alike."""
        shares = purpose_shares(self.households, rates)
        factor = 1 + (shares * (self.factors - 1)).sum(axis=1)
        return expected.mul(factor, axis=0)

    def tell(self, households: Sequence[Household]) -> list[Household]:
        """Return the households with the sentences of the levers that changed their facts."""
        return [self._informed(home) for home in households]

    def _informed(self, home: Household) -> Household:
        facts, members = home.facts, home.members
        for told in self.told:
            if home.id in told.households:
                facts = (*facts, told.alone if home.size == 1 else told.shared)
            members = tuple(
                replace(m, facts=(*m.facts, told.own)) if m.id in told.persons else m
                for m in members
            )
        return replace(home, facts=facts, members=members)


def enact(
    levers: Levers,
    region: Region,
    population: Population,
    demand: DemandSettings,
    responses: pd.DataFrame | None,
    seed: int,
) -> Policy:
    """Let *levers* (those that are active) act on a region and its population, one after another.

    Their faults are found by `check` before.
    """
    households, persons, zones = population.households, population.persons, region.zones
    skims: Mapping[str, np.ndarray] = region.skims
    factors = pd.DataFrame(1.0, index=households.index, columns=list(PURPOSES))
    told, changes, manifest = [], [], []
    for entry, here in covered(levers, region.zones):
        scene = Scene(households, persons, zones, skims, here, demand, seed)
        effect = entry.enact(scene)
        households = households if effect.households is None else effect.households
        persons = persons if effect.persons is None else effect.persons
        zones = zones if effect.zones is None else effect.zones
        skims = skims if effect.skims is None else effect.skims
        said = _told(entry, scene, effect)
        told.append(said)
        if effect.change is not None:
            if responses is None:
                raise TableError("the rates folder has no responses.csv, which the levers need")
            factors = factors * response_factors(
                responses, effect.response, households, effect.change, effect.share
            )
        whose = _whose(scene, effect, said)
        changes.append(pd.DataFrame({"household_id": whose, "lever": entry.name}))
        sentences = [s for s in (said.shared, said.own) if s]
        manifest.append(
            {
                "lever": entry.name,
                **entry.model_dump(mode="json", exclude_defaults=True),
                "facts": [*effect.facts, *(f"sentence: {s}" for s in sentences)],
                "households": len(whose),
                "response": effect.response or None,
            }
        )
    table = pd.concat([pd.DataFrame({"household_id": [], "lever": []}), *changes])
    return Policy(
        households=households,
        persons=persons,
        zones=zones,
        skims=skims,
        factors=factors,
        changes=table.astype({"household_id": "int64", "lever": "str"}).reset_index(drop=True),
        told=tuple(told),
        levers=tuple(manifest),
        seed=seed,
    )


def _told(entry: Lever, scene: Scene, effect: Effect) -> Told:
    """Return the sentences of an entry; nobody is told an empty one."""
    nobody = scene.households.index[:0]
    none = scene.persons.index[:0]
    if effect.told is None and effect.members is None:
        return Told(nobody, "", "", none, "")
    size = abs(getattr(entry, "percent", 0.0))
    values = entry.model_dump() | {"n": f"{size:.10g}", "where": scene.places}
    shared, alone = (
        phrase(f"lever_{entry.name}", alone=alone, **values) for alone in (False, True)
    )
    if effect.members is not None:
        return Told(nobody, "", "", effect.members, shared if len(effect.members) else "")
    assert effect.told is not None
    who = scene.households.index[effect.told] if shared else nobody
    return Told(who, shared if len(who) else "", alone, none, "")


def _whose(scene: Scene, effect: Effect, said: Told) -> pd.Index:
    """Return the households whose facts an entry changes."""
    homes = scene.households.index
    by_row = homes[effect.changed] if effect.changed is not None else homes[:0]
    of_members = pd.Index(scene.persons.loc[said.persons, "household_id"].unique())
    return homes[homes.isin(by_row) | homes.isin(said.households) | homes.isin(of_members)]


def built(levers: Levers, zones: pd.DataFrame) -> pd.DataFrame:
    """Return the land use with what *levers* (those that are active) build, open and close."""
    for entry, here in covered(levers, zones):
        zones = entry.built(zones, here)
    return zones


def check(
    levers: Levers,
    region: Region,
    persons: pd.DataFrame,
    demand: DemandSettings,
    minutes: Iterable[int],
    distribute: Distribute,
) -> None:
    """Find every fault of *levers*, also of those that act later, before anybody talks.

    *minutes* (from the start of the base year, in order) are those at which they will be let act.

    Raises
    ------
    SettingsError
        Zones, districts, columns or values that the region does not have; two entries of one lever
        for one zone from the same day; places closed that there are not; what leaves trips no way
        or no place to go. All of them at once.
    """
    problems: list[str] = []
    _covered(levers, region.zones, problems)
    for entry in levers.entries():
        try:
            entry.fit(region.zones, persons)
        except SettingsError as fault:
            problems.append(fault.message)
    last = Levers()
    for minute in minutes:
        active = levers.active(minute, region.recipe.base_year)
        if active != last:
            _try(active, region, demand, distribute, problems)
        last = active
    if problems:
        raise SettingsError(listed(problems, "levers"))


def _try(
    levers: Levers,
    region: Region,
    demand: DemandSettings,
    distribute: Distribute,
    problems: list[str],
) -> None:
    """Add the faults that show when *levers*, which act together, have built and charged."""
    zones = region.zones
    skims: Mapping[str, np.ndarray] = region.skims
    acting: list[Lever] = []
    for entry, here in _covered(levers, zones, []):
        before = zones, skims
        try:
            zones = entry.built(zones, here)
            skims = entry.charged(skims, here, demand)
        except SettingsError as fault:
            problems.append(fault.message)
        if zones is not before[0] or skims is not before[1]:
            acting.append(entry)
    if not acting:
        return
    try:
        distribute(zones, skims)
    except PemandError as fault:
        if any(fault.message in told for told in problems):  # Of an earlier year.
            return
        names = ", ".join(dict.fromkeys(f"levers.{entry.name}" for entry in acting))
        charged = any(isinstance(entry, RoadPricing) for entry in acting)
        less = "; charge fewer `dollars`, or set more `hour_dollars`" if charged else ""
        problems.append(f"{names}: trips find no destinations with it: {fault.message}{less}")


def covered(levers: Levers, zones: pd.DataFrame) -> list[tuple[Lever, np.ndarray]]:
    """Return every entry with the zones that it holds for (bool), in the order in which they act.

    Raises
    ------
    SettingsError
        Zones or districts that the region does not have; two entries of one lever for one zone from
        the same day. All of them at once.
    """
    problems: list[str] = []
    found = _covered(levers, zones, problems)
    if problems:
        raise SettingsError(listed(problems, "levers"))
    return found


def _covered(
    levers: Levers, zones: pd.DataFrame, problems: list[str]
) -> list[tuple[Lever, np.ndarray]]:
    found: list[tuple[Lever, np.ndarray]] = []
    for name in type(levers).model_fields:
        entries: tuple[Lever, ...] = getattr(levers, name)
        masks = [_zones_of(entry, f"levers.{name}", zones, problems) for entry in entries]
        problems += _clashes(name, entries, masks, zones.index)
        for place, entry in enumerate(entries):
            later = [
                mask
                for other, mask in zip(entries, masks, strict=True)
                if not entry.adds
                and _rival(other) == _rival(entry)
                and _since(other) > _since(entry)
            ]
            found.append((entry, masks[place] & ~np.any([*later, 0 * masks[place]], axis=0)))
    return found


def _zones_of(entry: Lever, where: str, zones: pd.DataFrame, problems: list[str]) -> np.ndarray:
    """Return the zones of an entry's area (bool); none is all of them."""
    if not entry.area:
        return np.ones(len(zones), dtype=bool)
    ids, districts = zones.index.astype(str), zones["district"].astype(str)
    here = np.zeros(len(zones), dtype=bool)
    for name in map(str, entry.area):
        hit = np.asarray(ids == name)
        hit = hit if hit.any() else (districts == name).to_numpy()
        if not hit.any():
            near = suggestion(name, [*districts.unique(), *ids])
            known = f"; districts are {', '.join(districts.unique()[:10])}"
            problems.append(f"{where}: area: {name!r} is no zone and no district{near or known}")
        here |= hit
    return here


def _clashes(
    name: str, entries: Sequence[Lever], masks: Sequence[np.ndarray], ids: pd.Index
) -> list[str]:
    """Return a problem for each two entries that set one value of one zone from the same day."""
    return [
        f"levers.{name}: two entries set zones {some(ids[masks[i] & masks[j]])} from the same day; "
        "leave one, or give one a later start"
        for i in range(len(entries))
        for j in range(i)
        if not entries[i].adds
        and _rival(entries[i]) == _rival(entries[j])
        and _since(entries[i]) == _since(entries[j])
        and (masks[i] & masks[j]).any()
    ]


def _since(entry: Lever) -> int:
    """Return what orders entries by their start; one without a start is the first."""
    return -1 if entry.start is None else start_minute(entry.start, 1900)


def _rival(entry: Lever) -> tuple[object, ...]:
    """Return what two entries must share to speak of one value."""
    if isinstance(entry, RentChange):
        return (entry.tenure,)
    if isinstance(entry, Telework):
        return (entry.column, entry.values)
    return ()
