"""The page of a comparison: what the policy changes, where, for whom, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from pemand_abm import figures
from pemand_abm.comparison import ALL, LEAST, Comparison, setting_words
from pemand_abm.effects import NET
from pemand_abm.estimator import LEAST_DIRECT
from pemand_abm.figures import PURPOSE_WORDS
from pemand_abm.groups import GROUPINGS
from pemand_abm.ids import some
from pemand_abm.pages import Table, number, page, zone_facts
from pemand_abm.report import talk_of
from pemand_abm.tables import write_text

FILE = "compare.html"
MEASURES = {
    "trips_difference": ("Trips of the residents", "person trips of a weekday, policy less base"),
    "TRIPS_P_difference": ("Productions", "person trips of a weekday, policy less base"),
    "TRIPS_A_difference": ("Attractions", "person trips of a weekday, policy less base"),
    "moves_difference": ("Moves of the residents", "completed moves of the run, policy less base"),
    "moves_in_difference": ("Moves in", "completed moves of the run, policy less base"),
    "moves_out_difference": ("Moves out", "completed moves of the run, policy less base"),
    "vacant_dwellings_difference": ("Vacant dwellings", "at the end of the run, policy less base"),
}
MOST_TALKS = 3
MOST_ZONES = 10


def write_page(found: Comparison, out: Path) -> None:
    """Write `compare.html` into *out*; it opens offline."""
    trips = found.groups[found.groups["measure"] == "trips"]
    shown = trips[(trips["grouping"] != ALL) & (trips["households"] >= LEAST)]
    zones = found.base.zones[["geometry"]].join(found.zones)
    drawn = {
        "map": figures.as_html(
            figures.zone_map(zones, MEASURES, diverging=True),
            "map",
            figures.map_words(zones, MEASURES),
        )
    }
    if len(shown):
        rows = shown.assign(kind=shown["grouping"].map(GROUPINGS).fillna(shown["grouping"]))
        drawn["groups"] = figures.as_html(
            figures.change_intervals(rows, "change of trips, % of the base, with 95 % interval"),
            "groups",
            "Changes of trips by kind of household with 95 % intervals; the tables have them too.",
        )
    text = page(
        "compare.html.j2",
        drawn,
        base=name_of(found, "base"),
        policy=name_of(found, "policy"),
        identical=found.identical,
        admitted=_admitted(found),
        headlines=headlines(found),
        levers=levers_table(found),
        changed=found.settings,
        zones=zone_facts(zones, {"households": ("Households", "base"), **MEASURES}),
        purposes=purposes_table(found),
        districts=districts_table(found),
        effects=effects_table(found),
        effect_words=effect_words(found),
        largest=largest_zones(found),
        groups=[group_table(found, g) for g in GROUPINGS if g in set(found.groups["grouping"])],
        changes=changes_table(found),
        elasticities=elasticity_table(found),
        sources=sources(found),
        one_only=_in_one_run_only(found),
        talks=[[talk_of(r) for r in pair] for pair in found.talks[:MOST_TALKS]],
        talks_changed=len(found.talks),
        talks_held=_held_in_both(found),
        least=LEAST,
    )
    write_text(text, Path(out) / FILE)


def name_of(found: Comparison, which: str) -> dict[str, str]:
    """Return the folder's name and the title of one of the two runs."""
    run = getattr(found, which)
    title = run.manifest.get("title") or run.manifest.get("scenario") or run.folder.name
    return {"folder": run.folder.name, "title": str(title)}


def _admitted(found: Comparison) -> bool:
    return any(run.manifest.get("admitted") for run in (found.base, found.policy))


def _held_in_both(found: Comparison) -> int:
    held = [
        {(r["household_id"], r.get("event")) for r in run.transcripts}
        for run in (found.base, found.policy)
    ]
    return len(held[0] & held[1])


def _in_one_run_only(found: Comparison) -> int:
    base, policy = found.base.households.index, found.policy.households.index
    return len(base.symmetric_difference(policy))


def interval(row: pd.Series, digits: int = 0) -> str:
    """Return a difference with its interval, as a cell of two lines."""
    if pd.isna(row["low"]):
        return number(row["difference"], digits, sign=True)
    ends = " to ".join(number(row[c], digits, sign=True) for c in ("low", "high"))
    return f"{number(row['difference'], digits, sign=True)}\n{ends}"


