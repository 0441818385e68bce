"""Cost of an attention layer against the number of tokens, from `workers/evaluation/attention_cost.py`.

Each metric is a ratio to softmax attention on the same machine, at the longest sequence: operations and
memory are counts; of time it is the median over pairs of passes with an interval between two of them.
`time_growth` and `memory_growth` are log(y2 / y1) / log(N2 / N1) of the two longest sequences: 1 is linear, 2
quadratic. That of the time is a median over repeats, with its interval.

Legend: n rows, repeats of each length in ascending order.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from assay.service.contract.results import Metric, Warning
from assay.service.metrics.analyses.analysis_estimates import exact, median, undefined
from assay.service.metrics.analyses.svg import Panel, Series, draw
from assay.service.metrics.paired import Rows
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of
from assay.service.metrics.tables.efficiency import MEASURED_BY

__all__ = ["AttentionCost"]

KINDS = ("test", "train")
SECONDS = tuple(f"{side}{kind}_seconds" for side in ("", "softmax_") for kind in KINDS)
LABELS = {"test": "forward", "train": "training"}
RATIOS = tuple(f"{kind}_{what}_ratio" for what in ("time", "memory", "flops") for kind in KINDS)
GROWTHS = ("time_growth", "memory_growth")


class AttentionCost(OutcomeTable):
    """Repeats at each length, with the seconds of the mechanism and of softmax in each kind of pass."""

    name = "attention_cost"
    columns = columns_of(
        "id test_seconds train_seconds softmax_test_seconds softmax_train_seconds forward backward"
    )
    units: ClassVar[Units] = {**dict.fromkeys(RATIOS, "number"), **dict.fromkeys(GROWTHS, "number")}
    undefined: ClassVar[Reasons] = dict.fromkeys(GROWTHS, "one sequence length only was measured")

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """The lengths as one row, with a plot of the ratios against the length.

        At the longest sequence `test_time_ratio`, `train_time_ratio`, `test_memory_ratio`,
        `train_memory_ratio`, `test_flops_ratio` and `train_flops_ratio`, each of the mechanism to softmax,
        and of a test pass `time_growth` and `memory_growth`.
        """
        (found,) = context.facts
        counted: Sequence[Mapping[str, float]] = found["counted"]
        measured = [place for place, seconds in enumerate(rows["test_seconds"]) if seconds is not None]
        columns = {name: [rows[name][place] for place in measured] for name in SECONDS}
        repeats = len(measured) // len(counted)
        times = {
            kind: [
                [own / base for own, base in pairs]
                for pairs in _by_length(
                    list(zip(columns[f"{kind}_seconds"], columns[f"softmax_{kind}_seconds"], strict=True)),
                    repeats,
                )
            ]
            for kind in KINDS
        }
        seconds = _by_length(columns["test_seconds"], repeats)
        last = counted[-1]
        metrics = {
            **{f"{kind}_time_ratio": median(times[kind][-1]) for kind in KINDS},
            **{f"{kind}_memory_ratio": exact(_ratio(last, f"{kind}_bytes")) for kind in KINDS},
            **{f"{kind}_flops_ratio": exact(_ratio(last, f"{kind}_flops")) for kind in KINDS},
            "time_growth": median(_growths(counted, seconds)) if len(counted) > 1 else undefined(1),
            "memory_growth": _growth(counted, [one["test_bytes"] for one in counted]),
        }
        return Summary(metrics, warnings=[_warning(found, context)], plot=_plot(found, times))


def _by_length(values: Sequence[Any], repeats: int) -> list[Sequence[Any]]:
    return [values[first : first + repeats] for first in range(0, len(values), repeats)]


def _ratio(counted: Mapping[str, float], what: str) -> float:
    return counted[what] / counted[f"softmax_{what}"]


def _growths(counted: Sequence[Mapping[str, float]], seconds: Sequence[Sequence[float]]) -> list[float]:
    """The growth of the time between the two longest sequences in each repeat."""
    lengths = math.log(counted[-1]["length"] / counted[-2]["length"])
    return [math.log(last / first) / lengths for first, last in zip(*seconds[-2:], strict=True)]


def _growth(counted: Sequence[Mapping[str, float]], values: Sequence[float]) -> Metric:
    if len(counted) < 2:
        return undefined(1)
    return exact(math.log(values[-1] / values[-2]) / math.log(counted[-1]["length"] / counted[-2]["length"]))


def _warning(found: Mapping[str, Any], context: Context) -> Warning:
    device = context.device
    lengths = [int(one["length"]) for one in found["counted"]]
    refused = f"; not measured: {found['refused']}" if found["refused"] else ""
    return Warning(
        code="measures_the_machine",
        message=f"ratios of {found['mechanism']} to softmax at {lengths[-1]} tokens hold for"
        f" {device['name']} (memory: {MEASURED_BY[device['type']]}); what follows from the model's length, "
        f"such as a stride, buckets or sampled rows, is the model's own{refused}",
        evidence={"device": dict(device), "lengths": lengths, "refused": dict(found["refused"])},
    )


def _plot(found: Mapping[str, Any], times: Mapping[str, Sequence[Sequence[float]]]) -> str:
    counted = found["counted"]
    lengths = [float(one["length"]) for one in counted]
    shown = {
        "Time": {kind: [statistics.median(part) for part in times[kind]] for kind in KINDS},
        "Peak memory": {kind: [_ratio(one, f"{kind}_bytes") for one in counted] for kind in KINDS},
        "Operations": {kind: [_ratio(one, f"{kind}_flops") for one in counted] for kind in KINDS},
    }
    panels = []
    for title, kinds in shown.items():
        top = 1.1 * max(1.0, *(max(values) for values in kinds.values()))
        series = [
            Series(LABELS[kind], tuple(zip(lengths, values, strict=True)), "line")
            for kind, values in kinds.items()
        ]
        even = Series("softmax", ((lengths[0], 1.0), (lengths[-1], 1.0)), "line")
        span = (lengths[0], lengths[-1]) if len(lengths) > 1 else (0.0, 2 * lengths[0])
        label = f"{found['mechanism']} / softmax"
        panels.append(Panel(title, "tokens", label, (*series, even), span, (0.0, top), whole=True))
    return draw(panels)
