"""Whether personas hold the opinions of the persons that they stand for (PEMAND §4.3, appendix G).

A survey's own attitude items are kept out of all that a persona is made of (its *probes*,
`prompts/probes/`). Personas of surveyed persons answer them, and their answers are compared with
those that the persons gave.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from pemand_abm import __version__, keys
from pemand_abm.answers import labelled
from pemand_abm.dialogue import Dialogue, Model, Request, converse, seed_of, together
from pemand_abm.errors import SettingsError
from pemand_abm.evaluation.agreement import MEASURES, measure
from pemand_abm.evaluation.answers import IN_FLIGHT, SPEAKING_AGE
from pemand_abm.evaluation.methods import METHODS, Setting, talk_of
from pemand_abm.evaluation.probes import Probe, check_held_out, human_answers
from pemand_abm.evaluation.results import markdown, number
from pemand_abm.evaluation.trial import ENOUGH
from pemand_abm.facts import households_of, read_map
from pemand_abm.people import Household, Member, Persona
from pemand_abm.persona import PersonaSettings, write_persona
from pemand_abm.prompting import grammar, prompts_sha256, render
from pemand_abm.surveys import Survey
from pemand_abm.tables import write_csv, write_parquet, write_text

TRIES = 3
"""How often a persona is asked in all: an answer that cannot be read is asked again twice."""
TEMPERATURE = 0.4
LABEL = "ANSWER"
DEMOGRAPHICS = ("age", "hhsize", "auto_ownership", "income", "num_workers", "children", "urban")


def probe(persona: Persona, item: Probe, seed: int) -> Dialogue[int | None]:
    """Let a persona answer one item; None where no reply could be read."""
    system, user = render("probe/answer", narrative=persona.narrative, view=persona.view, item=item)
    form = grammar("probe/answer", most=len(item.scale))
    who = persona.member
    for attempt in range(TRIES):
        own = seed_of(seed, who.id, "probe", item.code, attempt)
        label = (f"person {who.id}", who.name, f"probe {item.code}")
        (reply,) = yield [Request(system, user, own, label, 12, TEMPERATURE, form)]
        said = None if reply.cut else labelled(reply.text, LABEL)
        if said in {str(k) for k in range(1, len(item.scale) + 1)}:
            return int(said)
    return None


def interview(
    member: Member, home: Household, items: Sequence[Probe], setting: Setting, seed: int
) -> Dialogue[tuple[Persona, list[int | None]]]:
    """Write a person's persona as for the decision of *setting*, and ask it the items at once."""
    talk = talk_of(METHODS["pemand"], home, setting)
    persona = yield from write_persona(
        member, home, setting.domain, talk.anchors(member), setting.persona, setting.seed
    )
    told = yield from together([probe(persona, item, seed) for item in items])
    return persona, told


def most_calls(persons: int, items: Sequence[Probe], settings: PersonaSettings) -> int:
    """Return the most calls that so many persons can take."""
    return persons * (settings.most_calls + TRIES * len(items))


@dataclass(frozen=True, slots=True, eq=False)
class Perceptions:
    """What personas answered beside what their persons did.

    Attributes
    ----------
    survey : Survey
    items : tuple of Probe
    answers : DataFrame
        A row a person and item that the person answered. Index ``person_id``; ``item``, ``human``
        and ``persona`` (1, 2, ...; NA where no reply could be read), ``templated`` (the facts
        stand for the persona's narrative).
    traits : DataFrame
        The persons' demographics that vary, index ``person_id`` in the order in which they were
        chosen.
    measures : DataFrame
        As `measure` returns it.
    counts : DataFrame
        Index ``item``: ``asked``, ``silent`` (persons chosen whom the survey has no answer of, so
        not asked) and ``unread`` (personas without a reply that can be read).
    left_out : int
        Respondents of the survey who answered none of the items.
    manifest : dict
    """

    survey: Survey
    items: tuple[Probe, ...]
    answers: pd.DataFrame
    traits: pd.DataFrame
    measures: pd.DataFrame
    counts: pd.DataFrame
    left_out: int
    manifest: dict


