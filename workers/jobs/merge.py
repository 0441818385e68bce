"""From outcome rows to results: pure functions over the examples sorted by id, then one save.

Counts are integers and sums are `math.fsum`, so that merging in any order gives the same bits. Saving is
idempotent: a repetition writes the same result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from assay.service.catalog.catalog import load as load_catalog
from assay.service.contract.records import (
    Columns,
    JobProvenance,
    Plan,
    PlannedEvaluation,
    ResultJson,
    ShardProvenance,
)
from assay.service.contract.results import (
    EvaluationResult,
    Metric,
    Provenance,
    Reference,
    Source,
    StageBreakdown,
)
from assay.service.contract.stored_specs import ComponentReference, EvaluationItem, Execution, user_spec
from assay.service.contract.times import iso_or_none
from assay.service.files.file_store import FileStore
from assay.service.metrics.arithmetic import prepared_passes
from assay.service.metrics.table import Context, OutcomeTable, Summary, as_csv, joined, with_units
from assay.service.reports.summaries import saved_results, summarised
from assay.service.store.rows import JobRow, OutcomeRow
from assay.service.store.store import Store
from assay.workers import catalog
from assay.workers.jobs import artifacts
from assay.workers.jobs.data_warnings import of_disagreement
from assay.workers.jobs.final_evaluation import final_evaluation
from assay.workers.jobs.galleries import remove_parts, write_gallery
from assay.workers.jobs.plots import render_plots, save_plots, tallied
from assay.workers.jobs.warnings import Row, of_evaluation, row_arithmetic
from assay.workers.published.corruptions import baseline_errors, with_constants
from assay.workers.published.match import MeasuredRow, references


@dataclass(frozen=True)
class Merged:
    """An evaluation after all its shards."""

    result: EvaluationResult  # its row of the results
    csv: str
    plot: str | None  # the text of an SVG file, or None


def save_evaluation(store: Store, files: FileStore, job_id: str, evaluation: int) -> None:
    """Merge an evaluation after all its shards; save it with its outcome table."""
    _save_one(store, files, store.jobs.get(job_id), evaluation, store.results.outcomes(job_id, evaluation))


def save_job(store: Store, files: FileStore, job_id: str, *, svg: bool = False) -> None:
    """Merge the evaluations without a result, plot them, and end the job; its shards are all done.

    `svg` renders the plots, too, once the job has ended.
    """
    job, merged = store.jobs.get(job_id), store.results.of(job_id)
    measured: list[OutcomeRow] = []
    tallies = {}
    for index in range(len(evaluations(job))):
        rows = store.results.outcomes(job_id, index)
        if index not in merged:
            _save_one(store, files, job, index, rows)
        else:
            _add_caution(store, job, index, plan_of(job, rows), merged[index])
        named = plan_of(job, rows)["evaluations"][index].get("class_names", [])
        tallies[index] = tallied(rows, named)
        # With millions of examples, load the columns for a single evaluation at a time.
        measured += [replace(row, columns={}) for row in rows]
    check_identities(plan_of(job, measured), measured)
    results = saved_results(store, job_id)
    plots = save_plots(store, files, job, results, tallies)
    if store.jobs.succeed(job_id, provenance(job, measured), **summarised(results)) and svg:
        render_plots(store, files, job_id, plots)


class MixedIdentities(ValueError):
    """Shards of the job were measured by different code, packages or with different builds of them."""


def check_identities(plan: Plan, rows: Sequence[OutcomeRow]) -> None:
    """Refuse, by MixedIdentities, outcomes of several identities, or of another than planned."""
    planned = plan.get("identity")
    first: ShardProvenance | None = None
    for row in rows:
        found = row.extra["provenance"]
        first = first or found
        wanted = first["code"].get("source_sha256") if planned is None else planned["source_sha256"]
        if found["code"].get("source_sha256") != wanted:
            differ = f"source {found['code'].get('source_sha256')} and {wanted}"
        elif found["packages"] != first["packages"]:
            differ = _differing(found["packages"], first["packages"])
        elif planned is not None and not planned["packages"].items() <= found["packages"].items():
            differ = _differing(found["packages"], planned["packages"])
        else:
            continue
        raise MixedIdentities(
            f"shard {row.number} of evaluation {row.evaluation} was measured by other code than was planned,"
            f" or than the first one: {differ}; plan the job again (assay replan)"
        )


def _differing(found: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    names = [name for name in sorted({*found, *wanted}) if found.get(name) != wanted.get(name)]
    return ", ".join(f"{name} {found.get(name)} and {wanted.get(name)}" for name in names)


def evaluations(job: JobRow) -> list[EvaluationItem]:
    """The job's evaluations; a training job evaluates its trained model."""
    spec = user_spec(job.spec)
    return [final_evaluation(spec)] if spec["kind"] == "train" else spec["evaluations"]


