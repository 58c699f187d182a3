import io
import json
from html.parser import HTMLParser

import pandas as pd
import pytest
import yaml
from rich.console import Console
from test_export import SURVEY, region_of, run_of

from pemand_abm.errors import PemandError, TableError
from pemand_abm.export import write_demand
from pemand_abm.figures import MEASURES, SYNTHETIC_WORDS, map_words, zone_map
from pemand_abm.levers import Levers
from pemand_abm.report import read_run, trip_cores, write_report
from pemand_abm.report_tables import UNITS, levers_table, periods_table, vehicle_tables
from pemand_abm.surrogate import PURPOSES
from pemand_abm.tables import write_parquet
from pemand_abm.transcript import print_transcript, read_transcripts

EVIL = "<script>alert('x')</script>"


def turn(speaker, phase, **more):
    plain = {"text": "I drive to work.", "value": 4, "said": None, "verdict": "pass", "scores": {}}
    return plain | {"phase": phase, "speaker": speaker, "feedback": "", "kept": True} | more


def talk(household, speakers, turns, **more):
    members = [
        {"name": f"member {i + 1}", "speaks": True, "facts": ["I am 47."], "persona": EVIL}
        for i in range(speakers)
    ]
    record = {
        "household_id": household,
        "event": "travel_day:1",
        "kind": "trips",
        "zone": 10,
        "outcome": "agreed",
        "value": 5,
        "unit": "trips of the day",
        "initial": 6,
        "drawn": 4,
        "anchor": "About 8 trips [red]are usual[/red].",
        "constraints": "One car.",
        "calls": 18,
    }
    return record | {"members": members, "turns": turns} | more


TALKS = [
    talk(1, 1, [turn("member 1", "proposal")] * 9, outcome="one speaker"),
    talk(
        2,
        2,
        [
            turn("member 1", "proposal", scores={"persona": 3}),
            turn("member 2", "round 1", said=14, value=9),
            turn("member 1", "round 1", verdict="reject", kept=False, feedback="You have no car."),
        ],
    ),
    talk(3, 2, [], outcome="undecided", value=None),
]


@pytest.fixture
def run(tmp_path):
    ids = [10, 20, 35, 40]
    households, decisions, events = run_of(ids)
    region = region_of(ids)
    region.zones["district"] = [EVIL, EVIL, "East & co", "East & co"]
    write_demand(tmp_path, region, households, decisions, events, SURVEY)
    write_parquet(households.assign(auto_ownership=1), tmp_path / "households.parquet")
    decisions = decisions.assign(source="surrogate", outcome=["agreed", *[""] * 4])
    write_parquet(decisions, tmp_path / "decisions.parquet")
    write_parquet(events, tmp_path / "events.parquet")
    lines = "".join(json.dumps(t) + "\n" for t in TALKS)
    (tmp_path / "transcripts.jsonl").write_text(lines, encoding="utf-8")
    manifest = {"scenario": "baseline", "title": f"Three zones {EVIL}", "admitted": False}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(manifest), encoding="utf-8")
    return tmp_path


class Page(HTMLParser):
    """Collects what a browser would fetch, the scripts, and the text that it would show."""

    def __init__(self):
        super().__init__()
        self.fetched, self.scripts, self.shown, self.inside = [], [], [], ""

    def handle_starttag(self, tag, attrs):
        self.inside = tag
        if tag == "script":
            self.scripts.append("")
        self.fetched += [v for k, v in attrs if k in ("src", "href", "data", "srcset") and v]
        assert tag not in ("link", "iframe", "object", "base")

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside != "style":
            self.shown.append(data)


def read_page(run):
    page = Page()
    page.feed(write_report(run).read_text(encoding="utf-8"))
    return page


def test_report_fetches_nothing(run):
    page = read_page(run)
    assert all(target.startswith("#") for target in page.fetched)
    style = (run / "report.html").read_text(encoding="utf-8").split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


def test_what_models_and_files_say_is_escaped(run):
    page = read_page(run)
    text = (run / "report.html").read_text(encoding="utf-8")
    assert EVIL not in text
    # The library, one script for each of the five figures, and the zones' numbers as data.
    assert len(page.scripts) == 7
    assert not any(s.startswith("alert") for s in page.scripts)
    assert any(EVIL in shown for shown in page.shown)


def test_report_says_that_the_totals_are_the_surrogates_and_why(run):
    shown = "".join(read_page(run).shown)
    assert "The zone totals are the survey surrogate's." in shown
    assert "no evaluation card" in shown


