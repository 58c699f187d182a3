"""The methods that answer by language model: PEMAND, its ablations, and the LLM baselines.

A method is a value. All that an ablation changes is a setting; what it leaves alone asks the same
requests as the whole method, so that one journal answers both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pemand_abm.anchors import AnchorTable
from pemand_abm.dialogue import Cost, Dialogue, counted, together
from pemand_abm.domains import Domain
from pemand_abm.people import Decision, Household, Persona
from pemand_abm.persona import PersonaSettings, write_narrative
from pemand_abm.protocols import single
from pemand_abm.protocols.pemand import PemandSettings
from pemand_abm.talks import Talk


@dataclass(frozen=True, slots=True)
class Method:
    """One way to let a language model answer for a household.

    `about` says it in words. `pemand` and `persona` are the settings that it changes; with `whole`
    one agent answers for all. `single` is the baseline in place of a negotiation, and `told` what
    that is told of the members: their `facts` or their `narratives`.
    """

    name: str
    about: str
    pemand: Mapping[str, Any] = field(default_factory=dict)
    persona: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = False
    single: Callable[[single.Case, single.SingleSettings], Dialogue[Decision]] | None = None
    told: str = "narratives"
    exemplars: bool = False


METHODS = {
    method.name: method
    for method in (
        Method("pemand", "personas, proposals, rounds of talk and a moderator"),
        Method("demographics", "one answer from the facts", single=single.from_facts, told="facts"),
        Method("persona", "one answer from the members' narratives", single=single.from_personas),
        Method(
            "selfconsistency",
            "the median or majority of ten such answers",
            single=single.self_consistent,
        ),
        Method(
            "rag",
            "one such answer beside three similar households of the training split",
            single=single.from_personas,
            exemplars=True,
        ),
        Method("singlepass", "one completion writes all turns", single=single.written_talk),
    )
}
ABLATIONS = {
    method.name: method
    for method in (
        Method("to-the-end", "rounds until all agree or skip", pemand={"adaptive": False}),
        Method("proposals-only", "no round of talk", pemand={"max_rounds": 0}),
        Method("binding-judge", "the judge can reject", pemand={"moderator": "judge"}),
        Method("checks-only", "no judge, fixed checks alone", pemand={"moderator": "checks"}),
        Method("no-moderator", "neither judge nor checks", pemand={"moderator": "none"}),
        Method("no-persona", "members speak from their facts", persona={"reasoned": False}),
        Method("no-anchor", "nobody hears what similar people do", persona={"anchored": False}),
        Method("no-review", "no reviewer (AvR)", persona={"avr_rounds": 0}),
        Method("single-agent", "one agent answers for all, moderated", whole=True),
        replace(METHODS["singlepass"], name="single-pass"),
    )
}
BY_MODEL = METHODS | ABLATIONS


@dataclass(frozen=True, slots=True)
class Told:
    """What a method came to for one household, and what it cost.

    The calls for personas are counted apart: households of the same facts share them.
    """

    talk: Talk
    personas: tuple[Persona, ...]
    decision: Decision
    persona_cost: Cost
    talk_cost: Cost


@dataclass(frozen=True, slots=True)
class Setting:
    """What all methods of an evaluation have in common."""

    domain: Domain
    table: AnchorTable
    seed: int
    pemand: PemandSettings
    persona: PersonaSettings = field(default_factory=PersonaSettings)
    single: single.SingleSettings = field(default_factory=single.SingleSettings)
    notice: str = ""
    replicate: int = 0


def talk_of(method: Method, household: Household, setting: Setting) -> Talk:
    """Return the talk that a method makes of a household's decision."""
    domain = setting.domain.for_all() if method.whole else setting.domain
    return Talk(
        household,
        domain,
        f"{domain.name}:1",
        setting.seed,
        setting.table,
        replace(setting.pemand, **method.pemand),
        replace(setting.persona, **method.persona),
        setting.notice,
        setting.replicate,
    )


def ask(
    method: Method,
    household: Household,
    setting: Setting,
    exemplars: Sequence[single.Exemplar] = (),
) -> Dialogue[Told]:
    """Let a method answer for one household."""
    talk = talk_of(method, household, setting)
    if method.single is None:
        personas, decision, written, negotiated = yield from talk.counted_dialogue()
        return Told(talk, tuple(personas), decision, written, negotiated)
    return (yield from _single(method, talk, setting, tuple(exemplars)))


def most_calls(method: Method, household: Household, setting: Setting) -> int:
    """Return the most calls that a method can take for a household."""
    if method.single is None:
        return talk_of(method, household, setting).most_calls
    told = method.told == "narratives"
    written = len(household.speakers) * setting.persona.narrative_tries if told else 0
    sampled = method.single is single.self_consistent
    return written + (setting.single.samples if sampled else setting.single.tries)


def _single(
    method: Method, talk: Talk, setting: Setting, exemplars: tuple[single.Exemplar, ...]
) -> Dialogue[Told]:
    home = talk.household
    texts = {m.name: " ".join(m.facts) for m in home.members}
    written = Cost()
    if method.told == "narratives":
        narratives, written = yield from counted(
            together(
                [
                    write_narrative(m, home, talk.domain, setting.persona, setting.seed)
                    for m in home.speakers
                ]
            )
        )
        texts |= {m.name: text for m, (text, _) in zip(home.speakers, narratives, strict=True)}
    everybody = replace(talk, domain=talk.domain.for_all())
    case = single.Case(
        home,
        talk.domain,
        texts,
        everybody.constraints,
        talk.key,
        talk.anchors(home.speakers[0]).household if method.told == "narratives" else "",
        exemplars,
    )
    decision, asked = yield from counted(method.single(case, setting.single))  # type: ignore[misc]
    return Told(talk, (), decision, written, asked)
