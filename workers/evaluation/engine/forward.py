"""The model as attacks see it: a function from images to logits that fits into memory.

When a pass runs out of memory it is repeated in halves, as are all later ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from assay.attacks.passes import StraightThrough
from assay.workers import accelerator
from assay.workers.evaluation.engine.attack.error_bound import ErrorBound
from assay.workers.evaluation.engine.captured import Captures, PreparedPasses

Result = TypeVar("Result")
SINGLE = 4  # bytes of a float32


class Limit:
    """The largest number of images in one pass; None until one was too large."""

    def __init__(self) -> None:
        self.rows: int | None = None
        self.asked: int | None = None  # the first number that was too large

    def halve(self, rows: int) -> None:
        """Halves the limit after a pass with too many images; a single one is an OutOfMemoryError."""
        if rows <= 1:
            raise torch.OutOfMemoryError("not even a batch of one image fits into memory")
        self.asked = self.asked or rows
        self.rows = rows // 2
        accelerator.empty_cache()

    def noted(self) -> dict[str, Any]:
        """Caveats: whether passes had to be made smaller."""
        return {} if self.rows is None else {"reduced_batch": {"asked": self.asked, "used": self.rows}}


class Passes:
    """Runs a model, with or without autocast, in parts where memory is short."""

    def __init__(
        self,
        model: Callable[[Tensor], Tensor],
        device: torch.device,
        limit: Limit | None = None,
        *,
        autocast: bool = False,
        rough_gradients: bool = False,
        bound: ErrorBound | None = None,
        captures: Captures | None = None,
    ) -> None:
        self.limit = limit or Limit()
        self.bound = bound
        self.captures = captures
        self.observe: Callable[..., None] | None = None  # `Traces`, while an attack is watched
        self._rough = (
            Passes(model, device, self.limit, autocast=True, captures=captures) if rough_gradients else None
        )
        self._model = model
        self._device = device
        self._autocast = autocast
        self._served = False
        self._precision = torch.autocast(device.type, torch.bfloat16, enabled=autocast)

    @property
    def in_whole_batches(self) -> bool:
        """Whether all rows go through a pass with a gradient, in the shape that is captured or compiled."""
        if isinstance(self._model, PreparedPasses) and self._model.active:
            return True
        return self.captures is not None and self.captures.active and accelerator.is_accelerator(self._device)

    @property
    def ran_autocast(self) -> bool:
        """Whether a pass has run in autocast, at least for a gradient."""
        return (self._autocast and self._served) or (self._rough is not None and self._rough._served)

    def in_bfloat16(self) -> Passes:
        """The same model in autocast."""
        return Passes(self._model, self._device, self.limit, autocast=True, captures=self.captures)

    def with_bfloat16_gradients(self, bound: ErrorBound | None = None) -> Passes:
        """The same model with the Jacobian of its pass in autocast: a second pass under autograd.

        The logits are those of autocast too in rows that the `bound` finds far from any other class.
        """
        return Passes(
            self._model, self._device, self.limit, rough_gradients=True, bound=bound, captures=self.captures
        )

    def __call__(self, images: Tensor) -> Tensor:
        """Logits (B, classes) of images; under autograd never split: `in_parts` then handles memory."""
        if torch.is_grad_enabled() and images.requires_grad:
            return self.whole(images)
        parts = self.in_parts(images, self.whole)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def in_parts(self, rows: Tensor, work: Callable[[Tensor], Result]) -> list[Result]:
        """Does the work on as many rows at a time as fit into memory; returns the results of the parts."""
        while True:
            count = rows.shape[0]
            size = min(self.limit.rows or count, count)
            try:
                return [work(part) for part in rows.split(size)] if size < count else [work(rows)]
            except torch.OutOfMemoryError:
                if self.captures is None or not self.captures.release():
                    self.limit.halve(size)

    def whole(self, images: Tensor) -> Tensor:
        """Logits of images (B, C, H, W) in one pass, regardless of memory."""
        if self._rough is not None and torch.is_grad_enabled() and images.requires_grad:
            rough = self._rough.whole(images)
            with torch.no_grad():
                judged = self._judged(images.detach(), rough.detach())
            return cast(Tensor, StraightThrough.apply(rough, judged))
        return self._whole(images)

    def _judged(self, images: Tensor, rough: Tensor) -> Tensor:
        """Logits without autocast, or the rough ones of rows where the bound says that they will do."""
        if self.bound is None:
            return self._whole(images)
        rows = self.bound.doubtful(rough)
        if len(rows) == 0:
            return rough
        whole = len(rows) == len(images)
        exact = self._whole(images if whole else images[rows])
        self.bound.learn(rough if whole else rough[rows], exact)
        return exact if whole else rough.index_copy(0, rows, exact)

    def _whole(self, images: Tensor) -> Tensor:
        self._served = True
        if self.captures is not None:
            return self.captures.run(self._run, images, autocast=self._autocast)
        return self._run(images)

    def _run(self, images: Tensor) -> Tensor:
        with self._precision:
            logits: Tensor = self._model(images)
        if images.is_floating_point():
            return logits.to(images.dtype)
        # For tokens only the logits show the precision.
        return logits if logits.dtype.itemsize >= SINGLE else logits.float()
