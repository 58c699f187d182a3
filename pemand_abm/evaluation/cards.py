"""Evaluation cards: whether a model's negotiations may enter totals (ARCHITECTURE §5, admission).

A card is for exactly one model, adapter, set of prompts and way of moderation. The *level card*
compares what the model's households say with what the surveyed ones did; the *response card*
compares how they answer to a policy with what studies publish. Trips only: no card is defined for
stay or move yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from pemand_abm import keys
from pemand_abm.dialogue import Model
from pemand_abm.errors import SettingsError
from pemand_abm.evaluation import answers as answering
from pemand_abm.evaluation.methods import METHODS, Setting
from pemand_abm.evaluation.metrics import count_metrics
from pemand_abm.evaluation.results import Evaluation, markdown, number
from pemand_abm.evaluation.trial import Trial
from pemand_abm.prompting import phrase
from pemand_abm.tables import write_text

REPEATS = 1000
LEVEL = 0.90
DOSES = (0, 10, 25, 50)  # Percent.
PLACEBO = "placebo"
SURROGATE = "gbm-mean"
"""What the negotiations must nearly reach: the regression of the mean that a planner would use."""
PUBLISHED = (-0.1, 0.0)
"""Short-run elasticity of a household's person trips to the price of fuel (VALIDATION F)."""
SOURCE = (
    "fuel price on person trips of a household, short run: trip generation is weakly sensitive"
    " (TMIP Model Validation and Reasonableness Checking Manual II)"
)
# Limits of ARCHITECTURE §5.
MOST_BIAS, MOST_GROUP_BIAS, MOST_DEVIANCE, MOST_ZERO = 0.10, 0.15, 1.10, 0.03
FEWEST = 30
"""Households a group needs before its bias is judged; smaller ones are joined upward."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """One line of a card: what is asked, what was found, and whether that passes."""

    what: str
    asked: str
    found: str
    passed: bool


@dataclass(frozen=True, slots=True)
class Card:
    """A card, to be kept with the model: `kind` is `level` or `response`."""

    kind: str
    about: Mapping[str, Any]
    criteria: tuple[Criterion, ...]
    figures: Mapping[str, Any]

    @property
    def passed(self) -> bool:
        return all(c.passed for c in self.criteria)

    def as_dict(self) -> dict[str, Any]:
        """Return the card as it is written (docs/files.md)."""
        return {
            "card": self.kind,
            "passed": self.passed,
            **self.about,
            "criteria": [
                {"what": c.what, "asked": c.asked, "found": c.found, "passed": c.passed}
                for c in self.criteria
            ],
            "figures": dict(self.figures),
        }


def level_card(evaluation: Evaluation) -> Card:
    """Return the level card of the `pemand` method of an evaluation of trips."""
    trial = evaluation.trial
    check_has_cards(trial)
    told = evaluation.answers[evaluation.answers["method"] == "pemand"].reindex(trial.chosen.index)
    decided = trial.chosen.assign(predicted=told["predicted"])
    undecided = int(decided["predicted"].isna().sum())
    decided = decided.dropna(subset=["predicted"]).join(
        trial.survey.households["auto_ownership"].rename("vehicles")
    )
    if decided.empty:
        raise SettingsError("no household decided, so there is nothing to make a card of")
    criteria = [_bias("all households", decided, MOST_BIAS, trial.seed)]
    for column, top in (("hhsize", 4), ("vehicles", 3)):
        group = _joined(decided[column], top)
        criteria += [
            _bias(f"{column} {name}", part, MOST_GROUP_BIAS, trial.seed)
            for name, part in decided.groupby(group)
        ]
    own = _deviance(decided["observed"], decided["predicted"], decided["weight"])
    peers = _peers(trial, decided)
    criteria.append(
        Criterion(
            "Poisson deviance against the surrogate's",
            f"at most {MOST_DEVIANCE:.2f} times {peers[SURROGATE]:.2f}",
            f"{own:.2f}",
            own <= MOST_DEVIANCE * peers[SURROGATE],
        )
    )
    criteria.append(
        Criterion(
            "Poisson deviance against a model of the household's size alone",
            f"below {peers['size only']:.2f}",
            f"{own:.2f}",
            own < peers["size only"],
        )
    )
    zero = count_metrics(decided["observed"], decided["predicted"], decided["weight"])
    gap = zero["zero_share"] - zero["zero_share_observed"]
    criteria.append(
        Criterion(
            "share of households without a trip",
            f"within {100 * MOST_ZERO:.0f} points of {zero['zero_share_observed']:.3f}",
            f"{zero['zero_share']:.3f}",
            abs(gap) <= MOST_ZERO,
        )
    )
    figures = {"n": len(decided), "undecided": undecided, "poisson_deviance": own, **peers}
    return Card("level", _about(evaluation), tuple(criteria), figures)


def check_has_cards(trial: Trial) -> None:
    """Fail where no card is defined for what the survey's households decided."""
    if trial.survey.target != "trips":
        raise SettingsError(
            f"{trial.survey.name}: cards are defined for trips, not for {trial.survey.target}"
        )


