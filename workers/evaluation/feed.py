"""Brings examples to the model: loads them in order, batch by batch, and checks that they are images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attacks.judgement import judge
from attacks.kernel import Examples
from workers.evaluation.outcomes import Ledger
from workers.evaluation.passes import Passes

DType = Literal["float32", "float64", "bfloat16"]
Images = Callable[[Sequence[int]], Tensor]
"""Loads images by index into the ids: float32 in [0, 1], (B, C, H, W), on the CPU."""
Progress = Callable[[int], None]
"""Told after every batch and step how many examples have their outcome; may raise to stop the run."""

RANGE_TOLERANCE = 1e-6


class Loader:
    """Loads images to the device and runs the model on them.

    Attributes:
        forward: The model as it is measured: in bfloat16 autocast.
        exact: The model without autocast.
        classes: Length of the logits, once there were some.
    """

    def __init__(
        self,
        model: nn.Module,
        images_of: Images,
        labels: Tensor,
        ids: Sequence[str],
        batch_size: int,
        device: torch.device | str,
        dtype: DType,
        prepare: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        if len(ids) == 0 or len(labels) != len(ids):
            raise ValueError(
                f"there are {len(ids)} ids and {len(labels)} labels, at least one of each is needed"
            )
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, it must be at least 1")
        self.n = len(ids)
        self.labels = labels
        self.classes = 0
        self.exact = Passes(model, torch.device(device))
        self.forward = self.exact if dtype != "bfloat16" else self.exact.in_bfloat16()
        self._images_of = images_of
        self._batch_size = batch_size
        self._device = torch.device(device)
        self._dtype = torch.float64 if dtype == "float64" else torch.float32
        self._prepare = prepare

    def batches(self, rows: Tensor | None = None) -> list[Tensor]:
        """Returns these row indices (or all) in order, cut into batches."""
        chosen = torch.arange(self.n) if rows is None else rows
        # Of nothing, torch makes one empty part.
        return list(chosen.split(self._batch_size)) if len(chosen) else []

    def load(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Loads a batch and runs the model on it: images and logits, on the device."""
        pixels = self._images_of(rows.tolist())
        _check_pixels(pixels)
        images = pixels.to(self._dtype).to(self._device)
        images = images if self._prepare is None else self._prepare(images)
        logits = self.forward(images)
        self.classes = logits.shape[1]
        return images, logits

    def noted(self) -> dict[str, Any]:
        """What a reader must know: whether passes had to be made smaller."""
        limit = self.exact.limit
        return {} if limit.rows is None else {"reduced_batch": {"asked": limit.asked, "used": limit.rows}}

    def labels_of(self, rows: Tensor) -> Tensor:
        """The true classes of these examples, on the device, (B,)."""
        return self.labels[rows].to(self._device)


def _check_pixels(pixels: Tensor) -> None:
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= -RANGE_TOLERANCE and high <= 1 + RANGE_TOLERANCE):
        raise ValueError(f"images must be in [0, 1], these go from {low} to {high}")


class Feed:
    """The examples that wait for a slot: loads them in order, and settles those that are wrong already.

    Args:
        loader: Loads them.
        ledger: Where outcomes go.
        tell: Called after each batch.
        rows: The examples that an earlier stage has left; None for all, at the first look.
    """

    def __init__(
        self, loader: Loader, ledger: Ledger, tell: Callable[[], None], rows: Tensor | None = None
    ) -> None:
        self._loader = loader
        self._ledger = ledger
        self._tell = tell
        self._first_look = rows is None
        self._unread = iter(loader.batches(rows))
        self._waiting: Examples | None = None

    def take(self, count: int) -> Examples | None:
        """Returns the next examples, at most `count`; None at the end."""
        while self._waiting is None or len(self._waiting.rows) < count:
            rows = next(self._unread, None)
            if rows is None:
                break
            fresh = self._sifted(rows) if self._first_look else self._known(rows)
            held = [fresh] if self._waiting is None else [self._waiting, fresh]
            self._waiting = Examples(*(torch.cat(parts) for parts in zip(*held, strict=True)))
            self._tell()
        if self._waiting is None or len(self._waiting.rows) == 0:
            return None
        taken = Examples(*(values[:count] for values in self._waiting))
        self._waiting = Examples(*(values[count:] for values in self._waiting))
        return taken

    def _sifted(self, rows: Tensor) -> Examples:
        images, logits = self._loader.load(rows)
        labels = self._loader.labels_of(rows)
        verdict = judge(logits, labels)
        self._ledger.note_clean(rows, verdict, images)
        right = (verdict.rank == 0).nonzero().flatten()
        labels = labels[right]
        return Examples(rows[right.cpu()], images[right], labels, labels, logits[right])

    def _known(self, rows: Tensor) -> Examples:
        images, logits = self._loader.load(rows)
        self._ledger.note_pass(rows)
        labels = self._loader.labels_of(rows)
        return Examples(rows, images, labels, labels, logits)
