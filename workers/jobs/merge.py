"""From outcome rows to results: pure functions over the examples sorted by id, then one save.

Counts are integers and sums are `math.fsum`, so that merging in any order gives the same bits. Saving is
idempotent: whoever repeats it writes the same result.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from service.contract.results import EvaluationResult, Provenance, Warning
from service.store.rows import JobRow, OutcomeRow
from service.store.session import Store
from workers import artifacts
from workers.metrics.classification import classification_metrics

COLUMNS = ("id", "label", "prediction", "correct", "correct5", "clean_correct", "loss", "forward", "backward")
CLEAN: dict[str, Any] = {"name": "clean", "params": {}, "data": None}


def save(store: Store, folder: Path, job_id: str, evaluation: int | None, *, job_done: bool) -> None:
    """Merge one evaluation (None: every finished one), save it with its outcome table, end a done job.

    Raises:
        OSError: the artifact could not be written.
    """
    job = store.jobs.get(job_id)
    wanted = range(len(evaluations(job))) if evaluation is None else [evaluation]
    for index in wanted:
        rows = store.results.outcomes(job_id, index)
        if rows:
            _save_one(store, folder, job, index, rows)
    if job_done:
        store.jobs.succeed(job_id, provenance(job, store.results.outcomes(job_id, None)))


def evaluations(job: JobRow) -> list[dict[str, Any]]:
    """What the job measures; a training job measures the clean accuracy of what it trained."""
    if job.kind == "train":
        return [CLEAN]
    listed: list[dict[str, Any]] = job.spec["evaluations"]
    return listed


def _save_one(store: Store, folder: Path, job: JobRow, index: int, rows: Sequence[OutcomeRow]) -> None:
    columns = sorted_columns(rows)
    item = evaluations(job)[index]
    table = artifacts.write_text(folder / f"outcomes-{index:03d}-{item['name']}.csv", as_csv(columns))
    result = merge_evaluation(job, index, rows, columns)
    described = [table, *(a for row in rows for a in row.extra.get("artifacts", []))]
    for one in described:
        store.artifacts.add(job.id, **one)
    store.results.save(job.id, index, result.model_dump(mode="json"))


def sorted_columns(rows: Sequence[OutcomeRow]) -> dict[str, list[Any]]:
    """The columns of all shards in one, sorted by example id.

    Raises:
        ValueError: an example was measured twice.
    """
    joined = {name: [value for row in rows for value in row.columns[name]] for name in COLUMNS}
    order = sorted(range(len(joined["id"])), key=joined["id"].__getitem__)
    if len(set(joined["id"])) != len(order):
        raise ValueError("an example was measured twice")
    return {name: [values[i] for i in order] for name, values in joined.items()}


def merge_evaluation(
    job: JobRow, index: int, rows: Sequence[OutcomeRow], columns: Mapping[str, Sequence[Any]]
) -> EvaluationResult:
    """One row of the results."""
    item, plan = evaluations(job)[index], plan_of(job, rows)
    attack = rows[0].extra["attack"]
    protocol = job.spec.get("protocol", "pixel")
    return EvaluationResult(
        name=item["name"],
        params=item["params"],
        data=item["data"] or job.spec["data"],
        protocol=protocol,
        backend=str(item["params"].get("backend", "native")),
        metrics=classification_metrics(
            columns, initially_correct=columns["clean_correct"] if attack else None
        ),
        warnings=warnings(job, plan, index, rows, columns, attack=attack),
        seconds=math.fsum(row.seconds for row in rows),
        forward_passes=sum(row.forward_passes for row in rows),
        backward_passes=sum(row.backward_passes for row in rows),
    )


def plan_of(job: JobRow, rows: Sequence[OutcomeRow]) -> Mapping[str, Any]:
    """The job's plan; a training shard brings its own."""
    return job.plan if job.plan is not None else rows[0].extra["plan"]


def warnings(
    job: JobRow,
    plan: Mapping[str, Any],
    index: int,
    rows: Sequence[OutcomeRow],
    columns: Mapping[str, Sequence[Any]],
    *,
    attack: bool,
) -> list[Warning]:
    """What the reader of this row must know."""
    size, n = plan["evaluations"][index], len(columns["id"])
    evidence = {key: sum(row.extra["evidence"].get(key, 0) for row in rows) for key in _EVIDENCE}
    found = [
        Warning(code=code, message=text.format(count=evidence[code], n=n), evidence={"count": evidence[code], "n": n})
        for code, text in _EVIDENCE.items()
        if evidence[code]
    ]
    if plan["untrained"]:
        found.append(Warning(code="untrained_weights", message="the model's weights are random: it was never trained"))
    if size["n"] < size["available"]:
        found.append(
            Warning(
                code="subset",
                message=f"{size['n']} of {size['available']} examples: those with the smallest"
                " sha256 of data name and example id",
                evidence=dict(size),
            )
        )
    backend = evaluations(job)[index]["params"].get("backend", "native")
    if backend != "native":
        found.append(
            Warning(
                code="library_backend",
                message=f"run by {backend}: its random draws are made per batch, so numbers depend on the batch size",
                evidence={"batch_size": plan["batch_size"]},
            )
        )
    if attack and job.spec["protocol"] == "pixel":
        found.append(
            Warning(
                code="top5_upper_bound",
                message="top5 was measured under an attack on top-1 that stops at the first success:"
                " it is an upper bound of accuracy under an attack on top-5",
            )
        )
    return found


_EVIDENCE = {
    "zero_gradient": "the gradient at the first step was exactly zero for {count} of {n} examples:"
    " gradients may be masked",
    "nonfinite_gradient": "the gradient at the first step was not finite for {count} of {n} examples",
    "nonfinite": "the logits were not finite for {count} of {n} examples; they count as wrong",
}


def provenance(job: JobRow, rows: Sequence[OutcomeRow]) -> dict[str, Any]:
    """Everything needed to repeat the numbers."""
    plan, first = plan_of(job, rows), rows[0].extra["provenance"]
    devices = [row.extra["provenance"]["device"] for row in rows]
    device = dict(first["device"])
    if any(other != device for other in devices):
        device["mixed"] = [d for i, d in enumerate(devices) if d not in devices[:i]]
    return Provenance(
        spec=job.spec,
        seed=job.spec["seed"],
        code=first["code"],
        packages=first["packages"],
        device=device | {"batch_size": plan["batch_size"]},
        weights_sha256=plan["weights_sha256"],
        data_sha256=plan["data_sha256"],
        times={
            "created_at": _iso(job.created_at),
            "started_at": _iso(job.started_at),
            "measured_seconds": math.fsum(row.seconds for row in rows),
            "shards": len(rows),
            "attempt": job.attempt,
        },
    ).model_dump(mode="json")


def as_csv(columns: Mapping[str, Sequence[Any]]) -> str:
    """The outcome table: a row per example, sorted by id; booleans as 0 and 1, floats exactly."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in zip(*(columns[name] for name in COLUMNS), strict=True):
        writer.writerow([int(value) if isinstance(value, bool) else value for value in row])
    return text.getvalue()


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
