"""How much the main figures of one scenario vary over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pemand_abm.errors import PemandError, listed
from pemand_abm.report import Run, read_run
from pemand_abm.surrogate import PURPOSES

COLUMNS = ("unit", "runs", "mean", "sd", "least", "most")
TRIPS = "person trips of an average weekday"


def spread_over_seeds(folders: Sequence[Path]) -> pd.DataFrame:
    """Return the spread of the main figures over runs of one scenario with several seeds.

    Returns
    -------
    DataFrame
        Index `figure`; `COLUMNS` (`sd` with n - 1), then a column `seed_N` a run.

    Raises
    ------
    PemandError
        Fewer than two runs, runs of different scenarios, regions or settings, a seed twice.
    """
    runs = [read_run(folder) for folder in folders]
    _check(runs)
    figures = [figures_of(run) for run in runs]
    names = [f"seed_{run.manifest.get('seed')}" for run in runs]
    table = pd.DataFrame({n: f["value"] for n, f in zip(names, figures, strict=True)})
    return pd.DataFrame(
        {
            "unit": figures[0]["unit"],
            "runs": table.notna().sum(axis=1),
            "mean": table.mean(axis=1),
            "sd": table.std(axis=1, ddof=1),
            "least": table.min(axis=1),
            "most": table.max(axis=1),
            **{n: table[n] for n in names},
        }
    ).rename_axis("figure")


def _check(runs: Sequence[Run]) -> None:
    problems = []
    if len(runs) < 2:
        problems.append("one run has no spread; give two or more")
    seeds = [run.manifest.get("seed") for run in runs]
    twice = sorted({str(s) for s in seeds if seeds.count(s) > 1})
    if twice:
        problems.append(f"seed: {', '.join(twice)} comes twice; give each seed once")
    for run in runs[1:]:
        for key in ("scenario", "region", "settings"):
            a, b = (_without_seed(r.manifest.get(key)) for r in (runs[0], run))
            if a != b:
                problems.append(
                    f"{key}: {runs[0].folder.name} and {run.folder.name} differ; the runs must be "
                    "of one scenario"
                )
    if problems:
        raise PemandError(listed(problems, "the spread over seeds"))


def _without_seed(held: Any) -> Any:
    return {k: v for k, v in held.items() if k != "seed"} if isinstance(held, dict) else held


def figures_of(run: Run) -> pd.DataFrame:
    """Return a run's main figures: index `figure`, columns `value` and `unit`."""
    days = run.decisions[run.decisions["kind"] == "trips"]
    each = days.groupby("household_id")["value"].mean()
    demand = run.demand
    households = float(demand["households"].sum())
    rows = [
        ("households", households, "households"),
        ("persons", float(demand["persons"].sum()), "persons"),
        ("trips", float(demand["TRIPS_P"].sum()), TRIPS),
        *((p.upper(), float(demand[f"{p.upper()}_P"].sum()), TRIPS) for p in PURPOSES),
        ("trips a household", float(each.mean()), f"{TRIPS} a household"),
        ("households without a trip", float(100 * (each == 0).mean()), "% of the households"),
        ("completed moves", float((run.events["kind"] == "moved").sum()), "moves of the run"),
        *(
            (f"trips, {district}", float(value), TRIPS)
            for district, value in demand.groupby("district")["TRIPS_P"].sum().items()
        ),
    ]
    return pd.DataFrame(rows, columns=["figure", "value", "unit"]).set_index("figure")
