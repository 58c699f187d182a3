"""Evaluations: who is compared, what a method may know, what is counted, what is written."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner
from people import Says, proposal
from surveys_made import survey_of

from pemand_abm.anchors import read_anchors
from pemand_abm.cli import main
from pemand_abm.dialogue import converse
from pemand_abm.domains import RELOCATION, TRIPS
from pemand_abm.errors import SettingsError
from pemand_abm.evaluation import answers as answering
from pemand_abm.evaluation.cards import level_card, response, response_card
from pemand_abm.evaluation.methods import ABLATIONS, METHODS, Setting, ask
from pemand_abm.evaluation.results import accuracy_text, verdict
from pemand_abm.evaluation.run import check_methods, evaluate, most_calls
from pemand_abm.evaluation.trial import design_trial
from pemand_abm.models.journal import Journal
from pemand_abm.models.scripted import Scripted, fill
from pemand_abm.protocols.pemand import PemandSettings
from pemand_abm.surveys.importing import write_survey

ANCHORS = Path(__file__).resolve().parents[1] / "synthpop" / "rates" / "anchors.csv"


@pytest.fixture(scope="module")
def table():
    return read_anchors(ANCHORS)


def setting(table, domain=TRIPS, **more):
    return Setting(domain, table, 0, PemandSettings(moderator="advise"), **more)


def found(trial, methods, table, model=None):
    domain = trial.domain
    return evaluate(
        trial, methods, setting(table, domain), model or Scripted(), lambda: 0.0, lambda text: None
    )


def test_the_households_of_a_smaller_trial_are_among_those_of_a_larger_one():
    survey = survey_of(200)
    some, more = design_trial(survey, 10, 0), design_trial(survey, 30, 0)
    assert set(some.chosen.index) < set(more.chosen.index)
    assert not some.trained[some.chosen.index].any()
    assert some.trained.sum() == 160  # 80 of 100.


def test_a_trial_does_not_depend_on_the_order_of_the_survey():
    survey = survey_of(200)
    turned = replace(survey, households=survey.households.iloc[::-1])
    one, other = design_trial(survey, 10, 0).chosen, design_trial(turned, 10, 0).chosen
    assert set(one.index) == set(other.index)


def test_movers_and_stayers_are_weighted_back_to_the_survey():
    survey = survey_of(200, target="moved")
    trial = design_trial(survey, 20, 0)
    assert trial.chosen["observed"].sum() == 10 and len(trial.chosen) == 20
    share = np.average(trial.chosen["observed"], weights=trial.chosen["sampling"])
    assert share == pytest.approx(survey.households["moved"].mean())


def test_every_method_answers_for_the_same_households(table):
    trial = design_trial(survey_of(), 6, 0)
    methods = ["gbm", "pemand", *[m for m in METHODS if m != "pemand"]]
    answers = found(trial, methods, table).answers
    for _, part in answers.groupby("method"):
        assert set(part.index) == set(trial.chosen.index)


def test_exemplars_come_from_the_training_split_alone(table):
    trial = design_trial(survey_of(), 8, 0)
    model = Says()
    list(answering.asked(METHODS["rag"], trial, setting(table), model))
    homes = trial.survey.households
    shown = [r.user for r in model.asked if r.label[-1] == "persona"]
    near = answering.exemplars(trial)
    assert len(shown) == 8 and set(near) == set(trial.chosen.index)
    known = {e.text for some in near.values() for e in some}
    trained = answering.homes_of(trial, list(homes.index[trial.trained]))
    assert known <= {answering._told(home) for home in trained}
    assert all(len(some) == 3 for some in near.values())


def test_no_observed_answer_of_a_tested_household_reaches_a_prompt(table):
    survey = survey_of()
    trial = design_trial(survey, 8, 0)
    changed = survey.households.assign(trips=survey.households["trips"].where(trial.trained, 59))
    other = design_trial(replace(survey, households=changed), 8, 0)
    prompts = []
    for each in (trial, other):
        model = Says()
        for method in METHODS.values():
            list(answering.asked(method, each, setting(table), model))
        prompts.append([(r.system, r.user) for r in model.asked])
    assert prompts[0] == prompts[1]


def test_an_undecided_household_is_counted_and_left_out_of_the_measures(table):
    trial = design_trial(survey_of(), 6, 0)
    silent = trial.chosen.index[0]

    def say(request):
        if f"household {silent}" in request.label:
            return "I cannot say."
        return fill(request)

    result = found(trial, ["gbm", "demographics"], table, Says(say))
    row = result.accuracy.loc["demographics"]
    assert (row["n"], row["undecided"]) == (5, 1)
    told = result.answers[result.answers["method"] == "demographics"]["predicted"]
    rest = trial.chosen.index[1:]
    error = (told.loc[rest] - trial.chosen.loc[rest, "observed"]).abs().mean()
    assert row["mae"] == pytest.approx(error)
    gbm = result.answers[result.answers["method"] == "gbm"]["predicted"]
    gap = (gbm.loc[rest] - trial.chosen.loc[rest, "observed"]).abs().mean()
    assert row["difference"] == pytest.approx(error - gap)


def test_below_two_hundred_households_no_method_is_called_better(table):
    result = found(design_trial(survey_of(), 6, 0), ["gbm", "linear"], table)
    (sentence,) = verdict(result)
    assert "smoke test" in sentence and "nearer" not in sentence


def test_what_an_ablation_leaves_alone_is_asked_only_once(table, tmp_path):
    trial = design_trial(survey_of(), 6, 0)
    journal = Journal(Scripted(), tmp_path / "journal.sqlite")
    list(answering.asked(METHODS["pemand"], trial, setting(table), journal))
    before = journal.asked
    for name in ("proposals-only", "checks-only", "no-moderator"):
        list(answering.asked(ABLATIONS[name], trial, setting(table), journal))
    # Only the judge of the proposals alone has another talk before it.
    extra = journal.asked - before
    journal.close()
    assert extra <= len(trial.chosen)


def test_no_talk_takes_more_calls_than_it_may(table):
    trial = design_trial(survey_of(), 8, 0)
    for method in [*METHODS, *ABLATIONS]:
        rows = found(trial, [method], table, Says(lambda r: "no form at all")).answers
        most = most_calls(trial, [method], setting(table))
        assert (rows["calls"] + rows["persona_calls"]).sum() <= most, method


@pytest.mark.parametrize("name", [*METHODS, *ABLATIONS])
@pytest.mark.parametrize("domain", [TRIPS, RELOCATION], ids=lambda d: d.name)
def test_every_method_decides_on_both_kinds_of_question(name, domain, table):
    target = "trips" if domain is TRIPS else "moved"
    trial = design_trial(survey_of(40, target=target), 4, 0)
    result = found(trial, [name], table)
    assert result.accuracy.loc[name, "n"] == 4
    assert result.answers["predicted"].between(0, 60 if target == "trips" else 1).all()


@pytest.mark.parametrize("members", [1, 8])
def test_one_person_and_eight_persons_can_negotiate(members, table):
    survey = survey_of(20)
    persons = pd.DataFrame(
        {
            "household_id": 1,
            "PNUM": range(1, members + 1),
            "age": [40, *[30] * (members - 1)],
            "sex": 1,
            "pemploy": 1,
            "pstudent": 3,
        },
        index=pd.Index(range(1, members + 1), name="person_id"),
    )
    homes = survey.households.iloc[:1].assign(hhsize=members)
    homes.index = pd.Index([1], name="household_id")
    trial = design_trial(survey, 4, 0)
    one = replace(trial, survey=replace(survey, households=homes, persons=persons))
    (home,) = answering.homes_of(one, [1])
    told = converse([ask(METHODS["pemand"], home, setting(table))], Scripted())[0]
    assert told.decision.value is not None
    assert told.talk_cost.calls <= told.talk.most_calls


def test_children_with_one_grown_up_leave_the_talk_to_him(table):
    survey = survey_of(20)
    persons = pd.DataFrame(
        {
            "household_id": 1,
            "PNUM": [1, 2, 3],
            "age": [40, 9, 3],
            "sex": 1,
            "pemploy": [1, 4, 4],
            "pstudent": [3, 1, 3],
        },
        index=pd.Index([1, 2, 3], name="person_id"),
    )
    homes = survey.households.iloc[:1].assign(hhsize=3)
    homes.index = pd.Index([1], name="household_id")
    trial = design_trial(survey, 4, 0)
    one = replace(trial, survey=replace(survey, households=homes, persons=persons))
    (home,) = answering.homes_of(one, [1])
    model = Says(lambda r: proposal(4) if r.label[-1] == "proposal" else "x")
    told = converse([ask(METHODS["pemand"], home, setting(table))], model)[0]
    # The child of nine adds his anchor's trips; the one of three makes none that count.
    added = round(table.member_trips(9, False).value)
    assert (told.decision.outcome, told.decision.value) == ("one speaker", 4 + added)


def test_methods_that_are_none_come_in_one_error_with_what_was_meant():
    with pytest.raises(SettingsError) as fault:
        check_methods(["pemnad", "gmb", "gbm", "gbm"], "trips")
    said = str(fault.value)
    assert "did you mean 'pemand'" in said and "did you mean 'gbm'" in said and "twice" in said
    with pytest.raises(SettingsError, match="logistic"):
        check_methods(["logistic"], "trips")


def test_the_accuracy_table_shows_weighted_beside_unweighted(table):
    result = found(design_trial(survey_of(), 12, 0), ["linear"], table)
    row, chosen = result.accuracy.loc["linear"], result.trial.chosen
    error = (result.answers["predicted"] - chosen["observed"]).abs()
    assert row["mae"] == pytest.approx(error.mean())
    assert row["weighted_mae"] == pytest.approx(np.average(error, weights=chosen["weight"]))
    assert f"{row['mae']:.2f} [" in accuracy_text(result)


def test_a_model_that_says_what_was_observed_gets_its_level_card(table):
    survey = survey_of(400)
    trial = design_trial(survey, None, 0)
    truth = survey.households["trips"].to_dict()
    result = found(trial, ["pemand"], table)
    right = result.answers.assign(predicted=[float(truth[i]) for i in result.answers.index])
    card = level_card(replace(result, answers=right))
    assert card.passed, [c for c in card.criteria if not c.passed]
    wrong = right.assign(predicted=right["predicted"] * 1.3)
    failed = [c.what for c in level_card(replace(result, answers=wrong)).criteria if not c.passed]
    assert any(what.startswith("weighted bias, all households") for what in failed)


def test_a_model_that_answers_to_the_price_in_the_published_way_gets_its_response_card(table):
    trial = design_trial(survey_of(400), 40, 0)
    result = found(trial, ["pemand"], table)
    base = pd.DataFrame({0: pd.Series(20.0, index=trial.chosen.index)})
    dose = {0: 20.0, 10: 19.9, 25: 19.7, 50: 19.4}  # ln(19.4 / 20) / ln 1.5 = -0.075
    told = {"none": base, "placebo": base} | {str(d): base * 0 + t for d, t in dose.items()}
    assert response_card(result, told, 1).passed
    rising = told | {"50": base * 0 + 22.0}
    failed = [c.what for c in response_card(result, rising, 1).criteria if not c.passed]
    assert "sign" in failed and "elasticity" in failed


def test_the_announcement_reaches_the_members_and_only_under_its_dose(table):
    trial = design_trial(survey_of(), 2, 0)
    model = Says()
    told = response(trial, setting(table), model, 1)
    assert set(told) == {"none", "placebo", "0", "10", "25", "50"}
    said = [r.user for r in model.asked if r.label[-1] == "proposal"]
    assert sum("costs 25 percent more" in user for user in said) > 0
    assert sum("fuel" not in user and "lettering" not in user for user in said) > 0


def test_a_trial_without_a_household_is_one_clear_error():
    with pytest.raises(SettingsError, match="9 members or more"):
        design_trial(survey_of(60), 5, 0, members=9)


def test_a_card_of_moves_is_refused_before_anything_is_asked(tmp_path):
    homes = survey_of(80, target="moved")
    write_survey(homes, tmp_path / "mine", "a test")
    arguments = ["--survey", str(tmp_path / "mine"), "--card", "--model", "scripted"]
    ran = CliRunner().invoke(main, ["evaluate", *arguments, "--out", str(tmp_path / "out")])
    assert ran.exit_code == 1 and "cards are defined for trips" in ran.output
    assert not (tmp_path / "out").exists()


def test_the_command_writes_what_it_prints(tmp_path):
    survey = survey_of(80, text_ids=True)
    folder = tmp_path / "mine"
    write_survey(survey, folder, "a test")
    ran = CliRunner().invoke(
        main,
        [
            "evaluate",
            *("--survey", str(folder), "--methods", "linear,pemand,gbm", "--households", "6"),
            *("--model", "scripted", "--out", str(tmp_path / "out"), "--anchors", str(ANCHORS)),
            "--card",
        ],
        catch_exceptions=False,
    )
    assert ran.exit_code == 0, ran.output
    accuracy = pd.read_parquet(tmp_path / "out" / "accuracy.parquet")
    assert f"{accuracy.loc['gbm', 'mae']:.2f} [" in ran.output
    made = yaml.safe_load((tmp_path / "out" / "evaluation.yaml").read_text())
    assert made["methods"] == ["linear", "pemand", "gbm"] and made["n"] == 6
    card = yaml.safe_load((tmp_path / "out" / "level_card.yaml").read_text())
    assert card["passed"] is False and card["prompts_sha256"] == made["prompts_sha256"]
    answers = pd.read_parquet(tmp_path / "out" / "answers.parquet")
    assert answers.index.dtype == "str" and len(answers) == 18
    read = CliRunner().invoke(main, ["transcript", str(tmp_path / "out"), str(answers.index[0])])
    assert read.exit_code == 0 and "The survey observed" in read.output
