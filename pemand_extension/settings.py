"""The settings of both steps: `pemand.yaml` in one of ActivitySim's folders of configs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from activitysim.core.configuration.base import PydanticReadable
from pydantic import ConfigDict, model_validator

FILE = "pemand.yaml"


class PemandSettings(PydanticReadable):
    """What is taken from which run, and how its households are known."""

    model_config = ConfigDict(extra="forbid")

    run: Path
    """Folder of a finished run, relative to the folder of `pemand.yaml`."""

    household_id: Literal["household_id", "seed_id"] = "household_id"
    """Column of the run's households with ActivitySim's ids: `seed_id` of a given population."""

    not_in_run: Literal["refuse", "keep"] = "refuse"
    """Whether households that the run does not have stop ActivitySim, or stay as they are."""

    trip_columns: list[str] | None = None
    """Columns of `decisions.parquet` to join; trips, trips by purpose, and what was negotiated."""

    @model_validator(mode="after")
    def _run_is_seen_from_its_file(self) -> PemandSettings:
        beside = Path(self.source_file_paths[0]).parent if self.source_file_paths else Path()
        self.run = (beside / self.run).resolve()
        if not (self.run / "run.yaml").exists():
            raise ValueError(
                f"run: {self.run} is no finished run of pemand-abm (it has no run.yaml)"
            )
        return self
