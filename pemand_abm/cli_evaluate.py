"""`pemand evaluate`: methods against surveyed households, ablations, perceptions, cards."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pemand_abm.cli_options import FILE, FOLDER, REMOTE, REMOTE_HELP, keeping, say

if TYPE_CHECKING:
    from pemand_abm.domains import Domain
    from pemand_abm.evaluation.methods import Setting
    from pemand_abm.evaluation.trial import Trial
    from pemand_abm.models import Remote
    from pemand_abm.models.progress import Progress
    from pemand_abm.surveys import Survey

MODERATORS = click.Choice(["judge", "advise", "checks", "none"])


def model_options(command: Any) -> Any:
    """Add what every command that asks a model takes."""
    for option in (
        click.option(
            "--journal", type=FILE, help="The file of replies; journal.sqlite in --out else."
        ),
        click.option(
            "--fast",
            is_flag=True,
            help="Embedded model: several replies share a batch, which rounds in another order.",
        ),
        click.option("--workers", type=click.IntRange(min=1), help="Replies made at once."),
        click.option("--adapter", help="A LoRA adapter's folder, or `none`; the shipped one else."),
        click.option("--base-url", help="The server of an openai model."),
        click.option(
            "--remote", type=REMOTE, default="refuse", show_default=True, help=f"{REMOTE_HELP}."
        ),
        click.option(
            "--model",
            default="embedded",
            show_default=True,
            help="Who answers where a method asks a language model.",
        ),
    ):
        command = option(command)
    return command


def trial_options(command: Any) -> Any:
    """Add what names the survey and its households.

    The survey is asked for in `Asked`, since a group's own options come before its commands'.
    """
    for option in (
        click.option("--out", type=FOLDER, help="Where to write; outputs/evaluate-SURVEY else."),
        click.option("--seed", type=int, default=0, show_default=True, help="Seed of all draws."),
        click.option(
            "--members",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help="Only households of so many members and more.",
        ),
        click.option(
            "--households",
            type=click.IntRange(min=1),
            help="How many of the test split; all by default.",
        ),
        click.option(
            "--data",
            type=FOLDER,
            help="The folder of the survey's files; that of its map by default.",
        ),
        click.option(
            "--survey",
            default="",
            help="A survey's name, or the map of your own (docs/surveys.md).",
        ),
    ):
        command = option(command)
    return command


def talk_options(command: Any) -> Any:
    """Add what the negotiations of an evaluation depend on."""
    for option in (
        click.option(
            "--anchors",
            type=FILE,
            help="A table of anchors (pemand anchors); the shipped one else.",
        ),
        click.option(
            "--calibration", type=FILE, help="The moderator's (pemand train judge calibrate)."
        ),
        click.option(
            "--max-rounds",
            type=click.IntRange(min=0),
            default=5,
            show_default=True,
            help="The most rounds of a talk; a card admits runs with as many.",
        ),
        click.option(
            "--moderator",
            type=MODERATORS,
            default="advise",
            show_default=True,
            help="How the moderator of a negotiation acts (docs/evaluation.md).",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a command that evaluates, as given."""

    survey: str
    data: Path | None
    households: int | None
    members: int
    seed: int
    out: Path | None
    model: str
    base_url: str | None
    remote: Remote
    workers: int | None
    fast: bool
    adapter: str | None
    moderator: str
    max_rounds: int
    journal: Path | None
    anchors: Path | None
    calibration: Path | None

    def __post_init__(self) -> None:
        if not self.survey:
            raise click.UsageError("Missing option '--survey'.")

    def folder(self, what: str) -> Path:
        """Return the folder to write to."""
        return self.out or Path("outputs") / f"{what}-{Path(self.survey).stem}"

    def answering(self, out: Path) -> AbstractContextManager[Progress]:
        """Give the model behind a journal, with its progress shown."""
        return answering(
            out,
            self.model,
            self.base_url,
            self.workers,
            self.journal,
            self.adapter,
            self.fast,
            self.remote,
        )

    def trial(self) -> Trial:
        """Read the survey and choose its households."""
        from pemand_abm.evaluation.trial import design_trial
        from pemand_abm.surveys import read_survey

        say(f"Reading {self.survey}")
        survey = read_survey(self.survey, self.data)
        return design_trial(survey, self.households, self.seed, self.members)

    def setting(self, survey: Survey, domain: Domain) -> Setting:
        """Return what all talks about a survey's households have in common."""
        from pemand_abm.anchors import read_anchors, shipped_anchors
        from pemand_abm.evaluation.methods import Setting
        from pemand_abm.protocols.pemand import PemandSettings

        if self.anchors:
            table = read_anchors(self.anchors, survey.year, (domain.name,))
        else:
            table = shipped_anchors(survey.name, survey.year)
        settings = PemandSettings(max_rounds=self.max_rounds, moderator=self.moderator)
        if self.calibration:
            from pemand_abm.training.judge import read_calibration

            settings = replace(settings, pass_marks=read_calibration(self.calibration))
        return Setting(domain, table, self.seed, settings)


