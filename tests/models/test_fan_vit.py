"""FAN-ViT and RPC-FAN as components: sizes, parameters, rules, and the laws that hold for both."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from assay.models import fan_vit as module
from assay.models import rpc_fan_vit as rpc_module
from assay.models.attention.rpc import RPCAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.attention.symmetric import SymmetricAttention
from assay.models.fan_vit import fan_vit
from assay.models.rpc_fan_vit import rpc_fan_vit
from tests.support.weights import disturb

SMALL: dict[str, Any] = {"image_size": 16, "patch_size": 4, "width": 24, "depth": 3, "heads": 3}
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 0.1}  # share of the largest value
LAYERS = [("first", [0]), ("last", [2]), ([0, 1], [0, 1]), ("all", [0, 1, 2])]

PRESETS = module.PRESETS | rpc_module.PRESETS
FAN_TINY, RPC_TINY = PRESETS["fan_vit_tiny"].build, PRESETS["rpc_fan_vit_tiny"].build

Builder = Callable[..., nn.Module]


def count(builder: Callable[[], nn.Module]) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in builder().parameters())


@pytest.mark.parametrize(
    ("builder", "parameters"),
    [
        (fan_vit, 7_319_920),
        (FAN_TINY, 7_319_920),
        (PRESETS["fan_vit_small"].build, 28_345_336),
        (PRESETS["fan_vit_base"].build, 54_350_320),
        (rpc_fan_vit, 6_875_248),
        (RPC_TINY, 6_875_248),
        (functools.partial(FAN_TINY, attention="symmetric"), 6_875_248),
    ],
)
def test_published_sizes(builder: Builder, parameters: int) -> None:
    assert count(lambda: builder(1000, 3)) == parameters


@pytest.mark.parametrize(
    ("builder", "depth", "width", "heads", "drop_path"),
    [
        (FAN_TINY, 12, 192, 4, 0.0),
        (PRESETS["fan_vit_small"].build, 12, 384, 8, 0.2),
        (PRESETS["fan_vit_base"].build, 18, 448, 8, 0.35),
        (RPC_TINY, 12, 192, 4, 0.0),
    ],
)
def test_published_shapes(builder: Builder, depth: int, width: int, heads: int, drop_path: float) -> None:
    with torch.device("meta"):
        model = builder(10, 1)
    assert (len(model.blocks), model.num_features) == (depth, width)
    assert {block.attn.heads for block in model.blocks} == {heads}
    assert {block.mlp.heads for block in model.blocks} == {heads}
    assert {block.attn.heads for block in model.cls_attn_blocks} == {heads}
    assert {block.drop_path.rate for block in model.blocks} == {drop_path}


@pytest.mark.parametrize("builder", [FAN_TINY, RPC_TINY])
def test_geometry_and_drop_path_are_free(builder: Builder) -> None:
    model = builder(10, 1, image_size=32, patch_size=8, drop_path=0.1).eval()
    assert model(torch.zeros(1, 1, 32, 32)).shape == (1, 10)
    assert model.blocks[3].drop_path.rate == 0.1


@pytest.mark.parametrize(("layers", "chosen"), LAYERS)
def test_chosen_layers_have_the_attention_and_the_others_softmax(layers: Any, chosen: list[int]) -> None:
    factory = functools.partial(RPCAttention, iterations=6)
    model = fan_vit(10, 1, **SMALL, attention=factory, layers=layers)
    for layer, block in enumerate(model.blocks):
        assert type(block.attn) is (RPCAttention if layer in chosen else SoftmaxAttention)
        assert getattr(block.attn, "iterations", 6) == 6
        assert block.attn.prefix_tokens == 0


@pytest.mark.parametrize(("layers", "chosen"), LAYERS)
def test_chosen_layers_are_rpc_and_the_others_symmetric(layers: Any, chosen: list[int]) -> None:
    model = rpc_fan_vit(10, 1, **SMALL, rpc_layers=layers)
    for layer, block in enumerate(model.blocks):
        assert type(block.attn) is (RPCAttention if layer in chosen else SymmetricAttention)


@pytest.mark.costly
@pytest.mark.parametrize("builder", [functools.partial(rpc_fan_vit, **SMALL), RPC_TINY])
def test_parameters_of_rpc_reach_the_attention(builder: Builder) -> None:
    own = {"iterations": 5, "regularization": 3.0, "threshold": "paper", "mu_width": "head", "dual_sign": 1}
    with torch.device("meta"):
        attention = builder(10, 1, **own, rpc_layers=[1]).blocks[1].attn
        default = builder(10, 1).blocks[0].attn
    assert (attention.iterations, attention.regularization, attention.threshold) == (5, 3.0, "paper")
    assert (attention.dual_sign, attention.heads * attention.width) == (1, attention.proj.in_features)
    assert (default.iterations, default.regularization, default.threshold) == (4, 4.0, "code")
    assert (default.dual_sign, default.width) == (-1, default.proj.in_features)


def test_attention_dropout_reaches_every_layer() -> None:
    model = rpc_fan_vit(10, 1, **SMALL, attention_dropout=0.1)
    assert [block.attn.dropout for block in model.blocks] == [0.1] * 3


def test_rpc_takes_the_weights_of_the_symmetric_network_and_equals_it_where_it_is_trivial() -> None:
    symmetric = fan_vit(10, 1, **SMALL, attention="symmetric").double().eval()
    disturb(symmetric)
    images = torch.randn(2, 1, 16, 16, dtype=torch.float64)
    trivial = rpc_fan_vit(10, 1, **SMALL, iterations=1, regularization=1e6, rpc_layers="all").double().eval()
    trivial.load_state_dict(symmetric.state_dict())
    torch.testing.assert_close(trivial(images), symmetric(images), rtol=0, atol=1e-10)
    iterated = rpc_fan_vit(10, 1, **SMALL).double().eval()
    iterated.load_state_dict(symmetric.state_dict())
    assert not torch.allclose(iterated(images), symmetric(images), atol=1e-6)


def test_takes_the_name_of_an_attention() -> None:
    with pytest.raises(ValueError, match="did you mean 'softmax'"):
        fan_vit(10, 1, **SMALL, attention="sofmax")


def test_rules(broken: Callable[..., list[str]]) -> None:
    for one, parameter in ((module, "layers"), (rpc_module, "rpc_layers")):
        message = f"{parameter} must be all, first, last, or a list of layers from 0 to depth - 1"
        assert broken(one, **SMALL, **{parameter: "all"}) == []
        assert broken(one, **SMALL, **{parameter: [3]}) == [message]
        assert broken(one, **{**SMALL, "heads": 5, parameter: [0]}) == ["heads must divide width"]
        assert broken(one, **{**SMALL, "width": 6, parameter: [0]}) == ["width must be at least 8"]
        assert broken(one, **{**SMALL, "image_size": 18, parameter: "first"}) == [
            "patch_size must divide image_size"
        ]


@pytest.mark.parametrize(
    "change", [{"heads": 5}, {"patch_size": 5}, {"patch_size": 32}, {"image_size": 18}, {"width": 6}]
)
@pytest.mark.parametrize("builder", [fan_vit, rpc_fan_vit])
def test_a_broken_rule_is_a_value_error(builder: Builder, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        builder(10, 1, **{**SMALL, **change})


@pytest.fixture(params=["softmax", "symmetric", "rpc"])
def network(request: pytest.FixtureRequest) -> nn.Module:
    """A small network with one attention in all layers, in float64; its images are 1 x 16 x 16."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = fan_vit(10, 1, **SMALL, attention=request.param).double().eval()
        disturb(model)
        return model


