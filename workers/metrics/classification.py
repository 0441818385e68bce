"""Accuracy and attack success from the per-example outcomes of a classification evaluation.

Pure functions: the same columns give the same bits, in whatever order the shards came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.contract.results import Metric
from service.contract.statistics import wilson


def classification_metrics(
    columns: Mapping[str, Sequence[Any]], *, initially_correct: Sequence[bool] | None = None
) -> dict[str, Metric]:
    """Metrics of one evaluation.

    Args:
        columns: outcome columns, each (n,), at least `correct`; `correct5` gives `top5` as well. Entries
            are booleans or 0/1. After an attack they say whether the prediction on the adversarial
            example is right.
        initially_correct: whether the same examples in the same order were right before the attack, (n,);
            gives `attack_success_rate`.

    Returns:
        `top1`: share of the n examples that are right (after an attack: accuracy under attack).
        `top5`: share whose label is among the five largest logits.
        `attack_success_rate`: of the examples that were right before, the share that is wrong now; its
        `n` counts those, and its value is None when there are none.
        All are fractions with Wilson 95 % intervals.

    Raises:
        ValueError: no `correct` column, or lengths differ.
    """
    if "correct" not in columns:
        raise ValueError(f"classification metrics need the column 'correct'; given: {sorted(columns)}")
    correct = columns["correct"]
    metrics = {"top1": proportion(_count(correct), len(correct), higher_is_better=True)}
    if "correct5" in columns:
        _check_length("correct5", columns["correct5"], correct)
        metrics["top5"] = proportion(_count(columns["correct5"]), len(correct), higher_is_better=True)
    if initially_correct is not None:
        _check_length("initially_correct", initially_correct, correct)
        after = [now for now, before in zip(correct, initially_correct, strict=True) if before]
        broken = len(after) - _count(after)
        metrics["attack_success_rate"] = proportion(broken, len(after), higher_is_better=False)
    return metrics


def proportion(successes: int, n: int, *, higher_is_better: bool) -> Metric:
    """A share of n examples with its Wilson 95 % interval; without examples, None."""
    low, high = wilson(successes, n)
    return Metric(
        value=successes / n if n else None,
        n=n,
        ci_low=low if n else None,
        ci_high=high if n else None,
        ci_method="wilson",
        higher_is_better=higher_is_better,
    )


def _count(flags: Sequence[Any]) -> int:
    return sum(bool(flag) for flag in flags)


def _check_length(name: str, column: Sequence[Any], correct: Sequence[Any]) -> None:
    if len(column) != len(correct):
        raise ValueError(f"{name!r} has {len(column)} entries, 'correct' has {len(correct)}")
