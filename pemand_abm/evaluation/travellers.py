"""The scenarios of MIND's evaluation: journeys, travellers, their wishes, and groups that differ.

MIND §3.1 and appendix A; PROTOCOLS, MIND. Travellers are drawn from the nine fields of Stravl's
survey, since its file of users is not at hand; journeys are TravelPlanner's (MIT licence,
`evaluation/journeys.csv`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pemand_abm import keys
from pemand_abm.dialogue import Model, converse
from pemand_abm.errors import TableError, listed
from pemand_abm.plans import Plan, Stake, read_plan
from pemand_abm.prompting import data_file, phrase
from pemand_abm.protocols.mind import Delegate, MindSettings, survey
from pemand_abm.tables import write_json_lines

PLAN = "holiday"
POOL, CANDIDATES, ASKED = 400, 200, 12
"""Travellers drawn; candidates of a journey; candidates that a model is asked about."""
RELEVANCE = 0.3
"""What nearness to the journey weighs in the choice of candidates; the rest is variety."""
CONFLICTS, SOFT = 3, (6, 8)
SIZES = (2, 3, 4)
TRIES = 2000
YEAR = (
    *["winter"] * 2,
    *["spring"] * 3,
    *["summer"] * 3,
    *["autumn"] * 3,
    "winter",
)
TIERS = ("frugal", "comfort", "luxury")
_MONTHS = "January February March April May June July August September October November December"


@dataclass(frozen=True, slots=True)
class Journey:
    """Where a group travels: `days` from `start` (a date), `budget` in US dollars for all."""

    trip: str
    origin: str
    destination: str
    days: int
    start: str
    budget: int

    @property
    def season(self) -> str:
        return YEAR[pd.Timestamp(self.start).month - 1]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A group on a journey, and the items that it negotiates: those in soft conflict.

    `profiles` are the nine fields by the delegate's name; `survey_by` says where wishes come from.
    """

    name: str
    journey: Journey
    delegates: tuple[Delegate, ...]
    profiles: Mapping[str, Mapping[str, str]]
    items: tuple[str, ...]
    survey_by: str

    @property
    def plan(self) -> Plan:
        plan = read_plan(PLAN)
        told = phrase("journey", journey=self.journey, size=len(self.delegates))
        return replace(plan, words={**plan.words, "group": told})


# --- journeys and travellers --------------------------------------------------------------------


def read_journeys(path: Path | None = None) -> list[Journey]:
    """Return the journeys of a JSONL file, or TravelPlanner's that come with the package.

    A line of the file is a TravelPlanner record (`query`, `plan`), or has the fields of `Journey`.
    Raises TableError with all faults at once.
    """
    if path is None:
        with resources.files("pemand_abm").joinpath("evaluation", "journeys.csv").open() as file:
            table = pd.read_csv(file, dtype={"trip": str})
        return [Journey(**row) for row in table.to_dict("records")]
    faults: list[str] = []
    found = []
    for number, given in _lines(path, faults):
        try:
            found.append(_journey(given, str(number)))
        except (KeyError, TypeError, ValueError) as fault:
            faults.append(f"line {number}: {fault}")
    if not found and not faults:
        faults.append("holds no journey")
    if faults:
        raise TableError(listed(faults, str(path)))
    return found


