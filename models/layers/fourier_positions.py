"""Position encoding from sines and cosines of the row and the column, projected to the token width.

Frequencies as in Vaswani et al., "Attention is all you need", NeurIPS 2017, section 3.5; in two dimensions,
with a learned projection, as in El-Nouby et al., "XCiT: Cross-covariance image transformers", NeurIPS 2021.
Names and layouts of the weights are XCiT's.

C = width, R and S = rows and columns of tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

FEATURES = 32  # for the row, and as many for the column
TEMPERATURE = 10_000.0
EPSILON = 1e-6  # as released: the last position is a full turn but for this


class FourierPositions(nn.Module):
    """Encoding of every position of a grid of any size: positions are fractions of its sides."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.token_projection = nn.Conv2d(2 * FEATURES, width, kernel_size=1)

    def forward(self, grid: tuple[int, int]) -> Tensor:
        """Encoding (1, R * S, C) of a grid of R rows and S columns, row by row."""
        weight = self.token_projection.weight
        rows, columns = (waves(places, weight.device) for places in grid)
        both = (rows[:, None].expand(*grid, FEATURES), columns[None].expand(*grid, FEATURES))
        features = torch.cat(both, dim=-1).permute(2, 0, 1)  # (64, R, S)
        encoding: Tensor = self.token_projection(features[None].to(weight.dtype))  # (1, C, R, S)
        return encoding.flatten(2).transpose(1, 2)


def waves(places: int, device: torch.device | None = None) -> Tensor:
    """Interleaved sines and cosines of positions 1 to `places` of an axis: (places, 32), float32 as released.

    The angle of position i is 2 pi i / places, divided by a power of the temperature that grows from 1 with
    each pair of features.
    """
    turns = torch.arange(1, places + 1, dtype=torch.float32, device=device) / (places + EPSILON)
    powers = torch.arange(0, FEATURES, 2, dtype=torch.float32, device=device) / FEATURES
    angles = 2 * math.pi * turns[:, None] / TEMPERATURE**powers  # (places, 16)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
