"""Squares of the Square Attack: their sizes, positions and patterns."""

from __future__ import annotations

import pytest
import torch
from pyautoattack.square import SquareAttack
from torch import nn

from assay.attacks.adversarial.kernels.square.windows import inside, pattern, positions, square_sizes, tiles


def test_schedule() -> None:
    """On 32 x 32 the first squares cover 0.8 of the image, sides sqrt(0.8 * 1024 / 2^k)."""
    query = torch.tensor([0, 10, 11, 50, 51, 200, 201, 8001])
    linf = square_sizes(query, 32, 32, 0.8, smallest=1, odd=False)
    assert linf.tolist() == [29, 29, 20, 20, 14, 14, 10, 1]
    assert square_sizes(query, 32, 32, 0.8, smallest=3, odd=True).tolist() == [29, 29, 21, 21, 15, 15, 11, 3]
    assert square_sizes(query[:1], 8, 40, 0.8, smallest=1, odd=False).tolist() == [8]


def test_windows() -> None:
    assert positions(torch.tensor([0.0, 0.999, 1.0]), 10, torch.tensor([4, 4, 4])).tolist() == [0, 5, 6]
    mask = inside(torch.tensor([1]), torch.tensor([2]), 2, 4, 5)
    assert mask[0, 0].nonzero().tolist() == [[1, 2], [1, 3], [2, 2], [2, 3]]
    side, corners = tiles(32, 32)
    assert (side, len(corners), corners[0]) == (6, 25, (1, 1))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 11])
def test_pattern_is_the_librarys(size: int) -> None:
    theirs = SquareAttack(nn.Identity(), norm="L2", eps=1.0, n_queries=1, seed=0)
    theirs.init_hyperparam(torch.zeros(1, 1, 12, 12))
    expected = [theirs.eta(size) for _ in range(8)]
    ours = pattern(size)
    matches = [torch.equal(tensor, ours) or torch.equal(tensor, ours.T) for tensor in expected]
    assert all(matches)
