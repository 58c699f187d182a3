"""Zone-to-zone matrices in OMX files: read through their lookup, written to pass `omx-validate`.

An OMX lookup holds unsigned 32-bit integers. Zone ids that do not fit (text, zero, negative, 2^32
and more) are written as row numbers 1..N, and `<stem>_zones.csv` beside the file says which id each
row number stands for. This is the only module that imports openmatrix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pemand_abm.errors import TableError, listed
from pemand_abm.ids import some
from pemand_abm.tables import write_csv, writing

LOOKUP = "zone_number"
LARGEST = 2**32 - 1
CORE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def sidecar(path: Path) -> Path:
    """Return the name of the table that gives the zone ids of an OMX file's row numbers."""
    path = Path(path)
    return path.with_name(f"{path.stem}_zones.csv")


def numbers_are_ids(zones: pd.Index) -> bool:
    """Say whether an OMX lookup can hold the zones' own ids (1 to 2^32 - 1)."""
    whole = pd.api.types.is_integer_dtype(zones.dtype)
    return bool(whole and zones.min() >= 1 and zones.max() <= LARGEST)


def zone_numbers(zones: pd.Index) -> pd.Series:
    """Return the number by which an OMX file of ours knows each zone, indexed by id, ascending.

    The zone's own id where the lookup can hold all of them, else 1, 2, 3 ... in the ids' order.
    """
    ids = zones.sort_values()
    numbers = ids.to_numpy() if numbers_are_ids(zones) else np.arange(1, len(ids) + 1)
    return pd.Series(numbers, index=ids, dtype="int64", name="zone_number")


def read_skims(path: Path, zones: pd.Index, lookup: str | None = LOOKUP) -> dict[str, np.ndarray]:
    """Read every core of an OMX file, its rows and columns brought into the order of *zones*.

    Parameters
    ----------
    path : Path
        The OMX file. Zones that it holds beyond *zones* are dropped.
    zones : pandas.Index
        N zone ids, int64 or text.
    lookup : str, optional
        The lookup to go through; None takes the only one there is.

    Returns
    -------
    dict of str to ndarray
        Core name to float64 array of shape (N, N), in the units of the file.

    Raises
    ------
    TableError
        No lookup, or several and none named; a zone lacking or twice; NaN, infinite or negative
        values.
    """
    import openmatrix
    import tables

    path = Path(path)
    try:
        with openmatrix.open_file(str(path), "r") as file:
            names = file.list_matrices()
            if not names:
                raise TableError(f"{path}: holds no matrix")
            rows = _rows(_zone_ids(file, path, lookup), zones, path)
            cores = {name: _values(file, name, path)[np.ix_(rows, rows)] for name in names}
    except (tables.HDF5ExtError, tables.NoSuchNodeError, OSError) as fault:
        raise TableError(f"{path}: not a readable OMX file ({_last_line(fault)})") from fault
    problems = [p for name, values in cores.items() for p in _bad_cells(name, values, zones)]
    if problems:
        raise TableError(listed(problems, str(path)))
    return cores


def write_matrices(path: Path, cores: Mapping[str, np.ndarray], zones: pd.Index) -> None:
    """Write matrices of shape (N, N) as float64, zones ascending, with the lookup `zone_number`.

    The same cores and zones give the same bytes. A failure leaves what stood at *path* untouched.

    Raises
    ------
    TableError
        A core that has a bad name or shape, or that holds NaN or infinite values; a zone id twice.
    PemandError
        A file that cannot be written, or a disk that is full.
    """
    path = Path(path)
    arrays = {name: np.asarray(values, dtype="float64") for name, values in cores.items()}
    problems = [p for name, values in arrays.items() for p in _unwritable(name, values, zones)]
    if zones.has_duplicates:
        problems.append(f"zone ids occur twice: {some(zones[zones.duplicated()])}")
    if problems or not arrays:
        raise TableError(listed(problems or ["no matrix to write"], str(path)))
    order = zones.argsort()
    numbers = zone_numbers(zones)
    ids, fits = numbers.index, numbers_are_ids(zones)
    arrays = {name: values[np.ix_(order, order)] for name, values in arrays.items()}
    with writing(path) as temporary:
        temporary.write_bytes(_image(arrays, numbers.to_numpy("uint32")))
        if fits:
            # An old sidecar would give the new numbers a wrong meaning.
            sidecar(path).unlink(missing_ok=True)
        else:
            columns = {"zone_number": numbers.to_numpy(), "original_id": ids}
            row = pd.RangeIndex(1, len(ids) + 1, name="row")
            write_csv(pd.DataFrame(columns, index=row), sidecar(path))


def _image(cores: Mapping[str, np.ndarray], numbers: np.ndarray) -> bytes:
    """Return the bytes of an OMX file."""
    import openmatrix
    import tables

    zlib = tables.Filters(complevel=4, complib="zlib", shuffle=True)
    # In memory, because HDF5 does not tell of a disk that fills up while it closes a file.
    memory = {"driver": "H5FD_CORE", "driver_core_backing_store": 0}
    with openmatrix.open_file("memory.omx", "w", **memory) as file:
        file.root._v_attrs["SHAPE"] = np.array([len(numbers)] * 2, dtype="int32")
        # openmatrix's own create_matrix and create_mapping stamp the time of day into the file.
        for name, values in cores.items():
            file.create_carray("/data", name, obj=values, filters=zlib, track_times=False)
        file.create_array("/lookup", LOOKUP, obj=numbers, createparents=True, track_times=False)
        file.flush()
        return bytes(file.get_file_image())


