"""Whether a model's negotiations may enter totals: the cards that a scenario names.

`pemand evaluate` writes a card for one model, adapter, set of prompts and way of moderation. It
admits a run only where all of them are the run's own; `evaluation.cards` makes cards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pemand_abm.errors import SettingsError, listed
from pemand_abm.prompting import prompts_sha256
from pemand_abm.protocols.pemand import marks_in_order
from pemand_abm.scenario import Scenario, Talks
from pemand_abm.tables import sha256

KINDS = ("level", "response")
NEEDED = ("card", "passed", "model", "prompts_sha256", "moderator", "talks", "criteria")


@dataclass(frozen=True, slots=True)
class Admission:
    """What the cards allow: `level` negotiated levels in totals, `response` policy effects.

    `cards` are the matching cards, as the manifest tells them; `reasons` why others do not count.
    """

    level: bool = False
    response: bool = False
    cards: tuple[Mapping[str, Any], ...] = ()
    reasons: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the keys of `run.yaml` (docs/files.md)."""
        return {"admitted": self.level, "cards": [dict(card) for card in self.cards]}


def admit(scenario: Scenario, identity: Mapping[str, Any]) -> Admission:
    """Return what a scenario's cards allow for the model of this identity.

    Raises
    ------
    SettingsError
        A card that cannot be read, or whose verdict does not follow from its criteria.
    """
    if scenario.cards is None:
        return Admission()
    ours = _ours(scenario.talks, identity)
    passed: dict[str, bool] = {}
    cards: list[dict[str, Any]] = []
    reasons: list[str] = []
    for path in card_files(scenario.cards):
        card = read_card(path)
        lacking = [name for name, value in ours.items() if card[name] != value]
        if lacking:
            reasons.append(_unlike(path, card, ours, lacking))
            continue
        kind, good = card["card"], card["passed"]
        passed[kind] = passed.get(kind, True) and good
        cards.append(
            {
                "card": kind,
                "passed": good,
                "file": path.name,
                "sha256": sha256(path),
                "survey": card.get("survey"),
                "households": card.get("households"),
            }
        )
        if not good:
            failed = [c["what"] for c in card["criteria"] if not c["passed"]]
            reasons.append(f"the {kind} card {path.name} was not passed: {'; '.join(failed)}")
    level = passed.get("level", False)
    return Admission(level, level and passed.get("response", False), tuple(cards), tuple(reasons))


def _ours(talks: Talks, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be the same in a card, by the card's names."""
    return {
        "model": dict(identity),
        "prompts_sha256": prompts_sha256(),
        "moderator": talks.moderator,
        "talks": {
            "max_rounds": talks.max_rounds,
            "pass_marks": list(marks_in_order(talks.pass_marks)),
            "adaptive": talks.adaptive,
            "personas": talks.personas,
            "anchors": talks.anchors,
            "one_agent": talks.one_agent,
        },
    }


def _unlike(path: Path, card: Mapping[str, Any], ours: dict[str, Any], lacking: list[str]) -> str:
    told = []
    for name in lacking:
        theirs, own = card[name], ours[name]
        if name == "prompts_sha256":
            told.append("other prompts")
        elif isinstance(own, dict) and isinstance(theirs, dict):
            parts = sorted(k for k in {*theirs, *own} if theirs.get(k) != own.get(k))
            said = "; ".join(f"{k} {theirs.get(k)}, here {own.get(k)}" for k in parts)
            told.append(f"another {'model' if name == 'model' else 'way to talk'} ({said})")
        else:
            told.append(f"{name} {theirs}, here {own}")
    return f"the card {path.name} is for {'; '.join(told)}"


def card_files(place: Path) -> list[Path]:
    """Return the card that a path names, or all `*_card.yaml` in and below a folder."""
    found = sorted(place.rglob("*_card.yaml")) if place.is_dir() else [place]
    if not found:
        raise SettingsError(
            f"cards: there is no file *_card.yaml in {place}; `pemand evaluate --card` writes one"
        )
    return found


def read_card(path: Path) -> dict[str, Any]:
    """Read a card and check that it holds together.

    Raises
    ------
    SettingsError
        Not a card, or a verdict that does not follow from the criteria.
    """
    try:
        card = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as fault:
        raise SettingsError(f"{path}: cannot be read as a card ({fault})") from fault
    if not isinstance(card, dict):
        raise SettingsError(f"{path}: is no card; `pemand evaluate --card` writes one")
    lacking = [k for k in NEEDED if k not in card]
    problems = [f"lacks {', '.join(lacking)}"] if lacking else []
    if not lacking:
        criteria = card["criteria"]
        whole = isinstance(criteria, list) and criteria and all(
            isinstance(c, dict) and isinstance(c.get("passed"), bool) and "what" in c
            for c in criteria
        )  # fmt: skip
        if card["card"] not in KINDS:
            problems.append(f"card: is {card['card']!r}, must be one of {', '.join(KINDS)}")
        if not whole:
            problems.append("criteria: must be a list of criteria, each with `what` and `passed`")
        elif card["passed"] is not all(c["passed"] for c in criteria):
            problems.append("passed: does not follow from the criteria; evaluate again")
    if problems:
        raise SettingsError(listed(problems, str(path)))
    return card
