"""Language models by name: what answers the requests of a dialogue.

A backend holds no knowledge of households or protocols. Wrappers (`journal.Journal`,
`progress.Progress`) are models too.

Another package adds a backend through the entry point group ``pemand_abm.models``: the name points
to a function that is called with the keywords `model` (what stands after the colon, or ""),
`base_url`, `workers` and `exact`, and returns a Model. Where its model runs on this machine, the
function has the attribute ``local = True``; without it, it counts as remote.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal
from urllib.parse import urlsplit

from pemand_abm.dialogue import Model, Reply, Request
from pemand_abm.errors import ModelError

GROUP = "pemand_abm.models"
NO_ADAPTER = "none"
ADAPTED = ("embedded", "llamacpp", "transformers", "vllm")
Remote = Literal["refuse", "allow"]


def open_model(
    name: str,
    *,
    base_url: str | None = None,
    workers: int | None = None,
    exact: bool = True,
    adapter: str | None = None,
    remote: Remote = "refuse",
    replicas: int | None = None,
    cluster: str | None = None,
) -> Model:
    """Return the model that *name* stands for.

    Parameters
    ----------
    name : str
        ``embedded`` (or ``llamacpp``, with ``llamacpp:FILE.gguf`` for other weights), ``scripted``,
        ``openai:NAME``, ``vllm:FOLDER``, ``transformers:FOLDER`` (these and the
        embedded one with ``+ADAPTER_FOLDER`` where there is one: ``embedded+FOLDER``), or
        ``BACKEND:NAME`` of an installed plug-in.
    base_url : str, optional
        The server, for backends that ask one: ``http://127.0.0.1:8000/v1``.
    workers : int, optional
        How many replies are made at once: cores for the embedded model (all by default), requests
        under way for a server (8 by default), requests in one batch for vLLM (64) and transformers
        (16). Never changes a reply in exact mode.
    exact : bool
        Whether the embedded model's replies must not depend on order or number of workers.
    adapter : str, optional
        The same as ``+ADAPTER_FOLDER`` after the name; ``none`` leaves out the embedded model's.
    remote : {"refuse", "allow"}
        Whether what households say of themselves may leave this machine (docs/privacy.md).
    replicas : int, optional
        How many processes answer, each with the model for itself (`cluster.Cluster`); none by
        default, the model is then in this process. Never changes the identity.
    cluster : str, optional
        The address of the Ray cluster that the replicas run on; this machine by default.

    Raises
    ------
    ModelError
        If the name is unknown, its package, weights or server address is missing, or the model is
        remote and that is refused.
    """
    backend, _, model = name.partition(":")
    if backend.startswith("embedded+"):
        backend, model = "embedded", name.removeprefix("embedded")
    if replicas and cluster is None and workers is None and BUILT_IN.get(backend) is open_embedded:
        # All on this machine: its cores are shared among them.
        workers = max(1, (os.cpu_count() or 1) // replicas)
    given = {
        "name": name,
        "base_url": base_url,
        "workers": workers,
        "exact": exact,
        "adapter": adapter,
    }
    if cluster is not None and replicas is None:
        raise ModelError(f"the cluster {cluster} needs to know how many replicas: --replicas N")
    if adapter is not None:
        if backend not in ADAPTED:
            raise ModelError(f"{backend} takes no adapter; these do: {', '.join(ADAPTED)}")
        model = model if adapter == NO_ADAPTER and model else f"{model}+{adapter}"
    opener = _opener(backend)
    here = backend in BUILT_IN or bool(getattr(opener, "local", False))
    if not here and remote == "refuse":
        raise ModelError(_refused(name))
    opened = opener(model=model, base_url=base_url, workers=workers, exact=exact)
    # A server is asked nothing before its first request.
    if backend == "openai" and remote == "refuse" and base_url and not is_loopback(base_url):
        raise ModelError(_refused(f"{name} at {_host(base_url)}"))
    return opened if replicas is None else _hosted(opened, given, replicas, cluster, remote)


def _hosted(
    opened: Model, given: dict[str, Any], replicas: int, cluster: str | None, remote: Remote
) -> Model:
    """Return replicas of a model that was opened here as *given*."""
    from pemand_abm.models.cluster import Cluster, Hosted
    from pemand_abm.models.machines import stays_here

    if remote == "refuse" and not stays_here(cluster):
        raise ModelError(_refused(f"the Ray cluster {cluster}"))
    return Cluster(opened, Hosted(**given), replicas, cluster, stay=remote == "refuse")


def _refused(what: str) -> str:
    return (
        f"{what} is not known to run on this machine, and would be sent what survey and synthetic "
        "households say of their members. Where these data may leave, say so: `remote: allow` in "
        "the scenario, or --remote allow; else use a model that runs here (docs/privacy.md)"
    )


def is_loopback(base_url: str) -> bool:
    """Say whether a server's address is this machine's own.

    >>> [is_loopback(u) for u in ("http://localhost:8000/v1", "http://[::1]:1", "http://10.0.0.7")]
    [True, True, False]
    """
    host = _host(base_url)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host(base_url: str) -> str:
    try:
        return urlsplit(base_url).hostname or ""
    except ValueError:
        return ""


def known_models() -> list[str]:
    """Return the names of all backends, the built-in ones and the plugged-in ones."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=GROUP))})


