"""What a policy changes: two runs on the same households, compared household by household.

The runs share their seed, so a household's draws are the same in both (common random numbers) and
its own difference is the policy's. Everything comes from the two runs' folders; the page is
`comparison_page`'s matter, several seeds of one scenario are `spread`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from pemand_abm import transcript
from pemand_abm.errors import PemandError, TableError, listed
from pemand_abm.geopackage import write_zones
from pemand_abm.groups import GROUPINGS, household_groups
from pemand_abm.ids import some
from pemand_abm.matrices import read_skims, write_matrices
from pemand_abm.report import Run, read_run
from pemand_abm.surrogate import PURPOSES
from pemand_abm.tables import write_csv, write_text

# The columns of a row of differences, in this order (docs/files.md).
COLUMNS = (
    "households", "base", "policy", "difference", "low", "high",
    "percent", "percent_low", "percent_high",
)  # fmt: skip
# Cells of fewer households get no elasticity and are not shown on the page (VALIDATION T4).
LEAST = 30
ALL = "all"
SIDECARS = ("trips_difference_zones.csv", "moves_difference_zones.csv", "elasticities.csv")


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Two runs and what differs.

    `groups` and `districts`: rows of `COLUMNS` by grouping (or district), group and measure.
    `zones`: a row a zone (docs/files.md). `changes`: how many households do more, fewer or as
    many. `elasticities`: a row a measure and group, empty without exactly one lever of numbers.
    `trips`, `moves`: differences of the matrices by core, in the order of `zones`.
    """

    base: Run
    policy: Run
    groups: pd.DataFrame
    districts: pd.DataFrame
    zones: pd.DataFrame
    changes: pd.DataFrame
    levers: list[dict[str, Any]]
    elasticities: pd.DataFrame
    trips: dict[str, np.ndarray]
    moves: dict[str, np.ndarray]
    settings: list[tuple[str, str, str]]
    talks: list[tuple[transcript.Record, transcript.Record]]

    @property
    def identical(self) -> bool:
        """Whether no table and no matrix differs anywhere."""
        tables = (self.groups["difference"], self.districts["difference"])
        zones = self.zones.filter(regex="_difference$").fillna(0.0).to_numpy(float)
        cores = (*self.trips.values(), *self.moves.values())
        return all((np.asarray(v) == 0).all() for v in (*tables, zones, *cores))

    def total(self, measure: str) -> pd.Series:
        """Return the row of the whole region."""
        return self.groups.set_index(["grouping", "measure"]).loc[(ALL, measure)]


# --- two runs -------------------------------------------------------------------------------------


def compare(base: Path, policy: Path, responses: pd.DataFrame | None = None) -> Comparison:
    """Compare the folders of two runs.

    Parameters
    ----------
    base, policy : Path
        Folders that `pemand run` wrote.
    responses : DataFrame, optional
        Published elasticities (`read_responses`).

    Raises
    ------
    PemandError
        A folder that is no whole run, or two runs that cannot be compared: other regions, seeds,
        zones, households or travel days.
    """
    one, other = read_run(base), read_run(policy)
    check_comparable(one, other)
    before, after = _outcomes(one), _outcomes(other)
    groups = household_groups(one.households, one.persons)
    everybody = pd.Series(ALL, one.households.index)
    by_group = pd.concat(
        [
            paired(before, after, labels).assign(grouping=name)
            for name, labels in (
                (ALL, everybody),
                *((g, groups[g]) for g in GROUPINGS if g in groups),
            )
        ]
    )
    moved = _changed_levers(one.manifest, other.manifest)
    home = _home(one)
    district = home.map(one.zones["district"])
    return Comparison(
        base=one,
        policy=other,
        groups=_in_order(by_group.reset_index(), "grouping"),
        districts=_in_order(paired(before, after, district).reset_index(), "district"),
        zones=_zones(one, other, paired(before, after, home)),
        changes=_changes(before, after, groups.assign(**{ALL: everybody})),
        levers=moved,
        elasticities=_elasticities(by_group.reset_index(), moved, responses),
        trips=_matrices(one, other, "trips.omx"),
        moves=_matrices(one, other, "moves.omx"),
        settings=_settings(one.manifest, other.manifest),
        talks=_changed_talks(one.transcripts, other.transcripts),
    )


