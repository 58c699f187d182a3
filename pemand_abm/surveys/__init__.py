"""Household surveys: one checked pair of tables, whatever the survey's files look like.

A survey's files, codes, non-response and missing-data rules are described in a map (`maps/*.yaml`);
what its answers say to a language model stands in `prompts/facts/`. This package opens files and
knows no model, no scenario and no negotiation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd


@dataclass(frozen=True, slots=True)
class Features:
    """The columns that the statistical baselines may use (PEMAND appendix B).

    `numeric` and `categorical` are columns of the households, `persons` categorical columns of the
    persons, from which counts and shares within the household are made.
    """

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    persons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """One survey cycle, read and checked.

    Attributes
    ----------
    name, title : str
        Such as ``psrc2023`` and what a reader calls it.
    year : int
        The year in which its answers were given; an anchor for it must be of an earlier year.
    target : str
        ``trips`` (person trips of the household's travel day, of members aged 5 and over) or
        ``moved`` (1 where the household moved, 0 where it stayed).
    unit : str
        What one value of the target is, in words, with its period and days.
    households : DataFrame
        Index ``household_id`` (int64 or text). Columns ``hhsize``, ``num_workers``,
        ``auto_ownership``, ``children`` (under 18), ``age_of_head`` (int64), ``tenure`` (own, rent
        or an empty text), ``income`` (USD of the survey's year, NaN where not told),
        ``home_zone_id`` (text: what the file says of the place), ``urban`` (1, 0, NaN),
        ``weight`` (> 0), ``weekday`` (bool), the target, and the answers as the file has them,
        under their own names in lower case. A column that the file does not have is absent.
    persons : DataFrame
        Index ``person_id``. Columns ``household_id``, ``PNUM`` (1, 2, ...), ``age`` (int64; of a
        band its lower end), ``age_to`` (the band's upper end; `age` where it is exact), ``sex``
        (1 male, 2 female, 0 not told), ``pemploy`` (1 full time, 2 part time, 3 none, 4 a child),
        ``pstudent`` (1 school, 2 college, 3 none, 0 not told), and the answers as the file has
        them. ``inferred`` (bool) says that a row was made from the household's counts.
    dropped : DataFrame
        What was left out or mended: ``file``, ``what`` (a sentence), ``rows``.
    facts : str
        The translation map in `prompts/facts/`.
    features : Features
    """

    name: str
    title: str
    year: int
    target: str
    unit: str
    households: pd.DataFrame
    persons: pd.DataFrame
    dropped: pd.DataFrame
    facts: str
    features: Features


def read_survey(name: str | Path, data: Path | None = None) -> Survey:
    """Read and check one survey cycle (`reading.read_survey`)."""
    from pemand_abm.surveys.reading import read_survey

    return read_survey(name, data)
