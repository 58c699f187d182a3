"""The command line: one verb a step.

A command reads its options, calls one function, and prints one result.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from pemand_abm import __version__
from pemand_abm.cli_calibrate import calibrate
from pemand_abm.cli_compare import compare
from pemand_abm.cli_estimate import estimate
from pemand_abm.cli_evaluate import evaluate
from pemand_abm.cli_export import export
from pemand_abm.cli_options import FILE, FOLDER, REMOTE, REMOTE_HELP, Commands, keeping, say
from pemand_abm.cli_train import train

if TYPE_CHECKING:
    from pemand_abm.shards import Work

SENT_HELP = "Whether the seed's households may go to workers on other machines (docs/privacy.md)"
TRIPS_FILES = ("trips.parquet", "trips_by_zone.csv")  # An old population's go where none are made.


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="pemand")
def main() -> None:
    """Zone-level travel and relocation demand from households whose members negotiate."""


main.add_command(calibrate)
main.add_command(compare)
main.add_command(estimate)
main.add_command(evaluate)
main.add_command(export)
main.add_command(train)


@main.command()
@click.argument("region", type=FOLDER, required=False)
@click.option(
    "--populationsim",
    type=FOLDER,
    help="A PopulationSim project folder, in place of REGION; it is run as it is.",
)
@click.option("--out", type=FOLDER, help="Where to write; outputs/population-REGION by default.")
@click.option(
    "--points", is_flag=True, help="Give each household a random point of its zone's polygon."
)
@click.option(
    "--trips",
    "rates",
    type=FOLDER,
    help="Draw everybody's trips of a weekday, too, from a folder of rates (synthpop/rates).",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random draws.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes that share the work, through Ray; never changes the result.",
)
@click.option("--cluster", help="The Ray cluster of the workers; one of this machine by default.")
@click.option("--remote", type=REMOTE, default="refuse", show_default=True, help=SENT_HELP)
def synthesize(
    region: Path | None,
    populationsim: Path | None,
    out: Path | None,
    points: bool,
    rates: Path | None,
    seed: int,
    workers: int,
    cluster: str | None,
    remote: str,
) -> None:
    """Synthesize the households and persons of REGION, a folder with a recipe.yaml.

    Writes checked households.parquet and persons.parquet and prints how well the controls are met.
    """
    if (region is None) == (populationsim is None):
        raise click.UsageError("name a REGION, or a folder with --populationsim, one of the two")
    if populationsim is not None:
        if points or rates:
            option = "--points needs polygons" if points else "--trips needs a region's columns"
            raise click.UsageError(f"{option}, which a PopulationSim folder lacks")
        _synthesize_project(populationsim, out, seed)
        return
    assert region is not None
    from pemand_abm.calibration import read_calibration
    from pemand_abm.fit import named_by, write_fit_page
    from pemand_abm.models.machines import working
    from pemand_abm.region import read_region
    from pemand_abm.shards import Here, write_shards
    from pemand_abm.study import check_writable
    from pemand_abm.surrogate import read_rates
    from pemand_abm.synthesis import fit_summary
    from pemand_abm.tables import staging

    known = read_region(region, skims=False)
    survey = read_rates(rates) if rates else None
    calibration = read_calibration(region) if rates else None
    out = out or Path("outputs") / f"population-{known.recipe.name}"
    check_writable(out)
    given = known.placed is not None
    say(f"{'Reading the population of' if given else 'Synthesizing'} {known.recipe.title}")
    homes = known.seed_households
    with ExitStack() as done:
        work: Work = Here()
        if cluster or workers > 1:
            work = done.enter_context(working(workers, cluster, remote))
        place = done.enter_context(staging(out, "fit_summary.csv", TRIPS_FILES))
        made = write_shards(known, seed, place, work, points, survey, calibration, _told())
        if not given:
            write_fit_page(
                place,
                known.recipe.title,
                made.fit,
                homes,
                made.copies,
                [c for c in homes if c not in {"weight", *named_by(known.controls)}],
                known.polygons.assign(district=known.zones["district"]),
                known.recipe.zone,
            )
    if not given:
        click.echo(fit_summary(made.fit).to_string(float_format="{:,.2f}".format))
    count = f"{made.households:,} households, {made.persons:,} persons"
    click.echo(f"{count} in {out}" + ("" if given else f"; open {out / 'fit.html'}"))


def _told() -> Callable[[int, int], None]:
    """Return what says every ten seconds how far the writing of a population is."""
    said = time.monotonic()

    def told(households: int, of: int) -> None:
        nonlocal said
        if time.monotonic() - said >= 10:
            said = time.monotonic()
            say(f"{households:,} of {of:,} households are written")

    return told


def _synthesize_project(folder: Path, out: Path | None, seed: int) -> None:
    from pemand_abm.fit import named_by, write_fit_page
    from pemand_abm.populationsim import read_project, synthesize_project, write_project
    from pemand_abm.study import check_writable
    from pemand_abm.synthesis import fit_summary
    from pemand_abm.tables import staging

    project = read_project(folder)
    for notice in project.notices:
        say(notice)
    out = out or Path("outputs") / f"population-{project.name}"
    check_writable(out)
    say(f"Synthesizing {project.name}, {len(project.frame.zones):,} {project.frame.zone}")
    made = synthesize_project(project, seed)
    with staging(out, last="fit_summary.csv") as place:
        write_project(made, place)
        frame, homes = project.frame, project.households
        asked = project.settings.output_synthetic_population.households.columns
        named = {*named_by(frame.controls), *frame.geographies}
        write_fit_page(
            place,
            f"{project.name}, a PopulationSim folder",
            made.solution.fit,
            homes,
            made.solution.counts.sum(axis=0),
            [c for c in asked if c in homes and c not in named],
        )
    click.echo(fit_summary(made.solution.fit).to_string(float_format="{:,.2f}".format))
    click.echo(
        f"{len(made.households):,} households, {len(made.persons):,} persons in {out};"
        f" open {out / 'fit.html'}"
    )


@main.command()
@click.argument("survey")
@click.option(
    "--data",
    type=FOLDER,
    required=True,
    help="The folder that holds the surveys' folders nhts, psrc and calm.",
)
@click.option("--out", type=FILE, help="The table to write; anchors-SURVEY.csv by default.")
def anchors(survey: str, data: Path, out: Path | None) -> None:
    """Compute the anchors of SURVEY from earlier survey cycles.

    What similar persons and households did, with the number of households behind it.
    """
    from pemand_abm.anchoring import anchors_of
    from pemand_abm.evaluation.metrics import split
    from pemand_abm.tables import write_csv

    table = anchors_of(survey, data, split)
    place = out or Path(f"anchors-{survey}.csv")
    write_csv(table.set_index("domain"), place)
    kinds = table.groupby(["domain", "level"], sort=False).size()
    for (domain, level), rows in kinds.items():
        click.echo(f"{domain}, {level}: {rows} anchors")
    click.echo(f"from {', '.join(dict.fromkeys(table['survey']))} in {place}")


@main.command("import-survey")
@click.argument("survey_map", metavar="MAP", type=FILE)
@click.option("--data", type=FOLDER, help="The folder of the survey's files; the map's by default.")
@click.option("--out", type=FOLDER, required=True, help="Where to write.")
def import_survey(survey_map: Path, data: Path | None, out: Path) -> None:
    """Read your own household survey through MAP, check it, and keep it for pemand evaluate."""
    from pemand_abm.study import check_writable
    from pemand_abm.surveys import importing

    check_writable(out)
    survey = importing.import_survey(survey_map, out, data)
    for file, what, rows in survey.dropped.itertuples(index=False):
        say(f"{file}: {what}: {rows:,}")
    click.echo(
        f"{len(survey.households):,} households, {len(survey.persons):,} persons of"
        f" {survey.title} in {out}; now: pemand evaluate --survey {out}"
    )


@main.command()
@click.argument("scenario", type=FILE)
@click.option("--out", type=FOLDER, help="The run's folder; outputs/SCENARIO by default.")
@click.option(
    "--model", help="embedded, scripted, openai:NAME, or a plug-in's; the scenario's by default."
)
@click.option(
    "--base-url", help="The server of an openai model, for example http://127.0.0.1:8000/v1."
)
@click.option("--remote", type=REMOTE, help=f"{REMOTE_HELP}; the scenario's by default.")
@click.option("--seed", type=int, help="Seed of all draws; the scenario's by default.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Replies made at once: cores for the embedded model (all by default), "
    "requests under way for a server (8 by default).",
)
@click.option(
    "--replicas",
    type=click.IntRange(min=1, max=10_000),
    help="Processes that answer, each with the model for itself; the scenario's by default.",
)
@click.option(
    "--cluster",
    help="The Ray cluster of the replicas, for example ray://HOST:10001; this machine by default.",
)
@click.option(
    "--replay", is_flag=True, help="Answer from the run's journal alone; never ask a model."
)
def run(
    scenario: Path,
    out: Path | None,
    model: str | None,
    base_url: str | None,
    remote: str | None,
    seed: int | None,
    workers: int | None,
    replicas: int | None,
    cluster: str | None,
    replay: bool,
) -> None:
    """Run SCENARIO from population to zone demand, maps and a report.

    A run that was stopped goes on where it was when it is run again: what a model has answered is
    in the run's journal.
    """
    from pemand_abm import forecast, limits, records, study
    from pemand_abm.admission import admit
    from pemand_abm.models import open_model
    from pemand_abm.models.journal import Journal
    from pemand_abm.models.progress import Progress
    from pemand_abm.report import write_report
    from pemand_abm.scenario import read_scenario
    from pemand_abm.tables import staging

    started = time.monotonic()
    settings = read_scenario(scenario)
    hosting = {"use": model, "replicas": replicas, "cluster": cluster}
    given = {
        "model": settings.model.model_copy(update=_said(hosting)),
        **_said({"base_url": base_url, "remote": remote, "seed": seed}),
    }
    settings = settings.model_copy(update=given)
    out = out or Path("outputs") / scenario.stem
    study.check_writable(out)
    wanted = open_model(
        settings.model.use,
        base_url=settings.base_url,
        workers=workers,
        exact=settings.exact,
        # A replay asks nobody.
        remote="allow" if replay else settings.remote,
        replicas=None if replay else settings.model.replicas,
        cluster=None if replay else settings.model.cluster,
    )
    with ExitStack() as stack:
        if hasattr(wanted, "close"):
            stack.callback(wanted.close)
        admission = admit(settings, wanted.identity)
        for reason in admission.reasons:
            say(f"{reason}: its negotiations stay out of the totals")
        # A base's run has answered for households whose facts the scenario leaves alone, and
        # negotiated with as many.
        earlier = [out, out.parent / settings.base.stem] if settings.base else [out]
        rates = limits.rates_for(settings, earlier)
        prepared, converted = limits.prepare_within(settings, rates, earlier, say)
        limits.keep(converted, out)
        answered = earlier[-1] / "journal.sqlite"
        before = answered if settings.base and answered.is_file() else None
        stack.enter_context(keeping(out / "journal.sqlite"))
        journal = Journal(wanted, out / "journal.sqlite", replay_only=replay, before=before)
        stack.callback(journal.close)
        ready = time.monotonic()
        progress = stack.enter_context(Progress(journal))
        most, limit = prepared.most_calls, settings.budget.calls
        progress.expect(most if limit is None else min(most, limit))
        history = study.run(prepared, progress)
        progress.expect(progress.calls)
        talked = time.monotonic()
    later = forecast.forecast(prepared, history, say) if settings.years > 1 else None
    manifest = records.manifest_of(prepared, history, wanted, scenario, admission)
    manifest |= {
        **({"converted": converted} if converted else {}),
        "calls": progress.calls,
        "calls_asked": journal.asked,
        "tokens": {"prompt": journal.prompt_tokens, "completion": journal.completion_tokens},
        "calls_per_minute": _pace(journal.asked, talked - ready),
        "wall_seconds": {
            "population": round(ready - started, 1),
            "negotiations": round(talked - ready, 1),
        },
    }
    say("Writing tables, matrices and maps")
    with staging(out, "run.yaml", stale=records.SIDECARS) as place:
        manifest = records.write_run(prepared, history, place, manifest, later)
        write_report(place)
    say(f"Finished in {time.monotonic() - started:.0f} s")
    click.echo(_summary(manifest, out))
    records.stop_if_unreached(history, out)


def _said(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that the user gave."""
    return {name: value for name, value in options.items() if value is not None}


