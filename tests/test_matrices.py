import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import openmatrix
import pandas as pd
import pytest
import tables

from pemand_abm.errors import PemandError, TableError
from pemand_abm.matrices import read_skims, sidecar, write_matrices

ZONES = pd.Index([10, 20, 35])
TRIPS = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])


def made(path: Path, matrix: np.ndarray = TRIPS, **lookups: list[int]) -> Path:
    """Write an OMX file by openmatrix itself, as a user's other tool would."""
    with openmatrix.open_file(str(path), "w") as file:
        file["trips"] = matrix
        for name, entries in lookups.items():
            file.create_mapping(name, entries)
    return path


def overall(path: Path) -> str:
    """Return the validator's verdict; its exit code is 0 whatever it finds."""
    scripts = Path(sysconfig.get_path("scripts")) / "omx-validate"
    command = str(scripts) if scripts.exists() else shutil.which("omx-validate")
    assert command
    told = subprocess.run([command, str(path)], capture_output=True, text=True, check=False).stdout
    return next(line for line in told.splitlines() if "Overall :" in line).split()[-1]


def test_skims_in_another_order_are_brought_into_the_zones_order(tmp_path):
    path = made(tmp_path / "skims.omx", zone_number=[35, 10, 20])
    read = read_skims(path, ZONES)["trips"]
    assert read.tolist() == [[5, 6, 4], [8, 9, 7], [2, 3, 1]]
    assert read.dtype == np.float64


def test_zones_beyond_the_region_are_dropped(tmp_path):
    path = made(tmp_path / "skims.omx", zone_number=[35, 10, 20])
    assert read_skims(path, pd.Index([10, 35]))["trips"].tolist() == [[5, 4], [2, 1]]


def test_a_file_without_lookup_is_refused_and_never_taken_as_one_to_n(tmp_path):
    with pytest.raises(TableError, match=r"has no lookup.*create_mapping"):
        read_skims(made(tmp_path / "skims.omx"), pd.Index([1, 2, 3]))


def test_the_sources_empty_lookup_group_counts_as_no_lookup(tmp_path):
    path = made(tmp_path / "skims.omx")
    with tables.open_file(path, "r") as file:
        assert "lookup" in file.root
        assert file.list_nodes("/lookup") == []
    with pytest.raises(TableError, match="has no lookup"):
        read_skims(path, ZONES)


def test_several_lookups_must_be_chosen_from_by_name(tmp_path):
    path = made(tmp_path / "skims.omx", TAZ=[10, 20, 35], MAZ=[1, 2, 3])
    with pytest.raises(TableError, match=r"several lookups.*MAZ, TAZ"):
        read_skims(path, ZONES, lookup=None)
    assert read_skims(path, ZONES, lookup="TAZ")["trips"].tolist() == TRIPS.tolist()


def test_a_lookup_of_another_name_is_named_in_the_error(tmp_path):
    path = made(tmp_path / "skims.omx", TAZ=[10, 20, 35])
    with pytest.raises(TableError, match=r"no lookup 'zone_number'.*TAZ"):
        read_skims(path, ZONES)


def test_a_lacking_zone_is_named(tmp_path):
    path = made(tmp_path / "skims.omx", zone_number=[10, 20, 30])
    with pytest.raises(TableError, match="lacks 1 of 3 zones: 35"):
        read_skims(path, ZONES)


def test_ids_that_openmatrix_wrapped_at_32_bits_are_not_found_and_the_mend_is_told(tmp_path):
    geoids = [41003010200, 41003010300, 41003010400]
    path = made(tmp_path / "skims.omx", zone_number=[g % 2**32 for g in geoids])
    with pytest.raises(TableError, match=r"41003010200.*skims_zones\.csv"):
        read_skims(path, pd.Index(geoids))


def test_a_zone_twice_in_the_lookup_is_refused(tmp_path):
    path = made(tmp_path / "skims.omx", zone_number=[10, 20, 10])
    with pytest.raises(TableError, match="occur twice: 10"):
        read_skims(path, pd.Index([10, 20]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -999.0])
def test_bad_cells_are_named_by_core_origin_and_destination(tmp_path, bad):
    matrix = TRIPS.copy()
    matrix[2, 1] = bad
    path = made(tmp_path / "skims.omx", matrix, zone_number=[10, 20, 35])
    with pytest.raises(TableError, match=f"core trips: 1 values .* 35 to 20: {bad:g}"):
        read_skims(path, ZONES)


def test_a_file_that_is_no_omx_is_told_as_such(tmp_path):
    path = tmp_path / "skims.omx"
    path.write_text("zone,zone,minutes")
    with pytest.raises(TableError, match=r"skims\.omx: not a readable OMX file"):
        read_skims(path, ZONES)


