"""A model of a known shape with random weights, to measure speed where no real one can be had.

    python benchmarks/random_model.py FOLDER [--shape 8b|tiny]

Shape 8b is that of Llama 3.1 8B (its published config.json); the tokenizer is the embedded model's,
whose ids the larger vocabulary holds. What such a model says is noise, held to the replies' forms
by their grammars; what it costs is what a trained one of this shape costs.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from pemand_abm.training.recipe import Recipe
from pemand_abm.training.sft import base_folder

SHAPES = {
    "8b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 49152,
        "max_position_embeddings": 4096,
    },
}


def main() -> None:
    """Write the model."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--shape", choices=sorted(SHAPES), default="8b")
    given = options.parse_args()
    embedded = Recipe.model_construct(name="", model="embedded")
    tokenizer = AutoTokenizer.from_pretrained(str(base_folder(embedded, print)))
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        config = LlamaConfig(**SHAPES[given.shape], eos_token_id=tokenizer.eos_token_id)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(str(given.folder))
    tokenizer.save_pretrained(str(given.folder))
    count = sum(p.numel() for p in model.parameters())
    print(f"{count:,} random parameters in {given.folder}")


if __name__ == "__main__":
    main()
