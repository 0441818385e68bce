"""The stages of AutoAttack against the library (pyautoattack): `python -m benchmarks.autoattack_stages`.

Both sides attack the same images, stage after stage: what a stage breaks is not attacked again. The library
runs as in its own loop: fixed batches, a forward pass to see what a stage broke. Seconds are CPU time of the
process, the least of the repeats; passes are images through the network (a wrapper counts the library's).
Two networks on handwritten digits, see `attack_speed`: early exit helps where examples break.

The draws differ, so the number of examples that hold out may differ by one or two; that the same draws break
the same examples is what tests/attacks/adversarial/test_auto_pgd.py shows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
from torch import Tensor, nn

from attacks.adversarial.apgd_ce import apgd_ce
from attacks.adversarial.apgd_t import apgd_t
from attacks.kernel import Attack
from benchmarks.attack_speed import TRAINING_EPSILON, digits, native, network

N, BATCH, REPEATS = 128, 128, 2
CASES = [("usual", 0.3), ("fgsm-trained", 0.15), ("fgsm-trained", 0.1)]


class Counted(nn.Module):
    """Counts the images that pass through a network, forward and backward."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.forwards = 0
        self.backwards = 0

    def forward(self, images: Tensor) -> Tensor:
        """Maps images to logits."""
        self.forwards += len(images)
        answer: Tensor = self.model(images)
        if answer.requires_grad:
            answer.register_hook(self._count)
        return answer

    def _count(self, gradient: Tensor) -> None:
        self.backwards += len(gradient)


@dataclass(frozen=True)
class Stage:
    """One stage on both sides.

    Attributes:
        name: Name in AutoAttack.
        ours: Makes our attack with this epsilon.
        theirs: The library's function for this model and epsilon: images and labels to adversarial images.
    """

    name: str
    ours: Callable[[float], Attack]
    theirs: Callable[[nn.Module, float], Callable[[Tensor, Tensor], Tensor]]


@dataclass(frozen=True)
class Result:
    """What one side made of one stage: which examples hold out, CPU seconds, and passes."""

    robust: Tensor
    seconds: float
    forwards: int
    backwards: int


STAGES = [
    Stage(
        "apgd-ce",
        lambda epsilon: apgd_ce(epsilon=epsilon),
        lambda model, epsilon: APGDAttack(model, eps=epsilon, norm="Linf", seed=0).perturb,
    ),
    Stage(
        "apgd-t",
        lambda epsilon: apgd_t(epsilon=epsilon),
        lambda model, epsilon: APGDAttack_targeted(model, eps=epsilon, norm="Linf", seed=0).perturb,
    ),
]


def ours(stage: Stage, epsilon: float, model: nn.Module, images: Tensor, labels: Tensor) -> Result:
    """Runs our attack through the engine."""
    begun = time.process_time()
    outcomes = native(stage.ours(epsilon), model, images, labels)
    seconds = time.process_time() - begun
    return Result(outcomes.correct, seconds, int(outcomes.forward.sum()), int(outcomes.backward.sum()))


def theirs(stage: Stage, epsilon: float, model: nn.Module, images: Tensor, labels: Tensor) -> Result:
    """Runs the library's attack batch by batch."""
    begun = time.process_time()
    counted = Counted(model)
    robust = []
    for batch, classes in zip(images.split(BATCH), labels.split(BATCH), strict=True):
        with torch.no_grad():
            found = stage.theirs(counted, epsilon)(batch, classes)
            robust.append(counted(found).argmax(1) == classes)
    seconds = time.process_time() - begun
    return Result(torch.cat(robust), seconds, counted.forwards, counted.backwards)


def rows_of(
    trained: str, epsilon: float, model: nn.Module, images: Tensor, labels: Tensor
) -> list[list[str]]:
    """Measures all stages on one network."""
    model.requires_grad_(False)
    with torch.no_grad():
        right = model(images).argmax(1) == labels
    left = {ours: right, theirs: right}
    rows = []
    for stage in STAGES:
        results = {side: repeated(side, stage, epsilon, model, images, labels, left[side]) for side in left}
        before = int(left[ours].sum())
        for side, result in results.items():
            left[side] = left[side].clone()
            left[side][left[side].nonzero().flatten()] = result.robust
        own, other = results[ours], results[theirs]
        rows.append(
            [
                *(trained, f"{epsilon:g}", stage.name, str(before)),
                *(str(int(left[ours].sum())), str(int(left[theirs].sum()))),
                *(f"{own.seconds:.2f}", f"{other.seconds:.2f}", f"{other.seconds / own.seconds:.2f}"),
                *(f"{own.forwards}/{own.backwards}", f"{other.forwards}/{other.backwards}"),
            ]
        )
        if not left[ours].any() or not left[theirs].any():
            break
    return rows


def repeated(
    side: Callable[..., Result],
    stage: Stage,
    epsilon: float,
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    left: Tensor,
) -> Result:
    """The quickest of several equal runs on the examples that are left."""
    runs = [side(stage, epsilon, model, images[left], labels[left]) for _ in range(REPEATS)]
    return min(runs, key=lambda result: result.seconds)


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    pixels, labels = digits()
    table = [
        [
            *("network", "epsilon", "stage", "points", "left", "library", "CPU s", "library", "x"),
            *("fwd/bwd", "library"),
        ]
    ]
    models = {
        name: network(pixels[256:], labels[256:], epsilon) for name, epsilon in TRAINING_EPSILON.items()
    }
    for trained, epsilon in CASES:
        table += rows_of(trained, epsilon, models[trained], pixels[:N], labels[:N])
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write("  ".join(cells) + "\n")
    sys.stdout.write(f"n = {N}, batch {BATCH}, one thread, best of {REPEATS}; x = library / ours\n")


if __name__ == "__main__":
    main()
