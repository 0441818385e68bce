"""What an evaluation found out about each example."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.judgement import Verdict, in_top5


@dataclass(frozen=True)
class Outcomes:
    """One row per example, in the order of `ids`; all tensors are on the CPU.

    Attributes:
        ids: Example ids.
        labels: True classes, int64 (n,).
        prediction: The model's answer to the image that counts, -1 where its logits are not finite,
            int64 (n,).
        correct: Whether the prediction is the label, bool (n,).
        correct5: Whether the label is among the five highest logits (all, where there are fewer classes) of
            that same image, bool (n,). After an attack on the top prediction it is an upper bound on what an
            attack on the five highest would leave.
        clean_correct: Whether the prediction on the unattacked image is the label, bool (n,).
        loss: Cross-entropy to the label on that image, float64 (n,); may be infinite or NaN.
        forward: Forward passes that the example took, int64 (n,).
        backward: Backward passes that the example took, int64 (n,).
        nonfinite: How many images that count have logits that are not finite; they are wrong.
        gradients: For how many examples a first gradient was looked at.
        zero_gradient: How many of those were zero everywhere.
        nonfinite_gradient: How many of those had a value that was not finite.
        adversarial: The images that count, (n, C, H, W) in the attacked space, where they were asked for.
    """

    ids: tuple[str, ...]
    labels: Tensor
    prediction: Tensor
    correct: Tensor
    correct5: Tensor
    clean_correct: Tensor
    loss: Tensor
    forward: Tensor
    backward: Tensor
    nonfinite: int = 0
    gradients: int = 0
    zero_gradient: int = 0
    nonfinite_gradient: int = 0
    adversarial: Tensor | None = None

    def columns(self) -> dict[str, list[object]]:
        """Returns the rows as JSON columns; a loss that is not finite is None."""
        return {
            "id": list(self.ids),
            "label": self.labels.tolist(),
            "prediction": self.prediction.tolist(),
            "correct": self.correct.tolist(),
            "correct5": self.correct5.tolist(),
            "clean_correct": self.clean_correct.tolist(),
            "loss": [loss if math.isfinite(loss) else None for loss in self.loss.tolist()],
            "forward": self.forward.tolist(),
            "backward": self.backward.tolist(),
        }

    def evidence(self) -> dict[str, int]:
        """Returns the counts that warnings rest on; those of shards add up."""
        return {
            "nonfinite": self.nonfinite,
            "gradients": self.gradients,
            "zero_gradient": self.zero_gradient,
            "nonfinite_gradient": self.nonfinite_gradient,
        }


class Ledger:
    """Collects outcomes as examples finish, in any order.

    Args:
        labels: True classes, int64 (n,).
        ids: Example ids.
        keep_adversarial: Whether to keep the images that count.
    """

    def __init__(self, labels: Tensor, ids: Sequence[str], keep_adversarial: bool = False) -> None:
        n = len(ids)
        self._ids = tuple(ids)
        self._labels = labels
        self._keep_adversarial = keep_adversarial
        self._adversarial: Tensor | None = None
        self._settled = torch.zeros(n, dtype=torch.bool)
        self._numbers = {key: torch.zeros(n, dtype=torch.int64) for key in ("prediction", "rank")}
        self._numbers |= {key: torch.zeros(n, dtype=torch.int64) for key in ("forward", "backward")}
        self._flags = {
            key: torch.zeros(n, dtype=torch.bool)
            for key in ("clean_correct", "nonfinite", "seen_gradient", "zero_gradient", "nonfinite_gradient")
        }
        self._loss = torch.zeros(n, dtype=torch.float64)

    @property
    def done(self) -> int:
        """How many examples have an outcome."""
        return int(self._settled.sum())

    def note_clean(self, rows: Tensor, verdict: Verdict) -> None:
        """Counts the pass over the unattacked images and remembers which were right, (B,)."""
        self._numbers["forward"][rows] += 1
        self._flags["clean_correct"][rows] = (verdict.rank == 0).cpu()

    def settle(self, rows: Tensor, values: dict[str, Tensor], images: Tensor) -> None:
        """Writes the outcomes of some examples.

        Args:
            rows: Their indices.
            values: prediction, rank, loss, nonfinite, and, after an attack, its pass counts and what was seen
                of its gradients, each (B,).
            images: The images that count.
        """
        assert not self._settled[rows].any(), "every example has one outcome"
        self._settled[rows] = True
        for key, column in self._numbers.items():
            if key in values:
                column[rows] += values[key].cpu()
        for key, flags in self._flags.items():
            if key in values:
                flags[rows] = values[key].cpu()
        self._loss[rows] = values["loss"].cpu()
        if self._keep_adversarial:
            if self._adversarial is None:
                self._adversarial = torch.zeros(len(self._ids), *images.shape[1:], dtype=images.dtype)
            self._adversarial[rows] = images.cpu()

    def close(self, classes: int) -> Outcomes:
        """Returns the outcomes once every example has one; `classes` is the length of the logits."""
        assert bool(self._settled.all()), "an example has no outcome"
        rank = self._numbers["rank"]
        return Outcomes(
            ids=self._ids,
            labels=self._labels,
            prediction=self._numbers["prediction"],
            correct=rank == 0,
            correct5=in_top5(rank, classes),
            clean_correct=self._flags["clean_correct"],
            loss=self._loss,
            forward=self._numbers["forward"],
            backward=self._numbers["backward"],
            nonfinite=int(self._flags["nonfinite"].sum()),
            gradients=int(self._flags["seen_gradient"].sum()),
            zero_gradient=int(self._flags["zero_gradient"].sum()),
            nonfinite_gradient=int(self._flags["nonfinite_gradient"].sum()),
            adversarial=self._adversarial,
        )
