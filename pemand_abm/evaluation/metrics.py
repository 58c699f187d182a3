"""How far predictions are from what households did, and which households are compared.

Pure functions of arrays: error measures, their intervals, splits by household. A measure that the
data cannot define (precision where nobody was predicted to move) is NaN, never 0. A household of
which a method predicts nothing (NaN: undecided) is left out of that method's measures and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pemand_abm import keys

LEAST_MEAN = 0.01  # Trips: a count predicted lower enters the Poisson deviance as this.
LEAST_SCORE = 1e-6  # A score nearer to 0 or 1 enters the log loss as this far from it.


def count_metrics(
    observed: ArrayLike, predicted: ArrayLike, weights: ArrayLike | None = None
) -> dict[str, float]:
    """Return the errors of predicted counts, weighted where weights are given.

    Keys: ``n`` (households compared), ``undecided``, ``rmse``, ``mae``, ``smape`` (percent, 0/0
    counts as 0), ``within_2`` (share at most 2 off once rounded, halves up: a fraction of a trip is
    no miss), ``poisson_deviance`` (mean; predictions below 0.01 enter as 0.01), ``bias`` (mean of
    predicted minus observed), ``zero_share`` (predictions that round to 0) and
    ``zero_share_observed``. PEMAND appendix B.5 and PROTOCOLS §11.

    >>> count_metrics([0, 4], [0, 7])["mae"], count_metrics([0, 4], [0, 7], [3, 1])["mae"]
    (1.5, 0.75)
    >>> count_metrics([0, 4], [0, 4])["smape"]
    0.0
    """
    y, p, w, undecided = _decided(observed, predicted, weights)
    error = p - y
    size = (np.abs(p) + np.abs(y)) / 2
    relative = np.divide(np.abs(error), size, out=np.zeros_like(size), where=size > 0)
    mean = np.maximum(p, LEAST_MEAN)
    ratio = np.divide(y, mean, out=np.ones_like(y), where=y > 0)
    return {
        "n": len(y),
        "undecided": undecided,
        "rmse": float(np.sqrt(_mean(error**2, w))),
        "mae": _mean(np.abs(error), w),
        "smape": 100 * _mean(relative, w),
        "within_2": _mean(np.abs(np.floor(p + 0.5) - y) <= 2, w),
        "poisson_deviance": 2 * _mean(y * np.log(ratio) - (y - mean), w),
        "bias": _mean(error, w),
        "zero_share": _mean(p < 0.5, w),
        "zero_share_observed": _mean(y < 0.5, w),
    }


def choice_metrics(
    observed: ArrayLike,
    predicted: ArrayLike,
    score: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> dict[str, float | None]:
    """Return the errors of predicted yes-or-no choices, weighted where weights are given.

    Parameters
    ----------
    observed, predicted : array-like of 0 and 1
        NaN in *predicted* is an undecided household.
    score : array-like of probabilities, optional
        Without it the measures that need one are None.
    weights : array-like, optional

    Returns
    -------
    dict
        ``n``, ``undecided``, ``share_observed``, ``accuracy``, ``precision`` (NaN where no 1 was
        predicted), ``recall`` (NaN where none was observed), ``f1`` = 2 hits / (2 hits + false
        alarms + misses), ``bias`` (share predicted minus share observed); and of the score, over
        the decided households that have one (``n_score``): ``pr_auc`` (average precision),
        ``log_loss`` (scores kept 1e-6 off 0 and 1), ``brier``, ``bias_score``.

    >>> choice_metrics([1, 0, 0], [0, 0, 0])["precision"]
    nan
    >>> choice_metrics([1, 1, 0], [1, 0, 0])["f1"].__round__(3)
    0.667
    """
    y, p, w, undecided = _decided(observed, predicted, weights)
    hits = float((w * y * p).sum())
    alarms = float((w * (1 - y) * p).sum())
    misses = float((w * y * (1 - p)).sum())
    return {
        "n": len(y),
        "undecided": undecided,
        "share_observed": _mean(y, w),
        "accuracy": _mean(y == p, w),
        "precision": _ratio(hits, hits + alarms),
        "recall": _ratio(hits, hits + misses),
        "f1": _ratio(2 * hits, 2 * hits + alarms + misses),
        "bias": _mean(p - y, w),
        **_score_metrics(observed, predicted, score, weights),
    }


def _score_metrics(
    observed: ArrayLike, predicted: ArrayLike, score: ArrayLike | None, weights: ArrayLike | None
) -> dict[str, float | None]:
    if score is None:
        return dict.fromkeys(("n_score", "pr_auc", "log_loss", "brier", "bias_score"))
    told = np.where(np.isnan(_floats(predicted)), np.nan, _floats(score))
    y, s, w, _ = _decided(observed, told, weights)
    if ((s < 0) | (s > 1)).any():
        raise ValueError("scores are probabilities in 0..1")
    near = np.clip(s, LEAST_SCORE, 1 - LEAST_SCORE)
    return {
        "n_score": len(y),
        "pr_auc": average_precision(y, s, w),
        "log_loss": _mean(-np.log(np.where(y == 1, near, 1 - near)), w),
        "brier": _mean((s - y) ** 2, w),
        "bias_score": _mean(s - y, w),
    }


def average_precision(
    observed: ArrayLike, score: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Return the area under the precision-recall curve as a sum of steps; NaN without a 1.

    Households of the same score enter together, so that their order cannot matter.

    >>> average_precision([1, 0, 1], [0.9, 0.8, 0.7]).__round__(4)
    0.8333
    """
    y, s, w, _ = _decided(observed, score, weights)
    if not (w * y).sum() > 0:
        return float("nan")
    _, group = np.unique(-s, return_inverse=True)
    hits = np.bincount(group, w * y).cumsum()
    called = np.bincount(group, w).cumsum()
    precision = np.divide(hits, called, out=np.zeros_like(hits), where=called > 0)
    return float((np.diff(hits, prepend=0) * precision).sum() / hits[-1])


