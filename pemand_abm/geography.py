"""Polygons of zones, read from any file that geopandas reads.

This is the only module that imports geopandas.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pemand_abm import keys
from pemand_abm.errors import TableError, listed
from pemand_abm.ids import as_ids, some

if TYPE_CHECKING:
    from geopandas import GeoDataFrame


def read_polygons(path: Path, id_column: str, zones: pd.Index | None = None) -> GeoDataFrame:
    """Read one MultiPolygon a zone, in longitude and latitude (EPSG:4326), in ascending order.

    Parameters
    ----------
    path : Path
        GeoJSON, GeoPackage, shapefile. It must name its coordinate reference system, except
        GeoJSON, which is longitude and latitude where it names none.
    id_column : str
        The property that holds the zone's id.
    zones : pandas.Index, optional
        The zones wanted, in this order; each must have a polygon.

    Returns
    -------
    GeoDataFrame
        Indexed by `zone_id` (int64 where all ids are whole numbers, else text), with the file's
        other properties.

    Raises
    ------
    TableError
        An unreadable file; no such property; ids lacking or twice; geometry that is null, empty
        or no polygon.
    """
    import geopandas
    from pyogrio.errors import DataSourceError
    from shapely.geometry import MultiPolygon

    path = Path(path)
    try:
        table = geopandas.read_file(path)
    except (DataSourceError, OSError, UnicodeDecodeError) as fault:
        raise TableError(f"{path}: cannot be read as polygons ({fault})") from fault
    if id_column not in table or "geometry" not in table:
        held = ", ".join(c for c in table.columns if c != "geometry") or "none"
        raise TableError(
            f"{path}: features have no property {id_column!r} with the zone's id; they have {held}"
        )
    if table.crs is None:
        raise TableError(
            f"{path}: names no coordinate reference system; for a shapefile, add its .prj file"
        )
    table["zone_id"] = as_ids(table[id_column])
    problems = _problems(table, id_column)
    if problems:
        raise TableError(listed(problems, str(path)))
    if id_column != "zone_id":
        table = table.drop(columns=id_column)
    table = table.set_index("zone_id").sort_index().to_crs("EPSG:4326")
    west, south, east, north = table.total_bounds
    if not (-180 <= west <= east <= 180 and -90 <= south <= north <= 90):
        raise TableError(
            f"{path}: coordinates from ({west:g}, {south:g}) to ({east:g}, {north:g}) are no "
            "longitudes and latitudes; write the file's coordinate reference system into it"
        )
    table["geometry"] = [
        MultiPolygon([g]) if g.geom_type == "Polygon" else g for g in table.geometry
    ]
    if zones is None:
        return table
    lacking = zones[~zones.astype(str).isin(table.index.astype(str))]
    if len(lacking):
        raise TableError(f"{path}: {len(lacking)} zones have no polygon: {some(lacking)}")
    return table.set_axis(table.index.astype(zones.dtype)).loc[zones].rename_axis("zone_id")


def points_in(
    polygons: GeoDataFrame, zones: pd.Series, seed: int, tries: int = 200
) -> pd.DataFrame:
    """Return a random point of its zone's polygon for each household.

    Parameters
    ----------
    polygons : GeoDataFrame
        Indexed by zone, in longitude and latitude.
    zones : Series
        Each household's zone, indexed by its id, by which the draw is keyed.

    Returns
    -------
    DataFrame
        ``x`` and ``y`` (degrees), each place of the polygon as likely as another: nothing is known
        of where in a zone homes are. After *tries* draws outside, which a polygon that fills hardly
        any of its bounds may need, the point is one that shapely places within.
    """
    import shapely

    found = pd.DataFrame({"x": np.nan, "y": np.nan}, index=zones.index)
    for zone, ids in zones.groupby(zones, sort=True).groups.items():
        shape = polygons.geometry.loc[zone]
        west, south, east, north = shape.bounds
        shapely.prepare(shape)
        open_ids = ids
        for attempt in range(tries):
            x = west + (east - west) * keys.uniforms(open_ids, seed, "point", "x", attempt)
            y = south + (north - south) * keys.uniforms(open_ids, seed, "point", "y", attempt)
            inside = shapely.contains_xy(shape, x, y)
            found.loc[open_ids[inside], ["x", "y"]] = np.column_stack([x[inside], y[inside]])
            open_ids = open_ids[~inside]
            if not len(open_ids):
                break
        if len(open_ids):
            place = shape.representative_point()
            found.loc[open_ids, ["x", "y"]] = [place.x, place.y]
    return found


def _problems(table: GeoDataFrame, id_column: str) -> list[str]:
    ids, shapes = table["zone_id"], table.geometry
    problems = []
    lacking = table.index[table[id_column].isna()]
    if len(lacking):
        problems.append(f"property {id_column}: lacks a value in features {some(lacking + 1)}")
    twice = ids[ids.duplicated() & table[id_column].notna()].unique()
    if len(twice):
        problems.append(
            f"property {id_column}: several features have the ids {some(twice)}; "
            "join their polygons into one feature each"
        )
    empty = ids[shapes.isna() | shapes.is_empty]
    if len(empty):
        problems.append(
            f"zones without geometry: {some(empty)}; draw them or leave them out everywhere"
        )
    other = ids[
        ~shapes.geom_type.isin(["Polygon", "MultiPolygon"]) & shapes.notna() & ~shapes.is_empty
    ]
    if len(other):
        problems.append(f"zones that are no polygon: {some(other)}; a zone is an area")
    return problems
