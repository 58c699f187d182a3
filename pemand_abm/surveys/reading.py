"""Read a survey through its map into the two checked tables of a `Survey`."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from pemand_abm.errors import TableError, listed
from pemand_abm.ids import are_whole, as_text, some
from pemand_abm.settings import suggestion
from pemand_abm.surveys import Features, Survey
from pemand_abm.surveys.maps import (
    CANONICAL,
    NUMBERS,
    Code,
    Column,
    Instead,
    SurveyMap,
    Table,
    map_of,
)

WHOLE = ("hhsize", "num_workers", "auto_ownership", "children", "age_of_head")
CRITICAL = ("hhsize", "weight", "trips", "moved", "age", "auto_ownership")
"""Columns without which a household is of no use; it is dropped unless the map says otherwise."""
OLDEST = 120


@dataclass(slots=True)
class Raw:
    """A survey's tables as its files have them, before the map is applied.

    Columns are in lower case. `others` are the files that only a step in Python knows.
    """

    households: pd.DataFrame
    persons: pd.DataFrame | None
    others: dict[str, pd.DataFrame]
    dropped: list[tuple[str, str, int]] = field(default_factory=list)

    def drop(self, file: str, what: str, rows: int) -> None:
        """Note rows that were left out or mended."""
        if rows:
            self.dropped.append((file, what, int(rows)))


Prepare = Callable[[Raw, SurveyMap], Raw]


def _steps() -> dict[str, Prepare]:
    """Return the steps that no map can say, by the name that `prepare` gives."""
    from pemand_abm.surveys import psid, psrc, roster

    return {
        "roster of counts": roster.from_counts,
        "roster of columns": roster.from_columns,
        "young children": roster.with_young,
        **getattr(psrc, "STEPS", {}),
        **getattr(psid, "STEPS", {}),
    }


def read_survey(name: str | Path, data: Path | None = None) -> Survey:
    """Read and check one survey cycle.

    Parameters
    ----------
    name : str or Path
        A shipped survey (``nhts2017``), the path of a map, or a folder that `pemand import-survey`
        wrote.
    data : Path, optional
        The folder of the survey's files; that of the map by default.

    Raises
    ------
    SettingsError
        For an unknown survey or a faulty map.
    TableError
        For files that are missing or do not hold what the map says, all faults at once.
    """
    given, folder = map_of(name)
    where = Path(data) if data is not None else folder
    if where is None:
        raise TableError(f"{name}: say where its files are with --data FOLDER (docs/surveys.md)")
    raw = _opened(given, where)
    raw.households = _filtered(raw, raw.households, given.households)
    if raw.persons is not None and given.persons:
        raw.persons = _filtered(raw, raw.persons, given.persons)
    if given.prepare:
        steps = _steps()
        if given.prepare not in steps:
            hint = suggestion(given.prepare, steps)
            raise TableError(f"{name}: no step {given.prepare!r}{hint}; leave prepare out")
        raw = steps[given.prepare](raw, given)
    return _checked(raw, given)


# --- files --------------------------------------------------------------------------------------


def _opened(given: SurveyMap, folder: Path) -> Raw:
    """Open every file of the survey; what any of them lacks is named in one error."""
    faults: list[str] = []

    def stacked(files: list[str], wanted: Iterable[str] = ()) -> pd.DataFrame:
        frames = []
        for name in files:
            try:
                path = _file(name, folder)
                frames.append(_read(path))
            except TableError as fault:
                faults.append(fault.message)
                continue
            missing = [c for c in wanted if c.lower() not in frames[-1]]
            faults.extend(
                f"{path}: there is no column {c}{suggestion(c, frames[-1].columns)}"
                for c in dict.fromkeys(missing)
            )
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    tables = [t for t in (given.households, given.persons) if t is not None]
    homes, *persons = (stacked(t.files, _named(t)) for t in tables)
    others = {key: stacked(extra.files) for key, extra in given.others.items()}
    if faults:
        one = len(set(faults)) == 1
        raise TableError(faults[0] if one else listed(faults, given.survey))
    return Raw(homes, persons[0] if persons else None, others)


def _named(table: Table) -> list[str]:
    """Return the columns of the file that a table's map names."""
    own = [*table.id, *([table.household] if table.household else []), *table.where]
    return [*own, *(column.source for column in table.columns.values())]


