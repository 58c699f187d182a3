"""What a scenario's negotiations will take before they are held, and how sure they make a total.

Calls are counted in a rehearsal: the scripted model holds some of the very talks, from the very
prompts. How fast a model answers, and how many tokens a call of it has, is taken from an earlier
run or from the user; nothing is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from scipy import stats

from pemand_abm.dialogue import Cost, converse, counted
from pemand_abm.errors import PemandError
from pemand_abm.models.scripted import Scripted
from pemand_abm.sample import anticipated_error, design_sample
from pemand_abm.study import Study

REHEARSED = 24
"""Talks of each kind that the scripted model holds; more households are counted in proportion."""
TOKENS_A_WORD = 4 / 3
"""English words to tokens, a rule of thumb, used where no earlier run tells a model's tokens."""


@dataclass(frozen=True, slots=True)
class Rates:
    """How a model works: each None where nobody knows it.

    `calls_per_minute`; `tokens_in` and `tokens_out` of a call; USD a million tokens of each.
    """

    calls_per_minute: float | None = None
    tokens_in: float | None = None
    tokens_out: float | None = None
    usd_in: float | None = None
    usd_out: float | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """What the negotiations take: `calls` about and `most` at most, and what follows from rates."""

    households: int
    calls: int
    most: int
    tokens_in: float
    tokens_out: float | None
    minutes: float | None
    usd: float | None

    def within(self, limit: float, spent: float | None) -> int | None:
        """Return how many households a *limit* of time or money pays for; None where unknown."""
        return int(limit / (spent / self.households)) if spent and self.households else None


def rates_of(run: Path) -> Rates:
    """Return what an earlier run's run.yaml tells of its model.

    Raises
    ------
    PemandError
        No run.yaml, or one that cannot be read.
    """
    path = run / "run.yaml"
    try:
        made: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as fault:
        raise PemandError(f"{path}: cannot be read ({fault}); name a run's folder") from fault
    if not isinstance(made, Mapping):
        raise PemandError(f"{path}: is no run's manifest; name a run's folder")
    # The tokens are those of what was asked now: a run that went on had the rest from its journal.
    tokens, calls = made.get("tokens") or {}, made.get("calls_asked") or 0
    return Rates(
        made.get("calls_per_minute"),
        tokens.get("prompt", 0) / calls if calls else None,
        tokens.get("completion", 0) / calls if calls else None,
    )


def expect(study: Study, rates: Rates) -> Expected:
    """Rehearse a study's talks with the scripted model, and return what they will take."""
    talks: dict[str, list[Any]] = {}
    for _, talk in study.talks:
        talks.setdefault(talk.event, []).append(talk)
    if study.terms is not None:
        talks["terms"] = list(study.terms.talks.values())
    total = [0.0, 0.0]
    for held in talks.values():
        costs = [
            cost
            for _, cost in converse([counted(t.dialogue()) for t in held[:REHEARSED]], Scripted())
        ]
        cost = sum(costs, Cost())
        scale = len(held) / len(costs)
        total = [total[0] + scale * cost.calls, total[1] + scale * cost.prompt_tokens]
    calls, limit = total[0], study.scenario.budget.calls
    most = study.most_calls if limit is None else min(study.most_calls, limit)
    kept = min(calls, most) / calls if calls else 0.0
    calls *= kept
    words = total[1] * kept
    read = words * TOKENS_A_WORD if rates.tokens_in is None else calls * rates.tokens_in
    written = None if rates.tokens_out is None else calls * rates.tokens_out
    pace = rates.calls_per_minute
    return Expected(
        sum(map(len, talks.values())),
        round(calls),
        most,
        read,
        written,
        calls / pace if pace else None,
        _money(read, written, rates),
    )


def _money(read: float, written: float | None, rates: Rates) -> float | None:
    if rates.usd_in is None or rates.usd_out is None or written is None:
        return None
    return (read * rates.usd_in + written * rates.usd_out) / 1e6


def precision(study: Study) -> pd.DataFrame:
    """Return the sample of travel days by stratum: `households`, `negotiate`, `stands_for`."""
    sample = study.samples["trips"]
    design, _ = _design(study, max(len(sample), 1))
    table = design.groupby("stratum").agg(households=("inclusion", "size"))
    table["negotiate"] = sample["stratum"].value_counts().reindex(table.index, fill_value=0)
    return table.assign(stands_for=table["households"] / table["negotiate"])


def _design(study: Study, n: int) -> tuple[pd.DataFrame, pd.Series]:
    """Return the design of the sample and the uncertainty that it goes by.

    Both are those of the region without levers, since scenarios share their sample.
    """
    households = study.plain.population.households
    sd = study.calibration.expected(households, study.rates)["sd"]
    return design_sample(households, sd, n), sd


def expected_error(study: Study) -> tuple[float, float, float]:
    """Return the region's trips by the surrogate, their standard error, and half the interval.

    The error is that of the estimate from the negotiations, where these scatter about the
    surrogate as surveyed households do; the interval is the 95 % one by Student's t.
    """
    n = len(study.samples["trips"])
    design, sd = _design(study, n)
    error = anticipated_error(design, sd)
    df = n - design["stratum"].nunique()
    half = float(stats.t.ppf(0.975, df)) * error if df > 0 else float("nan")
    return float(study.expected["mean"].sum()), error, half
