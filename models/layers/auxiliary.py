"""Auxiliary losses that a module adds to the training objective.

A module calls `add_loss` in its forward pass. The trainer opens `collected` around the passes that are
minimised; everywhere else (evaluation, attacks) the call is a no-op, so no state is left in the module. If a
loss is expensive to compute, ask `wanted` first:

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
    """Collect the losses added inside the block, scalars in call order."""
    losses: list[Tensor] = []
    token = _open.set(losses)
    try:
        yield losses
    finally:
        _open.reset(token)


def wanted() -> bool:
    """Whether losses are being collected."""
    return _open.get() is not None


def add_loss(loss: Tensor) -> None:
    """Add a loss, already weighted, to the objective; a no-op outside `collected`.

    Args:
        loss: a scalar, the mean over the batch.

    Raises:
        ValueError: not a scalar.
    """
    if loss.dim() != 0:
        raise ValueError(f"an auxiliary loss must be a scalar: got shape {tuple(loss.shape)}")
    losses = _open.get()
    if losses is not None:
        losses.append(loss)
