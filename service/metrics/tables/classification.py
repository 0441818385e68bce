"""Accuracy, attack success, perturbation norms and queries from per-example classification outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any, ClassVar

from assay.service.contract.records import Evidence
from assay.service.contract.results import Metric, StageBreakdown
from assay.service.metrics.answers import Answers, classified
from assay.service.metrics.paired import Pair, PairedMetrics, PairedShares, Rows
from assay.service.metrics.statistics.estimates import bounded_mean, mean, measured, median, proportion
from assay.service.metrics.statistics.intervals import NO_BOUNDS
from assay.service.metrics.statistics.paired_estimates import (
    AnyEstimator,
    Estimator,
    FirstOf,
    Median,
    PairedEstimates,
    column_of,
    ratio_of,
)
from assay.service.metrics.statistics.security_curve import (
    capped,
    curve_metrics,
    curve_points,
    distances,
    end_of_area,
)
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of, stage_row

__all__ = ["Attack", "Classification"]

SHARES = {"top1": "correct", "top5": "correct5", "top1_8bit": "correct8"}  # Metric to column of flags.
# Metric to outcome column: its mean, for models that answer at random.
EXPECTED = {"expected_top1": "expected", "clean_expected_top1": "clean_expected"}
MOSTLY = 0.5  # An example is mostly right where more than this share of the draws is.
TOP5_CLASSES = 6  # With fewer classes than this, top-5 accuracy says nothing: of five classes it is always 1.
MEDIANS = {"median_linf": "linf", "median_l2": "l2"}  # Metric to column: the median over broken examples.
COLUMNS = "id label prediction correct correct5 clean_correct loss forward backward"

StageKey = tuple[int | None, str]  # A custom ensemble may name a stage twice: its number tells them apart.


class Classification(OutcomeTable):
    """Answers to unattacked examples: images, or texts."""

    name = "classification"
    columns = columns_of(COLUMNS)
    units: ClassVar[Units] = {"top1": "proportion", "top5": "proportion"}

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Accuracies; top-5 of data with six classes or more."""
        return Summary(_telling(classification_metrics(rows), context))

    def paired(self, pair: Pair) -> PairedMetrics:
        """McNemar's test of the accuracies."""
        return PairedShares(pair, SHARES)

    def unattacked(self, rows: Rows, context: Context) -> Answers | None:
        """The answers; None for an evaluation with parameters, which changes the examples."""
        return None if context.params else classified(rows, rows["correct"], attacked=False, known=True)


