"""Digits, and a small classifier that has not seen the first of them."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from models.layers import Classifier

HELD_OUT = 500


@pytest.fixture(scope="session")
def digits() -> tuple[Tensor, Tensor]:
    """All digits, (1797, 1, 8, 8) in [0, 1], and their classes."""
    bunch = load_digits()
    return torch.tensor(bunch.images, dtype=torch.float32)[:, None] / 16, torch.tensor(bunch.target).long()


@pytest.fixture(scope="module")
def model(digits: tuple[Tensor, Tensor]) -> Classifier:
    """Knows the digits from the 500th on; a module may change its mode."""
    torch.manual_seed(0)
    pixels, labels = digits[0][HELD_OUT:], digits[1][HELD_OUT:]
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.GELU(), nn.Linear(48, 10))
    classifier = Classifier(backbone, [0.3], [0.4])
    optimizer = torch.optim.Adam(classifier.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(classifier(pixels), labels).backward()
        optimizer.step()
    classifier.zero_grad()
    return classifier
