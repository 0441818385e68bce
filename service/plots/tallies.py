"""Counts of examples, from which plots are drawn without reading the outcomes again.

A worker counts the outcome columns of an evaluation when a job ends; the counts are as small as the plot.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

BINS = 15
# With more classes there is no confusion matrix, and the plot of classes shows those that lose most.
MAX_CLASSES = 50
COLUMNS = ("label", "correct", "prediction", "confidence")


def tally(columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Counts of an evaluation; {} where the columns allow none.

    Args:
        columns: of its outcome table, each (n,): `label`, `correct`, and perhaps `prediction`
            and `confidence`.

    Returns:
        `classes`: {"label", "n", "correct"} for each class, by label.
        `confusion`: {"label", "prediction", "count"} for each pair that occurs, with at most 50 classes.
        `bins`: {"low", "high", "n", "confidence" (mean), "correct"} for each occupied bin of the confidence.
    """
    labels, correct = columns.get("label", ()), columns.get("correct", ())
    if not labels or len(labels) != len(correct) or not all(isinstance(one, int) for one in labels):
        return {}
    n, right = Counter(labels), Counter(labels_of_right(labels, correct))
    found: dict[str, Any] = {
        "classes": [{"label": label, "n": n[label], "correct": right[label]} for label in sorted(n)]
    }
    predictions = columns.get("prediction", ())
    known = len(predictions) == len(labels) and all(isinstance(one, int) for one in predictions)
    if known and len(n.keys() | set(predictions)) <= MAX_CLASSES:
        pairs = Counter(zip(labels, predictions, strict=True))
        found["confusion"] = [
            {"label": label, "prediction": prediction, "count": pairs[label, prediction]}
            for label, prediction in sorted(pairs)
        ]
    if bins := _bins(columns.get("confidence", ()), correct):
        found["bins"] = bins
    return found


def tally_shards(shards: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, Any]:
    """`tally` of the columns that all shards have."""
    names = [name for name in COLUMNS if shards and all(name in shard for shard in shards)]
    return tally({name: [value for shard in shards for value in shard[name]] for name in names})


def labels_of_right(labels: Sequence[int], correct: Sequence[Any]) -> list[int]:
    """The labels of the examples that are right."""
    return [label for label, one in zip(labels, correct, strict=True) if one]


def _bins(confidence: Sequence[float | None], correct: Sequence[Any]) -> list[dict[str, Any]]:
    """The intervals ((i - 1) / M, i / M] of the expected calibration error, those with an example."""
    if len(confidence) != len(correct):
        return []
    members: dict[int, list[tuple[float, bool]]] = {}
    for one, right in zip(confidence, correct, strict=True):
        if one is not None and math.isfinite(one):
            place = min(BINS - 1, max(0, math.ceil(one * BINS) - 1))
            members.setdefault(place, []).append((one, bool(right)))
    return [
        {
            "low": place / BINS,
            "high": (place + 1) / BINS,
            "n": len(members[place]),
            "confidence": math.fsum(one for one, _ in members[place]) / len(members[place]),
            "correct": sum(right for _, right in members[place]),
        }
        for place in sorted(members)
    ]
