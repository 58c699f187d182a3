"""Replicas of a model: what needs Ray is skipped where it is not installed."""

import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from test_run import TABLES, pemand, write_study

from pemand_abm.cli import run
from pemand_abm.dialogue import Request
from pemand_abm.errors import ModelError, SettingsError
from pemand_abm.models import open_model
from pemand_abm.models.cluster import Queues
from pemand_abm.models.scripted import Scripted
from pemand_abm.scenario import read_scenario

PLUG = """
import os, signal
from pathlib import Path
from pemand_abm.models.scripted import Scripted

class Mortal(Scripted):
    identity = {"model": "mortal"}

    def __init__(self, folder):
        self.folder = Path(folder)

    def complete(self, requests):
        for position, request in enumerate(requests):
            with (self.folder / "asked").open("a") as file:
                print(request.seed, file=file)
            if "fault" in request.user:
                raise ValueError("no such word")
            mark = self.folder / "died"
            if "die always" in request.user or ("die once" in request.user and not mark.exists()):
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            for _, reply in super().complete([request]):
                yield position, reply

def open_mortal(*, model, base_url, workers, exact):
    return Mortal(model)

open_mortal.local = True

class Stranger(Scripted):
    identity = {"model": "stranger", "process": os.getpid()}

def open_stranger(*, model, base_url, workers, exact):
    return Stranger()

open_stranger.local = True
"""
POINTS = (
    "[pemand_abm.models]\nmortal = mortal_plug:open_mortal\nstranger = mortal_plug:open_stranger\n"
)


def ask(number, words="How many trips?"):
    home = f"Your household: We are {number // 5} people at home, and we have one car."
    return Request("You speak.", f"{home}\nYou are member {number % 5}. {words}", number, ("test",))


def test_every_request_waits_once_and_with_those_that_begin_like_it():
    requests = [ask(n) for n in range(100)]
    queues = Queues(requests, 4)
    taken = [queues.own(k, 1000) for k in range(4)]
    assert sorted(p for own in taken for p in own) == list(range(100))
    for own in taken:
        assert all(n % 5 == 4 or n + 1 in own for n in own)


def test_households_are_spread_over_all_replicas():
    queues = Queues([ask(n) for n in range(5000)], 8)
    assert all(450 < len(queues.own(k, 5000)) < 800 for k in range(8))


def test_an_idle_replica_takes_the_last_half_of_the_longest_queue():
    requests = [ask(0, f"{n}?") for n in range(9)]  # One household: all prefer the same replica.
    queues = Queues(requests, 3)
    assert queues.steal(100) == [8, 7, 6, 5, 4]
    assert queues.steal(1) == [3]
    assert sorted(p for k in range(3) for p in queues.own(k, 9)) == [0, 1, 2]
    assert queues.steal(5) == []


def test_what_a_replica_lost_is_next_in_its_order():
    requests = [ask(0, f"{n}?") for n in range(5)]
    queues = Queues(requests, 1)
    lost = queues.own(0, 2)
    queues.give_back(lost)
    assert queues.own(0, 5) == [0, 1, 2, 3, 4]


def test_a_scenarios_model_is_a_name_or_a_mapping(tmp_path):
    hosted = {"use": "scripted", "replicas": 2, "cluster": "ray://10.0.0.7:10001"}
    given = read_scenario(write_study(tmp_path, model=hosted)).model
    assert (given.use, given.replicas, given.cluster) == ("scripted", 2, "ray://10.0.0.7:10001")
    assert read_scenario(write_study(tmp_path, model="scripted")).model.replicas is None


def test_a_manifest_does_not_tell_the_clusters_address(tmp_path):
    hosted = {"use": "scripted", "replicas": 2, "cluster": "ray://user:secret@10.0.0.7:10001"}
    scenario = read_scenario(write_study(tmp_path, model=hosted))
    assert scenario.model_dump(mode="json")["model"] == {"use": "scripted", "replicas": 2}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"use": "scripted", "replicas": 0}, "model.replicas: .*greater than or equal to 1"),
        (
            {"use": "scripted", "replica": 2},
            "'model.replica' is not known; did you mean 'replicas'",
        ),
        ({"use": "scripted", "cluster": "auto"}, "how many `replicas`"),
        ({"replicas": 2}, "'model.use' is lacking"),
        (5, "model: "),
    ],
)
def test_a_faulty_model_is_told_by_its_key(tmp_path, given, said):
    with pytest.raises(SettingsError, match=said):
        read_scenario(write_study(tmp_path, model=given))


def test_data_do_not_leave_for_a_cluster_unless_somebody_says_so(tmp_path):
    scenario = write_study(tmp_path)
    for address in ("ray://10.0.0.7:10001", "10.0.0.7:6379", "auto"):
        said = pemand("run", scenario, "--replicas", 2, "--cluster", address, code=1)
        assert "--remote allow" in said


def test_a_cluster_needs_a_number_of_replicas(tmp_path):
    said = pemand("run", write_study(tmp_path), "--cluster", "auto", code=1)
    assert "--replicas" in said


