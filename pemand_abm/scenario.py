"""A scenario: one YAML file a run.

A key that is not known is an error that names the one that was meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, model_serializer, model_validator

from pemand_abm.demand import DECAY, MINUTES, RATES
from pemand_abm.errors import SettingsError, listed
from pemand_abm.levers import Levers
from pemand_abm.settings import Strict, checked, read_mapping

Whole = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0)]
EVERYBODY = 10**9


@dataclass(frozen=True, slots=True)
class Limit:
    """Time or money that the negotiations of a kind may take, as the scenario words it.

    It is converted into a number of households before a run (`limits`); only that acts.
    """

    amount: float
    unit: Literal["minutes", "USD"]
    words: str


_WORDS = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(minute|hour|USD)s?\s*", flags=re.I)
_COUNT = re.compile(r"\s*(\d+)(?:\s*households?)?\s*", flags=re.I)


def read_limit(words: str) -> Limit | None:
    """Return a budget of time or money; None for words that are none.

    >>> read_limit("1.5 hours"), read_limit("10 USD").unit, read_limit("2 weeks")
    (Limit(amount=90.0, unit='minutes', words='1.5 hours'), 'USD', None)
    """
    match = _WORDS.fullmatch(words)
    if not match:
        return None
    amount, unit = float(match[1]), match[2].lower()
    if unit == "usd":
        return Limit(amount, "USD", words.strip())
    return Limit(amount * (60 if unit == "hour" else 1), "minutes", words.strip())


def _households(given: object) -> int | Limit:
    """Return a count of households, which `all` and `none` also are, or a limit."""
    if isinstance(given, Limit):
        return given
    count = -1
    if isinstance(given, str):
        if limit := read_limit(given):
            return limit
        match = _COUNT.fullmatch(given)
        count = int(match[1]) if match else {"all": EVERYBODY, "none": 0}.get(given, -1)
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        count = int(given) if float(given).is_integer() else -1
    if not 0 <= count <= EVERYBODY:
        raise ValueError(
            "must be a whole number of households, `all`, `none`, or words such as `24 households`,"
            " `2 hours`, `90 minutes`, `10 USD`"
        )
    return count


Households = Annotated[int | Limit, PlainValidator(_households)]


class Negotiate(Strict):
    """How many households talk about each decision; trips and relocation also take words."""

    trips: Households = 6
    relocation: Households = 2
    terms: Whole = 0
    shared_trip: Whole = 0

    def count(self, kind: Literal["trips", "relocation"]) -> int:
        """Return how many households negotiate a decision.

        Raises
        ------
        SettingsError
            Time or money that was not converted (`limits.prepare_within`).
        """
        given: int | Limit = getattr(self, kind)
        if isinstance(given, Limit):
            raise SettingsError(
                f"negotiate.{kind}: {given.words!r} is not converted into households here; write a "
                "number, which `pemand estimate` tells"
            )
        return given

    def limits(self) -> dict[str, Limit]:
        """Return the decisions that are limited by time or money."""
        given = {kind: getattr(self, kind) for kind in ("trips", "relocation")}
        return {kind: limit for kind, limit in given.items() if isinstance(limit, Limit)}


Rate = Annotated[float, Field(ge=0)]


class Budget(Strict):
    """The most model calls of the run, replayed ones counted (null is no limit), and stated rates.

    The rates convert time and money under `negotiate` into households; what is left out is taken
    from an earlier run of the same model.
    """

    calls: Whole | None = None
    calls_per_minute: Annotated[float, Field(gt=0)] | None = None
    tokens_out_per_call: Rate | None = None
    usd_per_million_tokens_in: Rate | None = None
    usd_per_million_tokens_out: Rate | None = None

    @model_validator(mode="after")
    def _both_prices(self) -> Budget:
        if (self.usd_per_million_tokens_in is None) != (self.usd_per_million_tokens_out is None):
            raise ValueError(
                "usd_per_million_tokens_in and usd_per_million_tokens_out go together: give both"
            )
        return self


class Hosting(Strict):
    """Which model answers, and in how many replicas on which cluster; a plain name is `use`."""

    use: str
    replicas: Annotated[int, Field(ge=1, le=10_000)] | None = None
    cluster: str | None = None

    @model_validator(mode="after")
    def _replicas_are_told(self) -> Hosting:
        if self.cluster is not None and self.replicas is None:
            raise ValueError("a cluster needs to know how many `replicas`")
        return self

    @model_serializer
    def _told(self) -> str | dict[str, str | int]:
        """Return what a manifest tells: never the cluster's address."""
        if self.replicas is None:
            return self.use
        return {"use": self.use, "replicas": self.replicas}


def _named(given: object) -> object:
    """Return the mapping that a model's plain name stands for; another value as it is."""
    return {"use": given} if isinstance(given, str) else given


