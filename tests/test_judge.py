"""Annotation sheets: who gets what, what is refused, and agreement checked by other programs."""

import csv
import json
import re
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.metrics import cohen_kappa_score

from pemand_abm.cli import main
from pemand_abm.dialogue import Reply
from pemand_abm.domains import TRIPS
from pemand_abm.errors import TableError
from pemand_abm.protocols.pemand import CRITERIA
from pemand_abm.training.judge import (
    agree,
    agree_with_model,
    calibrated,
    dealt,
    items_of,
    read_calibration,
    read_items,
    read_scores,
    read_sheets,
    scored,
    with_marks,
    write_calibration,
    write_sheets,
)

RULE_MADE = Path(__file__).parents[1] / "training" / "judge" / "rule_made.csv"


@pytest.fixture
def run(tmp_path):
    """Ten talks of two proposals and a round each; a rejected statement and a skip among them."""

    def turn(phase, speaker, text, value=2, kept=True, skipped=False):
        scores = dict.fromkeys(CRITERIA, 3)
        return {
            "phase": phase, "speaker": speaker, "text": text, "value": value, "kept": kept,
            "skipped": skipped, "scores": scores,
        }  # fmt: skip

    talks = [
        {
            "household_id": k,
            "constraints": "We are 2.",
            "members": [{"name": f"member {n}", "facts": [f"I am {n}."]} for n in (1, 2)],
            "turns": [
                turn("proposal", "member 1", "no, <b>never</b>", kept=False),
                turn("proposal", "member 1", f'I go, "out" #{k}'),
                turn("proposal", "member 2", "I stay"),
                turn("round 1", "member 1", "Together", 4),
                turn("round 2", "member 2", "", 4, skipped=True),
            ],
        }
        for k in range(10)
    ]
    lines = "\n".join(json.dumps(t) for t in talks)
    (tmp_path / "transcripts.jsonl").write_text(lines + "\n")
    return tmp_path


def test_kept_statements_become_items_and_only_rounds_show_what_was_said(run):
    items = items_of(run, 10, 0)
    assert len(items) == 30
    assert not items["statement"].str.contains("never").any()
    assert (items.loc[items["phase"] == "proposal", "said_before"] == "").all()
    said = items.loc[items["phase"] == "round 1", "said_before"]
    assert said.str.contains("member 2 (2): I stay", regex=False).all()
    fewer = items_of(run, 4, 0)
    assert set(fewer["household_id"]) <= set(items["household_id"])
    assert fewer["household_id"].nunique() == 4


def test_a_fifth_goes_to_everybody_and_the_rest_to_one_each(run):
    sheet = dealt(items_of(run, 10, 0), ["a", "b", "c"], 0.2, 0)
    scored_by = sheet.groupby("item")["annotator"].nunique()
    assert set(scored_by) == {1, 3}
    assert len(scored_by) == 30, "every item is scored"
    everybodys = scored_by[scored_by == 3].index
    by_batch = sheet[sheet["item"].isin(everybodys)].groupby("batch")["item"].nunique()
    assert by_batch.tolist() == [2, 2, 2, 2], "0.2 of 7 or 8, rounded up"


def test_a_sheet_comes_back_as_it_was_written_and_shows_no_score_of_the_model(run, tmp_path):
    write_sheets(dealt(items_of(run, 10, 0), ["a", "b"], 0.5, 0), tmp_path / "out")
    page = (tmp_path / "out" / "sheet_a.html").read_text()
    assert "http://" not in page and "https://" not in page
    path = tmp_path / "out" / "sheet_a.csv"
    rows = list(csv.DictReader(path.open(newline="")))
    assert not [c for c in rows[0] if c.startswith("model_")]
    for row in rows:
        row.update(dict.fromkeys(CRITERIA, "3"))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(rows)
    sheet = read_sheets([path])
    assert sheet["statement"].str.contains('"out" #', regex=False).any()
    scores = read_scores(tmp_path / "out" / "model_scores.csv", sheet)
    found = agree_with_model(sheet, scores)
    assert found.loc["all", "passed_by_people"] == found.loc["all", "passed_by_model"] == 1


