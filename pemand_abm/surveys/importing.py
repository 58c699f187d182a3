"""A planner's own survey: read through its map once, and kept as two checked tables."""

from __future__ import annotations

from pathlib import Path

import yaml

from pemand_abm.errors import PemandError
from pemand_abm.surveys import Survey, read_survey
from pemand_abm.tables import staging, write_csv, write_parquet, write_text

OWN = ("household_id", "inferred", "weekday")  # What reading adds is not read again.


def import_survey(survey_map: Path, out: Path, data: Path | None = None) -> Survey:
    """Read a survey through a planner's map and write it as `write_survey` does.

    Raises PemandError where *out* is the folder of the map or of the files, which it would replace.
    """
    read_from = {survey_map.parent.resolve(), *([data.resolve()] if data else [])}
    if out.resolve() in read_from:
        raise PemandError(f"--out {out}: the survey's own files lie there; name another folder")
    survey = read_survey(survey_map, data)
    write_survey(survey, out, survey_map.name)
    return survey


def write_survey(survey: Survey, out: Path, source: str) -> None:
    """Write a survey as a folder that can be read again: `pemand evaluate --survey FOLDER`.

    The folder holds `households.parquet`, `persons.parquet`, `dropped.csv` and `survey.yaml`, a map
    of itself. *source* says where it came from.
    """
    with staging(out, last="survey.yaml") as place:
        write_parquet(survey.households, place / "households.parquet")
        write_parquet(survey.persons, place / "persons.parquet")
        write_csv(survey.dropped.rename_axis("row"), place / "dropped.csv")
        text = yaml.safe_dump(_own_map(survey, source), sort_keys=False, allow_unicode=True)
        write_text(text, place / "survey.yaml")


def _own_map(survey: Survey, source: str) -> dict:
    """Return the map of the folder that is written."""
    as_is = {
        "households": [c for c in survey.households if c not in OWN],
        "persons": [c for c in survey.persons if c not in OWN],
    }
    columns = {
        name: {c: {"from": c, "missing": "keep"} for c in held} for name, held in as_is.items()
    }
    return {
        "survey": survey.name,
        "title": survey.title,
        "year": survey.year,
        "source": f"imported by pemand import-survey from {source}",
        "target": survey.target,
        "unit": survey.unit,
        "facts": survey.facts,
        "households": {
            "files": ["households"],
            "id": ["household_id"],
            "columns": columns["households"],
        },
        "persons": {
            "files": ["persons"],
            "id": ["person_id"],
            "household": "household_id",
            "columns": columns["persons"],
        },
        "features": {
            "numeric": list(survey.features.numeric),
            "categorical": list(survey.features.categorical),
            "persons": list(survey.features.persons),
        },
    }
