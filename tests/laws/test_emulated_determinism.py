"""The emulated device refuses the operators that have no deterministic algorithm on CUDA, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.support.emulated_device.device import EmulatedDevice, emulated_device
from tests.support.emulated_device.rules import NO_DETERMINISTIC_ALGORITHM, NotDeterministicError


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    with emulated_device() as opened:
        yield opened


def backward(run: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> Callable[[torch.device], Any]:
    return lambda where: torch.autograd.grad(run(x := torch.rand(shape).to(where).requires_grad_()).sum(), x)


def called(run: Callable[[Tensor], Any], *shape: int) -> Callable[[torch.device], Any]:
    return lambda where: run(torch.rand(shape or (4,)).to(where))


def unpooled(dimensions: int) -> Callable[[torch.device], Any]:
    def run(where: torch.device) -> Any:
        x = torch.zeros(1, 1, *[2] * dimensions).to(where)
        unpool = (functional.max_unpool2d, functional.max_unpool3d)[dimensions - 2]
        return unpool(x, torch.arange(2**dimensions).view_as(x.cpu()).to(where), 2)

    return run


def grid(dimensions: int) -> Callable[[torch.device], Any]:
    def run(x: Tensor) -> Tensor:
        places = torch.zeros(1, *[2] * dimensions, dimensions).to(x.device)
        return functional.grid_sample(x, places, align_corners=False)

    return backward(run, (1, 1, *[3] * dimensions))


def losses_of_maps(where: torch.device) -> Any:
    return functional.nll_loss(torch.rand(1, 2, 3, 3).to(where), torch.zeros(1, 3, 3).long().to(where))


def backward_of_maps(where: torch.device) -> Any:
    x = torch.rand(1, 2, 3, 3).to(where)
    total = torch.zeros(()).to(where)
    truth = torch.zeros(1, 3, 3).long().to(where)
    return torch.ops.aten.nll_loss2d_backward(total, x, truth, None, 1, -100, total)


def ctc(x: Tensor) -> Tensor:
    there = x.device
    return functional.ctc_loss(
        x.log_softmax(2), torch.ones(1, 2).long().to(there), (4,), (2,), reduction="sum"
    )


def largest_of_bags(x: Tensor) -> Tensor:
    return functional.embedding_bag(torch.zeros(1, 2).long().to(x.device), x, mode="max")


def native(name: str, *sizes: int, shape: tuple[int, ...]) -> Callable[[torch.device], Any]:
    """A backward pass of torch's operator: `interpolate` avoids it under deterministic algorithms."""
    operator = getattr(torch.ops.aten, name)
    rest = [None] * (len(sizes))
    return backward(lambda x: operator(x, list(sizes), False, *rest), shape)


