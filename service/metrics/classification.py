"""Accuracy, attack success, perturbation norms and queries from per-example classification outcomes.

Pure functions: the same columns give the same bits, in whatever order the shards came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any

from assay.service.contract.results import Metric
from assay.service.metrics.intervals import Estimate, bootstrap_mean, bootstrap_median, wilson

# Metric by the outcome column whose share of true entries it is.
SHARES = {"top1": "correct", "top5": "correct5", "top1_8bit": "correct8"}
# Metric by the outcome column whose median over the broken examples it is.
MEDIANS = {"median_linf": "linf", "median_l2": "l2"}
# A bootstrap of a mean draws n values R times; beyond this many draws R shrinks.
DRAWS = 20_000_000
RESAMPLES = 2000
FEWEST_RESAMPLES = 200


def classification_metrics(
    columns: Mapping[str, Sequence[Any]],
    *,
    initially_correct: Sequence[bool] | None = None,
    attacked: Sequence[bool] | None = None,
) -> dict[str, Metric]:
    """Metrics of one evaluation.

    Args:
        columns: outcome columns, each (n,), at least `correct`; each other column gives its metrics where it
            is present and without None. Flags are booleans or 0/1. After an attack they say whether the
            prediction on the adversarial example is right.
        initially_correct: whether the same examples in the same order were right before the attack, (n,);
            None where there was no attack, and then only the shares are measured.
        attacked: which examples the attack was run on, (n,); by default those that were right before.

    Returns:
        `top1`: share of the n examples that are right (after an attack: accuracy under attack).
        `top5`: share whose label is among the five largest logits (column `correct5`).
        `top1_8bit`: share that is right when adversarial examples are rounded to 8 bits (`correct8`).
        `attack_success_rate`: of the examples that were right before, the share that is wrong now; its
        `n` counts those, and its value is None when there are none.
        `median_linf`, `median_l2`: median norm of the perturbations of the broken examples, in the attacked
        space (`linf`, `l2`); `n` counts these, and the value is None when there are none.
        `queries`: mean number of forward passes that the attack made of an attacked example, without those
        that judge the image before and after it (column `queries`); for attacks without gradients only,
        which is when the column `backward` is 0 throughout.
        Shares are fractions with Wilson 95 % intervals, the others have bootstrap intervals.

    Raises:
        ValueError: no `correct` column, or lengths differ.
    """
    if "correct" not in columns:
        raise ValueError(f"classification metrics need the column 'correct'; given: {sorted(columns)}")
    known = {name: column for name, column in columns.items() if _complete(column)}
    for name, column in known.items():
        _check_length(name, column, known["correct"])
    metrics = {
        metric: proportion(_count(known[name]), len(known[name]), higher_is_better=True)
        for metric, name in SHARES.items()
        if name in known
    }
    if initially_correct is None:
        return metrics
    _check_length("initially_correct", initially_correct, known["correct"])
    before = list(map(bool, initially_correct))
    return metrics | _of_attack(known, before, before if attacked is None else attacked)


def _of_attack(
    columns: Mapping[str, Sequence[Any]], before: Sequence[bool], attacked: Sequence[bool]
) -> dict[str, Metric]:
    broken = [was and not now for was, now in zip(before, columns["correct"], strict=True)]
    metrics = {"attack_success_rate": proportion(sum(broken), sum(before), higher_is_better=False)}
    for metric, name in MEDIANS.items():
        if name in columns:
            metrics[metric] = _bootstrapped(bootstrap_median, list(compress(columns[name], broken)), metric)
    if "queries" in columns and not any(columns["backward"]) and any(attacked):
        metrics["queries"] = _bootstrapped(_mean, list(compress(columns["queries"], attacked)), "queries")
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


def _bootstrapped(estimator: Callable[..., Estimate], values: Sequence[float], name: str) -> Metric:
    """An estimate over examples with its bootstrap 95 % interval; without examples, None.

    More perturbation and more queries are better: the attack had to do more.
    """
    found = estimator(values, seed=f"metric/{name}") if values else None
    return Metric(
        value=found.value if found else None,
        n=len(values),
        ci_low=found.low if found else None,
        ci_high=found.high if found else None,
        ci_method="bootstrap",
        higher_is_better=True,
    )


def bootstrapped_mean(values: Sequence[float], name: str) -> Metric:
    """A mean that is better the higher it is, with its bootstrap interval; without values, None."""
    return _bootstrapped(_mean, values, name)


def _mean(values: Sequence[float], *, seed: str) -> Estimate:
    return bootstrap_mean(values, seed=seed, resamples=bootstrap_resamples(len(values)))


def bootstrap_resamples(n: int) -> int:
    """How often a mean of n values is resampled: fewer times the more values there are."""
    return min(RESAMPLES, max(FEWEST_RESAMPLES, DRAWS // n))


def _complete(column: Sequence[Any]) -> bool:
    return all(value is not None for value in column)


def _count(flags: Sequence[Any]) -> int:
    return sum(bool(flag) for flag in flags)


def _check_length(name: str, column: Sequence[Any], correct: Sequence[Any]) -> None:
    if len(column) != len(correct):
        raise ValueError(f"{name!r} has {len(column)} entries, 'correct' has {len(correct)}")
