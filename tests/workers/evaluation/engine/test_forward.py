"""Passes of a model in what memory there is, in every arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from assay.workers.evaluation.engine.forward import Passes

VARIANTS: dict[str, Callable[[Passes], Passes]] = {
    "itself": lambda passes: passes,
    "bfloat16": Passes.in_bfloat16,
    "gradients in bfloat16": Passes.with_bfloat16_gradients,
}


class Small(nn.Module):
    """A model whose passes have memory for two images."""

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > 2:
            raise torch.OutOfMemoryError("two images at most")
        return images.flatten(1)[:, :2]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_batch_that_was_reduced_in_any_arithmetic_is_noted_and_reduced_in_all(variant: str) -> None:
    """A run in bfloat16 and the one without it share the memory, and the evidence of a shard is one."""
    passes, images = Passes(Small(), torch.device("cpu")), torch.rand(5, 1, 2, 2)
    assert VARIANTS[variant](passes)(images).shape == (5, 2)
    assert passes.limit.noted() == {"reduced_batch": {"asked": 5, "used": 2}}
    for other in VARIANTS.values():
        assert other(passes).limit.rows == 2
