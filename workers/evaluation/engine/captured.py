"""A model's passes as graphs of the device: captured for a shape of batch, replayed by a single launch.

The operators of a small model are too short to keep a GPU busy: they end faster than the host queues them.
One CUDA graph has a whole forward pass, another graph its gradient (`torch.cuda.make_graphed_callables`).

A captured pass counts only if its logits and gradients equal the model's own in all bits, on two batches.
Else, or if the device cannot capture the model (a wait for the device, no memory), the model runs as ever,
and the evidence has the reason. A smaller batch, of more than half the rows, is filled up with zeros.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from textwrap import shorten
from typing import Any, NamedTuple

import torch
from torch import Tensor

from assay.service.contract.findings.evidence import CaptureEvidence
from assay.workers import accelerator

Run = Callable[[Tensor], Tensor]
"""Images (B, C, H, W) to logits; under autograd too."""
Preparing = Callable[[str | None], None]
"""Told what is being prepared for a while, None at the end of it."""

# Passes with equal shapes before a capture, which costs about half as many.
FIRST = 16
# Captured passes that are held at a time: each holds the memory of its pass.
HELD = 4
# Characters of torch's words in a reason, and the reason where memory ends.
REASON, SHORT = 120, "memory was short"
DIFFERENT = (
    "its logits or gradients differ from the model's own: the model draws random numbers, or rounds otherwise"
)


class NotPrepared(RuntimeError):
    """A pass cannot be prepared here, for a reason in plain words; other errors are in torch's words."""


class PassKind(NamedTuple):
    """What the batches of a captured pass share."""

    autocast: bool
    differentiated: bool
    dtype: torch.dtype
    shape: torch.Size  # of an image


class PreparedPasses(ABC):
    """Passes of a model that are prepared for a shape of batch when it has come more than `first` times."""

    on_cpu = True
    name = "passes"  # what is being prepared, in words

    def __init__(self, first: int | None = None, preparing: Preparing | None = None) -> None:
        self._preparing: Preparing = preparing or (lambda name: None)
        self._first = FIRST if first is None else first
        self._seen: Counter[tuple[PassKind, int]] = Counter()
        self._held: dict[tuple[PassKind, int], Run] = {}
        self.served = 0  # passes that prepared code has made, trials apart
        self._refused: str | None = None

    @property
    def active(self) -> bool:
        """Whether passes may be prepared: nothing was refused."""
        return self._refused is None

    def run(self, model: Run, images: Tensor, *, autocast: bool) -> Tensor:
        """Logits of images, by a prepared pass if there is a fitting one."""
        if not images.is_floating_point() or not (self.on_cpu or accelerator.is_accelerator(images.device)):
            return model(images)
        differentiated = torch.is_grad_enabled() and images.requires_grad
        kind = PassKind(autocast, differentiated, images.dtype, images.shape[1:])
        rows = self._fitting(kind, len(images)) or self._prepared(kind, model, images)
        if rows is None:
            return model(images)
        self.count(kind, rows)
        filled = images if rows == len(images) else _filled(images, rows)
        with torch.set_grad_enabled(differentiated):
            return self._held[kind, rows](filled.contiguous())[: len(images)]

    def count(self, kind: PassKind, rows: int) -> None:
        """Counts a pass by the prepared pass for so many rows."""
        del kind, rows
        self.served += 1

    @abstractmethod
    def prepare(self, model: Run, sample: Tensor) -> Run:
        """A pass for batches like the sample; NotPrepared or another RuntimeError says why not."""

    @abstractmethod
    def agrees(self, own: Tensor, other: Tensor, kind: PassKind) -> bool:
        """Whether logits or gradients of a prepared pass are near enough to the model's own."""

    def _fitting(self, kind: PassKind, count: int) -> int | None:
        return min(
            (rows for held, rows in self._held if held == kind and count <= rows < 2 * count), default=None
        )

    def _prepared(self, kind: PassKind, model: Run, images: Tensor) -> int | None:
        key = kind, len(images)
        self._seen[key] += 1
        if self._refused is not None or self._seen[key] <= self._first or len(self._held) == HELD:
            return None
        sample = images.detach().clone().requires_grad_(kind.differentiated)
        self._preparing(self.name)
        try:
            return self._checked(kind, model, images, sample)
        finally:
            self._preparing(None)

    def _checked(self, kind: PassKind, model: Run, images: Tensor, sample: Tensor) -> int | None:
        try:
            with accelerator.generators_restored(images.device):
                accelerator.empty_cache()
                prepared = self.prepare(model, sample)
                for batch in (images, images.detach().flip(0) / 2):
                    both = (answers(run, batch, kind.differentiated) for run in (model, prepared))
                    if not all(self.agrees(own, other, kind) for own, other in zip(*both, strict=True)):
                        self._refuse(DIFFERENT)
                        return None
        except torch.OutOfMemoryError:
            self._refuse(SHORT)
            return None
        except NotPrepared as error:
            self._refuse(str(error))
            return None
        except RuntimeError as error:
            first = str(error).strip().partition("\n")[0]
            self._refuse(f"torch says: {shorten(first, REASON, placeholder=' ...')}")
            return None
        self._held[kind, len(images)] = prepared
        return len(images)

    def _refuse(self, reason: str) -> None:
        self._refused = reason
        self._held.clear()
        accelerator.empty_cache()


