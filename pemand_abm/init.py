"""A new study: a copy of the first one, from the installed package or from the repository."""

from __future__ import annotations

import shutil
import tempfile
from importlib import resources
from pathlib import Path

from pemand_abm.errors import PemandError

PARTS = ("synthpop/sf25", "synthpop/rates", "scenarios")
ABOUT = """# A study of pemand-abm

    pemand run scenarios/baseline.yaml

runs the base year of the region in synthpop/sf25 and writes outputs/baseline/report.html; with
`--model scripted` it needs no language model. To use your own region, copy synthpop/sf25, replace
its files and name the new folder in the scenario. What each file of a region holds stands in
synthpop/sf25/README.md, of the survey rates in synthpop/rates/README.md; `pemand --help` lists the
commands, and the documentation comes with the source of pemand-abm (docs/).

    synthpop/    regions, a folder each, and the survey rates
    scenarios/   one YAML file a run
    training/    fine-tuning recipes and model cards
    outputs/     one folder a run
"""
EMPTY = {
    "training": "Fine-tuning recipes, rubrics, annotation sheets and model cards of this study.\n",
    "outputs": "One folder a run; `pemand run scenarios/baseline.yaml` makes outputs/baseline.\n",
}


def study_files() -> Path:
    """Return the folder that holds the first study.

    The package's own copy in a wheel, else the repository's root.
    """
    packaged = Path(str(resources.files("pemand_abm"))) / "study"
    root = packaged if packaged.is_dir() else Path(__file__).resolve().parents[1]
    missing = [part for part in PARTS if not (root / part).is_dir()]
    if missing:
        raise PemandError(
            f"this installation lacks the study's files ({', '.join(missing)}); "
            "install pemand-abm again"
        )
    return root


def make_study(folder: Path) -> None:
    """Copy the first study to *folder*, whole or not at all.

    A folder that holds files is refused.
    """
    if folder.exists() and any(folder.iterdir()):
        raise PemandError(f"{folder} is there and not empty; name a new folder")
    root = study_files()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = folder if folder.exists() else folder.parent
        with tempfile.TemporaryDirectory(prefix=".pemand-", dir=beside) as place:
            draft = Path(place) / "study"
            for part in PARTS:
                shutil.copytree(
                    root / part,
                    draft / part,
                    ignore=shutil.ignore_patterns("__pycache__", "build*.py"),
                )
            (draft / "README.md").write_text(ABOUT, encoding="utf-8")
            for name, text in EMPTY.items():
                (draft / name).mkdir()
                (draft / name / "README.md").write_text(text, encoding="utf-8")
            if folder.exists():
                # It may be the folder that the caller stands in, so it is filled, not replaced.
                for child in draft.iterdir():
                    child.rename(folder / child.name)
            else:
                draft.rename(folder)
    except shutil.Error as fault:  # Its argument lists (source, target, reason).
        raise PemandError(f"cannot make {folder}: {fault.args[0][0][2]}") from fault
    except OSError as fault:
        raise PemandError(f"cannot make {folder}: {fault.strerror or fault}") from fault
