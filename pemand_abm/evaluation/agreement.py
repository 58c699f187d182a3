"""How near the answers of personas on ordinal scales come to those of the persons they stand for.

`measure` makes the table of all measures. What it stands on are functions of arrays, each
vectorized over *draws*: how often each person was drawn in each repeat of a bootstrap, shape
(repeats, persons); without draws every person counts once, and the result has one element. A
measure that the answers cannot define is NaN. NaN among the answers is a person who did not answer;
what is compared is where both did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pemand_abm import keys

REPEATS = 1000
SHUFFLES = 200
"""How often the persons' answers are dealt out anew to see what chance gives."""
MEASURES = ("within_1", "qwk", "wasserstein", "alignment")
ALL = "all"
BY = ("personas", "chance", "commonest")
LEAST_PAIRS = 3
"""Correlations below which their alignment is not defined: two always lie on one line."""


def confusion(
    human: np.ndarray, persona: np.ndarray, scale: int, draws: np.ndarray | None = None
) -> np.ndarray:
    """Return how many persons gave each answer (rows) while their personas gave each (columns).

    Answers are 1..scale; shape (repeats, scale, scale).

    >>> confusion(np.array([1, 2, 2.0]), np.array([1, 1, np.nan]), 2)[0].tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    both = ~(np.isnan(human) | np.isnan(persona))
    cell = ((human[both] - 1) * scale + persona[both] - 1).astype(int)
    drawn = _everybody(len(human)) if draws is None else draws
    return (drawn[:, both] @ np.eye(scale * scale)[cell]).reshape(-1, scale, scale)


def within_one(table: np.ndarray) -> np.ndarray:
    """Return the share of persons whose persona answers at most one step of the scale off.

    NaN without answers. PEMAND appendix G calls it ±1 accuracy.
    """
    return _ratio((table * (_steps(table) <= 1)).sum((-2, -1)), table.sum((-2, -1)))


def quadratic_kappa(table: np.ndarray) -> np.ndarray:
    """Return Cohen's kappa weighted by the square of the steps (QWK; Cohen 1968).

    One minus the mean squared difference, relative to that of the same two distributions paired at
    random: 1 where all agree, 0 as by chance, below 0 worse than that. NaN where that expectation
    is 0: without answers, or where all persons and personas give one and the same.
    """
    squares = _steps(table) ** 2
    persons, personas, n = table.sum(-1), table.sum(-2), table.sum((-2, -1))
    expected = _ratio(np.einsum("...i,...j,ij->...", persons, personas, squares), n)
    return 1 - _ratio((table * squares).sum((-2, -1)), expected)


def distance(table: np.ndarray) -> np.ndarray:
    """Return the Wasserstein distance of the two distributions over the width of the scale.

    The mean number of steps by which answers would have to be moved to turn one distribution into
    the other, over the scale's steps: 0 where the distributions are the same, whoever gave the
    answers, 1 where all stand at opposite ends. NaN without answers.
    """
    apart = (table.sum(-1) - table.sum(-2)).cumsum(-1)
    return _ratio(np.abs(apart).sum(-1), table.sum((-2, -1))) / (table.shape[-1] - 1)


def rank_correlation(x: np.ndarray, y: np.ndarray, draws: np.ndarray | None = None) -> np.ndarray:
    """Return Spearman's correlation (of mid-ranks) where both are known, one for each repeat.

    NaN where one of the two does not vary.

    >>> rank_correlation(np.array([1, 2, 3.0]), np.array([10, 30, 20.0])).round(3).tolist()
    [0.5]
    """
    both = ~(np.isnan(x) | np.isnan(y))
    drawn = (_everybody(len(x)) if draws is None else draws)[:, both]
    if not both.any():
        return np.full(len(drawn), np.nan)
    one, other = _centred(_ranks(x[both], drawn), drawn), _centred(_ranks(y[both], drawn), drawn)
    together = (drawn * one * other).sum(1)
    spread = (drawn * one**2).sum(1) * (drawn * other**2).sum(1)
    # Ranks are multiples of a half, so what varies at all varies far more than rounding does.
    return _ratio(together, np.sqrt(np.where(spread > 1e-9, spread, 0)))


def structure(
    traits: np.ndarray, answers: np.ndarray, draws: np.ndarray | None = None
) -> np.ndarray:
    """Return the Spearman correlation of every demographic with every probe.

    *traits* are (persons, demographics), *answers* (persons, probes); the result is (repeats,
    demographics x probes), the probes of the first demographic first.
    """
    return np.column_stack(
        [rank_correlation(trait, answer, draws) for trait in traits.T for answer in answers.T]
    )


def alignment(human: np.ndarray, persona: np.ndarray) -> np.ndarray:
    """Return Spearman's correlation of two vectors of correlations, a row each repeat.

    Structural correlation alignment (PEMAND appendix G): whether what goes with age or income among
    the persons also goes with it among their personas. NaN below three correlations that both have,
    or where the persons' or the personas' are all the same.
    """
    found = np.full(len(human), np.nan)
    for i, (one, other) in enumerate(zip(human, persona, strict=True)):
        if (~np.isnan(one) & ~np.isnan(other)).sum() >= LEAST_PAIRS:
            # Sums in another order differ in the last bits, which must not rank equals.
            found[i] = rank_correlation(one.round(9), other.round(9))[0]
    return found


def _everybody(n: int) -> np.ndarray:
    return np.ones((1, n))


def _steps(table: np.ndarray) -> np.ndarray:
    answers = np.arange(table.shape[-1])
    return np.abs(answers[:, None] - answers)


def _ranks(values: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Return the mid-rank, but for a constant, of each value in each repeat."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    held = np.add.reduceat(drawn[:, order], starts, axis=1)
    return (held.cumsum(1) - held / 2)[:, np.searchsorted(ordered[starts], values)]


def _centred(ranks: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    return ranks - _ratio((drawn * ranks).sum(1), drawn.sum(1))[:, None]


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return part / whole, NaN where whole is 0."""
    part, whole = np.asarray(part, float), np.asarray(whole, float)
    return np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole > 0)


