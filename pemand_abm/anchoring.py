"""Compute anchors from earlier survey cycles (`pemand anchors`).

Weighted, with the number of households and the standard error of every cell; a cycle of the model
year or later is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm.anchors import (
    AGE_BANDS,
    AGE_EDGES,
    COLUMNS,
    MEMBER_BANDS,
    MEMBER_EDGES,
    SIZES,
    TENURES,
    VEHICLES,
)
from pemand_abm.errors import TableError
from pemand_abm.surveys import Survey, read_survey

SMALLEST = 30  # households; thinner cells are merged upward
BLEND = 100  # households that the tenure as a whole weighs in a relocation anchor


def annual(share: float, years: float) -> float:
    """Return the chance of a year from the share of *years* years, each year being like another.

    >>> round(annual(0.36, 2), 3)
    0.2
    """
    return 1 - (1 - share) ** (1 / years)


def compute_anchors(
    earlier: Sequence[Survey], model_year: int, level: Survey | None = None
) -> pd.DataFrame:
    """Return the anchors of *model_year* from earlier cycles, in the columns `COLUMNS`.

    All means are weighted; the weights of every cycle are scaled to a mean of 1, so a cycle counts
    by its households. Only weekdays count where the survey marks them. Standard errors take the
    household as the cluster and know neither strata nor replicate weights.

    - *Household trips* by size x vehicles. A cell under 30 households is widened by one class of
      vehicles to both sides, then by two, then over all; then by one size to both sides and so on.
    - *Member trips* by age band and, from 18 on, work; without work where a cycle, or the survey
      of the model year, does not know it.
      `measured` where the cycles have persons' trips, else `inferred`: the coefficients of a
      weighted least-squares regression without intercept of household trips on members. Bands under
      30 households are joined with their smaller neighbour. An age band of the survey that spans
      10 years at most is put where its middle lies; a wider one joins the bands that it covers.
    - *Moves* by tenure x age of the head: n / (n + 100) of the share of the age band, widened to
      its neighbours until 30 households, and the rest of the share of the tenure as a whole. A
      column `span_years` says of how many years the label is; the share is that of one year.

    Parameters
    ----------
    earlier : sequence of Survey
        The cycles that give the shape; every one must be of a year before *model_year*.
    level : Survey, optional
        The training split of the survey of the model year: the one factor of each domain is its
        weighted total over what the anchors give on the same households. Without it, 1.

    Raises
    ------
    TableError
        A cycle of the model year or later, or one too small.
    """
    late = [f"{s.name} is of {s.year}" for s in earlier if s.year >= model_year]
    if late or not earlier:
        what = ", ".join(late) if late else "no survey was given"
        raise TableError(
            f"anchors of {model_year}: {what}; an anchor must come from an earlier survey cycle"
        )
    parts = []
    trips = [s for s in earlier if s.target == "trips"]
    if trips:
        parts += _trip_anchors(trips, level)
    moved = [s for s in earlier if s.target == "moved"]
    if moved:
        parts.append(_move_anchors(moved, level))
    whole = {"hhsize": "Int64", "vehicles": "Int64", "works": "Int64", "n": "int64"}
    table = pd.concat([p.reindex(columns=COLUMNS) for p in parts], ignore_index=True)
    return table.astype(whole | {"year": "int64"})


@dataclass(frozen=True, slots=True)
class Source:
    """What a survey's anchors are made of: its year, the earlier cycles, its test split's share.

    Without a share no level factor is made.
    """

    year: int
    earlier: tuple[str, ...]
    test: float | None = None


# PSRC 2021 serves nobody: a year of the pandemic, and most of it answered in another way. The
# panel's movers are cross-validated, so there is no one training split to take a level from.
SOURCES = {
    "nhts2017": Source(2017, ("nhts2001",), 0.1),
    "nhts2022": Source(2022, ("nhts2017",), 0.1),
    "psrc2017": Source(2017, ("psrc2014",), 0.2),
    "psrc2019": Source(2019, ("psrc2017",), 0.2),
    "psrc2021": Source(2021, ("psrc2017", "psrc2019"), 0.2),
    "psrc2023": Source(2023, ("psrc2017", "psrc2019"), 0.2),
    "panel2014": Source(2014, ("pums2010",)),
    "pums2024": Source(2024, ("pums2010",)),
    "psid2023": Source(2023, ("pums2010",)),
}
FOLDERS = {"panel2014": "psrc", "pums2010": "calm", "pums2024": "pums"}


def anchors_of(
    name: str, data: Path, split: Callable[[pd.Index, float, int], np.ndarray]
) -> pd.DataFrame:
    """Return the anchors of the survey *name*, computed from the files of earlier cycles.

    Parameters
    ----------
    data : Path
        The folder that holds the surveys' folders `nhts`, `psrc` and `calm`.
    split : callable
        (ids, share, seed) to which of them are tested (`evaluation.metrics.split`). The level comes
        from the others, under seed 0, so that no tested household has a say in what it is told.
    """
    if name not in SOURCES:
        raise TableError(
            f"anchors: no earlier cycle is known for {name}; known are {', '.join(SOURCES)}"
        )
    source = SOURCES[name]
    earlier = [_read(n, data) for n in source.earlier]
    if source.test is None:
        return compute_anchors(earlier, source.year)
    new = _read(name, data)
    trained = new.households[~np.asarray(split(new.households.index, source.test, 0))]
    level = replace(new, title=f"{new.title}'s training split", households=trained)
    return compute_anchors(earlier, source.year, level)


def _read(name: str, data: Path) -> Survey:
    return read_survey(name, Path(data) / FOLDERS.get(name, name[:4]))


def _mean(
    y: pd.Series, w: pd.Series, cluster: pd.Series | pd.Index | None = None
) -> dict[str, float]:
    """Return the weighted mean as `raw`, its `raw_se`, and `n`, the number of clusters."""
    w = w.astype(float)
    mean = float(np.average(y.astype(float), weights=w))
    residual = w * (y - mean) / w.sum()
    if cluster is not None:
        residual = residual.groupby(np.asarray(cluster)).sum()
    n = len(residual)
    se = float(np.sqrt(n / (n - 1) * (residual**2).sum())) if n > 1 else np.nan
    return {"raw": mean, "raw_se": se, "n": n}


def _origin(surveys: Sequence[Survey]) -> dict[str, object]:
    """Return the columns that say where an anchor comes from."""
    return {
        "survey": " + ".join(s.title for s in surveys),
        "year": max(s.year for s in surveys),
    }


def _weekdays(survey: Survey) -> tuple[pd.DataFrame, str]:
    """Return the households surveyed on a weekday, and in words which days they are."""
    homes = survey.households
    if "weekday" not in homes.columns or homes["weekday"].eq(True).all():
        return homes, "all days that it holds"
    return homes[homes["weekday"].eq(True)], "weekdays"


def _pooled(surveys: Sequence[Survey], columns: Sequence[str]) -> tuple[pd.DataFrame, str]:
    """Return the cycles' weekday households end to end: *columns* and `w`, by (cycle, id)."""
    held, days = {}, []
    for survey in surveys:
        homes, said = _weekdays(survey)
        missing = [c for c in columns if c not in homes.columns]
        if missing or homes.empty:
            what = f"column {', '.join(missing)}" if missing else "a household on a weekday"
            raise TableError(f"anchors: {survey.name} has no {what}")
        w = homes["weight"].astype(float)
        held[survey.name] = homes[list(columns)].assign(w=w / w.mean())
        days.append(said)
    return pd.concat(held, names=["cycle", "household_id"]), ", ".join(dict.fromkeys(days))


