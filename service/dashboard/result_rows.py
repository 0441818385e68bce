"""Results of a job in parts that a page shows: evaluations, their rows, and each warning once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assay.service.catalog.catalog import load
from assay.service.contract.results import (
    AnyBreakdown,
    CurveBreakdown,
    EvaluationResult,
    Metric,
    Reference,
    Results,
    StageBreakdown,
    Warning,
)
from assay.service.dashboard.formats import by_severity
from assay.service.metrics.compare.sanity_checks import EFFORT
from assay.service.reports.headline import counted_row
from assay.service.reports.numbers import (
    RADIUS,
    conditions,
    number,
    params_text,
    split_params,
    telling_params,
)
from assay.service.reports.tables import strongest_first

# Metrics and parts together that a page of results shows at most, unless an evaluation has more.
MAX_ROWS = 300
SHARED: Mapping[str, Callable[[EvaluationResult], object]] = {
    "protocol": lambda one: one.protocol,
    "data": lambda one: one.data.get("name"),
}


@dataclass(frozen=True)
class NumberedWarning:
    """A warning of the job, once, with the evaluations that it is about."""

    number: int  # from 1, the gravest first
    warning: Warning  # with the message
    places: tuple[int, ...]  # positions of the evaluations in the results; empty where it is about the job
    everywhere: bool  # whether it is about every evaluation

    def groups(self, evaluations: Sequence[ShownEvaluation]) -> list[tuple[str, list[int]]]:
        """The evaluations by name, with the parameters of evaluations that are alone under their name."""
        found: dict[str, list[int]] = {}
        for place in self.places:
            found.setdefault(evaluations[place].result.name, []).append(place)
        return [(name if len(at) > 1 else evaluations[at[0]].label, at) for name, at in found.items()]


@dataclass(frozen=True)
class ShownPart:
    """A row of a breakdown: its label, and a metric or None for each column."""

    label: str
    cells: tuple[Metric | None, ...]
    stage: StageBreakdown | None


@dataclass(frozen=True)
class ShownEvaluation:
    """An evaluation on a page."""

    index: int  # position in the results
    result: EvaluationResult
    params: str  # its parameters that differ from others of its name, as text
    # Published numbers by metric, each with its value as text.
    references: dict[str, list[tuple[str, Reference]]]
    warnings: tuple[NumberedWarning, ...]  # its own, the gravest first

    @property
    def radius(self) -> str | None:
        """The radius as people read it; None without a radius."""
        return conditions(self.result).get(RADIUS)

    # For the evaluations of a page alone: the breakdowns of all take longer than the rest of the page.
    @cached_property
    def shown(self) -> list[AnyBreakdown]:
        """The breakdown without curves, which have a plot."""
        return [part for part in self.result.breakdown if not isinstance(part, CurveBreakdown)]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Metrics of the breakdown."""
        return tuple(dict.fromkeys(name for part in self.shown for name in part.metrics))

    @cached_property
    def parts(self) -> tuple[ShownPart, ...]:
        """Rows of the breakdown."""
        return tuple(
            ShownPart(
                part.label or "all",
                tuple(part.metrics.get(name) for name in self.columns),
                part if isinstance(part, StageBreakdown) else None,
            )
            for part in self.shown
        )

    @property
    def anchor(self) -> str:
        """Id of its first row."""
        return f"evaluation-{self.index}"

    @property
    def first(self) -> list[tuple[str, Metric]]:
        """The first metric with its name; empty without metrics."""
        return list(self.result.metrics.items())[:1]

    @property
    def others(self) -> list[tuple[str, Metric]]:
        """All metrics but the first."""
        return list(self.result.metrics.items())[1:]

    @property
    def effort(self) -> str:
        """How hard its attack searched, as far as `params` does not say so: "steps=20 restarts=1"."""
        if load().threat_of(self.result.name) is None:
            return ""
        told = {part.partition("=")[0] for part in self.params.split()}
        given = self.result.params
        return params_text({name: given[name] for name in EFFORT if given.get(name) and name not in told})

    @property
    def label(self) -> str:
        """Name and parameters."""
        return f"{self.result.name} {self.params}".strip()