def percent(row: pd.Series, digits: int = 2) -> str:
    """Return a change in % with its interval, as a cell of two lines."""
    if pd.isna(row["percent"]):
        return "none"
    ends = " to ".join(number(row[c], digits, sign=True) for c in ("percent_low", "percent_high"))
    told = number(row["percent"], digits, sign=True)
    return told if pd.isna(row["percent_low"]) else f"{told}\n{ends}"


def headlines(found: Comparison) -> list[tuple[str, str]]:
    """Return the figures of the first line, each with its words."""
    trips, moves = found.total("trips"), found.total("moves")
    kinds = found.changes.set_index("grouping").loc[ALL]
    share = 100 * (1 - kinds["same_trips"] / kinds["households"]) if kinds["households"] else 0.0
    moved = int(kinds["moves_more"] + kinds["moves_fewer"])
    return [
        (number(trips["difference"], 0, sign=True), "person trips of an average weekday"),
        (f"{number(trips['percent'], 2, sign=True)} %", "of the base's trips"),
        (number(moves["difference"], 0, sign=True), "completed moves in the year"),
        (f"{share:.1f} %", "of the households make another number of trips"),
        (f"{moved:,}", "households move in one of the two runs only"),
    ]


def levers_table(found: Comparison) -> Table | None:
    """Return the levers that one of the runs sets and the other does not."""
    if not found.levers:
        return None
    rows = [
        [
            str(lever["lever"]).replace("_", " "),
            setting_words(lever),
            str(lever["run"]),
            f"{lever.get('households') or 0:,}",
            "; ".join(map(str, lever.get("facts") or [])) or "none",
        ]
        for lever in found.levers
    ]
    columns = [
        "Lever",
        "Set to",
        "In",
        "Households whose facts it changes",
        "Facts that it changes",
    ]
    return Table(columns, rows, "Levers", labels=3)


MEASURE_WORDS = {"trips": "All trips", "moves": "Moves", **PURPOSE_WORDS}


def purposes_table(found: Comparison) -> Table:
    """Return the region's trips by purpose, and moves."""
    rows = [
        [
            MEASURE_WORDS.get(str(row["measure"]), str(row["measure"])),
            number(row["base"]),
            number(row["policy"]),
            interval(row),
            percent(row),
        ]
        for _, row in found.groups[found.groups["grouping"] == ALL].iterrows()
    ]
    return Table(
        ["", "Base", "Policy", "Difference and 95 % interval", "% and 95 % interval"],
        rows,
        "The region: person trips of an average weekday by purpose, and completed moves of the run",
    )


def _both(table: pd.DataFrame, by: str, title: str, caption: str) -> Table:
    """Return trips and moves side by side, a row a group; small groups are not shown."""
    rows = []
    for name, part in table.groupby(by, sort=False):
        measures = part.set_index("measure")
        trips, moves = measures.loc["trips"], measures.loc["moves"]
        n = int(trips["households"])
        if n < LEAST:
            rows.append([str(name), f"under {LEAST}", *["not shown"] * 5])
            continue
        rows.append(
            [
                str(name),
                f"{n:,}",
                number(trips["base"]),
                interval(trips),
                percent(trips),
                number(moves["base"]),
                interval(moves),
            ]
        )
    columns = ["Households", "Trips, base", "Difference", "%", "Moves, base", "Difference"]
    return Table([title, *columns], rows, caption)


def districts_table(found: Comparison) -> Table:
    """Return differences by district of the home."""
    return _both(
        found.districts,
        "district",
        "District",
        "By district of the home on the travel day (person trips of an average weekday; completed "
        "moves; 95 % intervals)",
    )


def effects_table(found: Comparison) -> Table:
    """Return the published, the negotiated and the used effect by purpose and district."""
    rows = []
    for key, row in found.effects.table.iterrows():
        level, domain, purpose = map(str, key)
        if level != "region" and purpose != ALL:
            continue
        name = MEASURE_WORDS.get("trips" if purpose == ALL else purpose, purpose)
        n = int(row["changed"])
        if level != "region" and 0 < n < LEAST:
            rows.append([f"District {domain}", name, f"under {LEAST}", *["not shown"] * 4])
            continue
        rows.append(
            [
                "The region" if level == "region" else f"District {domain}",
                name,
                f"{n:,}",
                f"{row['n']:,.0f}",
                number(row["effect_published"], 1, sign=True),
                interval(row.rename({"effect_negotiated": "difference"}), 1),
                number(row["effect_used"], 1, sign=True),
            ]
        )
    net = found.placebo is not None
    return Table(
        [
            "Where",
            "",
            "Households whose facts change",
            "Negotiated in both",
            "Published",
            f"Negotiated, {NET if net else 'gross'}, and 95 % interval",
            "Used",
        ],
        rows,
        "What the policy changes by published figures, and by what households negotiated (person "
        "trips of an average weekday)",
        labels=2,
    )


