"""A model folder in Hugging Face's format and the adapter that may stand on it: read, not run.

What the backends `vllm` and `transformers` have in common: which files a name stands for, what of
them enters the journal's key, and how a request becomes the tokens of a prompt.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pemand_abm.dialogue import Request
from pemand_abm.errors import ModelError
from pemand_abm.models.weights import checksum

# No pickles (*.bin): they can hold code.
FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
MOST_CONTEXT = 8192


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The files of one model.

    `name` is what the journal calls it: the folder's name, or the name on the hub; the path to it
    does not matter. `context` is in tokens of prompt and reply together.
    """

    name: str
    folder: Path
    context: int
    adapter: Path | None = None

    @property
    def identity(self) -> dict[str, str | int | float | bool]:
        """What replies depend on here: names, and a SHA-256 over all files (about 1 s a GB)."""
        known: dict[str, str | int | float | bool] = {
            "model": self.name,
            "weights_sha256": fingerprint(self.folder),
            "context": self.context,
        }
        if self.adapter is not None:
            known |= adapter_identity(self.adapter)
        return known

    def prompt(self, tokenizer: Any, request: Request) -> list[int]:
        """Return the prompt's tokens, in the form of the model's own chat template.

        Raises
        ------
        ModelError
            If prompt and reply do not fit the context (nothing is ever cut), or the model has no
            template that takes a system and a user message.
        """
        try:
            tokens = tokenizer.apply_chat_template(
                request.messages,
                add_generation_prompt=True,
                return_dict=False,
                # Templates that know no such switch ignore it. Thoughts would fill the reply.
                enable_thinking=False,
            )
        except Exception as fault:
            raise ModelError(
                f"the chat template of {self.name} does not take the messages of {who(request)}: "
                f"{fault}; take an instruction-tuned model whose template takes a system message"
            ) from fault
        if len(tokens) + request.max_tokens > self.context:
            raise ModelError(
                f"the prompt of {who(request)} has {len(tokens)} tokens and wants "
                f"{request.max_tokens} more for the reply, over the context of {self.context}: "
                "shorten the prompt, or take a model with a larger context"
            )
        return tokens


def find_checkpoint(backend: str, name: str, most_context: int = MOST_CONTEXT) -> Checkpoint:
    """Return the files of *name*: ``FOLDER``, ``FOLDER+ADAPTER``, or a name on Hugging Face's hub.

    A name on the hub is looked up in the hub's cache and downloaded where it is lacking.

    Raises
    ------
    ModelError
        If there are no such files, or they are no model or adapter in safetensors.
    """
    if not name:
        raise ModelError(
            f"{backend} needs a model: --model {backend}:FOLDER "
            "(python -m pemand_abm.models.dequantize FOLDER makes one of the embedded model)"
        )
    model, _, adapter = (name, "", "") if Path(name).expanduser().is_dir() else name.partition("+")
    folder = Path(model).expanduser()
    if folder.is_dir():
        called = folder.resolve().name
    elif folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise ModelError(f"{backend}: no model folder at {folder}")
    else:
        folder, called = _downloaded(backend, model), model
    config = _settings(folder, "config.json", "a model")
    return Checkpoint(called, folder, _context(config, most_context), find_adapter(adapter))


def fingerprint(folder: Path) -> str:
    """Return one SHA-256 over the names, sizes and contents of a model folder's files."""
    total = hashlib.sha256()
    for path in sorted({path for pattern in FILES for path in folder.glob(pattern)}):
        total.update(f"{path.name} {path.stat().st_size} {checksum(path)}\n".encode())
    return total.hexdigest()


def find_adapter(name: str) -> Path | None:
    """Return the folder of a LoRA adapter in peft's form; None where *name* is empty."""
    if not name:
        return None
    folder = Path(name).expanduser()
    _settings(folder, "adapter_config.json", "a LoRA adapter")
    return folder.resolve()


def adapter_identity(adapter: Path) -> dict[str, str | int | float | bool]:
    """Return what an adapter adds to a model's identity.

    Its name and SHA-256, and of one of ours the surveys that it learnt from (`adapter_surveys`,
    parted by spaces) and the seed of their split (`adapter_seed`).
    """
    known: dict[str, str | int | float | bool] = {
        "adapter": adapter.name,
        "adapter_sha256": fingerprint(adapter),
    }
    if card := adapter_card(adapter):
        known |= {
            "adapter_surveys": " ".join(sorted(map(str, card["by_survey"]))),
            "adapter_seed": int(card["recipe"]["seed"]),
        }
    return known


def adapter_card(adapter: Path) -> dict[str, Any]:
    """Return what the card of an adapter of ours says (`training.sft.card`); empty for others."""
    try:
        parts = (adapter / "README.md").read_text(encoding="utf-8").split("---\n")
        held = yaml.safe_load(parts[1]) if len(parts) > 2 else None
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return held if isinstance(held, dict) and "by_survey" in held else {}


def adapter_rank(adapter: Path) -> int:
    """Return the rank of a LoRA adapter."""
    return int(_settings(adapter, "adapter_config.json", "a LoRA adapter").get("r", 0))


def who(request: Request) -> str:
    """Return who asks, for an error."""
    return ", ".join(request.label) or "a request"


def _settings(folder: Path, file: str, what: str) -> dict[str, Any]:
    try:
        settings = json.loads((folder / file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise ModelError(f"{folder} is not {what}: no readable {file} ({fault})") from fault
    if next(folder.glob("*.safetensors"), None) is None:
        raise ModelError(f"{folder} is not {what}: it holds no *.safetensors")
    return settings


def _context(config: dict[str, Any], most: int) -> int:
    """Return the context: the model's own, at most *most*, since long ones cost memory."""
    text = config.get("text_config") or config
    return min(most, int(text.get("max_position_embeddings") or most))


def _downloaded(backend: str, name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(FILES)))
    except (OSError, ValueError) as fault:
        reason = str(fault).strip().splitlines()[0] if str(fault).strip() else type(fault).__name__
        raise ModelError(
            f"{backend}: there is no folder {name}, and Hugging Face's hub does not give a model "
            f"of that name: {reason}"
        ) from fault
