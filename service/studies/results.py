"""Results of a study: its cells and their values; `significance` has the statistics."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import stdev
from typing import Any, NamedTuple

from assay.service.contract.corruption_cells import content_label
from assay.service.contract.fractions import canonical
from assay.service.contract.results import EvaluationResult, Metric, Unit, Warning, data_label
from assay.service.metrics.paired import Rows
from assay.service.metrics.statistics.multiple_tests import ADJUSTMENTS, Adjustment
from assay.service.studies.comparisons import LEVEL, ArmPair, compared_pair
from assay.service.studies.examples import RATIOS, per_example
from assay.service.studies.power import at_level
from assay.service.studies.primary import Primary, answer
from assay.service.studies.result_wire import (
    ArmValue,
    MissingRun,
    SeedValue,
    StudyCell,
    StudyComparison,
    StudyPrimary,
    StudyResults,
)
from assay.service.studies.runs import equal_arms
from assay.service.studies.significance import Spread
from assay.service.studies.wire import StudyUntil, notes_of


@dataclass(frozen=True)
class MeasuredRun:
    """An arm with one seed."""

    seed: int  # of training and evaluation
    state: str  # of its evaluation job; "succeeded" for a job with whole results
    results: Mapping[int, EvaluationResult] = field(default_factory=dict)  # by position in its spec
    columns: Callable[[int], Rows] = lambda _: {}  # the outcome columns of the evaluation at a position
    data_sha256: Mapping[str, str] = field(default_factory=dict)  # content hash by `data_label`


@dataclass(frozen=True)
class MeasuredArm:
    """An arm with its runs; without `trained` its seeds are the seeds of the evaluations alone.

    `configuration` is equal for arms that differ in nothing but their name; None where it is not known.
    """

    name: str
    trained: bool
    runs: Sequence[MeasuredRun]
    configuration: str | None = None


@dataclass(frozen=True)
class StudyPlan:
    """What a study asks for: see `contract.studies.StudySpec`; `metrics` None tests the first of each.

    With `until` every interval and test holds at all numbers of seeds at once, as the service looks after
    each.
    """

    study: str
    baseline: str
    adjust: Adjustment
    seeds: Sequence[int]
    metrics: Sequence[str] | None = None
    primary: Primary | None = None
    until: StudyUntil | None = None


def study_results(plan: StudyPlan, arms: Sequence[MeasuredArm]) -> StudyResults:
    """The results of a study from what its runs have measured."""
    found = _Cells(plan, arms)
    cells = list(found.cells())
    cells, tests = _adjusted(cells, plan)
    missing = [
        MissingRun(arm=arm.name, seed=run.seed, state=run.state)
        for arm in arms
        for run in arm.runs
        if run.state != "succeeded"
    ]
    return StudyResults(
        study=plan.study,
        complete=not missing,
        arms=[arm.name for arm in arms],
        seeds=list(plan.seeds),
        baseline=plan.baseline,
        adjust=plan.adjust,
        tests=tests,
        cells=cells,
        missing=missing,
        notes=[
            *notes_of([(arm.name, arm.trained) for arm in arms], len(plan.seeds)),
            *equal_arms([(arm.name, arm.configuration) for arm in arms]),
        ],
        warnings=found.warnings,
        warning_messages=found.messages,
        primary=found.primary,
        until=plan.until,
    )


class _Measured(NamedTuple):
    seed: int
    result: EvaluationResult
    columns: Rows
    sha256: str | None


class _Cells:
    """Finds the cells: evaluation by evaluation, so that only an evaluation's rows are held at a time."""

    def __init__(self, plan: StudyPlan, arms: Sequence[MeasuredArm]) -> None:
        self.plan, self.arms = plan, arms
        self.warnings: list[Warning] = []
        self.messages: dict[str, str] = {}
        self.primary: StudyPrimary | None = None
        self._values: dict[tuple[str, int], dict[str, float] | None] = {}

    def cells(self) -> Iterator[StudyCell]:
        """Every metric of every evaluation, in the order of the study."""
        known: dict[str, tuple[str, str]] = {}
        places = [[_by_key(run, known) for run in arm.runs] for arm in self.arms]
        for key in dict.fromkeys(key for runs in places for run in runs for key in run):
            measured = [
                [
                    _Measured(run.seed, run.results[at[key][0]], run.columns(at[key][0]), at[key][1])
                    for run, at in zip(arm.runs, runs, strict=True)
                    if key in at
                ]
                for arm, runs in zip(self.arms, places, strict=True)
            ]
            positions = {run[key][0] for runs in places for run in runs if key in run}
            yield from self._evaluation(measured, positions)

    def _evaluation(
        self, measured: Sequence[Sequence[_Measured]], positions: Collection[int]
    ) -> Iterator[StudyCell]:
        every = [one for runs in measured for one in runs]
        first = every[0].result
        same_data = len({one.sha256 for one in every} - {None}) <= 1
        if not same_data:
            name = data_label(first.data)
            message = (
                f"{first.name}: the data set {name!r} had other content in some runs; examples are not paired"
            )
            evidence = {"params": first.params, "sha256": sorted({str(one.sha256) for one in every})}
            self.warnings.append(Warning(code="different_data", message=message, evidence=evidence))
        codes = Counter(code for one in every for code in {found.code for found in one.result.warnings})
        for warning in (warning for one in every for warning in one.result.warnings):
            self.messages.setdefault(warning.code, warning.message)
        chosen = self.plan.metrics or list(first.metrics)[:1]
        primary = self.plan.primary if self.plan.primary and self.plan.primary.position in positions else None
        for name in dict.fromkeys(name for one in every for name in one.result.metrics):
            has = [[one for one in runs if name in one.result.metrics] for runs in measured]
            metric = next(one.result.metrics[name] for runs in has for one in runs)
            values = _Values(name, has, paired=same_data)
            asked = primary if primary and name == (primary.metric or next(iter(first.metrics))) else None
            compared = list(self._comparisons(values, metric, tested=name in chosen, primary=asked))
            cell = StudyCell(
                evaluation=first.name,
                params=first.params,
                data=first.data,
                protocol=first.protocol,
                metric=name,
                higher_is_better=metric.higher_is_better,
                unit=metric.unit,
                tested=name in chosen or asked is not None,
                arms=[_arm_value(arm, runs, name) for arm, runs in zip(self.arms, has, strict=True)],
                comparisons=[one for one, _ in compared],
                warnings=dict(sorted(codes.items())),
            )
            for one, spread in compared:
                if asked is not None and one.primary:
                    self.primary = answer(asked, cell, one, spread)
            yield cell

    def _comparisons(
        self, values: _Values, metric: Metric, *, tested: bool, primary: Primary | None
    ) -> Iterator[tuple[StudyComparison, Spread | None]]:
        names = [arm.name for arm in self.arms]
        base = names.index(self.plan.baseline)
        for index, arm in enumerate(self.arms):
            if index != base:
                found = values.pair(base, index)
                trained = arm.trained and self.arms[base].trained
                asked = primary is not None and arm.name == primary.arm
                one, spread = compared_pair(
                    found,
                    arm.name,
                    self.plan.baseline,
                    metric,
                    trained=trained,
                    tested=tested or asked,
                    anytime=self.plan.until is not None,
                )
                yield one.model_copy(update={"primary": asked}), spread


