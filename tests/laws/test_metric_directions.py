"""Every place that calls a number better follows the direction of its metric: an error is better lower."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, get_args

import pytest

from assay.service.contract.results import EvaluationResult, Metric, Results, Unit
from assay.service.dashboard.comparison_view import compared_metrics
from assay.service.leaderboard.entries import MeasuredJob, leaderboard_entries
from assay.service.leaderboard.methods import ranked_methods
from assay.service.metrics.compare.comparison import ComparedValue, Comparison, ComparisonRow
from assay.service.metrics.compare.sanity_checks import ACCURACIES
from assay.service.metrics.paired import SignFlipTest
from assay.service.reports.comparisons import significantly_best
from assay.service.reports.gate import judged, read_requirement
from assay.service.reports.tables import pivot
from assay.service.reports.tidy import ReportedJob, tidy_rows
from assay.service.studies.pages import _row
from assay.service.studies.result_wire import ArmValue, StudyCell, StudyComparison, StudyTest

UNITS: tuple[Any, ...] = (*get_args(Unit), None)
LOW, HIGH = 0.25, 0.5
# Place to the job that it calls better, of "first" and "second"; None for neither.
Place = Callable[["Case"], str | None]


class Case:
    """Two jobs with a metric of a unit and a direction; their difference is significant or not."""

    def __init__(self, first: float, second: float, *, up: bool, unit: Any, significant: bool) -> None:
        self.values = {"first": first, "second": second}
        self.up, self.unit, self.significant = up, unit, significant

    @property
    def difference(self) -> float:
        return self.values["second"] - self.values["first"]

    @property
    def better(self) -> str | None:
        """The right answer."""
        if not self.significant or not self.difference:
            return None
        return (max if self.up else min)(self.values, key=lambda job: self.values[job])

    def metric(self, value: float, width: float = 0.01) -> Metric:
        ends = {"ci_low": value - width, "ci_high": value + width, "ci_method": "studentised"}
        return Metric(value=value, n=60, higher_is_better=self.up, unit=self.unit, **ends)  # type: ignore[arg-type]

    def results(self, job: str) -> Results:
        row = EvaluationResult(
            name="e",
            params={},
            data={"name": "digits", "params": {}},
            protocol="pixel",
            backend="native",
            metrics={"m": self.metric(self.values[job])},
            seconds=1.0,
            forward_passes=1,
            backward_passes=0,
        )
        return Results(job=job, complete=True, evaluations=[row], provenance=None)

    def comparison(self) -> ComparisonRow:
        p_value = 1e-6 if self.significant else 0.4
        values = [
            ComparedValue(job=job, value=value, ci_low=None, ci_high=None, n=60)
            for job, value in self.values.items()
        ]
        return ComparisonRow(
            evaluation="e",
            params={},
            data={"name": "digits", "params": {}},
            protocol="pixel",
            metric="m",
            higher_is_better=self.up,
            unit=self.unit,
            values=values,
            difference=self.difference,
            test=SignFlipTest(p_value=p_value, adjusted_p_value=p_value, n=60, moved=30),
        )


def bold(case: Case) -> str | None:
    """The bold cell of the table of both jobs."""
    spec = {"seed": 0, "name": "", "model": {"name": "vit", "params": {}, "weights": None}}
    rows = tidy_rows([ReportedJob(job, job, spec, case.results(job)) for job in case.values])
    best = significantly_best([case.comparison()], list(case.values), "holm")
    table = pivot(rows, by=("attack", "job"), best=best)
    ((_, cells),) = table.rows
    found = [job for job, cell in zip(table.header[1:], cells, strict=True) if cell is not None and cell.bold]
    assert len(found) < 2
    return found[0] if found else None


def compare_page(case: Case) -> str | None:
    comparison = Comparison(
        jobs=list(case.values), rows=[case.comparison()], warnings=[], adjust="holm", tests=1
    )
    ((shown,), _) = compared_metrics(comparison, every=True)
    assert shown.better == ("higher" if case.up else "lower")
    (cell,) = shown.others
    assert cell is not None
    return {"better": "second", "worse": "first", "": None}[cell.verdict]


def study_page(case: Case) -> str | None:
    p_value = 1e-6 if case.significant else 0.4
    test = StudyTest(name="two_way_t", p_value=p_value, adjusted_p_value=p_value, statistic=1.0, seeds=2)
    cell = StudyCell(
        evaluation="e",
        params={},
        data={"name": "digits", "params": {}},
        protocol="pixel",
        metric="m",
        higher_is_better=case.up,
        unit=case.unit,
        tested=True,
        arms=[ArmValue(arm=arm, mean=value, sd=0.1, n=60, seeds=[]) for arm, value in case.values.items()],
        comparisons=[
            StudyComparison.model_validate(
                {**COMPARED, "arm": "second", "difference": case.difference, "test": test.model_dump()}
            )
        ],
    )
    shown = _row(cell)
    assert shown["better"] == ("higher" if case.up else "lower")
    (found,) = shown["comparisons"]
    assert [arm["verdict"] for arm in shown["arms"]] == ["", found["verdict"]]
    return {"better": "second", "worse": "first", "": None}[found["verdict"]]


COMPARED: dict[str, Any] = {"compares": "methods", "baseline": "first", "seeds": [0, 1]}
PLACES: Mapping[str, Place] = {"bold": bold, "compare page": compare_page, "study page": study_page}


@pytest.mark.sampled
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("up", [True, False], ids=["score", "error"])
def test_a_place_calls_the_better_job_better(place: str, unit: Any, up: bool) -> None:
    for (first, second), significant in product([(LOW, HIGH), (HIGH, LOW), (LOW, LOW)], [True, False]):
        case = Case(first, second, up=up, unit=unit, significant=significant)
        assert PLACES[place](case) == case.better, (first, second, significant)


@pytest.mark.sampled
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("up", [True, False], ids=["score", "error"])
def test_a_gate_is_decided_by_the_end_that_is_nearer_to_the_bound(unit: Any, up: bool) -> None:
    """Whatever the direction of the metric: the operator says which side is asked for."""
    results = Case(HIGH, LOW, up=up, unit=unit, significant=True).results("first")
    passed = {
        text: judged(read_requirement(f"e m {text}"), results).passed
        for text in (">= 0.49", ">= 0.5", "> 0.49", "<= 0.51", "<= 0.5", "< 0.51")
    }
    assert passed == {
        ">= 0.49": True,
        ">= 0.5": False,
        "> 0.49": False,
        "<= 0.51": True,
        "<= 0.5": False,
        "< 0.51": False,
    }


def test_the_leaderboard_ranks_accuracies_alone() -> None:
    """Beside an accuracy no error, and without one nothing: it is sorted from the highest value down."""
    error = Case(HIGH, LOW, up=False, unit="proportion", significant=True).metric(0.01)

    def ranked(metrics: dict[str, Metric]) -> list[float]:
        entries = []
        for job, value in (("a", 0.3), ("b", 0.6)):
            own = {
                name: one.model_copy(update={"value": value} if name in ACCURACIES else {})
                for name, one in metrics.items()
            }
            row = Case(LOW, HIGH, up=True, unit=None, significant=True).results("first").evaluations[0]
            row = row.model_copy(update={"metrics": own})
            entries += leaderboard_entries(
                MeasuredJob(job, "", "vit", 0, None, {}, {}, {0: row}), lambda name: None
            )
        return [one.mean for one in ranked_methods(entries)]

    for name in ACCURACIES:
        score = error.model_copy(update={"higher_is_better": True})
        assert ranked({"error": error, name: score}) == [0.6, 0.3]
    assert ranked({"error": error, "rmse": error, "attack_success_rate": error}) == []
