"""Solve a region's calibration from targets, with a scenario's population and survey rates.

It starts from the model without calibration, so it gives the same numbers when run again. Levers
and years of the scenario play no part.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from pemand_abm import __version__
from pemand_abm.calibration import (
    FILE,
    NONE,
    Calibration,
    read_calibration,
    read_targets,
    solve_rates,
)
from pemand_abm.errors import SettingsError, TableError, listed
from pemand_abm.lengths import calibrated, modelled_minutes
from pemand_abm.region import Region, read_region
from pemand_abm.scenario import Scenario
from pemand_abm.study import TRAVEL_DAY, demand_of, inhabited, zone_demand_of
from pemand_abm.surrogate import Rates, move_rates, read_rates
from pemand_abm.tables import sha256


def solve(scenario: Scenario, name: str, targets: Path, say: Callable[[str], None]) -> pd.DataFrame:
    """Return the rows of `calibration.csv` that bring the scenario's model to the *targets*.

    *name* is the scenario's, for the record. Lengths are solved on the drawn trips of the
    scenario's seed, after trips are calibrated.

    Raises
    ------
    TableError
        Faults of the targets, all at once; a file of that name in the region that is not ours.
    SettingsError
        Lengths that no decay of 0 or more gives; faults of the region or the demand's settings.
    """
    wanted = read_targets(targets)
    region, rates = read_region(scenario.region), read_rates(scenario.rates)
    if FILE in region.recipe.files:
        raise SettingsError(
            f"{region.folder}: the recipe names {FILE}; give that file another name"
        )
    read_calibration(region.folder)  # A file that we cannot read is not ours to replace.
    say(f"Synthesizing {region.recipe.title}")
    households = inhabited(region, scenario.seed).households
    say("Solving the calibration")
    solved, problems = solve_rates(wanted, households, move_rates(households, rates), rates)
    lengths = wanted[wanted["measure"] == "minutes"]
    if len(lengths) and "decay" in scenario.demand.model_fields_set:
        problems.append(
            "minutes: the scenario gives demand.decay, which stands before a calibrated decay; "
            "leave one out"
        )
    if problems:
        raise TableError(listed(problems, str(targets)))
    made = Calibration.of(solved)
    rows = _lengths(scenario, region, households, rates, lengths, made, str(targets))
    return pd.concat([part for part in (solved, rows) if len(part)], ignore_index=True).assign(
        scenario=name,
        seed=scenario.seed,
        targets=f"{targets.name} sha256 {sha256(targets)}",
        version=__version__,
    )


def _lengths(
    scenario: Scenario,
    region: Region,
    households: pd.DataFrame,
    rates: Rates,
    lengths: pd.DataFrame,
    solved: Calibration,
    of: str,
) -> pd.DataFrame:
    """Return the rows of the trip lengths; their values are decays a minute."""
    if lengths.empty:
        return lengths
    before, after = (
        made.drawn(households, rates, scenario.seed, TRAVEL_DAY) for made in (NONE, solved)
    )
    target = dict(zip(lengths["purpose"], lengths["value"], strict=True))
    none = [p for p in target if not (before[p].sum() and after[p].sum())]
    if none:
        raise TableError(f"{of}: no trip of {', '.join(none)} is drawn, so it has no length")
    settings = demand_of(scenario, region, households, before, NONE)
    at_first, demand = (
        zone_demand_of(trips, households, region, settings) for trips in (before, after)
    )
    decay = calibrated(settings, demand, region.skims, target, of).decay
    return lengths.assign(
        modelled=[modelled_minutes(settings, at_first, region.skims, p) for p in target],
        target=lengths["value"],
        value=lengths["purpose"].map(decay),
    )
