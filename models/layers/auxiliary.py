"""Losses that a part of a model adds to the objective of its training.

A module calls `add_loss` in its forward pass. Who trains the model opens `collected` around the passes that
are minimised; everywhere else (evaluation, attacks) the call does nothing, so that nothing is left in the
module. Where a loss costs something to compute, ask `wanted` first:

    if wanted():
        add_loss(self.eta * self.variance_loss(scores))
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

_open: ContextVar[list[Tensor] | None] = ContextVar("auxiliary_losses", default=None)


@contextmanager
def collected() -> Iterator[list[Tensor]]:
    """Collect the losses that modules add inside the block, scalars in the order of the calls."""
    losses: list[Tensor] = []
    token = _open.set(losses)
    try:
        yield losses
    finally:
        _open.reset(token)


def wanted() -> bool:
    """Whether anybody collects losses now."""
    return _open.get() is not None


def add_loss(loss: Tensor) -> None:
    """Add a loss, weighted as it shall count, to what is minimised; nothing happens where nobody collects.

    Args:
        loss: a scalar, the mean over the batch.

    Raises:
        ValueError: it is no scalar.
    """
    if loss.dim() != 0:
        raise ValueError(f"an auxiliary loss must be a scalar: got shape {tuple(loss.shape)}")
    losses = _open.get()
    if losses is not None:
        losses.append(loss)
