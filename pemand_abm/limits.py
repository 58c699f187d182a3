"""Time and money under `negotiate`, converted into households before a run (ARCHITECTURE §5).

Only the count acts: nothing stops a run that takes longer than was expected. It is kept in a file
beside the journal, so that a run that goes on, a rerun, and a scenario that rests on this one ask
as many households, whatever pace was measured since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from pemand_abm.costs import REHEARSED, Expected, Rates, expect, rates_of
from pemand_abm.errors import SettingsError, listed
from pemand_abm.scenario import EVERYBODY, Budget, Hosting, Limit, Negotiate, Scenario
from pemand_abm.study import Study, prepare, resampled
from pemand_abm.tables import write_text

FILE = "negotiate.yaml"


def prepare_within(
    scenario: Scenario,
    rates: Rates,
    earlier: Sequence[Path],
    say: Callable[[str], None],
) -> tuple[Study, dict[str, dict[str, Any]]]:
    """Prepare a study; where time or money limits its negotiations, with as many as these pay for.

    Parameters
    ----------
    scenario : Scenario
        Its `negotiate` may hold limits.
    rates : Rates
        Of its model (`rates_for`).
    earlier : sequence of Path
        Folders of runs whose counts hold where they have `FILE` with the same words and model; the
        first counts.
    say : callable
        Told what is done.

    Returns
    -------
    Study, dict
        The study, whose scenario has counts in place of the limits; and by decision what was
        converted: `given`, `households`, `model`, and unless an earlier run had it converted
        `calls_per_household`, `each` (minutes or USD a household), and the rates that were used.

    Raises
    ------
    SettingsError
        A rate that is not known; a limit that pays for nobody.
    """
    limits = scenario.negotiate.limits()
    if not limits:
        return prepare(scenario, say), {}
    converted = {
        kind: held
        for kind, limit in limits.items()
        if (held := _kept(kind, limit, scenario.model.use, earlier))
    }
    missing = {kind: limit for kind, limit in limits.items() if kind not in converted}
    _check_known(missing, rates, scenario.model.use)
    counts = {kind: converted[kind]["households"] if kind in converted else 0 for kind in limits}
    study = prepare(_asking(scenario, counts), say)
    for kind, limit in missing.items():
        converted[kind] = _convert(study, kind, limit, rates)
    counts = {kind: held["households"] for kind, held in converted.items()}
    for kind, held in converted.items():
        told = "all" if held["households"] == EVERYBODY else f"{held['households']:,}"
        say(f"negotiate.{kind}: {held['given']} are {told} households")
    return (resampled(study, _counted(scenario, counts)) if missing else study), converted


def rates_for(scenario: Scenario, earlier: Sequence[Path]) -> Rates:
    """Return what is known of a scenario's model: what it states, else what runs of it measured."""
    known = Rates()
    for folder in earlier:
        if runs_model(folder, scenario.model):
            known = over(known, rates_of(folder))
    return over(stated(scenario.budget), known)


def stated(budget: Budget) -> Rates:
    """Return the rates that a scenario states."""
    return Rates(
        calls_per_minute=budget.calls_per_minute,
        tokens_out=budget.tokens_out_per_call,
        usd_in=budget.usd_per_million_tokens_in,
        usd_out=budget.usd_per_million_tokens_out,
    )


def over(first: Rates, other: Rates) -> Rates:
    """Return *first* with what it does not know from *other*."""
    names = Rates.__dataclass_fields__
    return replace(other, **{n: getattr(first, n) for n in names if getattr(first, n) is not None})


def runs_model(folder: Path, model: Hosting) -> bool:
    """Return whether a folder holds a whole run of a model in as many replicas."""
    made = _mapping(folder / "run.yaml")
    return (made.get("settings") or {}).get("model") == model.model_dump()