def effect_words(found: Comparison) -> list[str]:
    """Return what the effects of the region say, in sentences for a planner."""
    effects, row = found.effects, found.effects.region()
    told = [
        f"By published figures the policy changes the region's trips by "
        f"{_trips(row['effect_published'])} of an average weekday (the surrogate's expectation; "
        "the difference of whole drawn trips varies about it)."
    ]
    if effects.lacking:
        told.append(f"There is no negotiated effect: {effects.lacking}.")
    elif not row["changed"]:
        told.append("The policy changes nobody's facts, so there is nothing to negotiate anew.")
    elif not row["n"]:
        told.append(
            f"There is no negotiated effect: of the {row['changed']:,.0f} households whose facts "
            "change, none negotiated in both runs."
        )
    else:
        told += _negotiated_words(found, row)
    if len(effects.missing):
        told.append(
            f"{len(effects.missing):,} of the {row['sampled']:,.0f} households that were drawn "
            "and whose facts change did not negotiate in both runs (undecided, or not reached by "
            f"the budget): household {some(effects.missing)}. The others of their stratum stand "
            "for them."
        )
    return [*told, _used_words(found, row)]


def _negotiated_words(found: Comparison, row: pd.Series) -> list[str]:
    who = (
        f"The {row['n']:,.0f} households that negotiated in both runs, of the "
        f"{row['changed']:,.0f} whose facts change, put it at {_trips(row['effect_negotiated'])}; "
        f"{row['otherwise']:,.0f} of them settled on another number under the policy"
    )
    if pd.isna(row["low"]):
        ends = ". They are too few for an interval"
    else:
        low, high = (number(row[c], 0, sign=True) for c in ("low", "high"))
        ends = f". The 95 % negotiation-sampling interval is {low} to {high}"
        if row["n"] < min(LEAST_DIRECT, row["changed"]):
            ends += f"; with fewer than {LEAST_DIRECT} households it is not to be relied on"
    placebo = found.placebo
    if placebo is None:
        kind = (
            "This is gross: what any announcement does to their answers is in it. `--placebo` takes"
            " that off."
        )
    else:
        kind = (
            f"This is net of the placebo (run {placebo.folder.name}): what an announcement that is "
            "none of their business does to their answers is taken off."
        )
    return [f"{who}{ends}.", kind]


def _used_words(found: Comparison, row: pd.Series) -> str:
    figure = _trips(row["effect_used"])
    if row["used"] == "weighted":
        share = f"{100 * found.effects.negotiated_share:.0f} %"
        return (
            f"Used is {figure}: the mean of both, the negotiated effect weighing {share} by its "
            "precision in the region."
        )
    why = str(row["note"]).rpartition("used is the published effect: ")[2]
    return f"Used is the published effect, {figure}" + (f": {why}." if why else ".")


def _trips(value: float) -> str:
    return f"{number(value, 0, sign=True)} person trips"


def group_table(found: Comparison, grouping: str) -> Table:
    """Return differences by one kind of grouping."""
    rows = found.groups[found.groups["grouping"] == grouping]
    return _both(rows, "group", GROUPINGS[grouping], "")


def largest_zones(found: Comparison) -> Table | None:
    """Return the zones whose residents' trips change most, in either direction."""
    table = found.zones[found.zones["trips_difference"] != 0]
    if table.empty:
        return None
    order = table["trips_difference"].abs().sort_values(ascending=False, kind="stable").index
    rows = []
    for zone, row in table.loc[order[:MOST_ZONES]].iterrows():
        trips = row.rename(lambda c: str(c).removeprefix("trips_"))
        share = 100 * row["trips_difference"] / row["trips_base"] if row["trips_base"] else None
        rows.append(
            [
                str(zone),
                str(row["district"]),
                f"{row['households']:,.0f}",
                number(row["trips_base"]),
                interval(trips),
                "none" if share is None else number(share, 1, sign=True),
            ]
        )
    return Table(
        ["Zone", "District", "Households", "Trips, base", "Difference and 95 % interval", "%"],
        rows,
        "Zones whose residents' trips change most (person trips of an average weekday)",
        labels=2,
    )