def measure(
    answers: pd.DataFrame, traits: pd.DataFrame, scales: Mapping[str, int], seed: int
) -> pd.DataFrame:
    """Return the four measures of each item and of all together, beside what chance gives.

    Parameters
    ----------
    answers : DataFrame
        A row a person and item that the person answered: index ``person_id``; ``item``, ``human``
        and ``persona`` (1, 2, ...; NA where no reply could be read).
    traits : DataFrame
        The persons' demographics; its index names the persons.
    scales : mapping
        The number of answers of each item.
    seed : int
        Of the bootstrap and the shuffles. The order of persons and rows does not matter.

    Returns
    -------
    DataFrame
        Index ``item`` (the last is ``all``) and ``by``: ``personas``; ``chance``, the persons'
        answers dealt out anew among them, which keeps the distribution, so that its distance is 0;
        ``commonest``, everybody giving the persons' commonest answer. Columns: ``n`` persons
        compared (of ``all``: answers), those whose personas replied; ``within_1``, ``qwk``,
        ``wasserstein`` and ``alignment``, each with ``_low`` and ``_high``: the 95 % interval of a
        bootstrap by person, for chance where 95 % of the shuffles lie. ``all`` is the share within
        one step of all answers, the mean of the items' QWK and distance, and the alignment over all
        demographics and items, which no item has by itself.
    """
    people = traits.index[np.argsort(keys.uniforms(traits.index, seed, "order"), kind="stable")]
    wide = answers.set_index("item", append=True)
    human, persona = (
        wide[side].astype("float64").unstack("item").reindex(index=people, columns=list(scales))
        for side in ("human", "persona")
    )
    told = persona.to_numpy()
    # Whoever is compared, it is on the persons whose personas replied.
    known = human.where(persona.notna()).to_numpy()
    facts, sizes = traits.loc[people].to_numpy("float64"), list(scales.values())
    generator = keys.generator(seed, "perceptions")
    drawn = generator.multinomial(len(people), np.full(len(people), 1 / len(people)), REPEATS)
    draws = drawn.astype("float64")

    found = {}
    for by, said in (("personas", told), ("commonest", _commonest(known))):
        found[by] = _scores(known, said, facts, sizes), _scores(known, said, facts, sizes, draws)
    dealt = [
        _scores(known, _dealt(known, generator.uniform(size=len(people))), facts, sizes)
        for _ in range(SHUFFLES)
    ]
    chance = {key: np.concatenate([one[key] for one in dealt]) for key in dealt[0]}
    found["chance"] = {key: _average(value[None, :]) for key, value in chance.items()}, chance

    n = (~np.isnan(known)).sum(axis=0)
    rows = [
        {"item": item, "by": by, "n": int(n.sum() if item == ALL else n[place])}
        | _bounds(place, *found[by])
        for place, item in enumerate([*scales, ALL])
        for by in BY
    ]
    return pd.DataFrame(rows).set_index(["item", "by"])


