"""Pages of studies, and the forms that cancel, retry, extend and delete a study."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from typing import Any

from fastapi import Request
from starlette.responses import Response

from assay.service.api.deps import Cursor, DispatcherDep, LiveDep, SettingsDep, StoreDep
from assay.service.contract.errors import AssayError, ErrorDetail, InvalidSpec, NoResults
from assay.service.contract.states import RETRYABLE, TERMINAL
from assay.service.contract.warning_codes import SEVERITIES, SEVERITY, Severity
from assay.service.dashboard.comparison_view import ADJUSTED, LEVEL, p_text, verdict
from assay.service.dashboard.forms import FormDep, see
from assay.service.dashboard.frame import made_once, render
from assay.service.dashboard.live import MAX_JOBS
from assay.service.dashboard.pending import Pending
from assay.service.plots.routes import FORMATS, FormatName, Narrow, Scheme, plot_answer
from assay.service.reports.numbers import difference_bounds, number
from assay.service.store.tenants import TenantStore
from assay.service.studies import routes as api
from assay.service.studies.curve import study_curve
from assay.service.studies.designs.pages import router
from assay.service.studies.kept.kept_results import kept_results_of
from assay.service.studies.result_wire import ArmValue, StudyCell, StudyComparison, StudyResults
from assay.service.studies.routes import StudyDep
from assay.service.studies.rows import REOPENED, StudyRow
from assay.service.studies.store import Studies
from assay.service.studies.text import TESTS, headline, label, lines

NAVIGATION, BEFORE = ("/studies", "Studies"), "/submit"

PER_PAGE = 25
MAX_CELLS = 150
MAX_KEPT_CELLS = 5_000
FRESH_SECONDS = 10.0  # Results of a study that has not ended are computed again after so long.


class StudyTables:
    """Results of the latest studies, until one of their jobs changes; bounded by their cells."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[object, float, StudyResults]] = OrderedDict()
        self._pending: Pending[StudyResults] = Pending()

    def of(self, store: TenantStore, study: StudyRow) -> StudyResults | None:
        """The results of a study that the caller sees; None while they are made."""
        states = sorted((job_id, str(state)) for job_id, state in study.states.items())
        if study.extension is not None:
            states.append((study.extension.state, str(len(study.extension.looks))))
        with self._lock:
            before, at, known = self._known.get(study.id, (None, 0.0, None))
        # Evaluations of running jobs end one after another.
        fresh = not _open_jobs(study) or time.monotonic() - at < FRESH_SECONDS
        if known is not None and before == states and fresh:
            return known
        found = self._pending.of((study.id, *states), lambda: kept_results_of(store, study))
        if found is None:
            return None
        with self._lock:
            self._known[study.id] = (states, time.monotonic(), found)
            self._known.move_to_end(study.id)
            while sum(len(one.cells) for _, _, one in self._known.values()) > MAX_KEPT_CELLS:
                self._known.popitem(last=False)
        return found


@router.get("/studies")
def list_studies(request: Request, store: StoreDep, cursor: Cursor | None = None) -> Response:
    """Studies, newest first, with their progress."""
    rows, following = store.features.of(Studies).page(limit=PER_PAGE, cursor=cursor)
    values = {
        "title": "Studies",
        "section": "/studies",
        "studies": [api.study_view(row) for row in rows],
        "open": [job for row in rows for job in _open_jobs(row)][:MAX_JOBS],
        "following": f"/studies?cursor={following}" if following else None,
    }
    return render(request, "studies.html", values)


@router.get("/studies/{study_id}")
def show(request: Request, study: StudyDep, store: StoreDep) -> Response:
    """A study: its table, its runs, and what can be done with it."""
    return _page(request, study, store)


