"""Puget Sound's surveys: the trips of a household's first ordinary weekday, and the 2014 panel.

PSRC gives every household a day or, where a phone recorded, a week of them. What a map cannot say
is done here: which day of the week a travel day was, which of a household's days counts, how many
trips its members of five and over made on it, and whose work and school stand in two columns.
"""

from __future__ import annotations

import pandas as pd

from pemand_abm.surveys.maps import SurveyMap
from pemand_abm.surveys.reading import Prepare, Raw

DAY = ["hh_id", "daynum"]
WEEK = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WEEKEND = WEEK[4:]  # As PSRC samples: an ordinary travel day is a Monday to a Thursday.
UNDER_FIVE = "Under 5 years old"
CHILD, UNDER_16 = "Under 18 years", (UNDER_FIVE, "5-11 years", "12-15 years")
FULL, PART, NONE, TOO_YOUNG = 1, 2, 3, 4  # pemploy
SCHOOL, COLLEGE, NO_STUDENT, NOT_TOLD = 1, 2, 3, 0  # pstudent
# Self-employed say hours only. En dashes as in the file.
SHORT_HOURS = ("10 hours or fewer", "11\u201320 hours", "21\u201330 hours", "31-34 hours")
STUDENT_OF = {
    "Daycare": NO_STUDENT,
    "Preschool": NO_STUDENT,
    "None": NO_STUDENT,
    "K-12 public school": SCHOOL,
    "K-12 private school": SCHOOL,
    "K-12 home school (full-time or part-time)": SCHOOL,
    "College, graduate, or professional school": COLLEGE,
    "Vocational/technical school": COLLEGE,
}
AFTER_THE_MOVE = ("moved_2014_2015", "panel_moveinspect")  # and all that ends in _2015


def weekdays(trips: pd.DataFrame) -> pd.Series:
    """Return the day of the week of each travel day that has a trip, by (hh_id, daynum).

    It is the one on which most of the day's trips began, the earlier of two that tie: a travel
    day goes on after midnight, so that a late ride home on a Thursday is dated Friday.
    """
    named = trips.assign(place=pd.Categorical(trips["travel_dow"], WEEK).codes)
    count = named[named["place"] >= 0].groupby([*DAY, "place"]).size().rename("n").reset_index()
    most = count.sort_values([*DAY, "n", "place"], ascending=[True, True, False, True])
    first = most.drop_duplicates(DAY).set_index(DAY)["place"]
    return first.map(dict(enumerate(WEEK))).rename("weekday")


def first_days(
    days: pd.DataFrame,
    trips: pd.DataFrame,
    persons: pd.DataFrame,
    incomplete: pd.Index | None = None,
) -> tuple[pd.DataFrame, list[tuple[str, int]]]:
    """Return each household's lowest ordinary day with its trips, and what was left out.

    Parameters
    ----------
    days : DataFrame
        One row a household-day: ``hh_id, daynum, day_weight``.
    trips : DataFrame
        One row a person's trip: ``hh_id, person_id, daynum, travel_dow``.
    persons : DataFrame
        ``person_id, age`` (a band).
    incomplete : Index of (hh_id, daynum), optional
        Days that the survey marks as not complete.

    Returns
    -------
    table : DataFrame
        Index ``hh_id``: ``daynum, day_weight, weekday`` (empty where the day has no trip: the file
        dates trips only), ``trips``.
    dropped : list of (sentence, rows)
    """
    key = pd.MultiIndex.from_frame(days[DAY])
    broken = key.isin(incomplete) if incomplete is not None else pd.Series(False, key).to_numpy()
    weekday = weekdays(trips).reindex(key)
    late = weekday.isin(WEEKEND).to_numpy()
    used = days.assign(weekday=weekday.fillna("").to_numpy())[~broken & ~late]
    first = used.sort_values(DAY).drop_duplicates("hh_id").set_index("hh_id")

    listed = pd.MultiIndex.from_frame(trips[DAY]).isin(key)
    young = trips["person_id"].map(persons.set_index("person_id")["age"]).eq(UNDER_FIVE)
    made = trips[~young].groupby(DAY).size()
    count = made.reindex(pd.MultiIndex.from_frame(first.reset_index()[DAY]), fill_value=0)
    homes = days["hh_id"].nunique()
    undated = int(first["weekday"].eq("").sum())
    dropped = [
        ("household-days that the survey marks as incomplete were left out", int(broken.sum())),
        ("household-days of a Friday to Sunday were left out", int((late & ~broken).sum())),
        ("households without another day were left out", homes - len(first)),
        ("later days of households with several were not used", len(used) - len(first)),
        ("trips that match no household-day were left out", int((~listed).sum())),
        ("trips of persons under 5 were not counted", int((young & listed).sum())),
        (
            "households without any trip were kept as zero: their day of the week is not told",
            undated,
        ),
    ]
    table = first[["daynum", "day_weight", "weekday"]].assign(trips=count.to_numpy("int64"))
    return table, dropped


# --- the steps that a map names -----------------------------------------------------------------


