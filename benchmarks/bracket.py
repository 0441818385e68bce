"""Verified and attacked accuracy of two stored networks: `python -m benchmarks.bracket`.

The networks are those of the tests, on their held-out digits (8 x 8): convolutional ones, without a defence
and trained with FGSM at 0.15. Attacked is PGD with 40 steps and 5 restarts. Seconds an image are wall time of
one thread, the trace of the graph included. `python -m benchmarks.bracket transformers` has the interval
bounds of the stored transformers (digits at 32 pixels) instead: the mean lower margin at ever smaller radii.
"""

from __future__ import annotations

import sys
import time
from typing import get_args

import torch

from assay.attacks.adversarial.pgd import pgd
from assay.attacks.randomness import Randomness
from assay.workers.data.digits import digits as digits_data
from assay.workers.evaluation.engine.bound_operators import UnsupportedModel
from assay.workers.evaluation.engine.linear_bounds import MarginBounds, Method, proved
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support import networks

N = networks.CONVOLUTIONAL_FROM
EPSILONS = (2 / 255, 8 / 255, 16 / 255)
NETWORKS = ("convolutional", "convolutional-fgsm-trained")
TRANSFORMERS = ("symvit", "rpc_symvit")


def say(line: str) -> None:
    """Writes a line."""
    sys.stdout.write(f"{line}\n")


def convolutional() -> None:
    """A line per network, radius and method."""
    pixels, labels = (values[:N] for values in networks.digits())
    ids = [f"digit-{row}" for row in range(N)]
    say("network | epsilon | attacked | method | verified | contradictions | seconds an image")
    for name in NETWORKS:
        model = networks.network(name)
        for epsilon in EPSILONS:
            attacked = attack_pixel(
                pgd(epsilon=epsilon, steps=40, restarts=5),
                model,
                lambda rows: pixels[list(rows)],
                labels,
                ids,
                randomness=Randomness(0, "pgd"),
                batch_size=N,
            )
            for method in get_args(Method):
                begun = time.monotonic()
                bounds, logits = MarginBounds(model, pixels[:1], method).lower(
                    pixels, labels, "Linf", epsilon
                )
                seconds = (time.monotonic() - begun) / N
                safe = proved(bounds, logits)
                both = int((safe & ~attacked.correct).sum())
                left, held = int(attacked.correct.sum()), int(safe.sum())
                setting = f"{name} | {255 * epsilon:.0f}/255 | {left}/{N} | {method}"
                say(f"{setting} | {held}/{N} | {both} | {seconds:.3f}")


def transformers() -> None:
    """A line per network and radius; why the other methods refuse."""
    data = digits_data(None, "test")
    images, labels = data.images(range(8), 32), data.labels[:8]
    say("network | epsilon | method | verified | mean lower margin | seconds an image")
    for name in TRANSFORMERS:
        model = networks.network(name)
        for epsilon in (1e-9, 1e-8, 1e-7, 1e-6, 1e-5):
            begun = time.monotonic()
            bounds, logits = MarginBounds(model, images[:1], "IBP").lower(images, labels, "Linf", epsilon)
            seconds = (time.monotonic() - begun) / len(images)
            safe = int(proved(bounds, logits).sum())
            margin = float(bounds.amin(1).mean())
            say(f"{name} | {epsilon:.0e} | IBP | {safe}/8 | {margin:.3g} | {seconds:.3f}")
        for method in ("CROWN", "alpha-CROWN"):
            try:
                MarginBounds(model, images[:1], method)
            except UnsupportedModel as error:
                say(f"{name} | {method}: {error}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers() if sys.argv[1:] == ["transformers"] else convolutional()
