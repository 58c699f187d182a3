"""A model without a language model.

It fills in the form that a prompt asks for, by rule and by the request's seed.

It answers at once, always the same, and shows the plumbing: its numbers are no behaviour. For tests
and for `--model scripted`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pemand_abm.dialogue import Reply, Request
from pemand_abm.models.scripted_plans import fill_plan

_LINE = re.compile(r"^(?:\[(\d+)\] SCORES:|([A-Z][A-Z_]+):[ \t]*(.*))", flags=re.M)


class Scripted:
    """Answer every request by rule (see the module)."""

    identity: dict[str, str | int | float | bool] = {"model": "scripted", "version": 2}  # noqa: RUF012

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        for i, request in enumerate(requests):
            text = fill(request)
            yield i, Reply(text, len(f"{request.system} {request.user}".split()), len(text.split()))


def fill(request: Request) -> str:
    """Return the filled form of one prompt."""
    if (plan := fill_plan(request)) is not None:
        return plan
    _, found, form = request.user.partition("Answer in this form:")
    if not found:
        _, found, form = request.user.partition("Answer with one line for each statement:")
    if not found:
        facts = re.findall(r"^- (.*)$", request.user, flags=re.M)
        return (
            " ".join(facts)
            if facts
            else "I weigh what we can do, what we owe each other, and what I like."
        )
    if "only: SKIP" in form and request.seed % 3 == 0:
        return "SKIP"
    return "\n".join(_line(match, request) for match in _LINE.finditer(form))


def _line(match: re.Match[str], request: Request) -> str:
    number, label, hint = match.groups()
    if number:
        scores = "; ".join(
            f"{name}=3" for name in ("persona", "constraints", "interaction", "quality")
        )
        return f"[{number}] SCORES: {scores} FEEDBACK: Everything fits."
    return f"{label}: {_value(hint, request)}"


def _value(hint: str, request: Request) -> str:
    if hint == "whole number":
        together = re.search(r"^Together: (\d+)\.$", request.user, flags=re.M)
        return str(
            max(0, int(together[1]) + request.seed % 3 - 1) if together else 2 + request.seed % 3
        )
    if hint == "stay or move":
        return "move" if request.seed % 4 == 0 else "stay"
    if "0 to 100" in hint:
        return str(request.seed % 101)
    return "I say what the facts about us allow."
