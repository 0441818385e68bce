"""Page that compares jobs, and the form that chooses them. The address holds the whole choice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from assay.service.api import compare as api
from assay.service.api.deps import CatalogDep, SettingsDep, StoreDep, StrictRoute, find_job
from assay.service.api.outcome_tables import read_result
from assay.service.api.results import finished_results
from assay.service.api.views import JobViews
from assay.service.catalog.catalog import Catalog
from assay.service.contract.states import JobState
from assay.service.dashboard.choices import MIN_JOBS, Filter, PageNumber, miscounted, refused
from assay.service.dashboard.comparison_view import (
    ADJUSTED,
    LEVEL,
    answers,
    compared_metrics,
    differing,
    distinct,
    letters_of,
    names_of_tests,
    own_warnings,
)
from assay.service.dashboard.disagreements import MAX_SHOWN, disagreements
from assay.service.dashboard.forms import see
from assay.service.dashboard.frame import made_once, render
from assay.service.dashboard.pending import Pending
from assay.service.metrics.compare.comparison import Comparison
from assay.service.metrics.statistics.multiple_tests import Adjustment
from assay.service.plots.kinds import KINDS, LabelledResults
from assay.service.plots.sizes import Size, usual_size
from assay.service.reports.numbers import row_params, split_params
from assay.service.store.rows import JobRow
from assay.service.store.tenants import TenantStore

router = APIRouter(route_class=StrictRoute, include_in_schema=False)

PICKED_JOBS = 30
ROWS_PER_PAGE = 100
MAX_KEPT_ROWS = 20_000
MAX_DIFFERING = 60
# Plots that say more of several jobs together.
PLOTS = ("curve", "stages", "tradeoff", "cost")
JobList = Annotated[str, Query(max_length=2000)]


@dataclass(frozen=True)
class Compared:
    """What a page shows of jobs."""

    comparison: Comparison  # with the first job
    answers: list[tuple[str, str, str]]  # letter, verdict and numbers of each other job
    evaluations: list[tuple[int, str]]  # position and text of each evaluation of the first job
    plots: list[tuple[str, str, str, Size]]  # kind, title, description, size of plots that overlay the jobs


class Comparisons:
    """The latest comparisons of jobs that have ended, which do not change; bounded by their rows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, ...], Compared] = OrderedDict()
        self._pending: Pending[Compared] = Pending()

    def of(
        self, store: TenantStore, catalog: Catalog, rows: Sequence[JobRow], adjust: Adjustment
    ) -> Compared | None:
        """The comparison with the first job, or None while it is made; the caller sees all of the jobs."""
        ids = [row.id for row in rows]
        key = (adjust, *ids)
        ended = all(row.state is JobState.SUCCEEDED for row in rows)
        with self._lock:
            if ended and key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        made = self._pending.of(key, lambda: _compare(store, catalog, rows, adjust))
        if made is not None and ended:
            with self._lock:
                self._known[key] = made
                while sum(len(one.comparison.rows) for one in self._known.values()) > MAX_KEPT_ROWS:
                    self._known.popitem(last=False)
        return made


def _compare(store: TenantStore, catalog: Catalog, rows: Sequence[JobRow], adjust: Adjustment) -> Compared:
    comparison = api.compare_jobs(",".join(row.id for row in rows), store, catalog, adjust, "json")
    assert isinstance(comparison, Comparison)
    first = store.results.of_jobs([rows[0].id], read_result).get(rows[0].id, {})
    texts, _ = split_params([(one.name, row_params(one)) for one in first.values()])
    evaluations = [
        (position, f"{one.name} {text}".strip())
        for (position, one), text in zip(first.items(), texts, strict=True)
    ]
    labelled = [LabelledResults(row.name or row.id, finished_results(store, row, catalog)) for row in rows]
    specs = {kind: KINDS[kind](labelled) for kind in PLOTS}
    plots = [
        (kind, KINDS[kind].title, spec["description"], usual_size(spec))
        for kind, spec in specs.items()
        if spec is not None
    ]
    told = answers(comparison, labelled[0].results)
    return Compared(comparison, told, evaluations, plots)


