"""FGSM and PGD-40 against cleverhans, in one run on one machine: `python -m benchmarks.attack_speed`.

Both sides compute a robust accuracy: a clean forward pass, the attack, the verdict. The library runs as its
users run it, on fixed batches with the true labels. Handwritten digits and two kinds of networks,
convolutions and a ViT, trained as usual and on FGSM examples; the more examples break, the more early exit
helps. Compare CPU time of the process; wall time depends on other load.

The flags are compared in an extra run in which both sides use the same random starts. The library checks the
last iterate only, our kernel all of them, so PGD may break examples that the library misses.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from cleverhans.torch.attacks.fast_gradient_method import fast_gradient_method
from cleverhans.torch.attacks.projected_gradient_descent import projected_gradient_descent
from torch import Tensor, nn

from assay.attacks.adversarial.fgsm import fgsm
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.kernel import Attack
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel
from benchmarks.clock import CPU, clock
from benchmarks.networks import cnn, digits, larger_vit, vit

N, BATCH, STEPS, REPEATS = 256, 128, 40, 2
# FGSM is fast, so it is repeated more often.
MORE_REPEATS = 8
NETWORKS: dict[str, Callable[[Tensor, Tensor], nn.Module]] = {
    "cnn": partial(cnn, epsilon=0.0),
    "cnn, fgsm-trained": partial(cnn, epsilon=0.15),
    "vit": partial(vit, epsilon=0.0),
    "vit, fgsm-trained": partial(vit, epsilon=24 / 255),
    "vit, 32 px": larger_vit,
}
CASES = [
    ("cnn", 0.3),
    ("cnn", 0.1),
    ("cnn, fgsm-trained", 0.15),
    ("vit", 24 / 255),
    ("vit", 8 / 255),
    ("vit, fgsm-trained", 24 / 255),
    ("vit, 32 px", 8 / 255),
]


@dataclass(frozen=True)
class Cost:
    """Fastest of the repeats, in seconds; `cpu` is wall time too on a GPU."""

    cpu: float
    wall: float


@dataclass(frozen=True)
class Compared:
    """An attack on both sides: its cost, and the outcomes of both with the same starts."""

    name: str
    steps: int
    own: Cost
    other: Cost
    outcomes: ExampleOutcomes
    reference: ExampleOutcomes


def native(
    attack: Attack, model: nn.Module, pixels: Tensor, labels: Tensor, device: torch.device = CPU
) -> ExampleOutcomes:
    """Runs a native attack through the engine; the model is on the device, images and labels are not."""

    def images_of(rows: Sequence[int]) -> Tensor:
        return pixels[list(rows)]

    ids = [f"digit-{row}" for row in range(len(pixels))]
    randomness = Randomness(0, attack.name)
    return attack_pixel(
        attack, model, images_of, labels, ids, randomness=randomness, batch_size=BATCH, device=device
    )


def library(
    run: Callable[[nn.Module, Tensor, Tensor], Tensor],
    model: nn.Module,
    pixels: Tensor,
    labels: Tensor,
    device: torch.device = CPU,
) -> Tensor:
    """Runs cleverhans on fixed batches and returns which examples are right before and after."""
    right = []
    for part, truth in zip(pixels.split(BATCH), labels.split(BATCH), strict=True):
        images, classes = part.to(device), truth.to(device)
        with torch.no_grad():
            clean = model(images).argmax(1) == classes
        attacked = run(model, images, classes)
        with torch.no_grad():
            right.append(clean & (model(attacked).argmax(1) == classes))
    return torch.cat(right)


def checked(device: torch.device) -> bool:
    """Whether the library checks its images: it can on the CPU only, where numpy reads its tensors."""
    return device.type == "cpu"


def costs(*works: Callable[[], object], repeats: int = REPEATS, device: torch.device = CPU) -> list[Cost]:
    """Times several workloads in alternation."""
    times: list[list[tuple[float, float]]] = [[] for _ in works]
    for _ in range(repeats):
        for work, spent in zip(works, times, strict=True):
            cpu, wall = clock(device), time.perf_counter()
            work()
            spent.append((clock(device) - cpu, time.perf_counter() - wall))
    return [Cost(min(cpu for cpu, _ in spent), min(wall for _, wall in spent)) for spent in times]


def compared(
    epsilon: float,
    model: nn.Module,
    pixels: Tensor,
    labels: Tensor,
    *,
    steps: int = STEPS,
    repeats: tuple[int, int] = (REPEATS, MORE_REPEATS),
    device: torch.device = CPU,
) -> Iterator[Compared]:
    """Measures FGSM and PGD on one network.

    Args:
        epsilon: Of both.
        model: On the device.
        pixels: Images on the CPU.
        labels: Their classes.
        steps: Of PGD.
        repeats: Of PGD and of FGSM.
        device: To run on.
    """

    def their_fgsm(model: nn.Module, images: Tensor, classes: Tensor) -> Tensor:
        found: Tensor = fast_gradient_method(model, images, epsilon, float("inf"), 0.0, 1.0, classes)
        return found

    def their_pgd(model: nn.Module, images: Tensor, classes: Tensor) -> Tensor:
        given = epsilon, epsilon / 10, steps, float("inf"), 0.0, 1.0, classes
        found: Tensor = projected_gradient_descent(model, images, *given, sanity_checks=checked(device))
        return found

    def same_start(backend: str) -> Attack:
        return pgd(epsilon=epsilon, relative_step_size=0.1, steps=steps, backend=backend)  # type: ignore[arg-type]

    attacks = [
        ("fgsm", 1, fgsm(epsilon=epsilon), fgsm(epsilon=epsilon, backend="cleverhans"), their_fgsm),
        (f"pgd-{steps}", steps, same_start("native"), same_start("cleverhans"), their_pgd),
    ]
    for name, count, ours, wrapped, theirs in attacks:
        own, other = costs(
            lambda ours=ours: native(ours, model, pixels, labels, device),  # type: ignore[misc]
            lambda theirs=theirs: library(theirs, model, pixels, labels, device),  # type: ignore[misc]
            repeats=repeats[count == 1],
            device=device,
        )
        outcomes, reference = (native(attack, model, pixels, labels, device) for attack in (ours, wrapped))
        yield Compared(name, count, own, other, outcomes, reference)


def rows_of(
    trained: str, epsilon: float, model: nn.Module, pixels: Tensor, labels: Tensor
) -> list[list[str]]:
    """Measures both attacks on one network."""
    rows = []
    for found in compared(epsilon, model, pixels, labels):
        own, other, outcomes, reference = found.own, found.other, found.outcomes, found.reference
        name, steps = found.name, found.steps
        passes = f"{int(outcomes.forward.sum())}/{int(outcomes.backward.sum())}"
        more = int((reference.correct & ~outcomes.correct).sum())
        fewer = int((outcomes.correct & ~reference.correct).sum())
        rows.append(
            [
                *(trained, name, f"{epsilon:.3g}", f"{float(outcomes.correct.double().mean()):.4f}"),
                *(f"{own.cpu * 1e3:.0f}", f"{other.cpu * 1e3:.0f}"),
                *(f"{other.cpu / own.cpu:.2f}", f"{other.wall / own.wall:.2f}"),
                *(passes, f"{len(pixels) * (steps + 2)}/{len(pixels) * steps}", f"{more}+{fewer}"),
            ]
        )
    return rows


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    _, labels = digits()
    table = [
        [
            *("network", "attack", "epsilon", "accuracy", "CPU ms", "library", "CPU x", "wall x"),
            *("fwd/bwd", "library", "more+fewer broken"),
        ]
    ]
    sizes = {name: 32 if "32" in name else 16 for name in NETWORKS}
    pixels, models = {size: digits(size)[0] for size in (16, 32)}, {}
    for name, make in NETWORKS.items():
        models[name] = make(pixels[sizes[name]][N:], labels[N:])
    for name, epsilon in CASES:
        table += rows_of(name, epsilon, models[name], pixels[sizes[name]][:N], labels[:N])
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write("  ".join(cells) + "\n")
    sys.stdout.write(
        f"n = {N}, batch {BATCH}, one thread, best of {REPEATS} or {MORE_REPEATS}; x = cleverhans / ours\n"
    )


if __name__ == "__main__":
    main()