def _file(name: str, folder: Path) -> Path:
    """Return the file of this name, in any letter case, as parquet or CSV."""
    if not folder.is_dir():
        raise TableError(f"{folder}: there is no such folder; name the survey's with --data")
    wanted = [f"{name}{end}".lower() for end in ("", ".parquet", ".csv")]
    found = {f.name.lower(): f for f in folder.iterdir() if f.is_file()}
    for candidate in wanted:
        if candidate in found:
            return found[candidate]
    raise TableError(
        f"{folder}: there is no {name}.parquet or {name}.csv"
        f"{suggestion(name + '.csv', (f.name for f in found.values()))}"
    )


def _read(path: Path) -> pd.DataFrame:
    try:
        frame = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    except UnicodeDecodeError as fault:
        raise TableError(f"{path}: is not UTF-8 ({fault.reason}); save it as CSV UTF-8") from fault
    except (OSError, ValueError, StopIteration) as fault:
        raise TableError(f"{path}: cannot be read ({fault})") from fault
    names = [str(c).strip().lower() for c in frame.columns]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise TableError(f"{path}: column {', '.join(twice)} stands there twice; leave one")
    if frame.empty:
        raise TableError(f"{path}: has no rows")
    return frame.set_axis(names, axis=1)


def _parquet(path: Path) -> pd.DataFrame:
    frame = pd.read_parquet(path)
    return frame.reset_index() if frame.index.name else frame  # As this package writes tables.


def _csv(path: Path) -> pd.DataFrame:
    """Read a CSV with codes such as 01 as they stand: a column is text unless all are numbers."""
    names = _header(path)
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        raise ValueError("its columns are not separated by commas; save it as CSV with commas")
    # Without names of its own pandas takes a row that is too long for one with an index.
    try:
        frame = pd.read_csv(
            path, header=None, skiprows=1, dtype=str, keep_default_na=False, encoding="utf-8-sig"
        )
    except pd.errors.EmptyDataError:
        return pd.DataFrame(columns=names)
    if frame.shape[1] != len(names):
        raise ValueError(f"{len(names)} names of columns, but rows of {frame.shape[1]} values")
    return frame.apply(_plain).set_axis(names, axis=1)


def _header(path: Path) -> list[str]:
    """Return a CSV's names as they stand there: pandas renames those that come twice."""
    if not path.stat().st_size:
        raise ValueError("it is empty")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return next(csv.reader(file))


def _plain(column: pd.Series) -> pd.Series:
    """Return a text column as numbers where every value is one and none has a leading zero."""
    text = column.str.strip()
    if text.str.fullmatch(r"-?0\d+").any():
        return text.where(text != "")
    numbers = pd.to_numeric(text.where(text != ""), errors="coerce")
    if numbers.notna().eq(text != "").all():
        whole = numbers.notna().all() and (numbers % 1 == 0).all()
        if whole and (numbers.abs() >= 2**63).any():
            return numbers.astype("float64")
        return numbers.astype("int64") if whole else numbers
    return text.where(text != "")


def _filtered(raw: Raw, frame: pd.DataFrame, table: Table) -> pd.DataFrame:
    for column, values in table.where.items():
        keep = _codes_of(frame[column.lower()]).isin([_code(v) for v in values])
        raw.drop(table.files[0], f"{column} is none of {_few(values)}", (~keep).sum())
        frame = frame[keep]
    if frame.empty:
        raise TableError(f"{table.files[0]}: no row is left after {_few(list(table.where))}")
    return frame.reset_index(drop=True)


def _few(values: list) -> str:
    shown = ", ".join(map(str, values[:6]))
    return shown + (", ..." if len(values) > 6 else "")


# --- codes --------------------------------------------------------------------------------------


