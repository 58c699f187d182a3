"""Derive the region sf25 (downtown San Francisco) from the example data of ActivitySim 1.6.0.

    python synthpop/sf25/build.py [--wheel activitysim-1.6.0-py3-none-any.whl] [--mtc FOLDER]

Reads the wheel (fetched with pip when none is named) and writes the tables, polygons and skims
beside this script; the same wheel gives the same files. The shares of households by size, workers
and tenure are MTC's: `household_shares.csv` is kept, and made again from MTC's own files where
--mtc names their folder. The recipe and the README, which says what each column is, are kept by
hand.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import shapely
from scipy.optimize import brentq
from shapely.geometry import MultiPolygon, mapping, shape

from pemand_abm.matrices import write_matrices
from pemand_abm.tables import write_csv, write_text

HERE = Path(__file__).parent
SOURCE = "activitysim/examples/prototype_mtc"
SHA256 = "6b403df14ad1d5ed9800b8db7fd19a84e16bf1da0a3f891a3c43a1160c7524dd"

DISTRICTS = {
    "Financial District and Chinatown": (1, 2, 3, 4, 22, 23, 24, 25),
    "Tenderloin and Civic Center": (5, 6, 7, 8, 9),
    "Central and Western SoMa": (10, 11, 19, 20, 21),
    "Rincon Hill and South Beach": (12, 13, 14, 15, 16, 17, 18),
}

# Census 2000 PUMS, 5 % file, person record, RELATE. A code that is not here stops the build.
RELATE = {
    1: "reference person", 2: "spouse", 19: "partner",
    3: "child", 4: "child", 5: "child", 6: "sibling", 7: "parent",
    8: "other relative", 9: "other relative", 10: "other relative", 11: "other relative",
    12: "other relative", 13: "other relative", 14: "other relative", 15: "other relative",
    16: "other relative", 17: "housemate", 18: "housemate", 21: "housemate",
}  # fmt: skip
# Census 2000 PUMS, housing record, TENURE: mortgaged, owned free, rented, no cash rent.
TENURE = {1: "own", 2: "own", 3: "rent", 4: "rent"}

SKIMS = (
    ["DIST", "DISTWALK"]
    + [f"SOV_{part}__{period}" for part in ("TIME", "DIST", "BTOLL") for period in ("AM", "MD")]
    + [f"WLK_TRN_WLK_{part}__{period}"
       for part in ("IVT", "IWAIT", "XWAIT", "WACC", "WAUX", "WEGR") for period in ("AM", "MD")]
    + [f"WLK_LOC_WLK_FAR__{period}" for period in ("AM", "MD")]
)  # fmt: skip
CENTS_A_MILE = 18.29  # costPerMile of the example's tour_mode_choice.yaml, cents of the year 2000
WALKING_MPH = 3.0  # walkSpeed of the same file

AGES = {
    "AGE0004": (0, 4),
    "AGE0519": (5, 19),
    "AGE2044": (20, 44),
    "AGE4564": (45, 64),
    "AGE65P": (65, None),
}
INCOMES = {
    "HHINCQ1": (None, 30_000),
    "HHINCQ2": (30_000, 60_000),
    "HHINCQ3": (60_000, 100_000),
    "HHINCQ4": (100_000, None),
}

SIZES = {"HHSIZE1": 1, "HHSIZE2": 2, "HHSIZE3": 3, "HHSIZE4P": 4}
WORKERS = {"WORKERS0": 0, "WORKERS1": 1, "WORKERS2": 2, "WORKERS3P": 3}
# Control totals of MTC's PopulationSim, Plan Bay Area: the year, its file, and what is taken of it.
MTC = {
    2015: {
        **{f"hh_size_{n}{'_plus' * (n == 4)}": field for field, n in SIZES.items()},
        **{f"hh_wrks_{n}{'_plus' * (n == 3)}": field for field, n in WORKERS.items()},
    },
    2023: {"hh_own": "HHOWN"},  # the file of 2015 has no tenure
}


def main() -> None:
    """Read the wheel and write every derived file."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--wheel", type=Path, help="the wheel, when it is already here")
    options.add_argument("--mtc", type=Path, help="folder of `2015/TAZ1454 2015 Popsim Vars.csv`")
    given = options.parse_args()
    if given.mtc:
        write_csv(household_shares(given.mtc), HERE / "household_shares.csv")
    with tempfile.TemporaryDirectory() as scratch:
        wheel = given.wheel or download(Path(scratch))
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if digest != SHA256:
            sys.exit(
                f"{wheel}: SHA-256 {digest}, not {SHA256}: sf25 was derived from another wheel"
            )
        with zipfile.ZipFile(wheel) as archive:
            build(archive, Path(scratch))


