"""Facts and personas: what is said is known, and what is not known is not said."""

import pandas as pd
import pytest
from people import Says, household, member

from pemand_abm.dialogue import converse
from pemand_abm.domains import TRIPS
from pemand_abm.facts import households_of, read_map, translate
from pemand_abm.persona import Anchors, PersonaSettings, facts_of, narrative_faults, write_persona

FACTS = (
    "I am 47 years old.",
    "I do not have a job.",
    "We have one car.",
    "Our income is 59,220 dollars a year.",
)
ANCHORS = Anchors(
    "People like me make about 4.0 trips.", "Households like ours make about 9.0 trips."
)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "I am 47 years old. I do not have a job. We have one car. Our income is 59,220 dollars a year.",
            None,
        ),
        ("I am 47, without a job, we have one car and an income of 59220 dollars a year.", None),
        (
            "I am 48 years old. I do not have a job. We have one car. Our income is 59,220 dollars.",
            "adds 48",
        ),
        (
            "I am 47 years old. I have a job. We have one car. Our income is 59,220 dollars.",
            "leaves out",
        ),
        (
            "I am 47 years old. I do not have a job. Our income is 59,220 dollars.",
            "leaves out: We have one car.",
        ),
        (
            "I am 47 and make few trips. I do not have a job. We have one car. Income 59,220 dollars.",
            'says "trips"',
        ),
        ("My facts: 47 years, no job, one car, 59,220 dollars.", "begin"),
    ],
)
def test_a_narrative_is_checked_against_its_facts(text, fault):
    faults = narrative_faults(text, FACTS, ("trips",))
    assert faults == [] if fault is None else any(fault in f for f in faults), faults


def persona(say, home=None, **settings):
    home = home or household()
    model = Says(say)
    dialogue = write_persona(home.speakers[0], home, TRIPS, ANCHORS, PersonaSettings(**settings), 0)
    return converse([dialogue], model)[0], model


def test_a_narrative_that_fails_its_checks_is_replaced_by_the_facts_and_flagged():
    found, model = persona(lambda _: "I am the king of France.", narrative_tries=2)
    assert found.templated
    assert found.narrative == " ".join(facts_of(found.member, household()))
    assert [r.label[-1] for r in model.asked].count("narrative") == 2


def test_the_reviewers_calibrated_intention_is_kept():
    def say(request):
        thin = "REVIEW: The reasoning is thin.\nINTENTION: 3"
        return thin if request.label[-1] == "review" else "I walk a lot."

    found, model = persona(say)
    assert (found.intention, found.view) == (3, "I walk a lot.")
    assert any(ANCHORS.household in r.user for r in model.asked if r.label[-1] == "review")


def test_without_review_no_reviewer_is_asked():
    found, model = persona(lambda _: "I walk.", avr_rounds=0)
    assert found.intention is None
    assert {r.label[-1] for r in model.asked} == {"narrative", "reasoning"}


def test_households_of_the_same_facts_ask_the_same_persona_questions():
    asked = []
    for key in (1, 2):
        _, model = persona(lambda _: "I walk.", home=household(key=key))
        asked.append([(r.system, r.user, r.seed) for r in model.asked])
    assert asked[0] == asked[1]


def test_codes_of_non_response_say_nothing():
    rules = read_map("activitysim")["household"]
    said = translate(
        rules, {"hhsize": 2, "auto_ownership": -9, "income": -1, "tenure": float("nan")}
    )
    assert said == ("We are 2 people at home.",)


def test_rows_become_people_and_only_the_old_enough_speak():
    households = pd.DataFrame(
        {
            "home_zone_id": ["x"],
            "hhsize": [3],
            "auto_ownership": [0],
            "income": [0],
            "tenure": ["own"],
            "age_of_head": [30],
        },
        index=pd.Index([7], name="household_id"),
    )
    persons = pd.DataFrame(
        {
            "household_id": 7,
            "PNUM": [1, 2, 3],
            "age": [30, 11, 12],
            "sex": [2, 1, 1],
            "pemploy": [1, 4, 4],
            "pstudent": [3, 1, 1],
            "relate": ["reference person", "child", "child"],
        },
        index=pd.Index([70, 71, 72], name="person_id"),
    )
    (home,) = households_of(households, persons, [7], 12, read_map())
    assert [m.name for m in home.speakers] == ["member 1", "member 3"]
    assert home.facts == ("We are 3 people at home.", "We have no car.", "We own our home.")
    assert home.members[0].facts == ("I am 30 years old.", "I am female.", "I work full time.")
    (young,) = households_of(households, persons, [7], 99, read_map())
    assert [m.name for m in young.speakers] == ["member 1"]


def test_a_member_alone_speaks_of_himself():
    assert translate(read_map()["alone"], {"hhsize": 1, "auto_ownership": 1}) == (
        "I live alone.",
        "I have one car.",
    )
    assert member(1).name == "member 1"
