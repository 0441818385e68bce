"""Page that ranks finished evaluations, for each data set, protocol and threat model."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from assay.service.api.deps import CatalogDep, StoreDep, StrictRoute
from assay.service.api.outcome_tables import read_result
from assay.service.api.results import contradicted, finished_results
from assay.service.catalog.catalog import Catalog
from assay.service.contract.errors import NoResults, NotFound
from assay.service.contract.records import PlannedEvaluation
from assay.service.contract.stored_specs import Spec, user_spec
from assay.service.dashboard.choices import Filter, check_choices, refused
from assay.service.dashboard.frame import made_once, render
from assay.service.leaderboard.entries import (
    LeaderboardEntry,
    LeaderboardGroup,
    MeasuredJob,
    leaderboard_entries,
)
from assay.service.leaderboard.methods import RankedMethod, method_of, ranked_methods
from assay.service.leaderboard.store import MAX_JOBS, FinishedJobRow, Leaderboards
from assay.service.lru_cache import LruCache
from assay.service.metrics.arithmetic import arithmetic_settings
from assay.service.plots.kinds import KINDS, LabelledResults
from assay.service.reports.numbers import split_params
from assay.service.store.tenants import TenantStore

logger = logging.getLogger(__name__)
router = APIRouter(route_class=StrictRoute, include_in_schema=False)
NAVIGATION, BEFORE = ("/leaderboard", "Leaderboard"), "/catalog"

READ_NOW = 40
PAUSE_SECONDS = 0.02  # Between the pieces of the thread that reads the others: pages are served meanwhile.
MAX_KEPT_JOBS = 3 * MAX_JOBS
MAX_ROWS = 200
# Trainings that go on from the weights of another training.
MAX_CHAIN = 5
PLOTS = ("tradeoff", "cost")
MAX_PLOTTED = 8  # As many as there are colours.
MIN_PLOTTED = 2
MAX_KNOWN_PLOTS = 1000
# By the jobs, which have ended and do not change.
_plots: LruCache[tuple[str, ...], list[tuple[str, str]]] = LruCache(MAX_KNOWN_PLOTS)
Yes = Literal["", "yes"]


class LeaderboardCache:
    """Entries of the finished jobs that were asked for last; finished jobs do not change.

    A page waits for `READ_NOW` jobs at most: a thread reads the others.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, list[LeaderboardEntry]] = OrderedDict()
        self._reader: threading.Thread | None = None

    def of(
        self, store: TenantStore, catalog: Catalog, job_ids: Sequence[str]
    ) -> tuple[list[LeaderboardEntry], int]:
        """The entries of jobs that the caller sees, and the number of jobs that are not read yet."""
        with self._lock:
            missing = [job_id for job_id in job_ids if job_id not in self._known]
        self._read(store, catalog, missing[:READ_NOW])
        if later := missing[READ_NOW:]:
            self._start(store, catalog, later)
        with self._lock:
            known = [job_id for job_id in job_ids if job_id in self._known]
            for job_id in known:
                self._known.move_to_end(job_id)
            return [entry for job_id in known for entry in self._known[job_id]], len(job_ids) - len(known)

    def wait(self) -> None:
        """Returns when the thread has read its jobs."""
        if (reader := self._reader) is not None:
            reader.join()

    def _start(self, store: TenantStore, catalog: Catalog, job_ids: Sequence[str]) -> None:
        with self._lock:
            if self._reader is None or not self._reader.is_alive():
                self._reader = threading.Thread(
                    target=self._read_all, args=(store, catalog, job_ids), daemon=True
                )
                self._reader.start()

    def _read_all(self, store: TenantStore, catalog: Catalog, job_ids: Sequence[str]) -> None:
        try:
            for start in range(0, len(job_ids), READ_NOW):
                self._read(store, catalog, job_ids[start : start + READ_NOW])
                time.sleep(PAUSE_SECONDS)
        except Exception:
            # The next page tries again, and tells what is wrong.
            logger.exception("the leaderboard's jobs could not be read")

    def _read(self, store: TenantStore, catalog: Catalog, job_ids: Sequence[str]) -> None:
        rows = {row.id: row for row in store.features.of(Leaderboards).read(job_ids)} if job_ids else {}
        trainings = _trainings(store, [row.spec for row in rows.values()])
        found = {job_id: _entries(rows.get(job_id), store, catalog, trainings) for job_id in job_ids}
        with self._lock:
            self._known |= found
            while len(self._known) > MAX_KEPT_JOBS:
                self._known.popitem(last=False)


