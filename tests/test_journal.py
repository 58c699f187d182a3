"""The journal: nothing answered is lost, and nothing answered is asked again."""

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pemand_abm.dialogue import Reply, Request, answer
from pemand_abm.errors import ModelError, PemandError
from pemand_abm.models.journal import Journal, key_of

ROOT = Path(__file__).parents[1]


class Echo:
    """A model whose replies hash their request; it notes what it is asked, last one first."""

    def __init__(self, name="echo", pause=0.0):
        self.identity = {"model": name}
        self.pause, self.questions = pause, []

    def complete(self, requests):
        for i in reversed(range(len(requests))):
            time.sleep(self.pause)
            self.questions.append(requests[i].user)
            digest = hashlib.sha256(repr((requests[i].user, requests[i].seed)).encode()).hexdigest()
            yield i, Reply(f"{digest} é\n", 7, 5, "length")


class Failing(Echo):
    """Answers two requests, then fails."""

    def complete(self, requests):
        for i, (position, reply) in enumerate(super().complete(requests)):
            if i == 2:
                raise ModelError("the server went away")
            yield position, reply


def asking(number, **changes):
    return [
        replace(Request("be brief", f"question {i}", i, ("household 1", f"q{i}")), **changes)
        for i in range(number)
    ]


def test_a_replay_gives_the_same_replies_without_asking(tmp_path):
    first, silent = Echo(), Echo()
    said = answer(Journal(first, tmp_path / "j.sqlite"), asking(5))
    journal = Journal(silent, tmp_path / "j.sqlite", replay_only=True)
    assert answer(journal, asking(5)) == said == answer(first, asking(5))
    assert silent.questions == []
    assert (journal.asked, journal.replayed) == (0, 5)


def test_remembered_replies_come_first_and_only_the_others_are_asked(tmp_path):
    answer(Journal(Echo(), tmp_path / "j.sqlite"), asking(5)[1:3])
    model = Echo()
    order = [position for position, _ in Journal(model, tmp_path / "j.sqlite").complete(asking(5))]
    assert order == [1, 2, 4, 3, 0]
    assert sorted(model.questions) == ["question 0", "question 3", "question 4"]


def test_identical_requests_of_a_batch_are_asked_once_and_all_answered(tmp_path):
    model = Echo()
    journal = Journal(model, tmp_path / "j.sqlite")
    twice = [*asking(2), *asking(2, label=("household 2",))]
    replies = answer(journal, twice)
    assert replies[:2] == replies[2:]
    assert len(model.questions) == 2
    assert (journal.asked, journal.replayed) == (2, 2)
    assert (journal.prompt_tokens, journal.completion_tokens) == (14, 10)


@pytest.mark.parametrize(
    "change",
    [
        {"system": "be long"},
        {"user": "question 9"},
        {"seed": 9},
        {"max_tokens": 81},
        {"temperature": 0.0},
        {"grammar": 'root ::= "a"'},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_request_that_differs_in_one_setting_is_asked_anew(tmp_path, change):
    model = Echo()
    journal = Journal(model, tmp_path / "j.sqlite")
    answer(journal, asking(1))
    answer(journal, asking(1, **change))
    assert journal.asked == 2


def test_another_model_is_asked_anew_and_another_label_is_not(tmp_path):
    answer(Journal(Echo(), tmp_path / "j.sqlite"), asking(1))
    other = Journal(Echo("another"), tmp_path / "j.sqlite")
    same = Journal(Echo(), tmp_path / "j.sqlite")
    answer(other, asking(1))
    answer(same, asking(1, label=("household 99",)))
    assert (other.asked, same.asked) == (1, 0)


def test_the_key_is_the_hash_of_the_written_out_content():
    request = Request("s", "u", 3, ("x",), 80, 0.7, None)
    content = (
        '{"grammar":null,"max_tokens":80,"model":{"model":"echo"},"parser":1,'
        '"seed":3,"system":"s","temperature":0.7,"user":"u"}'
    )
    assert key_of({"model": "echo"}, request) == hashlib.sha256(content.encode()).hexdigest()


def test_replies_before_a_failure_are_kept(tmp_path):
    with pytest.raises(ModelError, match="went away"):
        answer(Journal(Failing(), tmp_path / "j.sqlite"), asking(5))
    journal = Journal(Echo(), tmp_path / "j.sqlite")
    answer(journal, asking(5))
    assert (journal.asked, journal.replayed) == (3, 2)


def test_a_run_killed_midway_loses_nothing_answered(tmp_path):
    script = f"""
        import sys
        sys.path.insert(0, {str(ROOT / "tests")!r})
        from test_journal import Echo, Journal, asking
        journal = Journal(Echo(pause=0.05), {str(tmp_path / "j.sqlite")!r})
        for position, _ in journal.complete(asking(100)):
            print(position, flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    seen = [int(process.stdout.readline()) for _ in range(8)]
    os.kill(process.pid, signal.SIGKILL)
    seen += [int(line) for line in process.stdout.read().split()]
    assert process.wait() == -signal.SIGKILL

    model = Echo()
    replies = answer(Journal(model, tmp_path / "j.sqlite"), asking(100))
    asked_again = {int(question.split()[1]) for question in model.questions}
    assert not asked_again & set(seen)
    assert len(asked_again) >= 100 - len(seen) - 1
    assert replies == answer(Echo(), asking(100))


def test_two_processes_may_share_a_journal(tmp_path):
    script = f"""
        import sys
        sys.path.insert(0, {str(ROOT / "tests")!r})
        from test_journal import Echo, Journal, answer, asking
        answer(Journal(Echo(pause=0.002), {str(tmp_path / "j.sqlite")!r}), asking(150))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, cwd=ROOT) for _ in range(2)]
    assert [process.communicate()[1] for process in processes] == [b"", b""]
    database = sqlite3.connect(tmp_path / "j.sqlite")
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert database.execute("SELECT count(*) FROM replies").fetchone() == (150,)


