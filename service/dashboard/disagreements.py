"""Examples on which jobs disagree: one job has them right, another job wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.service.contract.errors import InvalidSpec, NotFound
from assay.service.contract.gallery import GalleryImage
from assay.service.contract.results import EvaluationResult
from assay.service.dashboard.choices import refused
from assay.service.galleries.pages import gallery_of
from assay.service.metrics.compare.comparison import positions
from assay.service.metrics.paired import Rows
from assay.service.settings import Settings
from assay.service.store.rows import columns_of
from assay.service.store.tenants import TenantStore

MAX_SHOWN = 100
MAX_ROWS = 2_000_000  # Rows of an evaluation in all jobs together.


@dataclass(frozen=True)
class JobAnswer:
    """What a job says of an example; `prediction` is None where it is not known."""

    correct: bool
    prediction: Any
    picture: str | None = None  # address of the changed example, where a gallery kept it


@dataclass(frozen=True)
class Disagreement:
    """An example with the answer of each job, None for a job without it."""

    example: str
    label: Any
    answers: list[JobAnswer | None]


@dataclass(frozen=True)
class Disagreements:
    """Examples of an evaluation on which jobs disagree."""

    shown: list[Disagreement]  # the first of them by id, with pictures before others
    count: int  # of all of them
    common: int  # examples that all jobs with the evaluation have
    has_answers: bool  # whether the evaluation has right and wrong answers at all
    # Path of each job's examples of the evaluation; None where there are no pictures.
    galleries: list[str | None]


def disagreements(
    store: TenantStore,
    settings: Settings,
    jobs: Mapping[str, Mapping[int, EvaluationResult]],
    evaluation: int,
) -> Disagreements:
    """The examples of an evaluation of the baseline, the first job, on which the jobs disagree.

    Raises InvalidSpec: the jobs have too many examples to be looked at in a page.
    """
    places = _places(jobs, evaluation)
    count = sum(
        max((metric.n for metric in jobs[job][place].metrics.values()), default=0)
        for job, place in places.items()
        if place is not None
    )
    if count > MAX_ROWS:
        raise _too_many(evaluation, count)
    rows: dict[str, Rows] = {
        job: {} if place is None else columns_of(store.results.outcomes(job, place))
        for job, place in places.items()
    }
    pictures = {job: _pictures(store, settings, job, place) for job, place in places.items()}
    answering = {
        job: _answers(columns, pictures[job]) for job, columns in rows.items() if columns.get("correct")
    }
    galleries = [f"/jobs/{job}/gallery/{places[job]}" if found else None for job, found in pictures.items()]
    if len(answering) < 2:
        return Disagreements([], 0, 0, bool(answering), galleries)
    common = sorted(set.intersection(*(set(answers) for answers in answering.values())))
    apart = [one for one in common if len({answers[one].correct for answers in answering.values()}) > 1]
    apart.sort(key=lambda one: all(one not in found for found in pictures.values()))
    labels = _labels(rows)
    shown = [
        Disagreement(one, labels.get(one), [answering.get(job, {}).get(one) for job in jobs])
        for one in apart[:MAX_SHOWN]
    ]
    return Disagreements(shown, len(apart), len(common), True, galleries)


def _places(jobs: Mapping[str, Mapping[int, EvaluationResult]], evaluation: int) -> dict[str, int | None]:
    baseline = next(iter(jobs.values()))
    key = next(iter(positions({evaluation: baseline[evaluation]})))
    return {job: positions(results).get(key) for job, results in jobs.items()}


def _answers(columns: Rows, pictures: Mapping[str, str]) -> dict[str, JobAnswer]:
    predictions: Sequence[Any] = columns.get("prediction") or [None] * len(columns["id"])
    return {
        str(example): JobAnswer(bool(correct), prediction, pictures.get(str(example)))
        for example, correct, prediction in zip(columns["id"], columns["correct"], predictions, strict=True)
    }


def _labels(rows: Mapping[str, Rows]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for columns in rows.values():
        if columns.get("label"):
            found |= dict(zip(map(str, columns["id"]), columns["label"], strict=True))
    return found


def _pictures(store: TenantStore, settings: Settings, job_id: str, evaluation: int | None) -> dict[str, str]:
    if evaluation is None:
        return {}
    try:
        items = gallery_of(store, settings, store.jobs.get(job_id), evaluation).items
    except NotFound:
        return {}
    name = "changed.png" if items and isinstance(items[0], GalleryImage) else ""
    return {
        item.id: name and f"/jobs/{job_id}/gallery/{evaluation}/{number}/{name}"
        for number, item in enumerate(items)
    }


def _too_many(evaluation: int, count: int) -> InvalidSpec:
    message = (
        f"the jobs have {count} examples of this evaluation together; a page looks at {MAX_ROWS} at most"
    )
    return refused("evaluation", message, evaluation, "an evaluation of fewer examples, or fewer jobs")
