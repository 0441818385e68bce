"""Synthetic samples for metrics of all examples together, and their intervals and tests.

The true value is the limit for many examples: exact, but for segmentation, where it is that of 4 million
images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from assay.service.contract.results import Metric
from assay.service.metrics.paired import Pair
from assay.service.metrics.registry import TABLES
from assay.service.metrics.statistics import pixel_counts
from assay.service.metrics.table import Context
from assay.service.metrics.tables.anomaly import anomaly_metrics
from assay.service.metrics.tables.calibration import calibration_metrics
from assay.service.metrics.tables.perplexity import perplexity_metrics
from assay.service.metrics.tables.regression import Regression
from assay.service.metrics.tables.segmentation import segmentation_metrics
from benchmarks import coverage_replays as replays

Columns = dict[str, Any]
Rng = np.random.Generator
# The product measures so many samples of each row too, and both must agree.
CHECKED = 2
# The correlation of two models' scores of an example is 0.5.
SHARED = math.sqrt(0.5)


# Samples ----------------------------------------------------------------------------------------------------


def documents(rng: Rng, n: int) -> Columns:
    """Documents of very different lengths, with losses of their own: a mean of 4 nats per word."""
    tokens = rng.geometric(1 / 200, n) + 20
    return {"nll": tokens * rng.gamma(16, 0.25, n), "tokens": tokens}


def errors(rng: Rng, n: int) -> Columns:
    """Squared errors of normal errors."""
    return {"squared_error": rng.normal(size=n) ** 2}


def scored(rng: Rng, n: int, shared: Any = 0.0, weight: float = 0.0) -> Columns:
    """A fifth are anomalies, with a confidence lower by one standard deviation."""
    anomaly = np.arange(n) < n // 5
    noise = weight * shared + math.sqrt(1 - weight**2) * rng.normal(size=n)
    return {"anomaly": anomaly, "confidence": stats.norm.cdf(noise - anomaly)}


def answered(rng: Rng, n: int, shared: Any = 0.0, weight: float = 0.0, excess: float = 0.1) -> Columns:
    """Overconfident by this excess, or by the confidence itself below it."""
    noise = weight * shared + math.sqrt(1 - weight**2) * rng.normal(size=(2, n))
    confidence, luck = stats.beta.ppf(stats.norm.cdf(noise[0]), 4, 1), stats.norm.cdf(noise[1])
    return {"confidence": confidence, "correct": (luck < confidence - excess).astype(int)}


def calibrated(rng: Rng, n: int) -> Columns:
    """A calibrated model: noise is all there is."""
    return answered(rng, n, excess=0.0)


def annotated(rng: Rng, n: int) -> tuple[Any, Any]:
    """Pixels of four classes in 400, the last one in a fifth of the images, and the images' ease."""
    weights = rng.dirichlet([4, 2, 1, 0.5], n) * np.where(rng.random((n, 4)) < [1, 1, 1, 0.2], 1, 0)
    return rng.multinomial(400, weights / weights.sum(1, keepdims=True)), rng.beta(6, 2, (n, 1))


def predicted(rng: Rng, target: Any, ease: Any) -> Columns:
    """The pixel counts of a model."""
    found = rng.binomial(target, ease * [1, 0.95, 0.9, 0.6])
    wrong = rng.multinomial((target - found).sum(1), [0.4, 0.3, 0.2, 0.1])
    return {"intersection": found, "target": target, "predicted": found + wrong}


def segmented(rng: Rng, n: int) -> Columns:
    """Images of different ease, and a model's pixel counts."""
    return predicted(rng, *annotated(rng, n))


def plain(columns: Columns) -> dict[str, list[Any]]:
    """Lists of Python's numbers."""
    return {name: column.tolist() for name, column in columns.items()}


# True values ------------------------------------------------------------------------------------------------


@cache
def segmentation_truth() -> dict[str, float]:
    """Of many images."""
    rng, names, sums = np.random.default_rng(0), pixel_counts.COUNTS, np.zeros((3, 4))
    for _ in range(20):
        columns = segmented(rng, 200_000)
        sums += [columns[name].sum(0) for name in names]
    columns = {name: part[None] for name, part in zip(names, sums, strict=True)}
    found = replays.pixel_ratios(columns, replays.everything(1))
    return {name: float(value[0]) for name, value in found.items()}


@cache
def truth(name: str, n: int, excess: float = 0.1) -> float:
    """The limit; of the RMS calibration error that of this n, whose bins differ, and one is left out."""
    if name in ("perplexity", "rmse"):
        return math.exp(4) if name == "perplexity" else 1.0
    if name in ("miou", "mean_accuracy", "pixel_accuracy"):
        return segmentation_truth()[name]
    shares = (np.arange(1_000_000) + 0.5) / 1_000_000
    if name == "aupr":
        false = 0.8 * stats.norm.cdf(stats.norm.ppf(shares) - 1)
        return float((0.2 * shares / (0.2 * shares + false)).mean())
    confidence = stats.beta.ppf(shares, 4, 1)
    gaps = np.minimum(confidence, excess)
    if name == "aurra":
        right = (confidence - gaps)[::-1]
        return float((right.cumsum() / np.arange(1, len(right) + 1)).mean())
    if name == "ece":
        return float(gaps.mean())
    bins = n // 100 - 1
    parts = np.array_split(gaps[: round(len(gaps) * 100 * bins / n)], bins)
    return math.sqrt(sum(float(part.mean()) ** 2 for part in parts) * 100 / n)


