"""Build the wheel: `pemand_abm` with a copy of the first study in its data, `pemand_extension`.

So `pemand init` works from a wheel. Everything else stands in pyproject.toml.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PARTS = ("synthpop/sf25", "synthpop/rates", "scenarios")


class BuildWithStudy(build_py):
    """Copy the region, the rate tables and the scenarios into the built package."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return  # An editable install reads them from the repository.
        root, target = (
            Path(__file__).resolve().parent,
            Path(self.build_lib) / "pemand_abm" / "study",
        )
        for part in PARTS:
            shutil.rmtree(target / part, ignore_errors=True)
            shutil.copytree(
                root / part,
                target / part,
                ignore=shutil.ignore_patterns("__pycache__", "build*.py"),
            )


setup(cmdclass={"build_py": BuildWithStudy})
