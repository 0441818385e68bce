"""Random signs are an example's own and fair."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.random_signs import random_signs, unpack
from assay.attacks.kernel import Setting
from assay.attacks.randomness import Randomness


def test_signs_are_an_examples_own_and_fair() -> None:
    setting = Setting(["a", "b"], Randomness(0, "spsa"))
    rows, entries = torch.tensor([0, 1]), 100

    def signs(rows: Tensor, steps: list[int], count: int) -> Tensor:
        packed = random_signs(setting, rows, torch.tensor(steps), count, entries)
        return unpack(packed, entries, torch.float64)

    both = signs(rows, [0, 5], 500)
    assert both.shape == (2, 500, entries)
    assert both.abs().eq(1).all()
    assert torch.equal(signs(rows[1:], [5], 20)[0], both[1, :20])
    assert not torch.equal(signs(rows[1:], [6], 500)[0], both[1])
    # 1000 signs at each entry: 5 standard deviations are 0.16. No two entries go together either.
    flat = both.flatten(0, 1)
    assert flat.mean(0).abs().max() < 0.16
    assert (flat.T @ flat / 1000 - torch.eye(entries)).abs().max() < 0.16
