"""Killed at any moment (SIGKILL), a run goes on where it was, and nothing that was whole is lost."""

import multiprocessing
import os
import signal
from itertools import count

import pytest

from pemand_abm.tables import replacing

MARKER = "export.yaml"


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
