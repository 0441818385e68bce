"""An alias table holds its probabilities."""

from __future__ import annotations

import torch

from assay.attacks.corruptions.imaging.alias_sampling import alias_table
from assay.attacks.randomness import Randomness, Source

N = 200_000


def source(*ids: str) -> Source:
    return Source(Randomness(0, "any"), ids or ("one",))


def test_an_alias_table_holds_its_probabilities() -> None:
    weights = torch.tensor([[0.1, 0.2, 0.7], [1.0, 0.0, 0.0]], dtype=torch.float64)
    table = alias_table(weights, torch.tensor([10.0, 20.0, 30.0]))
    rows = torch.arange(2, dtype=torch.int32).repeat_interleave(N)
    drawn = table.sample(rows, source().words((2 * N,))[0]).view(2, N)
    for row, expected in zip(drawn, weights, strict=True):
        shares = torch.stack([(row == value).double().mean() for value in (10.0, 20.0, 30.0)])
        assert float((shares - expected).abs().max()) < 5 * 0.5 / N**0.5
