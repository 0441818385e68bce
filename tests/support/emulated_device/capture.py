"""CUDA graphs of the emulated device: operators are recorded with their memory, and replayed on it.

As on CUDA: what Python does between the operators happens once, when the graph is captured; a wait for the
device during the capture is an error; results are memory of the graph, which the next replay overwrites;
a gradient reuses the memory of its forward pass, which then has no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

WARM_UPS = 3


class Tape:
    """The operators of a graph, as functions of the CPU's tensors behind those of the device."""

    def __init__(self) -> None:
        self._works: list[tuple[Callable[[], Any], Any]] = []

    def record(self, work: Callable[[], Any]) -> Any:
        """Does the work, and keeps it with its results."""
        out = work()
        self._works.append((work, out))
        return out

    def replay(self) -> None:
        """Does all of it again; results are where they were."""
        for work, before in self._works:
            for old, new in zip(_tensors(before), _tensors(work()), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Capturing(Protocol):
    """A device that can record what it is given."""

    tape: Tape | None
    launches: int


def graphed(device: Capturing, function: Callable[[Tensor], Tensor], sample: Tensor) -> Any:
    """What `torch.cuda.make_graphed_callables` makes of a function of one tensor."""
    for _ in range(WARM_UPS):
        answer = function(sample)
        if answer.requires_grad:
            torch.autograd.grad(answer, sample, torch.empty_like(answer))
    with _captured(device) as forward:
        answer = function(sample)
    slopes = gradient = None
    if answer.requires_grad:
        slopes = torch.empty_like(answer)
        with _captured(device) as backward:
            (gradient,) = torch.autograd.grad(answer, sample, slopes)

    whole = [False]  # whether the memory of the latest forward pass is as that pass left it

    class Graphed(torch.autograd.Function):
        """Both graphs as one function of autograd."""

        @staticmethod
        def forward(ctx: Any, given: Tensor) -> Tensor:
            sample.copy_(given)
            device.launches += 1
            forward.replay()
            whole[0] = True
            return answer.detach()

        @staticmethod
        def backward(ctx: Any, *slope: Tensor) -> Tensor:
            assert slopes is not None
            assert gradient is not None
            if not whole[0]:
                raise RuntimeError("a second gradient of a replayed pass: CUDA's would be wrong (emulated)")
            whole[0] = False
            slopes.copy_(slope[0])
            device.launches += 1
            backward.replay()
            return gradient.detach()

    return Graphed.apply


@contextmanager
def _captured(device: Capturing) -> Iterator[Tape]:
    assert device.tape is None
    device.tape = tape = Tape()
    try:
        yield tape
    finally:
        device.tape = None


def _tensors(out: Any) -> list[Tensor]:
    if isinstance(out, Tensor):
        return [out]
    return [one for part in out for one in _tensors(part)] if isinstance(out, list | tuple) else []
