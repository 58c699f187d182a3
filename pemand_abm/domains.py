"""The decisions that a household can be asked for.

A domain is a value: its answer, its labels, and its words in `prompts/domains/`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from pemand_abm.answers import Answer, Choice, Count
from pemand_abm.prompting import data_file


@dataclass(frozen=True, slots=True)
class Domain:
    """One kind of decision.

    `label` names the answer in the members' replies (`FINAL_TRIPS:`). `own` is what a member
    proposes for himself, `shared` what the household settles; they differ for a count, whose own
    values add up. `banned` words would give the decision away in a persona. With `whole`, the one
    who is asked answers for all (`for_all`).
    """

    name: str
    label: str
    own: Answer
    shared: Answer
    banned: tuple[str, ...]
    likelihood: bool = False
    whole: bool = False

    @property
    def words(self) -> dict[str, str]:
        """The domain's fragments for prompts."""
        return _words(self.name, self.whole)

    def for_all(self) -> Domain:
        """Return the decision as one agent takes it for the whole household."""
        return replace(self, own=self.shared, whole=True)


@cache
def _words(name: str, whole: bool) -> dict[str, str]:
    words = data_file("domains", name)
    return words | words["for_all"] if whole else words


# A person's day above 20 trips and a household's above 60 lie beyond NHTS 2017's 99.9th percentile:
# read as a slip, asked again.
TRIPS = Domain(
    name="trips",
    label="TRIPS",
    own=Count(most=20),
    shared=Count(most=60),
    banned=("trips", "trip"),
)

RELOCATION = Domain(
    name="relocation",
    label="HOME",
    own=Choice(("stay", "move")),
    shared=Choice(("stay", "move")),
    banned=("relocate", "move house", "moving out", "stable", "rooted", "transient"),
    likelihood=True,
)

DOMAINS = {domain.name: domain for domain in (TRIPS, RELOCATION)}
