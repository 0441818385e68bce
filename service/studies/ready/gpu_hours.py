"""GPU-hours of a study before it starts, from the operations of its models and the measured rate of a card.

A pass takes its operations over the rate of the largest measured network that the model exceeds, and no less
time than a pass of the smallest. One H100 measured them, in float32 under PGD-20 (docs/results-gpu.md); other
cards are scaled by their peak. A training's backward pass counts as two forward passes.

    work = forward passes * operations + backward passes * operations of the gradient
    rate = work of an image under PGD-20 * images a second;    hours of a job = work / rate / 3600

Operations: two for each multiply-add. A pulled model may be convolutional: ResNet-50 is the larger network.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.service.catalog.catalog import load
from assay.service.cli import output
from assay.service.contract.extras import MissingExtra, require
from assay.service.studies.wire import ArmEstimate, StudyDryRun
from assay.service.submission.estimate import BACKWARD_COST

COUNT, COUNT_SECONDS = "assay.workers.operations", 120
# Peaks in float32 without tensor cores, TFLOP/s: NVIDIA's data sheets of the SXM forms.
PEAKS = {"H100": 67.0, "A100": 19.5, "V100": 15.7}
MEASURED_CARD = "H100"
HOUR, DAY = 3600.0, 24.0
CARDS = (1, 8)


@dataclass(frozen=True)
class MeasuredNetwork:
    """A network under PGD-20: images a second, operations of an image's passes, and both passes' numbers."""

    name: str
    images: float
    forward: float
    gradient: float
    passes: tuple[int, int]

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.images * (self.passes[0] * self.forward + self.passes[1] * self.gradient)


# The engine's nominal passes; the small network ran in a loop by hand, whose last pass alone judges.
SMALLEST = MeasuredNetwork("a ViT of 32 px", 921, 365_699_328, 385_168_128, (21, 20))
TRANSFORMER = MeasuredNetwork("ViT-S/16", 68, 9_197_764_608, 9_913_092_096, (22, 20))
CONVOLUTIONAL = MeasuredNetwork("ResNet-50", 50, 8_178_368_512, 8_178_368_512, (22, 20))


@dataclass(frozen=True)
class GpuHours:
    """Hours of an H100 for all seeds; `unknown` has the arms that are not in them, with the reason.

    `core` has hours of a core of this machine, by a forward pass of each model; None where a model was not
    timed. `timed`: of each arm that was, seconds of a seed's training and evaluation.
    """

    trainings: float
    evaluations: float
    unknown: Mapping[str, str]
    core: float | None = None
    timed: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def gpu_hours(planned: StudyDryRun) -> GpuHours:
    """The hours of a planned study, its models counted by a process of a worker's packages."""
    sums = [0.0, 0.0]
    unknown: dict[str, str] = {}
    timed: dict[str, tuple[float, float]] = {}
    for arm, spec, found in zip(
        planned.arms, planned.spec["arms"], counted(planned.spec["arms"]), strict=True
    ):
        hours = hours_of(arm, spec["model"]["name"], found)
        if isinstance(hours, str):
            unknown[arm.name] = hours
        else:
            sums = [total + len(planned.spec["seeds"]) * one for total, one in zip(sums, hours, strict=True)]
            if found.get("core_seconds") and found["forward"]:
                timed[arm.name] = _core_seconds(arm, found)
    core = len(planned.spec["seeds"]) * sum(map(sum, timed.values())) / HOUR
    return GpuHours(sums[0], sums[1], unknown, core if len(timed) == len(planned.arms) else None, timed)


def hours_of(arm: ArmEstimate, model: str, found: Mapping[str, Any]) -> tuple[float, float] | str:
    """Hours of a seed's training, 0 where it is an earlier arm's, and evaluation; or why they are unknown."""
    if "unknown" in found:
        return str(found["unknown"])
    trained = arm.trained and not arm.shared
    if arm.evaluate_passes is None or (trained and arm.train_passes is None):
        return "the number of examples or of passes is known when the jobs are planned"
    larger = TRANSFORMER if load().find("model", model).pulled is None else CONVOLUTIONAL
    network = larger if found["forward"] >= larger.forward else SMALLEST
    forward, gradient = max(found["forward"], network.forward), max(found["gradient"], network.gradient)
    train, evaluate = _passes(arm)
    training = (train[0] + BACKWARD_COST * train[1]) * forward
    return training / network.rate / HOUR, (
        evaluate[0] * forward + evaluate[1] * gradient
    ) / network.rate / HOUR


