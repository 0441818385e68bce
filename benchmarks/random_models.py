"""Accuracy of a model that answers at random, by three rules: `python -m benchmarks.random_models`.

150 handwritten digits that the network has not seen, under normal noise of deviation 0.25, in the
Linf ball of 0.1. `loop` is a plain loop of 40 signed steps on the mean loss of 20 passes, and the
expected accuracy of its last iterate over 400 draws. The rows below it are the engine's.
"""

from __future__ import annotations

import sys

import torch

from assay.attacks.adversarial.autoattack import autoattack
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.ensemble import Ensemble
from assay.attacks.kernel import Attack
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support import networks
from tests.support.random_models import Noisy, to_the_end

N, EPSILON = 150, 0.1
IDS = [f"digit-{number:04d}" for number in range(N)]


def main() -> None:
    """Prints a row for each rule."""
    torch.set_num_threads(1)
    network = Classifier(networks.network("gelu"), [networks.MEAN], [networks.STD])
    model = Noisy(network, 0.25).eval()
    images, labels = networks.digits()
    loop = to_the_end(model, images[:N], labels[:N], EPSILON)
    sys.stdout.write(f"{'loop, expected':<34}{100 * loop:6.1f} %\n")
    attacks: dict[str, Attack | Ensemble] = {
        "pgd, eot 20, expected": pgd(epsilon=EPSILON, steps=40, eot=20, model_draws=400),
        "autoattack rand, expected": autoattack(epsilon=EPSILON, version="rand", model_draws=200),
        "autoattack rand, single_draw": autoattack(epsilon=EPSILON, version="rand", judgement="single_draw"),
    }
    for name, attack in attacks.items():
        torch.manual_seed(1)
        found = attack_pixel(
            *(attack, model, lambda rows: images[list(rows)], labels[:N], IDS),
            randomness=Randomness(0, attack.name),
            batch_size=50,
        )
        share = found.correct.double() if found.expected is None else found.expected
        sys.stdout.write(f"{name:<34}{100 * float(share.mean()):6.1f} %\n")


if __name__ == "__main__":
    main()