def test_report_says_when_negotiations_entered_the_totals(run):
    table = pd.read_parquet(run / "decisions.parquet")
    write_parquet(
        table.assign(source=["negotiated", *["surrogate"] * 4]), run / "decisions.parquet"
    )
    (run / "run.yaml").write_text("admitted: true\n", encoding="utf-8")
    shown = "".join(read_page(run).shown)
    assert "Negotiations entered the zone totals." in shown
    assert "1 of 5 decisions" in shown


def test_report_shows_rejections_and_bounded_values(run):
    shown = "".join(read_page(run).shown)
    assert "said 14 trips, bounded to 9 trips" in shown
    assert "rejected by a fixed check, and left out of the talk: You have no car." in shown


def test_report_says_that_an_advising_moderator_rejects_nothing(run):
    advised = TALKS[1] | {"moderator": "advise"}
    (run / "transcripts.jsonl").write_text(json.dumps(advised) + "\n", encoding="utf-8")
    shown = "".join(read_page(run).shown)
    assert "it only advises" in shown
    assert "never enters the talk" not in shown


def test_report_of_a_run_without_talks_is_whole(run):
    (run / "transcripts.jsonl").unlink()
    assert "No household negotiated in this run." in "".join(read_page(run).shown)


def test_report_is_the_same_when_written_again(run):
    first = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == first


