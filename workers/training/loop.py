"""The training loop. A resumed run is bit-identical to an uninterrupted one.

Seed and epoch key the order of the data; seed and step key augmentation, dropout, drop-path and starts of
attacks; the learning rate is a function of the step; a checkpoint holds everything else (weights, optimiser,
average, scale of the loss, sums of the epoch, log, the best weights).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.service.contract.messages import CheckpointReport, ProgressReport
from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.exhaustion import is_disk_full
from assay.workers.training.batches import Source
from assay.workers.training.checkpoint import Checkpoint, Checkpoints
from assay.workers.training.determinism import deterministic
from assay.workers.training.distributed.processes import ALONE, Processes
from assay.workers.training.fingerprint import check_same_training, environment, training_identity
from assay.workers.training.learner import Learner, StepResult
from assay.workers.training.randomness import caller_generators_restored
from assay.workers.training.recipe import Recipe
from assay.workers.training.result import Trained, TrainingDiverged, trained, write
from assay.workers.training.schedule import SCHEDULES, learning_rate
from assay.workers.training.selection import Best, Judge, Judgement
from assay.workers.training.source import Batching, source_of
from assay.workers.training.training_log import LOG_NAME, EpochRecord, TrainingLog

logger = logging.getLogger(__name__)

Report = Callable[[ProgressReport | CheckpointReport], None]

REPORT_SECONDS = 1.0  # Including the final report, at most two per second
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
NOTHING_YET = {"loss": 0.0, "correct": 0, "adversarial_correct": 0, "examples": 0}  # Sums of the epoch


def train(
    classifier: nn.Module,
    data: ExampleSet,
    recipe: Recipe,
    *,
    seed: int,
    image_size: int,
    batch_size: int,
    device: torch.device,
    dtype: torch.dtype,
    folder: Path,
    checkpoint_seconds: float,
    report: Report,
    metadata: Mapping[str, str] | None = None,
    processes: Processes = ALONE,
    workers: int = 0,
    held_out_loss: Callable[[nn.Module], float] | None = None,
    rows: Sequence[int] | None = None,
    judge: Judge | None = None,
) -> Trained:
    """Train a classifier in place, resuming from the latest intact checkpoint in `folder`; ends in eval mode.

    It maps pixels (B, C, S, S) in [0, 1] to logits (B, K), S being `image_size`, or what the training split's
    task has. `batch_size` counts a pass's examples over all processes, and a step's unless the recipe states
    more: then gradients are accumulated. bfloat16 and float16 are autocast over float32 weights, float16 with
    a scaled loss: steps whose gradients overflow are skipped.

    `report` gets the steps done, at most twice a second, and each durable checkpoint, every
    `checkpoint_seconds` of wall time and at the end. All `processes` call this alike, and the first writes
    and reports; the numbers are a single process's up to rounding, but dropout and drop-path draw others.
    After each epoch the first process asks `held_out_loss`, and all processes ask `judge`, for the log and
    the selection, about examples that are not trained on; `rows` (None: all) are.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype}; allowed: {', '.join(map(str, DTYPES))}")
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; allowed: at least 1")
    if recipe.selection != "last" and judge is None:
        raise ValueError(f"selection is {recipe.selection!r}: it needs examples to judge the model on")
    together = recipe.step_examples(batch_size, image_size)
    with caller_generators_restored(device), deterministic():
        facts = (classifier, data, recipe, seed, image_size, together, dtype, processes.size)
        identity = training_identity(*facts, at_once=batch_size, rows=rows)
        batching = Batching(
            seed=seed,
            image_size=image_size,
            batch_size=together,
            device=device,
            processes=processes,
            workers=workers,
            rows=rows,
        )
        source = source_of(data, recipe, batching)
        learner = Learner(
            classifier,
            recipe,
            seed=seed,
            data=data,
            device=device,
            dtype=dtype,
            batch_size=source.batch_size,
            at_once=batch_size,
            processes=processes,
        )
        run = _Run(learner, source, recipe, identity, folder, report, processes, held_out_loss, judge)
        learner.classifier.train()
        run.to_the_end(checkpoint_seconds)
        learner.classifier.eval()
        return run.write_result(metadata or {}, min(batch_size, source.batch_size))


