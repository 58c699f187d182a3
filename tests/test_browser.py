"""The pages in a real browser: headless Chromium, where it is on the PATH."""

import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import yaml
from test_run import pemand, run, write_study

from pemand_abm.geopackage import read_zones, write_zones
from pemand_abm.report import write_report

CHROMIUM = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)  # fmt: skip

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not on the PATH"),
]
REPORT = (
    "map",
    "demand",
    "modes",
    "trips",
    "equity",
    "moves",
    "population",
    "flags",
    "talks",
    "card",
)
COMPARISON = (
    "made",
    "map",
    "region",
    "effects",
    "groups",
    "who",
    "elasticities",
    "talks",
    "method",
)
FIGURES = {"report.html": 5, "policy.html": 5, "compare.html": 2}


class Dom(HTMLParser):
    """What a browser made of a page: ids, headings, figures and what stands in for them."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.tags, self.labels, self.drawn = set(), [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        held = dict(attrs)
        self.tags.append(tag)
        self.ids.add(held.get("id"))
        if held.get("role") == "img":
            self.labels.append(held.get("aria-label", ""))
        self.drawn += "main-svg" in (held.get("class") or "").split()


def opened(page: Path, profile: Path, script: str = "", width: int = 1200):
    """Return the page's document after its scripts and *script* have run, and what the console said."""
    shown = page
    if script:
        shown = profile / "driven.html"
        text = page.read_text(encoding="utf-8")
        after = (
            f"<script>addEventListener('load', () => setTimeout(() => {{{script}}}, 500))</script>"
        )
        shown.write_text(text.replace("</body>", f"{after}</body>"), encoding="utf-8")
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile / 'profile'}",
            "--virtual-time-budget=5000", f"--window-size={width},2000", "--dump-dom", shown.as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, said


def noted(text, name):
    """Return what a script has left in the body's attribute `data-NAME`."""
    return text.partition(f'data-{name}="')[2].partition('"')[0]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    scenario = write_study(folder)
    run(scenario, folder / "base")
    policy = folder / "policy.yaml"
    levers = {"levers": {"fuel_price": {"percent": 100}}}
    policy.write_text(yaml.safe_dump(yaml.safe_load(scenario.read_text()) | levers))
    run(policy, folder / "policy")
    pemand(
        "compare", folder / "base", folder / "policy", "--out", folder / "compare",
        "--rates", yaml.safe_load(scenario.read_text())["rates"],
    )  # fmt: skip
    return {
        "report.html": folder / "base" / "report.html",
        "policy.html": folder / "policy" / "report.html",
        "compare.html": folder / "compare" / "compare.html",
    }


def test_a_page_with_a_fault_is_found_out(tmp_path):
    (tmp_path / "bad.html").write_text("<body><script>undefined_name()</script></body>")
    _, said = opened(tmp_path / "bad.html", tmp_path)
    assert any("undefined_name" in line for line in said)


@pytest.mark.parametrize(("name", "sections"), [("report.html", REPORT), ("policy.html", (*REPORT, "levers")), ("compare.html", COMPARISON)])  # fmt: skip
def test_every_section_is_there_every_figure_is_drawn_and_the_console_is_silent(pages, tmp_path, name, sections):  # fmt: skip
    text, said = opened(pages[name], tmp_path)
    assert said == []
    dom = Dom(text)
    assert set(sections) <= dom.ids
    assert len(dom.labels) == FIGURES[name] and all(len(label) > 20 for label in dom.labels)
    # Plotly draws three layers a figure.
    assert dom.drawn >= FIGURES[name]


@pytest.mark.parametrize("name", ["report.html", "policy.html", "compare.html"])
def test_a_narrow_window_scrolls_tables_and_not_the_page(pages, tmp_path, name):
    frame = tmp_path / "frame.html"
    # Chromium has no narrower window than 500, so a frame of 390 stands for a telephone.
    driven = tmp_path / name
    inner = (
        "<script>addEventListener('load', () => setTimeout(() => parent.postMessage("
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth], '*'), 1000))"
        "</script></body>"
    )
    driven.write_text(pages[name].read_text(encoding="utf-8").replace("</body>", inner), "utf-8")
    frame.write_text(
        "<body><script>addEventListener('message', e => document.body.dataset.wide = e.data)</script>"
        f'<iframe src="{driven.as_uri()}" width="390" height="2000"></iframe></body>'
    )
    text, _ = opened(frame, tmp_path)
    wide = noted(text, "wide")
    content, window = (int(n) for n in wide.split(","))
    assert 300 < window <= 390 and content == window