def check_comparable(base: Run, policy: Run) -> None:
    """Refuse two runs whose households are not the same.

    Raises
    ------
    PemandError
        With everything that differs.
    """
    problems = []
    for key, mend in (
        ("region", "compare runs of one region"),
        (
            "seed",
            "run the policy with the base's seed (--seed), else most of a difference is chance; "
            "runs of one scenario with several seeds are for --seeds",
        ),
    ):
        a, b = base.manifest.get(key), policy.manifest.get(key)
        if a != b:
            problems.append(f"{key}: {a} and {b}; {mend}")
    for what, a, b in (
        ("zones", base.zones.index, policy.zones.index),
        ("households", base.households.index, policy.households.index),
    ):
        differ = a.astype(str).symmetric_difference(b.astype(str))
        if len(differ):
            problems.append(f"{what}: {len(differ)} are in one run only, first {some(differ)}")
    if not problems and {"seed_id"} <= {*base.households} & {*policy.households}:
        copies = base.households["seed_id"].astype(str)
        other = policy.households["seed_id"].astype(str).reindex(copies.index)
        if (copies != other).any():
            first = some(copies.index[copies != other])
            problems.append(
                f"seed_id: {int((copies != other).sum())} households are others in the two runs, "
                f"first household_id {first}; the regions' files differ"
            )
    days = [set(_trip_days(run)["event"]) for run in (base, policy)]
    if days[0] != days[1]:
        problems.append(
            f"travel days: {', '.join(sorted(days[0])) or 'none'} and "
            f"{', '.join(sorted(days[1])) or 'none'}"
        )
    if problems:
        raise PemandError(
            listed(problems, f"{base.folder} and {policy.folder} cannot be compared")
        )


def _trip_days(run: Run) -> pd.DataFrame:
    return run.decisions[run.decisions["kind"] == "trips"]


def _outcomes(run: Run) -> pd.DataFrame:
    """Return each household's trips of an average weekday, by purpose too, and completed moves."""
    days = _trip_days(run)
    columns = ["value", *(p for p in PURPOSES if p in days)]
    trips = days.groupby("household_id")[columns].sum() / max(days["event"].nunique(), 1)
    moved = run.events.loc[run.events["kind"] == "moved", "household_id"].value_counts()
    table = trips.rename(columns={"value": "trips"}).assign(moves=moved)
    return table.reindex(run.households.index).fillna(0.0).astype("float64")


def _home(run: Run) -> pd.Series:
    """Return the zone where each household lives on the travel day."""
    homes = run.households
    column = "home_zone_id_before" if "home_zone_id_before" in homes else "home_zone_id"
    return homes[column].astype(run.zones.index.dtype).rename("zone_id")


# --- differences ----------------------------------------------------------------------------------


