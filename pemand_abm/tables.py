"""Files at the border: written whole or not at all, read with every problem named at once.

What a table must hold is said where the table is read; this module holds the few acts they share.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pemand_abm.errors import PemandError, TableError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROWS_OF_A_GROUP = 1024 * 1024
"""What pyarrow takes where nobody says otherwise."""


def read_columns(
    path: Path, columns: Iterable[str], absent: str, mend: str = "", **options: Any
) -> pd.DataFrame:
    """Return a CSV that has all *columns*; *options* are those of `pandas.read_csv`.

    A TableError ends with *absent* where there is no such file, else with *mend*.
    """
    ending = f"; {mend}" if mend else ""
    try:
        table = pd.read_csv(path, **options)
    except FileNotFoundError as fault:
        raise TableError(f"{path}: no such file; {absent}") from fault
    except (OSError, ValueError) as fault:
        raise TableError(f"{path}: cannot be read as CSV ({fault}){ending}") from fault
    missing = [c for c in columns if c not in table.columns]
    if missing:
        raise TableError(f"{path}: column {', '.join(missing)} is missing{ending}")
    return table


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside *path*, and rename it to *path* when the block ends well.

    A failure (full disk, no permission, Ctrl-C) leaves what stood at *path* untouched and the
    temporary file removed.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            prefix=f".{path.stem[:40]}-", suffix=path.suffix, dir=path.parent
        )
        os.close(handle)
    except OSError as fault:
        raise PemandError(f"cannot write {_shown(path)}: {fault.strerror or fault}") from fault
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as fault:
        raise PemandError(f"cannot write {_shown(path)}: {fault.strerror or fault}") from fault
    finally:
        temporary.unlink(missing_ok=True)


def _shown(path: Path) -> Path:
    """Return the path that the user knows: the file's place, not the folder that it is made in."""
    made_in = path.parent
    return made_in.parent / path.name if made_in.name.startswith(STAGING) else path