def _page(
    request: Request, study: StudyRow, store: TenantStore, *, typed: str = "", error: AssayError | None = None
) -> Response:
    """The study, `error` beside the form of more seeds with the text that was typed."""
    tables = made_once(request.app, StudyTables)
    view = api.study_view(study)
    results, pending = None, False
    try:
        results = tables.of(store, study)
        pending = results is None
    except NoResults:
        pass
    values = {
        "title": view.name or view.id,
        "section": "/studies",
        "study": view,
        "results": results,
        "pending": pending,
        "headline": "" if results is None else headline(results),
        "curve": None if results is None else study_curve(results),
        "formats": FORMATS,
        "protocols": [view.spec["protocol"]]
        if results is None
        else [*dict.fromkeys(cell.protocol for cell in results.cells)],
        "open": _open_jobs(study)[:MAX_JOBS],
        "tables": [] if results is None else _tables(results),
        "lines": [] if results is None else lines(results, warned=False),
        "run_warnings": [] if results is None else _run_warnings(results),
        "adjusted": ADJUSTED,
        "level": LEVEL,
        "p_text": p_text,
        "max_cells": MAX_CELLS,
        "more_seeds": typed or " ".join(map(str, range(max(view.seeds) + 1, max(view.seeds) + 4))),
        "error": error,
        "details": [(detail, "") for detail in error.details] if error is not None else [],
        "actions": _actions(study, ended=view.state in TERMINAL),
    }
    return render(request, "study.html", values, status=200 if error is None else error.status)


@router.get("/studies/{study_id}/curve")
def interactive_curve(request: Request, study: StudyDep, store: StoreDep) -> Response:
    """The curve of a study with tooltips; without JavaScript the picture."""
    spec = _curve(request, study, store)
    values = {
        "title": spec["title"]["text"],
        "section": "/studies",
        "description": spec["description"],
        "files": {form: f"/studies/{study.id}/curve.{form}?" for form in FORMATS},
        "rows": [(f"/studies/{study.id}", study.name.strip() or study.id)],
        "back": f"/studies/{study.id}",
    }
    return render(request, "plot.html", values)


@router.get("/studies/{study_id}/curve.{format}")
def curve(
    request: Request,
    study: StudyDep,
    store: StoreDep,
    settings: SettingsDep,
    format: FormatName,  # noqa: A002 (the address's name)
    scheme: Scheme = "light",
    narrow: Narrow = False,
) -> Response:
    """The curve of a study as a file."""
    spec = _curve(request, study, store)
    return plot_answer(request, settings, spec, format, scheme, f"assay-{study.id}-curve", narrow=narrow)


def _curve(request: Request, study: StudyRow, store: TenantStore) -> dict[str, Any]:
    results = made_once(request.app, StudyTables).of(store, study)  # The page has made them
    spec = None if results is None else study_curve(results)
    if spec is None:
        raise NoResults(f"study {study.id} has no curve: it needs an attack with an epsilon")
    return spec


def _open_jobs(study: StudyRow) -> list[str]:
    ended = {*TERMINAL, "deleted"}
    return [job_id for job_id, state in study.states.items() if state not in ended]


def _actions(study: StudyRow, *, ended: bool) -> dict[str, bool]:
    states = set(study.states.values())
    stopped = study.extension is not None and study.extension.state in REOPENED
    return {"cancel": not ended, "retry": stopped or bool(states & RETRYABLE), "delete": ended}


def _tables(results: StudyResults) -> list[dict[str, Any]]:
    tested = [cell for cell in results.cells if cell.tested]
    others = [cell for cell in results.cells if not cell.tested]
    parts = [("Tested metrics", tested), ("Other metrics, without p", others)]
    return [
        {"title": title, "cells": [_row(cell) for cell in cells[:MAX_CELLS]], "count": len(cells)}
        for title, cells in parts
        if cells
    ]


def _run_warnings(results: StudyResults) -> list[tuple[Severity, str, str, str]]:
    """Severity, code, message of the first run, and evaluations, the gravest first."""
    places: dict[str, list[str]] = {}
    for cell in results.cells:
        for code, count in cell.warnings.items():
            place = f"{label(cell)} (runs: {count})"
            if place not in places.setdefault(code, []):
                places[code].append(place)
    found = [
        (SEVERITY.get(code, "caution"), code, results.warning_messages.get(code, ""), ", ".join(where))
        for code, where in places.items()
    ]
    return sorted(found, key=lambda one: SEVERITIES.index(one[0]))


