"""The documentation: every command, option, setting and file stands in it, and its commands run."""

import json
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import click
import openmatrix
import pandas as pd
import pyogrio
import pytest
import yaml
from click.testing import CliRunner
from pydantic import BaseModel
from test_run import write_study

from pemand_abm.cli import main
from pemand_abm.region import Recipe
from pemand_abm.scenario import Scenario
from pemand_abm.transcript import OUTCOMES

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
            assert (parameter.metavar or parameter.name.upper()) in section


def test_every_option_of_a_command_below_another_is_documented_and_helped():
    for name, group in main.commands.items():
        section = text("commands.md").partition(f"## pemand {name}\n")[2].split("\n## ")[0]
        for inner, command in getattr(group, "commands", {}).items():
            own = section.partition(f"### pemand {name} {inner}\n")[2].split("\n### ")[0]
            assert f"$ pemand {name} {inner}" in own, f"{name} {inner}"
            assert command.help, inner
            for parameter in command.params:
                said = parameter.opts[0]
                said = said if isinstance(parameter, click.Option) else said.upper()
                assert f"`{said}`" in section, f"{name} {inner}: {said}"


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


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Return the folders of a run, of one of two years with text ids, and of a population; and what the first printed."""
    folder = tmp_path_factory.mktemp("docs")
    printed = []
    for name, ids in (("plain", (10, 20, 35)), ("text", ("SF-Mission", "SF-Castro", "A"))):
        (folder / name).mkdir()
        asked = {"trips": 4, "relocation": 2}
        if name == "text":
            asked |= {"terms": 2, "shared_trip": 2}
        years = 2 if name == "text" else 1
        scenario = write_study(folder / name, ids, negotiate=asked, years=years)
        arguments = ["run", str(scenario), "--out", str(folder / name / "out")]
        result = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        printed.append(result.stdout)
    arguments = [
        "synthesize",
        str(folder / "plain" / "region"),
        "--out",
        str(folder / "population"),
    ]
    assert CliRunner().invoke(main, arguments, catch_exceptions=False).exit_code == 0
    return folder / "plain" / "out", folder / "text" / "out", folder / "population", printed[0]


def section(name: str) -> str:
    """Return the sections of docs/files.md whose heading names a file."""
    parts = text("files.md").split("\n## ")[1:]
    found = [p for p in parts if re.search(rf"(^|[ ,]){re.escape(name)}\b", p.splitlines()[0])]
    assert found, f"docs/files.md has no section on {name}"
    return "\n".join(found)


def columns(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        table = pd.read_parquet(path)
        return [*(name for name in table.index.names if name), *table.columns]
    if path.suffix == ".gpkg":
        return [c for c in pyogrio.read_dataframe(path, layer="zones").columns if c != "geometry"]
    if path.suffix == ".csv":
        return list(pd.read_csv(path, nrows=0).columns)
    if path.suffix == ".omx":
        with openmatrix.open_file(str(path)) as file:
            return [*file.list_matrices(), *file.list_mappings()]
    if path.suffix == ".jsonl":
        talks = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        inner = [part for talk in talks for part in (*talk["members"], *talk["turns"])]
        return sorted({key for part in (*talks, *inner) for key in part})
    if path.suffix == ".yaml":
        return list(yaml.safe_load(path.read_text(encoding="utf-8")))
    if path.suffix == ".sqlite":
        with closing(sqlite3.connect(path)) as file:
            return [row[1] for row in file.execute("PRAGMA table_info(replies)")]
    return []


@pytest.mark.parametrize("which", [0, 1], ids=["whole numbers as ids", "text ids"])
def test_every_file_and_column_of_a_run_is_documented(outputs, which):
    for path in sorted(outputs[which].iterdir()):
        if path.suffix in (".sqlite-wal", ".sqlite-shm"):
            continue
        told = section(path.name)
        # The map has the columns of demand.csv, and says so.
        told += section("demand.csv") if path.suffix == ".gpkg" else ""
        lacking = [c for c in columns(path) if f"`{c}`" not in told]
        assert not lacking, f"{path.name}: {lacking}"


def test_every_file_and_column_of_a_population_is_documented(outputs):
    told = text("files.md").partition("## A population's folder")[2]
    for path in sorted(outputs[2].iterdir()):
        assert f"`{path.name}`" in told
    assert all(f"`{c}`" in told for c in columns(outputs[2] / "fit.csv"))


def test_no_column_is_documented_that_a_run_does_not_have(outputs):
    for path in sorted(outputs[1].glob("*.parquet")) + sorted(outputs[1].glob("*.csv")):
        rows = re.findall(r"^\| (`[^|]*`) \|", section(path.name), flags=re.M)
        told = {name for row in rows for name in re.findall(r"`([^`]*)`", row)}
        assert told <= set(columns(path)), path.name


def test_every_kind_of_event_and_outcome_is_documented(outputs):
    events = pd.read_parquet(outputs[1] / "events.parquet")
    assert all(f"`{kind}`" in section("events.parquet") for kind in events["kind"].unique())
    told = section("decisions.parquet") + section("transcripts.jsonl")
    assert all(f"`{outcome}`" in told for outcome in OUTCOMES)


def shape(line: str) -> str:
    """Return a line of output without numbers, folders, and the pace, which not all models have."""
    line = re.sub(r", [\d.]+ calls a minute", "", line)
    line = re.sub(r"\S*/(?=report\.html)", "", line.strip())
    return re.sub(r"\d[\d,]*(\.\d+)?", "#", line)


def test_the_readme_shows_what_the_command_prints(outputs):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.partition("$ pemand run scenarios/baseline.yaml\n")[2].partition("```")[0]
    assert [shape(line) for line in block.splitlines()] == [
        shape(line) for line in outputs[3].splitlines()
    ]


def test_every_default_of_a_scenario_stands_in_its_documentation():
    for key, default in defaults(Scenario):
        row = next(r for r in text("scenario.md").splitlines() if r.startswith(f"| `{key}` |"))
        told = row.split(" | ")[2].strip("` ")
        assert told == str(default).lower() or told == str(default), f"{key}: {told}, not {default}"


def defaults(model: type[BaseModel], before: str = ""):
    """Give the settings whose default is a plain value."""
    for name, field in model.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from defaults(type(field.default), f"{before}{name}.")
        elif isinstance(field.default, (bool, int, float, str)):
            yield f"{before}{name}", field.default


def test_every_page_is_in_the_navigation_and_in_the_index():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in DOCS.glob("*.md"):
        assert page.name in navigation, page.name
        assert page.name == "index.md" or f"({page.name})" in text("index.md"), page.name


def test_anchors_of_links_are_headings():
    for page in DOCS.glob("*.md"):
        for target, anchor in re.findall(r"\]\(([^):#]*)#([^)]+)\)", text(page.name)):
            headings = re.findall(r"^#+ (.*)$", text(target or page.name), flags=re.M)
            slugs = {re.sub(r"[^\w\s-]", "", h).strip().lower().replace(" ", "-") for h in headings}
            assert anchor in slugs, f"{page.name}: {target}#{anchor}"
