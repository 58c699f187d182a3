"""HTML pages that open offline: a template with its style, scripts, figures and tables in it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

import pandas as pd

from pemand_abm import figures, transcript

if TYPE_CHECKING:
    from geopandas import GeoDataFrame

# Cells of fewer households are not shown (VALIDATION T4).
LEAST = 30


@dataclass(frozen=True, slots=True)
class Table:
    """Text to be laid out; the first *labels* columns are set to the left."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    labels: int = 1
    flagged: frozenset[int] = field(default_factory=frozenset)


def page(template: str, drawn: Mapping[str, str], **values: Any) -> str:
    """Return a template's HTML with its figures, style and scripts in it: it fetches nothing."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("pemand_abm"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["value_words"] = transcript.value_words
    environment.filters["outcome_words"] = transcript.outcome_words
    environment.filters["as_data"] = _as_data
    style, script = (
        resources.files("pemand_abm").joinpath("templates", name).read_text(encoding="utf-8")
        for name in ("report.css", "page.js")
    )
    return environment.get_template(template).render(
        css=Markup(style),
        plotly=Markup(f"{figures.script()}\n{script}"),
        figures={name: Markup(figure) for name, figure in drawn.items()},
        **values,
    )


def _as_data(held: Any) -> Any:
    """Return JSON that may stand within a script element."""
    from markupsafe import Markup

    return Markup(json.dumps(held, ensure_ascii=False).replace("<", "\\u003c"))


def number(value: float, digits: int = 0, sign: bool = False) -> str:
    """Return a number as a table shows it.

    >>> number(1234.5, 1), number(2.0, 0, sign=True), number(-0.001, 2), number(float("nan"))
    ('1,234.5', '+2', '0.00', 'none')
    """
    if math.isnan(value):
        return "none"
    rounded = round(value, digits) or 0.0
    return f"{rounded:{'+' if sign and rounded else ''},.{digits}f}"


def zone_facts(zones: GeoDataFrame, columns: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Return what the list of zones below a map tells of each: title, unit and value, as text."""
    held = {m: words for m, words in columns.items() if m in zones}
    told: Iterable[tuple[Any, ...]] = zip(
        zones.index, zones["district"], *(_numbers(zones[m]) for m in held), strict=True
    )
    return {
        "titles": [f"{title} ({unit})" for title, unit in held.values()],
        "zones": [
            {"zone": str(zone), "district": str(district), "values": [_short(v) for v in values]}
            for zone, district, *values in told
        ],
    }


def _numbers(column: pd.Series) -> pd.Series:
    return column.astype("float64") if pd.api.types.is_numeric_dtype(column) else column


def _short(value: float | str) -> str:
    if isinstance(value, str):
        return value
    whole = math.isnan(value) or value == round(value) or abs(value) >= 100
    return number(value, 0 if whole else 2)
