"""Judging the judge: sheets that people fill in, and how far annotators and the model agree.

PEMAND appendix H. An item is one statement of a talk; it is scored from 1 to 3 on the moderator's
four criteria. A part of the items goes to every annotator, the rest to one each, in batches.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from jinja2 import Environment, PackageLoader

from pemand_abm import keys
from pemand_abm.dialogue import Model, Request, seed_of
from pemand_abm.domains import Domain
from pemand_abm.errors import TableError, listed
from pemand_abm.evaluation.agreement import quadratic_kappa
from pemand_abm.people import Utterance
from pemand_abm.protocols.pemand import (
    CRITERIA,
    MOST_JUDGED,
    judging,
    marks_in_order,
    verdicts_of,
)
from pemand_abm.tables import write_csv, write_text

GUIDELINE = {
    "persona": "It fits the speaker: nothing contradicts the facts, nothing is made up.",
    "constraints": "It keeps to the household's people, cars, money and time.",
    "interaction": "It answers what is being discussed, and what others said where they spoke.",
    "quality": "Its reason supports its number or choice, and the arithmetic holds.",
}
MARKS = (1, 2, 3)
TOLD = (
    "item", "batch", "annotator", "household_id", "phase", "speaker", "household", "profile",
    "said_before", "value", "statement",
)  # fmt: skip
BATCHES = 4
SHOWN = 6
"""Statements before the item's that an annotator is shown."""


