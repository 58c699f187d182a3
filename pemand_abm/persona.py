"""Personas: facts, a checked narrative, HA-CoPB reasoning, and its alignment by a reviewer.

PEMAND §3.1, appendix D.

A persona depends on the member's facts, the anchors and the run's seed alone, so households of the
same facts ask the same questions and the journal answers them once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pemand_abm.answers import labelled
from pemand_abm.dialogue import Dialogue, Request, seed_of
from pemand_abm.domains import Domain
from pemand_abm.people import Household, Member, Persona
from pemand_abm.prompting import grammar, render


@dataclass(frozen=True, slots=True)
class PersonaSettings:
    """How often a narrative is tried before the facts stand in for it, and rounds of review."""

    narrative_tries: int = 2
    avr_rounds: int = 1
    temperature: float = 0.4

    @property
    def most_calls(self) -> int:
        return self.narrative_tries + 1 + 2 * self.avr_rounds


@dataclass(frozen=True, slots=True)
class Anchors:
    """The behavioural anchors of one member, as sentences.

    What similar people and similar households do, from earlier survey cycles.
    """

    member: str
    household: str


def facts_of(member: Member, household: Household) -> tuple[str, ...]:
    """Return all that the member knows of himself and of the household."""
    return member.facts + household.facts


def narrative_faults(text: str, facts: tuple[str, ...], banned: tuple[str, ...]) -> list[str]:
    """Return what is wrong with a narrative.

    Nothing when it says every number of the facts, no other number, and no banned word.

    >>> facts = ("I am 47 years old.", "I work full time.")
    >>> narrative_faults("I am 47 years old and work full time.", facts, ("trip",))
    []
    >>> narrative_faults("I am 48 years old.", ("I am 47 years old.",), ())
    ['leaves out 47', 'adds 48']
    """
    faults = [] if text.startswith("I am") else ['does not begin with "I am"']
    wanted, found = _numbers(" ".join(facts)), _numbers(text)
    faults += [f"leaves out {n}" for n in sorted(wanted - found)]
    faults += [f"adds {n}" for n in sorted(found - wanted)]
    low = text.lower()
    faults += [
        f"leaves out: {fact}" for fact in facts if not _numbers(fact) and not _covered(fact, low)
    ]
    faults += [f'says "{word}"' for word in banned if re.search(rf"\b{re.escape(word)}\b", low)]
    return faults


def _numbers(text: str) -> set[str]:
    return {n.replace(",", "") for n in re.findall(r"\d[\d,]*(?<!,)", text)}


_COMMON = frozenset(
    [
        "i",
        "am",
        "a",
        "an",
        "the",
        "of",
        "for",
        "and",
        "we",
        "our",
        "my",
        "have",
        "has",
        "do",
        "to",
        "at",
        "is",
        "are",
        "person",
        "who",
        "answers",
        "home",
        "not",
        "people",
        "with",
        "in",
    ]
)


def _covered(fact: str, text: str) -> bool:
    """Say whether the text has half of a fact's key words, and its negation if there is one."""
    words = [w for w in re.findall(r"[a-z]+", fact.lower()) if w not in _COMMON]
    if re.search(r"\b(no|not)\b", fact.lower()) and not re.search(
        r"\b(no|not|don't|without|none|never|un\w+)\b", text
    ):
        return False
    return 2 * sum(w in text for w in words) >= len(words)


def write_persona(
    member: Member,
    household: Household,
    domain: Domain,
    anchors: Anchors,
    settings: PersonaSettings,
    seed: int,
) -> Dialogue[Persona]:
    """Write one member's persona; its result is a `Persona`."""
    facts = facts_of(member, household)
    narrative = yield from _narrative(member, facts, domain, settings, seed)
    template = " ".join(facts)
    told = template if narrative is None else narrative
    key = (seed, template, domain.name, anchors.member, anchors.household)
    label = (f"household {household.id}", member.name)

    def ask(phase: str, attempt: int, most: int, **values: object) -> Request:
        system, user = render(f"persona/{phase}", narrative=told, words=domain.words, **values)
        form = grammar(f"persona/{phase}", value=domain.own.rule)
        return Request(
            system,
            user,
            seed_of(*key, phase, attempt),
            (*label, phase),
            most,
            settings.temperature,
            form,
        )

    (reply,) = yield [ask("reasoning", 0, 110, anchor=anchors.member)]
    view, draft, review, intention = reply.text.strip(), reply.text.strip(), "", None
    for attempt in range(settings.avr_rounds):
        (reply,) = yield [
            ask(
                "review",
                attempt,
                70,
                anchor=anchors.member,
                household_anchor=anchors.household,
                draft=view,
            )
        ]
        review = reply.text.strip()
        intention = domain.own.parse(labelled(review, "INTENTION"))
        (reply,) = yield [ask("revise", attempt, 70, draft=view, review=review)]
        view = reply.text.strip()
    return Persona(member, told, view, narrative is None, intention, draft, review)


def _narrative(
    member: Member, facts: tuple[str, ...], domain: Domain, settings: PersonaSettings, seed: int
) -> Dialogue[str | None]:
    system, user = render("persona/narrative", facts=facts, banned=domain.banned)
    form = grammar("persona/narrative")
    for attempt in range(settings.narrative_tries):
        own = seed_of(seed, " ".join(facts), domain.name, "narrative", attempt)
        (reply,) = yield [
            Request(system, user, own, (member.name, "narrative"), 120, settings.temperature, form)
        ]
        text = reply.text.strip()
        if not narrative_faults(text, facts, domain.banned):
            return text
    return None
