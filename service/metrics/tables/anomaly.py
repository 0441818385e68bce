"""Area under the precision-recall curve of anomaly scores.

Davis and Goadrich 2006, "The Relationship Between Precision-Recall and ROC Curves", without interpolation:
the average precision sum_t (R_t - R_(t-1)) P_t over the thresholds t from the highest score down, where
examples of the same score pass together. This is what the released evaluation of ImageNet-O takes from
scikit-learn (`average_precision_score`). The score is the negative of the confidence, and anomalies are the
positives.

The interval is from `jackknife.py`, with anomalies and others left out one at a time. Bootstraps cover
less often (`docs/statistics.md`): copies of an anomaly pass together, which raises a resample's precision.

Legend: P anomalies and N others,
n = P + N; a level is one of the G different scores of anomalies.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, ClassVar

from assay.service.contract.results import Metric
from assay.service.metrics.paired import Pair, PairedMetrics, Rows
from assay.service.metrics.statistics.estimates import measured, undefined
from assay.service.metrics.statistics.intervals import MIN_EXAMPLES, TOO_FEW, Bounds
from assay.service.metrics.statistics.jackknife import jackknife_variance, logit_bounds
from assay.service.metrics.statistics.paired_estimates import Groups, PairedEstimates, Statistic
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of

__all__ = ["Anomaly"]

COLUMNS = ("anomaly", "confidence")


class Anomaly(OutcomeTable):
    """Examples, some of them anomalies, each with the model's confidence."""

    name = "anomaly"
    columns = columns_of("id prediction forward backward confidence anomaly")
    units: ClassVar[Units] = {"aupr": "proportion"}
    undefined: ClassVar[Reasons] = {
        "aupr": "logits are not finite, or the examples are all anomalies or all others"
    }

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """The area under the precision-recall curve."""
        del context
        return Summary(anomaly_metrics(rows))

    def paired(self, pair: Pair) -> PairedMetrics:
        """A jackknife over examples; anomalies and others are two samples."""
        aupr = Statistic(_scored, _precision, stratum=itemgetter(0), left_out=_precisions_without)
        return PairedEstimates(pair, {"aupr": aupr})


def anomaly_metrics(columns: Mapping[str, Sequence[Any]]) -> dict[str, Metric]:
    """`aupr`: average precision of the anomalies, in [0, 1].

    The columns are `anomaly`, booleans, and `confidence`, in [0, 1] or None where it is not known, each (n,).
    The 95 % interval is for this share of anomalies, which is the value of an uninformative score. None where
    a confidence is unknown, or without anomalies or without others. Raises ValueError: a column is missing or
    empty, or lengths differ.
    """
    anomaly, confidence = (columns.get(name, ()) for name in COLUMNS)
    n = len(confidence)
    if not n or n != len(anomaly):
        raise ValueError(
            f"the AUPR needs columns of equal length; got {n} confidences, {len(anomaly)} anomalies"
        )
    if None in confidence or not 0 < sum(map(bool, anomaly)) < n:
        return {"aupr": undefined(n)}
    levels = _levels(anomaly, confidence)
    bounds = average_precision_bounds(*levels) if n >= MIN_EXAMPLES else TOO_FEW
    return {"aupr": measured(average_precision(*levels), bounds, n)}


def _scored(rows: Rows) -> list[tuple[bool, float] | None]:
    pairs = zip(rows["anomaly"], rows["confidence"], strict=True)
    return [None if confidence is None else (bool(one), confidence) for one, confidence in pairs]


def _precision(examples: Sequence[tuple[bool, float]]) -> float | None:
    if not 0 < sum(one for one, _ in examples) < len(examples):
        return None
    return average_precision(*_levels(*zip(*examples, strict=True)))


