"""Parameters and operations of the primal-dual paper's models, by formula and by the project's counter."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import nn

from assay.models.attention.attention_bn import AttentionBN
from assay.models.attention.attention_bn_sh import AttentionBNSH
from assay.models.attention.attention_sh import AttentionSH
from assay.models.attention.conv2d_attention import Conv2DAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.vit import vit
from assay.workers.evaluation.efficiency import count_flops

DEIT_TINY = 5_717_416
LENGTH, WIDTH, HIDDEN = 4096, 64, 128  # retrieval on Long Range Arena, by its released configuration


@pytest.mark.parametrize(
    ("attention", "more"),
    [
        (SoftmaxAttention, 0),
        (AttentionBN, 0),
        (functools.partial(AttentionBN, learn_beta=True), 12),
        (AttentionSH, 0),
        (AttentionBNSH, 0),
        (Conv2DAttention, 12 * 4),
    ],
)
def test_parameters_of_deit_tiny_with_four_heads(attention: Callable[..., nn.Module], more: int) -> None:
    with torch.device("meta"):
        model = vit(1000, 3, heads=4, attention=attention)
    assert sum(parameter.numel() for parameter in model.parameters()) == DEIT_TINY + more


@pytest.mark.costly
@pytest.mark.parametrize(
    ("attention", "keys", "kernel"),
    [
        (SoftmaxAttention, (197, 197, 197, 197), 0),
        (AttentionBN, (197, 197, 197, 197), 0),
        (AttentionSH, (197, 197, 99, 50), 0),
        (AttentionBNSH, (197, 197, 99, 50), 0),
        (Conv2DAttention, (197, 197, 197, 197), 4),
    ],
)
def test_operations_of_deit_tiny_with_four_heads(
    attention: Callable[..., nn.Module], keys: tuple[int, ...], kernel: int
) -> None:
    with torch.device("meta"):
        model = vit(1000, 3, heads=4, attention=attention).eval()
        images = torch.zeros(1, 3, 224, 224)
    with torch.no_grad():
        counted = count_flops(lambda: model(images))
    width, tokens = 192, 197
    projections = 2 * tokens * width**2 + sum(2 * count * width * width // 4 for count in keys)
    products = sum(2 * tokens * count * width // 4 for count in keys)
    layer = projections + products + 8 * tokens * width**2 + 2 * 196 * width * kernel
    assert counted == 2 * (12 * layer + 196 * 768 * width + width * 1000)


def layer_operations(attention: nn.Module) -> int:
    """Operations of one layer at N = 4096 and D = 64: attention, and an MLP of 128."""
    with torch.device("meta"):
        mlp = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH))
        x = torch.zeros(1, LENGTH, WIDTH)
    with torch.no_grad():
        return count_flops(lambda: mlp(attention.to("meta")(x)))


def test_bn_and_sh_save_almost_a_quarter_of_the_operations_on_retrieval() -> None:
    """Section 4: "the model's FLOPS, in both training and inference, reduce almost 25%"."""
    softmax = layer_operations(SoftmaxAttention(WIDTH, 2, prefix_tokens=0))
    scaled = layer_operations(AttentionBNSH(WIDTH, 2, factors=[1, 2], prefix_tokens=0))
    mlp, products = 2 * WIDTH * HIDDEN, 2 * LENGTH * WIDTH
    assert softmax == 2 * LENGTH * (4 * WIDTH**2 + products + mlp)
    assert scaled == 2 * LENGTH * (3.5 * WIDTH**2 + 0.75 * products + mlp)
    assert 1 - scaled / softmax == pytest.approx(0.239, abs=5e-4)
    without_mlp = 1 - (scaled - 2 * LENGTH * mlp) / (softmax - 2 * LENGTH * mlp)
    assert without_mlp == pytest.approx(0.246, abs=5e-4)


def test_the_saving_grows_with_the_length() -> None:
    ratios = []
    for length in (512, 1024, 2048, 4096):
        with torch.device("meta"):
            x = torch.zeros(1, length, WIDTH)
            pair = [SoftmaxAttention(WIDTH, 2), AttentionBNSH(WIDTH, 2, factors=[1, 2])]
        with torch.no_grad():
            softmax, scaled = (count_flops(functools.partial(one, x)) for one in pair)
        ratios.append(scaled / softmax)
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] > 0.75
