"""Movers' surveys: the census samples give the census rates, and PSID reads by its variables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pemand_abm.anchoring import SOURCES, compute_anchors
from pemand_abm.anchors import AGE_BANDS, AGE_EDGES, shipped_anchors
from pemand_abm.errors import PemandError
from pemand_abm.facts import read_map as read_facts
from pemand_abm.facts import translate
from pemand_abm.surveys import read_survey

RATES = Path(__file__).parents[1] / "synthpop" / "rates"
DATA = Path(__file__).parents[2] / "shared" / "data"
with_surveys = pytest.mark.skipif(not DATA.exists(), reason=f"the survey files are not at {DATA}")

AFTER = {"ten", "tenure", "rntp", "valp", "np", "hhsize", "mv", "bdsp", "rmsp", "bld", "veh"}
AFTER |= {"auto_ownership", "val", "bds", "rms", "grpip", "ocpip", "jwtrns", "jwtr", "jwmnp"}
AFTER |= {"mig", "migsp", "migpuma", "yrblt", "ybl", "er82032", "er82141"}


@pytest.fixture(scope="module")
def acs2024():
    return read_survey("pums2024", DATA / "pums")


@pytest.fixture(scope="module")
def acs2010():
    return read_survey("pums2010", DATA / "calm")


# --- census samples -----------------------------------------------------------------------------


@with_surveys
def test_census_movers_of_2024_are_those_of_the_shipped_rates(acs2024):
    homes = acs2024.households
    homes = homes[homes["state"].astype(str).str.zfill(2).isin(["26", "53"])]
    band = pd.cut(homes["age_of_head"], [*AGE_EDGES, 200], right=False, labels=AGE_BANDS)
    rates = pd.read_csv(RATES / "moves.csv").query("children == 'all'")
    for row in rates.itertuples():
        some = homes[homes["tenure"].eq(row.tenure) & band.eq(row.age_band)]
        assert len(some) == row.n
        assert np.average(some["moved"], weights=some["weight"]) == pytest.approx(
            row.rate, abs=1e-6
        )


@with_surveys
def test_census_households_are_occupied_and_have_all_their_persons(acs2024):
    homes, people = acs2024.households, acs2024.persons
    assert len(homes) == 42534 + 17974 + 32451  # TEN filled in h_26, h_41, h_53
    count = people.groupby("household_id").size()
    assert count.reindex(homes.index).eq(homes["hhsize"]).all()
    assert set(people["household_id"]) == set(homes.index)
    assert acs2024.target == "moved"
    assert set(homes["moved"]) == {0, 1}


@with_surveys
def test_a_household_that_stands_twice_in_calms_seed_counts_once(acs2010):
    raw = pd.read_csv(DATA / "calm/seed_households.csv", usecols=["SERIALNO", "WGTP"])
    weighted = raw[raw["WGTP"] > 0]["SERIALNO"].nunique()
    assert len(acs2010.households) == weighted == 4212
    assert acs2010.persons.groupby(["household_id", "PNUM"]).size().max() == 1
    assert acs2010.dropped["rows"].ge(628).any()


@with_surveys
def test_calms_movers_lived_elsewhere_a_year_before(acs2010):
    people = pd.read_csv(
        DATA / "calm/seed_persons.csv", usecols=["SERIALNO", "SPORDER", "MIG"], low_memory=False
    )
    heads = people[people["SPORDER"].eq(1)].drop_duplicates("SERIALNO").set_index("SERIALNO")["MIG"]
    moved = acs2010.households["moved"]
    assert heads.reindex(moved.index).isin([2, 3]).astype(int).eq(moved).all()


@with_surveys
@pytest.mark.parametrize("name", ["acs2024", "acs2010"])
def test_what_a_move_changes_is_neither_a_feature_nor_a_fact(name, request):
    survey = request.getfixturevalue(name)
    features = survey.features
    used = {*features.numeric, *features.categorical, *features.persons}
    told = {c for part in read_facts(survey.facts).values() for c in part}
    assert used
    assert not AFTER & {c.lower() for c in used | told}
    assert set(features.numeric) | set(features.categorical) <= set(survey.households.columns)
    assert set(features.persons) <= set(survey.persons.columns)


@with_surveys
def test_shipped_anchors_of_the_panel_come_from_the_earlier_census_sample(acs2010):
    shipped = shipped_anchors("panel2014", 2014)
    for row in compute_anchors([acs2010], 2014).itertuples():
        anchor = shipped.moves(row.tenure, int(row.age_band[:2]))
        assert anchor.value == pytest.approx(row.value, abs=1e-6)
        assert anchor.n == row.n


# --- PSID ---------------------------------------------------------------------------------------


def psid(folder, **families):
    """Write a family file of three families and their individuals; *families* changes columns."""
    columns = {
        "ER82002": [11, 12, 13],
        "ER82004": [26, 53, 41],
        "ER82017": [3, 1, 2],
        "ER82018": [34, 71, 50],
        "ER82019": [2, 1, 1],
        "ER82022": [1, 0, 0],
        "ER82032": [5, 1, 1],
        "ER82141": [1, 5, 5],
        "ER85629": [45000, 22000, 9000],
        "ER85812": [12.5, 8.0, 3.0],
    } | families
    pd.DataFrame(columns).to_csv(folder / "FAM2023ER.csv", index=False)
    people = pd.DataFrame(
        [
            # 1968 number, person, sex, interview, sequence, relation, age, employment, weight
            (4, 1, 2, 11, 1, 10, 34, 1, 900),
            (4, 30, 1, 11, 2, 20, 36, 3, 800),
            (4, 31, 1, 11, 3, 30, 5, 0, 800),
            (5, 1, 1, 12, 1, 10, 71, 4, 700),
            (6, 1, 1, 13, 1, 10, 50, 1, 600),
            (6, 2, 2, 13, 2, 20, 49, 2, 600),
            (6, 30, 2, 13, 71, 30, 24, 1, 600),  # moved out before 2023
            (7, 1, 1, 0, 0, 0, 0, 0, 0),  # not in the 2023 wave
        ],
        columns=[
            "ER30001", "ER30002", "ER32000", "ER35101", "ER35102", "ER35103", "ER35104", "ER35116",
            "ER35265",
        ],
    )  # fmt: skip
    people.to_csv(folder / "IND2023ER.csv", index=False)
    return folder


def test_psid_families_and_their_members_are_joined_by_the_interview_number(tmp_path):
    survey = read_survey("psid2023", psid(tmp_path))
    homes, people = survey.households, survey.persons
    assert homes["moved"].to_dict() == {11: 1, 12: 0, 13: 0}
    assert homes["tenure"].to_dict() == {11: "rent", 12: "own", 13: "own"}
    assert homes["hhsize"].to_dict() == {11: 3, 12: 1, 13: 2}
    assert homes["age_of_head"].to_dict() == {11: 34, 12: 71, 13: 50}
    assert homes["num_workers"].to_dict() == {11: 1, 12: 0, 13: 2}
    assert people.groupby("household_id").size().to_dict() == {11: 3, 12: 1, 13: 2}
    assert people["age"].tolist() == [34, 36, 5, 71, 50, 49]
    assert people.index.is_unique
    assert survey.year == 2023


def test_psid_answers_that_are_none_drop_the_family_and_say_so(tmp_path):
    survey = read_survey("psid2023", psid(tmp_path, ER82141=[1, 9, 8]))
    assert survey.households.index.tolist() == [11]
    assert survey.dropped["rows"].sum() >= 2


def test_psid_label_spans_two_years(tmp_path):
    homes = read_survey("psid2023", psid(tmp_path)).households
    assert homes["span_years"].eq(2).all()


def test_psid_file_without_a_variable_is_named(tmp_path):
    folder = psid(tmp_path)
    table = pd.read_csv(folder / "FAM2023ER.csv").drop(columns="ER82141")
    table.to_csv(folder / "FAM2023ER.csv", index=False)
    with pytest.raises(PemandError, match=r"(?i)er82141"):
        read_survey("psid2023", folder)


def test_psid_facts_tell_the_relation_and_never_the_move(tmp_path):
    survey = read_survey("psid2023", psid(tmp_path))
    rules = read_facts(survey.facts)
    rows = survey.persons.reset_index().to_dict("records")
    told = [" ".join(translate(rules["person"], row)) for row in rows]
    assert "I am married to the person who answers for our home." in told[1]
    assert "I am retired." in told[3]
    assert not any("mov" in text or "rent" in text.replace("parent", "") for text in told)


def test_every_survey_with_anchors_has_earlier_cycles_only():
    for name, source in SOURCES.items():
        assert name[-4:] == str(source.year)
        assert all(int(e[-4:]) < source.year for e in source.earlier)
