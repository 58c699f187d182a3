"""A run's results in the form of other programs, a folder a format.

A format is one module with a function `write(source, out)`: it writes its files into the empty
folder *out* and returns notes for who opens them. It reads the run's folder alone (`source.Source`)
and, where the format asks for skims or land use, the region.

Another package adds a format through the entry point group ``pemand_abm.exporters``: the name
points to such a function.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path

import yaml

from pemand_abm import __version__
from pemand_abm.errors import PemandError, SettingsError, listed
from pemand_abm.exporters.source import Source, open_source
from pemand_abm.settings import suggestion
from pemand_abm.tables import replacing, write_text

GROUP = "pemand_abm.exporters"
ALL = "all"
MARKER = "export.yaml"
BUILT_IN = ("activitysim", "geojson", "gmns", "matsim", "shapefile", "simwrapper", "urbansim")

Exporter = Callable[[Source, Path], list[str]]


def known_exporters() -> list[str]:
    """Return the names of all formats, the built-in ones and the plugged-in ones."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=GROUP))})


def find_exporter(name: str) -> Exporter:
    """Return the function that writes the format *name*; a `SettingsError` if there is none."""
    if name in BUILT_IN:
        return importlib.import_module(f"{__name__}.{name}").write
    for point in entry_points(group=GROUP, name=name):
        return point.load()
    known = known_exporters()
    raise SettingsError(
        f"{name}: no such format; there are {', '.join(known)}, and {ALL} for every one"
        f"{suggestion(name, known)}"
    )


def export_run(
    run: Path, names: Sequence[str], out: Path | None = None, region: Path | None = None
) -> dict[str, tuple[Path, list[str]]]:
    """Write a run's folder in each of the formats *names*, and return the folders and their notes.

    Parameters
    ----------
    run : Path
        The folder that `pemand run` wrote.
    names : sequence of str
        Formats; ``all`` stands for every one that is known.
    out : Path, optional
        The folder that gets a folder a format; `export` in the run's folder by default.
    region : Path, optional
        The region's folder; that which the run was made of by default.

    Raises
    ------
    PemandError
        The run is not whole, a format is not known, or formats failed: the others are written, each
        whole, and one message tells all faults. A format's folder is replaced only if an export
        wrote it.
    """
    wanted = known_exporters() if ALL in names else list(dict.fromkeys(names))
    exporters = {name: find_exporter(name) for name in wanted}
    source = open_source(run, region)
    place = Path(out) if out is not None else source.folder / "export"
    done, faults = {}, []
    for name, write in exporters.items():
        try:
            with replacing(place / name, MARKER) as folder:
                notes = write(source, folder)
                write_text(_manifest(name, source, notes), folder / MARKER)
        except PemandError as fault:
            faults.append(f"{name}: {fault.message}")
        else:
            done[name] = place / name, notes
    if faults:
        written = f"; written: {', '.join(done)}" if done else ""
        raise PemandError(listed(faults, f"{source.folder}{written}"))
    return done


def _manifest(name: str, source: Source, notes: list[str]) -> str:
    """Return `export.yaml`: what the folder is, of which run, and what its reader must know."""
    told = {key: source.manifest.get(key) for key in ("scenario", "title", "region", "seed")}
    held = {"format": name, **told, "pemand-abm": __version__, "notes": [*source.notes, *notes]}
    return yaml.safe_dump(held, sort_keys=False, allow_unicode=True)
