"""Traces of gradient attacks: objective, margin, distance and gradient at each step of a few examples.

Attacks ask for gradients by `evaluate` (attacks/passes.py), which tells the passes' `observe`. What is seen
stays on the device until the end; nothing is changed, drawn or waited for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from assay.attacks.judgement import wrong_by
from assay.attacks.kernel import Attack, State
from assay.attacks.sending import sent
from assay.service.contract.findings.traces import MAX_STEPS, VERSION, TracedStep
from assay.workers.evaluation.engine.forward import Passes

StageRun = tuple[int, Attack, Sequence[Passes]]
MAX_SEEN = 20_000  # Steps of batches


class Traces:
    """What was seen of the first `rows` examples."""

    def __init__(self, ids: Sequence[str], rows: int) -> None:
        self._ids, self._rows = ids, rows
        self._stage = ""
        self._seen: list[tuple[str, Tensor, Tensor]] = []

    def over(self, runs: Sequence[StageRun]) -> Iterator[StageRun]:
        """The runs of an attack, each watched as it comes; what was seen before is forgotten."""
        self._seen = []
        for number, attack, forwards in runs:
            self._stage = attack.name
            for forward in forwards:
                forward.observe = self
            yield number, attack, forwards

    def __call__(self, state: State, logits: Tensor, values: Tensor, gradient: Tensor, wants: Tensor) -> None:
        """Notes the iterates at which a gradient was taken, as `evaluate` returns it."""
        chosen = (state["row"] < self._rows).nonzero().flatten()
        if len(chosen) == 0 or len(self._seen) >= MAX_SEEN:
            return
        index = sent(chosen, gradient)
        change = (state["adversarial"][index] - state["images"][index]).flatten(1).double()
        slope = gradient[index].flatten(1).double().norm(dim=1)
        numbers = (values[index], -wrong_by(logits[index], state["truth"][index]), change.abs().amax(1))
        seen = (*numbers, change.norm(dim=1), slope, state["broken"][index])
        known = torch.stack(
            [state[key][chosen] for key in ("row", "restart", "iteration")] + [wants[chosen]], 1
        )
        self._seen.append((self._stage, known, torch.stack([one.double() for one in seen], 1)))

    def content(self) -> bytes | None:
        """The file, by the id of each example; None where nothing was seen."""
        steps: dict[str, list[list[object]]] = {}
        for stage, known, seen in self._seen:
            for (row, restart, step, wanted), numbers in zip(known.tolist(), seen.tolist(), strict=True):
                *told, slope, broken = numbers
                own = steps.setdefault(self._ids[row], [])
                if not broken and len(own) < MAX_STEPS:  # a broken slot may leave a step late
                    values = [*told, slope if wanted else math.nan]
                    own.append(
                        [stage, restart, step, *(one if math.isfinite(one) else None for one in values)]
                    )
        return (
            json.dumps({"version": VERSION, "columns": TracedStep._fields, "examples": steps}).encode()
            if steps
            else None
        )