@router.get("/compare")
def compare(
    request: Request,
    store: StoreDep,
    catalog: CatalogDep,
    settings: SettingsDep,
    jobs: JobList = "",
    adjust: Adjustment = "holm",
    baseline: Filter = "",
    evaluation: Annotated[int | None, Query(ge=0, le=100_000)] = None,
    metrics: Literal["main", "all"] = "main",
    page: PageNumber = 1,
    choose: Literal["yes"] | None = None,
    search: Filter = "",
    do: Literal["search", "compare"] | None = None,
    job: Annotated[list[str] | None, Query(max_length=200)] = None,
) -> Response:
    """Two to ten jobs side by side; without so many, the form that chooses them."""
    if job or do:
        chosen = list(dict.fromkeys(job or []))
        if len(chosen) <= api.MAX_JOBS or do == "search":
            return _canonical(chosen, search if do == "search" else None)
        rows = [find_job(store, one) for one in chosen]
        return _picker(request, store, rows, search.strip(), miscounted(len(rows)))
    ids = list(dict.fromkeys(filter(None, (one.strip() for one in jobs.split(",")))))
    _check_count(ids, jobs)
    rows = [find_job(store, one) for one in ids]
    if choose or len(rows) < MIN_JOBS:
        return _picker(request, store, rows, search.strip())
    if baseline and baseline not in ids:
        raise refused("baseline", f"{baseline[:50]!r} is none of the compared jobs", baseline, ids)
    rows.sort(key=lambda row: row.id != baseline)
    choice = {"jobs": ",".join(ids), "adjust": adjust, "baseline": rows[0].id, "metrics": metrics}
    comparisons = made_once(request.app, Comparisons)
    compared = comparisons.of(store, catalog, rows, adjust)
    if compared is None:
        waiting = {
            "title": "Comparison",
            "section": "/compare",
            "address": _address(choice),
            "count": len(rows),
        }
        return render(request, "compare_pending.html", waiting)
    values = {
        "title": "Comparison",
        "section": "/compare",
        "jobs": list(
            zip(letters_of(compared.comparison.jobs).values(), JobViews(store, rows).all(), strict=True)
        ),
        "choice": choice,
        "differing": differing([row.spec for row in rows])[:MAX_DIFFERING],
        "plots": compared.plots,
        "answers": compared.answers,
        **_table(compared.comparison, choice, page),
        **_examples(store, settings, compared, evaluation),
    }
    return render(request, "compare.html", values)


def _check_count(ids: Sequence[str], given: str) -> None:
    if len(ids) > api.MAX_JOBS:
        message = f"{len(ids)} jobs are given; a comparison has {MIN_JOBS} to {api.MAX_JOBS}"
        raise refused("jobs", message, given, f"{MIN_JOBS} to {api.MAX_JOBS} job ids, separated by commas")


def _canonical(ids: Sequence[str], search: str | None) -> Response:
    choice = {"jobs": ",".join(ids)}
    if search is not None:
        choice |= {"choose": "yes", "search": search.strip()}
    return see(f"/compare?{urlencode({name: value for name, value in choice.items() if value}, safe=',')}")


def _picker(
    request: Request, store: TenantStore, chosen: Sequence[JobRow], search: str, said: str = ""
) -> Response:
    found, following = store.jobs.page(
        state=JobState.SUCCEEDED.value, search=search or None, limit=PICKED_JOBS
    )
    ids = {row.id for row in chosen}
    others = [row for row in found if row.id not in ids]
    values = {
        "title": "Compare jobs",
        "section": "/compare",
        "chosen": JobViews(store, chosen).all(),
        "others": JobViews(store, others).all(),
        "more": following is not None,
        "search": search,
        "max_jobs": api.MAX_JOBS,
        "said": said,
    }
    return render(request, "compare_picker.html", values, status=422 if said else 200)


def _table(comparison: Comparison, choice: dict[str, Any], page: int) -> dict[str, Any]:
    table, shared = compared_metrics(comparison, every=choice["metrics"] == "all")
    start = (page - 1) * ROWS_PER_PAGE
    shown = table[start : start + ROWS_PER_PAGE]
    return {
        "comparison": comparison,
        "letters": letters_of(comparison.jobs),
        "ids": ",".join(comparison.jobs),
        "warnings": distinct(comparison.warnings),
        "own_warnings": own_warnings(comparison),
        "table": shown,
        "shared": shared,
        "count": len(table),
        "following": _address(choice, page=page + 1) if start + ROWS_PER_PAGE < len(table) else None,
        "tests": names_of_tests(shown),
        "adjusted": ADJUSTED,
        "level": LEVEL,
    }


def _address(choice: dict[str, Any], **more: object) -> str:
    return f"/compare?{urlencode({**choice, **more}, safe=',')}"


def _examples(
    store: TenantStore, settings: SettingsDep, compared: Compared, evaluation: int | None
) -> dict[str, Any]:
    found = None
    if evaluation is not None:
        known = [str(position) for position, _ in compared.evaluations]
        if str(evaluation) not in known:
            message = f"the baseline has no results of an evaluation {evaluation}"
            raise refused("evaluation", message, evaluation, known)
        jobs = store.results.of_jobs(compared.comparison.jobs, read_result)
        found = disagreements(store, settings, jobs, evaluation)
    return {
        "evaluations": compared.evaluations,
        "evaluation": evaluation,
        "disagreements": found,
        "max_shown": MAX_SHOWN,
    }
