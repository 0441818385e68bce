"""The results of a job in a sentence, for pages, reports and the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.service.catalog.catalog import load
from assay.service.catalog.tasks import TaskFacts
from assay.service.contract.results import EvaluationResult, Metric, Results
from assay.service.contract.summaries import TELLING, JobSummary, SummaryValue
from assay.service.metrics.compare.sanity_checks import cross_checks
from assay.service.plots.series import (
    TITLES,
    UNATTACKED,
    LabelledResults,
    Measured,
    accuracy,
    accuracy_name,
    attacked,
    ball_of,
    epsilon_of,
    is_noise,
    norm_of,
    radius_text,
    strongest_attacks_of,
    telling,
    unattacked,
    unattacked_accuracy,
)
from assay.service.reports.numbers import number, params_text, strengths

NAMES = {
    "top1": "accuracy",
    "expected_top1": "expected accuracy",
    "perplexity_unswapped": "perplexity of unswapped words",
    **TITLES,
}
STRONGEST = "under the strongest attack run"
NO_ATTACK = "no attack was run"
BEFORE = "_before"  # ends the name of a metric over the same words in the text as it was
CORRUPTED = ("corrupted_top1", "corrupted_miou")
MAX_CHANGES = 3


def headline(results: Results) -> str:
    """What holds under the strongest attack run and what is right without an attack; empty without a number.

    Of several radii the largest at which a tenth holds, beside the largest of all; its own sentence says so.
    Doubts stand first: codes of warnings that make numbers invalid, and missing evaluations.
    """
    ways: tuple[Callable[[Results], str], ...] = (
        _within_radii, _without_radius, _of_distance, _of_change, _without_value, _of_noise, _clean, _first,
    )  # fmt: skip
    said = next(filter(None, (way(results) for way in ways)), "")
    if not said:
        return ""
    invalid = _invalid(results)
    doubts = [f"Invalid ({', '.join(invalid)})"] if invalid else []
    doubts += [] if results.complete else ["Not complete, so far"]
    named = any(said.startswith(f"{row.name}:") for row in results.evaluations)
    if not doubts and not named and said.partition(" ")[0].islower():
        said = f"{said[0].upper()}{said[1:]}"
    return " ".join([f"{': '.join([*doubts, said])}.", *_rule(results)])


def _rule(results: Results) -> list[str]:
    """Why the worst case is not at the largest radius, in the words of every summary."""
    radii = strongest_attacks_of(results)
    if not radii:
        return []
    (epsilon, worst), last = telling(radii), radii[-1][0]
    said = []
    if epsilon < last:
        beyond, less = next(case for case in radii if case[0] > epsilon)
        held = (worst.metric.value or 0.0) >= TELLING
        why = f"at {_radius(less, beyond)} less than 10 % hold"
        why = why if held else "the smallest radius run: less than 10 % hold"
        said.append(f"The worst case is told at {_radius(worst, epsilon)}{':' if held else ','} {why}.")
    kept = dict(radii)
    if weaker := [one for one in ball_of(results) if one.epsilon not in kept]:
        weak = max(weaker, key=lambda one: (one.epsilon, -(one.metric.value or 0.0)))
        at, less = [case for case in radii if case[0] < weak.epsilon][-1]
        found, other = (
            f"{one.row.name} at {_radius(one, radius)}" for one, radius in ((weak, weak.epsilon), (less, at))
        )
        said.append(f"Attacks were too weak to count: {found} left no less than {other}.")
    return said


def summary(results: Results) -> JobSummary:
    """The accuracies of `headline`, for lists of jobs."""
    cases, row = strongest_attacks_of(results), counted_row(results)
    clean = next((accuracy(row) for row in unattacked(results)), None)
    worst, at, radius = None, "", None
    if cases:
        radius, case = telling(cases)
        worst, at = case.metric, _radius(case, radius)
    elif row is not None:
        worst = accuracy(row)
    if row is not None:
        clean = unattacked_accuracy(results, row) or clean
    across = cross_checks(results.evaluations, load().threat_of, load().radius_unit)
    invalid = _invalid(results.model_copy(update={"warnings": [*results.warnings, *across]}))
    told = _value(worst, results, at=at, radius=radius, invalid=invalid)
    return JobSummary(clean=_value(clean, results), worst=told, invalid=invalid)


def counted_row(results: Results) -> EvaluationResult | None:
    """The attack that the sentence counts; None without an accuracy under an attack."""
    if cases := strongest_attacks_of(results):
        return telling(cases)[1].row
    return found[0] if (found := _lowest(results)) else None


def _value(metric: Metric | None, results: Results, **more: Any) -> SummaryValue | None:
    if metric is None or metric.value is None:
        return None
    rows = ((row, name) for row in results.evaluations for name, one in row.metrics.items() if one is metric)
    row, name = next(rows)
    own = {"invalid": _invalid(results.model_copy(update={"evaluations": [row]}))}
    return SummaryValue(metric=name, value=metric.value, n=metric.n, **{**own, **more})


def _invalid(results: Results) -> list[str]:
    told = [*results.warnings, *(one for row in results.evaluations for one in row.warnings)]
    return list(dict.fromkeys(str(one.code) for one in told if one.severity == "invalid"))


def cases(results: Results) -> list[tuple[str, str, str, Metric]]:
    """What the sentence counts: case, evaluation, name of the metric, metric; empty without an attack."""
    radii = strongest_attacks_of(results)
    if radii:
        epsilon, worst = telling(radii)
        row, metric, before = worst.row, worst.metric, worst.unattacked
        label = f"{row.name} {_radius(worst, epsilon)}"
    elif (least := _lowest(results)) is not None:
        row, metric = least
        label, before = row.name, unattacked_accuracy(results, row)
    else:
        return []
    name = accuracy_name(row) or ""
    clean = [("clean", "", UNATTACKED.get(name, name), before)] if before is not None else []
    return [*clean, ("worst case", label, name, metric)]


def _within_radii(results: Results) -> str:
    radii = strongest_attacks_of(results)
    if not radii:
        return ""
    (epsilon, worst), (last, least) = telling(radii), radii[-1]
    norms = {one.norm for one in attacked([LabelledResults("", results)]) if not is_noise(one.row)}
    norm = f" ({worst.norm})" if worst.norm == "Linf" and len(norms) > 1 else ""
    text = f"{_held(results, worst.row, worst.metric)} at {_radius(worst, epsilon)}{norm} {STRONGEST}"
    if last > epsilon:
        text += f", {_short(least.metric)} at {_radius(least, last)}"
    other = _lowest(results)
    if other is not None and (other[1].value or 0.0) < (least.metric.value or 0.0):
        text += f", {_short(other[1])} under {other[0].name}{_strength(other[0])}"
    return text + _before(worst.unattacked)


def _without_radius(results: Results) -> str:
    if (least := _lowest(results)) is None:
        return ""
    return f"{_held(results, *least)} {STRONGEST}{_before(unattacked_accuracy(results, least[0]))}"


def _lowest(results: Results) -> tuple[EvaluationResult, Metric] | None:
    """The attack without a radius that leaves the lowest accuracy."""
    rows = [
        (row, metric)
        for row in results.evaluations
        if epsilon_of(row) is None and "attack_success_rate" in row.metrics and not is_noise(row)
        if (metric := accuracy(row)) is not None and "median_distance" not in row.metrics
    ]
    return min(rows, key=lambda found: found[1].value or 0.0, default=None)


def _of_distance(results: Results) -> str:
    """Of attacks that look for the smallest perturbation: the smallest median that is known."""
    rows = [
        (metric.value, place, row)
        for place, row in enumerate(results.evaluations)
        if (metric := row.metrics.get("median_distance")) is not None and metric.value is not None
    ]
    if not rows:
        return ""
    value, _, row = min(rows)
    found = f"half of the {_noun(results, row)} are broken within {value:.3g} ({norm_of(row)}) {STRONGEST}"
    return found + _before(unattacked_accuracy(results, row))


def _of_change(results: Results) -> str:
    """Of metrics without accuracy: the worst beside the same metric of unchanged examples.

    Of a pair (`perplexity_unswapped`, `perplexity_unswapped_before`) both, as these are of the same words.
    """
    clean: dict[tuple[str, str], Metric] = {}
    rows = []
    for place, row in enumerate(results.evaluations):
        pairs = (name for name in row.metrics if f"{name}{BEFORE}" in row.metrics)
        name = next(pairs, next(iter(row.metrics), ""))
        metric = row.metrics.get(name)
        if metric is None or metric.value is None or accuracy_name(row) is not None:
            continue
        own = row.metrics.get(f"{name}{BEFORE}") or row.metrics.get(f"clean_{name}")
        before = own or clean.get((str(row.data), name))
        clean.setdefault((str(row.data), name), metric)
        if before is not None:
            worse = -metric.value if metric.higher_is_better else metric.value
            rows.append((not is_noise(row), worse, -place, row, name, metric, before))
    if not rows:
        return ""
    *_, row, name, metric, before = max(rows)
    epsilon = epsilon_of(row)
    at = "" if epsilon is None else f" at {radius_text(row, epsilon)}"
    text = f"{_name(name)} {number(metric.value, metric.unit)}{at} under {row.name}"
    if f"{name}{BEFORE}" not in row.metrics:
        return text + _before(before)
    other, of_all = next(iter(row.metrics.items()))
    if other == name:
        return f"{text}, {_short(before)} before"
    plain = clean.get((str(row.data), other))
    lead = "" if plain is None else f"{_name(other)} {_short(plain)} clean; "
    return f"{lead}{text}, {_short(before)} before; {_name(other)} with the swapped words {_short(of_all)}"


def _without_value(results: Results) -> str:
    """Of attacks without any number."""
    ran = [row for row in results.evaluations if load().threat_of(row.name) and not is_noise(row)]
    if not ran:
        return ""
    clean = next((accuracy(row) for row in unattacked(results)), None)
    return f"no attack has a value, the warnings say why{_before(clean)}"


def _of_noise(results: Results) -> str:
    rows = attacked([LabelledResults("", results)])
    if not rows:
        return ""
    most = max(rows, key=lambda row: row.epsilon)
    right = _held(results, most.row, most.metric, "are right")
    noise = f"{right} under {most.row.name} at {_radius(most, most.epsilon)}{_changed(results)}"
    return f"{noise}{_before(most.unattacked)}; {NO_ATTACK}"


def _clean(results: Results) -> str:
    for row in unattacked(results):
        if (metric := accuracy(row)) is not None:
            return f"{_held(results, row, metric, 'are right')}{_changed(results)}; {NO_ATTACK}"
    return ""


def _changed(results: Results) -> str:
    """The lowest accuracy of each evaluation of corrupted examples and of noise without a radius."""
    least: dict[str, tuple[Metric, str]] = {}
    for row in results.evaluations:
        of_cells = (one for name, one in row.metrics.items() if name in CORRUPTED)
        metric = next(of_cells, accuracy(row) if is_noise(row) and epsilon_of(row) is None else None)
        if metric is not None and metric.value is not None:
            known, _ = least.get(row.name, (metric, ""))
            if metric is known or metric.value < (known.value or 0.0):
                least[row.name] = metric, _strength(row)
    told = [f", {_short(metric)} under {name}{strength}" for name, (metric, strength) in least.items()]
    return "".join(told[:MAX_CHANGES])


def _strength(row: EvaluationResult) -> str:
    found = {key: row.params[key] for key in row.params if key in strengths(row.name)}
    return f" {params_text(found)}" if found else ""


def _first(results: Results) -> str:
    for row in results.evaluations:
        for name, metric in row.metrics.items():
            if metric.value is not None:
                of = "" if row.name == name else f"{row.name}: "
                return f"{of}{_name(name)} {number(metric.value, metric.unit)} (n = {metric.n})"
    return ""


def _held(results: Results, row: EvaluationResult, metric: Metric, verb: str = "hold") -> str:
    """A count of examples, where the metric is a share of them, else the metric by name."""
    if _is_count(metric):
        return f"{_short(metric)} {_noun(results, row)} {verb}"
    return f"{_name(accuracy_name(row) or '')} {_short(metric)}"


def _short(metric: Metric) -> str:
    if _is_count(metric):
        return f"{round((metric.value or 0.0) * metric.n)} of {metric.n}"
    return number(metric.value, metric.unit)


def _is_count(metric: Metric) -> bool:
    count = (metric.value or 0.0) * metric.n
    return metric.unit == "proportion" and metric.ci_method == "wilson" and abs(count - round(count)) < 1e-6


def _before(metric: Metric | None) -> str:
    return "" if metric is None or metric.value is None else f"; clean {_short(metric)}"


def _name(metric: str) -> str:
    return NAMES.get(metric, metric.replace("_", " "))


def _noun(results: Results, row: EvaluationResult) -> str:
    noun = (load().task_of(row.data) or TaskFacts()).noun
    several = len({str(one.data.get("name")) for one in results.evaluations}) > 1
    return f"{noun} of {row.data.get('name')}" if several else noun


def _radius(row: Measured, epsilon: float) -> str:
    text = radius_text(row.row, epsilon)
    return text if row.norm == "Linf" else f"{text} ({row.norm})"
