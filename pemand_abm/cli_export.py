"""`pemand export`: a run in the form of other programs."""

from __future__ import annotations

from pathlib import Path

import click

from pemand_abm.cli_options import FOLDER, say


@click.command()
@click.argument("run", type=FOLDER)
@click.option(
    "--to",
    required=True,
    help="Formats, separated by commas: activitysim, geojson, gmns, matsim, shapefile, simwrapper,"
    " urbansim, a plug-in's, or all.",
)
@click.option(
    "--out", type=FOLDER, help="The folder that gets a folder a format; RUN/export by default."
)
@click.option(
    "--region",
    type=FOLDER,
    help="The region's folder, where it is no longer where the run found it.",
)
def export(run: Path, to: str, out: Path | None, region: Path | None) -> None:
    """Write the folder RUN for other programs, a folder a format, from its files alone."""
    from pemand_abm.exporters import export_run

    names = [name.strip() for name in to.split(",") if name.strip()]
    if not names:
        raise click.BadParameter("names no format", param_hint="--to")
    for folder, notes in export_run(run, names, out, region).values():
        click.echo(f"{folder}")
        for note in notes:
            say(f"  {note}")