def _lines(path: Path, faults: list[str]) -> Iterator[tuple[int, dict]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as fault:
        raise TableError(f"{path}: cannot be read ({fault})") from fault
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            json.dumps(given, ensure_ascii=False).encode("utf-8")
        except (ValueError, RecursionError) as fault:
            faults.append(f"line {number}: not JSON in UTF-8 ({str(fault)[:80]})")
            continue
        if isinstance(given, dict):
            yield number, given
        else:
            faults.append(f"line {number}: not a JSON object")


def _journey(given: Mapping[str, Any], number: str) -> Journey:
    if "query" in given:
        given = _travelplanner(given)
    lacking = [k for k in ("origin", "destination", "days", "start", "budget") if k not in given]
    if lacking:
        raise ValueError(f"lacks {', '.join(lacking)} (or a TravelPlanner `query` and `plan`)")
    for name in ("origin", "destination"):
        if not isinstance(given[name], str) or not given[name].strip():
            raise ValueError(f"{name} must be a text, is {str(given[name])[:40]!r}")
    for name, most in (("days", 366), ("budget", 10**9)):
        value = given[name]
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            said = f"must be a whole number from 1 to {most:,}"
            raise ValueError(f"{name} {said}, is {str(value)[:40]!r}")
    start = str(given["start"])
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", start) or pd.isna(
        pd.to_datetime(start, errors="coerce")
    ):
        raise ValueError(f"start must be a date such as 2022-03-13, is {start[:40]!r}")
    own = str(given.get("trip", number))
    return Journey(
        own, given["origin"], given["destination"], given["days"], start, given["budget"]
    )


def _travelplanner(given: Mapping[str, Any]) -> dict[str, Any]:
    """Read a TravelPlanner record: cities and days of its plan, date and budget of its query."""
    days = given.get("plan")
    if not isinstance(given["query"], str) or not isinstance(days, list) or not days:
        raise ValueError("its query must be a text and its plan a list of days")
    first = days[0] if isinstance(days[0], dict) else {}
    cities = re.fullmatch(r"from (.*) to (.*)", str(first.get("current_city", "")))
    money = re.search(r"\$\s?([\d,]*\d)", given["query"])
    when = re.search(rf"({_MONTHS.replace(' ', '|')}) (\d+)(?:st|nd|rd|th)?", given["query"])
    year = re.search(r"\b(20\d\d)\b", given["query"])
    if not (cities and money and when and year):
        raise ValueError("names no cities, dates or budget that can be read")
    return {
        "trip": str(given.get("idx", "")),
        "origin": cities[1],
        "destination": cities[2],
        "days": len(days),
        "start": f"{year[1]}-{_MONTHS.split().index(when[1]) + 1:02d}-{int(when[2]):02d}",
        "budget": int(money[1].replace(",", "")),
    }


def fields() -> dict[str, dict[str, Any]]:
    """Return the nine fields of a traveller: their values and their sentences."""
    return data_file("plans", "travellers")


def draw_travellers(count: int, seed: int) -> pd.DataFrame:
    """Return *count* travellers, index ``traveller`` (1, 2, ...), a column a field.

    Each value of a field is as likely as another, and fields do not depend on each other.
    """
    ids = pd.RangeIndex(1, count + 1, name="traveller")
    return pd.DataFrame(
        {
            name: np.array(given["values"], dtype=object)[
                (
                    keys.uniforms(ids.to_numpy(), seed, "traveller", name) * len(given["values"])
                ).astype(int)
            ]
            for name, given in fields().items()
        },
        index=ids,
    )


def read_travellers(path: Path) -> pd.DataFrame:
    """Return the travellers of a CSV: the nine fields by name, one traveller a row."""
    try:
        head = pd.read_csv(path, dtype=str, keep_default_na=False, header=None, nrows=1)
        table = pd.read_csv(
            path, dtype=str, keep_default_na=False, index_col=False, skip_blank_lines=False
        )
    except (OSError, ValueError) as fault:
        raise TableError(f"{path}: cannot be read as CSV ({fault})") from fault
    names = head.iloc[0] if len(head) else pd.Series(dtype=str)
    twice = names[names.duplicated()].unique()
    faults = [f"column {name} stands there twice; leave one" for name in twice]
    table = table[(table != "").any(axis=1)]
    for name, given in fields().items():
        if name not in table:
            faults.append(f"column {name} is missing; it holds one of {', '.join(given['values'])}")
            continue
        strange = table[name][~table[name].isin(given["values"])]
        if len(strange):
            faults.append(
                f"{name}: {len(strange)} values are not known, first {strange.iloc[0]!r} in line"
                f" {strange.index[0] + 2}; known are {', '.join(given['values'])}"
            )
    if len(table) < 2 * max(SIZES):
        faults.append(f"{len(table)} travellers are too few; give {2 * max(SIZES)} or more")
    if faults:
        raise TableError(listed(faults, str(path)))
    return table[list(fields())].set_axis(
        pd.RangeIndex(1, len(table) + 1, name="traveller"), axis=0
    )


