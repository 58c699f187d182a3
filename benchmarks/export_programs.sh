#!/usr/bin/env bash
# Open the exports of a run with the programs that they are made for: ActivitySim's input checks and first
# steps, UrbanSim's relocation model, MATSim's Python tools, and gmnspy. Two environments are made in the
# folder FOLDER (some 2 GB; minutes), since they ask for other versions of pandas.
#
#   bash benchmarks/export_programs.sh [FOLDER]      # FOLDER is build/programs by default
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/programs}
python=${PYTHON:-.venv/bin/python}
[ -d "$folder/activitysim" ] || { "$python" -m venv "$folder/activitysim"
  "$folder/activitysim/bin/pip" install --quiet activitysim==1.6.0; }
[ -d "$folder/others" ] || { "$python" -m venv "$folder/others"
  "$folder/others/bin/pip" install --quiet 'pandas<3' urbansim==3.3 matsim-tools==0.0.22 gmnspy==0.3.5; }
ACTIVITYSIM_PYTHON=$PWD/$folder/activitysim/bin/python PROGRAMS_PYTHON=$PWD/$folder/others/bin/python \
  "$python" -m pytest -m programs -v tests/test_exporters_programs.py
