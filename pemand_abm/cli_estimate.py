"""`pemand estimate`: what a scenario's negotiations will cost, before they are held."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pemand_abm.cli_options import FILE, FOLDER, say

if TYPE_CHECKING:
    from pemand_abm.costs import Expected, Rates
    from pemand_abm.scenario import Limit
    from pemand_abm.study import Study


@click.command()
@click.argument("scenario", type=FILE)
@click.option(
    "--from",
    "earlier",
    type=FOLDER,
    help="An earlier run's folder, whose pace and tokens a call are taken; by default "
    "outputs/SCENARIO, or its base's, where it is a run of the scenario's model.",
)
@click.option("--calls-per-minute", type=click.FloatRange(min=0, min_open=True), help="The pace.")
@click.option(
    "--usd-per-million-tokens-in", type=click.FloatRange(min=0), help="Price of what is read."
)
@click.option(
    "--usd-per-million-tokens-out", type=click.FloatRange(min=0), help="Price of what is written."
)
@click.option(
    "--tokens-out-per-call",
    type=click.FloatRange(min=0),
    help="Tokens that a reply has; an earlier run's by default.",
)
@click.option("--budget", help="For example '2 hours' or '10 USD': how many households it pays.")
def estimate(
    scenario: Path,
    earlier: Path | None,
    calls_per_minute: float | None,
    usd_per_million_tokens_in: float | None,
    usd_per_million_tokens_out: float | None,
    tokens_out_per_call: float | None,
    budget: str | None,
) -> None:
    """Say what the negotiations of SCENARIO will take, and how sure a total they will make.

    No language model is asked: the scripted model rehearses some of the talks to count calls.
    """
    from pemand_abm import costs, limits
    from pemand_abm.scenario import read_scenario

    limit = _limit(budget)
    _check_rates(
        calls_per_minute, usd_per_million_tokens_in, usd_per_million_tokens_out, tokens_out_per_call
    )
    if (usd_per_million_tokens_in is None) != (usd_per_million_tokens_out is None):
        raise click.UsageError(
            "--usd-per-million-tokens-in and --usd-per-million-tokens-out go together: give both"
        )
    settings = read_scenario(scenario)
    own = [Path("outputs") / p.stem for p in (scenario, settings.base) if p is not None]
    earlier = earlier or next((f for f in own if limits.runs_model(f, settings.model)), None)
    given = costs.Rates(
        calls_per_minute,
        None,
        tokens_out_per_call,
        usd_per_million_tokens_in,
        usd_per_million_tokens_out,
    )
    measured = costs.rates_of(earlier) if earlier else costs.Rates()
    rates = limits.over(given, limits.over(limits.stated(settings.budget), measured))
    prepared, _ = limits.prepare_within(settings, rates, own, say)
    expected = costs.expect(prepared, rates)
    click.echo(_sample(prepared))
    click.echo(_cost(expected, rates, earlier))
    if limit:
        click.echo(_converted(expected, limit))


def _check_rates(*rates: float | None) -> None:
    if not all(rate is None or math.isfinite(rate) for rate in rates):
        raise click.UsageError("rates and prices must be finite numbers")


def _limit(budget: str | None) -> Limit | None:
    from pemand_abm.scenario import read_limit

    if budget is None:
        return None
    limit = read_limit(budget)
    if limit is None:
        raise click.UsageError(
            f"--budget {budget!r}: write a number and minutes, hours or USD, such as '2 hours'"
        )
    return limit


def _sample(prepared: Study) -> str:
    from pemand_abm import costs

    households, n = len(prepared.population.households), len(prepared.samples["trips"])
    if not n:
        return f"None of {households:,} households negotiates its trips."
    total, error, half = costs.expected_error(prepared)
    table = costs.precision(prepared).to_string(float_format="{:,.0f}".format)
    sure = "" if half != half else f"; 95 % interval ±{half:,.0f} ({half / total:.1%})"
    return (
        f"{n:,} of {households:,} households negotiate the trips of a weekday\n\n{table}\n\n"
        f"The region's total, {total:,.0f} trips by the surrogate, will have a standard error of "
        f"{error:,.0f} ({error / total:.1%}){sure}, where negotiations scatter about the surrogate "
        "as surveyed households do."
    )


def _cost(expected: Expected, rates: Rates, earlier: Path | None) -> str:
    unknown = "not known; run some households first, or give the rates as options"
    pace = rates.calls_per_minute
    written = "" if expected.tokens_out is None else f", {expected.tokens_out:,.0f} written"
    rule = " (by words, a rule of thumb)" if rates.tokens_in is None else ""
    time = unknown if expected.minutes is None else _duration(expected.minutes)
    money = unknown if expected.usd is None else f"about {expected.usd:,.2f} USD"
    lines = [
        f"calls   about {expected.calls:,} for {expected.households:,} negotiations of all kinds, "
        f"at most {expected.most:,}",
        f"tokens  about {expected.tokens_in:,.0f} read{rule}{written}",
        f"time    {time}" + (f", at {pace:g} calls a minute" if pace else ""),
        f"money   {money}",
    ]
    if earlier:
        lines.append(f"Pace and tokens a call are those of {earlier}, where no option says more.")
    return "\n".join(lines)


def _duration(minutes: float) -> str:
    return f"about {minutes:,.0f} minutes" if minutes < 90 else f"about {minutes / 60:,.1f} hours"


def _converted(expected: Expected, limit: Limit) -> str:
    spent = expected.usd if limit.unit == "USD" else expected.minutes
    n = expected.within(limit.amount, spent)
    if not expected.households:
        return f"{limit.words}: nobody negotiates in this scenario; set `negotiate`"
    if spent == 0:
        return f"{limit.words} pay for all: these negotiations cost nothing at the rates above"
    if n is None:
        return f"{limit.words}: cannot be told in households without the rates above"
    return (
        f"{limit.words} pay for about {n:,} negotiations like these; write the number, or the "
        "words themselves, under `negotiate` in the scenario"
    )
