"""Trip lengths: the decay of the gravity model that gives an observed mean trip length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from pemand_abm.demand import Demand, DemandSettings, gravity, intrazonal, mean_minutes
from pemand_abm.errors import SettingsError, TableError, listed
from pemand_abm.surrogate import PURPOSES


def calibrated(
    settings: DemandSettings,
    demand: Demand,
    skims: Mapping[str, np.ndarray],
    wanted: Mapping[str, float],
    of: str = "mean_minutes",
) -> DemandSettings:
    """Return the settings with the decays that give the wanted mean minutes by purpose.

    Purposes without a wanted length, or without trips, keep their decay. *of* names in errors where
    the lengths stand.

    Raises
    ------
    SettingsError
        Lengths that no decay of 0 or more gives; all of them are told.
    """
    decays, problems = dict(settings.decay), []
    for purpose in (p for p in PURPOSES if p in wanted and demand.productions[p].sum() > 0):
        minutes, _ = intrazonal(skims[settings.minutes[purpose]])
        p, a = (
            table[purpose].to_numpy(float) for table in (demand.productions, demand.attractions)
        )
        try:
            decays[purpose] = calibrated_decay(p, a, minutes, wanted[purpose])
        except SettingsError as fault:
            problems.append(f"{purpose}: {fault.message} ({settings.minutes[purpose]})")
    if problems:
        raise SettingsError(listed(problems, of))
    return replace(settings, decay=decays)


def modelled_minutes(
    settings: DemandSettings, demand: Demand, skims: Mapping[str, np.ndarray], purpose: str
) -> float:
    """Return the mean minutes of a purpose's trips in the gravity model; NaN without trips."""
    minutes, _ = intrazonal(skims[settings.minutes[purpose]])
    p, a = (table[purpose].to_numpy(float) for table in (demand.productions, demand.attractions))
    return mean_minutes(gravity(p, a, minutes, settings.decay[purpose]), minutes)


def calibrated_decay(p: np.ndarray, a: np.ndarray, minutes: np.ndarray, wanted: float) -> float:
    """Return the decay, a minute, whose doubly constrained gravity model takes the wanted minutes.

    The mean falls as the decay grows, so a bracket holds one solution, and Brent's method finds it
    (Hyman 1969 solves the same equation by secants).

    Parameters
    ----------
    p, a : ndarray, shape (N,)
        Productions and attractions, as in `demand.gravity`.
    minutes : ndarray, shape (N, N)
    wanted : float
        Mean minutes of a trip.

    Raises
    ------
    SettingsError
        A mean above that without any decay, or below the shortest that the totals allow.
    """
    from scipy.optimize import brentq

    def mean(decay: float) -> float:
        return mean_minutes(gravity(p, a, minutes, decay), minutes)

    longest = mean(0.0)
    if np.isclose(longest, wanted, rtol=1e-9):
        return 0.0
    if longest < wanted:
        raise SettingsError(
            f"{wanted:g} minutes cannot be reached: without any decay trips take {longest:.2f}"
        )
    low, high = _bracket(mean, wanted, longest)
    return float(brentq(lambda decay: mean(decay) - wanted, low, high, xtol=1e-12, rtol=1e-9))


def _bracket(mean: Callable[[float], float], wanted: float, longest: float) -> tuple[float, float]:
    """Return a decay whose mean is above the wanted one, and one whose mean is below it."""
    low, high, before = 0.0, 1 / wanted, longest
    while True:
        try:
            now = mean(high)
        except TableError:  # Not to be balanced: no trip gets so far.
            now = before
        if now <= wanted:
            return low, high
        # Means approach the shortest one from above; from there on a decay changes nothing.
        if before - now < 1e-6 * before:
            raise SettingsError(
                f"{wanted:g} minutes cannot be reached: with a decay of {high:.3g} a minute trips "
                f"still take {now:.2f}"
            )
        low, high, before = high, 2 * high, now
