"""The backends for model folders: what they say without their libraries, what they do with them.

The real model is the embedded one, dequantized; where a library is absent its tests are skipped.
"""

import json
import re
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest

from pemand_abm.dialogue import Request, answer
from pemand_abm.errors import ModelError
from pemand_abm.models import known_models, open_model, weights
from pemand_abm.models.checkpoint import find_checkpoint
from pemand_abm.models.dequantize import dequantize
from pemand_abm.prompting import grammar

BACKENDS = {"vllm": ("vllm",), "transformers": ("torch", "transformers", "xgrammar")}
FORM = grammar(
    "pemand/proposal",
    value='"0" | [1-9] [0-9]?',
    label="TRIPS",
    likelihood=False,
    start="On an ordinary weekday I",
)
# The same form by another road: what the GBNF of proposal.gbnf and words.gbnf means.
WORD = r",? ([A-Za-z][a-z'-]{0,14}|\$?[0-9]{1,3}(,[0-9]{3})?)"
SPOKEN = rf"REASON: On an ordinary weekday I({WORD}){{4,28}}\.\nFINAL_TRIPS: (0|[1-9][0-9]?)"


def asking(number, **changes):
    system = "You play one member of a household. Use only the facts you are given."
    ask = "How many trips will you make? Give a reason, then the number."
    made = [
        Request(system, f"I am {40 + i} years old. {ask}", i, ("household 7", f"member {i}"), 24)
        for i in range(number)
    ]
    return [replace(request, **changes) for request in made]


# Without the libraries ---------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A folder with the files of a model, though of none that runs."""
    made = tmp_path / "small"
    made.mkdir()
    (made / "config.json").write_text('{"max_position_embeddings": 512}')
    (made / "model.safetensors").write_bytes(b"some weights")
    return made


@pytest.mark.parametrize(
    ("backend", "package", "mend"),
    [
        ("vllm", "vllm", "pip install 'pemand-abm[vllm]'"),
        ("transformers", "torch", "pip install 'pemand-abm[train]'"),
        ("transformers", "transformers", "pip install 'pemand-abm[train]'"),
    ],
)
def test_a_missing_package_is_one_error_with_its_mend(backend, package, mend, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)  # Python's own way to say: not to be found.
    with pytest.raises(ModelError, match=re.escape(mend)):
        open_model(f"{backend}:{folder}")
    assert backend in known_models()


def test_dequantizing_without_its_packages_names_them(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModelError, match=r"pip install .*gguf"):
        dequantize(tmp_path / "new")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "--model vllm:FOLDER"),
        ("/no/such/folder", "no model folder at /no/such/folder"),
        ("{folder}+/no/such/adapter", "/no/such/adapter is not a LoRA adapter"),
        ("{folder}/..", "no readable config.json"),
    ],
)
def test_a_name_without_its_files_is_one_error(name, message, folder):
    with pytest.raises(ModelError, match=re.escape(message)):
        find_checkpoint("vllm", name.format(folder=folder))


def test_weights_that_are_pickles_are_refused(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"no \*\.safetensors"):
        find_checkpoint("vllm", str(folder))


def test_the_journal_knows_a_model_by_its_content_and_not_by_its_place(folder, tmp_path):
    before = find_checkpoint("vllm", str(folder)).identity
    (tmp_path / "elsewhere").mkdir()
    moved = folder.rename(tmp_path / "elsewhere" / "small")
    assert find_checkpoint("vllm", str(moved)).identity == before
    assert str(tmp_path) not in json.dumps(before)
    (moved / "model.safetensors").write_bytes(b"same length!")
    assert find_checkpoint("vllm", str(moved)).identity != before


def test_an_adapter_enters_the_identity_by_its_content(folder, tmp_path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"r": 8}')
    (adapter / "adapter_model.safetensors").write_bytes(b"step 10")
    found = find_checkpoint("vllm", f"{folder}+{adapter}")
    bare, early = find_checkpoint("vllm", str(folder)).identity, found.identity
    (adapter / "adapter_model.safetensors").write_bytes(b"step 20")
    assert early.items() > bare.items()
    assert found.identity["adapter_sha256"] != early["adapter_sha256"]


def test_a_plus_in_a_folders_name_is_no_adapter(folder):
    named = folder.rename(folder.with_name("small+better"))
    assert find_checkpoint("vllm", str(named)).adapter is None


def test_the_context_is_the_models_own_up_to_a_bound(folder):
    assert find_checkpoint("vllm", str(folder)).context == 512
    (folder / "config.json").write_text('{"max_position_embeddings": 131072}')
    assert find_checkpoint("vllm", str(folder)).context == 8192


# With them, on the real model --------------------------------------------------------------------


