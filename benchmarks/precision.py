"""Arithmetic by name, and memory formats: `python -m benchmarks.precision --state DIR --data ROOT`.

How many flags of attacks equal those in float32, in TF32 (rounded factors on the emulated device), with
gradients in bfloat16 and in bfloat16, on the ViT with 10 classes of `benchmarks.robust_networks`. Then CPU
time of PGD on convolutional networks with the channels last in memory, over the usual format: both sides in
alternation, the fastest of several turns.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor, nn

from assay.workers import catalog
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.precision import computes_in_tf32
from assay.workers.training.determinism import deterministic
from benchmarks import robust_networks
from benchmarks.acceptance.workload import Wide, Work
from benchmarks.attack_speed import costs
from benchmarks.clock import CPU
from tests.support.emulated_device.device import emulated_device

NETWORK, N, BATCH = "vit-10", 256, 64
ATTACKS: dict[str, dict[str, Any]] = {
    "pgd": {"steps": 20},
    "apgd_ce": {"steps": 20},
    "square": {"queries": 100},
}
ARITHMETIC: dict[str, dict[str, Any]] = {
    "float32": {},
    "tf32": {"dtype": "tf32"},
    "bfloat16_gradients": {"screening": "bfloat16_gradients"},
    "bfloat16": {"dtype": "bfloat16"},
}


def outcomes(name: str, state: Path, images: Tensor, labels: Tensor, **options: Any) -> ExampleOutcomes:
    """An attack at 4/255 in one arithmetic; TF32 on the emulated device."""
    made = catalog.build("attack", name, {"epsilon": robust_networks.EPSILON, **ATTACKS[name]})()
    model = robust_networks.load(NETWORK, state).requires_grad_(False)
    if options.get("dtype") != "tf32":
        return Work(NETWORK, model, images, labels, BATCH, CPU).outcomes(made, **options)
    with emulated_device() as device:
        computes_in_tf32(model.to(device.device))
        work = Work(NETWORK, model, images, labels, BATCH, device.device)
        found = work.outcomes(made, **options)
        assert device.products[True] > 0
    return found


def flags(state: Path, root: Path) -> None:
    """Prints equal flags and robust accuracy of each attack in each arithmetic."""
    pixels, truth = robust_networks.images(root, "test")
    images, labels = pixels[:N], truth[:N]
    for name in ATTACKS:
        exact = outcomes(name, state, images, labels)
        for arithmetic, options in ARITHMETIC.items():
            found = outcomes(name, state, images, labels, **options) if options else exact
            equal = int((found.correct == exact.correct).sum())
            more = int((exact.correct & ~found.correct).sum())
            _tell(f"{name} {arithmetic}: {equal} of {N} flags equal, {more} broken more;")
            _tell(f" {int(found.correct.sum())} right under attack\n")


def formats() -> None:
    """Prints the CPU time of PGD with the channels last over the time in the usual format."""
    networks: list[tuple[str, nn.Module, int, int]] = [
        ("ResNet-50", timm.create_model("resnet50"), 224, 2),
        ("WideResNet-28-10", Wide(), 32, 2),
    ]
    for name, model, side, count in networks:
        model.eval().requires_grad_(False)
        images = torch.rand(count, 3, side, side)
        with torch.no_grad():
            work = Work(name, model, images, model(images).argmax(1), count, CPU)

        def run(work: Work, layout: torch.memory_format) -> None:
            work.model.to(memory_format=layout)
            work.ascend(1)

        usual, last = costs(
            partial(run, work, torch.contiguous_format), partial(run, work, torch.channels_last), repeats=3
        )
        _tell(f"{name}, batch {count}: {last.cpu / usual.cpu:.2f} of the CPU time\n")


def _tell(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def main() -> None:
    """Prints both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with deterministic():
        flags(options.state, options.data)
        formats()


if __name__ == "__main__":
    main()
