"""Requirements on results: whether the 95 % interval of a metric is on the right side of a bound.

    requirement = EVALUATION["/"PART] {CONDITION} METRIC OPERATOR BOUND
    CONDITION   = NAME"="VALUE | EPSILON           a parameter, or data, protocol or backend
    OPERATOR    = ">=" | ">" | "<=" | "<"
    BOUND       = number | number "%" | fraction

    pgd 8/255 top1 >= 45 %
    pgd epsilon=8/255 steps=20 top1 >= 0.45
    corruptions/fog/3 top1 > 0.5

The end of the interval that is nearer to the bound decides: the lower one for `>=` and `>`, the upper one for
`<=` and `<`. A metric without an interval, or with a warning of severity `invalid`, does not pass.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from assay.service.contract.fractions import parse_fraction
from assay.service.contract.problems import nearest
from assay.service.contract.results import Answer, EvaluationResult, Metric, Results, Unit, data_label
from assay.service.reports.numbers import IN_PERCENT, RADIUS, WITHOUT, number, params_text, row_params

Operator = Literal[">=", ">", "<=", "<"]
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">=": lambda end, bound: end >= bound,
    ">": lambda end, bound: end > bound,
    "<=": lambda end, bound: end <= bound,
    "<": lambda end, bound: end < bound,
}
_FORM = "EVALUATION [PARAMETER=VALUE ...] METRIC >= BOUND, like 'pgd 8/255 top1 >= 45 %'"
_OPERATORS = re.compile(r"==|!=|=>|=<|[<>]=?")
_BOUND = re.compile(r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*(%?)")
_EPSILON = re.compile(r"[0-9./eE+-]+")
MAX_BARE_RATIO = 10  # A larger ratio to a baseline was meant in percent.
ROUNDED = 1e-3  # 0.0314 is 8/255.
MAX_SHOWN = 10


class WrongRequirement(ValueError):
    """A requirement is unreadable, or does not name exactly one metric."""


@dataclass(frozen=True)
class Requirement:
    """A requirement as written, and its parts."""

    text: str  # as written
    evaluation: str  # a row's name, with "/PART" of its breakdown
    conditions: tuple[tuple[str, str], ...]  # on the row's parameters, as text
    metric: str
    operator: Operator  # of the interval's end and the bound
    bound: float
    percent: bool  # written in percent


class GateVerdict(Answer):
    """A requirement's outcome; `reason` is empty where it holds, unmeasured values are null."""

    requirement: str
    passed: bool
    reason: str
    value: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    ci_method: str | None = None
    n: int | None = None
    unit: Unit | None = None
    warnings: tuple[str, ...] = ()


def read_requirement(text: str) -> Requirement:
    """A requirement's parts. Raises WrongRequirement: not the form above."""
    line = " ".join(text.split())
    found = _OPERATORS.findall(line)
    if len(found) != 1 or found[0] not in _COMPARE:
        given = f"has {' and '.join(map(repr, found))}" if found else "has no comparison"
        raise WrongRequirement(f"{line!r} {given}; allowed: one of >=, >, <=, < in {_FORM}")
    operator: Operator = found[0]
    left, _, right = line.partition(operator)
    bound, percent = _bound(line, right.strip())
    try:
        words = shlex.split(re.sub(r"\s*=\s*", "=", left))
    except ValueError as error:
        raise WrongRequirement(f"{line!r}: {error}; allowed: {_FORM}") from None
    if len(words) < 2 or "=" in words[-1]:
        raise WrongRequirement(f"{line!r} names no evaluation and metric; allowed: {_FORM}")
    conditions = tuple(_condition(line, word) for word in words[1:-1])
    return Requirement(line, words[0], conditions, words[-1], operator, bound, percent)


def _bound(line: str, text: str) -> tuple[float, bool]:
    if match := _BOUND.fullmatch(text):
        value = float(match[1])
        if math.isfinite(value):
            return (value / 100, True) if match[2] else (value, False)
    try:
        return parse_fraction(text), False
    except ValueError:
        allowed = "a number, a percentage or a fraction: 0.45, 45 %, 9/20"
        raise WrongRequirement(f"{line!r}: the bound {text!r} is no number; allowed: {allowed}") from None


