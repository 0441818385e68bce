"""Calibration of a model's confidence: expected and RMS calibration error, and AURRA.

ECE: Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 3, over the intervals
((i - 1) / M, i / M]. RMS calibration error: Hendrycks, Mazeika and Dietterich 2019, "Deep Anomaly Detection
with Outlier Exposure", over bins of equally many examples. AURRA, the area under the response rate accuracy
curve: Hendrycks et al. 2021, "Natural Adversarial Examples"; the mean over k of the accuracy among the k most
confident examples.

Deviations from the released code: examples of one confidence share an AURRA (the mean over their orders),
where the code takes the order that its sort happens to leave. The released RMS error leaves out the last bin,
that of the most confident examples; so does this one by default.

An error is a sum of distances: noise adds to it, and a resample is noisier than the sample. Its interval is
the percentile interval less the bias that the resamples show (Efron and Tibshirani 1993, section 10.2), at
least 0; the plain one may not hold the value.

Plain Python, since results are merged by processes that hold no tensors. Legend: n examples, M bins, R
resamples.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, count, groupby
from operator import itemgetter, truediv
from typing import Any, ClassVar, Literal

from assay.service.contract.results import Metric, Warning
from assay.service.metrics.classification import Classification
from assay.service.metrics.estimates import (
    accelerated,
    bootstrapped,
    groups,
    percentiles,
    resamples,
    undefined,
)
from assay.service.metrics.intervals import MIN_EXAMPLES
from assay.service.metrics.paired import Pair, PairedMetrics, Rows
from assay.service.metrics.paired_estimates import FirstOf, PairedEstimates, Statistic
from assay.service.metrics.table import Column, Context, Reasons, Summary, Units

# A resample draws and sorts n examples; beyond this many draws R shrinks.
DRAWS = 4_000_000

# Confidences in ascending order, and whether each answer is right.
Ordered = tuple[Sequence[float], Sequence[int]]


class Calibration(Classification):
    """Answers to unattacked examples with their confidence; outcomes of the first versions have none."""

    name = "calibration"
    columns = (*Classification.columns, Column("confidence", optional=True))
    units: ClassVar[Units] = {
        **Classification.units,
        "ece": "proportion",
        "rms_calibration_error": "proportion",
        "aurra": "proportion",
    }
    undefined: ClassVar[Reasons] = {
        "ece": "logits are not finite",
        "rms_calibration_error": "logits are not finite, or there is one bin, which the released code leaves"
        " out",
        "aurra": "logits are not finite",
    }

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Accuracies, then calibration."""
        metrics = super().summarise(rows, context).metrics
        known = calibration_metrics(rows, **context.params) if "confidence" in rows else {}
        measured = metrics | known
        return Summary(measured, warnings=_unknown(measured, known, rows))

    def paired(self, pair: Pair) -> PairedMetrics:
        """McNemar's test of the accuracies, a bootstrap over examples for the others."""
        measures = _measures(tied=True, **pair.params)
        statistics = {name: Statistic(_answers, _of(measure)) for name, measure in measures.items()}
        return FirstOf(super().paired(pair), PairedEstimates(pair, statistics))


def _unknown(measured: Mapping[str, Metric], known: Mapping[str, Metric], rows: Rows) -> list[Warning]:
    """Why the calibration metrics of a row have no value, if they have none."""
    names = [name for name in known if measured[name].value is None]
    if not names:
        return []
    unknown = sum(one is None for one in rows["confidence"])
    why = (
        f"the logits of {unknown} of {len(rows['confidence'])} examples are not finite"
        if unknown
        else f"all {len(rows['confidence'])} examples are in the last bin, which the released code leaves out"
        " (rms_bins 'released'); rms_bins 'all' counts it, a smaller rms_bin_size makes more bins"
    )
    message = "; ".join(f"{name} has no value: {why}" for name in names)
    return [Warning(code="undefined_metric", message=message, evidence={"metrics": names})]


def calibration_metrics(
    columns: Mapping[str, Sequence[Any]],
    *,
    ece_bins: int = 15,
    rms_bin_size: int = 100,
    rms_bins: Literal["released", "all"] = "released",
) -> dict[str, Metric]:
    """Metrics of one evaluation.

    Args:
        columns: `confidence`, in [0, 1] or None where it is not known, and `correct`, each (n,), sorted by
            example id.
        ece_bins: M of the ECE.
        rms_bin_size: examples in a bin of the RMS error; the last one has the rest too.
        rms_bins: "released" leaves out the last bin, "all" counts it.

    Returns:
        `ece`, `rms_calibration_error`, `aurra`: fractions with bootstrap 95 % intervals over examples. None
        where a confidence is not known, and the RMS error where no bin is counted.

    Raises:
        ValueError: a column is missing or empty, or lengths differ.
    """
    confidence, correct = (columns.get(name, ()) for name in ("confidence", "correct"))
    n = len(confidence)
    if not n or n != len(correct):
        raise ValueError(
            f"calibration needs columns of one length; got {n} confidences, {len(correct)} correct"
        )
    tied = len(set(confidence)) < n
    measures = _measures(ece_bins=ece_bins, rms_bin_size=rms_bin_size, rms_bins=rms_bins, tied=tied)
    if None in confidence:
        return {name: undefined(n, higher_is_better=name == "aurra") for name in measures}
    ordered = _ordered(zip(confidence, map(int, correct), strict=True))
    sampled: dict[str, list[float | None]] = {name: [] for name in measures}
    for resample in _resampled(ordered):
        for name, measure in measures.items():
            sampled[name].append(measure(resample))
    left_out = [measures["aurra"](_without(ordered, out)) for out in (groups(n) if n > 1 else [])]
    return {
        name: accelerated(measure(ordered), sampled[name], left_out, n)
        if name == "aurra"
        else _distance(measure(ordered), sampled[name], n)
        for name, measure in measures.items()
    }


