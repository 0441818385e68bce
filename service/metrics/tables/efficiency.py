"""Cost of a model, from the measurements of `workers/evaluation/efficiency.py` on one machine.

Operations, parameters and memory are counts for a single pass; seconds are medians over repeats with
intervals, which cover this machine's variation, not differences between machines.

Legend: n repeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.service.contract.results import Metric, Warning
from assay.service.metrics.analyses.analysis_estimates import exact, median
from assay.service.metrics.analyses.svg import Panel, draw, measured
from assay.service.metrics.paired import Rows
from assay.service.metrics.table import Context, OutcomeTable, Summary, columns_of, units_of

__all__ = ["Efficiency"]

KINDS = ("test", "train")
MEASURED_BY = {
    "cuda": "peak of torch's allocator on the GPU",
    "cpu": "peak of the allocations that torch's profiler records",
}


class Efficiency(OutcomeTable):
    """Repeats in a shard, with `test_seconds` and `train_seconds` of each."""

    name = "efficiency"
    columns = columns_of("id test_seconds train_seconds forward backward")
    units = units_of(
        count="parameters multiply_adds flops train_multiply_adds",
        seconds="test_seconds train_seconds",
        bytes="test_memory_per_image train_memory_per_image test_memory train_memory",
    )

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """The repeats as one row.

        `parameters`; per example `multiply_adds` and `flops` (twice as many) of a forward pass and
        `train_multiply_adds` of a forward and backward pass; `test_seconds`, `train_seconds`; in bytes
        `test_memory_per_image` and `train_memory_per_image`, the peak above the model divided by the batch,
        and `test_memory`, `train_memory`, that peak and the model, of the whole batch.
        """
        (found,), device = context.facts, context.device
        size, held = found["batch_size"], found["model_bytes"]
        metrics = {
            "parameters": exact(found["parameters"]),
            "multiply_adds": exact(found["test_flops"] / 2),
            "flops": exact(found["test_flops"]),
            "train_multiply_adds": exact(found["train_flops"] / 2),
            **{f"{kind}_seconds": median(rows[f"{kind}_seconds"]) for kind in KINDS},
            **{f"{kind}_memory_per_image": exact(found[f"{kind}_bytes"] / size) for kind in KINDS},
            **{f"{kind}_memory": exact(found[f"{kind}_bytes"] + held) for kind in KINDS},
        }
        return Summary(metrics, warnings=[_warning(found, device)], plot=_plot(metrics, found, device))


def _warning(found: Mapping[str, Any], device: Mapping[str, Any]) -> Warning:
    how = MEASURED_BY[device["type"]]
    return Warning(
        code="measures_the_machine",
        message=f"seconds and memory hold for {device['name']} at {found['batch_size']} examples a pass"
        f" (memory: {how}); compare them with numbers of the same machine and batch size only",
        evidence={"device": dict(device), "batch_size": found["batch_size"], "memory": how},
    )


def _plot(metrics: Mapping[str, Metric], found: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    names = {0.0: "test", 1.0: "training"}
    panels = []
    for title, y_label, what, factor in (
        (f"Latency on {device['name']}"[:50], "milliseconds per example", "seconds", 1e3),
        (f"Peak memory, {found['batch_size']} examples a pass", "MB per example", "memory_per_image", 1e-6),
    ):
        shown = (metrics[f"{kind}_{what}"] for kind in KINDS)
        series = measured(enumerate(shown), title, "bars", factor)
        top = 1.1 * max(series.heights, default=0.0) or 1.0
        panels.append(Panel(title, "pass", y_label, (series,), (-0.6, 1.6), (0.0, top), names=names))
    return draw(panels)
