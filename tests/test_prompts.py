"""What a model reads, in full: a change of a prompt shows in review as a change of these files.

Write them anew with UPDATE_SNAPSHOTS=1 and read the difference.
"""

import os
import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from people import Says, household, member

from pemand_abm.dialogue import converse
from pemand_abm.domains import DOMAINS
from pemand_abm.models.scripted import fill
from pemand_abm.persona import PersonaSettings
from pemand_abm.plans import Stake, read_plan
from pemand_abm.prompting import render
from pemand_abm.protocols.mind import Delegate, MindSettings, mind, survey
from pemand_abm.protocols.pemand import PemandSettings
from pemand_abm.surrogate import read_rates
from pemand_abm.talks import Talk

ROOT = Path(__file__).resolve().parents[1]


def test_a_member_is_told_half_of_people_like_him_and_half_of_his_share_of_such_households():
    anchors = read_rates(ROOT / "synthpop" / "rates").anchors
    child = member(3, 8, False, speaks=False)
    home = household(member(1), member(2, 43, False), child)
    talk = Talk(home, DOMAINS["trips"], "trips:1", 0, anchors, PemandSettings(), PersonaSettings())
    for one in home.speakers:
        alike = anchors.member_trips(one.middle_age, one.works).value
        together = anchors.household_trips(3, home.vehicles or 0).value
        told = re.search(r"make about ([\d.]+) trips", talk.anchors(one).member)
        assert float(told[1]) == pytest.approx((alike + together / 3) / 2, abs=0.051)
    # What is added for who does not speak is of such children alone.
    assert talk.added == int(anchors.member_trips(child.middle_age, child.works).value + 0.5)


@pytest.mark.parametrize("name", sorted(DOMAINS))
def test_prompts_are_as_reviewed(name):
    home = household(member(1), member(2, 43, False), member(3, 8, False, speaks=False))
    talk = Talk(
        home,
        DOMAINS[name],
        f"{name}:1",
        0,
        read_rates(ROOT / "synthpop" / "rates").anchors,
        PemandSettings(max_rounds=2),
        PersonaSettings(),
    )

    def say(request):
        text = fill(request)
        return text.replace("stay", "move") if request.label[1] == "member 2" else text

    model = Says(say)
    converse([talk.dialogue()], model)
    seen, parts = set(), []
    for request in model.asked:
        kind = (request.label[-1], request.label[1] == "moderator")
        if kind not in seen:
            seen.add(kind)
            title = " / ".join(request.label)
            parts.append(
                f"##### {title} (at most {request.max_tokens} tokens)\n"
                f"{request.system}\n-----\n{request.user}\n----- grammar\n{request.grammar.strip()}\n"
            )
    found = "\n".join(parts)
    kept = ROOT / "tests" / "snapshots" / f"prompts_{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        kept.write_text(found, encoding="utf-8")
    assert found == kept.read_text(encoding="utf-8")


def test_the_prompts_of_a_plan_are_as_reviewed():
    plan = read_plan("move")
    wishes = [("rent", 8), ("own", 4), ("rent", 6)]
    people = [
        Delegate(f"member {k}", f"I am {40 + k} years old.", {"tenure": Stake(v, w, "so be it")})
        for k, (v, w) in enumerate(wishes, 1)
    ]

    def say(request):
        """Let nobody give way, so that every phase is reached."""
        text = fill(request)
        return text.replace("INTENT: yield", "INTENT: compromise")

    model = Says(say)
    converse([mind(people, plan, ["tenure"], MindSettings(), (3, 12, "terms", 1))], model)
    converse([survey("I am 41.", plan, plan.items, MindSettings(), (0,), ("12", "wishes"))], model)
    seen, parts = set(), []
    for request in model.asked:
        form = re.findall(r"^[A-Z]+(?=:)", request.user.rpartition("form:")[2], flags=re.M)
        if str(form) not in seen:
            seen.add(str(form))
            parts.append(
                f"##### {' / '.join(request.label)} (at most {request.max_tokens} tokens)\n"
                f"{request.system}\n-----\n{request.user}\n"
                f"----- grammar\n{request.grammar.strip()}\n"
            )
    found = "\n".join(parts)
    kept = ROOT / "tests" / "snapshots" / "prompts_plan.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        kept.write_text(found, encoding="utf-8")
    assert found == kept.read_text(encoding="utf-8")


def test_a_prompt_that_lacks_a_variable_is_an_error():
    with pytest.raises(UndefinedError):
        render("pemand/proposal", words={}, label="TRIPS")
