"""Page of an example of a job: its pictures, and what became of it in every evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from assay.service.api.deps import JobDep, SettingsDep, StoreDep, StrictRoute
from assay.service.api.outcome_tables import read_result
from assay.service.api.views import job_view
from assay.service.catalog.catalog import load
from assay.service.contract.errors import NotFound
from assay.service.contract.findings.traces import MAX_STEPS
from assay.service.contract.gallery import Gallery, GalleryClass
from assay.service.contract.results import EvaluationResult
from assay.service.dashboard.example_rows import (
    SMALLEST,
    Columns,
    folded_columns,
    joined_columns,
    outcome_of,
    shown_columns,
    smallest_epsilons,
)
from assay.service.dashboard.examples import TITLES, ExampleAddressDep, example_count, grid_of, neighbours
from assay.service.dashboard.frame import render
from assay.service.files.file_store import FileStore
from assay.service.galleries.files import UNREADABLE, class_text, gallery_files, read_gallery
from assay.service.galleries.pages import MAX_WORDS, ShownItem, evaluation_labels, shown_items
from assay.service.galleries.saved import SavedExample, read_saved, saved_file
from assay.service.plots.routes import Narrow, Scheme, plot_answer
from assay.service.plots.trace import EXPLAINED, SIZE, read_steps, seen_codes, trace
from assay.service.reports.numbers import chosen_params, row_params
from assay.service.store.rows import ArtifactRow, JobRow
from assay.service.store.tenants import TenantStore

router = APIRouter(route_class=StrictRoute, include_in_schema=False)

MAX_GALLERIES = 4  # Galleries that a page reads: its evaluation's, and the first others
LARGE_WIDTH = 256
SAME = ("id", "label")  # Columns that are equal in all evaluations


@dataclass(frozen=True)
class ExampleOutcome:
    """What became of the example in an evaluation."""

    index: int  # of the evaluation
    label: str  # of the evaluation
    outcome: str
    cells: Mapping[str, Any]


@dataclass(frozen=True)
class KeptPictures:
    """What is kept of the example to look at."""

    names: dict[int | None, str]  # of classes
    galleries: Sequence[int]  # the evaluations that have it in their gallery
    kind: str = ""  # of the items
    items: Sequence[ShownItem] = ()
    legend: Sequence[GalleryClass] = ()
    saved: SavedExample | None = None


@router.get("/jobs/{job_id}/examples/{evaluation}/{number}")
def show_example(
    job: JobDep, evaluation: int, number: int, request: Request, store: StoreDep, settings: SettingsDep,
    address: ExampleAddressDep,
) -> Response:  # fmt: skip
    """The example `number`, from 0 in the order of the job's data, as its evaluation left it."""
    stored = store.results.of(job.id)
    results, rows = _found(store, job, evaluation, number, stored)
    before, after, place = neighbours(store, job, evaluation, results, address, number)
    result, example = results[evaluation], str(rows[evaluation]["id"][0])
    same = {index: row for index, row in rows.items() if index in results and row.get("id") == [example]}
    files = store.artifacts.of(job.id)
    kept = _kept(settings.file_store, files, result.protocol == "pixel", evaluation, number, example)
    outcomes = _outcomes(same, results, evaluation_labels(stored), kept.names)
    steps = read_steps(settings.file_store, saved_file(files, evaluation, number, "trace"), example)
    seen = seen_codes(steps)
    label = same[evaluation].get("label", [None])[0]
    path = f"/jobs/{job.id}/examples/{evaluation}"
    cells = {name: [one.cells.get(name) for one in outcomes] for one in outcomes for name in one.cells}
    columns = shown_columns(cells)
    folded = folded_columns(cells, columns, load().norm_of(result.name, result.params))
    values = {
        "title": f"Example {example}, number {number}",
        "section": "/jobs",
        "job": job_view(store, job),
        "index": evaluation,
        "result": result,
        "params": chosen_params(result.name, row_params(result)),
        "example": example,
        "number": number,
        "place": place,
        "back": address.changed(path),
        "own": next(one for one in outcomes if one.index == evaluation),
        "outcomes": outcomes,
        "label": class_text(label, kept.names) if type(label) is int else label,
        "columns": columns if address.all else [name for name in columns if name not in folded],
        "folded": [TITLES.get(name, name) for name in columns if name in folded],
        "unfolded": address.changed(f"{path}/{number}", all="" if address.all else "yes"),
        "all": bool(address.all),
        "titles": TITLES,
        "smallest": SMALLEST,
        "link": f"{str(request.base_url).rstrip('/')}{path}/{number}",
        "previous": None if before is None else address.changed(f"{path}/{before}"),
        "following": None if after is None else address.changed(f"{path}/{after}"),
        "kept": kept,
        "attacked": "queries" in same[evaluation],
        "saves": bool(job.spec.get("save_adversarial")),
        "max_words": MAX_WORDS,
        "steps": steps,
        "max_steps": MAX_STEPS,
        "plot_size": SIZE,
        "explained": [(one, one.code in seen) for one in result.warnings if one.code in EXPLAINED],
        "traces": job.spec.get("save_traces"),
    }
    return render(request, "example.html", values)


