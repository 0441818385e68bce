"""Two networks on digits, and a driver that runs a kernel on fixed batches without the engine."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.attacks.kernel import Attack, Examples, Setting, frozen, select
from assay.attacks.randomness import LibraryStream, Randomness
from assay.attacks.threat import PIXELS, Box
from tests.support import networks


@functools.cache
def digits() -> tuple[Tensor, Tensor]:
    """Handwritten digits, (1797, 1, 8, 8) in [0, 1], and their classes."""
    return networks.digits()


@functools.cache
def network(name: str) -> nn.Module:
    """A network that knows the digits, trained on FGSM examples or not."""
    return networks.network(name).requires_grad_(False)


@dataclass(frozen=True)
class Found:
    """Result of an attack, one row per example; passes exclude the clean one."""

    broken: Tensor
    best: Tensor
    forward: Tensor
    backward: Tensor


def drive(
    attack: Attack,
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    randomness: Randomness | None = None,
    batch_size: int | None = None,
    box: Box | None = PIXELS,
) -> Found:
    """Runs batches one after the other; slots leave when they are broken or done, none is refilled.

    Images that are wrong already count as broken and are not attacked. Ids don't depend on the batch.
    """
    count = len(images)
    if randomness is None:
        randomness = LibraryStream(0) if attack.backend == "compatible" else Randomness(0, attack.name)
    setting = Setting([f"digit-{row}" for row in range(count)], randomness, box)
    found = Found(
        torch.ones(count, dtype=torch.bool), images.clone(), *torch.zeros(2, count, dtype=torch.int64)
    )
    with torch.no_grad(), frozen(model):
        right = (model(images).argmax(1) == labels).nonzero().flatten()
        for rows in right.split(batch_size or count):
            truth = labels[rows]
            state = attack.start(setting, Examples(rows, images[rows], truth, truth, model(images[rows])))
            while len(state["row"]):
                attack.step(setting, model, state)
                leaving = state["done"] | state["broken"]
                left = select(state, leaving)
                found.broken[left["row"]] = left["broken"]
                found.best[left["row"]] = left["best"]
                found.forward[left["row"]] = left["forward"]
                found.backward[left["row"]] = left["backward"]
                state = select(state, ~leaving)
    return found