def changes_table(found: Comparison) -> Table:
    """Return who makes more and who makes fewer trips, as shares of their group."""
    rows: list[list[str]] = []
    told = ""
    for r in found.changes.to_dict("records"):
        n = int(r["households"])
        kind = "All households" if r["grouping"] == ALL else GROUPINGS[r["grouping"]]
        # What the groups are groups of stands once, at its first row.
        kind, told = "" if kind == told else kind, kind
        name = "" if r["grouping"] == ALL else str(r["group"])
        if n < LEAST:
            rows.append([kind, name, f"under {LEAST}", *["not shown"] * 5])
            continue
        kinds = ("more_trips", "fewer_trips", "same_trips", "moves_more", "moves_fewer")
        rows.append([kind, name, f"{n:,}", *(number(100 * r[k] / n, 2) for k in kinds)])
    return Table(
        [
            "Households by",
            "Group",
            "Households",
            "More trips",
            "Fewer trips",
            "As many",
            "Moves only under the policy",
            "Moves only in the base",
        ],
        rows,
        "Who makes more and who makes fewer trips (% of the group's households)",
        labels=2,
    )


def elasticity_table(found: Comparison) -> Table | None:
    """Return elasticities beside the published range; those outside it are flagged.

    Of kinds of households only of all trips: the file has every purpose.
    """
    table = found.elasticities
    if table.empty:
        return None
    shown = table[(table["grouping"] == ALL) | (table["measure"] == "trips")]
    rows: list[list[str]] = []
    flagged: set[int] = set()
    for r in shown.to_dict("records"):
        known = not pd.isna(r["published_low"])
        if r["flag"] in ("outside", "wrong sign"):
            flagged.add(len(rows))
        region = r["grouping"] == ALL
        rows.append(
            [
                "The region" if region else f"{GROUPINGS[r['grouping']]}: {r['group']}",
                MEASURE_WORDS.get(r["measure"], r["measure"]),
                number(r["value"], 4, sign=True),
                _range(r["low"], r["high"]),
                _range(r["published_low"], r["published_high"]) if known else "none known",
                str(r["flag"]),
            ]
        )
    first = shown.iloc[0]
    kind = (
        "Relative change for the whole change of the lever"
        if first["form"] == "arc"
        else "Elasticities"
    )
    return Table(
        ["Households", "", "This run", "95 % interval", "Published range", ""],
        rows,
        f"{kind}: {str(first['lever']).replace('_', ' ')} {first['percent']:+g} %",
        labels=2,
        flagged=frozenset(flagged),
    )


def _range(low: float, high: float) -> str:
    return " to ".join(number(v, 4, sign=True) for v in (low, high))


def sources(found: Comparison) -> list[str]:
    """Return where the published ranges come from, each once."""
    told = found.elasticities["source"].astype(str).unique() if len(found.elasticities) else []
    return list(dict.fromkeys(part for text in told for part in text.split("; ") if part))


def summary_text(found: Sequence[Comparison]) -> str:
    """Return the short table for the terminal: what each policy changes in the whole region."""
    lines = []
    for one in found:
        lines.append(f"{one.policy.folder.name} less {one.base.folder.name}")
        if one.identical:
            lines.append("  the two runs are identical: every difference is exactly 0")
            continue
        rows = one.groups[one.groups["grouping"] == ALL]
        for _, row in rows.iterrows():
            word = MEASURE_WORDS.get(str(row["measure"]), str(row["measure"]))
            ends = "".join(
                f"  ({number(row['low'], 0, True)} to {number(row['high'], 0, True)})"
                if not pd.isna(row["low"])
                else ""
            )
            share = f"{number(row['percent'], 2, True)} %" if not pd.isna(row["percent"]) else ""
            lines.append(
                f"  {word:<34}{number(row['base']):>12}{number(row['difference'], 0, True):>10}"
                f"  {share:>9}{ends}"
            )
        lines += [f"  {words}" for words in effect_words(one)]
    return "\n".join(lines)