def _code(value: object) -> str:
    """Return a code as text, the same for 1, 1.0, "1" and "01".

    >>> {_code(v) for v in (1, 1.0, "1", "01", " 1 ")}
    {'1'}
    >>> _code("-9"), _code("Missing: Skip Logic")
    ('-9', 'Missing: Skip Logic')
    """
    text = str(value).strip()
    whole = re.fullmatch(r"(-?[0-9]+)(\.0)?", text)
    return str(int(whole[1])) if whole else text


def _codes_of(column: pd.Series) -> pd.Series:
    """Return a column's codes as text (`_code`); missing values stay missing."""
    known = column.dropna().unique()
    return column.map({v: _code(v) for v in known}).astype("object")


def _silent(column: pd.Series, nonresponse: list[Code]) -> pd.Series:
    """Return the rows without an answer: blank, or one of the survey's codes of non-response."""
    codes = _codes_of(column)
    return codes.isna() | codes.isin([_code(v) for v in nonresponse]) | codes.eq("")


def _mapped(source: pd.Series, column: Column, silent: pd.Series) -> pd.Series:
    if column.codes is None:
        return source.where(~silent)
    known = {_code(k): v for k, v in column.codes.items()}
    codes = _codes_of(source)
    in_map = codes.isin(list(known))
    values = codes.map(known)
    if column.other is not None:
        values = values.where(in_map, column.other)
    return values.where(~silent | in_map)


# --- tables -------------------------------------------------------------------------------------


def _ids(columns: pd.DataFrame) -> pd.Series:
    """Return one id a row: the column itself, or several joined by a hyphen.

    Numbers are int64; text stays as it stands, with its leading zeros.
    """
    texts = [as_text(columns[c]) for c in columns]
    if len(texts) > 1:
        blank = pd.concat(texts, axis=1).eq("").any(axis=1)
        return texts[0].str.cat(texts[1:], sep="-").mask(blank, "")
    numeric = pd.api.types.is_numeric_dtype(columns.iloc[:, 0])
    return texts[0].astype("int64") if numeric and are_whole(texts[0]) else texts[0].astype("str")


def _table(
    raw: Raw, frame: pd.DataFrame, table: Table, given: SurveyMap, name: str
) -> tuple[pd.DataFrame, list[str]]:
    """Return the canonical columns, then the file's own in lower case, and what is wrong."""
    file, faults = table.files[0], []
    ids = pd.Index(_ids(frame[[c.lower() for c in table.id]]), name=name)
    made: dict[str, pd.Series] = {}
    for key, column in table.columns.items():
        made |= _canonical(raw, file, frame, key, column, given.nonresponse)
    canonical = pd.DataFrame(made, index=frame.index)
    for key in [c for c in canonical if c in NUMBERS]:
        told = canonical[key]
        canonical[key] = pd.to_numeric(told, errors="coerce").astype("float64")
        odd = (told.notna() & canonical[key].isna()).to_numpy()
        if odd.any():
            first = _first(ids[odd], told[odd])
            faults.append(
                f"{file}: {table.columns[key].source} ({key}): {odd.sum()} values are no numbers,"
                f" first at {first}; give their `codes`, or list them under nonresponse"
            )
    empty = (ids.astype("str") == "").sum()
    if empty:
        faults.append(f"{file}: {', '.join(table.id)}: {empty} rows have no id; give each its own")
    taken = [c for c in frame if c in canonical or c in ("household_id", "person_id")]
    result = pd.concat([canonical, frame.drop(columns=taken)], axis=1).set_axis(ids, axis=0)
    return result, faults + (_twice(ids, file) if not empty else [])


