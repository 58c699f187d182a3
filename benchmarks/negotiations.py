"""What the engine itself costs: negotiations with a model that answers at once.

In asv's form (`track_*` with a `unit`); `make bench` prints them all. Two adults negotiate the
trips of a day; all prompts and grammars are rendered, all replies parsed, one core works.
"""

import tempfile
import time
import tracemalloc
from itertools import islice
from pathlib import Path

from pemand_abm.anchors import read_anchors
from pemand_abm.dialogue import converse
from pemand_abm.domains import TRIPS
from pemand_abm.evaluation.mind import evaluate_mind
from pemand_abm.evaluation.travellers import make_scenarios
from pemand_abm.models.journal import Journal
from pemand_abm.models.scripted import Scripted
from pemand_abm.people import Household, Member, Persona
from pemand_abm.persona import PersonaSettings
from pemand_abm.protocols.mind import VARIANTS, MindSettings
from pemand_abm.protocols.pemand import PemandSettings, pemand
from pemand_abm.talks import Talk

ROOT = Path(__file__).resolve().parents[1]
WAVE, TALKS = 64, 2_000
FACTS = ("We are 2 people at home.", "We have one car.", "We rent our home.")
SETTINGS = PemandSettings(moderator="judge")


def _homes():
    members = tuple(
        Member(n, f"member {n}", 40, True, (f"I am {39 + n} years old.",), True) for n in (1, 2)
    )
    key = 0
    while True:
        yield Household(key, 1, 2, 1, "rent", 40, FACTS, members)
        key += 1


def _negotiations():
    for home in _homes():
        personas = [Persona(m, m.facts[0], "I like walking.", False, 3) for m in home.members]
        key = (0, home.id, "trips", 1, 0)
        yield pemand(home, personas, TRIPS, SETTINGS, " ".join(FACTS), 0, key)


def _whole_talks():
    table = read_anchors(ROOT / "synthpop" / "rates" / "anchors.csv")
    for home in _homes():
        yield Talk(home, TRIPS, "trips:1", 0, table, SETTINGS, PersonaSettings()).dialogue()


def _a_second(dialogues, model, talks=TALKS):
    converse(list(islice(dialogues, WAVE)), model)
    started = time.perf_counter()
    for _ in range(talks // WAVE):
        converse(list(islice(dialogues, WAVE)), model)
    return talks // WAVE * WAVE / (time.perf_counter() - started)


def track_negotiations_a_second():
    """Proposals, rounds and moderator, the personas given, no journal."""
    return _a_second(_negotiations(), Scripted())


track_negotiations_a_second.unit = "negotiations a second"


def track_whole_talks_a_second():
    """The same with the personas written."""
    return _a_second(_whole_talks(), Scripted())


track_whole_talks_a_second.unit = "negotiations a second"


def track_negotiations_with_a_journal_over_those_without():
    """How much of the rate is left when every reply is kept in a journal on disk."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Scripted(), Path(folder) / "journal.sqlite")
        kept = _a_second(_negotiations(), journal, TALKS // 4)
        journal.close()
    return kept / _a_second(_negotiations(), Scripted(), TALKS // 4)


track_negotiations_with_a_journal_over_those_without.unit = "ratio"


def track_bytes_kept_a_negotiation_that_has_ended():
    """Memory that 2,560 finished negotiations left behind, each: flat is about 0."""

    def held(waves):
        for _ in range(waves):
            converse(list(islice(dialogues, WAVE)), Scripted())
        return tracemalloc.get_traced_memory()[0]

    dialogues = _negotiations()
    tracemalloc.start()
    before = held(10)  # Compiled prompts and patterns are kept once.
    after = held(40)
    tracemalloc.stop()
    return (after - before) / (40 * WAVE)


track_bytes_kept_a_negotiation_that_has_ended.unit = "bytes"


def track_seconds_of_201_mind_scenarios_in_four_variants():
    """Scenarios made, negotiated and judged (MIND), no journal, one core."""
    started = time.perf_counter()
    scenarios = make_scenarios(201, 0, 3)
    evaluate_mind(
        scenarios, list(VARIANTS), MindSettings(), Scripted(), 0, True, lambda text: None, "rule"
    )
    return time.perf_counter() - started


track_seconds_of_201_mind_scenarios_in_four_variants.unit = "seconds"


if __name__ == "__main__":
    for name, bench in list(globals().items()):
        if name.startswith("track_"):
            print(f"{bench():9,.2f} {bench.unit:25} {name[6:].replace('_', ' ')}", flush=True)
