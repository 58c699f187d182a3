"""ReST: rewards have their best at the mean, the best negotiation is learnt, and all are kept."""

import numpy as np
import pytest
from test_training import recipe, survey  # noqa: F401

from pemand_abm.models.scripted import Scripted
from pemand_abm.people import Turn, Utterance, Verdict
from pemand_abm.training import rest as reinforcing
from pemand_abm.training.examples import training_households
from pemand_abm.training.recipe import Rest
from pemand_abm.training.rewards import reward, rubric, truth


def test_truth_rewards_the_mean_of_a_skewed_count_and_not_its_median():
    observed = np.array([2, 2, 2, 3, 3, 4, 5, 8, 9, 12])  # Median 3.5, mean 5.
    earned = [np.mean([truth(d, y, 60.0) for y in observed]) for d in range(13)]
    assert int(np.argmax(earned)) == 5


def test_the_paper_weighs_truth_four_times_the_rubric():
    assert reward(-1, 0) - reward(0, 0) == -2
    assert reward(0, 1) - reward(0, 0) == 0.5


def test_only_statements_that_entered_the_talk_are_marked():
    def turn(mark, kept):
        scores = dict.fromkeys(("persona", "constraints", "interaction", "quality"), mark)
        return Turn(Utterance("member 1", "proposal", "", 1), Verdict(True, "", scores), kept)

    assert rubric([turn(3, True), turn(1, False)]) == 1
    assert rubric([turn(3, True), turn(1, True)]) == 0.5


@pytest.fixture
def grown(survey, monkeypatch):  # noqa: F811
    monkeypatch.setattr(reinforcing, "read_survey", lambda name, data: survey)
    wanted = Rest(households=20, candidates=3)
    return list(reinforcing.grow(recipe(), wanted, Scripted()))


def test_every_negotiation_is_kept_with_its_reward(grown, survey):  # noqa: F811
    assert len(grown) == 60
    homes = {t.household for t in grown}
    assert homes <= set(training_households(survey, recipe().surveys[0], 0))
    for one in grown:
        assert one.observed == survey.households.at[one.household, "trips"]
        assert one.reward == pytest.approx(2 * one.truth + 0.5 * one.rubric)
        assert one.as_dict()["examples"]
        assert all("moderator" not in e.phase for e in one.examples)


def test_the_best_of_a_household_is_learnt_and_equals_teach_nothing(grown):
    chosen = reinforcing.best(grown, Rest(households=20, candidates=3, least=-9))
    by_home = {}
    for one in grown:
        by_home.setdefault(one.household, []).append(one.reward)
    differ = {home for home, earned in by_home.items() if max(earned) > min(earned)}
    assert {t.household for t in chosen} == differ
    assert all(t.reward == max(by_home[t.household]) for t in chosen)
    assert not reinforcing.best(grown, Rest(households=20, least=1))
    table = reinforcing._table(grown, chosen)
    assert table["learnt"].sum() == len(chosen)
    assert len(table) == 60


def test_no_prompt_of_a_negotiation_tells_what_was_observed(grown, survey, monkeypatch):  # noqa: F811
    from dataclasses import replace

    changed = survey.households.assign(trips=survey.households["trips"] + 11)
    monkeypatch.setattr(
        reinforcing, "read_survey", lambda name, data: replace(survey, households=changed)
    )
    again = list(reinforcing.grow(recipe(), Rest(households=20, candidates=3), Scripted()))
    assert [t.examples for t in again] == [t.examples for t in grown]
    assert [t.observed for t in again] != [t.observed for t in grown]
