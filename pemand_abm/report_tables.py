"""Tables of the report: the levers that a scenario sets, vehicle trips, and trips by period."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pemand_abm.figures import PURPOSE_WORDS
from pemand_abm.pages import Table, number
from pemand_abm.periods import ALL
from pemand_abm.surrogate import MODES, PERIODS, PURPOSES

# What a lever's entry in run.yaml tells of its effects, not of its setting.
EFFECTS = ("facts", "households", "response")
UNITS = {
    "announcement": "a sentence",
    "vehicle_ownership": "% of the vehicles",
    "employment": "% of workers, or above 0 of persons without a job",
    "income_growth": "% of household income",
    "telework": "% of workers",
    "fuel_price": "% of the price of fuel",
    "parking_price": "% of the price of parking",
    "road_pricing": "dollars for each drive into the area",
    "transit_fare": "% of the fare",
    "transit_service": "% of the vehicle hours",
    "land_use_intensity": "% of the jobs",
    "opening": "{places} in each zone",
    "new_housing": "dwellings in each zone",
    "rent_change": "% of {rents}",
}
"""What the value of a lever is counted in (docs/levers.md)."""
VALUES = ("percent", "dollars", "places", "dwellings", "text")
PLACES = {"school": "pupils", "office": "jobs"}
RENTS = {"rent": "the rent", "own": "what homes sell for"}
OWNERS = {"households": "households", "persons": "persons", "zones": "zones", "skims": "skims"}
ASLEEP = "none yet: it starts after the last travel day of this run"
HOURS = {"EA": "3 to 6", "AM": "6 to 10", "MD": "10 to 15", "PM": "15 to 19", "EV": "19 to 3"}
MODE_WORDS = {
    "driver": "Driving",
    "passenger": "Riding along",
    "transit": "Transit",
    "school_bus": "School bus",
    "taxi": "Taxi and ride-hailing",
    "bicycle": "Bicycle",
    "walk": "On foot",
    "other": "Other",
}


# --- levers ---------------------------------------------------------------------------------------


def levers_of(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the levers that a run's manifest tells of, each with its name in `lever`."""
    held = manifest.get("levers") or []
    return [dict(lever) for lever in held if isinstance(lever, Mapping) and lever.get("lever")]


def levers_table(manifest: Mapping[str, Any]) -> Table | None:
    """Return what the scenario's levers set and whose facts they changed; None without any."""
    acting = levers_of(manifest)
    rows = [_lever_row(lever) for lever in (*acting, *_asleep(manifest, acting))]
    if not rows:
        return None
    return Table(
        [
            "Lever",
            "Value",
            "Unit",
            "Area",
            "From",
            "Facts that it changed",
            "Published response",
            "Households",
        ],
        rows,
        "Levers of the scenario (households: those whose facts a lever changed)",
        labels=7,
    )


