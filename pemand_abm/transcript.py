"""Negotiations to read: `transcripts.jsonl`, and one of its records printed in a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pemand_abm.errors import PemandError, TableError, listed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

FILE = "transcripts.jsonl"

OUTCOMES = {
    "agreed": "all members agreed",
    "near": "the members stood within two trips of each other; the middle of their values counts",
    "proposals only": "the members' proposals decided; no round of talk was held",
    "one answer": "one model answered for the household",
    "median": "no agreement within the rounds; the middle of their last values counts",
    "majority": "no agreement within the rounds; the majority counts",
    "one speaker": "one member decided alone",
    "undecided": "undecided: what was said could not be used, and nothing is guessed in its place",
    "not reached": "not reached before the budget ended",
    "settled": "all points were agreed on",
    "settled in part": "on some points no quorum was reached; there the wish that matters most "
    "counts",
}

MODERATORS = {
    "judge": "A moderator reads every statement; what it rejects is said again and never enters "
    "the talk.",
    "advise": "Rules check every statement, and what they reject is said again. A moderator scores "
    "the talk at its end; it only advises, so what it objects to stays in the talk.",
    "checks": "Rules check every statement; what they reject is said again and never enters the "
    "talk.",
    "none": "No moderator reads the statements.",
}

Record = dict[str, Any]


def read_transcripts(run: Path) -> list[Record]:
    """Return the negotiations of a run in the order of its file, none where nobody talked.

    Raises
    ------
    PemandError
        No such run folder.
    TableError
        Lines that are not JSON objects with a `household_id`.
    """
    run = Path(run)
    if not run.is_dir():
        raise PemandError(f"{run}: no such run folder")
    path = run / FILE
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as fault:
        raise TableError(f"{path}: is damaged ({fault}); run `pemand run` again") from fault
    records, problems = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as fault:
            problems.append(f"line {number}: not JSON ({fault})")
            continue
        if isinstance(record, dict) and "household_id" in record:
            lists = [record.get(k, []) for k in ("members", "turns", "items")]
            whole = all(isinstance(x, list) and all(isinstance(y, dict) for y in x) for x in lists)
            if whole and isinstance(record["household_id"], (int, str)):
                records.append(record)
            else:
                problems.append(
                    f"line {number}: its members, turns or items are no lists of objects"
                )
        else:
            problems.append(f"line {number}: not an object with a household_id")
    if problems:
        raise TableError(listed(problems, str(path)))
    return records


def speakers(record: Record) -> list[str]:
    """Return the names of the members that take part in the talk."""
    return [m["name"] for m in record.get("members", []) if m.get("speaks", True)]


def talkative(records: list[Record]) -> list[Record]:
    """Return the records with the longest talks of several speakers first."""

    def said(record: Record) -> tuple[bool, int, int]:
        turns = [t for t in record.get("turns", []) if not t.get("skipped")]
        return len(speakers(record)) > 1, len(turns), len(speakers(record))

    return sorted(records, key=said, reverse=True)


def value_words(value: float | str | None, unit: str) -> str:
    """Return a value in words, by the unit of its decision; a plan's are words already.

    >>> value_words(1, "stay or move"), value_words(1, "trips of the day"), value_words("rent", "")
    ('move', '1 trip', 'rent')
    """
    if value is None:
        return "no value"
    if unit == "stay or move":
        return {"1": "move", "0": "stay"}.get(str(value), str(value))
    if unit != "trips of the day":
        return str(value)
    number = f"{value:g}" if isinstance(value, (int, float)) else str(value)
    return f"{number} trip" if number == "1" else f"{number} trips"


def outcome_words(outcome: str) -> str:
    """Return what an outcome means, for a reader who does not know the protocol."""
    return OUTCOMES.get(outcome, outcome)


def turn_notes(turn: Record, unit: str) -> list[str]:
    """Return what became of a turn: bounded values, rejections and their reasons."""
    notes = []
    if turn.get("act") and turn["act"] != "proposal":
        notes.append(str(turn["act"]))
    if private := turn.get("private"):
        notes.append(
            f"in private: takes it to matter {private['guess']} of 10 to the proposer (it does"
            f" {private['true']}, to himself {private['own']}), and means to {private['intent']}"
        )
    if turn.get("said") is not None and turn.get("said") != turn.get("value"):
        notes.append(
            f"said {value_words(turn['said'], unit)}, bounded to "
            f"{value_words(turn.get('value'), unit)}"
        )
    if turn.get("verdict") == "reject":
        feedback = f": {turn['feedback']}" if turn.get("feedback") else ""
        # A moderator who only advises rejects a turn that is kept all the same.
        verdict = (
            "the moderator objects"
            if turn.get("kept", True)
            else f"rejected by {'the moderator' if turn.get('scores') else 'a fixed check'}, "
            "and left out of the talk"
        )
        notes.append(verdict + feedback)
    if not turn.get("kept", True) and turn.get("verdict") != "reject":
        notes.append("not kept")
    if turn.get("skipped"):
        notes.append("skipped the turn")
    if turn.get("likelihood") is not None:
        notes.append(f"holds a move for {turn['likelihood']:g} % likely")
    return notes


def whose(record: Record, zone: str = " in zone ") -> str:
    """Return whose talk it is: a household's, or a scenario's of an evaluation of plans."""
    if record.get("kind") == "plan":
        return f"Scenario {record['household_id']}, {record.get('zone', '')}"
    return f"Household {record['household_id']}{zone}{record.get('zone', '?')}"


def how_words(item: Record) -> str:
    """Return how a point of a plan was settled: who insisted, who yielded.

    >>> how_words({"outcome": "agreed", "rounds": 1, "insisted": ["member 1"],
    ...            "yielded": ["member 2"]})
    'agreed in round 1; member 1 insisted; member 2 yielded'
    """
    how = {
        "agreed": f"agreed in round {item['rounds']}" if item["rounds"] else "all wanted it",
        "fallback": "no quorum; the wish that matters most counts",
    }[item["outcome"]]
    did = [f"{', '.join(item[d])} {d}" for d in ("insisted", "yielded") if item.get(d)]
    return "; ".join([how, *(did if item["rounds"] else [])])


def item_words(item: Record) -> str:
    """Return what was settled on a point of a plan, and how."""
    return f"{item['value']} ({how_words(item)})"


def wishes_words(wishes: list[Record]) -> str:
    """Return a member's wishes in one line, with what they matter from 1 to 10."""
    return "; ".join(
        f"{w['item'].replace('_', ' ')}: {w['value']} ({w['importance']} of 10)" for w in wishes
    )