def keep(converted: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Write what limits were converted into beside the journal; without any, no file is left."""
    if not converted:
        (folder / FILE).unlink(missing_ok=True)
        return
    text = yaml.safe_dump({k: dict(v) for k, v in converted.items()}, sort_keys=False)
    write_text(text, folder / FILE)


def _mapping(path: Path) -> dict[str, Any]:
    """Return what a YAML file holds; nothing where there is none, or one that is damaged."""
    try:
        held = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return held if isinstance(held, dict) else {}


def _kept(kind: str, limit: Limit, model: str, earlier: Sequence[Path]) -> dict[str, Any] | None:
    """Return what an earlier run had the same words converted into for the same model."""
    for folder in earlier:
        held = _mapping(folder / FILE).get(kind)
        if not isinstance(held, dict) or not isinstance(held.get("households"), int):
            continue
        if held.get("given") == limit.words and held.get("model") == model:
            return held
    return None


def _check_known(limits: Mapping[str, Limit], rates: Rates, model: str) -> None:
    """Refuse limits that no rate converts, with what to do."""
    problems = []
    once = "run it once with a number of households into the same folder, which measures it, or"
    for kind, limit in limits.items():
        start = f"negotiate.{kind}: {limit.words!r} cannot be told in households: "
        if limit.unit == "minutes" and rates.calls_per_minute is None:
            problems.append(
                f"{start}no pace of the model {model!r} is known; {once} state "
                "budget.calls_per_minute"
            )
        if limit.unit == "USD" and rates.usd_in is None:
            problems.append(
                f"{start}no price is known; state budget.usd_per_million_tokens_in and "
                "budget.usd_per_million_tokens_out"
            )
        if limit.unit == "USD" and rates.tokens_out is None:
            problems.append(
                f"{start}no length of a reply of the model {model!r} is known; {once} state "
                "budget.tokens_out_per_call"
            )
    if problems:
        raise SettingsError(listed(problems, "negotiate"))


def _counted(scenario: Scenario, counts: Mapping[str, int]) -> Negotiate:
    return scenario.negotiate.model_copy(update=dict(counts))


def _asking(scenario: Scenario, counts: Mapping[str, int]) -> Scenario:
    return scenario.model_copy(update={"negotiate": _counted(scenario, counts)})


def _convert(study: Study, kind: str, limit: Limit, rates: Rates) -> dict[str, Any]:
    """Return how many negotiations of a kind a limit pays for, from a rehearsal of some."""
    expected = _rehearsed(study, kind, rates)
    spent = expected.minutes if limit.unit == "minutes" else expected.usd
    assert spent is not None
    each = spent / expected.households
    if each == 0:
        raise SettingsError(
            f"negotiate.{kind}: {limit.words!r} is no limit, since these negotiations cost nothing "
            "at the rates given; write a number of households"
        )
    count = min(int(limit.amount / each), EVERYBODY)
    if count == 0:
        raise SettingsError(
            f"negotiate.{kind}: {limit.words!r} pays for nobody, since a household takes about "
            f"{each:,.3g} {limit.unit}; give more, or `none`"
        )
    used = {
        "calls_per_minute": rates.calls_per_minute,
        "tokens_in": expected.tokens_in / expected.calls if expected.calls else None,
        "tokens_out": rates.tokens_out,
        "usd_per_million_tokens_in": rates.usd_in,
        "usd_per_million_tokens_out": rates.usd_out,
    }
    needed = list(used)[:1] if limit.unit == "minutes" else list(used)[1:]
    return {
        "given": limit.words,
        "households": count,
        "model": study.scenario.model.use,
        "each": round(each, 6),
        "unit": limit.unit,
        "calls_per_household": round(expected.calls / expected.households, 3),
        **{name: used[name] for name in needed},
    }


def _rehearsed(study: Study, kind: str, rates: Rates) -> Expected:
    """Return what some negotiations of one kind alone take."""
    only = Negotiate(trips=0, relocation=0).model_copy(update={kind: REHEARSED})
    alone = replace(resampled(study, only), terms=None)
    free = alone.scenario.model_copy(update={"budget": Budget()})
    return expect(replace(alone, scenario=free), rates)