def _classed(homes: pd.DataFrame) -> pd.DataFrame:
    """Return `size` and `vehicles` with their top classes open, beside the rest."""
    return homes.assign(
        size=homes["hhsize"].astype(int).clip(upper=SIZES[-1]),
        vehicles=homes["auto_ownership"].astype(int).clip(upper=VEHICLES[-1]),
    )


def _widened(homes: pd.DataFrame, size: int, vehicles: int) -> tuple[pd.DataFrame, str]:
    """Return the households that stand for a cell, and the classes where more than its own."""
    reaches = [(0, v) for v in VEHICLES] + [(s, VEHICLES[-1]) for s in SIZES]
    for by_size, by_vehicles in reaches:
        s0, s1 = max(size - by_size, SIZES[0]), min(size + by_size, SIZES[-1])
        v0, v1 = max(vehicles - by_vehicles, 0), min(vehicles + by_vehicles, VEHICLES[-1])
        pool = homes[homes["size"].between(s0, s1) & homes["vehicles"].between(v0, v1)]
        if len(pool) >= SMALLEST:
            merged = f"size {s0} to {s1}, vehicles {v0} to {v1}" if by_size or by_vehicles else ""
            return pool, merged
    raise TableError(f"anchors: {len(homes)} households in all, {SMALLEST} needed")


