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
from pemand_abm.report import read_run, write_report
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
