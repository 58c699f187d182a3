"""What kinds of answer a decision can have: a count, or a choice from a closed list.

All that differs between the two lives here: how an answer is read, pooled into the household's
first value, bounded from turn to turn, and settled. Parsing is strict: whatever is not plainly an
allowed value is None, never a guess.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar, Protocol


def labelled(text: str, label: str) -> str | None:
    r"""Return what follows `LABEL:` on its line.

    None when the label is missing or stands there twice.

    >>> labelled("REASON: work\nFINAL_TRIPS: 4", "FINAL_TRIPS")
    '4'
    >>> labelled("FINAL_TRIPS: 4\nFINAL_TRIPS: 6", "FINAL_TRIPS") is None
    True
    """
    found = re.findall(rf"^[ \t]*{re.escape(label)}[ \t]*:(.*)", text, flags=re.M)
    return found[0].strip(" \t\r") if len(found) == 1 else None


def percent(text: str | None) -> int | None:
    """Read a whole number from 0 to 100, written in digits and nothing else.

    >>> percent("70"), percent("70 %"), percent("101")
    (70, None, None)
    """
    if text is None or not re.fullmatch(r"[0-9]{1,3}", text) or int(text) > 100:
        return None
    return int(text)


def half_up(x: float) -> int:
    """Round half up, as planners do.

    >>> half_up(2.5), half_up(3.5)
    (3, 4)
    """
    return math.floor(x + 0.5)


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number from 0 to *most*.

    `turn`, `down` and `up` are the paper's revision bounds (PEMAND A.3). A value within `close` of
    the household's counts as near: the paper's own tolerance for its trips (PEMAND B.5).
    """

    most: int
    turn: float = 0.5
    down: float = 1.0
    up: float = 0.4
    close: int = 2

    def parse(self, text: str | None) -> int | None:
        """Read a whole number in range, written in digits and nothing else.

        >>> [Count(60).parse(text) for text in ("4", "4 trips", "-1", "61")]
        [4, None, None, None]
        """
        if text is None or not re.fullmatch(r"[0-9]{1,4}", text):
            return None
        value = int(text)
        return value if value <= self.most else None

    @property
    def form(self) -> str:
        """What an answer must be, in words.

        >>> Count(20).form
        'a whole number from 0 to 20'
        """
        return f"a whole number from 0 to {self.most}"

    @property
    def rule(self) -> str:
        """The GBNF rule of the whole numbers from 0 to *most*, which is below 100.

        >>> Count(20).rule
        '[0-9] | "1" [0-9] | "2" [0-0]'
        """
        tens, ones = divmod(self.most, 10)
        full = [f'"{ten}" [0-9]' for ten in range(1, tens)]
        return " | ".join(["[0-9]", *full, f'"{tens}" [0-{ones}]'])

    def distance(self, one: int, other: int) -> int:
        """Return how far two values are apart."""
        return abs(one - other)

    def pool(self, values: Sequence[int]) -> int:
        """Add the members' own counts to the household's first value."""
        return min(sum(values), self.most)

    def bound(self, value: int, before: int, first: int) -> int:
        """Return *value* bounded by the last turn's step and by the household's first value."""
        step = max(1, math.ceil(self.turn * before))
        low = max(before - step, math.floor((1 - self.down) * first), 0)
        high = min(before + step, max(first + 1, math.ceil((1 + self.up) * first)), self.most)
        return min(max(value, low), high)

    def settle(self, values: Sequence[int]) -> tuple[int, str]:
        """Return the household's value and how it came about.

        `agreed`, else the median, rounded half up: `near` where nobody stands farther than `close`
        from it, else `median`.

        >>> Count(60).settle([7, 10]), Count(60).settle([4, 10])
        ((9, 'near'), (7, 'median'))
        """
        if len(set(values)) == 1:
            return values[0], "agreed"
        middle = half_up(median(values))
        near = all(self.distance(value, middle) <= self.close for value in values)
        return middle, "near" if near else "median"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a closed list of options; a tie keeps `options[0]`, the status quo."""

    options: tuple[str, ...]
    close: ClassVar[int] = 0

    def parse(self, text: str | None) -> str | None:
        """Read one of the options exactly.

        >>> Choice(("stay", "move")).parse("move"), Choice(("stay", "move")).parse("Move!")
        ('move', None)
        """
        return text if text in self.options else None

    @property
    def form(self) -> str:
        """What an answer must be, in words."""
        return " or ".join(self.options)

    @property
    def rule(self) -> str:
        """The GBNF rule of the options."""
        return " | ".join(f'"{option}"' for option in self.options)

    def distance(self, one: str, other: str) -> int:
        """Return 0 for the same option, else 1."""
        return int(one != other)

    def pool(self, values: Sequence[str]) -> str:
        return self.settle(values)[0]

    def bound(self, value: str, before: str, first: str) -> str:
        """A choice has no step to bound."""
        return value

    def settle(self, values: Sequence[str]) -> tuple[str, str]:
        """Return the majority's option; a tie keeps the status quo."""
        ranked = Counter(values).most_common()
        if len(ranked) == 1:
            return ranked[0][0], "agreed"
        if ranked[0][1] == ranked[1][1]:
            return self.options[0], "tie"
        return ranked[0][0], "majority"


class Answer(Protocol):
    """A kind of answer: `Count` or `Choice`."""

    @property
    def close(self) -> int: ...
    @property
    def form(self) -> str: ...
    @property
    def rule(self) -> str: ...
    def parse(self, text: str | None) -> Any: ...
    def distance(self, one: Any, other: Any) -> int: ...
    def pool(self, values: Sequence[Any]) -> Any: ...
    def bound(self, value: Any, before: Any, first: Any) -> Any: ...
    def settle(self, values: Sequence[Any]) -> tuple[Any, str]: ...
