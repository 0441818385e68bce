"""Accuracy under corruptions and the mean corruption error, from per-example outcomes.

Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", section 4: CE_c = (sum of the errors E_{s,c} over severities s) / (the same sum of a baseline,
there AlexNet), mCE = mean of CE_c over the baseline's corruptions. Both are means over examples of numbers
that belong to one example each, so their score intervals count examples: the 75 answers to one image are not
taken for 75 images.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from assay.service.contract.corruption_cells import SEVERITIES, Cell, cells_of
from assay.service.contract.results import Breakdown, Metric
from assay.service.metrics.answers import Answers, classified
from assay.service.metrics.paired import Pair, PairedMetrics, Rows
from assay.service.metrics.statistics.estimates import bounded_mean, proportion
from assay.service.metrics.statistics.paired_estimates import Estimator, FirstOf, PairedEstimates
from assay.service.metrics.table import Column, Context, OutcomeTable, Summary, Units, columns_of
from assay.service.metrics.tables.classification import Classification

__all__ = ["CorruptedClassification", "StoredCorruptions"]

# `top1` and `ce` are of each cell and each corruption.
UNITS: Units = {"corrupted_top1": "proportion", "mce": "ratio", "ce": "ratio", "top1": "proportion"}


class CorruptedClassification(Classification):
    """Answers to each uncorrupted image, and a flag per corruption and severity."""

    name = "corrupted_classification"
    columns = (*Classification.columns, Column("corrupted"))
    units: ClassVar[Units] = {**UNITS, **Classification.units}

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Accuracies under the corruptions, then on the uncorrupted images."""
        metrics, breakdown = _summarised(rows, context)
        return Summary(metrics | super().summarise(rows, context).metrics, breakdown)

    def paired(self, pair: Pair) -> PairedMetrics:
        """McNemar's test of the accuracy on uncorrupted images, sign flips of those under corruptions."""
        return FirstOf(super().paired(pair), _paired(pair))

    def unattacked(self, rows: Rows, context: Context) -> Answers:
        """The answers to the uncorrupted images."""
        del context
        return classified(rows, rows["correct"], attacked=True, known=True)


class StoredCorruptions(OutcomeTable):
    """Flags per corruption and severity of stored corrupted images, without the uncorrupted ones."""

    name = "stored_corruptions"
    columns = columns_of("id label forward backward corrupted")
    units: ClassVar[Units] = UNITS

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Accuracies under the corruptions."""
        return Summary(*_summarised(rows, context))

    def paired(self, pair: Pair) -> PairedMetrics:
        """Sign flips of each image's differences, all its corruptions together."""
        return _paired(pair)


def _summarised(rows: Rows, context: Context) -> tuple[dict[str, Metric], list[Breakdown]]:
    return corruption_metrics(rows["corrupted"], cells_of(context.params), context.baseline_errors)


def corruption_metrics(
    corrupted: Sequence[str], cells: Sequence[Cell], baseline_errors: Mapping[str, float] | None
) -> tuple[dict[str, Metric], list[Breakdown]]:
    """Metrics over everything, and the accuracy of each cell.

    `corrupted` has per example a text of 0 and 1: whether it was right in each cell, (n,); the cells are the
    corruptions and severities in the order of the texts. The baseline's errors are means over severities;
    None where they were not measured on such data. ValueError: a text has not one flag for each cell.

    `corrupted_top1` is the mean accuracy over corruptions and severities; `mce` the mean corruption error, 1
    for the baseline, only with all of its corruptions at all severities. Both have score intervals over
    examples. Then `top1` of each cell, with a Wilson interval; and of each corruption `top1`, the mean over
    its severities, and where there is an `mce` its part of it, `ce`: the error divided by the baseline's.
    """
    if wrong := [flags for flags in corrupted if len(flags) != len(cells)]:
        raise ValueError(f"an example has {len(wrong[0])} outcomes, {len(cells)} were to be measured")
    n = len(corrupted)
    shares = _shares(corrupted)
    metrics = {"corrupted_top1": bounded_mean(shares)}
    baseline = baseline_errors or {}
    if baseline and {(name, severity) for name in baseline for severity in SEVERITIES} <= set(cells):
        weights = [_weight(cell, baseline) for cell in cells]
        metrics["mce"] = bounded_mean(
            _relative_errors(corrupted, weights), highest=math.fsum(weights), higher_is_better=False
        )
    breakdown = _of_corruptions(corrupted, cells, baseline if "mce" in metrics else {})
    for position, (name, severity) in enumerate(cells):
        right = sum(flags[position] == "1" for flags in corrupted)
        top1 = proportion(right, n, higher_is_better=True)
        breakdown.append(Breakdown(corruption=name, severity=severity, metrics={"top1": top1}))
    return metrics, breakdown


def _shares(corrupted: Sequence[str]) -> list[float]:
    return [flags.count("1") / len(flags) for flags in corrupted]


def _relative_errors(corrupted: Sequence[str], weights: Sequence[float]) -> list[float]:
    """Of each example its part of mCE."""
    return [
        math.fsum(weight for weight, flag in zip(weights, flags, strict=True) if flag == "0")
        for flags in corrupted
    ]


def _paired(pair: Pair) -> PairedMetrics:
    estimators = {"corrupted_top1": Estimator(lambda rows: _shares(rows["corrupted"]), largest=1.0)}
    baseline, cells = _baseline(pair), cells_of(pair.params) if pair.params else []
    if baseline:
        weights = [_weight(cell, baseline) for cell in cells]
        estimators["mce"] = Estimator(
            lambda rows: _relative_errors(rows["corrupted"], weights), largest=math.fsum(weights)
        )
    return PairedEstimates(pair, estimators)


def _baseline(pair: Pair) -> dict[str, float]:
    """The baseline's error by corruption, as the results of either job show it: error / ce."""
    # A corruption without an error in both jobs has no part in the difference: its error counts as 1.
    found: dict[str, float] = {}
    for result in pair.results or ():
        for part in result.breakdown:
            top1, ce = part.metrics.get("top1"), part.metrics.get("ce")
            if isinstance(part, Breakdown) and part.corruption and top1 and ce and top1.value is not None:
                if ce.value:
                    found[part.corruption] = (1 - top1.value) / ce.value
                else:
                    found.setdefault(part.corruption, 1.0)
    return found


def _of_corruptions(
    corrupted: Sequence[str], cells: Sequence[Cell], baseline: Mapping[str, float]
) -> list[Breakdown]:
    found = []
    for name in dict.fromkeys(name for name, _ in cells):
        places = [place for place, cell in enumerate(cells) if cell[0] == name]
        shares = [sum(flags[place] == "1" for place in places) / len(places) for flags in corrupted]
        top1 = bounded_mean(shares)
        metrics = {"top1": top1}
        if name in baseline:
            metrics["ce"] = _relative(top1, baseline[name])
        found.append(Breakdown(corruption=name, severity=None, metrics=metrics))
    return found


def _relative(top1: Metric, baseline: float) -> Metric:
    """The error for an accuracy, divided by the baseline's; the ends of the interval are swapped."""
    value, low, high = (
        (1 - x) / baseline if x is not None else None for x in (top1.value, top1.ci_high, top1.ci_low)
    )
    changed = {"value": value, "ci_low": low, "ci_high": high, "higher_is_better": False}
    return top1.model_copy(update=changed)


def _weight(cell: Cell, baseline: Mapping[str, float]) -> float:
    """Weight of an error in a cell in an example's share of mCE; 0 for the extra corruptions."""
    error = baseline.get(cell[0])
    return 0.0 if error is None else 1 / (error * len(SEVERITIES) * len(baseline))
