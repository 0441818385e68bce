"""Two photographs that scikit-learn has."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_sample_images
from torch import Tensor


@pytest.fixture(scope="session")
def photographs() -> Tensor:
    """Levels (2, 3, 144, 200), float32 whole numbers in 0..255."""
    found = [torch.tensor(image[200:344, 250:450]) for image in load_sample_images().images]
    return torch.stack(found).permute(0, 3, 1, 2).float()
