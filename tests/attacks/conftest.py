"""A small trained classifier, and a way to run an attack on one batch without the engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from attacks.kernel import Attack, Examples, Setting, State, frozen, judged
from attacks.randomness import Randomness
from attacks.threat import PIXELS, Box

Run = Callable[..., State]


@pytest.fixture(scope="session")
def digits() -> tuple[Tensor, Tensor]:
    """Handwritten digits, (1797, 1, 8, 8) in [0, 1], and their classes."""
    bunch = load_digits()
    pixels = torch.tensor(bunch.images, dtype=torch.float32)[:, None] / 16
    return pixels, torch.tensor(bunch.target, dtype=torch.int64)


@pytest.fixture(scope="session")
def network(digits: tuple[Tensor, Tensor]) -> nn.Module:
    """A network that knows the digits."""
    torch.manual_seed(0)
    pixels, labels = digits
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pixels), labels).backward()
        optimizer.step()
    model.zero_grad()
    return model


def finished(state: State) -> Tensor:
    """Which slots the engine would let go, (B,)."""
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
