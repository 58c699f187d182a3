"""SimWrapper: dashboards of demand and of moves, with the tables and the map that they show.

Panels as SimWrapper's documentation describes them (simwrapper.github.io/docs: tiles, maps, bars).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from pemand_abm.demand import COLUMNS
from pemand_abm.exporters.geojson import FILE as SHAPES
from pemand_abm.exporters.geojson import write_geojson
from pemand_abm.exporters.source import Source
from pemand_abm.tables import write_csv, write_text


def write(source: Source, out: Path) -> list[str]:
    """Write `dashboard-1-demand.yaml`, `dashboard-2-moves.yaml`, their CSV files and the map."""
    zones = source.zones
    table = pd.DataFrame(zones.drop(columns=zones.geometry.name))
    write_geojson(zones[["district", zones.geometry.name]], out / SHAPES)
    write_csv(table, out / "zones.csv")
    write_csv(_purposes(source, table), out / "purposes.csv")
    write_csv(_districts(table), out / "districts.csv")
    write_csv(_headlines(source, table), out / "summary.csv")
    _write_dashboard(out / "dashboard-1-demand.yaml", _demand(source))
    groups = source.run.calibration
    if groups is not None:
        moves = groups.set_index("group")[["wanted", "completed"]]
        write_csv(moves, out / "moves.csv")
        _write_dashboard(out / "dashboard-2-moves.yaml", _moves(source))
    return ["Trips are person trips of an average weekday; moves are completed moves of the run."]


def _headlines(source: Source, table: pd.DataFrame) -> pd.DataFrame:
    """Return the tiles: SimWrapper takes the first row for a tile too, so there is no header."""
    trips, households = table["TRIPS_P"].sum(), int(table["households"].sum())
    values = {
        "Households": f"{households:,}",
        "Person trips of a weekday": f"{trips:,.0f}",
        "Trips a household": f"{trips / households:.2f}" if households else "none",
        "Completed moves": f"{int(table['moves_in'].sum()):,}",
    }
    first, *others = values.items()
    names = pd.Index([name for name, _ in others], name=first[0])
    return pd.DataFrame({first[1]: [value for _, value in others]}, index=names)


def _purposes(source: Source, table: pd.DataFrame) -> pd.DataFrame:
    rows = {p.upper(): (table[f"{p.upper()}_P"].sum(), _words(p)) for p in source.purposes}
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=["trips", "meaning"])
    return frame.rename_axis("purpose")


def _words(purpose: str) -> str:
    """Return what a purpose is called, from the meaning of its column."""
    return COLUMNS.get(f"{purpose.upper()}_A", purpose).partition(":")[0]


def _districts(table: pd.DataFrame) -> pd.DataFrame:
    return table.groupby("district")[["TRIPS_P", "TRIPS_A"]].sum()


def _demand(source: Source) -> dict[str, Any]:
    return {
        "header": _header(source, "Demand", "Person trips of an average weekday."),
        "layout": {
            "headlines": [{"type": "tile", "title": "The run", "dataset": "summary.csv"}],
            "maps": [
                _map(source, "Trips produced", "TRIPS_P", "by zone, all purposes"),
                _map(source, "Trips attracted", "TRIPS_A", "by zone, all purposes"),
            ],
            "bars": [
                _bar(
                    "Trips by purpose",
                    "person trips of an average weekday",
                    ("purposes.csv", "purpose", ["trips"]),
                ),
                _bar(
                    "Trips by district",
                    "productions and attractions",
                    ("districts.csv", "district", ["TRIPS_P", "TRIPS_A"]),
                )
                | {"legendName": ["produced", "attracted"]},
            ],
        },
    }


def _moves(source: Source) -> dict[str, Any]:
    return {
        "header": _header(source, "Moves", "Completed moves of the run's year."),
        "layout": {
            "maps": [
                _map(source, "Moves into the zone", "moves_in", "moves of the run"),
                _map(source, "Moves out of the zone", "moves_out", "moves of the run"),
            ],
            "bars": [
                _bar(
                    "Moves by tenure and age of the head",
                    "what the census rates ask for, and what was completed",
                    ("moves.csv", "group", ["wanted", "completed"]),
                )
            ],
        },
    }


def _header(source: Source, tab: str, what: str) -> dict[str, str]:
    title = source.manifest.get("title") or source.manifest.get("scenario")
    return {"tab": tab, "title": str(title), "description": " ".join([what, *source.notes])}


def _map(source: Source, title: str, column: str, told: str) -> dict[str, Any]:
    west, south, east, north = map(float, source.zones.to_crs("EPSG:4326").total_bounds)
    # A panel is some 300 pixels wide, and the world 512 pixels at zoom 0.
    zoom = math.log2(360 / max(east - west, north - south, 1e-4) * 300 / 512)
    return {
        "type": "map",
        "title": title,
        "description": told,
        "height": 8,
        "center": [round((west + east) / 2, 5), round((south + north) / 2, 5)],
        "zoom": round(min(max(zoom, 1.0), 18.0), 1),
        "shapes": {"file": SHAPES, "join": "zone_id"},
        "datasets": {"zones": {"file": "zones.csv"}},
        "display": {
            "fill": {
                "dataset": "zones",
                "join": "zone_id",
                "columnName": column,
                "colorRamp": {"ramp": "Viridis", "steps": 7},
            }
        },
    }


def _bar(title: str, told: str, data: tuple[str, str, list[str]]) -> dict[str, Any]:
    """Return a bar chart of *data*: a file, its column of labels, and those of the bars."""
    file, labels, columns = data
    return {
        "type": "bar",
        "title": title,
        "description": told,
        "dataset": file,
        "x": labels,
        "columns": columns,
    }


def _write_dashboard(path: Path, content: dict[str, Any]) -> None:
    write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), path)
