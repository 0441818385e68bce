from __future__ import annotations

from typing import Any

import pytest
import torch

from assay.models.attention.rpc_causal import CausalRPCAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.transformer import VisionTransformer

SMALL: dict[str, Any] = {
    "classes": 5,
    "channels": 1,
    "image_size": 8,
    "patch_size": 4,
    "width": 32,
    "heads": 2,
}


def build(depth: int = 3, **changes: Any) -> VisionTransformer:
    return VisionTransformer([SoftmaxAttention] * depth, **{**SMALL, **changes})


def test_maps_images_to_logits_and_tokens() -> None:
    model = build().eval()
    images = torch.randn(2, 1, 8, 8)
    tokens = model.forward_features(images)
    assert tokens.shape == (2, 1 + 4, 32)
    assert model(images).shape == (2, 5)
    torch.testing.assert_close(model(images), model.head(tokens[:, 0]))
    assert torch.equal(model.forward_head(tokens, pre_logits=True), tokens[:, 0])


def test_initialisation_is_as_released() -> None:
    model = build(image_size=64, patch_size=2, width=64)
    for parameter in (model.pos_embed, model.cls_token):
        assert 0.015 < parameter.std() < 0.025  # truncated normal of 0.02
    for linear in (model.head, model.blocks[0].attn.qkv, model.blocks[0].mlp.fc1):
        bound = linear.in_features**-0.5  # PyTorch's default is uniform within it, for weights and biases
        assert 0.9 * bound < linear.weight.abs().max() <= bound
        assert 0 < linear.bias.abs().max() <= bound


def test_drop_path_rises_linearly() -> None:
    rates = [block.drop_path.rate for block in build(depth=5, drop_path=0.1).blocks]
    assert rates == pytest.approx([0.0, 0.025, 0.05, 0.075, 0.1])
    assert [block.drop_path.rate for block in build(depth=1, drop_path=0.1).blocks] == [0.0]


def test_layer_norm_epsilon() -> None:
    norms = [module for module in build().modules() if isinstance(module, torch.nn.LayerNorm)]
    assert len(norms) == 7
    assert {norm.eps for norm in norms} == {1e-6}


def test_position_embedding_and_class_token_are_learned_and_not_decayed() -> None:
    model = build()
    names = dict(model.named_parameters())
    assert model.no_weight_decay() <= names.keys()
    model(torch.randn(2, 1, 8, 8)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in names.values())


def test_positions_are_resized_to_another_grid_without_the_class_token() -> None:
    model = build(depth=0, width=2, heads=1, dropout=0.0).double()
    model.norm = torch.nn.Identity()
    with torch.no_grad():
        model.cls_token.zero_()
        model.pos_embed[0, 0] = 100.0
        model.pos_embed[0, 1:] = torch.tensor([[0.0, 8.0], [4.0, 8.0], [0.0, 8.0], [4.0, 8.0]])
    tokens = model.encode(torch.zeros(1, 2 * 4, 2, dtype=torch.float64), (2, 4))
    assert tokens[0, 0].tolist() == [100.0, 100.0]
    # Two columns at the centres 0.25 and 0.75 become four, at 0.125, 0.375, 0.625 and 0.875.
    assert tokens[0, 1:, 0].tolist() == [0.0, 1.0, 3.0, 4.0] * 2
    assert tokens[0, 1:, 1].tolist() == [8.0] * 8


def test_head_can_be_replaced_or_left_out() -> None:
    model = build(classes=0)
    assert model(torch.randn(2, 1, 8, 8)).shape == (2, 32)
    model.reset_classifier(7)
    assert model.num_classes == 7
    assert model.get_classifier().out_features == 7
    assert model(torch.randn(2, 1, 8, 8)).shape == (2, 7)


def test_dropout_is_off_in_eval_mode_only() -> None:
    model = build(dropout=0.5, drop_path=0.5)
    images = torch.randn(4, 1, 8, 8)
    assert not torch.equal(model(images), model(images))
    model.eval()
    assert torch.equal(model(images), model(images))


def test_causal_attention_in_every_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="the class token comes first and would see no patch"):
        VisionTransformer([CausalRPCAttention] * 2, **SMALL)
    images = torch.randn(2, 1, 8, 8)
    logits = VisionTransformer([CausalRPCAttention, SoftmaxAttention], **SMALL)(images)
    assert not torch.equal(logits[0], logits[1])