@dataclass(frozen=True)
class ShownResults:
    """All evaluations of a job, in pages."""

    evaluations: tuple[ShownEvaluation, ...]  # in the order of the results
    shared: tuple[str, ...]  # a line per name with the parameters that all of that name share
    warnings: tuple[NumberedWarning, ...]  # each once, the gravest first
    headline: str  # a sentence; empty without a number
    strongest: int | None  # position of the attack that the headline counts
    pages: tuple[int, ...]  # first position of each page, and the number of evaluations at the end

    def page(self, number: int) -> Sequence[ShownEvaluation]:
        """The evaluations of a page, from 1."""
        return self.evaluations[self.pages[number - 1] : self.pages[number]]

    def groups(self, number: int) -> list[list[ShownEvaluation]]:
        """The evaluations of a page, by name, as `strongest_first`."""
        return strongest_first(self.page(number), lambda one: one.result.name, _first_metric)


def _first_metric(one: ShownEvaluation) -> Metric | None:
    return one.first[0][1] if one.first else None


def shown_results(results: Results) -> ShownResults:
    """What a page shows of the results."""
    given = results.evaluations
    told = telling_params([(part.name, _differing(given, part)) for part in given])
    texts, shared = split_params([(part.name, params) for part, params in zip(given, told, strict=True)])
    warnings = numbered_warnings(results)
    of_place: dict[int, list[NumberedWarning]] = {}
    for warning in warnings:
        for place in warning.places:
            of_place.setdefault(place, []).append(warning)
    evaluations = [
        _shown(index, part, text, of_place.get(index, []))
        for index, (part, text) in enumerate(zip(given, texts, strict=True))
    ]
    worst = counted_row(results)
    return ShownResults(
        evaluations=tuple(evaluations),
        shared=tuple(shared),
        warnings=tuple(warnings),
        headline=results.headline,
        strongest=next((place for place, row in enumerate(given) if row is worst), None),
        pages=_pages(given),
    )


def _differing(given: Sequence[EvaluationResult], part: EvaluationResult) -> dict[str, Any]:
    """The row's conditions, without a protocol and data that all rows share."""
    found = conditions(part)
    alike = [name for name, of in SHARED.items() if all(of(one) == of(part) for one in given)]
    return {name: value for name, value in found.items() if name not in alike}


def numbered_warnings(results: Results) -> list[NumberedWarning]:
    """Every warning once, the gravest first, with the evaluations that it is about."""
    places: dict[tuple[str, str, str], tuple[Warning, dict[int, None]]] = {}
    count = len(results.evaluations)
    for warning in results.warnings:
        named = warning.evidence.get("evaluations", [])
        known = [one for one in named if isinstance(one, int) and 0 <= one < count] if named else []
        _note(places, warning, known)
    for index, evaluation in enumerate(results.evaluations):
        for warning in evaluation.warnings:
            _note(places, warning, [index])
    order = {id(warning): key for key, (warning, _) in places.items()}
    found = by_severity(warning for warning, _ in places.values())
    return [
        NumberedWarning(number, one, tuple(at := places[order[id(one)]][1]), len(at) == count > 1)
        for number, one in enumerate(found, 1)
    ]


def _note(
    places: dict[tuple[str, str, str], tuple[Warning, dict[int, None]]], warning: Warning, at: Sequence[int]
) -> None:
    key = (warning.severity, warning.code, warning.message)
    places.setdefault(key, (warning, {}))[1].update(dict.fromkeys(at))


def _shown(
    index: int, result: EvaluationResult, params: str, warnings: Sequence[NumberedWarning]
) -> ShownEvaluation:
    references: dict[str, list[tuple[str, Reference]]] = {}
    for reference in result.reference:
        measured = result.metrics.get(reference.metric)
        text = number(reference.value, None if measured is None else measured.unit)
        references.setdefault(reference.metric, []).append((text, reference))
    return ShownEvaluation(index, result, params, references, tuple(warnings))


def _pages(evaluations: Sequence[EvaluationResult]) -> tuple[int, ...]:
    starts, rows = [0], 0
    for index, evaluation in enumerate(evaluations):
        size = len(evaluation.metrics) + len(evaluation.breakdown)
        if rows and rows + size > MAX_ROWS:
            starts.append(index)
            rows = 0
        rows += size
    return (*starts, len(evaluations))
