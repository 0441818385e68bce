"""Nominal cost of an evaluation: model passes, corrupting or reading images, and the automatic batch size."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import fmean
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from assay.service.catalog.catalog import load
from assay.service.contract.corruption_cells import cells_of
from assay.service.contract.records import COMPILE_SECONDS, MAX_BATCH, PlannedCompile
from assay.service.contract.stored_specs import EvaluationItem
from assay.service.submission.estimate import BACKWARD_COST
from assay.workers import accelerator, catalog
from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.data.formats.text import is_text
from assay.workers.evaluation.engine.captured import SHORT, Preparing
from assay.workers.evaluation.engine.compiled import Compiled
from assay.workers.jobs.loading import Loaded

TRIALS = 3  # passes that a trial of compiling times
NOT_TRIED: PlannedCompile = {"chosen": False, "seconds": None, "ratio": None, "refused": None}
# Sustained rates that turn operations into nominal seconds; only the order of magnitude matters.
NOMINAL_FLOPS = {"cpu": 2e10, "cuda": 2e13}
# What one batch may keep for the backward pass on a CPU, and the part of its memory on a GPU.
BATCH_BYTES = 256 * 2**20
BATCH_SHARE = 8
TIMED_SECONDS = 0.2
# Memory that a shard may take: for what does not grow with the batch (tables of words, whole images, an
# analysis's matrices), and in batches as kept for a backward pass.
SPARE_BYTES = 4 * 2**30
BATCHES_HELD = 16
# In training, in copies of the model: gradients, AdamW's two moments, the average, the best weights and their
# average, and all of that once more in a checkpoint that is being written.
MODELS_HELD = 16
# And of the examples of a step, which are more than a batch where gradients are accumulated.
STEPS_HELD = 8
# Address space of a thread: its stack, and its arena of malloc.
THREAD_BYTES = 2**28

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
# Images that are corrupted in their files' own size, which only the files know: about ADE20K's size.
WHOLE_IMAGE = 512 * 683
# Milliseconds of a JPEG file written and read, as of the corruptions.
FILED = 0.84


def example_seconds(item: EvaluationItem, flops: float, device: str, image_size: int) -> float:
    """Nominal seconds (above 0) for one example of an evaluation."""
    passes = catalog.passes(item["name"], item["params"])
    work = max(passes.forward + BACKWARD_COST * passes.backward, 1.0)
    return flops * work / NOMINAL_FLOPS[device] + preparation_seconds(item, image_size, device)


def choose_batch_size(asked: int | str, device: torch.device, saved_bytes: int) -> int:
    """The asked batch size; for "auto" the largest power of two with saved tensors that fit the budget.

    The budget of a GPU is an eighth of its memory, rounded down to a power of two, so that GPUs of nearly the
    same memory get the same batches.
    """
    if asked != "auto":
        return int(asked)
    total = accelerator.total_bytes(device)
    budget = BATCH_BYTES if total is None else 2 ** int(math.log2(max(total // BATCH_SHARE, 1)))
    fitting = max(1, budget // max(saved_bytes, 1))
    return int(min(MAX_BATCH[accelerator.device_class(device)], 2 ** int(math.log2(fitting))))


def measure_cost(loaded: Loaded, data: ExampleSet, size: int | None = None) -> tuple[float, int]:
    """Operations of an example's forward pass, and the bytes that it saves for the backward pass.

    A text is as long as the model takes. `size`: height and width of the images in pixels; None: the model's
    own.
    """
    run = _forward(loaded, data, size)
    saved = _saved_bytes(loaded, run)
    with _Operations() as counted, torch.no_grad():
        run()
    return max(float(counted.total), 1.0), saved


def trained_bytes(loaded: Loaded, data: ExampleSet) -> int:
    """Bytes that an example saves for gradients of the weights, which an analysis may train: also of ids."""
    frozen = [weights for weights in loaded.classifier.parameters() if not weights.requires_grad]
    for weights in frozen:
        weights.requires_grad_(True)
    try:
        return _saved_bytes(loaded, _forward(loaded, data, None))
    finally:
        for weights in frozen:
            weights.requires_grad_(False)


def _saved_bytes(loaded: Loaded, run: Callable[[], torch.Tensor]) -> int:
    storages: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # the tensor itself would hold the pass that holds it, and never be freed

    weights = {p.untyped_storage().data_ptr() for p in loaded.classifier.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(size for pointer, size in storages.items() if pointer not in weights)


def training_bytes(
    loaded: Loaded,
    data: ExampleSet,
    *,
    size: int | None,
    batch_size: int,
    step_size: int,
    saved_bytes: int,
    resident: int,
) -> int:
    """Bytes that a training may take beyond what its process has: several times what it needs.

    `size` is the side of the images in pixels, None for the model's own; `saved_bytes` what an example saves
    for the backward pass; `resident` the bytes of the process with its data: as much again is for copies of
    the data.
    """
    model: int = sum(tensor.nbytes for tensor in loaded.classifier.state_dict().values())
    return (
        SPARE_BYTES
        + MODELS_HELD * model
        + BATCHES_HELD * batch_size * saved_bytes
        + STEPS_HELD * step_size * _input(loaded, data, size).nbytes
        + THREAD_BYTES * torch.get_num_threads()
        + resident
    )


class _Operations(TorchDispatchMode):
    """Counts as torch's `FlopCounterMode`, which imports the whole compiler: a second of every evaluator."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # what asks the compiler to skip it also imports it

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given, operation = kwargs or {}, func._overloadpacket
        if operation not in flop_registry and func is not torch.ops.prim.device.default:
            with self:
                if (decomposed := func.decompose(*args, **given)) is not NotImplemented:
                    return decomposed
        out = func(*args, **given)
        if operation in flop_registry:
            self.total += flop_registry[operation](*args, **given, out_val=out)
        return out


