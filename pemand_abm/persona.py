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
from pemand_abm.facts import said_by
from pemand_abm.people import Household, Member, Persona
from pemand_abm.prompting import grammar, render

MOST_MARKERS = 2
"""How many attitudes a prompt states, the first of the file's order: more would be a caricature."""


@dataclass(frozen=True, slots=True)
class PersonaSettings:
    """How a persona is made.

    `narrative_tries` is how often a narrative is tried before the facts stand in for it;
    `avr_rounds` the rounds of review. `reasoned` and `anchored` are switches for ablations: without
    the first a member speaks from the facts alone, without the second nobody is told what similar
    people do.
    """

    narrative_tries: int = 2
    avr_rounds: int = 1
    temperature: float = 0.4
    reasoned: bool = True
    anchored: bool = True

    @property
    def most_calls(self) -> int:
        return self.narrative_tries + 1 + 2 * self.avr_rounds if self.reasoned else 0


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
    template = " ".join(facts)
    if not settings.reasoned:
        return Persona(member, template, "", True, None)
    told, templated = yield from write_narrative(member, household, domain, settings, seed)
    known = anchors if settings.anchored else Anchors("", "")
    leanings = said_by("markers", domain.name, member.markers)[:MOST_MARKERS]
    vetoes = said_by("vetoes", domain.name, household.vetoes)
    # The narrative can differ where a model's replies do, so it is not part of the seed.
    key = (seed, template, domain.name, known.member, known.household)
    label = (f"household {household.id}", member.name)

    def ask(phase: str, attempt: int, most: int, **values: object) -> Request:
        system, user = render(
            f"persona/{phase}",
            narrative=told,
            words=domain.words,
            leanings=leanings,
            vetoes=vetoes,
            anchor=known.member,
            **values,
        )
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

    (reply,) = yield [ask("reasoning", 0, 110)]
    view, draft, review, intention = reply.text.strip(), reply.text.strip(), "", None
    for attempt in range(settings.avr_rounds):
        (reply,) = yield [ask("review", attempt, 70, household_anchor=known.household, draft=view)]
        review = reply.text.strip()
        intention = None if reply.cut else domain.own.parse(labelled(review, "INTENTION"))
        (reply,) = yield [ask("revise", attempt, 70, draft=view, review=review)]
        view = reply.text.strip()
    return Persona(member, told, view, templated, intention, draft, review)


def write_narrative(
    member: Member, household: Household, domain: Domain, settings: PersonaSettings, seed: int
) -> Dialogue[tuple[str, bool]]:
    """Write the facts as a text in the first person.

    Its result is the text, and whether it is the facts themselves because no text passed.
    """
    facts = facts_of(member, household)
    system, user = render("persona/narrative", facts=facts, banned=domain.banned)
    form = grammar("persona/narrative")
    for attempt in range(settings.narrative_tries):
        own = seed_of(seed, " ".join(facts), domain.name, "narrative", attempt)
        (reply,) = yield [
            Request(system, user, own, (member.name, "narrative"), 120, settings.temperature, form)
        ]
        text = reply.text.strip()
        if not narrative_faults(text, facts, domain.banned):
            return text, False
    return " ".join(facts), True
