"""Values of examples whose mean is the metric, for every kind of metric that has them."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from assay.service.contract.results import EvaluationResult
from assay.service.metrics.registry import TABLES
from assay.service.metrics.table import Context
from assay.service.studies.examples import per_example

N = 30
RNG = random.Random(0)


def flags(p: float) -> list[bool]:
    return [RNG.random() < p for _ in range(N)]


def result(table: str, rows: dict[str, Any], context: Context) -> EvaluationResult:
    summary = TABLES[table].summarise(rows, context)
    return EvaluationResult(
        name="x",
        params=dict(context.params),
        data={},
        protocol="pixel",
        backend="native",
        metrics=summary.metrics,
        breakdown=list(summary.breakdown),
        seconds=1.0,
        forward_passes=1,
        backward_passes=1,
    )


BEFORE = flags(0.8)
ATTACK = {
    "id": [f"{i:03d}" for i in range(N)],
    "correct": [was and one for was, one in zip(BEFORE, flags(0.5), strict=True)],
    "correct5": flags(0.9),
    "correct8": flags(0.4),
    "clean_correct": BEFORE,
    "linf": [RNG.random() for _ in range(N)],
    "queries": [RNG.randrange(1, 500) for _ in range(N)],
    "backward": [0] * N,
}
STATUS = ["succeeded" if one else "failed" for one in flags(0.4)]
STATUS[:4] = ["skipped"] * 4
TEXT = {
    "id": ATTACK["id"],
    "status": STATUS,
    "correct": [one == "failed" for one in STATUS],
    "clean_correct": [one != "skipped" for one in STATUS],
    "queries": ATTACK["queries"],
    "words": [20] * N,
    "changed": [2] * N,
}
TOKENS = [RNG.randrange(5, 80) for _ in range(N)]
WORDS = {
    "id": ATTACK["id"],
    "tokens": TOKENS,
    "nll": [3.1 * count * (0.8 + 0.4 * RNG.random()) for count in TOKENS],
    "kept_nll": [2.9 * count * (0.8 + 0.4 * RNG.random()) for count in TOKENS],
    "kept_nll_before": [2.2 * count * (0.8 + 0.4 * RNG.random()) for count in TOKENS],
    "swapped": [RNG.randrange(0, 3) for _ in range(N)],
    "unknown": [RNG.randrange(0, 2) for _ in range(N)],
    "unknown_before": [RNG.randrange(0, 2) for _ in range(N)],
}
PROMPTS = {
    "id": ATTACK["id"],
    "tokens": [3] * N,
    "nll": [9 * RNG.random() for _ in range(N)],
    "nll_before": [6 + 9 * RNG.random() for _ in range(N)],
    "hit": [RNG.random() < 0.5 for _ in range(N)],
    "hit_before": [RNG.random() < 0.1 for _ in range(N)],
    "swapped": [RNG.randrange(0, 5) for _ in range(N)],
    "words": [RNG.randrange(20, 30) for _ in range(N)],
    "queries": [RNG.randrange(20, 90) for _ in range(N)],
}
CELLS = {"corruptions": ["blur", "fog"], "severities": [1, 2, 3, 4, 5]}
CORRUPTED = {
    "id": ATTACK["id"],
    "correct": ATTACK["clean_correct"],
    "corrupted": ["".join(str(int(RNG.random() < 0.6)) for _ in range(10)) for _ in range(N)],
}
ERRORS = {"id": ATTACK["id"], "squared_error": [RNG.random() for _ in range(N)]}
PIXELS = {
    "id": ATTACK["id"],
    "intersection": [[RNG.randrange(0, 20) for _ in range(3)] for _ in range(N)],
    "target": [[RNG.randrange(20, 40) for _ in range(3)] for _ in range(N)],
    "predicted": [[RNG.randrange(20, 40) for _ in range(3)] for _ in range(N)],
}
RETURNS = {
    "id": ATTACK["id"],
    "return": [RNG.gauss(50, 9) for _ in range(N)],
    "normalized": [RNG.random() for _ in range(N)],
    "length": [RNG.randrange(1, 90) for _ in range(N)],
}
BASELINE = Context(params=CELLS, baseline_errors={"blur": 0.8, "fog": 0.7})
CASES: list[tuple[str, dict[str, Any], Context, set[str]]] = [
    ("attack", ATTACK, Context(), {"top1", "top5", "top1_8bit", "attack_success_rate", "queries"}),
    ("text_attack", TEXT, Context(), {"accuracy", "accuracy_under_attack", "attack_success_rate", "queries"}),
    (
        "word_swap",
        WORDS,
        Context(),
        {
            *("perplexity", "perplexity_unswapped", "perplexity_unswapped_before"),
            *("swapped_words", "unknown_words", "unknown_words_before"),
        },
    ),
    (
        "forced_continuation",
        PROMPTS,
        Context(),
        {
            *("target_hit_rate", "target_hit_rate_before", "words_changed", "queries"),
            *("target_perplexity", "target_perplexity_before"),
        },
    ),
    ("corrupted_classification", CORRUPTED, BASELINE, {"top1", "corrupted_top1", "mce"}),
    ("regression", ERRORS, Context(), {"rmse", "mae"}),
    ("segmentation", PIXELS, Context(), {"miou", "mean_accuracy", "pixel_accuracy"}),
    ("returns", RETURNS, Context(), {"return", "normalized_return", "episode_length"}),
]


@pytest.mark.parametrize(("table", "rows", "context", "metrics"), CASES, ids=[case[0] for case in CASES])
def test_the_mean_of_the_values_is_the_metric(
    table: str, rows: dict[str, Any], context: Context, metrics: set[str]
) -> None:
    measured = result(table, rows, context)
    given = {name: per_example(name, measured, rows) for name in measured.metrics}
    assert {name for name, values in given.items() if values is not None} == metrics
    for name in metrics:
        values = given[name]
        assert values is not None
        assert list(values) == rows["id"]
        assert math.fsum(values.values()) / N == pytest.approx(measured.metrics[name].value)


def perplexity(rows: dict[str, Any], left_out: int | None = None) -> float:
    kept = [i for i in range(N) if i != left_out]
    return math.exp(sum(rows["nll"][i] for i in kept) / sum(rows["tokens"][i] for i in kept))


def test_values_of_ratios_are_influences() -> None:
    """The jackknife gives nearly the same: n D - (n - 1) D_(-i)."""
    values = per_example("perplexity", result("word_swap", WORDS, Context()), WORDS)
    assert values is not None
    whole = perplexity(WORDS)
    jackknife = [N * whole - (N - 1) * perplexity(WORDS, left_out=i) for i in range(N)]
    for one, other in zip(values.values(), jackknife, strict=True):
        assert one == pytest.approx(other, abs=0.05 * whole)


def test_columns_that_give_another_value_are_not_used() -> None:
    measured = result("attack", ATTACK, Context())
    other = ATTACK | {"correct": [not one for one in ATTACK["correct"]]}
    assert per_example("top1", measured, other) is None
    assert per_example("top1", measured, {}) is None
    assert per_example("median_linf", measured, ATTACK) is None
    lost = WORDS | {"nll": [None, *WORDS["nll"][1:]]}
    assert per_example("perplexity", result("word_swap", WORDS, Context()), lost) is None
