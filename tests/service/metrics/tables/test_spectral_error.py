"""The plot of spectral errors: intervals inside the panels, and a name for a single line."""

from __future__ import annotations

import re

from assay.service.contract.results import Metric
from assay.service.metrics.tables.spectral_error import TARGETS, _plot

FEATURES = [4, 8]


def test_wide_intervals_stay_inside_the_panel() -> None:
    metrics = {
        f"{method}_relative_error_{count}": Metric(
            value=0.1 / count,
            n=6,
            ci_low=1e-4,
            ci_high=0.9,
            ci_method="bootstrap",
            higher_is_better=False,
        )
        for method in TARGETS
        for count in FEATURES
    }
    plot = _plot(metrics, FEATURES)
    feet = [float(y) for y in re.findall(r'<text[^>]* y="([-\d.]+)"[^>]*>8</text>', plot)]
    assert len(feet) == 2
    intervals = [[float(y) for y in pair] for pair in re.findall(r'd="M[\d.]+ ([-\d.]+)V([-\d.]+)"', plot)]
    assert len(intervals) == 2 * len(TARGETS)
    for low, high in intervals:
        assert 0 < high < low < min(feet)
    assert "Target: kernelized attention, by skyformer" in plot
