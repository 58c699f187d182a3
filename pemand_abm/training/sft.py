"""Supervised fine-tuning from a recipe to an adapter with its card (`pemand train sft`)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pandas as pd
import yaml

from pemand_abm import __version__
from pemand_abm.dialogue import Model
from pemand_abm.errors import SettingsError
from pemand_abm.models.checkpoint import adapter_card, fingerprint
from pemand_abm.models.weights import FILE, cache_folder
from pemand_abm.prompting import prompts_sha256
from pemand_abm.tables import write_csv, write_text
from pemand_abm.training import lora
from pemand_abm.training.examples import make_examples, write_examples
from pemand_abm.training.recipe import Recipe

EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a stretch of fine-tuning came to; `losses` has the columns of ``losses.csv``."""

    adapter: Path
    steps: int
    wanted: int
    finished: bool
    losses: pd.DataFrame


def fine_tune(
    recipe: Recipe,
    out: Path,
    steps: int | None,
    minutes: float | None,
    generator: Callable[[], Model],
    show: Callable[[str], None],
    start: Path | None = None,
) -> Tuned:
    """Make the examples where they are not there yet, fit the adapter, and write all into *out*.

    ``examples.jsonl``, ``checkpoints/``, ``adapter/`` (peft, float16), ``losses.csv``,
    ``losses.png`` and ``adapter/README.md``, the model card. Run again, it goes on. *generator*
    opens the model that makes the examples, where the recipe asks for one; *start* is an adapter to
    begin with.
    """
    lora.require()
    same_recipe(recipe, out)
    file = out / "examples.jsonl"
    if not file.is_file():
        show("Making examples")
        model = generator() if recipe.teacher == "model" else None
        write_examples(make_examples(recipe, model), file)
    lines = file.read_text(encoding="utf-8").splitlines()
    examples = [json.loads(line) for line in lines]
    base = base_folder(recipe, show)
    fitted = lora.fit(recipe, base, examples, out, steps, minutes, show, start)
    losses = losses_of(fitted.log)
    write_losses(losses, out)
    write_text(card(recipe, examples, fitted, losses, start), out / "adapter" / "README.md")
    return Tuned(out / "adapter", fitted.steps, fitted.wanted, fitted.finished, losses)


def base_folder(recipe: Recipe, show: Callable[[str], None]) -> Path:
    """Return the folder of the model that is trained; the embedded one is dequantized once."""
    if recipe.model != EMBEDDED:
        from pemand_abm.models.checkpoint import find_checkpoint

        return find_checkpoint("training", recipe.model).folder
    folder = cache_folder() / f"{Path(FILE).stem}-bf16"
    if not folder.is_dir():
        from pemand_abm.models.dequantize import dequantize

        show("Dequantizing the embedded model")
        dequantize(folder)
    return folder


def same_recipe(recipe: Recipe, out: Path) -> None:
    """Refuse a folder that another recipe's run has begun in; write down this one's."""
    kept = out / "recipe.yaml"
    text = yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    if kept.is_file() and kept.read_text(encoding="utf-8") != text:
        raise SettingsError(
            f"{out} holds the run of another recipe ({kept}); name another --out, or remove it"
        )
    write_text(text, kept)


def losses_of(log: list[dict[str, float]]) -> pd.DataFrame:
    """Return one row a logged step: `loss` on the examples, `held_out_loss` on those kept apart."""
    rows: dict[int, dict[str, float]] = {}
    for entry in log:
        row = rows.setdefault(int(entry["step"]), {})
        row |= {k: entry[k] for k in ("loss", "eval_loss") if k in entry}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["loss", "eval_loss"])
    table = table.dropna(how="all").rename(columns={"eval_loss": "held_out_loss"})
    return table.rename_axis("step").sort_index()


def write_losses(losses: pd.DataFrame, out: Path) -> None:
    """Write the losses as a table and as a picture."""
    from matplotlib.figure import Figure

    write_csv(losses, out / "losses.csv")
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for column, style in (("loss", "-"), ("held_out_loss", "o-")):
        known = losses[column].dropna()
        axes.plot(known.index, known.to_numpy(), style, label=column.replace("_", " "))
    axes.set(xlabel="step", ylabel="cross-entropy a token of the replies, nats")
    axes.legend()
    figure.savefig(out / "losses.png", dpi=120)


def card(
    recipe: Recipe,
    examples: list[dict],
    fitted: lora.Fitted,
    losses: pd.DataFrame,
    start: Path | None = None,
) -> str:
    """Return the adapter's model card: what it learnt from, how, and what it came to.

    Of an adapter that began with another one (*start*) the card holds that one's card too, and
    `by_survey` counts the surveys of both: what either has seen is not to be asked about.
    """
    before = adapter_card(start) if start else {}
    phases = Counter(e["phase"] for e in examples)
    surveys = Counter(e["survey"] for e in examples)
    sources = sorted({e["source"] for e in examples})
    held = losses["held_out_loss"].dropna()
    text = json.dumps(examples, sort_keys=True, ensure_ascii=False).encode()
    about = {
        "recipe": recipe.model_dump(mode="json"),
        "steps": fitted.steps,
        "steps_wanted": fitted.wanted,
        "examples": len(examples),
        "examples_sha256": hashlib.sha256(text).hexdigest(),
        "by_phase": dict(phases),
        "by_survey": dict(surveys + Counter(before.get("by_survey", {}))),
        "replies_from": sources,
        "held_out_loss": round(float(held.min()), 4) if len(held) else None,
        "prompts_sha256": prompts_sha256(),
        "versions": {"pemand-abm": __version__}
        | {n: metadata.version(n) for n in ("torch", "transformers", "peft")},
    }
    if start:
        about["began_with"] = {"adapter_sha256": fingerprint(start), "card": before}
    front = yaml.safe_dump(about, sort_keys=False, allow_unicode=True)
    return (
        f"---\n{front}---\n\n# {recipe.name}\n\n"
        f"A LoRA adapter of `{recipe.model}`, by `pemand train sft` with the recipe above (seed"
        f" {recipe.seed}).\nIt learnt from households of the training splits alone. Replies came"
        f" from: {'; '.join(sources)}.\nWhat it does on households that it has not seen is for"
        " `pemand evaluate` to say.\n"
    )
