"""What a run leaves behind: who decided what, what happened when, and what the run was made of.

Everything is computed first and written at the end, `run.yaml` last: a folder with a `run.yaml` is
a whole run.
"""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import yaml

from pemand_abm import __version__
from pemand_abm.admission import Admission
from pemand_abm.agreements import in_words, outcome_of
from pemand_abm.calibration import FILE as CALIBRATION
from pemand_abm.dialogue import Model
from pemand_abm.domains import TRIPS
from pemand_abm.errors import BudgetExhausted
from pemand_abm.export import write_demand
from pemand_abm.housing import YEAR
from pemand_abm.levers import start_minute
from pemand_abm.people import Decision
from pemand_abm.prompting import prompts_sha256
from pemand_abm.region import inputs_sha256
from pemand_abm.scenario import files_of
from pemand_abm.study import Study
from pemand_abm.surrogate import PURPOSES, group_quarters_trips
from pemand_abm.synthesis import fit_summary
from pemand_abm.tables import sha256, write_csv, write_json_lines, write_parquet, write_text
from pemand_abm.terms import LAND_USE
from pemand_abm.totals import INTERVAL, Totals, settle
from pemand_abm.validation import trip_rates
from pemand_abm.world import TRAVEL_MINUTE, Heard, History, Settled

if TYPE_CHECKING:
    from pemand_abm.forecast import Forecast

# Only zone ids that an OMX lookup cannot hold have the first two, only runs with plans the third,
# only those of several years the fourth, only levers that change somebody's facts the fifth;
# old ones would mislead (`matrices`).
SIDECARS = (
    "trips_zones.csv",
    "moves_zones.csv",
    "plans.parquet",
    "years.csv",
    "levers.parquet",
)
NOT_ADMITTED = (
    "No evaluation card covers this model and these prompts, so the negotiations are shown to be "
    "read and stay out of the zone totals: every total is the survey surrogate's."
)
BY_TERMS = (
    "No evaluation card covers this model and these prompts, so every total is the survey "
    "surrogate's, but for where {n} movers go: they looked for a home by the terms that their "
    "members negotiated, as the scenario asks. How many households move is the census rate's."
)
ADMITTED = (
    "This model has a level card, so {n} negotiated travel days entered the totals: "
    "{total:,.0f}{interval} person trips on an average weekday. Moves are the census rate's."
)
NOBODY = "Nobody negotiated: every total is the survey surrogate's."


def decisions_table(study: Study, heard: list[Heard]) -> pd.DataFrame:
    """Return one row a household and event.

    Every row says where its value came from (docs/files.md).
    """
    ids = study.population.households.index
    year = study.relocation.households
    days = study.trips.assign(
        event=study.travel_day,
        kind="trips",
        minute=study.start + TRAVEL_MINUTE,
        value=study.trips["trips"],
        expected=study.expected["mean"],
        **{f"expected_{p}": study.expected[p] for p in PURPOSES},
    ).join(study.samples["trips"])
    moves = (
        pd.DataFrame(0, index=ids, columns=list(PURPOSES))
        .assign(
            event=study.relocation_year,
            kind="relocation",
            minute=study.start + year["minute"],
            value=year["moves"].astype("int64"),
            expected=year["probability"],
            **{f"expected_{p}": 0.0 for p in PURPOSES},
        )
        .join(study.samples["relocation"])
    )
    table = pd.concat([days, moves]).rename_axis("household_id").reset_index()
    said = pd.DataFrame(
        [(h.talk.household.id, h.talk.domain.name, *_outcome(h.decision)) for h in heard],
        columns=["household_id", "kind", "negotiated", "outcome"],
    )
    table = table.merge(said, on=["household_id", "kind"], how="left")
    return pd.DataFrame(
        {
            "household_id": table["household_id"],
            "event": table["event"].astype("str"),
            "kind": table["kind"].astype("str"),
            "minute": table["minute"].astype("int64"),
            "value": table["value"].astype("int64"),
            **{purpose: table[purpose].astype("int64") for purpose in PURPOSES},
            "expected": table["expected"],
            **{f"expected_{purpose}": table[f"expected_{purpose}"] for purpose in PURPOSES},
            # Negotiated trips enter only with a level card (`totals.with_sources`).
            "source": "surrogate",
            "negotiated": table["negotiated"].astype("Int64"),
            "outcome": table["outcome"].fillna("").astype("str"),
            "sampled": table["stratum"].notna(),
            "stratum": table["stratum"].fillna("").astype("str"),
            "inclusion": table["inclusion"],
        }
    )