def test_the_list_of_zones_tells_all_numbers_of_the_zone_that_is_chosen(pages, tmp_path):
    script = (
        "const box = document.querySelector('.zones'), list = box.querySelector('select');"
        "list.selectedIndex = 2; list.dispatchEvent(new Event('change'));"
        "document.body.dataset.told = box.querySelector('.told').innerText;"
    )
    text, said = opened(pages["report.html"], tmp_path, script)
    told = noted(text, "told")
    assert said == []
    assert told.startswith("Zone 20, ") and "Households (on the travel day)\n40" in told


def test_a_click_on_the_map_tells_of_the_zone(pages, tmp_path):
    script = (
        "const map = document.getElementById('figure-map');"
        "map.emit('plotly_click', {points: [{curveNumber: 0}]});"
        "document.body.dataset.told = document.querySelector('.told').innerText;"
    )
    text, _ = opened(pages["report.html"], tmp_path, script)
    assert 'data-told="Zone 10, ' in text


def test_another_measure_changes_the_map_and_its_legend(pages, tmp_path):
    script = (
        "const list = document.querySelector('select[data-figure]');"
        "list.value = 'Productions'; list.dispatchEvent(new Event('change'));"
        "const map = document.getElementById('figure-map');"
        "document.body.dataset.shown = JSON.stringify([map.data[0].text, "
        "map.data.at(-1).marker.colorbar.title.text]);"
    )
    text, said = opened(pages["report.html"], tmp_path, script)
    shown = json.loads(noted(text, "shown").replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">"))  # fmt: skip
    assert said == []
    assert "Productions: " in shown[0] and shown[1].startswith("Productions")


def test_hatches_and_their_legend_come_and_go_with_the_measure(pages, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(pages["report.html"].parent, out)
    zones = read_zones(out / "zones.gpkg").assign(
        trips_method=["synthetic", "composite", "synthetic"]
    )
    columns = pd.DataFrame(zones.drop(columns="geometry"))
    write_zones(out / "zones.gpkg", zones[["geometry"]], columns, "TRIPS_P")
    script = (
        "const map = document.getElementById('figure-map');"
        "const seen = () => [map.querySelectorAll('.scatterlayer pattern, defs pattern').length,"
        " map.querySelector('.legend')?.textContent ?? ''];"
        "const first = seen(), list = document.querySelector('select[data-figure]');"
        "list.value = 'Moves out'; list.dispatchEvent(new Event('change'));"
        "setTimeout(() => document.body.dataset.seen = JSON.stringify([first, seen()]), 300);"
    )
    text, said = opened(write_report(out), tmp_path, script)
    (patterns, legend), (_, after) = json.loads(noted(text, "seen").replace("&quot;", '"'))
    assert said == []
    assert patterns >= 2 and legend == "synthetic: no negotiations of its own enter"
    assert after == ""


def test_what_a_reader_needs_is_reached_by_the_keyboard(pages, tmp_path):
    script = (
        "const reached = [...document.querySelectorAll('a[href], select, summary, [tabindex=\"0\"]')];"
        "document.body.dataset.reached = reached.map(e => e.tagName).join(' ');"
        "document.body.dataset.first = reached[0].className;"
    )
    text, _ = opened(pages["report.html"], tmp_path, script)
    reached = noted(text, "reached").split()
    assert reached.count("SELECT") == 2 and "SUMMARY" in reached and reached.count("DIV") > 5
    assert 'data-first="skip"' in text


def test_paper_shows_what_is_folded_away(pages, tmp_path):
    out = tmp_path / "report.pdf"
    subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--print-to-pdf={out}",
            f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000",
            pages["report.html"].as_uri(),
        ],
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    assert out.read_bytes().startswith(b"%PDF")
    script = (
        "const all = [...document.querySelectorAll('details')], shut = all.filter(d => !d.open).length;"
        "dispatchEvent(new Event('beforeprint'));"
        "document.body.dataset.printed = shut + ' ' + all.filter(d => !d.open).length;"
        "dispatchEvent(new Event('afterprint'));"
        "document.body.dataset.after = all.filter(d => !d.open).length === shut;"
    )
    text, said = opened(pages["report.html"], tmp_path, script)
    shut, left = noted(text, "printed").split()
    assert int(shut) > 0 and int(left) == 0 and 'data-after="true"' in text
    assert said == []
