"""A language model on a server of OpenAI's chat protocol: vLLM, llama.cpp, Ollama, a cloud.

The key comes from the environment (`PEMAND_API_KEY`, else `OPENAI_API_KEY`) and goes to the server
alone: not into the identity, the journal, a log or an error.

A grammar is sent under both names in use, `grammar` (llama.cpp) and `structured_outputs` (vLLM,
since 0.12). A server that rejects them is asked again without, and without from then on; one that
takes grammars but not this one is asked without for this one. `notes` then says so, and the readers
of replies are strict either way.

A fault that stays ends the run, but not before the requests under way have had their replies: they
are paid for, and the journal keeps them.
"""

from __future__ import annotations

import base64
import os
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from pemand_abm.dialogue import Reply, Request
from pemand_abm.errors import ModelError
from pemand_abm.models import is_loopback, spread

if TYPE_CHECKING:
    import httpx
    import tenacity

KEYS = ("PEMAND_API_KEY", "OPENAI_API_KEY")
EXCERPT = 200
LONGEST_WAIT = 600.0
LONGEST_CONNECT = 10.0
SHORTEST_SECRET = 8
REJECTED = (400, 422, 501)
GO_ON = "run again then: what the journal holds is not asked anew"
LOG = "See the server's log, mend it"
BUSY = "Ask less at once (--workers) or wait"
UNREACHED = "See whether the server runs and base_url is its address"
UNASKED = Reply("", finish="unasked")