def _condition(line: str, word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if equals and name and value:
        return name, value
    if not equals and _EPSILON.fullmatch(word):
        return RADIUS, word
    raise WrongRequirement(
        f"{line!r}: {word!r} is no condition; allowed: PARAMETER=VALUE, or an epsilon like 8/255"
    )


def judged(requirement: Requirement, results: Results) -> GateVerdict:
    """Whether a requirement holds; a missing row of incomplete results is a verdict.

    Raises WrongRequirement: it names no metric of these results, or several; or its bound is impossible.
    """
    try:
        row, metric = _named(requirement, results.evaluations)
    except _Missing as missing:
        if results.complete:
            raise WrongRequirement(f"{requirement.text!r}: {missing}") from None
        return GateVerdict(requirement=requirement.text, passed=False, reason=f"not measured yet: {missing}")
    _check_bound(requirement, metric)
    lower = requirement.operator in (">=", ">")
    end = metric.ci_low if lower else metric.ci_high
    grave = [warning for warning in (*row.warnings, *results.warnings) if warning.severity == "invalid"]
    reason = ""
    if metric.value is None:
        reason = "it has no value"
    elif end is None:
        reason = f"it has no interval: {WITHOUT.get(metric.ci_method, metric.ci_method)}"
    elif grave:
        reason = f"warning {grave[0].code}: {grave[0].message}"
    elif not _COMPARE[requirement.operator](end, requirement.bound):
        side = "lower" if lower else "upper"
        reason = f"the interval's {side} end is {_finer(end, requirement.bound, metric.unit)}"
    if not reason and not results.complete:
        reason = "the results are not complete"
    return GateVerdict(
        requirement=requirement.text,
        passed=not reason,
        reason=reason,
        **metric.model_dump(include={"value", "ci_low", "ci_high", "ci_method", "n", "unit"}),
        warnings=tuple(dict.fromkeys(warning.code for warning in row.warnings)),
    )


class _Missing(Exception):
    pass


def _named(requirement: Requirement, rows: Sequence[EvaluationResult]) -> tuple[EvaluationResult, Metric]:
    named, label = _of_name(requirement.evaluation, rows)
    known = {"data", "protocol", "backend", *(name for row in named for name in row.params)}
    for name, _ in requirement.conditions:
        if name not in known:
            has = f"{named[0].name} has no parameter {name!r}{_hint(name, sorted(known))}"
            raise _Missing(f"{has}; it has {', '.join(sorted(known))}")
    found = _fitting(requirement.conditions, named)
    if not found:
        raise _Missing(f"no row of {named[0].name!r} fits; there are: {_told_apart(requirement, named)}")
    if len(found) > 1:
        raise WrongRequirement(
            f"{requirement.text!r} names {len(found)} rows; tell them apart:"
            f" {_told_apart(requirement, found)}"
        )
    metrics = _metrics(found[0], label)
    if requirement.metric not in metrics:
        where = requirement.evaluation
        has = f"{where} has no metric {requirement.metric!r}{_hint(requirement.metric, list(metrics))}"
        raise _Missing(f"{has}; it has {', '.join(metrics) or 'none'}")
    return found[0], metrics[requirement.metric]


def _of_name(given: str, rows: Sequence[EvaluationResult]) -> tuple[list[EvaluationResult], str | None]:
    for name, label in ((given, None), given.split("/", 1) if "/" in given else (given, None)):
        if found := [row for row in rows if row.name == name]:
            return found, label
    names = list(dict.fromkeys(row.name for row in rows))
    hint = _hint(given.partition("/")[0], names)
    raise _Missing(f"no evaluation {given!r}{hint}; there are {', '.join(names) or 'none'}")


def _metrics(row: EvaluationResult, label: str | None) -> Mapping[str, Metric]:
    if label is None:
        return row.metrics
    found = [part for part in row.breakdown if part.label == label]
    if len(found) == 1:
        return found[0].metrics
    labels = [part.label for part in row.breakdown]
    if found:
        raise WrongRequirement(f"{row.name} has {len(found)} parts {label!r}")
    has = f"{row.name} has no part {label!r}{_hint(label, labels)}"
    raise _Missing(f"{has}; it has {', '.join(labels[:MAX_SHOWN]) or 'none'}")


def _fitting(
    conditions: Sequence[tuple[str, str]], rows: Sequence[EvaluationResult]
) -> list[EvaluationResult]:
    """The rows that meet all conditions: exactly, else with decimals that round a fraction."""
    for tolerance in (1e-9, ROUNDED):
        found = [
            row
            for row in rows
            if all(
                any(_fits(value, text, tolerance) for value in _values(row, name))
                for name, text in conditions
            )
        ]
        if found:
            return found
    return []


def _values(row: EvaluationResult, name: str) -> tuple[Any, ...]:
    """What a condition on the row may say; a data set with and without parameters."""
    if name in row.params:
        return (row.params[name],)
    if name == "data":
        return (row.data.get("name"), _data(row))
    return (getattr(row, name, None),)


def _data(row: EvaluationResult) -> str:
    return data_label({"name": row.data.get("name"), "params": row.data.get("params") or {}})


def _fits(value: Any, text: str, tolerance: float) -> bool:
    if isinstance(value, str) and value == text:
        return True
    if value is None or isinstance(value, bool | list | dict):
        try:
            return bool(json.loads(text.lower() if not isinstance(value, list | dict) else text) == value)
        except ValueError:
            return value is None and text.lower() == "none"
    left, right = _number(value), _number(text)
    if left is None or right is None:
        return False
    # Counts: 1000 steps are not 1001.
    return math.isclose(left, right, rel_tol=1e-9 if left == int(left) else tolerance)


def _number(value: Any) -> float | None:
    try:
        found = parse_fraction(value) if isinstance(value, str) and "/" in value else float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def _told_apart(requirement: Requirement, rows: Sequence[EvaluationResult]) -> str:
    """Each row as a requirement, by its conditions and what differs among the rows."""
    every = []
    for row in rows:
        params = row_params(row)
        about = {"data": _data(row), "protocol": row.protocol, "backend": row.backend} | params
        # a requirement states the number without its unit.
        every.append({name: params_text({name: about[name]}).removesuffix(" sd") for name in about})
    names = list(dict.fromkeys(name for words in every for name in words))
    differ = [name for name in names if any(words.get(name) != every[0].get(name) for words in every)]
    if len(rows) == 1:
        differ = [RADIUS]
    asked = [name for name, _ in requirement.conditions if all(name in words for words in every)]
    shown = []
    for words in every:
        chosen = [words[name] for name in dict.fromkeys([*asked, *differ]) if name in words]
        quoted = [shlex.quote(word) if re.search(r"[\s'\"]", word) else word for word in chosen]
        shown.append(" ".join([requirement.evaluation, *quoted, requirement.metric]))
    if len(rows) > 1 and len(set(shown)) == 1:
        return "they differ in nothing that a requirement can name"
    shown = list(dict.fromkeys(shown))
    return "; ".join(map(repr, shown[:MAX_SHOWN])) + ("; ..." if len(shown) > MAX_SHOWN else "")


def _check_bound(requirement: Requirement, metric: Metric) -> None:
    """Refuses a bound that cannot be meant: 45 for a proportion, 45 % of a perplexity."""
    bound, unit = requirement.bound, metric.unit
    subject = f"{requirement.text!r}: {requirement.metric}"
    if requirement.percent and unit is not None and unit not in IN_PERCENT:
        raise WrongRequirement(f"{subject} is no proportion, its unit is {unit}; allowed: a plain number")
    meant = "" if requirement.percent else f"; did you mean {bound:g} %?"
    if unit == "proportion" and not 0 <= bound <= 1:
        hint = meant if 1 < bound <= 100 else ""
        raise WrongRequirement(f"{subject} is a proportion; allowed: 0 to 1, or 0 % to 100 %{hint}")
    if unit == "ratio" and meant and bound > MAX_BARE_RATIO:
        more = f"a ratio above {MAX_BARE_RATIO} is written in percent"
        raise WrongRequirement(f"{subject} is a ratio, with 1 for its baseline{meant} ({more})")


def _finer(end: float, bound: float, unit: Unit | None) -> str:
    """An interval's end with as many digits as tell it from the bound."""
    if number(end, unit) != number(bound, unit):
        return number(end, unit)
    return f"{100 * end:.6g} %" if unit in IN_PERCENT else f"{end:.9g}"


def _hint(given: str, names: Sequence[str]) -> str:
    # `eps` is nearer to `steps` by letters.
    near = next((name for name in names if name.startswith(given)), nearest(given, names))
    return f"; did you mean {near!r}?" if near else ""