def _outcome(decision: Decision | None) -> tuple[int | None, str]:
    if decision is None:
        return None, "not reached"
    if isinstance(decision.value, str):
        return int(decision.value == "move"), decision.outcome
    return decision.value, decision.outcome


def events_table(study: Study, history: History, later: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return every event in the order of time.

    Each household has its travel day and its decision to stay or move. *later* are the raw events
    of the years after the base year (`forecast`); they have persons, and begin outside the region.
    """
    table = raw_events(study, history)
    if later is not None:
        table = pd.concat([table.astype({"from": object, "to_zone": object}), later])
    table = table.sort_values("minute", kind="stable", ignore_index=True)
    zones = study.region.zones.index
    maybe = "Int64" if pd.api.types.is_integer_dtype(zones) else "str"
    home = study.population.households["home_zone_id"].dtype
    columns = {
        "event_id": np.arange(1, len(table) + 1),
        "minute": table["minute"].to_numpy("int64"),
        "kind": table["kind"].astype("str").to_numpy(),
        "household_id": table["household_id"].to_numpy("int64"),
        "from_zone": table["from"].astype(home if later is None else maybe).array,
        "to_zone": table["to_zone"].astype(maybe).array,
        "detail": table["detail"].fillna("").astype("str").array,
    }
    if later is not None:
        columns["person_id"] = table["person_id"].astype("Int64").array
    return pd.DataFrame(columns)


def raw_events(study: Study, history: History) -> pd.DataFrame:
    """Return the events of a study's year: `minute`, `kind`, `household_id`, zones, `detail`."""
    households, year = study.population.households, study.relocation.households
    zones = study.region.zones.index
    home = households["home_zone_id"]
    days = pd.DataFrame(
        {"minute": TRAVEL_MINUTE, "kind": "travel_day", "household_id": home.index, "from": home}
    )
    decided = pd.DataFrame(
        {
            "minute": year["minute"],
            "kind": np.where(year["moves"], "decided_to_move", "decided_to_stay"),
            "household_id": year.index,
            "from": home,
        }
    )
    talks = pd.DataFrame(
        [
            (h.minute, "negotiated", h.talk.household.id, h.talk.household.zone, _told(h))
            for h in history.heard
        ],
        columns=["minute", "kind", "household_id", "from", "detail"],
    )
    plans = pd.DataFrame(
        [
            (s.minute, PLANNED[s.talk.kind], s.talk.household.id, s.talk.household.zone, _plan(s))
            for s in history.settled
        ],
        columns=["minute", "kind", "household_id", "from", "detail"],
    )
    moves = pd.DataFrame(
        history.moves, columns=["minute", "kind", "household_id", "at", "to", "detail"]
    )
    moves["from"] = zones[moves["at"].astype("int64")]
    reached = moves["to"].notna()
    moves["to_zone"] = pd.Series(
        zones[moves.loc[reached, "to"].astype("int64")], index=moves.index[reached]
    )
    table = pd.concat([days, talks, decided, plans, moves], ignore_index=True)
    return table.assign(minute=study.start + table["minute"].astype("int64"))


def _told(heard: Heard) -> str:
    return f"{heard.talk.domain.name}: {_outcome(heard.decision)[1]}"


PLANNED = {"terms": "settled_terms", "shared_trip": "planned_trip"}


def _plan(settled: Settled) -> str:
    if settled.agreement is None:
        return "not reached"
    return in_words(settled.agreement.cases)


def plans_table(history: History, events: pd.DataFrame) -> pd.DataFrame:
    """Return one row a household, plan and item: what was settled, and by whose wish."""
    rows = [
        {
            "household_id": s.talk.household.id,
            "event": s.talk.event,
            "kind": s.talk.kind,
            "minute": s.minute,
            "item": case.item,
            "value": case.value,
            "outcome": case.outcome,
            "rounds": case.rounds,
            "proposer": case.proposer,
            "insisted": ", ".join(case.insisted()),
            "yielded": ", ".join(case.yielded()),
        }
        for s in history.settled
        if s.agreement
        for case in s.agreement.cases
    ]
    table = pd.DataFrame(rows)
    taken = _taken(events).reindex(table["household_id"]).set_axis(table.index)
    return table.assign(zone_taken=taken.where(table["kind"] == "terms"))


def _taken(events: pd.DataFrame) -> pd.Series:
    """Return the zone that each household moved to last, by household id."""
    moved = events[events["kind"] == "moved"].drop_duplicates("household_id", keep="last")
    return moved.set_index("household_id")["to_zone"]


def settled(households: pd.DataFrame, events: pd.DataFrame, districts: pd.Series) -> pd.DataFrame:
    """Return the households after their moves.

    `home_zone_id_before` keeps where they lived on the travel day.
    """
    taken, after = _taken(events), households["home_zone_id"].copy()
    after.loc[taken.index] = taken.astype(after.dtype)
    return households.assign(
        home_zone_id=after,
        district=after.map(districts).astype(households["district"].dtype),
        home_zone_id_before=households["home_zone_id"],
    )


def write_run(
    study: Study, history: History, out: Path, manifest: dict, later: Forecast | None = None
) -> dict:
    """Write all files of a run but the report into *out*, and return the whole manifest.

    Of a run of several years, *later* is what came after the base year: population, demand and
    maps are those of the last year then.
    """
    decisions, events = decisions_table(study, history.heard), events_table(study, history)
    zone_of = _taken(events).to_dict()
    reasons = _kept_out(study, manifest, later)
    decisions, totals = settle(study, decisions, manifest["admitted"] and not reasons)
    last, days, year = study, decisions, events
    if later is not None:
        last, days = later.study, decisions_table(later.study, [])
        decisions = pd.concat([decisions, days], ignore_index=True)
        events = events_table(study, history, later.events)
        year = events[events["minute"] > last.start]
        write_csv(later.years, out / "years.csv")
    population = last.population
    quarters = group_quarters_trips(population.group_quarters["persons"], last.rates)
    notes = write_demand(
        out,
        last.region,
        population.households,
        days,
        year,
        last.rates,
        quarters,
        study.demand,
        totals.at_home,
        totals.zone_methods,
    )
    write_csv(totals.table, out / "estimates.csv")
    write_parquet(
        settled(population.households, year, last.region.zones["district"]),
        out / "households.parquet",
    )
    write_parquet(population.persons, out / "persons.parquet")
    write_parquet(population.group_quarters, out / "group_quarters.parquet")
    write_parquet(decisions, out / "decisions.parquet")
    write_parquet(events.set_index("event_id"), out / "events.parquet")
    groups = _completed(study, history)
    write_csv(_calibration(groups), out / "moves_calibration.csv")
    write_csv(fit_summary(population.fit), out / "fit_summary.csv")
    write_csv(trip_rates(days, population.households, last.rates), out / "trip_rates.csv")
    if any(s.agreement for s in history.settled):
        write_parquet(plans_table(history, events), out / "plans.parquet")
    if len(last.policy.changes):
        write_parquet(last.policy.changes, out / "levers.parquet")
    talks = [_record(study, heard) for heard in history.heard if heard.decision]
    talks += [_plan_record(plan, zone_of) for plan in history.settled if plan.agreement]
    write_json_lines(talks, out / "transcripts.jsonl")
    counts = events["kind"].value_counts().sort_index()
    if last.policy.levers:
        manifest |= {"levers": list(last.policy.levers)}
    manifest = manifest | {
        "counts": {
            "zones": len(study.region.zones),
            "households": len(population.households),
            "persons": len(population.persons),
            "trips": _trips(days, totals),
            **{str(kind): int(n) for kind, n in counts.items()},
        },
        "notes": [
            *_whose_totals(study, history, totals),
            *totals.notes,
            *reasons,
            *_asleep(study),
            *_fewer(study, history),
            *_shortfall(groups, bool(study.policy.levers)),
            *(later.notes if later else ()),
            *notes,
            *manifest["notes"],
        ],
    }
    write_text(yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True), out / "run.yaml")
    return manifest


