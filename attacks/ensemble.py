"""Worst case over several attacks, each run on the examples that the previous ones left unbroken.

Croce and Hein 2020 (`adversarial/kernels/auto_pgd.py`), section 5.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.attacks.kernel import Attack
from assay.attacks.threat import Ball


@dataclass(frozen=True)
class Ensemble:
    """Sequence of attacks; each stage starts from the unattacked image."""

    name: str  # Catalog name of the ensemble; random draws are keyed by the names of the stages
    stages: tuple[Attack, ...]  # The attacks, in order
    backend: str = "native"  # Shared by all stages; as for a single attack

    @property
    def gradient(self) -> bool:
        """Whether any stage uses gradients."""
        return any(stage.gradient for stage in self.stages)

    @property
    def ball(self) -> Ball | None:
        """The perturbations allowed to its stages."""
        return self.stages[0].ball


def stages_of(attack: Attack | Ensemble) -> tuple[Attack, ...]:
    """The stages of an ensemble; a single attack is its own only stage."""
    return attack.stages if isinstance(attack, Ensemble) else (attack,)