def sheet_of(marks, batch=None):
    """Make a sheet from marks of shape (items, annotators), the same on all criteria."""
    rows = [
        {"item": i, "annotator": f"a{j}", "batch": 1 if batch is None else batch[i]}
        | dict.fromkeys(CRITERIA, int(mark))
        for i, row in enumerate(marks)
        for j, mark in enumerate(row)
    ]
    return pd.DataFrame(rows)


def test_fleiss_kappa_is_that_of_a_worked_example():
    # By hand, three annotators: the items' agreement is 1, 1/3, 1/3, 1, on average 2/3. The marks
    # 1, 2, 3 are given 5, 2, 5 times of 12.
    marks = [[1, 1, 1], [1, 2, 2], [3, 3, 1], [3, 3, 3]]
    chance = (5 / 12) ** 2 + (2 / 12) ** 2 + (5 / 12) ** 2
    kappa = (2 / 3 - chance) / (1 - chance)
    assert agree(sheet_of(marks)).by_criterion["fleiss"].tolist() == pytest.approx([kappa] * 4)


def test_weighted_kappa_is_scikit_learns():
    marks = np.random.default_rng(0).integers(1, 4, (40, 3))
    marks[:, 1] = np.where(marks[:, 2] > 1, marks[:, 0], marks[:, 1])
    pairs = [(0, 1), (0, 2), (1, 2)]
    wanted = np.mean(
        [cohen_kappa_score(marks[:, i], marks[:, j], weights="quadratic") for i, j in pairs]
    )
    found = agree(sheet_of(marks, np.arange(40) // 10)).by_criterion
    assert found["qwk"].tolist() == pytest.approx([wanted] * 4)


def test_drift_is_seen_where_annotators_part_in_a_later_batch():
    same = np.repeat(np.arange(12)[:, None] % 3 + 1, 2, axis=1)
    apart = np.column_stack([same[:, 0], 4 - same[:, 0]])
    found = agree(sheet_of(np.vstack([same, apart]), np.repeat([1, 2], 12)))
    assert found.drift["qwk"].tolist() == pytest.approx([1, -1])


def test_both_kinds_of_error_of_the_model_are_told_apart():
    sheet = sheet_of([[3, 3]] * 6 + [[1, 1]] * 4)
    model = pd.DataFrame(
        {f"model_{c}": [3] * 3 + [2] * 3 + [3] + [1] * 3 for c in CRITERIA},
        index=pd.Index(range(10), name="item"),
    )
    found = agree_with_model(sheet.astype({"item": str}), model).loc["all"]
    assert (found["wrongly_rejected"], found["wrongly_passed"]) == (0.5, 0.25)
    assert (found["passed_by_people"], found["passed_by_model"]) == (0.6, 0.4)


def test_calibration_finds_the_marks_that_people_pass_and_lowers_the_errors(tmp_path):
    # People pass the first six; the model gives them 2 or 3, and 1 to the others but one.
    sheet = sheet_of([[3, 3]] * 6 + [[1, 2]] * 4).astype({"item": str})
    model = pd.DataFrame(
        {f"model_{c}": [2, 2, 2, 2, 3, 3, 1, 1, 1, 3] for c in CRITERIA},
        index=pd.Index(range(10), name="item"),
    )
    marks = calibrated(sheet, model)
    assert marks == dict.fromkeys(CRITERIA, 2)
    before = agree_with_model(sheet, model).loc["all"]
    after = agree_with_model(sheet, with_marks(model, marks)).loc["all"]
    assert (before["wrongly_rejected"], after["wrongly_rejected"]) == (pytest.approx(4 / 6), 0)
    assert before["wrongly_passed"] == after["wrongly_passed"] == 0.25
    write_calibration(marks, {}, tmp_path / "c.yaml")
    assert read_calibration(tmp_path / "c.yaml") == (2, 2, 2, 2)
    (tmp_path / "c.yaml").write_text("pass_marks: {persona: 4}")
    with pytest.raises(TableError, match="a mark from 1 to 3 for persona"):
        read_calibration(tmp_path / "c.yaml")


def test_a_judge_that_gives_one_mark_to_all_is_made_to_pass_as_much_as_people_nearly_do():
    sheet = sheet_of([[3, 3]] * 7 + [[1, 1]] * 3).astype({"item": str})
    ones = pd.DataFrame(
        {f"model_{c}": [1] * 10 for c in CRITERIA}, index=pd.Index(range(10), name="item")
    )
    assert calibrated(sheet, ones) == dict.fromkeys(CRITERIA, 1)


def test_all_faults_of_all_sheets_are_told_at_once(tmp_path):
    head = "item,batch,annotator," + ",".join(CRITERIA)
    (tmp_path / "a.csv").write_text(f"{head}\n1,1,a,3,3,3,4\n2,1,a,3,,3,3\n")
    (tmp_path / "b.csv").write_text("item,annotator\n1,b\n")
    with pytest.raises(TableError) as fault:
        read_sheets([tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.csv"])
    for said in (
        "not 1, 2 or 3, first of item 1",
        "half filled, first of item 2",
        "lacks batch",
        "c.csv",
    ):
        assert said in str(fault.value)
    (tmp_path / "a.csv").write_text(f"{head}\n1,1,a,3,3,3,3\n1,1,a,3,3,3,3\n")
    with pytest.raises(TableError, match="stand twice"):
        read_sheets([tmp_path / "a.csv"])
    (tmp_path / "a.csv").write_text(f"{head}\n1,1,a,3,3,3,3\n")
    with pytest.raises(TableError, match="agree with nobody"):
        agree(read_sheets([tmp_path / "a.csv"]))


def test_the_shipped_sheet_says_that_no_person_filled_it_in():
    result = CliRunner().invoke(main, ["train", "judge", "agreement", str(RULE_MADE)])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("rule-made, not human")
    assert set(read_sheets([RULE_MADE])["note"]) == {"rule-made, not human"}
    assert read_sheets([RULE_MADE])["household_id"].nunique() == 60


def test_a_judge_scores_a_sheet_by_its_statements_and_never_sees_the_marks(tmp_path):
    sheet = pd.read_csv(RULE_MADE, dtype=str, keep_default_na=False)
    items = read_items([RULE_MADE])
    assert len(items) == sheet["item"].nunique()
    heard = []

    class Judge:
        identity: ClassVar = {"model": "by length"}

        def complete(self, requests):
            # Backwards, as a server may answer.
            for position, request in reversed(list(enumerate(requests))):
                heard.append(request)
                said = re.findall(r'^\[(\d+)\] (member \d+) answers (\S+): "', request.user, re.M)
                marks = "persona=1; constraints=2; interaction=3; quality={}"
                lines = [
                    f"[{n}] SCORES: {marks.format(1 + int(v) % 3)} FEEDBACK: It is so."
                    for n, _, v in said
                ]
                if "household 23246407" in request.label:
                    lines = lines[:-1]
                yield position, Reply("\n".join(lines))

    found = scored(items, Judge(), TRIPS, 0)
    text = "\n".join(r.system + r.user for r in heard)
    assert "rule-made" not in text and "rule-strict" not in text
    unread = items["household_id"] == "23246407"
    assert found[unread].isna().all(axis=None) and unread.any()
    wanted = 1 + items.loc[~unread, "value"].astype(int) % 3
    assert (found.loc[~unread, "model_quality"] == wanted).all()
    assert (found.loc[~unread, "model_persona"] == 1).all()
    assert sum(r.user.count("] SCORES") for r in heard) == len(items)


def test_sheets_without_their_columns_are_refused_together(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("item,batch\n1,1\n")
    with pytest.raises(TableError, match=r"(?s)a\.csv: lacks.*b\.csv: lacks"):
        read_items([tmp_path / "a.csv", tmp_path / "b.csv"])
