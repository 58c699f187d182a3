"""The page of an evaluation: its figures are the tables', its text is data, it fetches nothing."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from people import Says
from surveys_made import survey_of

from pemand_abm.anchors import read_anchors
from pemand_abm.evaluation.methods import Setting
from pemand_abm.evaluation.page import as_html, as_markdown, worst_cases
from pemand_abm.evaluation.run import evaluate
from pemand_abm.evaluation.trial import design_trial
from pemand_abm.models.scripted import fill
from pemand_abm.protocols.pemand import PemandSettings

ANCHORS = Path(__file__).resolve().parents[1] / "synthpop" / "rates" / "anchors.csv"
HOSTILE = "<script>alert(1)</script> | broken"


def evaluated(target="trips", say=fill, methods=("gbm", "pemand", "demographics")):
    trial = design_trial(survey_of(80, target=target), 12, 0)
    setting = Setting(trial.domain, read_anchors(ANCHORS), 0, PemandSettings(moderator="checks"))
    return evaluate(trial, list(methods), setting, Says(say), lambda: 0.0, lambda text: None)


@pytest.fixture(scope="module")
def found():
    return evaluated()


def test_the_figures_of_the_page_are_those_of_the_answers(found):
    page = as_markdown(found)
    told = found.answers[found.answers["method"] == "gbm"]["predicted"]
    chosen = found.trial.chosen
    mae = np.abs(told - chosen["observed"]).mean()
    (row,) = [line for line in page.splitlines() if line.startswith("| gbm") and "[" in line]
    assert f" {mae:.2f} [" in row
    assert f" {np.average(told - chosen['observed'], weights=chosen['weight']):.2f} " in row
    ones = chosen.index[chosen["hhsize"] == 1]
    alone = np.abs(told[ones] - chosen.loc[ones, "observed"]).mean()
    sized = [line for line in page.splitlines() if re.match(r"\| gbm +\| 1 ", line)]
    assert f"{alone:.2f} (" in sized[0]


def test_the_worst_cases_are_the_worst(found):
    part = found.answers[found.answers["method"] == "pemand"]
    error = (part["predicted"] - part["observed"]).abs()
    shown = [record["household_id"] for record in worst_cases(found)]
    assert error[shown].min() >= error.drop(shown).max()


def test_no_method_is_called_better_below_two_hundred_households(found):
    assert "smoke test" in as_markdown(found) and "smoke test" in as_html(found)
    assert not re.search(r"is (nearer|farther)", as_html(found))


def test_the_page_fetches_nothing_and_names_what_it_was_made_of(found):
    page = as_html(found)
    body = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", body)
    assert found.manifest["prompts_sha256"] in body and "12.72 calls" in body


def test_what_a_model_writes_is_text_on_the_page_and_one_cell_of_a_table():
    def say(request):
        return HOSTILE if request.label[-1] == "demographics" else fill(request)

    found = evaluated(say=say)
    assert found.accuracy.loc["demographics", "undecided"] == 12
    talks = [
        t | {"turns": [{**turn, "feedback": HOSTILE} for turn in t["turns"]]} for t in found.talks
    ]
    found = replace(found, talks=talks)
    assert "<script>alert" not in as_html(found) and "&lt;script&gt;alert" in as_html(found)
    (line, *_) = [x for x in as_markdown(found).splitlines() if "alert(1)" in x]
    assert line.count(" | ") == 2 and "<script" not in line  # Three cells.


def test_the_page_of_moves_shows_scores_and_f1():
    page = as_markdown(evaluated("moved", methods=("logistic", "pemand")))
    assert "PR-AUC" in page and "f1 (weighted)" in page
