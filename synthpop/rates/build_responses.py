"""Write responses.csv: how trips answer to levers, from published figures and survey files.

    python synthpop/rates/build_responses.py --data ../shared/data

Published studies give elasticities of vehicle travel or of transit rides; a household's *trips*
move less, since most of the answer is another mode or a nearer place. So a ride's elasticity is
multiplied by the share of trips made by transit (NHTS 2022, urban households on weekdays) and by
the share of new rides that would not have been made otherwise (free-fare experiments of Denver and
Trenton).
README.md says what the columns mean; a figure from memory is marked so in its source.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
COLUMNS = ["lever", "purpose", "household_type", "form", "elasticity", "low", "high", "source"]
WITHOUT, WITH = "no vehicle", "with vehicle"
NEW = (0.20, 0.15, 0.25)  # Of added rides, those that would not have been made: TRID 173041.
FARE = (-0.33, -0.5, -0.2)  # Simpson-Curtin, and the range of short-run fare elasticities.
FREE = (0.23, 0.10, 0.36)  # More rides at no fare; the middle of the range.
SERVICE = (0.5, 0.3, 1.0)
SHARE_OF = "x transit share of trips {share:.4f} (NHTS 2022) x new trips among new rides "
EXPERIMENT = "0.20 (0.15-0.25; Denver and Trenton free off-peak fares 1977-78, TRID 173041)"
# NHTS 2017, HHFAMINC: middles of the bands in dollars a year; the top one is open.
INCOMES = {
    "01": 6_000, "02": 12_500, "03": 20_000, "04": 30_000, "05": 42_500, "06": 62_500,
    "07": 87_500, "08": 112_500, "09": 137_500, "10": 175_000, "11": 250_000,
}  # fmt: skip
WEEKDAYS = ("02", "03", "04", "05", "06")  # NHTS: 01 is Sunday


def transit_shares(data: Path) -> dict[str, float]:
    """Return the weighted share of weekday trips by transit, by whether the household has a car."""
    trips = pd.read_parquet(data / "nhts" / "nhts2022_trip.parquet")
    homes = pd.read_parquet(data / "nhts" / "nhts2022_household.parquet")
    table = trips.merge(homes[["houseid", "urbrur", "hhvehcnt"]], on="houseid")
    table = table[(table["urbrur"] == "01") & (table["tdwknd"] == "02")]
    table = table[table["pubtrans"].isin(["01", "02"]) & (table["wttrdfin5d"] > 0)]
    kind = np.where(table["hhvehcnt"] > 0, WITH, WITHOUT)
    ridden = (table["pubtrans"] == "01") * table["wttrdfin5d"]
    total = table["wttrdfin5d"].groupby(kind).sum()
    return (ridden.groupby(kind).sum() / total).to_dict()


def income_response(data: Path) -> tuple[float, float, float]:
    """Return the elasticity of a household's trips to its income, with its 95 % interval.

    Weighted Poisson regression on NHTS 2017's urban weekday households, with a constant for every
    class of size x workers x vehicles; robust standard errors.
    """
    import statsmodels.api as sm

    table = pd.read_parquet(data / "nhts" / "nhts2017_household.parquet")
    table = table[
        (table["urbrur"] == "01")
        & table["travday"].isin(WEEKDAYS)
        & table["hhfaminc"].isin(INCOMES)
        & (table["cnttdhh"].astype(float) >= 0)
    ]
    cell = (
        table["hhsize"].astype(int).clip(upper=5) * 100
        + table["wrkcount"].astype(int).clip(lower=0, upper=3) * 10
        + table["hhvehcnt"].astype(int).clip(upper=3)
    )
    features = pd.get_dummies(cell, prefix="cell", dtype=float)
    features["income"] = np.log(table["hhfaminc"].map(INCOMES).astype(float))
    weights = table["wthhfin"] / table["wthhfin"].mean()
    model = sm.GLM(
        table["cnttdhh"].astype(float), features, sm.families.Poisson(), var_weights=weights
    ).fit(cov_type="HC1")
    low, high = model.conf_int().loc["income"]
    return float(model.params["income"]), float(low), float(high)


def rides(lever: str, form: str, given: tuple, share: dict[str, float], source: str) -> list[tuple]:
    """Return the rows of a lever that acts on transit rides, by whether there is a vehicle."""
    rows = []
    for kind in (WITHOUT, WITH):
        middle = given[0] * share[kind] * NEW[0]
        corners = [g * share[kind] * n for g in given[1:] for n in NEW[1:]]
        told = f"{source} {SHARE_OF.format(share=share[kind])}{EXPERIMENT}"
        rows.append((lever, "all", kind, form, middle, min(corners), max(corners), told))
    return rows


def responses(data: Path) -> pd.DataFrame:
    """Return the whole table."""
    share = transit_shares(data)
    income = income_response(data)
    fuel = (
        "person trips ~0 to -0.1, most of the answer being distance and mode: VALIDATION F's range "
        "from reasoning and TMIP's 'weakly sensitive'; its middle [not measured]"
    )
    cars = (
        "bounded like the price of fuel, of which it is a like part of a car trip's cost "
        "[assumption]; parked cars answer by -0.19 to -0.48 (CAPCOA PDT-3) in mode and place"
    )
    cost = (
        "generalised cost; vehicle travel answers by -0.5 to -1.0 (Lee 2000), person trips by no "
        "more than fuel's long-run -0.2 [assumption]"
    )
    home = (
        "who works at home all day makes no trip to work (by definition); California pilot 1991: "
        "-76 % of that day's VMT (high end)"
    )
    rest = (
        "no rise in the California pilot 1991, other trips up in NHTS 2017 and Tian 2025, without "
        "a figure that could be read: 0, the upper end is an assumption"
    )
    rows: list[tuple] = []
    for purpose in ("hbw", "home-based other", "nhb"):
        rows.append(("fuel_price", purpose, WITH, "elasticity", -0.05, -0.1, 0.0, fuel))
        rows.append(("parking_price", purpose, WITH, "elasticity", -0.05, -0.1, 0.0, cars))
        rows.append(("road_pricing", purpose, WITH, "elasticity", -0.1, -0.2, 0.0, cost))
    rows += rides(
        "transit_fare", "elasticity", FARE, share,
        "rides -0.33 (Simpson-Curtin), -0.2 to -0.5 (VALIDATION F)",
    )  # fmt: skip
    rows += rides(
        "free_fare", "arc", FREE, share,
        "rides +10 to +36 % at no fare (Denver, Trenton, Austin; VALIDATION F), the middle",
    )  # fmt: skip
    rows += rides(
        "transit_service", "elasticity", SERVICE, share,
        "rides +0.5 (TCRP 95 ch. 9, from memory, not verified), below 1 (Berrebi et al. 2021)",
    )  # fmt: skip
    rows.append(("telework", "hbw", "all", "arc", -1.0, -1.0, -0.76, home))
    rows += [
        ("telework", purpose, "all", "arc", 0.0, 0.0, 0.1, rest)
        for purpose in ("home-based other", "nhb")
    ]
    rows.append(
        (
            "income_growth", "all", "all", "elasticity", *income,
            "computed: NHTS 2017, weighted Poisson regression within size x workers x vehicles "
            "(traffic: +0.2 to +0.5, Goodwin, Dargay and Hanly)",
        )
    )  # fmt: skip
    rows.append(
        (
            "land_use_intensity", "all", "all", "elasticity", 0.0, -0.04, 0.06,
            "trip frequency is socioeconomic, ~0 (Ewing and Cervero 2001); VMT -0.04 (2010), trip "
            "rates 0.06 and more (Cervero and Kockelman 1997)",
        )
    )  # fmt: skip
    table = pd.DataFrame(rows, columns=COLUMNS).sort_values(["lever", "purpose", "household_type"])
    return table.round({"elasticity": 6, "low": 6, "high": 6})


def main() -> None:
    """Compute the table and write it beside this script."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", type=Path, required=True, help="the folder of the survey files")
    table = responses(options.parse_args().data)
    table.to_csv(HERE / "responses.csv", index=False)
    print(table.drop(columns="source").to_string(index=False))


if __name__ == "__main__":
    main()
