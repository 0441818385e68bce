"""The whole network against one that is put together from timm's parts, in the authors' layout of weights."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
from timm.models.xcit import LPI, ClassAttentionBlock, ConvPatchEmbed, PositionalEncodingFourier
from torch import Tensor, nn

from assay.models.attention.rpc import RPCAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.attention.symmetric import SymmetricAttention
from assay.models.layers.fan import FullyAttentionalNetwork
from assay.models.layers.layers import Classifier
from tests.support.foreign import loaded_from
from tests.support.weights import disturb

SMALL: dict[str, Any] = {
    "classes": 5,
    "channels": 3,
    "image_size": 32,
    "patch_size": 8,
    "width": 24,
    "heads": 3,
}


def build(depth: int = 2, attention: Any = SoftmaxAttention, **changes: Any) -> FullyAttentionalNetwork:
    return FullyAttentionalNetwork([attention] * depth, **{**SMALL, **changes})


class TokenMixing(nn.Module):
    """Softmax attention with a matrix for q and one for k and v."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv, self.proj = nn.Linear(24, 24), nn.Linear(24, 48), nn.Linear(24, 24)

    def forward(self, x: Tensor) -> Tensor:
        keys, values = self.kv(x).split(24, dim=-1)
        heads = []
        for head in range(3):
            part = slice(8 * head, 8 * head + 8)
            scores = self.q(x)[..., part] @ keys[..., part].transpose(1, 2) / math.sqrt(8)
            heads.append(scores.softmax(-1) @ values[..., part])
        return self.proj(torch.cat(heads, dim=-1))


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.dwconv, self.fc2 = nn.Linear(24, 96), LPI(96), nn.Linear(96, 24)
        self.gamma = nn.Parameter(torch.ones(96))

    def forward(self, x: Tensor, rows: int, columns: int) -> Tensor:
        hidden = self.fc1(x)
        return self.fc2(self.gamma * self.dwconv(hidden, rows, columns) + hidden)


class Channels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.mlp_v, self.norm_v = nn.Linear(24, 24), Mlp(), nn.LayerNorm(24)
        self.temperature = nn.Parameter(torch.ones(3, 1, 1))

    def forward(self, x: Tensor, rows: int, columns: int) -> Tensor:
        values = self.norm_v(self.mlp_v(x, rows, columns))
        heads = []
        for head in range(3):
            part = slice(8 * head, 8 * head + 8)
            queries = self.q(x)[..., part].softmax(1).transpose(1, 2)  # (B, D, N)
            keys = x[..., part].softmax(1).mean(-1, keepdim=True)  # (B, N, 1)
            gate = (queries @ keys).sigmoid() * self.temperature[head]  # (B, D, 1)
            heads.append(values[..., part] * gate.transpose(1, 2))
        return torch.cat(heads, dim=-1)


class FanBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(24, eps=1e-6), nn.LayerNorm(24, eps=1e-6)
        self.attn, self.mlp = TokenMixing(), Channels()
        self.gamma1, self.gamma2 = (nn.Parameter(torch.ones(24)) for _ in range(2))

    def forward(self, x: Tensor, rows: int, columns: int) -> Tensor:
        x = x + self.gamma1 * self.attn(self.norm1(x))
        return x + self.gamma2 * self.mlp(self.norm2(x), rows, columns)


class AuthorsNetwork(nn.Module):
    """FAN-ViT of width 24 with 3 heads and 2 blocks."""

    def __init__(self, patch_size: int) -> None:
        super().__init__()
        norm = functools.partial(nn.LayerNorm, eps=1e-6)
        self.patch_embed = ConvPatchEmbed(32, patch_size, 3, 24)
        self.pos_embed = PositionalEncodingFourier(dim=24)
        self.blocks = nn.ModuleList(FanBlock() for _ in range(2))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 24))
        self.cls_attn_blocks = nn.ModuleList(
            ClassAttentionBlock(24, 3, qkv_bias=True, norm_layer=norm, tokens_norm=True) for _ in range(2)
        )
        self.norm, self.head = norm(24), nn.Linear(24, 5)

    def forward(self, images: Tensor) -> Tensor:
        x, (rows, columns) = self.patch_embed(images)
        x = x + self.pos_embed(1, rows, columns).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x, rows, columns)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        for block in self.cls_attn_blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


