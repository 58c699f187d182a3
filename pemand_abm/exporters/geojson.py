"""GeoJSON by RFC 7946: the map in longitude and latitude, for browsers and GIS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pemand_abm.exporters.source import Source
from pemand_abm.tables import writing

if TYPE_CHECKING:
    from geopandas import GeoDataFrame

FILE = "zones.geojson"


def write(source: Source, out: Path) -> list[str]:
    """Write `zones.geojson` with the columns of the map."""
    write_geojson(source.zones, out / FILE)
    return []


def write_geojson(zones: GeoDataFrame, path: Path) -> None:
    """Write polygons with their columns; outer rings run counter-clockwise, seven decimals."""
    layer = zones.to_crs("EPSG:4326").reset_index()
    with writing(path) as temporary:
        # GDAL refuses to write over the empty file that reserves the name.
        temporary.unlink()
        # Without a name, the layer would have that of the temporary file.
        layer.to_file(temporary, layer="zones", driver="GeoJSON", engine="pyogrio", RFC7946="YES")
