"""Metrics of an attack on text."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.metrics.tables.text_attack import text_attack_metrics

ROWS = [("skipped", 1, 4, 0), ("succeeded", 30, 10, 2), ("failed", 50, 8, 3), ("succeeded", 10, 4, 2)]


def columns(rows: list[tuple[str, int, int, int]]) -> dict[str, list[Any]]:
    return dict(
        zip(("status", "queries", "words", "changed"), map(list, zip(*rows, strict=True)), strict=True)
    )


def test_skipped_examples_count_in_the_accuracies_alone() -> None:
    metrics = text_attack_metrics(columns(ROWS))
    assert {name: (metric.value, metric.n) for name, metric in metrics.items()} == {
        "accuracy": (0.75, 4),
        "accuracy_under_attack": (0.25, 4),
        "attack_success_rate": (2 / 3, 3),
        "queries": (30.0, 3),
        "words_changed": (pytest.approx(0.35), 2),
    }
    assert not metrics["attack_success_rate"].higher_is_better
    assert all(metric.ci_low <= metric.value <= metric.ci_high for metric in metrics.values())  # type: ignore[operator]


def test_without_such_examples_there_is_no_value() -> None:
    metrics = text_attack_metrics(columns([("skipped", 1, 4, 0)]))
    undefined = [name for name, metric in metrics.items() if metric.value is None]
    assert undefined == ["attack_success_rate", "queries", "words_changed"]
