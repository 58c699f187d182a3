"""`pemand calibrate`: bring a region's trip rates, move rates and trip lengths to targets."""

from __future__ import annotations

from pathlib import Path

import click

from pemand_abm.cli_options import FILE, say


@click.command()
@click.argument("scenario", type=FILE)
@click.argument("targets", type=FILE)
def calibrate(scenario: Path, targets: Path) -> None:
    """Calibrate the region of SCENARIO to TARGETS, a CSV of trip rates, move rates and lengths.

    Prints modelled values, targets and factors, and writes them to calibration.csv in the region's
    folder, which every later run of the region applies.
    """
    from pemand_abm import calibrating
    from pemand_abm.calibration import SOLVED, write_calibration
    from pemand_abm.scenario import read_scenario

    settings = read_scenario(scenario)
    rows = calibrating.solve(settings, scenario.stem, targets, say)
    shown = rows[list(SOLVED)].rename(columns={"value": "factor or decay"})
    click.echo(shown.to_string(index=False, float_format="{:,.4f}".format))
    place = write_calibration(rows, settings.region)
    click.echo(f"written to {place}; delete the file to go back to the uncalibrated model")