def _about(evaluation: Evaluation) -> dict[str, Any]:
    kept = ("survey", "year", "households", "seed", "model", "prompts_sha256")
    more = ("moderator", "max_rounds", "anchors", "talks")
    return {key: evaluation.manifest[key] for key in (*kept, *more)}


def _joined(values: pd.Series, top: int) -> pd.Series:
    """Return groups of at least `FEWEST` households: thin ones join the next larger value."""
    group = values.clip(upper=top)
    for value in sorted(group.unique())[:-1]:
        if (group == value).sum() < FEWEST:
            group = group.where(group != value, group[group > value].min())
    if (group == group.max()).sum() < FEWEST and group.nunique() > 1:
        group = group.where(group != group.max(), group[group < group.max()].max())
    ends = values.groupby(group).agg(["min", "max"])
    names = {
        v: f"{low:g}" if low == high else f"{low:g} to {high:g}"
        for v, (low, high) in zip(ends.index, ends.to_numpy(), strict=True)
    }
    return group.map(names)


def _bias(what: str, part: pd.DataFrame, most: float, seed: int) -> Criterion:
    """Return whether the 90 % interval of the weighted relative bias lies within the limit."""
    y, p, w = (part[c].to_numpy(float) for c in ("observed", "predicted", "weight"))
    low, high = _interval(
        lambda n: (n * w * p).sum() / (n * w * y).sum() - 1, len(part), seed, f"bias {what}"
    )
    bias = float((w * p).sum() / (w * y).sum() - 1)
    return Criterion(
        f"weighted bias, {what} (n = {len(part)})",
        f"90 % interval within ±{most:.0%}",
        f"{bias:+.1%} [{low:+.1%}, {high:+.1%}]",
        bool(-most <= low and high <= most),
    )


