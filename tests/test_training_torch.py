"""What needs torch: a short fine-tuning that learns and goes on, and an adapter in two programs."""

import json

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")
pytest.importorskip("gguf")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from pemand_abm.dialogue import Request, answer
from pemand_abm.errors import SettingsError
from pemand_abm.models.adapter import merged
from pemand_abm.models.weights import fetch_weights, weights_path
from pemand_abm.training import lora
from pemand_abm.training.recipe import Recipe
from pemand_abm.training.sft import base_folder

needs_tokenizer = pytest.mark.skipif(
    weights_path() is None, reason="the embedded model's weights are not here"
)


@pytest.fixture(scope="session")
def base():
    """The embedded model, dequantized once into the cache."""
    return base_folder(recipe().model_copy(update={"model": "embedded"}), print)


@pytest.fixture(scope="module")
def tiny(base, tmp_path_factory):
    """A model of two small layers, untrained, with the embedded one's tokenizer."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = AutoTokenizer.from_pretrained(str(base))
    tokenizer.save_pretrained(str(folder))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=36, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=9, num_key_value_heads=3, eos_token_id=tokenizer.eos_token_id,
        initializer_range=0.3,  # With the default, the untrained output layer can learn nothing.
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(str(folder))
    return folder


def recipe(**fit):
    given = {"batch": 4, "accumulate": 2, "learning_rate": 0.02, "check_every": 5, "held_out": 0.2}
    return Recipe.model_validate(
        {
            "name": "t", "model": "tiny", "teacher": "rules", "examples": 40, "phases": {"review": 1},
            "surveys": [{"survey": "psrc2023", "households": 1}], "fit": given | fit,
        }
    )  # fmt: skip


def examples(n=40):
    return [
        {
            "messages": [
                {"role": "system", "content": "You count."},
                {"role": "user", "content": f"We are {i % 5} people."},
                {"role": "assistant", "content": "INTENTION: 4"},
            ]
        }
        for i in range(n)
    ]


@needs_tokenizer
def test_the_loss_falls_and_a_stopped_run_goes_on_from_its_checkpoint(tiny, tmp_path):
    whole = lora.fit(recipe(), tiny, examples(), tmp_path / "whole", steps=20)
    losses = [e["loss"] for e in whole.log if "loss" in e]
    assert losses[-1] < 0.5 * losses[0]
    assert whole.finished and whole.steps == 20
    lora.fit(recipe(), tiny, examples(), tmp_path / "part", steps=20, minutes=1e-9)
    state = sorted((tmp_path / "part" / "checkpoints").glob("checkpoint-*"))
    assert [p.name for p in state] == ["checkpoint-1"]
    (tmp_path / "part" / "checkpoints" / "checkpoint-7").mkdir()  # Killed while it was written.
    rest = lora.fit(recipe(), tiny, examples(), tmp_path / "part", steps=20)
    assert rest.steps == 20
    last = [e["loss"] for e in rest.log if "loss" in e][-1]
    assert last == pytest.approx(losses[-1], rel=0.05)


@needs_tokenizer
def test_a_recipe_can_have_a_number_count_more_than_a_word(tiny):
    tokenizer = AutoTokenizer.from_pretrained(str(tiny))
    weight = lora.token_weights(tokenizer, len(tokenizer), 8)
    said = tokenizer("SCORES: persona=3; quality=1 FEEDBACK: It fits.")["input_ids"]
    heavy = [tokenizer.decode([i]).strip() for i in said if weight[i] == 8]
    assert heavy == ["3", "1"]
    assert all(weight[i] in (1, 8) for i in said)


@needs_tokenizer
def test_only_the_reply_has_labels_and_long_examples_are_left_out_and_told(tiny, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(str(tiny))
    row = lora.tokenized(tokenizer, examples()[0]["messages"])
    learnt = [t for t in row["labels"] if t != lora.IGNORED]
    assert tokenizer.decode(learnt) == "INTENTION: 4" + tokenizer.eos_token
    long = [dict(e) for e in examples(6)]
    long[0] = json.loads(json.dumps(long[0]).replace("You count.", "You count. " * 200))
    said = []
    lora.fit(recipe(most_tokens=100), tiny, long, tmp_path / "a", steps=1, show=said.append)
    assert said[0] == "1 of 6 examples are over 100 tokens: left out"
    with pytest.raises(SettingsError, match="needs two or more"):
        lora.fit(recipe(most_tokens=5), tiny, long, tmp_path / "b", steps=1)


@needs_tokenizer
@pytest.mark.slow
def test_llama_cpp_and_transformers_agree_on_what_an_adapter_says(base, tmp_path):
    """A large random adapter changes the replies, and both programs to the same words."""
    from peft import LoraConfig, get_peft_model

    from pemand_abm.models import open_model

    model = AutoModelForCausalLM.from_pretrained(str(base), dtype=torch.float32)
    torch.manual_seed(1)
    settings = LoraConfig(
        r=8, lora_alpha=16, task_type="CAUSAL_LM", target_modules=["q_proj", "k_proj", "v_proj",
        "o_proj", "gate_proj", "up_proj", "down_proj"], init_lora_weights=False,
    )  # fmt: skip
    model = get_peft_model(model, settings)
    for name, values in model.named_parameters():
        if "lora_" in name:
            values.data *= 0.5
    model.save_pretrained(str(tmp_path / "adapter"))
    asked = [
        Request("You help.", f"Name {n} things that one sees in a {place}.", 0, ("x",), 12, 0.0)
        for n, place in enumerate(["street", "kitchen", "school", "forest"], 2)
    ]
    said = {
        name: [r.text for r in answer(open_model(name), asked)]
        for name in (
            "embedded",
            f"embedded+{tmp_path / 'adapter'}",
            f"transformers:{base}+{tmp_path / 'adapter'}",
        )
    }
    plain, one, other = said.values()
    assert plain != one
    same = np.mean([a.split()[:4] == b.split()[:4] for a, b in zip(one, other, strict=True)])
    assert same >= 0.75, (one, other)


def test_an_adapter_of_another_model_is_refused_by_name(tmp_path):
    from safetensors.numpy import save_file

    from pemand_abm.errors import ModelError

    (tmp_path / "adapter_config.json").write_text('{"lora_alpha": 16, "r": 1}')
    save_file(
        {
            "base_model.model.model.layers.0.self_attn.qkv.lora_A.weight": np.zeros(
                (1, 4), np.float16
            )
        },
        tmp_path / "adapter_model.safetensors",
    )
    with pytest.raises(ModelError, match=r"self_attn\.qkv.*has no place"):
        merged(fetch_weights(), tmp_path)