@router.get("/jobs/{job_id}/examples/{evaluation}/{number}/trace.svg")
def show_trace(
    job: JobDep, evaluation: int, number: int, request: Request, store: StoreDep, settings: SettingsDep,
    scheme: Scheme = "light", narrow: Narrow = False,
) -> Response:  # fmt: skip
    """The steps of the evaluation's attack on the example, as a plot."""
    rows = _found(store, job, evaluation, number, store.results.of(job.id))[1]
    example = str(rows[evaluation]["id"][0])
    file = saved_file(store.artifacts.of(job.id), evaluation, number, "trace")
    steps = read_steps(settings.file_store, file, example)
    if not steps:
        raise NotFound(f"no steps of evaluation {evaluation} on example {number} were kept")
    spec, name = trace(steps, example), f"assay-{job.id}-trace"
    return plot_answer(request, settings, spec, "svg", scheme, name, narrow=narrow)


def _found(
    store: TenantStore, job: JobRow, evaluation: int, number: int, stored: Mapping[int, dict[str, Any]]
) -> tuple[dict[int, EvaluationResult], dict[int, Columns]]:
    """All results, and of each evaluation the row of an example."""
    results = {index: read_result(result) for index, result in stored.items()}
    this = f"evaluation {evaluation} of job {job.id}"
    if evaluation not in results:
        raise NotFound(f"{this} has no results")
    count = example_count(job, evaluation, results)
    if not 0 <= number < count:
        raise NotFound(f"{this} has no example {number}; allowed: 0 to {count - 1}")
    found = store.results.example(job.id, number, evaluation)
    rows: dict[int, Columns] = {
        index: joined_columns([row], results.get(index)) for index, row in found.items()
    }
    if not rows.get(evaluation, {}).get("id"):
        raise NotFound(f"{this} has no outcomes of examples")
    return results, rows


def _kept(
    kept: FileStore, files: Sequence[ArtifactRow], drawn: bool, evaluation: int, number: int, example: str
) -> KeptPictures:
    """What is kept to look at, of the evaluation's gallery, else of its saved examples."""
    found: dict[int, Gallery] = {}
    for file in sorted(gallery_files(files), key=lambda file: file.index != evaluation)[:MAX_GALLERIES]:
        with suppress(*UNREADABLE):
            found[file.index] = read_gallery(kept, file)
    names = {one.index: one.name for gallery in reversed(found.values()) for one in gallery.classes}
    having = [index for index, gallery in found.items() if any(one.id == example for one in gallery.items)]
    if evaluation in having:
        gallery = found[evaluation]
        items = [one for one in shown_items(gallery, width=LARGE_WIDTH) if one.item.id == example]
        legend = [one for one in gallery.classes if one.colour is not None]
        return KeptPictures(names, having, kind=gallery.kind, items=items, legend=legend)
    row = saved_file(files, evaluation, number)
    saved = None if row is None else read_saved(kept, row, example, drawn=drawn)
    return KeptPictures(names, having, saved=saved)


def _outcomes(
    rows: Mapping[int, Columns], results: dict[int, EvaluationResult], labels: Mapping[int, str],
    names: dict[int | None, str],
) -> list[ExampleOutcome]:  # fmt: skip
    found, grid = [], dict[int, float]()
    for index, row in sorted(rows.items()):
        cells = {name: row[name][0] for name in shown_columns(row) if name not in SAME}
        if type(cells.get("prediction")) is int:
            cells["prediction"] = class_text(cells["prediction"], names)
        if index not in grid:
            grid = grid_of(index, results)
        judged = [(grid[one], rows[one]) for one in grid if one in rows and "correct" in rows[one]]
        if judged:
            cells[SMALLEST] = smallest_epsilons(row["id"], judged)[0]
        found.append(ExampleOutcome(index, labels[index], outcome_of(row, 0), cells))
    return found