def perceive(
    survey: Survey,
    items: Sequence[Probe],
    persons: int,
    setting: Setting,
    model: Model,
    seed: int = 0,
    in_flight: int = IN_FLIGHT,
) -> Perceptions:
    """Choose respondents, write their personas, ask the items, and compare.

    The respondents of the smallest random numbers are chosen among those who answered at least one
    of the items. *setting* says how personas are made, as in `evaluate`, and gives their seed, so
    that one journal serves both; *seed* chooses the persons and seeds the answers.

    Raises
    ------
    SettingsError
        Where a persona would be told an item, or nobody answered any.
    TableError
        As `human_answers`.
    """
    check_held_out(survey, items)
    human = human_answers(survey, items)
    able = human.dropna(how="all")
    if able.empty or persons < 1:
        raise SettingsError(
            f"{survey.name}: {len(able)} respondents answered an item and {persons} persons are"
            " wanted; a comparison needs one at least"
        )
    order = np.argsort(keys.uniforms(able.index, seed, "perceptions"), kind="stable")
    chosen = able.iloc[order[:persons]]
    held = list(_interviews(survey, chosen, items, setting, model, seed, in_flight))
    rows = [
        (key, code, answer, said, persona.templated)
        for key, (persona, told) in zip(chosen.index, held, strict=True)
        for (code, answer), said in zip(chosen.loc[key].dropna().items(), told, strict=True)
    ]
    answers = pd.DataFrame(
        rows, columns=["person_id", "item", "human", "persona", "templated"]
    ).astype({"human": "Int64", "persona": "Int64"})
    answers = answers.set_index("person_id")
    traits = traits_of(survey, chosen.index)
    counts = pd.DataFrame(
        {
            "asked": chosen.notna().sum(),
            "silent": chosen.isna().sum(),
            "unread": answers["persona"].isna().groupby(answers["item"]).sum(),
        }
    ).rename_axis("item")
    counts = counts.reindex([item.code for item in items]).fillna(0).astype("int64")
    return Perceptions(
        survey,
        tuple(items),
        answers,
        traits,
        measure(answers, traits, {i.code: len(i.scale) for i in items}, seed),
        counts,
        len(human) - len(able),
        _manifest(survey, items, len(chosen), setting, model, seed),
    )


def _interviews(
    survey: Survey,
    chosen: pd.DataFrame,
    items: Sequence[Probe],
    setting: Setting,
    model: Model,
    seed: int,
    in_flight: int,
) -> Iterator[tuple[Persona, list[int | None]]]:
    ids = survey.persons.loc[chosen.index, "household_id"].tolist()
    homes = households_of(
        survey.households, survey.persons, ids, SPEAKING_AGE, read_map(survey.facts)
    )
    known = chosen.notna()
    talks = []
    for key, home in zip(chosen.index, homes, strict=True):
        (member,) = (m for m in home.members if m.id == key)
        asked = [item for item in items if known.at[key, item.code]]
        talks.append((member, home, asked))
    for start in range(0, len(talks), in_flight):
        wave = talks[start : start + in_flight]
        yield from converse([interview(*talk, setting, seed) for talk in wave], model)


def traits_of(survey: Survey, persons: pd.Index) -> pd.DataFrame:
    """Return the persons' demographics that the survey has and that vary among them, as numbers."""
    own = survey.persons.loc[persons]
    homes = survey.households.loc[own["household_id"]].set_axis(persons)
    found = {
        name: pd.to_numeric(table[name], errors="coerce").astype("float64")
        for name in DEMOGRAPHICS
        for table in (own if name == "age" else homes,)
        if name in table
    }
    table = pd.DataFrame(found, index=persons)
    return table.loc[:, table.nunique() > 1]


def shares(found: Perceptions, item: Probe) -> pd.DataFrame:
    """Return how the answers to an item are spread, of the persons whose personas replied.

    Index ``answer`` (1, 2, ...); ``label``, ``human`` and ``persona`` shares (NaN without any).
    """
    told = found.answers[found.answers["item"] == item.code].dropna(subset=["persona"])
    scale = pd.RangeIndex(1, len(item.scale) + 1, name="answer")
    spread = {
        side: told[side].value_counts(normalize=True).reindex(scale, fill_value=0.0)
        if len(told)
        else np.nan
        for side in ("human", "persona")
    }
    return pd.DataFrame({"label": item.scale, **spread}, index=scale).astype(
        {"human": "float64", "persona": "float64"}
    )


def perceptions_text(found: Perceptions) -> str:
    """Return what a terminal shows: the measures, how answers are spread, what may be said."""
    spread = [f"{_title(item)}\n\n{_shares_text(found, item)}" for item in found.items]
    return "\n\n".join([_how(found), _measures_text(found), *spread, "\n".join(verdict(found))])


def _title(item: Probe) -> str:
    return f'{item.code}: "{item.statement}" {item.ask}'


def _how(found: Perceptions) -> str:
    told, counts = found.answers, found.counts
    templated = int(told.groupby(level=0)["templated"].first().sum())
    lines = [
        f"{found.survey.title}: {len(found.traits):,} respondents (PNUM 1), chosen by random"
        f" numbers among those who answered an item; {found.left_out:,} answered none and were left"
        " out.",
        f"{templated:,} personas are the facts themselves, since no narrative passed its checks.",
    ]
    lines += [
        f"{code}: {asked:,} asked; {silent:,} of the chosen did not answer it in the survey and"
        f" were left out; {unread:,} personas gave no answer that can be read."
        for code, asked, silent, unread in counts.itertuples()
    ]
    return "\n".join(lines)


