"""The plan shard: reads the data's length and hash and cuts the evaluations into shards.

The plan is a pure function of the spec, the model's cost and the number of examples, so that the same
job always has the same shards, whoever plans it. A shard is a range of the evaluation order, a multiple
of the batch size long, and nominally lasts `shard_seconds`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean
from typing import cast

import torch
from torch.utils.flop_counter import FlopCounterMode

from assay.models.layers.token_model import TokenModel
from assay.service.catalog.catalog import load
from assay.service.catalog.catalog import load as load_catalog
from assay.service.contract.corruption_cells import cells_of, content_label
from assay.service.contract.messages import PlanReport, PlanRequest, ProgressReport
from assay.service.contract.records import PlannedEvaluation, PlanWithShards, ShardRange
from assay.service.contract.results import data_label
from assay.service.contract.stored_specs import EvaluationItem
from assay.workers import catalog
from assay.workers.data.formats.dataset import ExampleSet, model_class_names
from assay.workers.data.formats.sampling import evaluation_order, sampled_as
from assay.workers.data.formats.stored_corruptions import StoredCorruptions
from assay.workers.data.formats.text import LanguageSet, is_text
from assay.workers.evaluation.engine.shard import FolderReader
from assay.workers.evaluation.engine.stages import COMPATIBLE
from assay.workers.evaluation.perplexity import Perplexity
from assay.workers.jobs.segmentation_attacks import class_pixels
from assay.workers.jobs.session import Loaded, Session, data_root, examples_of
from assay.workers.jobs.sources import planned_sources
from assay.workers.published.language import known_text
from assay.workers.published.match import known_as
from assay.workers.weights.fit import check_fit, check_vocabulary
from assay.workers.weights.training_record import doubts, trained_on

# Sustained rates that turn operations into nominal seconds; only the order of magnitude matters.
NOMINAL_FLOPS = {"cpu": 2e10, "cuda": 2e13}
# What one batch may keep for the backward pass, and the largest automatic batch.
BATCH_BYTES = {"cpu": 256 * 2**20, "cuda": 8 * 2**30}
MAX_BATCH = {"cpu": 64, "cuda": 512}
BACKWARD_COST = 2.0

# Corruptions state the CPU `milliseconds` for an image of so many pixels at severity 3 on one thread, batches
# of 16: `python -m benchmarks.corruptions --turns 2`, 2026-11-22, AMD EPYC.
MEASURED_PIXELS = 224 * 224
# What does not shrink with the pixels: at 32 x 32 the fifteen took 1.11 ms, not the 0.45 ms of their pixels.
FIXED = 0.05
# To decode a JPEG file of ImageNet-C's size: the same machine and day, one thread.
READING = 0.9
# How much faster than one thread of a CPU: what is asked of corruptions on a GPU, and a few threads that
# decode. Assumed, not measured.
FASTER_MAKING = {"cpu": 1.0, "cuda": 20.0}
FASTER_READING = {"cpu": 1.0, "cuda": 4.0}
# Of images that are corrupted in their files' own size, which only the files know: about those of ADE20K.
WHOLE_IMAGE = 512 * 683


def run(request: PlanRequest, session: Session, report: Callable[[ProgressReport], None]) -> PlanReport:
    """Answer a plan request.

    Raises:
        MissingData: a data set is not there.
        BadWeights: the weights, or those of another model that an evaluation needs, are gone.
        ValueError: model and data do not fit each other.
    """
    spec = request["spec"]
    data = session.data(spec["data"], "test")
    catalog.check_rules(spec, data)
    loaded = session.classifier(spec, device=spec["execution"]["device"], weights=request["weights"])
    source = trained_on(loaded)
    names, words = (None, None) if source is None else (source.class_names, source.vocabulary)
    flops, saved_bytes = measure_cost(loaded, data)
    batch_size = choose_batch_size(spec["execution"]["batch_size"], loaded.device.type, saved_bytes)
    evaluations: list[PlannedEvaluation] = []
    shards: list[ShardRange] = []
    hashes: dict[str, str] = {}
    for index, item in enumerate(spec["evaluations"]):
        check_folders(item)
        examples = examples_of(session, spec, item)
        if isinstance(examples, StoredCorruptions):
            examples.check()
        check_fit(examples, data, names, f"evaluations[{index}].data")
        check_vocabulary(examples, data, words, f"evaluations[{index}].data")
        order = evaluation_order(sampled_as(examples), examples.ids, spec["limit"])
        repeats = catalog.repeats(item["name"], item["params"])
        n, ids = len(order) if repeats is None else repeats, (examples.ids[position] for position in order)
        cost = example_seconds(item, flops, loaded.device.type, loaded.image_size)
        cost *= windows_of(item, examples, loaded)
        doubtful = doubts(session, loaded, item["data"] or spec["data"], examples, ids)
        facts = facts_of(examples, n)
        pixels = class_pixels(item, examples, spec, session, loaded.image_size)
        if pixels is not None:
            facts["class_pixels"] = pixels
        evaluations.append({**facts, **doubtful} if repeats is None else {**facts, "repeats": repeats})
        # The library's batches go over all examples: what is left of them cannot be cut.
        whole = item["params"].get("backend") == COMPATIBLE or repeats is not None
        # A batch is of windows, where an example is a document of many windows.
        together = 1 if data.task == "language" else batch_size
        shards += cut(index, n, cost, together, math.inf if whole else request["shard_seconds"])
        label = content_label(data_label(item["data"] or spec["data"]), item["params"])
        if label not in hashes:  # of a large set it takes minutes
            hashes[label] = examples.content_sha256()
        report(
            {"type": "progress", "done": index + 1, "total": len(spec["evaluations"]), "message": "planning"}
        )
    plan: PlanWithShards = {
        "device": loaded.device.type,
        "batch_size": batch_size,
        "image_size": loaded.image_size,
        "forward_flops": flops,
        "weights_sha256": loaded.weights_sha256,
        "untrained": loaded.untrained,
        "assumed_normalization": loaded.assumed,
        "data_sha256": hashes,
        "sources": planned_sources(request, session, loaded),
        "evaluations": evaluations,
        "shards": [{**shard, "number": number} for number, shard in enumerate(shards)],
    }
    return {"type": "plan", "plan": plan}


def check_folders(item: EvaluationItem) -> None:
    """Refuse, before anything is measured, an evaluation whose folders are not there.

    Raises:
        MissingData: one is not; says how to fill it.
        CorruptData: what is in it cannot be read.
        ValueError: a name leads out of the data root.
    """
    component = load_catalog().find_evaluation(item["name"])
    if any(part.get("folder") for part in component.parameters["properties"].values()):
        reader: FolderReader = catalog.build("evaluation", item["name"], item["params"])()
        reader.check(data_root())


def facts_of(examples: ExampleSet, n: int) -> PlannedEvaluation:
    """What the merge must know of the data.

    Returns:
        `n` examples of the `available` ones are used (or there are n repeats of what measures the machine),
        with so many `classes`; `known_as` is the name of a well-known set; `published` is how many examples
        the published set has, where it has others.
    """
    facts: PlannedEvaluation = {"n": n, "available": len(examples.ids), "classes": examples.classes}
    if is_text(examples):
        language = examples.task == "language"
        count = cast(LanguageSet, examples).starts[-1] if language else len(examples.ids)
        name = known_text(examples.name, examples.classes, count)
    else:
        shown = (examples.class_names, len(examples.ids), model_class_names(examples))
        name = known_as(*shown, task=examples.task)
    published = getattr(examples, "published", None)
    if published is not None and published != len(examples.ids):
        facts["published"] = published
    if name is not None:
        facts["known_as"] = name
    return facts


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


def example_seconds(item: EvaluationItem, flops: float, device: str, image_size: int) -> float:
    """Nominal seconds (above 0) for one example of an evaluation.

    Args:
        item: The evaluation; it declares its passes.
        flops: Operations of one forward pass.
        device: "cpu" or "cuda".
        image_size: Of the model, in pixels; corrupted images are made at it.
    """
    passes = catalog.passes(item["name"], item["params"])
    work = max(passes.forward + BACKWARD_COST * passes.backward, 1.0)
    return flops * work / NOMINAL_FLOPS[device] + preparation_seconds(item, image_size, device)


def windows_of(item: EvaluationItem, examples: ExampleSet, loaded: Loaded) -> float:
    """How many windows a document of a text has on average; 1 for everything that is no document."""
    if examples.task != "language":
        return 1.0
    made = catalog.build("evaluation", item["name"], item["params"])()
    stride = made.windows(loaded.image_size).stride if isinstance(made, Perplexity) else loaded.image_size
    return max(1.0, cast(LanguageSet, examples).mean_tokens / stride)


def choose_batch_size(asked: int | str, device: str, saved_bytes: int) -> int:
    """The asked batch size; for "auto" the largest power of two whose saved tensors fit the budget."""
    if asked != "auto":
        return int(asked)
    fitting = max(1, BATCH_BYTES[device] // max(saved_bytes, 1))
    return int(min(MAX_BATCH[device], 2 ** int(math.log2(fitting))))


def measure_cost(loaded: Loaded, data: ExampleSet, size: int | None = None) -> tuple[float, int]:
    """Operations of one forward pass of one example, and the bytes it saves for the backward pass.

    Args:
        loaded: The model.
        data: What it is for. Of text an example is as long as the model takes.
        size: Height and width of the images in pixels; None for the model's own.
    """
    run = _run_once(loaded, data, size)
    storages: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    weights = {p.untyped_storage().data_ptr() for p in loaded.classifier.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        run()
    saved = sum(size for pointer, size in storages.items() if pointer not in weights)
    return max(float(counter.get_total_flops()), 1.0), saved


def _run_once(loaded: Loaded, data: ExampleSet, size: int | None) -> Callable[[], torch.Tensor]:
    """A pass of one example through the model; what it is does not matter."""
    side = size or loaded.image_size
    if is_text(data):
        model = cast(TokenModel, loaded.classifier)
        tokens = torch.ones(1, side, dtype=torch.int64, device=loaded.device)
        if data.task == "language":
            return lambda: model.negative_log_likelihood(tokens, tokens)
        return lambda: model(tokens)
    pixels = torch.zeros(1, data.channels, side, side, device=loaded.device)
    pixels = pixels.to(loaded.classifier.mean.dtype).requires_grad_()
    return lambda: loaded.classifier(pixels)


def preparation_seconds(item: EvaluationItem, image_size: int, device: str) -> float:
    """Nominal seconds for the corrupted images of one example; 0 of evaluations without corruptions.

    Args:
        item: an evaluation of a spec: {"name", "params"}.
        image_size: of the model, in pixels.
        device: "cpu" or "cuda".
    """
    params = item["params"]
    if not {"corruptions", "severities"} <= params.keys():
        return 0.0
    cells = cells_of(params)
    if params.get("source") == "stored":
        return 1e-3 * READING * len(cells) / FASTER_READING[device]
    pixels = WHOLE_IMAGE if "window" in params else image_size**2
    stated = stated_milliseconds()
    unknown = fmean(stated.values())
    milliseconds = sum(FIXED + stated.get(name, unknown) * pixels / MEASURED_PIXELS for name, _ in cells)
    return 1e-3 * milliseconds / FASTER_MAKING[device]


def stated_milliseconds() -> dict[str, float]:
    """What the corruptions of the catalog that state it cost, by name."""
    found = ((entry.name, (entry.facts or {}).get("milliseconds")) for entry in load().list("corruption"))
    return {name: float(cost) for name, cost in found if cost is not None}