@pytest.fixture(scope="module")
def smol(tmp_path_factory):
    """The embedded model as a folder."""
    for name in ("torch", "transformers", "gguf"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    if weights.weights_path() is None:
        pytest.skip("the embedded model's weights are not cached")
    return dequantize(tmp_path_factory.mktemp("weights") / "smol")


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request):
    for name in BACKENDS[request.param]:
        pytest.importorskip(name, reason=f"{name} is not installed")
    return request.param


@pytest.fixture(scope="module")
def model(backend, smol):
    opened = open_model(f"{backend}:{smol}")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def adapter(smol, tmp_path_factory):
    """A LoRA adapter of random numbers, large enough to change what is said."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    config = peft.LoraConfig(r=4, init_lora_weights=False, target_modules=["q_proj", "v_proj"])
    made = tmp_path_factory.mktemp("adapter")
    peft.get_peft_model(AutoModelForCausalLM.from_pretrained(smol), config).save_pretrained(made)
    return made


def test_a_grammar_binds_the_reply_and_a_seed_changes_it(model):
    requests = asking(6, grammar=FORM, max_tokens=160, temperature=1.0)
    replies = answer(model, [replace(request, user=requests[0].user) for request in requests])
    assert all(re.fullmatch(SPOKEN, r.text) for r in replies if r.finish == "stop")
    assert sum(r.finish == "stop" for r in replies) >= 4
    assert len({r.text for r in replies}) > 1


def test_grammar_and_free_text_share_a_batch(model):
    bound, free = asking(2, max_tokens=120)
    replies = answer(model, [replace(bound, grammar='root ::= "TRIPS: " [0-9]'), free])
    assert re.fullmatch(r"TRIPS: \d", replies[0].text)
    assert not replies[1].text.startswith("TRIPS:")


def test_neighbours_and_order_do_not_change_a_reply_on_a_processor(model):
    requests = asking(4) + asking(2, max_tokens=12)
    together = answer(model, requests)
    assert together == answer(model, requests[::-1])[::-1]
    assert together[:2] == [answer(model, [request])[0] for request in requests[:2]]
    assert len({reply.text for reply in together[:4]}) > 1


def test_a_reply_has_its_own_length_and_says_why_it_ended(model):
    long, short = answer(model, [*asking(1, max_tokens=5), *asking(1, max_tokens=2)])
    assert (long.completion_tokens, short.completion_tokens) == (5, 2)
    assert (long.finish, short.finish) == ("length", "length")


def test_prompts_have_the_tokens_that_llama_cpp_counts(model):
    if find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    requests = asking(2)
    counted = [reply.prompt_tokens for reply in answer(open_model("embedded"), requests)]
    assert [reply.prompt_tokens for reply in answer(model, requests)] == counted


def test_a_prompt_over_the_context_is_an_error_and_never_cut(model):
    fits_alone = " trip" * (model.identity["context"] - 60)
    request = replace(asking(1)[0], user=fits_alone, max_tokens=80)
    with pytest.raises(ModelError, match=r"household 7, member 0 has \d+ tokens"):
        answer(model, [request])


def test_a_grammar_that_cannot_be_read_is_an_error_that_leaves_the_model_whole(model):
    with pytest.raises(ModelError, match="household 7, member 0"):
        answer(model, asking(2, grammar="root ::= nowhere ["))
    assert len(answer(model, asking(2))) == 2


def test_a_consumer_that_goes_away_leaves_the_model_whole(model):
    replies = model.complete(asking(6))
    next(replies)
    replies.close()
    assert len(answer(model, asking(3))) == 3


def test_a_temperature_of_zero_takes_the_likeliest_and_ignores_the_seed(model):
    calm = asking(1, temperature=0.0)
    assert answer(model, calm) == answer(model, [replace(calm[0], seed=99)])


def test_an_adapter_changes_what_is_said(backend, model, smol, adapter):
    calm = asking(2, temperature=0.0)
    bare = answer(model, calm)
    model.close()  # vLLM keeps one engine in a process.
    adapted = open_model(f"{backend}:{smol}+{adapter}")
    assert answer(adapted, calm) != bare
    adapted.close()


def test_draws_follow_the_models_probabilities():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from pemand_abm.models.transformers import _Draws, _Row

    shares = torch.tensor([0.1, 0.2, 0.7])
    for temperature, expected in ((1.0, shares), (0.5, shares**2 / (shares**2).sum())):
        rows = [_Row(Request("", "", i, (), 1, temperature), [0], None) for i in range(4000)]
        drawn = _Draws(rows)(torch.zeros(4000, 1), shares.log().expand(4000, 3).clone())
        counted = torch.bincount(drawn.argmax(-1), minlength=3) / 4000
        assert torch.allclose(counted, expected, atol=0.025)  # Three standard errors.
