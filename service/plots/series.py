"""Input of plots from results: accuracies, attacks with their epsilon, and labels that tell them apart."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from assay.service.catalog.catalog import load
from assay.service.contract.fractions import PIXEL_STEPS, fraction_value
from assay.service.contract.results import EvaluationResult, Metric, Results
from assay.service.contract.summaries import TELLING
from assay.service.plots.theme import percent, unique_labels
from assay.service.reports.numbers import param_text

ACCURACIES = (  # A row's first is its accuracy.
    "top1", "expected_top1", "accuracy_under_attack", "expected_accuracy_under_attack", "miou",
    "mean_accuracy", "pixel_accuracy",
)  # fmt: skip
UNATTACKED = {  # Accuracies whose rows have the accuracy without the attack, too.
    "expected_top1": "clean_expected_top1",
    "accuracy_under_attack": "accuracy",
    "expected_accuracy_under_attack": "expected_accuracy",
}
EPSILON = "epsilon"
IN_STEPS = f"1/{PIXEL_STEPS}"
TITLES = {"miou": "mIoU"}


@dataclass(frozen=True)
class LabelledResults:
    """A job's results under a plot's name."""

    label: str  # of the legend, cut after 60 characters
    results: Results
    # of an evaluation's examples, by its place in the job
    tallies: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    training: Sequence[Mapping[str, Any]] = ()  # of the training log, an epoch each

    # Each kind of plot needs it.
    @cached_property
    def attacked(self) -> list[AttackedRow]:
        """Every accuracy under an attack with an epsilon, in order."""
        clean = list(unattacked(self.results))
        return [
            AttackedRow(
                row=row,
                epsilon=epsilon,
                metric=metric,
                key=_key(row),
                norm=norm_of(row),
                unit=radius_unit(row),
                unattacked=_unattacked_accuracy(row, clean),
            )
            for row in self.results.evaluations
            if (epsilon := epsilon_of(row)) is not None and (metric := accuracy(row)) is not None
        ]


@dataclass(frozen=True)
class AttackedRow:
    """An accuracy under an attack with an epsilon."""

    row: EvaluationResult
    epsilon: float
    metric: Metric
    key: str  # equal for comparable rows, without epsilon
    norm: str
    unit: str  # of epsilon: "1/255", "sd", or empty
    unattacked: Metric | None  # The model's accuracy on the same data without an attack, if measured

    @property
    def epsilon_text(self) -> str:
        """Epsilon as people write it."""
        return _in_unit(self.epsilon, self.unit)


@dataclass(frozen=True)
class Measured(AttackedRow):
    """Such an accuracy among others, of a job or several."""

    job: str
    attack: str  # with the parameters that tell it from others of its name


def accuracy_name(row: EvaluationResult) -> str | None:
    """The metric of the row that is its accuracy."""
    return next((name for name in ACCURACIES if name in row.metrics), None)


def accuracy(row: EvaluationResult) -> Metric | None:
    """The accuracy of a row, if it has one with a value."""
    name = accuracy_name(row)
    metric = None if name is None else row.metrics[name]
    return None if metric is None or metric.value is None else metric


def epsilon_of(row: EvaluationResult) -> float | None:
    """The epsilon of an attack; None for a row without one."""
    try:
        return fraction_value(row.params[EPSILON])
    except (KeyError, TypeError, ValueError):
        return None


def unattacked(results: Results) -> Iterator[EvaluationResult]:
    """The rows that measure an accuracy on the data as they are."""
    return filter(is_unattacked, results.evaluations)


def is_unattacked(row: EvaluationResult) -> bool:
    """Whether the row measures an accuracy on the data as they are."""
    return has_one_answer(row) and not is_noise(row)


def has_one_answer(row: EvaluationResult) -> bool:
    """Whether the model answers once to each example of the row, and not before and after a change."""
    attacked = EPSILON in row.params or "attack_success_rate" in row.metrics
    return not attacked and not row.breakdown and accuracy(row) is not None


def unattacked_accuracy(results: Results, row: EvaluationResult) -> Metric | None:
    """The accuracy on the same data without an attack; an expected accuracy's row has its own."""
    return _unattacked_accuracy(row, unattacked(results))


def _unattacked_accuracy(row: EvaluationResult, clean: Iterable[EvaluationResult]) -> Metric | None:
    name = accuracy_name(row)
    if name in UNATTACKED:
        return row.metrics.get(UNATTACKED[name])
    for other in clean:
        if other.data == row.data and accuracy_name(other) == name:
            return accuracy(other)
    return None


def labels_of(jobs: Sequence[LabelledResults]) -> list[str]:
    """The labels of the jobs as they are drawn."""
    return unique_labels([job.label for job in jobs])


def labelled_rows(jobs: Sequence[LabelledResults]) -> Iterator[tuple[str, LabelledResults, EvaluationResult]]:
    """Every row of the jobs, with its job and the job's label as it is drawn."""
    for label, job in zip(labels_of(jobs), jobs, strict=True):
        for row in job.results.evaluations:
            yield label, job, row


def attacked(jobs: Sequence[LabelledResults]) -> list[Measured]:
    """Every accuracy under an attack with an epsilon, in order."""
    rows = [(label, one) for label, job in zip(labels_of(jobs), jobs, strict=True) for one in job.attacked]
    names = _named({one.key: one.row for _, one in rows})
    return [Measured(**vars(one), job=label, attack=names[one.key]) for label, one in rows]


def is_noise(row: EvaluationResult) -> bool:
    """Whether the row's changes are random: no attack."""
    return load().random_changes(row.name)


