"""The statistical baselines: what the same facts give without a negotiation (PEMAND A.1, B).

Each learns from the training split alone: medians, modes, scales, which categories exist, and the
model. Training is unweighted, as in the paper. A prediction is a number of trips or a probability
of moving, never rounded. Rows are sorted by household id before anything is fitted and one thread
does the sums, so neither the file's order nor the machine's cores matter.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pemand_abm import keys
from pemand_abm.errors import SettingsError, TableError, listed
from pemand_abm.surveys import Survey

LEAST = 10  # Training households of a category below which it is taken for the commonest one.
MOST = 200  # Categories of a column that are told apart; gradient boosting takes 255 at most.
LEAK = 0.98  # Correlation with the target from which on a feature is the target under a new name.
LARGE = 20_000  # Training households from which on forests and networks are kept small.

Fit = tuple[np.ndarray, tuple[str, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """What a baseline predicts for households that it did not learn from.

    `values` are expected trips or probabilities of moving, index ``household_id`` in the survey's
    order; `notes` say in sentences what a reader of the figures must know, such as a model that
    did not converge.
    """

    method: str
    values: pd.Series
    notes: tuple[str, ...] = ()


def methods(survey: Survey) -> tuple[str, ...]:
    """Return the names of the baselines for the survey's target."""
    return tuple(CHOICES if survey.target == "moved" else COUNTS)


def fit_predict(method: str, survey: Survey, test: np.ndarray, seed: int) -> Prediction:
    """Learn from the households outside the test split and predict those inside.

    Parameters
    ----------
    method : str
        One of `methods(survey)`.
    test : array of bool
        One value a row of ``survey.households``.
    seed : int

    Raises
    ------
    SettingsError
        For a method that does not exist, or a split without training or test households.
    TableError
        For features that are no columns, no numbers, or the target under another name.
    """
    test = np.asarray(test, dtype=bool)
    _check_split(method, survey, test)
    return _fit_predict(method, survey, design(survey), test, seed)


def cross_predict(method: str, survey: Survey, folds: pd.Series, seed: int) -> Prediction:
    """Predict the households of each fold by a model that learned from all others.

    *folds* is the number of a fold by household id. Households of the survey without a fold are
    always learned from and never predicted. The values are in the order of *folds*.
    """
    frame = design(survey)
    parts = []
    for fold in sorted(folds.unique()):
        test = frame.index.isin(folds.index[folds == fold])
        _check_split(method, survey, test)
        parts.append(_fit_predict(method, survey, frame, test, seed))
    values = pd.concat([p.values for p in parts]).loc[folds.index]
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    return Prediction(method, values, tuple(notes))


def nearest(survey: Survey, train: np.ndarray, ids: pd.Index, k: int = 3) -> pd.DataFrame:
    """Return the k training households most like each of the given ones.

    Distance is Euclidean over the features as `encode` makes them, numbers standardized; of equal
    distances the lower id comes first. A household is never its own neighbour.

    Parameters
    ----------
    train : array of bool
        Which rows of ``survey.households`` may be neighbours.
    ids : Index
        The households that want neighbours.

    Returns
    -------
    DataFrame
        Index *ids*, columns 1..k: household ids, the nearest first.
    """
    frame = design(survey)
    train = np.asarray(train, dtype=bool)
    learned = np.sort(frame.index[train])
    if len(learned) <= k:
        raise SettingsError(f"{survey.name}: {len(learned)} training households for {k} neighbours")
    x = encode(frame, train, power=survey.target == "moved")
    base, wanted = x.loc[learned].to_numpy(), x.loc[ids].to_numpy()
    lengths = (base**2).sum(axis=1)
    rows = []
    for own, one in zip(ids, wanted, strict=True):
        # |a - b|² = |a|² - 2ab + |b|², rounded so that a sum's last bits do not rank equals.
        distance = (lengths - 2 * (base @ one) + one @ one).round(6)
        distance[learned == own] = np.inf
        nearest_k = np.flatnonzero(distance <= np.partition(distance, k - 1)[k - 1])
        rows.append(learned[nearest_k[np.argsort(distance[nearest_k], kind="stable")[:k]]].tolist())
    return pd.DataFrame(rows, index=ids, columns=range(1, k + 1))