def download(folder: Path) -> Path:
    """Fetch the wheel from the package index with pip."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--dest",
        str(folder),
        "activitysim==1.6.0",
    ]
    subprocess.run(command, check=True)
    return next(folder.glob("activitysim-1.6.0-*.whl"))


def build(archive: zipfile.ZipFile, scratch: Path) -> None:
    """Write every derived file from the opened wheel."""
    land = io.BytesIO(archive.read(f"{SOURCE}/data/land_use.csv"))
    source = pd.read_csv(land)
    land_use = zones_table(source)
    households, persons = seed(
        pd.read_csv(io.BytesIO(archive.read(f"{SOURCE}/data/households.csv"))),
        pd.read_csv(io.BytesIO(archive.read(f"{SOURCE}/data/persons.csv"))),
    )
    features = json.loads(archive.read(f"{SOURCE}/output/summarize/taz1454.geojson"))["features"]

    write_text(polygons(features, land_use["district"]), HERE / "zones.geojson")
    write_csv(land_use, HERE / "land_use.csv")
    write_csv(households, HERE / "seed_households.csv")
    write_csv(persons, HERE / "seed_persons.csv")
    shares = pd.read_csv(HERE / "household_shares.csv", index_col="zone")
    totals = zone_totals(land_use, households, shares)
    write_csv(totals, HERE / "control_totals_zone.csv")
    write_csv(controls(), HERE / "controls.csv")
    write_csv(
        pd.DataFrame({"region": 1}, index=land_use.index.rename("zone")), HERE / "crosswalk.csv"
    )
    write_csv(land_use[["gqpop"]].rename(columns={"gqpop": "persons"}), HERE / "group_quarters.csv")
    write_matrices(HERE / "skims.omx", skims(archive, scratch, land_use.index), land_use.index)
    licence = next(name for name in archive.namelist() if name.endswith("licenses/LICENSE.txt"))
    write_text(archive.read(licence).decode("utf-8"), HERE / "LICENSE-activitysim.txt")


def zones_table(source: pd.DataFrame) -> pd.DataFrame:
    """Return land use by zone under MTC's names, with our districts and the dwelling stock."""
    district = {zone: name for name, zones in DISTRICTS.items() for zone in zones}
    table = source.rename(columns={"TAZ": "zone_id"}).set_index("zone_id").sort_index()
    table.insert(0, "district", table.index.map(district))
    table.insert(1, "dwellings", table["SFDU"] + table["MFDU"])
    # ZERO is a placeholder; hhlds and sftaz repeat TOTHH and TAZ (MTC's TazData page).
    return table.drop(columns=["ZERO", "hhlds", "sftaz"])


def polygons(features: list[dict[str, Any]], district: pd.Series) -> str:
    """Return GeoJSON of the zones; stop if a district is not of one piece."""
    shapes = {int(f["properties"]["TAZ1454"]): shape(f["geometry"]) for f in features}
    shapes = {zone: shapes[zone] for zone in district.index}
    for name, zones in DISTRICTS.items():
        if not is_contiguous([shapes[zone] for zone in zones]):
            sys.exit(f"district {name}: its zones {zones} are not connected by shared edges")
    lines = [json.dumps(feature(zone, district[zone], shapes[zone])) for zone in shapes]
    crs = '{"type": "name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}'
    return (
        '{"type": "FeatureCollection", "crs": '
        + crs
        + ', "features": [\n'
        + ",\n".join(lines)
        + "\n]}\n"
    )


