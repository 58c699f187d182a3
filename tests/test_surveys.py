"""Survey readers: what a map says is read, what it does not say is no claim, faults come at once."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from pemand_abm.domains import DOMAINS
from pemand_abm.errors import PemandError, SettingsError, TableError
from pemand_abm.facts import households_of, known_maps, read_map
from pemand_abm.surveys import read_survey
from pemand_abm.surveys.importing import import_survey
from pemand_abm.surveys.maps import shipped
from pemand_abm.surveys.reading import _code

MAP = {
    "survey": "mine",
    "title": "My survey",
    "year": 2024,
    "source": "my code book",
    "target": "trips",
    "unit": "person trips of a weekday",
    "facts": "activitysim",
    "nonresponse": [-9],
    "households": {
        "files": "homes",
        "id": "hid",
        "columns": {
            "hhsize": {"from": "size"},
            "auto_ownership": {"from": "cars"},
            "tenure": {"from": "own", "codes": {1: "own", 2: "rent"}},
            "income": {"from": "inc", "missing": "median"},
            "home_zone_id": {"from": "zone"},
            "weight": {"from": "w"},
            "trips": {"from": "made"},
        },
    },
    "persons": {
        "files": "people",
        "id": ["hid", "no"],
        "household": "hid",
        "columns": {
            "PNUM": {"from": "no"},
            "age": {"from": "agegroup", "bands": {1: [0, 15], 2: [16, 64], 3: [65, 99]}},
            "sex": {"from": "sex"},
            "pemploy": {"from": "work", "codes": {1: 1, 2: 3}},
        },
    },
    "days": {"from": "dow", "weekdays": [1, 2, 3, 4]},
    "features": {"numeric": ["hhsize", "auto_ownership"], "categorical": ["tenure"]},
}
HOMES = """hid,size,cars,own,inc,zone,w,made,dow
007,2,1,1,50000,SF-Mission,1.5,7,01
10,1,0,2,-9,SF-Mission,2.0,2,05
33,1,2,-9,30000,20,1.0,4,02
"""
PEOPLE = """hid,no,agegroup,sex,work
007,1,2,1,1
007,2,1,2,-9
10,1,3,2,2
33,1,2,-9,1
"""


def written(folder, homes=HOMES, people=PEOPLE, **changes):
    (folder / "homes.csv").write_text(homes, encoding="utf-8")
    (folder / "people.csv").write_text(people, encoding="utf-8")
    path = folder / "map.yaml"
    path.write_text(yaml.safe_dump(MAP | changes), encoding="utf-8")
    return path


def test_a_planners_own_survey_is_read_through_its_map(tmp_path):
    survey = read_survey(written(tmp_path))
    homes = survey.households
    assert homes.index.tolist() == ["007", "10", "33"]
    assert homes["trips"].tolist() == [7, 2, 4]
    assert homes["weekday"].tolist() == [True, False, True]
    assert homes["children"].tolist() == [1, 0, 0]
    assert homes["home_zone_id"].tolist() == ["SF-Mission", "SF-Mission", "20"]
    assert survey.persons.loc["007-1", ["age", "age_to", "pemploy"]].tolist() == [16, 64, 1]


def test_a_code_of_non_response_is_no_claim(tmp_path):
    survey = read_survey(written(tmp_path))
    assert survey.households.loc["33", "tenure"] == ""
    # The median of 50,000 and 30,000 stands in, as the map asks, and is counted.
    assert survey.households.loc["10", "income"] == 40_000
    assert survey.dropped["what"].str.contains("income is not told").sum() == 1
    (home,) = households_of(survey.households, survey.persons, ["33"], 12, read_map(survey.facts))
    told = " ".join([*home.facts, *home.members[0].facts])
    assert "own" not in told and "rent" not in told and "male" not in told


def test_a_household_without_a_critical_answer_is_dropped_and_counted(tmp_path):
    survey = read_survey(written(tmp_path, homes=HOMES.replace("2.0,2,05", "2.0,-9,05")))
    assert survey.households.index.tolist() == ["007", "33"]
    assert "dropped: trips is not told" in set(survey.dropped["what"])
    assert set(survey.persons["household_id"]) == {"007", "33"}


def test_a_household_of_which_a_member_is_missing_is_dropped_and_counted(tmp_path):
    survey = read_survey(written(tmp_path, people=PEOPLE.replace("007,2,1,2,-9\n", "")))
    assert survey.households.index.tolist() == ["10", "33"]


def test_letter_case_and_file_type_do_not_matter(tmp_path):
    plain = read_survey(written(tmp_path))
    other = tmp_path / "parquet"
    other.mkdir()
    for name in ("homes", "people"):
        frame = pd.read_csv(tmp_path / f"{name}.csv", dtype=str)
        frame.rename(columns=str.upper).to_parquet(other / f"{name.upper()}.PARQUET")
    (other / "map.yaml").write_text(yaml.safe_dump(MAP), encoding="utf-8")
    shouted = read_survey(other / "map.yaml")
    columns = ["hhsize", "trips", "weight", "income", "tenure", "weekday"]
    pd.testing.assert_frame_equal(plain.households[columns], shouted.households[columns])


def test_ids_beyond_32_bits_and_text_ids_join(tmp_path):
    big = {"007": "90000000007", "10": "90000000010", "33": "90000000033"}
    homes, people = HOMES, PEOPLE
    for old, new in big.items():
        homes = homes.replace(f"\n{old},", f"\n{new},")
        people = people.replace(f"\n{old},", f"\n{new},")
    survey = read_survey(written(tmp_path, homes=homes, people=people))
    assert survey.households.index.dtype == "int64"
    assert survey.households.index.tolist() == [int(i) for i in big.values()]
    assert len(survey.persons) == 4


@pytest.mark.parametrize(
    ("homes", "people", "said"),
    [
        (HOMES.replace(",made", ",trips"), PEOPLE, "there is no column made"),
        (HOMES + "10,1,0,2,9,SF,2.0,2,05\n", PEOPLE, "come twice, first 10"),
        (HOMES.replace("1.0,4", "-1.0,4"), PEOPLE, "households.weight: 1 values are not"),
        (HOMES.replace("1.0,4", "1.0,4.5"), PEOPLE, "households.trips: 1 values are not"),
        ("hid,size\n", PEOPLE, "has no rows"),
        (HOMES.replace("cars", "size"), PEOPLE, "size stands there twice"),
    ],
)
def test_a_faulty_file_gives_one_error_that_names_the_mend(tmp_path, homes, people, said):
    with pytest.raises(TableError) as fault:
        read_survey(written(tmp_path, homes=homes, people=people))
    assert said in str(fault.value)


def test_all_faults_of_a_survey_come_at_once(tmp_path):
    homes = HOMES.replace("1.5,7", "-1,7").replace("2.0,2", "2.0,-3")
    with pytest.raises(TableError) as fault:
        read_survey(written(tmp_path, homes=homes))
    assert "households.weight" in str(fault.value) and "households.trips" in str(fault.value)


def test_a_misspelt_survey_key_or_facts_map_says_what_was_meant(tmp_path):
    with pytest.raises(SettingsError, match="did you mean 'nhts2017'"):
        read_survey("nhts2107")
    with pytest.raises(SettingsError, match="did you mean 'households'"):
        read_survey(written(tmp_path, hosueholds={}))
    with pytest.raises(SettingsError, match="did you mean 'activitysim'"):
        read_survey(written(tmp_path, facts="activtysim"))
    with pytest.raises(TableError, match=r"there is no people\.parquet or people\.csv"):
        path = written(tmp_path)
        (tmp_path / "people.csv").unlink()
        read_survey(path)


def test_what_is_predicted_is_no_feature(tmp_path):
    features = {"numeric": ["hhsize", "Made"], "categorical": []}
    with pytest.raises(SettingsError, match="'Made' is what is predicted"):
        read_survey(written(tmp_path, features=features))


def test_the_map_in_the_documentation_is_read(tmp_path):
    page = (Path(__file__).resolve().parents[1] / "docs" / "surveys.md").read_text(encoding="utf-8")
    block = page.partition("A whole map")[2].partition("```yaml\n")[2].partition("```")[0]
    homes = "\n".join(f"{x},{j}" for x, j in zip(HOMES.split(), ("jobs", 1, 0, 1), strict=True))
    path = written(tmp_path, homes=homes + "\n")
    path.write_text(block, encoding="utf-8")
    assert read_survey(path).households["trips"].tolist() == [7, 2, 4]


def test_an_imported_survey_is_the_same_when_read_again(tmp_path):
    first = import_survey(written(tmp_path), tmp_path / "out")
    again = read_survey(tmp_path / "out")
    pd.testing.assert_frame_equal(
        first.households.sort_index(axis=1), again.households.sort_index(axis=1), check_dtype=False
    )
    assert again.features == first.features and again.title == first.title
    assert (tmp_path / "out" / "dropped.csv").is_file()


def test_a_faulty_survey_leaves_nothing_half_imported(tmp_path):
    with pytest.raises(PemandError):
        import_survey(written(tmp_path, homes=HOMES.replace("1.5,7", "-1,7")), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*")) if (tmp_path / "out").exists() else True


@pytest.mark.parametrize(
    ("one", "other"), [("01", 1), (1.0, "1"), ("-9", -9), (" a ", "a"), ("7", 7.0)]
)
def test_codes_are_compared_by_what_they_say(one, other):
    assert _code(one) == _code(other)


@pytest.mark.parametrize("name", known_maps())
def test_no_translation_map_gives_the_decision_away(name):
    domains = ["trips", "relocation"] if name == "activitysim" else _domains(name)
    banned = {word for domain in domains for word in DOMAINS[domain].banned}
    for section in read_map(name).values():
        for rule in section.values():
            for sentence in [*rule.get("codes", {}).values(), rule.get("sentence", "")]:
                words = f" {sentence.lower().rstrip('.')} "
                assert not [w for w in banned if f" {w} " in words], sentence


def _domains(name):
    moves = name.startswith(("pums", "psid"))
    return ["relocation"] if moves else ["trips", "relocation"] if name == "psrc2014" else ["trips"]


@pytest.mark.parametrize("name", [n for n in shipped() if n.startswith("nhts")])
def test_the_nhts_cycles_are_read_with_their_published_means(name, shared_data):
    survey = read_survey(name, shared_data / "nhts")
    file = shared_data / "nhts" / f"{name}_household.parquet"
    raw = pd.read_parquet(file).rename(columns=str.lower).set_index("houseid")
    mean = {"nhts2001": 9.20, "nhts2017": 7.12, "nhts2022": 3.94}[name]  # data/README.md
    assert raw["cnttdhh"].mean() == pytest.approx(mean, abs=0.005)
    homes = survey.households
    assert (homes["trips"] == raw.loc[homes.index, "cnttdhh"]).all()
    assert len(raw) - len(homes) <= survey.dropped["rows"].sum()
    members = survey.persons.groupby("household_id").size().reindex(homes.index)
    assert (members == homes["hhsize"]).all()


def test_the_trips_of_2022s_persons_are_the_households(shared_data):
    survey = read_survey("nhts2022", shared_data / "nhts")
    old = survey.persons[survey.persons["age"] >= 5]
    made = old.groupby("household_id")["trips"].sum().reindex(survey.households.index)
    assert np.allclose(made, survey.households["trips"])


@pytest.mark.slow
def test_the_roster_of_2017_has_the_members_that_the_household_counts(shared_data):
    survey = read_survey("nhts2017", shared_data / "nhts")
    homes, persons = survey.households, survey.persons
    assert persons["inferred"].all()
    by_home = persons["household_id"]

    def counted(which):
        return which.groupby(by_home).sum().reindex(homes.index).astype(float)

    assert (counted(persons["age"] >= 18) == homes["numadlt"]).all()
    assert (counted(persons["age_to"] <= 4) == homes["youngchild"]).all()
    works = homes["num_workers"].clip(upper=homes["numadlt"])
    assert (counted(persons["pemploy"] == 1) == works).all()
    assert persons.loc[persons["PNUM"] == 1, "age"].min() >= 18  # The first answers for all.


def test_no_attitude_that_the_probes_ask_for_is_a_fact():
    held = {"price", "place", "walk2save", "bike2save", "ptrans", "health"}
    for section in read_map("nhts2017").values():
        assert not held & set(section)
