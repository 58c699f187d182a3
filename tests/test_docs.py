"""The documentation: every command, option, setting and file stands in it, and its commands run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from pemand_abm.cli import main
from pemand_abm.region import Recipe
from pemand_abm.scenario import Scenario

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_command_and_option_is_documented_and_helped(name):
    command = main.commands[name]
    page = text("commands.md")
    section = page.partition(f"## pemand {name}\n")[2].split("\n## ")[0]
    assert section, f"docs/commands.md lacks `## pemand {name}`"
    assert f"pemand {name}" in section.partition("```")[2], "an example is missing"
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert f"`{parameter.opts[0]}" in section, f"{name}: {parameter.opts[0]}"
        else:
            assert parameter.name.upper() in section


def keys(model: type[BaseModel], before: str = ""):
    for name, field in model.model_fields.items():
        inner = [
            t
            for t in (field.annotation, *getattr(field.annotation, "__args__", ()))
            if isinstance(t, type)
        ]
        models = [t for t in inner if issubclass(t, BaseModel)]
        if models:
            yield from keys(models[0], f"{before}{name}.")
        else:
            yield f"{before}{name}"


@pytest.mark.parametrize("key", sorted(keys(Scenario)))
def test_every_setting_of_a_scenario_is_documented(key):
    assert f"`{key}`" in text("scenario.md")


@pytest.mark.parametrize("key", sorted(keys(Recipe)))
def test_every_setting_of_a_recipe_is_documented(key):
    assert f"`{key}`" in text("region.md")


def test_every_link_in_the_documentation_leads_somewhere():
    for page in [ROOT / "README.md", *DOCS.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not target.startswith(("http:", "https:", "mailto:")):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_makefile_lists_its_targets():
    listed = subprocess.run(["make", "-s", "-C", str(ROOT)], capture_output=True, text=True).stdout
    targets = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.M)[0].split()
    assert all(f"make {t}" in listed for t in targets)


def console_blocks(page: Path):
    for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S):
        for line in block.splitlines():
            if line.startswith("$ pemand "):
                yield line[2:]


@pytest.mark.parametrize("command", sorted(set(console_blocks(ROOT / "README.md"))))
def test_the_readmes_commands_are_commands_that_are_there(command):
    _, name, *arguments = shlex.split(command)
    context = main.commands[name].make_context(name, arguments, resilient_parsing=False)
    assert context.params


def test_help_runs_in_a_new_process_without_heavy_libraries():
    code = (
        "import sys; from click.testing import CliRunner; from pemand_abm.cli import main;"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0;"
        "print([m for m in ('pandas', 'geopandas', 'plotly', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