def scores_words(turn: Record) -> str:
    """Return the moderator's scores and remark in one line, or nothing where no judge scored.

    The remark of a rejection is `turn_notes`' matter.
    """
    scores = ", ".join(f"{name} {score} of 3" for name, score in (turn.get("scores") or {}).items())
    remark = turn.get("feedback") if turn.get("verdict") != "reject" else ""
    return ". ".join(str(part) for part in (scores, remark) if part)


def print_transcript(run: Path, household_id: str | None, console: Console) -> None:
    """Print one household's negotiations.

    Without a household, print the longest talk of several speakers and list the others.

    Raises
    ------
    PemandError
        Nobody negotiated in this run, or not the household asked for.
    """
    records = read_transcripts(run)
    if not records:
        raise PemandError(
            f"{run}: no household negotiated in this run, so there is nothing to read"
        )
    ranked = talkative(records)
    wanted = str(ranked[0]["household_id"] if household_id is None else household_id)
    chosen = [r for r in records if str(r["household_id"]) == wanted]
    if household_id is None:
        chosen = ranked[:1]
    if not chosen:
        held = ", ".join(dict.fromkeys(str(r["household_id"]) for r in records))
        raise PemandError(f"{run}: household {wanted} did not negotiate; these did: {held}")
    for record in chosen:
        _print_record(record, console)
    if household_id is None and len(records) > 1:
        _print_list([r for r in ranked if r is not chosen[0]], console)


