"""Columns of the list of jobs with a metric of an evaluation, which the reader chooses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from assay.service.api.outcome_tables import read_result
from assay.service.catalog.catalog import Catalog
from assay.service.contract.errors import AssayError
from assay.service.contract.problems import nearest
from assay.service.contract.results import Metric
from assay.service.contract.states import JobState
from assay.service.contract.stored_specs import evaluations_in, user_spec
from assay.service.dashboard.form_fields import without_defaults
from assay.service.reports.numbers import params_text, shown_params, strengths
from assay.service.store.rows import JobRow
from assay.service.store.tenants import TenantStore

MAX_COLUMNS, MAX_COLUMN = 6, 300  # Chosen columns, and the characters of their names
MAX_OFFERED, MAX_TITLED = 30, 200  # Evaluations that offer metrics, and that are named of a job
BETWEEN = ": "  # of an evaluation and its metric


@dataclass(frozen=True)
class MetricColumns:
    """Names of columns as `pgd epsilon=8/255: top1`: offered to the reader, and values by job and name.

    `missing` has the chosen names without any value here, each with the nearest of the others, if there is.
    """

    offered: list[str]
    values: dict[str, dict[str, Metric]]
    missing: list[tuple[str, str | None]]


def metric_columns(
    store: TenantStore, catalog: Catalog, rows: Sequence[JobRow], chosen: Sequence[str]
) -> MetricColumns:
    """What chosen columns show of the jobs, and what the newest ended job with each evaluation offers."""
    titled = {row.id: _titles(catalog, row) for row in rows}
    evaluations = {name.rpartition(BETWEEN)[0] for name in chosen}
    wanted: dict[tuple[str, int], str] = {}
    samples: dict[str, tuple[str, int]] = {}
    for row in rows:
        for index, title in enumerate(titled[row.id]):
            if title in evaluations:
                wanted[row.id, index] = title
            if row.state is JobState.SUCCEEDED and len(samples) < MAX_OFFERED:
                samples.setdefault(title, (row.id, index))
    found = store.results.chosen({*wanted, *samples.values()}) if wanted or samples else {}
    values: dict[str, dict[str, Metric]] = {}
    for at, title in wanted.items():
        stored = found.get(at)
        metrics = {} if stored is None else read_result({**stored, "breakdown": []}).metrics
        named = {f"{title}{BETWEEN}{metric}": value for metric, value in metrics.items()}
        values.setdefault(at[0], {}).update({name: value for name, value in named.items() if name in chosen})
    offered = [
        f"{title}{BETWEEN}{metric}"
        for title, at in samples.items()
        if at in found
        for metric in found[at]["metrics"]
    ]
    offered = [name for name in offered if len(name) <= MAX_COLUMN]
    there = {name for found in values.values() for name in found}
    missing = [(name, nearest(name, [*there, *offered])) for name in chosen if name not in there]
    return MetricColumns(offered, values, missing)


def _titles(catalog: Catalog, row: JobRow) -> list[str]:
    spec = user_spec(row.spec)
    if spec["kind"] == "train":
        facts = catalog.task_of(spec["data"])
        return [] if facts is None else [facts.final.name]
    protocol, usual = spec["protocol"], json.dumps(spec["data"])
    return [
        _title(
            catalog, item["name"], json.dumps(item["params"]), json.dumps(item["data"] or ""), usual, protocol
        )
        for item in evaluations_in(spec)[:MAX_TITLED]
    ]


@lru_cache(4096)
def _title(
    catalog: Catalog, name: str, params_json: str, own_json: str, usual_json: str, protocol: str
) -> str:
    """An evaluation by its name, its radius, what is not by default, its own data, and another protocol."""
    params, own = json.loads(params_json), json.loads(own_json)
    try:
        changed = without_defaults(catalog, catalog.find_evaluation(name).parameters, params)
    except AssayError:  # of a package that is gone
        changed = params
    params = {key: value for key, value in params.items() if key in changed or key in strengths(name)}
    parts = [name, params_text(shown_params(name, params, own or json.loads(usual_json), protocol))]
    parts += [f"on {own['name']}"] if own else []
    parts += [f"protocol {protocol}"] if protocol != "pixel" else []
    return " ".join(filter(None, parts))
