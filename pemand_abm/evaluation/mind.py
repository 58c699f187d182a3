"""MIND's four variants on the same scenarios: the paper's measures, with intervals.

MIND §4; PROTOCOLS, MIND. A *case* is a scenario and an item. All measures are ratios of sums over
scenarios, so the bootstrap resamples scenarios.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from pemand_abm import __version__, keys
from pemand_abm.agreements import in_words, items_record, outcome_of, turns_record, wishes_record
from pemand_abm.answers import labelled
from pemand_abm.dialogue import Cost, Dialogue, Model, Request, converse, counted, seed_of
from pemand_abm.errors import SettingsError, listed
from pemand_abm.evaluation.results import Rows, markdown, number
from pemand_abm.evaluation.travellers import Scenario, write_scenarios
from pemand_abm.prompting import grammar, prompts_sha256, render
from pemand_abm.protocols.mind import VARIANTS, Case, MindSettings, mind, with_switches
from pemand_abm.settings import suggestion
from pemand_abm.tables import write_csv, write_json_lines, write_parquet, write_text

REPEATS = 1000
ENOUGH = 200
IN_FLIGHT = 64
BANDS = ("1-3", "4-6", "7-8", "9-10")
MEASURES = {
    "debate_hit_rate": "debate hit rate %",
    "debate_ratio": "debate ratio %",
    "fairness": "fairness",
    "fidelity": "fidelity %",
    "satisfaction": "S_total",
    "high_hit": "high-w hit %",
}
PERCENT = ("debate_hit_rate", "debate_ratio", "fidelity", "high_hit")
CRITERIA = ("RATIONALITY", "ALIGNMENT", "VALIDITY", "CHANGE", "FLUENCY", "OVERALL")
PAPER = (
    "The paper (MIND, tables 1 to 3; gpt-4.1-mini, 201 scenarios), base and MIND: debate hit rate"
    " 26.5 and 34.7 %, debate ratio 82.7 and 93.2 %, fairness 0.685 and 0.684, fidelity 25.8 and"
    " 23.9 %, S_total 18.0 and 20.0; inference of w: MAE 1.27, r 0.69, within 2 90.2 %. A citation,"
    " not a target."
)


@dataclass(frozen=True, slots=True, eq=False)
class MindEvaluation:
    """What an evaluation of MIND found.

    `cases` has a row a variant, scenario and item; `measures` a row a variant (`measures_table`);
    `by_size` debate ratio and S_total by group size; `inference` a row a variant that appraises
    (`inference_table`); `wins` the share of proposers whose own wish became the value, by band;
    `judged` a row a criterion, empty without a judge; `costs` a row a variant.
    """

    scenarios: Sequence[Scenario]
    cases: pd.DataFrame
    measures: pd.DataFrame
    by_size: pd.DataFrame
    inference: pd.DataFrame
    wins: pd.DataFrame
    judged: pd.DataFrame
    costs: pd.DataFrame
    records: list[dict]
    manifest: dict


def check_variants(names: Sequence[str]) -> None:
    """Fail with all names that are no variant."""
    faults = [
        f"variant {n!r} is not known"
        + (suggestion(n, VARIANTS) or f"; known are {', '.join(VARIANTS)}")
        for n in names
        if n not in VARIANTS
    ]
    faults += [f"variant {n!r} stands twice" for n in dict.fromkeys(names) if names.count(n) > 1]
    if faults or not names:
        raise SettingsError(
            listed(faults or [f"name at least one of {', '.join(VARIANTS)}"], "--variants")
        )


def most_calls(
    scenarios: Sequence[Scenario], variants: Sequence[str], settings: MindSettings, judge: bool
) -> int:
    """Return the most calls that the variants can take together."""
    talks = sum(
        with_switches(settings, v).most_calls(len(s.delegates), len(s.items))
        for v in variants
        for s in scenarios
    )
    return talks + (2 * len(scenarios) if judge else 0)


def evaluate_mind(
    scenarios: Sequence[Scenario],
    variants: Sequence[str],
    settings: MindSettings,
    model: Model,
    seed: int,
    judge: bool,
    say: Callable[[str], None],
    survey_by: str,
) -> MindEvaluation:
    """Let every variant negotiate all scenarios, measure, and let the model judge where asked."""
    check_variants(variants)
    held: dict[str, list[tuple[list[Case], Cost]]] = {}
    for variant in variants:
        say(f"{variant}: {len(scenarios):,} scenarios")
        held[variant] = list(_negotiated(scenarios, with_switches(settings, variant), model, seed))
    cases = case_table(scenarios, {v: [c for c, _ in told] for v, told in held.items()})
    judged = pd.DataFrame()
    if judge:
        say("judging base against mind, in both orders")
        pairs = zip(scenarios, held["base"], held["mind"], strict=True)
        verdicts = converse(
            [compare(s, one[0], other[0], settings, seed) for s, one, other in pairs], model
        )
        judged = judged_table(verdicts)
    return MindEvaluation(
        scenarios,
        cases,
        measures_table(cases, seed),
        size_table(cases, seed),
        inference_table(cases, seed),
        win_table(cases),
        judged,
        _costs(held),
        [
            _record(s, v, told, cost)
            for v, all_told in held.items()
            for s, (told, cost) in zip(scenarios, all_told, strict=True)
        ],
        _manifest(scenarios, variants, settings, model, seed, survey_by),
    )


def _negotiated(
    scenarios: Sequence[Scenario], settings: MindSettings, model: Model, seed: int
) -> Iterator[tuple[list[Case], Cost]]:
    for start in range(0, len(scenarios), IN_FLIGHT):
        wave = scenarios[start : start + IN_FLIGHT]
        yield from converse(
            [
                counted(mind(s.delegates, s.plan, s.items, settings, (seed, s.name, "plan", 1)))
                for s in wave
            ],
            model,
        )


# --- measures -----------------------------------------------------------------------------------


def case_table(
    scenarios: Sequence[Scenario], held: Mapping[str, Sequence[Sequence[Case]]]
) -> pd.DataFrame:
    """Return one row a variant, scenario and item.

    ``size``, ``value``, ``outcome``, ``rounds``, ``proposer_weight``, ``proposer_won``; ``hits``
    (members whose wish before the talk is the value), ``top_hit`` (one of those to whom it matters
    most is among them), ``satisfaction`` (their willingness, summed) and ``satisfied`` (by member,
    a list); ``guesses`` (of the proposer's willingness, a list).
    """
    rows = []
    for variant, talks in held.items():
        for scenario, cases in zip(scenarios, talks, strict=True):
            for case in cases:
                wishes = list(case.wishes.values())
                top = max(s.weight for s in wishes)
                satisfied = [s.weight if s.value == case.value else 0 for s in wishes]
                own = case.wishes[case.proposer]
                rows.append(
                    {
                        "variant": variant,
                        "scenario": scenario.name,
                        "item": case.item,
                        "size": len(wishes),
                        "value": case.value,
                        "outcome": case.outcome,
                        "rounds": case.rounds,
                        "proposer_weight": own.weight,
                        "proposer_won": own.value == case.value,
                        "hits": sum(s.value == case.value for s in wishes),
                        "top_hit": any(s.weight == top and s.value == case.value for s in wishes),
                        "satisfaction": sum(satisfied),
                        "satisfied": satisfied,
                        "guesses": [a.guess for a in case.appraisals],
                    }
                )
    return pd.DataFrame(rows)


def jain(satisfied: Sequence[float]) -> float:
    """Return Jain's index of fairness; NaN where nobody is satisfied (MIND, equation 5).

    >>> jain([10, 10]), jain([10, 0]), jain([0, 0])
    (1.0, 0.5, nan)
    """
    total, squares = sum(satisfied), sum(s * s for s in satisfied)
    return total**2 / (len(satisfied) * squares) if squares else float("nan")


def sums(cases: pd.DataFrame) -> pd.DataFrame:
    """Return each scenario's numerator and denominator of every measure; columns (measure, part).

    *cases* are of one variant.
    """
    debated = cases["outcome"] == "agreed"
    fairness = cases.groupby("scenario", sort=False)["satisfied"].agg(
        lambda lists: jain([sum(own) for own in zip(*lists, strict=True)])
    )
    parts = {
        ("debate_hit_rate", "n"): cases["top_hit"] & debated,
        ("debate_hit_rate", "of"): debated,
        ("debate_ratio", "n"): debated,
        ("debate_ratio", "of"): 1,
        ("fidelity", "n"): cases["hits"] / cases["size"],
        ("fidelity", "of"): 1,
        ("high_hit", "n"): cases["top_hit"],
        ("high_hit", "of"): 1,
        ("satisfaction", "n"): cases["satisfaction"],
    }
    table = pd.DataFrame(
        {k: pd.Series(v, index=cases.index, dtype="float64") for k, v in parts.items()}
    )
    by = table.groupby(cases["scenario"], sort=False).sum()
    by["satisfaction", "of"] = 1.0
    by["fairness", "n"] = fairness.fillna(0.0)
    by["fairness", "of"] = fairness.notna().astype("float64")
    return by


def measures_table(cases: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return every measure of every variant with 95 % intervals, and its difference to `base`.

    Index ``variant``; ``scenarios``, ``cases``, ``unfair`` (scenarios whose fairness is not
    defined, since nobody got what he wished), and for each measure ``NAME``, ``NAME_low``,
    ``NAME_high``, ``NAME_less_base`` with its ``_low`` and ``_high`` (paired; NaN without base).
    """
    own = {v: sums(part) for v, part in cases.groupby("variant", sort=False)}
    base = own.get("base")
    rows = {}
    for variant, table in own.items():
        part = cases[cases["variant"] == variant]
        row: dict[str, float] = {
            "scenarios": len(table),
            "cases": len(part),
            "unfair": int((table["fairness", "of"] == 0).sum()),
        }
        draws = _draws(len(table), seed)
        for name in MEASURES:
            value, spread = _ratio(table[name], draws)
            row |= {name: value, **_interval(name, spread)}
            if base is not None:
                other, others = _ratio(base[name], draws)
                row[f"{name}_less_base"] = value - other
                row |= _interval(f"{name}_less_base", spread - others)
        rows[variant] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("variant")


def _draws(n: int, seed: int) -> np.ndarray:
    """Return how often each of n scenarios is drawn, (repeats, n)."""
    draw = keys.generator(seed, "mind bootstrap")
    return draw.multinomial(n, np.full(n, 1 / n), REPEATS).astype(float)


def _ratio(table: pd.DataFrame, draws: np.ndarray) -> tuple[float, np.ndarray]:
    n, of = table["n"].to_numpy(float), table["of"].to_numpy(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.divide(n.sum(), of.sum())), (draws @ n) / (draws @ of)


def _interval(name: str, spread: np.ndarray) -> dict[str, float]:
    known = spread[~np.isnan(spread)]
    low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (np.nan, np.nan)
    return {f"{name}_low": float(low), f"{name}_high": float(high)}


def size_table(cases: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return `measures_table` by variant and group size."""
    parts = [measures_table(part, seed).assign(size=size) for size, part in cases.groupby("size")]
    return pd.concat(parts).reset_index().set_index(["variant", "size"])


def inference_table(cases: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return how well voters infer the proposer's willingness, by variant that appraises.

    ``n`` inferences, ``mae``, ``r`` (Pearson; NaN where either does not vary), ``within_1``,
    ``within_2``, each with ``_low`` and ``_high`` (scenarios resampled).
    """
    rows = {}
    for variant, part in cases.groupby("variant", sort=False):
        pairs = part[["scenario", "proposer_weight", "guesses"]].explode("guesses").dropna()
        if pairs.empty:
            continue
        true = pairs["proposer_weight"].to_numpy(float)
        told = pairs["guesses"].to_numpy(float)
        place = pd.Categorical(pairs["scenario"], part["scenario"].unique()).codes
        draws = _draws(part["scenario"].nunique(), seed)[:, place]
        row: dict[str, float] = {"n": len(pairs)}
        for name, error in {
            "mae": np.abs(true - told),
            "within_1": (np.abs(true - told) <= 1).astype(float),
            "within_2": (np.abs(true - told) <= 2).astype(float),
        }.items():
            with np.errstate(invalid="ignore"):
                spread = (draws @ error) / draws.sum(axis=1)
            row |= {name: float(error.mean()), **_interval(name, spread)}
        row |= {"r": _pearson(true, told, np.ones((1, len(true))))[0]}
        row |= _interval("r", _pearson(true, told, draws))
        rows[variant] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("variant")


def _pearson(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the correlation under each row of weights."""
    with np.errstate(invalid="ignore", divide="ignore"):
        n = w.sum(axis=1)
        mx, my = (w @ x) / n, (w @ y) / n
        cov = (w @ (x * y)) / n - mx * my
        sx, sy = (w @ (x * x)) / n - mx**2, (w @ (y * y)) / n - my**2
        r = cov / np.sqrt(np.maximum(sx, 0) * np.maximum(sy, 0))
    return np.where((sx > 1e-12) & (sy > 1e-12), r, np.nan)


def win_table(cases: pd.DataFrame) -> pd.DataFrame:
    """Return how often a proposer's own wish became the value, by his willingness.

    Index (``variant``, ``band``); ``n`` and ``won`` (share).
    """
    band = pd.cut(cases["proposer_weight"], [0, 3, 6, 8, 10], labels=list(BANDS))
    table = cases.groupby([cases["variant"], band.rename("band")], sort=False, observed=True)
    return table["proposer_won"].agg(n="size", won="mean").sort_index(level=1, sort_remaining=False)


# --- the judge ----------------------------------------------------------------------------------


def compare(
    scenario: Scenario,
    base: Sequence[Case],
    other: Sequence[Case],
    settings: MindSettings,
    seed: int,
) -> Dialogue[dict[str, str]]:
    """Let the model say which talk is better, in both orders (MIND, appendix E).

    Its result is `base`, `mind` or `tie` by criterion: a tie too where the two orders disagree,
    and empty where a reply could not be read.
    """
    sides = {"base": base, "mind": other}
    requests = []
    for order in (("base", "mind"), ("mind", "base")):
        system, user = render(
            "mind/judge",
            plan=scenario.plan.words,
            criteria=CRITERIA,
            people=[
                {
                    "name": d.name,
                    "wishes": "; ".join(
                        f"{i.replace('_', ' ')} {d.stakes[i].value} ({d.stakes[i].weight})"
                        for i in scenario.items
                    ),
                }
                for d in scenario.delegates
            ],
            talks=[{"result": in_words(sides[s]), "lines": _lines(sides[s])} for s in order],
        )
        own = seed_of(seed, scenario.name, "judge", *order)
        label = (scenario.name, "judge", f"{order[0]} first")
        form = grammar("mind/judge", criteria=CRITERIA)
        requests.append(Request(system, user, own, label, 60, 0.0, form))
    first, second = yield requests
    verdict = {}
    for criterion in CRITERIA:
        one = {"A": "base", "B": "mind", "TIE": "tie"}.get(labelled(first.text, criterion) or "")
        two = {"A": "mind", "B": "base", "TIE": "tie"}.get(labelled(second.text, criterion) or "")
        verdict[criterion] = "" if not (one and two) else one if one == two else "tie"
    return verdict


def _lines(cases: Sequence[Case], most: int = 12) -> list[str]:
    said = [
        f"{s.speaker} ({s.act}{', ' + s.value if s.value else ''}): {s.text}"
        for c in cases
        for s in c.said
        if s.text
    ]
    return said[:most]


def judged_table(verdicts: Sequence[Mapping[str, str]]) -> pd.DataFrame:
    """Return wins by criterion: ``n``, ``mind``, ``tie``, ``base`` (shares), ``unread``."""
    rows = {}
    for criterion in CRITERIA:
        told = pd.Series([v[criterion] for v in verdicts], dtype="str")
        read = told[told != ""]
        shares = {
            s: float((read == s).mean()) if len(read) else np.nan for s in ("mind", "tie", "base")
        }
        rows[criterion.lower()] = {"n": len(read), **shares, "unread": len(told) - len(read)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("criterion")


# --- costs, records, text -----------------------------------------------------------------------


def _costs(held: Mapping[str, Sequence[tuple[list[Case], Cost]]]) -> pd.DataFrame:
    rows = {}
    for variant, told in held.items():
        cases = [c for talk, _ in told for c in talk]
        total = sum((cost for _, cost in told), Cost())
        rows[variant] = {
            "calls": total.calls / len(cases),
            "prompt_tokens": total.prompt_tokens / len(cases),
            "completion_tokens": total.completion_tokens / len(cases),
            "rounds": float(np.mean([c.rounds for c in cases])),
            "faults": sum(len(c.faults) for c in cases) / len(cases),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("variant")


def _record(scenario: Scenario, variant: str, cases: Sequence[Case], cost: Cost) -> dict:
    return {
        "household_id": scenario.name,
        "event": f"evaluation of {variant}",
        "kind": "plan",
        "variant": variant,
        "zone": f"{scenario.journey.origin} to {scenario.journey.destination}",
        "outcome": outcome_of(cases),
        "value": in_words(cases),
        "unit": scenario.plan.words["task"],
        "rounds": max(c.rounds for c in cases),
        "calls": cost.calls,
        "items": items_record(cases, scenario.plan),
        "members": [
            {
                "name": d.name,
                "speaks": True,
                "facts": [],
                "persona": d.about,
                "templated": False,
                "wishes": wishes_record({i: d.stakes[i] for i in scenario.items}),
            }
            for d in scenario.delegates
        ],
        "turns": turns_record(cases, scenario.plan),
    }


def _manifest(
    scenarios: Sequence[Scenario],
    variants: Sequence[str],
    settings: MindSettings,
    model: Model,
    seed: int,
    survey_by: str,
) -> dict:
    return {
        "protocol": "mind",
        "scenarios": len(scenarios),
        "groups": {
            n: sum(len(s.delegates) == n for s in scenarios)
            for n in sorted({len(s.delegates) for s in scenarios})
        },
        "cases": sum(len(s.items) for s in scenarios),
        "survey_by": survey_by,
        "variants": list(variants),
        "seed": seed,
        "max_rounds": settings.max_rounds,
        "quorum": settings.quorum,
        "temperature": settings.temperature,
        "model": dict(model.identity),
        "prompts_sha256": prompts_sha256(),
        "versions": {
            "pemand-abm": __version__,
            "python": platform.python_version(),
            **{n: metadata.version(n) for n in ("numpy", "pandas", "scikit-learn")},
        },
        "notes": list(getattr(model, "notes", ())),
    }


def tables(found: MindEvaluation) -> list[tuple[str, Rows]]:
    """Return all tables, each with its caption."""
    told = [
        ("How the variants end (95 % intervals)", _measure_rows(found.measures)),
        ("Difference to base, paired by scenario (95 % intervals)", _difference_rows(found)),
        ("By group size", _size_rows(found.by_size)),
        ("Inference of the proposer's willingness", _inference_rows(found.inference)),
        ("Proposers whose own wish became the value, by what it mattered to them", _wins(found)),
        ("What a case took, on average", _cost_rows(found.costs)),
    ]
    if len(found.judged):
        told.append(("The judge, each pair in both orders (MIND, base; %)", _judged(found.judged)))
    return [(caption, rows) for caption, rows in told if rows[1]]


def _shown(row: Mapping[str, float], name: str, plus: str = "") -> str:
    scale, digits = (100, 1) if name in PERCENT else (1, 3 if name == "fairness" else 2)
    return _bounded(row, f"{name}{plus}", scale, digits)


def _measure_rows(table: pd.DataFrame) -> Rows:
    header = ["variant", "scenarios", "cases", *MEASURES.values(), "fairness not defined"]
    rows = [
        [
            str(v),
            f"{int(r['scenarios']):,}",
            f"{int(r['cases']):,}",
            *(_shown(r, m) for m in MEASURES),
            f"{int(r['unfair'])}",
        ]
        for v, r in zip(table.index, table.to_dict("records"), strict=True)
    ]
    return header, rows


def _difference_rows(found: MindEvaluation) -> Rows:
    table = found.measures
    if "base" not in table.index:
        return [], []
    rows = [
        [str(v), *(_shown(r, m, "_less_base") for m in MEASURES)]
        for v, r in zip(table.index, table.to_dict("records"), strict=True)
        if v != "base"
    ]
    return ["variant", *MEASURES.values()], rows


def _size_rows(table: pd.DataFrame) -> Rows:
    kept = ("debate_ratio", "debate_hit_rate", "satisfaction")
    rows = [
        [str(v), str(size), f"{int(r['scenarios']):,}", *(_shown(r, m) for m in kept)]
        for (v, size), r in zip(table.index, table.to_dict("records"), strict=True)
    ]
    return ["variant", "people", "scenarios", *(MEASURES[m] for m in kept)], rows


def _inference_rows(table: pd.DataFrame) -> Rows:
    rows = []
    for variant, r in zip(table.index, table.to_dict("records"), strict=True):
        cells = [
            _bounded(r, m, s, d)
            for m, s, d in (("mae", 1, 2), ("r", 1, 2), ("within_1", 100, 1), ("within_2", 100, 1))
        ]
        rows.append([str(variant), f"{int(r['n']):,}", *cells])
    return ["variant", "n", "MAE", "r", "within 1 %", "within 2 %"], rows


def _bounded(row: Mapping[str, float], name: str, scale: float, digits: int) -> str:
    point, low, high = (
        number(scale * row[f"{name}{end}"], digits) for end in ("", "_low", "_high")
    )
    return f"{point} [{low}, {high}]"


def _wins(found: MindEvaluation) -> Rows:
    rows = [
        [str(variant), str(band), f"{int(n):,}", number(100 * won, 1)]
        for variant, part in found.wins.groupby(level=0, sort=False)
        for (_, band), n, won in part.itertuples()
    ]
    return ["variant", "willingness", "cases", "won %"], rows


def _cost_rows(table: pd.DataFrame) -> Rows:
    rows = [
        [
            str(v),
            number(r["calls"]),
            number(r["prompt_tokens"], 0),
            number(r["completion_tokens"], 0),
            number(r["rounds"]),
            number(r["faults"]),
        ]
        for v, r in zip(table.index, table.to_dict("records"), strict=True)
    ]
    return ["variant", "calls", "tokens in", "tokens out", "rounds", "unusable replies"], rows


def _judged(table: pd.DataFrame) -> Rows:
    rows = [
        [
            str(c),
            f"{int(r['n'])}",
            *(number(100 * r[s], 1) for s in ("mind", "tie", "base")),
            f"{int(r['unread'])}",
        ]
        for c, r in zip(table.index, table.to_dict("records"), strict=True)
    ]
    return ["criterion", "n", "MIND better", "tie", "base better", "not readable"], rows


def verdict(found: MindEvaluation) -> list[str]:
    """Return what may be said: nothing in words below 200 scenarios."""
    name = str(found.manifest["model"].get("model"))
    if name == "scripted":
        lead = (
            "The scripted model answers by stated rules"
            " (pemand_abm/models/scripted_plans.py): this is a test of the engine, and says"
            " nothing of people."
        )
    else:
        lead = "What a language model's travellers do is no evidence of what people do."
    if len(found.scenarios) < ENOUGH:
        return [
            f"{len(found.scenarios)} scenarios are a smoke test: they show that the variants run,"
            f" not which is better. A comparison is worded from {ENOUGH} scenarios on.",
            lead,
        ]
    told = []
    for variant, r in zip(found.measures.index, found.measures.to_dict("records"), strict=True):
        for measure, title in MEASURES.items():
            low, high = (r.get(f"{measure}_less_base_{side}", np.nan) for side in ("low", "high"))
            if variant != "base" and (low > 0 or high < 0):
                side = "above" if low > 0 else "below"
                told.append(
                    f"{variant}: {title} {side} base's ({_shown(r, measure, '_less_base')})."
                )
    return [lead, *(told or ["No variant differs from base beyond chance (95 % intervals)."])]


def mind_text(found: MindEvaluation) -> str:
    """Return what the terminal shows."""
    parts = [f"{caption}\n\n{markdown(*rows)}" for caption, rows in tables(found)]
    return "\n\n".join([*parts, "\n".join(verdict(found)), PAPER])


def write_mind(found: MindEvaluation, out: Path) -> None:
    """Write scenarios, cases, tables, talks, pages and the manifest into *out* (docs/files.md)."""
    write_scenarios(found.scenarios, out / "scenarios.jsonl")
    write_parquet(found.cases, out / "cases.parquet")
    write_csv(found.measures, out / "measures.csv")
    write_csv(found.inference, out / "inference.csv")
    write_json_lines(found.records, out / "transcripts.jsonl")
    text = "\n\n".join(
        [
            "# MIND and its variants",
            *verdict(found),
            *(f"## {c}\n\n{markdown(*r)}" for c, r in tables(found)),
            PAPER,
        ]
    )
    write_text(f"{text}\n", out / "mind.md")
    write_text(as_html(found), out / "mind.html")
    write_text(
        yaml.safe_dump(found.manifest, sort_keys=False, allow_unicode=True), out / "mind.yaml"
    )


def as_html(found: MindEvaluation) -> str:
    """Return the page as HTML, with three talks to read."""
    from pemand_abm.report import Table, page, talk_of

    last = next(v for v in ("mind", *found.manifest["variants"]) if v in found.manifest["variants"])
    own = [r for r in found.records if r["variant"] == last]
    longest = sorted(own, key=lambda r: -len(r["turns"]))[:3]
    return page(
        "mind.html.j2",
        {},
        title="MIND and its variants",
        verdict=verdict(found),
        paper=PAPER,
        tables=[Table(*rows, caption) for caption, rows in tables(found)],
        talks=[talk_of(r) for r in longest],
        card=[(k, str(v)) for k, v in found.manifest.items() if k != "notes"],
        notes=found.manifest["notes"],
    )
