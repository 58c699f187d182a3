"""A language model in this process by Hugging Face transformers: small batches, one after another.

The plainest road to a model folder that was just trained; vLLM is the quick one. Each request draws
its tokens from random numbers of its own seed, so its neighbours in a batch change a reply only
where another rounding of sums tips a token's draw (rarely, and more rarely in float32).

transformers itself knows no grammar. Where the package `xgrammar` is installed it holds replies to
theirs, else they are free text, which `notes` says; the readers of replies are strict either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from pemand_abm import keys
from pemand_abm.dialogue import Reply, Request
from pemand_abm.errors import ModelError
from pemand_abm.models.checkpoint import Checkpoint, who

IN_ONE_BATCH = 16


class Transformers:
    """A model run by transformers, loaded at its first request.

    Parameters
    ----------
    checkpoint : Checkpoint
        The model's files. An adapter is merged into the weights as they are loaded.
    in_one_batch : int
        Requests in one batch at most. Those of about the same length go together, so that little
        is padded.

    Attributes
    ----------
    notes : list of str
        What a reader of the run should know.
    """

    def __init__(self, checkpoint: Checkpoint, in_one_batch: int = IN_ONE_BATCH) -> None:
        if in_one_batch < 1:
            raise ModelError(f"workers must be 1 or more, found {in_one_batch}")
        self._checkpoint, self._in_one_batch = checkpoint, in_one_batch
        self.at_once = in_one_batch
        self.require()
        if checkpoint.adapter is not None and find_spec("peft") is None:
            raise ModelError("an adapter needs the package peft: pip install peft")
        self._model: Any = None
        self._tokenizer: Any = None
        self._grammars: Any = None
        self.notes: list[str] = []
        known = checkpoint.identity
        self.identity: dict[str, str | int | float | bool] = known | {
            "model": f"transformers:{known['model']}",
            "transformers": version("transformers"),
            "torch": version("torch"),
            "xgrammar": version("xgrammar") if find_spec("xgrammar") else "none",
        }
        if not find_spec("xgrammar"):
            self.notes.append(
                "xgrammar is not installed: the model's replies are unconstrained text"
            )

    @staticmethod
    def require() -> None:
        """Raise ModelError where transformers or torch are not installed."""
        missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
        if missing:
            raise ModelError(
                f"transformers models need the packages {' and '.join(missing)}: "
                "pip install 'pemand-abm[train]' xgrammar"
            )

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yield (position, reply) batch by batch; a fault of one stops all, as ModelError."""
        if not requests:
            return
        self._load()
        prompts = [self._checkpoint.prompt(self._tokenizer, request) for request in requests]
        grammars = [self._compiled(request) for request in requests]
        order = sorted(
            range(len(requests)), key=lambda i: (requests[i].max_tokens, len(prompts[i]))
        )
        for start in range(0, len(order), self._in_one_batch):
            batch = order[start : start + self._in_one_batch]
            rows = [_Row(requests[i], prompts[i], grammars[i]) for i in batch]
            yield from zip(batch, self._replies(rows), strict=True)

    def close(self) -> None:
        """Free the model; the next `complete` loads it anew."""
        self._model = None

    def _load(self) -> None:
        if self._model is not None:
            return
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        card = torch.cuda.is_available()
        folder, adapter = str(self._checkpoint.folder), self._checkpoint.adapter
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(folder)
            model = AutoModelForCausalLM.from_pretrained(
                folder, use_safetensors=True, dtype="auto" if card else torch.float32
            )
            if adapter is not None:
                from peft import PeftModel

                model = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
        except (ImportError, OSError, RuntimeError, ValueError) as fault:
            raise ModelError(f"transformers cannot load {folder}: {fault}") from fault
        self._model = model.to("cuda" if card else "cpu").eval()
        if find_spec("xgrammar"):
            self._grammars = self._compiler(model.config.get_text_config().vocab_size)

    def _compiler(self, vocabulary: int) -> Any:
        import xgrammar

        return xgrammar.GrammarCompiler(
            xgrammar.TokenizerInfo.from_huggingface(
                self._tokenizer, vocab_size=vocabulary, stop_token_ids=self._ends()
            )
        )

    def _compiled(self, request: Request) -> Any:
        if request.grammar is None or self._grammars is None:
            return None
        try:
            return self._grammars.compile_grammar(request.grammar)
        except RuntimeError as fault:
            raise ModelError(f"the grammar of {who(request)} cannot be read: {fault}") from fault

    def _replies(self, rows: list[_Row]) -> list[Reply]:
        import torch
        from transformers import GenerationConfig

        ends = self._ends()
        width = max(len(row.prompt) for row in rows)
        # On the left, so that each row's last token is its prompt's last.
        tokens = torch.tensor([[ends[0]] * (width - len(r.prompt)) + r.prompt for r in rows])
        seen = torch.tensor([[0] * (width - len(r.prompt)) + [1] * len(r.prompt) for r in rows])
        device = self._model.device
        # A configuration of our own: a model's may come with penalties, beams or a top-k.
        plain = GenerationConfig(
            max_new_tokens=max(row.request.max_tokens for row in rows),
            do_sample=False,
            eos_token_id=ends,
            pad_token_id=ends[0],
        )
        with torch.inference_mode():
            made = self._model.generate(
                tokens.to(device),
                attention_mask=seen.to(device),
                generation_config=plain,
                logits_processor=[_Draws(rows)],
                stopping_criteria=[_Lengths(rows, width)],
            )
        return [
            self._reply(r, m, ends) for r, m in zip(rows, made[:, width:].tolist(), strict=True)
        ]

    def _reply(self, row: _Row, made: list[int], ends: list[int]) -> Reply:
        made = made[: row.request.max_tokens]
        count = next((i + 1 for i, token in enumerate(made) if token in ends), len(made))
        text = self._tokenizer.decode(made[:count], skip_special_tokens=True)
        return Reply(text, len(row.prompt), count, "stop" if made[count - 1] in ends else "length")

    def _ends(self) -> list[int]:
        """Return the tokens that end a reply; a model may have several."""
        named = self._model.generation_config.eos_token_id
        several = named if isinstance(named, list) else [named]
        return sorted({t for t in (*several, self._tokenizer.eos_token_id) if t is not None})


