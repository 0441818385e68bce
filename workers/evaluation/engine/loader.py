"""Loads examples for the model in order, batch by batch, and checks that they are images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Required, TypedDict, Unpack

import torch
from torch import Tensor, nn

from assay.attacks.judgement import Verdict, judge
from assay.attacks.kernel import Examples, Objective
from assay.attacks.passes import differentiate
from assay.attacks.sending import sent
from assay.workers import accelerator
from assay.workers.data.formats.dataset import Levels
from assay.workers.data.formats.prefetch import prefetch
from assay.workers.evaluation.engine.arriving import Arriving
from assay.workers.evaluation.engine.attack.error_bound import ErrorBound
from assay.workers.evaluation.engine.captured import Captures, Preparing
from assay.workers.evaluation.engine.compiled import Compiled
from assay.workers.evaluation.engine.forward import Passes
from assay.workers.evaluation.engine.ledger import Ledger

DType = Literal["float32", "tf32", "float64", "bfloat16"]
"""TF32 is what the model does on its own (workers/precision.py): its tensors are float32."""
Screening = Literal["bfloat16", "bfloat16_gradients"]
"""How attacks use bfloat16: for a whole first run, or for gradients alone."""
Images = Callable[[Sequence[int]], Tensor | Levels]
"""Loads images by index into the ids: levels, or float32 in [0, 1], (B, C, H, W), on the CPU; or int64 tokens
(B, N); or time series, float32 (B, F + 1, T)."""


@dataclass(frozen=True)
class Stored:
    """Images that a thread may read: without the device, and without random numbers."""

    read: Images

    def __call__(self, rows: Sequence[int]) -> Tensor | Levels:
        """The images at these indices."""
        return self.read(rows)


Progress = Callable[[int], None]
"""Told after every batch and step how many examples have their outcome; may raise to stop the run."""


class Running(TypedDict, total=False):
    """How a model is run: the shared keywords of the functions of this folder."""

    batch_size: Required[int]
    device: torch.device | str  # where the model is; "cpu" if absent
    dtype: DType  # float32 if absent; bfloat16 is autocast of a model in float32
    progress: Progress | None


First = Callable[[Examples], Objective]
"""What an attack differentiates at the unattacked images."""

RANGE_TOLERANCE = 1e-6
# A batch of time series is (B, F + 1, T), one of images (B, C, H, W).
SERIES_DIMENSIONS = 3


class Loader:
    """Loads images to the device and runs the model on them.

    Levels become pixels on the device, with the bits of the CPU.
    """

    def __init__(
        self,
        model: nn.Module,
        images_of: Images,
        labels: Tensor | None,
        ids: Sequence[str],
        *,
        prepare: Callable[[Tensor], Tensor] | None = None,
        **running: Unpack[Running],
    ) -> None:
        batch_size, dtype = running["batch_size"], running.get("dtype", "float32")
        known = len(ids) if labels is None else len(labels)
        if len(ids) == 0 or known != len(ids):
            raise ValueError(f"there are {len(ids)} ids and {known} labels, at least one of each is needed")
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, it must be at least 1")
        self.n = len(ids)
        self.labels = labels
        self.classes = 0  # length of the logits, after the first pass
        # The model's own passes, and what attacks call: the same, or compiled code.
        self.device = torch.device(running.get("device", "cpu"))
        self.exact = self.attacked = Passes(model, self.device)
        self.forward = self.exact if dtype != "bfloat16" else self.exact.in_bfloat16()  # as measured
        self.batch_size = batch_size
        self.tell = running.get("progress") or _ignore
        self._model = model
        self._compiled: Compiled | None = None
        self._screened: list[str] | None = None
        self._images_of = images_of
        self._dtype = torch.float64 if dtype == "float64" else torch.float32
        self._prepare = prepare
        self._read_ahead: tuple[Tensor, Tensor | Levels] | None = None

    def passes(self, screening: Screening | None, bound: ErrorBound | None = None) -> list[Passes]:
        """The passes that an attack by gradients runs with, one after the other.

        Adversarial examples from bfloat16 must hold without autocast. With gradients alone in bfloat16, as
        with dtype bfloat16, there is one run: iterates are judged without autocast, but where the `bound`
        says that bfloat16 judges alike.
        """
        if screening == "bfloat16":
            return [self.attacked.in_bfloat16(), self.attacked]
        if screening == "bfloat16_gradients" or self.forward is not self.exact:
            return [self.attacked.with_bfloat16_gradients(bound)]
        return [self.attacked]

    def batches(self, rows: Tensor | None = None) -> Iterator[Tensor]:
        """These row indices (or all) in order, cut into batches; the next batch is read meanwhile."""
        chosen = torch.arange(self.n) if rows is None else rows
        # torch splits an empty tensor into one empty part.
        parts = chosen.split(self.batch_size) if len(chosen) else ()
        if not (isinstance(self._images_of, Stored) and accelerator.is_accelerator(self.device)):
            yield from parts
            return
        with closing(prefetch(self._read, parts, threads=1)) as found:
            for part, images in zip(parts, found, strict=True):
                self._read_ahead = part, images
                yield part

    def load(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Loads a batch and runs the model on it: images and logits, on the device."""
        images = self.images(rows)
        logits = self.forward(images)
        self.classes = logits.shape[1]
        return images, logits

    def load_with_gradient(
        self, rows: Tensor, labels: Callable[[Tensor], Tensor], first: First
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `load`, with the gradient of an attack's objective in the same pass: like the images.

        `labels`: from the logits to the classes whose loss the attack raises, (B,).
        """
        images, truth = self.images(rows), self.labels_of(rows)

        def objective(logits: Tensor) -> Tensor:
            known = logits.detach()
            return first(Examples(rows, images, labels(known), truth, known))(logits)

        logits, _, gradient = differentiate(self.forward, images, objective)
        self.classes = logits.shape[1]
        return images, logits, gradient

    def images(self, rows: Tensor) -> Tensor:
        """Loads a batch to the device, (B, C, H, W), or tokens (B, N)."""
        ahead, self._read_ahead = self._read_ahead, None
        found = ahead[1] if ahead is not None and ahead[0] is rows else self._read(rows)
        if isinstance(found, Levels):
            images = Levels(sent(found.levels, self.device), found.white).pixels()
        else:
            images = sent(found, self.device)
            if not images.is_floating_point():
                return images
        images = images.to(self._dtype)
        return images if self._prepare is None else self._prepare(images)

    def prepare_passes(
        self, *, capture: bool, compiled: bool, screened: bool = False, preparing: Preparing | None = None
    ) -> None:
        """Captures and compiles passes that come often; `exact` is never compiled.

        `preparing` is told while that goes on. With `screened`, stages may run in autocast: `noted` tells
        those that do.
        """
        self._screened = [] if screened else None
        if compiled:
            self._compiled = Compiled(self._model, preparing=preparing)
            self.attacked = Passes(self._compiled, self.device, self.exact.limit)
        if capture:
            captures = Captures(compiled=self._compiled, preparing=preparing)
            for passes in (self.attacked,) if compiled else (self.exact, self.forward):
                passes.captures = captures

    def _read(self, rows: Tensor) -> Tensor | Levels:
        found = self._images_of(rows.tolist())
        _check_values(found)
        if not accelerator.is_accelerator(self.device):
            return found
        if isinstance(found, Levels):
            return Levels(found.levels.pin_memory(), found.white)
        return found.pin_memory()

    def note_stage(self, name: str, forward: Passes) -> None:
        """Notes a stage of an attack, once, if it ran in autocast."""
        if self._screened is not None and forward.ran_autocast and name not in self._screened:
            self._screened.append(name)

    def noted(self) -> dict[str, Any]:
        """Caveats: whether passes had to be made smaller, which ran in autocast, captured or compiled."""
        noted = self.exact.limit.noted()
        noted |= {} if self._screened is None else {"screened": [*self._screened]}
        for prepared in (self.attacked.captures, self._compiled):
            noted |= {} if prepared is None else prepared.noted()
        return noted

    def labels_of(self, rows: Tensor) -> Tensor:
        """The true classes of these examples, on the device, (B,)."""
        assert self.labels is not None, "of segmentation there are label maps"
        return sent(self.labels[rows], self.device)


def _ignore(done: int) -> None:
    """No-op callback."""


def _check_values(images: Tensor | Levels) -> None:
    if isinstance(images, Levels):
        highest = int(images.levels.max()) / images.white
        if highest > 1:
            raise ValueError(f"images must be in [0, 1], these go up to {highest}")
        return
    pixels = images
    if not pixels.is_floating_point():
        return
    if pixels.dim() == SERIES_DIMENSIONS:
        if not pixels.isfinite().all():
            raise ValueError("time series must be finite")
        return
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= -RANGE_TOLERANCE and high <= 1 + RANGE_TOLERANCE):
        raise ValueError(f"images must be in [0, 1], these go from {low} to {high}")


class _Seen(NamedTuple):
    """A batch that the model has been given; the device may not have come to it."""

    examples: Examples
    verdict: Arriving | None  # on the unattacked images, with the logits; None after the first stage


class Feed:
    """Waiting examples: loads them in order, and settles those that are wrong without an attack.

    On a GPU the next batch is given to the model before its examples are wanted: when slots are free, its
    verdict is on the host, which waits for nothing.

    `rows` were left by an earlier stage; None for all. `first` takes the attack's first gradient in the same
    pass, with this objective: one pass less per attacked example, a wasted backward pass per example that is
    wrong already.
    """

    def __init__(
        self,
        loader: Loader,
        ledger: Ledger,
        tell: Callable[[], None],
        rows: Tensor | None = None,
        first: First | None = None,
    ) -> None:
        self._first = first
        self._loader = loader
        self._ledger = ledger
        self._tell = tell
        self._first_look = rows is None
        self._unread = iter(loader.batches(rows))
        self._waiting: Examples | None = None
        self._next: _Seen | None = None

    def take(self, count: int) -> Examples | None:
        """The next examples, at most `count`; None at the end."""
        while self._waiting is None or len(self._waiting.rows) < count:
            if (fresh := self._admitted()) is None:
                break
            self._waiting = fresh if self._waiting is None else _joined(self._waiting, fresh)
            self._tell()
        if self._waiting is None or len(self._waiting.rows) == 0:
            return None
        taken = _part(self._waiting, slice(count))
        self._waiting = _part(self._waiting, slice(count, None))
        few = len(self._waiting.rows) < self._loader.batch_size
        if few and self._next is None and accelerator.is_accelerator(taken.images.device):
            self._next = self._begun()
        return taken

    def _begun(self) -> _Seen | None:
        rows = next(self._unread, None)
        if rows is None:
            return None
        examples = self._examples(rows)
        if not self._first_look:
            return _Seen(examples, None)
        values = judge(examples.logits, examples.truth)._asdict() | {"logits": examples.logits}
        if self._ledger.keeps_images:
            values["images"] = examples.images
        return _Seen(examples, Arriving(values))

    def _admitted(self) -> Examples | None:
        seen, self._next = self._next or self._begun(), None
        if seen is None:
            return None
        rows, fused = seen.examples.rows, self._first is not None
        if seen.verdict is None:
            if not fused:
                self._ledger.note_pass(rows)
            return seen.examples
        known = seen.verdict.read()
        verdict = Verdict(*(known[key] for key in Verdict._fields))
        self._ledger.note_clean(rows, verdict, logits=known["logits"])
        right = verdict.rank == 0
        wrong = (~right).nonzero().flatten()
        left = {key: values[wrong] for key, values in known.items()}
        self._ledger.settle(rows[wrong], left, left.get("images"), None)
        # The attack counts the pass that it shares.
        self._ledger.note_pass(rows[wrong] if fused else rows, backward=fused)
        return _part(seen.examples, right.nonzero().flatten())

    def _examples(self, rows: Tensor) -> Examples:
        labels = self._loader.labels_of(rows)
        if self._first is None:
            images, logits = self._loader.load(rows)
            return Examples(rows, images, labels, labels, logits)
        images, logits, gradient = self._loader.load_with_gradient(rows, lambda _: labels, self._first)
        return Examples(rows, images, labels, labels, logits, gradient)


def _joined(some: Examples, more: Examples) -> Examples:
    rows, images, labels, truth, logits = (torch.cat(pair) for pair in zip(some[:5], more[:5], strict=True))
    both = (
        None if some.gradient is None or more.gradient is None else torch.cat([some.gradient, more.gradient])
    )
    return Examples(rows, images, labels, truth, logits, both)


def _part(examples: Examples, which: Tensor | slice) -> Examples:
    there = sent(which, examples.images) if isinstance(which, Tensor) else which
    images, labels, truth, logits = (values[there] for values in examples[1:5])
    gradient = None if examples.gradient is None else examples.gradient[there]
    return Examples(examples.rows[which], images, labels, truth, logits, gradient)
