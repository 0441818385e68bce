"""Collects the outcomes of an evaluation, example by example."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import safetensors.torch
import torch
from torch import Tensor

from assay.attacks.judgement import Verdict, in_top5, wrong_by
from assay.attacks.kernel import State, unconverged
from assay.attacks.sending import sent
from assay.attacks.threat import sizes
from assay.service.contract.gallery import GalleryItem
from assay.workers.evaluation.engine.gallery.candidates import Candidates
from assay.workers.evaluation.engine.outcomes import OutcomeFile, Stage


def listed(values: Tensor) -> list[Any]:
    """Values (n,) as JSON; None where not finite."""
    if not values.is_floating_point():
        return list(values.tolist())
    return [value if math.isfinite(value) else None for value in values.tolist()]


@dataclass(frozen=True)
class ExampleOutcomes:
    """One row per example, in the order of `ids`; all tensors are on the CPU."""

    ids: tuple[str, ...]
    labels: Tensor  # true classes, int64 (n,)
    # The model's answer to the image that counts, -1 where its logits are not finite, int64 (n,)
    prediction: Tensor
    correct: Tensor  # whether the prediction is the label, bool (n,)
    # Whether the label is among the five highest logits (all, where there are fewer classes) of that same
    # image, bool (n,). After an attack on the top prediction it is an upper bound on what an attack on the
    # five highest would leave
    correct5: Tensor
    clean_correct: Tensor  # whether the prediction on the unattacked image is the label, bool (n,)
    loss: Tensor  # cross-entropy to the label on that image, float64 (n,); may be infinite or NaN
    forward: Tensor  # forward passes that the example took, int64 (n,)
    backward: Tensor  # backward passes that the example took, int64 (n,)
    nonfinite: int = 0  # number of images that count with logits that are not finite; they are wrong
    gradients: int = 0  # number of examples whose first gradient was inspected
    zero_gradient: int = 0  # how many of those were zero everywhere
    nonfinite_gradient: int = 0  # how many of those had a value that was not finite
    # Forward passes of the attack alone, without those that judge the image before and after it, int64 (n,);
    # None without an attack
    queries: Tensor | None = None
    # Name of the stage that broke the example, or None; no column for single-stage attacks
    broken_by: tuple[str | None, ...] | None = None
    # Largest change of a value from the unattacked image to the image that counts, float64 (n,); None without
    # an attack
    linf: Tensor | None = None
    l2: Tensor | None = None  # L2 norm of that change, float64 (n,), or None
    l1: Tensor | None = None  # its L1 norm
    l0: Tensor | None = None  # number of values that changed
    # Logit of the true class less the highest other one on the image that counts, float64 (n,); NaN where it
    # is not known. None without an attack
    margin: Tensor | None = None
    hit: Tensor | None = None  # whether the attack reached its target, bool (n,); None without targets
    # Whether the example is right once an adversarial example of it is rounded to 8 bits, bool (n,): one that
    # doesn't survive being saved as a picture is not counted. Examples that hold out are right. None if not
    # requested
    correct8: Tensor | None = None
    # Share of fresh draws of the model that are right on the image that counts, float64 (n,), or None. The
    # other columns are then of the first of these draws, the loss is their mean
    expected: Tensor | None = None
    clean_expected: Tensor | None = None  # the same on the unattacked image, or None
    # Largest softmax of the logits, float64 (n,); NaN where they are not finite. None if not requested
    confidence: Tensor | None = None
    # Per example a text of 0 and 1, whether it is right under each corruption and severity; None where
    # nothing was corrupted. The other columns are about the image as it is then
    corrupted: tuple[str, ...] | None = None
    # Further evidence for warnings: how many adversarial examples were not counted, by reason
    # (`verification.REASONS`), and a batch that had to be reduced
    noted: Mapping[str, Any] = field(default_factory=dict)
    stages: tuple[Stage, ...] = ()  # of an attack, in order
    # The images that count, (n, C, H, W) in the attacked space, if requested
    adversarial: Tensor | None = None
    traces: bytes | None = None  # the file of the first examples' steps, if requested
    gallery: tuple[GalleryItem, ...] | None = None
    analysis: ClassVar[bool] = False

    def columns(self) -> dict[str, list[object]]:
        """The rows as JSON columns; a loss, norm or margin that is not finite is None."""
        optional = {
            "queries": self.queries,
            "linf": self.linf,
            "l2": self.l2,
            "l1": self.l1,
            "l0": self.l0,
            "margin": self.margin,
            "hit": self.hit,
            "correct8": self.correct8,
            "expected": self.expected,
            "clean_expected": self.clean_expected,
            "confidence": self.confidence,
        }
        return {
            "id": list(self.ids),
            "label": self.labels.tolist(),
            "prediction": self.prediction.tolist(),
            "correct": self.correct.tolist(),
            "correct5": self.correct5.tolist(),
            "clean_correct": self.clean_correct.tolist(),
            "loss": listed(self.loss),
            "forward": self.forward.tolist(),
            "backward": self.backward.tolist(),
            **{key: listed(values) for key, values in optional.items() if values is not None},
            **({} if self.broken_by is None else {"broken_by": list(self.broken_by)}),
            **({} if self.corrupted is None else {"corrupted": list(self.corrupted)}),
        }

    def evidence(self) -> dict[str, Any]:
        """The evidence for warnings, and the stages; counts of shards add up."""
        return {
            "nonfinite": self.nonfinite,
            "gradients": self.gradients,
            "zero_gradient": self.zero_gradient,
            "nonfinite_gradient": self.nonfinite_gradient,
            **self.noted,
            **({"stages": [stage.counts() for stage in self.stages]} if self.stages else {}),
        }

    def files(self) -> Iterable[OutcomeFile]:
        """The traces, and the adversarial examples found as a safetensors file, if requested.

        It has `images` (n, C, H, W) in the attacked space, `labels` and `predictions` (n,), and in its header
        the `ids` as JSON.
        """
        if self.traces is not None:
            yield OutcomeFile("trace", ".json", self.traces)
        if self.adversarial is not None:
            broken = self.clean_correct & ~self.correct
            if self.expected is not None and self.clean_expected is not None:
                broken = self.expected < self.clean_expected
            found = broken.nonzero().flatten()
            tensors = {
                "images": self.adversarial[found].contiguous(),
                "labels": self.labels[found].contiguous(),
                "predictions": self.prediction[found].contiguous(),
            }
            header = {"ids": json.dumps([self.ids[row] for row in found.tolist()])}
            content = safetensors.torch.save(tensors, metadata=header)
            yield OutcomeFile("adversarial", ".safetensors", content)


class Ledger:
    """Collects outcomes as examples finish, in any order, and over several stages of an attack."""

    def __init__(
        self,
        labels: Tensor,
        ids: Sequence[str],
        keep_adversarial: bool = False,
        *,
        attacked: bool = False,
        targeted: bool = False,
        candidates: Candidates | None = None,
    ) -> None:
        n = len(ids)
        self._ids = tuple(ids)
        self._labels = labels
        self._keep_adversarial = keep_adversarial
        self._attacked = attacked
        self._candidates = candidates
        self._adversarial: Tensor | None = None
        self._settled = torch.zeros(n, dtype=torch.bool)
        self._done: int | None = 0  # None: to be counted
        self._numbers = {key: torch.zeros(n, dtype=torch.int64) for key in ("prediction", "rank")}
        self._passes = {key: torch.zeros(n, dtype=torch.int64) for key in ("forward", "backward")}
        self._unconverged = torch.zeros(n, dtype=torch.bool)
        self._queries = torch.zeros(n, dtype=torch.int64)
        self._flags = {key: torch.zeros(n, dtype=torch.bool) for key in ("clean_correct", "nonfinite")}
        self._gradients = {
            key: torch.zeros(n, dtype=torch.bool)
            for key in ("seen_gradient", "zero_gradient", "nonfinite_gradient")
        }
        # NaN is below everything: the first outcome of an example is kept.
        self._loss = torch.full((n,), torch.nan, dtype=torch.float64)
        self._margin = torch.full((n,), torch.nan, dtype=torch.float64)
        self._sizes = {norm: torch.zeros(n, dtype=torch.float64) for norm in ("Linf", "L2", "L1", "L0")}
        self._hit = torch.zeros(n, dtype=torch.bool) if targeted else None
        self._stages: list[Stage] = []
        self._broken_by: dict[int, str] = {}

    @property
    def done(self) -> int:
        """How many examples have an outcome."""
        if self._done is None:
            self._done = int(self._settled.sum())
        return self._done

    @property
    def clean_correct(self) -> Tensor:
        """Which examples were right before the attack."""
        return self._flags["clean_correct"]

    @property
    def open(self) -> Tensor:
        """The examples without one, in order, int64."""
        return (~self._settled).nonzero().flatten()

    def note_pass(self, rows: Tensor, *, count: int = 1, backward: bool = False) -> None:
        """Counts so many more passes per example, beside the attack's passes."""
        self._passes["forward"][rows] += count
        if backward:
            self._passes["backward"][rows] += 1

    @property
    def keeps_images(self) -> bool:
        """Whether it keeps the images that count."""
        return self._keep_adversarial

    def note_clean(self, rows: Tensor, verdict: Verdict, *, logits: Tensor | None = None) -> None:
        """Records which unattacked images are right, (B,); `logits` (B, classes) for a gallery."""
        right = (verdict.rank == 0).cpu()
        self._flags["clean_correct"][rows] = right
        if self._candidates is not None and logits is not None:
            self._candidates.note_clean(rows, right, logits)

    def note_attack(self, state: State, *, final: bool = True) -> None:
        """Adds passes and flags of slots that leave; of convergence only in the `final` run of a stage."""
        rows = state["row"]
        for key, passes in self._passes.items():
            passes[rows] += state[key].cpu()
        self._queries[rows] += state["forward"].cpu()
        if final:  # a later stage may not judge convergence at all
            self._unconverged[rows] |= unconverged(state).cpu()
        for key, flags in self._gradients.items():
            flags[rows] |= state[key].cpu()

    def settle(
        self, rows: Tensor, values: Mapping[str, Tensor], images: Tensor | None, clean: Tensor | None
    ) -> None:
        """Writes the outcomes of some examples for good.

        `values`: prediction, rank, loss, nonfinite, each (B,); under attack logits (B, classes); `images`:
        The images that count, where they are kept or perturbed; `clean`: the unattacked ones; None without an
        attack.
        """
        assert not self._settled[rows].any(), "every example has one outcome"
        self._write(rows, values, images, clean)
        if self._hit is not None and "hit" in values:
            self._hit[rows] = values["hit"].cpu()
        self._settle(rows)

    def hold(self, rows: Tensor, values: Mapping[str, Tensor], images: Tensor, clean: Tensor) -> None:
        """Writes outcomes that a later stage may replace: among right ones the highest loss counts."""
        loss, known = values["loss"].cpu(), self._loss[rows]
        better = (known.isnan() | (loss > known)).nonzero().flatten()
        index = sent(better, images)
        kept = {key: values[key][index] for key in (*Verdict._fields, "logits")}
        self._write(rows[better], kept, images[index], clean[index])

    def settle_held(self, rows: Tensor) -> None:
        """Makes the held outcomes of these final."""
        self._settle(rows)

    def settle_open(self) -> None:
        """Makes all held outcomes final."""
        self._settle(self.open)

    def note_stage(self, stage: Stage, broken: Tensor) -> None:
        """Adds the counts of a stage, and the examples that it broke."""
        self._stages.append(stage)
        self._broken_by |= dict.fromkeys(broken.tolist(), stage.name)

    def cost(self) -> tuple[int, int]:
        """Forward and backward passes so far."""
        return int(self._passes["forward"].sum()), int(self._passes["backward"].sum())

    def _settle(self, rows: Tensor) -> None:
        self._settled[rows] = True
        self._done = None

    def _noted(self) -> dict[str, int]:
        count = int((self._unconverged & (self._numbers["rank"] == 0)).sum())
        return {"unconverged": count} if count else {}

    def _write(
        self, rows: Tensor, values: Mapping[str, Tensor], images: Tensor | None, clean: Tensor | None = None
    ) -> None:
        for key, column in self._numbers.items():
            column[rows] = values[key].cpu()
        self._flags["nonfinite"][rows] = values["nonfinite"].cpu()
        self._loss[rows] = values["loss"].cpu()
        if self._attacked and "logits" in values:
            truth = sent(self._labels[rows], values["logits"])
            self._margin[rows] = -wrong_by(values["logits"], truth).cpu()
        if images is not None and clean is not None:
            if self._candidates is not None:
                self._candidates.note(rows, values, images, clean)
            for norm, column in self._sizes.items():
                column[rows] = sizes(images - clean, norm).double().cpu()  # type: ignore[arg-type]
        if self._keep_adversarial:
            assert images is not None, "the images that count are kept"
            if self._adversarial is None:
                self._adversarial = torch.zeros(len(self._ids), *images.shape[1:], dtype=images.dtype)
            self._adversarial[rows] = images.cpu()

    def close(
        self, classes: int, noted: Mapping[str, Any] | None = None, correct8: Tensor | None = None
    ) -> ExampleOutcomes:
        """The outcomes once every example has one; `classes` is the length of the logits."""
        assert bool(self._settled.all()), "an example has no outcome"
        rank, gradients = self._numbers["rank"], self._gradients
        broken_by = tuple(self._broken_by.get(row) for row in range(len(self._ids)))
        return ExampleOutcomes(
            ids=self._ids,
            labels=self._labels,
            prediction=self._numbers["prediction"],
            correct=rank == 0,
            correct5=in_top5(rank, classes),
            clean_correct=self._flags["clean_correct"],
            loss=self._loss,
            forward=self._passes["forward"],
            backward=self._passes["backward"],
            nonfinite=int(self._flags["nonfinite"].sum()),
            gradients=int(gradients["seen_gradient"].sum()),
            zero_gradient=int(gradients["zero_gradient"].sum()),
            nonfinite_gradient=int(gradients["nonfinite_gradient"].sum()),
            queries=self._queries if self._attacked else None,
            broken_by=broken_by if self._stages else None,
            linf=self._sizes["Linf"] if self._attacked else None,
            l1=self._sizes["L1"] if self._attacked else None,
            l0=self._sizes["L0"] if self._attacked else None,
            l2=self._sizes["L2"] if self._attacked else None,
            margin=self._margin if self._attacked else None,
            hit=self._hit,
            correct8=correct8,
            noted=self._noted() | dict(noted or {}),
            stages=tuple(self._stages),
            adversarial=self._adversarial,
        )
