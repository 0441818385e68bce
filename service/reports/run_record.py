"""A job as a run of an experiment tracker: parameters, metrics and tags, with names that are legal there.

MLflow allows letters, digits and `_-. :/` in names, Weights & Biases draws charts of letters, digits, `_` and
`/`. A metric is `EVALUATION/METRIC`, with what tells namesakes apart: `pgd_epsilon_8_255/top1`, and
`..._ci_low`, `..._ci_high` and `..._n`. Names follow from the spec: the same while evaluations are missing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assay.service.contract.fractions import canonical
from assay.service.contract.results import CurveBreakdown, EvaluationResult, Job, Metric, Results
from assay.service.contract.states import JobState
from assay.service.reports.numbers import RADIUS, params_text, row_params, shown_params, split_params

MAX_VALUE = 6000  # MLflow's longest value of a parameter
MAX_NAME = 250
LOW, HIGH = "_ci_low", "_ci_high"  # ends of a metric's interval, behind its name
_ILLEGAL = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True)
class RunRecord:
    """What a tracker gets of a job."""

    job: str  # of the job, or the study
    name: str  # for people
    kind: str  # "train", "evaluate" or "study"
    state: JobState
    study: str | None  # id of its study
    spec: Mapping[str, Any]  # with all defaults
    params: Mapping[str, str]  # the flattened spec: `model.params.depth` to "12"
    metrics: Mapping[str, float]  # finite
    tags: Mapping[str, str]  # identity and provenance
    labels: tuple[str, ...]  # its author's tags


def run_record(job: Job, results: Results | None, url: str) -> RunRecord:
    """A job in its present state as a run; `url`: the service's address."""
    return RunRecord(
        job=job.id,
        name=job.name.strip() or job.id,
        kind=job.kind,
        state=job.state,
        study=job.study,
        spec=job.spec,
        params=flattened({name: value for name, value in job.spec.items() if name not in ("name", "tags")}),
        metrics={} if results is None else run_metrics(job.spec, results),
        tags=_tags(job, results, url),
        labels=tuple(job.tags),
    )


def flattened(value: Any) -> dict[str, str]:
    """A spec's leaves as parameters, values as text. Nulls and empty parts are left out."""
    return {
        name[:MAX_NAME]: text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."
        for name, text in _leaves("", value)
    }


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            word = _ILLEGAL.sub("_", str(key))
            yield from _leaves(f"{name}.{word}" if name else word, part)
    elif isinstance(value, list) and any(isinstance(part, dict | list) for part in value):
        for place, part in enumerate(value):
            yield from _leaves(f"{name}.{place}", part)
    elif value is not None and value != []:
        yield name, value if isinstance(value, str) else json.dumps(value)


def run_metrics(spec: Mapping[str, Any], results: Results) -> dict[str, float]:
    """Every finite number with the ends of its interval and n; curves are left out."""
    found: dict[str, float] = {}
    for name, row in named_rows(spec, results):
        for label, metric in _metrics(row):
            found |= metric_numbers(f"{name}/{label}"[: MAX_NAME - len(HIGH)], metric)
    return found


def _metrics(row: EvaluationResult) -> Iterator[tuple[str, Metric]]:
    yield from row.metrics.items()
    for part in row.breakdown:
        if not isinstance(part, CurveBreakdown):
            place = "/".join(_word(word) for word in part.label.split("/"))
            yield from ((f"{place}/{name}", metric) for name, metric in part.metrics.items())


def metric_numbers(name: str, metric: Metric) -> dict[str, float]:
    """A finite metric, the ends of its interval and n, each under its name; empty without a value."""
    ends = {LOW: metric.ci_low, HIGH: metric.ci_high}
    if metric.ci_method == "exact":
        ends = {}
    values = {name: metric.value, **{f"{name}{end}": value for end, value in ends.items()}}
    known = {key: value for key, value in values.items() if value is not None and math.isfinite(value)}
    return {**known, f"{name}_n": float(metric.n)} if known else {}


def named_rows(spec: Mapping[str, Any], results: Results) -> Iterator[tuple[str, EvaluationResult]]:
    """Every row with its name among the metrics, which follows from the job's spec."""
    planned = [item for item in spec.get("evaluations") or [] if "name" in item]
    stated = [
        (item["name"], _conditions(item.get("params"), item.get("data") or spec["data"])) for item in planned
    ]
    # The protocol of a data set outside the catalog is unknown here.
    shown, _ = split_params(
        [
            (name, shown_params(name, one, {"name": one["data"]}, spec.get("protocol", "pixel")))
            for name, one in stated
        ]
    )
    names: dict[str, list[str]] = {}
    for (name, conditions), text in zip(stated, shown, strict=True):
        names.setdefault(_identity(name, conditions), []).append(_word(f"{name} {text}"))
    used: dict[str, int] = {}
    for row in results.evaluations:
        known = names.get(_identity(row.name, _conditions(row.params, row.data)))
        params = row_params(row)
        radius = params_text({RADIUS: params[RADIUS]}) if params.get(RADIUS) is not None else ""
        name = known[0] if known else _word(f"{row.name} {radius}")
        used[name] = used.get(name, 0) + 1
        yield name if used[name] == 1 else f"{name}_{used[name]}", row


def _conditions(params: Mapping[str, Any] | None, data: Mapping[str, Any]) -> dict[str, Any]:
    return {**(params or {}), "data": data.get("name")}


def _identity(name: str, conditions: Mapping[str, Any]) -> str:
    return json.dumps([name, canonical(dict(conditions))], sort_keys=True)


def _word(text: str) -> str:
    """Part of a name: letters, digits and `_`, no digit first."""
    word = _ILLEGAL.sub("_", text).strip("_") or "_"
    return f"_{word}" if word[0].isdigit() else word


def _tags(job: Job, results: Results | None, url: str) -> dict[str, str]:
    tags = {
        "assay.job": job.id,
        "assay.url": f"{url}{job.links.self}",
        "assay.kind": job.kind,
        "assay.state": job.state.value,
        "assay.attempt": str(job.attempt),
        "assay.study": job.study,
        "assay.protocol": job.spec.get("protocol"),
        "assay.tags": ",".join(job.tags),
        "assay.error": None if job.error is None else f"{job.error.type}: {job.error.message}",
    }
    if results is not None:
        tags["assay.complete"] = str(results.complete).lower()
        warnings = [*results.warnings, *(one for row in results.evaluations for one in row.warnings)]
        tags["assay.warnings"] = ",".join(dict.fromkeys(one.code for one in warnings))
    provenance = None if results is None else results.provenance
    if provenance is not None:
        tags["assay.weights_sha256"] = provenance.weights_sha256
        tags["assay.code_version"] = provenance.code.get("version")
        tags["assay.code_commit"] = provenance.code.get("commit")
        tags["assay.code_sha256"] = provenance.code.get("source_sha256")
        for label, digest in provenance.data_sha256.items():
            tags[f"assay.data_sha256.{_word(label)}"] = digest
    return {name: value[:MAX_VALUE] for name, value in tags.items() if value}
