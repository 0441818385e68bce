"""Iterates that logits in bfloat16 can judge: a measured bound of their error against float32.

With d the rough logits less the ones of float32, both have the same predicted class wherever the two highest
rough logits are further apart than max d - min d, the error of a row. It is measured on every row that is
judged both ways: the first ones, those too near to tell, and a share of the others. The bound is SAFETY times
the largest error so far, absolute or as a share of the row's largest logit, the larger of both.

An error above the bound refutes it: from then on every row is judged in float32, and the attack begins again
so (`protocols.attack_pixel`).

The bound is the model's, not an example's: docs/decisions/0018-the-bound-of-bfloat16-is-the-models.md.

Legend: D chosen rows, B rows, C classes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.service.contract.findings.evidence import JudgementEvidence

SAFETY = 3.0
# Rows judged both ways before the bound is used, and then one of so many.
FIRST, SHARE = 128, 32
# Of logits of classes; maps of segmentation models have more.
DIMENSIONS = 2


class ErrorBound:
    """The bound of a model, learnt during an attack. Never waits but in `doubtful` and `evidence`."""

    def __init__(self, device: torch.device | str) -> None:
        # Rows that `doubtful` has seen, in so many passes, and rows judged in float32.
        self.iterates, self._passes, self._exact = 0, 0, 0
        self._usable, self._used = True, False
        # The largest error, and its largest share of a row's largest logit.
        self._largest = torch.zeros(2, dtype=torch.float64, device=device)
        self._refuting = torch.zeros((), dtype=torch.int64, device=device)

    def doubtful(self, rough: Tensor) -> Tensor:
        """Rows of the logits (B, C) to be judged in float32 as well, on their device, (D,)."""
        count, self._used = len(rough), self._usable and self.iterates >= FIRST
        self.iterates += count
        self._passes += 1
        rows = torch.arange(count, device=rough.device)
        if self._used and rough.dim() == DIMENSIONS and rough.shape[1] > 1:
            first, second = rough.double().topk(2).values.unbind(1)
            far = (first - second > self._of(rough)) & ((rows + self._passes) % SHARE != 0)
            rows = rows[~far]
        self._exact += len(rows)
        return rows

    def learn(self, rough: Tensor, exact: Tensor) -> None:
        """Measures the errors of rows that were judged both ways, (B, C); inf where one has no number."""
        if rough.dim() != DIMENSIONS or not len(rough):
            return
        difference = torch.where(rough == exact, 0.0, rough.double() - exact.double())
        error = (difference.amax(1) - difference.amin(1)).nan_to_num(math.inf)
        if self._used:
            self._refuting += (error > self._of(rough)).sum()
        now = torch.stack([error.amax(), (error / _scale(rough)).amax()])
        self._largest = torch.maximum(self._largest, now)

    def refuted(self) -> bool:
        """Whether an error was above the bound; waits for the device."""
        return self._usable and bool(self._refuting)

    def give_up(self) -> None:
        """Counts again from zero, with every row in float32."""
        self._usable = self._used = False
        self.iterates = self._exact = 0

    def evidence(self) -> JudgementEvidence:
        """What was judged how, in the steps of the attack."""
        largest = float(self._largest[0])
        return {
            "iterates": self.iterates,
            "in_float32": self._exact,
            "bound": SAFETY * largest if math.isfinite(largest) else None,
            "above_bound": int(self._refuting),
        }

    def _of(self, rough: Tensor) -> Tensor:
        absolute, relative = SAFETY * self._largest
        return torch.maximum(absolute, relative * _scale(rough)).where(self._refuting == 0, math.inf)


def _scale(rough: Tensor) -> Tensor:
    return rough.double().abs().masked_fill(~rough.isfinite(), 0.0).amax(1).clamp(min=1e-12)
