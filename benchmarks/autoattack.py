"""AutoAttack against the library (pyautoattack), stage by stage: `python -m benchmarks.autoattack`.

Both sides run `standard` as users run it: the library on batches with its own draws, ours through the engine,
with keyed draws, refilled batches and re-verification of every success. Two small ViTs on handwritten digits,
one trained as usual and one on FGSM examples: early exit helps where examples break; where they hold out,
only the cost of a pass counts. Seconds are CPU time of the process, for each stage the min of several turns,
in which both sides alternate, because the machine's speed varies. Passes are images through the network (a
wrapper counts the library's).

With `--state DIR --data ROOT` the networks are those of `benchmarks.robust_networks`, trained on attacked
CIFAR-10 images, in place of the ones on digits.

The draws differ, so the examples that hold out may differ by a few; that equal draws break the same examples
at every stage is what tests/workers/evaluation/test_autoattack.py shows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
from pyautoattack import AutoAttack
from pyautoattack.state import EvaluationState
from torch import Tensor, nn

from assay.attacks.adversarial.autoattack import autoattack
from assay.attacks.kernel import frozen
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.outcomes import Stage
from assay.workers.evaluation.engine.protocols import attack_pixel
from benchmarks import robust_networks
from benchmarks.clock import CPU, clock
from benchmarks.networks import digits, vit

BATCH = 64
# (trained on FGSM examples of this size, attacked with this epsilon): an undefended network falls at once.
CASES = {"undefended": (0.0, 64 / 255), "FGSM-trained": (24 / 255, 24 / 255)}
ROBUST = {"resnet-10": 8 / 255, "vit-10": 8 / 255}
NAMES = {"apgd-ce": "apgd_ce", "apgd-t": "apgd_t", "fab-t": "fab_t", "square": "square"}


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


# Name, network, images, labels and epsilon.
Case = tuple[str, nn.Module, Tensor, Tensor, float]


@dataclass(frozen=True)
class Cost:
    """Cost of a stage, and the examples it left."""

    left: int
    seconds: float
    forwards: int
    backwards: int


def ours(
    model: nn.Module, epsilon: float, images: Tensor, labels: Tensor, device: torch.device = CPU
) -> dict[str, Cost]:
    """Runs the native ensemble; the clean pass counts towards the first stage. Images are on the CPU."""
    attack, costs, marks = autoattack(epsilon=epsilon), {}, [clock(device)]

    def images_of(rows: Sequence[int]) -> Tensor:
        return images[list(rows)]

    def staged(stage: Stage) -> None:
        marks.append(clock(device))
        seconds = marks[-1] - marks[-2]
        costs[stage.name] = Cost(stage.n - stage.broken, seconds, stage.forward, stage.backward)

    ids = [f"digit-{row}" for row in range(len(images))]
    randomness = Randomness(0, attack.name)
    given = {"batch_size": BATCH, "staged": staged, "device": device}
    attack_pixel(attack, model, images_of, labels, ids, randomness=randomness, **given)  # type: ignore[arg-type]
    return costs


def theirs(
    model: nn.Module, epsilon: float, images: Tensor, labels: Tensor, device: torch.device = CPU
) -> dict[str, Cost]:
    """Runs the library's own loop; its checks and clean pass count towards the first stage."""
    counted, costs, marks = Counted(model), {}, [(clock(device), 0, 0)]

    def note(state: EvaluationState, attack: str) -> None:
        marks.append((clock(device), counted.forwards, counted.backwards))
        seconds, forwards, backwards = (b - a for a, b in zip(marks[-2], marks[-1], strict=True))
        costs[NAMES[attack]] = Cost(int(state.robust_flags.sum()), seconds, int(forwards), int(backwards))

    library = AutoAttack(counted, norm="Linf", eps=epsilon, seed=0, device=device)
    with mock.patch.object(EvaluationState, "add_run_attack", note):
        library.run_standard_evaluation(images, labels, batch_size=BATCH)
    return costs


def rows_of(
    network: str, epsilon: float, model: nn.Module, images: Tensor, labels: Tensor, turns: int
) -> list[list[str]]:
    """Measures both sides on one network in turns, and adds the whole."""
    # As in common use of the library: parameters require gradients, needed or not.
    both = [
        (ours(model, epsilon, images, labels), theirs(model, epsilon, images, labels)) for _ in range(turns)
    ]
    own, other = (fastest([turn[side] for turn in both]) for side in (0, 1))
    nothing = Cost(0, 0.0, 0, 0)
    pairs = [(name, own[name], other.get(name, nothing)) for name in own]
    pairs.append(("standard", total(own), total(other)))
    return [
        [
            *(network, name, str(one.left), str(two.left)),
            *(f"{one.seconds:.2f}", f"{two.seconds:.2f}", f"{two.seconds / max(one.seconds, 1e-9):.2f}"),
            *(f"{one.forwards}/{one.backwards}", f"{two.forwards}/{two.backwards}"),
        ]
        for name, one, two in pairs
    ]


def fastest(turns: Sequence[dict[str, Cost]]) -> dict[str, Cost]:
    """Each stage in its fastest turn."""
    return {name: min((turn[name] for turn in turns), key=lambda cost: cost.seconds) for name in turns[0]}


def total(costs: dict[str, Cost]) -> Cost:
    """Sum of all stages."""
    every = list(costs.values())
    return Cost(
        every[-1].left,
        sum(cost.seconds for cost in every),
        sum(cost.forwards for cost in every),
        sum(cost.backwards for cost in every),
    )


def on_digits(n: int) -> Iterator[Case]:
    """Trains the networks of CASES and gives each with the first n digits, which it did not see."""
    pixels, labels = digits()
    for name, (training_epsilon, epsilon) in CASES.items():
        yield name, vit(pixels[n:], labels[n:], training_epsilon), pixels[:n], labels[:n], epsilon


def on_cifar(n: int, data: Path, state: Path) -> Iterator[Case]:
    """Each network of ROBUST with the first n test images."""
    for name, epsilon in ROBUST.items():
        pixels, labels = robust_networks.images(data, "test", robust_networks.NETWORKS[name].classes)
        yield name, robust_networks.load(name, state), pixels[:n], labels[:n], epsilon


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.autoattack", description=__doc__)
    parser.add_argument("--examples", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--state", type=Path, help="folder of benchmarks.robust_networks")
    parser.add_argument("--data", type=Path, help="data root with CIFAR-10")
    options = parser.parse_args()
    n = options.examples
    torch.set_num_threads(1)
    header = ["network", "stage", "left", "library", "CPU s", "library", "x", "fwd/bwd", "library"]
    table = [header]
    cases = on_digits(n) if options.state is None else on_cifar(n, options.data, options.state)
    for name, model, pixels, labels, epsilon in cases:
        with torch.no_grad(), frozen(model):
            right = int((model(pixels).argmax(1) == labels).sum())
        sys.stdout.write(f"{name}: {right} of {n} right; attacked with {epsilon * 255:g}/255\n")
        table += rows_of(name, epsilon, model, pixels, labels, options.turns)
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    for row in table:
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write("  ".join(cells) + "\n")
    sys.stdout.write(f"batch {BATCH}, one thread, best of {options.turns}; x = library / ours, CPU time\n")


if __name__ == "__main__":
    main()