def strongest_attacks(rows: Sequence[Measured]) -> list[tuple[float, Measured]]:
    """Radii of attacks in one ball, ascending, each with the attack that left the lowest accuracy at it.

    Without radii at which every attack left more than an attack did at a smaller radius: a perturbation of a
    smaller radius is one of every larger radius, so these attacks tell nothing of theirs.
    """
    found: list[tuple[float, Measured]] = []
    attacks = [row for row in rows if not is_noise(row.row)]  # Noise is no attack.
    for row in sorted(attacks, key=lambda row: (row.epsilon, row.metric.value or 0.0)):
        if found and row.epsilon == found[-1][0]:
            continue
        left, before = row.metric.value or 0.0, found[-1][1] if found else None
        least = math.inf if before is None else before.metric.value or 0.0
        # Of another attack an equal number but 0 may be the luck of a weak search.
        same = before is not None and (row.attack == before.attack or not left)
        if left < least or (same and left == least):
            found.append((row.epsilon, row))
    return found


def ball_of(results: Results) -> list[Measured]:
    """Accuracies under attack in the ball (data, protocol, norm, kind of accuracy) with the most attacks."""
    balls: dict[str, list[Measured]] = {}
    for one in attacked([LabelledResults("", results)]):
        if not is_noise(one.row):
            ball = [one.row.data, one.row.protocol, one.norm, accuracy_name(one.row)]
            balls.setdefault(json.dumps(ball, sort_keys=True, default=str), []).append(one)
    return max(balls.values(), key=len, default=[])


def strongest_attacks_of(results: Results) -> list[tuple[float, Measured]]:
    """`strongest_attacks` in the ball of `ball_of`."""
    return strongest_attacks(ball_of(results))


def telling(cases: Sequence[tuple[float, Measured]]) -> tuple[float, Measured]:
    """The worst case at the largest radius where a tenth holds, else at the smallest radius."""
    held = [case for case in cases if (case[1].metric.value or 0.0) >= TELLING]
    return held[-1] if held else cases[0]


def norm_of(row: EvaluationResult) -> str:
    """The norm of an attack's ball."""
    return load().norm_of(row.name, row.params)


def radius_unit(row: EvaluationResult) -> str:
    """The unit of a row's radii: "1/255" in Linf of pixels, "sd", or empty."""
    unit = load().radius_unit(row.data, row.protocol)
    if unit == "pixel":
        return IN_STEPS if norm_of(row) == "Linf" else ""
    return unit


def radius_text(row: EvaluationResult, radius: float) -> str:
    """A radius of the row's attack as people write it."""
    return _in_unit(radius, radius_unit(row))


def _in_unit(radius: float, unit: str) -> str:
    if unit == IN_STEPS:
        return f"{PIXEL_STEPS * radius:.3g}/{PIXEL_STEPS}"
    return f"{radius:.3g} {unit}".strip()


def attack_labels(rows: Sequence[EvaluationResult]) -> dict[str, str]:
    """An attack's name by key, with the settings that tell it from others of its name."""
    return _named({_key(row): row for row in rows})


def _named(rows: Mapping[str, EvaluationResult]) -> dict[str, str]:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for key, row in rows.items():
        found.setdefault(row.name, {})[key] = _settings(row)
    texts = {}
    for name, variants in found.items():
        every = list(variants.values())
        differing = [
            setting
            for setting in dict.fromkeys(key for one in every for key in one)
            if any(one.get(setting) != every[0].get(setting) for one in every)
        ]
        for key, settings in variants.items():
            told = [f"{setting}={param_text(setting, settings.get(setting))}" for setting in differing]
            texts[key] = ", ".join([name, *told])
    return dict(zip(texts, unique_labels(list(texts.values())), strict=True))


def _settings(row: EvaluationResult) -> dict[str, Any]:
    data = {
        "data": row.data.get("name"),
        **{f"data {k}": v for k, v in (row.data.get("params") or {}).items()},
    }
    own = {name: value for name, value in row.params.items() if name not in (EPSILON, "step_size")}
    return {**own, **data, "protocol": row.protocol}


def _key(row: EvaluationResult) -> str:
    return json.dumps([row.name, _settings(row)], sort_keys=True, default=str)


def label_of_one(jobs: Sequence[LabelledResults]) -> str:
    """The label of a single job, for a subtitle; empty for several."""
    return "" if len(jobs) > 1 else jobs[0].label


def ends_of(metric: Metric) -> tuple[float | None, float | None]:
    """A metric's interval, the value for a missing end."""
    low, high = metric.ci_low, metric.ci_high
    return metric.value if low is None else low, metric.value if high is None else high


def interval_text(metric: Metric) -> str:
    """The 95 % interval of a proportion as people read it."""
    if metric.ci_low is None or metric.ci_high is None:
        return "none"
    return f"{percent(metric.ci_low)} to {percent(metric.ci_high)}"


def attack_name(row: EvaluationResult, names: Mapping[str, str]) -> str:
    """The name of a row's attack, as `attack_labels` tells it from others."""
    return names[_key(row)]


def ball_text(row: EvaluationResult) -> str | None:
    """An attack's norm and epsilon: "Linf, ε = 4/255"; None without an epsilon."""
    epsilon = epsilon_of(row)
    return None if epsilon is None else f"{norm_of(row)}, ε = {radius_text(row, epsilon)}"


def setting_label(row: EvaluationResult, names: Mapping[str, str]) -> str:
    """A row's attack, as `attack_labels` names it, and its epsilon."""
    ball = ball_text(row)
    return attack_name(row, names) if ball is None else f"{attack_name(row, names)}, {ball.split(', ')[1]}"