def test_a_folder_that_is_no_run_names_what_it_lacks(tmp_path):
    with pytest.raises(PemandError, match=r"run\.yaml, decisions\.parquet"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


FUEL = {"percent": 50.0, "area": ["West"]}
FARE = {"percent": -100.0, "start": "2055-01-01"}
LEVERS = {
    "settings": {"levers": {"fuel_price": [FUEL], "transit_fare": [FARE]}},
    "levers": [
        {"lever": "fuel_price", **FUEL, "facts": ["sentence: Fuel costs more."]}
        | {"households": 1234, "response": "fuel_price"}
    ],
}


def test_levers_are_told_with_unit_area_facts_and_households_and_one_that_sleeps_says_so():
    acts, sleeps = levers_table(LEVERS).rows
    assert acts == [
        "fuel price", "+50", "% of the price of fuel", "West", "the beginning",
        "told: Fuel costs more.", "fuel price", "1,234",
    ]  # fmt: skip
    assert sleeps[:5] == ["transit fare", "-100", "% of the fare", "everywhere", "2055-01-01"]
    assert "after the last travel day" in sleeps[5] and sleeps[-1] == "0"


def test_what_else_a_lever_sets_stands_under_its_name():
    settings = {"kind": "school", "places": 300, "columns": ["HSENROLL"], "area": [20]}
    row = levers_table({"levers": [{"lever": "opening", **settings, "facts": []}]}).rows[0]
    assert row[:4] == [
        "opening\nkind: school\ncolumns: HSENROLL",
        "300",
        "pupils in each zone",
        "20",
    ]
    sale = {"lever": "rent_change", "percent": 10.0, "tenure": "own"}
    assert levers_table({"levers": [sale]}).rows[0][2] == "% of what homes sell for"


def test_every_lever_has_a_unit():
    assert set(UNITS) == set(Levers.model_fields)


def test_a_run_without_levers_has_no_section_on_them(run):
    text = write_report(run).read_text(encoding="utf-8")
    assert 'id="levers"' not in text and '"#levers"' not in text
    held = yaml.safe_load((run / "run.yaml").read_text())
    (run / "run.yaml").write_text(yaml.safe_dump(held | LEVERS))
    text = write_report(run).read_text(encoding="utf-8")
    assert text.count('id="levers"') == 1 and 'href="#levers"' in text


def figures_of(rows):
    return [[float(cell.replace(",", "")) for cell in row[1:]] for row in rows]


def test_periods_and_vehicles_of_the_report_have_the_trips_of_the_households(run):
    held = read_run(run)
    trips = held.decisions[list(PURPOSES)].sum().tolist()
    by_period = figures_of(periods_table(trip_cores(held)).rows[:-1])
    assert [row[-1] for row in by_period] == [*trips, sum(trips)]
    # Numbers are shown without decimals, so five periods may be off by two and a half.
    assert all(sum(row[:-1]) == pytest.approx(row[-1], abs=2.6) for row in by_period)
    vehicles, modes = vehicle_tables(held.vehicles)
    assert [row[0] for row in figures_of(vehicles.rows)] == [*trips, sum(trips)]
    assert all(row[1] <= row[0] for row in figures_of(vehicles.rows))
    assert all(sum(row) == pytest.approx(100, abs=0.5) for row in figures_of(modes.rows))


def test_purposes_without_trips_have_neither_occupancy_nor_shares(run):
    table = read_run(run).vehicles
    table.loc[table["purpose"] == "hbsch", table.columns[1:]] = 0.0
    table.loc[table["purpose"] == "hbsch", "occupancy"] = float("nan")
    vehicles, modes = vehicle_tables(table)
    assert vehicles.rows[1][1:] == ["0", "0", "none"]
    assert set(modes.rows[1][1:]) == {"none"}


def test_a_run_from_before_these_files_has_no_section_on_vehicles_and_periods(run):
    assert 'id="modes"' in write_report(run).read_text(encoding="utf-8")
    (run / "vehicle_trips.csv").unlink()
    (run / "trips.omx").unlink()
    assert 'id="modes"' not in write_report(run).read_text(encoding="utf-8")


def traces(zones):
    figure = zone_map(zones)
    return figure, {t.name: t.fillpattern.shape for t in figure.data if t.fillpattern.shape}


def test_only_synthetic_zones_where_somebody_lives_are_hatched_and_the_legend_says_so(run):
    zones = read_run(run).zones.assign(
        trips_method=["synthetic", "composite", "synthetic", "synthetic"]
    )
    figure, hatched = traces(zones)
    # Nobody lives in zone 40.
    assert set(hatched) == {"10", "35", SYNTHETIC_WORDS}
    assert [t.name for t in figure.data if t.showlegend] == [SYNTHETIC_WORDS]
    looks = figure.layout.meta["looks"]
    assert {title for title, look in looks.items() if any(look["fillpattern.shape"][:4])} == {
        "Trips per household",
        "Productions",
    }
    # What a measure sets is set for every trace.
    assert {len(v) for look in looks.values() for v in look.values()} == {len(figure.data)}
    assert "2 zones are hatched" in map_words(zones, MEASURES)


def test_nothing_is_hatched_where_no_negotiation_entered(run):
    zones = read_run(run).zones
    figure, hatched = traces(zones)
    assert set(zones["trips_method"]) == {"surrogate"} and hatched == {}
    assert figure == zone_map(zones.drop(columns="trips_method"))
    assert "hatched" not in map_words(zones, MEASURES)


def printed(run, household):
    console = Console(file=io.StringIO(), width=120)
    print_transcript(run, household, console)
    return console.file.getvalue()


def test_transcript_prints_the_longest_talk_of_several_speakers_and_lists_the_others(run):
    text = printed(run, None)
    assert "Household 2, zone 10" in text
    assert "said 14 trips, bounded to 9 trips" in text
    assert "You have no car." in text
    assert "Other negotiations" in text
    # What looks like markup is printed as it was said.
    assert "[red]are usual[/red]" in text


def test_transcript_prints_the_household_asked_for(run):
    text = printed(run, 3)
    assert "Household 3" in text
    assert "undecided" in text
    assert "Other negotiations" not in text


def test_an_unknown_household_lists_those_there_are(run):
    with pytest.raises(PemandError, match="household 9 did not negotiate; these did: 1, 2, 3"):
        printed(run, 9)


@pytest.mark.parametrize("line", ['{"household_id": "a", "turns": [{}], "members": null}', '{"household_id": [1]}', '{"household_id": 1, "turns": 5}'])  # fmt: skip
def test_a_damaged_record_is_one_clear_error(tmp_path, line):
    (tmp_path / "transcripts.jsonl").write_text(line + "\n")
    with pytest.raises(PemandError, match="line 1"):
        printed(tmp_path, None)


def test_broken_lines_are_one_error_with_their_numbers(run):
    (run / "transcripts.jsonl").write_text('{"household_id": 1}\n{"a\n[]\n', encoding="utf-8")
    with pytest.raises(TableError, match=r"(?s)line 2.*line 3"):
        read_transcripts(run)


def test_a_table_of_demand_that_was_cut_off_is_named(run):
    path = run / "demand.csv"
    whole = path.read_text()
    for cut in (whole[: len(whole) // 2], "\n".join(whole.split("\n")[:-2]) + "\n"):
        path.write_text(cut)
        with pytest.raises(PemandError, match=r"demand.csv: is damaged"):
            read_run(run)


@pytest.mark.parametrize(
    "name", ["run.yaml", "decisions.parquet", "demand.csv", "zones.gpkg", "transcripts.jsonl"]
)
def test_a_damaged_file_is_named_and_the_old_report_stays(run, name):
    before = write_report(run).read_bytes()
    (run / name).write_bytes(b"\xff\xfe\x00garbage\n\x80")
    with pytest.raises(PemandError, match=rf"{name}: is damaged"):
        write_report(run)
    assert (run / "report.html").read_bytes() == before