def design(survey: Survey) -> pd.DataFrame:
    """Return the features of each household, before anything is learned of them.

    Index as ``survey.households``; numeric columns as float64 (NaN where not told), categorical
    ones as categories, and for each category of the persons' columns the number of members in it
    and their share of the members who told. Raises TableError as `fit_predict` does.
    """
    homes, features = survey.households, survey.features
    wanted = [*features.numeric, *features.categorical]
    problems = [
        f"the feature '{c}' is no column of the households; mend the map's features"
        for c in wanted
        if c not in homes
    ] + [
        f"the feature '{c}' is no column of the persons; mend the map's features"
        for c in features.persons
        if c not in survey.persons
    ]
    problems += [
        f"'{c}' is no feature but the target or a weight; take it out of the map's features"
        for c in wanted
        if c in (survey.target, "weight")
    ]
    if problems:
        raise TableError(listed(problems, survey.name))
    numbers = {c: pd.to_numeric(homes[c], errors="coerce") for c in features.numeric}
    problems = [_not_numbers(homes[c], numbers[c]) for c in features.numeric]
    problems += [_leak(numbers[c], homes[survey.target]) for c in features.numeric]
    if any(problems):
        raise TableError(listed([p for p in problems if p], survey.name))
    frame = pd.DataFrame(
        {c: v.astype("float64") for c, v in numbers.items()}
        | {c: _categories(homes[c]) for c in features.categorical},
        index=homes.index,
    )
    return pd.concat([frame, *(_members(survey, c) for c in features.persons)], axis=1)


def _not_numbers(column: pd.Series, numbers: pd.Series) -> str:
    bad = column[numbers.isna() & column.notna() & column.astype(str).str.strip().ne("")]
    if bad.empty:
        return ""
    return (
        f"households.{column.name}: {len(bad)} values are no numbers, first {bad.iloc[0]!r} of"
        f" household {bad.index[0]}; recode them or list it as categorical"
    )


def _leak(feature: pd.Series, target: pd.Series) -> str:
    told = feature.notna()
    x, y = feature[told].to_numpy("float64"), target[told].to_numpy("float64")
    if len(x) < LEAST or np.ptp(x) == 0 or np.ptp(y) == 0:
        return ""
    r = float(np.corrcoef(x, y)[0, 1])
    if abs(r) < LEAK:
        return ""
    return (
        f"households.{feature.name}: correlates at {r:.3f} with the target {target.name}, so it is"
        " the answer and no feature; take it out of the map's features"
    )


def _categories(column: pd.Series) -> pd.Series:
    text = column.astype("string").str.strip()
    return text.mask(text == "").astype("category")


def _members(survey: Survey, column: str) -> pd.DataFrame:
    """Return `column=value number` and `column=value share` by household."""
    told = _categories(survey.persons[column]).dropna()
    count = pd.crosstab(survey.persons.loc[told.index, "household_id"], told.astype(str))
    share = count.div(count.sum(axis=1), axis=0)
    count = count.reindex(survey.households.index, fill_value=0).astype("float64")
    share = share.reindex(survey.households.index)
    return pd.concat(
        [
            count.rename(columns=lambda v: f"{column}={v} number"),
            share.rename(columns=lambda v: f"{column}={v} share"),
        ],
        axis=1,
    )


