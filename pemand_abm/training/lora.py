"""Fit a LoRA adapter to examples with transformers' Trainer and peft, in stretches.

PEMAND A.2. Only the replies count for the loss. The Trainer's checkpoints hold the optimizer and
the random state, so a run that was stopped or killed goes on from the last one.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pemand_abm.errors import ModelError, SettingsError
from pemand_abm.tables import write_text
from pemand_abm.training.recipe import Recipe

PACKAGES = ("torch", "transformers", "peft", "accelerate", "gguf", "matplotlib")
IGNORED = -100


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a stretch came to: `steps` done of `wanted`, and the log of losses."""

    steps: int
    wanted: int
    log: list[dict[str, float]]
    finished: bool


def require() -> None:
    """Raise ModelError with all packages that training needs and that are not installed."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ModelError(
            f"training needs the packages {', '.join(missing)}: pip install 'pemand-abm[train]'"
        )


def fit(
    recipe: Recipe,
    base: Path,
    examples: Sequence[dict],
    out: Path,
    steps: int | None = None,
    minutes: float | None = None,
    show: Callable[[str], None] = lambda line: None,
    start: Path | None = None,
) -> Fitted:
    """Fit the recipe's adapter to examples, and save it into ``out/adapter``.

    Parameters
    ----------
    base : Path
        The model's folder.
    examples : sequence of dict
        `messages` with the reply last (`examples.Example.as_dict`).
    out : Path
        Where checkpoints are looked for and written.
    steps : int, optional
        How many steps in all; the recipe's epochs else.
    minutes : float, optional
        After how many minutes to save a checkpoint and stop.
    show : callable
        Is told each line of progress.
    start : Path, optional
        An adapter to begin with, in place of a new one.
    """
    import torch
    from transformers import AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # Ours shows steps; theirs shows files of the model being read.
    tokenizer = AutoTokenizer.from_pretrained(str(base))
    rows = [tokenized(tokenizer, e["messages"]) for e in examples]
    short = [r for r in rows if len(r["input_ids"]) <= recipe.fit.most_tokens]
    if len(short) < 2:
        raise SettingsError(
            f"{recipe.name}: {len(short)} examples have at most {recipe.fit.most_tokens} tokens"
            " (fit.most_tokens), and training needs two or more"
        )
    if len(short) < len(rows):
        most = recipe.fit.most_tokens
        show(f"{len(rows) - len(short)} of {len(rows)} examples are over {most} tokens: left out")
    rows = short
    held = max(1, round(len(rows) * recipe.fit.held_out))
    # The examples come in a keyed order, so the first are a draw.
    trained, checked = rows[held:], rows[:held]
    a_step = recipe.fit.batch * recipe.fit.accumulate
    wanted = steps or math.ceil(recipe.fit.epochs * len(trained) / a_step)
    torch.manual_seed(recipe.seed)
    model = _adapted(recipe, base, start)
    weight = token_weights(tokenizer, model.config.get_text_config().vocab_size, recipe.fit.numbers)
    trainer = _trainer(recipe, model, weight, trained, checked, out, wanted)
    trainer.add_callback(_callback(show, minutes, wanted))
    last = _last_checkpoint(out)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    done = int(trainer.state.global_step)
    early = bool(trainer.state.log_history) and done < wanted and minutes is None
    finished = done >= wanted or early
    _save(trainer.model, out / "adapter")
    return Fitted(done, wanted, list(trainer.state.log_history), finished)


def tokenized(tokenizer: Any, messages: Sequence[dict[str, str]]) -> dict[str, list]:
    """Return `input_ids` and `labels` of a prompt and its reply; only the reply has labels."""
    prompt = tokenizer.apply_chat_template(
        list(messages[:-1]), add_generation_prompt=True, return_dict=False
    )
    ending = tokenizer.eos_token
    reply = tokenizer(messages[-1]["content"] + ending, add_special_tokens=False)["input_ids"]
    return {"input_ids": prompt + reply, "labels": [IGNORED] * len(prompt) + reply}


def token_weights(tokenizer: Any, size: int, numbers: float) -> Any:
    """Return how many times each token of a vocabulary of *size* counts in the loss."""
    import torch

    weight = torch.ones(size)
    weight[[i for token, i in tokenizer.get_vocab().items() if re.search("[0-9]", token)]] = numbers
    return weight


def _save(model: Any, folder: Path) -> None:
    """Write the adapter in float16, which llama.cpp and transformers both read."""
    import torch
    from peft import get_peft_model_state_dict

    state = {k: v.to(torch.float16) for k, v in get_peft_model_state_dict(model).items()}
    model.save_pretrained(str(folder), state_dict=state)
    # A path of this machine says nothing elsewhere.
    path = folder / "adapter_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["base_model_name_or_path"] = Path(settings["base_model_name_or_path"]).name
    write_text(json.dumps(settings, indent=2, sort_keys=True), path)


def _adapted(recipe: Recipe, base: Path, start: Path | None) -> Any:
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM

    card = torch.cuda.is_available()
    more: dict[str, Any] = {}
    if recipe.fit.four_bit:
        if not card:
            raise ModelError(f"{recipe.name}: four_bit needs a graphics card; none is here")
        from transformers import BitsAndBytesConfig

        more["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    model = AutoModelForCausalLM.from_pretrained(
        str(base), dtype=torch.bfloat16 if card else torch.float32, **more
    )
    if recipe.fit.four_bit:
        from peft import prepare_model_for_kbit_training

        model = prepare_model_for_kbit_training(model)
    model.config.use_cache = False
    if start is not None:
        return PeftModel.from_pretrained(
            model, str(start), is_trainable=True, autocast_adapter_dtype=True
        )
    count = model.config.get_text_config().num_hidden_layers
    lora = recipe.lora
    layers = None if lora.layers is None else list(range(max(0, count - lora.layers), count))
    return get_peft_model(
        model,
        LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules=list(lora.modules),
            layers_to_transform=layers,
            task_type="CAUSAL_LM",
        ),
    )


def _trainer(
    recipe: Recipe, model: Any, weight: Any, trained: list, checked: list, out: Path, wanted: int
) -> Any:
    import torch
    from transformers import EarlyStoppingCallback, PrinterCallback, Trainer, TrainingArguments

    class OnReplies(Trainer):
        """The Trainer, whose logits are of the replies alone: the vocabulary is wide."""

        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            # The loss below is a mean, so that of several batches a step is their mean as well.
            self.model_accepts_loss_kwargs = False

        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any
        ) -> Any:
            labels = inputs.pop("labels")
            # Rows are padded on the left, so replies end together.
            most = int((labels != IGNORED).sum(1).max())
            found = model(**inputs, logits_to_keep=most + 1)
            loss = torch.nn.functional.cross_entropy(
                found.logits[:, :-1].float().flatten(0, 1),
                labels[:, -most:].flatten(),
                weight=weight.to(found.logits.device),
                ignore_index=IGNORED,
            )
            return (loss, found) if return_outputs else loss

    def collate(rows: list[dict]) -> dict:
        width = max(len(r["input_ids"]) for r in rows)

        def padded(name: str, filler: int) -> Any:
            return torch.tensor([[filler] * (width - len(r[name])) + r[name] for r in rows])

        seen = [[0] * (width - len(r["input_ids"])) + [1] * len(r["input_ids"]) for r in rows]
        return {
            "input_ids": padded("input_ids", 0),
            "attention_mask": torch.tensor(seen),
            "labels": padded("labels", IGNORED),
        }

    fit, card = recipe.fit, torch.cuda.is_available()
    settings = TrainingArguments(
        output_dir=str(out / "checkpoints"),
        max_steps=wanted,
        per_device_train_batch_size=fit.batch,
        per_device_eval_batch_size=fit.batch,
        gradient_accumulation_steps=fit.accumulate,
        learning_rate=fit.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=max(1, round(fit.warm_up * wanted)),
        optim="paged_adamw_8bit" if fit.four_bit else "adamw_torch",
        gradient_checkpointing=fit.four_bit,
        train_sampling_strategy="group_by_length",
        eval_strategy="steps",
        eval_steps=fit.check_every,
        save_steps=fit.check_every,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=False,
        prediction_loss_only=True,
        logging_steps=5,
        bf16=card,
        use_cpu=not card,
        seed=recipe.seed,
        data_seed=recipe.seed,
        remove_unused_columns=False,
        label_names=["labels"],
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=card,
    )
    trainer = OnReplies(
        model=model,
        args=settings,
        train_dataset=trained,
        eval_dataset=checked,
        data_collator=collate,
        callbacks=[EarlyStoppingCallback(fit.patience)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _callback(show: Callable[[str], None], minutes: float | None, wanted: int) -> Any:
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        """Show each step's loss, and stop with a checkpoint when the time is over."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.started, self.first = time.monotonic(), state.global_step

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            spent = time.monotonic() - self.started
            if minutes is not None and spent > 60 * minutes:
                control.should_save = control.should_training_stop = True

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            spent = time.monotonic() - self.started
            done = state.global_step - self.first
            left = spent / done * (wanted - state.global_step) / 60 if done else 0.0
            losses = {k: v for k, v in (logs or {}).items() if k in ("loss", "eval_loss")}
            if losses:
                said = ", ".join(
                    f"{'held-out loss' if k == 'eval_loss' else k} {float(v):.3f}"
                    for k, v in losses.items()
                )
                show(f"step {state.global_step} of {wanted}: {said}; {left:.0f} min left")

    return Watch()


def _last_checkpoint(out: Path) -> Path | None:
    """Return the last whole checkpoint: its state is what the Trainer writes last but one."""
    found = [
        p
        for p in (out / "checkpoints").glob("checkpoint-*")
        if _whole(p / "trainer_state.json") and (p / "optimizer.pt").is_file()
    ]
    return max(found, key=lambda p: int(p.name.rpartition("-")[2]), default=None)


def _whole(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True
