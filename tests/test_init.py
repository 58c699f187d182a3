"""A new study, from the repository and from the built wheel outside of it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from pemand_abm.cli import main

ROOT = Path(__file__).resolve().parents[1]


def init(folder, code=0):
    result = CliRunner().invoke(main, ["init", str(folder)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def test_a_new_study_has_the_four_folders_and_its_scenario_finds_its_region(tmp_path):
    folder = tmp_path / "my-region"
    init(folder)
    assert {p.name for p in folder.iterdir()} == {
        "README.md",
        "synthpop",
        "scenarios",
        "training",
        "outputs",
    }
    scenario = yaml.safe_load((folder / "scenarios" / "baseline.yaml").read_text())
    assert (folder / "scenarios" / scenario["region"] / "recipe.yaml").is_file()
    assert (folder / "scenarios" / scenario["rates"] / "trips.csv").is_file()


def test_a_folder_with_files_is_refused_and_left_as_it_was(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert "not empty" in init(tmp_path / "mine", code=1)
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_the_folder_that_one_stands_in_can_become_a_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    init(".")
    assert {p.name for p in tmp_path.iterdir()} == {
        "README.md",
        "synthpop",
        "scenarios",
        "training",
        "outputs",
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel as setuptools builds it, offline, with the environment's own setuptools."""
    pytest.importorskip(
        "setuptools", minversion="77", reason="the build backend is not installed here"
    )
    folder = tmp_path_factory.mktemp("wheel")
    code = (
        "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    )
    source = folder / "source"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(source)], check=True)
    for part in (
        "pemand_abm",
        "synthpop",
        "scenarios",
        "setup.py",
        "pyproject.toml",
        "MANIFEST.in",
    ):
        subprocess.run(["cp", "-r", str(ROOT / part), str(source)], check=True)
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=source, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / done.stdout.strip().splitlines()[-1]


def test_the_wheel_holds_the_two_packages_alone_with_the_study_in_it(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert {n.split("/")[0] for n in names if ".dist-info/" not in n} == {
        "pemand_abm",
        "pemand_extension",
    }
    for part in (
        "synthpop/sf25/recipe.yaml",
        "synthpop/rates/trips.csv",
        "scenarios/baseline.yaml",
    ):
        assert f"pemand_abm/study/{part}" in names
    assert any(n.endswith("prompts/pemand/proposal.md") for n in names)
    assert any(n.endswith("templates/report.html.j2") for n in names)
    assert any(n.endswith("adapters/embedded/adapter_model.safetensors") for n in names)


def test_a_study_made_from_the_wheel_runs_outside_the_repository(wheel, tmp_path):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(site)
    # The wheel's package goes first on the path, and the work is done far from the repository.
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if p != '']; sys.path.insert(0, sys.argv.pop(1));"
        "import pemand_abm; assert 'site' in pemand_abm.__file__, pemand_abm.__file__;"
        "from pemand_abm.cli import main; main(sys.argv[1:])"
    )

    def pemand(*arguments, cwd):
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        command = [sys.executable, "-c", code, str(site), *arguments]
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)

    made = pemand("init", "my-region", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    done = pemand(
        "run", "scenarios/baseline.yaml", "--model", "scripted", cwd=tmp_path / "my-region"
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "my-region" / "outputs" / "baseline" / "report.html").is_file()