def encode(frame: pd.DataFrame, train: np.ndarray, power: bool = False) -> pd.DataFrame:
    """Return the design as numbers, all it learns learned from the training rows.

    Numbers: the median where not told, then standardized, after a Yeo-Johnson transformation where
    *power*; shares stay as they are (PEMAND B.2.2). Categories: one column each but for the
    commonest, which therefore stands for what was not told (the mode), for categories of under ten
    training households and for those that only the test split has. Columns that do not vary in the
    training rows are left out.
    """
    from sklearn.preprocessing import PowerTransformer, StandardScaler

    numeric = frame.select_dtypes("number")
    middle = numeric[train].median()
    numeric = numeric.fillna(middle).loc[:, middle.notna()]
    numeric = numeric.loc[:, numeric[train].nunique() > 1]
    scaled = [c for c in numeric if not str(c).endswith(" share")]
    columns = [numeric.drop(columns=scaled)]
    if scaled:
        scaler = PowerTransformer() if power else StandardScaler()
        scaler.fit(numeric.loc[train, scaled])
        columns.append(
            pd.DataFrame(scaler.transform(numeric[scaled]), index=frame.index, columns=scaled)
        )
    for name in frame.select_dtypes("category"):
        levels = _levels(frame[name], train)
        columns.append(
            pd.DataFrame(
                {f"{name}={v}": (frame[name] == v).astype("float64") for v in levels[1:]},
                index=frame.index,
            )
        )
    return pd.concat(columns, axis=1)


def _levels(column: pd.Series, train: np.ndarray) -> list[str]:
    """Return the categories of at least ten training households, the commonest first."""
    count = column[train].value_counts()
    count = count[count >= LEAST]
    return [str(v) for v in sorted(count.index, key=lambda v: (-count[v], v))[:MOST]]


def _native(frame: pd.DataFrame, train: np.ndarray) -> pd.DataFrame:
    """Return the design for gradient boosting: categories and gaps as they are."""
    levels = {c: _levels(frame[c], train) for c in frame.select_dtypes("category")}
    known = {
        c: pd.Categorical(frame[c].astype("string").where(frame[c].isin(v)), v)
        for c, v in levels.items()
    }
    native = frame.assign(**known)
    return native.loc[:, native[train].notna().any()]


def _check_split(method: str, survey: Survey, test: np.ndarray) -> None:
    if method not in methods(survey):
        raise SettingsError(
            f"{survey.name}: no baseline '{method}' for {survey.target};"
            f" there are {', '.join(methods(survey))}"
        )
    if test.shape != (len(survey.households),):
        raise SettingsError(
            f"{survey.name}: the test split has {test.size} rows, the survey"
            f" {len(survey.households)} households"
        )
    if test.all() or not test.any():
        raise SettingsError(f"{survey.name}: a split needs training and test households")


def _fit_predict(
    method: str, survey: Survey, frame: pd.DataFrame, test: np.ndarray, seed: int
) -> Prediction:
    from threadpoolctl import threadpool_limits

    order = np.argsort(frame.index)
    frame, test = frame.iloc[order], test[order]
    homes = survey.households.iloc[order]
    y = homes.loc[~test, survey.target].to_numpy("float64")
    moved = survey.target == "moved"
    if moved and np.ptp(y) == 0:
        raise SettingsError(f"{survey.name}: all training households gave the same answer")
    fit = (CHOICES if moved else COUNTS)[method]
    x = _native(frame, ~test) if method in NATIVE else encode(frame, ~test, power=moved)
    if x.shape[1] == 0:
        raise TableError(f"{survey.name}: no feature varies among the training households")
    # Spinning threads beside other programs took a hundred times as long as one on 3,000 rows.
    with threadpool_limits(1):
        values, notes = fit(x[~test], y, x[test], keys.digest(seed, "baseline", method) % 2**32)
    index = survey.households.index
    predicted = pd.Series(values, index=frame.index[test], name=method)
    return Prediction(method, predicted.loc[index[index.isin(predicted.index)]], notes)


