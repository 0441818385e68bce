"""The plan shard: reads the data's length and hash and cuts the evaluations into shards.

The plan is a pure function of the spec, the model's cost, the number of examples and the memory of a GPU. A
shard is a range of the evaluation order, a multiple of the batch size long, and nominally lasts
`shard_seconds`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

from assay.service.contract.corruption_cells import content_label
from assay.service.contract.findings.data_findings import DataFound, ResizedImages
from assay.service.contract.messages import PlanReport, PlanRequest, ProgressReport
from assay.service.contract.records import ModelJoin, PlannedEvaluation, PlanWithShards, ShardRange
from assay.service.contract.results import data_label
from assay.service.contract.stored_specs import ComponentReference, EvaluateJobSpec, EvaluationItem
from assay.workers import catalog
from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.data.formats.sampling import evaluation_order, sampled_as
from assay.workers.evaluation.engine.attack.stages import COMPATIBLE
from assay.workers.identity import identity
from assay.workers.jobs.cost import (
    NOMINAL_FLOPS,
    choose_batch_size,
    example_seconds,
    forward_seconds,
    measure_cost,
    try_compile,
)
from assay.workers.jobs.data_facts import (
    count_cut,
    divided_from,
    facts_of,
    found_in,
    guessed_order,
    join_by_names,
    other_content,
    resampled_images,
    resized_images,
)
from assay.workers.jobs.evaluate import check_folders, check_model, evaluation_of, is_attack
from assay.workers.jobs.loading import Loaded
from assay.workers.jobs.session import Session
from assay.workers.jobs.sources import content_hash, examples_of, planned_sources
from assay.workers.weights.fit import check_fit, check_vocabulary, read_by
from assay.workers.weights.training_record import doubts, trained_on, trained_with


def run(request: PlanRequest, session: Session, report: Callable[[ProgressReport], None]) -> PlanReport:
    """Answer a plan request."""
    spec = request["spec"]
    data = session.data(spec["data"], "test")
    catalog.check_rules(spec, data)
    loaded = session.classifier(spec, device=spec["execution"]["device"], weights=request["weights"])
    data = read_by(loaded, data)
    flops, saved_bytes = measure_cost(loaded, data)
    batch_size = choose_batch_size(spec["execution"]["batch_size"], loaded.device, saved_bytes)
    # At the measured speed the model has so many operations; unlike the shards, this depends on the worker.
    paced_flops = forward_seconds(loaded, data, batch_size) * NOMINAL_FLOPS[loaded.device_class]
    estimated_seconds = 0.0
    evaluations: list[PlannedEvaluation] = []
    shards: list[ShardRange] = []
    hashes: dict[str, str] = {}
    read: dict[str, DataFound] = {}
    for index, item in enumerate(spec["evaluations"]):
        examples = _examples(index, spec, session, data, loaded)
        order = evaluation_order(sampled_as(examples), examples.ids, spec["limit"])
        check_model(spec, index, loaded, examples, order)
        repeats = catalog.repeats(item["name"], item["params"])
        n, ids = len(order) if repeats is None else repeats, (examples.ids[position] for position in order)
        cost = _example_cost(item, examples, loaded, flops)
        estimated_seconds += n * _example_cost(item, examples, loaded, paced_flops)
        doubtful = doubts(session, loaded, item["data"] or spec["data"], examples, ids)
        inputs = _facts_of_input(item, examples, spec, session, loaded, order[:n])
        facts = {**facts_of(examples, n), **inputs}
        more = doubtful if repeats is None else {"repeats": repeats}
        evaluations.append(cast(PlannedEvaluation, {**facts, **more}))
        # The library forms its batches from all remaining examples: they cannot be cut.
        whole = item["params"].get("backend") == COMPATIBLE or repeats is not None
        together = catalog.task(data.task).examples_together(batch_size)
        shards += cut(index, n, cost, together, math.inf if whole else request["shard_seconds"])
        hashes |= content_hash(session, spec, item, examples)
        read |= _read_of(item, item["data"] or spec["data"], examples, facts.get("resized"))
        report(
            {"type": "progress", "done": index + 1, "total": len(spec["evaluations"]), "message": "planning"}
        )
    plan: PlanWithShards = {
        "identity": identity(),
        "device": loaded.device_class,
        "batch_size": batch_size,
        "image_size": loaded.image_size,
        "forward_flops": flops,
        "example_bytes": saved_bytes,
        "parameters": sum(weights.numel() for weights in loaded.classifier.parameters()),
        "estimated_seconds": estimated_seconds,
        "weights_sha256": loaded.weights_sha256,
        "untrained": loaded.untrained,
        "assumed_normalization": loaded.assumed,
        "unstated_vocabulary": loaded.unstated_vocabulary,
        "gradients_not_compared": loaded.gradients_not_compared,
        "joined": _joined(loaded, data),
        "data_sha256": hashes,
        "data_read": read,
        "sources": (others := planned_sources(request, session, loaded))["sources"],
        "sources_not_compared": others["sources_not_compared"],
        "evaluations": evaluations,
        "shards": [{**shard, "number": number} for number, shard in enumerate(shards)],
    }
    return {"type": "plan", "plan": _with_compile(plan, request, loaded, data, report)}


def _with_compile(
    plan: PlanWithShards,
    request: PlanRequest,
    loaded: Loaded,
    data: ExampleSet,
    report: Callable[[ProgressReport], None],
) -> PlanWithShards:
    if request["spec"]["execution"].get("compile") == "auto":
        items, costs = request["spec"]["evaluations"], [shard["cost"] for shard in plan["shards"]]
        attacks = [shard["cost"] for shard in plan["shards"] if is_attack(items[shard["evaluation"]])]
        seconds = plan["estimated_seconds"] * sum(attacks) / sum(costs)
        message, n = "planning: compiling passes, to see if it pays", len(items)
        told: ProgressReport = {"type": "progress", "done": n, "total": n, "message": message}

        def preparing(name: str | None) -> None:
            if name is not None:
                report({**told, "at_once": True})

        each = seconds / max(len(attacks), 1)
        plan["compile"] = try_compile(loaded, data, plan["batch_size"], each, preparing)
    return plan


def _examples(
    index: int, spec: EvaluateJobSpec, session: Session, data: ExampleSet, loaded: Loaded
) -> ExampleSet:
    item, source = spec["evaluations"][index], trained_on(loaded)
    check_folders(item)
    examples = read_by(loaded, examples_of(session, spec, item))
    catalog.task(examples.task).check(examples)
    names, words = (None, None) if source is None else (source.class_names, source.vocabulary)
    check_fit(examples, data, names, f"evaluations[{index}].data")
    check_vocabulary(examples, data, words, f"evaluations[{index}].data")
    if item["data"] is not None:
        catalog.check_rules_of_evaluation(spec, index, examples)
    return examples


def _example_cost(item: EvaluationItem, examples: ExampleSet, loaded: Loaded, flops: float) -> float:
    seconds = example_seconds(item, flops, loaded.device_class, loaded.image_size)
    windows: float = catalog.task(examples.task).windows(item, examples, loaded.image_size)
    return seconds * windows


def _read_of(
    item: EvaluationItem, source: ComponentReference, examples: ExampleSet, resized: ResizedImages | None
) -> dict[str, DataFound]:
    stated = source["params"].get("crop_fraction")
    found = found_in(examples, stated)
    if resized is not None and stated is None:
        found["crop_fraction"] = resized["crop_fraction"]
    return {content_label(data_label(source), item["params"]): found} if found else {}


def _facts_of_input(
    item: EvaluationItem,
    examples: ExampleSet,
    spec: EvaluateJobSpec,
    session: Session,
    loaded: Loaded,
    order: Sequence[int],
) -> dict[str, Any]:
    """Facts of the examples in `order` for the model, and of the order of its logits."""
    facts: dict[str, Any] = {}
    guessed = guessed_order(loaded, examples, session.data(spec["data"], "test"))
    if guessed is not None:
        facts["guessed_order"] = guessed
    source = item["data"] or spec["data"]
    label = content_label(data_label(source), item["params"])
    if (whole := divided_from(examples)) is not None and trained_on(loaded) is None:
        facts["divided_from"] = whole
    if other := other_content(source, session.content_sha256(label, examples), examples.classes):
        facts["other_content"] = other
    resampled = resampled_images(examples, order, loaded.image_size)
    fraction = getattr(examples, "crop_fraction", None)
    if resampled is not None and not trained_with(loaded, "crop_fraction", fraction):
        facts["resampled"] = resampled
    elif (resized := resized_images(examples, order, loaded.image_size)) is not None:
        facts["resized"] = resized
    if shortened := count_cut(examples, order, loaded.image_size):
        facts["cut"] = shortened
    if is_attack(item):
        facts |= catalog.task(examples.task).facts_of_attack(
            item, lambda: session.data(source, "train"), loaded.image_size
        )
    # Evaluations that generate corruptions have constants.
    choose = getattr(evaluation_of(item, examples.task), "constants_at", None)
    if choose is not None:
        facts["constants"] = choose(loaded.image_size)
    return facts


def _joined(loaded: Loaded, data: ExampleSet) -> ModelJoin | None:
    backbone: Any = loaded.classifier.backbone
    if (found := join_by_names(loaded, data)) is not None:
        return found
    labels, tokenizer = getattr(backbone, "labels_by", None), getattr(backbone, "tokenizer", None)
    if labels is None and tokenizer is None:
        return None
    names = [] if labels is None else list(backbone.label_names)
    return {"labels_by": labels, "labels": names, "own_tokenizer": tokenizer is not None}


def cut(evaluation: int, n: int, seconds: float, batch_size: int, shard_seconds: float) -> list[ShardRange]:
    """Ranges of at most `shard_seconds` nominal seconds (infinite: one), multiples of the batch size long."""
    if math.isinf(shard_seconds):
        length = n
    else:
        length = max(1, math.floor(shard_seconds / (seconds * batch_size))) * batch_size
    return [
        {
            "evaluation": evaluation,
            "start": start,
            "stop": min(start + length, n),
            "cost": (min(start + length, n) - start) * seconds,
        }
        for start in range(0, n, length)
    ]
