"""The journal: every reply a model gave, kept in one SQLite file and given again when asked again.

It is what a killed run goes on from, what makes a run repeatable whatever the model, and what
training reads. A reply is found by the content of its request, and by the identity of the model;
who asked (`label`) and when do not enter.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pemand_abm.dialogue import Model, Reply, Request
from pemand_abm.errors import ModelError, PemandError

PARSER = 1
"""Raised by one when replies that were kept before must be asked anew."""

FORMAT = 1
APPLICATION = 0x50454D44  # "PEMD": how SQLite files say whose they are (PRAGMA application_id).
SECONDS_FOR_A_LOCK = 60
LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

TABLE = """
CREATE TABLE IF NOT EXISTS replies (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    model TEXT NOT NULL,
    request TEXT NOT NULL,
    reply TEXT NOT NULL,
    label TEXT NOT NULL
)
"""


KEEP = "INSERT OR IGNORE INTO replies (key, model, request, reply, label) VALUES (?, ?, ?, ?, ?)"


class Journal:
    """A model that remembers: it asks *model* only what the file lacks, and keeps what it answers.

    Several processes may share one file. Where two ask the same at once, both use the reply that
    was kept first.

    Parameters
    ----------
    model : Model
        Who is asked for what the journal lacks.
    path : Path
        The SQLite file, made where there is none.
    before : Path, optional
        The journal of an earlier run, which is only read: a reply that stands there is kept here
        and not asked for again.
    replay_only : bool
        Never ask: a request that the journal lacks is a ModelError, and the file is not written.

    Attributes
    ----------
    identity : dict
        The model's own.
    asked, replayed : int
        Requests that went to the model, and that were answered from the file or by an identical
        request of their batch.
    prompt_tokens, completion_tokens : int
        What the model was asked and wrote here, that is, what this run cost.
    """

    def __init__(
        self,
        model: Model,
        path: Path,
        replay_only: bool = False,
        before: Path | None = None,
    ) -> None:
        self._model, self._path, self._replay_only = model, Path(path), replay_only
        self._earlier = Journal(model, before, replay_only=True) if before else None
        self.identity = model.identity
        self.asked = self.replayed = self.prompt_tokens = self.completion_tokens = 0
        self._lock = threading.Lock()
        self._connection = self._opened()

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yield (position, reply): what is remembered first, the others each kept as they come."""
        asking: dict[str, list[int]] = {}
        for position, request in enumerate(requests):
            key = key_of(self.identity, request)
            if key in asking:
                asking[key].append(position)
            elif (reply := self._found(key) or self._taken(key, request)) is None:
                asking[key] = [position]
            else:
                self.replayed += 1
                yield position, reply
        if asking:
            yield from self._ask(requests, asking)

    def close(self) -> None:
        """Close the file, and the model where it can be closed."""
        self._connection.close()
        if self._earlier:
            self._earlier._connection.close()
        if close := getattr(self._model, "close", None):
            close()

    def _ask(
        self, requests: Sequence[Request], asking: dict[str, list[int]]
    ) -> Iterator[tuple[int, Reply]]:
        keys = list(asking)
        missing = [requests[asking[key][0]] for key in keys]
        if self._replay_only:
            first = ", ".join(missing[0].label) or "a request"
            raise ModelError(
                f"{self._path} lacks {len(missing)} of {len(requests)} replies of the model "
                f"{self.identity.get('model')}, first for {first}; run without --replay to ask it"
            )
        for i, reply in self._model.complete(missing):
            kept = self._keep(keys[i], missing[i], reply)
            self.asked += 1
            self.prompt_tokens += reply.prompt_tokens
            self.completion_tokens += reply.completion_tokens
            self.replayed += len(asking[keys[i]]) - 1
            for position in asking[keys[i]]:
                yield position, kept

    def _taken(self, key: str, request: Request) -> Reply | None:
        """Return what the earlier run was answered, and keep it here too."""
        reply = self._earlier._found(key) if self._earlier else None
        if reply is None or self._replay_only:
            return reply
        return self._keep(key, request, reply)

    def _found(self, key: str) -> Reply | None:
        try:
            with self._lock:
                row = self._connection.execute(
                    "SELECT reply FROM replies WHERE key = ?", (key,)
                ).fetchone()
        except sqlite3.Error as fault:
            raise self._fault(fault) from fault
        if row is None:
            return None
        try:
            return Reply(**json.loads(row[0]))
        except (ValueError, TypeError) as fault:
            raise PemandError(
                f"{self._path}: the reply kept under {key} is damaged: {fault}"
            ) from fault

    def _keep(self, key: str, request: Request, reply: Reply) -> Reply:
        """Commit a reply, and return the one that is kept: another process may have been first."""
        row = (
            key,
            _canonical(self.identity),
            _canonical(asdict(request)),
            _canonical(asdict(reply)),
            " / ".join(request.label),
        )
        try:
            with self._lock, self._connection:
                added = self._connection.execute(
                    KEEP,
                    row,
                )
        except sqlite3.Error as fault:
            raise self._fault(fault) from fault
        return reply if added.rowcount else self._found(key) or reply

    def _opened(self) -> sqlite3.Connection:
        if self._replay_only and not self._path.is_file():
            raise ModelError(f"there is no journal to replay at {self._path}")
        try:
            if self._replay_only:
                return self._reading()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return self._writing()
        except sqlite3.Error as fault:
            raise self._fault(fault) from fault
        except OSError as fault:
            raise PemandError(
                f"cannot open the journal {self._path}: {fault.strerror or fault}"
            ) from fault

    def _reading(self) -> sqlite3.Connection:
        address = self._path.resolve().as_uri() + "?mode=ro"
        connection = _connected(address)
        try:
            self._check(connection)
        except sqlite3.OperationalError:
            # A WAL database in a folder that cannot be written opens only as immutable, which is
            # true of it unless replies still wait in its -wal file.
            if self._path.with_name(self._path.name + "-wal").exists():
                raise
            connection = _connected(address + "&immutable=1")
            self._check(connection)
        return connection

    def _writing(self) -> sqlite3.Connection:
        connection = _connected(self._path.resolve().as_uri())
        ours, tables = self._check(connection)
        _patiently(connection, "PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if not ours:
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        if not tables:
            connection.execute(TABLE)
        return connection

    def _check(self, connection: sqlite3.Connection) -> tuple[bool, set[str]]:
        """Return whether the file is marked as a journal, and its tables; raise for other files."""
        application, form = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        )
        tables = {
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        if (application or tables) and application != APPLICATION:
            raise PemandError(
                f"{self._path} is a database of another program, not a journal; name another file"
            )
        if form > FORMAT:
            raise PemandError(
                f"{self._path} was written by a newer pemand-abm: its journal format is {form}, "
                f"this one reads {FORMAT}"
            )
        return application == APPLICATION, tables

    def _fault(self, fault: sqlite3.Error) -> PemandError:
        kept = "what was answered before is kept"
        code = _code(fault)
        if code == sqlite3.SQLITE_FULL:
            return PemandError(
                f"the disk is full, the journal {self._path} cannot grow; {kept}: "
                "free space and run again"
            )
        if code in LOCKED:
            return PemandError(
                f"the journal {self._path} was locked by another program for "
                f"{SECONDS_FOR_A_LOCK} seconds; {kept}"
            )
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return PemandError(
                f"{self._path} is no journal or is damaged ({fault}); "
                "move it away, or name another file"
            )
        return PemandError(f"the journal {self._path} cannot be used: {fault}; {kept}")


def key_of(identity: dict[str, str | int | float | bool], request: Request) -> str:
    """Return the SHA-256 under which the reply of this model to this request is kept."""
    content = asdict(request) | {"model": identity, "parser": PARSER}
    del content["label"]
    return hashlib.sha256(_canonical(content).encode()).hexdigest()


def _canonical(content: dict[str, Any]) -> str:
    """Return JSON that is the same ASCII text for the same content."""
    return json.dumps(
        content, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False
    )


def _code(fault: sqlite3.Error) -> int:
    """Return SQLite's primary result code: extended codes carry it in their lowest byte."""
    return getattr(fault, "sqlite_errorcode", 0) & 0xFF


def _connected(address: str) -> sqlite3.Connection:
    return sqlite3.connect(address, uri=True, timeout=SECONDS_FOR_A_LOCK, check_same_thread=False)


def _patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Run the change to WAL, for which SQLite does not wait while another process makes it."""
    end = time.monotonic() + SECONDS_FOR_A_LOCK
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as fault:
            if _code(fault) not in LOCKED or time.monotonic() > end:
                raise
            time.sleep(0.05)