def _passes(arm: ArmEstimate) -> tuple[tuple[int, int], tuple[int, int]]:
    """Forward and backward passes of a seed's training, 0 where it is an earlier arm's, and evaluation."""
    trained = arm.trained and not arm.shared
    return (arm.train_passes if trained else None) or (0, 0), arm.evaluate_passes or (0, 0)


def _core_seconds(arm: ArmEstimate, found: Mapping[str, Any]) -> tuple[float, float]:
    train, evaluate = _passes(arm)
    backward = evaluate[1] * found["gradient"] / found["forward"]
    each = found["core_seconds"]
    return (train[0] + BACKWARD_COST * train[1]) * each, (evaluate[0] + backward) * each


def counted(arms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Operations "forward" and "gradient" of each arm's model; or "unknown", the reason."""
    known = load().names("model")
    if not any(arm["model"]["name"] in known for arm in arms):
        return [{"unknown": "the catalog of this machine lacks the model"} for _ in arms]
    try:
        require("counting the operations of models", "worker")
        asked = json.dumps([{"model": arm["model"], "data": arm["data"]} for arm in arms])
        done = subprocess.run(  # noqa: S603 (our own interpreter and module; the service validated the specs)
            [sys.executable, "-P", "-m", COUNT],
            input=asked,
            capture_output=True,
            text=True,
            timeout=COUNT_SECONDS,
            check=False,
        )
        found: list[dict[str, Any]] = json.loads(done.stdout)
    except MissingExtra as error:
        return [{"unknown": str(error)} for _ in arms]
    except subprocess.TimeoutExpired:
        return [{"unknown": f"counting took longer than {COUNT_SECONDS} s"} for _ in arms]
    except json.JSONDecodeError:
        last = done.stderr.strip().rpartition("\n")[2] or f"it ended with {done.returncode}"
        return [{"unknown": f"counting the operations of models failed: {last[:300]}"} for _ in arms]
    return found


def hours_text(hours: GpuHours) -> str:
    """A table of cards, the assumptions, and the arms of unknown cost."""
    total = hours.trainings + hours.evaluations
    reasons = dict.fromkeys(hours.unknown.values())
    named = {why: ", ".join(repr(arm) for arm, one in hours.unknown.items() if one == why) for why in reasons}
    lines = [output.printable(f"GPU-hours unknown: {arms}: {why}") for why, arms in named.items()]
    if not total:
        return "\n".join(lines)
    rows = []
    for card, peak in PEAKS.items():
        scale = PEAKS[MEASURED_CARD] / peak
        days = [_number(scale * total / DAY / cards) for cards in CARDS]
        parts = (hours.trainings, hours.evaluations, total)
        name = card if card == MEASURED_CARD else f"{card} (scaled)"
        rows.append((name, *(_number(scale * one) for one in parts), *days))
    titles = ("GPU-HOURS", "TRAININGS", "EVALUATIONS", "IN ALL", *(f"DAYS ON {cards}" for cards in CARDS))
    large, small = (f"{one.rate / 1e12:.0f} TFLOP/s" for one in (TRANSFORMER, SMALLEST))
    assumed = (
        "float32, passes of the models alone, no example breaks early: under PGD-20 transformers reach"
        f" {large} of an {MEASURED_CARD}'s {PEAKS[MEASURED_CARD]:.0f} from {TRANSFORMER.forward / 1e9:.1f}"
        f" GFLOP a pass on, else {small}; no training was measured; scaled: by peaks in float32; sets of"
        " unknown size count as published"
    )
    return "\n".join([output.table(titles, rows), assumed, *lines])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
