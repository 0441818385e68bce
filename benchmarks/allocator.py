"""Gain of the evaluators' memory settings on a CPU: `python -m benchmarks.allocator`.

Each kind of pass runs in separate processes, alternating: plain Python, and with the environment that
supervisors give evaluators (`workers.supervision.evaluator_process.ALLOCATOR`). Two networks on 32 x 32
pixels, one thread, batch 128: a ViT the size of `small_vit`, and four convolutions. Milliseconds are CPU
time, the best of all repeats; page faults are those of the last pass.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

from assay.workers import catalog
from assay.workers.supervision.evaluator_process import ALLOCATOR

TURNS, REPEATS, BATCH = 2, 8, 128
SHAPE = {"image_size": 32, "patch_size": 4, "depth": 4, "width": 128, "heads": 4}
NETWORKS, KINDS = ("vit", "cnn"), ("forward", "input gradient", "training step")


def network(name: str) -> nn.Module:
    """Untrained network for 3 x 32 x 32 pixels and ten classes."""
    torch.manual_seed(0)
    if name == "vit":
        vit: nn.Module = catalog.build("model", "vit", SHAPE)(10, 3)
        return vit
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((3, 32, 1), (32, 32, 2), (32, 64, 1), (64, 64, 2)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4096, 10))


def measured(name: str, kind: str) -> tuple[float, int]:
    """Seconds and page faults of one kind of pass, in this process."""
    torch.set_num_threads(1)
    model = network(name)
    images, labels = torch.rand(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))
    optimizer = torch.optim.AdamW(model.parameters())

    def training_step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    def forward() -> None:
        with torch.no_grad():
            model(images)

    def input_gradient() -> None:
        moving = images.clone().requires_grad_(True)
        torch.autograd.grad(model(moving).sum(), moving)

    passes: dict[str, Callable[[], None]] = dict(
        zip(KINDS, (forward, input_gradient, training_step), strict=True)
    )
    model.requires_grad_(kind == "training step")
    spent, faults = [], 0
    for _ in range(REPEATS):
        before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time()
        passes[kind]()
        spent.append(time.process_time() - begun)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return min(spent), faults


def elsewhere(name: str, kind: str, environment: dict[str, str]) -> tuple[float, int]:
    """The same measurement in a process with this environment."""
    command = [sys.executable, "-m", "benchmarks.allocator", name, kind]
    answer = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout  # noqa: S603 (itself)
    seconds, faults = json.loads(answer)
    return seconds, faults


def main() -> None:
    """Prints the table; with a network and a kind of pass, that one measurement as JSON."""
    if sys.argv[1:]:
        sys.stdout.write(json.dumps(measured(*sys.argv[1:])))
        return
    plain = {name: value for name, value in os.environ.items() if name not in ALLOCATOR}
    sys.stdout.write("network  pass             plain ms  evaluator ms     x   page faults\n")
    for name in NETWORKS:
        for kind in KINDS:
            turns = [
                (elsewhere(name, kind, plain), elsewhere(name, kind, plain | ALLOCATOR)) for _ in range(TURNS)
            ]
            one, two = (min(turn[side][0] for turn in turns) * 1e3 for side in (0, 1))
            faults = f"{turns[-1][0][1]} / {turns[-1][1][1]}"
            sys.stdout.write(f"{name:7}  {kind:15}  {one:8.0f}  {two:12.0f}  {one / two:4.2f}   {faults}\n")


if __name__ == "__main__":
    main()
