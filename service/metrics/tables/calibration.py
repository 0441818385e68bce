"""Calibration of a model's confidence: expected and RMS calibration error, and AURRA.

ECE: Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 3, over the intervals
((i - 1) / M, i / M]. RMS calibration error: Hendrycks, Mazeika and Dietterich 2019, "Deep Anomaly Detection
with Outlier Exposure", over bins of equally many examples. AURRA, the area under the response rate accuracy
curve: Hendrycks et al. 2021, "Natural Adversarial Examples"; the mean over k of the accuracy among the k most
confident examples.

Deviations from the released code: examples of equal confidence share an AURRA (the mean over their orders);
the code takes the order that its sort happens to leave. The released RMS error leaves out the last bin, with
the most confident examples; so does the RMS error here by default.

An error is a norm of the gaps g between confidence and accuracy, one per bin: noise adds to it, most where
there is no gap, and a resample is noisier than the sample. With m the true gaps and e the noise, |m| is |g|
less |m + e| - |m|. The lower end is |g| less the 97.5 % quantile of this over resamples, where e is a
resample's gaps less g; m is g without the gaps that may be noise: gaps of at most sqrt(log n) standard errors
(as Andrews and Soares 2010, "Inference for Parameters Defined by Moment Inequalities ...", select moments).
The upper end is the percentile less the bias that the resamples show (Efron and Tibshirani 1993, section
10.2), at least |g|.

Legend: n examples, M bins, R resamples.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, count, groupby
from operator import add, itemgetter, sub, truediv
from typing import Any, ClassVar, Literal, NamedTuple

from assay.service.contract.results import Metric, Warning
from assay.service.metrics.answers import Answers, classified
from assay.service.metrics.paired import Pair, PairedMetrics, Rows
from assay.service.metrics.statistics.estimates import (
    Interval,
    bootstrapped,
    groups,
    jackknifed,
    percentiles,
    resamples,
    undefined,
)
from assay.service.metrics.statistics.intervals import MIN_EXAMPLES
from assay.service.metrics.statistics.paired_estimates import FirstOf, Groups, PairedEstimates, Statistic
from assay.service.metrics.table import Column, Context, Reasons, Summary, Units, units_of
from assay.service.metrics.tables.classification import Classification

__all__ = ["Calibration"]

DRAWS = 4_000_000  # A resample draws and sorts n examples; beyond this many draws R shrinks.

Ordered = tuple[Sequence[float], Sequence[int]]  # Ascending confidences, and whether each answer is right.


class Bin(NamedTuple):
    """Ordered examples from `start` to `end`; their gap is confidences less right answers, times `weight`."""

    start: int
    end: int
    weight: float


class Error(NamedTuple):
    """A calibration error."""

    bins: Callable[[Ordered], list[Bin]]  # Those of ordered examples
    norm: Callable[[Sequence[float]], float]  # From the gaps of the bins the error
    weight: Callable[[int, int], float]  # The weight of a bin, from n and its examples


class Calibration(Classification):
    """Answers to unattacked examples with their confidence; outcomes of the first versions have none."""

    name = "calibration"
    columns = (*Classification.columns, Column("confidence", optional=True))
    units: ClassVar[Units] = {
        **Classification.units,
        **units_of(proportion="ece rms_calibration_error aurra"),
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
        """McNemar's test of the accuracies, a jackknife over examples for the others."""
        statistics = {
            name: Statistic(_answers, _of(partial(_value, error)), left_out=partial(_left_out, error))
            for name, error in _errors(**pair.params).items()
        }
        statistics["aurra"] = Statistic(_answers, _of(aurra))
        return FirstOf(super().paired(pair), PairedEstimates(pair, statistics))

    def unattacked(self, rows: Rows, context: Context) -> Answers:
        """All answers: the parameters are of the calibration."""
        del context
        return classified(rows, rows["correct"], attacked=False, known=True)


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
    """`ece`, `rms_calibration_error` and `aurra`: fractions with 95 % intervals over examples.

    The columns are `confidence`, in [0, 1] or None where it is not known, and `correct`, each (n,), sorted by
    example id. The ECE has `ece_bins`, the RMS error bins of `rms_bin_size` examples, and the last one the
    rest too: "released" leaves it out, "all" counts it. Intervals are by the bootstrap, of `aurra` by the
    jackknife. None where a confidence is not known, and the RMS error where no bin is counted. Raises
    ValueError: a column is missing or empty, or lengths differ.
    """
    confidence, correct = (columns.get(name, ()) for name in ("confidence", "correct"))
    n = len(confidence)
    if not n or n != len(correct):
        raise ValueError(
            f"calibration needs columns of equal length; got {n} confidences, {len(correct)} correct"
        )
    tied = len(set(confidence)) < n
    errors = _errors(ece_bins=ece_bins, rms_bin_size=rms_bin_size, rms_bins=rms_bins)
    if None in confidence:
        return {name: undefined(n, higher_is_better=name == "aurra") for name in (*errors, "aurra")}
    ordered = _ordered(zip(confidence, map(int, correct), strict=True))
    sampled: dict[str, list[list[float]]] = {name: [] for name in errors}
    for resample in _resampled(ordered):
        for name, error in errors.items():
            sampled[name].append(_gaps(resample, error.bins(resample)))
    left_out = [aurra(_without(ordered, out), tied=tied) for out in (groups(n) if n > 1 else ())]
    return {
        **{name: _distance(error, ordered, sampled[name]) for name, error in errors.items()},
        "aurra": jackknifed(aurra(ordered, tied=tied), left_out, n),
    }


