"""Values of a metric example by example; their mean is the metric. A study's two-way analysis works on them.

A mean over examples has its own column. Ratios of sums and functions of them (perplexity, RMSE, attack
success, pixel ratios) are linearised: with r = sum(b) / sum(a), the value of example i is
g(r) + g'(r) (b_i - r a_i) / mean(a), the metric plus the example's empirical influence (Efron and Tibshirani
1993, section 21.3). The mean of these values is the metric itself, to the last bits; a column with a mean
other than the reported value is not used.

Legend: n examples, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import compress

from assay.service.contract.corruption_cells import SEVERITIES, cells_of
from assay.service.contract.results import Breakdown, EvaluationResult
from assay.service.metrics.paired import Rows
from assay.service.metrics.tables.forced_continuation import changed

Values = list[float]
MEANS = {  # Metric to column: the mean of it, where the table has it.
    "top1": "correct", "top5": "correct5", "top1_8bit": "correct8",
    "expected_accuracy_under_attack": "expected", "expected_accuracy": "clean_expected",
    "expected_top1": "expected", "clean_expected_top1": "clean_expected", "accuracy_under_attack": "correct",
    "accuracy": "clean_correct", "normalized_return": "normalized", "return": "return",
    "episode_length": "length", "action_change": "action_change",
}  # fmt: skip
# The same of prompts that make a model say a target: other tables have other such columns.
OF_PROMPTS = {"target_hit_rate": "hit", "target_hit_rate_before": "hit_before", "queries": "queries"}
LOSSES_OF_PROMPTS = {"target_perplexity": "nll", "target_perplexity_before": "nll_before"}
ROOTS = {"rmse": "squared_error", "clean_rmse": "clean_squared_error"}
PERPLEXITIES = {  # Metric to columns of losses and words; True takes the swapped words away.
    "perplexity": ("nll", False),
    "perplexity_unswapped": ("kept_nll", True),
    "perplexity_unswapped_before": ("kept_nll_before", True),
}
WORD_SHARES = {
    "swapped_words": "swapped",
    "unknown_words": "unknown",
    "unknown_words_before": "unknown_before",
}
PIXEL_RATIOS = ("miou", "mean_accuracy", "pixel_accuracy")
RATIOS = frozenset(
    (*PIXEL_RATIOS, *WORD_SHARES)
)  # of sums: their values are influences, no shares of an example
TOLERANCE = 1e-9


def per_example(metric: str, result: EvaluationResult, rows: Rows) -> dict[str, float] | None:
    """The values of a metric by example id; None where the columns give another metric, or another value."""
    reported = result.metrics[metric].value
    ids = rows.get("id", ())
    if reported is None or not len(ids):
        return None
    try:
        values = _of_prompts(metric, rows) if "hit_before" in rows else _values(metric, result, rows)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None  # a column of an earlier version, or without a value for some example
    if values is None or len(values) != len(ids) or not all(map(math.isfinite, values)):
        return None
    if abs(math.fsum(values) / len(values) - reported) > TOLERANCE * max(1.0, abs(reported)):
        return None
    return dict(zip(ids, values, strict=True))


def _values(metric: str, result: EvaluationResult, rows: Rows) -> Values | None:
    if metric in MEANS:
        return list(map(float, rows[MEANS[metric]]))
    if metric == "mae":
        return [math.sqrt(square) for square in rows["squared_error"]]
    if metric in ROOTS:
        squares = rows[ROOTS[metric]]
        return _of_ratio(squares, [1] * len(squares), math.sqrt, lambda r: 0.5 / math.sqrt(r) if r else 0.0)
    if metric in PERPLEXITIES:
        name, without = PERPLEXITIES[metric]
        words = _less(rows["tokens"], rows["swapped"]) if without else rows["tokens"]
        return _of_ratio(rows[name], words, math.exp, math.exp)
    if metric in WORD_SHARES:
        return _of_ratio(rows[WORD_SHARES[metric]], rows["tokens"])
    if metric == "attack_success_rate":
        return _of_ratio(*_attacked(rows))
    if metric == "target_hit_rate":
        attacked = _attacked(rows)[1]
        return _of_ratio([h and was for h, was in zip(rows["hit"], attacked, strict=True)], attacked)
    if metric == "queries":
        attacked = _attacked(rows)[1]
        return _of_ratio(
            [q if was else 0 for q, was in zip(rows["queries"], attacked, strict=True)], attacked
        )
    if metric in ("corrupted_top1", "mce"):
        return _corrupted(metric, result, rows["corrupted"])
    return _pixels(metric, rows) if metric in PIXEL_RATIOS else None


def _of_prompts(metric: str, rows: Rows) -> Values | None:
    if metric in OF_PROMPTS:
        return list(map(float, rows[OF_PROMPTS[metric]]))
    if metric in LOSSES_OF_PROMPTS:
        return _of_ratio(rows[LOSSES_OF_PROMPTS[metric]], rows["tokens"], math.exp, math.exp)
    return changed(rows) if metric == "words_changed" else None


def _of_ratio(
    numerators: Sequence[float],
    denominators: Sequence[float],
    transform: Callable[[float], float] = float,
    slope: Callable[[float], float] = lambda _: 1.0,
) -> Values:
    n, below = len(numerators), math.fsum(denominators)
    ratio = math.fsum(numerators) / below
    value, factor = transform(ratio), slope(ratio) * n / below
    return [value + factor * (b - ratio * a) for b, a in zip(numerators, denominators, strict=True)]


def _less(some: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one - other for one, other in zip(some, others, strict=True)]


def _attacked(rows: Rows) -> tuple[list[int], list[int]]:
    if "status" in rows:
        return (
            [int(status == "succeeded") for status in rows["status"]],
            [int(status != "skipped") for status in rows["status"]],
        )
    before = list(map(bool, rows["clean_correct"]))
    broken = [int(was and not now) for was, now in zip(before, rows["correct"], strict=True)]
    return broken, list(map(int, before))


def _corrupted(metric: str, result: EvaluationResult, flags: Sequence[str]) -> Values:
    cells = cells_of(result.params)
    if metric == "corrupted_top1":
        return [text.count("1") / len(cells) for text in flags]
    weights = _error_weights(result)
    by_cell = [weights.get(name, 0.0) for name, _ in cells]
    wrong = [[flag == "0" for flag in text] for text in flags]
    return [math.fsum(compress(by_cell, missed)) for missed in wrong]


def _error_weights(result: EvaluationResult) -> Mapping[str, float]:
    """What an error under a corruption adds to the mCE: 1 / (baseline error * severities * corruptions)."""
    # The baseline's error follows from the parts of the result: ce = (1 - top1) / baseline. Without errors
    # under a corruption its weight has no effect.
    parts = {
        part.corruption: (part.metrics["top1"].value, part.metrics["ce"].value)
        for part in result.breakdown
        if isinstance(part, Breakdown) and part.corruption is not None and "ce" in part.metrics
    }
    weights = {}
    for name, (top1, error) in parts.items():
        if top1 is not None and error is not None and top1 < 1:
            weights[name] = error / ((1 - top1) * len(SEVERITIES) * len(parts))
    return weights


def _pixels(metric: str, rows: Rows) -> Values | None:
    found, there, called = (rows[name] for name in ("intersection", "target", "predicted"))
    if metric == "pixel_accuracy":
        return _of_ratio(list(map(sum, found)), list(map(sum, there)))
    below = there
    if metric == "miou":
        below = [
            [t + p - i for i, t, p in zip(*image, strict=True)]
            for image in zip(found, there, called, strict=True)
        ]
    n = len(found)
    classes = []
    for index in range(len(found[0])):
        total = sum(image[index] for image in below)
        if total:
            classes.append((index, sum(image[index] for image in found) / total, n / total))
    if not classes:
        return None
    mean = math.fsum(ratio for _, ratio, _ in classes) / len(classes)
    return [
        mean + math.fsum(scale * (image[c] - ratio * under[c]) for c, ratio, scale in classes) / len(classes)
        for image, under in zip(found, below, strict=True)
    ]
