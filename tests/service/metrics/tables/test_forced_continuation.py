"""Metrics of forced continuations by hand, and their absence for models that see later words."""

from __future__ import annotations

import math
from typing import Any

import pytest

from assay.service.metrics.statistics.intervals import wilson
from assay.service.metrics.table import Context
from assay.service.metrics.tables.forced_continuation import ForcedContinuation, forced_continuation_metrics

ROWS: dict[str, list[Any]] = {
    "id": ["a", "b", "c"],
    "nll": [1.0, 0.5, 3.0],
    "nll_before": [6.0, 4.0, 8.0],
    "tokens": [2, 2, 2],
    "hit": [True, True, False],
    "hit_before": [False, True, False],
    "swapped": [3, 0, 1],
    "words": [10, 10, 4],
    "eligible": [6, 5, 0],
    "queries": [40, 1, 70],
    "forward": [50, 3, 90],
    "backward": [10, 0, 20],
}


def test_metrics_by_hand() -> None:
    metrics = forced_continuation_metrics(ROWS)
    assert next(iter(metrics)) == "target_hit_rate"
    values = {name: metric.value for name, metric in metrics.items()}
    assert values == pytest.approx(
        {
            "target_hit_rate": 2 / 3,
            "target_hit_rate_before": 1 / 3,
            "target_perplexity": math.exp(4.5 / 6),
            "target_perplexity_before": math.exp(3),
            "words_changed": (0.3 + 0 + 0.25) / 3,
            "queries": 37,
        }
    )
    hits = metrics["target_hit_rate"]
    assert (hits.n, hits.ci_low, hits.ci_high) == (3, *wilson(2, 3))
    better = {name: metric.higher_is_better for name, metric in metrics.items()}
    assert not better["target_hit_rate"]
    assert better["target_perplexity"], "the less likely the target, the more robust the model"


def test_a_model_that_sees_later_words_has_neither_hits_nor_perplexities() -> None:
    leak: Any = {"leaks_future": {"words": 3, "compared": 10, "change": 1.0}}
    summary = ForcedContinuation().summarise(ROWS, Context(evidence=[leak]))
    without = {name for name, metric in summary.metrics.items() if metric.value is None}
    assert without == {
        *("target_hit_rate", "target_hit_rate_before", "target_perplexity", "target_perplexity_before")
    }
    (warning,) = summary.warnings
    assert warning.evidence["measured"]["target_hit_rate"] == 2 / 3