def _completed(study: Study, history: History) -> pd.DataFrame:
    """Return the groups of movers with the moves that this run completed.

    They differ from the calibrated ones where agreed terms led movers to other zones.
    """
    groups, members = study.relocation.groups, study.relocation.households["group"]
    done = members.loc[history.moved()].value_counts().reindex(groups.index, fill_value=0)
    return groups.assign(completed=done, difference=done - groups["wanted"])


def _kept_out(study: Study, manifest: dict, later: Forecast | None) -> list[str]:
    """Say why an admitted model's negotiations stay out of this run's totals all the same."""
    if not manifest["admitted"]:
        return []
    answers = any(c["card"] == "response" and c["passed"] for c in manifest["cards"])
    reasons = []
    if study.policy.levers and not answers:
        reasons.append(
            "Levers act, and the model has no response card: its negotiations stay out of the "
            "totals."
        )
    if later is not None:
        reasons.append(
            "Negotiations were held in the base year alone: they stay out of the last year's "
            "totals."
        )
    return reasons


def _trips(decisions: pd.DataFrame, totals: Totals) -> int:
    """Return the region's person trips of an average weekday, as `demand.csv` has them."""
    if totals.at_home is not None:
        return round(float(totals.at_home.sum().sum()))
    return int(decisions["value"][decisions["kind"] == "trips"].sum())


