"""One evaluation from methods to files."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import pandas as pd
import yaml

from pemand_abm import __version__
from pemand_abm.dialogue import Model
from pemand_abm.errors import SettingsError, listed
from pemand_abm.evaluation import answers as answering
from pemand_abm.evaluation import methods
from pemand_abm.evaluation.baselines import CHOICES, COUNTS
from pemand_abm.evaluation.methods import BY_MODEL, Setting, Told
from pemand_abm.evaluation.results import Evaluation, Spent, accuracy_table, cost_table
from pemand_abm.evaluation.trial import Trial
from pemand_abm.prompting import prompts_sha256
from pemand_abm.settings import suggestion
from pemand_abm.tables import write_csv, write_json_lines, write_parquet, write_text


def check_methods(names: Sequence[str], target: str) -> None:
    """Fail with all names that are no method for this kind of decision."""
    learned = CHOICES if target == "moved" else COUNTS
    known = [*learned, *BY_MODEL]
    faults = [
        f"method {name!r} is not known for {target}"
        + (suggestion(name, known) or f"; known are {', '.join(known)}")
        for name in names
        if name not in known
    ]
    faults += [f"method {name!r} stands twice" for name in {*names} if names.count(name) > 1]
    if not names:
        faults = [f"name at least one method; known are {', '.join(known)}"]
    if faults:
        raise SettingsError(listed(faults, "--methods"))


def check_unseen(trial: Trial, model: Model) -> None:
    """Fail where the model's adapter may have learnt from households that are asked about.

    An adapter learns from the training split of its own seed; with another seed the splits differ.
    """
    seed = model.identity.get("adapter_seed", trial.seed)
    surveys = str(model.identity.get("adapter_surveys", "")).split()
    if trial.survey.name in surveys and seed != trial.seed:
        raise SettingsError(
            f"the adapter {model.identity['adapter']} learnt from the training split of"
            f" {trial.survey.name} with seed {seed}; with --seed {trial.seed} it would be asked"
            f" about households that it knows. Take --seed {seed}"
        )


def asks_a_model(names: Sequence[str]) -> bool:
    """Say whether any of the methods needs a language model."""
    return any(name in BY_MODEL for name in names)


def most_calls(trial: Trial, names: Sequence[str], setting: Setting) -> int:
    """Return the most calls that these methods can take together."""
    homes = answering.homes_of(trial, list(trial.chosen.index))
    asked = [BY_MODEL[name] for name in names if name in BY_MODEL]
    return sum(methods.most_calls(m, home, setting) for m in asked for home in homes)


def evaluate(
    trial: Trial,
    names: Sequence[str],
    setting: Setting | None,
    model: Model | None,
    clock: Callable[[], float],
    say: Callable[[str], None],
) -> Evaluation:
    """Let every method answer for the trial's households, and measure how far off it is.

    *setting* and *model* are needed where a method asks a model; *clock* gives seconds.
    """
    check_methods(names, trial.survey.target)
    parts: list[pd.DataFrame] = []
    talks: list[dict] = []
    spent: dict[str, Spent] = {}
    notes: list[str] = []
    for place, name in enumerate(names):
        _expect(model, trial, names[place:], setting)
        say(f"{name}: {len(trial.chosen):,} households")
        if name not in BY_MODEL:
            table, known = answering.learned(name, trial)
            parts.append(table)
            notes += [f"{name}: {note}" for note in known]
            continue
        assert setting is not None and model is not None
        started, replayed = clock(), getattr(model, "replayed", 0)

        def hear(told: Told, name: str = name) -> None:
            talks.append(_record(name, told, trial))

        table = answering.by_model(name, trial, setting, model, hear)
        parts.append(table)
        remembered = getattr(model, "replayed", 0) - replayed
        calls = int(table["calls"].sum() + table["persona_calls"].sum())
        spent[name] = Spent(clock() - started, calls - remembered)
    _expect(model, trial, [], setting)
    answers = pd.concat(parts).join(trial.chosen[["observed", "hhsize"]])
    reference = next((m for m in ("gbm", "logistic") if m in names), names[0])
    return Evaluation(
        trial,
        answers,
        accuracy_table(trial, answers, reference),
        cost_table(answers, spent),
        talks,
        reference,
        manifest_of(trial, names, setting, model) | {"notes": notes},
    )


def _expect(
    model: Model | None, trial: Trial, left: Sequence[str], setting: Setting | None
) -> None:
    """Tell a display of progress what may still come: few talks take the most that they can."""
    if setting is not None and hasattr(model, "expect"):
        model.expect(model.calls + most_calls(trial, left, setting))  # type: ignore[union-attr]


def _record(name: str, told: Told, trial: Trial) -> dict:
    observed = trial.chosen.loc[told.talk.household.id, "observed"]
    option = int(observed) if trial.survey.target == "trips" else ("stay", "move")[int(observed)]
    record = told.talk.record(
        told.personas, told.decision, told.persona_cost.calls + told.talk_cost.calls
    )
    return record | {"event": f"evaluation of {name}", "method": name, "observed": option}


def manifest_of(
    trial: Trial, names: Sequence[str], setting: Setting | None, model: Model | None
) -> dict:
    """Return what the evaluation was made of."""
    made: dict = {
        "survey": trial.survey.name,
        "title": trial.survey.title,
        "year": trial.survey.year,
        "target": trial.survey.target,
        "unit": trial.survey.unit,
        "households": trial.how,
        "n": len(trial.chosen),
        "methods": list(names),
        "seed": trial.seed,
    }
    if setting is not None and model is not None:
        made |= {
            "model": dict(model.identity),
            "prompts_sha256": prompts_sha256(),
            "moderator": setting.pemand.moderator,
            "pass_marks": list(setting.pemand.pass_marks),
            "max_rounds": setting.pemand.max_rounds,
            "anchors": setting.table.source,
            "talks": {
                "max_rounds": setting.pemand.max_rounds,
                "pass_marks": list(setting.pemand.pass_marks),
                "adaptive": setting.pemand.adaptive,
                "personas": setting.persona.reasoned,
                "anchors": setting.persona.anchored,
                "one_agent": setting.domain.whole,
            },
        }
    return made | {
        "versions": {
            "pemand-abm": __version__,
            "python": platform.python_version(),
            **{n: metadata.version(n) for n in ("numpy", "pandas", "scikit-learn")},
        }
    }


def write_evaluation(evaluation: Evaluation, out: Path) -> None:
    """Write the tables, the talks and the manifest into *out* (docs/files.md)."""
    write_parquet(_plain(evaluation.answers), out / "answers.parquet")
    write_parquet(evaluation.accuracy, out / "accuracy.parquet")
    write_parquet(evaluation.costs, out / "costs.parquet")
    write_csv(evaluation.trial.survey.dropped.rename_axis("row"), out / "dropped.csv")
    write_json_lines(evaluation.talks, out / "transcripts.jsonl", default=str)
    write_text(
        yaml.safe_dump(evaluation.manifest, sort_keys=False, allow_unicode=True),
        out / "evaluation.yaml",
    )


def _plain(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the answers with whole numbers as such, empty where a method counts none."""
    whole = [c for c in answers if c in answering.WHOLE]
    return answers.astype(dict.fromkeys(whole, "Int64"))
