"""ActivitySim's households joined with a run's: pure functions of tables."""

from __future__ import annotations

import pandas as pd

from pemand_extension.runs import RunError, listed

HOME = "home_zone_id"
PREFIX = "pemand_"


def matched(
    households: pd.DataFrame, homes: pd.DataFrame, key: str, not_in_run: str = "refuse"
) -> pd.Index:
    """Return the ids of the *households* that the run knows too.

    Parameters
    ----------
    households
        ActivitySim's, indexed by `household_id`.
    homes
        The run's, as `read_homes` gives them.
    key
        The run's column of ids, which a message names.
    not_in_run
        `refuse`: every household must be in the run. `keep`: others stay as they are.

    Raises
    ------
    RunError
        Ids that the run does not know, and households of another size than in the run.
    """
    strange = households.index.difference(homes.index)
    ids = households.index.intersection(homes.index)
    problems = []
    if len(strange) and (not_in_run == "refuse" or not len(ids)):
        problems.append(
            f"{len(strange):,} of {len(households):,} households are not in the run "
            f"(by its column {key}), first {listed(strange)}; {_mend(strange, homes, key)}"
        )
    if "hhsize" in households:
        theirs, ours = households.loc[ids, "hhsize"], homes.loc[ids, "hhsize"]
        other = ids[theirs.to_numpy() != ours.to_numpy()]
        if len(other):
            shown = (f"{i} ({theirs[i]}, not {ours[i]})" for i in other[:3])
            problems.append(
                f"{len(other):,} households have another hhsize than in the run, first "
                f"{', '.join(shown)}: the ids are of two populations"
            )
    _refuse(problems)
    return ids


def _mend(strange: pd.Index, homes: pd.DataFrame, key: str) -> str:
    for column in homes.columns.intersection(["household_id", "seed_id"]):
        if column != key and strange.isin(homes[column]).all():
            return f"they are in its column {column}: write `household_id: {column}`"
    return (
        "give both the same population, or write `not_in_run: keep` for households that the run "
        "leaves out, such as group quarters"
    )


def relocated(
    households: pd.DataFrame, homes: pd.DataFrame, ids: pd.Index, zones: pd.Series
) -> pd.DataFrame:
    """Return *households* with `home_zone_id` after the run's moves, and `pemand_moved`.

    Parameters
    ----------
    households, homes
        As for `matched`, which gave *ids*.
    ids
        The households that take their home from the run.
    zones
        The zones' own ids, indexed by the ids that ActivitySim computes with (from 0 where its
        columns are recoded).

    Raises
    ------
    RunError
        Zones that ActivitySim does not have, and households that do not live where the run's
        lived before its moves: the moves would be those of others.
    """
    run = homes.loc[ids]
    before, after = run[f"{HOME}_before"], run[HOME]
    theirs = households.loc[ids, HOME].map(zones)
    problems = []
    strange = pd.Index(after).append(pd.Index(before)).difference(pd.Index(zones), sort=False)
    if len(strange):
        problems.append(f"{len(strange):,} zones are not in land_use, first {listed(strange)}")
    elsewhere = ids[(theirs != before).to_numpy()]
    if len(elsewhere) and not len(strange):
        shown = (f"{i} ({theirs[i]}, not {before[i]})" for i in elsewhere[:3])
        moved = (theirs[elsewhere] == after[elsewhere]).all()
        problems.append(
            f"{len(elsewhere):,} of {len(ids):,} households live in another zone than before the "
            f"run's moves, first {', '.join(shown)}; "
            + (
                "they have moved already: give ActivitySim home_zone_id_before"
                if moved
                else "give both the same population"
            )
        )
    _refuse(problems)
    column = households[HOME].copy()
    back = pd.Series(zones.index, index=pd.Index(zones))
    column.loc[ids] = after.map(back).astype(column.dtype)
    did = homes["moved"].reindex(households.index, fill_value=False)
    return households.assign(**{HOME: column, f"{PREFIX}moved": did.astype(bool)})


def trip_columns(trips: pd.DataFrame, homes: pd.DataFrame, index: pd.Index) -> pd.DataFrame:
    """Return the run's trips by ActivitySim's household: `pemand_trips` and `pemand_trips_...`.

    Households that are not in the run have none: their cells are empty, and whole numbers become
    decimals.

    Raises
    ------
    RunError
        Households of the run without a travel day.
    """
    known = homes.loc[homes.index.intersection(index, sort=False), "household_id"]
    lacking = known[~known.isin(trips.index)]
    if len(lacking):
        raise RunError(
            f"decisions.parquet: {len(lacking):,} households have no travel day, first "
            f"{listed(lacking.index)}"
        )
    theirs = trips.loc[known].set_axis(known.index).reindex(index)
    return theirs.rename(columns=lambda c: f"{PREFIX}trips" + ("" if c == "value" else f"_{c}"))


def differing(before: pd.DataFrame, after: pd.DataFrame, rows: pd.Index) -> list[str]:
    """Return the columns of *before* whose values in *rows* are not the same in *after*."""
    one, other = before.loc[rows], after.loc[rows]
    return [c for c in one if c not in other or not one[c].equals(other[c].astype(one[c].dtype))]


def _refuse(problems: list[str]) -> None:
    if len(problems) == 1:
        raise RunError(f"households: {problems[0]}")
    if problems:
        shown = "".join(f"\n  - {p}" for p in problems)
        raise RunError(f"households: {len(problems)} problems{shown}")
