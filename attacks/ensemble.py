"""Several attacks in a row, each on what those before have left: the worst case per example.

Croce and Hein 2020, "Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse
Parameter-free Attacks", section 5.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.attacks.kernel import Attack
from assay.attacks.threat import Ball


@dataclass(frozen=True)
class Ensemble:
    """An ensemble. Each stage starts from the unattacked image.

    Attributes:
        name: Catalog name of the ensemble; random draws are keyed by the names of the stages.
        stages: The attacks, in their order.
        backend: As for an attack; that of all stages.
    """

    name: str
    stages: tuple[Attack, ...]
    backend: str = "native"

    @property
    def gradient(self) -> bool:
        """Whether a stage uses gradients."""
        return any(stage.gradient for stage in self.stages)

    @property
    def ball(self) -> Ball | None:
        """The perturbations that its stages may use."""
        return self.stages[0].ball


def stages_of(attack: Attack | Ensemble) -> tuple[Attack, ...]:
    """The stages of an ensemble; of an attack, itself."""
    return attack.stages if isinstance(attack, Ensemble) else (attack,)