Scores = dict[tuple[int, str], np.ndarray]


def _scores(
    human: np.ndarray,
    told: np.ndarray,
    traits: np.ndarray,
    sizes: Sequence[int],
    draws: np.ndarray | None = None,
) -> Scores:
    """Return the measures by the item's place (all: behind the last) and name, an array each."""
    tables = [confusion(human[:, j], told[:, j], size, draws) for j, size in enumerate(sizes)]
    found: Scores = {}
    for j, table in enumerate(tables):
        found[j, "within_1"] = within_one(table)
        found[j, "qwk"] = quadratic_kappa(table)
        found[j, "wasserstein"] = distance(table)
    items, n = range(len(sizes)), np.array([table.sum((1, 2)) for table in tables])
    near = np.array([np.nan_to_num(found[j, "within_1"]) for j in items]) * n
    with np.errstate(invalid="ignore"):
        found[len(sizes), "within_1"] = near.sum(0) / n.sum(0)
    for name in ("qwk", "wasserstein"):
        found[len(sizes), name] = _average(np.array([found[j, name] for j in items]).T)
    if traits.shape[1]:
        found[len(sizes), "alignment"] = alignment(
            structure(traits, human, draws), structure(traits, told, draws)
        )
    return found


def _bounds(place: int, point: Scores, spread: Scores) -> dict[str, float]:
    """Return a row's measures with their bounds; NaN where there is nothing to measure."""
    row: dict[str, float] = {}
    for name in MEASURES:
        value = point.get((place, name), np.array([np.nan]))[0]
        among = spread.get((place, name), np.array([]))
        among = among[~np.isnan(among)]
        sure = len(among) > 0 and not np.isnan(value)
        low, high = np.quantile(among, [0.025, 0.975]) if sure else (np.nan, np.nan)
        row |= {name: float(value), f"{name}_low": float(low), f"{name}_high": float(high)}
    return row


def _average(values: np.ndarray) -> np.ndarray:
    """Return the mean of each row over what is defined; NaN where nothing is."""
    told = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(told, values, 0).sum(-1) / told.sum(-1)


def _commonest(human: np.ndarray) -> np.ndarray:
    """Return the commonest answer of each item for everybody; the lower of two that tie."""
    said = np.full_like(human, np.nan)
    for j, column in enumerate(human.T):
        told = ~np.isnan(column)
        if told.any():
            said[told, j] = np.bincount(column[told].astype(int)).argmax()
    return said


def _dealt(human: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the answers dealt out anew, a person's answers to all items together."""
    said = np.full_like(human, np.nan)
    for j, column in enumerate(human.T):
        told = np.flatnonzero(~np.isnan(column))
        said[told, j] = column[told[np.argsort(order[told])]]
    return said