def _independent(x: pd.DataFrame) -> list[str]:
    """Return columns that no others add up to: a regression's coefficients are then unique."""
    from scipy.linalg import qr

    centred = x.to_numpy() - x.to_numpy().mean(axis=0)
    centred /= np.sqrt((centred**2).sum(axis=0))
    r, pivot = qr(centred.T @ centred, mode="r", pivoting=True)
    kept = np.abs(np.diag(r)) > 1e-8
    return [x.columns[i] for i in np.sort(pivot[kept])]


def _linear(x: pd.DataFrame, y: np.ndarray, unseen: pd.DataFrame, seed: int) -> Fit:
    from sklearn.linear_model import LinearRegression

    columns = _independent(x)
    values = LinearRegression().fit(x[columns], y).predict(unseen[columns])
    below = int((values < 0).sum())
    note = f"{below} predictions are below zero trips and were left so"
    return values, (note,) if below else ()


def _poisson(x: pd.DataFrame, y: np.ndarray, unseen: pd.DataFrame, seed: int) -> Fit:
    columns = _independent(x)
    model, notes = _poisson_model(x[columns], y)
    return model.predict(unseen[columns]), notes


def _poisson_model(x: pd.DataFrame, y: np.ndarray):
    from sklearn.linear_model import PoissonRegressor

    model = PoissonRegressor(alpha=0, solver="newton-cholesky", max_iter=100, tol=1e-6).fit(x, y)
    late = model.n_iter_ >= 100
    return model, ("the Poisson regression did not converge in 100 steps",) if late else ()


def _negbin(x: pd.DataFrame, y: np.ndarray, unseen: pd.DataFrame, seed: int) -> Fit:
    """Negative binomial (NB2): coefficients given alpha and alpha given them, in turn.

    The turns end where alpha stands still (Venables and Ripley 2002, section 7.4).
    """
    try:
        import statsmodels.api as sm
    except ModuleNotFoundError as fault:
        raise SettingsError(
            "the method negbin needs statsmodels: pip install 'pemand-abm[evaluate]'"
        ) from fault

    columns = _independent(x)
    first, _ = _poisson_model(x[columns], y)
    beta = np.r_[first.intercept_, first.coef_]
    with_one = sm.add_constant(x[columns].to_numpy(), has_constant="add")
    alpha, converged = _alpha(y, np.exp(with_one @ beta)), False
    for _ in range(25):
        family = sm.families.NegativeBinomial(alpha=alpha)
        fit = sm.GLM(y, with_one, family=family).fit(
            start_params=beta, maxiter=50, tol=1e-8, wls_method="qr"
        )
        beta, last = fit.params, alpha
        alpha = _alpha(y, fit.fittedvalues)
        if abs(np.log(alpha / last)) < 1e-4:
            converged = bool(fit.converged)
            break
    mean = np.exp(beta[0] + unseen[columns].to_numpy() @ beta[1:])
    state = "converged" if converged else "DID NOT CONVERGE"
    return mean, (f"the negative binomial regression {state} at alpha {alpha:.3f}",)


def _alpha(y: np.ndarray, mean: np.ndarray) -> float:
    """Return the likeliest overdispersion (variance = mean + alpha mean²), 1e-6 at least."""
    from scipy.optimize import minimize_scalar
    from scipy.special import gammaln

    def loss(log_alpha: float) -> float:
        size = np.exp(-log_alpha)
        return -float(
            (gammaln(y + size) - gammaln(size) - (y + size) * np.log1p(mean / size)).sum()
            + (y * np.log(mean / size)).sum()
        )

    found = minimize_scalar(loss, bounds=(np.log(1e-6), np.log(100)), method="bounded")
    return float(np.exp(found.x))