def paired_bootstrap(
    errors: Mapping[str, ArrayLike],
    reference: str,
    weights: ArrayLike | None = None,
    seed: int = 0,
    repeats: int = 1000,
    households: ArrayLike | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Return each method's mean error and its difference to the reference, with intervals.

    Parameters
    ----------
    errors : mapping of method to array
        One error a row, the same rows for every method: absolute errors for the MAE, signed ones
        for the bias, 0 and 1 for the error rate. NaN where the method was undecided.
    reference : str
        The method to which the others are compared.
    weights : array-like, optional
    households : array-like, optional
        The household of each row; rows of one household are drawn together. Default: each row is
        a household of its own.
    level : float
        Share of the repeats inside an interval (percentile bootstrap, Efron 1979).

    Returns
    -------
    DataFrame
        Index ``method``; ``n``, ``measure``, ``low``, ``high``, ``pairs`` (rows that both the
        method and the reference decided), ``difference`` (method minus reference, over the pairs),
        ``difference_low``, ``difference_high``.
    """
    if reference not in errors:
        raise ValueError(f"the reference '{reference}' is none of {', '.join(errors)}")
    table = np.column_stack([_floats(e) for e in errors.values()])
    w = np.ones(len(table)) if weights is None else _floats(weights)
    ids = np.arange(len(table)) if households is None else np.asarray(households)
    if not len(table) == len(w) == len(ids):
        raise ValueError("errors, weights and households differ in length")
    told = ~np.isnan(table)
    base = list(errors).index(reference)
    paired = told & told[:, [base]]
    gap = np.where(paired, table - table[:, [base]], 0.0)
    sums = [np.where(told, table, 0.0), told.astype(float), gap, paired.astype(float)]
    clusters, place = np.unique(ids, return_inverse=True)
    total = np.zeros((len(clusters), 4 * table.shape[1]))
    np.add.at(total, place, np.hstack(sums) * w[:, None])

    whole = _two_means(total.sum(axis=0))
    drawn = np.array([_two_means(n @ total) for n in _draws(len(clusters), seed, repeats)])
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = (
        np.quantile(drawn, tails, axis=0)
        if repeats and len(clusters)
        else np.full((2, *whole.shape), np.nan)
    )
    return pd.DataFrame(
        {
            "n": told.sum(axis=0),
            "measure": whole[0],
            "low": low[0],
            "high": high[0],
            "pairs": paired.sum(axis=0),
            "difference": whole[1],
            "difference_low": low[1],
            "difference_high": high[1],
        },
        index=pd.Index(list(errors), name="method"),
    )


def _draws(n: int, seed: int, repeats: int) -> Iterator[np.ndarray]:
    """Yield how often each of n households is drawn, once a repeat."""
    generator = keys.generator(seed, "bootstrap")
    for _ in range(repeats if n else 0):
        yield np.bincount(generator.integers(0, n, n), minlength=n).astype(float)


def _two_means(sums: np.ndarray) -> np.ndarray:
    """Return (mean error, mean difference) by method from the four weighted sums."""
    error, weight, gap, pairs = sums.reshape(4, -1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([error / weight, gap / pairs])


def split(ids: ArrayLike, share: float, seed: int) -> np.ndarray:
    """Return which rows are of the test split: round(n · share) of the n households.

    They are the households of the smallest random numbers, each a function of the seed and the id,
    so neither the order of the rows nor repeated rows of a household change who is tested.

    >>> int(split(range(1000), 0.2, seed=0).sum())
    200
    """
    if not 0 < share < 1:
        raise ValueError(f"the test share {share} is not between 0 and 1")
    households, place = np.unique(np.asarray(ids), return_inverse=True)
    order = np.argsort(keys.uniforms(households, seed, "split"), kind="stable")
    test = np.zeros(len(households), dtype=bool)
    test[order[: round(len(households) * share)]] = True
    return test[place]


def folds(labels: pd.Series, k: int, seed: int) -> pd.Series:
    """Return the fold 0..k-1 of each household, every label spread evenly over the folds.

    *labels* are indexed by household id, one row a household.

    >>> labels = pd.Series([1] * 10 + [0] * 40, index=range(50))
    >>> labels.groupby(folds(labels, 5, seed=0)).agg(["size", "sum"]).to_numpy().tolist()
    [[10, 2], [10, 2], [10, 2], [10, 2], [10, 2]]
    """
    _once(labels)
    number = keys.uniforms(labels.index, seed, "folds")
    order = np.lexsort((number, labels.to_numpy()))
    fold = np.empty(len(labels), dtype="int64")
    fold[order] = np.arange(len(labels)) % k
    return pd.Series(fold, index=labels.index, name="fold")


def weighted_stratified_sample(
    labels: pd.Series, sizes: Mapping[int, int], seed: int, weights: pd.Series | None = None
) -> pd.Series:
    """Return the sampled households with the weights that restore the population's shares.

    Movers are few, so a trial takes many of them and few of those who stayed. Who is drawn depends
    on the seed and the id alone: a smaller sample of a label is part of a larger one.

    Parameters
    ----------
    labels : Series
        The label of each household, indexed by household id.
    sizes : mapping of label to number of households
    weights : Series, optional
        Survey weights by household id. The result is then the survey's weight times the sampling
        weight, and restores the weighted shares.

    Returns
    -------
    Series
        ``weight`` of the sampled households, in the order of *labels*. Those of a label sum to
        the label's total among all, so to its number of households without *weights*.

    Raises
    ------
    ValueError
        Where a label has fewer households than wanted, or none is wanted of a label that exists:
        no weights could then restore the shares.

    >>> labels = pd.Series([1] * 115 + [0] * 1488, index=range(1603))
    >>> sampling = weighted_stratified_sample(labels, {1: 12, 0: 12}, seed=0)
    >>> sampling.groupby(labels).sum().round().to_dict()
    {0: 1488.0, 1: 115.0}
    """
    _once(labels)
    for label, there in labels.value_counts().items():
        if not 0 < sizes.get(label, 0) <= there:
            raise ValueError(f"{sizes.get(label, 0)} of the {there} households of label {label}")
    full = pd.Series(1.0, index=labels.index) if weights is None else weights.loc[labels.index]
    number = pd.Series(keys.uniforms(labels.index, seed, "stratified"), index=labels.index)
    drawn = labels[number.groupby(labels).rank(method="first") <= labels.map(sizes)]
    kept = full.loc[drawn.index]
    scale = full.groupby(labels).sum() / kept.groupby(drawn).sum()
    return (kept * drawn.map(scale)).rename("weight")


def calibration(
    predicted: ArrayLike,
    observed: ArrayLike,
    weights: ArrayLike | None = None,
    bins: int = 10,
) -> pd.DataFrame:
    """Return what was observed where much and where little was predicted.

    Rows are groups of about equal numbers of households in the order of their predictions; equal
    predictions stay in one group. Columns ``n``, ``predicted`` and ``observed`` (means), ``se`` of
    the observed mean (NaN for a single household).

    >>> calibration([1, 1, 5, 5], [0, 2, 4, 8], bins=2)["observed"].tolist()
    [1.0, 6.0]
    """
    y, p, w, _ = _decided(observed, predicted, weights)
    inner = np.linspace(0, 1, bins + 1)[1:-1]
    edges = np.unique(np.quantile(p, inner)) if len(p) else np.empty(0)
    frame = pd.DataFrame({"y": y, "p": p, "w": w, "bin": np.searchsorted(edges, p, side="left")})
    rows = [
        {
            "n": len(part),
            "predicted": _mean(part["p"].to_numpy(), part["w"].to_numpy()),
            "observed": _mean(part["y"].to_numpy(), part["w"].to_numpy()),
            "se": _standard_error(part["y"].to_numpy(), part["w"].to_numpy()),
        }
        for _, part in frame.groupby("bin")
    ]
    return pd.DataFrame(rows, columns=["n", "predicted", "observed", "se"]).rename_axis("bin")


def by_size(
    observed: ArrayLike,
    predicted: ArrayLike,
    sizes: ArrayLike,
    weights: ArrayLike | None = None,
    largest: int = 5,
    metrics: Callable[..., Mapping[str, float | None]] = count_metrics,
) -> pd.DataFrame:
    """Return the metrics by the household's number of persons, *largest* and more together.

    >>> by_size([2, 4, 9], [2, 6, 9], [1, 2, 7])["mae"].to_dict()
    {'1': 0.0, '2': 2.0, '5+': 0.0}
    """
    y, p = _floats(observed), _floats(predicted)
    w = None if weights is None else _floats(weights)
    group = np.minimum(np.asarray(sizes), largest)
    rows = {
        f"{size}+" if size == largest else f"{size}": metrics(
            y[group == size], p[group == size], weights=None if w is None else w[group == size]
        )
        for size in np.unique(group)
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("hhsize")


def _floats(values: ArrayLike) -> np.ndarray:
    return np.asarray(values, dtype=float)


def _decided(
    observed: ArrayLike, predicted: ArrayLike, weights: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return observed, predicted and weight of the decided households, and how many were not."""
    y, p = _floats(observed), _floats(predicted)
    w = np.ones(len(y)) if weights is None else _floats(weights)
    if not len(y) == len(p) == len(w):
        raise ValueError(f"lengths differ: {len(y)} observed, {len(p)} predicted, {len(w)} weights")
    if np.isnan(y).any() or not (w >= 0).all():
        raise ValueError("an observed value is missing, or a weight is negative or missing")
    told = ~np.isnan(p)
    return y[told], p[told], w[told], int((~told).sum())


def _once(labels: pd.Series) -> None:
    if labels.index.has_duplicates:
        twice = labels.index[labels.index.duplicated()][:3].tolist()
        raise ValueError(f"households stand twice, first {twice}")


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else float("nan")


def _mean(values: np.ndarray, weights: np.ndarray) -> float:
    return _ratio(float((values * weights).sum()), float(weights.sum()))


def _standard_error(values: np.ndarray, weights: np.ndarray) -> float:
    """Return the standard error of a weighted mean, for households drawn independently."""
    n = len(values)
    if n < 2 or not weights.sum() > 0:
        return float("nan")
    gap = weights * (values - _mean(values, weights))
    return float(np.sqrt(n / (n - 1) * (gap**2).sum()) / weights.sum())