class Attack(Classification):
    """Final answers to an attack, stage or ensemble; early outcomes lack queries and norms, or margins."""

    name = "attack"
    columns = columns_of(
        COLUMNS, optional="queries broken_by linf l2 l1 l0 margin correct8 hit expected clean_expected"
    )
    units: ClassVar[Units] = {
        **dict.fromkeys(
            ("top1", "top5", "top1_8bit", "attack_success_rate", "target_hit_rate"), "proportion"
        ),
        **dict.fromkeys(EXPECTED, "proportion"),
        **dict.fromkeys((*MEDIANS, "median_distance", "curve_area"), "distance"),
        "curve_top1": "proportion",
        "queries": "count",
    }
    undefined: ClassVar[Reasons] = {
        "attack_success_rate": "no example was right before the attack",
        "target_hit_rate": "no example was attacked",
        "queries": "no example was right before the attack",
        "median_linf": "no example was broken",
        "median_l2": "no example was broken",
        "median_distance": "for half of the examples or more nothing was found",
    }

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Accuracies under the attack, its success and its cost; the stages of an ensemble."""
        stages = stage_breakdown(context.evidence, len(rows["id"]))
        if "expected" in rows:
            return Summary(expected_metrics(rows), stages)
        everything = [True] * len(rows["id"]) if context.protocol == "paper" else None
        metrics = classification_metrics(rows, initially_correct=rows["clean_correct"], attacked=everything)
        metrics = _telling(metrics, context)
        if (found := _distances(rows, context.params)) is None:
            return Summary(metrics, stages)
        end = end_of_area(found, context.params.get("area_to"))
        points = curve_points(found, context.params["norm"])
        return Summary(curve_metrics(found, end) | metrics, points)

    def paired(self, pair: Pair) -> PairedMetrics:
        """As of unattacked examples; the success rate and the queries are linearised."""
        everything = pair.protocol == "paper"
        medians = {metric: Median(_norms(name)) for metric, name in MEDIANS.items()}
        estimators: dict[str, AnyEstimator] = {
            "attack_success_rate": Estimator(_broken, ratio_of, largest=1.0),
            "target_hit_rate": Estimator(
                lambda rows: _hits(rows, everything=everything), ratio_of, largest=1.0
            ),
            "queries": Estimator(lambda rows: _queries(rows, everything=everything), ratio_of),
            **{metric: Estimator(column_of(name), largest=1.0) for metric, name in EXPECTED.items()},
            **medians,
            **_curves([result.params for result in pair.results or ()]),
        }
        return FirstOf(PairedShares(pair, SHARES), PairedEstimates(pair, estimators))

    def unattacked(self, rows: Rows, context: Context) -> Answers:
        """The answers before the attack; those that were wrong are known where the attack left them alone."""
        known = context.protocol != "paper" and "expected" not in rows
        return classified(rows, rows["clean_correct"], attacked=True, known=known)


def _telling(metrics: dict[str, Metric], context: Context) -> dict[str, Metric]:
    """The metrics less top-5 where there are fewer than six classes: among five it is always 1."""
    few = context.classes is not None and context.classes < TOP5_CLASSES
    return {name: metric for name, metric in metrics.items() if not (few and name == "top5")}


def classification_metrics(
    columns: Mapping[str, Sequence[Any]],
    *,
    initially_correct: Sequence[bool] | None = None,
    attacked: Sequence[bool] | None = None,
) -> dict[str, Metric]:
    """Metrics of an evaluation from its outcome columns, each (n,), at least `correct`.

    Each other column gives its metrics where it is present and without None. Flags are booleans or 0/1, after
    an attack of the adversarial example. `initially_correct`, (n,): whether the same examples in the same
    order were right before the attack; without an attack None, and only the shares are measured. `attacked`,
    (n,): whether the attack was run on them; by default if right before.

    `top1`: share of the n examples that are right (after an attack: accuracy under attack), `top5` with the
    label among the five largest logits (`correct5`), `top1_8bit` with adversarial examples rounded to 8 bits
    (`correct8`). `attack_success_rate`: share of the examples right before (`n`) that are wrong now.
    `target_hit_rate`: share of the attacked examples that are classified as their target (`hit`).
    `median_linf`, `median_l2`: median norm of the perturbations of the broken examples (`n`), in the attacked
    space. Without any such example a value is None. `queries`: mean number of the attack's forward passes of
    an attacked example, without the passes that judge it before and after; only for attacks without
    gradients, where the column `backward` is 0 throughout. Shares are fractions with Wilson 95 % intervals;
    `docs/statistics.md` describes the others.

    Raises ValueError: no `correct` column, or lengths differ.
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


def expected_metrics(columns: Rows) -> dict[str, Metric]:
    """Metrics of an attack on a model that answers at random.

    `expected` and `clean_expected` are the shares of right answers to the image that counts and to the
    unattacked image, in fresh draws of the model, (n,), beside the other columns of an attack.

    `expected_top1` is the mean share of right answers under attack, `clean_expected_top1` without it; their
    intervals are over examples and draws. `median_linf`, `median_l2`: median norm of the perturbations of the
    examples that were mostly right, and no longer are. `queries`: over the examples that some draw got right.
    """
    found = {metric: bounded_mean(columns[name]) for metric, name in EXPECTED.items()}
    broken = [bool(flag) for flag, _ in _broken(columns) or ()]
    for metric, name in MEDIANS.items():
        if name in columns:
            found[metric] = median(list(compress(columns[name], broken)))
    if "queries" in columns and not any(columns["backward"]):
        asked = [count for count in columns["queries"] if count]
        found["queries"] = mean(asked, "queries", lowest=0.0)
    return found


def _of_attack(
    columns: Mapping[str, Sequence[Any]], before: Sequence[bool], attacked: Sequence[bool]
) -> dict[str, Metric]:
    broken = [was and not now for was, now in zip(before, columns["correct"], strict=True)]
    metrics = {"attack_success_rate": proportion(sum(broken), sum(before), higher_is_better=False)}
    if "hit" in columns:
        hits = sum(compress(columns["hit"], attacked))
        metrics["target_hit_rate"] = proportion(hits, sum(attacked), higher_is_better=False)
    for metric, name in MEDIANS.items():
        if name in columns:
            metrics[metric] = median(list(compress(columns[name], broken)))
    if "queries" in columns and not any(columns["backward"]) and any(attacked):
        metrics["queries"] = mean(list(compress(columns["queries"], attacked)), "queries", lowest=0.0)
    return metrics


def _distances(rows: Rows, params: Mapping[str, Any]) -> list[float] | None:
    """The distances of an attack without an epsilon; None of others."""
    if params.get("epsilon") is not None or "norm" not in params:
        return None
    return distances(rows, params["norm"])


