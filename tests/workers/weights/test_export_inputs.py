"""Modules of other floating-point types than float32, in which programs are exported."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from assay.workers.weights.export import export_program
from assay.workers.weights.export_inputs import CannotExport


class Fixed(nn.Module):
    """Takes a fixed type in its forward that its parameters may not have."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.dtype = dtype

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits (B, 2)."""
        logits: Tensor = self.head(pixels.mean((2, 3)).to(self.dtype))
        return logits


@pytest.mark.parametrize(("dtype", "name"), [(torch.float64, "float64"), (torch.bfloat16, "bfloat16")])
def test_a_refusal_says_that_the_type_was_changed(tmp_path: Path, dtype: torch.dtype, name: str) -> None:
    with pytest.raises(
        CannotExport, match=rf"same dtype.*the module has numbers of {name}, and was changed to float32"
    ):
        export_program(Fixed(dtype).to(dtype), tmp_path / "net.pt2", image_size=8)


def test_a_refusal_of_a_module_in_float32_says_nothing_of_it(tmp_path: Path) -> None:
    with pytest.raises(CannotExport, match="same dtype") as caught:
        export_program(Fixed(torch.float64), tmp_path / "net.pt2", image_size=8)
    assert "changed to float32" not in str(caught.value)
