"""Page of the outcomes of an evaluation, example by example."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from assay.service.api.deps import JobDep, SettingsDep, StoreDep, StrictRoute
from assay.service.api.outcome_tables import read_result
from assay.service.api.views import job_view
from assay.service.catalog.catalog import load
from assay.service.contract.errors import ErrorDetail, InvalidSpec, NotFound
from assay.service.contract.fractions import fraction_value
from assay.service.contract.results import EvaluationResult
from assay.service.dashboard.choices import Filter, check_choices, refused
from assay.service.dashboard.example_rows import (
    DESCENDING,
    FILTERS,
    SMALLEST,
    ExampleChoice,
    chosen_rows,
    folded_columns,
    joined_columns,
    outcome_of,
    shown_columns,
    smallest_epsilons,
    stages_of,
)
from assay.service.dashboard.frame import render
from assay.service.galleries.files import gallery_or_none, pictures_of
from assay.service.lru_cache import LruCache, table_weight
from assay.service.reports.numbers import chosen_params, row_params
from assay.service.store.columns import SeenCells, seen_cells
from assay.service.store.rows import JobRow
from assay.service.store.tenants import TenantStore

router = APIRouter(route_class=StrictRoute, include_in_schema=False)

PER_PAGE = 100
MAX_EXAMPLES = 1_000_000
MAX_CLASSES = 1000  # that a list offers
MAX_PAGE = MAX_EXAMPLES // PER_PAGE
TITLES: dict[str, str] = json.loads(
    Path(__file__).with_name("example_titles.json").read_text(encoding="utf-8")
)
ORDERS = ("ascending", "descending")
JUDGED = ("id", "correct", "clean_correct")  # What the smallest epsilon needs of an evaluation
MAX_KEPT = 4_000_000  # Cells and characters of tables that stay in memory between pages
_cache: LruCache[tuple[str, int, float | None, int, int], dict[str, list[Any]]] = LruCache(
    MAX_KEPT, table_weight
)


@dataclass
class ExampleAddress:
    """Which examples a page is about, and in which order: kept on the way to an example and on."""

    sort: Filter = ""
    order: Filter = ""
    only: Filter = ""
    label: Filter = ""
    all: Filter = ""  # "yes": with the columns that say little

    def changed(self, path: str, **changes: object) -> str:
        """The path with the choice and changes of it."""
        given = {name: value for name, value in {**asdict(self), **changes}.items() if value}
        return f"{path}?{urlencode(given)}" if given else path


ExampleAddressDep = Annotated[ExampleAddress, Depends()]


@router.get("/jobs/{job_id}/examples/{evaluation}")
def show_examples(
    job: JobDep,
    evaluation: int,
    request: Request,
    store: StoreDep,
    settings: SettingsDep,
    address: ExampleAddressDep,
    page: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 1,
) -> Response:
    """The examples of an evaluation, a hundred a page."""
    results = {index: read_result(result) for index, result in store.results.of(job.id).items()}
    if evaluation not in results:
        there = f"0 to {max(results)}, as far as measured" if results else "none so far"
        raise NotFound(f"evaluation {evaluation} of job {job.id} has no results; allowed: {there}")
    result = results[evaluation]
    columns, choice, rows = chosen_examples(store, job, evaluation, results, address)
    gallery = gallery_or_none(settings.file_store, store.artifacts.of(job.id), evaluation)
    every = shown_columns(columns)
    folded = folded_columns(columns, every, load().norm_of(result.name, result.params)) - {choice.sort}
    names = [name for name in every if address.all or name not in folded]
    pages = max(1, -(-len(rows) // PER_PAGE))
    if page > pages:
        raise refused("page", f"there is no page {page}", page, f"1 to {pages}")
    path = f"/jobs/{job.id}/examples/{evaluation}"
    values = {
        "title": f"Examples of {result.name}",
        "section": "/jobs",
        "job": job_view(store, job),
        "index": evaluation,
        "result": result,
        "params": chosen_params(result.name, row_params(result)),
        "columns": names,
        "rows": [
            (address.changed(f"{path}/{row}"), outcome_of(columns, row), _cells(columns, names, row))
            for row in rows[(page - 1) * PER_PAGE : page * PER_PAGE]
        ],
        "folded": [TITLES.get(name, name) for name in every if name in folded],
        "unfolded": address.changed(path, all="" if address.all else "yes"),
        "count": len(rows),
        "total": len(columns["id"]),
        "choice": choice,
        "address": address,
        "filters": FILTERS if "clean_correct" in columns else ("wrong", "right"),
        "labels": _labels(columns),
        "names": {} if gallery is None else {one.index: one.name for one in gallery.classes},
        "pictures": {} if gallery is None else pictures_of(gallery),
        "judged": "correct" in columns,
        "smallest": SMALLEST,
        "titles": _titles(result),
        "numeric": {name for name in names if _numeric(columns[name])},
        "csv": f"outcomes-{evaluation:03d}-{result.name}.csv",
        "page": page,
        "pages": pages,
        "previous": address.changed(path, page=page - 1) if page > 1 else None,
        "following": address.changed(path, page=page + 1) if page < pages else None,
        "orders": _orders(path, address, choice, names),
        "gallery": gallery,
    }
    return render(request, "examples.html", values)


def chosen_examples(
    store: TenantStore, job: JobRow, evaluation: int, results: dict[int, EvaluationResult],
    address: ExampleAddress,
) -> tuple[dict[str, list[Any]], ExampleChoice, list[int]]:  # fmt: skip
    """The outcomes of an evaluation, the choice of an address, and the numbers of its examples in order."""
    columns = _columns(store, job, evaluation, results)
    choice = _choice(shown_columns(columns), address)
    numbered = {int}.issuperset(map(type, columns.get("label", ())))
    if choice.label and numbered and not choice.label.isdecimal():
        raise refused("label", "must be the number of a class", choice.label, "such as 3")
    return columns, choice, chosen_rows(columns, choice, stages_of(results[evaluation]))


def neighbours(
    store: TenantStore, job: JobRow, evaluation: int, results: dict[int, EvaluationResult],
    address: ExampleAddress, number: int,
) -> tuple[int | None, int | None, str]:  # fmt: skip
    """The examples before and after an example among the chosen, and its place among them in words.

    Without a choice, and for an example that is not among the chosen, they are in the order of the data.
    """
    count = example_count(job, evaluation, results)
    plain = number - 1 if number else None, number + 1 if number + 1 < count else None
    said = f"number {number} of the data (0 to {count - 1})"
    if address == ExampleAddress():
        return *plain, said
    rows = chosen_examples(store, job, evaluation, results, address)[2]
    if number not in rows:
        return *plain, f"{said}, not among the {len(rows)} chosen"
    place = rows.index(number)
    before = rows[place - 1] if place else None
    after = rows[place + 1] if place + 1 < len(rows) else None
    what = f"{address.only} example {place + 1} of {len(rows)}".strip()
    what += f" of class {address.label}" if address.label else ""
    order = f" by {TITLES.get(address.sort, address.sort)}" if address.sort else ""
    return before, after, f"{what}{order}, {said}"


def _columns(
    store: TenantStore, job: JobRow, evaluation: int, results: dict[int, EvaluationResult]
) -> dict[str, list[Any]]:
    count = example_count(job, evaluation, results)
    if count > MAX_EXAMPLES:
        message = (
            f"evaluation {evaluation} has {count} examples; shown here: at most {MAX_EXAMPLES}."
            f" Download outcomes-{evaluation:03d}-{results[evaluation].name}.csv from the job instead"
        )
        detail = ErrorDetail(
            loc=["path", "evaluation"], message=message, given=evaluation, allowed=f"at most {MAX_EXAMPLES}"
        )
        raise InvalidSpec(message, [detail])
    key = (job.id, job.attempt, job.finished_at, evaluation, len(results))
    return _cache.get_or_make(key, lambda: _with_smallest(store, job, evaluation, results))


def _with_smallest(
    store: TenantStore, job: JobRow, evaluation: int, results: dict[int, EvaluationResult]
) -> dict[str, list[Any]]:
    shards = store.results.columns(job.id, evaluation)
    columns = joined_columns(shards, results[evaluation])
    if "id" not in columns:
        raise NotFound(f"evaluation {evaluation} of job {job.id} has no outcomes of examples")
    epsilons = grid_of(evaluation, results)
    read = sum(example_count(job, index, results) for index in epsilons)
    if "correct" in columns and len(epsilons) > 1 and read <= MAX_EXAMPLES:
        seen = [seen_cells(shard["id"]) for shard in shards]
        others = [
            (epsilon, columns if index == evaluation else _judged(store, job, index, seen))
            for index, epsilon in epsilons.items()
        ]
        complete = [(epsilon, found) for epsilon, found in others if {"id", "correct"} <= found.keys()]
        columns[SMALLEST] = smallest_epsilons(columns["id"], complete)
    return columns


def _judged(
    store: TenantStore, job: JobRow, evaluation: int, seen: Sequence[SeenCells]
) -> dict[str, list[Any]]:
    return joined_columns(store.results.columns(job.id, evaluation, JUDGED, seen))


def example_count(job: JobRow, evaluation: int, results: dict[int, EvaluationResult]) -> int:
    """The number of examples of an evaluation, as planned."""
    if job.plan is not None and evaluation < len(job.plan["evaluations"]):
        return job.plan["evaluations"][evaluation]["n"]
    return max((metric.n for metric in results[evaluation].metrics.values()), default=0)


def grid_of(evaluation: int, results: dict[int, EvaluationResult]) -> dict[int, float]:
    """The evaluations that differ from an evaluation in epsilon alone, itself included; by index."""
    this = results[evaluation]
    found = {}
    for index, other in results.items():
        same = (other.name, other.data, other.protocol) == (this.name, this.data, this.protocol)
        if same and _without_epsilon(other) == _without_epsilon(this):
            try:
                found[index] = fraction_value(other.params["epsilon"])
            except (KeyError, TypeError, ValueError):
                return {}
    return found


def _without_epsilon(result: EvaluationResult) -> dict[str, Any]:
    return {name: value for name, value in result.params.items() if name != "epsilon"}


def _numeric(values: list[Any]) -> bool:
    return any(isinstance(value, int | float) for value in values[:PER_PAGE])


def _cells(columns: dict[str, list[Any]], names: list[str], row: int) -> list[Any]:
    return [columns[name][row] for name in names]


def _titles(result: EvaluationResult) -> dict[str, str]:
    unit = " (sd)" if load().radius_unit(result.data, result.protocol) == "sd" else ""
    return TITLES | {SMALLEST: f"{TITLES[SMALLEST]}{unit}"}


def _labels(columns: dict[str, list[Any]]) -> list[Any]:
    found = {value for value in columns.get("label", ()) if isinstance(value, int)}
    return sorted(found) if len(found) <= MAX_CLASSES else []


def _choice(names: list[str], address: ExampleAddress) -> ExampleChoice:
    check_choices(
        sort=(address.sort, names),
        order=(address.order, ORDERS),
        all=(address.all, ("yes",)),
        only=(address.only, (*FILTERS, "right")),
    )
    column = address.sort or ("broken_by" if "broken_by" in names else "id")
    descending = address.order == "descending" if address.order else column in DESCENDING
    return ExampleChoice(sort=column, descending=descending, only=address.only, label=address.label or None)


def _orders(path: str, address: ExampleAddress, choice: ExampleChoice, names: list[str]) -> dict[str, str]:
    found = {}
    for name in names:
        same = name == choice.sort
        descending = not choice.descending if same else name in DESCENDING
        order = "descending" if descending else "ascending"
        found[name] = address.changed(path, sort=name, order=order)
    return found
