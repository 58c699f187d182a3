"""A population in shards is the population: the same bytes, wherever the work was done."""

import dataclasses
import os
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from regions import write_region
from test_given_population import given
from test_run import RATES, pemand, write_study

from pemand_abm.calibration import read_calibration
from pemand_abm.errors import TableError
from pemand_abm.models import machines
from pemand_abm.region import read_region
from pemand_abm.shards import Here, write_shards
from pemand_abm.surrogate import read_rates
from pemand_abm.synthesis import frame_of, problem_of, synthesize, write_population
from pemand_abm.tables import appending, as_arrow

SF25 = Path(__file__).parents[1] / "synthpop" / "sf25"


def files_of(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def two_areas(folder, second=40):
    """Return a region whose zones 10 and 35 make one area, and 20 another with *second* homes."""
    region = read_region(write_region(folder, households=(60, second, 30)), skims=False)
    homes = np.array([90, second])
    sizes = {"SIZE1": homes * 4 / 11, "SIZE2P": homes * 7 / 11}
    return dataclasses.replace(
        region,
        crosswalk=region.crosswalk.assign(region=[1, 2, 1]),
        totals=region.totals
        | {"region": pd.DataFrame(sizes, index=pd.Index([1, 2], name="region"))},
    )


def test_areas_that_share_nothing_are_parts_that_do_not_depend_on_each_other(tmp_path):
    region = two_areas(tmp_path / "a")
    problem, _ = problem_of(frame_of(region), region.seed_households, region.seed_persons)
    assert [part.tolist() for part in problem.parts()] == [[0, 2], [1]]
    other = two_areas(tmp_path / "b", 7)
    taken = [
        synthesize(r, 3).households.query("home_zone_id != 20")["seed_id"].tolist()
        for r in (region, other)
    ]
    assert taken[0] == taken[1]
    assert len(taken[0]) == 90


@pytest.mark.parametrize("block", [1, 45, 10**6])
def test_shards_write_the_bytes_of_the_whole(tmp_path, block):
    region = two_areas(tmp_path / "region")
    whole = synthesize(region, 5)
    write_population(whole, tmp_path / "whole")
    (tmp_path / "parts").mkdir()
    made = write_shards(region, 5, tmp_path / "parts", Here(), block=block)
    assert files_of(tmp_path / "parts") == files_of(tmp_path / "whole")
    assert (made.households, made.persons) == (len(whole.households), len(whole.persons))
    assert made.copies.sum() == 130


@pytest.mark.parametrize("ids", [(10, 20, 35), ("b", "a", "é")])
def test_a_given_population_is_written_in_shards_as_it_is(tmp_path, ids):
    region = read_region(given(tmp_path, ids)[1], skims=False)
    write_population(synthesize(region, 0), tmp_path / "whole")
    (tmp_path / "parts").mkdir()
    write_shards(region, 0, tmp_path / "parts", Here(), block=1)
    assert files_of(tmp_path / "parts") == files_of(tmp_path / "whole")


def test_trips_drawn_in_shards_are_those_of_a_run(tmp_path):
    scenario = write_study(tmp_path, negotiate={"trips": 0, "relocation": 0})
    pemand("run", scenario, "--out", tmp_path / "run")
    out = tmp_path / "population"
    pemand("synthesize", tmp_path / "region", "--trips", RATES, "--out", out)
    decided = pd.read_parquet(tmp_path / "run" / "decisions.parquet").query("kind == 'trips'")
    drawn = pd.read_parquet(out / "trips.parquet")
    own = decided.set_index("household_id")[list(drawn)]
    pd.testing.assert_frame_equal(drawn, own, check_dtype=False)
    by_zone = pd.read_csv(out / "trips_by_zone.csv", index_col="zone_id")
    demand = pd.read_csv(tmp_path / "run" / "demand.csv", index_col="zone_id")
    assert by_zone.index.tolist() == [10, 20, 35]
    assert by_zone["hbw"].tolist() == demand["HBW_P"].tolist()
    assert by_zone.loc[35].eq(0).all()
    assert by_zone["trips"].sum() == drawn["value"].sum()
    # Made again without trips, the population has no trips of another one beside it.
    pemand("synthesize", tmp_path / "region", "--out", out)
    assert not (out / "trips.parquet").exists()


@pytest.mark.parametrize("cuts", [[], [3], [10, 20, 25], [1, 39]])
def test_a_table_in_parts_is_the_file_of_the_whole(tmp_path, cuts):
    table = pd.DataFrame(
        {"n": np.arange(40), "x": np.linspace(0, 1, 40), "word": [f"w{i % 7}" for i in range(40)]},
        index=pd.Index(np.arange(1, 41), name="household_id"),
    )
    table.to_parquet(tmp_path / "whole", compression="zstd", index=True, row_group_size=16)
    with appending(tmp_path / "parts", as_arrow(table).schema, 16) as parts:
        for start, end in zip([0, *cuts], [*cuts, 40], strict=True):
            parts.add(as_arrow(table.iloc[start:end]))
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_table_that_could_not_be_finished_leaves_what_stood_there(tmp_path):
    (tmp_path / "table").write_text("old")
    table = pd.DataFrame({"n": [1]}, index=pd.Index([1], name="household_id"))
    with pytest.raises(KeyError), appending(tmp_path / "table", as_arrow(table).schema) as parts:
        parts.add(as_arrow(table))
        raise KeyError
    assert [p.name for p in tmp_path.iterdir()] == ["table"]
    assert (tmp_path / "table").read_text() == "old"


def die_once(mark, function, *given):
    """Do what is asked, but end the process at the first time."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*given)


def refuse():
    raise TableError("a.csv: column x: no")


class Deadly:
    """Workers that lose a process at each kind of work."""

    def __init__(self, workers, folder):
        self.workers, self.folder, self.at_once = workers, folder, workers.at_once
        self.put, self.get = workers.put, workers.get

    def call(self, function, *given, returns=1):
        mark = self.folder / f"died_{function.__name__}"
        return self.workers.call(die_once, mark, function, *given, returns=returns)


def test_workers_write_the_bytes_of_one_process_though_some_are_killed(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    region, rates = read_region(SF25, skims=False), read_rates(RATES)
    calibration = read_calibration(SF25)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    asked = {"points": True, "rates": rates, "calibration": calibration}
    write_shards(region, 0, tmp_path / "one", Here(), **asked)
    with machines.working(2, None, "refuse") as workers:
        deadly = Deadly(workers, tmp_path)
        write_shards(region, 0, tmp_path / "two", deadly, **asked, block=9_000)
        with pytest.raises(TableError, match=r"^a.csv: column x: no$"):
            workers.get(workers.call(refuse))
    assert {p.name for p in tmp_path.glob("died_*")} == {"died__solve", "died__block"}
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    assert len(files_of(tmp_path / "one")) == 8


def test_the_seed_does_not_leave_for_a_cluster_unless_somebody_says_so(tmp_path):
    for address in ("ray://10.0.0.7:10001", "10.0.0.7:6379", "auto"):
        said = pemand("synthesize", SF25, "--cluster", address, "--out", tmp_path / "out", code=1)
        assert "--remote allow" in said
    assert not list(tmp_path.glob("out/*"))
