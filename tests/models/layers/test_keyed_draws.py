"""Numbers of places: uniform, and the same wherever they are asked for."""

from __future__ import annotations

import torch

from assay.models.layers.keyed_draws import draw_key, keyed_uniform


def test_keyed_numbers_are_uniform_and_independent_of_their_neighbours() -> None:
    torch.manual_seed(0)
    key, places = draw_key(), torch.arange(400)
    numbers = keyed_uniform(key, places[:, None], places)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts = torch.histc(numbers, bins=100, min=0, max=1)
    chi_squared = ((counts - 1600).square() / 1600).sum()
    assert 60 < chi_squared < 150  # 99 degrees of freedom
    for other in (
        keyed_uniform(key + 1, places[:, None], places),
        numbers.roll(1, 0),
        numbers.roll(1, 1),
        numbers.T,
    ):
        pairs = torch.stack([numbers.flatten(), other.flatten()])
        if other is numbers.T:
            pairs = torch.stack([numbers.triu(1).flatten(), other.triu(1).flatten()])[
                :, numbers.triu(1).flatten() > 0
            ]
        assert torch.corrcoef(pairs)[0, 1].abs() < 0.015
