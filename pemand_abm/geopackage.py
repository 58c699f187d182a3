"""The map of a run: a GeoPackage that QGIS opens already coloured.

The style is a graduated renderer in QGIS's own XML (QML), stored in the table `layer_styles`, from
which QGIS takes a layer's default.
"""

from __future__ import annotations

import math
import sqlite3
import xml.etree.ElementTree as ET
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pemand_abm.errors import TableError, listed
from pemand_abm.tables import writing

if TYPE_CHECKING:
    from geopandas import GeoDataFrame

LAYER = "zones"
# A run's files are compared by content, so the file carries one date for ever.
DATE = "2000-01-01T00:00:00.000Z"
# Viridis reversed and lightened: readable in grey and by the colour-blind.
COLOURS = ("#fde9a9", "#b5d99c", "#63b795", "#2f8a8c", "#255a7d", "#2b2e63")
CLASSES = 5
# Less, no change, more: orange and blue, which the colour-blind tell apart.
DIVERGING = ("#a6521b", "#d18f52", "#ecc9a3", "#f2f2f2", "#b9d9df", "#6aa9bf", "#2a6f97")

STYLES_TABLE = """
CREATE TABLE layer_styles (
    id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
    f_table_catalog TEXT(256), f_table_schema TEXT(256), f_table_name TEXT(256),
    f_geometry_column TEXT(256), styleName TEXT(30), styleQML TEXT, styleSLD TEXT,
    useAsDefault BOOLEAN, description TEXT, owner TEXT(30), ui TEXT(30),
    update_time DATETIME DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ','now')))
"""


def write_zones(
    path: Path,
    polygons: GeoDataFrame,
    table: pd.DataFrame,
    style_column: str,
    diverging: bool = False,
) -> None:
    """Write one multipolygon a zone with the columns of *table*, and a style by *style_column*.

    Parameters
    ----------
    path : Path
        A `.gpkg` file; its layer is `zones`.
    polygons : GeoDataFrame
        Indexed by `zone_id`, with a coordinate reference system.
    table : DataFrame
        Indexed by `zone_id`, the same zones; the order is the table's.
    style_column : str
        A column of numbers in *table*.
    diverging : bool
        Colour less and more than 0 apart, for differences.

    Raises
    ------
    TableError
        No coordinate reference system; a zone without polygon; a column named `fid`; a style column
        that is not there.
    """
    problems = _problems(polygons, table, style_column)
    if problems:
        raise TableError(listed(problems, str(path)))
    shapes = polygons.geometry.loc[table.index]
    layer = shapes.to_frame("geometry").assign(**{c: table[c] for c in table})
    layer.index.name = "zone_id"
    with writing(path) as temporary:
        # GDAL adds to an empty file that it takes for a broken database.
        temporary.unlink()
        layer.reset_index().to_file(
            temporary,
            layer=LAYER,
            driver="GPKG",
            engine="pyogrio",
            geometry_type="MultiPolygon",
            promote_to_multi=True,
        )
        styled = diverging_style if diverging else graduated_style
        _add_style(temporary, styled(table[style_column], style_column), style_column)


def read_zones(path: Path) -> GeoDataFrame:
    """Return the layer `zones` indexed by `zone_id`."""
    import pyogrio

    return pyogrio.read_dataframe(path, layer=LAYER).set_index("zone_id")


def _problems(polygons: GeoDataFrame, table: pd.DataFrame, style_column: str) -> list[str]:
    problems = []
    if polygons.crs is None:
        problems.append("the polygons name no coordinate reference system")
    lacking = table.index[~table.index.isin(polygons.index)]
    if len(lacking):
        problems.append(f"{len(lacking)} zones have no polygon: {', '.join(map(str, lacking[:3]))}")
    reserved = [str(c) for c in table if str(c).lower() in ("fid", "geometry", "geom", "zone_id")]
    if reserved:
        problems.append(
            f"columns {', '.join(reserved)}: the name belongs to the file itself, give another"
        )
    if style_column not in table:
        problems.append(
            f"column {style_column} for the style is not in the table, which has "
            f"{', '.join(map(str, table))}"
        )
    return problems


def class_breaks(values: pd.Series, classes: int = CLASSES) -> list[float]:
    """Return ascending bounds of at most *classes* classes that hold every value.

    The classes have about equally many zones; their bounds are rounded.
    Values that are not finite have no class. One distinct value gives one class.

    >>> class_breaks(pd.Series([0.0, 0.0, 13.2, 41.7, 77.1, 250.4]), 3)
    [0.0, 9.0, 53.0, 251.0]
    """
    held = np.asarray(values, dtype="float64")
    held = held[np.isfinite(held)]
    if len(held) == 0:
        return [0.0, 1.0]
    low, high = float(held.min()), float(held.max())
    digits = 2 - math.floor(math.log10(max(high - low, abs(high), 1e-12)))
    inner = [round(float(q), digits) for q in np.quantile(held, np.arange(1, classes) / classes)]
    # The outer bounds are rounded outwards, so that no zone falls out of the map.
    step = 10.0**digits
    bounds = [math.floor(low * step) / step, *inner, math.ceil(high * step) / step]
    breaks = sorted({*bounds})
    breaks[0], breaks[-1] = min(breaks[0], low), max(breaks[-1], high)
    return breaks if len(breaks) > 1 else [breaks[0], breaks[0] + 1.0]