def _measures(
    *,
    ece_bins: int = 15,
    rms_bin_size: int = 100,
    rms_bins: Literal["released", "all"] = "released",
    tied: bool,
) -> dict[str, Callable[[Ordered], float | None]]:
    """The metrics as functions of ordered examples."""
    return {
        "ece": lambda ordered: ece(ordered, ece_bins),
        "rms_calibration_error": lambda ordered: rms_error(ordered, rms_bin_size, last=rms_bins == "all"),
        "aurra": lambda ordered: aurra(ordered, tied=tied),
    }


def _ordered(answers: Iterable[tuple[float, int]]) -> Ordered:
    """By confidence; ties stay in the given order, that of ids."""
    rows = sorted(answers, key=itemgetter(0))
    return [row[0] for row in rows], [row[1] for row in rows]


def _without(ordered: Ordered, out: range) -> Ordered:
    confidence, correct = ordered
    kept = [place for place in range(len(correct)) if place not in out]
    return [confidence[place] for place in kept], [correct[place] for place in kept]


def _answers(rows: Rows) -> list[tuple[float, int] | None]:
    """Of each example its confidence, and whether it is right."""
    confidence = rows.get("confidence", ())
    if not confidence:
        return []
    pairs = zip(confidence, rows["correct"], strict=True)
    return [None if one is None else (one, int(correct)) for one, correct in pairs]


def _of(measure: Callable[[Ordered], float | None]) -> Callable[[Sequence[tuple[float, int]]], float | None]:
    return lambda answers: measure(_ordered(answers))


def ece(ordered: Ordered, bins: int) -> float:
    """The mean distance of confidence and accuracy over bins of equal width, weighted by their examples."""
    confidence, _ = ordered
    n = len(confidence)
    ends = [bisect_right(confidence, edge / bins) for edge in range(1, bins)] + [n]
    starts = [0, *ends[:-1]]
    gaps = (_gap(ordered, start, end) for start, end in zip(starts, ends, strict=True))
    return math.fsum(map(abs, gaps)) / n


def rms_error(ordered: Ordered, size: int, *, last: bool) -> float | None:
    """The root of the mean squared distance of confidence and accuracy over bins of `size` examples."""
    n = len(ordered[0])
    starts = [size * number for number in range(max(1, n // size))]
    ends = [*starts[1:], n]
    if not last:
        starts, ends = starts[:-1], ends[:-1]
    if not starts:
        return None
    bins = zip(starts, ends, strict=True)
    return math.sqrt(math.fsum(_gap(ordered, a, b) ** 2 / (b - a) for a, b in bins) / n)


def _gap(ordered: Ordered, start: int, end: int) -> float:
    """Confidence less accuracy of the examples of a bin, times their number."""
    confidence, correct = ordered
    return math.fsum(confidence[start:end]) - sum(correct[start:end])


def aurra(ordered: Ordered, *, tied: bool = True) -> float:
    """The mean over k of the accuracy among the k most confident examples.

    `tied` is false where examples of one confidence are all right or all wrong, as copies of one example are.
    """
    hits: Sequence[float] = ordered[1][::-1]
    if tied:
        hits = [hit for share, size in _tied(ordered) for hit in [share] * size]
    return math.fsum(map(truediv, accumulate(hits), count(1))) / len(hits)


def _tied(ordered: Ordered) -> Iterator[tuple[float, int]]:
    """Per confidence, from the highest: the share of right answers among its examples, and their number."""
    confidence, correct = ordered
    end = len(confidence)
    for value, _ in groupby(reversed(confidence)):
        start = bisect_left(confidence, value)
        yield sum(correct[start:end]) / (end - start), end - start
        end = start


def _resampled(ordered: Ordered) -> Iterator[Ordered]:
    """n examples drawn with replacement, R times, in order."""
    confidence, correct = ordered
    n = len(confidence)
    draws, places = random.Random("metric/calibration"), range(n)
    for _ in range(resamples(n, DRAWS)):
        drawn = sorted(draws.choices(places, k=n))
        yield [confidence[place] for place in drawn], [correct[place] for place in drawn]


def _distance(value: float | None, sampled: Sequence[float | None], n: int) -> Metric:
    """A calibration error, with the percentile interval less the bias of its resamples."""
    known = [one for one in sampled if one is not None]
    interval = None
    if value is not None and n >= MIN_EXAMPLES and known:
        low, high = percentiles(known)
        bias = math.fsum(known) / len(known) - value
        if low < high:
            interval = (max(0.0, low - bias), high - bias)
    return bootstrapped(value, interval, n, higher_is_better=False)
