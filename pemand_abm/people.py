"""A household as its members know it, and what they say.

Frozen values that a negotiation passes around.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Member:
    """One person of a household; `facts` are first-person sentences.

    `speaks` says whether the member takes part in the talk. Where a survey knows a band of ages,
    `age` is its lower end and `oldest` its upper; `works` is None where nobody was asked. `markers`
    are the attitudes imputed by rule (`prompts/markers/`), by their names.
    """

    id: int | str
    name: str
    age: int
    works: bool | None
    facts: tuple[str, ...]
    speaks: bool
    oldest: int | None = None
    markers: tuple[str, ...] = ()

    @property
    def middle_age(self) -> int:
        """The age, or the middle of its band."""
        return self.age if self.oldest is None else (self.age + self.oldest) // 2


@dataclass(frozen=True, slots=True)
class Household:
    """A household whose decision is asked for.

    `vehicles` is None where nobody was asked. `facts` are sentences that hold for all of its
    members; `vetoes` are the constraints that bind
    it (`prompts/vetoes/`), by their names.
    """

    id: int | str
    zone: int | str
    size: int
    vehicles: int | None
    tenure: str
    age_of_head: int
    facts: tuple[str, ...]
    members: tuple[Member, ...]
    vetoes: tuple[str, ...] = ()

    @property
    def speakers(self) -> tuple[Member, ...]:
        return tuple(m for m in self.members if m.speaks)

    @property
    def dependents(self) -> tuple[Member, ...]:
        return tuple(m for m in self.members if not m.speaks)


@dataclass(frozen=True, slots=True)
class Persona:
    """A member's narrative with the view that HA-CoPB and the reviewer gave it (PEMAND §3.1).

    `templated` says that the model's narrative failed its checks and the facts themselves stand in
    its place. `intention` is the reviewer's calibrated value, or None where it could not be read.
    """

    member: Member
    narrative: str
    view: str
    templated: bool
    intention: int | str | None
    draft: str = ""
    review: str = ""


@dataclass(frozen=True, slots=True)
class Utterance:
    """What one member said aloud.

    It has no private field, so nothing hidden can reach another member's prompt.

    `value` is what counts; `said` is the value as spoken where a bound changed it, else None.
    """

    speaker: str
    phase: str
    text: str
    value: int | str | None
    likelihood: int | None = None
    said: int | None = None
    skipped: bool = False


def mean_likelihood(said: Sequence[Utterance]) -> float | None:
    """Return the mean of the likelihoods stated, in percent; None where nobody states one."""
    stated = [u.likelihood for u in said if u.likelihood is not None]
    return sum(stated) / len(stated) if stated else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The moderator's judgement of one utterance.

    Scores 1 to 3 a criterion (empty where a deterministic check ruled).
    """

    passed: bool
    feedback: str = ""
    scores: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """An utterance with its verdict; only a kept one entered the conversation."""

    utterance: Utterance
    verdict: Verdict
    kept: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """What a household decided.

    `value` is None when it stayed undecided, and `outcome` says how the decision came about.
    `score` is the mean stated likelihood of a choice in percent (PROTOCOLS, PEMAND 6), None for a
    count.
    """

    value: int | str | None
    outcome: str
    initial: int | str | None
    turns: tuple[Turn, ...]
    score: float | None = None
    rounds: int = 0
