"""The sentences of docs/design.md on who may import whom."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "pemand_abm"
LAYERS = [
    {"errors"},
    {"keys", "tables", "answers", "people", "ids", "settings"},
    {"dialogue", "prompting", "domains", "plans", "facts"},
    {"persona", "protocols"},
    {"models"},
    {
        "region",
        "matrices",
        "geography",
        "expressions",
        "balancing",
        "synthesis",
        "populationsim",
        "anchors",
        "anchoring",
        "liferates",
        "surrogate",
        "surveys",
    },
    {"talks", "agreements", "terms", "desk", "housing", "relocation", "lifecourse", "sample"},
    {
        "demand",
        "responses",
        "calibration",
        "levers",
        "lengths",
        "periods",
        "vehicles",
        "export",
        "exporters",
        "geopackage",
        "figures",
        "fit",
        "groups",
        "pages",
        "validation",
        "report",
        "report_tables",
        "comparison",
        "comparison_page",
        "spread",
        "transcript",
        "estimator",
        "effects",
    },
    {
        "scenario",
        "admission",
        "totals",
        "costs",
        "limits",
        "world",
        "study",
        "shards",
        "calibrating",
        "records",
        "forecast",
        "evaluation",
        "training",
    },
    {
        "init",
        "doctor",
        "cli_options",
        "cli_calibrate",
        "cli_compare",
        "cli_estimate",
        "cli_evaluate",
        "cli_export",
        "cli_train",
        "cli",
        "__main__",
    },
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
HEAVY = {
    "geopandas": {"geography"},
    "openmatrix": {"matrices"},
    "tables": {"matrices"},
    "plotly": {"figures"},
    "xllamacpp": {"models.llamacpp"},
    "httpx": {"models.openai"},
    "vllm": {"models.vllm"},
    "ray": {"models.cluster", "models.machines"},
    "torch": {"models.transformers", "models.dequantize", "models.vllm", "training.lora"},
    "transformers": {"models.transformers", "models.dequantize", "training.lora"},
    "peft": {"models.transformers", "training.lora"},
    "gguf": {"models.adapter"},
    "safetensors": {"models.adapter"},
    "matplotlib": {"training.sft"},
    "statsmodels": {"evaluation.baselines", "training.judge"},
    "sklearn": {"evaluation.baselines", "evaluation.travellers", "training.targets"},
}
MODULES = sorted(ROOT.rglob("*.py"))


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path):
    """Yield (module, is at the top of the file, only for type checking)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "pemand_abm":
                names = [f"pemand_abm.{alias.name}" for alias in node.names]
        for name in names:
            yield name, node in tree.body, node in typing_only


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down_only(path):
    own = name_of(path).split(".")[0]
    if own in ("", "__init__"):
        return
    for module, _, typing_only in imports(path):
        parts = module.split(".")
        if (
            parts[0] != "pemand_abm"
            or len(parts) < 2
            or typing_only
            or parts[1].startswith("__version")
        ):
            continue
        assert RANK[parts[1]] <= RANK[own], f"{own} imports {parts[1]} from above"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_heavy_libraries_stay_in_the_functions_of_their_module(path):
    for module, top, typing_only in imports(path):
        package = module.split(".")[0]
        if package in HEAVY and not typing_only:
            assert name_of(path) in HEAVY[package], f"{name_of(path)} imports {package}"
            assert not top, f"{name_of(path)} imports {package} at the top of the file"


def test_only_the_simulation_imports_simpy():
    users = {name_of(p) for p in MODULES if any(m == "simpy" for m, _, _ in imports(p))}
    assert users == {"desk", "housing", "world"}


def test_protocols_import_no_model_no_table_and_no_single_domain():
    for path in (ROOT / "protocols").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "pemand_abm.domains":
                assert [a.name for a in node.names] == ["Domain"]
        assert not {m.split(".")[0] for m, _, _ in imports(path)} & {"pandas", "numpy", "simpy"}


def test_only_models_report_doctor_and_cli_read_a_clock_or_the_environment():
    allowed = {"models", "report", "doctor", "cli", "cli_evaluate", "tables", "training"}
    for path in MODULES:
        own = name_of(path).split(".")[0]
        used = {m for m, _, typing_only in imports(path) if not typing_only} & {
            "time",
            "os",
            "datetime",
        }
        assert not used or own in allowed, f"{own} imports {used}"
