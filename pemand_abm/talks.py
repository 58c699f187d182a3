"""One household's talk from facts to decision.

Anchors, personas, negotiation, and the record that a planner reads afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from pemand_abm.answers import half_up
from pemand_abm.dialogue import Dialogue, together
from pemand_abm.domains import TRIPS, Domain
from pemand_abm.people import Decision, Household, Member, Persona
from pemand_abm.persona import Anchors, PersonaSettings, write_persona
from pemand_abm.prompting import phrase
from pemand_abm.protocols.pemand import PemandSettings, pemand
from pemand_abm.surrogate import (
    Anchor,
    Rates,
    household_trip_anchor,
    member_trip_anchor,
    move_anchor,
)


@dataclass(frozen=True, slots=True)
class Talk:
    """A household asked for one decision at one event.

    `event` is its ordinal name, for example `travel_day:1`.
    """

    household: Household
    domain: Domain
    event: str
    seed: int
    rates: Rates
    pemand: PemandSettings
    persona: PersonaSettings

    @property
    def most_calls(self) -> int:
        """The most model calls that this talk can take.

        What is reserved of the budget before it starts.
        """
        speakers = len(self.household.speakers)
        return speakers * self.persona.most_calls + self.pemand.most_calls(speakers)

    def dialogue(self) -> Dialogue[tuple[list[Persona], Decision]]:
        """Write the speakers' personas, all at once, and let them negotiate."""
        personas = yield from together(
            [
                write_persona(
                    m, self.household, self.domain, self.anchors(m), self.persona, self.seed
                )
                for m in self.household.speakers
            ]
        )
        decision = yield from pemand(
            self.household,
            personas,
            self.domain,
            self.pemand,
            self.constraints,
            self.added,
            (self.seed, self.household.id, *self.event.split(":"), 0),
        )
        return personas, decision

    @property
    def household_anchor(self) -> Anchor:
        if self.domain is TRIPS:
            return household_trip_anchor(self.rates, self.household.size, self.household.vehicles)
        return move_anchor(self.rates, self.household.tenure, max(self.household.age_of_head, 15))

    def member_anchor(self, member: Member) -> Anchor:
        if self.domain is TRIPS:
            return member_trip_anchor(self.rates, member.age, member.works)
        # Moves are counted by the age of the head; a minor moves with the head.
        age = member.age if member.age >= 18 else self.household.age_of_head
        return move_anchor(self.rates, self.household.tenure, max(age, 15))

    def anchors(self, member: Member) -> Anchors:
        """Return both anchors as sentences.

        The member's for the actor, the household's for the reviewer.
        """
        own, shared, home = self.member_anchor(member), self.household_anchor, self.household
        return Anchors(
            phrase(f"{self.domain.name}_member", value=own.value, member=member, home=home),
            phrase(f"{self.domain.name}_household", value=shared.value, home=home),
        )

    @property
    def added(self) -> int:
        """Trips added for the members who do not speak: their anchors' sum, rounded half up.

        Nothing for a choice.
        """
        if self.domain is not TRIPS:
            return 0
        # Trips are counted for persons of five and over (PROTOCOLS §0).
        return half_up(
            sum(self.member_anchor(m).value for m in self.household.dependents if m.age >= 5)
        )

    @property
    def constraints(self) -> str:
        silent = len(self.household.dependents)
        return phrase(
            "constraints",
            facts=self.household.facts,
            silent=silent,
            added=self.added,
            unit=self.domain.name,
        )

    def record(
        self, personas: list[Persona], decision: Decision, drawn: int | str, calls: int
    ) -> dict:
        """Return the talk as one JSON object of `transcripts.jsonl` (docs/files.md)."""
        written = {p.member.id: p for p in personas}
        return {
            "household_id": self.household.id,
            "event": self.event,
            "kind": self.domain.name,
            "zone": self.household.zone,
            "outcome": decision.outcome,
            "value": decision.value,
            "unit": "trips of the day" if self.domain is TRIPS else "stay or move",
            "initial": decision.initial,
            "likelihood": decision.score,
            "drawn": drawn,
            "rounds": decision.rounds,
            "calls": calls,
            "moderator": self.pemand.moderator,
            "anchor": self.anchors(self.household.speakers[0]).household,
            "constraints": self.constraints,
            "members": [_member(m, written.get(m.id)) for m in self.household.members],
            "turns": [
                {
                    "phase": t.utterance.phase,
                    "speaker": t.utterance.speaker,
                    "text": t.utterance.text,
                    "value": t.utterance.value,
                    "said": t.utterance.said,
                    "likelihood": t.utterance.likelihood,
                    "verdict": "pass" if t.verdict.passed else "reject",
                    "scores": t.verdict.scores,
                    "feedback": t.verdict.feedback,
                    "kept": t.kept,
                    "skipped": t.utterance.skipped,
                }
                for t in decision.turns
            ],
        }


def _member(member: Member, persona: Persona | None) -> dict:
    known = {"name": member.name, "speaks": member.speaks, "facts": list(member.facts)}
    if persona is None:
        return known
    return known | {
        "persona": persona.narrative,
        "templated": persona.templated,
        "reasoning": persona.draft,
        "review": persona.review,
        "view": persona.view,
        "intention": persona.intention,
    }