def feature(zone: int, district: str, geometry: Any) -> dict[str, Any]:
    """Return one GeoJSON feature, its coordinates rounded to a millionth of a degree (0.1 m)."""
    parts = list(geometry.geoms) if geometry.geom_type == "MultiPolygon" else [geometry]
    rounded = shapely.transform(MultiPolygon(parts), lambda points: points.round(6))
    if not rounded.is_valid:
        sys.exit(
            f"zone {zone}: rounding made its polygon invalid: {shapely.is_valid_reason(rounded)}"
        )
    return {
        "type": "Feature",
        "properties": {"zone_id": zone, "district": district},
        "geometry": mapping(rounded),
    }


def is_contiguous(shapes: list[Any]) -> bool:
    """Say whether all shapes are connected by shared edges of a metre or more."""
    reached, waiting = {0}, [0]
    while waiting:
        here = shapes[waiting.pop()]
        near = {
            i
            for i, other in enumerate(shapes)
            if i not in reached and here.intersection(other).length > 1e-5
        }
        reached |= near
        waiting += sorted(near)
    return len(reached) == len(shapes)


def seed(households: pd.DataFrame, persons: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the distinct PUMS households, weighted by repetition, and their persons."""
    drawn = households[households["UNITTYPE"] == 0].sort_values("HHID")
    first = drawn.drop_duplicates("SERIALNO").set_index("HHID")
    members = (
        persons.assign(seed_id=persons["household_id"].map(first["SERIALNO"]))
        .dropna(subset="seed_id")
        .astype({"seed_id": "int64"})
        .assign(relate=lambda t: t["RELATE"].map(RELATE))
        .sort_values(["seed_id", "PNUM"])
    )
    unknown = members.loc[members["relate"].isna(), "RELATE"].unique()
    if len(unknown):
        sys.exit(f"persons: RELATE codes {sorted(unknown)} are unknown")
    by_seed = members.groupby("seed_id")
    sample = first.reset_index().set_index("SERIALNO").sort_index().rename_axis("seed_id")
    table = pd.DataFrame(
        {
            "weight": drawn.groupby("SERIALNO").size(),
            "hhsize": sample["PERSONS"],
            "num_workers": sample["workers"],
            "auto_ownership": sample["VEHICL"],
            "income": sample["income"],
            "HHT": sample["HHT"],
            "tenure": sample["TENURE"].map(TENURE),
            "age_of_head": members[members["RELATE"] == 1].set_index("seed_id")["age"],
            "children": (members["age"] < 18).groupby(members["seed_id"]).sum(),
            "bldgsz": sample["BLDGSZ"],
        },
        index=sample.index,
    )
    employed = members["pemploy"].isin([1, 2]).groupby(members["seed_id"]).sum()
    for column, counted in {"hhsize": by_seed.size(), "num_workers": employed}.items():
        if not table[column].equals(counted.astype("int64").rename(column)):
            sys.exit(f"seed: {column} differs from the count of its persons")
    columns = ["seed_id", "PNUM", "age", "sex", "pemploy", "pstudent", "ptype", "relate"]
    return table, members[columns].set_index("seed_id")


def household_shares(folder: Path) -> pd.DataFrame:
    """Return the shares of households by size, workers and tenure in MTC's files, by zone."""
    shares = {}
    for year, columns in MTC.items():
        source = pd.read_csv(folder / str(year) / f"TAZ1454 {year} Popsim Vars.csv")
        source = source.set_index("TAZ").rename_axis("zone").sort_index().loc[1:25]
        for column, field in columns.items():
            shares[field] = source[column] / source["TOTHH"]
    return pd.DataFrame(shares).round(4)


def zone_totals(
    land_use: pd.DataFrame, households: pd.DataFrame, shares: pd.DataFrame
) -> pd.DataFrame:
    """Return control totals by zone.

    Ages are scaled to the persons who live in households. Households by size and by workers are
    MTC's shares, tilted so that their persons and workers are those of the land use.
    """
    homes = land_use["TOTHH"].rename_axis("zone")
    in_households = (land_use["HHPOP"] / land_use["TOTPOP"]).where(land_use["TOTPOP"] > 0, 0.0)
    ages = land_use[list(AGES)].mul(in_households, axis=0)
    sizes = tilted(shares, SIZES, households, "hhsize", land_use["HHPOP"] / homes)
    workers = tilted(shares, WORKERS, households, "num_workers", land_use["EMPRES"] / homes)
    counts = land_use[["TOTHH", "HHPOP", "EMPRES", *INCOMES]]
    by_share = pd.concat([sizes, workers, shares["HHOWN"]], axis=1).mul(homes, axis=0)
    return pd.concat([counts, ages.round(3), by_share.round(3)], axis=1).rename_axis("zone")


def tilted(
    shares: pd.DataFrame,
    classes: dict[str, int],
    households: pd.DataFrame,
    column: str,
    mean: pd.Series,
) -> pd.DataFrame:
    """Return the shares of *classes* times exp(a x), whose mean of *column* is *mean* in each zone.

    Of all shares with that mean these are nearest to the given ones in relative entropy. The last
    class is open: it counts as much as the seed's households in it do on average.
    """
    values = np.array(list(classes.values()), dtype=float)
    last = households[households[column] >= values[-1]]
    values[-1] = np.average(last[column], weights=last["weight"])

    def at(a: float, row: np.ndarray) -> np.ndarray:
        tilt = row * np.exp(a * values)
        return tilt / tilt.sum()

    given = shares[list(classes)]
    rows = [
        at(brentq(lambda a, r=row, m=m: at(a, r) @ values - m, -20, 20), row)
        for row, m in zip(given.to_numpy(), mean, strict=True)
    ]
    return pd.DataFrame(rows, index=given.index, columns=given.columns)


def controls() -> pd.DataFrame:
    """Return the list of controls under PopulationSim's header."""
    rows = [
        ("households", "zone", "households", 1_000_000_000, "TOTHH", "households.weight > 0"),
        ("persons", "zone", "households", 10_000, "HHPOP", "households.hhsize"),
        ("workers", "zone", "households", 500, "EMPRES", "households.num_workers"),
    ]
    for field, (low, high) in INCOMES.items():
        rows.append(
            (
                f"income_{field[-1]}",
                "zone",
                "households",
                10_000,
                field,
                between("households.income", low, high, "<"),
            )
        )
    for field, (low, high) in AGES.items():
        rows.append(
            (
                f"age_{field[3:].lower()}",
                "zone",
                "persons",
                1_000,
                field,
                between("persons.age", low, high, "<="),
            )
        )
    for column, fields, importance in (("hhsize", SIZES, 1_000), ("num_workers", WORKERS, 500)):
        for field, count in fields.items():
            sign = ">=" if field.endswith("P") else "=="
            name = f"{'size' if column == 'hhsize' else 'workers'}_{count}"
            counted = f"households.{column} {sign} {count}"
            rows.append((name, "zone", "households", importance, field, counted))
    rows.append(("owners", "zone", "households", 500, "HHOWN", "households.tenure == 'own'"))
    columns = ["target", "geography", "seed_table", "importance", "control_field", "expression"]
    return pd.DataFrame(rows, columns=columns).set_index("target")


def between(column: str, low: int | None, high: int | None, below: str) -> str:
    """Return an expression that keeps a range whose ends may be open."""
    parts = [f"({column} >= {low})"] * (low is not None) + [f"({column} {below} {high})"] * (
        high is not None
    )
    return " & ".join(parts) if len(parts) > 1 else parts[0][1:-1]


def skims(archive: zipfile.ZipFile, scratch: Path, zones: pd.Index) -> dict[str, np.ndarray]:
    """Return the kept cores in the source's units, and the three that we derive."""
    import openmatrix

    copy = Path(archive.extract(f"{SOURCE}/data/skims.omx", scratch))
    with openmatrix.open_file(str(copy), "r") as file:
        # The source's /lookup is empty. ActivitySim then takes the rows as zones 1..N (its issue
        # 390); so do we, for this file alone.
        if file.list_mappings() or tuple(file.shape()) != (len(zones), len(zones)):
            sys.exit("skims.omx is not the 25 x 25 file without a lookup that was expected")
        cores = {name: np.asarray(file[name][:], dtype="float64") for name in SKIMS}
    for period in ("AM", "MD"):
        cores[f"SOV_COST__{period}"] = (
            CENTS_A_MILE * cores[f"SOV_DIST__{period}"] + cores[f"SOV_BTOLL__{period}"]
        )
    return cores | {"WALK_TIME": cores["DISTWALK"] / WALKING_MPH * 60}


if __name__ == "__main__":
    main()