def _save_one(store: Store, files: FileStore, job: JobRow, index: int, rows: Sequence[OutcomeRow]) -> None:
    merged = merge_evaluation(job, index, rows)
    name = merged.result.name
    described = [files.write(job.id, f"outcomes-{index:03d}-{name}.csv", merged.csv.encode())]
    described += artifacts.of_shards([row.extra for row in rows])
    described += write_gallery(files, job.id, index, name, rows)
    if merged.plot is not None:
        described.append(files.write(job.id, f"plot-{index:03d}-{name}.svg", merged.plot.encode()))
    for one in described:
        store.artifacts.add(job.id, **one)
    result = merged.result.model_dump(mode="json")
    store.results.save(job.id, index, result)
    _add_caution(store, job, index, plan_of(job, rows), result)
    remove_parts(files, job.id, rows)


def _add_caution(store: Store, job: JobRow, index: int, plan: Plan, result: ResultJson) -> None:
    item, found = evaluations(job)[index], store.workers.disagreements()
    caution = of_disagreement(_data(job, item), item["params"], plan, found)
    if caution is not None and all(one["code"] != caution.code for one in result["warnings"]):
        told = [*result["warnings"], caution.model_dump(mode="json")]
        store.results.save(job.id, index, {**result, "warnings": told})


def _whole(table: OutcomeTable, ordered: Sequence[OutcomeRow], n: int, place: str) -> Columns:
    try:
        columns = joined(table.columns, [row.columns for row in ordered])
    except (KeyError, ValueError) as error:
        raise ValueError(f"{place}: {error}") from error
    if (measured := len(columns["id"])) != n:
        raise ValueError(f"{place}: {measured} of {n} examples were measured")
    return columns


def merge_evaluation(job: JobRow, index: int, rows: Sequence[OutcomeRow]) -> Merged:
    """One row of the results, from the outcomes of all shards in any order."""
    plan, spec = plan_of(job, rows), user_spec(job.spec)
    item = with_constants(evaluations(job)[index], plan["evaluations"][index])
    check_identities(plan, rows)
    table, planned = table_of(job, item), plan["evaluations"][index]
    ordered = sorted(rows, key=lambda row: row.number)
    place = f"evaluation {index}, {item['name']!r}, by its outcome table {table.name!r}"
    columns, first = _whole(table, ordered, planned["n"], place), ordered[0].extra
    # A shard reports a row's protocol where it is not the job's.
    protocol = first.get("protocol") or (spec["protocol"] if spec["kind"] == "evaluate" else "pixel")
    context = Context(
        params=item["params"],
        protocol=protocol,
        evidence=[row.extra["evidence"] for row in ordered],
        device=first["provenance"]["device"],
        baseline_errors=baseline_errors(planned.get("known_as"), item["params"], plan.get("image_size")),
        classes=planned.get("classes"),
    )
    try:
        summary = _finite(table.summarise(columns, context))
    except Exception as error:  # a table of a package may raise anything
        raise ValueError(f"{place}: {type(error).__name__}: {error}") from error
    task = load_catalog().task(next(iter(_tasks(job, item)), ""))
    row = Row(
        name=item["name"],
        params=item["params"],
        backend=str(item["params"].get("backend", "native")),
        attack=first["attack"],
        worst_case=protocol != "paper",
        per_pixel=task.per_pixel,
        screening=_screening(spec["execution"]),
        dtype=spec["execution"]["dtype"] if spec["kind"] == "evaluate" else "float32",
        without_tf32=spec["execution"]["dtype"] == "tf32" and not first["provenance"]["device"].get("tf32"),
        expected=any(name.startswith("expected_") for name in summary.metrics),
        planned=planned,
        data=(item["data"] or spec["data"])["name"],
        breakdown=[part for part in summary.breakdown if isinstance(part, StageBreakdown)],
        undefined=_undefined(summary, table),
        noun=task.noun,
        answers=table.unattacked(columns, context),
        attacks=[other["name"] for other in evaluations(job) if _data(job, other) == _data(job, item)],
        chosen_against_models=bool(_facts(job, item).get("chosen_against_models")),
    )
    invalid = any(warning.code == "leaks_future" for warning in summary.warnings)  # no perplexity
    result = EvaluationResult(
        name=item["name"],
        params=dict(item["params"]),
        data=dict(_data(job, item)),
        protocol=protocol,
        backend=row.backend,
        arithmetic=row_arithmetic(context.evidence, row),
        metrics=summary.metrics,
        breakdown=list(summary.breakdown),
        reference=[] if invalid else published_for(job, item, planned, protocol),
        warnings=[*of_evaluation(plan, context.evidence, row), *summary.warnings],
        seconds=math.fsum(row.seconds for row in rows),
        forward_passes=sum(row.forward_passes for row in rows),
        backward_passes=sum(row.backward_passes for row in rows),
    )
    return Merged(with_units(result, table), as_csv(columns), summary.plot)