def _trainings(store: TenantStore, specs: Iterable[Spec]) -> dict[str, Spec]:
    """Specs of the trainings that the jobs take weights from, and of the trainings that these go on from."""
    found: dict[str, Spec] = {}
    for _ in range(MAX_CHAIN):
        sources = {(user_spec(spec)["model"]["weights"] or {}).get("job", "") for spec in specs}
        missing = sources - found.keys() - {""}
        if not missing:
            break
        read = store.features.of(Leaderboards).specs(missing)
        found |= read
        specs = read.values()
    return found


def _entries(
    row: FinishedJobRow | None, store: TenantStore, catalog: Catalog, trainings: Mapping[str, Spec]
) -> list[LeaderboardEntry]:
    if row is None:
        return []
    planned = row.plan or row.provenance
    provenance: Mapping[str, Any] = row.provenance or {}
    evaluations: Sequence[PlannedEvaluation] = row.plan["evaluations"] if row.plan else ()
    measured = {position: read_result(result) for position, result in row.results.items()}
    with suppress(NotFound):  # deleted since it was read
        measured = contradicted(store, row.id, measured, catalog)
    spec = user_spec(row.spec)
    job = MeasuredJob(
        job=row.id,
        name=row.spec["name"],
        model=row.spec["model"]["name"],
        seed=row.spec["seed"],
        weights_sha256=provenance.get("weights_sha256"),
        data_sha256={} if planned is None else planned.get("data_sha256", {}),
        available={position: one.get("available", 0) for position, one in enumerate(evaluations)},
        evaluations=measured,
        parameters=row.plan.get("parameters") if row.plan else None,
        method=method_of(row.id, spec, provenance.get("weights_sha256"), trainings),
        dtype=arithmetic_settings(spec["execution"], provenance, [])["dtype"],
    )
    return leaderboard_entries(job, catalog.threat_of, catalog.radius_unit)


@dataclass(frozen=True)
class Board:
    """A group with its ranked methods."""

    group: LeaderboardGroup
    shown: list[tuple[RankedMethod, str]]  # The first methods, with the parameters that tell them apart.
    count: int  # of the jobs of all of them
    plotted: list[str]  # ids of the jobs in its plots, one for each method; empty without attack
    plots: list[tuple[str, str]]  # kind and title of each plot that these jobs allow together
    address: str  # of the page with this group alone
    methods: int = 0  # the number of all methods


@router.get("/leaderboard")
def leaderboard(
    request: Request,
    store: StoreDep,
    catalog: CatalogDep,
    data: Filter = "",
    protocol: Filter = "",
    threat: Filter = "",
    model: Filter = "",
    seed: Filter = "",
    parameters: Filter = "",
    examples: Filter = "",
    signed: Yes = "",
    whole: Yes = "",
) -> Response:
    """Jobs by accuracy, jobs on other examples apart."""
    filters = {"data": data, "protocol": protocol, "threat": threat, "model": model, "seed": seed}
    filters |= {"parameters": parameters, "examples": examples, "signed": signed, "whole": whole}
    for name in ("seed", "parameters"):
        if filters[name] and not re.fullmatch(r"[0-9]{1,20}", filters[name]):
            allowed = "a whole number, or nothing"
            raise refused(name, f"the {name} must be {allowed}", filters[name], allowed)
    job_ids, cut = store.features.of(Leaderboards).newest()
    cache = made_once(request.app, LeaderboardCache)
    entries, unread = cache.of(store, catalog, job_ids)
    options = _options(entries)
    named = "data", "protocol", "threat", "model"
    check_choices(**{name: (filters[name], options[name]) for name in named})
    fitting = {group: _fits(group, filters) for group in {entry.group for entry in entries}}
    found = [entry for entry in entries if fitting[entry.group] and _matches(entry, filters)]
    if signed:
        known = store.features.of(Leaderboards).signed({entry.job for entry in found})
        found = [entry for entry in found if entry.job in known]
    groups = _groups(found)
    shown = _plotted(store, catalog, _board(*groups[0], filters)) if groups else None
    radii = [] if shown is None else _radii(shown.group, entries, filters)
    near = [address for _, address, _ in radii]
    values = {
        "title": "Leaderboard",
        "section": "/leaderboard",
        "filters": filters,
        "options": options,
        "board": shown,
        "radii": radii,
        "others": [
            (group, address, len(listed))
            for group, listed in groups
            if group != groups[0][0] and (address := _address(group, filters)) not in near
        ],
        "signed": set()
        if shown is None
        else store.features.of(Leaderboards).signed(
            {job for method, _ in shown.shown for entry in method.weights for job in entry.jobs}
        ),
        "names": {entry.job: _name(entry) for entry in found},
        "cut": MAX_JOBS if cut else None,
        "unread": unread,
        "address": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
    }
    return render(request, "leaderboard.html", values)