def _print_record(record: Record, console: Console) -> None:
    from rich.panel import Panel
    from rich.rule import Rule
    from rich.text import Text

    unit = record.get("unit", "")
    console.print(Rule(Text(f"{whose(record, ', zone ')}, {record.get('event', '')}")))
    console.print(
        _line(
            "Decision",
            f"{value_words(record.get('value'), unit)} "
            f"({outcome_words(record.get('outcome', ''))})",
        )
    )
    if "initial" in record:
        console.print(_line("First proposals gave", value_words(record["initial"], unit)))
    for item in record.get("items", []):
        console.print(_line(str(item["title"]), item_words(item)))
    for key, what in (("drawn", "The survey surrogate drew"), ("observed", "The survey observed")):
        if key in record:
            console.print(_line(what, value_words(record[key], unit)))
    console.print(_line("Model calls", str(record.get("calls", "?"))))
    for title in ("anchor", "constraints"):
        if record.get(title):
            console.print(_line(title.capitalize(), str(record[title])))
    for member in record.get("members", []):
        console.print(
            Panel(
                _member(member),
                title=Text(str(member.get("name", ""))),
                title_align="left",
                width=min(console.width, 100),
            )
        )
    phase = None
    for turn in record.get("turns", []):
        if turn.get("phase") != phase:
            phase = turn.get("phase")
            console.print(Rule(Text(str(phase)), align="left", style="dim"))
        console.print(_turn(turn, unit))
    console.print()


def _line(name: str, value: str) -> Text:
    from rich.text import Text

    return Text.assemble((f"{name}: ", "bold"), value)


def _member(member: Record) -> Text:
    from rich.text import Text

    text = Text()
    facts = " ".join(map(str, member.get("facts", [])))
    if not member.get("speaks", True):
        return text.append(f"{facts}\n", style="dim").append("Does not speak here.")
    if member.get("templated"):
        text.append(str(member.get("persona", "")))
        text.append("\n(the facts: the model's narrative failed its checks)", style="yellow")
    else:
        text.append(f"{facts}\n", style="dim").append(str(member.get("persona", "")))
    if member.get("wishes"):
        text.append("\nwishes: ", style="bold").append(wishes_words(member["wishes"]))
        if member.get("unasked"):
            text.append("\n(by rule: the model's answers could not be read)", style="yellow")
    for step in ("reasoning", "review", "view"):
        if member.get(step):
            text.append(f"\n{step}: ", style="bold").append(" ".join(member[step].split()))
    return text


def _turn(turn: Record, unit: str) -> Text:
    from rich.text import Text

    text = Text()
    text.append(str(turn.get("speaker", "")), style="bold cyan")
    if turn.get("value") is not None:
        text.append(f"  {value_words(turn['value'], unit)}", style="bold")
    style = "" if turn.get("kept", True) else "strike dim"
    if turn.get("text"):
        text.append("\n  ").append(str(turn["text"]).strip().replace("\n", "\n  "), style=style)
    if scores := scores_words(turn):
        text.append(f"\n  moderator: {scores}", style="dim")
    for note in turn_notes(turn, unit):
        text.append(f"\n  {note}", style="yellow")
    return text


def _print_list(others: list[Record], console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Other negotiations of this run", title_justify="left")
    for column in ("household", "event", "speakers", "decision", "outcome"):
        table.add_column(column)
    for r in others:
        value = value_words(r.get("value"), r.get("unit", ""))
        cells = (
            r["household_id"],
            r.get("event", ""),
            len(speakers(r)),
            value,
            r.get("outcome", ""),
        )
        table.add_row(*(Text(str(c)) for c in cells))
    console.print(table)
