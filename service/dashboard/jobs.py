"""Page of all jobs, and the forms of the verbs on a job."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Annotated, Any, Literal, cast, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from assay.service.api import jobs as api
from assay.service.api.deps import CatalogDep, Cursor, JobDep, StoreDep, StrictRoute, find_job
from assay.service.api.views import JobViews
from assay.service.catalog.catalog import Catalog
from assay.service.contract.errors import AssayError
from assay.service.contract.specs import MAX_TAG
from assay.service.contract.states import JobState
from assay.service.contract.strict_json import check_values
from assay.service.contract.summaries import Group, Sort
from assay.service.contract.verbs import VERBS, Verb
from assay.service.dashboard.choices import Filter, check_choices, miscounted, refused
from assay.service.dashboard.forms import FormDep, see
from assay.service.dashboard.frame import render
from assay.service.dashboard.metric_columns import MAX_COLUMN, MAX_COLUMNS, metric_columns
from assay.service.store.rows import JobFilters
from assay.service.store.tenants import TenantStore

router = APIRouter(route_class=StrictRoute, include_in_schema=False)

PER_PAGE = 50
MAX_CHOSEN = 500
KINDS = ("train", "evaluate")
JobColumn = Literal[
    "state", "kind", "model", "data", "progress", "clean", "worst", "n", "duration", "seed", "created", "tags"
]
TITLES: dict[JobColumn, str] = {column: column.capitalize() for column in get_args(JobColumn)}
TITLES |= {"clean": "Clean", "worst": "Worst case", "n": "n"}
USUAL: list[JobColumn] = ["state", "model", "clean", "worst", "duration", "seed", "created", "tags"]
# Sorted upwards at first; the others have the largest first.
UPWARDS = ("name", "seed")
# What is done to several jobs, in the past.
DONE = {"compare": "", "cancel": "canceled", "delete": "deleted", "tag": "tagged", "untag": "untagged"}
BULK = {verb.name: verb for verb in VERBS}


@dataclass
class JobsAddress:
    """The address of the page: filters, order, groups, columns."""

    state: Filter = ""
    kind: Filter = ""
    model: Filter = ""
    tag: Filter = ""
    search: Filter = ""
    study: Filter = ""
    sort: Sort = "-created"
    group: Literal[Group, ""] = ""
    columns: Annotated[list[JobColumn] | None, Query()] = None
    metrics: Annotated[
        list[Annotated[str, Query(max_length=MAX_COLUMN)]] | None, Query(max_length=MAX_COLUMNS)
    ] = None
    cursor: Cursor | None = None

    @property
    def chosen(self) -> list[JobColumn]:
        """The columns, where they are not the usual ones."""
        return self.columns if self.columns and self.columns != USUAL else []

    @property
    def measured(self) -> list[str]:
        """The columns of metrics."""
        return [*dict.fromkeys(filter(None, self.metrics or []))]

    @property
    def filters(self) -> JobFilters:
        """The filters that filter."""
        names = JobFilters.__annotations__
        return cast("JobFilters", {name: one for name in names if (one := getattr(self, name).strip())})

    def changed(self, **changes: str | None) -> str:
        """The address with changes, at its first page."""
        values = {**asdict(self), "columns": self.chosen, "metrics": self.measured, "cursor": None, **changes}
        if values["sort"] == "-created":
            del values["sort"]
        given = {name: value for name, value in values.items() if value}
        return f"/jobs?{urlencode(given, doseq=True)}" if given else "/jobs"

    def sorted_by(self, name: str) -> str:
        """The address sorted by a value, the other way round where it is sorted by it."""
        first, second = (name, f"-{name}") if name in UPWARDS else (f"-{name}", name)
        return self.changed(sort=second if self.sort == first else first)


AddressDep = Annotated[JobsAddress, Depends()]


@router.get("/jobs")
def list_jobs(request: Request, store: StoreDep, catalog: CatalogDep, address: AddressDep) -> Response:
    """Jobs that match the filters, newest first or by a value, and in groups."""
    return render(request, "jobs.html", _page(store, catalog, address))


@router.post("/jobs")
def act_on_jobs(
    request: Request,
    store: StoreDep,
    catalog: CatalogDep,
    address: AddressDep,
    form: FormDep,
    acting: api.ActingDep,
) -> Response:
    """Compares, cancels, deletes, tags or untags the chosen jobs; says how many, and why others are not."""
    ids, do, tag = (
        [*dict.fromkeys(filter(None, form.get("job", "").split(",")))],
        form.get("do") or "nothing",
        form.get("tag", "").strip(),
    )
    check_choices(do=(do, DONE))
    check_values(tag, ("tag",))
    if len(ids) > MAX_CHOSEN:
        raise refused("job", "too many jobs are chosen", len(ids), f"up to {MAX_CHOSEN}")
    tagging, said = do in ("tag", "untag"), ""
    if do == "compare":
        said = miscounted(len(ids))
        if not said:
            return see(f"/compare?{urlencode({'jobs': ','.join(ids)}, safe=',')}")
    elif tagging and not 0 < len(tag) <= MAX_TAG:
        has = f"the given tag has {len(tag)}" if tag else "the field is empty"
        said = f"No job is {DONE[do]}: a tag has 1 to {MAX_TAG} characters, and {has}."
    if said:
        values = {**_page(store, catalog, address), "chosen": ids, "said": said}
        return render(request, "jobs.html", values, status=422)
    done, left = 0, []
    for job_id in ids:
        name = job_id
        try:
            job = find_job(store, job_id)
            name = job.name.strip() or job_id
            if tagging:
                store.jobs.tag(job_id, **{"add" if do == "tag" else "remove": [tag]})
            else:
                acting.act(BULK[do], job)
            done += 1
        except AssayError as error:
            left.append((name, error.message.replace(f"job {job_id} is", "it is")))
    said = f"{done} of {len(ids)} chosen jobs {DONE[do]}." if ids else "No job is chosen."
    told = {"said": said, "refused": left, "well": done and not left, "chosen": ids}
    return render(request, "jobs.html", {**_page(store, catalog, address), **told})


def _page(store: TenantStore, catalog: Catalog, address: JobsAddress) -> dict[str, Any]:
    states = [one.value for one in JobState]
    check_choices(state=(address.state, states), kind=(address.kind, KINDS))
    rows, following, groups = store.jobs.listed(
        **address.filters,
        sort=address.sort,
        group=address.group or None,
        cursor=address.cursor,
        limit=PER_PAGE,
    )
    jobs = JobViews(store, rows).all()
    times = [row.finished_at and row.started_at and row.finished_at - row.started_at for row in rows]
    return {
        "title": "Jobs",
        "section": "/jobs",
        "said": "",
        "refused": [],
        "well": False,
        "chosen": [],
        "address": address,
        "jobs": list(zip_longest(jobs, times, groups)),
        "open": [job.id for job in jobs if job.finished_at is None],
        "states": [one.value for one in JobState],
        "kinds": KINDS,
        "models": sorted({entry.name for entry in catalog.list("model")}),
        "columns": address.chosen or USUAL,
        "metrics": metric_columns(store, catalog, rows, address.measured),
        "max_metrics": MAX_COLUMNS,
        "titles": TITLES,
        "sorts": [*dict.fromkeys(sort.removeprefix("-") for sort in get_args(Sort))],
        "upwards": UPWARDS,
        "groups": get_args(Group),
        "following": address.changed(cursor=following) if following else None,
    }


def _form(verb: Verb) -> None:
    @router.post(f"/jobs/{{job_id}}/{verb.name}", name=verb.name)
    def act(job: JobDep, form: FormDep, acting: api.ActingDep) -> Response:
        del form
        acting.act(verb, job)
        return see("/jobs" if verb.deletes else f"/jobs/{job.id}")


for _verb in VERBS:
    _form(_verb)
