"""One household's talk from facts to decision.

Anchors, personas, negotiation, and the record that a planner reads afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pemand_abm.anchors import Anchor, AnchorTable
from pemand_abm.answers import half_up
from pemand_abm.dialogue import Cost, Dialogue, counted, together
from pemand_abm.domains import TRIPS, Domain
from pemand_abm.facts import said_by
from pemand_abm.people import Decision, Household, Member, Persona
from pemand_abm.persona import Anchors, PersonaSettings, write_persona
from pemand_abm.prompting import phrase
from pemand_abm.protocols.pemand import PemandSettings, pemand


@dataclass(frozen=True, slots=True)
class Talk:
    """A household asked for one decision at one event.

    `event` is its ordinal name, for example `travel_day:1`; `notice` is a sentence that all members
    are told besides (a policy announced); `replicate` counts repeats of the same talk.
    """

    household: Household
    domain: Domain
    event: str
    seed: int
    table: AnchorTable
    pemand: PemandSettings
    persona: PersonaSettings
    notice: str = ""
    replicate: int = 0

    @property
    def most_calls(self) -> int:
        """The most model calls that this talk can take.

        What is reserved of the budget before it starts.
        """
        speakers = len(self.household.speakers)
        talking = 1 if self.domain.whole else speakers
        return speakers * self.persona.most_calls + self.pemand.most_calls(talking)

    @property
    def key(self) -> tuple[str | int, ...]:
        """What the seeds of the negotiation's requests follow from."""
        return (self.seed, self.household.id, *self.event.split(":"), self.replicate)

    def dialogue(self) -> Dialogue[tuple[list[Persona], Decision]]:
        """Write the speakers' personas, all at once, and let them negotiate."""
        personas, decision, _, _ = yield from self.counted_dialogue()
        return personas, decision

    def counted_dialogue(self) -> Dialogue[tuple[list[Persona], Decision, Cost, Cost]]:
        """Do the same, with what the personas and what the negotiation cost."""
        personas, written = yield from counted(
            together(
                [
                    write_persona(
                        m, self.household, self.domain, self.anchors(m), self.persona, self.seed
                    )
                    for m in self.household.speakers
                ]
            )
        )
        decision, negotiated = yield from counted(
            pemand(
                self.household,
                personas[:1] if self.domain.whole else personas,
                self.domain,
                self.pemand,
                self.constraints,
                0 if self.domain.whole else self.added,
                self.key,
            )
        )
        return personas, decision, written, negotiated

    @property
    def household_anchor(self) -> Anchor:
        home = self.household
        if self.domain.name == TRIPS.name:
            return self.table.household_trips(home.size, home.vehicles or 0)
        return self._moves(home.age_of_head)

    def member_anchor(self, member: Member) -> float:
        """Return what a member is told of similar people.

        Trips a weekday: the mean of what people of this age and work make and of an equal share
        of what households of this size and cars make. Or the chance of a move in a year.
        """
        if self.domain.name == TRIPS.name:
            share = self.household_anchor.value / self.household.size
            return (self._own_trips(member) + share) / 2
        # Moves are counted by the age of the head; a minor moves with the head.
        age = member.middle_age
        return self._moves(age if age >= 18 else self.household.age_of_head).value

    def _own_trips(self, member: Member) -> float:
        return self.table.member_trips(member.middle_age, member.works).value

    def _moves(self, age: int) -> Anchor:
        # Who does not own and does not say that he rents occupies a home as a renter does.
        return self.table.moves(self.household.tenure or "rent", max(age, 15))

    def anchors(self, member: Member) -> Anchors:
        """Return both anchors as sentences.

        The member's for the actor, the household's for the reviewer.
        """
        own, shared, home = self.member_anchor(member), self.household_anchor, self.household
        return Anchors(
            phrase(f"{self.domain.name}_member", value=own, member=member, home=home),
            phrase(f"{self.domain.name}_household", value=shared.value, home=home),
        )

    @property
    def added(self) -> int:
        """Trips added for the members who do not speak: their anchors' sum, rounded half up.

        Nothing for a choice.
        """
        if self.domain.name != TRIPS.name:
            return 0
        # Trips are counted for persons of five and over (PROTOCOLS §0).
        return half_up(sum(self._own_trips(m) for m in self.household.dependents if m.age >= 5))

    @property
    def constraints(self) -> str:
        # Who answers for all answers for the dependents too.
        silent = 0 if self.domain.whole else len(self.household.dependents)
        return phrase(
            "constraints",
            facts=self.household.facts,
            vetoes=said_by("vetoes", self.domain.name, self.household.vetoes),
            silent=silent,
            added=self.added,
            unit=self.domain.name,
            notice=self.notice,
        )

    def record(
        self, personas: Sequence[Persona], decision: Decision, calls: int, **known: object
    ) -> dict:
        """Return the talk as one JSON object of `transcripts.jsonl` (docs/files.md).

        *known* are entries that the caller adds: what the surrogate drew, or a survey observed.
        """
        written = {p.member.id: p for p in personas}
        return {
            "household_id": self.household.id,
            "event": self.event,
            "kind": self.domain.name,
            "zone": self.household.zone,
            "outcome": decision.outcome,
            "value": decision.value,
            "unit": "trips of the day" if self.domain.name == TRIPS.name else "stay or move",
            "initial": decision.initial,
            "likelihood": decision.score,
            **known,
            "rounds": decision.rounds,
            "calls": calls,
            "moderator": self.pemand.moderator,
            "anchor": self.anchors(self.household.speakers[0]).household,
            "constraints": self.constraints,
            "vetoes": list(self.household.vetoes),
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
    known = {
        "name": member.name,
        "speaks": member.speaks,
        "facts": list(member.facts),
        "markers": list(member.markers),
    }
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