class _Row:
    """One request in a batch: its prompt's tokens, its random numbers and its place in the form."""

    def __init__(self, request: Request, prompt: list[int], grammar: Any) -> None:
        self.request, self.prompt, self._grammar = request, prompt, grammar
        self._uniforms = keys.generator("tokens", request.seed).random(request.max_tokens)
        self._matcher: Any = None

    def uniform(self, step: int) -> float:
        """Return the random number of this step, any number once the reply has its length."""
        return float(self._uniforms[step]) if step < len(self._uniforms) else 0.0

    def allow(self, step: int, last: int, mask: Any, row: int) -> None:
        """Write into *mask* which tokens may follow *last*, the token that was drawn before."""
        import xgrammar

        if self._matcher is None:
            self._matcher = xgrammar.GrammarMatcher(self._grammar)
        elif not self._ended(step):
            self._matcher.accept_token(last)
        if self._ended(step):
            mask[row] = -1  # All bits, that is, all tokens: what is drawn now is dropped.
        else:
            self._matcher.fill_next_token_bitmask(mask, row)

    @property
    def constrained(self) -> bool:
        return self._grammar is not None

    def _ended(self, step: int) -> bool:
        return self._matcher.is_terminated() or step >= len(self._uniforms)


class _Draws:
    """Draws each row's next token with its own random number, for the search of `generate`.

    The token is the one in whose share of the cumulative probability the number falls. All others
    are ruled out, so that the greedy search takes it.
    """

    def __init__(self, rows: list[_Row]) -> None:
        self._rows, self._step = rows, 0

    def __call__(self, tokens: Any, scores: Any) -> Any:
        import torch

        scores = self._allowed(tokens, scores)
        heat = torch.tensor([row.request.temperature for row in self._rows], device=scores.device)
        shares = torch.softmax(scores.double() / heat.clamp(min=1e-6)[:, None], dim=-1).cumsum(-1)
        numbers = torch.tensor([row.uniform(self._step) for row in self._rows], dtype=torch.double)
        at = numbers.to(scores.device)[:, None] * shares[:, -1:]
        drawn = torch.searchsorted(shares, at, right=True).clamp(max=scores.shape[-1] - 1)
        drawn = torch.where(heat[:, None] > 0, drawn, scores.argmax(-1, keepdim=True))
        self._step += 1
        return torch.full_like(scores, -torch.inf).scatter(1, drawn, 0.0)

    def _allowed(self, tokens: Any, scores: Any) -> Any:
        held = [(i, row) for i, row in enumerate(self._rows) if row.constrained]
        if not held:
            return scores
        import xgrammar

        mask = xgrammar.allocate_token_bitmask(len(self._rows), scores.shape[-1])
        last = tokens[:, -1].tolist()
        for i, row in held:
            row.allow(self._step, last[i], mask, i)
        xgrammar.apply_token_bitmask_inplace(scores, mask.to(scores.device))
        return scores


class _Lengths:
    """Ends each row of a batch at its own number of tokens."""

    def __init__(self, rows: list[_Row], width: int) -> None:
        self._most = [width + row.request.max_tokens for row in rows]

    def __call__(self, tokens: Any, scores: Any, **_: Any) -> Any:
        import torch

        return torch.tensor([tokens.shape[1] >= m for m in self._most], device=tokens.device)