def _errors(
    *, ece_bins: int = 15, rms_bin_size: int = 100, rms_bins: Literal["released", "all"] = "released"
) -> dict[str, Error]:
    return {
        "ece": Error(lambda ordered: _equal_widths(ordered, ece_bins), absolute_norm, _share_of_all),
        "rms_calibration_error": Error(
            lambda ordered: _equal_sizes(ordered, rms_bin_size, last=rms_bins == "all"),
            root_norm,
            _root_of_share,
        ),
    }


def _ordered(answers: Iterable[tuple[float, int]]) -> Ordered:
    """By confidence; ties stay in the given order, the order of ids."""
    rows = sorted(answers, key=itemgetter(0))
    return [row[0] for row in rows], [row[1] for row in rows]


def _without(ordered: Ordered, out: Container[int]) -> Ordered:
    confidence, correct = ordered
    kept = [place for place in range(len(correct)) if place not in out]
    return [confidence[place] for place in kept], [correct[place] for place in kept]


def _answers(rows: Rows) -> list[tuple[float, int] | None]:
    confidence = rows.get("confidence", ())
    if not confidence:
        return []
    pairs = zip(confidence, rows["correct"], strict=True)
    return [None if one is None else (one, int(correct)) for one, correct in pairs]


def _of(measure: Callable[[Ordered], float | None]) -> Callable[[Sequence[tuple[float, int]]], float | None]:
    return lambda answers: measure(_ordered(answers))


def absolute_norm(gaps: Sequence[float]) -> float:
    """The sum of their sizes."""
    return math.fsum(map(abs, gaps))


def root_norm(gaps: Sequence[float]) -> float:
    """The root of the sum of their squares."""
    return math.sqrt(math.fsum(gap * gap for gap in gaps))


def _equal_widths(ordered: Ordered, bins: int) -> list[Bin]:
    """Bins of the ECE: the mean distance of confidence and accuracy over bins, weighted by their examples."""
    confidence, _ = ordered
    n = len(confidence)
    ends = [bisect_right(confidence, edge / bins) for edge in range(1, bins)] + [n]
    pairs = zip([0, *ends[:-1]], ends, strict=True)
    return [Bin(start, end, _share_of_all(n, end - start)) for start, end in pairs]


