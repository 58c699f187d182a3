"""MATSim: a population with one plan a person, made of the trips that its household makes.

A run knows how many trips of each purpose a household makes, not who makes them, when, where to or
how. What is assumed to make plans of them stands in the constants below, and in words in
docs/howto-exports.md.
The form is `population_v6.dtd` (matsim.org/files/dtd); attributes are those of MATSim's
`PersonUtils`.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import pandas as pd

from pemand_abm import keys
from pemand_abm.exporters.source import Source, home_based
from pemand_abm.geography import points_in
from pemand_abm.tables import write_csv, writing

if TYPE_CHECKING:
    from geopandas import GeoDataFrame

FILE, LEGS = "population.xml.gz", "legs.csv"
DTD = "http://www.matsim.org/files/dtd/population_v6.dtd"
# What is done where a trip of the purpose leads; purposes that are not named lead to `other`.
ACTIVITIES = {
    "hbw": "work", "hbsch": "education", "hbshop": "shopping", "hbsocrec": "leisure",
}  # fmt: skip
# The first departure of a day that begins with the activity lies between two hours, and a stay
# takes so many minutes. Our assumptions, round numbers from no survey: MATSim's own time mutation
# is meant to move them.
HOURS = {
    "work": (6.5, 9.0, 480), "education": (7.5, 8.5, 390), "shopping": (9.0, 18.0, 60),
    "leisure": (10.0, 19.0, 120), "other": (8.0, 18.0, 45),
}  # fmt: skip
# The same person always works, and learns, at the same place.
FIXED = ("work", "education")
AT_HOME = 45  # minutes between two tours
# Crow-fly metres to seconds: 30 km/h on a way 1.3 times as long.
SECONDS_PER_METRE = 1.3 / (30 / 3.6)
LAST_HOUR = 28  # Four in the morning, when a survey's travel day ends.
YOUNGEST_TRAVELLER, YOUNGEST_DRIVER = 5, 16


def write(source: Source, out: Path) -> list[str]:
    """Write `population.xml.gz`, and `legs.csv`: the trips drawn and the legs made of them."""
    tours = make_tours(source.trips, source.seed)
    tours = with_travellers(tours, source.persons, source.seed)
    stops = make_stops(tours, source)
    polygons = source.zones.to_crs(source.zones.estimate_utm_crs())
    plans = make_plans(stops, source, polygons)
    crs = f"EPSG:{polygons.crs.to_epsg()}"
    with (
        writing(out / FILE) as temporary,
        temporary.open("wb") as raw,
        # No file name and no date, so that the same run gives the same bytes.
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file,
    ):
        file.writelines(line.encode("utf-8") for line in _xml(plans, source, crs))
    counts = _counts(source.trips, stops)
    write_csv(counts, out / LEGS)
    drawn, made = counts.loc["all", "trips"], counts.loc["all", "legs"]
    return [
        f"{made:,} legs are made of {drawn:,} trips: a plan begins and ends at home, which trips "
        f"drawn one by one need not; {LEGS} has them by purpose.",
        f"Coordinates are metres of {crs}; places are random points of their zones.",
        "Who travels, when, where to and by which mode is assumed (docs/howto-exports.md), not "
        "simulated: let MATSim replan time, mode and route.",
        f"Activity types: {', '.join(sorted(set(plans['activity'])))}.",
    ]


# --- tours ----------------------------------------------------------------------------------------


def make_tours(trips: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return tours from home and back, made of each household's trips.

    Two home-based trips are a tour. Trips of one purpose pair first, what is left over then pairs
    with each other; a last single trip is a tour or none by a keyed coin, so that the expected
    number of legs stays. Every other trip is one more stop within a tour of the household, first
    within those that have two purposes; a household without a tour cannot make it.

    Parameters
    ----------
    trips : DataFrame
        Trips by purpose (int64), indexed by `household_id`.

    Returns
    -------
    DataFrame
        `household_id`, `tour` (0, 1, ... in the household), `first` and `last` (purposes of the
        first and the last trip), `stops` (1 and more).
    """
    purposes = [p for p in trips if home_based(p)]
    inner = trips[[p for p in trips if not home_based(p)]].sum(axis=1)
    counts = trips[purposes].stack().rename_axis(["household_id", "first"]).rename("n")
    pairs = counts.index.repeat(counts // 2).to_frame(index=False)
    left = counts.index[counts % 2 == 1].to_frame(index=False)
    place = left.groupby("household_id").cumcount()
    left = left.assign(pair=place // 2)
    seconds = left[place % 2 == 1].rename(columns={"first": "last"})
    mixed = left[place % 2 == 0].merge(seconds, on=["household_id", "pair"], how="left")
    single = mixed["last"].isna()
    homes = mixed["household_id"]
    tours_else = pd.concat([pairs["household_id"], homes[~single]]).value_counts()
    needed = ~homes.isin(tours_else.index) & (homes.map(inner) > 0)
    coin = keys.uniforms(pd.Index(homes), seed, "matsim", "last trip") < 0.5
    mixed = mixed[~single | coin | needed].drop(columns="pair")
    tours = pd.concat([pairs, mixed], ignore_index=True)
    tours["last"] = tours["last"].fillna(tours["first"]) if "last" in tours else tours["first"]
    rank = {p: i for i, p in enumerate(purposes)}
    tours = tours.assign(rank=tours["first"].map(rank), mixed=tours["first"] != tours["last"])
    tours = tours.sort_values(["household_id", "rank"], kind="stable", ignore_index=True)
    tours["tour"] = tours.groupby("household_id").cumcount()
    tours["stops"] = 1 + _inner_stops(tours, inner, seed)
    return tours[["household_id", "tour", "first", "last", "stops"]]


def _inner_stops(tours: pd.DataFrame, inner: pd.Series, seed: int) -> np.ndarray:
    """Return how many of the household's trips between other places each tour gets."""
    size = tours.groupby("household_id").size()
    trips = inner.reindex(size.index)
    trips = trips.index.repeat(trips).to_frame(index=False)
    ordinal = trips.groupby("household_id").cumcount()
    by_mixed = tours.sort_values(
        ["household_id", "mixed", "tour"], ascending=[True, False, True], kind="stable"
    )
    count = trips["household_id"].map(tours.groupby("household_id")["mixed"].sum())
    # A tour of two purposes has no second stop without such a trip.
    key = trips["household_id"].to_numpy("int64") * 1000 + ordinal.to_numpy("int64")
    drawn = keys.uniforms(key, seed, "matsim", "inner trip") * trips["household_id"].map(size)
    place = np.where(ordinal < count, ordinal, np.floor(drawn)).astype("int64")
    start = size.cumsum() - size
    at = trips["household_id"].map(start).to_numpy("int64") + place
    held = np.bincount(at, minlength=len(tours))
    return pd.Series(held, index=by_mixed.index).reindex(tours.index).to_numpy()


def with_travellers(tours: pd.DataFrame, persons: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return the tours with `person_id`, the member who makes each.

    Workers go to work and students to school where there are some, members of five and over
    elsewhere, in turn from a keyed first one.
    """
    kinds = _kinds(persons)
    home = persons["household_id"]
    held = {kind: home[mask].value_counts() for kind, mask in kinds.items()}
    wanted = tours["first"].map(ACTIVITIES).where(lambda a: a.isin(FIXED), "other")
    for instead in ("other", "anybody"):
        wanted = wanted.where(_there(tours["household_id"], wanted, held), instead)
    turn = tours.assign(kind=wanted).groupby(["household_id", "kind"]).cumcount()
    found = pd.Series(0, index=tours.index, dtype="int64")
    for kind, mask in kinds.items():
        rows = wanted.index[wanted == kind]
        members = home[mask].sort_values(kind="stable")
        first = pd.Series(np.arange(len(members)), index=members).groupby(level=0).first()
        homes = tours.loc[rows, "household_id"]
        size = homes.map(held[kind]).to_numpy("int64")
        begin = np.floor(keys.uniforms(pd.Index(homes), seed, "matsim", kind) * size)
        place = homes.map(first).to_numpy("int64") + (begin.astype("int64") + turn[rows]) % size
        found[rows] = members.index[place]
    return tours.assign(person_id=found)


def _kinds(persons: pd.DataFrame) -> dict[str, pd.Series]:
    """Return who may make which kind of tour."""
    able = persons["age"] >= YOUNGEST_TRAVELLER
    return {
        "work": able & persons["pemploy"].isin([1, 2]),
        "education": able & persons["pstudent"].isin([1, 2]),
        "other": able,
        "anybody": pd.Series(True, index=persons.index),
    }


def _there(homes: pd.Series, kinds: pd.Series, held: dict[str, pd.Series]) -> pd.Series:
    """Say for each tour whether its household has a member of the kind."""
    there = pd.Series(False, index=homes.index)
    for kind, counts in held.items():
        there |= (kinds == kind) & homes.isin(counts.index)
    return there


# --- places ---------------------------------------------------------------------------------------


def make_stops(tours: pd.DataFrame, source: Source) -> pd.DataFrame:
    """Return one row a stop, in the order of tours: its `activity`, `zone` (row) and `place`.

    `place` keys what is drawn at the stop: the person's for work and school, else the stop's own.
    """
    rows = tours.index.repeat(tours["stops"])
    stops = tours.loc[rows].assign(at=tours.loc[rows].groupby(level=0).cumcount())
    stops = stops.reset_index(drop=True)
    final = (stops["at"] == stops["stops"] - 1) & (stops["at"] > 0)
    other = stops["first"] != stops["last"]
    inner = [p for p in source.purposes if not home_based(p)]
    purpose = stops["first"].where(stops["at"] == 0, inner[0] if inner else stops["first"])
    purpose = purpose.where(~(final & other), stops["last"])
    own = (stops["household_id"] * 1000 + stops["tour"]) * 1000 + stops["at"]
    activity = purpose.map(ACTIVITIES).fillna("other")
    # A worker who ends at a school takes somebody there.
    kinds = _kinds(source.persons)
    for kind in FIXED:
        able = stops["person_id"].map(kinds[kind])
        activity = activity.mask(final & other & (activity == kind) & ~able.astype(bool), "other")
    fixed = activity.isin(FIXED)
    stops = stops.assign(
        purpose=purpose, activity=activity, place=own.where(~fixed, stops["person_id"])
    )
    homes = source.households["home_zone_id_before"]
    home = source.zones.index.get_indexer(stops["household_id"].map(homes))
    return stops.assign(zone=_zones(stops, home, source))


def _zones(stops: pd.DataFrame, home: np.ndarray, source: Source) -> np.ndarray:
    """Draw each stop's zone from the trip matrix of its purpose.

    Home-based trips lead from the home's zone, others from the zone of the stop before.
    """
    zone = np.zeros(len(stops), dtype="int64")
    based = stops["purpose"].map(home_based).to_numpy(bool)
    for purpose, rows in stops.index[based].groupby(stops["purpose"][based]).items():
        zone[rows] = _draw(source.productions[purpose], home[rows], stops.loc[rows], source.seed)
    for at in range(1, int(stops["at"].max() if len(stops) else 0) + 1):
        chosen = stops.index[~based & (stops["at"] == at).to_numpy()]
        for purpose, rows in chosen.groupby(stops["purpose"][chosen]).items():
            matrix = source.productions[purpose]
            zone[rows] = _draw(matrix, zone[rows - 1], stops.loc[rows], source.seed)
    return zone


def _draw(matrix: np.ndarray, origin: np.ndarray, stops: pd.DataFrame, seed: int) -> np.ndarray:
    """Return a destination for each origin, with the shares of its row of the matrix."""
    shares = matrix.astype("float64")
    empty = shares.sum(axis=1) == 0
    # From where nobody starts, as attractive as everywhere.
    shares[empty] = matrix.sum(axis=0)
    shares = shares.cumsum(axis=1)
    shares /= shares[:, -1:]
    draw = pd.Series(0.0, index=stops.index)
    for activity, rows in stops.groupby("activity").groups.items():
        place = stops.loc[rows, "place"].to_numpy()
        draw[rows] = keys.uniforms(place, seed, "matsim", "zone", str(activity))
    # All rows lie end to end on one line, row r on (r, r + 1]: one search serves all.
    line = (shares + np.arange(len(shares))[:, None]).ravel()
    found = np.searchsorted(line, origin + draw.to_numpy()) - origin * len(shares)
    return np.clip(found, 0, len(shares) - 1)


def _points(polygons: GeoDataFrame, stops: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return `x` and `y` of every stop, the same for the same place and zone."""
    found = pd.DataFrame({"x": np.nan, "y": np.nan}, index=stops.index)
    for activity, rows in stops.groupby("activity").groups.items():
        at = stops.loc[rows].drop_duplicates("place").set_index("place")["zone"]
        zones = pd.Series(polygons.index[at], index=at.index)
        drawn = points_in(polygons, zones, keys.digest(seed, "matsim", str(activity)))
        found.loc[rows] = drawn.loc[stops.loc[rows, "place"]].to_numpy()
    return found


# --- plans ----------------------------------------------------------------------------------------


def make_plans(stops: pd.DataFrame, source: Source, polygons: GeoDataFrame) -> pd.DataFrame:
    """Return one row an activity in the order of the plans; a person at home all day has one row.

    `person_id`, `household_id`, `activity`, `x`, `y` (metres), `end` (seconds after midnight; of
    the last activity missing).
    """
    persons = source.persons
    homes = source.households["home_zone_id_before"]
    at_home = points_in(polygons, homes, keys.digest(source.seed, "matsim", "home"))
    rank = {a: i for i, a in enumerate(HOURS)}
    tours = stops[stops["at"] == 0][["person_id", "household_id", "tour", "activity"]]
    order = tours["activity"].map(rank).astype("int64") * 1000 + tours["tour"]
    begins = tours.assign(order=order, at=-1, leads=tours["activity"], activity="home")
    known = begins.set_index(["household_id", "tour"])["order"]
    middle = stops.join(known, on=["household_id", "tour"]).join(
        _points(polygons, stops, source.seed)
    )
    ends = pd.DataFrame(
        {
            "person_id": persons.index,
            "household_id": persons["household_id"].to_numpy(),
            "activity": "home",
            "order": len(rank) * 1000,
            "at": 0,
        }
    )
    columns = ["person_id", "household_id", "activity", "order", "at", "leads", "x", "y", "place"]
    rows = pd.concat([begins, middle, ends])[[c for c in columns if c in begins or c in middle]]
    rows = rows.sort_values(["person_id", "order", "at"], kind="stable", ignore_index=True)
    home = rows["activity"] == "home"
    rows.loc[home, ["x", "y"]] = at_home.loc[rows.loc[home, "household_id"]].to_numpy()
    return rows.assign(end=_ends(rows, source.seed))


def _ends(rows: pd.DataFrame, seed: int) -> np.ndarray:
    """Return when each activity ends, in seconds after midnight; NaN for the last of a plan."""
    person = rows["person_id"]
    first = ~person.duplicated()
    last = ~person.duplicated(keep="last")
    metres = np.hypot(rows["x"].diff(), rows["y"].diff())
    travel = (metres * SECONDS_PER_METRE).where(~first, 0.0)
    minutes = rows["activity"].map({a: stay for a, (_, _, stay) in HOURS.items()}).fillna(AT_HOME)
    # Who goes to work twice works as long as others, in two parts.
    parts = rows.groupby(["person_id", "activity"])["activity"].transform("size")
    minutes = minutes.where(~rows["activity"].isin(FIXED), minutes / parts)
    key = person * 1000 + rows.groupby("person_id").cumcount()
    drawn = keys.uniforms(key.to_numpy(), seed, "matsim", "time")
    # A stay takes between three and five quarters of what is usual.
    spent = travel + 60 * minutes * (0.75 + 0.5 * drawn)
    leads = rows["leads"].where(first).fillna("other")
    earliest = leads.map({a: h[0] for a, h in HOURS.items()})
    latest = leads.map({a: h[1] for a, h in HOURS.items()})
    departs = 3600 * (earliest + (latest - earliest) * drawn)
    spent = spent.where(~first, departs).where(~last, 0.0)
    begin = departs.where(first).groupby(person).transform("first")
    after = spent.groupby(person).cumsum() - begin
    whole = after.groupby(person).transform("max")
    room = 3600 * LAST_HOUR - begin
    # A day with more than fits is made shorter throughout.
    after = after * np.minimum(1.0, room / whole.where(whole > 0, 1.0))
    return (begin + after).where(~last).round().to_numpy()


def _counts(trips: pd.DataFrame, stops: pd.DataFrame) -> pd.DataFrame:
    """Return `trips` drawn and `legs` made by purpose: a leg home has its tour's last purpose."""
    legs = (
        stops["purpose"]
        .value_counts()
        .add(stops.loc[stops["at"] == stops["stops"] - 1, "last"].value_counts(), fill_value=0)
    )
    # The leg into the last stop of a tour of two purposes leads from another place.
    between = (stops["at"] > 0) & stops["purpose"].map(home_based).astype(bool)
    inner = [p for p in trips if not home_based(p)]
    for purpose, n in stops.loc[between, "purpose"].value_counts().items():
        legs[purpose] -= n
        legs[inner[0]] = legs.get(inner[0], 0) + n
    table = pd.DataFrame({"trips": trips.sum(), "legs": legs}).reindex(trips.columns).fillna(0)
    table.loc["all"] = table.sum()
    return table.astype("int64").rename_axis("purpose")


# --- XML ------------------------------------------------------------------------------------------


def _xml(plans: pd.DataFrame, source: Source, crs: str) -> Iterator[str]:
    title = str(source.manifest.get("title") or source.manifest.get("scenario"))
    yield '<?xml version="1.0" encoding="utf-8"?>\n'
    yield f'<!DOCTYPE population SYSTEM "{DTD}">\n'
    yield f"<population desc={quoteattr(title)}>\n"
    yield f"<attributes>{_attribute('coordinateReferenceSystem', 'String', crs)}</attributes>\n"
    heads = dict(zip(source.persons.index.tolist(), _heads(source), strict=True))
    modes = dict(zip(source.persons.index.tolist(), _modes(source), strict=True))
    before = None
    columns = ("person_id", "activity", "x", "y", "end")
    for person, activity, x, y, end in zip(*(plans[c].tolist() for c in columns), strict=True):
        if person != before:
            yield f"{'' if before is None else _CLOSE}{heads[person]}"
        else:
            yield f'<leg mode="{modes[person]}"/>\n'
        ends = "" if end != end else f' end_time="{_clock(end)}"'
        yield f'<activity type="{activity}" x="{x:.1f}" y="{y:.1f}"{ends}/>\n'
        before = person
    yield f"{'' if before is None else _CLOSE}</population>\n"


_CLOSE = "</plan></person>\n"


def _attribute(name: str, kind: str, value: object) -> str:
    return f'<attribute name="{name}" class="java.lang.{kind}">{escape(str(value))}</attribute>'


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def _car_available(source: Source) -> pd.Series:
    """Return `never`, `sometimes` or `always` for each person, from vehicles and drivers' ages."""
    persons, home = source.persons, source.persons["household_id"]
    drives = persons["age"] >= YOUNGEST_DRIVER
    vehicles = home.map(source.households["auto_ownership"])
    drivers = drives.groupby(home).transform("sum")
    some = pd.Series("sometimes", index=persons.index)
    return some.mask(vehicles >= drivers, "always").mask(~drives | (vehicles == 0), "never")


def _heads(source: Source) -> Iterator[str]:
    persons = source.persons
    zone = persons["household_id"].map(source.households["home_zone_id_before"])
    sex = persons["sex"].map({1: "m", 2: "f"})
    columns = (
        persons.index, persons["household_id"], persons["age"], sex,
        persons["pemploy"].isin([1, 2]), _car_available(source), zone,
    )  # fmt: skip
    for key, household, age, gender, works, car, lives in zip(
        *(c.tolist() for c in columns), strict=True
    ):
        attributes = (
            _attribute("age", "Integer", age),
            _attribute("sex", "String", gender),
            _attribute("employed", "Boolean", str(works).lower()),
            _attribute("carAvail", "String", car),
            _attribute("householdId", "String", household),
            _attribute("homeZone", "String", lives),
        )
        yield (
            f'<person id="{key}"><attributes>{"".join(attributes)}</attributes>'
            '<plan selected="yes">\n'
        )


def _modes(source: Source) -> list[str]:
    """Return a first mode for each person: car, ride or pt; nothing of modes is simulated."""
    car = _car_available(source)
    vehicles = source.persons["household_id"].map(source.households["auto_ownership"])
    young = source.persons["age"] < YOUNGEST_DRIVER
    modes = pd.Series("pt", index=car.index).mask(car != "never", "car")
    return modes.mask(young & (vehicles > 0), "ride").tolist()
