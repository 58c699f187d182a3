"""A recipe: all that one training run is made of (`training/*.yaml`, docs/training.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from pemand_abm.settings import Strict, read_settings

PHASES = ("narrative", "reasoning", "review", "revise", "proposal", "round", "moderator")
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Source(Strict):
    """Households of one survey's training split, and the decision that they are asked for."""

    survey: str
    data: Path | None = None
    households: int = Field(gt=0)
    decision: Literal["trips", "relocation"] = "trips"


class Lora(Strict):
    """The adapter (PEMAND A.2). `layers` are the last so many of the model; all where None."""

    rank: int = Field(default=16, gt=0)
    alpha: int = Field(default=32, gt=0)
    dropout: float = Field(default=0.05, ge=0, lt=1)
    layers: int | None = Field(default=None, gt=0)
    modules: tuple[str, ...] = MODULES


class Fit(Strict):
    """How the adapter is fitted. `stretch` is how many minutes a call trains before it saves.

    `numbers` is how many times a token with a digit counts in the loss: in a reply of sixty tokens
    the few that decide something (trips, a moderator's marks) are lost in the mean else.
    `four_bit` loads the model in NF4 with double quantization, which needs a graphics card.
    """

    learning_rate: float = Field(default=2e-4, gt=0)
    warm_up: float = Field(default=0.03, ge=0, lt=1)
    batch: int = Field(default=8, gt=0)
    accumulate: int = Field(default=1, gt=0)
    epochs: float = Field(default=3, gt=0)
    most_tokens: int = Field(default=1024, gt=0)
    held_out: float = Field(default=0.05, gt=0, lt=0.5)
    check_every: int = Field(default=25, gt=0)
    patience: int = Field(default=4, gt=0)
    numbers: float = Field(default=1, ge=1)
    four_bit: bool = False


class Rest(Strict):
    """How ReST is done: `candidates` negotiations of each of `households`, `repeats` times.

    The best of a household is learnt where its reward is above `least`. `learning_rate` and
    `epochs` stand in for those of the recipe's `fit`.
    """

    households: int = Field(gt=1)
    candidates: int = Field(default=4, gt=1)
    repeats: int = Field(default=1, gt=0)
    least: float = -2.0
    moderator: Literal["judge", "advise", "checks"] = "advise"
    max_rounds: int = Field(default=5, ge=0)
    learning_rate: float = Field(default=1e-4, gt=0)
    epochs: float = Field(default=1, gt=0)

    @property
    def fit_changes(self) -> dict[str, float]:
        """What differs from the recipe's `fit`."""
        return {"learning_rate": self.learning_rate, "epochs": self.epochs}


class Recipe(Strict):
    """One training run.

    `model` is a model folder, a name on Hugging Face's hub, or `embedded`. `teacher` says where the
    replies to be learnt come from: `rules` are stated, fact-grounded sentences whose numbers carry
    what the survey observed (labelled so; `training.teacher`); `model` are the model's own
    proposals, of which those are kept that the judge gives full marks (PEMAND §3.2.3): `generator`
    (as --model elsewhere) talks `candidates` times in the place of each household. `phases` are
    shares of the examples; a phase that is not named is not trained. `rates` is the folder whose
    census rates of moves are taught to households that are asked about relocation.

    With `lean` (trips) a member is taught the figure of similar people, which the prompt tells, as
    a whole number, and its own expected trips only where these differ by so much. `elsewhere` is
    the share of households whose figures, told and taught, are those of a region that travels half
    to twice as much, so that figures are read and not known by heart.
    """

    name: str
    model: str
    teacher: Literal["rules", "model"]
    generator: str = ""
    candidates: int = Field(default=1, gt=0)
    surveys: tuple[Source, ...] = Field(min_length=1)
    phases: dict[Literal[PHASES], float] = Field(min_length=1)  # type: ignore[valid-type]
    examples: int = Field(gt=0)
    lora: Lora = Lora()
    fit: Fit = Fit()
    rest: Rest | None = None
    rates: Path | None = None
    lean: float = Field(default=0, ge=0)
    elsewhere: float = Field(default=0, ge=0, le=1)
    seed: int = 0

    @model_validator(mode="after")
    def _rates(self) -> Recipe:
        moves = any(s.decision == "relocation" for s in self.surveys)
        if moves and (self.rates is None or self.teacher != "rules"):
            raise ValueError("rates: relocation is taught with teacher: rules from a rates folder")
        return self

    @model_validator(mode="after")
    def _lean(self) -> Recipe:
        if self.lean and self.teacher != "rules":
            raise ValueError("lean: goes with teacher: rules; the model says its own numbers")
        if self.elsewhere and not self.lean:
            raise ValueError("elsewhere: goes with lean, without which no told figure is taught")
        return self

    @model_validator(mode="after")
    def _generator(self) -> Recipe:
        if (self.teacher == "model") != bool(self.generator):
            raise ValueError("generator: goes with teacher: model, and only with it")
        return self


def read_recipe(path: Path) -> Recipe:
    """Read a recipe; folders of data are relative to its file. Faults are a SettingsError."""
    recipe = read_settings(path, Recipe)
    sources = tuple(
        s if s.data is None else s.model_copy(update={"data": path.parent / s.data})
        for s in recipe.surveys
    )
    rates = None if recipe.rates is None else path.parent / recipe.rates
    return recipe.model_copy(update={"surveys": sources, "rates": rates})
