"""The figures of the report: a map, bars and a histogram, as HTML that fetches nothing.

This is the only module that imports plotly.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pemand_abm.geopackage import COLOURS
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
MOST_TRIPS = 20
MOST_FLOWS = 60
# The colour of zones without a value.
EMPTY = "#e6e6e6"


def figures(
    zones: GeoDataFrame, demand: pd.DataFrame, decisions: pd.DataFrame, flows: pd.DataFrame
) -> dict[str, str]:
    """Return the figures of the report as HTML by name; they need `script` in the same page."""
    drawn = {
        "map": zone_map(zones),
        "purposes": purpose_bars(demand),
        "distribution": trip_histogram(decisions),
        "flows": flow_map(zones, flows),
    }
    return {name: as_html(figure, name) for name, figure in drawn.items()}


def script() -> str:
    """Return plotly's JavaScript, so that a page needs no network."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def as_html(figure: Figure, name: str) -> str:
    """Return a figure as a part of a page that has `script`."""
    # Only buttons that act on the page itself: plotly's defaults hold one that would send the
    # figure to a server.
    buttons = (
        [["zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]] if name in ("map", "flows") else []
    )
    config = {
        "displaylogo": False,
        "responsive": True,
        "displayModeBar": bool(buttons),
        "modeBarButtons": buttons,
    }
    return figure.to_html(
        full_html=False, include_plotlyjs=False, div_id=f"figure-{name}", config=config
    )


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


def zone_map(zones: GeoDataFrame, measures: Mapping[str, tuple[str, str]] = MEASURES) -> Figure:
    """Return a map of filled polygons with a button for each measure; no tiles are fetched."""
    import plotly.graph_objects as go

    looks = {m: _look(zones, m, *words) for m, words in measures.items() if m in zones}
    look = looks[next(iter(looks))]
    line = {"color": "white", "width": 0.8}
    outlines = zip(_outlines(zones), look["fillcolor"], look["text"], strict=False)
    figure = go.Figure(
        [
            go.Scatter(
                x=x,
                y=y,
                mode="lines",
                fill="toself",
                line=line,
                hoveron="fills",
                fillcolor=colour,
                text=text,
            )
            for (x, y), colour, text in outlines
        ]
    )
    figure.update_traces(hoverinfo="text")
    # Polygons have no colour bar of their own: a trace without points carries it.
    figure.add_scatter(x=[None], y=[None], mode="markers", marker=look["marker"][-1])
    buttons = [
        {"label": measures[m][0], "method": "restyle", "args": [look]} for m, look in looks.items()
    ]
    menu = {"type": "buttons", "direction": "right", "buttons": buttons, "x": 0, "xanchor": "left"}
    menu |= {"y": 1.02, "yanchor": "bottom", "bgcolor": "white", "bordercolor": "#b9c2cc"}
    return _as_map(figure, zones, 640, updatemenus=[menu]).update_layout(margin={"t": 56})


def _as_map(figure: Figure, zones: GeoDataFrame, height: int, **more: Any) -> Figure:
    """Give a figure in degrees the proportions of a map, without axes."""
    hidden = {"visible": False, "showgrid": False, "zeroline": False}
    return figure.update_layout(
        _layout(height, showlegend=False, dragmode="pan", **more),
        xaxis=hidden,
        yaxis={**hidden, "scaleanchor": "x", "scaleratio": _stretch(zones)},
    )


def flow_map(zones: GeoDataFrame, flows: pd.DataFrame) -> Figure:
    """Return a map of the largest flows of moves between two zones, as lines by their width.

    *flows*: `from_zone`, `to_zone`, `moves`, most first. A flow leaves the middle of its zone to
    the right of the straight line, so that the two ways between a pair lie side by side.
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
    most = float(shown["moves"].max()) if len(shown) else 1.0
    lines = []
    for start, end, moves in shown.itertuples(index=False):
        (x0, y0), (x1, y1) = at[str(start)], at[str(end)]
        bend = ((x0 + x1) / 2 + 0.12 * (y1 - y0), (y0 + y1) / 2 - 0.12 * (x1 - x0))
        told = f"{html.escape(str(start))} to {html.escape(str(end))}: {moves:,} moves"
        lines.append(
            go.Scatter(
                x=[x0, bend[0], x1],
                y=[y0, bend[1], y1],
                mode="lines",
                line={
                    "color": "rgba(37, 90, 125, 0.55)",
                    "width": 0.8 + 7 * moves / most,
                    "shape": "spline",
                },
                text=[told] * 3,
            )
        )
    figure = go.Figure([*shapes, *lines])
    figure.update_traces(hoverinfo="text")
    return _as_map(figure, zones, 560)


def _look(zones: GeoDataFrame, measure: str, title: str, unit: str) -> dict[str, list[Any]]:
    """Return what a measure sets on the traces: each zone's, then the colour bar's."""
    from plotly.colors import sample_colorscale

    scale = [[i / (len(COLOURS) - 1), c] for i, c in enumerate(COLOURS)]
    values = zones[measure].astype("float64").to_numpy()
    known = values[np.isfinite(values)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    high = high if high > low else low + 1.0
    colours = [
        sample_colorscale(scale, float((v - low) / (high - low)))[0] if math.isfinite(v) else EMPTY
        for v in values
    ]
    texts = [
        _hover(z, d, v, title, unit)
        for z, d, v in zip(zones.index, zones["district"], values, strict=True)
    ]
    small = f"<span style='font-size:11px'>{unit.replace(' a household', '<br>a household')}</span>"
    bar = {"title": {"text": f"{title}<br>{small}"}, "thickness": 14, "len": 0.8, "outlinewidth": 0}
    marker = {"colorscale": scale, "cmin": float(low), "cmax": float(high), "color": [float(low)]}
    marker |= {"showscale": True, "colorbar": bar}
    return {
        "fillcolor": [*colours, "rgba(0,0,0,0)"],
        "text": [*texts, ""],
        "marker": [{}] * len(colours) + [marker],
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
