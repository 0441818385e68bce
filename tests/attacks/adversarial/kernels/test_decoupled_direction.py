"""DDN's levels."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.attacks.adversarial.ddn import ddn
from tests.attacks.adversarial.kernels.iterates import step_of


def test_levels_are_the_nearest_to_the_values_without_them() -> None:
    at: dict[str, Tensor] = {"radius": torch.full((4,), 0.4, dtype=torch.float64)}
    free, level = (
        attack._moved(*step_of(at))
        for attack in (ddn(steps=10), ddn(steps=10, levels=17))  # type: ignore[attr-defined]
    )
    levels = torch.arange(17, dtype=torch.float64) / 16
    nearest = levels[(free[..., None] - levels).abs().argmin(-1)]
    torch.testing.assert_close(level, nearest, rtol=0, atol=1e-12)
    assert (level > free).any(), "rounded down alone"
    assert (level < free).any()
