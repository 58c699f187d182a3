"""The tables of an evaluation: how far each method is off, how sure that is, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pemand_abm.evaluation.answers import COUNTED
from pemand_abm.evaluation.methods import BY_MODEL
from pemand_abm.evaluation.metrics import choice_metrics, count_metrics, paired_bootstrap
from pemand_abm.evaluation.trial import ENOUGH, Trial

REPEATS = 1000
COSTS = ("calls", "persona_calls", "prompt_tokens", "completion_tokens")


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What an evaluation found.

    `answers` has a row a method and household (index household_id; `answers.told_table`'s columns
    and `observed`), `accuracy` and `costs` a row a method. `talks` are the records of
    `transcripts.jsonl`. `reference` is the method to which the others' errors are compared.
    """

    trial: Trial
    answers: pd.DataFrame
    accuracy: pd.DataFrame
    costs: pd.DataFrame
    talks: list[dict]
    reference: str
    manifest: dict


def accuracy_table(trial: Trial, answers: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Return the measures of each method, one row each.

    The measures of `metrics.count_metrics` or `choice_metrics`, unweighted (but for the sampling of
    movers) and, named `weighted_...`, by the survey's weights; `error` with `low` and `high`, the
    mean absolute error in trips or the share of wrong choices with its 95 % interval; and
    `difference` to the reference with `difference_low` and `difference_high`, on the households
    that both decided.
    """
    chosen = trial.chosen
    rows, errors = {}, {}
    for method, part in answers.groupby("method", sort=False):
        told = part.reindex(chosen.index)
        measure = _choices if trial.survey.target == "moved" else _counts
        plain = measure(chosen["observed"], told, chosen["sampling"])
        heavy = measure(chosen["observed"], told, chosen["weight"])
        rows[method] = {**plain, **{f"weighted_{k}": v for k, v in heavy.items()}}
        errors[method] = (told["predicted"] - chosen["observed"]).abs().to_numpy(float)
    interval = paired_bootstrap(errors, reference, chosen["sampling"], trial.seed, REPEATS)
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
    return table.join(
        interval[
            ["measure", "low", "high", "difference", "difference_low", "difference_high"]
        ].rename(columns={"measure": "error"})
    )


def _counts(observed: pd.Series, told: pd.DataFrame, weights: pd.Series) -> dict[str, Any]:
    return count_metrics(observed, told["predicted"], weights)


def _choices(observed: pd.Series, told: pd.DataFrame, weights: pd.Series) -> dict[str, Any]:
    score = told["score"] if told["score"].notna().any() else None
    return choice_metrics(observed, told["predicted"], score, weights)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a method took here: wall seconds, and the calls that the model was really asked.

    The others a journal remembered, from before or from households of the same facts.
    """

    seconds: float
    asked: int


def cost_table(answers: pd.DataFrame, spent: Mapping[str, Spent]) -> pd.DataFrame:
    """Return what each method that asks a model takes a household, means over all of them.

    `asked` are the calls that the model was really asked here, `seconds` the wall seconds that
    these took; NaN where all were remembered.
    """
    told = answers[answers["method"].isin(list(BY_MODEL))]
    columns = [c for c in (*COUNTED, *COSTS) if c in told.columns]
    table = told.groupby("method", sort=False)[columns].mean()
    homes = told.groupby("method", sort=False).size()
    asked = pd.Series({m: s.asked for m, s in spent.items()}, dtype=float).reindex(table.index)
    seconds = pd.Series({m: s.seconds for m, s in spent.items()}, dtype=float).reindex(table.index)
    return table.assign(asked=asked / homes, seconds=(seconds / homes).where(asked > 0))


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with columns of even width, which reads well in a terminal too.

    >>> print(markdown(["a", "n"], [["x", "1"], ["long", "20"]]))
    | a    | n  |
    |------|----|
    | x    | 1  |
    | long | 20 |
    """
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = (cell.ljust(w) for cell, w in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    return "\n".join(
        [line(header), f"|{'|'.join('-' * (w + 2) for w in widths)}|", *map(line, rows)]
    )


def number(value: Any, digits: int = 2) -> str:
    """Return a number in words of a table; a dash where it is not defined.

    >>> number(3.333), number(float("nan")), number(None)
    ('3.33', '-', '-')
    """
    return "-" if value is None or pd.isna(value) else f"{value:,.{digits}f}"


COUNT_COLUMNS = (
    ("RMSE", "rmse", 2),
    ("sMAPE %", "smape", 1),
    ("within ±2", "within_2", 3),
    ("deviance", "poisson_deviance", 2),
    ("bias", "bias", 2),
    ("zero share", "zero_share", 3),
    ("weighted MAE", "weighted_mae", 2),
    ("weighted bias", "weighted_bias", 2),
)
CHOICE_COLUMNS = (
    ("accuracy", "accuracy", 3),
    ("precision", "precision", 3),
    ("recall", "recall", 3),
    ("F1", "f1", 3),
    ("PR-AUC", "pr_auc", 3),
    ("Brier", "brier", 3),
    ("bias", "bias", 3),
    ("weighted F1", "weighted_f1", 3),
    ("weighted bias", "weighted_bias", 3),
)


Rows = tuple[list[str], list[list[str]]]


def accuracy_text(evaluation: Evaluation) -> str:
    """Return the table of measures as Markdown."""
    return markdown(*accuracy_rows(evaluation))


def accuracy_rows(evaluation: Evaluation) -> Rows:
    """Return the table of measures as a header and rows of text."""
    table, moved = evaluation.accuracy, evaluation.trial.survey.target == "moved"
    columns = CHOICE_COLUMNS if moved else COUNT_COLUMNS
    header = [
        "method",
        "n",
        "undecided",
        "error rate [95 %]" if moved else "MAE [95 %]",
        f"less {evaluation.reference}'s [95 %]",
        *(title for title, _, _ in columns),
    ]
    rows = []
    for method, row in zip(table.index, table.to_dict("records"), strict=True):
        gap = "-" if method == evaluation.reference else _interval(row, "difference", "difference_")
        rows.append(
            [
                str(method),
                f"{int(row['n']):,}",
                f"{int(row['undecided']):,}",
                _interval(row, "error", ""),
                gap,
                *(number(row.get(key), digits) for _, key, digits in columns),
            ]
        )
    return header, rows


def _interval(row: Mapping[str, Any], measure: str, prefix: str) -> str:
    low, high = number(row[f"{prefix}low"]), number(row[f"{prefix}high"])
    return f"{number(row[measure])} [{low}, {high}]"


def cost_text(costs: pd.DataFrame) -> str:
    """Return the table of costs as Markdown; an empty text where no method asked a model."""
    return "" if costs.empty else markdown(*cost_rows(costs))


def cost_rows(costs: pd.DataFrame) -> Rows:
    """Return the table of costs as a header and rows of text: means a household."""
    header = [
        "method",
        "calls",
        "persona calls",
        "tokens in",
        "tokens out",
        "asked now",
        "seconds",
        "rounds",
        "skips",
        "rejected",
        "bounded",
    ]
    rows = [
        [
            str(method),
            number(row["calls"]),
            number(row["persona_calls"]),
            number(row["prompt_tokens"], 0),
            number(row["completion_tokens"], 0),
            number(row["asked"]),
            number(row["seconds"]),
            *(number(row[key]) for key in COUNTED),
        ]
        for method, row in zip(costs.index, costs.to_dict("records"), strict=True)
    ]
    return header, rows


def verdict(evaluation: Evaluation) -> list[str]:
    """Return what may be said of the methods: nothing in words below 200 households."""
    table, reference = evaluation.accuracy, evaluation.reference
    n = int(table["n"].min())
    if len(evaluation.trial.chosen) < ENOUGH:
        return [
            f"{len(evaluation.trial.chosen)} households are a smoke test: they show that the"
            " methods run, not which is better."
            f" A comparison is worded from {ENOUGH} households on."
        ]
    if n < ENOUGH:
        return [
            f"A method decided for {n} households only, under {ENOUGH}: no comparison is worded."
        ]
    sentences = []
    for method, row in zip(table.index, table.to_dict("records"), strict=True):
        low, high = row["difference_low"], row["difference_high"]
        if method == reference or not (low > 0 or high < 0):
            continue
        sentences.append(
            f"{method} is {'farther off' if low > 0 else 'nearer'} than {reference}"
            f" (difference {number(row['difference'])}, 95 % interval {number(low)} to"
            f" {number(high)}, n = {int(row['n']):,})."
        )
    return sentences or [f"No method differs from {reference} beyond chance (95 % intervals)."]
