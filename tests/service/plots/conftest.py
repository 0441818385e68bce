"""Results of a job as the service has them, with every part that a plot draws."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.contract.results import (
    Bracket,
    Breakdown,
    CurveBreakdown,
    EvaluationResult,
    Metric,
    Reference,
    Results,
    StageBreakdown,
)
from assay.service.plots.kinds import LabelledResults
from assay.service.plots.tallies import spent, tally


def metric(value: float | None, n: int = 200) -> Metric:
    ends = (None, None) if value is None else (max(0.0, value - 0.04), min(1.0, value + 0.04))
    return Metric(
        value=value,
        n=n,
        ci_low=ends[0],
        ci_high=ends[1],
        ci_method="wilson" if value is not None else "none",
        higher_is_better=True,
        unit="proportion",
    )


def row(name: str, value: float | None, **changes: Any) -> EvaluationResult:
    params = changes.pop("params", {})
    metrics = {"top1": metric(value)}
    if "epsilon" in params:
        metrics["attack_success_rate"] = metric(0.5)
    given = {
        "name": name,
        "params": params,
        "data": {"name": "digits", "params": {}},
        "protocol": "pixel",
        "backend": "native",
        "metrics": metrics,
        "seconds": 2.0,
        "forward_passes": 4000,
        "backward_passes": 4000,
    }
    return EvaluationResult(**{**given, **changes})


def stage(name: str, value: float, n: int, broken: int) -> StageBreakdown:
    return StageBreakdown(
        stage=name,
        metrics={"top1": metric(value)},
        n=n,
        broken=broken,
        forward_passes=100,
        backward_passes=50,
        seconds=1.0,
    )


def whole_results(shift: float = 0.0) -> Results:
    published = [Reference(metric="top1", value=0.5, source="Table 1", protocol="pixel")]
    cells = [
        Breakdown(corruption=name, severity=severity, metrics={"top1": metric(0.9 - 0.1 * severity - shift)})
        for name in ("fog", "frost")
        for severity in (1, 3, 5)
    ]
    steps = [
        CurveBreakdown(norm="L2", epsilon=epsilon, metrics={"curve_top1": metric(0.95 - epsilon - shift)})
        for epsilon in (0.0, 0.1, 0.4, 0.8)
    ]
    evaluations = [
        row("clean", 0.95 - shift),
        row("pgd", 0.7 - shift, params={"epsilon": "2/255", "norm": "Linf"}, reference=published),
        row("pgd", 0.3 - shift, params={"epsilon": 4 / 255, "norm": "Linf"}),
        row(
            "autoattack",
            0.6 - shift,
            params={"epsilon": "2/255"},
            breakdown=[stage("apgd_ce", 0.65 - shift, 190, 60), stage("square", 0.6 - shift, 130, 10)],
        ),
        row("corruptions", 0.6 - shift, breakdown=cells),
        row("fmn", 0.0, params={"norm": "L2"}, breakdown=steps),
    ]
    bounds = [
        Bracket(
            data="digits",
            norm="Linf",
            epsilon=epsilon,
            n=200,
            verified=metric(0.5 - 20 * epsilon),
            attacked=metric(0.8 - 20 * epsilon - shift),
            verified_by=["verified"],
            attacked_by=["pgd"],
        )
        for epsilon in (2 / 255, 4 / 255)
    ]
    return Results(job="01", complete=True, evaluations=evaluations, bracket=bounds, provenance=None)


def columns(wrong: int) -> dict[str, list[Any]]:
    labels = [place % 5 for place in range(100)]
    correct = [place >= wrong for place in range(100)]
    return {
        "label": labels,
        "correct": correct,
        "prediction": [
            label if right else (label + 1) % 5 for label, right in zip(labels, correct, strict=True)
        ],
        "confidence": [(place + 1) / 100 for place in range(100)],
    }


def attacked(cost: int) -> dict[str, list[Any]]:
    """100 examples: 5 are wrong before the attack, 40 break, each a pass later than the one before."""
    before = [place >= 5 for place in range(100)]
    forward = [1 if not right else cost * min(place, 45) for place, right in enumerate(before)]
    return {**columns(45), "clean_correct": before, "forward": forward, "backward": [0] * 100}


TRAINING = [
    {"epoch": epoch, "loss": 2 / epoch, "accuracy": 1 - 1 / epoch, "judged_accuracy": None}
    for epoch in range(1, 6)
]


def labelled(label: str = "a job", shift: float = 0.0) -> LabelledResults:
    return LabelledResults(
        label,
        whole_results(shift),
        {
            0: tally(columns(5)),
            1: {**tally(columns(40)), "spent": spent(attacked(1))},
            3: {"spent": spent(attacked(8))},
        },
        TRAINING,
    )


@pytest.fixture
def job() -> LabelledResults:
    return labelled()


@pytest.fixture
def other_job() -> LabelledResults:
    return labelled("another job", 0.1)
