"""Plans that several people settle together: items with closed lists of values, and who wants what.

A plan is data (`prompts/plans/*.yaml`): its items, its words, and the rules by which the members of
a household are taken to want something. How much an item matters to somebody, the *willingness*,
goes from 1 to 10 in MoSCoW's bands (MIND §3.1; 9-10 must, 7-8 should, 4-6 could, 1-3 indifferent).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from pemand_abm import keys
from pemand_abm.facts import imputed
from pemand_abm.prompting import data_file


@dataclass(frozen=True, slots=True)
class Item:
    """One point of a plan.

    `values` are all that may be agreed on; where `ordered`, each lies between its neighbours.
    """

    name: str
    title: str
    values: tuple[str, ...]
    ordered: bool = False

    def between(self, one: str, other: str) -> tuple[str, ...]:
        """Return the values that are a middle way between two.

        Those strictly between them in an ordered list; else any third; else either of the two.

        >>> Item("stars", "Stars", ("2", "3", "4", "5"), ordered=True).between("5", "2")
        ('3', '4')
        >>> Item("tenure", "Tenure", ("own", "rent")).between("own", "rent")
        ('own', 'rent')
        """
        if self.ordered:
            low, high = sorted((self.values.index(one), self.values.index(other)))
            if inner := self.values[low + 1 : high]:
                return inner
        return tuple(v for v in self.values if v not in (one, other)) or (one, other)


@dataclass(frozen=True, slots=True)
class Band:
    """A band of willingness: its name, its own words of how much a wish matters, its tone."""

    name: str
    least: int
    matters: str
    tone: str


@dataclass(frozen=True, slots=True)
class Stake:
    """What one person wants of one item, how much it matters to him (1 to 10), and why."""

    value: str
    weight: int
    reason: str = ""

    @property
    def band(self) -> Band:
        return band_of(self.weight)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is settled together.

    `words` are fragments for prompts: `task` and `group`. `rules` are the stakes by rule, by item:
    lines of `value`, `importance`, `reason` and `when` (as in `prompts/markers/`), of which the
    first that holds counts; the last has no `when`.
    """

    name: str
    words: Mapping[str, str]
    items: tuple[Item, ...]
    rules: Mapping[str, Sequence[Mapping[str, Any]]]

    def item(self, name: str) -> Item:
        return next(item for item in self.items if item.name == name)

    def leanings(self, row: Mapping[str, object]) -> dict[str, Stake]:
        """Return what a person of these coded answers leans to by the rules, by item.

        *row* holds the person's and the household's columns (docs/files.md).
        """
        return {item.name: _stake(self.rules[item.name], row) for item in self.items}

    def draws(
        self, ids: pd.Index | np.ndarray, *key: keys.Part
    ) -> list[dict[str, tuple[float, ...]]]:
        """Return each person's draws for `wishes`, keyed by *key*, the person's id and the item."""
        columns = {
            item.name: [keys.uniforms(ids, *key, "wish", item.name, what) for what in DRAWN]
            for item in self.items
        }
        return [
            {name: tuple(float(u[place]) for u in drawn) for name, drawn in columns.items()}
            for place in range(len(ids))
        ]

    def wishes(
        self, row: Mapping[str, object], draws: Mapping[str, Sequence[float]]
    ) -> dict[str, Stake]:
        """Return what a person wants: what his answers lean to, scattered by his draws.

        People of the same facts differ. *draws* are three numbers in (0, 1) for each item
        (`DRAWN`). Seven of ten wishes are the rule's, with an importance of one less, as it stands,
        or one more; three are any value of the item's, with an importance from 1 to 8.
        """
        return {
            item.name: _scattered(item.values, stake, *draws[item.name])
            for item, stake in zip(self.items, self.leanings(row).values(), strict=True)
        }


def _stake(lines: Sequence[Mapping[str, Any]], row: Mapping[str, object]) -> Stake:
    for line in lines:
        if "when" not in line or imputed({"": line}, row):
            return Stake(line["value"], line["importance"], line.get("reason", ""))
    raise ValueError("the last of an item's rules must hold for everybody")


DRAWN = ("own", "value", "weight")
SCATTER = 0.3


def _scattered(
    values: Sequence[str], leaning: Stake, own: float, value: float, weight: float
) -> Stake:
    if own < SCATTER:
        return Stake(values[int(value * len(values))], 1 + int(weight * 8), "I feel like it")
    return replace(leaning, weight=min(10, max(1, leaning.weight - 1 + int(weight * 3))))


@cache
def read_plan(name: str) -> Plan:
    """Return the plan *name* of `prompts/plans/`."""
    given = data_file("plans", name)
    items = tuple(
        Item(key, entry["title"], tuple(entry["values"]), entry.get("ordered", False))
        for key, entry in given["items"].items()
    )
    rules = {key: tuple(entry.get("rules", ())) for key, entry in given["items"].items()}
    return Plan(name, given["words"], items, rules)


@cache
def bands() -> tuple[Band, ...]:
    """Return the bands of willingness, the highest first."""
    given = data_file("mind", "bands")
    return tuple(Band(name, **entry) for name, entry in given.items())


def band_of(weight: int) -> Band:
    """Return the band of a willingness from 1 to 10.

    >>> [band_of(w).name for w in (10, 9, 8, 6, 3)]
    ['strict', 'strict', 'firm', 'warm', 'neutral']
    """
    return next(band for band in bands() if weight >= band.least)
