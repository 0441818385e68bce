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
    step: int  # done since the start of the training
    loss: float  # mean over the epoch's batches, on augmented images
    # on augmented images, before each update; in adversarial training in eval mode, as the attack sees it;
    # None for language models and policies
    accuracy: float | None
    learning_rate: float  # of the epoch's last step
    seconds: float  # of the training so far, without work lost to a kill
    # in adversarial training, on adversarial images, before each update
    adversarial_accuracy: float | None = None
    # language models: mean over the evaluation split's words, in nats, after the epoch, in eval mode
    evaluation_loss: float | None = None
    # mean cross-entropy without smoothing at the last judgement, in eval mode: on the validation share, with
    # "released_test" on the test set
    judged_loss: float | None = None
    judged_accuracy: float | None = None  # at that judgement


class TrainingLog:
    """Records of a run, in memory and JSON lines; without room on disk they go with the next."""

    def __init__(self, path: Path | None, records: Iterable[EpochRecord] = ()):
        """Truncates the file to a checkpoint's records. Without a path they stay in memory."""
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
            os.truncate(self._path, size)  # not a part of a line
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