# One model --------------------------------------------------------------------------------------------------


def of_regression(columns: dict[str, list[Any]]) -> dict[str, Metric]:
    """RMSE and MAE."""
    return Regression().summarise(columns, Context()).metrics


class Kind(NamedTuple):
    """Samples, their metrics by the product, and by the replay where the product takes long."""

    make: Callable[[Rng, int], Columns]
    measure: Callable[[Any], dict[str, Metric]]
    replay: Callable[[Columns], dict[str, Metric]] | None = None


KINDS = {
    "documents": Kind(documents, perplexity_metrics, replays.perplexities),
    "errors": Kind(errors, of_regression, replays.root_errors),
    "anomalies": Kind(scored, anomaly_metrics),
    "overconfident": Kind(answered, calibration_metrics, replays.calibrated),
    "calibrated": Kind(calibrated, calibration_metrics, replays.calibrated),
    "images": Kind(segmented, segmentation_metrics),
}
METRICS = [
    ("perplexity", "documents"),
    ("rmse", "errors"),
    ("aupr", "anomalies"),
    ("ece", "overconfident"),
    ("ece", "calibrated"),
    ("rms_calibration_error", "overconfident"),
    ("rms_calibration_error", "calibrated"),
    ("aurra", "overconfident"),
    ("miou", "images"),
    ("mean_accuracy", "images"),
    ("pixel_accuracy", "images"),
]


@cache
def simulated(kind: str, n: int, draws: int, seed: int) -> list[dict[str, Metric]]:
    """The metrics of each sample; the seed is of the samples."""
    make, measure, replay = KINDS[kind]
    rng, found = np.random.default_rng([seed, n, len(kind)]), []
    for place in range(draws):
        columns = make(rng, n)
        if replay is None:
            found.append(measure(plain(columns)))
            continue
        found.append(replay(columns))
        if place < CHECKED:
            expected = measure(plain(columns))
            for name, metric in found[-1].items():
                same(_ends(metric), _ends(expected[name]))
    return found


def _ends(metric: Metric) -> tuple[float | None, ...]:
    return metric.value, metric.ci_low, metric.ci_high


def same(found: Sequence[float | None], expected: Sequence[float | None]) -> None:
    """Stops where the numbers of a replay are not the product's."""
    for a, b in zip(found, expected, strict=True):
        if (a is None) != (b is None) or (
            a is not None and b is not None and not math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
        ):
            raise ValueError(f"the replay gives {found}, the product {expected}")


# Two models -------------------------------------------------------------------------------------------------


def alike(kind: str, rng: Rng, n: int) -> tuple[Columns, Columns]:
    """Two models that are alike on the same examples, some of which are harder for both."""
    if kind == "images":
        images = annotated(rng, n)
        return predicted(rng, *images), predicted(rng, *images)
    if kind == "anomalies":
        shared = rng.normal(size=n)
        return scored(rng, n, shared, SHARED), scored(rng, n, shared, SHARED)
    shared = rng.normal(size=(2, n))
    return answered(rng, n, shared, SHARED), answered(rng, n, shared, SHARED)


class Compared(NamedTuple):
    """The ends and p of a difference; without an interval all are None."""

    low: float | None
    high: float | None
    p_value: float | None


def compared(metric: str, sides: Sequence[Columns], n: int) -> Compared:
    """The interval and p of the product."""
    table, measure = {
        "aupr": ("anomaly", replays.average_precisions),
        "ece": ("calibration", replays.measure_ece),
        "rms_calibration_error": ("calibration", replays.measure_rms),
        "aurra": ("calibration", replays.measure_areas),
    }.get(metric, ("segmentation", replays.pixel_ratios))
    rows = [{"id": [f"{place:06d}" for place in range(n)], **plain(side)} for side in sides]
    whole = replays.everything(n)
    values = [float(measure(side, whole)[metric][0]) for side in sides]
    paired = TABLES[table].paired(Pair("coverage", rows[0], rows[1]))
    found = paired.difference(metric, (values[0], values[1])) if paired else None
    if found is None:
        raise ValueError(f"{metric} of {n} examples has no paired difference")
    return Compared(found.low, found.high, found.test.p_value if found.test else None)


def null_differences(metric: str, kind: str, n: int, draws: int) -> list[Compared]:
    """Differences of models that are alike; the metrics of pixels have the same samples."""
    return [one[metric] for one in _null("pixels" if kind == "images" else metric, kind, n, draws)]


@cache
def _null(metric: str, kind: str, n: int, draws: int) -> list[dict[str, Compared]]:
    rng, found = np.random.default_rng([n, len(metric), 5]), []
    names = [name for name, of in METRICS if of == kind] if metric == "pixels" else [metric]
    for _ in range(draws):
        sides = alike(kind, rng, n)
        found.append({name: compared(name, sides, n) for name in names})
    return found