def _pace(calls: int, seconds: float) -> float | None:
    """Return calls a minute; nothing for a model that answers at once, whose pace says nothing."""
    return round(60 * calls / seconds, 1) if calls and seconds > 1 else None


def _summary(manifest: dict, out: Path) -> str:
    counts, talks = manifest["counts"], manifest["negotiations"]
    heard = ", ".join(f"{n} about {kind}" for kind, n in talks.items()) or "none"
    rate = manifest["calls_per_minute"]
    pace = f", {rate:g} calls a minute" if rate else ""
    moved, years = counts.get("moved", 0), manifest["settings"]["years"]
    span = "the year" if years == 1 else f"{years} years"
    asked = f"{manifest['calls']} calls, {manifest['calls_asked']} of them asked now{pace}"
    return "\n".join(
        [
            f"{counts['households']:,} households, {counts['persons']:,} persons, "
            f"{counts['zones']} zones",
            f"{counts['trips']:,} person trips on an average weekday; "
            f"{moved:,} completed moves in {span}",
            *(
                f"{lever['lever']}: the facts of {lever['households']:,} households change"
                for lever in manifest.get("levers", [])
            ),
            f"negotiations: {heard} ({asked})",
            manifest["notes"][0],
            *(note for note in manifest["notes"][1:] if note.startswith("levers.")),
            f"open {out / 'report.html'}; zones.gpkg, demand.csv, trips.omx and more are beside it",
        ]
    )


