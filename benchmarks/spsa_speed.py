"""SPSA against cleverhans, in one run on one machine: `python -m benchmarks.spsa_speed`.

Both sides attack the same images, those the network classifies correctly, with 10 steps of 128 directions.
The library runs as its users run it: image after image, always to the last step.

- `same work`: ours estimates the gradient at 2x, as the library does, and goes on to the last step;
- `early exit`: the same, and leaves an image at its first misclassified iterate;
- `default`: estimates the gradient at the iterate, with early exit.

The library draws its own directions, so flags may differ by chance; tests show that they agree with equal
ones. The network takes 95 % of both sides' time, so early exit is what saves time. Compare CPU time of the
process; wall time depends on other load. The networks are those of `benchmarks.networks`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from cleverhans.torch.attacks.spsa import spsa as their_spsa
from torch import Tensor, nn

from assay.attacks.adversarial.spsa import spsa
from assay.attacks.kernel import Attack, Examples, Setting, frozen, judged
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.protocols import attack_pixel
from benchmarks.attack_speed import checked, costs
from benchmarks.clock import CPU
from benchmarks.networks import TRAINING_EPSILON, cnn, digits

N, BATCH, STEPS, SAMPLES = 32, 16, 10, 128
HELD_OUT = 256
CASES = [("usual", 0.3), ("usual", 0.2), ("fgsm-trained", 0.25), ("fgsm-trained", 0.15)]


class Counted(nn.Module):
    """Counts the images that go through a network."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.rows = 0

    def forward(self, images: Tensor) -> Tensor:
        """Returns the network's logits."""
        self.rows += len(images)
        logits: Tensor = self.network(images)
        return logits


def to_the_end(attack: Attack, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Runs a kernel without early exit; returns which images it left right."""
    setting = Setting(
        [f"digit-{row}" for row in range(len(images))], Randomness(0, "spsa"), final_iterate=True
    )
    right = []
    with torch.no_grad(), frozen(model):
        for rows in torch.arange(len(images)).split(BATCH):
            batch = Examples(rows, images[rows], labels[rows], labels[rows], model(images[rows]))
            state = attack.start(setting, batch)
            while not state["done"].all():
                attack.step(setting, model, state)
            right.append(judged(state)["rank"] == 0)
    return torch.cat(right)


def to_the_first(
    attack: Attack, model: nn.Module, images: Tensor, labels: Tensor, device: torch.device = CPU
) -> Tensor:
    """Runs a kernel through the engine; returns which images it left right. Images are on the CPU."""

    def images_of(rows: Sequence[int]) -> Tensor:
        return images[list(rows)]

    ids = [f"digit-{row}" for row in range(len(images))]
    randomness = Randomness(0, "spsa")
    return attack_pixel(
        attack, model, images_of, labels, ids, randomness=randomness, batch_size=BATCH, device=device
    ).correct


def library(
    epsilon: float, rate: float, model: nn.Module, images: Tensor, labels: Tensor, steps: int = STEPS
) -> Tensor:
    """Runs the library where the images are; returns which it left right."""
    with torch.no_grad():
        model(images)
    given = {"clip_min": 0.0, "clip_max": 1.0, "y": labels, "learning_rate": rate}
    found = their_spsa(model, images, epsilon, steps, sanity_checks=checked(images.device), **given)
    with torch.no_grad():
        right: Tensor = model(found).argmax(1) == labels
    return right


def rows_of(trained: str, epsilon: float, bare: nn.Module, images: Tensor, labels: Tensor) -> list[list[str]]:
    """Measures one network."""
    model = Counted(bare)
    with torch.no_grad():
        right = bare(images).argmax(1) == labels
    images, labels = images[right][:N], labels[right][:N]
    rate = 2 * epsilon / STEPS
    given: dict[str, Any] = {"epsilon": epsilon, "learning_rate": rate, "steps": STEPS, "samples": SAMPLES}
    kinds: list[tuple[str, Callable[..., Tensor], Attack]] = [
        ("same work", to_the_end, spsa(gradient_point="shifted", **given)),
        ("early exit", to_the_first, spsa(gradient_point="shifted", **given)),
        ("default", to_the_first, spsa(**given)),
    ]
    works: list[Callable[[], Tensor]] = [partial(library, epsilon, rate, model, images, labels)]
    works += [partial(run, attack, model, images, labels) for _, run, attack in kinds]
    passes, kept = [], []
    for work in works:
        model.rows = 0
        kept.append(work())
        passes.append(model.rows)
    spent = costs(*works)
    return [
        [
            *(trained, f"{epsilon:g}", name, str(len(images)), f"{int(ours.sum())} {int(kept[0].sum())}"),
            *(f"{cost.cpu:.2f}", f"{spent[0].cpu:.2f}"),
            *(f"{spent[0].cpu / cost.cpu:.2f}", f"{spent[0].wall / cost.wall:.2f}"),
            *(str(count), str(passes[0])),
        ]
        for (name, _, _), ours, cost, count in zip(kinds, kept[1:], spent[1:], passes[1:], strict=True)
    ]


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pixels, labels = digits()
    header = ["network", "epsilon", "ours", "n", "right ours, library", "CPU s", "library"]
    table = [[*header, "CPU x", "wall x", "forward", "library"]]
    models = {
        name: cnn(pixels[HELD_OUT:], labels[HELD_OUT:], epsilon) for name, epsilon in TRAINING_EPSILON.items()
    }
    for trained, epsilon in CASES:
        table += rows_of(trained, epsilon, models[trained], pixels[:HELD_OUT], labels[:HELD_OUT])
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write("  ".join(cells) + "\n")
    sys.stdout.write(f"batch {BATCH}, one thread, best of 2; x = cleverhans / ours\n")


if __name__ == "__main__":
    main()
