"""The page of a population's fit says what the tables say, and opens offline."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from regions import write_region
from test_report import Page

from pemand_abm import fit as fitting
from pemand_abm.cli import main

FIT = pd.DataFrame(
    {
        "geography": ["zone", "zone", "zone", "region"],
        "zone": ["10", "20", "<b>", "1"],
        "target": ["hh", "hh", "hh", "size"],
        "control": [100.0, 50.0, 0.0, 40.0],
        "result": [100.0, 45.0, 2.0, 40.0],
        "note": ["", "relaxed: <script>", "", ""],
    }
).assign(difference=lambda t: t["result"] - t["control"])
SEED = pd.DataFrame(
    {"weight": [1.0, 3.0, 0.0], "tenure": ["own", "rent", "own"], "income": [1, 2, 3]},
    index=pd.Index([7, 8, 9], name="seed_id"),
)


def test_the_statement_and_the_table_are_computed_from_the_cells():
    said = fitting.statement(FIT)
    assert "2 of 4 cells are met to the unit" in said
    assert "zone 4.67 %" in said and "region 0.00 %" in said  # (5 + 2) / 150
    row = fitting.summary_table(FIT).rows[0]
    assert row[:4] == ["zone", "hh", "150", "147"]
    assert row[4] == "-5.00"  # The mean of 0 % and -10 %; the zone whose control is 0 has none.
    assert row[5] == f"{np.std([0, -10], ddof=1):.2f}"


def test_a_column_that_no_control_names_is_compared_with_the_weighted_seed():
    table = fitting.distribution(SEED, np.array([3, 1, 0]), "tenure")
    assert [list(r) for r in table.rows] == [["own", "25.0", "75.0"], ["rent", "75.0", "25.0"]]
    assert fitting.expansion(SEED, np.array([3, 1, 0])).tolist()[:2] == [3.0, 1 / 3]
    assert np.isnan(fitting.expansion(SEED, np.array([3, 1, 0])).iloc[2])
    controls = pd.DataFrame({"expression": ["(households.NP == 1) & (households.T > 0)"]})
    assert fitting.named_by(controls) == {"NP", "T"}
    taken = fitting.copies_of(pd.Series([7, 7, 9]), SEED.index)
    assert taken.tolist() == [2, 0, 1]


def test_the_map_shows_the_zones_controls_whatever_the_ids_of_coarser_areas():
    """A region of the id 1 beside a zone 1, its controls first in the file."""
    fit = pd.DataFrame(
        {
            "geography": ["region", "zone", "zone"],
            "zone": [1, 1, 2],
            "control": [100.0, 50.0, 50.0],
            "difference": [40.0, 0.0, 5.0],
        }
    )
    assert fitting.residuals(fit, "zone", pd.Index([1, 2, 3])).fillna(-1).tolist() == [0, 10, -1]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    region = write_region(folder / "region")
    arguments = ["synthesize", str(region), "--out", str(folder / "out")]
    ran = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert ran.exit_code == 0 and "fit.html" in ran.output
    return folder / "out"


def test_the_page_opens_offline_and_shows_map_scatter_and_histogram(out):
    text = (out / "fit.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.fetched == []
    for name in ("map", "scatter", "expansion"):
        assert f'id="figure-{name}"' in text
    assert "What no control names" in text


def test_points_lie_in_the_households_own_zone_and_spread_over_it(tmp_path):
    import geopandas
    import shapely

    region = write_region(tmp_path / "region", ("B", "A", "C 3"), (400, 60, 0))
    for name in ("one", "two"):
        arguments = ["synthesize", str(region), "--points", "--out", str(tmp_path / name)]
        assert CliRunner().invoke(main, arguments, catch_exceptions=False).exit_code == 0
    homes = pd.read_parquet(tmp_path / "one" / "households.parquet")
    again = pd.read_parquet(tmp_path / "two" / "households.parquet")
    assert homes["x"].equals(again["x"])
    shapes = geopandas.read_file(region / "zones.geojson").set_index("zone_id").geometry
    own = shapes.loc[homes["home_zone_id"]]
    assert shapely.contains_xy(own.to_numpy(), homes["x"], homes["y"]).all()
    first = homes[homes["home_zone_id"] == "B"]
    west, _, east, _ = shapes["B"].bounds
    share = ((first["x"] - west) / (east - west)).to_numpy()
    assert abs(share.mean() - 0.5) < 0.06 and abs(share.std() - 12**-0.5) < 0.04


def test_what_files_say_is_text_on_the_page(tmp_path):
    path = fitting.write_fit_page(
        tmp_path, "<i>mine</i>", FIT, SEED, np.array([3, 1, 0]), ["tenure"]
    )
    text = path.read_text(encoding="utf-8")
    assert "<i>mine" not in text and "relaxed: <script>" not in text
    assert "relaxed: &lt;script&gt;" in text