def _trip_anchors(surveys: Sequence[Survey], level: Survey | None) -> list[pd.DataFrame]:
    """Return the households' and the members' trip anchors, under one level factor."""
    homes, days = _pooled(surveys, ["hhsize", "auto_ownership", "trips"])
    homes = _classed(homes)
    rows = []
    for size, vehicles in product(SIZES, VEHICLES):
        pool, merged = _widened(homes, size, vehicles)
        note = f"; merged: {merged}" if merged else ""
        cell = {"hhsize": size, "vehicles": vehicles, "note": note}
        rows.append(cell | _mean(pool["trips"], pool["w"]))
    table = pd.DataFrame(rows)
    factor, levelled = 1.0, "not levelled"
    if level is not None and level.target == "trips":
        new = _classed(_pooled([level], ["hhsize", "auto_ownership", "trips"])[0])
        shape = table.set_index(["hhsize", "vehicles"])["raw"]
        given = shape.loc[pd.MultiIndex.from_frame(new[["size", "vehicles"]])].to_numpy()
        factor = float((new["w"] * new["trips"]).sum() / (new["w"] * given).sum())
        levelled = (
            f"levelled by {factor:.4f} = trips of {len(new)} households of {level.title} / these"
            " means on them; the factor is taken as known in the se"
        )
    said = f"{days}; {levelled}"
    shared: dict[str, object] = {"domain": "trips", **_origin(surveys)}
    knowing = _knows_work(surveys if level is None else [*surveys, level])
    members = _member_anchors(surveys, homes, knowing)
    return [
        _levelled(part, factor).assign(**shared, level=name, note=said + part["note"])
        for name, part in (("household", table.assign(label="measured")), ("member", members))
    ]


def _levelled(table: pd.DataFrame, factor: float) -> pd.DataFrame:
    """Return `value` and `se`, which are `raw` and `raw_se` at the level of the model year."""
    return table.assign(
        value=table["raw"] * factor, se=table["raw_se"] * factor, factor=float(factor)
    )


# --- members ------------------------------------------------------------------------------------

YOUNGEST = "0-4"
LADDER = (YOUNGEST, *MEMBER_BANDS)
WIDE = 10  # years; a band of ages over it says too little to be put by its middle


