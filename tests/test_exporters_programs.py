"""The exports, opened by the programs that they are made for, each in an environment of its own.

`benchmarks/export_programs.sh` makes the two environments and runs this page. ActivitySim 1.6.0, UrbanSim
3.3, matsim-tools 0.0.22 and gmnspy 0.3.5 ask for versions of pandas that pemand cannot share.
"""

import os
import subprocess
from pathlib import Path

import pandas as pd
import pytest
import yaml
from test_run import pemand, run

from pemand_abm.exporters.source import open_source

ROOT = Path(__file__).resolve().parents[1]
pytestmark = [pytest.mark.programs, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def sf25(tmp_path_factory):
    out = tmp_path_factory.mktemp("programs") / "run"
    run(ROOT / "scenarios" / "baseline.yaml", out, "--model", "scripted")
    pemand("export", out, "--to", "all")
    return out


def python(variable: str) -> str:
    """Return the Python that an environment variable names, or skip."""
    if variable not in os.environ:
        pytest.skip(f"{variable} names no Python; see benchmarks/export_programs.sh")
    return os.environ[variable]


def told(variable: str, code: str, *arguments: Path) -> str:
    command = [python(variable), "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


ACTIVITYSIM = """
import pathlib, sys, yaml, activitysim
from activitysim.cli.main import main
export, work = map(pathlib.Path, sys.argv[1:])
examples = pathlib.Path(activitysim.__file__).parent / "examples"
for name in ("configs", "output"):
    (work / name).mkdir(parents=True)
steps = ["input_checker", "initialize_landuse", "initialize_households", "write_tables"]
tables = {"action": "include", "prefix": "final_", "tables": ["households", "persons", "land_use"]}
(work / "configs" / "settings.yaml").write_text(
    yaml.safe_dump({"inherit_settings": True, "models": steps, "output_tables": tables})
)
checked = {"households": "Household", "persons": "Person", "land_use": "Landuse"}
checks = [
    {"name": n, "is_activitysim_input": True, "validation": {"method": "pandera", "class": c}}
    for n, c in checked.items()
]
(work / "configs" / "input_checker.yaml").write_text(
    yaml.safe_dump({"input_checker_code": "input_checks.py", "table_list": checks})
)
sys.argv = [
    "activitysim", "run", "-c", work / "configs", "-c", export / "configs",
    "-c", examples / "prototype_mtc" / "configs", "-d", export / "data",
    "--data_model", examples / "prototype_mtc_extended" / "data_model", "-o", work / "output",
]
sys.argv = [str(a) for a in sys.argv]
main()
"""


def test_activitysim_checks_and_initializes_the_households(sf25, tmp_path):
    told("ACTIVITYSIM_PYTHON", ACTIVITYSIM, sf25 / "export" / "activitysim", tmp_path)
    log = (tmp_path / "output" / "input_checker.log").read_text(errors="replace")
    for table in ("households", "persons", "land_use"):
        assert "Encountered 0 errors and " in log.split(f" in table {table}")[0].splitlines()[-1]
    final = pd.read_csv(tmp_path / "output" / "final_households.csv")
    manifest = yaml.safe_load((sf25 / "run.yaml").read_text())
    assert len(final) == manifest["counts"]["households"]


SKIMS = """
import pathlib, sys, tempfile, activitysim, numpy, openmatrix, pandas
from activitysim.core import los, workflow
export = pathlib.Path(sys.argv[1])
examples = pathlib.Path(activitysim.__file__).parent / "examples"
state = workflow.State.make_default(
    configs_dir=(str(export / "configs"), str(examples / "prototype_mtc" / "configs")),
    data_dir=(str(export / "data"),), output_dir=tempfile.mkdtemp(),
)
network = los.Network_LOS(state)
network.load_data()
zones = pandas.read_csv(export / "data" / "land_use.csv")["zone_id"].to_numpy()
read = network.get_default_skim_dict()
with openmatrix.open_file(str(export / "data" / "skims.omx")) as file:
    own = numpy.array(file["SOV_TIME__AM"])
origin, destination = numpy.indices(own.shape)
both = read.wrap_3d("o", "d", "t")
table = pandas.DataFrame({"o": zones[origin.ravel()], "d": zones[destination.ravel()], "t": "AM"})
both.set_df(table)
assert numpy.allclose(numpy.asarray(both["SOV_TIME"]), own.ravel(), rtol=1e-6)
print("same", own.size)
"""


def test_activitysim_looks_up_the_skims_that_the_region_has(sf25):
    assert "same 625" in told("ACTIVITYSIM_PYTHON", SKIMS, sf25 / "export" / "activitysim")


URBANSIM = """
import sys, numpy, pandas
from urbansim.models.relocation import RelocationModel
folder = sys.argv[1]
households = pandas.read_csv(folder + "/households.csv", index_col="household_id")
rates = pandas.read_csv(folder + "/household_relocation_rates_annual.csv")
numpy.random.seed(1)
print(len(RelocationModel(rates).find_movers(households)))
"""


def test_urbansims_relocation_model_moves_as_many_as_the_census_rates_ask_for(sf25):
    movers = int(told("PROGRAMS_PYTHON", URBANSIM, sf25 / "export" / "urbansim").split()[-1])
    wanted = pd.read_csv(sf25 / "moves_calibration.csv")["wanted"].sum()
    # The draws of 48,743 households have a standard deviation of some 80.
    assert movers == pytest.approx(wanted, abs=400)


MATSIM = """
import sys, matsim
persons = legs = 0
for person, plan in matsim.plan_reader(sys.argv[1], selected_plans_only=True):
    persons += 1
    legs += sum(part.tag == "leg" for part in plan)
print(persons, legs)
"""


def test_matsims_python_tools_read_every_plan(sf25):
    folder = sf25 / "export" / "matsim"
    persons, legs = map(int, told("PROGRAMS_PYTHON", MATSIM, folder / "population.xml.gz").split())
    assert persons == len(open_source(sf25).persons)
    assert legs == pd.read_csv(folder / "legs.csv").set_index("purpose").loc["all", "legs"]


GMNS = """
import pathlib, sys, gmnspy
from gmnspy.in_out import read_gmns_csv
spec = pathlib.Path(gmnspy.__file__).parent / "spec" / "zone.schema.json"
print(len(read_gmns_csv(sys.argv[1], validate=True, schema_file=str(spec))))
"""


def test_gmnspy_validates_the_zones(sf25):
    assert told("PROGRAMS_PYTHON", GMNS, sf25 / "export" / "gmns" / "zone.csv").split()[-1] == "25"
