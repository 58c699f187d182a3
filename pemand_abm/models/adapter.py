"""The embedded model's weights with a LoRA adapter merged into them, as one GGUF for llama.cpp.

Merged weights answer more quickly than an adapter that llama.cpp multiplies in at every token. They
are kept in 8 bits (Q8_0): rounding the sum to the 4 bits of the weights again would lose part of
what was learnt.

llama.cpp keeps the rows of queries and keys of Llama models in another order than transformers, so
those of the adapter are turned first.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from pemand_abm.errors import ModelError
from pemand_abm.models.checkpoint import fingerprint
from pemand_abm.models.weights import cache_folder, checksum

PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
KEPT = "Q8_0"
HEADS, KEY_HEADS = 9, 3
"""Of the embedded model, the only one whose adapters are turned here."""
_NAME = re.compile(r"model\.layers\.(\d+)\.(\w+\.\w+)\.lora_([AB])\.weight$")


def merged(weights: Path, adapter: Path) -> Path:
    """Return *weights* with *adapter* in them (0.15 GB), written to the cache at the first use.

    Raises
    ------
    ModelError
        If the folder holds no adapter of the embedded model, or the file cannot be written.
    """
    key = hashlib.sha256(f"{checksum(weights)} {fingerprint(adapter)} {KEPT}".encode())
    path = cache_folder() / f"merged-{key.hexdigest()[:16]}.gguf"
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
        with tempfile.TemporaryDirectory(prefix=".merged-", dir=path.parent) as made:
            write_merged(weights, adapter, Path(made) / path.name)
            os.replace(Path(made) / path.name, path)
    except OSError as fault:
        raise ModelError(f"cannot write {path}: {fault.strerror or fault}") from fault
    return path


def write_merged(weights: Path, adapter: Path, path: Path) -> None:
    """Write the GGUF *weights* plus the adapter in *adapter* (peft's folder) to *path*."""
    import gguf

    changes = _changes(adapter)
    kept = gguf.GGMLQuantizationType[KEPT]
    source = gguf.GGUFReader(weights)
    writer = gguf.GGUFWriter(path, "llama")
    for field in source.fields.values():
        if field.name == "general.architecture" or field.name.startswith("GGUF."):
            continue
        named_form = field.name == "general.file_type"
        value = gguf.LlamaFileType[f"MOSTLY_{KEPT}"].value if named_form else field.contents()
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], inner)
    for tensor in source.tensors:
        change = changes.pop(tensor.name, None)
        if change is None:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        else:
            full = gguf.dequantize(tensor.data, tensor.tensor_type) + change
            writer.add_tensor(tensor.name, gguf.quantize(full, kept), raw_dtype=kept)
    if changes:
        raise ModelError(f"{adapter}: {min(changes)} has no place in the embedded model")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _changes(adapter: Path) -> dict[str, np.ndarray]:
    """Return what the adapter adds to each tensor (float32, rows out x columns in), by name."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        settings = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
        tensors = load_file(adapter / "adapter_model.safetensors")
        scale = float(settings["lora_alpha"]) / float(settings["r"])
    except (OSError, ValueError, KeyError, ZeroDivisionError, SafetensorError) as fault:
        raise ModelError(f"{adapter} is no LoRA adapter in safetensors: {fault}") from fault
    sides: dict[str, dict[str, np.ndarray]] = {}
    for name, values in tensors.items():
        found = _NAME.search(name)
        if found is None or found[2] not in PARTS:
            raise ModelError(f"{adapter}: {name} has no place in the embedded model")
        layer, part, side = found.groups()
        if side == "B" and part in ("self_attn.q_proj", "self_attn.k_proj"):
            values = _turned(values, HEADS if part == "self_attn.q_proj" else KEY_HEADS)
        both = sides.setdefault(f"blk.{layer}.{PARTS[part]}.weight", {})
        both[side] = values.astype(np.float32)
    lacking = [name for name, both in sides.items() if len(both) < 2]
    if lacking:
        raise ModelError(f"{adapter} has only one side of the change of {lacking[0]}")
    return {name: scale * (both["B"] @ both["A"]) for name, both in sides.items()}


def _turned(rows: np.ndarray, heads: int) -> np.ndarray:
    """Return rows of queries or keys in llama.cpp's order: halves of each head interleaved."""
    out, rank = rows.shape
    return rows.reshape(heads, 2, out // heads // 2, rank).swapaxes(1, 2).reshape(out, rank)