def _members(surveys: Sequence[Survey], homes: pd.DataFrame) -> tuple[pd.DataFrame, set[int]]:
    """Return the members of the pooled households, and which rungs of LADDER hang together.

    Columns `home` (place of the household), `rung`, `works` (1, 0), and `trips` where every cycle
    has persons' trips. A rung that hangs together with the next one is in the set: some survey's
    age bands are too wide to tell them apart.
    """
    measured = all("trips" in s.persons.columns for s in surveys)
    held = {}
    for survey in surveys:
        people = survey.persons
        place = pd.MultiIndex.from_product(
            [[survey.name], people["household_id"]], names=homes.index.names
        )
        to = people["age_to"] if "age_to" in people.columns else people["age"]
        held[survey.name] = pd.DataFrame(
            {
                "home": homes.index.get_indexer(place),
                "age": people["age"].to_numpy(float),
                "to": to.to_numpy(float),
                "works": people["pemploy"].isin([1, 2]).astype(int).to_numpy()
                if "pemploy" in people.columns
                else 0,
                "trips": people["trips"].to_numpy(float) if measured else np.nan,
            }
        )
    people = pd.concat(held.values(), ignore_index=True)
    people = people[people["home"] >= 0]
    wide = people["to"] - people["age"] > WIDE
    middle = people["age"].where(wide, (people["age"] + people["to"]) // 2)
    rung = np.searchsorted(MEMBER_EDGES, middle, side="right")
    last = np.searchsorted(MEMBER_EDGES, people["to"].where(wide, middle), side="right")
    tied: set[int] = set()
    for first, end in {(int(a), int(b)) for a, b in zip(rung, last, strict=True) if a < b}:
        tied.update(range(first, end))
    people = people.assign(rung=rung)[["home", "rung", "works", "trips"]]
    return (people if measured else people.drop(columns="trips")), tied


def _knows_work(surveys: Sequence[Survey]) -> bool:
    """Say whether every cycle knows who works: no such column, or nobody in it, is not knowing."""
    return all(
        "pemploy" in s.persons.columns and s.persons["pemploy"].isin([1, 2]).any() for s in surveys
    )


def _joined(people: pd.DataFrame, rungs: Sequence[int], tied: set[int]) -> list[list[int]]:
    """Return the rungs in groups of 30 households and more, joined with the smaller neighbour."""
    groups: list[list[int]] = []
    for rung in rungs:
        if groups and groups[-1][-1] in tied:
            groups[-1].append(rung)
        else:
            groups.append([rung])

    def households(group: list[int]) -> int:
        return people.loc[people["rung"].isin(group), "home"].nunique()

    while len(groups) > 1:
        sizes = [households(g) for g in groups]
        least = int(np.argmin(sizes))
        if sizes[least] >= SMALLEST:
            break
        beside = [i for i in (least - 1, least + 1) if 0 <= i < len(groups)]
        first, second = sorted((least, min(beside, key=lambda i: sizes[i])))
        groups[first : second + 1] = [groups[first] + groups[second]]
    return groups


def _kinds(
    people: pd.DataFrame, work: bool, tied: set[int]
) -> tuple[list[tuple[list[int], int | None]], bool]:
    """Return the kinds of members, (rungs, works), and whether work tells them apart."""
    youngest = [([0], None)] if people["rung"].eq(0).any() else []
    minors: list[tuple[list[int], int | None]] = [(g, None) for g in _joined(people, [1, 2], tied)]
    adults = range(3, len(LADDER))
    if work:
        kinds = [
            (g, works)
            for works in (0, 1)
            for g in _joined(people[people["works"].eq(works)], adults, tied)
        ]
        if all(_number(people, k) >= SMALLEST for k in kinds):
            return [*youngest, *minors, *kinds], True
    return [*youngest, *minors, *((g, None) for g in _joined(people, adults, tied))], False


def _chosen(people: pd.DataFrame, kind: tuple[list[int], int | None]) -> pd.Series:
    rungs, works = kind
    chosen = people["rung"].isin(rungs)
    return chosen if works is None else chosen & people["works"].eq(works)


def _number(people: pd.DataFrame, kind: tuple[list[int], int | None]) -> int:
    """Return the number of households with such a member."""
    return int(people.loc[_chosen(people, kind), "home"].nunique())


def _member_anchors(surveys: Sequence[Survey], homes: pd.DataFrame, knowing: bool) -> pd.DataFrame:
    """Return the members' anchors before levelling: one row a band and, for adults, work."""
    people, tied = _members(surveys, homes)
    kinds, work = _kinds(people, knowing, tied)
    thin = [k for k in kinds if _number(people, k) < SMALLEST and k[0] != [0]]
    if thin:
        bands = ", ".join(LADDER[r] for r in thin[0][0])
        raise TableError(f"anchors: under {SMALLEST} households with a member of {bands}")
    measured = "trips" in people.columns
    figures = _observed(people, homes, kinds) if measured else _regressed(people, homes, kinds)
    how = (
        "; trips of such persons"
        if measured
        else "; weighted least squares without intercept of household trips on members by age band"
        " and work (robust se); inferred, not observed"
    )
    unknown = "" if work else "; whether at work or not, which not every survey here tells"
    rows = []
    for (rungs, works), row in zip(kinds, figures, strict=True):
        if row is None:
            continue
        merged = f"; merged: {LADDER[rungs[0]]} to {LADDER[rungs[-1]]}" if len(rungs) > 1 else ""
        young = "; goes with a small child, who makes no counted trips" if rungs == [0] else ""
        about = "" if rungs[0] < 3 else unknown
        rows += [
            row | {"age_band": LADDER[r], "works": works, "note": how + merged + young + about}
            for r in rungs
        ]
    rows.sort(key=lambda row: (LADDER.index(row["age_band"]), row["works"] or 0))
    return pd.DataFrame(rows).assign(label="measured" if measured else "inferred")


def _observed(people: pd.DataFrame, homes: pd.DataFrame, kinds: list) -> list[dict | None]:
    """Return the mean trips of each kind's persons; none for those whose trips do not count."""
    weight = homes["w"].to_numpy()
    figures: list[dict | None] = []
    for kind in kinds:
        own = people[_chosen(people, kind) & people["trips"].notna()]
        counted = kind[0] != [0] and not own.empty
        w = pd.Series(weight[own["home"].to_numpy()], index=own.index)
        figures.append(_mean(own["trips"], w, own["home"]) if counted else None)
    return figures


def _regressed(people: pd.DataFrame, homes: pd.DataFrame, kinds: list) -> list[dict | None]:
    """Return what each kind of member adds to a household's trips (White's sandwich for the se)."""
    x = np.column_stack(
        [
            np.bincount(people.loc[_chosen(people, k), "home"], minlength=len(homes)).astype(float)
            for k in kinds
        ]
    )
    # A household whose members are not all known cannot be explained by them.
    known = x.sum(axis=1) == homes["hhsize"].to_numpy(float)
    x, y, w = x[known], homes["trips"].to_numpy(float)[known], homes["w"].to_numpy()[known]
    information = x.T @ (w[:, None] * x)
    if len(y) <= x.shape[1] or np.linalg.matrix_rank(information) < x.shape[1]:
        raise TableError(
            f"anchors: {len(y)} households whose members are all known do not tell"
            f" {x.shape[1]} kinds of members apart; give a survey with persons' trips"
        )
    bread = np.linalg.inv(information)
    value = bread @ (x.T @ (w * y))
    # A small child makes no counted trips, so what goes with it may well be less than none.
    named = [LADDER[k[0][0]] for k, v in zip(kinds, value, strict=True) if v <= 0 and k[0] != [0]]
    if named:
        raise TableError(
            f"anchors: the trips that a member of {', '.join(named)} adds come out negative;"
            " the survey is too small for members' anchors"
        )
    score = x * (w * (y - x @ value))[:, None]
    se = np.sqrt(np.diag(bread @ (score.T @ score) @ bread) * len(y) / (len(y) - x.shape[1]))
    number = (x > 0).sum(axis=0)
    return [
        {"raw": float(v), "raw_se": float(s), "n": int(n)} if v > 0 else None
        for v, s, n in zip(value, se, number, strict=True)
    ]


# --- moves --------------------------------------------------------------------------------------


def _movers(surveys: Sequence[Survey]) -> tuple[pd.DataFrame, float]:
    """Return owners and renters with `band`, the place of the head's age band, and the span."""
    homes, _ = _pooled(surveys, ["tenure", "age_of_head", "moved"])
    spans = {
        float(s.households["span_years"].iloc[0]) if "span_years" in s.households.columns else 1.0
        for s in surveys
    }
    if len(spans) > 1:
        raise TableError("anchors: the surveys' moves span different numbers of years")
    homes = homes[homes["tenure"].isin(TENURES) & homes["age_of_head"].ge(AGE_EDGES[0])]
    band = np.searchsorted(AGE_EDGES, homes["age_of_head"], side="right") - 1
    return homes.assign(band=band, y=homes["moved"].astype(float)), spans.pop()


def _move_anchors(surveys: Sequence[Survey], level: Survey | None) -> pd.DataFrame:
    """Return the blended annual shares that moved, by tenure x age band of the head."""
    homes, years = _movers(surveys)
    rows = [
        _blended(homes[homes["tenure"].eq(tenure)], tenure, place, years)
        for tenure, place in product(TENURES, range(len(AGE_BANDS)))
    ]
    table = pd.DataFrame(rows)
    factor, levelled = 1.0, "not levelled"
    if level is not None and level.target == "moved":
        new, span = _movers([level])
        shape = table.set_index(["tenure", "age_band"])["blend"]
        at = [(t, AGE_BANDS[b]) for t, b in zip(new["tenure"], new["band"], strict=True)]
        mean = float(np.average(shape.loc[at].to_numpy(), weights=new["w"]))
        factor = annual(float(np.average(new["y"], weights=new["w"])), span) / mean
        levelled = (
            f"levelled by {factor:.4f} = share of {len(new)} households of {level.title} / these"
            " shares on them; the factor is taken as known in the se"
        )
    return table.assign(
        **_origin(surveys),
        domain="relocation",
        level="household",
        label="blend",
        value=table["blend"] * factor,
        se=table["se"] * factor,
        factor=float(factor),
        note=levelled + table["note"],
    )


def _blended(group: pd.DataFrame, tenure: str, place: int, years: float) -> dict[str, object]:
    """Return one cell's share, its blend with the tenure's, and their standard errors."""
    for reach in range(len(AGE_BANDS)):
        inside = group["band"].between(place - reach, place + reach)
        if inside.sum() >= SMALLEST:
            break
    else:
        raise TableError(f"anchors: {len(group)} households that {tenure}, {SMALLEST} needed")
    y, w = group["y"], group["w"]
    own = _mean(y[inside], w[inside])
    share, whole = own["raw"], float(np.average(y, weights=w))
    part = int(inside.sum()) / (int(inside.sum()) + BLEND)
    # One influence value a household for the blend: the cell is part of its tenure. `slope` carries
    # it through the change from the label's span to one year.
    slope = [(1 - s) ** (1 / years - 1) / years if s < 1 else 0.0 for s in (share, whole)]
    pull = (
        part * slope[0] * inside * w * (y - share) / w[inside].sum()
        + (1 - part) * slope[1] * w * (y - whole) / w.sum()
    )
    bands = AGE_BANDS[max(place - reach, 0) : place + reach + 1]
    note = (
        f"; blend: {part:.3f} x share of age of the head {bands[0]}"
        + (f" to {bands[-1]}" if reach else "")
        + f" + {1 - part:.3f} x share of all who {tenure}"
        + (f"; from {years:g} years to one by 1 - (1 - p)^(1/{years:g})" if years != 1 else "")
    )
    return {
        "tenure": tenure,
        "age_band": AGE_BANDS[place],
        "blend": part * annual(share, years) + (1 - part) * annual(whole, years),
        "raw": annual(share, years),
        "raw_se": own["raw_se"] * slope[0],
        "n": own["n"],
        "se": float(np.sqrt(len(y) / (len(y) - 1) * (pull**2).sum())),
        "note": note,
    }