def _forest(choice: bool) -> Callable[..., Fit]:
    def fit(x: pd.DataFrame, y: np.ndarray, unseen: pd.DataFrame, seed: int) -> Fit:
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

        large = len(x) > LARGE
        forest = (RandomForestClassifier if choice else RandomForestRegressor)(
            n_estimators=100 if large else 300,
            min_samples_leaf=10 if large else 5,
            max_features="sqrt" if choice else 1 / 3,
            max_samples=0.3 if large else None,
            n_jobs=-1,
            random_state=seed,
        )
        forest.fit(x.astype("float32"), y)
        # Threads add up their trees in the order in which they end; sums of floats then differ.
        forest.set_params(n_jobs=1)
        note = f"{forest.n_estimators} trees, leaves of at least {forest.min_samples_leaf}"
        note += ", each of 30 % of the households" if large else ""
        return _answer(forest, unseen.astype("float32"), choice), (note,)

    return fit


def _boosting(choice: bool, loss: str) -> Callable[..., Fit]:
    def fit(x: pd.DataFrame, y: np.ndarray, unseen: pd.DataFrame, seed: int) -> Fit:
        from sklearn.ensemble import (
            HistGradientBoostingClassifier,
            HistGradientBoostingRegressor,
        )

        model = (HistGradientBoostingClassifier if choice else HistGradientBoostingRegressor)(
            loss=loss,
            categorical_features="from_dtype",
            # A hundred trees learn a thousand households' noise; movers are few.
            early_stopping=True if choice else "auto",
            random_state=seed,
        )
        values = _answer(model.fit(x, y), unseen, choice)
        held = ", stopped by a tenth held out" if model.do_early_stopping_ else ""
        return values, (f"{model.n_iter_} trees on {loss} loss{held}",)

    return fit


def _network(choice: bool) -> Callable[..., Fit]:
    def fit(x: pd.DataFrame, y: np.ndarray, unseen: pd.DataFrame, seed: int) -> Fit:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPClassifier, MLPRegressor

        large = len(x) > LARGE
        network = (MLPClassifier if choice else MLPRegressor)(
            hidden_layer_sizes=(64, 32),
            # Accuracy on the part held out would stop a classifier that calls nobody a mover at
            # once; a penalty and few passes keep it from learning by heart instead.
            early_stopping=not choice,
            alpha=1.0 if choice else 1e-3,
            batch_size=512 if large else 64,
            n_iter_no_change=5 if large else 10,
            max_iter=40 if large or choice else 200,
            random_state=seed,
        )
        # float32 in C order: half the memory, and the kernel's own layout.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # The note says so.
            network.fit(np.ascontiguousarray(x, dtype="float32"), y)
        ended = "" if network.n_iter_ < network.max_iter else ", the most allowed"
        note = f"layers of 64 and 32, {network.n_iter_} passes{ended}"
        return _answer(network, np.ascontiguousarray(unseen, dtype="float32"), choice), (note,)

    return fit


def _logistic(x: pd.DataFrame, y: np.ndarray, unseen: pd.DataFrame, seed: int) -> Fit:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1.0, max_iter=1000).fit(x, y)
    late = bool(model.n_iter_.max() >= 1000)
    notes = ("the logistic regression did not converge in 1,000 steps",) if late else ()
    return _answer(model, unseen, choice=True), ("ridge penalty of 1", *notes)


def _answer(model, unseen, choice: bool) -> np.ndarray:
    if not choice:
        return np.asarray(model.predict(unseen), dtype="float64")
    return np.asarray(model.predict_proba(unseen)[:, 1], dtype="float64")


COUNTS: dict[str, Callable[..., Fit]] = {
    "linear": _linear,
    "poisson": _poisson,
    "negbin": _negbin,
    "rf": _forest(choice=False),
    "gbm": _boosting(choice=False, loss="absolute_error"),
    "gbm-mean": _boosting(choice=False, loss="poisson"),
    "mlp": _network(choice=False),
}
CHOICES: dict[str, Callable[..., Fit]] = {
    "logistic": _logistic,
    "rf": _forest(choice=True),
    "gbm": _boosting(choice=True, loss="log_loss"),
    "mlp": _network(choice=True),
}
NATIVE = {"gbm", "gbm-mean"}
