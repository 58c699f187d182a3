"""UrbanSim: households with their zones, and the table of relocation rates.

UrbanSim's `RelocationModel` reads a column `<name>_min` as at least, `<name>_max` as less than, any
other as equal, an empty cell as no condition, and takes `probability_of_relocating` of the last row
that a household meets (urbansim/models/relocation.py, models/util.py). So every column but that
one is a condition: the period stands in the file's name.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from pemand_abm.anchors import AGE_BANDS, AGE_EDGES
from pemand_abm.errors import PemandError
from pemand_abm.exporters.source import Source
from pemand_abm.tables import write_csv

RATES = "household_relocation_rates_annual.csv"
HOUSEHOLDS = {
    "home_zone_id": "zone_id",
    "hhsize": "persons",
    "num_workers": "workers",
    "auto_ownership": "cars",
    "income": "income",
    "age_of_head": "age_of_head",
    "tenure": "tenure",
    "children": "children",
}


def write(source: Source, out: Path) -> list[str]:
    """Write `households.csv`, `zones.csv` and the annual relocation rates."""
    households = source.households[list(HOUSEHOLDS)].rename(columns=HOUSEHOLDS)
    write_csv(households, out / "households.csv")
    write_csv(_zones(source), out / "zones.csv")
    write_csv(relocation_rates(source), out / RATES)
    return [
        "households.csv: after the year's moves; zones stand for buildings, which are not known.",
        f"{RATES}: the probability that a household moves within one year, by tenure and age of "
        "its head (census rates); age_of_head_min is inclusive, age_of_head_max exclusive.",
    ]


def _zones(source: Source) -> pd.DataFrame:
    zones = pd.DataFrame(source.zones[["dwellings", "vacant_dwellings"]])
    return zones.rename(
        columns={
            "dwellings": "residential_units",
            "vacant_dwellings": "vacant_residential_units",
        }
    )


def relocation_rates(source: Source) -> pd.DataFrame:
    """Return the annual probability of a move by tenure and age; no household meets two rows."""
    groups = source.run.calibration
    if groups is None:
        raise PemandError(
            f"{source.folder}: has no moves_calibration.csv, which holds the rates of moving; run "
            "`pemand run` again"
        )
    place = groups["age"].map({band: i for i, band in enumerate(AGE_BANDS)})
    edges = pd.Series([*AGE_EDGES, None], dtype="Int64")
    rates = pd.DataFrame(
        {
            "tenure": groups["tenure"],
            "age_of_head_min": edges.iloc[place].array,
            "age_of_head_max": edges.iloc[place + 1].array,
            "probability_of_relocating": groups["target_rate"],
        }
    )
    return rates.set_index("tenure")
