"""The report of a run: one HTML file from the run's files alone, that opens offline.

Tables are computed here and laid out by `templates/report.html.j2`; `figures` draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
import yaml

from pemand_abm import figures, transcript, validation
from pemand_abm.errors import PemandError
from pemand_abm.figures import PURPOSE_WORDS
from pemand_abm.geopackage import read_zones
from pemand_abm.housing import YEAR
from pemand_abm.matrices import read_skims
from pemand_abm.pages import LEAST, Table, number, page, zone_facts
from pemand_abm.report_tables import levers_table, periods_table, vehicle_tables
from pemand_abm.surrogate import PURPOSES
from pemand_abm.tables import write_text

if TYPE_CHECKING:
    from geopandas import GeoDataFrame

Read = TypeVar("Read")

FILE = "report.html"
NEEDED = (
    "run.yaml",
    "decisions.parquet",
    "events.parquet",
    "households.parquet",
    "demand.csv",
    "zones.gpkg",
)
EVENT_WORDS = {
    "travel_day": "travel days simulated",
    "negotiated": "households negotiated a decision",
    "decided_to_stay": "households decided to stay",
    "decided_to_move": "households decided to move",
    "settled_terms": "movers settled the terms of their move",
    "planned_trip": "households planned a journey together",
    "queued": "had to wait for a vacant dwelling",
    "moved": "moved",
    "gave_up": "found none, gave up and stayed",
    "still_queued": "still waited for a dwelling when the year ended",
    "born": "persons born",
    "died": "persons died",
    "left_home": "persons left their parents' home",
    "joined": "persons moved together with a spouse",
    "parted": "persons left a spouse or partner",
    "started_work": "persons began to work",
    "changed_job": "persons changed the employer",
    "left_work": "persons left work",
    "retired": "persons retired",
    "formed": "households formed",
    "dissolved": "households dissolved",
    "arrived": "households arrived from elsewhere",
    "left_region": "households left the region",
    "found_no_home": "found no dwelling to form a household in",
}


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What a run's folder holds."""

    folder: Path
    manifest: dict[str, Any]
    decisions: pd.DataFrame
    """Of the last year; `asked` are those of all years."""
    asked: pd.DataFrame
    events: pd.DataFrame
    """Of the last year; `calendar` are those of all years."""
    calendar: pd.DataFrame
    households: pd.DataFrame
    demand: pd.DataFrame
    zones: GeoDataFrame
    balance: pd.DataFrame | None
    calibration: pd.DataFrame | None
    fit: pd.DataFrame | None
    columns: pd.DataFrame | None
    persons: pd.DataFrame | None
    rates: pd.DataFrame | None
    estimates: pd.DataFrame | None
    vehicles: pd.DataFrame | None
    transcripts: list[transcript.Record]
    years: pd.DataFrame | None


def read_run(folder: Path) -> Run:
    """Read the files of a run.

    Raises
    ------
    PemandError
        No such folder, or files that a whole run has are not there.
    """
    folder = Path(folder)
    lacking = [name for name in NEEDED if not (folder / name).exists()]
    if lacking:
        raise PemandError(
            f"{folder}: not a whole run, it lacks {', '.join(lacking)}; run `pemand run` with "
            f"--out {folder}"
        )
    manifest = _whole(folder / "run.yaml", lambda p: yaml.safe_load(p.read_text(encoding="utf-8")))
    if not isinstance(manifest, dict):
        raise PemandError(f"{folder / 'run.yaml'}: not a mapping of keys; run `pemand run` again")

    def optional(name: str) -> pd.DataFrame | None:
        path = folder / name
        return _whole(path, pd.read_csv) if path.exists() else None

    zones = _whole(folder / "zones.gpkg", read_zones)
    members = folder / "persons.parquet"
    decisions = _whole(folder / "decisions.parquet", pd.read_parquet)
    events = _whole(folder / "events.parquet", pd.read_parquet)
    last = (manifest.get("settings") or {}).get("years", 1)
    return Run(
        folder=folder,
        manifest=manifest,
        decisions=decisions[decisions["event"].str.endswith(f":{last}")] if last > 1 else decisions,
        asked=decisions,
        events=events[events["minute"] > (last - 1) * YEAR] if last > 1 else events,
        calendar=events,
        households=_whole(folder / "households.parquet", pd.read_parquet),
        demand=_whole(folder / "demand.csv", lambda path: _read_demand(path, zones)),
        zones=zones,
        balance=optional("demand_balance.csv"),
        calibration=optional("moves_calibration.csv"),
        fit=optional("fit_summary.csv"),
        columns=optional("columns.csv"),
        persons=_whole(members, pd.read_parquet) if members.exists() else None,
        rates=optional("trip_rates.csv"),
        estimates=optional("estimates.csv"),
        vehicles=optional("vehicle_trips.csv"),
        transcripts=transcript.read_transcripts(folder),
        years=optional("years.csv"),
    )


