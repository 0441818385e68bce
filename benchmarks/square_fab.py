"""Square and FAB-T against pyautoattack, in one run on one machine: `python -m benchmarks.square_fab`.

Same images, same networks, one batch; our kernels with the library's draws, so that the flags must be equal,
and with their own. Two networks on handwritten digits at 16 x 16, one trained as usual, one on FGSM examples.
Compare CPU time of the process; wall time depends on other load. Passes are images, without the engine's
clean pass and re-verification.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch import Tensor, nn

from assay.attacks.adversarial.fab_t import fab_t
from assay.attacks.adversarial.square import square
from assay.attacks.kernel import Attack, Examples, Setting, frozen
from assay.attacks.randomness import LibraryStream, Randomness
from assay.workers.evaluation.engine.attack.slots import run_batch
from benchmarks.networks import cnn, digits

N, QUERIES, ITERATIONS = 128, 500, 20
TRAINING_EPSILON = {"usual": 0.0, "fgsm-trained": 0.15}
BALLS: list[tuple[Literal["Linf", "L2"], float]] = [("Linf", 0.15), ("L2", 1.0)]


class Counted(nn.Module):
    """Model that counts images, forward and backward."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.forward_images = self.backward_images = 0

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        self.forward_images += len(images)
        if torch.is_grad_enabled() and images.requires_grad:
            self.backward_images += len(images)
        logits: Tensor = self.model(images)
        return logits


def ours(attack: Attack, model: nn.Module, pixels: Tensor, labels: Tensor) -> Tensor:
    """Runs one batch of the correct examples; returns the mask of wrong ones among all."""
    compatible = attack.backend == "compatible"
    randomness = LibraryStream(0) if compatible else Randomness(0, attack.name)
    setting = Setting([f"digit-{row}" for row in range(len(pixels))], randomness)
    with torch.no_grad(), frozen(model):
        logits = model(pixels)
        wrong: Tensor = logits.argmax(1) != labels
        rows = (~wrong).nonzero().flatten()
        examples = Examples(rows, pixels[rows], labels[rows], labels[rows], logits[rows])

        def leave(state: dict[str, Tensor]) -> None:
            wrong[state["row"]] = state["broken"]

        run_batch(attack, setting, model, examples=examples, leave=leave, tell=lambda: None)
    return wrong


def theirs(attack: SquareAttack | FABAttack_PT, model: nn.Module, pixels: Tensor, labels: Tensor) -> Tensor:
    """Runs the library with parameters that require gradients, as in common use."""
    model.requires_grad_(True)
    found = attack.perturb(pixels, labels)
    with torch.no_grad():
        wrong: Tensor = model(found).argmax(1) != labels
    return wrong


def measured(name: str, work: Callable[[Counted], Tensor], model: nn.Module) -> Tensor:
    """Prints the cost of a run, and returns its flags."""
    counted = Counted(model)
    begun = time.process_time()
    flags = work(counted)
    seconds = time.process_time() - begun
    sys.stdout.write(
        f"  {name:12} {seconds:7.2f} s CPU, {counted.forward_images:7} forward, "
        f"{counted.backward_images:6} backward, robust {float((~flags).double().mean()):.4f}\n"
    )
    return flags


def compare(attack: Callable[..., Attack], library: Callable[[nn.Module], object], model: nn.Module) -> None:
    """One attack on one network, three times."""
    pixels, labels = (values[:N] for values in digits())
    reference = measured("pyautoattack", lambda m: theirs(library(m), m, pixels, labels), model)
    for backend in ("compatible", "native"):
        made = attack(backend=backend)
        flags = measured(backend, partial(ours, made, pixels=pixels, labels=labels), model)
        if backend == "compatible":
            sys.stdout.write(f"  flags that differ: {int((flags != reference).sum())} of {N}\n")


def main() -> None:
    """Prints all comparisons."""
    torch.set_num_threads(1)
    for training, trained_at in TRAINING_EPSILON.items():
        model = cnn(*digits(), trained_at)
        for norm, epsilon in BALLS:
            sys.stdout.write(f"{training}, {norm} {epsilon}: square, {QUERIES} queries\n")
            compare(
                partial(square, epsilon=epsilon, norm=norm, queries=QUERIES),
                partial(SquareAttack, norm=norm, eps=epsilon, n_queries=QUERIES, seed=0, resc_schedule=False),
                model,
            )
            sys.stdout.write(f"{training}, {norm} {epsilon}: fab_t, 9 targets x {ITERATIONS} iterations\n")
            compare(
                partial(fab_t, epsilon=epsilon, norm=norm, iterations=ITERATIONS),
                partial(FABAttack_PT, norm=norm, eps=epsilon, n_iter=ITERATIONS, seed=0, targeted=True),
                model,
            )


if __name__ == "__main__":
    main()
