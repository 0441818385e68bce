"""The training log: JSON lines, one object per epoch."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from assay.workers.exhaustion import is_disk_full
from assay.workers.training.files import save_text

logger = logging.getLogger(__name__)

LOG_NAME = "training_log.jsonl"


@dataclass(frozen=True)
class EpochRecord:
    """Record of an epoch."""

    epoch: int  # counted from 1
    step: int  # optimiser steps done since the start of the training
    loss: float  # mean over the epoch's batches, of the recipe's loss on the augmented images
    # accuracy on the augmented images, before each update; in adversarial training by the model in eval mode,
    # as the attack sees it. None for language models and policies
    accuracy: float | None
    learning_rate: float  # of the epoch's last step
    seconds: float  # wall time of the training so far, without work lost to a kill
    # in adversarial training, the accuracy on the adversarial images, before each update; else None
    adversarial_accuracy: float | None = None
    # for language models, the mean over the words of the evaluation split, in nats, by the model in eval mode
    # after the epoch; else None
    evaluation_loss: float | None = None
    # mean cross-entropy, without smoothing, on the validation share of the training set (with selection
    # "released_test": on the test set), by the model in eval mode, at the last judgement; None without any
    judged_loss: float | None = None
    judged_accuracy: float | None = None  # accuracy at that judgement


class TrainingLog:
    """Records of a run, in memory and JSON lines; records without room on disk go with the next."""

    def __init__(self, path: Path | None, records: Iterable[EpochRecord] = ()):
        """Truncates the file to exactly a checkpoint's records. Without a path they stay in memory."""
        self._path = path
        self._complete = False
        self.records = list(records)
        self._try_to_complete()

    def append(self, record: EpochRecord) -> None:
        """Append the record of an epoch."""
        self.records.append(record)
        if self._path is None or not self._complete:
            self._try_to_complete()
            return
        size = self._path.stat().st_size
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line(record))
        except OSError as error:
            os.truncate(self._path, size)  # without a part of a line
            self._wait_for_room(error)

    def complete(self) -> None:
        """Write the records that the file lacks. Raises OSError: no change to the file."""
        if self._path is not None and not self._complete:
            save_text("".join(_line(record) for record in self.records), self._path)
        self._complete = True

    def _try_to_complete(self) -> None:
        try:
            self.complete()
        except OSError as error:
            self._wait_for_room(error)

    def _wait_for_room(self, error: OSError) -> None:
        if not is_disk_full(error):
            raise error
        logger.warning("the training log waits for room on the disk: %s", error)
        self._complete = False


def _line(record: EpochRecord) -> str:
    return json.dumps(asdict(record)) + "\n"
