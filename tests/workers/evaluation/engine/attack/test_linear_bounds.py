"""Bounds of each accepted operator hold at thousands of points of the ball, its corners among them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from assay.workers.evaluation.engine.attack.bound_operators import MAX_RECURSION, library
from assay.workers.evaluation.engine.attack.linear_bounds import MarginBounds, Method, UnsupportedModel

EPSILON = 0.08


class Middle(nn.Module):
    """A convolution, a function of its features, and a linear layer."""

    def __init__(self, middle: Callable[[Tensor], Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.middle, self.layers = middle, nn.ModuleList(layers)
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        with torch.no_grad():
            width = self.features(torch.zeros(1, 1, 4, 4)).shape[1]
        self.out = nn.Linear(width, 3)

    def features(self, images: Tensor) -> Tensor:
        found = self.middle(self.conv(images))
        for layer in self.layers:
            found = layer(found)
        return found.flatten(1)

    def forward(self, images: Tensor) -> Tensor:
        answer: Tensor = self.out(self.features(images))
        return answer


BOTH: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "leaky_relu": lambda x: nn.functional.leaky_relu(x, 0.1),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "residual": lambda x: torch.relu(x) + x,
    "difference": lambda x: x - torch.relu(x),
    "scaled": lambda x: (x - 0.4) / 0.2 * -3.0,
    "average_pool": lambda x: nn.functional.avg_pool2d(torch.relu(x), 2),
    "mean": lambda x: torch.relu(x).mean((2, 3)),
    "concatenated": lambda x: torch.cat([torch.relu(x), x], dim=1),
    "transposed": lambda x: torch.relu(x).flatten(2).transpose(1, 2),
    "part": lambda x: torch.relu(x)[:, 1:3],
}
INTERVALS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": nn.functional.gelu,
    "softmax": lambda x: x.flatten(2).softmax(-1),
    "exponential": torch.exp,
    "absolute": torch.abs,
    "clipped": lambda x: x.clamp(-0.1, 0.2),
    "quotient": lambda x: x / (1.5 + torch.tanh(x)),
    "reciprocal": lambda x: 1 / (1.5 + torch.tanh(x)),
    "product": lambda x: x * torch.tanh(x),
    "square": lambda x: x**2,
    "root": lambda x: (1 + x**2).sqrt(),
    "layer_norm": lambda x: nn.functional.layer_norm(x, x.shape[1:]),
}
CASES = [
    *((name, method) for name in BOTH for method in ("IBP", "CROWN")),
    *((name, "IBP") for name in INTERVALS),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "method"), CASES)
def test_no_point_of_the_ball_is_below_the_bound(name: str, method: Method) -> None:
    torch.manual_seed(0)
    model = Middle((BOTH | INTERVALS)[name]).eval()
    check(model, method)


@pytest.mark.parametrize("method", ["IBP", "CROWN"])
def test_batch_norm_and_pooling_layers(method: Method) -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4)
    with torch.no_grad():
        for values in (norm.weight, norm.bias, norm.running_mean):
            assert values is not None
            values.copy_(torch.randn(4))
        assert norm.running_var is not None
        norm.running_var.copy_(torch.rand(4) + 0.1)
    check(Middle(torch.relu, norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1)).eval(), method)


@pytest.mark.parametrize("method", ["IBP", "CROWN", "alpha-CROWN"])
def test_bounds_in_float64_are_those_in_float32(method: Method) -> None:
    torch.manual_seed(0)
    model = Middle(torch.relu, nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()).eval()
    images, labels = torch.rand(2, 1, 4, 4), torch.tensor([0, 2])
    single = MarginBounds(model, images[:1], method).lower(images, labels, "Linf", EPSILON)[0]
    double = MarginBounds(model.double(), images[:1].double(), method)
    found = double.lower(images.double(), labels, "Linf", EPSILON)[0]
    assert found.dtype == torch.float64
    assert torch.get_default_dtype() == torch.float32
    torch.testing.assert_close(found.float(), single, rtol=1e-3, atol=1e-3)


def check(model: nn.Module, method: Method) -> None:
    images = torch.rand(3, 1, 4, 4)
    labels = torch.tensor([0, 1, 2])
    bounds = MarginBounds(model, images[:1], method)
    lower, logits = bounds.lower(images, labels, "Linf", EPSILON)
    torch.testing.assert_close(logits, model(images))
    for row in range(3):
        noise = torch.rand(4000, 1, 4, 4) * 2 - 1
        noise[:2000] = noise[:2000].sign()
        with torch.no_grad():
            answers = model((images[row] + EPSILON * noise).clamp(0, 1))
        others = [one for one in range(3) if one != row]
        margins = answers[:, row : row + 1] - answers[:, others]
        assert (lower[row] <= margins.amin(0)).all()
        # A bound that says nothing would pass as well.
        assert (lower[row] >= margins.amin(0) - 2000).all()


def bound(model: nn.Module) -> None:
    bounds = MarginBounds(model, torch.rand(1, 1, 4, 4), "IBP")
    bounds.lower(torch.rand(1, 1, 4, 4), torch.tensor([0]), "Linf", EPSILON)


@pytest.mark.parametrize(
    "function",
    [lambda x: (x + 2) ** 3, lambda x: (x + 3).log(), lambda x: 1 / (torch.tanh(x) - 1.5), torch.cumsum],
)
def test_operators_without_a_test_are_refused(function: Callable[..., Tensor]) -> None:
    torch.manual_seed(0)
    model = Middle(lambda x: function(x, 1) if function is torch.cumsum else function(x)).eval()
    with pytest.raises(UnsupportedModel):
        bound(model)


def test_the_library_leaves_nested_json_an_error() -> None:
    library()
    assert sys.getrecursionlimit() <= MAX_RECURSION
    with pytest.raises(RecursionError):
        json.loads("[" * 10**6)