def _precisions_without(examples: Sequence[tuple[bool, float]], outs: Groups) -> list[float | None]:
    """The average precisions without each group, from counts by level that lack its examples."""
    thresholds = sorted({confidence for anomaly, confidence in examples if anomaly})
    levels = [bisect_left(thresholds, confidence) for _, confidence in examples]
    counts = ([0] * (len(thresholds) + 1), [0] * (len(thresholds) + 1))
    for (anomaly, _), level in zip(examples, levels, strict=True):
        counts[anomaly][level] += 1
    found: list[float | None] = []
    for out in outs:
        false, true = map(list, counts)
        for place in out:
            (true if examples[place][0] else false)[levels[place]] -= 1
        anomalies = sum(true)
        if not 0 < anomalies < len(examples) - len(out):
            found.append(None)
            continue
        rows = zip(true, accumulate(true), accumulate(false), strict=True)
        parts = (size * hits / (hits + misses) for size, hits, misses in rows if size)
        found.append(math.fsum(parts) / anomalies)
    return found


def average_precision(positives: Sequence[int], negatives: Sequence[int]) -> float:
    """The average precision, a fraction above 0, of anomalies (P,) and other examples (N,).

    Anomalies have their level, 0 for the least confident; each other example has the first level with a
    threshold that it passes, G for none.
    """
    passing, false = Counter(positives), Counter(negatives)
    levels = sorted(passing)
    true = accumulate(passing[level] for level in levels)
    wrong = _cumulated(false, levels)  # Others that lie between two levels pass with the next one.
    precisions = (
        passing[level] * hits / (hits + misses)
        for level, hits, misses in zip(levels, true, wrong, strict=True)
    )
    return math.fsum(precisions) / len(positives)


def average_precision_bounds(
    positives: Sequence[int], negatives: Sequence[int], confidence: float = 0.95
) -> Bounds:
    """The interval of the average precision.

    `TOO_FEW` of fewer than two anomalies or two others, `NO_SPREAD` where the average precision is 1, or
    changes with no example.
    """
    if min(len(positives), len(negatives)) < 2:
        return TOO_FEW
    value = average_precision(positives, negatives)
    return logit_bounds(value, list(map(jackknife_variance, _left_out(positives, negatives))), confidence)


def _left_out(positives: Sequence[int], negatives: Sequence[int]) -> tuple[list[float], list[float]]:
    """The average precisions without each anomaly, and without each other example."""
    passing, false = Counter(positives), Counter(negatives)
    levels = sorted(passing)
    sizes = [passing[level] for level in levels]
    passed = list(zip(sizes, accumulate(sizes), _cumulated(false, levels), strict=True))
    # Sums of precisions before a level, and from it on with one anomaly or one other example less.
    before = list(accumulate((size * hits / (hits + misses) for size, hits, misses in passed), initial=0.0))
    fewer_hits = [(hits - 1) / max(hits - 1 + misses, 1) for _, hits, misses in passed]
    fewer_misses = [hits / max(hits + misses - 1, 1) for _, hits, misses in passed]
    after_hit, after_miss = (
        list(accumulate((size * one for size, one in zip(sizes[::-1], part[::-1], strict=True)), initial=0.0))
        for part in (fewer_hits, fewer_misses)
    )
    count = len(positives)
    anomalies = [
        (before[place] + (size - 1) * fewer_hits[place] + after_hit[-2 - place]) / (count - 1)
        for place, size in enumerate(sizes)
        for _ in range(size)
    ]
    places = (bisect_left(levels, level) for level in negatives)
    return anomalies, [(before[place] + after_miss[-1 - place]) / count for place in places]


def _cumulated(counts: Counter[int], levels: Sequence[int]) -> Iterator[int]:
    """Cumulative counts up to each of the ascending levels."""
    passed = 0
    keys = iter(sorted(counts))
    key = next(keys, None)
    for level in levels:
        while key is not None and key <= level:
            passed += counts[key]
            key = next(keys, None)
        yield passed


def _levels(anomaly: Sequence[Any], confidence: Sequence[float]) -> tuple[list[int], list[int]]:
    """Levels of anomalies and of other examples, sorted, so that the order of rows does not matter."""
    pairs = list(zip(anomaly, confidence, strict=True))
    thresholds = sorted({value for positive, value in pairs if positive})
    sides: tuple[list[int], list[int]] = ([], [])
    for positive, value in pairs:
        sides[0 if positive else 1].append(bisect_left(thresholds, value))
    return sorted(sides[0]), sorted(sides[1])
