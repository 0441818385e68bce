"""The one place where a line of an evaluator becomes a typed value: bounded, then checked field by field.

Code that got out of a model controls every byte of it. Everything behind this module takes values as typed in
`service/contract/messages.py`, no more: the supervisor looks up, hashes and measures named files
(`shard_files`), and tests the worker itself.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, cast

from assay.service.catalog.catalog import load
from assay.service.contract import messages
from assay.service.contract.logs import escaped
from assay.service.contract.messages import EvaluatorReport, EvaluatorRequest
from assay.service.contract.records import Evidence
from assay.service.contract.stored_specs import user_spec
from assay.service.contract.typed_values import faults, shown
from assay.service.files.job_files import is_job_file
from assay.service.files.json_bounds import JsonBounds
from assay.service.metrics.table import OutcomeTable
from assay.service.submission.plan_faults import (
    DIGEST,
    faults_of_facts,
    faults_of_plan,
    not_counts,
    not_finite,
    not_like,
)
from assay.workers import catalog
from assay.workers.jobs.final_evaluation import final_evaluation
from assay.workers.supervision.report_bounds import (
    MAX_COLUMNS,
    MAX_HELD_OUT,
    PATTERN_COLUMNS,
    bounds_of,
)

log = logging.getLogger(__name__)
# By a request's kind, types of the reports on the way and of the answer.
TYPES: Mapping[str, Mapping[str, Any]] = {
    "plan": {"progress": messages.ProgressReport, "plan": messages.PlanReport},
    "train": {
        "progress": messages.ProgressReport,
        "checkpoint": messages.CheckpointReport,
        "outcome": messages.OutcomeReport,
    },
    "evaluate": {"progress": messages.ProgressReport, "outcome": messages.OutcomeReport},
    "check": {"progress": messages.ProgressReport, "checked": messages.CheckedReport},
    "self_test": {"self_tested": messages.SelfTestReport},
    "hash": {"hashed": messages.HashReport},
}
OPEN_TYPES = (Evidence,)  # Components of packages have their own evidence, an analysis only its facts
Facts = dict[str, Any]
FAULTS_SHOWN = 3
MAX_PROGRESS_TEXT, MAX_ERROR_TEXT, MAX_CELL_TEXT, MAX_FILES = 500, 8_000, 4_096, 1_000
OF_MERGE = re.compile(r"(plot|outcomes|gallery)-\w+(-\w+)?(\.\w+)+")  # Names of files of the merge itself.
ERROR_TYPE = re.compile(r"[a-z][a-z0-9_]{0,63}")
COLUMN = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,200}")
LIST_COLUMN = "intersection"  # of tables whose cells are lists by class


class BadReport(Exception):
    """A line is no report that its request allows; for the job's user."""