def items_of(folder: Path, dialogues: int, seed: int) -> pd.DataFrame:
    """Return the kept statements of *dialogues* talks of a run's or evaluation's folder.

    Columns of `TOLD` without the annotator, and ``model_CRITERION`` with the moderator's scores.
    """
    file = folder / "transcripts.jsonl"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        talks = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as fault:
        raise TableError(f"{file}: cannot be read ({fault}); name a folder of a run") from fault
    talks = [t for t in talks if any(turn["kept"] for turn in t.get("turns", ()))]
    if not talks:
        raise TableError(f"{file}: holds no talk with a statement")
    draws = keys.uniforms(np.arange(len(talks)), seed, "annotation")
    chosen = np.sort(np.argsort(draws, kind="stable")[:dialogues])
    rows = [row for i in chosen for row in _items(talks[i])]
    table = pd.DataFrame(rows)
    table.insert(0, "item", range(1, len(table) + 1))
    table.insert(1, "batch", np.arange(len(table)) * BATCHES // len(table) + 1)
    return table


def _items(talk: dict) -> list[dict]:
    profiles = {m["name"]: " ".join(m["facts"]) for m in talk["members"]}
    said: list[str] = []
    rows = []
    for turn in talk["turns"]:
        if not turn["kept"] or turn["skipped"]:
            continue
        rows.append(
            {
                "household_id": talk["household_id"],
                "phase": turn["phase"],
                "speaker": turn["speaker"],
                "household": talk["constraints"],
                "profile": profiles.get(turn["speaker"], ""),
                # Proposals are made alone.
                "said_before": "" if turn["phase"] == "proposal" else " / ".join(said[-SHOWN:]),
                "value": turn["value"],
                "statement": turn["text"],
                **{f"model_{c}": turn["scores"].get(c) for c in CRITERIA},
            }
        )
        said.append(f"{turn['speaker']} ({turn['value']}): {turn['text']}")
    return rows


def dealt(
    items: pd.DataFrame, annotators: Sequence[str], overlap: float, seed: int
) -> pd.DataFrame:
    """Deal items out: of each batch the share *overlap* to everybody, the rest to one each."""
    draws = pd.Series(keys.uniforms(items["item"].to_numpy(), seed, "dealt"), index=items.index)
    place = draws.groupby(items["batch"]).rank(method="first").astype(int) - 1
    many = (items.groupby("batch")["item"].transform("size") * overlap).apply(np.ceil)
    parts = []
    for k, name in enumerate(annotators):
        own = items[(place < many) | ((place - many) % len(annotators) == k)]
        parts.append(own.assign(annotator=name, **dict.fromkeys(CRITERIA, ""), note=""))
    model = [c for c in items if c.startswith("model_")]
    return pd.concat(parts, ignore_index=True)[[*TOLD, *CRITERIA, "note", *model]]


def write_sheets(sheet: pd.DataFrame, out: Path) -> list[Path]:
    """Write each annotator's sheet: a CSV, and a form that a browser opens without a network.

    Neither holds the model's scores, which would lead the annotators; they are in
    ``model_scores.csv``.
    """
    model = [c for c in sheet if c.startswith("model_")]
    page = Environment(loader=PackageLoader("pemand_abm", "templates"), autoescape=True)
    template = page.get_template("annotation.html.j2")
    written = []
    for name, part in sheet.groupby("annotator", sort=False):
        own = part.drop(columns=model)
        write_csv(own.set_index("item"), out / f"sheet_{name}.csv")
        rows = own.astype(object).where(own.notna(), "").astype(str).to_dict("records")
        text = template.render(
            name=name, rows=rows, columns=list(own.columns), guideline=GUIDELINE, marks=MARKS
        )
        write_text(text, out / f"sheet_{name}.html")
        written += [out / f"sheet_{name}.csv", out / f"sheet_{name}.html"]
    scores = sheet.drop_duplicates("item").set_index("item")[model].sort_index()
    write_csv(scores, out / "model_scores.csv")
    return [*written, out / "model_scores.csv"]


def read_sheets(paths: Sequence[Path]) -> pd.DataFrame:
    """Read filled sheets together; rows without any mark are left out.

    Raises
    ------
    TableError
        All faults of all files at once: columns that lack, marks that are not 1 to 3, rows that are
        half filled, an item that an annotator scored twice.
    """
    faults: list[str] = []
    parts = []
    for path in paths:
        try:
            table = pd.read_csv(path, dtype=str, keep_default_na=False)
        except (OSError, ValueError) as fault:
            faults.append(f"{path}: cannot be read as CSV ({fault})")
            continue
        lacking = [c for c in ("item", "annotator", "batch", *CRITERIA) if c not in table]
        if lacking:
            faults.append(f"{path}: lacks {', '.join(lacking)}; take a sheet of `judge export`")
            continue
        marks = table[list(CRITERIA)].apply(lambda c: c.str.strip())
        filled = marks != ""
        wrong = filled & ~marks.isin([str(m) for m in MARKS])
        half = filled.any(axis=1) & ~filled.all(axis=1)
        for said, rows in (
            ("marks that are not 1, 2 or 3", wrong.any(axis=1)),
            ("half filled", half),
        ):
            if rows.any():
                items = table.loc[rows, "item"]
                faults.append(f"{path}: {len(items)} rows {said}, first of item {items.iloc[0]}")
        if not (wrong.any(axis=None) or half.any()):
            table[list(CRITERIA)] = marks.where(filled).astype("Float64")
            parts.append(table[filled.all(axis=1)])
    if not faults:
        sheet = pd.concat(parts, ignore_index=True)
        twice = sheet[sheet.duplicated(["item", "annotator"])]
        if len(twice):
            row = twice.iloc[0]
            faults.append(
                f"{len(twice)} items stand twice for an annotator, first item {row['item']} of"
                f" {row['annotator']}; leave one"
            )
        if sheet.empty:
            faults.append("no row is filled in")
    if faults:
        raise TableError(listed(faults, "annotation sheets"))
    return sheet.astype(dict.fromkeys(CRITERIA, int))


def read_items(paths: Sequence[Path]) -> pd.DataFrame:
    """Read the items of sheets, filled or not, each once (index item, `TOLD` without annotator).

    Raises
    ------
    TableError
        All faults of all files at once: what cannot be read, columns that lack.
    """
    faults: list[str] = []
    parts = []
    columns = [c for c in TOLD if c != "annotator"]
    for path in paths:
        try:
            table = pd.read_csv(path, dtype=str, keep_default_na=False)
        except (OSError, ValueError) as fault:
            faults.append(f"{path}: cannot be read as CSV ({fault})")
            continue
        lacking = [c for c in columns if c not in table]
        if lacking:
            faults.append(f"{path}: lacks {', '.join(lacking)}; take a sheet of `judge export`")
            continue
        parts.append(table[columns])
    if not faults and not sum(map(len, parts)):
        faults.append("no row")
    if faults:
        raise TableError(listed(faults, "annotation sheets"))
    return pd.concat(parts).drop_duplicates("item").set_index("item")


def scored(items: pd.DataFrame, model: Model, domain: Domain, seed: int) -> pd.DataFrame:
    """Return a model's marks of the statements of sheets (index item, ``model_CRITERION``).

    It judges as an advising moderator does, a household's statements together, with each speaker's
    facts for a narrative, since sheets hold none. NaN where its reply cannot be read.
    """
    asked: list[Request] = []
    of: list[list[str]] = []
    for home, talk in items.groupby("household_id", sort=False):
        for start in range(0, len(talk), MOST_JUDGED):
            part = talk.iloc[start : start + MOST_JUDGED]
            rows = part.to_dict("records")
            said = [Utterance(r["speaker"], r["phase"], r["statement"], r["value"]) for r in rows]
            profiles = {r["speaker"]: r["profile"] for r in rows}
            key = seed_of(seed, str(home), "judge score", start)
            label = (f"household {home}", "moderator", "sheet")
            constraints = rows[0]["household"]
            asked.append(judging(domain, constraints, profiles, "none", said, key, label))
            of.append(part.index.to_list())
    found = pd.DataFrame(np.nan, items.index, [f"model_{c}" for c in CRITERIA])
    for position, reply in model.complete(asked):
        names = of[position]
        for item, verdict in zip(names, verdicts_of(reply, len(names), (1, 1, 1, 1)), strict=False):
            found.loc[item] = [verdict.scores[c] for c in CRITERIA]
    return found


def read_scores(path: Path | None, sheet: pd.DataFrame) -> pd.DataFrame | None:
    """Return a model's scores by item, from a file or the sheets' own columns; None without any."""
    columns = [f"model_{c}" for c in CRITERIA]
    if path is None:
        if not set(columns) <= set(sheet):
            return None
        table = sheet.drop_duplicates("item").set_index("item")[columns]
    else:
        try:
            table = pd.read_csv(path, index_col="item")
        except (OSError, ValueError) as fault:
            raise TableError(f"{path}: cannot be read, or has no column item ({fault})") from fault
        lacking = [c for c in columns if c not in table]
        if lacking:
            raise TableError(f"{path}: lacks {', '.join(lacking)}; take one of `judge export`")
    return table[columns].apply(pd.to_numeric, errors="coerce")


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far annotators agree.

    `by_criterion` (index criterion): `items` that all scored, `fleiss` kappa over the marks, `qwk`
    (mean over pairs of annotators of Cohen's kappa with quadratic weights) and `same` (share of
    items on which all agree). `drift` (index batch): items that all scored and their mean `qwk`.
    NaN where a measure is not defined (everybody gives one and the same mark).
    """

    annotators: tuple[str, ...]
    by_criterion: pd.DataFrame
    drift: pd.DataFrame


def agree(sheet: pd.DataFrame) -> Agreement:
    """Return how far the annotators of filled sheets agree on the items that all of them scored.

    Fleiss' kappa is statsmodels' (Fleiss 1971); the weighted kappa is Cohen's (1968).
    """
    names = tuple(sorted(sheet["annotator"].unique()))
    if len(names) < 2:
        raise TableError(f"one annotator ({names[0]}) can agree with nobody; give more sheets")
    shared = sheet.groupby("item").filter(lambda rows: len(rows) == len(names))
    if shared.empty:
        raise TableError(f"no item was scored by all of {', '.join(names)}")
    rows = {}
    for criterion in CRITERIA:
        wide = shared.pivot(index="item", columns="annotator", values=criterion).to_numpy()
        rows[criterion] = {
            "items": len(wide),
            "fleiss": _fleiss(wide),
            "qwk": _pairwise(wide),
            "same": float((wide == wide[:, :1]).all(axis=1).mean()),
        }
    by_batch = {}
    for batch, part in shared.groupby("batch"):
        each = [
            _pairwise(part.pivot(index="item", columns="annotator", values=c).to_numpy())
            for c in CRITERIA
        ]
        defined = [k for k in each if not np.isnan(k)]
        mean = float(np.mean(defined)) if defined else float("nan")
        by_batch[batch] = {"items": part["item"].nunique(), "qwk": mean}
    return Agreement(
        names,
        pd.DataFrame.from_dict(rows, orient="index").rename_axis("criterion"),
        pd.DataFrame.from_dict(by_batch, orient="index").rename_axis("batch"),
    )


def agree_with_model(sheet: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Return how far a model's scores agree with the annotators' (index criterion).

    *scores* has ``model_CRITERION`` by item. An item's mark is the annotators' median, rounded
    down. `items`, `qwk`, `passed_by_people` and `passed_by_model` (share of full marks), and both
    kinds of error: `wrongly_rejected` of what people pass, `wrongly_passed` of what they reject.
    """
    marks = sheet.groupby("item")[list(CRITERIA)].median().apply(np.floor).astype(int)
    scores = scores.set_axis(scores.index.astype(str), axis=0)
    both = marks.join(scores, how="inner").dropna()
    if both.empty:
        raise TableError(
            "no item of the sheets has a score of the model; give its model_scores.csv"
        )
    rows = {}
    for criterion in CRITERIA:
        people, model = both[criterion].to_numpy(), both[f"model_{criterion}"].to_numpy(int)
        rows[criterion] = {"items": len(both), "qwk": _kappa(people, model)}
        rows[criterion] |= _errors(people == max(MARKS), model == max(MARKS))
    full = (both[list(CRITERIA)] == max(MARKS)).all(axis=1).to_numpy()
    by_model = (both[[f"model_{c}" for c in CRITERIA]] == max(MARKS)).all(axis=1).to_numpy()
    rows["all"] = {"items": len(both), "qwk": np.nan} | _errors(full, by_model)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("criterion")


def _errors(people: np.ndarray, model: np.ndarray) -> dict[str, float]:
    return {
        "passed_by_people": float(people.mean()),
        "passed_by_model": float(model.mean()),
        "wrongly_rejected": float((~model[people]).mean()) if people.any() else np.nan,
        "wrongly_passed": float(model[~people].mean()) if (~people).any() else np.nan,
    }


def _fleiss(wide: np.ndarray) -> float:
    from statsmodels.stats.inter_rater import fleiss_kappa

    table = np.stack([(wide == mark).sum(axis=1) for mark in MARKS], axis=1)
    if (table.sum(axis=0) > 0).sum() < 2:
        return float("nan")
    return float(fleiss_kappa(table))


def _pairwise(wide: np.ndarray) -> float:
    each = [_kappa(wide[:, i], wide[:, j]) for i, j in combinations(range(wide.shape[1]), 2)]
    defined = [k for k in each if not np.isnan(k)]
    return float(np.mean(defined)) if defined else float("nan")


def _kappa(one: np.ndarray, other: np.ndarray) -> float:
    size = len(MARKS)
    table = np.zeros((size, size))
    np.add.at(table, (one.astype(int) - 1, other.astype(int) - 1), 1)
    return float(quadratic_kappa(table[None])[0])


def calibrated(sheet: pd.DataFrame, scores: pd.DataFrame) -> dict[str, int]:
    """Return the mark from which each criterion passes, so that the model passes what people pass.

    The mark with the largest share of right passes less wrong ones (Youden 1950); of equals the
    one that passes nearest to people's share, then the highest.
    """
    marks = sheet.groupby("item")[list(CRITERIA)].median().apply(np.floor).astype(int)
    both = marks.join(scores.set_axis(scores.index.astype(str), axis=0), how="inner").dropna()
    found = {}
    for criterion in CRITERIA:
        people = both[criterion].to_numpy() == max(MARKS)
        given = both[f"model_{criterion}"].to_numpy(int)

        def worth(
            mark: int, people: np.ndarray = people, given: np.ndarray = given
        ) -> tuple[float, float, int]:
            model = given >= mark
            right = model[people].mean() if people.any() else 0.0
            wrong = model[~people].mean() if (~people).any() else 0.0
            return round(float(right - wrong), 9), -abs(float(model.mean() - people.mean())), mark

        found[criterion] = max(MARKS, key=worth)
    return found


def with_marks(scores: pd.DataFrame, marks: dict[str, int]) -> pd.DataFrame:
    """Return scores in which what passes by *marks* has the full mark and all else the least."""
    return pd.DataFrame(
        {
            f"model_{c}": scores[f"model_{c}"].ge(mark).map({True: max(MARKS), False: min(MARKS)})
            for c, mark in marks.items()
        },
        index=scores.index,
    )


def write_calibration(marks: dict[str, int], about: dict, path: Path) -> None:
    """Write the marks that pass, and what they were fitted to, as YAML."""
    write_text(
        yaml.safe_dump({"pass_marks": marks, **about}, sort_keys=False, allow_unicode=True), path
    )


def read_calibration(path: Path) -> tuple[int, ...]:
    """Return the marks that pass, in the order of `CRITERIA`, from a calibration file.

    Raises
    ------
    TableError
        If the file cannot be read, or has not one mark from 1 to 3 for each criterion.
    """
    try:
        held = yaml.safe_load(path.read_text(encoding="utf-8"))
        marks = {str(k): v for k, v in held["pass_marks"].items()}
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as fault:
        raise TableError(f"{path}: is no calibration of `judge calibrate` ({fault!r})") from fault
    if set(marks) != set(CRITERIA) or not all(
        isinstance(m, int) and m in MARKS for m in marks.values()
    ):
        raise TableError(f"{path}: pass_marks needs a mark from 1 to 3 for {', '.join(CRITERIA)}")
    return marks_in_order(marks)