def changed_by_levers(run: Run) -> pd.Index:
    """Return the households whose facts a run's levers change (`levers.parquet`)."""
    path = run.folder / "levers.parquet"
    ids = _whole(path, pd.read_parquet)["household_id"] if path.exists() else []
    return pd.Index(ids, dtype=run.households.index.dtype).unique()


def _read_demand(path: Path, zones: GeoDataFrame) -> pd.DataFrame:
    """Read `demand.csv`; a ValueError where it has not every zone of the map, or gaps."""
    table = pd.read_csv(path, dtype={"zone_id": str}).set_index("zone_id")
    gaps = table.select_dtypes("number").isna().any(axis=None)
    if table.index.tolist() != zones.index.astype(str).tolist() or gaps:
        raise ValueError("its rows are not the zones of zones.gpkg, or have gaps")
    return table


def trip_cores(run: Run) -> dict[str, np.ndarray]:
    """Return the matrices of `trips.omx`, zones x zones; none where the run has no such file."""
    path = run.folder / "trips.omx"
    return read_skims(path, run.zones.index) if path.exists() else {}


def largest_flows(zones: pd.Index, cores: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return trips between two zones, both ways together: `from_zone`, `to_zone`, `trips`.

    The most come first; trips within a zone are left out.
    """
    # The file also holds the same trips from origin to destination.
    made = [cores[p.upper()] for p in PURPOSES if p.upper() in cores]
    trips = sum(made, np.zeros((len(zones), len(zones))))
    start, end = np.triu_indices(len(zones), 1)
    between = (trips + trips.T)[start, end]
    order = np.argsort(-between, kind="stable")[: figures.MOST_FLOWS]
    order = order[between[order] > 0]
    columns = {"from_zone": zones[start[order]], "to_zone": zones[end[order]]}
    return pd.DataFrame(columns | {"trips": between[order]})


def _whole(path: Path, read: Callable[[Path], Read]) -> Read:
    """Return what *read* makes of a file; a file that it cannot read is told as damaged."""
    try:
        return read(path)
    # pyarrow and pandas raise kinds of ValueError, pyogrio of RuntimeError.
    except (OSError, ValueError, RuntimeError, KeyError, yaml.YAMLError) as fault:
        said = (str(fault).strip().splitlines() or [type(fault).__name__])[0]
        raise PemandError(f"{path}: is damaged ({said}); run `pemand run` again") from fault


def write_report(out: Path) -> Path:
    """Write `report.html` into the run's folder from its other files, and return its path.

    Raises
    ------
    PemandError
        The folder is not a whole run, or cannot be written.
    """
    run = read_run(out)
    cores = trip_cores(run)
    moves, lines = flows(run), largest_flows(run.zones.index, cores)
    text = page(
        "report.html.j2",
        figures.figures(run.zones, run.demand, run.decisions, moves, lines),
        manifest=run.manifest,
        statement=statement(run),
        headlines=headlines(run),
        zones=zone_facts(run.zones, _zone_words(run)),
        hatched=bool(figures.synthetic(run.zones).any()),
        levers=levers_table(run.manifest),
        demand=demand_tables(run.demand),
        vehicles=vehicle_tables(run.vehicles),
        periods=periods_table(cores),
        estimates=estimate_rows(run.estimates),
        balance=balance_rows(run.balance),
        size_vehicles=size_by_vehicles(run),
        zero=validation.zero_trips(run.rates) if run.rates is not None else None,
        distribution=distribution_words(run),
        equity=validation.equity_tables(run),
        relocation=relocation_table(run.calibration),
        events=event_counts(run.calendar),
        years=years_table(run.years),
        fit=fit_table(run.fit),
        outcomes=outcome_counts(run.asked),
        health=validation.health(run),
        flags=validation.flags(run),
        moderator=moderator_words(run.transcripts),
        moderation=moderation_words(run.transcripts),
        talks=[talk_of(r) for r in to_read(run.transcripts)],
        talks_held=len(run.transcripts),
        flows=moves,
        plans=plans_table(run.transcripts),
        card=run_card(run),
        files=_any_table(run.columns, labels=3),
    )
    path = Path(out) / FILE
    write_text(text, path)
    return path


def _zone_words(run: Run) -> dict[str, tuple[str, str]]:
    """Return what the list of zones tells: how trips were estimated only where talks entered."""
    if figures.synthetic(run.zones).any():
        return {**figures.ZONE_WORDS, "trips_method": ("Trips of its households", "estimate")}
    return figures.ZONE_WORDS


# --- words ----------------------------------------------------------------------------------------


def statement(run: Run) -> dict[str, str]:
    """Return the plain words at the top: whose numbers the zone totals are, and why."""
    held = len(run.transcripts)
    admitted = run.manifest.get("admitted", False)
    entered = int((run.decisions["source"] == "negotiated").sum())
    if admitted and entered:
        return {
            "kind": "in",
            "title": "Negotiations entered the zone totals.",
            "text": f"{entered:,} of {len(run.decisions):,} decisions were negotiated by this "
            "model, which has a level card. They stand for all households: zone totals are the "
            "survey's draws, scaled to what the negotiations say of each district.",
        }
    if held == 0:
        return {
            "kind": "out",
            "title": "The zone totals are the survey surrogate's.",
            "text": "No household negotiated in this run: every decision was drawn from survey "
            "distributions for households of its kind.",
        }
    why = (
        "none of them was counted in this run"
        if admitted
        else "this model has no evaluation card that admits it, so its numbers are not taken for "
        "behaviour"
    )
    terms = (run.manifest.get("negotiations") or {}).get("terms", 0)
    if terms:
        why += (
            f". One exception, which the scenario asks for: {terms:,} movers looked for a home by"
            " the terms that they negotiated, so where these few go is theirs"
        )
    return {
        "kind": "out",
        "title": "The zone totals are the survey surrogate's.",
        "text": f"The negotiations below are there to be read: {why}. Every decision that is "
        "counted was drawn from survey "
        "distributions for households of its kind.",
    }


def headlines(run: Run) -> list[tuple[str, str]]:
    """Return the figures of the first line, each with its words."""
    households, trips = int(run.demand["households"].sum()), float(run.demand["TRIPS_P"].sum())
    moved = int((run.events["kind"] == "moved").sum())
    return [
        (f"{households:,}", "households"),
        (f"{int(run.demand['persons'].sum()):,}", "persons in them"),
        (f"{trips:,.0f}", "person trips of an average weekday"),
        (f"{trips / households:.2f}" if households else "none", "trips a household"),
        (f"{moved:,}", "households moved in the year"),
        (f"{len(run.transcripts):,}", "negotiations to read"),
    ]


def run_card(run: Run) -> list[tuple[str, str]]:
    """Return what made this run, as names and values."""
    manifest = run.manifest
    tokens, seconds = manifest.get("tokens") or {}, manifest.get("wall_seconds") or {}
    model = manifest.get("model") or {}
    rows = [
        ("Scenario", manifest.get("scenario")),
        ("Region", manifest.get("region")),
        ("Seed", manifest.get("seed")),
    ]
    rows += (
        [(f"Model: {_words(k)}", v) for k, v in model.items()]
        if isinstance(model, dict)
        else [("Model", model)]
    )
    rows += [
        *(
            (
                f"Negotiate: {kind}",
                f"{held['given']}, converted into {held['households']:,} households",
            )
            for kind, held in (manifest.get("converted") or {}).items()
        ),
        ("Prompts (SHA-256)", manifest.get("prompts_sha256")),
        ("Model calls", manifest.get("calls")),
    ]
    if tokens:
        rows.append(
            ("Tokens", f"{tokens.get('prompt', 0):,} read, {tokens.get('completion', 0):,} written")
        )
    spent = next(
        (float(s) for step, s in seconds.items() if step.startswith(("negotiat", "talk")) and s),
        None,
    )
    talks = sum((manifest.get("negotiations") or {}).values())
    if spent and talks:
        rows.append(("Negotiation rate", f"{talks} in {spent:,.1f} s, {spent / talks:,.2f} s each"))
    rows += [(f"Time: {_words(step)}", f"{float(s):,.1f} s") for step, s in seconds.items()]
    rows += [
        (f"Version: {name}", version) for name, version in (manifest.get("versions") or {}).items()
    ]
    return [
        (name, f"{value:,}" if name == "Model calls" and isinstance(value, int) else str(value))
        for name, value in rows
        if value is not None
    ]


def _words(name: str) -> str:
    return str(name).replace("_", " ").replace("sha256", "SHA-256")


# --- tables ---------------------------------------------------------------------------------------


def demand_tables(demand: pd.DataFrame) -> list[Table]:
    """Return productions and attractions by district and purpose, and the purposes' shares."""
    return [
        _by_district(demand, end, name)
        for end, name in (("P", "Productions"), ("A", "Attractions, scaled to the productions"))
    ]


def estimate_rows(estimates: pd.DataFrame | None) -> Table | None:
    """Return what the negotiations say of the region and its districts, with their intervals."""
    if estimates is None or not (estimates["n"] > 0).any():
        return None
    of_all = estimates[
        (estimates["level"] == "region")
        | ((estimates["level"] == "district") & (estimates["purpose"] == "all"))
    ]
    words = {**PURPOSE_WORDS, "all": "All purposes"}
    rows = [
        [
            "Region" if r["level"] == "region" else str(r["domain"]),
            words.get(r["purpose"], str(r["purpose"])),
            f"{r['estimate']:,.0f}",
            "not known" if math.isnan(r["se"]) else f"{r['low']:,.0f} to {r['high']:,.0f}",
            f"{r['n']:,}",
            number(r["rows"]),
            "none" if pd.isna(r["method"]) else str(r["method"]),
        ]
        for r in of_all.to_dict("records")
    ]
    used = "used" if (estimates["use"] == "used").all() else "shown, not used"
    return Table(
        [
            "Where",
            "Purpose",
            "Estimate",
            "95 % negotiation-sampling interval",
            "Negotiated",
            "Household rows",
            "Method",
        ],
        rows,
        f"What the negotiations say of all households ({used}; person trips of an average weekday)",
        labels=2,
    )


def _by_district(demand: pd.DataFrame, end: str, name: str) -> Table:
    columns = [f"{p.upper()}_{end}" for p in PURPOSES] + [f"TRIPS_{end}"]
    sums = demand.groupby("district")[columns].sum()
    total = sums.sum()
    shares = total / total.iloc[-1] if total.iloc[-1] else total * 0
    rows = [
        [str(d), *(f"{v:,.0f}" for v in values)]
        for d, values in zip(sums.index, sums.to_numpy(), strict=True)
    ]
    rows += [
        ["Region", *(f"{v:,.0f}" for v in total)],
        ["Share", *(f"{100 * v:.1f} %" for v in shares)],
    ]
    return Table(
        ["District", *PURPOSE_WORDS.values(), "All"],
        rows,
        f"{name} (person trips of an average weekday)",
    )


def balance_rows(balance: pd.DataFrame | None) -> Table | None:
    """Return productions over raw attractions by purpose, with flags outside the usual range."""
    if balance is None:
        return None
    rows, flagged = [], set()
    for i, r in enumerate(balance.to_dict("records")):
        usual = validation.RATIO[0] <= r["ratio"] <= validation.RATIO[1] or math.isnan(r["ratio"])
        flagged |= set() if usual else {i}
        rows.append(
            [
                PURPOSE_WORDS.get(r["purpose"], str(r["purpose"])),
                str(r["rates"]),
                f"{r['productions']:,.0f}",
                f"{r['attractions_raw']:,.0f}",
                number(r["ratio"], 2),
                "" if usual else "flag",
                number(r["mean_minutes"], 1),
                number(100 * r["intrazonal_share"], 1),
            ]
        )
    return Table(
        [
            "Purpose",
            "Trip ends for each unit of the land-use columns",
            "Productions",
            "Raw attractions",
            "Ratio",
            "",
            "Mean minutes by car",
            "% within zone",
        ],
        rows,
        "Before scaling (person trips of an average weekday; the usual range of the ratio is "
        f"{validation.RATIO[0]:.2f} to {validation.RATIO[1]:.2f})",
        labels=2,
        flagged=frozenset(flagged),
    )


def _trip_days(run: Run) -> pd.DataFrame:
    days = run.decisions[run.decisions["kind"] == "trips"]
    return days.join(run.households[["hhsize", "auto_ownership"]], on="household_id")


def size_by_vehicles(run: Run) -> Table:
    """Return mean trips a household by size and vehicles, but not of few households.

    Beside the survey's where the run's folder has them.
    """
    if run.rates is not None:
        return validation.size_by_vehicles(run.rates)
    days = _trip_days(run)
    size, cars = days["hhsize"].clip(upper=5), days["auto_ownership"].clip(upper=3)
    names = {i: f"{i}" for i in range(5)} | {5: "5 and more"}
    rows = [
        [
            names[n],
            *(_mean(days[(size == n) & (cars == c)]) for c in range(4)),
            _mean(days[size == n]),
        ]
        for n in sorted(size.unique())
    ]
    rows.append(["All", *(_mean(days[cars == c]) for c in range(4)), _mean(days)])
    return Table(
        ["Persons", "No vehicle", "1 vehicle", "2 vehicles", "3 and more", "All"],
        rows,
        f"Mean person trips of an average weekday a household (n households; cells under {LEAST} "
        "are not shown)",
    )


def _mean(days: pd.DataFrame) -> str:
    n = len(days)
    if n == 0:
        return "none"
    return f"{days['value'].mean():.2f} (n {n:,})" if n >= LEAST else f"n {n}"


def distribution_words(run: Run) -> str:
    """Return zero share, mean and spread of the households' trips in one sentence."""
    trips = run.decisions["value"][run.decisions["kind"] == "trips"]
    if trips.empty:
        return "No household's travel day was simulated."
    return (
        f"{100 * (trips == 0).mean():.1f} % of the households make no trip on the day; the mean "
        f"is {trips.mean():.2f}, "
        f"the standard deviation {trips.std():.2f}, the most {trips.max():.0f}."
    )


def relocation_table(calibration: pd.DataFrame | None) -> Table | None:
    """Return wanted and completed moves by group; a difference over a twentieth is flagged."""
    if calibration is None:
        return None
    rows, flagged = [], set()
    for i, r in enumerate(calibration.to_dict("records")):
        off = abs(r["difference"]) > max(1.0, 0.05 * r["wanted"])
        flagged |= {i} if off else set()
        rows.append(
            [
                {"own": "Owners", "rent": "Renters"}.get(r["tenure"], str(r["tenure"])),
                str(r["age"]),
                f"{r['households']:,.0f}",
                f"{100 * r['target_rate']:.1f}",
                *(f"{r[c]:,.0f}" for c in ("wanted", "decided", "completed")),
                f"{r['difference']:+,.0f}" if r["difference"] else "0",
                "flag" if off else "",
            ]
        )
    return Table(
        [
            "Tenure",
            "Age of head",
            "Households",
            "Census rate, % a year",
            "Wanted",
            "Decided",
            "Completed",
            "Difference",
            "",
        ],
        rows,
        "Moves by tenure and age of the head (households; wanted = rate x households)",
        labels=2,
        flagged=frozenset(flagged),
    )


def flows(run: Run) -> pd.DataFrame:
    """Return completed moves between two zones: `from_zone`, `to_zone`, `moves`, most first."""
    moved = run.events[run.events["kind"] == "moved"]
    moved = moved.assign(to_zone=moved["to_zone"].astype(moved["from_zone"].dtype))
    table = moved.groupby(["from_zone", "to_zone"], sort=True).size().rename("moves").reset_index()
    table = table[table["from_zone"] != table["to_zone"]]
    return table.sort_values("moves", ascending=False, kind="stable").reset_index(drop=True)


def plans_table(records: Sequence[transcript.Record]) -> Table | None:
    """Return what households settled item by item: who insisted, who yielded, the zone taken."""
    rows = [
        [
            str(r["household_id"]),
            str(i["title"]),
            str(i["value"]),
            transcript.how_words(i),
            f"{r['zone']} to {r['zone_taken']}"
            if r.get("zone_taken") is not None
            else str(r["zone"]),
        ]
        for r in records
        for i in r.get("items", [])
    ]
    if not rows:
        return None
    return Table(
        ["Household", "Point", "Settled", "How", "Zone"],
        rows,
        "Plans that households settled (MIND): the terms of a move, or a journey",
        labels=4,
    )


def event_counts(events: pd.DataFrame) -> Table:
    """Return how many events of each kind there were, in the order of the calendar."""
    counts = events["kind"].value_counts()
    known = [k for k in EVENT_WORDS if k in counts.index]
    others = sorted(set(counts.index) - set(known))
    rows = [[EVENT_WORDS.get(k, _words(k)), f"{counts[k]:,}"] for k in [*known, *others]]
    return Table(["Event", "Number"], rows, "Events of the calendar (events)")


def years_table(years: pd.DataFrame | None) -> Table | None:
    """Return the accounts of the years as the run wrote them."""
    if years is None:
        return None
    table = years.astype({"year": str})
    return _any_table(table, "Years: what happened at the turn into each, and what it held then")


def fit_table(fit: pd.DataFrame | None) -> Table | None:
    """Return the population's fit to its controls as the run wrote it."""
    return _any_table(fit, "Synthetic population and its controls", labels=2)


def _any_table(table: pd.DataFrame | None, caption: str = "", labels: int = 1) -> Table | None:
    if table is None:
        return None
    rows = [[_cell(v) for v in row] for row in table.itertuples(index=False)]
    return Table([_words(c) for c in table.columns], rows, caption, labels=labels)


def _cell(value: object) -> str:
    if isinstance(value, (bool, str)):
        return str(value)
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        return number(float(value), 0 if float(value).is_integer() else 3)
    return "" if pd.isna(value) else str(value)


def outcome_counts(decisions: pd.DataFrame) -> Table | None:
    """Return how the sampled households' negotiations ended."""
    asked = decisions[decisions["outcome"].fillna("") != ""]
    if asked.empty:
        return None
    counts = asked.groupby(["kind", "outcome"]).size()
    kinds = {"trips": "trips of a travel day", "relocation": "stay or move"}
    rows = [[kinds.get(k, k), transcript.outcome_words(o), f"{n}"] for (k, o), n in counts.items()]
    return Table(
        ["Decision", "How it ended", "Households"],
        rows,
        "Negotiations by outcome (households)",
        labels=2,
    )


def moderator_words(records: Sequence[transcript.Record]) -> str:
    """Return what the moderator of these talks may do."""
    kinds = dict.fromkeys(str(r.get("moderator", "judge")) for r in records if not r.get("items"))
    return " ".join(transcript.MODERATORS[kind] for kind in kinds if kind in transcript.MODERATORS)


def moderation_words(records: Sequence[transcript.Record]) -> str:
    """Return how much of what was said was rejected, bounded or replaced, in one sentence."""
    turns = [t for r in records for t in r.get("turns", [])]
    if not turns:
        return ""
    rejected = sum(t.get("verdict") == "reject" for t in turns)
    bounded = sum(t.get("said") is not None and t.get("said") != t.get("value") for t in turns)
    personas = [m for r in records for m in r.get("members", []) if m.get("persona")]
    templated = sum(bool(m.get("templated")) for m in personas)
    return (
        f"Of {len(turns):,} statements {rejected:,} were rejected or objected to "
        f"({100 * rejected / len(turns):.0f} %) and {bounded:,} named a value "
        f"that was bounded. {templated:,} of {len(personas):,} personas failed their checks and "
        "were replaced by the plain facts."
    )


# --- negotiations ---------------------------------------------------------------------------------


def to_read(records: list[transcript.Record], most: int = 3) -> list[transcript.Record]:
    """Return the longest talks of several speakers, one about moving among them."""
    ranked = transcript.talkative(records)
    chosen = ranked[:most]
    moving = [r for r in ranked if r.get("kind") == "relocation"]
    if moving and moving[0] not in chosen:
        chosen = [*chosen[: most - 1], moving[0]]
    return chosen


def talk_of(record: transcript.Record) -> dict[str, Any]:
    """Return a record with every key that the template names."""
    unit = record.get("unit", "")
    turns = [
        {
            "phase": str(t.get("phase", "")),
            "speaker": t.get("speaker", ""),
            "text": t.get("text", ""),
            "value": "" if t.get("value") is None else transcript.value_words(t["value"], unit),
            "scores": transcript.scores_words(t),
            "notes": transcript.turn_notes(t, unit),
            "kept": t.get("kept", True),
        }
        for t in record.get("turns", [])
    ]
    members = [
        {key: m.get(key, default) for key, default in _MEMBER.items()}
        | {"wishes": transcript.wishes_words(m["wishes"]) if m.get("wishes") else ""}
        for m in record.get("members", [])
    ]
    keys = [
        "zone",
        "event",
        "outcome",
        "value",
        "initial",
        "likelihood",
        "drawn",
        "observed",
        "anchor",
        "constraints",
        "calls",
    ]
    known = {key: record.get(key) for key in keys}
    question = QUESTIONS.get(str(record.get("kind")), str(record.get("unit")))
    return known | {
        "household_id": record["household_id"],
        "who": transcript.whose(record),
        "items": [(i["title"], transcript.item_words(i)) for i in record.get("items", [])],
        "unit": unit,
        "question": question,
        "turns": turns,
        "members": members,
    }


QUESTIONS = {"relocation": "whether to move", "trips": "its trips of a weekday"}
_MEMBER: dict[str, Any] = {
    "name": "",
    "speaks": True,
    "facts": [],
    "persona": "",
    "templated": False,
    "reasoning": "",
    "review": "",
    "view": "",
}
