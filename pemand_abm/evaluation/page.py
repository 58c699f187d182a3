"""The page of an evaluation, as Markdown and as one HTML file that opens offline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pemand_abm import figures
from pemand_abm.evaluation.methods import BY_MODEL
from pemand_abm.evaluation.metrics import by_size, calibration, choice_metrics, count_metrics
from pemand_abm.evaluation.results import (
    Evaluation,
    accuracy_rows,
    cost_rows,
    markdown,
    number,
    verdict,
)
from pemand_abm.report import Table, moderation_words, page, talk_of
from pemand_abm.tables import write_text

WORST = 3
PAPER = (
    "For comparison: PEMAND's authors count 12.72 calls a household on NHTS 2017, 16.31 on Puget"
    " Sound 2023 and 17.88 on PSID 2023 (PEMAND A.3.1). Here the calls for personas, which"
    " households of the same facts share, are counted apart."
)
NO_CARD = (
    "A language model's decisions are behaviour only where an evaluation card says so (pemand"
    " evaluate --card); without one they are shown to be read."
)


def write_page(evaluation: Evaluation, out: Path) -> None:
    """Write `evaluation.md` and `evaluation.html` into *out*."""
    write_text(as_markdown(evaluation), out / "evaluation.md")
    write_text(as_html(evaluation), out / "evaluation.html")


def as_markdown(evaluation: Evaluation) -> str:
    """Return the page as Markdown."""
    trial = evaluation.trial
    parts = [f"# {trial.survey.title}: predicted and observed", _asked(evaluation)]
    parts += [*verdict(evaluation), *(f"{t.caption}\n\n{_grid(t)}" for t in _tables(evaluation))]
    worst = worst_cases(evaluation)
    if worst:
        lines = [f"- {_case(w)}: `pemand transcript FOLDER {w['household_id']}`" for w in worst]
        parts += ["Farthest off", "\n".join(lines)]
    return "\n\n".join([*parts, *_notes(evaluation)]) + "\n"


def as_html(evaluation: Evaluation) -> str:
    """Return the page as HTML."""
    trial = evaluation.trial
    moved = trial.survey.target == "moved"
    unit = "probability of a move" if moved else "trips of the day"
    drawn = {
        "calibration": figures.as_html(
            figures.calibration_plot(calibrations(evaluation), unit),
            "calibration",
            f"What was observed over what was predicted ({unit}), a line a method; on the dotted "
            "line both are the same.",
        )
    }
    worst = worst_cases(evaluation)
    return page(
        "evaluation.html.j2",
        drawn,
        title=f"{trial.survey.title}: predicted and observed",
        asked=_asked(evaluation),
        verdict=verdict(evaluation),
        tables=_tables(evaluation),
        talks=[talk_of(record) for record in worst],
        cases=[_case(record) for record in worst],
        moderation=moderation_words(evaluation.talks),
        notes=_notes(evaluation),
        card=_made_of(evaluation.manifest),
    )


def calibrations(evaluation: Evaluation) -> dict[str, pd.DataFrame]:
    """Return `metrics.calibration` of each method whose predictions differ; weighted."""
    chosen = evaluation.trial.chosen
    column = "score" if evaluation.trial.survey.target == "moved" else "predicted"
    tables = {}
    for method, part in evaluation.answers.groupby("method", sort=False):
        told = part[part[column].notna()]
        own = chosen.loc[told.index]
        if len(told):
            tables[str(method)] = calibration(
                told[column], own["observed"], own["weight"], bins=min(10, max(1, len(told) // 5))
            )
    return tables


def worst_cases(evaluation: Evaluation, most: int = WORST) -> list[dict]:
    """Return the talks of the first method that asked a model which are farthest off."""
    method = next((m for m in BY_MODEL if m in set(evaluation.answers["method"])), None)
    if method is None:
        return []
    part = evaluation.answers[evaluation.answers["method"] == method]
    error = (part["predicted"] - part["observed"]).abs().dropna()
    ranked = error.sort_values(ascending=False, kind="stable").index[:most]
    records = {r["household_id"]: r for r in evaluation.talks if r["method"] == method}
    return [records[key] for key in ranked if key in records]


def _case(record: Mapping[str, Any]) -> str:
    return (
        f"household {record['household_id']}, {record['method']}: said {record['value']}, the"
        f" survey observed {record['observed']}"
    )


def _asked(evaluation: Evaluation) -> str:
    trial = evaluation.trial
    return f"{trial.how}. Observed and predicted: {trial.survey.unit}."


def _tables(evaluation: Evaluation) -> list[Table]:
    header, rows = accuracy_rows(evaluation)
    tables = [Table(header, rows, "How far each method is off")]
    if not evaluation.costs.empty:
        header, rows = cost_rows(evaluation.costs)
        tables.append(Table(header, rows, f"What a household took, on average. {PAPER}"))
    tables.append(_by_size(evaluation))
    tables.append(_calibration(evaluation))
    undecided = _undecided(evaluation)
    if undecided:
        tables.append(undecided)
    dropped = evaluation.trial.survey.dropped
    if len(dropped):
        rows = [[str(f), str(w), f"{n:,}"] for f, w, n in dropped.itertuples(index=False)]
        tables.append(
            Table(["file", "what", "rows"], rows, "What reading the survey left out or mended", 2)
        )
    return tables


def _by_size(evaluation: Evaluation) -> Table:
    chosen = evaluation.trial.chosen
    moved = evaluation.trial.survey.target == "moved"
    metrics: Callable[..., Mapping[str, float | None]] = choice_metrics if moved else count_metrics
    shown = ("accuracy", "f1", "bias") if moved else ("mae", "bias")
    header = ["method", "persons", "n", *(f"{m} (weighted)" for m in shown)]
    rows = []
    for method, part in evaluation.answers.groupby("method", sort=False):
        told = part.reindex(chosen.index)["predicted"]
        plain, heavy = (
            by_size(chosen["observed"], told, chosen["hhsize"], chosen[w], metrics=metrics)
            for w in ("sampling", "weight")
        )
        rows += [
            [
                str(method),
                str(size),
                f"{int(plain.loc[size, 'n']):,}",
                *(f"{number(plain.loc[size, m])} ({number(heavy.loc[size, m])})" for m in shown),
            ]
            for size in plain.index
        ]
    return Table(header, rows, "Error by the number of persons in the household", 2)


def _calibration(evaluation: Evaluation) -> Table:
    rows = [
        [method, f"{int(n):,}", number(predicted), number(observed), number(1.96 * se)]
        for method, table in calibrations(evaluation).items()
        for n, predicted, observed, se in table.itertuples(index=False)
    ]
    header = ["method", "n", "mean predicted", "mean observed", "± (95 %)"]
    return Table(
        header, rows, "Calibration: households in the order of their predictions, weighted"
    )


def _undecided(evaluation: Evaluation) -> Table | None:
    answers = evaluation.answers[evaluation.answers["predicted"].isna()]
    if answers.empty:
        return None
    said = {(r["method"], r["household_id"]): _last_fault(r) for r in evaluation.talks}
    rows = [
        [str(key), str(method), said.get((method, key), "")]
        for key, method in zip(answers.index, answers["method"], strict=True)
    ]
    return Table(["household", "method", "last fault"], rows, "Undecided households", 2)


def _last_fault(record: Mapping[str, Any]) -> str:
    faults = [t["feedback"] for t in record["turns"] if not t["kept"] and t["feedback"]]
    return str(faults[-1]) if faults else ""


def _notes(evaluation: Evaluation) -> list[str]:
    asked = set(evaluation.answers["method"]) & set(BY_MODEL)
    return [*evaluation.manifest.get("notes", []), *([NO_CARD] if asked else [])]


def _made_of(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the manifest as names and values."""
    return [
        (
            name,
            ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else value,
        )
        for name, value in ((n, _plain(v)) for n, v in manifest.items())
        if name != "notes"
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, dict) else str(value)


def _grid(table: Table) -> str:
    def safe(cell: str) -> str:
        return cell.replace("<", "&lt;").replace("|", "\\|").replace("\n", " ")

    return markdown(list(table.columns), [[safe(c) for c in row] for row in table.rows])
