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
from pemand_abm.effects import Effects, policy_effects
from pemand_abm.errors import PemandError, TableError, listed
from pemand_abm.geopackage import write_zones
from pemand_abm.groups import household_groups
from pemand_abm.ids import some
from pemand_abm.matrices import read_skims, write_matrices
from pemand_abm.report import Run, read_run
from pemand_abm.report_tables import EFFECTS, levers_of
from pemand_abm.responses import is_type, purposes_of
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

    `households`: those of either run, as they are in the base where they live in both. `groups`
    and `districts`: rows of `COLUMNS` by grouping (or district), group and measure. `zones`: a row
    a zone (docs/files.md). `changes`: how many households do more, fewer or as many.
    `elasticities`: a row a group and measure, empty without exactly one lever in percent. `trips`,
    `moves`: differences of the matrices by core, in the order of `zones`. `settings`: name, in the
    base, in the policy. `talks`: pairs that differ, those most different first.
    """

    base: Run
    policy: Run
    households: pd.DataFrame
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
    effects: Effects
    placebo: Run | None = None

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


def compare(
    base: Path,
    policy: Path,
    responses: pd.DataFrame | None = None,
    placebo: Path | None = None,
) -> Comparison:
    """Compare the folders of two runs.

    Parameters
    ----------
    base, policy : Path
        Folders that `pemand run` wrote.
    responses : DataFrame, optional
        Published elasticities (`responses.read_responses`).
    placebo : Path, optional
        The folder of a run whose lever is none of the households' business.

    Raises
    ------
    PemandError
        A folder that is no whole run, or two runs that cannot be compared: other regions, seeds,
        zones, households or travel days.
    """
    one, other = read_run(base), read_run(policy)
    check_comparable(one, other)
    nothing = None if placebo is None else read_run(placebo)
    if nothing is not None:
        check_comparable(one, nothing)
    homes, members = _everybody(one, other)
    before, after = (_outcomes(run, homes.index) for run in (one, other))
    kinds = household_groups(homes, members)
    groups = pd.concat([pd.Series(ALL, homes.index, name=ALL), kinds], axis=1)
    by_group = pd.concat(
        [paired(before, after, groups[g]).assign(grouping=g) for g in groups], sort=False
    ).reset_index()
    moved = _changed_levers(one.manifest, other.manifest)
    home = _home(homes, one.zones.index)
    district = home.map(one.zones["district"])
    known = _published(responses, moved, before, homes, groups)
    return Comparison(
        base=one,
        policy=other,
        households=homes,
        groups=_in_order(by_group, "grouping"),
        districts=_in_order(paired(before, after, district).reset_index(), "district"),
        zones=_zones(one, other, paired(before, after, home)),
        changes=_changes(before, after, groups),
        levers=moved,
        elasticities=_elasticities(by_group, moved, known),
        trips=_matrices(one, other, "trips.omx"),
        moves=_matrices(one, other, "moves.omx"),
        settings=_settings(one.manifest, other.manifest),
        talks=_changed_talks(one.transcripts, other.transcripts),
        effects=policy_effects(
            one, other, homes, district, responses, moved[0] if len(moved) == 1 else None, nothing
        ),
        placebo=nothing,
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
    ids = [("zones", base.zones.index, policy.zones.index)]
    for key in ("days", "years"):
        a, b = ((run.manifest.get("settings") or {}).get(key) for run in (base, policy))
        if a != b:
            problems.append(f"{key}: {a} and {b}; compare runs of the same length")
    # Over years households form and dissolve, and not the same ones under every policy.
    if not any(_years(run) > 1 for run in (base, policy)):
        ids.append(("households", base.households.index, policy.households.index))
    for what, a, b in ids:
        differ = a.astype(str).symmetric_difference(b.astype(str))
        if len(differ):
            problems.append(f"{what}: {len(differ)} are in one run only, first {some(differ)}")
    problems += [] if problems else _others(base.households, policy.households)
    days = [set(_trip_days(run)["event"]) for run in (base, policy)]
    if days[0] != days[1]:
        problems.append(
            f"travel days: {', '.join(sorted(days[0])) or 'none'} and "
            f"{', '.join(sorted(days[1])) or 'none'}"
        )
    if problems:
        raise PemandError(listed(problems, f"{base.folder} and {policy.folder} cannot be compared"))


def _years(run: Run) -> int:
    return int((run.manifest.get("settings") or {}).get("years") or 1)


def _others(base: pd.DataFrame, policy: pd.DataFrame) -> list[str]:
    """Return a problem where one id stands for different households of the seed."""
    if "seed_id" not in base or "seed_id" not in policy:
        return []
    both = base.index.intersection(policy.index)
    differ = both[(base["seed_id"].astype(str)[both] != policy["seed_id"].astype(str)[both])]
    if not len(differ):
        return []
    return [
        f"seed_id: {len(differ)} households are others in the two runs, first household_id "
        f"{some(differ)}; the regions' files differ"
    ]


def _everybody(base: Run, policy: Run) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Return households and persons of either run, as they are in the base where in both."""
    new = policy.households.index.difference(base.households.index)
    homes = pd.concat([base.households, policy.households.loc[new]])
    if base.persons is None or policy.persons is None:
        return homes, base.persons
    arrived = policy.persons[policy.persons["household_id"].isin(new)]
    return homes, pd.concat([base.persons, arrived])