def _row(cell: StudyCell) -> dict[str, Any]:
    compared = [_difference(one, cell) for one in cell.comparisons]
    verdicts = {one["arm"]: one["verdict"] for one in compared}
    return {
        "name": label(cell),
        "metric": cell.metric,
        "better": "higher" if cell.higher_is_better else "lower",
        "arms": [_value(arm, cell, verdicts.get(arm.arm, "")) for arm in cell.arms],
        "comparisons": compared,
        "warnings": cell.warnings,
    }


def _value(arm: ArmValue, cell: StudyCell, found: str) -> dict[str, Any]:
    known = sum(one.value is not None for one in arm.seeds)
    spread = number(arm.sd, cell.unit) if arm.sd is not None else None
    return {"mean": number(arm.mean, cell.unit), "sd": spread, "seeds": known, "verdict": found}


def _difference(found: StudyComparison, cell: StudyCell) -> dict[str, Any]:
    test, bounds = found.test, difference_bounds(found.ci_low, found.ci_high, cell.unit)
    adjusted = None if test is None or found.compares != "methods" else test.adjusted_p_value
    return {
        "arm": found.arm,
        "difference": number(found.difference, cell.unit, sign=True),
        "interval": "-" if found.ci_low is None else bounds,
        "p": "-" if test is None else p_text(test.p_value),
        "adjusted": "-" if test is None else p_text(test.adjusted_p_value),
        "test": "" if test is None else TESTS[test.name],
        "verdict": verdict(found.difference, adjusted, higher_is_better=cell.higher_is_better),
        "compares": found.compares,
        "note": found.note,
        "primary": found.primary,
        "power": None if found.power is None else found.power.text,
    }


@router.post("/studies/{study_id}/cancel")
def cancel(
    form: FormDep, study: StudyDep, store: StoreDep, live: LiveDep, dispatcher: DispatcherDep
) -> Response:
    """Cancels its jobs, and shows it."""
    del form
    api.cancel_study(study, store, live, dispatcher)
    return see(f"/studies/{study.id}")


@router.post("/studies/{study_id}/retry")
def retry(form: FormDep, study: StudyDep, store: StoreDep, dispatcher: DispatcherDep) -> Response:
    """Queues its failed and canceled jobs again, and shows it."""
    del form
    api.retry_study(study, store, dispatcher)
    return see(f"/studies/{study.id}")


@router.post("/studies/{study_id}/seeds")
def extend(
    request: Request, form: FormDep, study: StudyDep, store: StoreDep, dispatcher: DispatcherDep
) -> Response:
    """Queues the jobs of more seeds, and shows the study; with what is wrong with the seeds, if they are."""
    typed = form.get("seeds", "")
    try:
        seeds = _seeds(typed)
        if {*seeds} <= {*study.spec["seeds"]}:
            message, allowed = "the study has these seeds", "seeds that it has not"
            detail = ErrorDetail(loc=["seeds"], message=message, given=seeds, allowed=allowed)
            raise InvalidSpec(message, [detail])
        api.extend_study(study, {"seeds": seeds}, store, dispatcher)
    except AssayError as error:
        if error.status >= 500:
            raise
        return _page(request, study, store, typed=typed, error=error)
    return see(f"/studies/{study.id}")


@router.post("/studies/{study_id}/delete")
def delete(form: FormDep, study: StudyDep, store: StoreDep, settings: SettingsDep) -> Response:
    """Deletes the study with its jobs, and shows the others."""
    del form
    api.delete_study(study, store, settings)
    return see("/studies")


def _seeds(text: str) -> list[int]:
    words = [word for word in re.split(r"[\s,]+", text) if word]
    wrong = [word for word in words if not re.fullmatch(r"[0-9]{1,18}", word)]
    if wrong or not words:
        message = "the seeds are whole numbers below 10^18, separated by spaces or commas"
        detail = ErrorDetail(loc=["seeds"], message=message, given=text[:200], allowed="such as 3 4 5")
        raise InvalidSpec(message, [detail])
    return [int(word) for word in words]
