"""What benchmarks/activitysim_plugin.sh needs besides commands: files before, checks after.

    python benchmarks/activitysim_plugin.py prepare|configure|check FOLDER

The example's households keep their ids on the way through pemand (a given population) and back.
"""

import sys
from pathlib import Path

import pandas as pd
import yaml

ROOT = Path(__file__).resolve().parents[1]
REGION = ROOT / "synthpop" / "sf25"
sys.path.insert(0, str(REGION))
from build import RELATE, TENURE  # noqa: E402

FIRST = ["initialize_landuse", "initialize_households"]
THEN = ["compute_accessibility", "school_location", "write_tables"]  # both use the home zone
RELOCATION, TARGETS = "pemand_relocation", "pemand_trip_targets"
MODELS_OF = {
    "moved": [*FIRST, *THEN],  # reads households.csv with the zones after the moves
    "after": [*FIRST, RELOCATION, TARGETS, *THEN],
    "before": [FIRST[0], RELOCATION, FIRST[1], TARGETS, THEN[-1]],
    "refuse": [*FIRST, RELOCATION, THEN[-1]],
}
ZONE = "land_use.zone_id"


def prepare(folder: Path) -> None:
    """Write the example's population as a region of pemand, and a scenario."""
    households = pd.read_csv(folder / "prototype_mtc" / "data" / "households.csv")
    persons = pd.read_csv(folder / "prototype_mtc" / "data" / "persons.csv")
    homes = households[households["UNITTYPE"] == 0].set_index("HHID")  # no group quarters
    people = persons[persons["household_id"].isin(homes.index)].set_index("household_id")
    homes = homes.assign(
        tenure=homes["TENURE"].map(TENURE),
        age_of_head=people.loc[people["RELATE"] == 1, "age"],
        children=(people["age"] < 18).groupby(level=0).sum(),
    )
    people = people.assign(relate=people["RELATE"].map(RELATE))
    kept = ["TAZ", "PERSONS", "workers", "VEHICL", "income", "HHT", "tenure", "age_of_head"]
    region = folder / "region"
    region.mkdir()
    homes[[*kept, "children"]].rename_axis("household_id").to_csv(region / "households.csv")
    codes = ["PNUM", "age", "sex", "pemploy", "pstudent", "ptype", "relate"]
    people[codes].to_csv(region / "persons.csv")

    recipe = yaml.safe_load((REGION / "recipe.yaml").read_text(encoding="utf-8"))
    for key in ("seed", "geographies", "crosswalk", "totals", "controls", "household_total"):
        del recipe[key]
    recipe["zones"]["file"] = str(REGION / recipe["zones"]["file"])
    recipe["skims"]["file"] = str(REGION / recipe["skims"]["file"])
    recipe["land_use"] = str(REGION / recipe["land_use"])
    recipe["group_quarters"] = str(REGION / recipe["group_quarters"])
    recipe["title"] = "ActivitySim's example population"
    recipe["population"] = {
        "households": "households.csv",
        "persons": "persons.csv",
        "zone": "TAZ",
        "columns": {"hhsize": "PERSONS", "num_workers": "workers", "auto_ownership": "VEHICL"},
    }
    (region / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    scenario = {
        "title": "ActivitySim's example population",
        "region": "region",
        "rates": str(ROOT / "synthpop" / "rates"),
        "model": "scripted",
        "negotiate": {"trips": 24, "relocation": 8},
    }
    (folder / "scenario.yaml").write_text(yaml.safe_dump(scenario, sort_keys=False))


def configure(folder: Path) -> None:
    """Write ActivitySim's settings of four runs, and the example's households after the moves."""
    example = folder / "prototype_mtc"
    for name, models in MODELS_OF.items():
        decoded = {"home_zone_id": ZONE}
        tables = [{"tablename": t, "decode_columns": decoded} for t in ("households", "persons")]
        settings = {
            "inherit_settings": True,
            "households_sample_size": 0,
            "models": models,
            "output_tables": {"action": "include", "prefix": "final_", "tables": tables},
        }
        configs = example / f"configs_{name}"
        configs.mkdir()
        (configs / "settings.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
        pemand = {"run": "../../run", "household_id": "seed_id", "not_in_run": "keep"}
        if name == "refuse":
            del pemand["not_in_run"]
        (configs / "pemand.yaml").write_text(yaml.safe_dump(pemand, sort_keys=False))
    households = pd.read_csv(example / "data" / "households.csv")
    after = households["HHID"].map(ours(folder)["home_zone_id"]).fillna(households["TAZ"])
    (example / "data_moved").mkdir()
    households.assign(TAZ=after.astype("int64")).to_csv(
        example / "data_moved" / "households.csv", index=False
    )


def ours(folder: Path) -> pd.DataFrame:
    """Return the run's households under ActivitySim's ids, with their trips of the weekday."""
    homes = pd.read_parquet(folder / "run" / "households.parquet")
    decisions = pd.read_parquet(folder / "run" / "decisions.parquet").reset_index()
    trips = decisions[decisions["kind"] == "trips"].set_index("household_id")
    return homes.join(trips).set_index("seed_id")


def final(folder: Path, name: str, table: str) -> pd.DataFrame:
    """Return a table that a run of ActivitySim left."""
    file = folder / "prototype_mtc" / f"output_{name}" / f"final_{table}.csv"
    return pd.read_csv(file, index_col=f"{table[:-1]}_id").sort_index()


def check(folder: Path) -> int:
    """Print what the runs found; return 1 if anything is not as it must be."""
    run, given = ours(folder), final(folder, "after", "households")
    data = folder / "prototype_mtc" / "data" / "households.csv"
    before = pd.read_csv(data, index_col="HHID").sort_index()["TAZ"]
    changed = given["home_zone_id"] != before
    theirs = given.loc[run.index]
    purposes = [c for c in given if c.startswith("pemand_trips_") and c[-10:] != "negotiated"]
    print(f"final_households.csv: {', '.join(c for c in given if c.startswith('pemand_'))}")
    print(theirs.loc[changed, ["home_zone_id", *given.filter(like="pemand_")]].head().to_string())
    print(f"{changed.sum():,} of {len(given):,} households live in another zone (home_zone_id)")
    print(
        f"{theirs['pemand_trips'].sum():,.0f} trips a weekday, {len(run):,} households of the run"
    )
    log = (folder / "after.log").read_text(encoding="utf-8").splitlines()
    print(*(line for line in log if "INFO: pemand_" in line), sep="\n")
    refusal = (folder / "refuse.log").read_text(encoding="utf-8")
    line = next((s for s in refusal.splitlines() if s.startswith("pemand_extension.runs.Run")), "")
    print(line)
    tests = {
        "some home_zone_id changed, and some households moved": changed.any()
        and run["home_zone_id"].ne(run["home_zone_id_before"]).any(),
        "every home_zone_id is the run's": (theirs["home_zone_id"] == run["home_zone_id"]).all(),
        "households that are not in the run stayed": not changed.drop(run.index).any(),
        "pemand_trips are the run's": (theirs["pemand_trips"] == run["value"]).all(),
        "the trips by purpose sum to them": len(purposes) > 1
        and (theirs[purposes].sum(axis=1) == theirs["pemand_trips"]).all(),
        "as many negotiated as in the run": theirs["pemand_trips_negotiated"].count()
        == run["negotiated"].count()
        > 0,
        "unknown households are refused by name": "573 of 5,000 households" in line,
    }
    for table in ("households", "persons"):
        moved = final(folder, "moved", table)
        for name in ("after", "before"):
            found = final(folder, name, table)
            shared = [c for c in found if not c.startswith("pemand_")]
            tests[f"{table} with the step {name} are those of an input that has moved"] = len(
                shared
            ) > 20 and found[shared].equals(moved[shared])
    for told, holds in tests.items():
        print(f"{'yes' if holds else 'NO ':3}  {told}")
    return 0 if all(tests.values()) else 1


if __name__ == "__main__":
    verb, out = sys.argv[1:]
    act = {"prepare": prepare, "configure": configure, "check": check}[verb]
    sys.exit(act(Path(out).resolve()))
