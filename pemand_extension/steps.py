"""The two steps as ActivitySim runs them: tables from its state, joined, and put back."""

from __future__ import annotations

import logging

import pandas as pd
from activitysim.abm.models.initialize import initialize_households
from activitysim.core import workflow
from activitysim.core.input import read_input_table

from pemand_extension import joining
from pemand_extension.runs import RunError, in_zones_of, read_homes, read_trips
from pemand_extension.settings import FILE, PemandSettings

# ActivitySim's logging.yaml shows what comes under its own name.
logger = logging.getLogger("activitysim.pemand_extension")

INITIALIZE = "initialize_households"


@workflow.step
def pemand_relocation(
    state: workflow.State, households: pd.DataFrame, land_use: pd.DataFrame
) -> None:
    """Let households live where the run's completed moves took them.

    Stands right after `initialize_households`, which is then repeated from the input with the same
    random numbers, so that all that depends on the home zone follows; or anywhere before it. Adds
    `pemand_moved` to households.
    """
    after = _is_right_after_initialize(state.settings.models)
    settings = PemandSettings.read_settings_file(state.filesystem, FILE)
    homes = read_homes(settings.run, settings.household_id)
    ids = joining.matched(households, homes, settings.household_id, settings.not_in_run)
    own = land_use.get(f"_original_{land_use.index.name}", land_use.index.to_series())
    homes = in_zones_of(settings.run, homes, own)
    moved = joining.relocated(households, homes, ids, own)
    if after:
        _initialize_again(state, moved, households)
    else:
        state.add_table("households", moved)
    logger.info(
        "pemand_relocation: %d of %d households moved, %d to another zone; %d are not in the run",
        moved["pemand_moved"].sum(),
        len(moved),
        (moved["home_zone_id"] != households["home_zone_id"]).sum(),
        len(moved) - len(ids),
    )


@workflow.step
def pemand_trip_targets(state: workflow.State, households: pd.DataFrame) -> None:
    """Add to households their trips of a weekday: `pemand_trips`, `pemand_trips_hbw` and others."""
    settings = PemandSettings.read_settings_file(state.filesystem, FILE)
    homes = read_homes(settings.run, settings.household_id)
    joining.matched(households, homes, settings.household_id, settings.not_in_run)
    trips = read_trips(settings.run, settings.trip_columns)
    added = joining.trip_columns(trips, homes, households.index)
    state.add_table("households", households.assign(**added))
    logger.info("pemand_trip_targets: added %s", ", ".join(added))


def _is_right_after_initialize(models: list[str]) -> bool:
    """Say whether the relocation stands after `initialize_households`, and refuse it later on."""
    names = [m.lstrip("_") for m in models]
    if INITIALIZE not in names or names.index("pemand_relocation") < names.index(INITIALIZE):
        return False
    between = names[names.index(INITIALIZE) + 1 : names.index("pemand_relocation")]
    if late := [m for m in between if not m.startswith("pemand_")]:
        raise RunError(
            f"models: {', '.join(late)} would use homes before the moves; "
            f"put pemand_relocation right after {INITIALIZE}"
        )
    return True


def _initialize_again(state: workflow.State, moved: pd.DataFrame, households: pd.DataFrame) -> None:
    """Repeat `initialize_households` as it would have been with the homes of *moved*.

    The input is read again, since annotations need not be repeatable: the example's writes over
    `pstudent`, on which another of its columns depends.

    Raises
    ------
    RunError
        Where that changes households that did not move.
    """
    if state.is_table("disaggregate_accessibility"):  # It is joined to persons only once.
        raise RunError(
            "disaggregate accessibilities are joined by home zone and cannot be joined again; "
            f"put pemand_relocation before {INITIALIZE} in `models`"
        )
    persons = state.get_dataframe("persons")
    raw = read_input_table(state, "households").loc[households.index]
    kept = moved[[c for c in ("sample_rate", "home_zone_id") if c in moved]]
    state.add_table("households", raw.assign(**kept))
    state.add_table("persons", read_input_table(state, "persons").loc[persons.index])
    rng = state.get_rn_generator()
    own = rng.step_name
    rng.end_step(own)
    rng.begin_step(INITIALIZE)  # The same seeds, hence the same draws.
    try:
        initialize_households(state)
    finally:
        rng.end_step(INITIALIZE)
        rng.begin_step(own)
    again = state.get_dataframe("households")
    again = again.assign(**moved[moved.columns.difference(again.columns, sort=False)])
    state.add_table("households", again)
    stayed = households.index[(moved["home_zone_id"] == households["home_zone_id"]).to_numpy()]
    theirs = persons.index[persons["household_id"].isin(stayed)]
    changed = [
        *joining.differing(households, again, stayed),
        *joining.differing(persons, state.get_dataframe("persons"), theirs),
    ]
    if changed:
        raise RunError(
            f"{INITIALIZE} cannot be repeated after the moves: it would change "
            f"{', '.join(changed)} of households that did not move; "
            f"put pemand_relocation before {INITIALIZE} in `models`"
        )
