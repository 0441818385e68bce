from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from assay.models import rpc_asymvit as module
from assay.models.attention.rpc import RPCAttention
from assay.models.attention.rpc_asymmetric import AsymmetricRPCAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.rpc_asymvit import rpc_asymvit
from assay.models.vit import vit

SMALL: dict[str, Any] = {"image_size": 16, "patch_size": 4, "width": 48, "depth": 4, "heads": 3}
FORMS = {"rpc_asymmetric": AsymmetricRPCAttention, "rpc": RPCAttention}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("layers", "chosen"), [("first", [0]), ("last", [3]), ([0, 2], [0, 2]), ("all", [0, 1, 2, 3])]
)
def test_chosen_layers_have_the_form_and_the_others_softmax(
    layers: Any, chosen: list[int], form: Any
) -> None:
    model = rpc_asymvit(10, 1, **SMALL, rpc_layers=layers, rpc_form=form)
    for layer, block in enumerate(model.blocks):
        assert type(block.attn) is (FORMS[form] if layer in chosen else SoftmaxAttention)
    assert model(torch.randn(2, 1, 16, 16)).shape == (2, 10)


def test_default_is_the_published_model_with_asymmetric_queries() -> None:
    with torch.device("meta"):
        model = rpc_asymvit(1000, 3)
    attention = model.blocks[0].attn
    assert type(attention) is AsymmetricRPCAttention
    assert (attention.iterations, attention.regularization, attention.threshold) == (4, 4.0, "code")
    assert (attention.width, attention.dual_sign, attention.dropout) == (192, -1, 0.0)
    assert len(model.blocks) == 12


@pytest.mark.parametrize("form", FORMS)
def test_parameters_reach_the_attention(form: Any) -> None:
    attention = (
        rpc_asymvit(
            10,
            1,
            **SMALL,
            rpc_form=form,
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


def test_takes_the_weights_of_vit_and_equals_it_where_the_iteration_is_trivial() -> None:
    plain = vit(10, 1, **SMALL).double().eval()
    robust = rpc_asymvit(10, 1, **SMALL, iterations=1, regularization=1e6, rpc_layers="all").double().eval()
    robust.load_state_dict(plain.state_dict())
    images = torch.randn(2, 1, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(robust(images), plain(images), rtol=0, atol=1e-12)
    iterated = rpc_asymvit(10, 1, **SMALL).double().eval()
    iterated.load_state_dict(plain.state_dict())
    assert not torch.allclose(iterated(images), plain(images), atol=1e-6)


def test_input_gradient_with_frozen_parameters() -> None:
    model = rpc_asymvit(10, 1, **SMALL, rpc_layers="all", iterations=2).eval().requires_grad_(False)
    images = torch.randn(2, 1, 16, 16, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(model(images), torch.tensor([1, 2]), reduction="sum")
    (gradient,) = torch.autograd.grad(loss, images)
    assert torch.isfinite(gradient).all()
    assert gradient.abs().amax(dim=(1, 2, 3)).min() > 0


def test_rules(broken: Callable[..., list[str]]) -> None:
    message = "rpc_layers must be all, first, last, or a list of layers from 0 to depth - 1"
    assert broken(module, **SMALL, rpc_layers=[0, 3]) == []
    assert broken(module, **{**SMALL, "heads": 7}, rpc_layers=[4]) == ["heads must divide width", message]


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="rpc_form must be 'rpc_asymmetric' or 'rpc': got 'symmetric'"):
        rpc_asymvit(10, 1, **SMALL, rpc_form="symmetric")  # type: ignore[arg-type]
