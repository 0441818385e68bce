"""The evaluate shard: one evaluation over one range of the evaluation order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from assay.service.catalog.catalog import load as load_catalog
from assay.service.contract.messages import (
    EvaluateRequest,
    Measurement,
    OutcomeReport,
    ProgressReport,
    runs_compiled,
)
from assay.service.contract.records import Evidence, OutcomeExtra
from assay.service.contract.stored_specs import EvaluateJobSpec, EvaluationItem, UserSpec
from assay.workers import catalog
from assay.workers.containment import limits
from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.data.formats.sampling import evaluation_order, gallery_ranks, sampled_as
from assay.workers.evaluation.engine.loader import DType
from assay.workers.evaluation.engine.outcomes import Outcomes
from assay.workers.evaluation.engine.probe import first_look, keyed_answers
from assay.workers.evaluation.engine.shard import Evaluation, Shard
from assay.workers.jobs import provenance
from assay.workers.jobs.cost import BATCHES_HELD, SPARE_BYTES, trained_bytes
from assay.workers.jobs.loading import Loaded
from assay.workers.jobs.session import Session, data_root
from assay.workers.jobs.shard_files import write_files
from assay.workers.jobs.sources import check_content, examples_of, shard_sources
from assay.workers.weights.fit import looking_at, read_by

Report = Callable[[ProgressReport], None]


def run(request: EvaluateRequest, session: Session, report: Report) -> OutcomeReport:
    """Answer an evaluate request."""
    spec, plan, number = request["spec"], request["plan"], request["evaluation"]
    provenance.check_identity(plan)
    item, planned = spec["evaluations"][number], plan["evaluations"][number]
    data = examples_of(session, spec, item)
    loaded = session.classifier(spec, device=plan["device"], weights=request["weights"])
    if loaded.weights_sha256 != plan["weights_sha256"]:
        raise ValueError("the weights changed since the job was planned")
    if len(data.ids) != planned["available"]:
        raise ValueError(
            f"{data.name!r} has {len(data.ids)} examples, it had {planned['available']} when the job was"
            " planned"
        )
    check_content(plan, session, spec, item, data)
    repeats = catalog.repeats(item["name"], item["params"])
    order = evaluation_order(sampled_as(data), data.ids, spec["limit"])
    start, stop = (request["start"], request["stop"]) if repeats is None else (0, len(order))
    ranks, order = gallery_ranks(sampled_as(data), data.ids, order, start, stop), order[start:stop]
    others = shard_sources(request, session, loaded)
    component = load_catalog().find_evaluation(item["name"])
    fits = component.kind != "attack" or spec["protocol"] in component.protocols
    protocol = spec["protocol"] if fits else component.protocols[0]
    looked_at, compiled = looking_at(loaded, data), runs_compiled(request)
    messages = _Messages(report, item, len(order), len(order) if repeats is None else repeats)
    shard = shard_of(
        spec,
        looked_at,
        data,
        order,
        batch_size=plan["batch_size"],
        protocol=protocol,
        planned=planned,
        ranks=ranks,
        save_traces=max(0, min(stop, spec.get("save_traces") or 0) - start),
        others={job: looking_at(other, data).classifier for job, other in others.items()},
        compiled=compiled,
        progress=messages.progress,
        staged=messages.staged,
        preparing=messages.preparing,
    )
    if "example_bytes" in plan:
        seconds = spec["timeout_seconds"] or plan.get("deadline_seconds")
        used = BATCHES_HELD * plan["batch_size"] * (plan["example_bytes"] or trained_bytes(loaded, data))
        limits.narrow(SPARE_BYTES + used, seconds and seconds * torch.get_num_threads())
    begun = time.monotonic()
    with keyed_answers(spec["seed"], item["name"], data.ids[order[0]], loaded.device):
        # Only the first shard of each evaluation probes: the answers would be the same.
        odd = first_look(shard, attacked=component.kind == "attack") if request["start"] == 0 else {}
        outcomes = evaluation_of(item, data.task).measure(shard)
    extra: OutcomeExtra = {
        "attack": component.kind == "attack",
        "evidence": cast(Evidence, outcomes.evidence() | odd),
        "provenance": provenance.collect(loaded.device, loaded.dtype, spec),
    }
    if (stated := load_catalog().task(data.task).row_protocol(protocol)) != spec["protocol"]:
        extra["protocol"] = stated
    if outcomes.analysis:
        extra["analysis"] = item["name"]
    write_files(extra, outcomes, request, data, protocol)
    return {**answer(outcomes, time.monotonic() - begun), "extra": extra}


def is_attack(item: EvaluationItem) -> bool:
    """Whether an item of a spec is an attack."""
    return load_catalog().find_evaluation(item["name"]).kind == "attack"


def evaluation_of(item: EvaluationItem, task: str) -> Evaluation:
    """The evaluation named by an item of a spec, with its parameters; an attack runs as the task requires."""
    made = catalog.build("evaluation", item["name"], item["params"])()
    evaluation: Evaluation = catalog.task(task).attack(made) if is_attack(item) else made
    return evaluation


def check_folders(item: EvaluationItem) -> None:
    """Refuse, before anything is measured, an evaluation without its folders or libraries."""
    if is_attack(item):
        return
    made = catalog.build("evaluation", item["name"], item["params"])()
    # A `FolderReader` (workers/evaluation/engine/shard.py), or an evaluation that needs an optional library.
    check = getattr(made, "check", None)
    if check is not None:
        check(data_root())


def check_model(
    spec: EvaluateJobSpec, number: int, loaded: Loaded, data: ExampleSet, order: Sequence[int]
) -> None:
    """Refuse, before anything is measured, a model that an evaluation does not take: a ValueError.

    The first example of `order` in its `data` is tried; the message names it and what the model does not
    take.
    """
    item = spec["evaluations"][number]
    if is_attack(item):
        return
    # A `ModelReader` (workers/evaluation/engine/shard.py).
    check = getattr(evaluation_of(item, data.task), "check_model", None)
    if check is None:
        return
    try:
        check(shard_of(spec, looking_at(loaded, data), data, order[:1], batch_size=1))
    except ValueError as error:
        raise ValueError(f"evaluations[{number}], {item['name']!r}: {error}") from error


def shard_of(spec: UserSpec, loaded: Loaded, data: ExampleSet, order: Sequence[int], **more: Any) -> Shard:
    """The input of a job's evaluation of the examples `order`; `**more` has `batch_size` at least."""
    return Shard(
        data=read_by(loaded, data),
        order=order,
        classifier=loaded.classifier,
        image_size=loaded.image_size,
        device=loaded.device,
        dtype=cast(DType, spec["execution"]["dtype"]),
        seed=spec["seed"],
        root=data_root(),
        screening=spec["execution"].get("screening"),
        capture=bool(spec["execution"].get("capture")),
        save_adversarial=bool(spec.get("save_adversarial")),
        **more,
    )


