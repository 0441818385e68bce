"""Smallest L2 perturbations: `python -m benchmarks.minimal_perturbations --data ROOT --state DIR`.

Every attack gets the same right test images of networks of `benchmarks.robust_networks`, in the engine, in
one run. Passes are images through the network, forward and backward. Medians are over all attacked images;
"x" is Carlini and Wagner's passes over those of the row. Its search is the original one, without an early
end.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

from assay.attacks.adversarial.carlini_wagner import carlini_wagner
from assay.attacks.adversarial.ddn import ddn
from assay.attacks.adversarial.fmn import fmn
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.protocols import attack_pixel
from benchmarks.robust_networks import images, load

BATCH = 64
CW: dict[str, Any] = {"search": "original", "abort_early": False}
ATTACKS: dict[str, Any] = {
    "carlini_wagner 9 x 200": carlini_wagner(searches=9, iterations=200, learning_rate=1e-2, **CW),
    "carlini_wagner 5 x 100": carlini_wagner(searches=5, iterations=100, learning_rate=1e-2, **CW),
    "ddn 100": ddn(steps=100),
    "ddn 50": ddn(steps=50),
    "fmn 100": fmn(norm="L2", steps=100),
    "fmn 50": fmn(norm="L2", steps=50),
}
COLUMNS = "{:<14}{:<24}{:>8}{:>10}{:>10}{:>14}{:>8}{:>8}\n"


def main() -> None:
    """Prints a row for each network and attack."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.minimal_perturbations", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("networks", nargs="*", default=["resnet-10", "vit-10"], metavar="NETWORK")
    options = parser.parse_args()
    torch.set_num_threads(1)
    head = ("network", "attack", "broken", "median", "mean", "passes", "x", "CPU s")
    sys.stdout.write(COLUMNS.format(*head))
    for name in options.networks:
        model = load(name, options.state)
        pixels, labels = images(options.data, "test", 10)
        with torch.no_grad():
            right = (model(pixels[:500]).argmax(1) == labels[:500]).nonzero().flatten()[: options.images]
        pixels, labels = pixels[right], labels[right]
        ids, reference = [f"test-{row:05d}" for row in right.tolist()], 0
        for title, attack in ATTACKS.items():
            begun = time.process_time()
            found = attack_pixel(
                *(attack, model, lambda rows, own=pixels: own[list(rows)], labels, ids),
                randomness=Randomness(0, attack.name),
                batch_size=BATCH,
            )
            spent = time.process_time() - begun
            passes = int(found.forward.sum() + found.backward.sum())
            reference = reference or passes
            assert found.l2 is not None
            size = found.l2.where(~found.correct, torch.inf)
            sys.stdout.write(
                COLUMNS.format(
                    name, title, f"{int((~found.correct).sum())}/{len(ids)}", f"{float(size.median()):.4f}",
                    f"{float(size[size < torch.inf].mean()):.4f}", f"{passes:,}", f"{reference / passes:.1f}",
                    f"{spent:.0f}",
                )
            )  # fmt: skip
            sys.stdout.flush()


if __name__ == "__main__":
    main()
