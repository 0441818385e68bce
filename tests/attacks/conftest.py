"""A small trained classifier, and a way to run an attack on one batch without the engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.kernel import Attack, Examples, Setting, State, frozen, judged
from assay.attacks.randomness import Randomness
from assay.attacks.threat import PIXELS, Box
from tests.support import networks

Run = Callable[..., State]


@pytest.fixture(scope="session")
def digits() -> tuple[Tensor, Tensor]:
    """Handwritten digits, (1797, 1, 8, 8) in [0, 1], and their classes."""
    return networks.digits()


@pytest.fixture(scope="session")
def network() -> nn.Module:
    """A network that knows the digits."""
    return networks.network("undefended").train()


def finished(state: State) -> Tensor:
    """Slots that the engine would release, (B,)."""
    return state["done"] | state["broken"] | state.get("settled", state["broken"])


def run_batch(
    attack: Attack,
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    seed: int = 0,
    box: Box | None = PIXELS,
    final_iterate: bool = False,
    randomness: Randomness | None = None,
) -> State:
    """Steps one batch until the engine would have let every slot go; until then all stay, unchanged."""
    ids = [f"digit-{row}" for row in range(len(images))]
    setting = Setting(ids, randomness or Randomness(seed, attack.name), box, final_iterate)
    with torch.no_grad(), frozen(model):
        rows = torch.arange(len(images))
        state = attack.start(setting, Examples(rows, images, labels, labels, model(images)))
        while not finished(state).all():
            attack.step(setting, model, state)
    return judged(state)


@pytest.fixture
def run() -> Run:
    return run_batch
