"""Results as tidy rows: one row a number, with everything that it depends on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.service.contract.fractions import canonical
from assay.service.contract.results import EvaluationResult, Metric, Results, data_label
from assay.service.reports.headline import counted_row
from assay.service.reports.numbers import NORM, shown_params

MADE = re.compile(r"-[0-9a-f]{12}$")  # end of names of uploads made from a file in one line


@dataclass(frozen=True)
class ReportedJob:
    """A job with its results."""

    id: str
    name: str  # its author's; may be empty
    spec: Mapping[str, Any]  # with all defaults
    results: Results  # so far
    trained_by: Mapping[str, Any] | None = None  # the job that trained the model: id, path and spec

    @property
    def label(self) -> str:
        """The name, or the id of a job without one."""
        return self.name.strip() or self.id

    @property
    def model(self) -> str:
        """Catalog name of the model."""
        return str(self.spec["model"]["name"])

    @property
    def model_label(self) -> str:
        """The model in tables: an upload's name by its author (else the job's), else the catalog name.

        Names of `assay evaluate`'s uploads end with a hash, and do not count.
        """
        upload = (self.spec["model"].get("weights") or {}).get("checkpoint")
        if upload is None:
            return self.model
        return (MADE.search(upload) and self.name.strip()) or str(upload)


@dataclass(frozen=True)
class TidyRow:
    """One number."""

    job: str  # id
    name: str
    model: str  # in the catalog
    weights_sha256: str | None  # of the content; None for untrained weights and unfinished jobs
    seed: int
    data: str  # label
    attack: str  # of evaluation or attack
    params: Mapping[str, Any]  # of the attack
    protocol: str
    metric_name: str  # for example `top1`
    part: str  # of a breakdown, empty for the whole
    metric: Metric  # with interval, unit and number of examples
    key: str  # equal for comparable rows of two jobs
    first: bool  # the first metric of its evaluation
    model_label: str = ""  # what tables call the model; empty for its catalog name

    def shown(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters of the attack, a radius as text."""
        norm = {NORM: self.params.get(NORM)}
        found = shown_params(
            self.attack, {**norm, **params}, {"name": self.data.partition("(")[0]}, self.protocol
        )
        return {name: found[name] for name in params}


def tidy_rows(jobs: Sequence[ReportedJob]) -> list[TidyRow]:
    """The numbers of all jobs, in the order of their results."""
    return [row for job in jobs for part in job.results.evaluations for row in _rows(job, part)]


def counted_numbers(jobs: Sequence[ReportedJob]) -> list[tuple[str, str]]:
    """Job and key of every number that the sentence of a job counts."""
    attacks = [(job.id, row) for job in jobs if (row := counted_row(job.results))]
    return [
        (job, f" {comparison_key(row.name, row.params, row.data, row.protocol, name)}")
        for job, row in attacks
        for name in row.metrics
    ]


def comparison_key(evaluation: str, params: Any, data: Any, protocol: str, metric: str) -> str:
    """The identity of a number that several jobs may have measured."""
    return json.dumps(canonical([evaluation, params, data, protocol, metric]), sort_keys=True)


def _rows(job: ReportedJob, found: EvaluationResult) -> Iterator[TidyRow]:
    provenance = job.results.provenance
    for place, (part, name, metric) in enumerate(_metrics(found)):
        key = comparison_key(found.name, found.params, found.data, found.protocol, name)
        yield TidyRow(
            job=job.id,
            name=job.name,
            model=job.model,
            weights_sha256=None if provenance is None else provenance.weights_sha256,
            seed=job.spec["seed"],
            data=data_label({"params": {}, **found.data}),
            attack=found.name,
            params=found.params,
            protocol=found.protocol,
            metric_name=name,
            part=part,
            metric=metric,
            key=f"{part} {key}",
            first=place == 0,
            model_label=job.model_label,
        )


def _metrics(found: EvaluationResult) -> Iterator[tuple[str, str, Metric]]:
    for name, metric in found.metrics.items():
        yield "", name, metric
    for part in found.breakdown:
        for name, metric in part.metrics.items():
            yield part.label, name, metric
