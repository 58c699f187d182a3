"""Rewards of whole negotiations: pure functions (PEMAND §3.2.3 and A.2; PROTOCOLS, PEMAND 13)."""

from __future__ import annotations

from collections.abc import Sequence

from pemand_abm.people import Turn

TRUTH, RUBRIC = 2.0, 0.5
"""The paper's weights of the two terms."""
LEAST, MOST = 1, 3
"""Marks of the rubric."""


def truth(decided: float | None, observed: float, mean: float) -> float:
    """Return how near a decided count is to the observed one, from -1 to 0.

    The squared error over the mean count plus one, at most 1: what is best is the *mean* of such
    households. A percentage error would reward answers below the median. An undecided household
    gets the least.

    >>> truth(6, 6, 6.0), truth(9, 6, 8.0), truth(40, 6, 6.0), truth(None, 6, 6.0)
    (0.0, -1.0, -1.0, -1.0)
    >>> round(truth(4, 6, 7.0), 2)
    -0.5
    """
    if decided is None:
        return -1.0
    return max(-1.0, -((decided - observed) ** 2) / (mean + 1))


def rubric(turns: Sequence[Turn]) -> float:
    """Return the mean mark of the statements that entered the talk, from 0 to 1; 0 without any.

    >>> rubric([])
    0.0
    """
    marks = [mark for turn in turns if turn.kept for mark in turn.verdict.scores.values()]
    if not marks:
        return 0.0
    return (sum(marks) / len(marks) - LEAST) / (MOST - LEAST)


def reward(truth_term: float, rubric_term: float) -> float:
    """Return the weighted sum of both terms.

    >>> reward(-0.5, 1.0)
    -0.5
    """
    return TRUTH * truth_term + RUBRIC * rubric_term
