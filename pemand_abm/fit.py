"""The page of a population's fit: how nearly its controls are met, and what it is made of.

From tables alone, for a region's population and for a PopulationSim folder's. One HTML file that
opens offline.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pemand_abm import figures
from pemand_abm.report import Table, page
from pemand_abm.synthesis import fit_summary
from pemand_abm.tables import write_text

if TYPE_CHECKING:
    from geopandas import GeoDataFrame

MOST_VALUES, MOST_NOTES = 12, 20


def write_fit_page(
    out: Path,
    title: str,
    fit: pd.DataFrame,
    seed: pd.DataFrame,
    copies: np.ndarray,
    uncontrolled: Sequence[str],
    zones: GeoDataFrame | None = None,
    finest: str = "",
) -> Path:
    """Write `fit.html` into *out*.

    Parameters
    ----------
    fit : DataFrame
        As `synthesis.Population.fit`.
    seed : DataFrame
        The seed's households, with `weight`.
    copies : array of int
        How often each seed household was taken.
    uncontrolled : sequence of str
        Columns of the seed that no control names; their distribution is compared with the seed's.
    zones : GeoDataFrame, optional
        The zones' polygons, indexed by zone, for a map of what was not met.
    finest : str
        The zones' geography, needed with *zones*.
    """
    drawn = {
        "scatter": figures.as_html(
            figures.fit_scatter(fit),
            "scatter",
            "Scatter of what was found over what was wanted, a point a control and cell; the table "
            "above has the errors.",
        ),
        "expansion": figures.as_html(
            figures.expansion_histogram(expansion(seed, copies)),
            "expansion",
            "Histogram of seed households by how often each is used for a unit of its weight.",
        ),
    }
    if zones is not None:
        drawn["residuals"] = figures.as_html(
            figures.residual_map(zones.assign(off=residuals(fit, finest, zones.index))),
            "map",
            "Map of the zones by what their controls are not met by, in % of the controls.",
        )
    text = page(
        "fit.html.j2",
        drawn,
        title=title,
        statement=statement(fit),
        summary=summary_table(fit),
        expansion=expansion_words(seed, copies),
        mapped=zones is not None,
        uncontrolled=[t for c in uncontrolled if (t := distribution(seed, copies, c))],
        notes=notes_table(fit),
    )
    path = Path(out) / "fit.html"
    write_text(text, path)
    return path


def copies_of(taken: pd.Series, seed: pd.Index) -> np.ndarray:
    """Return how often each seed household stands in a population's column of seed ids."""
    return taken.value_counts().reindex(seed, fill_value=0).to_numpy()


def named_by(controls: pd.DataFrame) -> set[str]:
    """Return the columns that the controls' expressions name."""
    return {
        name for text in controls["expression"] for name in re.findall(r"\w+\.(\w+)", str(text))
    }


def statement(fit: pd.DataFrame) -> str:
    """Return in one sentence how nearly the controls are met, by geography."""
    off = fit["difference"].abs().groupby(fit["geography"], sort=False).sum()
    wanted = fit["control"].groupby(fit["geography"], sort=False).sum()
    parts = [
        f"{geography} {100 * off[geography] / total:.2f} %" if total else f"{geography} none"
        for geography, total in wanted.items()
    ]
    cells, met = len(fit), int((fit["difference"].abs() < 0.5).sum())
    return (
        f"{met:,} of {cells:,} cells are met to the unit. Absolute differences over the controls,"
        f" by geography: {', '.join(parts)}."
    )


def summary_table(fit: pd.DataFrame) -> Table:
    """Return the fit by geography and control, in PopulationSim's validation measures."""
    table = fit_summary(fit)
    spread = _spread(fit)
    rows = [
        [
            str(geography),
            str(target),
            f"{r['control']:,.0f}",
            f"{r['result']:,.0f}",
            _number(r["mean_percent_difference"]),
            _number(spread[geography, target]),
            _number(r["percent_rmse"]),
            _number(r["absolute_percent"]),
            f"{r['largest_error']:,.0f}",
            f"{int(r['n']):,}",
        ]
        for (geography, target), r in zip(table.index, table.to_dict("records"), strict=True)
    ]
    header = ["geography", "control", "wanted", "found", "mean % difference", "SD", "% RMSE"]
    header += ["absolute %", "largest error", "cells not 0"]
    return Table(header, rows, "Controls and what was found", labels=2)


def _spread(fit: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return the standard deviation of the cells' percentage differences."""
    some = fit[fit["control"] != 0]
    percent = 100 * some["difference"] / some["control"]
    return percent.groupby([some["geography"], some["target"]]).std().to_dict()


def expansion(seed: pd.DataFrame, copies: np.ndarray) -> pd.Series:
    """Return how often each seed household was taken over its weight; NaN of no weight."""
    weight = seed["weight"].to_numpy(float)
    return pd.Series(
        np.divide(copies, weight, out=np.full(len(weight), np.nan), where=weight > 0),
        index=seed.index,
    )


def expansion_words(seed: pd.DataFrame, copies: np.ndarray) -> str:
    """Return in a sentence how evenly the seed's households were used."""
    factor = expansion(seed, copies).dropna()
    mean = copies.sum() / seed["weight"].sum()
    return (
        f"{int((copies > 0).sum()):,} of {len(copies):,} seed households were used. On average a"
        f" household was taken {mean:.2f} times its weight; the most {factor.max() / mean:.1f}"
        " times that average."
    )


def distribution(seed: pd.DataFrame, copies: np.ndarray, column: str) -> Table | None:
    """Return a seed column's shares in the seed (weighted) and in the population."""
    values = seed[column]
    if not 2 <= values.nunique() <= MOST_VALUES:
        return None
    weight = seed["weight"] / seed["weight"].sum()
    made = pd.Series(copies / max(copies.sum(), 1), index=seed.index)
    shares = pd.DataFrame(
        {"seed": weight.groupby(values).sum(), "made": made.groupby(values).sum()}
    )
    rows = [
        [str(value), f"{100 * was:.1f}", f"{100 * now:.1f}"]
        for value, was, now in shares.itertuples()
    ]
    return Table([column, "seed %", "population %"], rows)


def residuals(fit: pd.DataFrame, geography: str, zones: pd.Index) -> pd.Series:
    """Return each zone's absolute differences over its controls, %, of this geography."""
    fine = fit[fit["geography"] == geography]
    off = fine["difference"].abs().groupby(fine["zone"]).sum()
    wanted = fine["control"].groupby(fine["zone"]).sum()
    return (100 * off / wanted.where(wanted != 0)).reindex(zones)


def notes_table(fit: pd.DataFrame) -> Table | None:
    """Return the cells of which something is to be said, the farthest off first."""
    noted = fit[fit["note"] != ""]
    if noted.empty:
        return None
    shown = noted.reindex(noted["difference"].abs().sort_values(ascending=False).index)
    rows = [
        [str(r["geography"]), str(r["zone"]), str(r["target"])]
        + [f"{r[c]:,.0f}" for c in ("control", "result", "difference")]
        + [str(r["note"])]
        for r in shown.head(MOST_NOTES).to_dict("records")
    ]
    return Table(
        ["geography", "zone", "control", "wanted", "found", "difference", "note"],
        rows,
        f"{len(noted):,} cells that the controls or the seed do not allow to meet; the"
        f" {len(rows)} farthest off (all: fit.csv)",
        labels=3,
    )


def _number(value: float) -> str:
    return "none" if pd.isna(value) else f"{value:,.2f}"
