"""What the exports read: a run's folder, and the region that it was made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pemand_abm.errors import PemandError
from pemand_abm.matrices import read_skims
from pemand_abm.region import Region, inputs_sha256, read_recipe, read_region
from pemand_abm.report import Run, read_run
from pemand_abm.surrogate import PURPOSES

if TYPE_CHECKING:
    from geopandas import GeoDataFrame


@dataclass(frozen=True)
class Source:
    """A run as its folder gives it; what takes time is read when it is first asked for."""

    folder: Path
    run: Run
    given_region: Path | None = None

    @property
    def manifest(self) -> dict[str, Any]:
        """What `run.yaml` says."""
        return self.run.manifest

    @property
    def seed(self) -> int:
        return int(self.manifest.get("seed") or 0)

    @property
    def notes(self) -> list[str]:
        """Whose numbers the totals are, as the run says it."""
        return list(self.manifest.get("notes") or [])[:1]

    @property
    def zones(self) -> GeoDataFrame:
        """The map of the run by `zone_id`, ascending: polygons in EPSG:4326 and their columns."""
        return self.run.zones

    @property
    def households(self) -> pd.DataFrame:
        """By `household_id`; `home_zone_id` after the moves, `home_zone_id_before` before them."""
        return self.run.households

    @cached_property
    def persons(self) -> pd.DataFrame:
        """By `person_id`."""
        return self._table("persons.parquet")

    @cached_property
    def group_quarters(self) -> pd.Series:
        """Persons outside households by `zone_id`."""
        return self._table("group_quarters.parquet")["persons"]

    @property
    def purposes(self) -> list[str]:
        """The purposes of this run, which an older version may have made."""
        return [p for p in PURPOSES if p in self.run.decisions]

    @cached_property
    def trips(self) -> pd.DataFrame:
        """Person trips of each household's weekday by purpose, int64, by `household_id`."""
        days = self.run.decisions[self.run.decisions["kind"] == "trips"]
        return days.set_index("household_id")[self.purposes]

    @cached_property
    def productions(self) -> dict[str, np.ndarray]:
        """`trips.omx` by purpose: trips from production (row) to attraction zone, as `zones`."""
        cores = read_skims(self.folder / "trips.omx", self.zones.index)
        return {p: cores[p.upper()] for p in self.purposes}

    def flows(self) -> dict[str, np.ndarray]:
        """Return person trips from origin (row) to destination zone by purpose, for a weekday.

        Half of the home-based trips between two zones go each way; others begin where they are
        produced.
        """
        return {p: (pa + pa.T) / 2 if home_based(p) else pa for p, pa in self.productions.items()}

    @cached_property
    def region(self) -> Region:
        """The region, read anew; an error if its files are not those that the run was made of."""
        folder = self.given_region or Path(str(self.manifest.get("region_folder", "")))
        if not (folder / "recipe.yaml").is_file():
            told = (
                f"{folder}, which run.yaml names, is"
                if self.manifest.get("region_folder")
                else ("run.yaml does not say where the region is, and none is")
            )
            raise PemandError(
                f"{self.folder}: land use and skims are the region's, and {told} not there; "
                "name its folder with --region"
            )
        self._check_inputs(folder)
        return read_region(folder)

    def _check_inputs(self, folder: Path) -> None:
        known = self.manifest.get("inputs") or {}
        now = inputs_sha256(folder, read_recipe(folder))
        other = [name for name, digest in now.items() if known.get(f"region/{name}") != digest]
        if other:
            raise PemandError(
                f"{folder}: {', '.join(other)} changed since {self.folder} was made, or this is "
                "another region; run `pemand run` again, or name the right one with --region"
            )

    def _table(self, name: str) -> pd.DataFrame:
        path = self.folder / name
        try:
            return pd.read_parquet(path)
        except (OSError, ValueError) as fault:
            raise PemandError(
                f"{path}: cannot be read ({fault}); run `pemand run` again"
            ) from fault


def open_source(folder: Path, region: Path | None = None) -> Source:
    """Read a run's folder for export; a `PemandError` if it is not a whole run."""
    folder = Path(folder)
    return Source(folder, read_run(folder), region)


def home_based(purpose: str) -> bool:
    """Say whether one end of the purpose's trips is the home.

    >>> [home_based(p) for p in ("hbw", "nhb")]
    [True, False]
    """
    return purpose.startswith("hb")
