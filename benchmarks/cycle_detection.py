"""Model passes saved by cycle detection in PGD: `python -m benchmarks.cycle_detection`.

The same attack with and without cycle detection, on the digits and networks of `attack_speed`. Passes are of
all examples, the clean one included. Early exit on success is on in both: the savings are on examples that
stay correct. The flags of every example must be equal, the losses equal up to rounding.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.attacks.adversarial.pgd import pgd
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from benchmarks.attack_speed import Cost, N, costs, native
from benchmarks.networks import TRAINING_EPSILON, cnn, digits

CASES: list[tuple[str, dict[str, Any]]] = [
    ("usual", {"epsilon": 0.05, "relative_step_size": 0.1, "steps": 100}),
    ("fgsm-trained", {"epsilon": 0.15, "steps": 20}),
    ("fgsm-trained", {"epsilon": 0.15, "relative_step_size": 0.1, "steps": 100}),
    ("fgsm-trained", {"epsilon": 0.15, "relative_step_size": 0.025, "steps": 100}),
    ("fgsm-trained", {"epsilon": 0.15, "relative_step_size": 0.1, "steps": 100, "restarts": 5}),
    ("fgsm-trained", {"epsilon": 0.15, "relative_step_size": 0.1, "steps": 1000}),
    ("fgsm-trained", {"epsilon": 0.15, "relative_step_size": 0.025, "steps": 1000}),
    ("fgsm-trained", {"epsilon": 0.8, "relative_step_size": 0.1, "steps": 100, "norm": "L2"}),
]


@dataclass(frozen=True)
class Pair:
    """One attack, with cycle detection and without."""

    found: ExampleOutcomes
    plain: ExampleOutcomes
    found_cost: Cost
    plain_cost: Cost

    def cells(self) -> list[str]:
        """Cells of its table row."""
        found, plain = self.found, self.plain
        flags = ("prediction", "correct", "correct5")
        differ = torch.stack([getattr(found, key) != getattr(plain, key) for key in flags]).any(0)
        robust = plain.correct
        return [
            f"{float(plain.correct.double().mean()):.4f}",
            *(f"{int(side.forward.sum())}/{int(side.backward.sum())}" for side in (found, plain)),
            f"{float(plain.forward.sum() / found.forward.sum()):.2f}",
            *(f"{float(side.forward[robust].double().mean()):.1f}" for side in (found, plain)),
            f"{self.plain_cost.cpu / self.found_cost.cpu:.2f}",
            str(int(differ.sum())),
            f"{float((found.loss - plain.loss).abs().max()):.0e}",
        ]


def compared(params: dict[str, Any], model: nn.Module, pixels: Tensor, labels: Tensor) -> Pair:
    """Runs one attack both ways."""
    outcomes: list[ExampleOutcomes] = []

    def work(on: bool) -> None:
        outcomes.append(native(pgd(**params, cycle_detection=on), model, pixels, labels))

    spent = costs(lambda: work(True), lambda: work(False))
    return Pair(outcomes[0], outcomes[1], *spent)


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    pixels, labels = digits()
    models = {name: cnn(pixels[N:], labels[N:], epsilon) for name, epsilon in TRAINING_EPSILON.items()}
    table = [
        [
            *("network", "pgd", "accuracy", "fwd/bwd", "without", "x", "fwd per robust", "without", "CPU x"),
            *("flags differ", "loss differs"),
        ]
    ]
    for trained, params in CASES:
        text = " ".join(f"{key}={value}" for key, value in params.items())
        table.append([trained, text, *compared(params, models[trained], pixels[:N], labels[:N]).cells()])
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write("  ".join(cells) + "\n")
    sys.stdout.write(f"n = {N}, one thread; x = without / with\n")


if __name__ == "__main__":
    main()
