"""Examples, targets and adapters: what is learnt comes from the training split and fits the forms."""

import json
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from people import household, member

from pemand_abm.dialogue import Request
from pemand_abm.domains import TRIPS
from pemand_abm.errors import SettingsError
from pemand_abm.evaluation.trial import design_trial, held_out
from pemand_abm.models.scripted import Scripted
from pemand_abm.protocols.pemand import CRITERIA, _scores
from pemand_abm.surveys import Features, Survey
from pemand_abm.training import examples as made
from pemand_abm.training.recipe import PHASES, Recipe, read_recipe
from pemand_abm.training.targets import expected_moves, expected_trips, whole_trips
from pemand_abm.training.teacher import Teacher, day_of, marks, narrative

ROOT = Path(__file__).parents[1]
N = 400


@pytest.fixture(scope="module")
def survey():
    """Couples: of each the first works and makes 4 trips, the second makes 1 or 2."""
    ids = pd.RangeIndex(1000, 1000 + N, name="household_id")
    own = np.column_stack([np.full(N, 4), 1 + np.arange(N) % 2])
    homes = pd.DataFrame(
        {
            "hhsize": 2, "num_workers": 1, "auto_ownership": np.arange(N) % 3, "children": 0,
            "age_of_head": 40, "tenure": "own", "income": 50_000, "home_zone_id": "here",
            "urban": 1.0, "weight": 1.0, "weekday": True, "trips": own.sum(1),
        },
        index=ids,
    )  # fmt: skip
    persons = pd.DataFrame(
        {
            "household_id": np.repeat(ids, 2), "PNUM": [1, 2] * N,
            "age": np.tile([40, 38], N) + np.repeat(np.arange(N) % 20, 2),
            "sex": [1, 2] * N, "pemploy": [1, 3] * N, "pstudent": 3, "trips": own.ravel(),
            "inferred": False,
        },
        index=pd.RangeIndex(1, 2 * N + 1, name="person_id"),
    )  # fmt: skip
    persons["age_to"] = persons["age"]
    return Survey(
        "psrc2023", "made", 2023, "trips", "trips", homes, persons, pd.DataFrame(),
        "activitysim", Features((), ()),
    )  # fmt: skip


def recipe(**changes):
    given = {
        "name": "r", "model": "embedded", "teacher": "rules", "examples": 120, "seed": 0,
        "surveys": [{"survey": "psrc2023", "households": 60}],
        "phases": dict.fromkeys(PHASES, 1.0),
    }  # fmt: skip
    return Recipe.model_validate(given | changes)


@pytest.fixture(scope="module")
def found(survey):
    rule = recipe()
    return made._by_rule(rule, survey, made.training_households(survey, rule.surveys[0], 0))


def test_no_household_of_the_test_split_is_taken(survey):
    taken = made.training_households(survey, recipe().surveys[0], 0)
    assert len(taken) == 60
    assert not set(taken) & set(design_trial(survey, None, 0).chosen.index)
    with pytest.raises(SettingsError, match="320 households, not 400"):
        made.training_households(
            survey, recipe().surveys[0].model_copy(update={"households": 400}), 0
        )


def test_what_is_taught_is_expected_of_such_members_and_not_what_the_day_brought(survey):
    trained = pd.Series(~held_out(survey, 0), index=survey.households.index)
    expected = expected_trips(survey, trained, 0)
    first = survey.persons["PNUM"] == 1
    known = expected.reindex(survey.persons.index)
    assert known[first].mean() == pytest.approx(4, abs=0.1)
    assert known[~first].mean() == pytest.approx(1.5, abs=0.1)
    assert known[~first].std() < 0.3, "1 or 2 is chance here"
    assert set(survey.persons.loc[expected.index, "household_id"]) == set(trained.index[trained])


def test_what_a_household_observed_changes_nothing_that_it_is_taught_itself(survey):
    trained = pd.Series(~held_out(survey, 0), index=survey.households.index)
    before = expected_trips(survey, trained, 0)
    one = survey.persons.loc[before.index[0], "household_id"]
    persons = survey.persons.copy()
    persons.loc[persons["household_id"] == one, "trips"] = 40
    after = expected_trips(replace(survey, persons=persons), trained, 0)
    own = persons.index[persons["household_id"] == one]
    assert after[own].tolist() == before[own].tolist()


