"""GMNS: zones with their boundaries, the configuration, and daily demand from zone to zone.

Fields as in `zone.schema.json` and `config.schema.json` of the General Modeling Network
Specification (github.com/zephyr-data-specs/GMNS). GMNS has no table of demand: `demand.csv` has the
columns that DTALite reads, `o_zone_id`, `d_zone_id`, `volume`. There is no network in it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm.exporters.source import Source
from pemand_abm.tables import write_csv

CRS = "EPSG:4326"


def write(source: Source, out: Path) -> list[str]:
    """Write `zone.csv`, `config.csv` and `demand.csv`."""
    zones = source.zones.to_crs(CRS)
    table = pd.DataFrame({"boundary": zones.geometry.to_wkt(rounding_precision=7)})
    if "district" in zones:
        table["district"] = zones["district"]
    write_csv(table.rename_axis("zone_id"), out / "zone.csv")
    write_csv(_config(source), out / "config.csv")
    write_csv(demand(source), out / "demand.csv")
    return [
        "demand.csv: person trips of an average weekday of all modes, from origin to destination; "
        "apply mode shares and occupancies before assigning them.",
        "There is no network: zones and demand go beside node.csv and link.csv of your own.",
    ]


def _config(source: Source) -> pd.DataFrame:
    whole = pd.api.types.is_integer_dtype(source.zones.index.dtype)
    row = {
        "dataset_name": str(source.manifest.get("title") or source.manifest.get("scenario")),
        "crs": CRS,
        "geometry_field_format": "WKT",
        "id_type": "integer" if whole else "string",
    }
    return pd.DataFrame([row]).set_index("dataset_name")


def demand(source: Source) -> pd.DataFrame:
    """Return trips by pair of zones, `volume` and each purpose, without pairs that have none.

    Indexed by `o_zone_id`, in the order of zones; person trips of an average weekday.
    """
    flows, zones = source.flows(), source.zones.index
    total = np.sum(list(flows.values()), axis=0)
    origin, destination = np.nonzero(total)
    columns = {
        "d_zone_id": zones[destination],
        "volume": total[origin, destination],
        **{p: flow[origin, destination] for p, flow in flows.items()},
    }
    return pd.DataFrame(columns, index=pd.Index(zones[origin], name="o_zone_id"))
