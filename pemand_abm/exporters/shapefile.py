"""A shapefile of the zones, with a table that gives its short names their full ones.

A shapefile's column names have ten characters at most, and its texts 254 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from pemand_abm.errors import TableError, listed
from pemand_abm.exporters.source import Source
from pemand_abm.tables import write_csv

FILE, NAMES = "zones.shp", "columns.csv"
LONGEST_NAME, LONGEST_TEXT = 10, 254


def write(source: Source, out: Path) -> list[str]:
    """Write `zones.shp` with its parts, and `columns.csv`: `short`, `column`, `meaning`."""
    zones = source.zones.reset_index()
    columns = [str(c) for c in zones if c != zones.geometry.name]
    _check_texts(zones[columns])
    names = short_names(columns)
    known = source.run.columns
    meanings = {} if known is None else known.set_index("column")["meaning"].to_dict()
    zones.rename(columns=names).to_file(
        out / FILE, driver="ESRI Shapefile", engine="pyogrio", encoding="UTF-8"
    )
    table = pd.DataFrame({"column": columns}, index=pd.Index(names.values(), name="short"))
    write_csv(table.assign(meaning=table["column"].map(meanings).fillna("")), out / NAMES)
    return [f"Column names are cut to {LONGEST_NAME} characters; {NAMES} gives the full ones."]


def short_names(columns: Sequence[str]) -> dict[str, str]:
    """Return a name of at most ten characters for each column, none twice in upper or lower case.

    >>> short_names(["HBW_P", "trips_per_household", "trips_per_person"])
    {'HBW_P': 'HBW_P', 'trips_per_household': 'trips_per_', 'trips_per_person': 'trips_per1'}
    """
    names: dict[str, str] = {}
    # Names that fit keep their form, whatever longer ones stand before them.
    for column in sorted(columns, key=lambda c: len(c) > LONGEST_NAME):
        name, number = column[:LONGEST_NAME], 0
        while name.lower() in {n.lower() for n in names.values()}:
            number += 1
            name = f"{column[: LONGEST_NAME - len(str(number))]}{number}"
        names[column] = name
    return {column: names[column] for column in columns}


def _check_texts(table: pd.DataFrame) -> None:
    """Raise where a text is longer than a shapefile can hold, which would cut it silently."""
    problems = []
    for column in table.columns[[not pd.api.types.is_numeric_dtype(t) for t in table.dtypes]]:
        size = table[column].astype(str).str.encode("utf-8").str.len()
        if (size > LONGEST_TEXT).any():
            first = table.index[size > LONGEST_TEXT][0]
            problems.append(
                f"column {column}: a text is longer than {LONGEST_TEXT} bytes, first in row "
                f"{first + 1}; shorten it in the region"
            )
    if problems:
        raise TableError(listed(problems, FILE))
