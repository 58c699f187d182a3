"""What a household's members settle about a plan of several items (MIND): wishes, talk, record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pemand_abm.dialogue import Dialogue, together
from pemand_abm.domains import RELOCATION
from pemand_abm.people import Household
from pemand_abm.persona import PersonaSettings, write_narrative
from pemand_abm.plans import Plan, Stake
from pemand_abm.protocols.mind import Case, Delegate, MindSettings, mind, survey


@dataclass(frozen=True, slots=True)
class Agreement:
    """What was settled: a case an item, in the plan's order, and who negotiated with what wishes.

    `delegates` are the speakers; `templated` names those of whom the facts stand for a narrative,
    `unasked` those whose wishes are the rule's because their reply could not be read.
    """

    cases: tuple[Case, ...]
    delegates: tuple[Delegate, ...]
    templated: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanTalk:
    """A household asked to settle a plan at one event, for example `terms:1`.

    `rules` are its speakers' wishes by rule, by name; with `asked` each speaker's persona is asked
    for his own instead (MIND, appendix A), and the rule stands in where no reply can be read.
    """

    household: Household
    plan: Plan
    event: str
    seed: int
    mind: MindSettings
    persona: PersonaSettings
    rules: Mapping[str, Mapping[str, Stake]]
    asked: bool = False

    @property
    def kind(self) -> str:
        return self.event.partition(":")[0]

    @property
    def key(self) -> tuple[str | int, ...]:
        """What the seeds of the talk's requests follow from."""
        return (self.seed, self.household.id, *self.event.split(":"))

    @property
    def most_calls(self) -> int:
        """The most model calls that this talk can take."""
        speakers = len(self.household.speakers)
        wishes = self.mind.tries if self.asked else 0
        talk = self.mind.most_calls(speakers, len(self.plan.items))
        return speakers * (self.persona.narrative_tries + wishes) + talk

    def dialogue(self) -> Dialogue[Agreement]:
        """Write the speakers' narratives, take or ask their wishes, and let them settle."""
        home = self.household
        narratives = yield from together(
            [write_narrative(m, home, RELOCATION, self.persona, self.seed) for m in home.speakers]
        )
        about = {m.name: text for m, (text, _) in zip(home.speakers, narratives, strict=True)}
        wishes = dict(self.rules)
        unasked: tuple[str, ...] = ()
        if self.asked:
            told = yield from together(
                [
                    survey(
                        about[m.name],
                        self.plan,
                        self.plan.items,
                        self.mind,
                        (*self.key, m.id),
                        (f"household {home.id}", m.name, "wishes"),
                    )
                    for m in home.speakers
                ]
            )
            by_name = dict(zip([m.name for m in home.speakers], told, strict=True))
            wishes |= {name: stakes for name, stakes in by_name.items() if stakes}
            unasked = tuple(name for name, stakes in by_name.items() if not stakes)
        delegates = tuple(Delegate(m.name, about[m.name], wishes[m.name]) for m in home.speakers)
        names = [item.name for item in self.plan.items]
        cases = yield from mind(delegates, self.plan, names, self.mind, self.key)
        templated = tuple(
            m.name for m, (_, plain) in zip(home.speakers, narratives, strict=True) if plain
        )
        return Agreement(tuple(cases), delegates, templated, unasked)

    def record(self, agreement: Agreement, calls: int, **known: object) -> dict:
        """Return the talk as one JSON object of `transcripts.jsonl` (docs/files.md)."""
        delegates = {d.name: d for d in agreement.delegates}
        return {
            "household_id": self.household.id,
            "event": self.event,
            "kind": self.kind,
            "zone": self.household.zone,
            "outcome": outcome_of(agreement.cases),
            "value": in_words(agreement.cases),
            "unit": self.plan.words["task"],
            **known,
            "rounds": max(c.rounds for c in agreement.cases),
            "calls": calls,
            "items": items_record(agreement.cases, self.plan),
            "members": [
                {"name": m.name, "speaks": m.speaks, "facts": list(m.facts)}
                | (
                    {
                        "persona": delegates[m.name].about,
                        "templated": m.name in agreement.templated,
                        "wishes": wishes_record(delegates[m.name].stakes),
                        "unasked": m.name in agreement.unasked,
                    }
                    if m.name in delegates
                    else {}
                )
                for m in self.household.members
            ],
            "turns": turns_record(agreement.cases, self.plan),
        }


def outcome_of(cases: Sequence[Case]) -> str:
    """Return `settled` where every item was agreed on, else `settled in part`."""
    return "settled" if all(c.outcome == "agreed" for c in cases) else "settled in part"


def in_words(cases: Sequence[Case]) -> str:
    """Return what was settled in one line."""
    return "; ".join(f"{c.item.replace('_', ' ')}: {c.value}" for c in cases)


def wishes_record(stakes: Mapping[str, Stake]) -> list[dict]:
    """Return one person's wishes as `transcripts.jsonl` keeps them."""
    return [
        {"item": item, "value": s.value, "importance": s.weight, "reason": s.reason}
        for item, s in stakes.items()
    ]


def items_record(cases: Sequence[Case], plan: Plan) -> list[dict]:
    """Return how each item was settled, who insisted and who yielded."""
    return [
        {
            "item": c.item,
            "title": plan.item(c.item).title,
            "value": c.value,
            "outcome": c.outcome,
            "rounds": c.rounds,
            "proposer": c.proposer,
            "insisted": list(c.insisted()),
            "yielded": list(c.yielded()),
        }
        for c in cases
    ]


def turns_record(cases: Sequence[Case], plan: Plan) -> list[dict]:
    """Return all that was said, judged in private, or could not be used, case by case."""
    turns = []
    for case in cases:
        title = plan.item(case.item).title
        judged = {(a.voter, a.phase): a for a in case.appraisals}
        faults: dict[tuple[str, str], list] = {}
        for fault in case.faults:
            faults.setdefault((fault.speaker, fault.phase), []).append(fault)
        for said in case.said:
            place = (said.speaker, said.phase)
            phase = f"{title}: {said.phase}"
            turns += [
                _turn(phase, f.speaker, f.text, None, "reject", f.why, False)
                for f in faults.pop(place, [])
            ]
            turn = _turn(phase, said.speaker, said.text, said.value, "pass", "", True)
            turn["act"] = said.act
            if place in judged:
                own = judged[place]
                turn["private"] = {
                    "guess": own.guess,
                    "true": case.wishes[own.proposer].weight,
                    "own": case.wishes[own.voter].weight,
                    "room": own.room,
                    "intent": own.intent,
                }
            turns.append(turn)
    return turns


def _turn(
    phase: str, speaker: str, text: str, value: str | None, verdict: str, why: str, kept: bool
) -> dict:
    return {
        "phase": phase,
        "speaker": speaker,
        "text": text,
        "value": value,
        "said": None,
        "likelihood": None,
        "verdict": verdict,
        "scores": {},
        "feedback": why,
        "kept": kept,
        "skipped": False,
    }