def pictures(batch: int = 2, height: int = 16, width: int = 16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, 1, height, width, generator=generator, dtype=torch.float64)


def assert_near(actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    error = (actual.double() - expected.double()).abs().max() / expected.double().abs().max()
    assert error <= tolerance, f"relative error {error:.2g}"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@torch.no_grad()
def test_any_device_and_dtype(network: nn.Module, dtype: torch.dtype, device: str) -> None:
    expected = network(pictures())
    logits = network.to(device, dtype)(pictures().to(device, dtype))
    assert logits.dtype == dtype
    assert_near(logits.cpu(), expected, TOLERANCE[dtype])


@pytest.mark.parametrize("device", DEVICES)
@torch.no_grad()
def test_automatic_mixed_precision(network: nn.Module, device: str) -> None:
    expected = network(pictures())
    with torch.autocast(device, torch.bfloat16):
        logits = network.float().to(device)(pictures().float().to(device))
    assert_near(logits.cpu(), expected, TOLERANCE[torch.bfloat16])


@torch.no_grad()
def test_images_of_a_batch_are_independent(network: nn.Module) -> None:
    images = pictures(batch=5)
    together = network(images)
    for example in range(5):
        assert_near(network(images[example : example + 1]), together[example : example + 1], 1e-10)


@pytest.mark.parametrize("size", [(16, 16), (12, 20), (4, 4), (36, 4)])
def test_any_image_of_whole_patches(network: nn.Module, size: tuple[int, int]) -> None:
    images = pictures(2, *size).requires_grad_()
    logits = network(images)
    assert logits.shape == (2, 10)
    (gradient,) = torch.autograd.grad(logits.square().sum(), images)
    assert torch.isfinite(gradient).all()
    assert gradient.abs().amax(dim=(1, 2, 3)).min() > 0


@pytest.mark.parametrize("size", [(15, 16), (16, 18)])
def test_refuses_images_that_are_not_whole_patches(network: nn.Module, size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="patch_size must divide height and width of the images"):
        network(pictures(2, *size))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_input_gradient_needs_no_trainable_parameters(network: nn.Module, dtype: torch.dtype) -> None:
    images = pictures().to(dtype).requires_grad_()
    network = network.to(dtype)
    (trainable,) = torch.autograd.grad(network(images).square().sum(), images)
    network.requires_grad_(False)
    (frozen,) = torch.autograd.grad(network(images).square().sum(), images)
    assert torch.equal(frozen, trainable)
    assert all(parameter.grad is None for parameter in network.parameters())


@torch.no_grad()
def test_is_deterministic_in_eval_mode(network: nn.Module) -> None:
    first = network(pictures())
    torch.manual_seed(7)
    assert torch.equal(network(pictures()), first)


def test_state_dict_round_trip(network: nn.Module) -> None:
    name = type(network.blocks[0].attn).name
    copy = fan_vit(10, 1, **SMALL, attention=name).double().eval()
    assert not torch.equal(copy(pictures()), network(pictures()))
    copy.load_state_dict(network.state_dict())
    assert torch.equal(copy(pictures()), network(pictures()))
