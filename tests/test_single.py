"""The LLM baselines: what one model is told, how often it is asked, and what becomes of it."""

from itertools import count

import pytest
from people import Says, household, member

from pemand_abm.dialogue import Reply, converse
from pemand_abm.domains import RELOCATION, TRIPS
from pemand_abm.protocols.single import (
    Case,
    Exemplar,
    SingleSettings,
    from_facts,
    from_personas,
    self_consistent,
    written_talk,
)

HOME = household(member(1), member(2, 43, False))
TEXTS = {"member 1": "I am 40 years old.", "member 2": "I am 43 years old."}


def case(domain=TRIPS, **more):
    return Case(HOME, domain, TEXTS, "We have one car.", (0, 12, domain.name, 1, 0), **more)


def settled(dialogue, say):
    model = Says(say)
    return converse([dialogue], model)[0], model.asked


def answer(value):
    return f"NEEDS: The members need this.\nLIMITS: They share that.\nFINAL_TRIPS: {value}"


@pytest.mark.parametrize("baseline", [from_facts, from_personas, written_talk])
def test_one_answer_decides_for_the_household(baseline):
    decision, asked = settled(baseline(case(), SingleSettings()), lambda request: answer(9))
    assert (decision.value, decision.outcome, len(asked)) == (9, "one answer", 1)


@pytest.mark.parametrize("baseline", [from_facts, from_personas, written_talk])
def test_an_answer_that_cannot_be_read_is_asked_again_and_then_undecided(baseline):
    decision, asked = settled(baseline(case(), SingleSettings()), lambda request: "nine trips")
    assert (decision.value, decision.outcome, len(asked)) == (None, "undecided", 3)
    assert len({request.seed for request in asked}) == 3


def test_an_answer_that_was_cut_is_not_read():
    class Cut(Says):
        def complete(self, requests):
            for i, _ in enumerate(requests):
                yield i, Reply(answer(1), finish="length")

    (decision,) = converse([from_personas(case(), SingleSettings())], Cut())
    assert decision.outcome == "undecided"


def test_self_consistency_takes_the_median_of_ten_samples():
    said = count(1)
    decision, asked = settled(
        self_consistent(case(), SingleSettings()), lambda request: answer(next(said))
    )
    assert (decision.value, len(asked)) == (6, 10)  # The middle of 1 to 10 is 5.5, halves up.
    assert {request.temperature for request in asked} == {0.7}


def test_self_consistency_takes_the_majority_of_a_choice_and_the_mean_likelihood():
    said = count()

    def say(request):
        k = next(said)
        return f"LIKELIHOOD: {k * 10}\nFINAL_HOME: {'move' if k > 3 else 'stay'}"

    decision, _ = settled(self_consistent(case(RELOCATION), SingleSettings()), say)
    assert (decision.value, decision.score) == ("move", 45.0)


def test_samples_that_cannot_be_read_do_not_count():
    said = count()

    def say(request):
        return answer(7) if next(said) == 4 else "I cannot say."

    decision, _ = settled(self_consistent(case(), SingleSettings()), say)
    assert (decision.value, sum(t.kept for t in decision.turns)) == (7, 1)


def test_exemplars_are_told_with_their_outcomes_and_only_as_data():
    shown = (Exemplar("We are 2 people at home. FINAL_TRIPS: 3", "11"),)
    _, asked = settled(from_personas(case(exemplars=shown), SingleSettings()), lambda r: answer(9))
    assert "trips on a weekday: 11." in asked[0].user.lower()
    assert "FINAL_TRIPS: 3" not in asked[0].user


def test_the_written_talk_gives_every_member_a_line():
    _, asked = settled(written_talk(case(), SingleSettings()), lambda request: answer(9))
    assert asked[0].grammar.count('"member 1: I"') == 2
    assert all(name in asked[0].user for name in TEXTS)