def test_the_files_to_copy_name_options_that_are_there():
    deploy = Path(__file__).resolve().parents[1] / "deploy"
    for name in ("slurm.sh", "vllm-endpoint.sh"):
        assert not subprocess.run(["bash", "-n", deploy / name]).returncode
    job = yaml.safe_load((deploy / "kuberay.yaml").read_text())["spec"]
    words = job["entrypoint"] + (deploy / "slurm.sh").read_text()
    known = {option for parameter in run.params for option in parameter.opts}
    commands = re.findall(r"pemand run (.*?)(?:'|$)", words.replace("\\\n", " "), flags=re.M)
    assert len(commands) == 2
    for command in commands:
        assert set(re.findall(r"--[a-z-]+", command)) <= known
    cards = job["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"]
    assert f"--replicas {cards} " in job["entrypoint"]


@pytest.fixture(scope="module")
def plug(tmp_path_factory):
    """Install a plug-in whose process dies when it is told to; return its folder."""
    pytest.importorskip("ray")
    folder = tmp_path_factory.mktemp("plug")
    (folder / "mortal_plug.py").write_text(PLUG)
    made = folder / "mortal_plug-0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: mortal-plug\nVersion: 0\n")
    (made / "entry_points.txt").write_text(POINTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        before = [path for path in sys.path if path]
        patch.setenv("PYTHONPATH", os.pathsep.join(before))
        yield folder


@pytest.fixture(scope="module")
def model(plug):
    """Give two replicas of the mortal model."""
    opened = open_model(f"mortal:{plug}", replicas=2)
    yield opened
    opened.close()


@pytest.fixture
def asked(plug):
    """Return a function that tells how often each seed was asked since the test began."""
    (plug / "asked").unlink(missing_ok=True)
    (plug / "died").unlink(missing_ok=True)
    return lambda: Counter(map(int, (plug / "asked").read_text().split()))


def test_replicas_answer_as_their_backend_does_each_request_once(model, asked):
    requests = [ask(n) for n in range(60)]
    replies = list(model.complete(requests))
    assert sorted(position for position, _ in replies) == list(range(60))
    assert dict(replies) == dict(Scripted().complete(requests))
    assert set(asked().values()) == {1}
    assert model.identity == {"model": "mortal"}


def test_what_a_killed_replica_had_is_sent_again_and_nothing_is_lost_or_doubled(model, asked):
    lost = model.lost
    requests = [ask(n, "Then die once." if n == 17 else "?") for n in range(60)]
    replies = list(model.complete(requests))
    assert sorted(position for position, _ in replies) == list(range(60))
    assert dict(replies) == dict(Scripted().complete(requests))
    assert model.lost == lost + 1
    assert asked()[17] == 2
    # Beside the one that killed it, only what was in the same hands can have been asked twice.
    assert sum(asked().values()) <= 60 + model.sent_again
    assert any("were lost" in note for note in model.notes)


def test_a_request_that_ends_every_replica_stops_the_run_and_is_named(model, asked):
    with pytest.raises(ModelError, match=r"3 replicas died with the request of test"):
        list(model.complete([ask(1, "Then die always.")]))
    assert asked()[1] == 3
    assert len(list(model.complete([ask(2)]))) == 1


def test_a_backends_fault_stops_the_batch_and_the_next_one_is_answered(model, asked):
    with pytest.raises(ModelError, match="no such word"):
        list(model.complete([ask(n, "fault" if n == 3 else "?") for n in range(20)]))
    assert sorted(p for p, _ in model.complete([ask(n) for n in range(20)])) == list(range(20))


def test_a_consumer_that_goes_away_leaves_nothing_for_the_next_batch(model, asked):
    answers = model.complete([ask(n) for n in range(20)])
    next(answers)
    answers.close()
    requests = [ask(n) for n in range(100, 110)]
    assert dict(model.complete(requests)) == dict(Scripted().complete(requests))


def test_a_run_by_replicas_is_the_run_without_them(plug, model, tmp_path):
    model.close()  # One cluster at a time in a process.
    scenario = write_study(tmp_path, budget={"calls": 120}, model="scripted")
    pemand("run", scenario, "--out", tmp_path / "one", code=3)
    pemand("run", scenario, "--out", tmp_path / "two", "--replicas", 2, code=3)
    for name in TABLES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    one, two = (
        yaml.safe_load((tmp_path / name / "run.yaml").read_text()) for name in ("one", "two")
    )
    assert two["settings"]["model"] == {"use": "scripted", "replicas": 2}
    assert [m["model"] for m in (one, two)] == [Scripted.identity] * 2
    assert one["calls"] == two["calls"] <= 120
    assert one["calls_asked"] == two["calls_asked"]
    keys = []
    for name in ("one", "two"):
        with closing(sqlite3.connect(tmp_path / name / "journal.sqlite")) as file:
            keys.append([row[0] for row in file.execute("SELECT key FROM replies ORDER BY key")])
    assert keys[0] == keys[1]
    # A replay starts no replica: it is there within the seconds that Ray takes to say no.
    again = ("--replicas", 2, "--cluster", "10.0.0.7:6379", "--replay")
    pemand("run", scenario, "--out", tmp_path / "two", *again, code=3)


def test_a_replica_with_another_model_than_the_drivers_is_refused(plug, model):
    model.close()
    other = open_model("stranger", replicas=1)
    try:
        with pytest.raises(ModelError, match="is not the one of this machine: process"):
            list(other.complete([ask(1)]))
    finally:
        other.close()
