"""Auxiliary losses that a module adds to the training objective.

The trainer opens `collected` around the passes that are minimised; everywhere else `add_loss` is a no-op, and
no state stays in the module. If a loss is expensive, ask `wanted` first:

    if wanted():
        add_loss(self.eta * self.variance_loss(scores))

Losses of several layers are summed, or averaged over the layers if named:

        add_loss(loss, averaged=("ksvd", self))
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from torch import Tensor, nn


@dataclass
class _Added:
    summed: list[Tensor] = field(default_factory=list)
    averaged: dict[str, list[tuple[nn.Module, Tensor]]] = field(default_factory=dict)


_open: ContextVar[_Added | None] = ContextVar("auxiliary_losses", default=None)


@contextmanager
def collected() -> Iterator[list[Tensor]]:
    """Collect the losses added inside the block, scalars in call order."""
    added = _Added()
    token = _open.set(added)
    try:
        yield added.summed
        for losses in added.averaged.values():
            layers = len({id(layer) for layer, _ in losses})
            added.summed.append(sum((loss for _, loss in losses[1:]), losses[0][1]) / layers)
    finally:
        _open.reset(token)


def wanted() -> bool:
    """Whether losses are being collected."""
    return _open.get() is not None


def add_loss(loss: Tensor, *, averaged: tuple[str, nn.Module] | None = None) -> None:
    """Add a loss, already weighted, to the objective; a no-op outside `collected`.

    The loss is a scalar, the mean over the batch; another shape is a ValueError. `averaged` has a name and
    the layer that adds the loss: the sum of the losses of this name is divided by the number of different
    layers.
    """
    if loss.dim() != 0:
        raise ValueError(f"an auxiliary loss must be a scalar: got shape {tuple(loss.shape)}")
    added = _open.get()
    if added is None:
        return
    if averaged is None:
        added.summed.append(loss)
    else:
        name, layer = averaged
        added.averaged.setdefault(name, []).append((layer, loss))
