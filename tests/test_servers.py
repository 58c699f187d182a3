"""Servers that misbehave: the run waits, asks again, or ends with one error that says what to do.

Going on then pays only for what is missing: the requests are counted where they are paid for, at
the server.
"""

import inspect
import json
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from test_models import GRAMMAR, KEY, asking, good
from test_run import run, write_study

from pemand_abm.dialogue import Reply, Request, answer
from pemand_abm.errors import ModelError
from pemand_abm.models.journal import Journal
from pemand_abm.models.openai import OpenAI
from pemand_abm.models.scripted import fill

ROOT = Path(__file__).parents[1]
GO_ON = "run again then: what the journal holds is not asked anew"


class Server:
    """What *respond* makes of a request's body; `seen` is all that was asked, `paid` all answered.

    `respond` returns a body to answer well, a (status, text, headers), `half` (a body cut short) or
    `close` (nothing at all).
    """

    def __init__(self, respond):
        self.respond, self.lock = respond, threading.Lock()
        self.seen, self.times, self.paid = [], [], []

    def serve(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            self.seen.append(body)
            self.times.append(time.time())
        act = self.respond(body)
        if act == "close":
            return
        if act == "half":
            act = (200, '{"choices": [{"mess', {"Content-Length": "500"})
        elif isinstance(act, dict):
            act = (200, json.dumps(act), {})
            with self.lock:
                self.paid.append((body["messages"][1]["content"], body["seed"]))
        status, text, headers = act
        handler.send_response(status)
        for name, value in ({"Content-Length": str(len(text.encode()))} | headers).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(text.encode())


@contextmanager
def serving(respond=lambda body: good()):
    server = Server(respond)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            server.serve(self)

        def log_message(self, *_):
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request, client_address):
            """A client that has gone away is no news here."""

    http = Quiet(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    server.url = f"http://127.0.0.1:{http.server_port}"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()


def first(*acts):
    """Respond with these acts in turn, then well."""
    plan, lock = list(acts), threading.Lock()

    def respond(body):
        with lock:
            return plan.pop(0) if plan else good()

    return respond


def silent(body):
    time.sleep(0.8)
    return "close"


def patience(respond):
    """Short for a silent server alone: a good one may be slow where many tests run at once."""
    return 0.3 if respond is silent else 10


def client(server, **settings):
    return OpenAI("m", server.url, **({"timeout": 10, "attempts": 2, "pause": 0.01} | settings))


def closed_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


# Waiting and asking again ------------------------------------------------------------------------


def test_a_date_to_wait_for_is_waited_for():
    until = int(time.time()) + 2
    busy = (429, "busy", {"Retry-After": formatdate(until, usegmt=True)})
    with serving(first(busy)) as server:
        answer(client(server), asking(1))
    assert until - 0.01 <= server.times[1] < until + 5


def test_a_server_that_asks_for_no_wait_is_not_overrun():
    now = (429, "busy", {"Retry-After": "0"})
    with serving(first(now, now)) as server:
        answer(client(server, attempts=3, pause=0.2), asking(1))
    assert all(b - a >= 0.2 for a, b in zip(server.times, server.times[1:], strict=False))


def test_a_wait_that_cannot_be_read_is_no_wait():
    with serving(first((429, "busy", {"Retry-After": "soon"}))) as server:
        assert len(answer(client(server), asking(1))) == 1


def test_the_patience_of_a_run_outlasts_a_silent_minute_and_ends_within_the_hour():
    default = {n: p.default for n, p in inspect.signature(OpenAI).parameters.items()}
    assert 60 < default["timeout"] <= 300
    waits = sum(min(default["pause"] * 2**i, 60) for i in range(default["attempts"] - 1))
    assert default["timeout"] * default["attempts"] + waits < 3600


def test_only_the_request_that_failed_is_asked_again():
    with serving(first((500, "oops", {}))) as server:
        assert len(answer(client(server), asking(6))) == 6
    assert sorted(Counter(b["messages"][1]["content"] for b in server.seen).values()) == [
        1, 1, 1, 1, 1, 2,
    ]  # fmt: skip


# Faults that stay --------------------------------------------------------------------------------

STAYING = {
    "busy": (lambda _: (429, "slow down", {}), "status 429: slow down", "--workers"),
    "failing": (lambda _: (500, "oops", {}), "status 500: oops", "server's log"),
    "half a body": (lambda _: "half", "2 tries", "server's log"),
    "hanging up": (lambda _: "close", "2 tries", "server's log"),
    "silent": (silent, "silent for 0.3 seconds", "--workers"),
    "no JSON": (lambda _: (200, "<html>Log in", {}), "unreadable reply: <html>", "base_url"),
    "no choices": (lambda _: (200, '{"choices": []}', {}), "unreadable reply", "base_url"),
    "nested too deep": (lambda _: (200, "[" * 100_000, {}), "unreadable reply", "base_url"),
    "tokens without end": (
        lambda _: (200, json.dumps(good()).replace("11", "1e999"), {}), "unreadable", "base_url",
    ),
    "a picture": (lambda _: good([{"type": "image"}]), "no text", "base_url"),
}  # fmt: skip


@pytest.mark.parametrize(("respond", "fault", "mend"), STAYING.values(), ids=STAYING.keys())
def test_a_fault_that_stays_is_one_error_that_says_what_to_do(respond, fault, mend):
    with serving(respond) as server, pytest.raises(ModelError) as raised:
        answer(client(server, timeout=patience(respond)), asking(1))
    said = raised.value.message
    assert fault in said and mend in said and GO_ON in said and server.url in said
    assert len(said) < 500 and "\n" not in said
    assert len(server.seen) == 2


def test_where_nothing_listens_the_error_says_to_look_at_the_server_and_its_address():
    url = f"http://127.0.0.1:{closed_port()}"
    with pytest.raises(ModelError, match=r"refused\. See whether the server runs and base_url"):
        answer(OpenAI("m", url, attempts=2, pause=0.01), asking(1))


FINAL = {
    "401": (401, "no", {}, "PEMAND_API_KEY is set but not accepted"),
    "403": (403, "no", {}, "PEMAND_API_KEY is set but not accepted"),
    "404": (404, "no such model", {}, "Has the server a model 'm'"),
    "301": (301, "", {"Location": "https://elsewhere"}, "name that address as base_url"),
    "400": (400, "too many tokens", {}, "longer than the server's context"),
}


@pytest.mark.parametrize(("status", "text", "headers", "mend"), FINAL.values(), ids=FINAL.keys())
def test_a_fault_that_waiting_cannot_mend_is_asked_once(status, text, headers, mend, monkeypatch):
    monkeypatch.setenv("PEMAND_API_KEY", KEY)
    with serving(lambda _: (status, text, headers)) as server, pytest.raises(ModelError) as raised:
        answer(client(server), asking(1))
    assert f"status {status}" in raised.value.message and mend in raised.value.message
    assert len(server.seen) == 1


def test_after_a_fault_that_stays_nothing_more_is_asked():
    with serving(lambda _: (401, "no", {})) as server, pytest.raises(ModelError):
        answer(client(server, in_flight=3), asking(50))
    assert len(server.seen) <= 3


# Odd replies -------------------------------------------------------------------------------------


def test_a_reply_that_was_cut_says_so_and_one_without_text_is_empty():
    cut, none = good("FINAL_TRIPS: 1"), good(None)
    cut["choices"][0]["finish_reason"] = "length"
    with serving(first(cut, none)) as server:
        one = client(server, in_flight=1)
        assert answer(one, asking(2)) == [
            Reply("FINAL_TRIPS: 1", 11, 4, "length"),
            Reply("", 11, 4, "stop"),
        ]


def test_half_a_letter_does_not_stop_a_later_request_or_file(tmp_path):
    with serving(first(good("caf\ud83d"))) as server:
        [reply] = answer(Journal(client(server), tmp_path / "j.sqlite"), asking(1))
        again = [Request("", reply.text, 0, ())]
        assert answer(client(server), again)[0].text == "TRIPS: 3"
    assert reply.text.encode("utf-8") == b"caf?"


# Structured output -------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 422, 501])
@pytest.mark.parametrize("field", ["structured_outputs", "grammar", "response_format"])
def test_a_server_without_structured_output_is_asked_for_text_and_that_is_noted(status, field):
    def respond(body):
        constrained = body.keys() & {"structured_outputs", "grammar", "response_format"}
        said = json.dumps({"error": {"message": f"Unrecognized request argument: {field}"}})
        return (status, said, {}) if constrained else good()

    with serving(respond) as server:
        model = client(server)
        assert len(answer(model, asking(4, grammar=GRAMMAR))) == 4
    assert len(server.seen) == 5 and len(server.paid) == 4
    assert len(model.notes) == 1 and "unconstrained text" in model.notes[0]


def test_a_server_that_takes_all_grammars_but_one_is_asked_for_text_for_that_one_alone():
    other = 'root ::= "x"{4,18}'

    def respond(body):
        return (400, "grammar too complex", {}) if body.get("grammar") == other else good()

    with serving(respond) as server:
        model = client(server)
        answer(model, asking(1, grammar=GRAMMAR))
        assert len(answer(model, asking(3, grammar=other))) == 3
        answer(model, asking(3, grammar=other))
        answer(model, asking(1, grammar=GRAMMAR))
    assert server.seen[-1]["grammar"] == GRAMMAR
    assert "grammar" not in server.seen[-2]
    assert len(server.paid) == 8
    assert len(model.notes) == 1 and "some of the grammars" in model.notes[0]


def test_what_waited_to_learn_about_grammars_is_then_asked_at_once():
    together = threading.Barrier(3, timeout=10)
    lead = threading.Event()

    def respond(body):
        if lead.is_set():
            together.wait()
        lead.set()
        return good()

    with serving(respond) as server:
        model = client(server, in_flight=4)
        assert len(answer(model, asking(4, grammar=GRAMMAR))) == 4
    assert len(server.seen) == 4


# Going on ----------------------------------------------------------------------------------------

ENDING = {
    "failing": lambda body: (500, "oops", {}),
    "half a body": lambda body: "half",
    "silent": silent,
    "key withdrawn": lambda body: (401, "no", {}),
    "asks for an hour": lambda body: (429, "quota", {"Retry-After": "3600"}),
    "no JSON": lambda body: (200, "<html>", {}),
}


@pytest.mark.parametrize("ending", ENDING.values(), ids=ENDING.keys())
def test_going_on_pays_only_for_what_is_missing(ending, tmp_path):
    well = threading.Event()

    def respond(body):
        if body["messages"][1]["content"] == "Say 5." and not well.is_set():
            return ending(body)
        time.sleep(0.03)  # Some are under way when the fault comes.
        return good()

    with serving(respond) as server:
        model = client(server, in_flight=4, timeout=patience(ending))
        journal = Journal(model, tmp_path / "j.sqlite")
        with pytest.raises(ModelError):
            answer(journal, asking(40))
        before = len(server.paid)
        assert 4 <= before < 40
        assert journal.asked == before
        journal.close()

        well.set()
        asked = len(server.seen)
        again = Journal(client(server, in_flight=4), tmp_path / "j.sqlite")
        assert len(answer(again, asking(40))) == 40
        assert len(server.seen) - asked == 40 - before == again.asked
    assert set(Counter(server.paid).values()) == {1}


def test_ctrl_c_while_a_server_is_slow_ends_soon_quietly_and_keeps_what_came(tmp_path):
    well = threading.Event()

    def respond(body):
        if body["seed"] >= 3 and not well.is_set():
            time.sleep(2.5)
        return good()

    with serving(respond) as server:
        script = f"""
            from test_models import asking
            from pemand_abm.models.journal import Journal
            from pemand_abm.models.openai import OpenAI
            journal = Journal(OpenAI("m", {server.url!r}, in_flight=2), {str(tmp_path / "j")!r})
            for position, reply in journal.complete(asking(20)):
                print(position, flush=True)
        """
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        )  # fmt: skip
        assert sorted(process.stdout.readline() for _ in range(3)) == ["0\n", "1\n", "2\n"]
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
        assert time.monotonic() - began < 2
        assert said.startswith("Traceback") and said.rstrip().endswith("KeyboardInterrupt")
        assert said.count("Traceback") == 1

        well.set()
        journal = Journal(client(server), tmp_path / "j")
        answer(journal, asking(20))
    assert (journal.asked, journal.replayed) == (17, 3)