def diverging_breaks(values: pd.Series) -> list[float]:
    """Return ascending bounds on both sides of 0, the same on each, with a narrow class around 0.

    The sides have up to three classes of about equally many zones; only a difference of 0 lies in
    the middle class.

    >>> diverging_breaks(pd.Series([-6.0, 0.0, 1.0, 2.0]))
    [-6.0, -3.3, -1.7, -0.5, 0.5, 1.7, 3.3, 6.0]
    """
    held = np.abs(np.asarray(values, dtype="float64"))
    held = held[np.isfinite(held) & (held > 0)]
    if len(held) == 0:
        return [-0.5, 0.5]
    least, most = float(held.min()) / 2, float(held.max())
    digits = 1 - math.floor(math.log10(most))
    inner = {round(float(q), digits) for q in np.quantile(held, [1 / 3, 2 / 3])}
    side = [least, *sorted(q for q in inner if least < q < most), most]
    return [*(-b for b in reversed(side)), *side]


def diverging_style(values: pd.Series, column: str) -> str:
    """Return the QML of a fill of *column* that parts less than 0, 0, and more."""
    breaks = diverging_breaks(values)
    side = len(breaks) // 2 - 1
    middle = len(DIVERGING) // 2
    places = [round(i * 3 / max(side, 1)) for i in range(1, side + 1)]
    below = [DIVERGING[middle - place] for place in reversed(places)]
    colours = [*below, DIVERGING[middle], *(DIVERGING[middle + place] for place in places)]
    labels = [f"{_number(low)} to {_number(high)}" for low, high in pairwise(breaks)]
    labels[side] = "no change"
    return _style(column, breaks, colours, labels)


def graduated_style(values: pd.Series, column: str) -> str:
    """Return the QML of a graduated fill of *column*, from light to dark."""
    breaks = class_breaks(values)
    count = len(breaks) - 1
    colours = [COLOURS[round(i * (len(COLOURS) - 1) / max(count - 1, 1))] for i in range(count)]
    labels = [f"{_number(low)} to {_number(high)}" for low, high in pairwise(breaks)]
    return _style(column, breaks, colours, labels)


def _style(column: str, breaks: list[float], colours: list[str], labels: list[str]) -> str:
    root = ET.Element("qgis", version="3.22.0-Bialowieza", styleCategories="Symbology")
    renderer = ET.SubElement(
        root,
        "renderer-v2",
        {
            "type": "graduatedSymbol",
            "attr": column,
            "graduatedMethod": "GraduatedColor",
            "symbollevels": "0",
            "enableorderby": "0",
            "forceraster": "0",
        },
    )
    ranges = ET.SubElement(renderer, "ranges")
    symbols = ET.SubElement(renderer, "symbols")
    for i, (low, high) in enumerate(pairwise(breaks)):
        ET.SubElement(
            ranges,
            "range",
            lower=repr(low),
            upper=repr(high),
            symbol=str(i),
            label=labels[i],
            render="true",
        )
        _fill(symbols, str(i), colours[i])
    ET.SubElement(renderer, "classificationMethod", id="Custom")
    return "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n" + ET.tostring(
        root, encoding="unicode"
    )


def _fill(symbols: ET.Element, name: str, colour: str) -> None:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    options = {
        "color": f"{red},{green},{blue},230",
        "outline_color": "90,90,90,255",
        "outline_style": "solid",
        "outline_width": "0.2",
        "outline_width_unit": "MM",
        "style": "solid",
    }
    symbol = ET.SubElement(
        symbols, "symbol", type="fill", name=name, alpha="1", clip_to_extent="1", force_rhr="0"
    )
    layer = ET.SubElement(
        symbol, "layer", {"class": "SimpleFill", "pass": "0", "locked": "0", "enabled": "1"}
    )
    pairs = ET.SubElement(layer, "Option", type="Map")
    for key, value in options.items():
        ET.SubElement(pairs, "Option", name=key, value=value, type="QString")
    # QGIS before 3.20 reads `prop` and passes over `Option`.
    for key, value in options.items():
        ET.SubElement(layer, "prop", k=key, v=value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.6g}"


def _add_style(path: Path, qml: str, column: str) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        (geometry,) = file.execute(
            "SELECT column_name FROM gpkg_geometry_columns WHERE table_name = ?", (LAYER,)
        ).fetchone()
        file.execute(STYLES_TABLE)
        file.execute(
            "INSERT INTO layer_styles (f_table_catalog, f_table_schema, f_table_name, "
            "f_geometry_column, styleName, styleQML,"
            " styleSLD, useAsDefault, description, owner, update_time) VALUES ('', '', ?, ?, ?, "
            "?, '', 1, ?, '', ?)",
            (LAYER, geometry, column[:30], qml, f"zones by {column}", DATE),
        )
        file.execute(
            "INSERT INTO gpkg_contents (table_name, data_type, identifier, description, "
            "last_change, srs_id)"
            " VALUES ('layer_styles', 'attributes', 'layer_styles', '', ?, 0)",
            (DATE,),
        )
        file.execute("UPDATE gpkg_contents SET last_change = ?", (DATE,))
