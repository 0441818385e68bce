"""Threat models of attacks: their knowledge of the model and their search, by which attacks are compared.

An attack module states `THREAT = {"knowledge": "white_box", "search": "iterative"}`; the catalog has it under
`threat`. `docs/adding.md` says what each field is for.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum, auto
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Knowledge(StrEnum):
    """Input of an attack: nothing, the model's outputs, its gradients, or another model's gradients."""

    NOISE = auto()
    BLACK_BOX = auto()
    WHITE_BOX = auto()
    TRANSFER = auto()


Search = Literal["single_step", "iterative", "ensemble"]
BallNorm = Literal["Linf", "L2", "L1", "L0"]


class Threat(BaseModel):
    """The threat model of an attack, as far as its parameters do not say it.

    Attributes:
        knowledge: input of the attack.
        search: "single_step", "iterative", or "ensemble" of several attacks; None only for noise.
        norm: of the ball, where no parameter `norm` says it.
        needs_classes: the fewest classes for which the loss is defined.
        targets: for an attack on one wrong class after another: how many it tries in AutoAttack.
        minimum_norm: whether it searches for the smallest perturbation, so that epsilon only decides which
            successes count, and more room does not help it.
        weak: whether accuracy may stay high at any epsilon, even where the gradients are sound.
        upper_bound: caveat on its accuracy, where that is widely mistaken for the robustness.
        mean_loss_in: backends that differentiate one mean over the batch.
        batch_draws: backend to the condition over the parameters under which its random numbers are drawn for
            a whole batch, so that an example's result depends on those beside it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    # Strict validation would require the member in place of its text.
    knowledge: Knowledge = Field(strict=False)
    search: Search | None = None
    norm: BallNorm = "Linf"
    needs_classes: int | None = Field(default=None, ge=2)
    targets: int | None = Field(default=None, ge=1)
    minimum_norm: bool = False
    weak: bool = False
    upper_bound: str | None = Field(default=None, min_length=1)
    mean_loss_in: list[str] = []
    batch_draws: dict[str, str] = {}

    @model_validator(mode="after")
    def _searches(self) -> Self:
        if (self.search is None) is not (self.knowledge is Knowledge.NOISE):
            raise ValueError("noise states no search, every other attack one")
        return self

    @property
    def without_gradients(self) -> bool:
        """Whether it never differentiates the attacked model: a black box, or a transfer."""
        return self.knowledge in (Knowledge.BLACK_BOX, Knowledge.TRANSFER)


# Threat by attack name; None for other names, and for attacks unknown to this version.
ThreatOf = Callable[[str], Threat | None]
