from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from assay.models import symvit as module
from assay.models.attention.symmetric import SymmetricAttention
from assay.models.symvit import symvit

SMALL: dict[str, Any] = {"image_size": 16, "patch_size": 4, "width": 48, "depth": 4, "heads": 3}


def test_default_has_the_size_of_the_published_tiny_model() -> None:
    assert sum(parameter.numel() for parameter in symvit(1000, 3).parameters()) == 5_272_744


def test_every_layer_is_symmetric() -> None:
    model = symvit(10, 1, **SMALL, attention_dropout=0.1, drop_path=0.2)
    assert [type(block.attn) for block in model.blocks] == [SymmetricAttention] * 4
    assert {block.attn.dropout for block in model.blocks} == {0.1}
    assert model.blocks[-1].drop_path.rate == pytest.approx(0.2)
    assert model(torch.randn(2, 1, 16, 16)).shape == (2, 10)


def test_input_gradient_with_frozen_parameters() -> None:
    for dtype in (torch.float32, torch.float64):
        model = symvit(10, 1, **SMALL).to(dtype).eval().requires_grad_(False)
        images = torch.randn(2, 1, 16, 16, dtype=dtype, requires_grad=True)
        labels = torch.tensor([1, 2])
        loss = torch.nn.functional.cross_entropy(model(images), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, images)
        assert gradient.dtype == dtype
        assert gradient.abs().amax(dim=(1, 2, 3)).min() > 0


def test_rules(broken: Callable[..., list[str]]) -> None:
    assert broken(module, **SMALL) == []
    assert broken(module, **{**SMALL, "width": 50}) == ["heads must divide width"]
    assert broken(module, **{**SMALL, "image_size": 18}) == ["patch_size must divide image_size"]