def _curves(params_of: Sequence[Mapping[str, Any]]) -> dict[str, AnyEstimator]:
    """Of an attack without an epsilon: its median where all distances are finite, its area up to one end."""
    if not params_of:
        return {}
    params, ends = params_of[0], {one.get("area_to") for one in params_of}

    def finite(rows: Rows) -> list[tuple[int, float]] | None:
        found = _distances(rows, params)
        return None if found is None or math.inf in found else [(1, one) for one in found]

    curves: dict[str, AnyEstimator] = {"median_distance": Median(finite)}
    if len(ends) == 1 and (end := next(iter(ends))) is not None:
        areas = Estimator(lambda rows: capped(_distances(rows, params) or (), end), largest=end)
        curves["curve_area"] = areas
    return curves


def _broken(rows: Rows) -> list[tuple[int, int]] | None:
    """Whether each example was broken, and whether it was right before (of a random model: mostly)."""
    if "expected" in rows:
        shares = zip(rows["expected"], rows["clean_expected"], strict=True)
        return [(int(was > MOSTLY >= now), int(was > MOSTLY)) for now, was in shares]
    if not {"correct", "clean_correct"} <= rows.keys():
        return None
    pairs = zip(rows["correct"], rows["clean_correct"], strict=True)
    return [(int(bool(was) and not now), int(bool(was))) for now, was in pairs]


def _hits(rows: Rows, *, everything: bool) -> list[tuple[int, int]] | None:
    """Whether each example's target was hit, and whether the example was attacked."""
    if not {"hit", "clean_correct"} <= rows.keys() or None in rows["hit"]:
        return None
    pairs = zip(rows["hit"], rows["clean_correct"], strict=True)
    return [(int(hit and (everything or was)), int(everything or was)) for hit, was in pairs]


def _queries(rows: Rows, *, everything: bool) -> list[tuple[float, int]] | None:
    queries = rows.get("queries", ())
    if not queries or None in queries or any(rows["backward"]):
        return None
    attacked = [1 if everything else int(bool(was)) for was in rows["clean_correct"]]
    if "expected" in rows:
        attacked = [int(count > 0) for count in queries]
    return [(count * one, one) for count, one in zip(queries, attacked, strict=True)]


def _norms(name: str) -> Callable[[Rows], list[tuple[int, float]] | None]:
    def norms(rows: Rows) -> list[tuple[int, float]] | None:
        broken, column = _broken(rows), rows.get(name, ())
        if broken is None or not column or None in column:
            return None
        return [(part[0], norm) for part, norm in zip(broken, column, strict=True)]

    return norms


def stage_breakdown(evidence: Sequence[Evidence], n: int) -> list[StageBreakdown]:
    """One row per stage, in the order of their runs on the n examples of an evaluation."""
    # The `stages` of a shard's evidence are {"name", "n", "broken", "forward", "backward", "seconds"}. A
    # shard may leave out the last stages, and name one twice (screening in low precision first): the second
    # run got the examples left by the first. Examples seen by no stage were wrong before the attack.
    parts: dict[StageKey, list[Mapping[str, Any]]] = {}
    entered: dict[StageKey, int] = {}
    # The shard with the most stages has the order of all of them.
    for shard in sorted(evidence, key=lambda shard: -len(shard.get("stages", ()))):
        seen: set[StageKey] = set()
        for stage in shard.get("stages", ()):
            name = (stage.get("number"), stage["name"])
            parts.setdefault(name, []).append(stage)
            entered[name] = entered.get(name, 0) + (0 if name in seen else stage["n"])
            seen.add(name)
    return [_summed(key[1], same, entered[key], n) for key, same in parts.items()]


def _summed(name: str, same: Sequence[Mapping[str, Any]], entered: int, n: int) -> StageBreakdown:
    if all("expected" in stage for stage in same):
        left = math.fsum(stage["expected"] for stage in same) / n
        metrics = {"expected_top1": measured(left, NO_BOUNDS, n)}
    else:
        broken = sum(stage["broken"] for stage in same)
        metrics = {"top1": proportion(entered - broken, n, higher_is_better=True)}
    return stage_row(name, metrics, same, entered)


def _complete(column: Sequence[Any]) -> bool:
    return all(value is not None for value in column)


def _count(flags: Sequence[Any]) -> int:
    return sum(bool(flag) for flag in flags)


def _check_length(name: str, column: Sequence[Any], correct: Sequence[Any]) -> None:
    if len(column) != len(correct):
        raise ValueError(f"{name!r} has {len(column)} entries, 'correct' has {len(correct)}")