def prepare_days(raw: Raw, given: SurveyMap) -> Raw:
    """Add ``trips``, ``weight`` and ``day`` (the day's name) of each household's first weekday.

    Persons get their own ``trips`` of that day; those of members under 5 are in no household's.

    The map's `others` are ``day``, ``trip`` and, where the households' file does not tell the
    county of the home, ``home``.
    """
    homes, persons = _whole_ids(raw.households), _whole_ids(_persons(raw))
    mine = {key: t[t["hh_id"].isin(homes["hh_id"])] for key, t in raw.others.items()}
    table, dropped = first_days(mine["day"], mine["trip"], persons, _incomplete(homes))
    for what, rows in dropped:
        raw.drop("household-days and trips", what, rows)
    homes = homes[homes["hh_id"].isin(table.index)]
    own = table.reindex(homes["hh_id"]).set_axis(homes.index)
    homes = homes.assign(trips=own["trips"], weight=own["day_weight"], day=own["weekday"])
    if "home" in mine:
        county = mine["home"].set_index("hh_id")["home_county"]
        place = homes["hh_id"].map(county)
        homes = homes.assign(home_county=place, home_zone_id=place)
    day = pd.MultiIndex.from_frame(table.reset_index()[DAY])
    on_it = mine["trip"][pd.MultiIndex.from_frame(mine["trip"][DAY]).isin(day)]
    made = on_it.groupby("person_id").size()
    persons = persons.assign(trips=persons["person_id"].map(made).fillna(0).astype("int64"))
    if "schooltype" in persons:
        persons = persons.assign(pemploy=_work(persons), pstudent=_school(persons))
    raw.households, raw.persons = _without_travel(homes), _without_travel(persons)
    return raw


def prepare_2014(raw: Raw, given: SurveyMap) -> Raw:
    """Add ``trips`` of the 2014 cycle, and its members' work and school."""
    homes = raw.households.apply(_numbers)
    raw.households = _without_travel(homes.assign(trips=homes["hhnumtrips"]))
    raw.persons = _daysim(_persons(raw))
    return raw


def prepare_panel(raw: Raw, given: SurveyMap) -> Raw:
    """Add ``moved``, and drop every answer that was given after it."""
    homes = raw.households.assign(moved=raw.households["moved_2014_2015"])
    late = [c for c in homes if c.endswith("_2015") or c in AFTER_THE_MOVE]
    raw.households = homes.drop(columns=late)
    raw.persons = _daysim(_persons(raw))
    return raw


def _persons(raw: Raw) -> pd.DataFrame:
    assert raw.persons is not None  # The map names the persons' file.
    return raw.persons


def _whole_ids(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with whole-number ids, and `hh_id` and `person_id` among their names."""
    ids = table.filter(["hhid", "personid", "hh_id", "person_id"]).astype("int64")
    named = ids.rename(columns={"hhid": "hh_id", "personid": "person_id"})
    return table.assign(**ids, **named.drop(columns=ids.columns, errors="ignore"))


def _incomplete(homes: pd.DataFrame) -> pd.Index | None:
    """Return the days that `day1complete` to `day7complete` (2017 only) mark with No."""
    marks = [c for c in homes if c.startswith("day") and c.endswith("complete")]
    if not marks:
        return None
    flags = homes.set_index("hh_id")[marks]
    flags.columns = pd.Index([int(c[3]) for c in marks], name="daynum")
    stacked = flags.stack()
    return stacked.index[stacked.eq("No")]


def _without_travel(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table without the counts of trips, which would give the target away."""
    return table.drop(columns=[c for c in table if "trip" in c and c != "trips"])


def _numbers(column: pd.Series) -> pd.Series:
    """Return a column of codes that the file holds as text as numbers."""
    numbers = pd.to_numeric(column, errors="coerce")
    return numbers if numbers.notna().equals(column.notna()) else column


def _work(persons: pd.DataFrame) -> pd.Series:
    """Return `pemploy`; under 18 the file says only whether there is a job."""
    adult = persons["employment"].str.extract(r"^(Employed full|Employed part|Self)", expand=False)
    work = adult.map({"Employed full": FULL, "Employed part": PART, "Self": FULL}).fillna(NONE)
    short = persons["employment"].eq("Self-employed") & persons["hours_work"].isin(SHORT_HOURS)
    young = persons["age_category"].eq(CHILD)
    job = persons["worker"].str.startswith("1+")
    work = work.mask(short, PART).mask(young & job, PART).mask(young & ~job, NONE)
    return work.mask(persons["age"].isin(UNDER_16), TOO_YOUNG).astype("int64")


def _school(persons: pd.DataFrame) -> pd.Series:
    """Return `pstudent` of the kind of school; who is no student has none."""
    kind = persons["schooltype"].map(STUDENT_OF)
    none = persons["student"].eq("No, not a student")
    return kind.mask(none, NO_STUDENT).fillna(NOT_TOLD).astype("int64")


def _daysim(persons: pd.DataFrame) -> pd.DataFrame:
    """Return DaySim's persons with `pemploy` and `pstudent`.

    `pwtyp` and `pstyp` say 0 none, 1 full time, 2 part time. DaySim makes every child a student;
    of one under five (person type 8) that is no answer.
    """
    young, infant = persons["pptyp"].isin([7, 8]), persons["pptyp"].eq(8)
    work = persons["pwtyp"].map({0: NONE, 1: FULL, 2: PART}).mask(young, TOO_YOUNG)
    level = persons["pagey"].lt(18).map({True: SCHOOL, False: COLLEGE})
    school = level.where(persons["pstyp"].gt(0), NO_STUDENT).mask(infant, NOT_TOLD)
    return persons.assign(pemploy=work.astype("int64"), pstudent=school.astype("int64"))


STEPS: dict[str, Prepare] = {
    "psrc days": prepare_days,
    "psrc 2014": prepare_2014,
    "psrc panel": prepare_panel,
}
