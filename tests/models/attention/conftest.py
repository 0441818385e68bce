from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

VECTORS = Path(__file__).parents[2] / "vectors"


class Vector:
    """One file of reference numbers of the authors' module, as float64 tensors."""

    def __init__(self, name: str) -> None:
        with np.load(VECTORS / f"{name}.npz") as file:
            self.numbers = {key: torch.from_numpy(file[key]).double() for key in file.files if key != "about"}

    def __getitem__(self, key: str) -> Tensor:
        return self.numbers[key]

    def case(self, name: str) -> dict[str, Tensor]:
        """The numbers whose names begin with "NAME.", by the rest of their names."""
        found = {key.partition("."): value for key, value in self.numbers.items()}
        return {rest: value for (first, _, rest), value in found.items() if first == name}

    def load(self, attention: nn.Module) -> nn.Module:
        """Give the attention the stored weights, in float64 and in eval mode."""
        weights = {key[2:]: value for key, value in self.numbers.items() if key.startswith("w.")}
        attention.double().load_state_dict(weights)
        return attention.eval()


@pytest.fixture
def vector() -> Callable[[str], Vector]:
    return Vector
