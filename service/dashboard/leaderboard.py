"""Page that ranks finished evaluations, for each data set, protocol and threat model."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from assay.service.api.deps import CatalogDep, StoreDep, only
from assay.service.api.outcome_tables import read_result
from assay.service.catalog.catalog import Catalog
from assay.service.contract.records import PlannedEvaluation
from assay.service.dashboard.choices import Filter, check_choice
from assay.service.dashboard.frame import render
from assay.service.metrics.leaderboard import (
    LeaderboardEntry,
    LeaderboardGroup,
    MeasuredJob,
    RankedEntry,
    leaderboard_entries,
    ranked,
)
from assay.service.plots.kinds import KINDS
from assay.service.store.leaderboard import MAX_JOBS, FinishedJobRow
from assay.service.store.tenants import TenantStore

router = APIRouter(include_in_schema=False)

READ_AT_ONCE = 100
MAX_KEPT_JOBS = 3 * MAX_JOBS
SHOWN_GROUPS = 8
ROWS_OF_GROUPS = 20
ROWS_OF_ONE = 200
PLOTS = ("tradeoff", "cost")
MAX_PLOTTED = 10
FILTERS = ("data", "protocol", "threat", "model", "seed", "examples", "signed", "whole")
Yes = Literal["", "yes"]
SeedText = Annotated[str, Query(max_length=20, pattern=r"^[0-9]*$")]


class LeaderboardCache:
    """Entries of finished jobs, which do not change; of the jobs that were asked for last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, list[LeaderboardEntry]] = OrderedDict()

    def of(self, store: TenantStore, catalog: Catalog, job_ids: Sequence[str]) -> list[LeaderboardEntry]:
        """The entries of jobs that the caller sees."""
        with self._lock:
            missing = [job_id for job_id in job_ids if job_id not in self._known]
            for start in range(0, len(missing), READ_AT_ONCE):
                piece = missing[start : start + READ_AT_ONCE]
                rows = {row.id: row for row in store.leaderboards.read(piece)}
                for job_id in piece:
                    self._known[job_id] = _entries(rows.get(job_id), catalog)
            for job_id in job_ids:
                self._known.move_to_end(job_id)
            found = [entry for job_id in job_ids for entry in self._known[job_id]]
            while len(self._known) > MAX_KEPT_JOBS:
                self._known.popitem(last=False)
        return found


def _entries(row: FinishedJobRow | None, catalog: Catalog) -> list[LeaderboardEntry]:
    if row is None:
        return []
    planned = row.plan or row.provenance
    provenance: Mapping[str, Any] = row.provenance or {}
    evaluations: Sequence[PlannedEvaluation] = row.plan["evaluations"] if row.plan else ()
    job = MeasuredJob(
        job=row.id,
        name=row.spec["name"],
        model=row.spec["model"]["name"],
        seed=row.spec["seed"],
        weights_sha256=provenance.get("weights_sha256"),
        data_sha256={} if planned is None else planned.get("data_sha256", {}),
        available={position: one.get("available", 0) for position, one in enumerate(evaluations)},
        evaluations={position: read_result(result) for position, result in row.results.items()},
    )
    return leaderboard_entries(job, catalog.threat_of)


@dataclass(frozen=True)
class Board:
    """A group with its ranked entries.

    Attributes:
        shown: the first of them.
        count: of all of them.
        plotted: ids of the jobs in its plots; empty without attack.
        examples: what tells the group's examples from others, in an address.
        address: of the page with this group alone.
    """

    group: LeaderboardGroup
    shown: list[RankedEntry]
    count: int
    plotted: list[str]
    examples: str
    address: str


@router.get("/leaderboard", dependencies=[only(*FILTERS)])
def leaderboard(
    request: Request,
    store: StoreDep,
    catalog: CatalogDep,
    data: Filter = "",
    protocol: Filter = "",
    threat: Filter = "",
    model: Filter = "",
    seed: SeedText = "",
    examples: Filter = "",
    signed: Yes = "",
    whole: Yes = "",
) -> Response:
    """Jobs by accuracy, those on other examples apart."""
    filters = {"data": data, "protocol": protocol, "threat": threat, "model": model, "seed": seed}
    filters |= {"examples": examples, "signed": signed, "whole": whole}
    job_ids, cut = store.leaderboards.newest()
    cache: LeaderboardCache = request.app.state.leaderboard
    entries = cache.of(store, catalog, job_ids)
    options = _options(entries)
    for name in ("data", "protocol", "threat", "model"):
        check_choice(name, filters[name], options[name])
    found = [entry for entry in entries if _matches(entry, filters)]
    if signed:
        known = store.leaderboards.signed({entry.job for entry in found})
        found = [entry for entry in found if entry.job in known]
    boards = _boards(found, filters)
    values = {
        "title": "Leaderboard",
        "section": "/leaderboard",
        "filters": filters,
        "options": options,
        "boards": boards[:SHOWN_GROUPS],
        "others": boards[SHOWN_GROUPS:],
        "signed": store.leaderboards.signed(
            {row.entry.job for board in boards[:SHOWN_GROUPS] for row in board.shown}
        ),
        "plots": [(kind, KINDS[kind].title) for kind in PLOTS],
        "cut": MAX_JOBS if cut else None,
        "jobs": len(job_ids),
    }
    return render(request, "leaderboard.html", values)


def _options(entries: Iterable[LeaderboardEntry]) -> dict[str, list[str]]:
    """The values that each filter may have."""
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


def _matches(entry: LeaderboardEntry, filters: Mapping[str, str]) -> bool:
    group = entry.group
    wanted = {
        "data": group.data,
        "protocol": group.protocol,
        "threat": group.threat,
        "model": entry.model,
        "seed": str(entry.seed),
        "examples": _examples(group),
    }
    if any(filters[name] and filters[name] != value for name, value in wanted.items()):
        return False
    return group.whole or not filters["whole"]


def _examples(group: LeaderboardGroup) -> str:
    return f"{group.sha256[:12]}-{group.n}"


def _boards(entries: Iterable[LeaderboardEntry], filters: Mapping[str, str]) -> list[Board]:
    """The groups, attacked ones first, then those with the most jobs."""
    groups: dict[LeaderboardGroup, list[LeaderboardEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.group, []).append(entry)
    ordered = sorted(groups, key=lambda one: (not one.norm, -len(groups[one]), one))
    most = ROWS_OF_ONE if len(ordered) == 1 else ROWS_OF_GROUPS
    return [_board(group, groups[group], most, filters) for group in ordered]


def _board(
    group: LeaderboardGroup, entries: Sequence[LeaderboardEntry], most: int, filters: Mapping[str, str]
) -> Board:
    rows = ranked(entries)[:most]
    # The plots take an accuracy without attack from the same job.
    plotted = [row.entry.job for row in rows if group.norm and row.entry.clean is not None][:MAX_PLOTTED]
    return Board(group, rows, len(entries), plotted, _examples(group), _address(group, filters))


def _address(group: LeaderboardGroup, filters: Mapping[str, str]) -> str:
    only_this = {"data": group.data, "protocol": group.protocol, "threat": group.threat}
    choice: dict[str, Any] = {**filters, **only_this, "examples": _examples(group)}
    return f"/leaderboard?{urlencode({name: value for name, value in choice.items() if value})}"
