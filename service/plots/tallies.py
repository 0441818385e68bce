"""Counts of examples, made at a job's end: plots are drawn from them without reading the outcomes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

BINS = 15
MAX_CLASSES = 50  # Above it no confusion matrix, and the plot of classes shows the largest losses
COLUMNS = ("label", "correct", "prediction", "confidence", "clean_correct", "forward", "backward", "expected")
MAX_POINTS = 200  # a longer curve is thinned


def tally(columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Counts of an evaluation; {} where the columns allow none.

    `columns`, each (n,): `label`, `correct`, perhaps `prediction`, `confidence`, and of an attack
    `clean_correct`, `forward` and `backward`. Returns `classes`: {"label", "n", "correct"} by label;
    `confusion`: {"label", "prediction", "count"} for each pair that occurs, with at most 50 classes; `bins`:
    {"low", "high", "n", "confidence" (mean), "correct"} for each occupied bin; `spent`: as of `spent`.
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
    if curve := spent(columns):
        found["spent"] = curve
    return found


def spent(columns: Mapping[str, Sequence[Any]]) -> list[tuple[float, float]]:
    """Accuracy left by an attack where every example gets at most b passes, for rising b.

    `correct`, `clean_correct`, `forward` and `backward` are (n,); rows without an attack lack one, and under
    an `expected` accuracy no pass breaks anything. Returns pairs: the mean of min(passes, b) over all n, and
    the share that is right before the attack and not broken within b; b are the broken examples' passes, and
    last the largest.
    """
    names = ("correct", "clean_correct", "forward", "backward")
    if "expected" in columns or any(name not in columns for name in names):
        return []
    rows = list(zip(*(columns[name] for name in names), strict=True))
    passes = sorted(forward + backward for _, _, forward, backward in rows)
    falls = Counter(f + b for now, before, f, b in rows if before and not now)
    left, n = sum(bool(before) for _, before, _, _ in rows), len(rows)
    if not n or passes[-1] == 0:
        return []
    points, place, below = [], 0, 0
    for budget in sorted({*falls, passes[-1]}):
        while place < n and passes[place] <= budget:
            below += passes[place]
            place += 1
        left -= falls[budget]
        points.append(((below + budget * (n - place)) / n, left / n))
    step = max(1, math.ceil(len(points) / MAX_POINTS))
    return [*points[:-1:step], points[-1]]


def tally_shards(shards: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, Any]:
    """`tally` of the columns that all shards have."""
    names = [name for name in COLUMNS if shards and all(name in shard for shard in shards)]
    return tally({name: [value for shard in shards for value in shard[name]] for name in names})


def labels_of_right(labels: Sequence[int], correct: Sequence[Any]) -> list[int]:
    """The labels of the examples that are right."""
    return [label for label, one in zip(labels, correct, strict=True) if one]


def _bins(confidence: Sequence[float | None], correct: Sequence[Any]) -> list[dict[str, Any]]:
    """Occupied intervals ((i - 1) / M, i / M] of the expected calibration error."""
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