def about(row: Mapping[str, str]) -> str:
    """Return what is said of a traveller, from his fields."""
    return " ".join(g["sentence"].format(value=row[name]) for name, g in fields().items())


def diverse(travellers: pd.DataFrame, journey: Journey, count: int) -> list[int]:
    """Return positions of *count* travellers who fit the journey's season and differ most.

    Maximal marginal relevance (Carbonell and Goldstein 1998): relevance is the cosine of a
    traveller's words to those of the journey (season, and its budget's tier by dollars a day),
    variety that to the travellers chosen before, both of scikit-learn's TF-IDF vectors.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    fitting = np.flatnonzero(travellers["season"].isin([journey.season, "any"]).to_numpy())
    if not len(fitting):
        return []
    words = [
        " ".join(f"{n}={v}".replace(" ", "_") for n, v in row.items())
        for row in travellers.iloc[fitting].to_dict("records")
    ]
    tier = TIERS[int(np.digitize(journey.budget / journey.days, [300, 700]))]
    asked = f"season={journey.season} budget_tier={tier}"
    vectors = TfidfVectorizer(token_pattern=r"\S+", lowercase=False).fit([*words, asked])
    x = vectors.transform(words)
    near = (x @ vectors.transform([asked]).T).toarray().ravel()
    alike = (x @ x.T).toarray()
    chosen: list[int] = []
    closest = np.zeros(len(words))
    for _ in range(min(count, len(words))):
        worth = RELEVANCE * near - (1 - RELEVANCE) * closest
        worth[chosen] = -np.inf
        best = int(np.argmax(worth.round(9)))
        chosen.append(best)
        closest = np.maximum(closest, alike[best])
    return [int(fitting[k]) for k in chosen]


# --- wishes -------------------------------------------------------------------------------------


def wishes_by_rule(travellers: pd.DataFrame, seed: int) -> list[dict[str, Stake]]:
    """Return each traveller's wishes by rule (`plans.Plan.wishes`)."""
    plan = read_plan(PLAN)
    draws = plan.draws(travellers.index, seed)
    rows = travellers.to_dict("records")
    return [plan.wishes(row, own) for row, own in zip(rows, draws, strict=True)]


def wishes_by_model(
    travellers: pd.DataFrame, journey: Journey, seed: int, model: Model, settings: MindSettings
) -> list[dict[str, Stake] | None]:
    """Let each traveller answer the survey of twenty items through the model."""
    plan = read_plan(PLAN)
    notice = phrase("journey", journey=journey, size="some")
    return converse(
        [
            survey(
                about(row),
                plan,
                plan.items,
                settings,
                (seed, "traveller", int(key), journey.trip),
                (f"traveller {key}", "wishes"),
                notice,
            )
            for key, row in zip(travellers.index, travellers.to_dict("records"), strict=True)
        ],
        model,
    )


def in_conflict(wishes: Sequence[Mapping[str, Stake]]) -> list[str]:
    """Return the items in soft conflict (6 <= w <= 8, unlike values), what matters most first."""
    low, high = SOFT
    found = []
    for item in wishes[0]:
        soft = {s[item].value for s in wishes if low <= s[item].weight <= high}
        if len(soft) > 1:
            found.append((-sum(s[item].weight for s in wishes), item))
    return [item for _, item in sorted(found, key=lambda pair: pair[0])]


# --- groups -------------------------------------------------------------------------------------