def answer(outcomes: Outcomes, seconds: float) -> Measurement:
    """The outcome report of a shard, without the extra fields."""
    return {
        "type": "outcome",
        "n": len(outcomes.ids),
        "columns": outcomes.columns(),
        "seconds": seconds,
        "forward_passes": int(outcomes.forward.sum()),
        "backward_passes": int(outcomes.backward.sum()),
    }


class _Messages:
    def __init__(self, report: Report, item: EvaluationItem, examples: int, rows: int) -> None:
        epsilon = item["params"].get("epsilon")
        self._name = str(item["name"]) if epsilon is None else f"{item['name']} {epsilon}"
        self._message = self._name
        self._report, self._examples, self._rows = report, examples, rows
        self._done = 0

    def progress(self, done: int) -> None:
        """Reports the number of rows done."""
        self._done = done
        self._report({"type": "progress", "done": done, "total": self._rows, "message": self._message})

    def preparing(self, what: str | None) -> None:
        """Reports that passes are being compiled or captured, while no example gets done; None at the end."""
        message = self._message if what is None else f"{self._name}: {what}"
        done, total = self._done, self._rows
        self._report({"type": "progress", "done": done, "total": total, "message": message, "at_once": True})

    def staged(self, stage: str, left: int) -> None:
        """Reports the end of an attack's stage, and the number of examples that hold out."""
        self._message = f"{self._name}: {left} of {self._examples} left after {stage}"
        self.progress(self._done)