def _interval(statistic: Any, n: int, seed: int, what: str) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a statistic of how often each row is drawn."""
    generator = keys.generator(seed, "card", what)
    drawn = [
        statistic(np.bincount(generator.integers(0, n, n), minlength=n)) for _ in range(REPEATS)
    ]
    low, high = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _deviance(observed: pd.Series, predicted: pd.Series, weights: pd.Series) -> float:
    return count_metrics(observed, predicted, weights)["poisson_deviance"]


def _peers(trial: Trial, decided: pd.DataFrame) -> dict[str, float]:
    """Return the deviances of the surrogate and of mean trips by size, on the same households."""
    surrogate, _ = answering.learned(SURROGATE, trial)
    homes = trial.survey.households[trial.trained]
    size = homes["hhsize"].clip(upper=5)
    mean = (homes["trips"] * homes["weight"]).groupby(size).sum() / homes["weight"].groupby(
        size
    ).sum()
    by_size = decided["hhsize"].clip(upper=5).map(mean)
    y, w = decided["observed"], decided["weight"]
    return {
        SURROGATE: _deviance(y, surrogate.loc[decided.index, "predicted"], w),
        "size only": _deviance(y, by_size, w),
    }


def response(
    trial: Trial, setting: Setting, model: Model, replicates: int
) -> dict[str, pd.DataFrame]:
    """Let the trial's households negotiate under each dose, the placebo and no announcement.

    Returns
    -------
    dict
        By announcement (`none`, `0`, `10`, `25`, `50`, `placebo`): trips by household and
        replicate, NaN where undecided.
    """
    check_has_cards(trial)
    notices = {"none": "", PLACEBO: phrase("notice_placebo")}
    notices |= {str(dose): phrase("notice_fuel", percent=dose) for dose in DOSES}
    return {
        name: pd.DataFrame(
            {
                k: answering.told_table(
                    "pemand",
                    list(
                        answering.asked(
                            METHODS["pemand"],
                            trial,
                            replace(setting, notice=notice, replicate=k),
                            model,
                        )
                    ),
                )["predicted"]
                for k in range(replicates)
            }
        )
        for name, notice in notices.items()
    }


def response_card(
    evaluation: Evaluation, told: Mapping[str, pd.DataFrame], replicates: int
) -> Card:
    """Return the response card: sign, order of the doses, placebo, size of the elasticity."""
    trial = evaluation.trial
    means = pd.DataFrame({name: table.mean(axis=1) for name, table in told.items()}).dropna()
    if means.empty:
        raise SettingsError("no household decided under every announcement: no response to judge")
    w = trial.chosen.loc[means.index, "weight"].to_numpy(float)
    y = {name: means[name].to_numpy(float) for name in means}

    def total(name: str, n: np.ndarray | float = 1.0) -> float:
        return float((n * w * y[name]).sum())

    def elasticity(n: np.ndarray | float = 1.0) -> float:
        if min(total(str(DOSES[-1]), n), total("0", n)) <= 0:
            return float("nan")
        return float(np.log(total(str(DOSES[-1]), n) / total("0", n)) / np.log(1 + DOSES[-1] / 100))

    levels = [float(total(str(dose)) / w.sum()) for dose in DOSES]
    point = elasticity()
    low, high = _interval(elasticity, len(means), trial.seed, "elasticity")
    off = (total(PLACEBO) - total("none")) / w.sum()
    off_low, off_high = _interval(
        lambda n: (total(PLACEBO, n) - total("none", n)) / (n * w).sum(),
        len(means),
        trial.seed,
        "placebo",
    )
    criteria = (
        Criterion("sign", "fuel dearer: not more trips", number(point, 3), bool(point <= 0)),
        Criterion(
            f"trips at +{', +'.join(map(str, DOSES))} % fuel price",
            "never rising",
            ", ".join(number(v) for v in levels),
            bool(np.all(np.diff(levels) <= 1e-9)),
        ),
        Criterion(
            "an announcement that is none of their business",
            "90 % interval of its effect contains 0",
            f"{off:+.2f} [{off_low:+.2f}, {off_high:+.2f}]",
            bool(off_low <= 0 <= off_high),
        ),
        Criterion(
            "elasticity",
            f"90 % interval meets {PUBLISHED[0]} to {PUBLISHED[1]}",
            f"{number(point, 3)} [{number(low, 3)}, {number(high, 3)}]",
            bool(low <= PUBLISHED[1] and high >= PUBLISHED[0]),
        ),
    )
    figures = {
        "n": len(means),
        "undecided": len(trial.chosen) - len(means),
        "replicates": replicates,
        "elasticity": point,
        "elasticity_low": low,
        "elasticity_high": high,
        "published": list(PUBLISHED),
        "source": SOURCE,
        "doses_percent": list(DOSES),
        "trips": levels,
    }
    return Card("response", _about(evaluation), criteria, figures)


CARDS = ("level_card.yaml", "response_card.yaml")


def write_cards(cards: Sequence[Card], out: Path) -> None:
    """Write each card into *out*."""
    for card in cards:
        text = yaml.safe_dump(card.as_dict(), sort_keys=False, allow_unicode=True)
        write_text(text, out / f"{card.kind}_card.yaml")


def card_text(cards: Sequence[Card]) -> str:
    """Return cards as Markdown."""
    parts = []
    for card in cards:
        rows = [[c.what, c.asked, c.found, "yes" if c.passed else "NO"] for c in card.criteria]
        verdict = "passed" if card.passed else "NOT passed"
        parts.append(
            f"{card.kind.capitalize()} card of {card.about['model'].get('model')}: {verdict}\n\n"
            + markdown(["criterion", "asked", "found", "passed"], rows)
        )
    return "\n\n".join(parts)