def make_scenarios(
    count: int,
    seed: int,
    items: int,
    travellers: pd.DataFrame | None = None,
    journeys: Sequence[Journey] | None = None,
    model: Model | None = None,
    settings: MindSettings | None = None,
) -> list[Scenario]:
    """Return *count* scenarios: groups of 2, 3 and 4 in turn, each on a journey.

    Members share what is hard (a season that fits the dates, budget tiers at most one step apart)
    and differ in at least three soft conflicts, of which the *items* that matter most are
    negotiated. Wishes are the rule's, or the model's where one is given. A scenario's content does
    not depend on *count*.
    """
    people = draw_travellers(POOL, seed) if travellers is None else travellers
    known = list(journeys or read_journeys())
    order = np.argsort(keys.uniforms(np.arange(len(known)), seed, "journeys"), kind="stable")
    by_rule = wishes_by_rule(people, seed) if model is None else None
    ranked: dict[str, list[int]] = {}
    found = []
    for number in range(1, count + 1):
        journey = known[int(order[(number - 1) % len(known)])]
        near = f"{journey.season} {journey.budget // journey.days}"
        if near not in ranked:
            ranked[near] = diverse(people, journey, CANDIDATES)
        pool = ranked[near]
        if by_rule is not None:
            wishes: list[dict[str, Stake] | None] = [by_rule[k] for k in pool]
        else:
            assert model is not None and settings is not None
            first = keys.digest(seed, "candidates", number) % max(1, len(pool))
            pool = [*pool[first:], *pool[:first]][:ASKED]
            wishes = wishes_by_model(people.iloc[pool], journey, seed, model, settings)
        size = SIZES[(number - 1) % len(SIZES)]
        chosen = _group(people.iloc[pool], wishes, size, keys.generator(seed, "group", number))
        if chosen is None:
            raise TableError(
                f"scenario {number}: of {len(pool)} candidates no {size} share season and budget"
                f" and differ in {CONFLICTS} soft conflicts; give more, or more varied, travellers"
            )
        found.append(_scenario(number, journey, people.iloc[pool], wishes, chosen, items, model))
    return found


def _group(
    people: pd.DataFrame,
    wishes: Sequence[Mapping[str, Stake] | None],
    size: int,
    draw: np.random.Generator,
) -> list[int] | None:
    tiers = people["budget_tier"].map({t: k for k, t in enumerate(TIERS)}).to_numpy()
    able = np.array([k for k, w in enumerate(wishes) if w], dtype=int)
    if len(able) < size:
        return None
    for _ in range(TRIES):
        chosen = draw.choice(able, size, replace=False)
        if np.ptp(tiers[chosen]) > 1:
            continue
        theirs = [w for k in chosen if (w := wishes[int(k)])]
        if len(in_conflict(theirs)) >= CONFLICTS:
            return [int(k) for k in chosen]
    return None


def _scenario(
    number: int,
    journey: Journey,
    people: pd.DataFrame,
    wishes: Sequence[Mapping[str, Stake] | None],
    chosen: Sequence[int],
    items: int,
    model: Model | None,
) -> Scenario:
    rows = people.iloc[list(chosen)].to_dict("records")
    names = [f"traveller {k}" for k in range(1, len(rows) + 1)]
    theirs = [w for k in chosen if (w := wishes[k])]
    return Scenario(
        f"s{number:03d}",
        journey,
        tuple(Delegate(n, about(r), w) for n, r, w in zip(names, rows, theirs, strict=True)),
        {n: {str(k): str(v) for k, v in r.items()} for n, r in zip(names, rows, strict=True)},
        tuple(in_conflict(theirs)[:items]),
        "rule" if model is None else str(model.identity.get("model")),
    )


# --- files --------------------------------------------------------------------------------------


def write_scenarios(scenarios: Sequence[Scenario], path: Path) -> None:
    """Write one JSON object a scenario (docs/files.md)."""
    write_json_lines(map(_written, scenarios), path)


