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
    """The threat model of an attack, as far as its parameters do not say it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    knowledge: Knowledge = Field(strict=False)  # Strict validation would require the member, not its text.
    search: Search | None = None  # None only for noise
    norm: BallNorm = "Linf"  # of the ball, where no parameter `norm` says it
    needs_classes: int | None = Field(default=None, ge=2)  # the fewest for which the loss is defined
    targets: int | None = Field(default=None, ge=1)  # wrong classes that it tries one by one in AutoAttack
    # Searches for the smallest perturbation: epsilon only says which successes count; more room is no help.
    minimum_norm: bool = False
    weak: bool = False  # accuracy may stay high at any epsilon, even where the gradients are sound
    # A caveat on its accuracy, where that is widely mistaken for the robustness.
    upper_bound: str | None = Field(default=None, min_length=1)
    mean_loss_in: list[str] = []  # backends that differentiate one mean over the batch
    # Backend to the condition over the parameters under which its random numbers are drawn for a whole batch,
    # so that an example's result depends on the examples beside it.
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


ThreatOf = Callable[[str], Threat | None]  # By attack name; None for names unknown to this version.
