"""The resamples of `service/metrics`, replayed with NumPy for `benchmarks/coverage.py`.

The product draws with `random.Random(key)`, the Mersenne Twister that NumPy has too, and the key is of the
metric: every sample of n examples is resampled at the same places. Here these places are drawn once, and a
metric of all resamples is an array. Ends are computed by the product's own functions, from these arrays.
`coverage.py` measures the first samples of every row by the product as well: the ends must be the same but
for rounding. Samples have no ties, except between copies of an example.

Legend: n examples, R resamples, K classes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from assay.service.contract.results import Metric
from assay.service.metrics.statistics import estimates, intervals, pixel_counts
from assay.service.metrics.statistics.tango import carried_score, few_carry
from assay.service.metrics.tables import calibration
from assay.service.metrics.tables.perplexity import perplexity_metrics

Floats = Any
Columns = Mapping[str, Any]


class Draw(NamedTuple):
    """Examples drawn of n: their places in ascending order, (R, size), and the times of each, (R, n)."""

    places: Any
    counts: Floats


def uniforms(key: str, count: int) -> Floats:
    """The first numbers of `random.Random(key)`, in [0, 1)."""
    state = random.Random(key).getstate()[1]
    generator = np.random.RandomState()
    generator.set_state(("MT19937", np.array(state[:-1], dtype=np.uint32), state[-1], 0, 0.0))
    return generator.random_sample(count)


def counted(places: Any, n: int) -> Draw:
    """Places with their counts."""
    rows = np.arange(len(places))[:, None] * n
    counts = np.bincount((places + rows).ravel(), minlength=len(places) * n).reshape(-1, n)
    return Draw(np.sort(places, axis=1), counts * 1.0)


@cache
def resampled(key: str, sizes: tuple[int, ...], count: int) -> Draw:
    """`count` resamples of strata of these sizes, each after the other, as `random.choices` draws them."""
    n = sum(sizes)
    drawn = uniforms(key, count * n).reshape(count, n)
    starts = np.repeat(np.cumsum((0, *sizes[:-1])), sizes)
    return counted((drawn * np.repeat(sizes, sizes)).astype(np.int64) + starts, n)


@cache
def left_out(n: int) -> tuple[Draw, ...]:
    """All examples but one group, of groups of equal size."""
    kept = [np.delete(np.arange(n), sorted(out)) for out in estimates.groups(n)]
    return tuple(
        counted(np.stack([row for row in kept if len(row) == size]), n) for size in {len(row) for row in kept}
    )


# Metrics of drawn examples ----------------------------------------------------------------------------------

Measures = Callable[[Columns, Draw], dict[str, Floats]]
BIN = 100


def ranked(columns: Columns, draw: Draw) -> Any:
    """The drawn places in ascending order of confidence."""
    if (np.diff(columns["confidence"]) > 0).all():
        return draw.places
    order = np.argsort(columns["confidence"])
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return order[np.sort(ranks[draw.places], axis=1)]


def bins_of(confidence: Floats) -> Floats:
    """The bins of the ECE, (n, 15)."""
    return np.eye(15)[np.searchsorted(np.arange(1, 15) / 15, confidence)]


def width_gaps(columns: Columns, draw: Draw) -> Floats:
    """The gaps of `ece`, (R, 15)."""
    bins, gaps = bins_of(columns["confidence"]), columns["confidence"] - columns["correct"]
    return draw.counts @ (bins * gaps[:, None]) / draw.places.shape[1]


def size_gaps(columns: Columns, draw: Draw) -> Floats:
    """The gaps of `rms_calibration_error` without the last bin."""
    size = draw.places.shape[1]
    whole = size // BIN - 1
    gaps = (columns["confidence"] - columns["correct"])[ranked(columns, draw)[:, : BIN * whole]]
    return gaps.reshape(-1, whole, BIN).sum(2) / math.sqrt(BIN * size)


def areas(columns: Columns, draw: Draw) -> Floats:
    """`aurra`."""
    hits = np.asarray(columns["correct"], float)[ranked(columns, draw)[:, ::-1]]
    return (hits.cumsum(1) / np.arange(1, hits.shape[1] + 1)).mean(1)


def absolute(gaps: Floats) -> Floats:
    """The norm of `ece`."""
    return abs(gaps).sum(-1)


def root(gaps: Floats) -> Floats:
    """The norm of `rms_calibration_error`."""
    return np.sqrt((gaps**2).sum(-1))


def measure_ece(columns: Columns, draw: Draw) -> dict[str, Floats]:
    """`ece` of each row of the draw."""
    return {"ece": absolute(width_gaps(columns, draw))}


def measure_rms(columns: Columns, draw: Draw) -> dict[str, Floats]:
    """`rms_calibration_error` of each row."""
    return {"rms_calibration_error": root(size_gaps(columns, draw))}


def measure_areas(columns: Columns, draw: Draw) -> dict[str, Floats]:
    """`aurra` of each row."""
    return {"aurra": areas(columns, draw)}


def average_precisions(columns: Columns, draw: Draw) -> dict[str, Floats]:
    """`aupr` of each row; copies of an anomaly pass together."""
    anomaly, confidence = np.asarray(columns["anomaly"], bool), np.asarray(columns["confidence"])
    order = np.argsort(confidence)
    counts, anomalies = draw.counts[:, order], anomaly[order]
    hits, misses = (counts * anomalies).cumsum(1), (counts * ~anomalies).cumsum(1)
    precisions = hits / np.maximum(hits + misses, 1)
    return {"aupr": (counts * anomalies * precisions).sum(1) / hits[:, -1]}


def pixel_ratios(columns: Columns, draw: Draw) -> dict[str, Floats]:
    """`miou`, `mean_accuracy` and `pixel_accuracy` of each row, of classes that occur in it."""
    found, there, predicted = (draw.counts @ np.asarray(columns[name], float) for name in pixel_counts.COUNTS)
    means = {}
    for name, wholes in (("miou", there + predicted - found), ("mean_accuracy", there)):
        shares = np.divide(found, wholes, out=np.zeros_like(found), where=wholes > 0)
        means[name] = shares.sum(1) / (wholes > 0).sum(1)
    return means | {"pixel_accuracy": found.sum(1) / there.sum(1)}


# Intervals --------------------------------------------------------------------------------------------------


@cache
def everything(n: int) -> Draw:
    """All n examples, once."""
    return counted(np.arange(n)[None], n)


def perplexities(columns: Columns) -> dict[str, Metric]:
    """As `perplexity_metrics`."""
    losses, tokens = columns["nll"], np.asarray(columns["tokens"], float)
    n, whole = len(losses), tokens.sum()
    if not intervals.MIN_EXAMPLES <= n <= intervals.MAX_STUDENTISED:
        return perplexity_metrics({name: column.tolist() for name, column in columns.items()})
    ratio = float(losses.sum() / whole)
    order = np.lexsort((tokens, losses - ratio * tokens))
    rest, size = (losses - ratio * tokens)[order], tokens[order]
    draw = resampled("assay/bootstrap/metric/perplexity", (n,), intervals.STUDENTISED_RESAMPLES)
    sums = draw.counts @ np.stack([rest, size, rest * rest, rest * size, size * size], 1)
    shift = sums[:, 0] / sums[:, 1]
    scores = np.sort(sums[:, 0] / np.sqrt(sums[:, 2] - 2 * shift * sums[:, 3] + shift**2 * sums[:, 4]))
    outside = math.floor(0.025 * (len(scores) - 1))
    error = math.sqrt(float((rest * rest).sum())) / whole
    ends = tuple(ratio - scores[place] * error for place in (len(scores) - 1 - outside, outside))
    terms = (ratio + rest * n / whole).tolist()
    if few_carry(terms):
        ends = carried_score(terms)
    low, high = (math.exp(max(0.0, end)) for end in ends)
    bounds = intervals.Bounds(low, high, "studentised")
    return {"perplexity": estimates.measured(math.exp(ratio), bounds, n, higher_is_better=False)}


def root_errors(columns: Columns) -> dict[str, Metric]:
    """RMSE as `Regression`."""
    squares = columns["squared_error"]
    n, value = len(squares), math.sqrt(float(squares.mean()))
    if intervals.MIN_EXAMPLES <= n <= intervals.MAX_STUDENTISED:
        ends = studentised("metric/rmse", squares[None], intervals.STUDENTISED_RESAMPLES)
        low, high = (float(end[0]) for end in ends)
        bounds = intervals.Bounds(low, high, "studentised")
    else:
        bounds = intervals.mean_bounds(squares.tolist(), seed="metric/rmse")
    low, high = (math.sqrt(max(0.0, end or 0.0)) for end in bounds[:2])
    bounds = intervals.Bounds(low, high, bounds.method)
    return {"rmse": estimates.measured(value, bounds, n, higher_is_better=False)}


def calibrated(columns: Columns) -> dict[str, Metric]:
    """As `calibration_metrics`."""
    n = len(columns["confidence"])
    draw = resampled("metric/calibration", (n,), estimates.resamples(n, calibration.DRAWS))
    order = np.argsort(columns["confidence"])
    rows = {name: column[order] for name, column in columns.items()}
    confidence = rows["confidence"]
    spread = confidence * (1 - confidence)
    noise = np.sqrt(spread @ bins_of(confidence)) / n
    found = {"ece": distance(width_gaps, absolute, rows, noise, draw)}
    if whole := max(0, n // BIN - 1):
        noise = np.sqrt(spread[: BIN * whole].reshape(whole, BIN).sum(1) / (BIN * n))
        found["rms_calibration_error"] = distance(size_gaps, root, rows, noise, draw)
    outs = np.concatenate([areas(rows, one) for one in left_out(n)]).tolist()
    value = float(areas(rows, everything(n))[0])
    return found | {"aurra": estimates.jackknifed(value, outs, n)}


def distance(
    measure: Callable[[Columns, Draw], Floats],
    norm: Callable[[Floats], Floats],
    rows: Columns,
    noise: Floats,
    draw: Draw,
) -> Metric:
    """As `calibration.error_interval`, from the gaps of all resamples."""
    n = len(rows["confidence"])
    gaps, sampled = measure(rows, everything(n))[0], measure(rows, draw)
    moved, value, norms = sampled - gaps, float(norm(gaps)), norm(sampled)
    limits = math.sqrt(math.log(n)) * np.maximum(noise, np.sqrt((moved**2).mean(0)))
    sure = np.where(abs(gaps) > limits, gaps, 0.0)
    excess = float(np.quantile(norm(sure + moved) - norm(sure), 0.975))
    high = float(np.quantile(norms, 0.975) - norms.mean()) + value
    ends = (max(0.0, min(value, value - excess)), max(value, high))
    return estimates.bootstrapped(value, ends, n, higher_is_better=False)


# Studentised intervals of many samples ----------------------------------------------------------------------


def studentised(key: str, values: Floats, count: int) -> tuple[Floats, Floats]:
    """The ends of the studentised intervals of means, as `mean_bounds`, of each of (draws, n) values."""
    n = values.shape[1]
    counts = resampled(f"assay/bootstrap/{key}", (n,), count).counts.T
    mean = values.mean(1, keepdims=True)
    around = np.sort(values - mean, axis=1)
    means = around @ counts / n
    scores = np.sort(means / np.sqrt((around**2) @ counts / n - means**2), axis=1)
    outside = math.floor(0.025 * (count - 1))
    low, high = scores[:, outside], scores[:, count - 1 - outside]
    spread = np.sqrt((around**2).mean(1))
    low, high = mean[:, 0] - high * spread, mean[:, 0] - low * spread
    for place, row in enumerate(values.tolist()):
        if few_carry(row):
            low[place], high[place] = carried_score(row)
    return low, high
