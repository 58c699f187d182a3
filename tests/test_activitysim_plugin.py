"""The plug-in for ActivitySim: its tables without ActivitySim, and (slow) the real thing."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_run import run, write_study

from pemand_extension.joining import differing, matched, relocated, trip_columns
from pemand_extension.runs import RunError, in_zones_of, read_homes, read_trips

ROOT = Path(__file__).resolve().parents[1]
IDS = (10, 20, 35)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Return a real run's folder."""
    folder = tmp_path_factory.mktemp("plugin")
    run(write_study(folder, IDS), folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Return the folder of a run whose zones are texts."""
    folder = tmp_path_factory.mktemp("texts")
    run(write_study(folder, ("SF-Mission", "SF-Castro", "A")), folder / "out")
    return folder / "out"


def asim(homes: pd.DataFrame, zones: pd.Series) -> pd.DataFrame:
    """Return households as ActivitySim holds them before any move, in another order."""
    recoded = homes["home_zone_id_before"].map({own: code for code, own in zones.items()})
    table = pd.DataFrame({"home_zone_id": recoded, "hhsize": homes["hhsize"]}, index=homes.index)
    return table.rename_axis("household_id").sample(frac=1, random_state=2)


RECODED = pd.Series(IDS, index=pd.RangeIndex(3, name="zone_id"))
PLAIN = pd.Series(IDS, index=pd.Index(IDS, name="zone_id"))


@pytest.mark.parametrize("zones", [RECODED, PLAIN], ids=["recoded from 0", "own ids"])
def test_households_live_where_the_runs_completed_moves_took_them(done, zones):
    homes = read_homes(done, "household_id")
    households = asim(homes, zones)
    moved = relocated(households, homes, matched(households, homes, "household_id"), zones)
    # From the events, which the step's zones do not come from: the last move's end, else the start.
    events = pd.read_parquet(done / "events.parquet")
    ends = events[events["kind"] == "moved"].groupby("household_id")["to_zone"].last()
    expected = ends.reindex(moved.index).fillna(homes["home_zone_id_before"].reindex(moved.index))
    assert len(ends) > 0
    assert moved["home_zone_id"].map(zones).tolist() == expected.tolist()
    assert moved["home_zone_id"].dtype == households["home_zone_id"].dtype
    assert set(moved.index[moved["pemand_moved"]]) == set(ends.index)
    assert moved.index.equals(households.index)


def test_trips_and_purposes_join_by_household_and_keep_their_sums(done):
    homes = read_homes(done, "household_id")
    households = asim(homes, PLAIN)
    added = trip_columns(read_trips(done, None), homes, households.index)
    purposes = [c for c in added if c.startswith("pemand_trips_") and "negotiated" not in c]
    assert {"pemand_trips_hbw", "pemand_trips_nhb"} <= set(purposes)
    assert (added[purposes].sum(axis=1) == added["pemand_trips"]).all()
    demand = pd.read_csv(done / "demand.csv")
    assert added["pemand_trips"].sum() == pytest.approx(demand["TRIPS_P"].sum())
    zones = households["home_zone_id"]
    by_zone = (
        added["pemand_trips_hbw"].groupby(zones).sum().reindex(demand["zone_id"], fill_value=0)
    )
    assert by_zone.to_numpy() == pytest.approx(demand["HBW_P"].to_numpy())
    assert added["pemand_trips_negotiated"].notna().sum() == 8


def test_the_columns_asked_for_are_those_that_come(done):
    homes = read_homes(done, "household_id")
    added = trip_columns(read_trips(done, ["value", "expected"]), homes, homes.index)
    assert list(added) == ["pemand_trips", "pemand_trips_expected"]
    with pytest.raises(RunError, match="has no column hbx; it has household_id"):
        read_trips(done, ["hbx"])


def test_a_sample_of_households_is_enough_and_keeps_whole_numbers(done):
    homes = read_homes(done, "household_id")
    some = asim(homes, PLAIN).iloc[:10]
    ids = matched(some, homes, "household_id")
    assert len(relocated(some, homes, ids, PLAIN)) == 10
    added = trip_columns(read_trips(done, None), homes, some.index)
    assert added["pemand_trips"].dtype.kind == "i" and added.index.equals(some.index)


def test_the_latest_travel_day_counts(tmp_path, done):
    for name in ("demand.csv", "run.yaml"):
        (tmp_path / name).write_bytes((done / name).read_bytes())
    first = pd.read_parquet(done / "decisions.parquet").reset_index()
    later = first[first["kind"] == "trips"].assign(minute=lambda t: t["minute"] + 525_600)
    later["value"] += 1
    pd.concat([later, first]).to_parquet(tmp_path / "decisions.parquet")
    assert (
        read_trips(tmp_path, ["value"])["value"]
        .sort_index()
        .equals(later.set_index("household_id")["value"].sort_index())
    )


def test_households_that_the_run_does_not_have_are_refused_or_kept(done):
    homes = read_homes(done, "household_id")
    more = pd.DataFrame({"home_zone_id": 20, "hhsize": 1}, index=[9_001, 9_002])
    households = pd.concat([asim(homes, PLAIN), more])
    said = (
        r"2 of 102 households are not in the run \(by its column household_id\), first 9001, 9002"
    )
    with pytest.raises(RunError, match=said):
        matched(households, homes, "household_id")
    ids = matched(households, homes, "household_id", "keep")
    moved = relocated(households, homes, ids, PLAIN)
    assert moved.loc[more.index, "home_zone_id"].tolist() == [20, 20]
    assert not moved.loc[more.index, "pemand_moved"].any()
    added = trip_columns(read_trips(done, None), homes, households.index)
    assert added.loc[more.index].isna().all(axis=None)
    # Not one household in common is no population to keep.
    with pytest.raises(RunError, match="2 of 2 households are not in the run"):
        matched(more, homes, "household_id", "keep")


def test_another_population_under_the_same_ids_is_refused(done):
    homes = read_homes(done, "household_id")
    households = asim(homes, PLAIN)
    swapped = households.set_axis(households.index[::-1], axis=0)
    with pytest.raises(RunError, match="have another hhsize than in the run, first"):
        matched(swapped, homes, "household_id")
    with pytest.raises(RunError, match="live in another zone than before the run's moves, first"):
        relocated(swapped, homes, homes.index, PLAIN)


def test_a_population_that_has_moved_already_is_refused_with_the_mend(done):
    homes = read_homes(done, "household_id")
    households = asim(homes.assign(home_zone_id_before=homes["home_zone_id"]), PLAIN)
    with pytest.raises(RunError, match="moved already: give ActivitySim home_zone_id_before"):
        relocated(households, homes, homes.index, PLAIN)


def test_zones_that_activitysim_does_not_have_are_named(done):
    homes = read_homes(done, "household_id")
    known = PLAIN.drop(20)
    with pytest.raises(RunError, match="1 zones are not in land_use, first 20"):
        relocated(asim(homes, PLAIN), homes, homes.index, known)


def test_zones_of_text_take_the_numbers_of_the_matrices(texts):
    homes = read_homes(texts, "household_id")
    numbers = pd.Series([1, 2, 3], index=[1, 2, 3])
    own = in_zones_of(texts, homes, numbers)
    names = pd.read_csv(texts / "trips_zones.csv").set_index("zone_number")["original_id"]
    assert own["home_zone_id"].map(names).tolist() == homes["home_zone_id"].tolist()
    assert relocated(asim(own, numbers), own, own.index, numbers)["pemand_moved"].any()


def test_a_copied_households_seed_is_no_id(done):
    with pytest.raises(RunError, match=r"column seed_id: .* ids stand more than once"):
        read_homes(done, "seed_id")


def test_ids_of_a_given_population_are_found_in_the_other_column(done):
    homes = read_homes(done, "household_id").assign(seed_id=lambda t: t.index + 500_000)
    households = asim(homes, PLAIN).set_axis(homes["seed_id"].to_numpy())
    with pytest.raises(RunError, match="in its column seed_id: write `household_id: seed_id`"):
        matched(households, homes, "household_id")


def test_a_folder_that_is_no_finished_run_is_refused(tmp_path):
    with pytest.raises(RunError, match="is no finished run of pemand-abm"):
        read_homes(tmp_path, "household_id")


def test_a_column_that_changed_in_households_that_stayed_is_found():
    one = pd.DataFrame({"a": [1, 2, 3], "b": [1.0, np.nan, 3.0]})
    other = one.assign(a=[1, 9, 3])
    assert differing(one, other, one.index) == ["a"]
    assert differing(one, other, one.index[[0, 2]]) == []
    assert differing(one, one[["a"]], one.index) == ["b"]


def test_the_plugin_imports_nothing_of_the_program_and_is_importable_without_activitysim():
    # ActivitySim's environment has a pandas that the program does not run on.
    for path in (ROOT / "pemand_extension").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(n.split(".")[0] == "pemand_abm" for n in names), path.name
    code = "import sys, pemand_extension.joining; print('pemand_abm' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "False"


def test_every_setting_and_column_is_documented():
    told = (ROOT / "docs" / "howto-activitysim.md").read_text(encoding="utf-8")
    tree = ast.parse((ROOT / "pemand_extension" / "settings.py").read_text(encoding="utf-8"))
    settings = [n.target.id for n in ast.walk(tree) if isinstance(n, ast.AnnAssign)]
    assert len(settings) == 4 and all(f"| `{name}` |" in told for name in settings)


@pytest.mark.programs
@pytest.mark.timeout(3_600)
def test_activitysim_runs_its_example_with_both_steps(tmp_path):
    script = ROOT / "benchmarks" / "activitysim_plugin.sh"
    done = subprocess.run(
        ["bash", str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    assert "households live in another zone (home_zone_id)" in done.stdout
