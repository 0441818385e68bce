"""Results of a training: weights, log and curves; or divergence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from assay.service.contract.findings.evidence import ReducedBatch
from assay.service.metrics.analyses.svg import Panel, Point, Series
from assay.service.metrics.analyses.svg import draw as draw_panels
from assay.workers.training.files import save_text, save_weights
from assay.workers.training.training_log import LOG_NAME, EpochRecord

WEIGHTS_NAME = "weights.safetensors"
AVERAGE_NAME = "weights_ema.safetensors"
CURVES_NAME = "training_curves.svg"


class TrainingDiverged(Exception):
    """The loss or the weights stopped being finite numbers."""

    def __init__(self, what: str, *, step: int, steps: int, loss: float):
        super().__init__(f"training diverged: {what} at step {step} of {steps} (loss {loss})")
        self.step = step
        self.loss = loss


@dataclass(frozen=True)
class Trained:
    """Finished training, with the paths of its files."""

    steps: int  # optimiser steps
    batch_size: int  # examples per step
    epochs: int
    final_loss: float  # mean of the last epoch, in training
    log_path: Path  # JSON lines, one `EpochRecord` per epoch
    curves_path: Path  # loss and accuracy by epoch, SVG
    weights_path: Path  # state dict of the classifier, safetensors
    average_path: Path | None  # of the exponential moving average; None if the recipe keeps none
    at_once: int  # of a pass; fewer than `batch_size`: gradients were accumulated
    selected_step: int | None = None  # steps before the saved weights; None: all
    reduced: ReducedBatch | None = None  # of a pass as asked for and as used, where memory was short
    unsaved: int = 0  # checkpoints without room on the disk


def trained(
    folder: Path,
    records: list[EpochRecord],
    *,
    batch_size: int,
    averages: bool,
    at_once: int,
    selected_step: int | None = None,
    reduced: ReducedBatch | None = None,
    unsaved: int = 0,
) -> Trained:
    """Result of a training with these records (one per epoch) in a folder."""
    return Trained(
        steps=records[-1].step,
        batch_size=batch_size,
        epochs=len(records),
        final_loss=records[-1].loss,
        log_path=folder / LOG_NAME,
        curves_path=folder / CURVES_NAME,
        weights_path=folder / WEIGHTS_NAME,
        average_path=folder / AVERAGE_NAME if averages else None,
        at_once=at_once,
        selected_step=selected_step,
        reduced=reduced,
        unsaved=unsaved,
    )


def write(
    outcome: Trained,
    classifier: nn.Module,
    average: nn.Module | None,
    records: list[EpochRecord],
    metadata: Mapping[str, str],
    judged: str = "validation",
) -> None:
    """Write all files except the log; `judged` names a curve. Raises OSError."""
    save_weights(classifier, outcome.weights_path, metadata)
    save_text(draw(records, judged), outcome.curves_path)
    if outcome.average_path is not None:
        assert average is not None
        save_weights(average, outcome.average_path, metadata)


def draw(records: Sequence[EpochRecord], judged: str = "validation") -> str:
    """SVG of loss and accuracy per epoch (records with finite losses); `judged` names the judged examples."""
    # From 0 even if auxiliary losses make it negative.
    loss = _by_epoch([max(record.loss, 0.0) for record in records])
    losses = [Series("loss", loss, "line")]
    evaluated = [r.evaluation_loss for r in records if r.evaluation_loss is not None]
    if len(evaluated) == len(records):
        losses.append(Series("of the evaluation split", _by_epoch(evaluated), "line"))
    judgements = [(r.judged_loss, r.judged_accuracy) for r in records]
    found = [(loss, 100 * value) for loss, value in judgements if loss is not None and value is not None]
    if len(found) == len(records):
        losses.append(Series(judged, _by_epoch([loss for loss, _ in found]), "line"))
    known = [100 * record.accuracy for record in records if record.accuracy is not None]
    accuracy = [Series("accuracy", _by_epoch(known), "line")]
    attacked = [r.adversarial_accuracy for r in records if r.adversarial_accuracy is not None]
    if attacked:
        values = _by_epoch([100 * value for value in attacked])
        accuracy.append(Series("under the attack of the training", values, "line"))
    if len(found) == len(records):
        accuracy.append(Series(judged, _by_epoch([value for _, value in found]), "line"))
    highest = max(y for series in losses for _, y in series.points)
    epochs, top = (1.0, float(len(records))), max(highest, 1e-9) * 1.05
    panels = [
        Panel("Training loss", "epoch", "", tuple(losses), epochs, (0.0, top), whole=True),
        Panel("Training accuracy, %", "epoch", "", tuple(accuracy), epochs, (0.0, 100.0), whole=True),
    ]
    return draw_panels(panels if known else panels[:1])


def _by_epoch(values: Sequence[float]) -> tuple[Point, ...]:
    return tuple((float(epoch), value) for epoch, value in enumerate(values, start=1))
