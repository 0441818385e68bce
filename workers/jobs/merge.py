"""From outcome rows to results: pure functions over the examples sorted by id, then one save.

Counts are integers and sums are `math.fsum`, so that merging in any order gives the same bits. Saving is
idempotent: whoever repeats it writes the same result.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from assay.service.catalog.catalog import load as load_catalog
from assay.service.contract.corruption_cells import cells_of
from assay.service.contract.records import JobProvenance, Plan, PlannedEvaluation
from assay.service.contract.results import Breakdown, EvaluationResult, Metric, Provenance, Reference, Source
from assay.service.contract.stored_specs import EvaluationItem, Execution, user_spec
from assay.service.metrics.analyses.summary import Summary
from assay.service.metrics.anomaly import anomaly_metrics
from assay.service.metrics.calibration import calibration_metrics
from assay.service.metrics.classification import classification_metrics
from assay.service.metrics.corrupted_pixel_counts import COLUMN as CORRUPTED_PIXELS
from assay.service.metrics.corrupted_segmentation import corrupted_segmentation_metrics
from assay.service.metrics.corruption import corruption_metrics
from assay.service.metrics.perplexity import perplexity_metrics
from assay.service.metrics.pixel_counts import COUNTS
from assay.service.metrics.segmentation import segmentation_metrics
from assay.service.metrics.text_attack import TEXT_COLUMNS, text_attack_metrics
from assay.service.metrics.word_swap import SWAPPED_COLUMNS, word_swap_metrics
from assay.service.metrics.worst_case import is_attacked, worst_case
from assay.service.store.rows import JobRow, OutcomeRow
from assay.service.store.store import Store
from assay.workers.jobs import artifacts
from assay.workers.jobs.analyses import summarise
from assay.workers.jobs.final_evaluation import final_evaluation
from assay.workers.jobs.stages import candidate_breakdown, stage_breakdown
from assay.workers.jobs.warnings import Row, of_evaluation
from assay.workers.published.analyses import analysis_references
from assay.workers.published.match import IMAGENET, IMAGENET_C, references

COLUMNS = ("id", "label", "prediction", "correct", "correct5", "clean_correct", "loss", "forward", "backward")
# Columns that only some evaluations have, and outcomes of earlier versions do not.
OPTIONAL_COLUMNS = ("queries", "broken_by", "linf", "l2", "correct8", "corrupted", "confidence")
# Of segmentation: counts are lists over the classes.
PIXEL_COLUMNS = ("id", *COUNTS, "forward", "backward")
# Of stored corrupted images, which have no answer to the image as it was.
STORED_COLUMNS = ("id", "label", "corrupted", "forward", "backward")
# Of a language: a row is a document.
DOCUMENT_COLUMNS = ("id", "nll", "tokens", "unknown", "forward", "backward")
ANOMALY_COLUMNS = ("id", "anomaly", "prediction", "confidence", "forward", "backward")


def save_evaluation(store: Store, folder: Path, job_id: str, evaluation: int) -> None:
    """Merge one evaluation whose shards are all done; save it with its outcome table.

    Raises:
        NotFound: the job has been deleted.
        OSError: the table could not be written.
        ValueError: outcomes are missing, or an example was measured twice.
    """
    _save_one(store, folder, store.jobs.get(job_id), evaluation, store.results.outcomes(job_id, evaluation))


def save_job(store: Store, folder: Path, job_id: str) -> None:
    """Merge the evaluations that have no result yet, and end the job; its shards are all done.

    Raises:
        NotFound: the job has been deleted.
        OSError: a table could not be written.
        ValueError: outcomes are missing, or an example was measured twice.
    """
    job, merged = store.jobs.get(job_id), store.results.of(job_id)
    measured: list[OutcomeRow] = []
    for index in range(len(evaluations(job))):
        rows = store.results.outcomes(job_id, index)
        if index not in merged:
            _save_one(store, folder, job, index, rows)
        # Of millions of examples, the columns of one evaluation at a time are enough.
        measured += [replace(row, columns={}) for row in rows]
    store.jobs.succeed(job_id, provenance(job, measured))


def evaluations(job: JobRow) -> list[EvaluationItem]:
    """What the job measures; a training job measures what it trained."""
    spec = user_spec(job.spec)
    return [final_evaluation(spec)] if spec["kind"] == "train" else spec["evaluations"]


def _save_one(store: Store, folder: Path, job: JobRow, index: int, rows: Sequence[OutcomeRow]) -> None:
    columns = sorted_columns(rows)
    item = evaluations(job)[index]
    table = artifacts.write_text(folder / f"outcomes-{index:03d}-{item['name']}.csv", as_csv(columns))
    summary = summarise(item["params"], rows, columns)
    result = merge_evaluation(job, index, rows, columns, summary)
    described = [table, *(a for row in rows for a in row.extra.get("artifacts", []))]
    if summary is not None:
        described.append(artifacts.write_text(folder / f"plot-{index:03d}-{item['name']}.svg", summary.plot))
    for one in described:
        store.artifacts.add(job.id, **one)
    store.results.save(job.id, index, result.model_dump(mode="json"))


def sorted_columns(rows: Sequence[OutcomeRow]) -> dict[str, list[Any]]:
    """The columns of all shards in one, sorted by example id; an optional one if every shard has it.

    Raises:
        ValueError: an example was measured twice.
    """
    optional = [name for name in OPTIONAL_COLUMNS if all(name in row.columns for row in rows)]
    names = (*COLUMNS, *optional)
    if any("intersection" in row.columns for row in rows):
        corrupted = all(CORRUPTED_PIXELS in row.columns for row in rows)
        names = (*PIXEL_COLUMNS, *([CORRUPTED_PIXELS] if corrupted else ()))
    if any("anomaly" in row.columns for row in rows):
        names = ANOMALY_COLUMNS
    if any("status" in row.columns for row in rows):
        names = TEXT_COLUMNS
    if any("corrupted" in row.columns and "correct" not in row.columns for row in rows):
        names = STORED_COLUMNS
    if any("nll" in row.columns for row in rows):
        swapped = any("swapped" in row.columns for row in rows)
        names = SWAPPED_COLUMNS if swapped else DOCUMENT_COLUMNS
    if any("analysis" in row.extra or is_attacked(row.columns) for row in rows):
        names = tuple(rows[0].columns)
    joined = {name: [value for row in rows for value in row.columns[name]] for name in names}
    order = sorted(range(len(joined["id"])), key=joined["id"].__getitem__)
    if len(set(joined["id"])) != len(order):
        raise ValueError("an example was measured twice")
    return {name: [values[i] for i in order] for name, values in joined.items()}


def merge_evaluation(
    job: JobRow,
    index: int,
    rows: Sequence[OutcomeRow],
    columns: Mapping[str, Sequence[Any]],
    summary: Summary | None = None,
) -> EvaluationResult:
    """One row of the results; of an analysis, `summary` is what it found."""
    item, plan, spec = evaluations(job)[index], plan_of(job, rows), user_spec(job.spec)
    planned, measured = plan["evaluations"][index], len(columns["id"])
    if measured != planned["n"]:
        raise ValueError(f"{measured} of {planned['n']} examples of evaluation {index} were measured")
    attack = rows[0].extra["attack"]
    # A shard says so where it had to run under another protocol than the job's.
    protocol = rows[0].extra.get("protocol") or (spec["protocol"] if spec["kind"] == "evaluate" else "pixel")
    backend = str(item["params"].get("backend", "native"))
    evidence = [row.extra["evidence"] for row in rows]
    worst = worst_case(columns) if is_attacked(columns) else None
    if worst is not None:
        metrics = worst.metrics
    elif summary is not None:
        metrics = summary.metrics
    else:
        metrics = _metrics(item, columns, attack=attack, paper=protocol == "paper")
    stages = candidate_breakdown(evidence, worst.alone) if worst else stage_breakdown(evidence, measured)
    cells: list[Breakdown] = []
    if "corrupted" in columns:
        imagenet = planned.get("known_as") in (IMAGENET, IMAGENET_C)
        more, cells = corruption_metrics(columns["corrupted"], cells_of(item["params"]), imagenet=imagenet)
        metrics |= more
    if CORRUPTED_PIXELS in columns:
        more, cells = corrupted_segmentation_metrics(columns, cells_of(item["params"]))
        metrics |= more
    row = Row(
        name=item["name"],
        params=item["params"],
        backend=backend,
        attack=attack,
        pixel=protocol == "pixel",
        segmentation="intersection" in columns,
        screening=_screening(spec["execution"]),
        planned=planned,
        breakdown=stages,
        # An analysis says itself why something has no value.
        undefined=[name for name, metric in metrics.items() if metric.value is None and summary is None],
    )
    return EvaluationResult(
        name=item["name"],
        params=dict(item["params"]),
        data=dict(item["data"] or spec["data"]),
        protocol=protocol,
        backend=backend,
        metrics=metrics,
        breakdown=[*stages, *cells, *(summary.breakdown if summary else ())],
        reference=published_for(job, item, planned, protocol),
        warnings=[*of_evaluation(plan, evidence, row), *(summary.warnings if summary else ())],
        seconds=math.fsum(row.seconds for row in rows),
        forward_passes=sum(row.forward_passes for row in rows),
        backward_passes=sum(row.backward_passes for row in rows),
    )


def _metrics(
    item: EvaluationItem, columns: Mapping[str, Sequence[Any]], *, attack: bool, paper: bool
) -> dict[str, Metric]:
    """What the columns of an evaluation come to; they tell of which kind it is."""
    if "intersection" in columns:
        return segmentation_metrics(columns)
    if "anomaly" in columns:
        return anomaly_metrics(columns)
    if "status" in columns:
        return text_attack_metrics(columns)
    if "swapped" in columns:
        return word_swap_metrics(columns)
    if "nll" in columns:
        return perplexity_metrics(columns)
    if "correct" not in columns:  # stored corrupted images
        return {}
    metrics = classification_metrics(
        columns,
        initially_correct=columns["clean_correct"] if attack else None,
        attacked=[True] * len(columns["id"]) if paper else None,
    )
    return metrics | (calibration_metrics(columns, **item["params"]) if "confidence" in columns else {})


def published_for(
    job: JobRow, item: EvaluationItem, planned: PlannedEvaluation, protocol: str
) -> list[Reference]:
    """The published numbers that belong to an evaluation of the job."""
    if found := analysis_references(item["name"], job.spec["model"], planned.get("known_as")):
        return found
    if planned.get("known_as") is None:
        return []
    component = load_catalog().find_evaluation(item["name"])
    defaults = {name: schema.get("default") for name, schema in component.parameters["properties"].items()}
    return references(
        job.spec["model"],
        item["data"] or user_spec(job.spec)["data"],
        item,
        protocol=protocol,
        known_as=planned["known_as"],
        defaults=defaults,
    )


def _screening(execution: Execution) -> str | None:
    """The arithmetic of the first of two runs: bfloat16 is confirmed like what was screened."""
    rough = "bfloat16" if execution["dtype"] == "bfloat16" else None
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
    merged = Provenance(
        spec=dict(job.spec),
        seed=job.spec["seed"],
        code=dict(first["code"]),
        packages=first["packages"],
        device=device | {"batch_size": plan["batch_size"]},
        weights_sha256=plan["weights_sha256"],
        data_sha256=plan["data_sha256"],
        sources={
            # Plans of earlier versions have none.
            job_id: Source(model=dict(source["model"]), weights_sha256=source["weights_sha256"])
            for job_id, source in plan.get("sources", {}).items()
        },
        times={
            "created_at": _iso(job.created_at),
            "started_at": _iso(job.started_at),
            "measured_seconds": math.fsum(row.seconds for row in rows),
            "shards": len(rows),
            "attempt": job.attempt,
        },
    )
    return cast(JobProvenance, merged.model_dump(mode="json"))


def as_csv(columns: Mapping[str, Sequence[Any]]) -> str:
    """The outcome table: a row per example, sorted by id.

    Booleans are 0 and 1, floats exact, and the items of a list have spaces between them.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    of_pixels = (*PIXEL_COLUMNS, CORRUPTED_PIXELS)
    every = (*COLUMNS, *OPTIONAL_COLUMNS, *of_pixels, *ANOMALY_COLUMNS, *DOCUMENT_COLUMNS)
    known = [name for name in dict.fromkeys(every) if name in columns]
    # Of an analysis and of texts the columns are in their own order.
    names = list(columns) if set(columns) - set(every) else known
    writer.writerow(names)
    for row in zip(*(columns[name] for name in names), strict=True):
        writer.writerow([_cell(value) for value in row])
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return int(value) if isinstance(value, bool) else value


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
