"""Digits, and a small classifier that has not seen the first of them."""

from __future__ import annotations

import pytest
from torch import Tensor

from assay.models.layers.layers import Classifier
from tests.support import networks


@pytest.fixture(scope="session")
def digits() -> tuple[Tensor, Tensor]:
    """All digits, (1797, 1, 8, 8) in [0, 1], and their classes."""
    return networks.digits()


@pytest.fixture(scope="module")
def model() -> Classifier:
    """Knows the digits from the 500th on; a module may change its mode."""
    return Classifier(networks.network("gelu"), [networks.MEAN], [networks.STD]).train()