@dataclass(eq=False)
class _Run:
    learner: Learner
    source: Source
    recipe: Recipe
    identity: dict[str, object]
    folder: Path
    report: Report
    processes: Processes
    held_out_loss: Callable[[nn.Module], float] | None
    judge: Judge | None

    def __post_init__(self) -> None:
        self._judgement: Judgement | None = None
        self._best: Best | None = None
        self._per_epoch = self.source.steps_per_epoch
        self._steps = self.recipe.steps or self.recipe.epochs * self._per_epoch
        self._epochs = -(-self._steps // self._per_epoch)
        self._warmup_steps = self.recipe.warmup_length(self._per_epoch)
        self._peak = self.recipe.peak_learning_rate(self.source.batch_size)
        self._step = 0
        self._saved_step = 0
        self._sums = dict(NOTHING_YET)
        self._seconds_before = 0.0
        self._unsaved = 0
        self._no_room = False
        self._durable_step = 0
        with self.processes.first_before_others():
            self._checkpoints = Checkpoints(self.folder, tidy=self.processes.first)
            records = self._resume()
        self._log = TrainingLog(self.folder / LOG_NAME if self.processes.first else None, records)
        self._started = self._reported = time.monotonic()
        self._reported_step, self._rate = self._step, 0.0

    def to_the_end(self, checkpoint_seconds: float) -> None:
        self._report_progress()
        saved_at = time.monotonic()
        with closing(self.source.between(self._step, self._steps)) as batches:
            for batch in batches:
                rate, momentum = self._learning_rate(self._step), self._momentum(self._step)
                result = self.learner.update(batch, step=self._step, learning_rate=rate, momentum=momentum)
                self._step += 1
                self._count(result)
                self._judge_if_due()
                if self._step % self._per_epoch == 0 or self._step == self._steps:
                    self._close_epoch(rate)
                now = time.monotonic()
                if now - self._reported >= REPORT_SECONDS:
                    self._report_progress()
                if now - saved_at >= checkpoint_seconds and self._step < self._steps:
                    self._save()
                    saved_at = time.monotonic()
        if not self.learner.weights_are_finite():
            raise self._diverged("a weight is not finite", self._log.records[-1].loss)
        if self._saved_step < self._steps:
            self._save()
        self._report_progress()

    def write_result(self, metadata: Mapping[str, str], at_once: int) -> Trained:
        learner, records = self.learner, self._log.records
        reduced = learner.micro_batch.reduced
        outcome = trained(
            self.folder,
            records,
            batch_size=self.source.batch_size,
            averages=learner.average is not None,
            at_once=reduced["used"] if reduced else at_once,
            selected_step=None if self._best is None else self._best.step,
            reduced=reduced,
            unsaved=self._unsaved,
        )
        if self._best is not None:
            self._best.put_back(learner.classifier, learner.average)
        if self.processes.first:
            self._log.complete()
            judged = "test set" if self.recipe.selection == "released_test" else "validation"
            write(outcome, learner.classifier, learner.average, records, metadata, judged)
        return outcome

    def _learning_rate(self, step: int) -> float:
        plan = {"steps": self._steps, "per_epoch": self._per_epoch, "warmup_steps": self._warmup_steps}
        return learning_rate(self.recipe, step, peak=self._peak, **plan)

    def _momentum(self, step: int) -> float | None:
        recipe = self.recipe
        if recipe.momentum_cycle is None:
            return None
        low, high = recipe.momentum_cycle
        shape = {"steps": self._steps, "warmup_steps": self._warmup_steps}
        return SCHEDULES[recipe.schedule](step, **shape, peak=low, start=high, minimum=high)

    def _judge_if_due(self) -> None:
        every = self.recipe.judged_every or self._per_epoch
        if self.judge is None or (self._step % every and self._step != self._steps):
            return
        self._judgement = found = self.learner.judged_by(self.judge)
        early = self._step < self.recipe.first_judged * self._steps
        if self.recipe.selection == "last" or early:
            return
        if self._best is None or found.better_than(Judgement(self._best.loss, self._best.accuracy)):
            self._best = Best.of(self._step, found, self.learner.classifier, self.learner.average)

    def _count(self, result: StepResult) -> None:
        if not math.isfinite(result.loss):
            raise self._diverged("the loss is not finite", result.loss)
        self._sums["loss"] += result.loss
        self._sums["correct"] += result.correct
        self._sums["adversarial_correct"] += result.adversarial_correct or 0
        self._sums["examples"] += result.judged

    def _diverged(self, what: str, loss: float) -> TrainingDiverged:
        return TrainingDiverged(what, step=self._step, steps=self._steps, loss=loss)

    def _close_epoch(self, learning_rate: float) -> None:
        attacked = self.recipe.adversarial is not None
        examples = max(self._sums["examples"], 1)
        epoch = -(-self._step // self._per_epoch)
        unjudged = self.learner.unjudged
        record = EpochRecord(
            epoch=epoch,
            step=self._step,
            # The last epoch may be partial.
            loss=self._sums["loss"] / (self._step - (epoch - 1) * self._per_epoch),
            accuracy=None if unjudged else self._sums["correct"] / examples,
            learning_rate=learning_rate,
            seconds=round(self._seconds(), 3),
            adversarial_accuracy=self._sums["adversarial_correct"] / examples if attacked else None,
            evaluation_loss=self._evaluated(),
            judged_loss=None if self._judgement is None else self._judgement.loss,
            judged_accuracy=None if self._judgement is None else self._judgement.accuracy,
        )
        self._log.append(record)
        self._sums = dict(NOTHING_YET)

    def _evaluated(self) -> float | None:
        if self.held_out_loss is None or not self.processes.first:
            return None
        classifier = self.learner.classifier
        classifier.eval()
        loss = self.held_out_loss(classifier)
        classifier.train()
        return loss

    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._started

    def _report_progress(self) -> None:
        now = time.monotonic()
        if self._step > self._reported_step and now > self._reported:
            examples = (self._step - self._reported_step) * self.source.batch_size
            rate = examples / (now - self._reported)
            self._rate, self._reported_step = float(f"{rate:.4g}"), self._step
        self._reported = now
        if not self.processes.first:
            return
        epoch = min(self._step // self._per_epoch + 1, self._epochs)
        message = f"epoch {epoch}/{self._epochs}"
        in_epoch = self._step % self._per_epoch
        if in_epoch and self._step < self._steps:
            message += f" loss {self._sums['loss'] / in_epoch:.3g}"
        elif self._log.records:
            message += f" loss {self._log.records[-1].loss:.3g}"
        if self._no_room:
            message += f"; the disk is full: the last checkpoint is of step {self._durable_step}"
        report = ProgressReport(type="progress", done=self._step, total=self._steps, message=message)
        self.report({**report, "examples_per_second": self._rate})

    def _save(self) -> None:
        """Write a checkpoint; every process holds the whole state. Without room, the next is tried."""
        self._saved_step = self._step
        if not self.processes.first:
            return
        state = {
            "identity": self.identity,
            "environment": environment(),
            "learner": self.learner.state(),
            "sums": self._sums,
            "log": [asdict(record) for record in self._log.records],
            "seconds": self._seconds(),
            "judgement": self._judgement and list(self._judgement),
            "best": self._best and self._best.state(),
            "unsaved": self._unsaved,
        }
        try:
            self._checkpoints.save(Checkpoint(self._step, state))
        except OSError as error:
            if not is_disk_full(error):
                raise
            logger.warning("no checkpoint of step %d: %s", self._step, error)
            self._unsaved += 1
            self._no_room = True
            self._report_progress()
            return
        self._no_room, self._durable_step = False, self._step
        self.report({"type": "checkpoint", "step": self._step})

    def _resume(self) -> list[EpochRecord]:
        checkpoint = self._checkpoints.newest()
        if checkpoint is None:
            return []
        state: Mapping[str, Any] = checkpoint.state
        check_same_training(state["identity"], self.identity, self.folder)
        if state["environment"] != environment():
            logger.warning(
                "resuming on %s what ran on %s: the result may differ in rounding",
                environment(),
                state["environment"],
            )
        self.learner.restore(state["learner"])
        self._step = self._saved_step = self._durable_step = checkpoint.step
        self._sums = dict(state["sums"])
        self._seconds_before = state["seconds"]
        # Absent in checkpoints of earlier versions.
        self._unsaved = state.get("unsaved", 0)
        self._judgement = Judgement(*state["judgement"]) if state.get("judgement") else None
        self._best = Best(**state["best"]) if state.get("best") else None
        logger.info("resuming at step %d of %d", self._step, self._steps)
        return [EpochRecord(**record) for record in state["log"]]