def _name(entry: LeaderboardEntry) -> str:
    name, seed = entry.name.strip() or entry.model, f"seed {entry.seed}"
    return name if re.search(rf"{seed}\b", name) else f"{name}, {seed}"


def _options(entries: Iterable[LeaderboardEntry]) -> dict[str, list[str]]:
    listed = list(entries)
    groups = {entry.group for entry in listed}
    return {
        "data": sorted({group.data for group in groups}),
        "protocol": sorted({group.protocol for group in groups}),
        "threat": list(
            dict.fromkeys(one.threat for one in sorted(groups, key=lambda one: (one.norm, one.epsilon)))
        ),
        "model": sorted({entry.model for entry in listed}),
    }


def _fits(group: LeaderboardGroup, filters: Mapping[str, str]) -> bool:
    wanted = {
        "data": group.data,
        "protocol": group.protocol,
        "threat": group.threat,
        "examples": _examples(group),
    }
    if any(filters[name] and filters[name] != value for name, value in wanted.items()):
        return False
    return group.whole or not filters["whole"]


def _matches(entry: LeaderboardEntry, filters: Mapping[str, str]) -> bool:
    if filters["parameters"] and (entry.parameters or math.inf) > int(filters["parameters"]):
        return False
    return filters["model"] in ("", entry.model) and filters["seed"] in ("", str(entry.seed))


def _examples(group: LeaderboardGroup) -> str:
    return f"{group.sha256[:12]}-{group.n}"


def _groups(
    entries: Iterable[LeaderboardEntry],
) -> list[tuple[LeaderboardGroup, list[LeaderboardEntry]]]:
    """The entries by group: attacked ones first, the largest first."""
    groups: dict[LeaderboardGroup, list[LeaderboardEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.group, []).append(entry)
    return sorted(groups.items(), key=lambda one: (not one[0].norm, -len(one[1]), one[0]))


def _radii(
    shown: LeaderboardGroup, entries: Iterable[LeaderboardEntry], filters: Mapping[str, str]
) -> list[tuple[str, str, bool]]:
    """Threat and address of the tables on the same examples, and whether the table is shown."""
    groups = {entry.group for entry in entries if _examples(entry.group) == _examples(shown)}
    alike = [one for one in groups if (one.data, one.protocol) == (shown.data, shown.protocol)]
    alike.sort(key=lambda one: (one.norm, one.epsilon))
    return [(one.threat, _address(one, filters), one == shown) for one in alike]


def _board(group: LeaderboardGroup, entries: Sequence[LeaderboardEntry], filters: Mapping[str, str]) -> Board:
    methods = ranked_methods(entries)
    rows = methods[:MAX_ROWS]
    # The plots take an accuracy without attack from the same job.
    clean = {entry.job for entry in entries if group.norm and entry.clean is not None}
    jobs = [[one.job for one in row.weights[: row.seeds] if one.job in clean] for row in rows]
    # The median of several seeds, the lower of two.
    plotted = [found[len(found) // 2] for found in jobs if found][:MAX_PLOTTED]
    firsts = [row.weights[0] for row in rows]
    texts, _ = split_params(
        [(one.model, {**one.method.params, "weights": one.method.recipe}) for one in firsts]
    )
    shown = list(zip(rows, texts, strict=True))
    address = _address(group, filters)
    return Board(group, shown, len(entries), plotted, [], address, len(methods))


def _plotted(store: TenantStore, catalog: Catalog, board: Board) -> Board:
    if len(board.plotted) < MIN_PLOTTED:
        return board

    def make() -> list[tuple[str, str]]:
        rows = [store.jobs.get(job_id) for job_id in board.plotted]
        jobs = [LabelledResults(row.name or row.id, finished_results(store, row, catalog)) for row in rows]
        return [(kind, KINDS[kind].title) for kind in PLOTS if KINDS[kind].build(jobs) is not None]

    try:
        return replace(board, plots=_plots.get_or_make(tuple(board.plotted), make))
    except (NotFound, NoResults):  # deleted since it was read
        return board


def _address(group: LeaderboardGroup, filters: Mapping[str, str]) -> str:
    only_this = {"data": group.data, "protocol": group.protocol, "threat": group.threat}
    choice: dict[str, Any] = {**filters, **only_this, "examples": _examples(group)}
    return f"/leaderboard?{urlencode({name: value for name, value in choice.items() if value})}"