def table_of(job: JobRow, item: EvaluationItem) -> OutcomeTable:
    """The outcome table of an evaluation of the job, by the task of its data."""
    return catalog.outcome_table(load_catalog().find_evaluation(item["name"]), _tasks(job, item))


def _data(job: JobRow, item: EvaluationItem) -> ComponentReference:
    return item["data"] or user_spec(job.spec)["data"]


def _facts(job: JobRow, item: EvaluationItem) -> Mapping[str, object]:
    return load_catalog().find("data", _data(job, item)["name"]).facts or {}


def _tasks(job: JobRow, item: EvaluationItem) -> Sequence[str]:
    return load_catalog().find("data", _data(job, item)["name"]).tasks


def _finite(summary: Summary) -> Summary:
    every = [*summary.metrics.items(), *(item for part in summary.breakdown for item in part.metrics.items())]
    for name, metric in every:
        if not isinstance(metric, Metric):
            raise ValueError(f"{name!r} must be a Metric, not {metric!r}")
        numbers = (metric.value, metric.ci_low, metric.ci_high)
        if not all(number is None or math.isfinite(number) for number in numbers):
            raise ValueError(f"{name!r} is not finite: {numbers}; a metric without a value is None")
    return summary


def _undefined(summary: Summary, table: OutcomeTable) -> dict[str, str]:
    explained = {
        name
        for warning in summary.warnings
        if warning.code in ("undefined_metric", "leaks_future")
        for name in warning.evidence["metrics"]
    }
    missing = [name for name, metric in summary.metrics.items() if metric.value is None]
    return {
        name: table.undefined.get(name, "its outcome table does not say why")
        for name in missing
        if name not in explained
    }


def published_for(
    job: JobRow, item: EvaluationItem, planned: PlannedEvaluation, protocol: str
) -> list[Reference]:
    """Published numbers for an evaluation of the job."""
    component = load_catalog().find_evaluation(item["name"])
    defaults = {name: schema.get("default") for name, schema in component.parameters["properties"].items()}
    known_as = planned.get("known_as")
    return references(MeasuredRow(job.spec["model"], _data(job, item), item, protocol, known_as, defaults))


def _screening(execution: Execution) -> str | None:
    """How attacks use bfloat16, if they do; in a bfloat16 job for their gradients."""
    rough = "bfloat16_gradients" if execution["dtype"] == "bfloat16" else None
    return execution.get("screening") or rough


def plan_of(job: JobRow, rows: Sequence[OutcomeRow]) -> Plan:
    """The job's plan; a training shard brings its own."""
    if not rows:
        raise ValueError("there are no outcomes")
    return job.plan if job.plan is not None else rows[0].extra["plan"]


def provenance(job: JobRow, rows: Sequence[OutcomeRow]) -> JobProvenance:
    """Everything needed to repeat the numbers."""
    plan, first = plan_of(job, rows), rows[0].extra["provenance"]
    devices = [row.extra["provenance"]["device"] for row in rows]
    device = dict(first["device"])
    if any(other != device for other in devices):
        device["mixed"] = [d for i, d in enumerate(devices) if d not in devices[:i]]
    attacked = [row.extra["evidence"] for row in rows if row.extra["attack"]]
    device |= prepared_passes(user_spec(job.spec)["execution"], plan.get("compile"), attacked)
    merged = Provenance(
        spec=dict(job.spec),
        seed=job.spec["seed"],
        draws=first.get("draws", 1),
        code=dict(first["code"]),
        packages=first["packages"],
        device=device | {"batch_size": plan["batch_size"]},
        weights_sha256=plan["weights_sha256"],
        data_sha256=plan["data_sha256"],
        data_read={label: dict(found) for label, found in plan.get("data_read", {}).items()},
        sources={
            # Plans of earlier versions have none.
            job_id: Source(model=dict(source["model"]), weights_sha256=source["weights_sha256"])
            for job_id, source in plan.get("sources", {}).items()
        },
        pulled=None
        if (origin := first.get("pulled")) is None
        else {**cast(Mapping[str, str | None], origin)},
        repeated=cast(dict[str, int | dict[str, int]] | None, job.repeated),
        trace_id=job.trace_id,
        times={
            "created_at": iso_or_none(job.created_at),
            "started_at": iso_or_none(job.started_at),
            "measured_seconds": math.fsum(row.seconds for row in rows),
            "shards": len(rows),
            "attempt": job.attempt,
            **({"replans": job.replans} if job.replans else {}),
        },
    )
    return cast(JobProvenance, merged.model_dump(mode="json"))
