"""What members are told of similar people: how near its sum is to what households made.

    python benchmarks/told_anchor.py [--data ../shared/data] [--households 3000]

A member is told a mean of what people of his age and work make, and of an equal share of what
households of his size and cars make (`Talk.member_anchor`). Here every weight of the second is
tried on households of the training splits alone: if each member said the told figure as a whole
number, by how much would the household's sum be off? No model talks.
"""

import argparse
from pathlib import Path

import numpy as np

from pemand_abm.answers import half_up
from pemand_abm.surveys import read_survey
from pemand_abm.talks import Talk
from pemand_abm.training.examples import homes_of, talk_of, training_households
from pemand_abm.training.recipe import read_recipe

ROOT = Path(__file__).resolve().parents[1]
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)


def said(talk: Talk, weight: float) -> int:
    """Return the household's sum where *weight* is the share of what its household's kind makes."""
    home = talk.household
    share = talk.household_anchor.value / home.size
    own = [talk.table.member_trips(m.middle_age, m.works).value for m in home.speakers]
    return sum(half_up((1 - weight) * alone + weight * share) for alone in own) + talk.added


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--households", type=int, default=3000)
    given = parser.parse_args()
    recipe = read_recipe(ROOT / "training" / "embedded-anchor.yaml")
    print("survey    households  weight  MAE [95 %]           bias")
    for name in ("psrc2023", "nhts2022"):
        source = next(s for s in recipe.surveys if s.survey == name)
        survey = read_survey(name, given.data / source.data.name)
        source = source.model_copy(update={"households": given.households})
        homes = homes_of(survey, training_households(survey, source, recipe.seed))
        talks = [talk_of(home, survey, recipe, "checks", 1) for home in homes]
        observed = survey.households.loc[[h.id for h in homes], "trips"].to_numpy(float)
        for weight in WEIGHTS:
            off = np.array([said(talk, weight) for talk in talks]) - observed
            mean, se = np.abs(off).mean(), np.abs(off).std() / np.sqrt(len(off))
            low, high = mean - 1.96 * se, mean + 1.96 * se
            print(
                f"{name}  {len(off):>10,}  {weight:6.2f}  {mean:.2f} [{low:.2f}, {high:.2f}]"
                f"  {off.mean():8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