@main.command()
@click.argument("run", type=FOLDER)
def report(run: Path) -> None:
    """Write report.html of the folder RUN anew from its files."""
    from pemand_abm.report import write_report

    click.echo(f"open {write_report(run)}")


@main.command()
@click.argument("run", type=FOLDER)
@click.argument("household", required=False)
def transcript(run: Path, household: str | None) -> None:
    """Print what the members of HOUSEHOLD said in the folder RUN.

    Without HOUSEHOLD, the longest talk.
    """
    from pemand_abm.transcript import print_transcript

    print_transcript(run, household, Console())


@main.command()
@click.option(
    "--fetch",
    is_flag=True,
    help="Fetch and verify the embedded model's weights where they are missing.",
)
def doctor(fetch: bool) -> None:
    """Show what is installed here, and what each model backend needs."""
    from pemand_abm.doctor import print_report
    from pemand_abm.models.weights import fetch_weights

    if fetch:
        say(f"weights: {fetch_weights()}")
    print_report(Console())


@main.command()
@click.argument("folder", type=FOLDER)
def init(folder: Path) -> None:
    """Make a study in FOLDER, a new folder.

    A region, scenarios, and places for training and outputs.

    It runs as it is: cd FOLDER and pemand run scenarios/baseline.yaml.
    """
    from pemand_abm.init import make_study

    make_study(folder)
    click.echo(f"made {folder}; now: cd {folder} && pemand run scenarios/baseline.yaml")