class Captures(PreparedPasses):
    """Captured passes of a model, with its bits; replays of `compiled` passes count as these, too."""

    on_cpu = False
    name = "capturing passes"

    def __init__(
        self,
        first: int | None = None,
        compiled: PreparedPasses | None = None,
        preparing: Preparing | None = None,
    ) -> None:
        super().__init__(first, preparing)
        self._compiled = compiled
        self._of_compiled: set[tuple[PassKind, int]] = set()

    def count(self, kind: PassKind, rows: int) -> None:
        """Counts a replay, also as a compiled pass where compiled code was captured."""
        super().count(kind, rows)
        if self._compiled is not None and (kind, rows) in self._of_compiled:
            self._compiled.served += 1

    def _prepared(self, kind: PassKind, model: Run, images: Tensor) -> int | None:
        before = 0 if self._compiled is None else self._compiled.served
        rows = super()._prepared(kind, model, images)
        if self._compiled is not None and self._compiled.served > before:
            self._compiled.served = before
            self._of_compiled |= set() if rows is None else {(kind, rows)}
        return rows

    def release(self, reason: str = SHORT) -> bool:
        """Gives up all captured passes and their memory, for good; False where there were none."""
        released = bool(self._held)
        if released:
            self._refuse(reason)
        return released

    def noted(self) -> dict[str, Any]:
        """Evidence: replays, and why passes were not captured; nothing where no shape came often enough."""
        if not self.served and self._refused is None:
            return {}
        return {"captured": CaptureEvidence(replays=self.served, refused=self._refused)}

    def prepare(self, model: Run, sample: Tensor) -> Run:
        """Captures the model's pass."""
        return _Replayed(accelerator.captured(model, sample))

    def agrees(self, own: Tensor, other: Tensor, kind: PassKind) -> bool:
        """Whether all bits are equal."""
        del kind
        return bool(((own == other) | (own.isnan() & other.isnan())).all())


class _Replayed:
    """A captured pass whose results are no memory of its graphs.

    The graph of the gradient may overwrite what its forward pass left in the graphs' memory: the latest
    forward pass has one gradient. For any other gradient the forward pass is replayed.
    """

    def __init__(self, captured: Run) -> None:
        self._captured = captured
        self._latest: tuple[Tensor, Tensor] | None = None  # images and logits of the pass that has a gradient

    def __call__(self, images: Tensor) -> Tensor:
        differentiated = torch.is_grad_enabled() and images.requires_grad
        logits: Tensor = _Gradient.apply(images, self) if differentiated else self._captured(images)
        return logits.clone()  # the next replay overwrites what this one returns

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Replays a pass that has a gradient: its images, and its logits under autograd."""
        with torch.enable_grad():
            points = images.detach().requires_grad_(True)
            self._latest = points, self._captured(points)
        return self._latest

    def gradient(self, replayed: tuple[Tensor, Tensor], slopes: Tensor) -> Tensor:
        """The gradient of a replayed pass for slopes of its logits, in memory of its own."""
        points, logits = replayed if replayed is self._latest else self.forward(replayed[0])
        self._latest = None
        return torch.autograd.grad(logits, points, slopes)[0].clone()


class _Gradient(torch.autograd.Function):
    """A replayed pass as a function of autograd, with as many gradients as are asked for."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, run: _Replayed) -> Tensor:
        """The logits."""
        ctx.run, ctx.replayed = run, run.forward(images)
        ctx.save_for_backward(images)
        logits: Tensor = ctx.replayed[1]
        return logits.detach()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        """The gradient."""
        _ = ctx.saved_tensors  # an error if the images were changed since
        return ctx.run.gradient(ctx.replayed, slopes[0]), None


def _filled(images: Tensor, rows: int) -> Tensor:
    return torch.cat([images, images.new_zeros((rows - len(images), *images.shape[1:]))])


def answers(run: Run, images: Tensor, differentiated: bool) -> tuple[Tensor, Tensor]:
    """Logits of a pass and a gradient (the logits again if not differentiated), in memory of their own."""
    points = images.detach().clone().requires_grad_(differentiated)
    logits = run(points)
    slopes = torch.linspace(-1.0, 1.0, logits.numel(), dtype=logits.dtype).view(logits.shape)
    gradient = torch.autograd.grad(logits, points, slopes.to(logits.device))[0] if differentiated else logits
    return logits.detach().clone(), gradient.detach().clone()