def _whose_totals(study: Study, history: History, totals: Totals) -> list[str]:
    """Return the sentence that says whose numbers the totals are, and what terms cannot tell."""
    if totals.at_home is not None:
        row = totals.table.loc[("region", "all", "all")]
        about = "" if pd.isna(row["se"]) else f" [{row['low']:,.0f}, {row['high']:,.0f}]"
        return [
            ADMITTED.format(n=int(row["n"]), total=row["estimate"], interval=about),
            INTERVAL,
        ]
    held = sum(s.agreement is not None and s.talk.kind == "terms" for s in history.settled)
    if not held or study.terms is None:
        return [NOT_ADMITTED if history.heard or history.settled else NOBODY]
    lacks = [
        f"Terms: the land use has no {', '.join(LAND_USE[term])}, so `{term}` says nothing of a"
        " zone."
        for term in study.terms.places.unknown
    ]
    return [BY_TERMS.format(n=held), *lacks]


def _fewer(study: Study, history: History) -> list[str]:
    """Say where fewer households settled a plan than the scenario asks for."""
    asked = {
        "terms": (study.scenario.negotiate.terms, "movers"),
        "shared_trip": (study.scenario.negotiate.shared_trip, "households"),
    }
    held = {kind: sum(s.talk.kind == kind for s in history.settled) for kind in asked}
    return [
        f"negotiate.{kind}: {wanted:,} are asked for, {held[kind]:,} {who} have two members who"
        " speak."
        for kind, (wanted, who) in asked.items()
        if held[kind] < wanted
    ]


def _asleep(study: Study) -> list[str]:
    """Name the levers of the scenario that do not act yet on the run's last travel day."""
    levers, year = study.scenario.levers, study.region.recipe.base_year
    end = (study.scenario.years - 1) * YEAR + TRAVEL_MINUTE
    late = [e for e in levers.entries() if start_minute(e.start, year) > end]
    said = "levers.{}: starts {}, after the last travel day of this run; it changes nothing"
    return [said.format(e.name, e.start) for e in late]


def _shortfall(groups: pd.DataFrame, levers: bool) -> list[str]:
    """Say when the housing market could not complete the moves that the census rates ask for."""
    wanted, done = int(groups["wanted"].sum()), int(groups["completed"].sum())
    if (groups["difference"] == 0).all():
        return []
    if levers:
        return [
            f"Moves: {done:,} were completed under the levers; without them, it is to be "
            f"{wanted:,}, the census rates' number. moves_calibration.csv has them by group."
        ]
    return [
        f"Moves: {done:,} were completed of {wanted:,} that the census rates ask for; "
        "moves_calibration.csv has them by group. Too few dwellings are vacant, or none where "
        "movers look."
    ]


