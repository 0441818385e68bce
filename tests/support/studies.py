"""Simulated runs of a study: outcome tables with the spread over seeds that real trainings have.

Whether an answer is right is a threshold on example_i + seed_s + arm_by_example + rest_si, all normal. Six
trainings of one SymViT on digits under PGD 8/255 were right in 2.5 to 10.1 %: a spread over seeds of 0.27 of
the standard deviation over examples gives that range at a mean of 6 %.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

from assay.service.contract.results import EvaluationResult, Metric
from assay.service.metrics.paired import Rows
from assay.service.metrics.statistics.intervals import wilson
from assay.service.studies.results import MeasuredArm, MeasuredRun

# Share of the variance of an answer that belongs to its example, and not to the training.
EXAMPLE_SHARE = 0.6
SEED_SD = 0.27


@dataclass(frozen=True)
class Method:
    """A method of training.

    Attributes:
        accuracy: expected, over seeds and examples.
        seed_sd: spread over seeds, in standard deviations of an answer.
        own_examples: standard deviation of what this method finds hard and others do not.
    """

    accuracy: float
    seed_sd: float = SEED_SD
    own_examples: float = 0.0


def answers(methods: Sequence[Method], seeds: int, n: int, key: str) -> list[list[list[int]]]:
    """Right or wrong, (arms, seeds, n): the same examples in all arms and seeds."""
    rng = random.Random(f"study/{key}")
    examples = [rng.gauss(0, math.sqrt(EXAMPLE_SHARE)) for _ in range(n)]
    rest_sd = math.sqrt(1 - EXAMPLE_SHARE)
    tables = []
    for method in methods:
        own = [rng.gauss(0, method.own_examples) if method.own_examples else 0.0 for _ in range(n)]
        spread = math.sqrt(1 + method.seed_sd**2 + method.own_examples**2)
        centre = NormalDist().inv_cdf(method.accuracy) * spread
        runs = []
        for _ in range(seeds):
            level = centre + rng.gauss(0, method.seed_sd)
            runs.append(
                [
                    int(level + one + mine + rng.gauss(0, rest_sd) > 0)
                    for one, mine in zip(examples, own, strict=True)
                ]
            )
        tables.append(runs)
    return tables


def evaluation(name: str, correct: Sequence[int]) -> EvaluationResult:
    """The result of an evaluation with these answers."""
    low, high = wilson(sum(correct), len(correct))
    top1 = Metric(
        value=sum(correct) / len(correct),
        n=len(correct),
        ci_low=low,
        ci_high=high,
        ci_method="wilson",
        higher_is_better=True,
        unit="proportion",
    )
    return EvaluationResult(
        name=name,
        params={},
        data={"name": "digits", "params": {}},
        protocol="pixel",
        backend="native",
        metrics={"top1": top1},
        seconds=1.0,
        forward_passes=len(correct),
        backward_passes=0,
    )


def measured(
    name: str, evaluations: Sequence[Sequence[Sequence[int]]], *, trained: bool = True
) -> MeasuredArm:
    """An arm from its answers, (evaluations, seeds, n)."""
    ids = [f"{example:05d}" for example in range(len(evaluations[0][0]))]
    runs = []
    for seed in range(len(evaluations[0])):
        tables = [answered[seed] for answered in evaluations]
        results = {place: evaluation(f"cell {place}", correct) for place, correct in enumerate(tables)}
        runs.append(MeasuredRun(seed, "succeeded", results, partial(_columns, ids, tables)))
    return MeasuredArm(name, trained, runs)


def _columns(ids: Sequence[str], tables: Sequence[Sequence[int]], place: int) -> Rows:
    return {"id": ids, "correct": tables[place]}


def study_arms(
    cells: Sequence[Sequence[Method]], seeds: int, n: int, key: str, names: Sequence[str] = ("one", "other")
) -> list[MeasuredArm]:
    """The arms of a study: for each cell the methods of all arms."""
    tables = [answers(methods, seeds, n, f"{key}/{place}") for place, methods in enumerate(cells)]
    return [measured(name, [table[arm] for table in tables]) for arm, name in enumerate(names)]