@dataclass(frozen=True)
class AllowedReports:
    """The reports that one request allows."""

    request: EvaluatorRequest
    bounds: JsonBounds
    rows: int | None  # of its outcome; None where no plan states them
    table: OutcomeTable | None  # of its outcome; None without one, or without its package here

    @classmethod
    def of(cls, request: EvaluatorRequest) -> AllowedReports:
        """Those of a request."""
        rows, table, classes = None, None, 0
        if request["kind"] in ("train", "evaluate"):
            table = _table_of(request)
        if request["kind"] == "evaluate":
            rows = max(0, request.get("stop", 0) - request.get("start", 0))
            if table is not None and LIST_COLUMN in {column.name for column in table.columns}:
                planned: Sequence[Any] = (request.get("plan") or {}).get("evaluations", [])
                classes = max([one.get("classes") or 0 for one in planned], default=0)
        columns = MAX_COLUMNS if table is None else _columns(table)
        most = MAX_HELD_OUT if rows is None else rows
        return cls(request, bounds_of(request["kind"], most, columns, classes), rows, table)

    def report(self, line: bytes) -> EvaluatorReport:
        """A line as its report. Raises BadReport: this request allows no such report."""
        found = _parsed(line, self.bounds)
        if not isinstance(found, dict) or not isinstance(found.get("type"), str):
            raise BadReport(f"it sent what is not a report: {line[:200]!r}")
        kind = self.request["kind"]
        types = {**TYPES[kind], "error": messages.ErrorReport}
        if found["type"] not in types:
            allowed = ", ".join(types)
            raise BadReport(f"it sent a report of type {shown(found['type'])} to {kind}; allowed: {allowed}")
        _clean(found)
        typed, facts = _without_facts(found)
        every = chain(
            faults(typed, types[found["type"]], open_types=OPEN_TYPES), faults(facts, Facts, "facts")
        )
        wrong = [*islice(every, FAULTS_SHOWN)]
        wrong = wrong or [*islice(self._faults(found), FAULTS_SHOWN)]
        if wrong:
            said = "; ".join(escaped(one.lstrip(".: "))[:300] for one in wrong)
            raise BadReport(f"it sent a report of type {found['type']} that is none: {said}")
        return cast(EvaluatorReport, found)

    def _faults(self, found: dict[str, Any]) -> Iterable[str]:
        match found["type"]:
            case "progress" | "checkpoint":
                yield from not_counts(found, ("done", "total", "step"))
                yield from not_counts(found.get("gpu", {}), ("total", "used", "reserved"))
                yield from not_finite(found.get("gpu", {}), ("busy",), 1)
                yield from not_finite(found, ("examples_per_second",))
            case "plan":
                yield from faults_of_plan(found["plan"], cast(messages.PlanRequest, self.request)["spec"])
            case "outcome":
                yield from self._faults_of_outcome(found)
            case "checked":
                yield from not_counts(found["verdict"], ("unlisted", "classes", "channels"))
            case "error":
                yield from not_like(found, ("error_type",), ERROR_TYPE)
                yield from not_like(found, ("fingerprint",), DIGEST)
            case "hashed":
                yield from not_like(found["data_sha256"], found["data_sha256"], DIGEST)

    def _faults_of_outcome(self, found: dict[str, Any]) -> Iterable[str]:
        n, extra = found["n"], found["extra"]
        yield from not_counts(found, ("n", "forward_passes", "backward_passes"))
        yield from not_finite(found, ("seconds",))
        if self.rows is not None and n != self.rows:
            yield f"the evaluator measured {n} examples, the shard has {self.rows}"
        most = MAX_COLUMNS if self.table is None else _columns(self.table)
        if len(found["columns"]) > most:
            yield f"it has {len(found['columns'])} columns; allowed: {most}"
        for name, values in islice(found["columns"].items(), most):
            yield from _faults_of_column(name, values, n)
        needed = () if self.table is None else self.table.columns
        for column in needed:
            if column.pattern is None and not column.optional and column.name not in found["columns"]:
                yield f"a shard has no column {column.name!r}"
        files = [*extra.get("artifacts", []), *([extra["gallery"]] if "gallery" in extra else [])]
        names = [one["name"] for one in files]
        if len(names) > MAX_FILES or len({*names}) < len(names):
            yield f"it names {len(names)} files; allowed: {MAX_FILES}, each once"
        wrong = (name for name in names if not is_job_file(name) or OF_MERGE.fullmatch(name))
        yield from (f"a file has the name {shown(name)}" for name in wrong)
        if ("plan" in extra) != (self.request["kind"] == "train"):
            yield "extra.plan: a training has one, and no other shard"
        elif "plan" in extra:
            yield from faults_of_facts(extra["plan"], 1, None)


def _table_of(request: messages.TrainRequest | messages.EvaluateRequest) -> OutcomeTable | None:
    try:
        spec = user_spec(request["spec"])
        item = (
            final_evaluation(spec) if spec["kind"] == "train" else spec["evaluations"][request["evaluation"]]
        )
        data = load().find("data", (item["data"] or spec["data"])["name"])
        return catalog.outcome_table(load().find_evaluation(item["name"]), data.tasks)
    except Exception as error:  # of a package: the evaluator reports the spec's faults
        log.info("no outcome table for %s: %s", request["kind"], error)
        return None


def _parsed(line: bytes, bounds: JsonBounds) -> Any:
    try:
        bounds.check(line)
    except ValueError as error:
        raise BadReport(f"it sent a report of {error} by its plan") from None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise BadReport(f"it sent what is not a report: {line[:200]!r}") from None


def _columns(table: OutcomeTable) -> int:
    return sum(1 if column.pattern is None else PATTERN_COLUMNS for column in table.columns)


def _clean(found: dict[str, Any]) -> None:
    most = MAX_PROGRESS_TEXT if found["type"] == "progress" else MAX_ERROR_TEXT
    for name in ("message", "error"):
        if isinstance(found.get(name), str):
            found[name] = escaped(found[name][:most], kept="\n\t")
    found.pop("traceback", None)  # it is in the evaluator's output


def _without_facts(found: dict[str, Any]) -> tuple[dict[str, Any], object]:
    extra = found.get("extra")
    if not isinstance(extra, dict) or "analysis" not in extra:
        return found, {}
    return {**found, "extra": {**extra, "evidence": {}}}, extra.get("evidence")


def _faults_of_column(name: str, values: list[Any], n: int) -> Iterable[str]:
    if not COLUMN.fullmatch(name):
        yield f"a column has the name {shown(name)}"
    if len(values) != n:
        yield f"the column {shown(name)} has {len(values)} values, the shard has {n} examples"
    if name == "id":
        if not all(type(value) is str for value in values):
            yield "the column 'id' has values that are no texts"
        elif len({*values}) < len(values):
            yield "an example was measured twice"
    for value in values:
        cells = value if type(value) is list else (value,)
        for cell in cells:
            if isinstance(cell, dict | list) or (isinstance(cell, str) and len(cell) > MAX_CELL_TEXT):
                yield f"the column {shown(name)} has {shown(cell)} for a value"
                return