@contextmanager
def staging(folder: Path, last: str, stale: Iterable[str] = ()) -> Iterator[Path]:
    """Give an empty folder, and move its files into *folder* when the block ends well.

    The file *last* is moved last, and its old copy removed first: while it stands there, the files
    belong together. Old files named in *stale* go where no new ones take their place. A failure
    leaves what stood in *folder* untouched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _clear(folder)
    with tempfile.TemporaryDirectory(prefix=f"{STAGING}{os.getpid()}-", dir=folder) as name:
        yield Path(name)
        files = sorted(Path(name).iterdir(), key=lambda f: (f.name == last, f.name))
        for old in {last, *stale}:
            (folder / old).unlink(missing_ok=True)
        for file in files:
            os.replace(file, folder / file.name)


STAGING = ".writing-"
ASIDE = "aside"
"""Where, in a staging folder, the result stands that a new one takes the place of."""


@contextmanager
def replacing(folder: Path, marker: str) -> Iterator[Path]:
    """Give an empty folder that takes the place of *folder*, whole, when the block ends well.

    What stood there goes with it if it holds the file *marker*, by which we know our own; files of
    others are an error before anything is done. A failure leaves what stood there untouched; a run
    that is killed leaves it there or aside, from where the next one puts it back.
    """
    folder = Path(folder).absolute()
    try:
        _clear(folder.parent)
        if folder.exists() and not _ours(folder, marker):
            raise PemandError(
                f"{folder}: holds files that pemand did not write, and would be replaced; "
                "name another folder with --out, or move them away"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f"{STAGING}{os.getpid()}-", dir=folder.parent
        ) as name:
            made, aside = (Path(name) / part / folder.name for part in ("made", ASIDE))
            made.mkdir(parents=True)
            aside.parent.mkdir()
            yield made
            try:
                if folder.exists():
                    os.replace(folder, aside)
                os.replace(made, folder)
            finally:
                _put_back(Path(name))
    except OSError as fault:
        raise PemandError(f"cannot write {folder}: {fault.strerror or fault}") from fault


def _put_back(staging: Path) -> None:
    """Put back what a staging folder holds aside and nothing has taken the place of."""
    aside = staging / ASIDE
    for old in aside.glob("*"):
        if not (place := staging.parent / old.name).exists():
            os.replace(old, place)
    if aside.exists():
        # Under another name before it is removed file by file: half of it never comes back.
        os.replace(aside, staging / "replaced")


def _ours(folder: Path, marker: str) -> bool:
    return folder.is_dir() and ((folder / marker).is_file() or not any(folder.iterdir()))


def _clear(folder: Path) -> None:
    """Remove what runs that were killed left half-written in *folder*; put back what was whole."""
    for left in folder.glob(f"{STAGING}*"):
        if not _runs(left.name.removeprefix(STAGING).split("-")[0]):
            with suppress(OSError):  # Another run may be clearing, too; what is whole stays.
                _put_back(left)
                shutil.rmtree(left, ignore_errors=True)


def _runs(process: str) -> bool:
    """Say whether a process of this number runs, so that its staging folder is not taken away."""
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except OSError:
        return True
    return True


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_parquet(table: pd.DataFrame, path: Path) -> None:
    """Write a table with its index as parquet, byte for byte the same for the same table."""
    with writing(path) as temporary:
        # Else pandas hides ids that happen to be a range in the file's metadata.
        named = True if table.index.name else None
        table.to_parquet(temporary, engine="pyarrow", compression="zstd", index=named)


def as_arrow(table: pd.DataFrame) -> pa.Table:
    """Return a table with its named index as `write_parquet` writes it."""
    import pyarrow as pa

    return pa.Table.from_pandas(table, preserve_index=True)


class Appended:
    """A parquet file to which parts of a table are added; `appending` gives it.

    `rows` are those added so far. At most a group of them is held in memory.
    """

    def __init__(self, file: pq.ParquetWriter, group: int) -> None:
        self._file, self._group = file, group
        self._held: list[pa.Table] = []
        self._count = self.rows = 0

    def add(self, part: pa.Table) -> None:
        """Write a part after those before it."""
        self._held.append(part.cast(self._file.schema))
        self._count += part.num_rows
        self.rows += part.num_rows
        while self._count >= self._group:
            self._write(self._group)

    def end(self) -> None:
        """Write what is held; an empty table is a table, too."""
        if self._count or not self.rows:
            self._write(self._count)

    def _write(self, rows: int) -> None:
        import pyarrow as pa

        held = pa.concat_tables(self._held or [self._file.schema.empty_table()])
        self._file.write_table(held.slice(0, rows).combine_chunks(), row_group_size=self._group)
        self._held = [held.slice(rows)]
        self._count -= rows


@contextmanager
def appending(path: Path, schema: pa.Schema, group: int = ROWS_OF_A_GROUP) -> Iterator[Appended]:
    """Give a parquet file for a table in parts, the same bytes as `write_parquet` of the whole.

    The file takes its name when the block ends well. Another *group* than the whole's makes
    another file.
    """
    import pyarrow.parquet as pq

    with (
        writing(path) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd") as file,
    ):
        parts = Appended(file, group)
        yield parts
        parts.end()


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table with its named index as UTF-8 CSV."""
    with writing(path) as temporary:
        table.to_csv(temporary, encoding="utf-8", lineterminator="\n")


def write_json_lines(
    records: Iterable[dict], path: Path, default: Callable[[object], object] | None = None
) -> None:
    """Write one JSON object a line; *default* makes something of what JSON does not know."""
    lines = (json.dumps(r, ensure_ascii=False, default=default) for r in records)
    write_text("".join(f"{line}\n" for line in lines), path)


def write_text(text: str, path: Path) -> None:
    """Write a text file as UTF-8."""
    with writing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
