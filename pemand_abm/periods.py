"""From a day's productions and attractions to trips from origin to destination by period.

Who travels from where to where in a day is `demand`'s matter; the shares of the periods are the
survey's (`surrogate.Rates`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pemand_abm.surrogate import PERIODS, PURPOSES

ALL, DAY = "TRIPS", "DAY"


def od_matrices(cores: Mapping[str, np.ndarray], shares: pd.Series) -> dict[str, np.ndarray]:
    """Return person trips from origin (row) to destination (column) by purpose and period.

    A trip that leaves home goes from the production to the attraction zone, one that returns goes
    the other way; a non-home-based trip is produced where it begins. Nothing is lost: the periods
    of a purpose sum to its trips of the day.

    Parameters
    ----------
    cores : mapping of str to ndarray, shape (N, N)
        Trips of a day by purpose (`HBW`), rows produce, columns attract.
    shares : Series
        Of a purpose's trips of the day, by `surrogate.PERIOD_CELLS`.

    Returns
    -------
    dict of str to ndarray, shape (N, N)
        `HBW__AM`; of all purposes `TRIPS__AM`, and of the whole day `TRIPS__DAY`.
    """
    found = {
        f"{purpose.upper()}__{period}": _od(cores[purpose.upper()], shares[purpose], period)
        for purpose in PURPOSES
        for period in PERIODS
    }
    for period in PERIODS:
        found[f"{ALL}__{period}"] = _sum([found[f"{p.upper()}__{period}"] for p in PURPOSES])
    found[f"{ALL}__{DAY}"] = _sum([found[f"{ALL}__{period}"] for period in PERIODS])
    return found


def _od(trips: np.ndarray, shares: pd.Series, period: str) -> np.ndarray:
    if "any" in shares.index:
        return trips * shares["any", period]
    return trips * shares["from_home", period] + trips.T * shares["to_home", period]


def _sum(matrices: list[np.ndarray]) -> np.ndarray:
    total = np.zeros_like(matrices[0])
    for matrix in matrices:
        total += matrix
    return total