def _measures_text(found: Perceptions) -> str:
    header = [
        "item",
        "answers of",
        "n",
        "within ±1 [95 %]",
        "QWK [95 %]",
        "distance [95 %]",
        "alignment [95 %]",
    ]
    rows = [
        [item, by, f"{int(row['n']):,}", *(_bounded(row, name) for name in MEASURES)]
        for (item, by), row in zip(
            found.measures.index, found.measures.to_dict("records"), strict=True
        )
    ]
    return markdown(header, rows)


def _bounded(row: Mapping, name: str) -> str:
    if pd.isna(row[name]):
        return "-"
    return f"{number(row[name])} [{number(row[f'{name}_low'])}, {number(row[f'{name}_high'])}]"


def _shares_text(found: Perceptions, item: Probe) -> str:
    rows = [
        [f"{answer} {label}", _percent(human), _percent(persona)]
        for answer, label, human, persona in shares(found, item).itertuples()
    ]
    return markdown(["answer", "persons %", "personas %"], rows)


def _percent(share: float) -> str:
    return number(100 * share, 1)


def verdict(found: Perceptions) -> list[str]:
    """Return what may be said of the personas; nothing of their likeness below 200 persons."""
    sentences = (
        [
            f"{len(found.traits):,} persons are a smoke test: they show that the probes run, not"
            f" what personas perceive. A finding is worded from {ENOUGH} persons on."
        ]
        if len(found.traits) < ENOUGH
        else [s for item in found.items for s in _finding(found, item)]
    )
    pairs = found.traits.shape[1] * len(found.items)
    sentences.append(
        f"The alignment compares {pairs} correlations"
        f" ({', '.join(found.traits.columns) or 'no demographic varies'}) with one another;"
        " it says nothing of whether single persons are met."
    )
    sentences.append(
        "Chance keeps the persons' distribution, so its distance is 0 by construction; the"
        " commonest answer is taken from the very persons that it is compared with."
    )
    if found.survey.name.startswith("nhts"):
        sentences.append(
            "PEMAND (§4.3) reports 74.2 % within one step and an alignment of 0.70 for NHTS, for"
            " its own model and with HEALTH among its items: a citation, not a target."
        )
    return sentences + [f"{item.code}: {item.note}" for item in found.items if item.note]


def _finding(found: Perceptions, item: Probe) -> Iterator[str]:
    own, naive = (found.measures.loc[(item.code, by)] for by in ("personas", "commonest"))
    n, qwk, low, high = int(own["n"]), own["qwk"], own["qwk_low"], own["qwk_high"]
    if n < ENOUGH or pd.isna(qwk):
        yield f"{item.code}: {n:,} persons can be compared; no finding is worded."
        return
    beyond = (
        "agree with their persons more than chance does"
        if low > 0
        else "agree with their persons less than chance does"
        if high < 0
        else "do not agree with their persons beyond chance"
    )
    yield (
        f"{item.code}: personas {beyond} (QWK {number(qwk)}, 95 % interval {number(low)} to"
        f" {number(high)}, n = {n:,}). Within one step are {_percent(own['within_1'])} % of them;"
        f" the commonest answer for everybody would be in {_percent(naive['within_1'])} %."
    )


def write_perceptions(found: Perceptions, out: Path) -> None:
    """Write answers, measures, a page and the manifest into *out*, the manifest last."""
    write_parquet(found.answers, out / "perceptions.parquet")
    write_csv(found.measures, out / "perceptions.csv")
    write_text(f"# What personas perceive\n\n{_page(found)}\n", out / "perceptions.md")
    write_text(
        yaml.safe_dump(found.manifest, sort_keys=False, allow_unicode=True),
        out / "perceptions.yaml",
    )


def _page(found: Perceptions) -> str:
    parts = [_how(found), *verdict(found), "## Measures", _measures_text(found), _MEANING]
    for item in found.items:
        parts += [f"## {item.code}", f'"{item.statement}" {item.ask}', _shares_text(found, item)]
        parts.append(f"Source: {item.source}.")
    return "\n\n".join(parts)


_MEANING = (
    "within ±1: share of persons whose persona answers at most one step of the scale off."
    " QWK: quadratic weighted kappa, 1 where all agree, 0 as by chance."
    " distance: Wasserstein distance of the two distributions over the width of the scale."
    " alignment: Spearman correlation of the persons' and the personas' (demographic x item)"
    " Spearman correlations. Intervals: bootstrap by person; for chance where 95 % of its shuffles"
    " lie. A dash is not defined. All figures are unweighted."
)


def _manifest(
    survey: Survey,
    items: Sequence[Probe],
    persons: int,
    setting: Setting,
    model: Model,
    seed: int,
) -> dict:
    return {
        "survey": survey.name,
        "title": survey.title,
        "year": survey.year,
        "persons": persons,
        "items": {item.code: item.source for item in items},
        "seed": seed,
        "persona_seed": setting.seed,
        "domain": setting.domain.name,
        "model": dict(model.identity),
        "prompts_sha256": prompts_sha256(),
        "anchors": setting.table.source,
        "versions": {
            "pemand-abm": __version__,
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("numpy", "pandas")},
        },
    }