def _canonical(
    raw: Raw, file: str, frame: pd.DataFrame, key: str, column: Column, nonresponse: list[Code]
) -> dict[str, pd.Series]:
    """Return a canonical column, with `key_to` where it has bands; count what it leaves untold."""
    source = frame[column.source.lower()]
    silent = _silent(source, nonresponse)
    if column.bands is not None:
        bands = {_code(k): v for k, v in column.bands.items()}
        codes = _codes_of(source)
        made = {
            key: codes.map({k: v[0] for k, v in bands.items()}),
            f"{key}_to": codes.map({k: v[1] for k, v in bands.items()}),
        }
    else:
        made = {key: _mapped(source, column, silent)}
    if key not in CANONICAL["households"] | CANONICAL["persons"]:
        return made
    unlisted = made[key].isna() & ~silent
    names = ", ".join(sorted(map(str, source[unlisted].unique()))[:5])
    raw.drop(file, f"untold: {key}: the map does not list {column.source} {names}", unlisted.sum())
    if column.missing == "keep" or (column.missing is None and key not in CRITICAL):
        raw.drop(file, f"untold: {key}: no answer", (made[key].isna() & silent).sum())
    return made


def _first(ids: pd.Index, values: pd.Series) -> str:
    """Return the first bad rows for a message."""
    return ", ".join(f"{i} ({v})" for i, v in zip(ids[:3], values[:3], strict=True))


def _checked(raw: Raw, given: SurveyMap) -> Survey:
    file = given.households.files[0]
    homes, problems = _table(raw, raw.households, given.households, given, "household_id")
    if given.persons is not None:
        assert raw.persons is not None
        persons, more = _table(raw, raw.persons, given.persons, given, "person_id")
        problems += more
        source = given.persons.household or given.persons.id[0]
        persons["household_id"] = _ids(raw.persons[[source.lower()]]).to_numpy()
        persons_file = given.persons.files[0]
    elif raw.persons is not None:  # made by a step
        persons, persons_file = raw.persons, file
    else:
        raise TableError(f"{given.survey}: the map names no persons; add them, or a roster step")
    homes, persons = _same_ids(homes, persons)
    if len(homes) and not persons["household_id"].isin(homes.index).any():
        problems.append(
            f"{persons_file}: no person's household ({some(persons['household_id'])}) is one of"
            f" {file}'s ({some(homes.index)}); write the ids alike in both files"
        )
    if problems:  # Go on without the rows that come twice, to name all that is wrong at once.
        homes = homes[~homes.index.duplicated()]
        persons = persons[~persons.index.duplicated()]
    homes, persons = _mended(raw, homes, persons, given)
    persons = _known_homes(raw, homes, persons, persons_file)
    homes, persons = _whole_households(raw, homes, persons, file)
    persons = _numbered(persons)
    homes = _derived(homes, persons, given)
    faults = [*problems, *(_faults(homes, persons, given) if len(homes) or not problems else [])]
    if faults:
        raise TableError(listed(faults, given.survey))
    dropped = pd.DataFrame(raw.dropped, columns=["file", "what", "rows"])
    features = Features(
        tuple(given.features.numeric),
        tuple(given.features.categorical),
        tuple(given.features.persons),
    )
    absent = [c for c in (*features.numeric, *features.categorical) if c not in homes]
    absent += [c for c in features.persons if c not in persons]
    if absent:
        raise TableError(
            f"{given.survey}: the map's features name {_few(absent)}, which no table has"
        )
    homes = _whole(_features_answered(homes, features, given), given.target)
    return Survey(
        given.survey,
        given.title,
        given.year,
        given.target,
        given.unit,
        homes,
        persons,
        dropped,
        given.facts,
        features,
    )


def _features_answered(homes: pd.DataFrame, features: Features, given: SurveyMap) -> pd.DataFrame:
    """Return the households with the numeric features as numbers, no answer as NaN."""
    raw = [c for c in features.numeric if c not in NUMBERS]
    numbers = {
        c: pd.to_numeric(homes[c].where(~_silent(homes[c], given.nonresponse)), errors="coerce")
        for c in raw
    }
    return homes.assign(**{f"{c}": v.astype("float64") for c, v in numbers.items()})


def _twice(index: pd.Index, file: str) -> list[str]:
    twice = index[index.duplicated()]
    if twice.empty:
        return []
    first = ", ".join(map(str, twice.unique()[:3]))
    return [f"{file}: {index.name}: {len(twice)} rows come twice, first {first}; leave one of each"]


