"""Suites at submission: a suite is replaced by its evaluations, some suites by those that fit.

Most suites are measured whole: an error in one part is an error of the suite. A suite of all applicable
evaluations (`leaves_out`) keeps the parts that fit the model and the data, and the spec lists those left out,
with the reason. Either may state other parameters for a part that does not fit (`instead`): the part with the
first of them that fits takes its place, and the spec lists it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import Checked
from assay.service.catalog.component import Component
from assay.service.contract.problems import Loc, Problems, path_text
from assay.service.contract.results import Warning
from assay.service.contract.stored_specs import Spec
from assay.service.submission.shape import check_evaluation_shape

# Checks one evaluation, fills in its defaults, and reports its errors.
CheckEvaluation = Callable[[Mapping[str, Any], Problems, Loc], dict[str, Any] | None]


def expand(
    suite: Component,
    check: CheckEvaluation,
    problems: Problems,
    loc: Loc,
    *,
    data: Checked | None = None,
    data_root: Path | None = None,
) -> tuple[list[dict[str, Any] | None], list[dict[str, str]]]:
    """The evaluations of a suite (all its parts must fit), and {"suite", "part", "reason"} of others."""
    completed: list[dict[str, Any] | None] = []
    replaced: list[dict[str, str]] = []
    for index, item in enumerate(suite.evaluations or []):
        inner = Problems()
        found = check(check_evaluation_shape(item, inner, (index,)), inner, (index,))
        other = _instead(suite, item, check) if inner.details else None
        if other is not None:
            replaced.append({"suite": suite.name, "part": _part(item), "reason": _replaced(inner, other[0])})
            completed.append(other[1])
            continue
        completed.append(found)
        for detail in inner.details:
            message = f"the suite's evaluation {path_text(detail.loc)}: {detail.message}"
            problems.add(loc, message, given=suite.name)
    return completed, replaced


def _instead(
    suite: Component, item: Mapping[str, Any], check: CheckEvaluation
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The first replacement of a part that fits: as the suite states it, and completed; None if none fits."""
    for params in suite.instead.get(item["name"], ()):
        inner, other = Problems(), {**item, "params": {**item.get("params", {}), **params}}
        completed = check(check_evaluation_shape(other, inner, ()), inner, ())
        if completed is not None and not inner.details:
            return other, completed
    return None


def _replaced(problems: Problems, other: Mapping[str, Any]) -> str:
    return f"{_reason(problems)}; in its place: {_part(other)}"


def _reason(problems: Problems) -> str:
    return "; ".join(dict.fromkeys(detail.message for detail in problems.details))


def expand_fitting(
    suite: Component,
    check: CheckEvaluation,
    problems: Problems,
    loc: Loc,
    *,
    data: Checked | None,
    data_root: Path | None,
) -> tuple[list[dict[str, Any] | None], list[dict[str, str]]]:
    """The evaluations of a suite that fit, and for the others {"suite", "part", "reason"}.

    A part with its own data must certainly fit: the data root is visible, and the job's classes known early.
    """
    kept: list[dict[str, Any] | None] = []
    left_out: list[dict[str, str]] = []
    for item in suite.evaluations or []:
        inner = Problems()
        shape = check_evaluation_shape(item, inner, ())
        completed = check(shape, inner, ())
        reason = _reason(inner)
        if reason and (other := _instead(suite, item, check)) is not None:
            reason, completed = _replaced(inner, other[0]), other[1]
            kept.append(completed)
        if not reason and shape.get("data") is not None:
            reason = _not_sure(data, data_root)
        if reason:
            left_out.append({"suite": suite.name, "part": _part(item), "reason": reason})
        elif completed is not None:
            kept.append(completed)
    if not kept and suite.evaluations:
        reasons = "; ".join(dict.fromkeys(one["reason"] for one in left_out))
        problems.add(loc, f"no part of the suite can be run: {reasons}", given=suite.name)
    return kept, left_out


def left_out_warnings(spec: Spec) -> Iterator[Warning]:
    """A warning per suite of a job with left-out parts."""
    listed = spec.get("left_out", []) if spec["kind"] == "evaluate" else []
    for suite in dict.fromkeys(one["suite"] for one in listed):
        parts = {one["part"]: one["reason"] for one in listed if one["suite"] == suite}
        text = "; ".join(f"{part} ({reason})" for part, reason in parts.items())
        message = f"the suite {suite!r} has left out what this model or data cannot be asked: {text}"
        yield Warning(code="left_out", message=message, evidence={"suite": suite, "parts": parts})


def _not_sure(data: Checked | None, data_root: Path | None) -> str:
    """Why a part with its own data may be missing or not fit; empty where it certainly fits."""
    if data_root is None or not data_root.is_dir():
        return "the service does not see the data root: name this evaluation to run it"
    known = (data.component.facts if data is not None else None) or {}
    if "classes" not in known:
        return (
            "the classes of the job's data are not known before they are read: name this evaluation to run it"
        )
    return ""


def _part(item: Mapping[str, Any]) -> str:
    params = [
        f"{name}={','.join(value) if isinstance(value, list) else value}"
        for name, value in item.get("params", {}).items()
    ]
    data = [f"on {item['data']['name']}"] if item.get("data") else []
    return " ".join([str(item["name"]), *params, *data])