def _asleep(manifest: Mapping[str, Any], acting: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the levers that the scenario sets and that did not act on the last travel day."""
    given = (manifest.get("settings") or {}).get("levers") or {}
    left = [{k: v for k, v in lever.items() if k not in EFFECTS} for lever in acting]
    asleep = []
    for lever in ({"lever": name, **entry} for name, entries in given.items() for entry in entries):
        if lever in left:
            left.remove(lever)
        else:
            asleep.append(lever)
    return asleep


def _lever_row(lever: Mapping[str, Any]) -> list[str]:
    name = str(lever["lever"])
    kept = {k: v for k, v in lever.items() if k not in (*EFFECTS, "lever", "area", "start")}
    value = next((kept.pop(key) for key in VALUES if key in kept), "")
    unit = UNITS.get(name, "").format(
        places=PLACES.get(kept.get("kind", ""), "places"),
        rents=RENTS[kept.get("tenure", "rent")],
    )
    title = name.replace("_", " ")
    others = [f"{k.replace('_', ' ')}: {_plain(v)}" for k, v in kept.items()]
    facts = [_fact_words(str(f)) for f in lever.get("facts") or []]
    told = "\n".join(facts) or "none" if "facts" in lever else ASLEEP
    signed = isinstance(value, (int, float)) and unit.startswith("%")
    return [
        "\n".join([title, *others]),
        f"{value:+g}" if signed else _plain(value),
        unit,
        _plain(lever.get("area") or "everywhere"),
        str(lever.get("start") or "the beginning"),
        told,
        str(lever.get("response") or "none").replace("_", " "),
        f"{lever.get('households') or 0:,}",
    ]


def _plain(value: Any) -> str:
    """Return a setting's value as text, a list's parts separated by commas.

    >>> _plain([3, "East"]), _plain(2500), _plain(2.5)
    ('3, East', '2,500', '2.5')
    """
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if isinstance(value, (int, float)):
        return f"{value:,.10g}"
    return str(value)


def _fact_words(fact: str) -> str:
    """Return a fact as the manifest names it in words.

    >>> _fact_words("households.income"), _fact_words("sentence: Fuel is dear.")
    ('income of households', 'told: Fuel is dear.')
    """
    if fact.startswith("sentence: "):
        return f"told: {fact.removeprefix('sentence: ')}"
    owner, _, column = fact.partition(".")
    return f"{column} of {OWNERS[owner]}" if column and owner in OWNERS else fact


# --- modes, vehicles, periods ---------------------------------------------------------------------


def vehicle_tables(vehicles: pd.DataFrame | None) -> list[Table]:
    """Return vehicle trips, occupancy and the modes' shares by purpose (`vehicle_trips.csv`)."""
    if vehicles is None:
        return []
    held = vehicles.set_index("purpose").rename(columns={"vehicle_trips": "driver"})
    words = {**PURPOSE_WORDS, "all": "All purposes"}
    names = [words.get(str(p), str(p)) for p in held.index]
    shares = held[list(MODES)].div(held["person_trips"].where(held["person_trips"] > 0), axis=0)
    trips = [
        [name, number(persons), number(driven), number(occupancy, 2)]
        for name, persons, driven, occupancy in zip(
            names, held["person_trips"], held["driver"], held["occupancy"], strict=True
        )
    ]
    modes = [
        [name, *(number(100 * share, 1) for share in row)]
        for name, row in zip(names, shares.to_numpy(float), strict=True)
    ]
    return [
        Table(
            ["Purpose", "Person trips", "Vehicle trips", "Persons a vehicle"],
            trips,
            "Vehicle trips and occupancy (trips of an average weekday)",
        ),
        Table(
            ["Purpose", *(MODE_WORDS[mode] for mode in MODES)],
            modes,
            "Modes (% of a purpose's person trips of an average weekday)",
        ),
    ]


def periods_table(cores: Mapping[str, np.ndarray]) -> Table | None:
    """Return trips from origin to destination by purpose and period, from the cores of `trips.omx`.

    None where the file has no periods.
    """
    kinds = [*(p.upper() for p in PURPOSES), ALL]
    if not all(f"{kind}__{period}" in cores for kind in kinds for period in PERIODS):
        return None
    sums = np.array([[cores[f"{k}__{period}"].sum() for period in PERIODS] for k in kinds])
    day = sums.sum(axis=1)
    total = day[-1]
    rows = [
        [name, *(number(v) for v in row), number(whole)]
        for name, row, whole in zip(
            [*PURPOSE_WORDS.values(), "All purposes"], sums, day, strict=True
        )
    ]
    shares = sums[-1] / total if total else np.full(len(PERIODS), np.nan)
    last = [f"{100 * v:.1f} %" if np.isfinite(v) else "none" for v in shares]
    rows.append(["Share", *last, "100 %" if total else "none"])
    return Table(
        ["Purpose", *(f"{period}\n{HOURS[period]}" for period in PERIODS), "Day"],
        rows,
        "Trips by period, by the hour at which they begin (person trips of an average weekday)",
    )