def forward_seconds(loaded: Loaded, data: ExampleSet, batch_size: int) -> float:
    """Measured seconds of an example's forward pass, in the best batch of up to `batch_size` examples.

    The batches double until a batch takes `TIMED_SECONDS`, so a slow model costs little more than one pass.
    """
    best, count = math.inf, 1
    _timed(_forward(loaded, data, None), loaded.device)  # libraries prepare themselves at the first pass
    while True:
        taken = _timed(_forward(loaded, data, None, count), loaded.device)
        best = min(best, taken / count)
        if count >= batch_size or taken >= TIMED_SECONDS:
            return best
        count = min(2 * count, batch_size)


def try_compile(
    loaded: Loaded, data: ExampleSet, batch_size: int, seconds: float, preparing: Preparing | None = None
) -> PlannedCompile:
    """Whether compiled passes pay in shards whose attacks take so many `seconds` each, by a trial.

    Any shard may be the first of its worker: it must save more than it takes to compile a pass, which is
    tried only where it could.
    """
    if seconds < COMPILE_SECONDS or is_text(data):
        return NOT_TRIED
    given = _input(loaded, data, None, batch_size).to(loaded.classifier.mean.dtype).requires_grad_()
    compiled = Compiled(loaded.classifier, first=0, preparing=preparing)

    def taken(model: Callable[[torch.Tensor], torch.Tensor]) -> float:
        begun = time.perf_counter()
        torch.autograd.grad(model(given).sum(), given)
        accelerator.synchronize(loaded.device)
        return time.perf_counter() - begun

    try:
        compiling = taken(compiled)
    except torch.OutOfMemoryError:  # shards halve their batches
        return {**NOT_TRIED, "refused": SHORT}
    if (refused := compiled.noted()["compiled"]["refused"]) is not None:
        return {**NOT_TRIED, "refused": refused}
    own, other = (min(taken(model) for _ in range(TRIALS)) for model in (loaded.classifier, compiled))
    chosen = seconds * (1 - other / own) > compiling
    return {"chosen": chosen, "seconds": compiling, "ratio": other / own, "refused": None}


def _timed(run: Callable[[], torch.Tensor], device: torch.device) -> float:
    begun = time.perf_counter()
    with torch.no_grad():
        run()
    accelerator.synchronize(device)
    return time.perf_counter() - begun


def _forward(
    loaded: Loaded, data: ExampleSet, size: int | None, count: int = 1
) -> Callable[[], torch.Tensor]:
    given = _input(loaded, data, size, count)
    run: Callable[[], torch.Tensor] = catalog.task(data.task).trial(loaded.classifier, given)
    return run


def _input(loaded: Loaded, data: ExampleSet, size: int | None, count: int = 1) -> torch.Tensor:
    inputs: torch.Tensor = catalog.task(data.task).trial_inputs(data, size or loaded.image_size, count)
    return inputs.to(loaded.device)


def preparation_seconds(item: EvaluationItem, image_size: int, device: str) -> float:
    """Nominal seconds for the corrupted images of an example; 0 for evaluations without corruptions."""
    params = item["params"]
    if not {"corruptions", "severities"} <= params.keys():
        return 0.0
    cells = cells_of(params)
    if params.get("source") == "stored":
        return 1e-3 * READING * len(cells) / FASTER_READING[device]
    pixels = WHOLE_IMAGE if "window" in params else image_size**2
    stated = stated_milliseconds()
    unknown = fmean(stated.values())
    # Each corrupted image may pass through a file.
    filed = FILED if params.get("as_files") else 0.0
    milliseconds = sum(
        FIXED + (filed + stated.get(name, unknown)) * pixels / MEASURED_PIXELS for name, _ in cells
    )
    return 1e-3 * milliseconds / FASTER_MAKING[device]


def stated_milliseconds() -> dict[str, float]:
    """What the corruptions of the catalog that state it cost, by name."""
    found = ((entry.name, (entry.facts or {}).get("milliseconds")) for entry in load().list("corruption"))
    return {name: float(cost) for name, cost in found if cost is not None}
