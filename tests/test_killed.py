"""Killed at any moment (SIGKILL), a run goes on where it was, and nothing that was whole is lost."""

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import pytest
from test_run import ROOT, run, write_study

from pemand_abm import keys
from pemand_abm.tables import replacing

MARKER = "export.yaml"


# --- a run --------------------------------------------------------------------------------------

SLOW = """
import time
from pemand_abm.models.scripted import Scripted

class Slow(Scripted):
    def complete(self, requests):
        for item in super().complete(requests):
            time.sleep(0.01)
            yield item

def opened(**_):
    return Slow()

opened.local = True  # Nothing leaves this machine.
"""
"""A plug-in: the scripted model, known to the journal as such, but slow enough to be killed."""


def slow_model(folder):
    """Write the plug-in `slow` into *folder*, which must be on the path."""
    about = folder / "slow_model-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "slow_model.py").write_text(SLOW)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: slow_model\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pemand_abm.models]\nslow = slow_model:opened\n")
    return folder


def kept(out):
    """Return the rows of a run's journal, without the order in which they came."""
    # Only to read: else this would fold the journal's -wal file in, which is for the next run to do.
    address = (out / "journal.sqlite").as_uri() + "?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as file:
            rows = file.execute("SELECT key, model, request, reply, label FROM replies")
            return sorted(rows.fetchall())
    except sqlite3.OperationalError:  # There is none yet.
        return []


def contents(out):
    """Return what a run left by file name, but for what tells the time that it took."""
    files = (
        p for p in out.iterdir() if p.name.partition(".")[0] not in {"run", "report", "journal"}
    )
    return {p.name: p.read_bytes() for p in files}


@pytest.mark.slow
def test_a_run_that_is_killed_five_times_ends_with_the_bytes_of_an_undisturbed_one(tmp_path):
    scenario = write_study(tmp_path, negotiate={"trips": 12, "relocation": 4, "shared_trip": 2})
    whole, out, plugins = tmp_path / "whole", tmp_path / "out", slow_model(tmp_path / "plugins")
    run(scenario, whole)
    command = ("-m", "pemand_abm", "run", scenario, "--model", "slow", "--out", out)
    held = [0]
    for kill in range(5):
        process = started(*command, path=plugins)
        # Four kills fall among the talks, the last one while the tables are written.
        while not (len(kept(out)) > held[-1] if kill < 4 else any(out.glob(".writing-*"))):
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.005)
        time.sleep(0.2 * keys.uniform("killed", kill))
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert not (out / "run.yaml").exists()
        held.append(len(kept(out)))
    assert held[:5] == sorted(set(held[:5])) and held[4] < held[5] == len(kept(whole))
    assert ", 0 of them asked now" in run(scenario, out)
    assert contents(out) == contents(whole)
    assert {".parquet", ".csv", ".omx", ".gpkg"} < {Path(name).suffix for name in contents(out)}
    assert kept(out) == kept(whole)


# --- results that are replaced whole ------------------------------------------------------------


def replace_with(folder, text):
    with replacing(folder, MARKER) as made:
        for name in (MARKER, "table.csv"):
            (made / name).write_text(text)


def replace_and_die(folder, acts):
    """Replace a result, and be killed before the act on the file system that follows so many."""
    left = count(acts, -1)

    def dying(act):
        def do(*given, **named):
            if next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return act(*given, **named)

        return do

    for name in ("mkdir", "replace", "unlink", "rmdir"):
        setattr(os, name, dying(getattr(os, name)))
    replace_with(folder, "second")


def test_an_earlier_whole_result_outlives_a_kill_at_any_moment_of_being_replaced(tmp_path):
    missing = 0
    for acts in count():
        folder = tmp_path / str(acts) / "made"
        replace_with(folder, "first")
        process = multiprocessing.get_context("fork").Process(
            target=replace_and_die, args=(folder, acts)
        )
        process.start()
        process.join()
        missing += not folder.exists()
        with pytest.raises(ZeroDivisionError), replacing(folder, MARKER):
            raise ZeroDivisionError
        held = {p.name: p.read_text() for p in folder.iterdir()}
        assert set(held) == {MARKER, "table.csv"}
        assert set(held.values()) in ({"first"}, {"second"})
        assert [p.name for p in folder.parent.iterdir()] == ["made"]
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert missing == 1  # Between the renames: the moment that this is about was among them.
    assert set(held.values()) == {"second"}


# --- Ctrl-C -------------------------------------------------------------------------------------

# Each command waits for a named pipe in the place of a file that it reads, and is interrupted there.
READS = {
    "run": (["run", "{}/scenario.yaml"], "scenario.yaml"),
    "synthesize": (["synthesize", "{}"], "recipe.yaml"),
    "compare": (["compare", "{}", "{}/other"], "run.yaml"),
    "export": (["export", "{}", "--to", "gmns"], "run.yaml"),
    "evaluate": (["evaluate", "--survey", "{}", "--methods", "gbm"], "survey.yaml"),
    "train": (["train", "sft", "{}/recipe.yaml"], "recipe.yaml"),
}
RUN = ["decisions.parquet", "events.parquet", "households.parquet", "demand.csv", "zones.gpkg"]


@pytest.mark.parametrize(("command", "file"), READS.values(), ids=READS)
def test_ctrl_c_is_one_line_and_the_customary_exit_code_where_a_command_reads(
    tmp_path, command, file
):
    os.mkfifo(tmp_path / file)
    for name in RUN:
        (tmp_path / name).touch()
    process = started("-m", "pemand_abm", *(a.format(tmp_path) for a in command), cwd=tmp_path)
    writer = None
    while writer is None and process.poll() is None:
        with suppress(OSError):  # Nobody reads yet.
            writer = os.open(tmp_path / file, os.O_WRONLY | os.O_NONBLOCK)
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "Error: stopped. Run the same command again to go on."
    assert "Traceback" not in said and said.count("Error") == 1


AT_THE_JOURNAL = """
import signal, sys
from pemand_abm.models.progress import Progress
Progress.expect = lambda *_: signal.raise_signal(signal.SIGINT)
from pemand_abm.cli import main
main(sys.argv[1:])
"""


def test_ctrl_c_between_the_opening_of_the_journal_and_the_first_talk_is_like_any(tmp_path):
    scenario = write_study(tmp_path)
    process = started("-c", AT_THE_JOURNAL, "run", scenario, "--out", tmp_path / "out")
    _, said = process.communicate()
    assert process.returncode == 130, said
    journal = tmp_path / "out" / "journal.sqlite"
    assert said.splitlines()[-1] == (
        f"Error: stopped; what was answered is in {journal}. Run the same command again to go on."
    )
    assert "Traceback" not in said and journal.is_file()


def started(*command, path=ROOT, **options):
    """Start Python on the command, in a process of its own, with a folder of plug-ins."""
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{path}"},
        **options,
    )