def _zone_ids(file: Any, path: Path, lookup: str | None) -> pd.Index:
    """Return the zone id of every row, int64 or text, through the lookup and any sidecar."""
    names = file.list_mappings()
    held = ", ".join(names)
    if not names:
        raise TableError(
            f"{path}: has no lookup, so nothing says which zone each row is; write one "
            f"(openmatrix: file.create_mapping({lookup or LOOKUP!r}, zone_ids))"
        )
    if lookup is None and len(names) > 1:
        raise TableError(f"{path}: has several lookups ({held}); name one in skims.lookup")
    if lookup is not None and lookup not in names:
        raise TableError(f"{path}: has no lookup {lookup!r}; name one that it has: {held}")
    name = lookup or names[0]
    entries = np.asarray(file.get_node(file.root.lookup, name)[:])
    shape = tuple(map(int, file.shape()))
    if entries.ndim != 1 or shape != (len(entries), len(entries)):
        raise TableError(f"{path}: lookup {name!r} of shape {entries.shape} on matrices of {shape}")
    ids = _decoded(entries, path, name)
    if sidecar(path).exists():
        ids = _original_ids(ids, path)
    if ids.has_duplicates:
        twice = some(ids[ids.duplicated()].unique())
        raise TableError(f"{path}: lookup {name!r}: zones occur twice: {twice}")
    return ids


def _decoded(entries: np.ndarray, path: Path, name: str) -> pd.Index:
    if entries.dtype.kind in "iu":
        return pd.Index(entries.astype("int64"))
    if entries.dtype.kind == "f":
        if not np.all(entries == np.floor(entries)):
            raise TableError(f"{path}: lookup {name!r} holds fractions; zone ids are whole numbers")
        return pd.Index(entries.astype("int64"))
    texts = [e.decode("utf-8") if isinstance(e, bytes) else str(e) for e in entries.tolist()]
    return pd.Index(texts, dtype="str")


def _original_ids(numbers: pd.Index, path: Path) -> pd.Index:
    beside = sidecar(path)
    table = pd.read_csv(beside, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    lacking = [c for c in ("zone_number", "original_id") if c not in table]
    if lacking:
        raise TableError(f"{beside}: lacks the columns {', '.join(lacking)}")
    known = dict(zip(table["zone_number"], table["original_id"], strict=True))
    unknown = [number for number in numbers if str(number) not in known]
    if unknown:
        raise TableError(f"{beside}: lacks the zone numbers {some(unknown)} of {path.name}")
    return pd.Index([known[str(number)] for number in numbers], dtype="str")


def _rows(ids: pd.Index, zones: pd.Index, path: Path) -> np.ndarray:
    """Return the row of every zone."""
    rows = ids.astype(str).get_indexer(zones.astype(str))
    lacking = zones[rows < 0]
    if len(lacking) == 0:
        return rows
    said = f"lacks {len(lacking)} of {len(zones)} zones: {some(lacking)}; it holds {some(ids)}"
    if not pd.api.types.is_integer_dtype(lacking.dtype) or lacking.max() > LARGEST:
        said += (
            f". A lookup cannot hold text or ids above {LARGEST}: number the rows, and give the "
            f"ids in {sidecar(path).name} (columns row, zone_number, original_id)"
        )
    raise TableError(f"{path}: {said}")


def _values(file: Any, name: str, path: Path) -> np.ndarray:
    values = np.asarray(file[name][:])
    shape = tuple(map(int, file.shape()))
    if values.shape != shape or values.dtype.kind not in "fiu":
        raise TableError(
            f"{path}: core {name} holds {values.dtype} of shape {values.shape}, not of {shape}"
        )
    return values.astype("float64")


def _bad_cells(name: str, values: np.ndarray, zones: pd.Index) -> list[str]:
    bad = ~(np.isfinite(values) & (values >= 0))
    if not bad.any():
        return []
    cells = [f"{zones[o]} to {zones[d]}: {values[o, d]:g}" for o, d in np.argwhere(bad)[:3]]
    return [
        f"core {name}: {int(bad.sum())} values are not finite numbers of 0 or more, first (origin "
        f"to destination) {'; '.join(cells)}"
    ]


def _unwritable(name: str, values: np.ndarray, zones: pd.Index) -> list[str]:
    if not CORE_NAME.fullmatch(name):
        return [f"core {name!r}: a name is a letter, then letters, digits and underscores"]
    if values.shape != (len(zones), len(zones)):
        return [f"core {name}: shape {values.shape} does not fit {len(zones)} zones"]
    bad = ~np.isfinite(values)
    if not bad.any():
        return []
    origin, destination = np.argwhere(bad)[0]
    first = f"{zones[origin]} to {zones[destination]}"
    return [f"core {name}: {int(bad.sum())} values are not finite, first {first}"]


def _last_line(fault: Exception) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[-1].strip()
