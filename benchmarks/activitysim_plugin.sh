#!/usr/bin/env bash
# ActivitySim 1.6.0 runs its 25-zone example with the two steps of pemand_extension.
#     bash benchmarks/activitysim_plugin.sh [FOLDER]
# ActivitySim is installed in an environment of its own (ASIM_ENV) where it is not there: two minutes.
# The rest took over ten minutes on two cores shared with 15 other processes; a run of ActivitySim
# like those here took 16 s while they were free. FOLDER (outputs/activitysim) is made anew: the example,
# its population given to pemand under its own ids, a run with the scripted model, and four runs of
# ActivitySim. Ends with 0 only if all that benchmarks/activitysim_plugin.py checks is so.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath -m "${1:-$root/outputs/activitysim}")
asim=$(realpath -m "${ASIM_ENV:-$root/outputs/activitysim_env}")
python=${PYTHON:-python}
export PYTHONPATH=$root OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

if [ ! -x "$asim/bin/activitysim" ]; then
    "$python" -m venv "$asim"
    "$asim/bin/python" -m pip install --quiet 'activitysim==1.6.0'
fi
# As a user does it: the wheel without its dependencies, since ActivitySim needs an older pandas.
mkdir -p "$out"
for made in wheel prototype_mtc region run scenario.yaml; do rm -rf "${out:?}/$made"; done
"$asim/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$out/wheel" "$root"
"$asim/bin/python" -m pip install --quiet --no-deps --force-reinstall "$out"/wheel/*.whl

"$asim/bin/activitysim" create -e prototype_mtc -d "$out" > "$out/create.log" 2>&1
"$python" "$root/benchmarks/activitysim_plugin.py" prepare "$out"
"$python" -m pemand_abm run "$out/scenario.yaml" --model scripted --out "$out/run"
"$python" "$root/benchmarks/activitysim_plugin.py" configure "$out"

unset PYTHONPATH  # The steps come from the installed wheel.
cd "$out/prototype_mtc"
run() { # NAME DATA...: a run of ActivitySim with the configs of that name
    name=$1; shift
    rm -rf "output_$name"; mkdir "output_$name"
    "$asim/bin/activitysim" run -e pemand_extension -c "configs_$name" -c configs "$@" \
        -o "output_$name" > "$out/$name.log" 2>&1
}
if run refuse -d data; then echo 'a population that the run does not have was not refused'; exit 1; fi
for name in after before; do
    run $name -d data || { tail -n 20 "$out/$name.log"; exit 1; }
done
run moved -d data_moved -d data || { tail -n 20 "$out/moved.log"; exit 1; }
cd - > /dev/null
PYTHONPATH=$root exec "$python" "$root/benchmarks/activitysim_plugin.py" check "$out"