def test_no_prompt_tells_what_the_household_did(survey):
    rule = recipe()
    ids = made.training_households(survey, rule.surveys[0], 0)

    def prompts(of):
        kinds = ("narrative", "reasoning")
        return [e.messages for e in made._by_rule(rule, of, ids) if e.phase in kinds]

    persons = survey.persons.assign(trips=survey.persons["trips"] + 7)
    homes = survey.households.assign(trips=survey.households["trips"] + 14)
    assert prompts(survey) == prompts(replace(survey, persons=persons, households=homes))


def test_whole_numbers_keep_the_total():
    draws = np.random.default_rng(0)
    for _ in range(200):
        parts = draws.gamma(1.5, 1.5, draws.integers(1, 7)).tolist()
        whole = whole_trips(parts, sum(parts))
        assert abs(sum(whole) - sum(parts)) <= 0.5
        assert all(abs(w - p) < 1.5 for w, p in zip(whole, parts, strict=True))


def form_of(name):
    """Return a grammar file as a regular expression; none of ours is recursive."""
    folder = resources.files("pemand_abm").joinpath("prompts")
    text = folder.joinpath(*name.split("/")).read_text(encoding="utf-8")
    text = text.replace('{% include "words.gbnf" %}', folder.joinpath("words.gbnf").read_text())
    text = re.sub(r"\{%.*?%\}|\{#.*?#\}", "", text, flags=re.S)
    for key, said in {
        "start": "On an ordinary weekday I" if "proposal" in name else "Together we",
        "label": "TRIPS",
        "value": '"0" | [1-9] [0-9]?',
    }.items():
        text = text.replace("{{ " + key + " }}", said)
    rules = dict(re.findall(r"^(\w+) ::= (.*)$", text, flags=re.M))

    def regex(rule):
        parts = re.findall(r'"(?:\\.|[^"])*"|\[[^\]]*\]|\{[\d,]+\}|[()|?*+]|\w+', rule)
        said = ""
        for part in parts:
            if part.startswith('"'):
                said += f"(?:{re.escape(json.loads(part))})"
            elif part in rules:
                said += f"(?:{regex(rules[part])})"
            else:
                said += part
        return said

    return re.compile(regex(rules["root"].replace('"LIKELIHOOD: " percent "\\n" ', "")))


@pytest.mark.parametrize("phase", [p for p in PHASES if p != "moderator"])
def test_every_reply_that_is_taught_has_the_form_that_is_asked_for(found, phase):
    folder = "pemand" if phase in ("proposal", "round") else "persona"
    form = form_of(f"{folder}/{phase}.gbnf")
    replies = [e.reply for e in found if e.phase == phase]
    assert replies
    for reply in replies:
        assert form.fullmatch(reply), reply


def test_the_marks_that_are_taught_are_read_by_the_protocol_and_differ(found):
    lines = [line for e in found if e.phase == "moderator" for line in e.reply.split("\n")]
    # The form of prompts/pemand/moderator.gbnf.
    feedback = r"It(,? ([A-Za-z][a-z'-]{0,14}|\$?\d{1,3}(,\d{3})?)){2,12}\."
    verdicts = []
    for line in lines:
        number = int(re.match(r"\[(\d+)\]", line)[1])
        verdict = _scores(line, number, (3, 3, 3, 3))
        assert verdict is not None
        assert re.fullmatch(feedback, verdict.feedback)
        verdicts.append(verdict)
    assert {v.passed for v in verdicts} == {True, False}
    assert all(min(v.scores[c] for v in verdicts) == 1 for c in ("constraints", "quality"))


def test_what_the_moderator_is_taught_to_find_is_no_example_of_what_to_say(found):
    said = [e.reply for e in found if e.phase == "proposal"]
    for reply in said:
        assert re.search(r"which makes (\d+)", reply)[1] == re.search(r"TRIPS: (\d+)", reply)[1]
        assert "again and again" not in reply


@pytest.mark.parametrize(
    ("value", "said", "works", "worst"),
    [
        (2, "On a weekday I go to work and come home, which makes 2 trips.", True, None),
        (5, "On a weekday I go to work and come home, which makes 2 trips.", True, "quality"),
        (2, "On a weekday I go to work and come home, which makes 2 trips.", False, "persona"),
        (14, "On a weekday I go out, which makes 14 trips.", True, "constraints"),
        (2, "The 2 of them sang.", True, "interaction"),
    ],
)
def test_the_rule_finds_each_fault(value, said, works, worst):
    given, feedback = marks(value, said, member(1, works=works), heads=1)
    assert [c for c in CRITERIA if given[c] == 1] == ([worst] if worst else [])
    assert (feedback == "It fits the facts.") == (worst is None)