def paired(base: pd.DataFrame, policy: pd.DataFrame, groups: pd.Series) -> pd.DataFrame:
    r"""Return totals, differences and 95 % intervals by group and measure.

    The households of a group are taken for a simple random sample of households of their kind.
    With the paired differences :math:`d_i` of its *n* households the total difference is
    :math:`D=\sum d_i` with :math:`V(D)=\frac{n}{n-1}\sum(d_i-\bar d)^2`; the percentage is
    :math:`R-1` of :math:`R=\sum p_i/\sum b_i` with the linearised variance
    :math:`V(R)=\frac{n}{n-1}\sum(p_i-Rb_i)^2/(\sum b_i)^2`. Both use Student's t of n - 1.

    Parameters
    ----------
    base, policy : DataFrame, shape (households, measures)
        Same index and columns.
    groups : Series
        The group of each household.

    Returns
    -------
    DataFrame
        Index (group, measure), `COLUMNS`. Intervals are empty for one household, percentages where
        the base is 0.

    Examples
    --------
    Three households with differences 0, 0 and 3: D = 3, V = 3/2 (1 + 1 + 4) = 9, t = 4.3027.

    >>> base = pd.DataFrame({"trips": [2.0, 4.0, 6.0]})
    >>> found = paired(base, base + [[0.0], [0.0], [3.0]], pd.Series(["a"] * 3))
    >>> found.loc[("a", "trips"), ["difference", "low", "high"]].round(3).tolist()
    [3.0, -9.908, 15.908]
    """
    from scipy import stats

    labels = groups.to_numpy()

    def by(table: pd.DataFrame) -> pd.DataFrame:
        return table.groupby(groups, observed=True).sum()

    n = groups.groupby(groups, observed=True).size()
    differences = policy - base
    total_base, total_policy, total = by(base), by(policy), by(differences)
    free = (n - 1).where(n > 1)
    t = pd.Series(stats.t.ppf(0.975, free), n.index)
    spread = differences - total.div(n, axis=0).loc[labels].set_axis(base.index)
    half = np.sqrt(by(spread**2).mul(n / free, axis=0)).mul(t, axis=0)
    ratio = total_policy / total_base.where(total_base > 0)
    residual = policy - ratio.loc[labels].set_axis(base.index) * base
    error = np.sqrt(by(residual**2).mul(n / free, axis=0)).mul(t, axis=0) / total_base
    error = error.where(ratio.notna())
    parts = {
        "base": total_base,
        "policy": total_policy,
        "difference": total,
        "low": total - half,
        "high": total + half,
        "percent": 100 * (ratio - 1),
        "percent_low": 100 * (ratio - 1 - error),
        "percent_high": 100 * (ratio - 1 + error),
    }
    long = pd.DataFrame({name: table.stack() for name, table in parts.items()})
    long.index = long.index.set_names(["group", "measure"])
    long["households"] = n.loc[long.index.get_level_values("group")].to_numpy()
    return long[list(COLUMNS)]


def _in_order(table: pd.DataFrame, first: str) -> pd.DataFrame:
    """Return a table of differences with its key columns first; a district is its own group."""
    if first == "district":
        table = table.rename(columns={"group": first})
        keys = [first, "measure"]
    else:
        keys = [first, "group", "measure"]
    return table.astype({k: "str" for k in keys})[[*keys, *COLUMNS]]


