"""The table of published responses, and draws that follow it trip by trip."""

from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pemand_abm.errors import TableError
from pemand_abm.responses import purposes_of, read_responses, respond, response_factors
from pemand_abm.surrogate import PURPOSES

RATES = Path(__file__).resolve().parents[1] / "synthpop" / "rates"
IDS = pd.RangeIndex(1, 4001, name="household_id").astype("int64")


def trips(each=3):
    drawn = pd.DataFrame(each, index=IDS, columns=list(PURPOSES))
    return drawn.assign(trips=drawn.sum(axis=1))[["trips", *PURPOSES]]


def factors(value):
    return pd.DataFrame(float(value), index=IDS, columns=list(PURPOSES))


def table(*rows):
    names = ("lever", "purpose", "household_type", "form", "elasticity", "low", "high", "source")
    return pd.DataFrame(rows, columns=names)


def written(folder, *rows):
    table(*rows).to_csv(folder / "responses.csv", index=False)
    return folder


FUEL = ("fuel_price", "all", "all", "elasticity", -0.1, -0.2, 0, "made up")


def test_a_factor_of_one_leaves_every_trip():
    pd.testing.assert_frame_equal(respond(trips(), factors(1), 0, "day"), trips())


@pytest.mark.parametrize("value", [0.0, 0.25, 0.9, 1.1, 1.75, 2.0, 3.3])
def test_trips_are_multiplied_by_the_factor_in_the_mean(value):
    found = respond(trips(), factors(value), 0, "day")
    n = 3 * len(PURPOSES) * len(IDS)
    sd = np.sqrt((value % 1) * (1 - value % 1) / n)
    assert found["trips"].sum() / n == pytest.approx(value, abs=4 * sd + 1e-12)
    assert (found[list(PURPOSES)].sum(axis=1) == found["trips"]).all()
    assert (found.dtypes == "int64").all()


def test_a_larger_change_takes_what_a_smaller_one_took():
    doses = (0.2, 0.7, 0.99, 1.0, 1.01, 1.6, 2.2)
    found = [respond(trips(), factors(f), 0, "day") for f in doses]
    for less, more in pairwise(found):
        assert (less <= more).all(axis=None)


def test_a_households_response_does_not_depend_on_other_households_or_their_order():
    whole = respond(trips(), factors(0.6), 0, "day")
    some = trips().iloc[[700, 3, 58]]
    part = respond(some, factors(0.6).loc[some.index], 0, "day")
    pd.testing.assert_frame_equal(part, whole.loc[some.index])
    other = respond(trips(), factors(0.6), 1, "day")
    assert not other.equals(whole)


def homes():
    return pd.DataFrame(
        {"hhsize": [1, 2, 3], "children": [0, 0, 1], "auto_ownership": [0, 1, 2]},
        index=pd.Index([1, 2, 3], name="household_id"),
    )


def change(value):
    return pd.DataFrame(float(value), index=homes().index, columns=list(PURPOSES))


def test_elasticities_arcs_types_and_shares():
    power = response_factors(table(FUEL), "fuel_price", homes(), change(1.5))
    assert power.to_numpy() == pytest.approx(1.5**-0.1)
    half = response_factors(table(FUEL), "fuel_price", homes(), change(1.5), change(0.5))
    assert half.to_numpy() == pytest.approx(1 + 0.5 * (1.5**-0.1 - 1))
    arc = ("free_fare", "nhb", "no vehicle", "arc", 0.1, 0, 0.2, "made up")
    free = response_factors(table(arc), "free_fare", homes(), change(1))
    assert free.loc[1, "nhb"] == pytest.approx(1.1)
    assert (free.drop(columns="nhb") == 1).all(axis=None) and (free.loc[[2, 3]] == 1).all(axis=None)
    kids = ("fuel_price", "work", "with children", "elasticity", -1, -1, 0, "made up")
    family = response_factors(table(kids), "fuel_price", homes(), change(2))
    assert family.loc[3, "hbw"] == 0.5 and family.loc[1, "hbw"] == 1


def test_groups_of_purposes_cover_the_engines_purposes():
    assert set(purposes_of("all")) == set(PURPOSES)
    other = set(purposes_of("home-based other"))
    assert other and other == set(PURPOSES) - {"hbw", "hbsch", "nhb"}


def test_the_shipped_table_is_sound_and_every_figure_has_a_source():
    shipped = read_responses(RATES)
    assert shipped["source"].str.len().min() > 20
    one = homes()
    for lever in shipped["lever"].unique():
        given = response_factors(shipped, lever, one, change(0.5))
        assert np.isfinite(given).all(axis=None) and (given >= 0).all(axis=None)


BAD = {
    "a misspelt lever": (("fuel_prise", *FUEL[1:]), "did you mean 'fuel_price'"),
    "a misspelt purpose": ((*FUEL[:1], "hbww", *FUEL[2:]), "did you mean 'hbw'"),
    "an unknown household": ((*FUEL[:2], "young", *FUEL[3:]), "known are all"),
    "no number": ((*FUEL[:4], "many", *FUEL[5:]), "elasticity: is not a number"),
    "out of its own range": ((*FUEL[:4], 0.5, *FUEL[5:]), "order low, elasticity, high"),
    "no source": ((*FUEL[:7], ""), "source: is empty"),
    "more than all": (
        ("telework", "hbw", "all", "arc", -1.5, -2, 0, "made up"),
        "takes more than all",
    ),
}


@pytest.mark.parametrize(("row", "said"), BAD.values(), ids=BAD)
def test_a_faulty_table_is_told_with_line_and_mend(tmp_path, row, said):
    with pytest.raises(TableError, match=r"responses\.csv") as refused:
        read_responses(written(tmp_path, row))
    assert said in refused.value.message and "line 2" in refused.value.message


def test_a_purpose_that_two_rows_answer_for_is_refused(tmp_path):
    twice = ("fuel_price", "hbw", "with vehicle", *FUEL[3:])
    with pytest.raises(TableError, match=r"line 3.*already in line 2"):
        read_responses(written(tmp_path, FUEL, twice))
    apart = ("fuel_price", "hbw", "no vehicle", *FUEL[3:])
    assert len(read_responses(written(tmp_path, twice, apart))) == 2


def test_a_rates_folder_without_the_table_is_told(tmp_path):
    with pytest.raises(TableError, match="levers need it"):
        read_responses(tmp_path)


@pytest.mark.slow
def test_the_table_is_what_its_script_computes_from_the_surveys(shared_data):
    file = RATES / "build_responses.py"
    spec = spec_from_file_location("build_responses", file)
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    kept = pd.read_csv(RATES / "responses.csv")
    made = script.responses(shared_data).reset_index(drop=True)
    pd.testing.assert_frame_equal(made, kept, atol=1e-6)
