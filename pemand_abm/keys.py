"""Random numbers that depend on their key alone.

A draw belongs to (seed, household, event, step), never to the order in which draws are made, so
neither workers nor batches nor other households can change it. Hashing is BLAKE2b for single keys
and SplitMix64 for whole columns of int64 ids.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd

Part = str | int


def digest(*parts: Part) -> int:
    """Return a 64-bit hash of the parts; texts and numbers never collide by their spelling."""
    text = "\x1f".join(f"{type(p).__name__[0]}{p}" for p in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def uniform(*parts: Part) -> float:
    """Return a number in (0, 1) for this key.

    >>> uniform(0, "household", 7) == uniform(0, "household", 7)
    True
    """
    return ((digest(*parts) >> 11) + 0.5) / 2.0**53


def generator(*parts: Part) -> np.random.Generator:
    """Return a NumPy generator for this key."""
    return np.random.Generator(np.random.PCG64(digest(*parts)))


def uniforms(ids: pd.Index | np.ndarray, *parts: Part) -> np.ndarray:
    """Return one number in (0, 1) for each int64 or text id under this key, as a float64 array.

    The value of an id does not depend on the other ids (SplitMix64, Steele et al. 2014, on the id
    mixed with the key; a text is hashed like a single key).
    """
    if not pd.api.types.is_integer_dtype(getattr(ids, "dtype", None)):
        return np.array([uniform(*parts, str(key)) for key in ids], dtype=np.float64)
    with np.errstate(over="ignore"):
        z = np.asarray(ids, dtype=np.int64).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = z + np.uint64(digest(*parts))
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