class _Values:
    def __init__(self, name: str, measured: Sequence[Sequence[_Measured]], *, paired: bool) -> None:
        self.measured, self.name = measured, name
        self.examples = [
            [per_example(name, one.result, one.columns) if paired else None for one in runs]
            for runs in measured
        ]

    def pair(self, base: int, other: int) -> ArmPair:
        """The differences of an arm to the baseline."""
        sides = [
            {
                one.seed: (value, examples)
                for one, examples in zip(self.measured[side], self.examples[side], strict=True)
                if (value := one.result.metrics[self.name].value) is not None
            }
            for side in (base, other)
        ]
        seeds = [seed for seed in sides[0] if seed in sides[1]]
        of_seeds = [sides[1][seed][0] - sides[0][seed][0] for seed in seeds]
        rows = [(sides[0][seed][1], sides[1][seed][1]) for seed in seeds]
        known = [(one, two) for one, two in rows if one is not None and two is not None]
        if not known or len(known) < len(rows):
            return ArmPair(seeds, of_seeds, None, shares=False)
        common = set(known[0][0])
        for one, two in known:
            common &= one.keys() & two.keys()
        if len(common) < 2:
            return ArmPair(seeds, of_seeds, None, shares=False)
        ids = sorted(common)
        shares = self.name not in RATIOS and all(
            0 <= side[example] <= 1 for sides_ in known for side in sides_ for example in ids
        )
        return ArmPair(
            seeds, of_seeds, [[two[one_id] - one[one_id] for one_id in ids] for one, two in known], shares
        )


def _adjusted(cells: Sequence[StudyCell], plan: StudyPlan) -> tuple[list[StudyCell], int]:
    """The cells with adjusted p-values, except the primary, and the power at the level of the smallest."""
    secondary = [one for cell in cells for one in cell.comparisons if not one.primary]
    tests = [found.test for found in secondary if found.test is not None]
    adjusted = iter(ADJUSTMENTS[plan.adjust]([test.p_value for test in tests]) if tests else [])
    # With one seed there are no tests yet: those that further seeds would bring.
    count = len(tests) or max(1, sum(one.power is not None for one in secondary))

    def finished(found: StudyComparison, unit: Unit | None) -> StudyComparison:
        update: dict[str, Any] = {}
        if found.test is not None and not found.primary:
            update["test"] = found.test.model_copy(update={"adjusted_p_value": next(adjusted)})
        if found.power is not None:
            level = LEVEL if found.primary else LEVEL / count
            update["power"] = at_level(found.power, level, unit, anytime=plan.until is not None)
        return found.model_copy(update=update)

    done = [
        cell.model_copy(update={"comparisons": [finished(one, cell.unit) for one in cell.comparisons]})
        for cell in cells
    ]
    return done, len(tests)


def _arm_value(arm: MeasuredArm, runs: Sequence[_Measured], name: str) -> ArmValue:
    metrics = [(one.seed, one.result.metrics[name]) for one in runs]
    known = [metric.value for _, metric in metrics if metric.value is not None]
    counts = {metric.n for _, metric in metrics}
    return ArmValue(
        arm=arm.name,
        mean=math.fsum(known) / len(known) if known else None,
        sd=stdev(known) if len(known) > 1 else None,
        n=counts.pop() if len(counts) == 1 else None,
        seeds=[SeedValue(seed=seed, value=metric.value, n=metric.n) for seed, metric in metrics],
    )


def _by_key(run: MeasuredRun, known: dict[str, tuple[str, str]]) -> dict[str, tuple[int, str | None]]:
    """Position and content hash by the identity of evaluations; the first of equal ones counts."""
    found: dict[str, tuple[int, str | None]] = {}
    for position, one in sorted(run.results.items()):
        stated = [one.name, one.params, one.data, one.protocol]
        if (text := repr(stated)) not in known:  # The runs of a study repeat the same few.
            label = content_label(data_label(one.data), one.params)
            known[text] = (json.dumps(canonical(stated), sort_keys=True), label)
        key, label = known[text]
        found.setdefault(key, (position, run.data_sha256.get(label)))
    return found
