"""Compute the survey rate tables of this folder from the survey files.

    python synthpop/rates/build.py --data ../shared/data

Every table is small, weighted and carries its n and standard error; README.md is their data
dictionary. Nothing of the raw files is copied. One formula serves all standard errors: the mean m
of y with weights w has the residuals w (y - m) / sum(w), added within a cluster (the household,
where rows are trips or days), and se = sqrt(c / (c - 1) * sum(residual^2)) over the c clusters. It
covers unequal weights; it does not know a survey's strata, so read it as approximate.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm.anchoring import compute_anchors
from pemand_abm.anchors import AGE_BANDS
from pemand_abm.surveys import Features, Survey

HERE = Path(__file__).resolve().parent
SMALLEST = 30  # households; thinner cells are merged upward
WEEKDAYS = ("02", "03", "04", "05", "06")  # NHTS: 01 is Sunday
PURPOSES = ("hbw", "hbsch", "hbshop", "hbsocrec", "hbo", "nhb")
AGES = (15, 25, 35, 45, 55, 65, 75, 200)
HOME = ("01", "02")  # NHTS 2022 whyto/whyfrom: at home, paid work at home
SCHOOL = "06"  # NHTS 2022: attend school as a student (08 is volunteering; 08 was school in 2017)
# NHTS 2022 trippurp; shopping there includes meals (whyto 12).
PURPOSE_OF = {"01": "hbw", "02": "hbshop", "03": "hbsocrec", "04": "hbo", "05": "nhb"}
# MTC's Travel Model One, and so ActivitySim's example: the hour at which each period begins.
PERIODS = ("EA", "AM", "MD", "PM", "EV")
PERIOD_STARTS = (3, 6, 10, 15, 19)
# NHTS 2022 trptrans, those of private vehicles; drvr_flg says who drives.
PRIVATE = ("01", "02", "03", "04", "05", "06", "07")
MODE_OF = {
    "08": "transit",
    "10": "transit",
    "11": "transit",
    "12": "transit",
    "09": "school_bus",
    "15": "taxi",
    "16": "taxi",
    "18": "bicycle",
    "19": "bicycle",
    "20": "walk",
}
MODES = ("driver", "passenger", "transit", "school_bus", "taxi", "bicycle", "walk", "other")


class Counts:
    """The accounts of what each table kept and dropped."""

    def __init__(self) -> None:
        """Start without accounts."""
        self.rows: list[tuple[str, str, str, int]] = []

    def add(self, table: str, survey: str, what: str, n: int) -> None:
        """Note that *n* records of *survey* are *what* for *table*."""
        self.rows.append((table, survey, what, int(n)))

    def table(self) -> pd.DataFrame:
        """Return all accounts."""
        return pd.DataFrame(self.rows, columns=["table", "survey", "what", "n"])


def mean_of(y: pd.Series, w: pd.Series, cluster: pd.Series | None = None) -> dict[str, float]:
    """Return n, weight_sum, mean and se (the formula above) of *y* with weights *w*."""
    y, w = y.astype(float), w.astype(float)
    mean = float(np.average(y, weights=w))
    residual = w * (y - mean) / w.sum()
    if cluster is not None:
        residual = residual.groupby(cluster).sum()
    n = len(residual)
    se = float(np.sqrt(n / (n - 1) * (residual**2).sum())) if n > 1 else np.nan
    return {"n": n, "weight_sum": float(w.sum()), "mean": mean, "se": se}


def band(age: pd.Series, edges: tuple[int, ...], names: tuple[str, ...]) -> pd.Series:
    """Return the name of the age band that holds each age."""
    return pd.cut(age.astype(float), list(edges), right=False, labels=list(names)).astype("str")


# --- trips a household on an average weekday: NHTS 2017 -----------------------------------------


def read_2017(data: Path, counts: Counts) -> pd.DataFrame:
    """Return NHTS 2017's urban weekday households: size, workers, vehicles (top open), y, w."""
    columns = [
        "houseid",
        "travday",
        "urbrur",
        "hhsize",
        "wrkcount",
        "hhvehcnt",
        "cnttdhh",
        "wthhfin",
    ]
    raw = pd.read_parquet(data / "nhts/nhts2017_household.parquet", columns=columns)
    kept = raw[raw["travday"].isin(WEEKDAYS) & raw["urbrur"].eq("01")]
    counts.add("trips", "NHTS 2017", "households in the file", len(raw))
    counts.add(
        "trips", "NHTS 2017", "dropped: Saturday or Sunday", (~raw["travday"].isin(WEEKDAYS)).sum()
    )
    counts.add(
        "trips",
        "NHTS 2017",
        "dropped: weekday, rural",
        len(raw[raw["travday"].isin(WEEKDAYS)]) - len(kept),
    )
    counts.add("trips", "NHTS 2017", "urban weekday households used", len(kept))
    return pd.DataFrame(
        {
            "size": kept["hhsize"].clip(upper=5).astype(int),
            "workers": kept["wrkcount"].clip(upper=3).astype(int),
            "vehicles": kept["hhvehcnt"].clip(upper=3).astype(int),
            "y": kept["cnttdhh"].astype(int),
            "w": kept["wthhfin"],
        }
    ).reset_index(drop=True)