def _calibration(groups: pd.DataFrame) -> pd.DataFrame:
    parts = groups.index.str.split(" ", n=1, expand=True).to_frame(
        index=False, name=["tenure", "age"]
    )
    return parts.set_index(groups.index.rename("group")).join(groups)


def _record(study: Study, heard: Heard) -> dict:
    assert heard.decision is not None
    household = heard.talk.household.id
    if heard.talk.domain.name == TRIPS.name:
        drawn: int | str = int(study.trips.loc[household, "trips"])
    else:
        drawn = "move" if study.relocation.households.loc[household, "moves"] else "stay"
    return heard.talk.record(heard.personas, heard.decision, heard.calls, drawn=drawn)


def _plan_record(plan: Settled, zone_of: dict) -> dict:
    assert plan.agreement is not None
    home = plan.talk.household.id
    known = {"zone_taken": zone_of.get(home)} if plan.talk.kind == "terms" else {}
    return plan.talk.record(plan.agreement, plan.calls, **known)


def manifest_of(
    study: Study,
    history: History,
    model: Model,
    settings_file: Path,
    admission: Admission | None = None,
) -> dict:
    """Return what the run was made of; calls, tokens and times are added by who measured them."""
    scenario, region = study.scenario, study.region
    admitted = admission or Admission()
    kinds = [h.talk.domain.name for h in history.heard if h.decision is not None]
    kinds += [s.talk.kind for s in history.settled if s.agreement is not None]
    ends = [_outcome(h.decision)[1] for h in history.heard]
    ends += [
        outcome_of(s.agreement.cases) if s.agreement else "not reached" for s in history.settled
    ]
    return {
        "scenario": settings_file.stem,
        "title": scenario.title,
        "region": region.recipe.name,
        "region_folder": str(scenario.region),
        "seed": scenario.seed,
        "model": dict(model.identity),
        **admitted.as_dict(),
        "prompts_sha256": prompts_sha256(),
        "settings": scenario.model_dump(
            mode="json", exclude={"region", "rates", "base_url", "levers", "cards"}
        )
        | ({"levers": given} if (given := scenario.levers.given()) else {}),
        **({"levers": list(study.policy.levers)} if study.policy.levers else {}),
        **({"calibration": list(study.calibration.rows)} if study.calibration.rows else {}),
        "sampled": {kind: len(sample) for kind, sample in study.samples.items()},
        "negotiations": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
        "outcomes": pd.Series(ends, dtype="str").value_counts().sort_index().to_dict(),
        "notes": [
            *study.calibration.note("decay" in scenario.demand.model_fields_set),
            *map(_sentence, admitted.reasons),
            *getattr(model, "notes", ()),
        ],
        "talk_calls": sum(h.calls for h in history.heard) + sum(s.calls for s in history.settled),
        "inputs": {
            **{
                "scenario" if k == 0 else f"base {file.name}": sha256(file)
                for k, file in enumerate(files_of(settings_file))
            },
            **{f"rates/{file.name}": sha256(file) for file in sorted(scenario.rates.glob("*.csv"))},
            **{
                f"region/{name}": digest
                for name, digest in inputs_sha256(scenario.region, region.recipe).items()
            },
            **(
                {f"region/{CALIBRATION}": sha256(region.folder / CALIBRATION)}
                if study.calibration.rows
                else {}
            ),
        },
        "versions": {
            "pemand-abm": __version__,
            "python": platform.python_version(),
            **{
                name: metadata.version(name)
                for name in ("numpy", "pandas", "scipy", "simpy", "geopandas", "pyarrow")
            },
        },
    }


def _sentence(reason: str) -> str:
    return f"{reason[0].upper()}{reason[1:]}."


def stop_if_unreached(history: History, out: Path) -> None:
    """Raise `BudgetExhausted` when the budget ended before every sampled household was heard."""
    asked = len(history.heard) + len(history.settled)
    lost = sum(h.decision is None for h in history.heard)
    lost += sum(s.agreement is None for s in history.settled)
    if lost:
        raise BudgetExhausted(
            f"the budget of model calls ended before {lost} of {asked} sampled "
            f"households could be heard; all outputs are in {out} and the journal is kept. "
            "Raise budget.calls in the scenario and run again: only what is missing is asked."
        )
