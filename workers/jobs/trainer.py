"""The training of a train shard, in this process or as one of several."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from assay.service.catalog.catalog import load as load_catalog
from assay.service.contract.messages import CheckpointReport, ProgressReport, TrainRequest
from assay.workers import catalog
from assay.workers.containment import limits
from assay.workers.data.formats.dataset import DataSet, ExampleSet
from assay.workers.data.formats.text import TextSet, is_text
from assay.workers.evaluation.engine.loader import DType
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.jobs.cost import choose_batch_size, measure_cost, training_bytes
from assay.workers.jobs.loading import Loaded
from assay.workers.jobs.session import Session
from assay.workers.training.batch_workers import worker_count
from assay.workers.training.distributed.processes import ALONE, Processes
from assay.workers.training.loop import REPORT_SECONDS, train
from assay.workers.training.loop import Report as Report
from assay.workers.training.recipe import Recipe
from assay.workers.training.result import Trained
from assay.workers.training.selection import Judge, judge_of, validation_split
from assay.workers.weights.training_record import TrainedOn


class Told:
    """Reports of a training, and of the passes between and after its steps that judge the model."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._last: ProgressReport | None = None
        self._at = time.monotonic()

    def steps(self, message: ProgressReport | CheckpointReport) -> None:
        """Passes a report of the steps on."""
        self._at = time.monotonic()
        if message["type"] == "progress":
            self._last = message
        self._report(message)

    def judged(self, total: int) -> Callable[[int], None]:
        """Takes the number of examples judged, of a total, and reports it beside the last of the steps."""

        def tell(done: int) -> None:
            if self._last is None or time.monotonic() - self._at < REPORT_SECONDS:
                return
            self._at = time.monotonic()
            message = f"{self._last['message']}; {done} of {total} examples judged"
            self._report({**self._last, "message": message})

        return tell


def train_model(
    request: TrainRequest, session: Session, report: Report, processes: Processes = ALONE
) -> tuple[Loaded, Trained]:
    """Train the model of a request; every process of the training calls this with the same request."""
    spec = request["spec"]
    data, held_out = session.data(spec["data"], "train"), session.data(spec["data"], "test")
    loaded = session.classifier(spec, device=spec["execution"]["device"], weights=request["weights"])
    recipe: Recipe = catalog.build("recipe", spec["recipe"]["name"], spec["recipe"]["params"])()
    size = loaded.image_size if recipe.crops is None else recipe.crops.size
    _, saved_bytes = measure_cost(loaded, data, size)
    asked = spec["execution"]["batch_size"]
    batch_size = choose_batch_size(asked, loaded.device, saved_bytes)
    if asked == "auto":
        batch_size *= processes.size
    _narrow(request, loaded, data, recipe, size, batch_size, saved_bytes, processes)
    judged_on, kept, chosen = judged_rows(data, held_out, recipe, spec["seed"])
    told = Told(report)
    trained = train(
        loaded.classifier,
        data,
        recipe,
        seed=spec["seed"],
        image_size=loaded.image_size,
        batch_size=batch_size,
        device=loaded.device,
        dtype=loaded.dtype,
        folder=Path(request["folder"]),
        checkpoint_seconds=request["checkpoint_seconds"],
        report=told.steps,
        processes=processes,
        workers=worker_count(request["cores"] // processes.size, torch.get_num_threads()),
        held_out_loss=catalog.task(held_out.task).held_out_loss(
            _shard(held_out, range(len(held_out)), loaded, batch_size, told)
        ),
        rows=kept,
        judge=None if judged_on is None else _judge(judged_on, chosen, loaded, batch_size, processes, told),
        metadata={"job": request["job"], "model": json.dumps(spec["model"], sort_keys=True)}
        | TrainedOn(
            spec["data"],
            data.class_names,
            shared_examples(data.ids, held_out.ids),
            cast(TextSet, data).vocabulary.sha256 if is_text(data) else None,
            recipe.selection == "released_test",
        ).as_metadata(),
    )
    # The cached classifier now holds trained weights; the next request must not mistake it for a new one.
    session.forget()
    return loaded, trained


def _narrow(
    request: TrainRequest,
    loaded: Loaded,
    data: ExampleSet,
    recipe: Recipe,
    size: int,
    batch_size: int,
    saved_bytes: int,
    processes: Processes,
) -> None:
    """Hold this process to several times the memory of this training, and to its time in every thread."""
    step_size = recipe.step_examples(batch_size, loaded.image_size)
    memory = training_bytes(
        loaded,
        data,
        size=size,
        batch_size=-(-batch_size // processes.size),
        step_size=-(-step_size // processes.size),
        saved_bytes=saved_bytes,
        resident=limits.resident(),
    )
    seconds = request["spec"].get("timeout_seconds") or request.get("deadline_seconds")
    # Images are read by threads of this process, too.
    threads = torch.get_num_threads() + request["cores"] + 1
    limits.narrow(memory, None if seconds is None else seconds * threads)


def judged_rows(
    data: ExampleSet, held_out: ExampleSet, recipe: Recipe, seed: int
) -> tuple[ExampleSet | None, list[int] | None, Sequence[int]]:
    """The set to judge by or None, the training rows (None: all), the judged rows; ValueError: no labels."""
    if recipe.validation == 0 and recipe.selection != "released_test":
        return None, None, ()
    known = load_catalog()
    if not known.task(data.task).validation:
        able = ", ".join(name for name in known.names("task") if known.task(name).validation)
        raise ValueError(f"validation and selection are for {able}; {data.name!r} is for {data.task}")
    if recipe.selection == "released_test":
        return held_out, None, range(len(held_out.ids))
    labels = cast(DataSet, data).labels.tolist()
    kept, chosen = validation_split(data.name, data.ids, labels, recipe.validation, seed)
    return data, kept, chosen


def _judge(
    data: ExampleSet, rows: Sequence[int], loaded: Loaded, batch_size: int, processes: Processes, told: Told
) -> Judge:
    shard = _shard(data, rows, loaded, batch_size, told)

    def load(chosen: Sequence[int]) -> tuple[Tensor, Tensor]:
        return shard.images(chosen), shard.truth(chosen)

    size = -(-batch_size // processes.size)
    own = {"rank": processes.rank, "processes": processes.size}
    progress = told.judged(len(rows))
    return judge_of(load, len(rows), batch_size=size, device=loaded.device, progress=progress, **own)


def _shard(data: ExampleSet, order: Sequence[int], loaded: Loaded, batch_size: int, told: Told) -> Shard:
    return Shard(
        data=data,
        order=order,
        classifier=loaded.classifier,
        image_size=loaded.image_size,
        batch_size=batch_size,
        device=loaded.device,
        dtype=cast(DType, str(loaded.dtype).removeprefix("torch.")),
        progress=told.judged(len(order)),
    )


def shared_examples(one: Iterable[str], other: Iterable[str]) -> int:
    """Number of ids in both."""
    return len(set(one) & set(other))
