"""Results of a job as EvalHub takes them: metrics, the judged worst case, and the environment card.

EvalHub keeps a number per metric and holds a threshold against one of them. So the ends of an interval are
metrics too, and the primary score is an end. The card has intervals, versions, hashes and warnings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from evalhub.adapter import EnvironmentCardMetadata, EvaluationResult, JobResults, JobSpec

from assay.service.contract.results import EvaluationResult as Row
from assay.service.contract.results import Job, Metric, Results
from assay.service.evalhub.provider import WORST
from assay.service.plots.series import accuracy, ball_of, epsilon_of, is_noise, strongest_attacks_of
from assay.service.reports.numbers import metric_cells, number
from assay.service.reports.run_record import LOW, metric_numbers, named_rows

MAX_WARNINGS, MAX_TEXT = 100, 2000


class Case(NamedTuple):
    """The lowest accuracy, and where it was measured."""

    name: str  # of the metric: `pgd_epsilon_8_255/top1`
    row: Row
    metric: Metric


def worst_case(spec: dict[str, Any], results: Results) -> Case | None:
    """The lowest accuracy within one radius, the radius of most attacks and of equal counts the largest.

    Without a radius the lowest of all rows. The radius does not depend on the model, so thresholds compare.
    None: no accuracy has a value.
    """
    radii = {one.epsilon for one in ball_of(results)}
    counts = Counter(epsilon_of(row) for row in results.evaluations if not is_noise(row))
    found: tuple[Row, Metric] | None
    if radii:
        radius = max(radii, key=lambda epsilon: (counts[epsilon], epsilon))
        least = [case for epsilon, case in strongest_attacks_of(results) if epsilon <= radius][-1]
        found = (least.row, least.metric)
    else:
        rows = [(row, metric) for row in results.evaluations if (metric := accuracy(row)) is not None]
        found = min(rows, key=lambda one: one[1].value or 0.0, default=None)
    if found is None:
        return None
    row, metric = found
    name = next(name for name, other in named_rows(spec, results) if other is row)
    return Case(f"{name}/{next(key for key, one in row.metrics.items() if one is metric)}", row, metric)


def job_results(config: JobSpec, job: Job, results: Results, url: str | None) -> JobResults:
    """What EvalHub gets of a succeeded job; `url`: the service's address, None where the service ends now."""
    metrics = {name: metric for name, metric in _first_metrics(job.spec, results) if metric.value is not None}
    case = worst_case(job.spec, results)
    withheld: list[str] = []
    if case is not None:
        metrics[WORST] = case.metric
        told = [*case.row.warnings, *results.warnings]
        withheld = list(dict.fromkeys(str(one.code) for one in told if one.severity == "invalid"))
    return JobResults(
        id=config.id,
        benchmark_id=config.benchmark_id,
        benchmark_index=config.benchmark_index,
        model_name=config.model.name,
        results=[one for name, metric in metrics.items() for one in _entries(name, metric, withheld)],
        num_examples_evaluated=max((metric.n for metric in metrics.values()), default=0),
        duration_seconds=(_time(job.finished_at) - _time(job.started_at)).total_seconds(),
        completed_at=_time(job.finished_at),
        evaluation_metadata={}
        if url is None
        else {"artifacts": {"assay.results": f"{url}{job.links.results}"}},
        env_card=_card(config, job, results, metrics),
        additional_info={
            "assay_job": job.id,
            "headline": results.headline,
            "judged": "" if case is None else _judged(case, withheld),
        },
    )


def warnings_of(results: Results) -> list[dict[str, str]]:
    """The warnings, each with the evaluation that it is about, or an empty text; at most a hundred."""
    rows = [("", one) for one in results.warnings]
    rows += [(row.name, one) for row in results.evaluations for one in row.warnings]
    return [
        {
            "code": str(one.code),
            "severity": one.severity,
            "evaluation": name,
            "message": one.message[:MAX_TEXT],
        }
        for name, one in rows[:MAX_WARNINGS]
    ]


def _first_metrics(spec: dict[str, Any], results: Results) -> Iterator[tuple[str, Metric]]:
    for name, row in named_rows(spec, results):
        for label, metric in list(row.metrics.items())[:1]:
            yield f"{name}/{label}", metric


def _entries(name: str, metric: Metric, withheld: list[str]) -> Iterator[EvaluationResult]:
    """A metric, its ends and its n; of an invalid worst case without the end that is judged."""
    ends = (metric.ci_low, metric.ci_high)
    for key, value in metric_numbers(name, metric).items():
        if key == f"{WORST}{LOW}" and withheld:
            continue
        interval = ends if key == name and None not in ends else None
        yield EvaluationResult(
            metric_name=key,
            metric_value=value,
            metric_type=metric.unit or "number",
            confidence_interval=interval,  # type: ignore[arg-type]  # None is in neither end
            num_samples=metric.n,
            metadata={"ci_method": metric.ci_method, "higher_is_better": metric.higher_is_better},
        )


def _judged(case: Case, withheld: list[str]) -> str:
    value, interval, n = metric_cells(case.metric)
    said = f"{WORST} is {case.name}: {value} {interval}, n {n}"
    if withheld:
        return f"{said}; no threshold is held against it, it is invalid ({', '.join(withheld)})"
    if case.metric.ci_low is None:
        return f"{said}; no threshold is held against it, it has no interval"
    end = number(case.metric.ci_low, case.metric.unit)
    return f"{said}; a threshold is held against the interval's lower end, {end}"


def _card(config: JobSpec, job: Job, results: Results, metrics: dict[str, Metric]) -> EnvironmentCardMetadata:
    """The card of the worker, which measured; the provider's own machine is not on it."""
    provenance = results.provenance
    assert provenance is not None, "a succeeded job has its provenance"
    device, hashes = provenance.device, list(provenance.data_sha256.values())
    on_cpu = device.get("type") == "cpu"
    return EnvironmentCardMetadata(
        cpu_model=device.get("name") if on_cpu else None,
        gpu_model=None if on_cpu else device.get("name"),
        framework_name="assay",
        framework_version=provenance.code.get("version"),
        python_version=provenance.packages.get("python"),
        key_packages=provenance.packages,
        model_id=config.model.name,
        model_version=provenance.weights_sha256,
        model_provider="local",
        dataset_hash=hashes[0] if len(hashes) == 1 else None,
        scorer_ids=list(dict.fromkeys(row.name for row in results.evaluations)),
        started_at=job.started_at,
        completed_at=job.finished_at,
        aggregate_results={name: one.value for name, one in metrics.items() if name == WORST},
        per_task_results={name: one.value for name, one in metrics.items() if name != WORST},
        confidence_intervals={
            name: {"low": one.ci_low, "high": one.ci_high, "n": one.n, "method": one.ci_method, "level": 0.95}
            for name, one in metrics.items()
        },
        custom={
            "job": job.id,
            "seed": provenance.seed,
            "protocol": job.spec.get("protocol"),
            "device": device,
            "code": provenance.code,
            "data_sha256": provenance.data_sha256,
            "warnings": warnings_of(results),
        },
    )


def _time(text: str | None) -> datetime:
    assert text is not None, "a succeeded job has begun and ended"
    return datetime.fromisoformat(text)
