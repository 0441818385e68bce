"""Numbers and parameters as people read them: in the terminal, on pages and in reports.

Results of unknown evaluations have no units.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Protocol

from assay.service.catalog.catalog import load
from assay.service.contract.errors import NotFound
from assay.service.contract.fractions import radius_text
from assay.service.contract.results import EvaluationResult, Job, Metric, Progress, Unit
from assay.service.contract.states import JobState

IN_PERCENT: frozenset[Unit | None] = frozenset({"proportion", "ratio"})  # shown in percent
# A mean of whole numbers below `SHOWN_WHOLE` has four digits.
WHOLE: frozenset[Unit | None] = frozenset({"count", "bytes"})
SHOWN_WHOLE = 1000
RADIUS, NORM = "epsilon", "norm"
POINTS = " points"
TENTH = Decimal("0.1")
ESTIMATING = "estimating the time left"  # until enough is measured
WITHOUT = {"too_few": "too few examples", "no_spread": "no spread"}  # In place of an interval, by method


def printable(text: str) -> str:
    """Without control characters: a job's name must not control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def label_title(label: str) -> str:
    """A data set's `data_label` with its folder first and without parameters at their defaults."""
    name, _, params = label.removesuffix(")").partition("(")
    with suppress(NotFound):
        for key, part in load().find("data", name).parameters["properties"].items():
            default = re.escape(f"{key}={part.get('default')}")
            params = re.sub(rf"(^|, ){default}(?=, |$)", "", params)
    params = params.translate(str.maketrans("[]", "()", "'"))
    given = [one for one in params.split(", ") if one and not one.endswith("=None")]
    given.sort(key=lambda one: not one.startswith("folder="))
    return f"{name}({', '.join(given)})" if given else name


def arithmetic_lines(parts: Sequence[EvaluationResult]) -> list[str]:
    """The rows of each arithmetic; none where all of a job is plain float32 or float64."""
    names: dict[str, dict[str, None]] = {}
    for part in parts:
        if part.arithmetic is not None:
            names.setdefault(part.arithmetic, {})[part.name] = None
    return [f"computed in {text}: {', '.join(found)}" for text, found in names.items()]