def _zones(base: Run, policy: Run, rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row a zone: differences of the households that live there, and of the files."""
    zones = base.zones.index
    held = rows.reset_index().pivot(index="group", columns="measure").reindex(zones)
    told: dict[str, pd.Series] = {}
    for measure in ("trips", "moves"):
        for column in ("base", "policy", "difference", "low", "high"):
            told[f"{measure}_{column}"] = held[(column, measure)]
    for purpose in (p for p in PURPOSES if ("difference", p) in held):
        told[f"{purpose}_difference"] = held[("difference", purpose)]
    households = base.demand["households"].set_axis(zones)
    # Where nobody lives nothing differs, and there is no interval.
    sums = [c for c in told if not c.endswith(("_low", "_high"))]
    table = pd.DataFrame(told, index=zones)
    table[sums] = table[sums].fillna(0.0)
    map_only = [c for c in base.zones if c not in base.demand and _is_number(base.zones[c])]
    differences = {
        f"{column}_difference": (after[column] - before[column]).set_axis(zones)
        for before, after, columns in (
            (base.demand, policy.demand, [c for c in base.demand if _is_number(base.demand[c])]),
            (base.zones, policy.zones, map_only),
        )
        for column in columns
        if column in after
    }
    return pd.concat(
        [
            base.zones["district"],
            households.rename("households"),
            table,
            pd.DataFrame(differences, index=zones),
        ],
        axis=1,
    ).rename_axis("zone_id")


def _is_number(column: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column))


def _changes(before: pd.DataFrame, after: pd.DataFrame, groups: pd.DataFrame) -> pd.DataFrame:
    """Return by group how many households make more, fewer, or as many trips, and move."""
    trips, moves = (after[m] - before[m] for m in ("trips", "moves"))
    kinds = pd.DataFrame(
        {
            "more_trips": trips > 0,
            "fewer_trips": trips < 0,
            "same_trips": trips == 0,
            "moves_more": moves > 0,
            "moves_fewer": moves < 0,
        }
    ).astype("int64")
    found = []
    for name in [ALL, *(g for g in GROUPINGS if g in groups)]:
        sums = kinds.groupby(groups[name], observed=True).sum()
        sums.insert(0, "households", groups[name].value_counts().reindex(sums.index))
        found.append(sums.rename_axis("group").reset_index().astype({"group": "str"}))
        found[-1].insert(0, "grouping", name)
    return pd.concat(found, ignore_index=True)


def _matrices(base: Run, policy: Run, name: str) -> dict[str, np.ndarray]:
    """Return policy less base for every core that both files have."""
    zones = base.zones.index
    one, other = (read_skims(run.folder / name, zones) for run in (base, policy))
    if set(one) != set(other):
        raise TableError(
            f"{policy.folder / name}: holds the cores {', '.join(other)}, the base "
            f"{', '.join(one)}; run both with one version of the program"
        )
    return {core: other[core] - one[core] for core in one}


# --- what was changed -----------------------------------------------------------------------------


def _settings(base: Mapping[str, Any], policy: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return what was run otherwise: name, in the base, in the policy."""
    kept = ("settings", "inputs", "model", "prompts_sha256", "versions", "admitted")
    one, other = (dict(_flat({k: m.get(k) for k in kept})) for m in (base, policy))
    skipped = ("settings.title", "settings.seed", "inputs.scenario")
    return [
        (name.removeprefix("settings."), _said(one.get(name)), _said(other.get(name)))
        for name in dict.fromkeys([*one, *other])
        if one.get(name) != other.get(name) and name not in skipped
    ]


def _flat(held: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(held, Mapping) and held:
        for key, value in held.items():
            yield from _flat(value, f"{name}.{key}" if name else str(key))
    else:
        yield name, held


def _said(value: Any) -> str:
    text = "not set" if value is None else str(value)
    # A checksum is told by its beginning.
    return text[:12] + "..." if len(text) == 64 and text.isalnum() else text


def levers_of(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the levers that a run's manifest names, each with its `name`."""
    held = manifest.get("levers") or []
    if isinstance(held, Mapping):
        held = [{"name": k, **(v if isinstance(v, Mapping) else {"to": v})} for k, v in held.items()]
    return [dict(lever) for lever in held if isinstance(lever, Mapping) and "name" in lever]


def _changed_levers(base: Mapping[str, Any], policy: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the levers whose values differ between the runs, `from` the base's value."""
    held = {str(lever["name"]): lever for lever in levers_of(base)}
    set_ = {str(lever["name"]): lever for lever in levers_of(policy)}
    changed = []
    for name in dict.fromkeys([*set_, *held]):
        lever = dict(set_.get(name) or held[name])
        start, end = lever.get("from"), lever.get("to")
        if name in held:
            start = held[name].get("to")
            end = set_[name].get("to") if name in set_ else held[name].get("from")
        if start != end:
            changed.append(lever | {"name": name, "from": start, "to": end})
    return changed


# --- elasticities ---------------------------------------------------------------------------------


def read_responses(path: Path) -> pd.DataFrame:
    """Read published elasticities: `lever`, `purpose`, `household_type`, `low`, `high`, `source`.

    Raises
    ------
    TableError
        A file that cannot be read, columns that lack, bounds that are no numbers.
    """
    try:
        table = pd.read_csv(path, dtype={c: "str" for c in ("lever", "purpose", "household_type")})
    except (OSError, ValueError) as fault:
        raise TableError(f"{path}: cannot be read as CSV ({fault})") from fault
    lacking = [
        c for c in ("lever", "purpose", "household_type", "low", "high", "source") if c not in table
    ]
    if lacking:
        raise TableError(f"{path}: lacks the columns {', '.join(lacking)}")
    problems = []
    for column in ("low", "high"):
        values = pd.to_numeric(table[column], errors="coerce")
        bad = values.isna()
        if bad.any():
            lines = ", ".join(str(i + 2) for i in np.flatnonzero(bad)[:3])
            problems.append(f"{column}: {int(bad.sum())} are not numbers, first in line {lines}")
        table[column] = values
    if problems:
        raise TableError(listed(problems, str(path)))
    return table.fillna({"purpose": ALL, "household_type": ALL, "source": ""})


def elasticity(ratio: float, start: float, end: float) -> tuple[float, str]:
    """Return the elasticity of what changes by *ratio* when a lever goes from *start* to *end*.

    ``log``: ln(ratio) / ln(end / start). ``arc``, where an end is 0: the changes over their
    midpoints.

    >>> round(elasticity(0.95, 1.0, 1.5)[0], 4)
    -0.1265
    >>> round(elasticity(1.2, 2.0, 0.0)[0], 4), elasticity(1.2, 2.0, 0.0)[1]
    (-0.0909, 'arc')
    """
    if start > 0 and end > 0:
        return float(np.log(ratio) / np.log(end / start)) if ratio > 0 else np.nan, "log"
    change = (end - start) / ((end + start) / 2)
    return float((ratio - 1) / ((ratio + 1) / 2) / change), "arc"


def _numeric(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and np.isfinite(value)


def _elasticities(
    rows: pd.DataFrame, levers: Sequence[Mapping[str, Any]], responses: pd.DataFrame | None
) -> pd.DataFrame:
    """Return elasticities of trips and moves, with the published range where one is known.

    Only one changed lever has any: of several nothing says which made the change.
    """
    columns = [
        "lever", "grouping", "group", "measure", "from", "to", "unit", "form", "households",
        "elasticity", "low", "high",
        "published_low", "published_high", "source", "flag",
    ]  # fmt: skip
    usable = [
        lever
        for lever in levers
        if _numeric(lever["from"])
        and _numeric(lever["to"])
        and min(lever["from"], lever["to"]) >= 0
        and lever["from"] != lever["to"]
    ]
    if len(usable) != 1 or len(levers) != 1:
        return pd.DataFrame(columns=columns)
    lever = usable[0]
    start, end = float(lever["from"]), float(lever["to"])
    found = []
    for row in rows[rows["percent"].notna() & (rows["households"] >= LEAST)].to_dict("records"):
        value, form = elasticity(1 + row["percent"] / 100, start, end)
        ends = [
            elasticity(1 + row[c] / 100, start, end)[0] for c in ("percent_low", "percent_high")
        ]
        known = _published(responses, lever["name"], row)
        found.append(
            {
                "lever": lever["name"],
                **{k: str(row[k]) for k in ("grouping", "group", "measure")},
                "from": start,
                "to": end,
                "unit": lever.get("unit", ""),
                "form": form,
                "households": row["households"],
                "elasticity": value,
                "low": min(ends),
                "high": max(ends),
                **known,
                "flag": _flag(value, known),
            }
        )
    return pd.DataFrame(found, columns=columns)


def _published(
    responses: pd.DataFrame | None, lever: str, row: Mapping[str, Any]
) -> dict[str, Any]:
    nothing = {"published_low": np.nan, "published_high": np.nan, "source": ""}
    if responses is None:
        return nothing
    kinds = {str(row["group"])} | ({ALL, ""} if row["grouping"] == ALL else set())
    purposes = {str(row["measure"])} | ({ALL, ""} if row["measure"] == "trips" else set())
    held = responses[
        (responses["lever"] == lever)
        & responses["purpose"].isin(purposes)
        & responses["household_type"].isin(kinds)
    ]
    if held.empty:
        return nothing
    return {
        "published_low": float(held["low"].min()),
        "published_high": float(held["high"].max()),
        "source": "; ".join(dict.fromkeys(held["source"].astype(str))),
    }


def _flag(value: float, known: Mapping[str, Any]) -> str:
    low, high = known["published_low"], known["published_high"]
    if np.isnan(low) or np.isnan(value):
        return ""
    if low <= value <= high:
        return "within"
    return "wrong sign" if (low > 0 > value) or (high < 0 < value) else "outside"


# --- talks ----------------------------------------------------------------------------------------


def _changed_talks(
    base: Sequence[transcript.Record], policy: Sequence[transcript.Record]
) -> list[tuple[transcript.Record, transcript.Record]]:
    """Return the talks held in both runs that differ, those whose values differ most first."""
    held = {(r["household_id"], r.get("event")): r for r in base}
    pairs = [
        (held[key], r) for r in policy if (key := (r["household_id"], r.get("event"))) in held
    ]
    return sorted((p for p in pairs if _told(p[0]) != _told(p[1])), key=_distance, reverse=True)


def _told(record: transcript.Record) -> tuple[Any, ...]:
    turns = [(t.get("speaker"), t.get("text"), t.get("value")) for t in record.get("turns", [])]
    return (record.get("value"), record.get("constraints"), turns)


def _distance(pair: tuple[transcript.Record, transcript.Record]) -> tuple[float, int, int]:
    one, other = (r.get("value") for r in pair)
    apart = abs(one - other) if _numeric(one) and _numeric(other) else float(one != other)
    said = [[t.get("text") for t in r.get("turns", [])] for r in pair]
    changed = sum(a != b for a, b in zip(*said, strict=False)) + abs(len(said[0]) - len(said[1]))
    return apart, changed, len(transcript.speakers(pair[1]))


# --- files ----------------------------------------------------------------------------------------


def write_comparison(found: Comparison, out: Path) -> None:
    """Write the tables, the map, the matrices and `compare.yaml` into *out*."""
    zones = found.zones
    write_csv(zones, out / "by_zone.csv")
    write_csv(found.districts.set_index("district"), out / "by_district.csv")
    write_csv(found.groups.set_index("grouping"), out / "by_group.csv")
    write_csv(found.changes.set_index("grouping"), out / "changes.csv")
    if len(found.elasticities):
        write_csv(found.elasticities.set_index("lever"), out / "elasticities.csv")
    write_zones(
        out / "differences.gpkg", found.base.zones, zones, "trips_difference", diverging=True
    )
    write_matrices(out / "trips_difference.omx", found.trips, zones.index)
    write_matrices(out / "moves_difference.omx", found.moves, zones.index)
    write_text(yaml.safe_dump(manifest_of(found), sort_keys=False), out / "compare.yaml")


def manifest_of(found: Comparison) -> dict[str, Any]:
    """Return what was compared and what came out, for `compare.yaml`."""
    trips, moves = found.total("trips"), found.total("moves")
    base, policy = found.base, found.policy
    return {
        "base": {"folder": base.folder.name, "scenario": base.manifest.get("scenario")},
        "policy": {"folder": policy.folder.name, "scenario": policy.manifest.get("scenario")},
        "region": base.manifest.get("region"),
        "seed": base.manifest.get("seed"),
        "identical": found.identical,
        "levers": [
            {k: v for k, v in lever.items() if isinstance(v, (str, int, float, bool))}
            for lever in found.levers
        ],
        "changed": [{"name": n, "base": a, "policy": b} for n, a, b in found.settings],
        "totals": {
            measure: {c: float(row[c]) for c in COLUMNS if c != "households"}
            for measure, row in (("trips", trips), ("moves", moves))
        },
    }


def summary(found: Sequence[Comparison]) -> pd.DataFrame:
    """Return a row a policy and measure of the region: `policy`, `measure` and `COLUMNS`."""
    rows = []
    for one in found:
        table = one.groups[one.groups["grouping"] == ALL].drop(columns=["grouping", "group"])
        rows.append(table.assign(policy_folder=one.policy.folder.name))
    table = pd.concat(rows, ignore_index=True)
    return table[["policy_folder", "measure", *COLUMNS]]