PLANTED: dict[str, Callable[[torch.device], Any]] = {
    "avg_pool3d_backward": backward(lambda x: functional.avg_pool3d(x, 2), (1, 1, 4, 4, 4)),
    "_adaptive_avg_pool2d_backward": backward(lambda x: functional.adaptive_avg_pool2d(x, 2), (1, 1, 4, 4)),
    "_adaptive_avg_pool3d_backward": backward(
        lambda x: functional.adaptive_avg_pool3d(x, 2), (1, 1, 4, 4, 4)
    ),
    "adaptive_max_pool2d_backward": backward(lambda x: functional.adaptive_max_pool2d(x, 2), (1, 1, 4, 4)),
    "adaptive_max_pool3d_backward": backward(lambda x: functional.adaptive_max_pool3d(x, 2), (1, 1, 4, 4, 4)),
    "fractional_max_pool2d_backward": backward(
        lambda x: functional.fractional_max_pool2d(x, 2, output_size=2), (1, 1, 5, 5)
    ),
    "fractional_max_pool3d_backward": backward(
        lambda x: functional.fractional_max_pool3d(x, 2, output_size=2), (1, 1, 5, 5, 5)
    ),
    "max_unpool2d": unpooled(2),
    "max_unpool3d": unpooled(3),
    "upsample_linear1d_backward": native("upsample_linear1d", 5, shape=(1, 1, 3)),
    "upsample_bilinear2d_backward": native("upsample_bilinear2d", 5, 5, shape=(1, 1, 3, 3)),
    "_upsample_bilinear2d_aa_backward": native("_upsample_bilinear2d_aa", 5, 5, shape=(1, 1, 3, 3)),
    "upsample_bicubic2d_backward": native("upsample_bicubic2d", 5, 5, shape=(1, 1, 3, 3)),
    "_upsample_bicubic2d_aa_backward": native("_upsample_bicubic2d_aa", 5, 5, shape=(1, 1, 3, 3)),
    "upsample_trilinear3d_backward": native("upsample_trilinear3d", 5, 5, 5, shape=(1, 1, 3, 3, 3)),
    "reflection_pad1d_backward": backward(lambda x: functional.pad(x, (1, 1), "reflect"), (1, 1, 3)),
    "reflection_pad2d_backward": backward(lambda x: functional.pad(x, (1,) * 4, "reflect"), (1, 1, 3, 3)),
    "reflection_pad3d_backward": backward(lambda x: functional.pad(x, (1,) * 6, "reflect"), (1, 1, 3, 3, 3)),
    "nll_loss2d_forward": losses_of_maps,
    "nll_loss2d_backward": backward_of_maps,
    "_ctc_loss_backward": backward(ctc, (4, 1, 3)),
    "_embedding_bag_backward": backward(largest_of_bags, (3, 2)),
    "put": called(lambda x: x.put_(torch.zeros(1).long().to(x.device), x[:1].clone(), accumulate=True)),
    "histc": called(lambda x: x.histc(3)),
    "bincount": called(lambda x: torch.zeros(4).long().to(x.device).bincount(x)),
    "median": called(lambda x: x.median(0)),
    "nanmedian": called(lambda x: x.nanmedian(0)),
    "grid_sampler_2d_backward": grid(2),
    "grid_sampler_3d_backward": grid(3),
    "scatter_reduce": called(lambda x: x.scatter_reduce(0, torch.zeros(4).long().to(x.device), x, "prod")),
}


def test_every_operator_of_the_list_is_planted() -> None:
    assert PLANTED.keys() == NO_DETERMINISTIC_ALGORITHM.keys()


@pytest.mark.sampled
@pytest.mark.parametrize("name", PLANTED)
def test_an_operator_without_a_deterministic_algorithm_raises_by_name(name: str) -> None:
    PLANTED[name](torch.device("cpu"))
    with emulated_device() as device, pytest.raises(NotDeterministicError) as caught:
        PLANTED[name](device.device)
    assert str(caught.value).startswith(f"aten.{name}")
    with emulated_device(deterministic=False) as device:
        PLANTED[name](device.device)


DETERMINISTIC: list[Callable[[Tensor], Any]] = [
    lambda x: x.cumsum(0),
    lambda x: x.index_add(0, torch.zeros(2).long().to(x.device), x[:2]),
    lambda x: x.scatter_add(0, torch.zeros(4, 4).long().to(x.device), x),
    lambda x: x.scatter_reduce(0, torch.zeros(4, 4).long().to(x.device), x, "sum"),
    lambda x: x.median(),
    lambda x: x.kthvalue(2, 0),
    lambda x: torch.zeros(4).long().to(x.device).bincount(),
    lambda x: functional.cross_entropy(x, torch.zeros(4).long().to(x.device)),
    lambda x: functional.interpolate(x[None, None], (7, 7), mode="bilinear"),
]


@pytest.mark.sampled
@pytest.mark.parametrize("place", range(len(DETERMINISTIC)))
def test_what_is_deterministic_is_not_refused(place: int, device: EmulatedDevice) -> None:
    x = torch.rand(4, 4).to(device.device).requires_grad_()
    out = DETERMINISTIC[place](x)
    if isinstance(out, Tensor) and out.requires_grad:
        out.sum().backward()
