"""`pemand train`: fine-tuning on survey households."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pemand_abm.cli_options import FILE, FOLDER, REMOTE, REMOTE_HELP, say

if TYPE_CHECKING:
    from pemand_abm.dialogue import Model
    from pemand_abm.models import Remote


@click.group()
def train() -> None:
    """Fine-tune a language model on households of surveys (docs/training.md)."""


@train.command()
@click.argument("recipe", type=FILE)
@click.option("--out", type=FOLDER, help="Where to write; outputs/train-NAME else.")
@click.option("--steps", type=click.IntRange(min=1), help="How many steps; the recipe's else.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    help="Save and stop after so many minutes; run again to go on.",
)
@click.option("--adapter", type=FOLDER, help="An adapter to begin with; a new one else.")
@click.option("--base-url", help="The server of an openai model that makes the examples.")
@click.option("--remote", type=REMOTE, default="refuse", show_default=True, help=f"{REMOTE_HELP}.")
def sft(
    recipe: Path,
    out: Path | None,
    steps: int | None,
    minutes: float | None,
    adapter: Path | None,
    base_url: str | None,
    remote: Remote,
) -> None:
    """Make examples of talks, and fit an adapter to them.

    RECIPE is a file of `training/`. Run again with the same --out, it goes on from the last
    checkpoint.
    """
    from pemand_abm.cli_evaluate import answering
    from pemand_abm.training.recipe import read_recipe
    from pemand_abm.training.sft import fine_tune

    wanted = read_recipe(recipe)
    out = out or Path("outputs") / f"train-{wanted.name}"
    with ExitStack() as stack:

        def generator() -> Model:
            return stack.enter_context(
                answering(out, wanted.generator, base_url, None, None, remote=remote)
            )

        tuned = fine_tune(wanted, out, steps, minutes, generator, say, adapter)
    known = tuned.losses["held_out_loss"].dropna()
    said = f"held-out loss {known.iloc[0]:.3f} to {known.min():.3f}; " if len(known) > 1 else ""
    ended = "finished" if tuned.finished else "run the same command again to go on"
    click.echo(f"step {tuned.steps} of {tuned.wanted}: {said}{ended}")
    click.echo(f"the adapter and its card are in {tuned.adapter}; --model embedded+{tuned.adapter}")


@train.command()
@click.argument("recipe", type=FILE)
@click.option(
    "--adapter", type=FOLDER, required=True, help="The adapter to begin with (train sft)."
)
@click.option("--out", type=FOLDER, help="Where to write; outputs/rest-NAME else.")
@click.option("--workers", type=click.IntRange(min=1), help="Replies made at once.")
def rest(recipe: Path, adapter: Path, out: Path | None, workers: int | None) -> None:
    """Let training households negotiate, and learn from what earned most (ReST).

    RECIPE is a file of `training/` with `rest`. Run again with the same --out, it goes on.
    """
    from pemand_abm.cli_evaluate import answering
    from pemand_abm.training.recipe import read_recipe
    from pemand_abm.training.rest import reinforce

    wanted = read_recipe(recipe)
    out = out or Path("outputs") / f"rest-{wanted.name}"
    name = wanted.generator or wanted.model

    def opened(with_adapter: Path) -> AbstractContextManager[Model]:
        return answering(out, name, None, workers, None, str(with_adapter), fast=True)

    for repeat in reinforce(wanted, adapter, out, opened, say):
        table = repeat.table
        off = (table["decided"] - table["observed"]).mean()
        click.echo(
            f"repeat {repeat.number}: {len(table)} negotiations, mean reward"
            f" {table['reward'].mean():.3f}, bias {off:+.2f} trips, {repeat.learnt} learnt;"
            f" {repeat.adapter}"
        )


@train.group()
def judge() -> None:
    """Compare a moderator with annotators (docs/training.md)."""


@judge.command()
@click.argument("folder", type=FOLDER)
@click.option(
    "--dialogues", type=click.IntRange(min=1), default=60, show_default=True, help="How many talks."
)
@click.option("--annotators", default="a,b,c", show_default=True, help="Names, parted by commas.")
@click.option(
    "--overlap",
    type=click.FloatRange(0, 1),
    default=0.2,
    show_default=True,
    help="Share of the items that everybody scores.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the draw.")
@click.option("--out", type=FOLDER, help="Where to write; outputs/annotation else.")
def export(
    folder: Path, dialogues: int, annotators: str, overlap: float, seed: int, out: Path | None
) -> None:
    """Write sheets for annotators (CSV, and a form for a browser) from the talks of FOLDER."""
    from pemand_abm.training.judge import dealt, items_of, write_sheets

    names = [n.strip() for n in annotators.split(",") if n.strip()]
    wrong = [n for n in names if not n.replace("-", "").isalnum()]
    if wrong or not names or len({*names}) < len(names):
        raise click.UsageError("--annotators: give different names of letters and digits")
    items = items_of(folder, dialogues, seed)
    written = write_sheets(dealt(items, names, overlap, seed), out or Path("outputs/annotation"))
    click.echo(f"{len(items)} statements, {len(names)} annotators; wrote")
    for path in written:
        click.echo(f"  {path}")


@judge.command()
@click.argument("sheets", type=FILE, nargs=-1, required=True)
@click.option("--model", default="embedded", show_default=True, help="The model that judges.")
@click.option("--adapter", help="A LoRA adapter on the model; `none` for the weights alone.")
@click.option("--base-url", help="The server of an openai model.")
@click.option("--remote", type=REMOTE, default="refuse", show_default=True, help=f"{REMOTE_HELP}.")
@click.option("--workers", type=click.IntRange(min=1), help="Replies made at once.")
@click.option(
    "--decision",
    type=click.Choice(["trips", "relocation"]),
    default="trips",
    show_default=True,
    help="What the talks are about.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the requests.")
@click.option("--out", type=FOLDER, help="Where to write; outputs/scores else.")
def score(
    sheets: tuple[Path, ...],
    model: str,
    adapter: str | None,
    base_url: str | None,
    remote: Remote,
    workers: int | None,
    decision: str,
    seed: int,
    out: Path | None,
) -> None:
    """Let a model judge the statements of SHEETS, whoever made them, as a moderator does.

    It reads the statements alone, never the annotators' marks, and writes model_scores.csv.
    """
    from pemand_abm.cli_evaluate import answering
    from pemand_abm.domains import DOMAINS
    from pemand_abm.tables import write_csv
    from pemand_abm.training.judge import read_items, scored

    items = read_items(sheets)
    out = out or Path("outputs/scores")
    with answering(out, model, base_url, workers, None, adapter, remote=remote) as answers:
        found = scored(items, answers, DOMAINS[decision], seed)
    write_csv(found.astype("Int64"), out / "model_scores.csv")
    lost = int(found.isna().any(axis=1).sum())
    click.echo(f"{len(found)} statements, {lost} without marks; {out / 'model_scores.csv'}")


@judge.command()
@click.argument("sheets", type=FILE, nargs=-1, required=True)
@click.option(
    "--scores",
    type=FILE,
    help="The model's scores (model_scores.csv of the export); those in the sheets else.",
)
def agreement(sheets: tuple[Path, ...], scores: Path | None) -> None:
    """Print how far annotators agree with each other, over the batches, and with the model.

    SHEETS are filled sheets of `judge export`.
    """
    import pandas as pd

    from pemand_abm.training.judge import agree, agree_with_model, read_scores, read_sheets

    sheet = read_sheets(sheets)
    found = agree(sheet)
    notes = sorted(set(sheet.get("note", pd.Series(dtype=str))) - {""})
    if len(notes) == 1:
        click.echo(f"{notes[0]}\n")
    items = sheet["item"].nunique()
    click.echo(f"{items} items, annotators: {', '.join(found.annotators)}\n")
    click.echo(found.by_criterion.round(3).to_string(), nl=True)
    click.echo("\nDrift: the items of each batch that all scored, mean QWK of the criteria\n")
    click.echo(found.drift.round(3).to_string())
    model = read_scores(scores, sheet)
    if model is not None:
        click.echo("\nThe moderator's scores against the annotators' median\n")
        click.echo(agree_with_model(sheet, model).round(3).to_string())


@judge.command()
@click.argument("sheets", type=FILE, nargs=-1, required=True)
@click.option("--scores", type=FILE, help="The model's scores; those in the sheets else.")
@click.option(
    "--out",
    type=FILE,
    default=Path("outputs/calibration.yaml"),
    show_default=True,
    help="The calibration file.",
)
def calibrate(sheets: tuple[Path, ...], scores: Path | None, out: Path) -> None:
    """Fit the marks from which the moderator passes a statement to what annotators pass."""
    from pemand_abm.errors import TableError
    from pemand_abm.training.judge import (
        agree_with_model,
        calibrated,
        read_scores,
        read_sheets,
        with_marks,
        write_calibration,
    )

    sheet = read_sheets(sheets)
    model = read_scores(scores, sheet)
    if model is None:
        raise TableError("the sheets hold no scores of the model; give --scores model_scores.csv")
    before = agree_with_model(sheet, model)
    marks = calibrated(sheet, model)
    after = agree_with_model(sheet, with_marks(model, marks))
    for said, table in (("before", before), ("after", after)):
        click.echo(f"The moderator against the annotators' median, {said}\n")
        click.echo(table.round(3).to_string() + "\n")
    rejected = float(1 - after.loc["all", "passed_by_model"])
    notes = sorted(set(sheet["note"]) - {""}) if "note" in sheet else []
    write_calibration(
        marks,
        {
            "items": int(after.loc["all", "items"]),
            "annotators": sorted(sheet["annotator"].unique().tolist()),
            "notes": notes,
            "rejected": round(rejected, 4),
            "rejected_by_annotators": round(float(1 - after.loc["all", "passed_by_people"]), 4),
            "wrongly_rejected": round(float(after.loc["all", "wrongly_rejected"]), 4),
            "wrongly_passed": round(float(after.loc["all", "wrongly_passed"]), 4),
        },
        out,
    )
    said = ", ".join(f"{c} {m}" for c, m in marks.items())
    click.echo(f"marks that pass: {said}; {100 * rejected:.0f} % rejected; wrote {out}")