def open_embedded(*, model: str, base_url: str | None, workers: int | None, exact: bool) -> Model:
    """Open the embedded model, or another GGUF file, on this machine's processor."""
    from pemand_abm.models.checkpoint import find_adapter
    from pemand_abm.models.llamacpp import LlamaCpp
    from pemand_abm.models.weights import fetch_weights

    _needs_no_server("embedded", base_url)
    LlamaCpp.require()
    weights, _, adapter = (model, "", "") if Path(model).is_file() else model.partition("+")
    if not weights and not adapter:
        folder = shipped_adapter()
    else:
        folder = None if adapter == NO_ADAPTER else find_adapter(adapter)
    return LlamaCpp(
        Path(weights) if weights else fetch_weights(),
        workers or os.cpu_count() or 1,
        exact,
        folder,
    )


def shipped_adapter() -> Path | None:
    """Return the adapter that comes with the embedded model; None where there is none."""
    folder = Path(__file__).parents[1] / "adapters" / "embedded"
    return folder if folder.is_dir() else None


def open_openai(*, model: str, base_url: str | None, workers: int | None, exact: bool) -> Model:
    """Open a model on a server; *workers* are requests under way at once, 8 by default."""
    from pemand_abm.models.openai import OpenAI

    if not model:
        raise ModelError("openai needs the name of a model: --model openai:NAME")
    if not base_url:
        raise ModelError(f"openai:{model} needs a server: --base-url http://127.0.0.1:8000/v1")
    return OpenAI(model, base_url, in_flight=workers or 8)


def open_scripted(*, model: str, base_url: str | None, workers: int | None, exact: bool) -> Model:
    """Open the scripted model, which needs no weights."""
    from pemand_abm.models.scripted import Scripted

    _needs_no_server("scripted", base_url)
    if model:
        raise ModelError(f"scripted takes no name after the colon, found {model!r}")
    return Scripted()


def open_vllm(*, model: str, base_url: str | None, workers: int | None, exact: bool) -> Model:
    """Open a model folder or a name on Hugging Face's hub with vLLM, *workers* requests a batch."""
    from pemand_abm.models.checkpoint import find_checkpoint
    from pemand_abm.models.vllm import IN_ONE_BATCH, Vllm

    _needs_no_server("vllm", base_url)
    Vllm.require()
    return Vllm(find_checkpoint("vllm", model), workers or IN_ONE_BATCH)


def open_transformers(
    *, model: str, base_url: str | None, workers: int | None, exact: bool
) -> Model:
    """Open the same with Hugging Face transformers, *workers* requests a batch."""
    from pemand_abm.models.checkpoint import find_checkpoint
    from pemand_abm.models.transformers import IN_ONE_BATCH, Transformers

    _needs_no_server("transformers", base_url)
    Transformers.require()
    return Transformers(find_checkpoint("transformers", model), workers or IN_ONE_BATCH)


def spread(
    requests: Sequence[Request],
    workers: Sequence[Callable[[Request], Reply]],
    stop: threading.Event,
    *,
    join: bool,
) -> Iterator[tuple[int, Reply]]:
    """Answer the requests with one thread a worker, and yield (position, reply) in finishing order.

    The first fault stops all and is raised here; so does a consumer that goes away. *stop* is then
    set, for calls under way to heed. With *join* the threads are waited for (native code must not
    run while the interpreter ends); without, they are left.
    """
    todo: SimpleQueue[int] = SimpleQueue()
    done: SimpleQueue[tuple[int, Reply | BaseException]] = SimpleQueue()
    for position in range(len(requests)):
        todo.put(position)

    def work(ask: Callable[[Request], Reply]) -> None:
        while not stop.is_set():
            try:
                position = todo.get_nowait()
            except Empty:
                return
            try:
                done.put((position, ask(requests[position])))
            except BaseException as fault:
                done.put((position, fault))
                stop.set()

    threads = [
        threading.Thread(target=work, args=(ask,), daemon=not join)
        for ask in workers[: len(requests)]
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in requests:
            position, reply = done.get()
            if isinstance(reply, BaseException):
                raise reply
            yield position, reply
    finally:
        stop.set()
        for thread in threads:
            if join and thread.ident is not None:
                thread.join()


BUILT_IN: dict[str, Callable[..., Model]] = {
    "embedded": open_embedded,
    "llamacpp": open_embedded,
    "openai": open_openai,
    "scripted": open_scripted,
    "transformers": open_transformers,
    "vllm": open_vllm,
}
"""The backends of this package, known to a source tree that is not installed too."""


def _opener(backend: str) -> Callable[..., Model]:
    """Return the function that opens a backend; no plug-in takes the place of a built-in one."""
    if backend in BUILT_IN:
        return BUILT_IN[backend]
    for point in entry_points(group=GROUP, name=backend):
        try:
            return point.load()
        except Exception as fault:
            raise ModelError(
                f"the plug-in {point.value} of {backend!r} does not load: {fault}"
            ) from fault
    raise ModelError(_unknown(backend))


def _unknown(backend: str) -> str:
    known = known_models()
    near = difflib.get_close_matches(backend, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    names = ", ".join(known)
    return f"unknown model {backend!r}{hint} (known: {names}; a server's model is openai:NAME)"


def _needs_no_server(name: str, base_url: str | None) -> None:
    if base_url:
        raise ModelError(
            f"{name} runs in this process and takes no base_url; a server's model is openai:NAME"
        )