class OpenAI:
    """A model by name on an OpenAI-compatible server.

    Parameters
    ----------
    name : str
        The model as the server calls it.
    base_url : str
        The server; ``/v1`` is added where no path is given. A user and password in it are used and
        shown nowhere.
    in_flight : int
        Requests under way at once.
    timeout : float
        Seconds that one try may be silent.
    attempts : int
        Tries a request, where the server is busy (429), fails (5xx), is silent, or sends half a
        reply.
    pause : float
        Seconds before the second try, doubled before each further one; a server's Retry-After goes
        before.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        in_flight: int = 8,
        timeout: float = 120.0,
        attempts: int = 5,
        pause: float = 1.0,
    ) -> None:
        self._name, self._in_flight, self._timeout = name, in_flight, timeout
        self.at_once = in_flight
        self._attempts, self._pause = attempts, pause
        self._url, login = _split(base_url)
        self._key = _key()
        self._login = login
        self._secrets = _spellings(self._key, login)
        self._takes_grammar: bool | None = None
        self._refused: set[str] = set()
        self._probing = threading.Lock()
        self.identity: dict[str, str | int | float | bool] = {
            "model": f"openai:{name}",
            "base_url": self._url,
        }
        self.notes: list[str] = []
        _require()

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yield (position, reply) in finishing order.

        A fault of one is raised as ModelError when what was under way has been answered or has
        failed; nothing more is asked meanwhile.
        """
        import httpx

        if not requests:
            return
        stop, faults = threading.Event(), list[ModelError]()
        headers = {"Authorization": f"Bearer {self._key}"} if self._key and not self._login else {}
        limits = httpx.Limits(max_connections=self._in_flight)
        client = httpx.Client(
            timeout=httpx.Timeout(self._timeout, connect=self._connect),
            headers=headers,
            auth=self._login,
            limits=limits,
            # What goes to this machine itself must not take the way over a proxy.
            trust_env=not is_loopback(self._url),
        )
        asks = [partial(self._unless_ended, client, stop, faults)] * self._in_flight
        try:
            for position, reply in spread(requests, asks, threading.Event(), join=False):
                if reply is not UNASKED:
                    yield position, reply
        finally:
            stop.set()
            client.close()
        if faults:
            raise faults[0]

    def _unless_ended(
        self,
        client: httpx.Client,
        stop: threading.Event,
        faults: list[ModelError],
        request: Request,
    ) -> Reply:
        """Ask, unless a fault of another request has ended the run."""
        if stop.is_set():
            return UNASKED
        try:
            return self._ask(client, stop, request)
        except ModelError as fault:
            faults.append(fault)
            stop.set()
            return UNASKED

    def _ask(self, client: httpx.Client, stop: threading.Event, request: Request) -> Reply:
        plain = self._body(request)
        form = request.grammar
        if form is None or self._takes_grammar is False or form in self._refused:
            return self._reply(client, stop, plain)
        constrained = plain | {"grammar": form, "structured_outputs": {"grammar": form}}
        with self._probing:  # One request learns whether the server takes a grammar at all.
            if self._takes_grammar is None:
                return self._constrained(client, stop, plain, constrained)
        return self._constrained(client, stop, plain, constrained)

    def _constrained(
        self, client: httpx.Client, stop: threading.Event, plain: dict, constrained: dict
    ) -> Reply:
        if self._takes_grammar is False:
            return self._reply(client, stop, plain)
        try:
            reply = self._reply(client, stop, constrained)
            self._takes_grammar = True
        except _Rejected:
            # What the server takes without the grammar, it rejected for the grammar.
            reply = self._reply(client, stop, plain)
            self._refuse(constrained["grammar"])
        return reply

    def _refuse(self, form: str) -> None:
        note = f"{self._url} rejects a grammar: its replies are unconstrained text"
        if self._takes_grammar:
            note = f"{self._url} rejects some of the grammars: those replies are unconstrained text"
            self._refused.add(form)
        else:
            self._takes_grammar = False
        if note not in self.notes:
            self.notes.append(note)

    def _body(self, request: Request) -> dict[str, Any]:
        return {
            "model": self._name,
            "messages": request.messages,
            "seed": request.seed,
            "temperature": request.temperature,
            "max_tokens": request.max_tokens,
        }

    def _reply(self, client: httpx.Client, stop: threading.Event, body: dict[str, Any]) -> Reply:
        import tenacity

        tries = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_Again),
            stop=tenacity.stop_after_attempt(self._attempts) | tenacity.stop_when_event_set(stop),
            wait=self._wait,
            sleep=tenacity.sleep_using_event(stop),
            reraise=True,
        )
        try:
            return tries(self._try, client, stop, body)
        except _Again as fault:
            count = tries.statistics["attempt_number"]
            raise ModelError(
                f"{self._url} gave no reply in {count} tries: {fault}. {fault.mend}; {GO_ON}"
            ) from None

    @property
    def _connect(self) -> float:
        return min(self._timeout, LONGEST_CONNECT)

    def _wait(self, state: tenacity.RetryCallState) -> float:
        fault = state.outcome.exception() if state.outcome else None
        asked = fault.seconds if isinstance(fault, _Again) else None
        if asked is not None:
            return max(asked, self._pause)
        return min(self._pause * 2 ** (state.attempt_number - 1), 60.0)

    def _try(self, client: httpx.Client, stop: threading.Event, body: dict[str, Any]) -> Reply:
        import httpx

        if stop.is_set():
            raise ModelError(f"{self._url} was not asked: the run had ended")
        try:
            answer = client.post(f"{self._url}/chat/completions", json=body)
        except httpx.ConnectTimeout:
            raise _Again(
                f"no connection within {self._connect:g} seconds", mend=UNREACHED
            ) from None
        except httpx.TimeoutException:
            raise _Again(f"silent for {self._timeout:g} seconds", mend=BUSY) from None
        except httpx.ConnectError as failure:
            raise _Again(self._clean(str(failure)) or "no connection", mend=UNREACHED) from None
        except httpx.RequestError as failure:
            raise _Again(self._clean(str(failure)) or type(failure).__name__) from None
        if answer.is_success:
            return self._read(answer)
        status = answer.status_code
        fault = f"status {status}: {self._clean(answer.text)}"
        if status in REJECTED:
            raise _Rejected(
                f"{self._url} rejects the request with {fault}. A prompt may be longer than the "
                f"server's context; the server's log says more; {GO_ON}"
            )
        if status in (408, 429) or status >= 500:
            raise _Again(fault, self._retry_after(answer), BUSY if status in (408, 429) else LOG)
        raise ModelError(f"{self._url} answers with {fault}{self._mend(status)}")

    def _read(self, answer: httpx.Response) -> Reply:
        try:
            body = answer.json()
            choice = body["choices"][0]
            text = choice["message"].get("content") or ""
            usage = body.get("usage") or {}
            tokens = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
            raise _Again(
                f"an unreadable reply: {self._clean(answer.text)}", mend=UNREACHED
            ) from None
        if not isinstance(text, str):
            raise _Again(f"a reply that is no text: {self._clean(answer.text)}", mend=UNREACHED)
        # JSON can spell half a letter ("\ud83d"), which no file and no further request could hold.
        text = text.encode("utf-8", "replace").decode("utf-8")
        # A server that echoes our key must not bring it into the journal; a placeholder such as
        # "none" is no secret, and may be a word of the reply.
        for secret in self._secrets:
            text = text.replace(secret, "***") if len(secret) >= SHORTEST_SECRET else text
        return Reply(text, *tokens, finish=str(choice.get("finish_reason") or "stop"))

    def _retry_after(self, answer: httpx.Response) -> float | None:
        seconds = _seconds(answer.headers.get("retry-after", ""))
        if seconds is not None and seconds > LONGEST_WAIT:
            raise ModelError(
                f"{self._url} (status {answer.status_code}) asks to wait {seconds:.0f} seconds; "
                + GO_ON
            )
        return seconds

    def _clean(self, text: str) -> str:
        """Return the first letters of what a server said, on one line and without our key."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return " ".join(text.split())[:EXCERPT]

    def _mend(self, status: int) -> str:
        if status in (401, 403):
            return f". {KEYS[0]} is {'set but not accepted' if self._key else 'not set'}"
        if status == 404:
            return (
                f". Has the server a model {self._name!r}, and does its API begin at {self._url}?"
            )
        if 300 <= status < 400:
            return ". It sends us elsewhere: name that address as base_url"
        return ""


class _Again(Exception):
    """A fault that may pass.

    `seconds` is how long the server asked to be left alone, `mend` what to do where it stays.
    """

    def __init__(self, message: str, seconds: float | None = None, mend: str = LOG) -> None:
        super().__init__(message)
        self.seconds, self.mend = seconds, mend


class _Rejected(ModelError):
    """A request that the server understands and does not take."""


def _key() -> str | None:
    found = next(
        ((name, value) for name in KEYS if (value := os.environ.get(name, "").strip())), None
    )
    if found is None:
        return None
    if not (found[1].isascii() and found[1].isprintable()):
        raise ModelError(f"the key in {found[0]} holds letters that no key has; copy it again")
    return found[1]


def _split(base_url: str) -> tuple[str, tuple[str, str] | None]:
    """Return the address without secrets, and the user and password that stood in it."""
    try:
        parts = urlsplit(base_url)
        host = parts.hostname or ""
        place = (f"[{host}]" if ":" in host else host) + (f":{parts.port}" if parts.port else "")
    except ValueError:
        raise ModelError(
            "base_url is no web address; an example is http://127.0.0.1:8000/v1"
        ) from None
    if parts.scheme not in ("http", "https") or not host:
        raise ModelError(
            "base_url must begin with http:// or https:// and name a host: http://127.0.0.1:8000/v1"
        )
    if parts.query or parts.fragment:
        raise ModelError(
            f"base_url for {place} must end with its path: give a key in {KEYS[0]}, not after a '?'"
        )
    login = (
        (unquote(parts.username or ""), unquote(parts.password or ""))
        if "@" in parts.netloc
        else None
    )
    return urlunsplit((parts.scheme, place, parts.path.rstrip("/") or "/v1", "", "")), login


def _spellings(key: str | None, login: tuple[str, str] | None) -> list[str]:
    """Return every form in which a server could echo our secrets."""
    basic = (
        [login[1] or login[0], base64.b64encode(":".join(login).encode()).decode()] if login else []
    )
    return [secret for secret in (key, *basic) if secret]


def _seconds(header: str) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date (RFC 9110 §10.2.3)."""
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - time.time())


def _require() -> None:
    try:
        import httpx  # noqa: F401
        import tenacity  # noqa: F401
    except ImportError as fault:
        raise ModelError(
            f"openai models need the package {fault.name}: pip install {fault.name}"
        ) from None