def _trip_days(run: Run) -> pd.DataFrame:
    return run.decisions[run.decisions["kind"] == "trips"]


def _outcomes(run: Run, households: pd.Index) -> pd.DataFrame:
    """Return each household's trips of an average weekday, by purpose too, and completed moves.

    A household that the run does not have makes none.
    """
    days = _trip_days(run)
    columns = ["value", *(p for p in PURPOSES if p in days)]
    trips = days.groupby("household_id")[columns].sum() / max(days["event"].nunique(), 1)
    moved = run.events.loc[run.events["kind"] == "moved", "household_id"].value_counts()
    table = trips.rename(columns={"value": "trips"}).assign(moves=moved)
    return table.reindex(households).fillna(0.0).astype("float64")


def _home(homes: pd.DataFrame, zones: pd.Index) -> pd.Series:
    """Return the zone where each household lives on the travel day."""
    column = "home_zone_id_before" if "home_zone_id_before" in homes else "home_zone_id"
    return homes[column].astype(zones.dtype).rename("zone_id")


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
    >>> found = paired(base, base.assign(trips=[2.0, 4.0, 9.0]), pd.Series(["a"] * 3))
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
    return table.astype(dict.fromkeys(keys, "str"))[[*keys, *COLUMNS]]


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
    for name in groups:
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
    # What the scenario's own file holds is told key by key.
    skipped = ("settings.title", "settings.seed", "inputs.scenario", "inputs.base ")
    return [
        (name.removeprefix("settings."), _said(one.get(name)), _said(other.get(name)))
        for name in dict.fromkeys([*one, *other])
        if one.get(name) != other.get(name) and not name.startswith(skipped)
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


def _changed_levers(base: Mapping[str, Any], policy: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of levers that only one of the runs has; `run` says which."""
    one, other = (levers_of(manifest) for manifest in (base, policy))

    def told(lever: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in lever.items() if k not in EFFECTS}

    return [
        lever | {"run": name}
        for name, own, others in (("base", one, other), ("policy", other, one))
        for lever in own
        if told(lever) not in [told(o) for o in others]
    ]


def setting_words(lever: Mapping[str, Any]) -> str:
    """Return what a lever is set to, in one line.

    >>> setting_words({"lever": "fuel_price", "percent": 50.0, "response": "x", "run": "policy"})
    'percent 50'
    """
    kept = {
        k: v
        for k, v in lever.items()
        if k not in (*EFFECTS, "lever", "run") and v not in (None, "", [], {})
    }
    return ", ".join(
        f"{k.replace('_', ' ')} {f'{v:g}' if isinstance(v, float) else v}" for k, v in kept.items()
    )


# --- elasticities ---------------------------------------------------------------------------------


def elasticity(ratio: float, change: float, form: str) -> float:
    """Return the elasticity of what changes by *ratio* when a lever changes by *change*.

    ``elasticity``: ln(ratio) / ln(1 + change). ``arc``: the relative change for the whole change of
    the lever, (ratio - 1) / abs(change).

    >>> round(elasticity(0.95, 0.5, "elasticity"), 4), round(elasticity(1.02, -1.0, "arc"), 4)
    (-0.1265, 0.02)
    """
    if form == "arc":
        return (ratio - 1) / abs(change)
    return float(np.log(ratio) / np.log1p(change)) if ratio > 0 else float("nan")


def _numeric(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and np.isfinite(value)


def single_lever(levers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the one lever of which elasticities can be told: in percent, for everybody.

    Of several levers nothing says which made the change.
    """
    if len(levers) != 1:
        return None
    (lever,) = levers
    narrow = [k for k in ("area", "values", "start") if lever.get(k)]
    whole = _numeric(lever.get("percent")) and lever["percent"] != 0 and not narrow
    return lever if whole and lever["run"] == "policy" else None


def _rows_of(responses: pd.DataFrame | None, lever: Mapping[str, Any] | None) -> pd.DataFrame:
    if responses is None or lever is None:
        return pd.DataFrame()
    return responses[responses["lever"] == (lever.get("response") or lever["lever"])]


def _published(
    responses: pd.DataFrame | None,
    levers: Sequence[Mapping[str, Any]],
    base: pd.DataFrame,
    households: pd.DataFrame,
    groups: pd.DataFrame,
) -> pd.DataFrame:
    """Return the published response by grouping, group and measure of trips.

    Published figures are by purpose and household type. A group's is their mean, weighted by the
    base's trips of its households; what the table does not name counts as 0.
    Columns `published`, `low`, `high`, `form`, `source`; empty where the table has no such lever.
    """
    rows = _rows_of(responses, single_lever(levers))
    if rows.empty:
        return pd.DataFrame()
    known = [p for p in PURPOSES if p in base]
    parts = []
    for name in ("elasticity", "low", "high"):
        each = pd.DataFrame(0.0, index=base.index, columns=known)
        for row in rows.to_dict("records"):
            columns = [p for p in purposes_of(row["purpose"]) if p in known]
            each.loc[is_type(households, row["household_type"]), columns] = row[name]
        weighed = each * base[known]
        parts.append(weighed.assign(trips=weighed.sum(axis=1)))
    totals = base[known].assign(trips=base[known].sum(axis=1))
    found = []
    for grouping in groups:
        labels = groups[grouping]
        over = totals.groupby(labels, observed=True).sum()
        means = {
            name: (part.groupby(labels, observed=True).sum() / over.where(over > 0)).stack()
            for name, part in zip(("published", "low", "high"), parts, strict=True)
        }
        table = pd.DataFrame(means).rename_axis(["group", "measure"]).reset_index()
        found.append(table.assign(grouping=grouping))
    forms, sources = (rows[c].drop_duplicates() for c in ("form", "source"))
    return pd.concat(found).assign(form=forms.iloc[0], source="; ".join(sources))


ELASTICITY_COLUMNS = (
    "lever", "percent", "form", "grouping", "group", "measure", "households", "value", "low",
    "high", "published", "published_low", "published_high", "flag", "source",
)  # fmt: skip


def _elasticities(
    rows: pd.DataFrame, levers: Sequence[Mapping[str, Any]], known: pd.DataFrame
) -> pd.DataFrame:
    """Return elasticities of trips and moves, with the published range where one is known."""
    lever = single_lever(levers)
    if lever is None:
        return pd.DataFrame(columns=list(ELASTICITY_COLUMNS))
    change = float(lever["percent"]) / 100
    form = "arc" if change <= -1 else "elasticity"
    table = rows[rows["percent"].notna() & (rows["households"] >= LEAST)].copy()
    if len(known):
        form = str(known["form"].iloc[0])
        names = {"low": "published_low", "high": "published_high"}
        keys = ["grouping", "group", "measure"]
        table = table.merge(known.drop(columns="form").rename(columns=names), on=keys, how="left")
    else:
        table = table.assign(published=np.nan, published_low=np.nan, published_high=np.nan)
        table["source"] = ""

    def told(column: str) -> pd.Series:
        return table[column].map(lambda v: elasticity(1 + v / 100, change, form))

    ends = pd.concat([told("percent_low"), told("percent_high")], axis=1)
    table = table.assign(
        lever=lever["lever"],
        percent=float(lever["percent"]),
        form=form,
        value=told("percent"),
        low=ends.min(axis=1, skipna=False),
        high=ends.max(axis=1, skipna=False),
    )
    table["flag"] = _flags(table)
    return table.fillna({"source": ""})[list(ELASTICITY_COLUMNS)].reset_index(drop=True)


def _flags(table: pd.DataFrame) -> pd.Series:
    """Return `within`, `outside` or `wrong sign`; nothing where no range is known."""
    value, low, high = (table[c] for c in ("value", "published_low", "published_high"))
    # Room for rounding: means of equal values differ in the last digit.
    close = 1e-12
    within = (value >= low - close) & (value <= high + close)
    wrong = ((low > close) & (value < 0)) | ((high < -close) & (value > 0))
    flags = np.select([within, wrong], ["within", "wrong sign"], "outside")
    return pd.Series(flags, table.index).where(low.notna() & value.notna(), "")


# --- talks ----------------------------------------------------------------------------------------


def _changed_talks(
    base: Sequence[transcript.Record], policy: Sequence[transcript.Record]
) -> list[tuple[transcript.Record, transcript.Record]]:
    """Return the talks held in both runs that differ, those whose values differ most first."""
    held = {(r["household_id"], r.get("event")): r for r in base}
    pairs = [(held[key], r) for r in policy if (key := (r["household_id"], r.get("event"))) in held]
    return sorted((p for p in pairs if _told(p[0]) != _told(p[1])), key=_distance, reverse=True)


def _told(record: transcript.Record) -> tuple[Any, ...]:
    turns = [(t.get("speaker"), t.get("text"), t.get("value")) for t in record.get("turns", [])]
    return (record.get("value"), record.get("constraints"), turns)


def _distance(pair: tuple[transcript.Record, transcript.Record]) -> tuple[float, int, int]:
    one, other = (r.get("value") for r in pair)
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        apart = float(abs(one - other))
    else:
        apart = float(one != other)
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
    write_csv(found.effects.table, out / "effects.csv")
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
        **(
            {
                "placebo": {
                    "folder": found.placebo.folder.name,
                    "scenario": found.placebo.manifest.get("scenario"),
                }
            }
            if found.placebo
            else {}
        ),
        "region": base.manifest.get("region"),
        "seed": base.manifest.get("seed"),
        "identical": found.identical,
        "levers": [
            {"run": v["run"], "lever": v["lever"], "set": setting_words(v)} for v in found.levers
        ],
        "changed": [{"name": n, "base": a, "policy": b} for n, a, b in found.settings],
        "totals": {
            measure: {c: float(row[c]) for c in COLUMNS if c != "households"}
            for measure, row in (("trips", trips), ("moves", moves))
        },
        "effects": {
            name: None if pd.isna(value) else value
            for name, value in found.effects.region().to_dict().items()
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
