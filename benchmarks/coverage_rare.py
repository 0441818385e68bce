"""Metrics of which rare examples alone differ: synthetic samples, and the intervals and tests of the product.

Two models are alike: each breaks an example with the same small chance, half of the time both together. All
else is the same for both, so that the difference of every metric here is 0, but for `THRICE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from assay.service.metrics.paired import Difference, Pair
from assay.service.metrics.registry import TABLES
from assay.service.metrics.statistics.intervals import mean_bounds

Rng = np.random.Generator
Flags = Any
Rows = dict[str, list[Any]]
# The second model is broken three times as often.
THRICE = "attack_success_rate, thrice"
# The share of the examples that are right before an attack.
RIGHT = 0.9


class Sample(NamedTuple):
    """The rows of a model and its value of the metric."""

    rows: Rows
    value: float


Both = tuple[Sample, Sample]
Make = Callable[[Rng, tuple[Flags, Flags]], Both]


def alike(rng: Rng, n: int, shares: tuple[float, float]) -> tuple[Flags, Flags]:
    """Whether each model has the rare event, (n,); an example has one common chance or two, evenly."""
    together, common, own = rng.random(n) < 0.5, rng.random(n), rng.random((2, n))
    first, second = (
        np.where(together, common, part) < share for part, share in zip(own, shares, strict=True)
    )
    return first, second


def ratio(parts: Any, wholes: Any) -> float:
    """A ratio of sums."""
    return math.fsum(np.asarray(parts, float).tolist()) / math.fsum(np.asarray(wholes, float).tolist())


def sized(rng: Rng, events: tuple[Flags, Flags]) -> tuple[Any, Any]:
    """Exponential amounts where an event is, the same in an example of both; 0 elsewhere."""
    amounts = rng.exponential(size=len(events[0]))
    return events[0] * amounts, events[1] * amounts


def attacked(rng: Rng, events: tuple[Flags, Flags]) -> Both:
    """Attack success: most examples that are right are so in both models."""
    n = len(events[0])
    common = rng.random(n)
    before = [np.where(rng.random(n) < 0.7, common, rng.random(n)) < RIGHT for _ in events]
    sides = zip(before, events, strict=True)
    return _two(({"clean_correct": was, "correct": was & ~now}, ratio(was & now, was)) for was, now in sides)


def targeted(rng: Rng, events: tuple[Flags, Flags]) -> Both:
    """Targets that are hit."""
    was = rng.random(len(events[0])) < RIGHT
    return _two(({"clean_correct": was, "correct": was, "hit": now}, ratio(was & now, was)) for now in events)


def changed(rng: Rng, events: tuple[Flags, Flags]) -> Both:
    """Words changed in the texts that an attack broke."""
    status = [np.where(now, "succeeded", "failed") for now in events]
    words = rng.integers(1, 7, (2, len(events[0])))
    return _two(
        ({"status": kind, "changed": count, "words": np.full(len(count), 20)}, ratio(now * count / 20, now))
        for kind, count, now in zip(status, words, events, strict=True)
    )


def abstained(rng: Rng, events: tuple[Flags, Flags]) -> Both:
    """Abstentions of a smoothed classifier."""
    del rng
    return _two(({"prediction": np.where(now, -1, 0)[:, None]}, ratio(now, now | True)) for now in events)


def radii(rng: Rng, events: tuple[Flags, Flags]) -> Both:
    """Certified radii, 0 in the rare examples."""
    certified = rng.uniform(0.2, 1, len(events[0]))
    none = np.zeros(len(certified), int)
    return _two(
        (
            {"label": none, "prediction": none[:, None], "radius": (certified * ~now)[:, None]},
            ratio(certified * ~now, now | True),
        )
        for now in events
    )


def words(rng: Rng, events: tuple[Flags, Flags]) -> Both:
    """Unknown words, in rare documents."""
    tokens = rng.geometric(1 / 200, len(events[0])) + 20
    found = 1 + rng.binomial(tokens, 0.05)
    return _two(({"tokens": tokens, "unknown": found * now}, ratio(found * now, tokens)) for now in events)


def queried(rng: Rng, events: tuple[Flags, Flags]) -> Both:
    """Queries: rare examples take more."""
    was = rng.random(len(events[0])) < RIGHT
    return _two(
        (
            {"clean_correct": was, "queries": 100 + np.round(300 * more), "backward": 0 * was},
            ratio((100 + np.round(300 * more)) * was, was),
        )
        for more in sized(rng, events)
    )


def root_errors(rng: Rng, events: tuple[Flags, Flags]) -> Both:
    """Root mean square errors, with rare large errors."""
    base = 0.01 * rng.normal(size=len(events[0])) ** 2
    return _two(
        ({"squared_error": base + more}, math.sqrt(ratio(base + more, base * 0 + 1)))
        for more in sized(rng, events)
    )


def absolute_errors(rng: Rng, events: tuple[Flags, Flags]) -> Both:
    """Mean absolute errors of the same."""
    return _two(
        (side.rows, ratio(np.sqrt(side.rows["squared_error"]), np.ones(len(events[0]))))
        for side in root_errors(rng, events)
    )


def losses(rng: Rng, events: tuple[Flags, Flags]) -> Both:
    """Perplexities: rare documents have larger losses."""
    tokens = rng.geometric(1 / 200, len(events[0])) + 20
    base = rng.gamma(16, 0.25, len(tokens))
    return _two(
        ({"nll": tokens * (base + more), "tokens": tokens}, math.exp(ratio(tokens * (base + more), tokens)))
        for more in sized(rng, events)
    )


def played(rng: Rng, events: tuple[Flags, Flags]) -> Both:
    """Returns: rare episodes fail."""
    base = rng.uniform(0.8, 1, len(events[0]))
    return _two(({"normalized": base * ~now}, ratio(base * ~now, now | True)) for now in events)


def margins(rng: Rng, events: tuple[Flags, Flags]) -> Both:
    """Lower bounds of margins."""
    base = rng.normal(size=len(events[0]))
    return _two(
        ({"lower_margin": base - more}, ratio(base - more, base * 0 + 1)) for more in sized(rng, events)
    )


def heads(rng: Rng, events: tuple[Flags, Flags]) -> Both:
    """Deviations of the distances of heads, in one layer."""
    base = 3 + 0.1 * rng.normal(size=len(events[0]))
    found = []
    for more in sized(rng, events):
        away = base + more
        square = ratio(away**2 + 0.01, base * 0 + 1)
        rows = {"distance": away[:, None], "squared_distance": away[:, None] ** 2 + 0.01}
        found.append((rows, math.sqrt(square - ratio(away, base * 0 + 1) ** 2)))
    return _two(found)


def projections(rng: Rng, events: tuple[Flags, Flags]) -> Both:
    """Logarithms of projection losses, in one layer."""
    base, ones = rng.normal(scale=0.1, size=len(events[0])), np.ones((len(events[0]), 1))
    return _two(
        (
            {"log_phi": (base + more)[:, None], "output": 0 * ones, "negative": ones, "terms": 10 * ones},
            math.log(ratio(np.exp(base + more), ones[:, 0])),
        )
        for more in sized(rng, events)
    )


def _two(sides: Any) -> Both:
    first, second = (
        Sample({name: np.asarray(column).tolist() for name, column in rows.items()}, value)
        for rows, value in sides
    )
    return first, second


# Metric to its table and samples.
METRICS: dict[str, tuple[str, Make]] = {
    "attack_success_rate": ("attack", attacked),
    THRICE: ("attack", attacked),
    "target_hit_rate": ("attack", targeted),
    "words_changed": ("text_attack", changed),
    "smoothed_abstained": ("smoothed", abstained),
    "unknown_words": ("word_swap", words),
    "queries": ("attack", queried),
    "smoothed_mean_radius": ("smoothed", radii),
    "lower_margin": ("verified", margins),
    "rmse": ("regression", root_errors),
    "mae": ("regression", absolute_errors),
    "perplexity": ("perplexity", losses),
    "normalized_return": ("returns", played),
    "head_distance_std": ("head_distance", heads),
    "log_projection_loss": ("projection_loss", projections),
}


def differences(metric: str, n: int, share: float, draws: int) -> list[Difference]:
    """Paired differences; samples of which either has no event have no words changed, and are left out."""
    table, make = METRICS[metric]
    rng = np.random.default_rng([n, int(1e5 * share), len(metric), 8])
    ids, found = [f"{place:06d}" for place in range(n)], []
    for _ in range(draws):
        events = alike(rng, n, (share, 3 * share if metric == THRICE else share))
        if metric == "words_changed" and not all(one.any() for one in events):
            continue
        first, second = make(rng, events)
        paired = TABLES[table].paired(Pair("rare", {"id": ids, **first.rows}, {"id": ids, **second.rows}))
        values = (first.value, second.value)
        one = None if paired is None else paired.difference(metric.split(",")[0], values)
        if one is None:
            raise ValueError(f"{metric} of {n} examples has no paired difference")
        found.append(one)
    return found


def means(sides: str, n: int, share: float, draws: int) -> tuple[list[Any], float]:
    """The intervals of means of rare exponential values beside small ones, and the true mean.

    Args:
        sides: "one", all above the others, or "both", as differences of models that are alike.
        n: values.
        share: of rare ones.
        draws: samples.
    """
    rng, found = np.random.default_rng([n, int(1e5 * share), len(sides)]), []
    for _ in range(draws):
        signs = np.where(rng.random(n) < 0.5, -1, 1) if sides == "both" else 1
        values = (rng.random(n) < share) * rng.exponential(size=n) * signs + 1e-4 * rng.normal(size=n)
        found.append(mean_bounds(values.tolist(), seed=0)[:2])
    return found, share if sides == "one" else 0.0
