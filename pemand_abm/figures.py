"""The figures of the pages: maps, bars and a histogram, as HTML that fetches nothing.

This is the only module that imports plotly.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pemand_abm.geopackage import COLOURS, DIVERGING
from pemand_abm.surrogate import PURPOSES

if TYPE_CHECKING:
    from geopandas import GeoDataFrame
    from plotly.graph_objects import Figure

PURPOSE_WORDS = {
    "hbw": "Home-based work",
    "hbsch": "Home-based school",
    "hbshop": "Home-based shopping",
    "hbsocrec": "Home-based social and recreation",
    "hbo": "Home-based other",
    "nhb": "Non-home-based",
}
PURPOSE_COLOURS = {
    "hbw": "#255a7d",
    "hbsch": "#e0a83c",
    "hbshop": "#c0504d",
    "hbsocrec": "#5d4a8a",
    "hbo": "#63b795",
    "nhb": "#8c8fa3",
}
MEASURES = {
    "trips_per_household": ("Trips per household", "person trips of a weekday a household"),
    "TRIPS_P": ("Productions", "person trips of a weekday"),
    "TRIPS_A": ("Attractions", "person trips of a weekday"),
    "moves_out": ("Moves out", "completed moves of the run"),
    "vacant_dwellings": ("Vacant dwellings", "dwellings at the end of the run"),
}
# What the list of zones tells: the measures of the map and who lives there.
ZONE_WORDS = {
    "households": ("Households", "on the travel day"),
    "persons": ("Persons", "in those households"),
    **MEASURES,
    "moves_in": ("Moves in", "completed moves of the run"),
    "dwellings": ("Dwellings", "occupied and vacant"),
}
# Hatched where a zone's trips are synthetic: what else the map shows is not estimated so.
HATCHED = ("trips_per_household", "TRIPS_P")
SYNTHETIC_WORDS = "synthetic: no negotiations of its own enter"
# Its colour is left to plotly, which takes light lines on dark zones and dark ones on light.
HATCH = {"fillmode": "overlay", "fgopacity": 0.6, "size": 8, "solidity": 0.2}
# Figures that a narrow window scrolls.
WIDE = ("purposes",)
MOST_TRIPS = 20
MOST_FLOWS = 60
# The colour of zones without a value.
EMPTY = "#e6e6e6"


def figures(
    zones: GeoDataFrame,
    demand: pd.DataFrame,
    decisions: pd.DataFrame,
    flows: pd.DataFrame,
    lines: pd.DataFrame | None = None,
) -> dict[str, str]:
    """Return the figures of the report as HTML by name; they need `script` in the same page.

    *flows* are moves, *lines* trips between two zones, as `flow_map` takes them.
    """
    drawn = {
        "map": as_html(zone_map(zones), "map", map_words(zones, MEASURES)),
        "purposes": as_html(
            purpose_bars(demand),
            "purposes",
            "Bars of productions and attractions by district, stacked by purpose; the tables "
            "below have the numbers.",
        ),
        "distribution": as_html(
            trip_histogram(decisions),
            "distribution",
            "Histogram of households by their person trips of the day; the sentence above has the "
            "mean and the share without a trip.",
        ),
        "flows": as_html(flow_map(zones, flows), "flows", flow_words(flows, "moves")),
    }
    if lines is not None and len(lines):
        drawn["lines"] = as_html(
            flow_map(zones, lines, "trips", "192, 80, 77"), "lines", flow_words(lines, "trips")
        )
    return drawn


def script() -> str:
    """Return plotly's JavaScript, so that a page needs no network."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def as_html(figure: Figure, name: str, words: str) -> str:
    """Return a figure as a part of a page that has `script`; *words* stand in for the drawing.

    A figure of several measures gets a list to choose from, which the keyboard reaches.
    """
    # Only buttons that act on the page itself: plotly's defaults hold one that would send the
    # figure to a server.
    buttons = (
        [["zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]]
        if name in ("map", "flows", "lines")
        else []
    )
    config = {
        "displaylogo": False,
        "responsive": True,
        "displayModeBar": bool(buttons),
        "modeBarButtons": buttons,
    }
    drawn = figure.to_html(
        full_html=False, include_plotlyjs=False, div_id=f"figure-{name}", config=config
    )
    told = html.escape(words)
    choices = ((figure.layout.meta or {}).get("looks") or {}).items()
    options = "".join(f"<option>{html.escape(choice)}</option>" for choice, _ in choices)
    chooser = (
        f'<label class="choose">Show <select data-figure="figure-{name}">{options}</select></label>'
        if len(choices) > 1
        else ""
    )
    shown = f'<div class="figure" role="img" aria-label="{told}">{drawn}</div>'
    # Bars with long names need room: a narrow window scrolls them.
    return f'<div class="wide" tabindex="0">{shown}</div>' if name in WIDE else chooser + shown


def _layout(height: int, **more: Any) -> dict[str, Any]:
    return {
        "height": height,
        "margin": {"l": 10, "r": 10, "t": 10, "b": 10},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "font": {
            "family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
            "size": 13,
            "color": "#26303a",
        },
        **more,
    }


def zone_map(
    zones: GeoDataFrame,
    measures: Mapping[str, tuple[str, str]] = MEASURES,
    diverging: bool = False,
) -> Figure:
    """Return a map of filled polygons, with what `as_html` needs to show another measure.

    No tiles are fetched. *diverging*: less and more than 0 in two colours, 0 in the middle.
    """
    import plotly.graph_objects as go

    looks = {
        words[0]: _look(zones, m, *words, diverging=diverging)
        for m, words in measures.items()
        if m in zones
    }
    which = synthetic(zones)
    if which.any():
        looks = {
            words[0]: _hatched(looks[words[0]], which, m in HATCHED)
            for m, words in measures.items()
            if m in zones
        }
    look = looks[next(iter(looks))]
    line = {"color": "#8c959e" if diverging else "white", "width": 0.8}
    outlines = zip(_outlines(zones), zones.index, look["fillcolor"], look["text"], strict=False)
    figure = go.Figure(
        [
            go.Scatter(
                x=x,
                y=y,
                mode="lines",
                fill="toself",
                line=line,
                hoveron="fills",
                name=html.escape(str(zone)),
                fillcolor=colour,
                text=text,
            )
            for (x, y), zone, colour, text in outlines
        ]
    )
    figure.update_traces(hoverinfo="text")
    # Polygons have no colour bar of their own: a trace without points carries it.
    figure.add_scatter(x=[None], y=[None], mode="markers", marker=look["marker"][len(zones)])
    figure = _as_map(figure, zones, 600, meta={"looks": looks})
    return _with_hatching(figure, look) if which.any() else figure


def synthetic(zones: GeoDataFrame) -> pd.Series:
    """Return which zones take their trips from their district's estimate alone (bool).

    None does where no negotiation entered the totals; where nobody lives nothing is estimated.
    """
    if "trips_method" not in zones:
        return pd.Series(False, index=zones.index)
    return (zones["trips_method"] == "synthetic") & (zones["households"] > 0)


def _hatched(look: dict[str, list[Any]], which: pd.Series, shown: bool) -> dict[str, list[Any]]:
    """Return a measure's look with the zones *which* hatched, and a last trace for the legend."""
    hatches = ["/" if hatch and shown else "" for hatch in which]
    texts = [
        f"{t}<br>{SYNTHETIC_WORDS}" if h else t for t, h in zip(look["text"], hatches, strict=False)
    ]
    return {
        "fillcolor": [*look["fillcolor"], EMPTY],
        "text": [*texts, "", ""],
        "marker": [*look["marker"], {}],
        "fillpattern.shape": [*hatches, "", "/"],
        "showlegend": [*[False] * len(hatches), False, shown],
    }


def _with_hatching(figure: Figure, look: dict[str, list[Any]]) -> Figure:
    """Add the legend of hatched zones below a map, and hatch its zones as *look* says."""
    figure.add_scatter(
        x=[None],
        y=[None],
        mode="lines",
        fill="toself",
        fillcolor=look["fillcolor"][-1],
        line={"color": "#8c959e", "width": 0.8},
        name=SYNTHETIC_WORDS,
        hoverinfo="skip",
    )
    for trace, shape, listed in zip(
        figure.data, look["fillpattern.shape"], look["showlegend"], strict=True
    ):
        trace.update(fillpattern={**HATCH, "shape": shape}, showlegend=listed)
    legend = {"orientation": "h", "x": 0, "y": -0.02, "yanchor": "top"}
    return figure.update_layout(
        showlegend=True, legend={**legend, "itemclick": False, "itemdoubleclick": False}
    )


def map_words(zones: GeoDataFrame, measures: Mapping[str, tuple[str, str]]) -> str:
    """Return what a map shows first, for who does not see it: the range, and where its ends are."""
    measure = next(m for m in measures if m in zones)
    title, unit = measures[measure]
    values = zones[measure].astype("float64").dropna()
    if values.empty:
        return f"Map of {len(zones)} zones by {title.lower()}; no zone has a value."
    hatched = int(synthetic(zones).sum()) if measure in HATCHED else 0
    told = f" {hatched} zones are hatched, {SYNTHETIC_WORDS}." if hatched else ""
    return (
        f"Map of {len(zones)} zones by {title.lower()} ({unit}): from {values.min():,.2f} in zone "
        f"{values.idxmin()} to {values.max():,.2f} in zone {values.idxmax()}.{told} The list of "
        "zones below has every number."
    )


def flow_words(flows: pd.DataFrame, what: str) -> str:
    """Return what a map of flows shows, for who does not see it."""
    if flows.empty:
        return f"Map of the zones; there are no {what} between two zones."
    start, end, most = flows.iloc[0, :3]
    return (
        f"Map of the {min(len(flows), MOST_FLOWS)} largest flows of {what} between two zones, "
        f"wider lines for more; the largest is between {start} and {end}: {most:,.0f} {what}."
    )


def _as_map(figure: Figure, zones: GeoDataFrame, height: int, **more: Any) -> Figure:
    """Give a figure in degrees the proportions of a map, without axes."""
    hidden = {"visible": False, "showgrid": False, "zeroline": False}
    return figure.update_layout(
        _layout(height, showlegend=False, dragmode="pan", **more),
        xaxis=hidden,
        yaxis={**hidden, "scaleanchor": "x", "scaleratio": _stretch(zones)},
    )


def flow_map(
    zones: GeoDataFrame, flows: pd.DataFrame, what: str = "moves", colour: str = "37, 90, 125"
) -> Figure:
    """Return a map of the largest flows between two zones, as lines by their width.

    *flows*: `from_zone`, `to_zone` and a number of *what*, most first. A flow leaves the middle of
    its zone to the right of the straight line, so that the two ways of a pair lie side by side.
    """
    import plotly.graph_objects as go

    shapes = [
        go.Scatter(
            x=x,
            y=y,
            mode="lines",
            fill="toself",
            hoveron="fills",
            line={"color": "white", "width": 0.8},
            fillcolor="#dde4ea",
            text=f"Zone {html.escape(str(zone))}",
        )
        for (x, y), zone in zip(_outlines(zones), zones.index, strict=True)
    ]
    places = zones.geometry.representative_point()
    at = {str(z): (p.x, p.y) for z, p in zip(zones.index, places, strict=True)}
    shown = flows.head(MOST_FLOWS)
    most = float(shown.iloc[0, 2]) if len(shown) else 1.0
    lines = []
    for start, end, moves in shown.itertuples(index=False):
        (x0, y0), (x1, y1) = at[str(start)], at[str(end)]
        bend = ((x0 + x1) / 2 + 0.12 * (y1 - y0), (y0 + y1) / 2 - 0.12 * (x1 - x0))
        told = f"{html.escape(str(start))} to {html.escape(str(end))}: {moves:,.0f} {what}"
        lines.append(
            go.Scatter(
                x=[x0, bend[0], x1],
                y=[y0, bend[1], y1],
                mode="lines",
                line={
                    "color": f"rgba({colour}, 0.55)",
                    "width": 0.8 + 7 * moves / most,
                    "shape": "spline",
                },
                text=[told] * 3,
            )
        )
    figure = go.Figure([*shapes, *lines])
    figure.update_traces(hoverinfo="text")
    return _as_map(figure, zones, 560)


def _look(
    zones: GeoDataFrame, measure: str, title: str, unit: str, diverging: bool = False
) -> dict[str, list[Any]]:
    """Return what a measure sets on the traces: each zone's, then the colour bar's."""
    from plotly.colors import sample_colorscale

    colours = DIVERGING if diverging else COLOURS
    scale = [[i / (len(colours) - 1), c] for i, c in enumerate(colours)]
    values = zones[measure].astype("float64").to_numpy()
    known = values[np.isfinite(values)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    if diverging:
        high = max(abs(low), abs(high)) or 1.0
        low = -high
    high = high if high > low else low + 1.0
    filled = [
        sample_colorscale(scale, float((v - low) / (high - low)))[0] if math.isfinite(v) else EMPTY
        for v in values
    ]
    texts = [
        _hover(z, d, v, title, unit)
        for z, d, v in zip(zones.index, zones["district"], values, strict=True)
    ]
    small = f"<span style='font-size:11px'>{unit}</span>"
    bar = {
        "title": {"text": f"{title}<br>{small}", "side": "top"},
        "orientation": "h",
        "thickness": 12,
        "len": 0.6,
        "x": 0,
        "xanchor": "left",
        "y": 1.0,
        "yanchor": "bottom",
        "outlinewidth": 0,
    }
    marker = {"colorscale": scale, "cmin": float(low), "cmax": float(high), "color": [float(low)]}
    marker |= {"showscale": True, "colorbar": bar}
    return {
        "fillcolor": [*filled, "rgba(0,0,0,0)"],
        "text": [*texts, ""],
        "marker": [{}] * len(filled) + [marker],
    }


def _stretch(zones: GeoDataFrame) -> float:
    """Return how much longer a unit of y is than one of x: a degree of longitude is the shorter."""
    if zones.crs is None or not zones.crs.is_geographic:
        return 1.0
    south, north = zones.total_bounds[[1, 3]]
    return 1 / math.cos(math.radians((south + north) / 2))


def _hover(zone: object, district: object, value: float, title: str, unit: str) -> str:
    number = (
        "none"
        if not math.isfinite(value)
        else f"{value:,.{0 if value == round(value) or abs(value) >= 100 else 2}f}"
    )
    # Plotly reads a little HTML in its labels.
    return f"<b>Zone {html.escape(str(zone))}</b>, {html.escape(str(district))}<br>{title}: "
    f"{number}<br>{unit}"


def _outlines(zones: GeoDataFrame) -> list[tuple[list[float | None], list[float | None]]]:
    """Return every zone's rings, with gaps between them and holes wound the other way."""
    import shapely

    west, south, east, north = zones.total_bounds
    shapes = zones.geometry.simplify(max(east - west, north - south) / 3000, preserve_topology=True)
    outlines = []
    for shape in shapely.orient_polygons(shapes.to_numpy()):
        x: list[float | None] = []
        y: list[float | None] = []
        for part in getattr(shape, "geoms", [shape]):
            for ring in (part.exterior, *part.interiors):
                points = np.round(np.asarray(ring.coords), 6)
                x += [*points[:, 0].tolist(), None]
                y += [*points[:, 1].tolist(), None]
        outlines.append((x[:-1], y[:-1]))
    return outlines


def purpose_bars(demand: pd.DataFrame) -> Figure:
    """Return productions and attractions by district, stacked by purpose."""
    import plotly.graph_objects as go

    sums = demand.groupby("district")[[f"{p.upper()}_{e}" for p in PURPOSES for e in "PA"]].sum()
    districts = [html.escape(str(d)) for d in sums.index]
    axis = [[d for d in districts for _ in "PA"], ["productions", "attractions"] * len(districts)]
    figure = go.Figure()
    for p in PURPOSES:
        values = [
            float(v) for pair in sums[[f"{p.upper()}_P", f"{p.upper()}_A"]].to_numpy() for v in pair
        ]
        figure.add_bar(
            y=axis,
            x=values,
            orientation="h",
            name=PURPOSE_WORDS[p],
            marker_color=PURPOSE_COLOURS[p],
            hovertemplate="%{x:,.0f} person trips of a weekday",
        )
    figure.update_layout(
        _layout(
            110 + 62 * len(districts),
            barmode="stack",
            bargap=0.25,
            legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
            xaxis={
                "title": "person trips of an average weekday",
                "gridcolor": "#e6eaee",
                "tickformat": ",~d",
            },
            yaxis={"autorange": "reversed", "automargin": True},
        )
    )
    figure.update_layout(margin={"t": 36})
    return figure


def trip_histogram(decisions: pd.DataFrame) -> Figure:
    """Return the distribution of households over trips of the day, 20 and more in one bar."""
    import plotly.graph_objects as go

    trips = decisions["value"][decisions["kind"] == "trips"].clip(upper=MOST_TRIPS)
    share = 100 * trips.round().value_counts(normalize=True).reindex(
        range(MOST_TRIPS + 1), fill_value=0.0
    )
    labels = [str(i) for i in range(MOST_TRIPS)] + [f"{MOST_TRIPS}+"]
    colours = ["#e0a83c"] + ["#255a7d"] * MOST_TRIPS
    figure = go.Figure(
        go.Bar(
            x=labels,
            y=share.tolist(),
            marker_color=colours,
            hovertemplate="%{x} trips: %{y:.1f} % of households<extra></extra>",
        )
    )
    figure.update_layout(
        _layout(
            300,
            bargap=0.15,
            xaxis={"title": "person trips of the household on the day", "type": "category"},
            yaxis={"title": "% of households", "gridcolor": "#e6eaee"},
        )
    )
    return figure


def change_intervals(rows: pd.DataFrame, unit: str) -> Figure:
    """Return changes with their 95 % intervals, a row a group, under what they are groups of.

    *rows*: `kind`, `group`, `percent`, `percent_low`, `percent_high`, in the order of the page.
    """
    import plotly.graph_objects as go

    places: list[int] = []
    ticks: list[str] = []
    for kind, part in rows.groupby("kind", sort=False):
        ticks.append(f"<b>{html.escape(str(kind))}</b>")
        places += range(len(ticks), len(ticks) + len(part))
        ticks += [html.escape(str(group)) for group in part["group"]]
    figure = go.Figure(
        go.Scatter(
            x=rows["percent"].tolist(),
            y=places,
            error_x={
                "array": (rows["percent_high"] - rows["percent"]).tolist(),
                "arrayminus": (rows["percent"] - rows["percent_low"]).tolist(),
                "color": "#255a7d",
                "width": 3,
            },
            mode="markers",
            marker={"color": "#255a7d", "size": 8},
            hovertemplate="%{x:+.2f} %<extra></extra>",
        )
    )
    figure.update_layout(
        _layout(
            90 + 20 * len(ticks),
            xaxis={
                "title": html.escape(unit),
                "gridcolor": "#e6eaee",
                "zeroline": True,
                "zerolinecolor": "#26303a",
            },
            yaxis={
                "tickvals": list(range(len(ticks))),
                "ticktext": ticks,
                "range": [len(ticks) - 0.4, -0.6],
                "showgrid": False,
                "zeroline": False,
                "automargin": True,
            },
        )
    )
    return figure


def _diagonal(top: float, name: str) -> Figure:
    """Return a figure with the line on which two values are the same, from 0 to *top*."""
    import plotly.graph_objects as go

    line = {"color": "#b9c2cc", "dash": "dot"}
    ends = [0, top]
    return go.Figure(
        go.Scatter(x=ends, y=ends, mode="lines", name=name, line=line, hoverinfo="skip")
    )


def fit_scatter(fit: pd.DataFrame) -> Figure:
    """Return what was found over what was wanted, a point a cell, a colour a geography."""
    top = float(fit[["control", "result"]].max().max()) or 1.0
    figure = _diagonal(top, "met")
    for place, (geography, part) in enumerate(fit.groupby("geography", sort=False)):
        told = [
            f"{html.escape(str(z))}, {html.escape(str(t))}"
            for z, t in zip(part["zone"], part["target"], strict=True)
        ]
        figure.add_scattergl(
            x=part["control"].tolist(),
            y=part["result"].tolist(),
            mode="markers",
            name=html.escape(str(geography)),
            marker={"color": LINES[place % len(LINES)], "size": 5, "opacity": 0.6},
            text=told,
            hovertemplate="%{text}<br>wanted %{x:,.0f}, found %{y:,.0f}<extra></extra>",
        )
    axis = {"gridcolor": "#e6eaee", "tickformat": ",~d", "rangemode": "tozero"}
    return figure.update_layout(
        _layout(420, xaxis={**axis, "title": "wanted"}, yaxis={**axis, "title": "found"})
    ).update_layout(margin={"l": 60, "b": 50})


def expansion_histogram(factors: pd.Series) -> Figure:
    """Return the distribution of seed households over copies for each unit of weight."""
    import plotly.graph_objects as go

    known = factors.dropna()
    top = float(known.quantile(0.995)) or 1.0
    edges = np.linspace(0, top, 31)
    count, _ = np.histogram(known.clip(upper=top), edges)
    figure = go.Figure(
        go.Bar(
            x=((edges[:-1] + edges[1:]) / 2).round(4).tolist(),
            y=count.tolist(),
            marker_color="#255a7d",
            hovertemplate="about %{x:.2f}: %{y:,} seed households<extra></extra>",
        )
    )
    return figure.update_layout(
        _layout(
            280,
            bargap=0.05,
            xaxis={"title": "copies for each unit of the seed's weight (the last bar: and more)"},
            yaxis={"title": "seed households", "gridcolor": "#e6eaee"},
        )
    ).update_layout(margin={"l": 60, "b": 50})


def residual_map(zones: GeoDataFrame) -> Figure:
    """Return a map of the column `off`, %: what a zone's controls are not met by."""
    return zone_map(zones, {"off": ("Not met", "% of the zone's controls")})


LINES = ("#255a7d", "#c0504d", "#63b795", "#e0a83c", "#8c8fa3", "#5d4a8a", "#7a5c3e", "#2f8f9d")
MARKS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon")


def calibration_plot(tables: Mapping[str, pd.DataFrame], unit: str) -> Figure:
    """Return what was observed over what was predicted, a line a method, and the diagonal.

    *tables* have `predicted`, `observed` and its standard error `se`, a row a group of households.
    """
    ends = [v for t in tables.values() for v in (*t["predicted"], *t["observed"])]
    figure = _diagonal(max(ends, default=1.0), "as predicted")
    for place, (name, table) in enumerate(tables.items()):
        colour, mark = LINES[place % len(LINES)], MARKS[place % len(MARKS)]
        figure.add_scatter(
            x=table["predicted"].tolist(),
            y=table["observed"].tolist(),
            error_y={"array": (1.96 * table["se"].fillna(0)).tolist(), "color": colour, "width": 3},
            mode="lines+markers",
            name=html.escape(name),
            line={"color": colour},
            marker={"symbol": mark, "size": 8},
            hovertemplate="predicted %{x:.2f}, observed %{y:.2f}",
        )
    figure.update_layout(
        _layout(
            460,
            legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
            xaxis={"title": f"predicted, {html.escape(unit)}", "gridcolor": "#e6eaee"},
            yaxis={"title": f"observed, {html.escape(unit)}", "gridcolor": "#e6eaee"},
        )
    )
    return figure.update_layout(margin={"t": 48})
