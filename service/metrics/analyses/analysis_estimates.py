"""Values, intervals and paired differences shared by analyses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from assay.service.contract.results import Metric, Warning
from assay.service.metrics.paired import Pair, PairedMetrics, Rows
from assay.service.metrics.statistics import estimates
from assay.service.metrics.statistics.paired_estimates import Estimator, PairedEstimates


def exact(value: float) -> Metric:
    """An exact count; less is better."""
    return Metric(value=value, n=1, ci_low=value, ci_high=value, ci_method="exact", higher_is_better=False)


def undefined(n: int, *, higher_is_better: bool = False) -> Metric:
    """A metric without a value."""
    return estimates.undefined(n, higher_is_better=higher_is_better)


def mean(
    values: Sequence[float | None],
    name: str,
    *,
    lowest: float = -math.inf,
    higher_is_better: bool = False,
    bounded: bool = False,
) -> Metric:
    """The mean over examples; without a value where one has none. `bounded` values are in [0, 1]."""
    known = known_of(values)
    if known is None:
        return undefined(len(values), higher_is_better=higher_is_better)
    if bounded:
        return estimates.bounded_mean(known, higher_is_better=higher_is_better)
    return estimates.mean(known, name, lowest=lowest, higher_is_better=higher_is_better)


def median(values: Sequence[float | None]) -> Metric:
    """The median over repeats with its interval; less is better."""
    known = known_of(values)
    return undefined(len(values)) if known is None else estimates.median(known, higher_is_better=False)


def mean_over_parts(row: Sequence[float | None]) -> float | None:
    """The mean of an example's values in several layers or heads; None where one has none."""
    known = known_of(row)
    return None if known is None else math.fsum(known) / len(known)


def means_of(column: str) -> Callable[[Rows], list[float | None]]:
    """Each example's mean over the list in a column; empty where the rows lack it."""
    return lambda rows: list(map(mean_over_parts, rows.get(column, ())))


def paired_means(
    pair: Pair, values: Mapping[str, Callable[[Rows], Sequence[float | None]]], bounded: Sequence[str] = ()
) -> PairedMetrics:
    """The paired differences of means over examples."""
    return PairedEstimates(
        pair, {name: Estimator(of, largest=1.0 if name in bounded else None) for name, of in values.items()}
    )


def unmeasured(metrics: Mapping[str, Metric], reason: str) -> list[Warning]:
    """The warning that names the metrics without a value; empty where all have a value."""
    missing = [name for name, metric in metrics.items() if metric.value is None]
    message = f"{', '.join(missing)}: no value, because {reason}"
    warning = Warning(code="undefined_metric", message=message, evidence={"metrics": missing})
    return [warning] if missing else []


def known_of(values: Sequence[float | None]) -> list[float] | None:
    """The values, or None if one is missing or the list is empty."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return known if known and len(known) == len(values) else None
