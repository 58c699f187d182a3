"""Files at the border: written whole or not at all, read with every problem named at once.

What a table must hold is said where the table is read; this module holds the few acts they share.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from pemand_abm.errors import PemandError


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
        raise PemandError(f"cannot write {path}: {fault.strerror or fault}") from fault
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as fault:
        raise PemandError(f"cannot write {path}: {fault.strerror or fault}") from fault
    finally:
        temporary.unlink(missing_ok=True)


def write_parquet(table: pd.DataFrame, path: Path) -> None:
    """Write a table with its index as parquet, byte for byte the same for the same table."""
    with writing(path) as temporary:
        table.to_parquet(temporary, engine="pyarrow", compression="zstd")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table with its named index as UTF-8 CSV."""
    with writing(path) as temporary:
        table.to_csv(temporary, encoding="utf-8", lineterminator="\n")


def write_text(text: str, path: Path) -> None:
    """Write a text file as UTF-8."""
    with writing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
