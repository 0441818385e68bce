"""Carlini and Wagner's L2 attack against cleverhans, in one run: `python -m benchmarks.cw_speed`.

Both sides get the same 64 images and make 5 searches of 100 iterates, on the networks and digits of
`benchmarks.networks`. The library runs as its users run it, on the whole batch. Passes are counted where the
model is called. Compare CPU time of the process; wall time depends on other load.

Five native variants: `shared` equals the library up to rounding; `own` gives each example its own constant,
the default; `original` searches as the paper's authors do. With `abort` a search ends once its loss stops
falling, as in the authors' code, but not in the library. Finished examples leave the batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from cleverhans.torch.attacks.carlini_wagner_l2 import carlini_wagner_l2
from torch import Tensor, nn

from assay.attacks.adversarial.carlini_wagner import carlini_wagner
from assay.attacks.kernel import Attack, Examples, Setting, State, concatenate, frozen
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.attack.slots import run_batch
from benchmarks.attack_speed import costs
from benchmarks.networks import cnn, digits

N, SEARCHES, ITERATIONS, LEARNING_RATE, CONFIDENCE = 64, 5, 100, 1e-2, 0.0


class Counted(nn.Module):
    """Counts forward and backward passes, in examples."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.passes = [0, 0]

    def forward(self, images: Tensor) -> Tensor:
        """Runs the model."""
        self.passes[0] += len(images)
        if images.requires_grad:
            images.register_hook(self._back)
        logits: Tensor = self.model(images)
        return logits

    def _back(self, gradient: Tensor) -> None:
        self.passes[1] += len(gradient)


def ours(attack: Attack, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Runs the kernel on one batch, as the `paper` protocol does, with images in [0, 1]."""
    setting = Setting(
        [str(row) for row in range(len(images))], Randomness(0, attack.name), final_iterate=True
    )
    with torch.no_grad(), frozen(model):
        logits = model(images)
        examples = Examples(torch.arange(len(images)), images, labels, labels, logits)
        found: list[State] = []
        run_batch(attack, setting, model, examples=examples, leave=found.append, tell=lambda: None)
    state = concatenate(found)
    return state["best"][state["row"].argsort()]


def theirs(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    searches: int = SEARCHES,
    iterations: int = ITERATIONS,
) -> Tensor:
    """Runs the library on one batch, after the same clean pass."""
    with torch.no_grad():
        model(images)
    found: Tensor = carlini_wagner_l2(
        model,
        images,
        10,
        y=labels,
        lr=LEARNING_RATE,
        confidence=CONFIDENCE,
        binary_search_steps=searches,
        max_iterations=iterations,
    )
    return found


def described(model: nn.Module, images: Tensor, labels: Tensor, found: Tensor) -> tuple[Tensor, str]:
    """Mask of the examples still correct, and the median distance of the others."""
    right = model(found).argmax(1) == labels
    distances = (found - images).flatten(1).norm(dim=1)[~right]
    return right, f"{float(distances.median()):.4f}"


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    pixels, classes = digits()
    images, labels = pixels[:N], classes[:N]
    header = ("network", "search", "CPU s", "library", "CPU x", "fwd/bwd", "library")
    table = [[*header, "left", "library", "flags differ", "median L2", "library", "largest difference"]]
    for name, epsilon in (("usual", 0.0), ("fgsm-trained", 0.15)):
        model = cnn(pixels[N:], classes[N:], epsilon)
        for search in ("shared", "own", "own, abort", "original", "original, abort"):
            attack = carlini_wagner(
                confidence=CONFIDENCE,
                searches=SEARCHES,
                iterations=ITERATIONS,
                learning_rate=LEARNING_RATE,
                search="original" if search.startswith("original") else "released",
                shared_constant=search == "shared",
                abort_early=search.endswith("abort"),
            )
            table.append([name, search, *_measured(attack, model, images, labels)])
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        sys.stdout.write("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + "\n")
    sys.stdout.write(
        f"n = {N} in one batch, {SEARCHES} x {ITERATIONS} iterates, one thread; x = cleverhans / ours\n"
    )


def _measured(attack: Attack, model: nn.Module, images: Tensor, labels: Tensor) -> list[str]:
    runs: list[Callable[[nn.Module], Tensor]] = [
        lambda model: ours(attack, model, images, labels),
        lambda model: theirs(model, images, labels),
    ]
    counted = [Counted(model), Counted(model)]
    found: list[Tensor] = [torch.empty(0), torch.empty(0)]

    def work(side: int) -> None:
        counted[side].passes[:] = [0, 0]
        found[side] = runs[side](counted[side])

    own, other = costs(lambda: work(0), lambda: work(1))
    with torch.no_grad():
        (right, distance), (kept, length) = (described(model, images, labels, one) for one in found)
    return [
        *(f"{own.cpu:.2f}", f"{other.cpu:.2f}", f"{other.cpu / own.cpu:.2f}"),
        *("/".join(map(str, side.passes)) for side in counted),
        *(str(int(right.sum())), str(int(kept.sum())), str(int((right != kept).sum()))),
        *(distance, length, f"{float((found[0] - found[1]).abs().max()):.1e}"),
    ]


if __name__ == "__main__":
    main()