def split_params(evaluations: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[list[str], list[str]]:
    """The parameters (of name and parameters of each) in two parts, so that twenty attacks fit a terminal.

    First each evaluation's `epsilon` and other strengths, a `version` other than the default and the
    parameters that differ among its namesakes; then a line per name with the other set parameters.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for name, params in evaluations:
        groups.setdefault(name, []).append(params)
    shared = {name: _same_in_all(name, group) for name, group in groups.items()}
    shown = [
        params_text({key: value for key, value in params.items() if key not in shared[name]})
        for name, params in evaluations
    ]
    texts = {
        name: params_text({key: value for key, value in params.items() if value is not None})
        for name, params in shared.items()
    }
    return shown, [printable(f"{name}: {text}") for name, text in texts.items() if text]


def _same_in_all(name: str, group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = group[0]
    telling = {
        *strengths(name),
        *chosen_params(name, {key: first[key] for key in first.keys() & {"version"}}),
    }
    return {
        key: value
        for key, value in first.items()
        if key not in telling and all(key in other and other[key] == value for other in group)
    }


def metric_cells(metric: Metric) -> tuple[str, str, str]:
    """Value, interval and sample size; an exact count has no interval."""
    interval = f"[{number(metric.ci_low, metric.unit)}, {number(metric.ci_high, metric.unit)}]"
    shown = "-" if metric.ci_method == "exact" else WITHOUT.get(metric.ci_method, interval)
    return number(metric.value, metric.unit), shown, str(metric.n)


def number(value: float | None, unit: Unit | None, *, sign: bool = False) -> str:
    """A metric's value, or with its `sign` a difference, of percentages in points.

    Counts and bytes are whole from 1000 on, or where they are whole.
    """
    if value is None:
        return "-"
    plus = "+" if sign else ""
    if unit in WHOLE and (value == int(value) or abs(value) >= SHOWN_WHOLE):
        return f"{value:{plus}.0f}"
    if unit in IN_PERCENT:
        return f"{tenths(100 * value, sign=sign)}{POINTS if sign else ' %'}"
    return f"{value:{plus}.4g}"


def tenths(value: float, *, sign: bool = False) -> str:
    """With one decimal; 86.25 is 86.3, as in plots, which round halves away from zero."""
    exact = Decimal(value)
    shown = exact.quantize(TENTH, ROUND_HALF_UP) if exact.is_finite() else exact
    return f"{shown:{'+' if sign else ''}f}"


def difference_bounds(low: float | None, high: float | None, unit: Unit | None) -> str:
    """The interval of a difference, as `[-1.0, +2.0 points]`."""
    return f"[{number(low, unit, sign=True).removesuffix(POINTS)}, {number(high, unit, sign=True)}]"


def speed_text(progress: Progress) -> str:
    """How fast a training is; empty where that is unknown."""
    rate, busy, memory = progress.examples_per_second, progress.gpu_busy, progress.gpu_memory
    parts = [] if rate is None else [f"{rate:,.{0 if rate >= 100 else 1}f} examples/s"]
    parts += [] if busy is None else [f"GPU {busy:.0%} busy"]
    parts += [] if memory is None else [f"GPU memory {memory:.0%} in use"]
    return ", ".join(parts)


def clock(seconds: float) -> str:
    """A duration for people: `41 s`, `12 min`, `3 h 5 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return f"{minutes} min" if minutes < 100 else f"{hours} h {rest} min"


def left_text(job: Job) -> str:
    """The time left of a job: `12 min left`; empty where it does not run, or only its end is left."""
    left = job.progress.eta_seconds
    if left is not None and not job.state.terminal:
        return f"{clock(left)} left"
    open_part = job.progress.share is None or job.progress.share < 1
    return ESTIMATING if job.state == JobState.RUNNING and job.workers_online and open_part else ""


def params_text(params: Mapping[str, Any]) -> str:
    """Parameters as `epsilon=2/255 steps=20`; a numeric radius in steps of 8-bit pixels."""
    return " ".join(f"{name}={param_text(name, value)}" for name, value in params.items())


def shown_params(
    name: str, params: Mapping[str, Any], data: Mapping[str, Any], protocol: str
) -> dict[str, Any]:
    """A row's parameters; its radius as text, in its data's unit: `0.2 sd`."""
    value = params.get(RADIUS)
    if value is None:
        return dict(params)
    unit = load().radius_unit(data, protocol)
    in_steps = unit != "pixel" or load().norm_of(name, params) == "Linf"
    return {**params, RADIUS: radius_text(value, unit if in_steps else "")}


class EvaluatedRow(Protocol):
    """A row of a comparison or of a study."""

    evaluation: str
    params: dict[str, Any]
    data: dict[str, Any]
    protocol: str


def row_params(row: EvaluationResult | EvaluatedRow) -> dict[str, Any]:
    """Parameters of a row of results, comparison or study; its radius as text."""
    name = row.name if isinstance(row, EvaluationResult) else row.evaluation
    return shown_params(name, row.params, row.data, row.protocol)


def set_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that are not null."""
    return {name: value for name, value in params.items() if value is not None}


def strengths(name: str) -> set[str]:
    """The parameters of an evaluation that say how large the change of an example is."""
    try:
        parts = load().find_evaluation(name).parameters["properties"]
    except NotFound:
        return {RADIUS}
    return {RADIUS, *(key for key, part in parts.items() if part.get("strength"))}


def chosen_params(name: str, params: Mapping[str, Any], kind: str = "") -> dict[str, Any]:
    """A component's parameters that are not their defaults, nested ones too, beside its strength.

    Without a `kind` the name is of an evaluation or attack.
    """
    try:
        component = load().find(kind, name) if kind else load().find_evaluation(name)
    except NotFound:
        return set_params(params)
    kept: dict[str, Any] = {}
    for key, value in set_params(params).items():
        part = component.parameters["properties"].get(key, {})
        own, default = value, part.get("default")
        if isinstance(value, Mapping) and "component" in part:
            nested = chosen_params(value["name"], value.get("params") or {}, part["component"])
            own, default = {"name": value["name"], "params": nested}, {"params": {}, **(default or {})}
        if key == RADIUS or part.get("strength") or own != default:
            kept[key] = own
    return kept


def telling_params(evaluations: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The parameters of each (name, parameters) that `chosen_params` keeps of it or of a namesake."""
    chosen = [chosen_params(name, params) for name, params in evaluations]
    kept: dict[str, set[str]] = {}
    for (name, _), own in zip(evaluations, chosen, strict=True):
        kept.setdefault(name, set()).update(own)
    return [
        {key: own.get(key, value) for key, value in set_params(params).items() if key in kept[name]}
        for (name, params), own in zip(evaluations, chosen, strict=True)
    ]


def conditions(row: EvaluationResult) -> dict[str, Any]:
    """What tells a row from its namesakes: its shown parameters, protocol and data."""
    return {**row_params(row), "protocol": row.protocol, "data": row.data.get("name")}


def param_text(name: str, value: Any) -> str:
    """A parameter's value in words: a component as `rpc(iterations=2, rank=8)`, a list as `(1, 3, 5)`."""
    if isinstance(value, str):
        return value
    if name == RADIUS and isinstance(value, float):
        return radius_text(value)
    if isinstance(value, list | tuple):
        return f"({', '.join(param_text('', part) for part in value)})"
    if isinstance(value, Mapping):
        named = isinstance(value.get("name"), str) and value.keys() <= {"name", "params"}
        params = (value.get("params") or {}) if named else value
        inside = ", ".join(f"{key}={param_text(key, part)}" for key, part in params.items())
        return f"{value['name'] if named else ''}({inside})" if inside or not named else value["name"]
    return json.dumps(value)
