"""Segmentation under corruptions: the metrics of each corruption and severity, and their means.

Counts are added over all images before anything is divided, in each cell (a corruption at a severity); then
cells are averaged, all alike. The paper (Teo and Nguyen 2024, table 6) does not say which severities its
means are over, so the mean at each severity is given too. Intervals come from resampling images: a draw has
all cells of an image. Plain Python, since results are merged by processes that hold no tensors.

Legend: n images, K classes, R resamples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import quantiles
from typing import Any

from assay.service.contract.corruption_cells import Cell
from assay.service.contract.results import Breakdown, Metric
from assay.service.metrics.corrupted_pixel_counts import COLUMN, CellCounts, Ratios, draw, mean_ratios
from assay.service.metrics.corrupted_pixel_counts import Cell as Measured


def corrupted_segmentation_metrics(
    columns: Mapping[str, Sequence[Any]], cells: Sequence[Cell]
) -> tuple[dict[str, Metric], list[Breakdown]]:
    """Metrics over all cells, and those of each cell.

    Args:
        columns: `target` (n, K) and `corrupted_pixels` (n,), sorted by example id.
        cells: the corruptions and severities, in the order of the texts.

    Returns:
        `corrupted_miou`, `corrupted_mean_accuracy` and `corrupted_pixel_accuracy`: means over corruptions and
        severities. The breakdown has `miou`, `mean_accuracy` and `pixel_accuracy`: the mean at each severity,
        that of each corruption, then those of each cell. Fractions, with percentile bootstrap 95 % intervals
        over images; None where no pixel has a class.

    Raises:
        ValueError: an image has not one text for each cell, or a text cannot be read.
    """
    counts = CellCounts(columns["target"], columns[COLUMN])
    if counts.cells != len(cells):
        raise ValueError(f"an image has {counts.cells} outcomes, {len(cells)} were to be measured")
    draws = draw(counts.n, counts.resamples(), "metric/corrupted_segmentation")
    found = dict(zip(cells, counts.ratios(draws), strict=True))
    breakdown = []
    for corruption, severity in (*_means(cells), *cells):
        part = [m for (c, s), m in found.items() if corruption in (None, c) and severity in (None, s)]
        metrics = _metrics(_mean(part), counts.n)
        breakdown.append(Breakdown(corruption=corruption, severity=severity, metrics=metrics))
    whole = _metrics(_mean(list(found.values())), counts.n)
    return {f"corrupted_{name}": metric for name, metric in whole.items()}, breakdown


def _means(cells: Sequence[Cell]) -> Iterator[tuple[str | None, int | None]]:
    """Every severity over all corruptions, then every corruption over all severities."""
    yield from ((None, severity) for severity in sorted({severity for _, severity in cells}))
    yield from ((name, None) for name in dict.fromkeys(name for name, _ in cells))


def _mean(parts: Sequence[Measured]) -> Measured:
    sampled = [mean_ratios(resample) for resample in zip(*(part.sampled for part in parts), strict=True)]
    return Measured(mean_ratios([part.whole for part in parts]), sampled)


def _metrics(measured: Measured, n: int) -> dict[str, Metric]:
    return {name: _metric(value, name, measured.sampled, n) for name, value in measured.whole.items()}


def _metric(value: float | None, name: str, sampled: Sequence[Ratios], n: int) -> Metric:
    known = [found for one in sampled if (found := one[name]) is not None]
    # Of 39 cuts the first and the last leave 2.5 % outside.
    cuts = quantiles(known, n=40, method="inclusive") if value is not None else None
    return Metric(
        value=value,
        n=n,
        ci_low=cuts[0] if cuts else None,
        ci_high=cuts[-1] if cuts else None,
        ci_method="bootstrap",
        higher_is_better=True,
    )