def _same_ids(homes: pd.DataFrame, persons: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return both tables with ids of one type: int64 where both can be, else text."""
    own, theirs = homes.index, persons["household_id"]
    if pd.api.types.is_integer_dtype(own) == pd.api.types.is_integer_dtype(theirs):
        return homes, persons
    number = own if pd.api.types.is_integer_dtype(own) else theirs
    text = theirs if number is own else pd.Series(own)
    if text.astype(str).str.fullmatch(r"[1-9]\d*").all():
        homes = homes.set_axis(pd.Index(own.astype("int64"), name=own.name), axis=0)
        return homes, persons.assign(household_id=theirs.astype("int64"))
    homes = homes.set_axis(pd.Index(own.astype("str"), name=own.name), axis=0)
    return homes, persons.assign(household_id=theirs.astype("str"))


def _mended(
    raw: Raw, homes: pd.DataFrame, persons: pd.DataFrame, given: SurveyMap
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Apply the missing-data rules; a member without a critical answer drops the household."""
    tables = {"households": (homes, given.households)}
    if given.persons is not None:
        tables["persons"] = (persons, given.persons)
    bad: pd.Index = pd.Index([])
    mended = {}
    for name, (frame, table) in tables.items():
        file = table.files[0]
        for key, column in table.columns.items():
            rule = column.missing or ("drop" if key in CRITICAL else "keep")
            lacks = frame[key].isna()
            if not lacks.any() or rule == "keep":
                continue
            if rule == "drop":
                ids = frame.index if name == "households" else frame["household_id"]
                lost = pd.Index(ids[lacks]).unique()
                raw.drop(file, f"dropped: {key} is not told", len(lost))
                bad = bad.union(lost)
                continue
            fill = _stand_in(frame[key], rule, f"{file}: {column.source} ({key})")
            word = "" if isinstance(rule, Instead) else f"its {rule} "
            raw.drop(file, f"mended: {key} is not told, taken as {word}{fill}", lacks.sum())
            frame = frame.assign(**{key: frame[key].fillna(fill)})
        mended[name] = frame
    homes, persons = mended["households"], mended.get("persons", persons)
    keep = ~persons["household_id"].isin(bad)
    return homes[~homes.index.isin(bad)], persons[keep]


def _stand_in(column: pd.Series, rule: str | Instead, where: str) -> Code:
    """Return the value that stands in for an answer that lacks."""
    if isinstance(rule, Instead):
        return rule.to
    if column.isna().all():
        raise TableError(f"{where}: nobody answered, so there is no {rule}; give another rule")
    return column.median() if rule == "median" else column.mode().iloc[0]


def _known_homes(raw: Raw, homes: pd.DataFrame, persons: pd.DataFrame, file: str) -> pd.DataFrame:
    known = persons["household_id"].isin(homes.index)
    raw.drop(file, "dropped: persons of households that are not there", (~known).sum())
    return persons[known]


def _whole_households(
    raw: Raw, homes: pd.DataFrame, persons: pd.DataFrame, file: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Drop the households of which a member, or all, are missing from the persons."""
    counted = persons.groupby("household_id").size().reindex(homes.index, fill_value=0)
    if "hhsize" not in homes:
        homes = homes.assign(hhsize=counted.astype("float64"))
    none, part = counted == 0, (counted > 0) & (counted != homes["hhsize"])
    raw.drop(file, "dropped: households without persons", none.sum())
    raw.drop(file, "dropped: households whose size is not the number of their persons", part.sum())
    keep = ~(none | part)
    return homes[keep], persons[persons["household_id"].isin(homes.index[keep])]


def _derived(homes: pd.DataFrame, persons: pd.DataFrame, given: SurveyMap) -> pd.DataFrame:
    """Add what the persons tell of the household and the file does not."""
    by_home = persons.groupby("household_id")
    homes = homes.assign(
        children=(persons["age_to"] < 18)
        .groupby(persons["household_id"])
        .sum()
        .reindex(homes.index)
    )
    if "age_of_head" not in homes:
        homes = homes.assign(age_of_head=by_home["age"].max().reindex(homes.index))
    if "num_workers" not in homes and "pemploy" in persons:
        works = persons["pemploy"].isin([1, 2]).groupby(persons["household_id"]).sum()
        homes = homes.assign(num_workers=works.reindex(homes.index))
    for column, default in (("tenure", ""), ("home_zone_id", "")):
        values = homes[column] if column in homes else pd.Series(default, homes.index)
        homes[column] = values.fillna(default).astype("str")
    if given.days:
        codes = _codes_of(homes[given.days.source.lower()])
        homes = homes.assign(weekday=codes.isin([_code(d) for d in given.days.weekdays]))
    elif "weekday" not in homes or homes["weekday"].dtype != bool:
        homes = homes.assign(weekday=True)
    return homes


def _whole(homes: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return the households with whole numbers as int64, where all were told."""
    whole = [c for c in (*WHOLE, target) if c in homes and homes[c].notna().all()]
    return homes.assign(**{c: homes[c].astype("int64") for c in whole})


def _numbered(persons: pd.DataFrame) -> pd.DataFrame:
    if "PNUM" not in persons:
        persons = persons.assign(PNUM=persons.groupby("household_id").cumcount() + 1)
    if "age_to" not in persons:
        persons = persons.assign(age_to=persons["age"])
    codes = {
        c: pd.to_numeric(persons[c], errors="coerce").fillna(0)
        for c in ("sex", "pemploy", "pstudent")
        if c in persons
    }
    persons = persons.assign(**codes)
    for column in ("PNUM", "age", "age_to", *codes):
        if persons[column].notna().all():
            persons[column] = pd.to_numeric(persons[column]).astype("int64")
    return persons if "inferred" in persons else persons.assign(inferred=False)


def _counts(least: int) -> Callable[[pd.Series], pd.Series]:
    return lambda v: (v >= least) & (v % 1 == 0)


def _faults(homes: pd.DataFrame, persons: pd.DataFrame, given: SurveyMap) -> list[str]:
    """Return what is wrong with the values, each with the first bad rows."""
    if homes.empty:
        return ["no household is left; look at the map's codes, filters and missing-data rules"]
    checks = [
        (homes, "hhsize", _counts(1), "whole numbers of 1 or more"),
        (homes, "auto_ownership", _counts(0), "whole numbers of 0 or more"),
        (homes, "num_workers", _counts(0), "whole numbers of 0 or more"),
        (homes, "income", lambda v: v.isna() | (np.abs(v) < 1e9), "an income in USD"),
        (homes, "weight", lambda v: v > 0, "numbers above 0"),
        (persons, "age", lambda v: v.between(0, OLDEST), f"ages from 0 to {OLDEST}"),
        (persons, "age_to", lambda v: v.between(0, OLDEST), f"ages from 0 to {OLDEST}"),
        (persons, "PNUM", lambda v: v >= 1, "whole numbers of 1 or more"),
    ]
    trips = given.target == "trips"  # the census asks of cars after the move, if at all
    if trips:
        good = (homes, "trips", _counts(0), "whole numbers of 0 or more")
    else:
        good = (homes, "moved", lambda v: v.isin([0, 1]), "0 or 1")
    faults = []
    for frame, column, passes, asked in [*checks, good]:
        if column not in frame:
            needed = ("weight", given.target, *(["auto_ownership"] if trips else []))
            if column in needed:
                faults.append(f"the map gives no column {column}, which every survey needs")
            continue
        bad = frame.index[~passes(frame[column]).to_numpy(dtype=bool)]
        if len(bad):
            faults.append(
                f"{frame.index.name.removesuffix('_id')}s.{column}: {len(bad)} values are not"
                f" {asked}, first at {frame.index.name} {_first(bad, frame.loc[bad, column])};"
                f" mend {_origin(given, column, frame)}, or recode them in the map"
            )
    return faults


def _origin(given: SurveyMap, column: str, frame: pd.DataFrame) -> str:
    """Return the column and file that a canonical column comes from, for a message."""
    table = given.households if frame.index.name == "household_id" else given.persons
    if table is None or column not in table.columns:
        return "them"
    return f"column {table.columns[column].source} of {table.files[0]}"
