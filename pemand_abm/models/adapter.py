"""A LoRA adapter in peft's form, written as GGUF for llama.cpp.

The form is llama.cpp's own (its `convert_lora_to_gguf.py`): tensors `blk.N.PART.weight.lora_a` and
`.lora_b`, the kind of adapter and its alpha. llama.cpp keeps the rows of queries and keys of Llama
models in another order than transformers, so theirs are turned as well.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from pemand_abm.errors import ModelError
from pemand_abm.models.checkpoint import fingerprint
from pemand_abm.models.weights import cache_folder

PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
HEADS, KEY_HEADS = 9, 3
"""Of the embedded model, the only one whose adapters are turned here."""
_NAME = re.compile(r"model\.layers\.(\d+)\.(\w+\.\w+)\.lora_([AB])\.weight$")


def gguf_of(adapter: Path) -> Path:
    """Return the adapter as GGUF in the cache, written there at its first use.

    Raises
    ------
    ModelError
        If the folder holds no adapter of the embedded model, or the file cannot be written.
    """
    path = cache_folder() / f"adapter-{fingerprint(adapter)[:16]}.gguf"
    if path.is_file():
        return path
    missing = [name for name in ("gguf", "safetensors") if find_spec(name) is None]
    if missing:
        raise ModelError(
            f"an adapter of the embedded model needs the packages {' and '.join(missing)}: "
            "pip install 'pemand-abm[embedded]'"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".adapter-", dir=path.parent) as made:
            write_gguf(adapter, Path(made) / path.name)
            os.replace(Path(made) / path.name, path)
    except OSError as fault:
        raise ModelError(f"cannot write {path}: {fault.strerror or fault}") from fault
    return path


def write_gguf(adapter: Path, path: Path) -> None:
    """Write the adapter in *adapter* (peft's folder) as GGUF to *path*."""
    import gguf
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        settings = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
        tensors = load_file(adapter / "adapter_model.safetensors")
        alpha = float(settings["lora_alpha"])
    except (OSError, ValueError, KeyError, SafetensorError) as fault:
        raise ModelError(f"{adapter} is no LoRA adapter in safetensors: {fault}") from fault
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for name, values in sorted(tensors.items()):
        found = _NAME.search(name)
        if found is None or found[2] not in PARTS:
            raise ModelError(f"{adapter}: {name} has no place in the embedded model")
        layer, part, side = found.groups()
        if side == "B" and part in ("self_attn.q_proj", "self_attn.k_proj"):
            values = _turned(values, HEADS if part == "self_attn.q_proj" else KEY_HEADS)
        writer.add_tensor(
            f"blk.{layer}.{PARTS[part]}.weight.lora_{side.lower()}",
            np.ascontiguousarray(values, dtype=np.float16),
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _turned(rows: np.ndarray, heads: int) -> np.ndarray:
    """Return rows of queries or keys in llama.cpp's order: halves of each head interleaved."""
    out, rank = rows.shape
    return rows.reshape(heads, 2, out // heads // 2, rank).swapaxes(1, 2).reshape(out, rank)