@contextmanager
def answering(
    out: Path,
    model: str,
    base_url: str | None,
    workers: int | None,
    journal: Path | None,
    adapter: str | None = None,
    fast: bool = False,
    remote: Remote = "refuse",
) -> Iterator[Progress]:
    """Give the model behind a journal, with its progress shown."""
    from pemand_abm.models import open_model
    from pemand_abm.models.journal import Journal
    from pemand_abm.models.progress import Progress

    kept = journal or out / "journal.sqlite"
    with ExitStack() as stack:
        wanted = open_model(
            model,
            base_url=base_url,
            workers=workers,
            exact=not fast,
            adapter=adapter,
            remote=remote,
        )
        if hasattr(wanted, "close"):
            stack.callback(wanted.close)
        stack.enter_context(keeping(kept))
        replies = Journal(wanted, kept)
        stack.callback(replies.close)
        yield stack.enter_context(Progress(replies))


@click.group(invoke_without_command=True)
@trial_options
@talk_options
@model_options
@click.option("--methods", default="gbm", show_default=True, help="Names, parted by commas.")
@click.option(
    "--card",
    is_flag=True,
    help="Write the level card of this model: whether its negotiations may enter totals.",
)
@click.option(
    "--response",
    is_flag=True,
    help="Write the response card too: how its households answer to a dearer fuel.",
)
@click.option(
    "--replicates",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Repeats of each talk for the response card.",
)
@click.pass_context
def evaluate(
    context: click.Context,
    methods: str,
    card: bool,
    response: bool,
    replicates: int,
    **given: Any,
) -> None:
    """Compare methods on households of a survey that none of them was trained on."""
    if context.invoked_subcommand:
        return
    asked = Asked(**given)
    names = [m.strip() for m in methods.split(",") if m.strip()]
    if (card or response) and "pemand" not in names:
        names.append("pemand")
    wanted = replicates if response else 0 if card else None
    run_methods(asked, names, "evaluate", wanted)


def run_methods(
    asked: Asked, methods: Sequence[str], what: str, replicates: int | None = None
) -> None:
    """Evaluate the methods, write the folder and print the tables.

    With *replicates* the model's cards are made: the level card with 0, the response card too with
    1 and more.
    """
    from pemand_abm.evaluation.cards import (
        CARDS,
        card_text,
        check_has_cards,
        level_card,
        response,
        response_card,
        write_cards,
    )
    from pemand_abm.evaluation.page import write_page
    from pemand_abm.evaluation.results import accuracy_text, cost_text, verdict
    from pemand_abm.evaluation.run import (
        asks_a_model,
        check_methods,
        check_unseen,
        evaluate,
        write_evaluation,
    )
    from pemand_abm.study import check_writable
    from pemand_abm.tables import staging

    started, out = time.monotonic(), asked.folder(what)
    trial = asked.trial()
    check_methods(methods, trial.survey.target)
    if replicates is not None:
        check_has_cards(trial)
    check_writable(out)
    with ExitStack() as stack:
        setting = model = None
        if asks_a_model(methods):
            setting, model = (
                asked.setting(trial.survey, trial.domain),
                stack.enter_context(asked.answering(out)),
            )
            check_unseen(trial, model)
        found = evaluate(trial, methods, setting, model, time.monotonic, say)
        cards = []
        if replicates is not None:
            cards.append(level_card(found))
        if replicates and setting and model:
            say(f"Response card: {replicates} replicates of each announcement")
            told = response(trial, setting, model, replicates)
            cards.append(response_card(found, told, replicates))
    with staging(out, "evaluation.yaml", stale=CARDS) as place:
        write_cards(cards, place)
        write_page(found, place)
        write_evaluation(found, place)
    say(f"Finished in {time.monotonic() - started:.0f} s")
    click.echo(f"{trial.survey.title}: {trial.how}. Observed and predicted: {trial.survey.unit}.\n")
    click.echo(accuracy_text(found))
    if table := cost_text(found.costs):
        click.echo(f"\nWhat a household took, on average\n\n{table}")
    click.echo("\n" + "\n".join(verdict(found)))
    if cards:
        click.echo(f"\n{card_text(cards)}")
    click.echo(f"open {out / 'evaluation.html'}; evaluation.md and the tables are beside it")


@evaluate.command()
@trial_options
@talk_options
@model_options
def ablation(**given: Any) -> None:
    """Leave out one part of PEMAND at a time, on the same households."""
    from pemand_abm.evaluation.methods import ABLATIONS

    run_methods(Asked(**given), ["pemand", *ABLATIONS], "ablation")