def test_what_is_written_passes_the_validator(tmp_path):
    write_matrices(tmp_path / "trips.omx", {"trips": TRIPS, "hbw": TRIPS / 2}, ZONES)
    assert overall(tmp_path / "trips.omx") == "Pass"


def test_zones_are_written_in_ascending_order(tmp_path):
    write_matrices(tmp_path / "trips.omx", {"trips": TRIPS}, pd.Index([35, 10, 20]))
    with tables.open_file(tmp_path / "trips.omx") as file:
        assert file.root.lookup.zone_number[:].tolist() == [10, 20, 35]
        matrix = file.root.data.trips
        assert matrix[:].tolist() == [[5, 6, 4], [8, 9, 7], [2, 3, 1]]
        assert (matrix.dtype, matrix.filters.complib) == (np.float64, "zlib")
        assert matrix.chunkshape is not None


@pytest.mark.parametrize(
    "ids",
    [
        ["SF-Mission", "NY-Queens", "10"],
        [41003010400, 41003010200, 41003010300],
        [0, 1, 2],
        [1, 2**32, 7],
    ],
)
def test_ids_that_a_lookup_cannot_hold_come_back_through_the_sidecar(tmp_path, ids):
    path, zones = tmp_path / "trips.omx", pd.Index(ids)
    write_matrices(path, {"trips": TRIPS}, zones)
    assert pd.read_csv(sidecar(path))["zone_number"].tolist() == [1, 2, 3]
    assert read_skims(path, zones)["trips"].tolist() == TRIPS.tolist()
    assert overall(path) == "Pass"


def test_ids_up_to_the_largest_32_bit_number_need_no_sidecar(tmp_path):
    path, zones = tmp_path / "trips.omx", pd.Index([1, 2, 2**32 - 1])
    write_matrices(path, {"trips": TRIPS}, zones)
    assert not sidecar(path).exists()
    assert read_skims(path, zones)["trips"].tolist() == TRIPS.tolist()


def test_an_old_sidecar_does_not_rename_the_zones_of_a_new_file(tmp_path):
    path = tmp_path / "trips.omx"
    write_matrices(path, {"trips": TRIPS}, pd.Index(["a", "b", "c"]))
    write_matrices(path, {"trips": TRIPS}, pd.Index([1, 2, 3]))
    assert read_skims(path, pd.Index([1, 2, 3]))["trips"].tolist() == TRIPS.tolist()


def test_the_same_matrices_give_the_same_bytes(tmp_path):
    for name in ("a.omx", "b.omx"):
        write_matrices(tmp_path / name, {"trips": TRIPS}, ZONES)
    assert (tmp_path / "a.omx").read_bytes() == (tmp_path / "b.omx").read_bytes()


@pytest.mark.parametrize(
    ("cores", "zones", "said"),
    [
        ({"drive alone": TRIPS}, [1, 2, 3], "core 'drive alone': a name is"),
        ({"trips": np.full((3, 3), np.nan)}, [1, 2, 3], "9 values are not finite, first 1 to 1"),
        ({"trips": TRIPS[:2]}, [1, 2, 3], r"shape \(2, 3\) does not fit 3 zones"),
        ({"trips": TRIPS}, [1, 2, 2], "zone ids occur twice: 2"),
        ({}, [1, 2, 3], "no matrix to write"),
    ],
)
def test_what_must_not_be_written_is_refused_and_leaves_the_old_file(tmp_path, cores, zones, said):
    path = tmp_path / "trips.omx"
    path.write_text("old")
    with pytest.raises(TableError, match=said):
        write_matrices(path, cores, pd.Index(zones))
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["trips.omx"]


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files as Linux does")
def test_a_full_disk_is_one_error_and_leaves_nothing_half_written(tmp_path):
    code = (
        "import resource, signal, numpy as np, pandas as pd\n"
        "from pemand_abm.matrices import write_matrices\n"
        "from pemand_abm.errors import PemandError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "full = np.random.default_rng(0).random((200, 200))\n"
        "try:\n"
        f"    path = {str(tmp_path / 'trips.omx')!r}\n"
        "    write_matrices(path, {'trips': full}, pd.RangeIndex(1, 201))\n"
        "except PemandError as fault:\n"
        "    print(fault.message)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "cannot write" in run.stdout, run.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_error(tmp_path):
    (tmp_path / "outputs").write_text("a file where a folder should be")
    with pytest.raises(PemandError, match="cannot write"):
        write_matrices(tmp_path / "outputs" / "trips.omx", {"trips": TRIPS}, ZONES)
