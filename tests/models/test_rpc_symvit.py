from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from assay.models import rpc_symvit as module
from assay.models.attention.rpc import RPCAttention
from assay.models.attention.symmetric import SymmetricAttention
from assay.models.rpc_symvit import rpc_symvit
from assay.models.symvit import symvit

SMALL: dict[str, Any] = {"image_size": 16, "patch_size": 4, "width": 48, "depth": 4, "heads": 3}


def test_default_has_the_size_of_the_published_tiny_model() -> None:
    assert sum(parameter.numel() for parameter in rpc_symvit(1000, 3).parameters()) == 5_272_744


@pytest.mark.parametrize(
    ("layers", "chosen"), [("first", [0]), ("last", [3]), ([0, 2], [0, 2]), ("all", [0, 1, 2, 3])]
)
def test_chosen_layers_are_rpc_and_the_others_symmetric(layers: Any, chosen: list[int]) -> None:
    model = rpc_symvit(10, 1, **SMALL, rpc_layers=layers)
    for layer, block in enumerate(model.blocks):
        assert type(block.attn) is (RPCAttention if layer in chosen else SymmetricAttention)
    assert model(torch.randn(2, 1, 16, 16)).shape == (2, 10)


def test_parameters_reach_the_attention() -> None:
    attention = (
        rpc_symvit(
            10,
            1,
            **SMALL,
            iterations=5,
            regularization=3.0,
            threshold="paper",
            mu_width="head",
            dual_sign=1,
            attention_dropout=0.1,
        )
        .blocks[0]
        .attn
    )
    assert (attention.iterations, attention.regularization, attention.threshold) == (5, 3.0, "paper")
    assert (attention.width, attention.dual_sign, attention.dropout) == (16, 1, 0.1)


def test_default_is_the_released_code() -> None:
    attention = rpc_symvit(10, 1, **SMALL).blocks[0].attn
    assert (attention.iterations, attention.regularization, attention.threshold) == (4, 4.0, "code")
    assert (attention.width, attention.dual_sign, attention.dropout) == (48, -1, 0.0)


def test_takes_the_weights_of_symvit_and_equals_it_where_the_iteration_is_trivial() -> None:
    symmetric = symvit(10, 1, **SMALL).double().eval()
    robust = rpc_symvit(10, 1, **SMALL, iterations=1, regularization=1e6, rpc_layers="all").double().eval()
    robust.load_state_dict(symmetric.state_dict())
    images = torch.randn(2, 1, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(robust(images), symmetric(images), rtol=0, atol=1e-12)
    iterated = rpc_symvit(10, 1, **SMALL, rpc_layers="first").double().eval()
    iterated.load_state_dict(symmetric.state_dict())
    assert not torch.allclose(iterated(images), symmetric(images), atol=1e-6)


def test_input_gradient_with_frozen_parameters() -> None:
    for dtype in (torch.float32, torch.float64):
        model = (
            rpc_symvit(10, 1, **SMALL, rpc_layers="all", iterations=2).to(dtype).eval().requires_grad_(False)
        )
        images = torch.randn(2, 1, 16, 16, dtype=dtype, requires_grad=True)
        loss = torch.nn.functional.cross_entropy(model(images), torch.tensor([1, 2]), reduction="sum")
        (gradient,) = torch.autograd.grad(loss, images)
        assert torch.isfinite(gradient).all()
        assert gradient.abs().amax(dim=(1, 2, 3)).min() > 0


def test_rules(broken: Callable[..., list[str]]) -> None:
    message = "rpc_layers must be all, first, last, or a list of layers from 0 to depth - 1"
    assert broken(module, **SMALL, rpc_layers="first") == []
    assert broken(module, **SMALL, rpc_layers=[0, 3]) == []
    assert broken(module, **SMALL, rpc_layers=[0, 4]) == [message]
    assert broken(module, **{**SMALL, "heads": 7}, rpc_layers=[]) == ["heads must divide width", message]