def test_the_reply_that_was_kept_first_is_the_one_that_counts(tmp_path):
    def meanwhile(requests):
        answer(Journal(Echo(), tmp_path / "j.sqlite"), requests)
        yield 0, Reply("what came second")

    model = Echo()
    model.complete = meanwhile
    assert answer(Journal(model, tmp_path / "j.sqlite"), asking(1)) == answer(Echo(), asking(1))


def test_threads_may_share_a_journal(tmp_path):
    journal = Journal(Echo(), tmp_path / "j.sqlite")
    threads = [threading.Thread(target=answer, args=(journal, asking(40))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answer(journal, asking(40)) == answer(Echo(), asking(40))


def test_a_replay_names_what_the_journal_lacks(tmp_path):
    answer(Journal(Echo(), tmp_path / "j.sqlite"), asking(2))
    replay = Journal(Echo(), tmp_path / "j.sqlite", replay_only=True)
    with pytest.raises(ModelError, match=r"lacks 3 of 5 replies.*household 1, q2"):
        answer(replay, asking(5))


def test_a_replay_makes_no_file(tmp_path):
    with pytest.raises(ModelError, match="no journal to replay"):
        Journal(Echo(), tmp_path / "none.sqlite", replay_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path):
    (tmp_path / "text").write_text("household_id,trips\n" * 500)
    before = (tmp_path / "text").read_bytes()
    for replay_only in (False, True):
        with pytest.raises(PemandError, match="no journal or is damaged"):
            Journal(Echo(), tmp_path / "text", replay_only)
    assert (tmp_path / "text").read_bytes() == before


def test_the_database_of_another_program_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "zones.gpkg") as other:
        other.execute("CREATE TABLE zones (id INTEGER)")
    with pytest.raises(PemandError, match="another program"):
        Journal(Echo(), tmp_path / "zones.gpkg")


def test_a_damaged_journal_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / "j.sqlite"
    journal = Journal(Echo(), path)
    answer(journal, asking(200))
    journal.close()
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\x5a" * (len(data) - 4096))
    with pytest.raises(PemandError, match=r"j\.sqlite is no journal or is damaged"):
        answer(Journal(Echo(), path), asking(200))


def test_a_full_disk_is_an_error_and_what_was_kept_stays(tmp_path):
    path = tmp_path / "j.sqlite"
    journal = Journal(Echo(), path)
    answer(journal, asking(3))
    pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
    journal._connection.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own SQLITE_FULL.
    with pytest.raises(PemandError, match="disk is full"):
        answer(journal, asking(500))
    journal.close()
    again = Journal(Echo(), path, replay_only=True)
    assert answer(again, asking(3)) == answer(Echo(), asking(3))


def test_a_journal_in_a_folder_that_cannot_be_made_is_one_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PemandError, match="cannot open the journal"):
        Journal(Echo(), tmp_path / "file" / "j.sqlite")


def test_a_closed_journal_is_a_single_file_that_other_tools_can_read(tmp_path):
    journal = Journal(Echo(), tmp_path / "j.sqlite")
    answer(journal, asking(2))
    journal.close()
    assert [path.name for path in tmp_path.iterdir()] == ["j.sqlite"]
    rows = sqlite3.connect(tmp_path / "j.sqlite").execute(
        "SELECT model, request, label FROM replies ORDER BY number"
    )
    model, request, label = rows.fetchone()
    assert json.loads(model) == {"model": "echo"}
    assert json.loads(request)["user"] == "question 1"
    assert label == "household 1 / q1"