def answering(body):
    system, user = (message["content"] for message in body["messages"])
    return good(fill(Request(system, user, body["seed"], ())))


def test_a_run_whose_server_fails_half_way_goes_on_and_no_file_holds_the_key(tmp_path, monkeypatch):
    monkeypatch.setenv("PEMAND_API_KEY", KEY)
    limit = [60]

    def respond(body):
        with server.lock:
            limit[0] -= 1
        return answering(body) if limit[0] >= 0 else (401, f"{KEY} is used up", {})

    with serving(respond) as server:
        scenario = write_study(tmp_path, model="openai:m", base_url=server.url)
        out = tmp_path / "out"
        said = run(scenario, out, code=1)
        assert said.count("Error:") == 1 and "is set but not accepted" in said
        assert not (out / "run.yaml").exists() and not list(out.glob("*.parquet"))

        before, limit[0] = len(server.paid), 10**9
        said += run(scenario, out)
    manifest = yaml.safe_load((out / "run.yaml").read_text())
    assert before == 60
    assert manifest["calls_asked"] == len(server.paid) - before
    assert set(Counter(server.paid).values()) == {1}
    kept = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert KEY not in said and KEY.encode() not in kept
    assert re.search(rb"openai:m", kept)


def test_what_goes_to_this_machine_takes_no_way_over_a_proxy(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serving(answering) as server:
        assert len(answer(OpenAI("m", server.url, attempts=1), asking(2))) == 2
