"""A language model in this process: llama.cpp, through the package `xllamacpp`, on the processor.

Each worker has a llama.cpp server of its own with one thread, because two threads of one server
collapse to 3 to 6 tokens a second as soon as another program wants a core (design/MODELS.md §1).

In exact mode a server has one slot and no prompt cache. A reply then depends on the request and
the identity alone, not on what else is asked, in which order, or by how many workers, on machines
that run the same kernels. Otherwise four slots share batches and prompt prefixes, which is quicker
and lets sums be rounded in another order.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pemand_abm.dialogue import Reply, Request
from pemand_abm.errors import ModelError
from pemand_abm.models import spread
from pemand_abm.models.adapter import KEPT, merged
from pemand_abm.models.checkpoint import adapter_identity
from pemand_abm.models.weights import checksum

SHARED_SLOTS = 4
SILENT = 0


class LlamaCpp:
    """A GGUF model run by llama.cpp.

    Parameters
    ----------
    path : Path
        The weights.
    workers : int
        Servers, each on one core and with a copy of the context (about 0.2 GB each for the embedded
        model).
    exact : bool
        One slot and no prompt cache, see the module.
    adapter : Path, optional
        A LoRA adapter of the embedded model in peft's form, merged into the weights.
    context : int
        Tokens of prompt and reply together. A request that asks more is a ModelError, never cut.
    """

    def __init__(
        self,
        path: Path,
        workers: int = 1,
        exact: bool = True,
        adapter: Path | None = None,
        context: int = 4096,
    ) -> None:
        path = Path(path)
        if workers < 1:
            raise ModelError(f"workers must be 1 or more, found {workers}")
        if not path.is_file():
            raise ModelError(f"no model weights at {path}")
        self._path, self._workers, self._context = path, workers, context
        self._slots = 1 if exact else SHARED_SLOTS
        self.at_once = workers * self._slots
        self._servers: list[Any] = []
        self._starting = threading.Lock()
        self.identity: dict[str, str | int | float | bool] = {
            "model": f"llamacpp:{path.stem}",
            "weights_sha256": checksum(path),
            "quantization": _quantization(path.stem),
            "exact": exact,
            "context": context,
            "xllamacpp": self.require(),
        }
        if adapter is not None:
            self.identity |= {**adapter_identity(adapter), "merged": KEPT}
            self._path = merged(path, adapter)

    @staticmethod
    def require() -> str:
        """Return the version of xllamacpp, or raise ModelError where it is not installed."""
        try:
            if find_spec("xllamacpp") is not None:
                return version("xllamacpp")
        except PackageNotFoundError:
            pass
        raise ModelError(
            "the embedded model needs the package xllamacpp: pip install 'pemand-abm[embedded]' "
            "(or run without a language model: --model scripted)"
        )

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yield (position, reply) in finishing order; a fault of one stops all, as ModelError."""
        if not requests:
            return
        stop = threading.Event()
        servers = self._started(min(self._workers, len(requests)))
        asks = [partial(self._ask, server, stop) for server in servers for _ in range(self._slots)]
        # The process crashes when the interpreter ends while xllamacpp is in a call: hence `join`.
        yield from spread(requests, asks, stop, join=True)

    def close(self) -> None:
        """Free the servers; the next `complete` makes new ones."""
        self._servers.clear()

    def _started(self, count: int) -> list[Any]:
        with self._starting:
            while len(self._servers) < count:
                self._servers.append(self._server())
            return self._servers[:count]

    def _server(self) -> Any:
        import xllamacpp

        settings = xllamacpp.CommonParams()
        settings.model.path = str(self._path)
        settings.n_parallel = self._slots
        settings.n_ctx = self._context * self._slots
        settings.n_gpu_layers = 0
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
        settings.verbosity = SILENT
        settings.ui = settings.endpoint_slots = settings.fit_params = False
        settings.reasoning_format = xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_NONE
        if self._slots == 1:
            settings.cache_prompt, settings.cache_ram_mib = False, 0
        try:
            return xllamacpp.Server(settings)
        except RuntimeError as fault:
            raise ModelError(f"llama.cpp cannot load {self._path}: {fault}") from fault

    def _ask(self, server: Any, stop: threading.Event, request: Request) -> Reply:
        body: dict[str, Any] = {
            "messages": request.messages,
            "seed": request.seed,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "cache_prompt": self._slots > 1,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.grammar is not None:
            body["grammar"] = request.grammar
        reading = _Reading(stop)
        server.handle_chat_completions(body, reading.take)
        if reading.error.get("type") == "exceed_context_size_error":
            raise ModelError(self._too_long(request, reading.error["n_prompt_tokens"]))
        if reading.error or not reading.usage:
            raise ModelError(
                f"llama.cpp, asked by {_who(request)}: "
                f"{reading.error.get('message', 'the reply broke off')}"
            )
        reply = reading.reply()
        if reply.prompt_tokens + request.max_tokens > self._context:
            raise ModelError(self._too_long(request, reply.prompt_tokens))
        return reply

    def _too_long(self, request: Request, prompt_tokens: int) -> str:
        return (
            f"the prompt of {_who(request)} has {prompt_tokens} tokens and wants "
            f"{request.max_tokens} more for the reply, over the context of {self._context}: "
            "shorten the prompt, or open the model with a larger context"
        )


class _Reading:
    """The chunks of one streamed reply, put together; `take` says when to break off.

    xllamacpp swallows what `take` raises, so it only collects.
    """

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._pieces: list[str] = []
        self._finish = "stop"
        self.usage: dict[str, int] = {}
        self.error: dict[str, Any] = {}

    def take(self, chunk: dict[str, Any]) -> bool:
        self.error = chunk.get("error") or self.error
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices", ()):
            self._pieces.append(choice.get("delta", {}).get("content") or "")
            self._finish = choice.get("finish_reason") or self._finish
        # The ending interpreter waits for this thread, and sets no event if a traceback still holds
        # the consumer.
        return self._stop.is_set() or not threading.main_thread().is_alive()

    def reply(self) -> Reply:
        text = "".join(self._pieces)
        return Reply(
            text, self.usage["prompt_tokens"], self.usage["completion_tokens"], self._finish
        )


def _who(request: Request) -> str:
    return ", ".join(request.label) or "a request"


def _quantization(stem: str) -> str:
    found = re.search(r"(?:^|[.\-_])(I?Q\d\w*|B?F(?:16|32))$", stem, re.IGNORECASE)
    return found[1] if found else "not named"