def test_a_narrative_of_many_facts_keeps_them_all():
    facts = [f"I have the habit number {n}." for n in range(1, 12)]
    told = narrative(["I am 40 years old.", *facts])
    assert told.count(".") == 6
    assert [int(n) for n in re.findall(r"number (\d+)", told)] == list(range(1, 12))


@pytest.mark.parametrize("trips", range(12))
def test_a_day_in_words_has_as_many_trips_as_its_number(trips):
    worker = member(1)
    day = day_of(worker, trips)
    again = re.search(r"go out again (once|\d+ times)", day)
    tours = 0 if not again else 1 if again[1] == "once" else int(again[1].split()[0])
    counted = day.count("go to work") + day.count("stop") + day.count("come home") + 2 * tours
    assert counted == trips


def test_the_teacher_says_the_numbers_of_the_lesson(found):
    said = [e for e in found if e.phase == "proposal"]
    numbers = [int(re.search(r"FINAL_TRIPS: (\d+)", e.reply)[1]) for e in said]
    assert set(numbers) <= {1, 2, 3, 4, 5}
    assert np.mean(numbers) == pytest.approx(5.5 / 2, abs=0.25)


def read_of(example):
    """Return the figure of similar people that a review's prompt tells, and what it is taught."""
    told = re.search(
        r"Similar people: .*? make about ([\d.]+) trips", example.messages[-1]["content"]
    )
    return float(told[1]), int(re.search(r"INTENTION: (\d+)", example.reply)[1])


def test_a_recipe_that_leans_teaches_the_figure_that_is_told_or_says_that_it_departs(survey):
    rule = recipe(lean=1.0, phases={"review": 1})
    ids = made.training_households(survey, rule.surveys[0], 0)
    reviews = [e for e in made._by_rule(rule, survey, ids) if e.phase == "review"]
    assert len(reviews) == 120
    departs = {"more": 0, "fewer": 0, "": 0}
    for example in reviews:
        told, taught = read_of(example)
        near = int(told + 0.5)
        way = "more" if taught > near else "fewer" if taught < near else ""
        departs[way] += 1
        assert example.reply.startswith(
            f"REVIEW: The reasoning fits, and similar people make about {near} trip"
        )
        assert (f"but I make {way}" in example.reply) == bool(way)
    # Here the first of a couple makes 4 trips as such people did, and the second 1 or 2, not 3.
    assert departs[""] >= 40
    assert departs["fewer"] >= 40


def test_elsewhere_people_are_told_and_taught_other_figures(survey):
    here, half = (recipe(lean=9.0, elsewhere=x, phases={"review": 1}) for x in (0.0, 0.5))
    ids = made.training_households(survey, here.surveys[0], 0)
    of = [
        {
            (e.household, i): read_of(e)
            for i, e in enumerate(made._by_rule(rule, survey, ids))
            if e.phase == "review"
        }
        for rule in (here, half)
    ]
    ratio = np.array([of[1][k][0] / of[0][k][0] for k in of[0]])
    assert 0.3 < np.mean(np.abs(ratio - 1) > 0.05) < 0.6
    assert ratio.min() > 0.45
    assert ratio.max() < 2.1
    assert all(taught == int(told + 0.5) for told, taught in of[1].values())
    with pytest.raises(ValueError, match="elsewhere: goes with lean"):
        recipe(elsewhere=0.5)
    with pytest.raises(ValueError, match="lean: goes with teacher: rules"):
        recipe(lean=1.0, teacher="model", generator="scripted")


def test_shares_are_the_recipes_and_no_prompt_stands_twice(found):
    chosen = made._shares(found, recipe(examples=30, phases={"review": 2, "round": 1}))
    assert [sum(e.phase == p for e in chosen) for p in ("review", "round")] == [20, 10]
    assert len({(e.messages[-1]["content"], e.reply) for e in chosen}) == 30
    assert chosen == made._shares([*found], recipe(examples=30, phases={"review": 2, "round": 1}))