@evaluate.command()
@click.option("--survey", required=True, help="A survey with attitude items (docs/evaluation.md).")
@click.option("--data", type=FOLDER, help="The folder of the survey's files.")
@click.option("--persons", type=click.IntRange(min=1), default=40, show_default=True)
@click.option("--items", default="", help="Items by name, parted by commas; all by default.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all draws.")
@click.option("--out", type=FOLDER, help="Where to write; outputs/perceptions-SURVEY else.")
@talk_options
@model_options
def perceptions(persons: int, items: str, **given: Any) -> None:
    """Ask personas attitude questions that real persons answered, and compare.

    The personas are never told the answers.
    """
    from pemand_abm.domains import TRIPS
    from pemand_abm.evaluation import perceptions as perceiving
    from pemand_abm.evaluation.probes import probes_of
    from pemand_abm.study import check_writable
    from pemand_abm.surveys import read_survey
    from pemand_abm.tables import staging

    asked = Asked(households=None, members=1, **given)
    out = asked.folder("perceptions")
    say(f"Reading {asked.survey}")
    survey = read_survey(asked.survey, asked.data)
    probes = probes_of(survey, [i.strip() for i in items.split(",") if i.strip()])
    setting = asked.setting(survey, TRIPS)
    check_writable(out)
    with asked.answering(out) as model:
        model.expect(perceiving.most_calls(persons, probes, setting.persona))
        found = perceiving.perceive(survey, probes, persons, setting, model, asked.seed)
    with staging(out, "perceptions.yaml") as place:
        perceiving.write_perceptions(found, place)
    click.echo(perceiving.perceptions_text(found))
    click.echo(f"open {out / 'perceptions.md'}; the tables are beside it")


@evaluate.command(name="mind")
@click.option("--scenarios", type=click.IntRange(min=1), default=201, show_default=True)
@click.option(
    "--from",
    "given",
    type=FILE,
    help="Negotiate the scenarios of this file (scenarios.jsonl) instead of making some.",
)
@click.option("--variants", default="base,tone,appraisal,mind", show_default=True)
@click.option(
    "--survey-by",
    type=click.Choice(["rule", "model"]),
    default="rule",
    show_default=True,
    help="Who answers the survey of wishes: a stated rule, or the model.",
)
@click.option(
    "--items",
    type=click.IntRange(1, 20),
    default=3,
    show_default=True,
    help="How many soft conflicts of a scenario are negotiated, what matters most first.",
)
@click.option("--trips", type=FILE, help="Your own journeys (JSONL); TravelPlanner's else.")
@click.option("--travellers", type=FILE, help="Your own travellers (CSV); drawn ones else.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--quorum",
    type=click.FloatRange(0.5, 1),
    default=0.75,
    show_default=True,
    help="Share to agree.",
)
@click.option("--judge/--no-judge", default=True, help="Let the model compare base and mind.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all draws.")
@click.option("--out", type=FOLDER, help="Where to write; outputs/mind else.")
@model_options
def mind_command(
    scenarios: int,
    given: Path | None,
    variants: str,
    survey_by: str,
    items: int,
    trips: Path | None,
    travellers: Path | None,
    rounds: int,
    quorum: float,
    judge: bool,
    seed: int,
    out: Path | None,
    **rest: Any,
) -> None:
    """Let groups of travellers settle plans by MIND and its variants, and compare them."""
    from pemand_abm.evaluation import mind as evaluating
    from pemand_abm.evaluation.travellers import (
        make_scenarios,
        read_journeys,
        read_scenarios,
        read_travellers,
    )
    from pemand_abm.protocols.mind import MindSettings
    from pemand_abm.study import check_writable
    from pemand_abm.tables import staging

    started, out = time.monotonic(), out or Path("outputs/mind")
    names = [v.strip() for v in variants.split(",") if v.strip()]
    evaluating.check_variants(names)
    if quorum != quorum:  # nan passes click's range
        raise click.UsageError("--quorum must be a number from 0.5 to 1")
    context = click.get_current_context()
    of_no_use = [
        f"--{name.replace('_', '-')}"
        for name in ("scenarios", "items", "trips", "travellers", "survey_by")
        if given and context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE
    ]
    if of_no_use:
        raise click.UsageError(f"{', '.join(of_no_use)}: of no use beside --from; leave out")
    judge = judge and {"base", "mind"} <= set(names)
    settings = MindSettings(max_rounds=rounds, quorum=quorum)
    made = read_scenarios(given) if given else None
    people = read_travellers(travellers) if travellers else None
    journeys = read_journeys(trips) if trips else None
    check_writable(out)
    with answering(out, **rest) as model:
        if made is None:
            say(f"Making {scenarios} scenarios, wishes by {survey_by}")
            asked = model if survey_by == "model" else None
            made = make_scenarios(scenarios, seed, items, people, journeys, asked, settings)
        model.expect(model.calls + evaluating.most_calls(made, names, settings, judge))
        found = evaluating.evaluate_mind(
            made, names, settings, model, seed, judge, say, "file" if given else survey_by
        )
    with staging(out, "mind.yaml") as place:
        evaluating.write_mind(found, place)
    say(f"Finished in {time.monotonic() - started:.0f} s")
    click.echo(evaluating.mind_text(found))
    click.echo(f"open {out / 'mind.html'}; mind.md, scenarios.jsonl and the tables are beside it")
