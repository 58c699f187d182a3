"""A scenario: one YAML file a run.

A key that is not known is an error that names the one that was meant.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_serializer, model_validator

from pemand_abm.demand import DECAY, MINUTES, RATES
from pemand_abm.errors import SettingsError, listed
from pemand_abm.levers import Levers
from pemand_abm.settings import Strict, checked, read_mapping

Whole = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0)]
EVERYBODY = 10**9


def _households(given: object) -> object:
    """Return the count that `all` and `none` stand for; another value as it is."""
    return {"all": EVERYBODY, "none": 0}.get(given, given) if isinstance(given, str) else given


Households = Annotated[int, Field(ge=0, le=EVERYBODY), BeforeValidator(_households)]


class Negotiate(Strict):
    """How many households talk about each decision; trips and relocation take `all` and `none`."""

    trips: Households = 6
    relocation: Households = 2
    terms: Whole = 0
    shared_trip: Whole = 0


class Budget(Strict):
    """The most model calls of the run, replayed ones counted; null is no limit."""

    calls: Whole | None = None


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
