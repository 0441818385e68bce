"""The training log: JSON lines, one object per epoch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from assay.workers.training.files import save_text

LOG_NAME = "training_log.jsonl"


@dataclass(frozen=True)
class EpochRecord:
    """Record of one epoch.

    Attributes:
        epoch: counted from 1.
        step: optimiser steps done since the start of the training.
        loss: mean over the epoch's batches, of the recipe's loss on the augmented images.
        accuracy: accuracy on the augmented images, before each update; in adversarial training by the model
            in eval mode, as the attack sees it. None for language models and policies.
        learning_rate: of the epoch's last step.
        seconds: wall time of the training so far, without work lost to a kill.
        adversarial_accuracy: in adversarial training, the accuracy on the adversarial images, before each
            update; else None.
        evaluation_loss: for language models, the mean over the words of the evaluation split, in nats, by the
            model in eval mode after the epoch; else None.
        judged_loss: mean cross-entropy, without smoothing, on the validation share of the training set (with
            selection "released_test": on the test set), by the model in eval mode, at the last judgement;
            None without any.
        judged_accuracy: accuracy at that judgement.
    """

    epoch: int
    step: int
    loss: float
    accuracy: float | None
    learning_rate: float
    seconds: float
    adversarial_accuracy: float | None = None
    evaluation_loss: float | None = None
    judged_loss: float | None = None
    judged_accuracy: float | None = None


class TrainingLog:
    """Records of one run, in memory and in a JSON-lines file."""

    def __init__(self, path: Path | None, records: Iterable[EpochRecord] = ()):
        """Truncates the file to exactly these records, those of a checkpoint.

        Without a path they are kept in memory only.
        """
        self._path = path
        self.records = list(records)
        if path is not None:
            save_text("".join(_line(record) for record in self.records), path)

    def append(self, record: EpochRecord) -> None:
        """Append the record of an epoch."""
        self.records.append(record)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line(record))


def _line(record: EpochRecord) -> str:
    return json.dumps(asdict(record)) + "\n"