def test_of_the_models_own_proposals_only_those_with_full_marks_are_learnt(survey):
    class Strict(Scripted):
        """Gives member 2 one point less for the persona."""

        def complete(self, requests):
            for i, reply in super().complete(requests):
                names = dict(re.findall(r"^\[(\d+)\] (member \d)", requests[i].user, flags=re.M))
                lines = reply.text.split("\n")
                for k, line in enumerate(lines):
                    number = re.match(r"\[(\d+)\] SCORES", line)
                    if number and names[number[1]] == "member 2":
                        lines[k] = line.replace("persona=3", "persona=2")
                yield i, replace(reply, text="\n".join(lines))

    rule = recipe(teacher="model", generator="scripted", candidates=2, phases={"proposal": 1})
    learnt = made._by_model(rule, survey, [1000, 1001, 1002], Strict())
    assert learnt
    assert all("You are one member" in e.messages[0]["content"] for e in learnt)
    assert {e.scores["persona"] for e in learnt} == {3}
    assert all(e.phase == "proposal" and "scripted" in e.source for e in learnt)


def test_the_shipped_recipes_are_read_and_faults_are_named(tmp_path):
    for path in sorted((ROOT / "training").glob("*.yaml")):
        assert read_recipe(path).name == path.stem
    wrong = tmp_path / "r.yaml"
    wrong.write_text(
        "name: r\nmodel: embedded\nteacher: model\nphases: {revue: 1}\nexamples: 0\nsurveys: []\n"
    )
    with pytest.raises(SettingsError) as fault:
        read_recipe(wrong)
    assert all(key in str(fault.value) for key in ("phases", "examples", "surveys"))


def test_the_teacher_answers_every_request_of_a_talk():
    home = household(member(1), member(2, works=False))
    lesson = made.Lesson(home, {"member 1": 3, "member 2": 2})
    request = Request("", "Together: 5.\n", 0, (f"household {home.id}", "member 1", "round 1"))
    assert "PREFERRED_TRIPS: 5" in Teacher([lesson]).reply(request)
    assert TRIPS.shared.parse("5") == 5


def test_moves_are_taught_at_the_census_rate_of_such_households(survey):
    rates = ROOT / "synthpop" / "rates"
    moves = recipe(
        rates=rates, phases={"proposal": 1, "round": 1},
        surveys=[{"survey": "psrc2019", "households": 40, "decision": "relocation"}],
    )  # fmt: skip
    half = survey.households.index[: N // 2]
    tenure = pd.Series("own", survey.households.index).mask(
        survey.households.index.isin(half), "rent"
    )
    homes = survey.households.assign(tenure=tenure)
    rented = replace(survey, households=homes)
    known = pd.read_csv(rates / "moves.csv").query("age_band == '35-44' and children == '0'")
    known = known.set_index("tenure")["rate"]
    assert expected_moves(rented, rates)[half[0]] == pytest.approx(known["rent"])
    found = made._moves_by_rule(moves, rented, [*half[:5], *homes.index[-5:]])
    said = [
        (e.household, int(re.search(r"LIKELIHOOD: (\d+)", e.reply)[1]))
        for e in found
        if e.phase == "proposal"
    ]
    assert len(said) == 20
    for home, percent in said:
        assert percent == round(100 * known[tenure[int(home)]])
    assert {"PREFERRED_HOME: stay"} == {
        line for e in found if e.phase == "round" for line in e.reply.split("\n") if "PREF" in line
    }
    with pytest.raises(ValueError, match="rates"):
        recipe(surveys=[{"survey": "psrc2019", "households": 40, "decision": "relocation"}])


def test_an_adapter_is_not_asked_about_households_that_it_may_know(survey, tmp_path):
    from pemand_abm.errors import ModelError
    from pemand_abm.evaluation.run import check_unseen
    from pemand_abm.models import open_model
    from pemand_abm.models.checkpoint import adapter_identity

    (tmp_path / "README.md").write_text(
        "---\nrecipe: {seed: 0}\nby_survey: {psrc2023: 3, nhts2022: 1}\n---\n\n# It\n"
    )
    (tmp_path / "adapter_config.json").write_text("{}")
    known = Scripted()
    known.identity = Scripted.identity | adapter_identity(tmp_path)
    assert known.identity["adapter_surveys"] == "nhts2022 psrc2023"
    check_unseen(design_trial(survey, 5, 0), known)
    with pytest.raises(SettingsError, match=r"seed 0; with --seed 1 .* Take --seed 0"):
        check_unseen(design_trial(survey, 5, 1), known)
    check_unseen(design_trial(replace(survey, name="psrc2019"), 5, 1), known)
    (tmp_path / "README.md").write_text("Somebody's own words.")
    assert "adapter_seed" not in adapter_identity(tmp_path)
    with pytest.raises(ModelError, match="scripted takes no adapter"):
        open_model("scripted", adapter=str(tmp_path))
