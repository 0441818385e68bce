"""Cost of a model: parameters, operations, seconds and memory per image.

The quantities are from Teo and Nguyen, NeurIPS 2024, appendix E.9, table 13, which states neither the
batch size nor how memory was measured. Here:

- multiply-adds: of matrix products, convolutions and attention, counted by torch's `FlopCounterMode` with
  attention as matrix products; `flops` is twice as many. Not counted: everything elementwise, softmax,
  normalisation, pooling, gathering. (The paper's "M" are 10^9 multiply-adds.)
- a test pass is a forward pass without gradients; a training pass is forward in training mode, cross-entropy,
  and backward to all parameters, without the optimiser's step.
- seconds: wall time of a pass over a batch, the device synchronised before and after, divided by the batch.
- memory: the allocator's peak during one pass above what was there before it (model and images), divided by
  the batch; of a training pass gradients are part of it. On CUDA by torch's statistics; on a CPU by adding up
  the allocations that the profiler records, in a pass of its own that is not timed.

    seconds = median over repeats of (wall time of a pass / batch)
    multiply_adds = flops / 2    of one example
    memory_per_image = (peak of a pass - what was held before) / batch
    memory = peak of a pass - what was held before + bytes of the model

The model runs as it does in all evaluations: deterministic kernels, no TF32, the job's arithmetic and
threads. For sequences and time series read "example" for "image": sequences are as long as the longest of the
batch, series as the model's length.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from annotated_types import Interval
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from assay.attacks.kernel import frozen
from assay.workers import accelerator
from assay.workers.evaluation.engine.analysis import Measured, in_halves
from assay.workers.evaluation.engine.loader import DType, Loader, Progress, Running
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["efficiency"]

TASKS = ("classification", "segmentation", "sequence", "series", "series_regression")
TABLE = "efficiency"
PAPER = (
    "Teo and Nguyen, Unveiling the hidden structure of self-attention via kernel principal component "
    "analysis, NeurIPS 2024, table 13"
)
REPEATS = "params.repeats"
# Images per repeat; the job's batch size may be automatic, and 64 is a guess.
PASSES = ("2 * (params.batch_size or 64)", "params.batch_size or 64")

# Operations are counted on so many images: batch statistics need two.
COUNTED_IMAGES = 2

Pass = Callable[[], None]


def efficiency(
    *,
    batch_size: Annotated[int, Interval(ge=1, le=65536)] | None = None,
    repeats: Annotated[int, Interval(ge=3, le=1000)] = 20,
    warmup: Annotated[int, Interval(ge=1, le=100)] = 3,
) -> Evaluation:
    """parameters, operations, latency and peak memory per example, in testing and in training.

    Args:
        batch_size: examples in one pass; the job's batch size if absent. Halved where memory is short.
        repeats: timed passes of each kind.
        warmup: passes of each kind before them.
    """
    return _Efficiency(batch_size, repeats, warmup)


@dataclass(frozen=True)
class _Efficiency:
    batch_size: int | None
    repeats: int
    warmup: int

    def measure(self, shard: Shard) -> Measured:
        """One row per repeat, with `test_seconds` and `train_seconds` per image, each (n,)."""
        model, dtype, count = shard.classifier, shard.dtype, len(shard.ids)
        asked = self.batch_size or shard.batch_size
        running: Running = shard.running | {"batch_size": asked}
        loader = Loader(model, shard.inputs, None, shard.ids, **running)

        def measured(size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
            # A small data set repeats its images: their content does not matter.
            images = loader.images(torch.arange(size) % count)
            with frozen(model):
                return self._measured(model, images, dtype, shard.progress)

        (values, facts), size, reduced = in_halves(asked, measured)
        names = tuple(f"repeat-{number:04d}" for number in range(self.repeats))
        passed = torch.full((self.repeats,), size, dtype=torch.int64)
        return Measured(names, values, 2 * passed, passed, facts | reduced)

    def _measured(
        self, model: nn.Module, images: Tensor, dtype: DType, progress: Progress
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        device, size, few = images.device, len(images), images[:COUNTED_IMAGES]
        facts: dict[str, Any] = {
            "batch_size": size,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "model_bytes": sum(part.nbytes for part in [*model.parameters(), *model.buffers()]),
        }
        values = {}
        trained = copy.deepcopy(model).train().requires_grad_(True)
        for place, (kind, one, make) in enumerate((("test", model, inference), ("train", trained, training))):
            run = make(one, images, dtype)
            run()  # buffers made at the first pass and kept (workspaces) do not count
            facts[f"{kind}_flops"] = count_flops(make(one, few, dtype)) / len(few)
            facts[f"{kind}_bytes"] = peak_bytes(run, device)
            for _ in range(self.warmup):
                run()
            seconds = [timed(run, device) / size for _ in range(self.repeats)]
            values[f"{kind}_seconds"] = torch.tensor(seconds, dtype=torch.float64)
            progress(self.repeats * (place + 1) // 2)
        return values, facts


def inference(model: nn.Module, images: Tensor, dtype: DType) -> Pass:
    """A forward pass without gradients."""

    def run() -> None:
        with torch.no_grad(), _precision(images, dtype):
            model(images)

    return run


def training(model: nn.Module, images: Tensor, dtype: DType) -> Pass:
    """A forward and a backward pass of a model in training mode; its gradients are freed at the end.

    The loss is the cross-entropy to the model's own predictions: labels do not affect the cost.
    """

    def run() -> None:
        with torch.enable_grad():
            with _precision(images, dtype):
                logits = model(images).float()
            loss = (logits.logsumexp(dim=1) - logits.amax(dim=1)).mean()
            loss.backward()
        model.zero_grad(set_to_none=True)

    return run


def count_flops(run: Pass) -> int:
    """Operations of matrix products, convolutions and attention in a pass; two for each multiply-add."""
    # The counter knows only some fused attention kernels; as matrix products it counts attention everywhere.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def peak_bytes(run: Pass, device: torch.device) -> int:
    """Peak memory of a pass, beyond the memory held before it."""
    if accelerator.is_accelerator(device):
        before = accelerator.reset_peak_bytes(device)
        run()
        return accelerator.peak_bytes(device) - before
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        run()
    assert profile.kineto_results is not None
    events = [event for event in profile.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def timed(run: Pass, device: torch.device) -> float:
    """Wall seconds of a pass."""
    accelerator.synchronize(device)
    begun = time.perf_counter()
    run()
    accelerator.synchronize(device)
    return time.perf_counter() - begun


def _precision(images: Tensor, dtype: DType) -> torch.autocast:
    return torch.autocast(images.device.type, torch.bfloat16, enabled=dtype == "bfloat16")
