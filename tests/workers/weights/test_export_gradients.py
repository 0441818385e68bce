"""A program has the gradients of its module, or the export says which part of the module loses them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from assay.models.programs.program import NOTES
from assay.workers.weights import export_gradients
from assay.workers.weights.export import export_program
from assay.workers.weights.export_inputs import CannotExport
from assay.workers.weights.programs import read_program
from tests.support.archives import entries_of
from tests.support.programs import TEXT_WORDS, Net, Words

Answer = Callable[[Any, Tensor], Any]


class Rounded(torch.autograd.Function):
    """A straight-through estimator of rounding."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.round(x * 8) / 8

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


class Squared(torch.autograd.Function):
    """A square with its own derivative, as functions that save memory have."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        gradient: Tensor = 2 * x * gradients[0]
        return gradient


class Scaled(torch.autograd.Function):
    """The right direction, a tenth as long."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] / 10


class Forward(torch.autograd.Function):
    """A function with a derivative for forward mode only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def jvp(ctx: Any, *gradients: Tensor) -> Tensor:
        return 2 * gradients[0]


def _hooked(net: Any, x: Tensor) -> Tensor:
    x = x * 1
    if x.requires_grad:
        x.register_hook(torch.zeros_like)
    logits: Tensor = net.plain(x)
    return logits


def _asks(net: Any, x: Tensor) -> Tensor:
    logits: Tensor = net.plain(x if x.requires_grad else torch.round(x * 8) / 8)
    return logits


def exported(net: nn.Module, folder: Path) -> Any:
    return export_program(net, folder / "net.pt2", image_size=8)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda net, x: net.plain(Rounded.apply(x)), "cosine 0; 0.0e+00 long"),
        (lambda net, x: net.plain(0.9 * Rounded.apply(x) + 0.1 * x), "cosine 1; "),
        (lambda net, x: net.plain(Scaled.apply(x)), "cosine 1; "),
        (
            _hooked,
            "the module's 0.0e+00), and attacks would follow them: a program keeps what forward computes",
        ),
        (_asks, "answers differently where gradients are asked for"),
    ],
    ids=["rounded", "rounded beside a path", "scaled", "hook on a tensor", "asks for gradients"],
)
def test_a_module_with_other_gradients_than_its_graph_is_refused(
    answer: Answer, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(CannotExport) as raised:
        exported(Net(answer), tmp_path)
    assert reason in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_logits_that_are_not_finite_for_some_images_are_told(tmp_path: Path) -> None:
    def dark(net: Any, x: Tensor) -> Tensor:
        return torch.log(x.mean((1, 2, 3)) - 0.25)[:, None] + net.plain(x)

    with pytest.raises(CannotExport, match=r"its logits are not finite for [1-9] of \d+ images"):
        exported(Net(dark), tmp_path)


def test_the_function_is_named_with_its_line_and_the_remedy_is_exported(tmp_path: Path) -> None:
    with pytest.raises(CannotExport) as raised:
        exported(Net(lambda net, x: net.plain(Rounded.apply(Squared.apply(x)))), tmp_path)
    line = inspect.getsourcelines(Rounded)[1]
    assert f"the backward of the autograd.Function 'Rounded' ({__file__}:{line})" in str(raised.value)
    assert "write a straight-through estimator as x + (q(x) - x).detach()" in str(raised.value)
    net = Net(lambda net, x: net.plain(x + (torch.round(x * 8) / 8 - x).detach()))
    assert exported(net, tmp_path).gradients_compared


def test_a_hook_on_gradients_is_named_with_its_part(tmp_path: Path) -> None:
    net = Net()
    zeros: Any = lambda part, given, gradients: (0 * given[0],)  # noqa: E731
    net.conv.register_full_backward_hook(zeros)
    with pytest.raises(CannotExport, match=r"loses the hook on gradients of 'conv' \(Conv2d\); leave it out"):
        exported(net, tmp_path)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("answer", "random"),
    [
        (lambda net, x: net.plain(x), False),
        (lambda net, x: net.plain(Squared.apply(x)), False),
        (lambda net, x: net.plain(x.sub_(0.1)), False),
        (lambda net, x: net.plain(x.double().float()), False),
        (lambda net, x: net.plain(x.bfloat16().float()), False),
        (lambda net, x: net.plain(torch.sign(x - 0.5)), False),
        (lambda net, x: net.plain(x.detach()), False),
        (lambda net, x: net.plain(x - x.amax((2, 3), keepdim=True)), False),
        (lambda net, x: net.plain(x + 0.1 * torch.randn_like(x)), True),
        (lambda net, x: checkpoint(net.plain, x, use_reentrant=False), False),
    ],
)
def test_modules_with_the_gradients_of_their_graph_are_taken(
    answer: Answer, random: bool, tmp_path: Path
) -> None:
    done = exported(Net(answer), tmp_path)
    assert done.gradients_compared
    program = read_program(done.path)
    assert program.compared
    assert program.random == random
    assert entries_of(done.path)[NOTES] == b'{"gradients": "compared"}'


def test_a_module_that_cannot_be_differentiated_is_taken_without_the_statement(tmp_path: Path) -> None:
    done = exported(Net(lambda net, x: net.plain(Forward.apply(x))), tmp_path)
    assert not done.gradients_compared
    assert not read_program(done.path).compared


def test_a_file_that_has_lost_its_gradients_does_not_state_them(tmp_path: Path) -> None:
    done = export_program(Net(), tmp_path / "net.pt2", image_size=8, original=False)
    assert not done.gradients_compared
    assert not read_program(done.path).compared


def test_the_module_keeps_its_gradients_flags_and_random_numbers(tmp_path: Path) -> None:
    net = Net()
    net.conv.requires_grad_(False)
    torch.manual_seed(3)
    exported(net, tmp_path)
    assert float(torch.rand(())) == float(torch.rand((), generator=torch.Generator().manual_seed(3)))
    assert [parameter.requires_grad for parameter in net.conv.parameters()] == [False, False]
    assert all(parameter.grad is None for parameter in net.parameters())
    assert net.head.weight.requires_grad


def test_texts_are_compared_by_their_tables(tmp_path: Path) -> None:
    def lossy(net: Any, ids: Tensor) -> Any:
        return net.head(Rounded.apply(net.embedding(ids)).mean(1))

    how: dict[str, Any] = {"task": "sequence", "words": TEXT_WORDS, "length": 5}
    with pytest.raises(CannotExport, match=r"texts its program has other gradients .* 'Rounded'"):
        export_program(Words(lossy), tmp_path / "net.pt2", **how)
    plain = Words(lambda net, ids: net.head(net.embedding(ids).mean(1)))
    assert export_program(plain, tmp_path / "net.pt2", **how).gradients_compared


def test_a_point_where_a_gradient_jumps_decides_nothing() -> None:
    """A gradient that is another one a billionth beside the image shows a jump, not a loss."""
    image = torch.full((1, 3, 4, 4), 0.5, dtype=torch.float64)
    smooth = nn.Flatten()
    for net, jumps in ((smooth, False), (_Kinked(), True)):
        _, gradients = export_gradients._differentiate(net, (image,), 0)
        (theirs,) = gradients.values()
        look = export_gradients._Look(0, (image,), theirs, -theirs, 0.0)
        assert export_gradients._jumps(net, look, 1e-9) == jumps


def test_where_every_gradient_jumps_nothing_was_compared() -> None:
    image = torch.full((1, 3, 4, 4), 0.5 + 1e-12, dtype=torch.float64)
    _, gradients = export_gradients._differentiate(_Kinked(), (image,), 0)
    (theirs,) = gradients.values()
    jumps, equal = (export_gradients._Look(0, (image,), theirs, sign * theirs, 0.0) for sign in (-1, 1))
    nets: Any = (_Kinked(), _Kinked())
    assert not export_gradients._judge(nets, [jumps, jumps], torch.float64)
    assert export_gradients._judge(nets, [jumps, equal], torch.float64)


@pytest.mark.parametrize(("factor", "found"), [(1.0, 0.0), (0.1, 0.9), (0.0, 1.0), (-1.0, 2.0)])
def test_gradients_differ_by_a_share_of_the_longer(factor: float, found: float) -> None:
    """Whichever of both is the longer, and however long: 2 at most, 1 where one is lost."""
    for length in (1e-6, 1.0, 1e6):
        one = length * torch.tensor([3.0, 4.0], dtype=torch.float64)
        assert export_gradients._difference(one, factor * one) == pytest.approx(found)
        assert export_gradients._difference(factor * one, one) == pytest.approx(found)
    assert export_gradients._difference(torch.zeros(2), torch.zeros(2)) == 0


class _Kinked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        """Absolute differences from 0.5, whose gradient has either sign there."""
        return (x - 0.5).abs().flatten(1)
