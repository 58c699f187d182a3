"""Ids as they travel through the engine: int64 where all are whole numbers, else text."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

WHOLE = r"0|-?[1-9][0-9]*"
LARGEST = 2**63 - 1


def as_text(ids: pd.Series) -> pd.Series:
    """Return ids as text; whole numbers that a reader made decimals of get their form back.

    >>> as_text(pd.Series([10.0, None])).tolist()
    ['10', '']
    """
    if pd.api.types.is_float_dtype(ids.dtype):
        held = ids.dropna()
        if (held % 1 == 0).all() and (held.abs() < 2.0**53).all():
            ids = ids.astype("Int64")
    return ids.astype("object").where(ids.notna(), "").astype(str).str.strip()


def are_whole(ids: pd.Series) -> bool:
    """Say whether every id is a whole number that fits into 64 bits (`010` and `1.0` are text).

    >>> are_whole(pd.Series(["10", "41003010200"])), are_whole(pd.Series(["010"]))
    (True, False)
    """
    ids = ids.astype(str)
    if not bool(ids.str.fullmatch(WHOLE).all()):
        return False
    return all(abs(int(i)) <= LARGEST for i in ids[ids.str.len() > 18])


def as_ids(ids: pd.Series) -> pd.Series:
    """Return ids as int64 where all are whole numbers, else as text."""
    text = as_text(ids)
    return text.astype("int64") if are_whole(text) else text


def some(ids: Iterable[object]) -> str:
    """Return the first five ids for a message, and say how many more there are.

    >>> some(range(8))
    '0, 1, 2, 3, 4 and 3 more'
    """
    every = list(ids)
    more = f" and {len(every) - 5} more" if len(every) > 5 else ""
    return ", ".join(map(str, every[:5])) + more