def widening(workers: int, vehicles: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield ever wider classes (workers from, to, vehicles from, to), vehicles widened first."""
    for reach in range(4):
        yield workers, workers, max(vehicles - reach, 0), min(vehicles + reach, 3)
    for reach in range(1, 4):
        yield max(workers - reach, 0), min(workers + reach, 3), 0, 3


def pool_of(
    homes: pd.DataFrame, size: int, workers: int, vehicles: int
) -> tuple[pd.DataFrame, str]:
    """Return the households that stand for a cell, and what it was merged into, if it was."""
    for first, (w0, w1, v0, v1) in enumerate(widening(workers, vehicles)):
        pool = homes[
            homes["size"].eq(size)
            & homes["workers"].between(w0, w1)
            & homes["vehicles"].between(v0, v1)
        ]
        if len(pool) >= SMALLEST:
            return (
                pool,
                "" if first == 0 else f"size {size}; workers {w0} to {w1}; vehicles {v0} to {v1}",
            )
    raise SystemExit(f"under {SMALLEST} households of size {size} in all")


def trip_tables(homes: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the distribution of trips (long) and the table of its cells."""
    long, cells = [], []
    for size in range(1, 6):
        for workers in range(min(size, 3) + 1):
            for vehicles in range(4):
                pool, merged = pool_of(homes, size, workers, vehicles)
                key = {"size": size, "workers": workers, "vehicles": vehicles}
                own = homes[homes[list(key)].eq(pd.Series(key)).all(axis=1)]
                share = pool.groupby("y")["w"].sum() / pool["w"].sum()
                long.append(share.rename_axis("trips").rename("share").reset_index().assign(**key))
                figures = mean_of(pool["y"], pool["w"])
                cells.append(
                    key
                    | {"n_cell": len(own)}
                    | figures
                    | {
                        "zero_share": share.get(0, 0.0),
                        "variance": float(
                            np.average((pool["y"] - figures["mean"]) ** 2, weights=pool["w"])
                        ),
                        "merged_into": merged,
                    }
                )
    return pd.concat(long)[["size", "workers", "vehicles", "trips", "share"]], pd.DataFrame(cells)


# --- purposes: NHTS 2022 ------------------------------------------------------------------------


def read_2022(data: Path, counts: Counts) -> pd.DataFrame:
    """Return NHTS 2022's urban weekday trips.

    Columns: houseid, size, workers, children, vehicles (of the household), purpose, direction,
    period, mode, w. `direction` and `period` are missing where they are not known.
    """
    homes = pd.read_parquet(data / "nhts/nhts2022_household.parquet").set_index("houseid")
    trips = pd.read_parquet(data / "nhts/nhts2022_trip.parquet").join(
        homes[["hhsize", "wrkcount", "ppt517", "youngchild", "urbrur", "hhvehcnt"]], on="houseid"
    )
    weekday, urban, known = (
        trips["wttrdfin5d"] > 0,
        trips["urbrur"].eq("01"),
        trips["trippurp"].isin(list(PURPOSE_OF)),
    )
    counts.add("purposes", "NHTS 2022", "trips in the file", len(trips))
    counts.add("purposes", "NHTS 2022", "dropped: Saturday or Sunday", (~weekday).sum())
    counts.add(
        "purposes", "NHTS 2022", "dropped: weekday, rural household", (weekday & ~urban).sum()
    )
    counts.add(
        "purposes",
        "NHTS 2022",
        "dropped: urban weekday, purpose unknown",
        (weekday & urban & ~known).sum(),
    )
    kept = trips[weekday & urban & known]
    counts.add("purposes", "NHTS 2022", "urban weekday trips used", len(kept))
    counts.add("purposes", "NHTS 2022", "households with such a trip", kept["houseid"].nunique())
    school = (kept["whyfrom"].isin(HOME) & kept["whyto"].eq(SCHOOL)) | (
        kept["whyto"].isin(HOME) & kept["whyfrom"].eq(SCHOOL)
    )
    # trippurp has no school: such trips are "other home-based" (04) there.
    purpose = kept["trippurp"].map(PURPOSE_OF).where(~(school & kept["trippurp"].eq("04")), "hbsch")
    leaves, returns = kept["whyfrom"].isin(HOME), kept["whyto"].isin(HOME)
    loop, late = leaves & returns, kept["strttime"].isna()
    counts.add("periods", "NHTS 2022", "urban weekday trips of known purpose", len(kept))
    counts.add("periods", "NHTS 2022", "dropped: from home to home, no direction", loop.sum())
    counts.add("periods", "NHTS 2022", "dropped: start not known", (late & ~loop).sum())
    counts.add("periods", "NHTS 2022", "trips used", (~late & ~loop).sum())
    direction = pd.Series("any", index=kept.index)
    direction = direction.mask(leaves, "from_home").mask(returns, "to_home").mask(loop)
    at = np.searchsorted(PERIOD_STARTS, kept["strttime"].dt.hour.fillna(0), side="right") - 1
    drives = kept["drvr_flg"].map({"01": "driver", "02": "passenger"})
    mode = drives.where(kept["trptrans"].isin(PRIVATE), kept["trptrans"].map(MODE_OF))
    return pd.DataFrame(
        {
            "houseid": kept["houseid"],
            "size": kept["hhsize"].clip(upper=2).astype(int),
            "workers": kept["wrkcount"].clip(upper=2).astype(int),
            "children": (kept["ppt517"] + kept["youngchild"]).gt(0).astype(int),
            "vehicles": kept["hhvehcnt"].clip(upper=2).astype(int),
            "purpose": purpose,
            "direction": direction,
            # Before three in the morning it is still the evening: place -1 is the last.
            "period": pd.Series(np.array(PERIODS)[at], index=kept.index).mask(late),
            "mode": mode.fillna("other"),
            "w": kept["wttrdfin5d"],
        }
    ).reset_index(drop=True)


def purpose_row(trips: pd.DataFrame) -> dict[str, float]:
    """Return n_trips, n_households and, by purpose, its share of the trips and the share's se."""
    row: dict[str, float] = {"n_trips": len(trips), "n_households": trips["houseid"].nunique()}
    for name in PURPOSES:
        figures = mean_of(trips["purpose"].eq(name), trips["w"], trips["houseid"])
        row |= {name: figures["mean"], f"{name}_se": figures["se"]}
    return row


def purpose_table(trips: pd.DataFrame) -> pd.DataFrame:
    """Return the shares by size x workers x children; a thin cell is merged over children."""
    rows = []
    for size, most in ((1, 1), (2, 2)):
        for workers in range(most + 1):
            for children in (0, 1):
                wide = trips[trips["size"].eq(size) & trips["workers"].eq(workers)]
                pool = wide[wide["children"].eq(children)]
                merged = ""
                if pool["houseid"].nunique() < SMALLEST:
                    pool, merged = wide, f"size {size}; workers {workers}; children 0 to 1"
                rows.append(
                    {"size": size, "workers": workers, "children": children}
                    | purpose_row(pool)
                    | {"merged_into": merged}
                )
    return pd.DataFrame(rows)


def period_table(trips: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of a purpose's trips by direction and period; they sum to 1 a purpose."""
    known = trips.dropna(subset=["direction", "period"])
    rows = []
    for purpose in PURPOSES:
        pool = known[known["purpose"].eq(purpose)]
        for direction in ("any",) if purpose == "nhb" else ("from_home", "to_home"):
            for period in PERIODS:
                cell = pool["direction"].eq(direction) & pool["period"].eq(period)
                figures = mean_of(cell, pool["w"], pool["houseid"])
                rows.append(
                    {
                        "purpose": purpose,
                        "direction": direction,
                        "period": period,
                        "n_trips": cell.sum(),
                        "n_households": pool.loc[cell, "houseid"].nunique(),
                        "share": figures["mean"],
                        "se": figures["se"],
                    }
                )
    return pd.DataFrame(rows)


def mode_table(trips: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of modes by purpose and vehicles; a thin cell takes the next class in."""
    rows = []
    for purpose in PURPOSES:
        for vehicles in range(3):
            wide = trips[trips["purpose"].eq(purpose)]
            pool, merged = wide[wide["vehicles"].eq(vehicles)], ""
            if pool["houseid"].nunique() < SMALLEST:
                low, high = max(vehicles - 1, 0), min(vehicles + 1, 2)
                pool = wide[wide["vehicles"].between(low, high)]
                merged = f"{purpose}; vehicles {low} to {high}"
            row = {"purpose": purpose, "vehicles": vehicles, "n_trips": len(pool)}
            row["n_households"] = pool["houseid"].nunique()
            for mode in MODES:
                figures = mean_of(pool["mode"].eq(mode), pool["w"], pool["houseid"])
                row |= {mode: figures["mean"], f"{mode}_se": figures["se"]}
            rows.append(row | {"merged_into": merged})
    return pd.DataFrame(rows)


# --- an independent check of the level: Puget Sound ---------------------------------------------


def read_psrc(data: Path, years: tuple[int, ...], counts: Counts) -> pd.DataFrame:
    """Return PSRC's complete Monday-to-Thursday household-days: hh_id, size, vehicles, y, w."""
    survey = "PSRC " + "+".join(map(str, years))
    day, home, person, trip = (
        pd.read_parquet(
            data / f"psrc/psrc_2017_2023_{name}.parquet", filters=[("survey_year", "in", years)]
        )
        for name in ("day", "hh", "person", "trip")
    )
    key = ["hh_id", "daynum"]
    counts.add("psrc_check", survey, "household-days in the day table", len(day))

    full = pd.read_parquet(data / "psrc/psrc_2017_2019_household_full.parquet").rename(
        columns={"hhid": "hh_id"}
    )
    flags = (
        full[["hh_id", *(f"day{i}complete" for i in range(1, 8))]]
        .astype({"hh_id": "int64"})
        .set_index("hh_id")
    )
    flags.columns = pd.Index(range(1, 8), name="daynum")
    broken = flags.stack().eq("No").rename("broken")
    day = day.join(broken, on=key).assign(broken=lambda d: d["broken"].eq(True))
    counts.add(
        "psrc_check",
        survey,
        "dropped: days marked incomplete (2017 alone marks them)",
        day["broken"].sum(),
    )
    day = day[~day["broken"]]

    late = trip.loc[
        trip["travel_dow"].isin(["Friday", "Saturday", "Sunday"]), key
    ].drop_duplicates()
    day = day.merge(late.assign(late=True), on=key, how="left").assign(
        late=lambda d: d["late"].eq(True)
    )
    counts.add(
        "psrc_check", survey, "dropped: days with a trip on Friday to Sunday", day["late"].sum()
    )
    day = day[~day["late"]]
    counts.add("psrc_check", survey, "household-days used", len(day))

    listed = pd.read_parquet(data / "psrc/psrc_2017_2023_day.parquet", columns=key)
    unmatched = len(trip) - len(trip.merge(listed, on=key))
    counts.add("psrc_check", survey, "dropped: trips that match no household-day", unmatched)
    trip = trip.merge(person[["person_id", "age"]], on="person_id")
    young = trip["age"].eq("Under 5 years old")
    counts.add("psrc_check", survey, "dropped: trips of persons under 5", young.sum())
    made = trip[~young].groupby(key).size().rename("y")

    vehicles = (
        home.set_index("hh_id")["vehicle_count"]
        .str.extract(r"^(\d+)", expand=False)
        .astype(int)
        .clip(upper=3)
    )
    size = person.groupby("hh_id").size().clip(upper=5)
    used = day.join(made, on=key)
    return pd.DataFrame(
        {
            "hh_id": used["hh_id"],
            "size": used["hh_id"].map(size),
            "vehicles": used["hh_id"].map(vehicles),
            "y": used["y"].fillna(0),
            "w": used["day_weight"],
        }
    ).reset_index(drop=True)


def check_table(days: dict[str, pd.DataFrame], homes: pd.DataFrame) -> pd.DataFrame:
    """Return PSRC's mean trips by size x vehicles beside NHTS 2017's mean of the same class."""
    rows = []
    for survey, table in days.items():
        for size in (*range(1, 6), "all"):
            for vehicles in (*range(4), "all"):
                cell, other = (
                    d[
                        (d["size"].eq(size) | (size == "all"))
                        & (d["vehicles"].eq(vehicles) | (vehicles == "all"))
                    ]
                    for d in (table, homes)
                )
                if cell.empty:
                    continue
                figures = mean_of(cell["y"], cell["w"], cell["hh_id"])
                rows.append(
                    {
                        "survey": survey,
                        "size": size,
                        "vehicles": vehicles,
                        "n_households": figures["n"],
                        "n_days": len(cell),
                        "mean": figures["mean"],
                        "se": figures["se"],
                        "zero_share": np.average(cell["y"].eq(0), weights=cell["w"]),
                        "nhts2017_mean": np.average(other["y"], weights=other["w"]),
                    }
                )
    return pd.DataFrame(rows).assign(psrc_over_nhts=lambda d: d["mean"] / d["nhts2017_mean"])


# --- moves: ACS 2024 ----------------------------------------------------------------------------


def read_heads(data: Path, counts: Counts) -> pd.DataFrame:
    """Return reference persons, MI and WA: state, tenure, age_band, children, moved, away, w."""
    homes = pd.concat(pd.read_parquet(data / f"pums/h_{s}.parquet") for s in ("26", "53"))
    persons = pd.concat(pd.read_parquet(data / f"pums/p_{s}.parquet") for s in ("26", "53"))
    occupied = homes[homes["TEN"].notna()]
    counts.add("moves", "ACS 2024 MI+WA", "records in the housing file", len(homes))
    quarters = homes["TYPEHUGQ"].ne(1)
    counts.add("moves", "ACS 2024 MI+WA", "dropped: group quarters", quarters.sum())
    counts.add(
        "moves",
        "ACS 2024 MI+WA",
        "dropped: vacant dwellings",
        len(homes) - len(occupied) - quarters.sum(),
    )
    counts.add("moves", "ACS 2024 MI+WA", "occupied households used", len(occupied))
    minors = persons[persons["AGEP"] < 18].groupby("SERIALNO").size()
    heads = occupied.merge(
        persons.loc[persons["SPORDER"] == 1, ["SERIALNO", "AGEP", "MIGSP"]], on="SERIALNO"
    )
    return pd.DataFrame(
        {
            "state": heads["STATE"],
            "tenure": np.where(heads["TEN"] <= 2, "own", "rent"),
            "age_band": band(heads["AGEP"], AGES, AGE_BANDS),
            "children": heads["SERIALNO"].map(minors).fillna(0).gt(0).astype(int),
            "moved": heads["MIGSP"].notna(),
            "away": (heads["MIGSP"].notna() & heads["MIGSP"].ne(heads["STATE"].astype(int)))
            .fillna(False)
            .astype(bool),
            "w": heads["WGTP"].astype(float),
        }
    )


def move_table(heads: pd.DataFrame) -> pd.DataFrame:
    """Return the annual move rate by tenure x age (children `all`), and by children besides."""
    rows = []
    for tenure in ("own", "rent"):
        for age_band in AGE_BANDS:
            group = heads[heads["tenure"].eq(tenure) & heads["age_band"].eq(age_band)]
            for children in ("all", "0", "1"):
                cell = group if children == "all" else group[group["children"].eq(int(children))]
                merged = "" if len(cell) >= SMALLEST else f"{tenure} {age_band}; children all"
                pool = group if merged else cell
                figures = mean_of(pool["moved"], pool["w"])
                rows.append(
                    {
                        "tenure": tenure,
                        "age_band": age_band,
                        "children": children,
                        "n_cell": len(cell),
                        "n": figures["n"],
                        "n_effective": pool["w"].sum() ** 2 / (pool["w"] ** 2).sum(),
                        "rate": figures["mean"],
                        "se": figures["se"],
                        "from_elsewhere": np.average(
                            pool.loc[pool["moved"], "away"], weights=pool.loc[pool["moved"], "w"]
                        ),
                        "merged_into": merged,
                    }
                )
    return pd.DataFrame(rows)


# --- anchors: earlier cycles only ---------------------------------------------------------------


def read_2001(data: Path, counts: Counts) -> pd.DataFrame:
    """Return NHTS 2001's weighted urban households, all days: size, vehicles, y, w, and rosters."""
    raw = pd.read_parquet(data / "nhts/nhts2001_household.parquet")
    weighted, urban = raw["EXPFLLHH"].notna(), raw["URBRUR"].eq(1)
    counts.add("anchors", "NHTS 2001", "households in the file", len(raw))
    counts.add("anchors", "NHTS 2001", "dropped: no weight (EXPFLLHH)", (~weighted).sum())
    counts.add("anchors", "NHTS 2001", "dropped: weighted, rural", (weighted & ~urban).sum())
    counts.add(
        "anchors", "NHTS 2001", "urban households used, all seven days", (weighted & urban).sum()
    )
    kept = raw[weighted & urban].reset_index(drop=True)
    return kept.assign(
        size=kept["HHSIZE"].clip(upper=5),
        vehicles=kept["HHVEHCNT"].clip(upper=3),
        y=kept["CNTTDHH"],
        w=kept["EXPFLLHH"],
    )


def as_survey(
    name: str, title: str, year: int, target: str, homes: pd.DataFrame, persons: pd.DataFrame
) -> Survey:
    """Return tables in the columns that `compute_anchors` reads as a survey value."""
    return Survey(
        name=name,
        title=title,
        year=year,
        target=target,
        unit="",
        households=homes.rename_axis("household_id"),
        persons=persons,
        dropped=pd.DataFrame(),
        facts="",
        features=Features((), ()),
    )


def homes_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return size, vehicles, y and w under the names of a survey's households."""
    names = {"size": "hhsize", "vehicles": "auto_ownership", "y": "trips", "w": "weight"}
    return table[list(names)].rename(columns=names)


def members_of(old: pd.DataFrame, counts: Counts) -> pd.DataFrame:
    """Return the members of NHTS 2001's households whose members' age and work are all known."""
    ages, works = (
        old[[f"{name}_P{i}" for i in range(1, 15)]].to_numpy() for name in ("AGE", "WKR")
    )
    known = (
        ((ages >= 0).sum(axis=1) == old["HHSIZE"])
        & ~((ages >= 18) & ~np.isin(works, (1, 2))).any(axis=1)
    ).to_numpy()
    counts.add(
        "anchors",
        "NHTS 2001",
        "dropped from the members' regression: a member's age or work unknown",
        (~known).sum(),
    )
    counts.add("anchors", "NHTS 2001", "households in the members' regression", known.sum())
    home, place = np.nonzero((ages >= 0) & known[:, None])
    return pd.DataFrame(
        {
            "household_id": old.index[home],
            "age": ages[home, place],
            "pemploy": np.where(works[home, place] == 1, 1, 3),
        }
    )


def read_panel(data: Path, counts: Counts) -> Survey:
    """Return PSRC's panel: who owned or rented in 2014, the oldest's age, and who moved by 2015."""
    panel = pd.read_parquet(data / "psrc/psrc_panel_2014_2015.parquet")
    persons = pd.read_parquet(data / "psrc/psrc_2014_person_daysim.parquet")
    title = "PSRC panel 2014-2015"
    panel = pd.DataFrame(
        {
            "tenure": panel["rent_own"].map({1: "own", 2: "rent"}),
            "age_of_head": panel["hhid"].map(persons.groupby("hhno")["pagey"].max()),
            "moved": panel["moved_2014_2015"],
            "weight": panel["expwt_2"],
        }
    )
    counts.add("anchors", title, "households in the file", len(panel))
    counts.add("anchors", title, "dropped: tenure other or unknown", panel["tenure"].isna().sum())
    panel = panel[panel["tenure"].notna()]
    counts.add("anchors", title, "households used", len(panel))
    counts.add("anchors", title, "of which moved", panel["moved"].sum())
    return as_survey("panel2014", title, 2015, "moved", panel, pd.DataFrame())


def anchor_table(data: Path, old: pd.DataFrame, new: pd.DataFrame, counts: Counts) -> pd.DataFrame:
    """Return the anchors: trips of NHTS 2001 at NHTS 2017's level, moves of PSRC's panel.

    2017's households are all in the level: nobody is tested on this table.
    """
    workers = pd.DataFrame({"pemploy": [1, 3]})  # 2017 does know who works
    homes = homes_of(old).assign(hhsize=old["HHSIZE"])
    shape = as_survey("nhts2001", "NHTS 2001", 2001, "trips", homes, members_of(old, counts))
    level = as_survey("nhts2017", "NHTS 2017", 2017, "trips", homes_of(new), workers)
    trips = compute_anchors([shape], 2017, level)
    moves = compute_anchors([read_panel(data, counts)], 2024)
    left = "; by the oldest member; those who left the panel are not in it, so movers are"
    return pd.concat(
        [
            trips.assign(note="urban households; " + trips["note"]),
            moves.assign(note=moves["note"] + f"{left} probably under-counted"),
        ],
        ignore_index=True,
    )


# --- group quarters: a proxy --------------------------------------------------------------------


def quarters_table(homes: pd.DataFrame, trips: pd.DataFrame) -> pd.DataFrame:
    """Return the proxy for group quarters: persons alone without work (the level: without car)."""
    alone = homes[homes["size"].eq(1) & homes["workers"].eq(0) & homes["vehicles"].eq(0)]
    level = mean_of(alone["y"], alone["w"])
    shares = purpose_row(trips[trips["size"].eq(1) & trips["workers"].eq(0)])
    note = (
        "proxy: surveys of households do not ask group quarters;"
        " one-person households without vehicle and worker"
    )
    rows = [
        {
            "purpose": "all",
            "share": 1.0,
            "trips_per_person": level["mean"],
            "se": level["se"],
            "n_households": level["n"],
            "n_trips": "",
            "survey": "NHTS 2017",
            "note": note,
        }
    ]
    for name in PURPOSES:
        rate = level["mean"] * shares[name]
        spread = np.hypot(level["se"] * shares[name], level["mean"] * shares[f"{name}_se"])
        rows.append(
            {
                "purpose": name,
                "share": shares[name],
                "trips_per_person": rate,
                "se": spread,
                "n_households": shares["n_households"],
                "n_trips": str(shares["n_trips"]),
                "survey": "NHTS 2017 x NHTS 2022",
                "note": "proxy: rate above x shares of one-person households without worker"
                " (any vehicles)",
            }
        )
    return pd.DataFrame(rows)


def build(data: Path) -> dict[str, pd.DataFrame]:
    """Return every table by its file name."""
    counts = Counts()
    homes, trips, heads, old = (
        read_2017(data, counts),
        read_2022(data, counts),
        read_heads(data, counts),
        read_2001(data, counts),
    )
    days = {
        "PSRC 2017+2019": read_psrc(data, (2017, 2019), counts),
        "PSRC 2023": read_psrc(data, (2023,), counts),
    }
    long, cells = trip_tables(homes)
    return {
        "trips": long,
        "trips_cells": cells,
        "purposes": purpose_table(trips),
        "periods": period_table(trips),
        "modes": mode_table(trips),
        "psrc_check": check_table(days, homes),
        "moves": move_table(heads),
        "anchors": anchor_table(data, old, homes, counts),
        "group_quarters": quarters_table(homes, trips),
        "counts": counts.table(),
    }


def main() -> None:
    """Build all tables, then write them beside this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=HERE.parents[2] / "shared" / "data",
        help="folder of the survey files",
    )
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to")
    options = parser.parse_args()
    tables = build(options.data)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_csv(
            options.out / f"{name}.csv",
            index=False,
            float_format="%.10g",
            lineterminator="\n",
            encoding="utf-8",
        )
        print(f"{name}.csv: {len(table)} rows")


if __name__ == "__main__":
    main()