class Talks(Strict):
    """The numbers of the negotiation (PROTOCOLS, PEMAND 5 to 8), and what may be left out of it."""

    speaking_age: Whole = 12
    narrative_tries: Whole = 2
    avr_rounds: Whole = 1
    max_rounds: Whole = 5
    max_regenerations: Whole = 2
    moderator: Literal["judge", "advise", "checks", "none"] = "judge"
    history: Annotated[int, Field(ge=1)] = 12
    in_flight: Annotated[int, Field(ge=1)] = 64
    adaptive: bool = True
    personas: bool = True
    anchors: bool = True
    one_agent: bool = False
    pass_marks: dict[
        Literal["persona", "constraints", "interaction", "quality"],
        Annotated[int, Field(ge=1, le=3)],
    ] = Field(default_factory=dict)


class Mind(Strict):
    """How plans of several items are settled (PROTOCOLS, MIND)."""

    willingness: Literal["rule", "model"] = "rule"
    tone: bool = True
    appraisal: bool = True
    social_rules: bool = True
    max_rounds: Annotated[int, Field(ge=1)] = 3
    quorum: Annotated[float, Field(ge=0.5, le=1)] = 0.75
    tries: Annotated[int, Field(ge=1)] = 3
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.4


class Housing(Strict):
    """How movers choose a home (housing.HousingSettings, terms.TermWeights)."""

    considered: Annotated[int, Field(ge=1)] = 3
    patience_days: Whole = 60
    per_minute: float = -0.1
    per_income: float = -0.5
    per_term: float = 2.0
    per_work_minute: float = -0.05


class Demand(Strict):
    """How trips find their destinations (demand.DemandSettings)."""

    decay: dict[str, Share] = Field(default_factory=lambda: dict(DECAY))
    minutes: dict[str, str] = Field(default_factory=lambda: dict(MINUTES))
    attraction_rates: dict[str, dict[str, Share]] = Field(
        default_factory=lambda: {p: dict(r) for p, r in RATES.items()}
    )


class Scenario(Strict):
    """All that a run depends on, besides the files that it names."""

    title: str
    base: Path | None = None
    region: Path
    rates: Path
    seed: int = 0
    model: Annotated[Hosting, BeforeValidator(_named)] = Hosting(use="embedded")
    base_url: str | None = None
    remote: Literal["refuse", "allow"] = "refuse"
    exact: bool = True
    cards: Path | None = None
    days: Annotated[int, Field(ge=1, le=365)] = 365
    years: Annotated[int, Field(ge=1, le=100)] = 1
    negotiate: Negotiate = Negotiate()
    budget: Budget = Budget()
    talks: Talks = Talks()
    mind: Mind = Mind()
    housing: Housing = Housing()
    demand: Demand = Demand()
    levers: Levers = Levers()

    @model_validator(mode="after")
    def _years_are_whole(self) -> Scenario:
        if self.years > 1 and self.days != 365:
            raise ValueError("days: must be 365 where years is more than 1; leave it out")
        return self


def read_scenario(path: Path) -> Scenario:
    """Read a scenario; its paths are relative to the file, those of its base to the base's."""
    scenario = checked(_inherited(path), path, Scenario)
    folder = path.resolve().parent
    faults = [
        f"{name}: there is no folder {getattr(scenario, name)}; the path is relative to this file"
        for name in ("region", "rates")
        if not (folder / getattr(scenario, name)).is_dir()
    ]
    if scenario.cards is not None and not (folder / scenario.cards).exists():
        faults.append(
            f"cards: there is no file or folder {scenario.cards}; the path is relative to this file"
        )
    if faults:
        raise SettingsError(listed(faults, str(path)))
    places = {name: (folder / getattr(scenario, name)).resolve() for name in ("region", "rates")}
    if scenario.cards is not None:
        places["cards"] = (folder / scenario.cards).resolve()
    return scenario.model_copy(update=places)


def files_of(path: Path) -> list[Path]:
    """Return the scenario's file, its base, and what that rests on."""
    files = [path]
    while isinstance(base := read_mapping(files[-1]).get("base"), str):
        files.append(files[-1].resolve().parent / base)
    return files


def _inherited(path: Path, children: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return what a scenario file says with what it takes from its base."""
    own = read_mapping(path)
    base = own.get("base")
    if not isinstance(base, str):
        return own
    file = (path.resolve().parent / base).resolve()
    if not file.is_file():
        raise SettingsError(f"{path}: base: there is no file {base}; it is relative to this file")
    if file in (path.resolve(), *children):
        raise SettingsError(f"{path}: base: {base} rests on this scenario itself")
    held = _inherited(file, (*children, path.resolve()))
    checked(held, file, Scenario)  # A fault of the base is told of the base.
    for name in ("region", "rates"):
        held[name] = str(file.parent / held[name])
    return _merged(held, own)


def _merged(base: dict[str, Any], own: dict[str, Any], deep: int = 2) -> dict[str, Any]:
    """Return *base* with what *own* says in its place, key by key for *deep* levels."""
    both = {
        k for k in own if deep > 1 and isinstance(own[k], dict) and isinstance(base.get(k), dict)
    }
    return base | own | {k: _merged(base[k], own[k], deep - 1) for k in both}
