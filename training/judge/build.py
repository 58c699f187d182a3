"""Make rule_made.csv: three annotators that are rules, not people.

    python training/judge/build.py FOLDER

FOLDER is that of an evaluation (`pemand evaluate --methods pemand`). No sheet of people is at hand;
this one lets the whole path be walked. Every row says `rule-made, not human`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas as pd

from pemand_abm.protocols.pemand import CRITERIA
from pemand_abm.tables import write_csv
from pemand_abm.training.judge import dealt, items_of

HERE = Path(__file__).parent
DIALOGUES, OVERLAP = 60, 0.2
# What each rule takes for too many trips of one person (mark 2, mark 1), and its mark for a reason
# without any number.
RULES = {"rule-strict": (4, 6, 1), "rule-plain": (5, 8, 2), "rule-lenient": (6, 12, 3)}
NOTE = "rule-made, not human"


def marks(row: dict, many: int, most: int, numberless: int) -> dict[str, int]:
    """Return a rule's four marks for one statement."""
    said, profile = row["statement"].lower(), row["profile"].lower()
    persona = 3 if re.search(r"\bi\b", said) else 2
    ages = re.findall(r"\b(\d+) years old", said)
    sexes = [s for s in ("male", "female") if re.search(rf"\b{s}\b", said)]
    if any(a not in profile for a in ages) or any(s not in profile.split() for s in sexes):
        persona = 1
    people = re.search(r"we are (\d+) people", row["household"].lower())
    heads = int(people[1]) if people and row["phase"] != "proposal" else 1
    each = float(row["value"]) / heads
    constraints = 1 if each > most else 2 if each > many else 3
    if "no vehicle" in row["household"] and re.search(r"\b(my|our) car\b", said):
        constraints = 1
    topic = re.search(r"\b(trips?|weekday|work|school|home|errands?)\b", said)
    interaction = 3 if topic else 2
    if row["statement"] in row["said_before"]:
        interaction = 1
    numbers = re.findall(r"\d+", said)
    quality = 3 if str(int(row["value"])) in numbers else 1 if numbers else numberless
    return dict(zip(CRITERIA, (persona, constraints, interaction, quality), strict=True))


def main() -> None:
    """Write the sheet."""
    items = items_of(Path(sys.argv[1]), DIALOGUES, 0)
    sheet = dealt(items, list(RULES), OVERLAP, 0)
    rows = [marks(row, *RULES[row["annotator"]]) for row in sheet.to_dict("records")]
    sheet[list(CRITERIA)] = pd.DataFrame(rows)[list(CRITERIA)]
    write_csv(sheet.assign(note=NOTE).set_index("item"), HERE / "rule_made.csv")


if __name__ == "__main__":
    main()