@pytest.mark.parametrize("patch_size", [8, 16])
@pytest.mark.parametrize("size", [(32, 32), (48, 80)])
def test_equals_the_authors_network_with_its_weights(patch_size: int, size: tuple[int, int]) -> None:
    theirs = AuthorsNetwork(patch_size)
    disturb(theirs)
    theirs.double().eval()
    ours = build(patch_size=patch_size).double().eval()
    layout = loaded_from(theirs.state_dict(), Classifier(ours, [0.0] * 3, [1.0] * 3))
    assert layout.name == "nvidia_fan"
    images = torch.randn(2, 3, *size, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(ours(images), theirs(images), rtol=0, atol=1e-10)
    (gradient,) = torch.autograd.grad(ours(images)[:, 1].sum(), images)
    (expected,) = torch.autograd.grad(theirs(images)[:, 1].sum(), images)
    assert (gradient - expected).abs().max() <= 1e-9 * expected.abs().max()


def test_maps_images_to_logits_and_tokens() -> None:
    model = build().eval()
    images = torch.randn(2, 3, 32, 32)
    tokens = model.forward_features(images)
    assert tokens.shape == (2, 1 + 16, 24)
    torch.testing.assert_close(model(images), model.head(tokens[:, 0]))
    assert torch.equal(model.forward_head(tokens, pre_logits=True), tokens[:, 0])


def test_initialisation_is_as_released() -> None:
    model = build(width=192, heads=4)
    linears = [part for part in model.modules() if isinstance(part, nn.Linear)]
    for linear in linears:
        assert 0.017 < linear.weight.std() < 0.023
        assert not linear.bias.any()
    assert 0.015 < model.cls_token.std() < 0.025
    depthwise = model.blocks[0].mlp.mlp_v.dwconv.conv1
    assert depthwise.weight.std().item() == pytest.approx((2 / 9) ** 0.5, rel=0.05)
    scales = [value for name, value in model.named_parameters() if "gamma" in name]
    assert len(scales) == 3 * 2 + 2 * 2
    assert all((scale == 1).all() for scale in scales)


def test_drop_path_is_the_same_in_every_fan_block() -> None:
    assert [block.drop_path.rate for block in build(depth=3, drop_path=0.2).blocks] == [0.2] * 3


def test_layer_norm_epsilons() -> None:
    norms = {name: part.eps for name, part in build().named_modules() if isinstance(part, nn.LayerNorm)}
    assert len(norms) == 3 * 2 + 2 * 2 + 1
    assert {eps for name, eps in norms.items() if name.endswith("norm_v")} == {1e-5}
    assert {eps for name, eps in norms.items() if not name.endswith("norm_v")} == {1e-6}


@pytest.mark.parametrize("attention", [SoftmaxAttention, SymmetricAttention, RPCAttention])
def test_gradient_flows_to_every_parameter_that_can_matter(attention: Any) -> None:
    model = build(attention=attention).double().eval()
    disturb(model)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    (model(images) * torch.randn(2, 5, dtype=torch.float64)).sum().backward()
    largest = {}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        largest[name] = float(parameter.grad.abs().max())
    # A bias that is the same for every token leaves a softmax over tokens as it is.
    idle = {name for name in largest if name.endswith((".mlp.q.bias", ".attn.k.bias"))}
    assert len(idle) == 2 + 2
    assert max(largest[name] for name in idle) < 1e-12
    assert min(value for name, value in largest.items() if name not in idle) > 1e-9


def test_class_token_is_learned_and_not_decayed() -> None:
    model = build()
    assert model.no_weight_decay() == {"cls_token"}
    assert model.no_weight_decay() <= dict(model.named_parameters()).keys()


def test_head_can_be_replaced_or_left_out() -> None:
    model = build(classes=0).eval()
    images = torch.randn(2, 3, 32, 32)
    assert model(images).shape == (2, 24)
    model.reset_classifier(7)
    assert model.num_classes == 7
    assert model.get_classifier().out_features == 7
    assert model(images).shape == (2, 7)


def test_dropout_is_off_in_eval_mode_only() -> None:
    model = build(dropout=0.5, drop_path=0.5)
    images = torch.randn(4, 3, 32, 32)
    assert not torch.equal(model(images), model(images))
    model.eval()
    assert torch.equal(model(images), model(images))


@pytest.mark.parametrize(("image_size", "patch_size"), [(36, 8), (8, 16)])
def test_refuses_an_image_size_that_is_not_whole_patches(image_size: int, patch_size: int) -> None:
    message = f"patch_size must divide image_size: got {patch_size} and {image_size}"
    with pytest.raises(ValueError, match=message):
        build(image_size=image_size, patch_size=patch_size)
