"""Results of a training: weights, log and curves; or divergence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from assay.service.contract.records import ReducedBatch
from assay.workers.training.curves import draw
from assay.workers.training.files import save_text, save_weights
from assay.workers.training.training_log import LOG_NAME, EpochRecord

WEIGHTS_NAME = "weights.safetensors"
AVERAGE_NAME = "weights_ema.safetensors"
CURVES_NAME = "training_curves.svg"


class TrainingDiverged(Exception):
    """The loss or the weights stopped being finite numbers."""

    def __init__(self, what: str, *, step: int, steps: int, loss: float):
        """Name the step (counted from 1) and its loss."""
        super().__init__(f"training diverged: {what} at step {step} of {steps} (loss {loss})")
        self.step = step
        self.loss = loss


@dataclass(frozen=True)
class Trained:
    """Finished training, with the paths of its files."""

    steps: int  # optimiser steps
    batch_size: int  # examples per step
    epochs: int  # passes over the data
    final_loss: float  # mean training loss of the last epoch
    log_path: Path  # JSON lines, one `EpochRecord` per epoch
    curves_path: Path  # loss and accuracy by epoch, SVG
    weights_path: Path  # state dict of the classifier, safetensors
    # the exponential moving average of the weights, in the same form; None if the recipe keeps none
    average_path: Path | None
    at_once: int  # examples of one pass; with fewer than `batch_size`, gradients were accumulated
    selected_step: int | None = None  # steps done before the saved weights; None: all of them
    # examples of one pass as asked for and as used, where memory was short
    reduced: ReducedBatch | None = None
    unsaved: int = 0  # checkpoints that found no room on the disk


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
    """Write all files except the log, which the training writes; `judged` names a curve. Raises OSError."""
    save_weights(classifier, outcome.weights_path, metadata)
    save_text(draw(records, judged), outcome.curves_path)
    if outcome.average_path is not None:
        assert average is not None
        save_weights(average, outcome.average_path, metadata)