def _written(scenario: Scenario) -> dict:
    j = scenario.journey
    return {
        "scenario": scenario.name,
        "journey": {f: getattr(j, f) for f in Journey.__dataclass_fields__},
        "survey_by": scenario.survey_by,
        "items": list(scenario.items),
        "members": [
            {
                "name": d.name,
                "profile": dict(scenario.profiles[d.name]),
                "about": d.about,
                "wishes": {
                    item: {"value": s.value, "importance": s.weight, "reason": s.reason}
                    for item, s in d.stakes.items()
                },
            }
            for d in scenario.delegates
        ],
    }


def read_scenarios(path: Path) -> list[Scenario]:
    """Read scenarios that `write_scenarios` wrote, or a planner's own of the same form."""
    faults: list[str] = []
    found = []
    for number, given in _lines(path, faults):
        try:
            found.append(_read(given))
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            said = f"lacks {fault}" if isinstance(fault, KeyError) else str(fault)
            faults.append(f"line {number}: {said}")
    names = [s.name for s in found]
    faults += [f"scenario {n!r} stands twice" for n in dict.fromkeys(names) if names.count(n) > 1]
    if not found and not faults:
        faults.append("holds no scenario")
    if faults:
        raise TableError(listed(faults, str(path)))
    return found


def _read(given: Mapping[str, Any]) -> Scenario:
    plan = read_plan(PLAN)
    known = {item.name: item for item in plan.items}
    shape = {"items": list, "members": list, "journey": dict}
    for name, kind in shape.items():
        if not isinstance(given[name], kind):
            said = "an object" if kind is dict else "a list"
            raise ValueError(f"{name} must be {said}, is {str(given[name])[:40]!r}")
    if not all(isinstance(m, dict) and isinstance(m.get("wishes"), dict) for m in given["members"]):
        raise ValueError("members must be objects with name, about and wishes")
    items = tuple(map(str, given["items"]))
    if len(set(items)) < len(items):
        raise ValueError("items: one stands there twice")
    if strange := [i for i in items if i not in known]:
        raise ValueError(f"items {', '.join(map(str, strange))} are not known: {', '.join(known)}")
    delegates, profiles = [], {}
    for member in given["members"]:
        stakes = {}
        for item, wish in member["wishes"].items():
            if not isinstance(wish, dict):
                raise ValueError(f"{member.get('name')}: {item} must be an object")
            told = wish["importance"]
            whole = isinstance(told, int) and not isinstance(told, bool) and 0 <= told <= 10
            if item not in known or wish["value"] not in known[item].values or not whole:
                raise ValueError(
                    f"{member['name']}: {item} {wish['value']!r} of importance"
                    f" {wish['importance']} is no wish of the survey (importance 0 to 10)"
                )
            stakes[item] = Stake(wish["value"], max(1, told), str(wish.get("reason", "")))
        if lacking := [i for i in items if i not in stakes]:
            raise ValueError(f"{member['name']}: has no wish of {', '.join(lacking)}")
        if not isinstance(member["about"], str):
            raise ValueError(f"{member['name']}: about must be a text")
        delegates.append(Delegate(str(member["name"]), member["about"], stakes))
        profiles[str(member["name"])] = dict(member.get("profile", {}))
    strange = [d.name for d in delegates if not re.fullmatch(r"\w[\w .'-]{0,39}", d.name)]
    if strange:
        raise ValueError(f"{strange[0][:40]!r} is no name (letters, digits, spaces; 40 at most)")
    if len({d.name for d in delegates}) < max(2, len(delegates)) or not items:
        raise ValueError("a scenario has two members or more, of different names, and an item")
    journey = _journey({k: v for k, v in given["journey"].items() if k != "query"}, "")
    return Scenario(
        str(given["scenario"]),
        journey,
        tuple(delegates),
        profiles,
        items,
        str(given.get("survey_by", "file")),
    )
