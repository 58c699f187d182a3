"""A tiny region of three zones, written into a folder for tests.

Six seed households of 1, 2, 3, 4, 5 and 12 persons; the third zone holds jobs but no households.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from pemand_abm.matrices import write_matrices

HOUSEHOLDS = (60, 40, 0)
SEED = pd.DataFrame(
    [
        (1, 4.0, 1, 1, 0, 28_000, 4, "rent", 34, 0),
        (2, 3.0, 2, 2, 1, 95_000, 1, "own", 45, 0),
        (3, 1.0, 3, 1, 1, 52_000, 3, "rent", 38, 2),
        (4, 1.5, 4, 2, 2, 130_000, 1, "own", 41, 2),
        (5, 1.0, 5, 0, 0, -400, 7, "rent", 22, 0),
        (6, 0.5, 12, 3, 2, 71_000, 1, "own", 58, 5),
    ],
    columns=[
        "seed_id",
        "weight",
        "hhsize",
        "num_workers",
        "auto_ownership",
        "income",
        "HHT",
        "tenure",
        "age_of_head",
        "children",
    ],
).set_index("seed_id")

# age, sex, pemploy, pstudent, ptype, relate of the members of each household
_WORKER, _STUDENT, _PUPIL = (1, 3, 1), (3, 2, 3), (4, 1, 7)
_IDLE, _RETIRED, _INFANT = (3, 3, 4), (3, 3, 5), (4, 3, 8)
MEMBERS = {
    1: [(34, 2, *_WORKER, "reference person")],
    2: [(45, 1, *_WORKER, "reference person"), (44, 2, *_WORKER, "spouse")],
    3: [
        (38, 2, *_WORKER, "reference person"),
        (9, 1, *_PUPIL, "child"),
        (6, 2, *_PUPIL, "child"),
    ],
    4: [
        (41, 1, *_WORKER, "reference person"),
        (40, 2, *_WORKER, "spouse"),
        (12, 2, *_PUPIL, "child"),
        (3, 1, *_INFANT, "child"),
    ],
    5: [(22 + n, 2 - n % 2, *_STUDENT, "housemate" if n else "reference person") for n in range(5)],
    6: [
        (58, 1, *_WORKER, "reference person"),
        (55, 2, *_IDLE, "spouse"),
        (80, 2, *_RETIRED, "parent"),
        (30, 1, *_WORKER, "child"),
        (29, 2, *_WORKER, "other relative"),
        (33, 1, *_IDLE, "sibling"),
        (19, 2, *_STUDENT, "other relative"),
        *((age, 1 + age % 2, *_PUPIL, "other relative") for age in (14, 12, 10, 8)),
        (2, 1, *_INFANT, "other relative"),
    ],
}


def write_region(
    folder: Path,
    ids: Sequence[int | str] = (10, 20, 35),
    households: Sequence[int] = HOUSEHOLDS,
) -> Path:
    """Write a valid region into *folder* and return it; ids may be unsorted, text or large.

    The k-th zone is the k-th unit square from west to east, with the k-th count of households.
    """
    folder.mkdir(parents=True, exist_ok=True)
    n = len(ids)
    counts = np.array(households)
    zone = pd.Index(list(ids), name="zone_id")
    size = (SEED["weight"] * SEED["hhsize"]).sum() / SEED["weight"].sum()
    persons = (counts * size).round().astype("int64")

    land_use = pd.DataFrame(
        {
            "district": [("West", "East")[k * 2 // n] for k in range(n)],
            "dwellings": counts + np.maximum(counts // 10, 5),
            "TOTHH": counts,
            "HHPOP": persons,
            "TOTPOP": persons + 7,
            "EMPRES": counts,
            "AGE0519": persons // 6,
            "TOTEMP": 100 * np.arange(1, n + 1),
            "RETEMPN": 20 * np.arange(1, n + 1),
            "FPSEMPN": 30 * np.arange(1, n + 1),
            "HEREMPN": 20 * np.arange(1, n + 1),
            "OTHEMPN": 15 * np.arange(1, n + 1),
            "AGREMPN": 5 * np.arange(1, n + 1),
            "MWTEMPN": 10 * np.arange(1, n + 1),
            "HSENROLL": [40.0] + [0.0] * (n - 1),
            "COLLFTE": [0.0] * (n - 1) + [25.0],
            "COLLPTE": [0.0] * (n - 1) + [10.0],
            "TOTACRE": [50.5] * n,
            "area_type": [1] * n,
        },
        index=zone,
    )
    land_use.to_csv(folder / "land_use.csv")
    (folder / "zones.geojson").write_text(json.dumps(squares(ids)))
    write_matrices(folder / "skims.omx", skims(n), zone)

    SEED.to_csv(folder / "seed_households.csv")
    seed_persons().to_csv(folder / "seed_persons.csv", index=False)

    totals = land_use[["TOTHH", "HHPOP", "EMPRES"]].rename_axis("zone")
    totals.assign(LOW=counts // 2, HIGH=counts - counts // 2).to_csv(folder / "totals_zone.csv")
    row = {"SIZE1": counts.sum() * 4 / 11, "SIZE2P": counts.sum() * 7 / 11}
    pd.DataFrame(row, index=pd.Index([1], name="region")).to_csv(folder / "totals_region.csv")
    pd.DataFrame({"region": 1}, index=zone.rename("zone")).to_csv(folder / "crosswalk.csv")
    pd.Series([7] * n, index=zone, name="persons").to_csv(folder / "group_quarters.csv")
    controls().to_csv(folder / "controls.csv", index=False)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe(), sort_keys=False))
    return folder


def squares(ids: Sequence[int | str]) -> dict:
    """Return GeoJSON of adjacent squares of a hundredth of a degree."""
    features = []
    for k, zone in enumerate(ids):
        west, east, south, north = -122.4 + k / 100, -122.39 + k / 100, 37.7, 37.71
        ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
        geometry = {"type": "Polygon", "coordinates": [ring]}
        features.append({"type": "Feature", "properties": {"zone_id": zone}, "geometry": geometry})
    return {"type": "FeatureCollection", "features": features}


def skims(n: int) -> dict[str, np.ndarray]:
    """Return distance in miles, with half a mile within a zone, and what follows from it."""
    at = np.arange(n, dtype="float64")
    miles = np.abs(at[:, None] - at[None, :]) + 0.5 * np.eye(n) + 0.01 * at[:, None]
    return {
        "DIST": miles,
        "SOV_TIME__AM": miles * 4,
        "SOV_TIME__MD": miles * 3,
        "SOV_COST__AM": miles * 18,
        "WALK_TIME": miles * 20,
    }


def seed_persons() -> pd.DataFrame:
    """Return the persons of the seed, one row each."""
    columns = ["seed_id", "PNUM", "age", "sex", "pemploy", "pstudent", "ptype", "relate"]
    rows = [
        (seed, number, *member)
        for seed, members in MEMBERS.items()
        for number, member in enumerate(members, 1)
    ]
    return pd.DataFrame(rows, columns=columns)


def controls() -> pd.DataFrame:
    """Return controls of households, persons, workers, income and size."""
    columns = ["target", "geography", "seed_table", "importance", "control_field", "expression"]
    rows = [
        ("households", "zone", "households", 10**9, "TOTHH", "households.weight > 0"),
        ("persons", "zone", "households", 10_000, "HHPOP", "households.hhsize"),
        ("workers", "zone", "households", 500, "EMPRES", "households.num_workers"),
        ("low", "zone", "households", 1_000, "LOW", "households.income < 50000"),
        ("high", "zone", "households", 1_000, "HIGH", "households.income >= 50000"),
        ("size_1", "region", "households", 100, "SIZE1", "households.hhsize == 1"),
        ("size_2", "region", "households", 100, "SIZE2P", "households.hhsize >= 2"),
    ]
    return pd.DataFrame(rows, columns=columns)


def recipe() -> dict:
    """Return the recipe of the tiny region."""
    return {
        "name": "tiny",
        "title": "Three squares",
        "base_year": 2020,
        "money_year": 2019,
        "zones": {"file": "zones.geojson", "id": "zone_id"},
        "land_use": "land_use.csv",
        "skims": {"file": "skims.omx", "lookup": "zone_number"},
        "seed": {"households": "seed_households.csv", "persons": "seed_persons.csv"},
        "geographies": ["region", "zone"],
        "crosswalk": "crosswalk.csv",
        "totals": {"zone": "totals_zone.csv", "region": "totals_region.csv"},
        "controls": "controls.csv",
        "household_total": "households",
        "group_quarters": "group_quarters.csv",
    }
