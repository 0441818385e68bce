"""Effect of the native random numbers on AutoAttack: `python -m benchmarks.compatible`.

AutoAttack `standard` on 1,000 handwritten digits, once with keyed draws (`native`) and once with those of
the library on the library's batches (`compatible`, which breaks the same examples as pyautoattack). Prints
accuracy after each stage on both sides, and the flips both ways. A small network trained on FGSM examples.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from assay.attacks.adversarial.autoattack import autoattack
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.attacks.adversarial.batches import digits, network

N, BATCH, EPSILON, QUERIES, SEEDS = 1000, 250, 0.1, 1000, (0, 1)
GOAL = 0.005


def run(
    backend: Literal["native", "compatible"], seed: int, model: nn.Module, images: Tensor, labels: Tensor
) -> ExampleOutcomes:
    """Runs the ensemble on one side."""
    attack = autoattack(epsilon=EPSILON, queries=QUERIES, backend=backend)

    def images_of(rows: Sequence[int]) -> Tensor:
        return images[list(rows)]

    ids = [f"digit-{row}" for row in range(len(images))]
    randomness = Randomness(seed, attack.name)
    return attack_pixel(attack, model, images_of, labels, ids, randomness=randomness, batch_size=BATCH)


def left(outcomes: ExampleOutcomes) -> str:
    """Accuracy after each stage, in percent."""
    standing, parts = int(outcomes.clean_correct.sum()), []
    for stage in outcomes.stages:
        standing -= stage.broken
        parts.append(f"{stage.name} {100 * standing / N:.1f}")
    return ", ".join(parts)


def main() -> None:
    """Prints both sides for each seed."""
    torch.set_num_threads(1)
    pixels, labels = digits()
    model = network("fgsm-trained")
    for seed in SEEDS:
        native, compatible = (
            run(backend, seed, model, pixels[:N], labels[:N]) for backend in ("native", "compatible")
        )
        only_native = int((compatible.correct & ~native.correct).sum())
        only_compatible = int((native.correct & ~compatible.correct).sum())
        difference = abs(only_native - only_compatible) / N
        sys.stdout.write(
            f"seed {seed}, n = {N}, epsilon {EPSILON:g}, Square {QUERIES} queries; accuracy in %\n"
            f"  native      {left(native)}\n"
            f"  compatible  {left(compatible)}\n"
            f"  broken by native only: {only_native}, by compatible only: {only_compatible};"
            f" accuracies differ by {100 * difference:.1f} points (goal: at most {100 * GOAL:g})\n"
        )


if __name__ == "__main__":
    main()