def _equal_sizes(ordered: Ordered, size: int, *, last: bool) -> list[Bin]:
    """Bins of the RMS error: the root of the mean squared distance over bins of `size` examples."""
    n = len(ordered[0])
    starts = [size * number for number in range(max(1, n // size))]
    bins = [Bin(a, b, _root_of_share(n, b - a)) for a, b in zip(starts, [*starts[1:], n], strict=True)]
    return bins if last else bins[:-1]


def _share_of_all(n: int, size: int) -> float:
    """Weight of a bin's sum of gaps: its mean gap times its share of the examples, size / n / size."""
    del size
    return 1 / n


def _root_of_share(n: int, size: int) -> float:
    """Weight of a bin's sum of gaps: its mean gap times the root of its share of the examples."""
    return 1 / math.sqrt(n * size) if size else 0.0


def _value(error: Error, ordered: Ordered) -> float | None:
    gaps = _gaps(ordered, error.bins(ordered))
    return error.norm(gaps) if gaps else None


def _left_out(error: Error, answers: Sequence[tuple[float, int]], outs: Groups) -> list[float | None]:
    """The error without each group, with the edges of all answers' bins: else their number would jump."""
    n = len(answers)
    order = sorted(range(n), key=lambda place: answers[place][0])
    bins = error.bins(_ordered(answers))
    if not bins:
        return [None] * len(outs)
    bin_of = {place: number for number, (a, b, _) in enumerate(bins) for place in order[a:b]}
    excess = [confidence - right for confidence, right in answers]
    sums = [math.fsum(excess[place] for place in order[a:b]) for a, b, _ in bins]
    found: list[float | None] = []
    for out in outs:
        less, fewer = [0.0] * len(bins), [0] * len(bins)
        for place in out & bin_of.keys():
            less[bin_of[place]] += excess[place]
            fewer[bin_of[place]] += 1
        sizes = [b - a - count for (a, b, _), count in zip(bins, fewer, strict=True)]
        gaps = [
            (whole - part) * error.weight(n - len(out), size)
            for whole, part, size in zip(sums, less, sizes, strict=True)
        ]
        found.append(error.norm(gaps))
    return found


def _gaps(ordered: Ordered, bins: Iterable[Bin]) -> list[float]:
    confidence, correct = ordered
    return [(math.fsum(confidence[a:b]) - sum(correct[a:b])) * weight for a, b, weight in bins]


def aurra(ordered: Ordered, *, tied: bool = True) -> float:
    """Mean over k of the accuracy of the k most confident; `tied`: false where all confidences differ."""
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


def _distance(error: Error, ordered: Ordered, sampled: Sequence[Sequence[float]]) -> Metric:
    """A calibration error with its interval, from the gaps of resamples."""
    confidence, n, bins = ordered[0], len(ordered[0]), error.bins(ordered)
    interval = None
    if n >= MIN_EXAMPLES and bins:
        noise = [
            weight * math.sqrt(math.fsum(one * (1 - one) for one in confidence[a:b])) for a, b, weight in bins
        ]
        interval = error_interval(error.norm, _gaps(ordered, bins), noise, sampled, n)
    return bootstrapped(_value(error, ordered), interval, n, higher_is_better=False)


def error_interval(
    norm: Callable[[Sequence[float]], float],
    gaps: Sequence[float],
    noise: Sequence[float],
    sampled: Sequence[Sequence[float]],
    n: int,
) -> Interval | None:
    """The 95 % interval of a calibration error, `norm` of the gaps; None where resamples do not differ.

    Gaps of each bin are (M,), of each resample (R, M), R at least 2. The noise has the standard errors of the
    gaps of a calibrated model with these confidences, (M,): in bins of few examples resamples have too small
    ones, and 0 where all are right.
    """
    norms = list(map(norm, sampled))
    value, (low, high) = norm(gaps), percentiles(norms)
    if low >= high:
        return None
    moved = [list(map(sub, one, gaps)) for one in sampled]
    spreads = (
        math.sqrt(math.fsum(e * e for e in column) / len(moved)) for column in zip(*moved, strict=True)
    )
    limits = (math.sqrt(math.log(n)) * max(pair) for pair in zip(noise, spreads, strict=True))
    sure = [gap if abs(gap) > limit else 0.0 for gap, limit in zip(gaps, limits, strict=True)]
    _, excess = percentiles([norm(list(map(add, sure, one))) - norm(sure) for one in moved])
    bias = math.fsum(norms) / len(norms) - value
    return max(0.0, min(value, value - excess)), max(value, high - bias)
