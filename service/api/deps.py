"""Dependencies of routes, as annotated parameters, and checks shared by many routes."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.exceptions import RequestValidationError
from fastapi.params import Depends as Dependency
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from assay.service.api.caller import actor_in, administrator, caller_in
from assay.service.api.errors import add_wrong_values, documented
from assay.service.catalog.catalog import Catalog
from assay.service.contract.errors import (
    ErrorDetail,
    InvalidSpec,
    InvalidState,
    NotFound,
    UnsupportedMediaType,
)
from assay.service.contract.problems import Problems, nearest
from assay.service.contract.strict_json import parse_json
from assay.service.contract.weights.pulled import PulledRecords
from assay.service.dispatch import Dispatcher
from assay.service.settings import Settings
from assay.service.store.ids import is_id
from assay.service.store.live import Live
from assay.service.store.row_mapping import unknown_job
from assay.service.store.rows import JobRow, SourceRow
from assay.service.store.store import Store, open_store
from assay.service.store.tenants import TenantStore
from assay.service.submission.packages import HasPackage, ListPulled
from assay.service.submission.validate import Environment

TAG = re.compile(r'(?:^|[ ,])(?:W/)?("[^"]*")')


class StoreOpener:
    """Opens the store at first use: without the database the service starts, and answers 503.

    The caller closes a given `store`; `prepare` is called once, before the first use of a store opened here.
    """

    def __init__(
        self, url: str, store: Store | None = None, prepare: Callable[[Store], None] = lambda _: None
    ) -> None:
        self._url = url
        self._prepare = prepare
        self._store = store
        self._lent = store is not None
        self._lock = threading.Lock()

    def __call__(self) -> Store:
        """The open store. Raises the database's error while it cannot be opened."""
        with self._lock:
            if self._store is None:
                opened = open_store(self._url, migrate=True)
                self._prepare(opened)
                self._store = opened
            return self._store

    @property
    def opened(self) -> Store | None:
        """The store, if it is open."""
        return self._store

    def close(self) -> None:
        """Closes the store if it was opened here."""
        with self._lock:
            if self._store is not None and not self._lent:
                self._store.close()
                self._store = None


# Pure look-ups are coroutines: a plain function costs a thread for each request.
async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


async def system_store(request: Request) -> Store:
    """The whole store. Raises the database's error while it cannot be opened."""
    opener: StoreOpener = request.app.state.store
    opened = opener.opened
    return await run_in_threadpool(opener) if opened is None else opened


async def _store(request: Request) -> TenantStore:
    caller, limits = caller_in(request.scope), request.app.state.settings.limits
    return TenantStore(await system_store(request), caller.view, limits, actor_in(request.scope, caller))


async def _catalog(request: Request) -> Catalog:
    catalog: Catalog = request.app.state.catalog
    return catalog


async def _has_package(request: Request, store: StoreDep) -> HasPackage | None:
    """Whether a package is beside the service, or on a worker that is online; None where neither is known."""
    here: HasPackage | None = request.app.state.has_package
    if here is None:
        return None
    beside = here
    return lambda name: beside(name) or name in store.workers.libraries()


async def _list_pulled(request: Request, store: StoreDep) -> ListPulled:
    """What is pulled beside the service, else what the workers that are online say; and what is published."""
    here: ListPulled | None = request.app.state.list_pulled
    published, key = request.app.state.settings.published, caller_in(request.scope).key
    pulled = here or store.workers.pulled
    if published is None:
        return pulled

    def both() -> PulledRecords | None:
        known = pulled()
        return None if known is None else {**published.weights(None if key is None else key.tenant), **known}

    return both


async def _dispatcher(request: Request) -> Dispatcher:
    dispatcher: Dispatcher = request.app.state.dispatcher
    return dispatcher


async def _live(request: Request) -> Live:
    live: Live = request.app.state.live
    return live


SettingsDep = Annotated[Settings, Depends(_settings)]
StoreDep = Annotated[TenantStore, Depends(_store)]  # For routes that touch jobs: the caller's alone.
# The whole store, for routes of health, keys and numbers of the machine; never with an id of a job.
SystemStoreDep = Annotated[Store, Depends(system_store)]
CatalogDep = Annotated[Catalog, Depends(_catalog)]
HasPackageDep = Annotated[HasPackage | None, Depends(_has_package)]
ListPulledDep = Annotated[ListPulled, Depends(_list_pulled)]
DispatcherDep = Annotated[Dispatcher, Depends(_dispatcher)]
LiveDep = Annotated[Live, Depends(_live)]

Cursor = Annotated[str, Query(min_length=1, max_length=6000, pattern=r"^[!-~]+$")]  # For paginated lists.
Limit = Annotated[int, Query(ge=1, le=200, description="items per page")]


@dataclass(frozen=True)
class Submission:
    """What a submission needs of the service."""

    store: StoreDep
    catalog: CatalogDep
    settings: SettingsDep
    dispatcher: DispatcherDep
    has_package: HasPackageDep
    list_pulled: ListPulledDep

    @property
    def environment(self) -> Environment:
        """What it is checked against."""
        return {
            "data_root": self.settings.data_root,
            "find_job": job_finder(self.store),
            "find_checkpoint": self.store.checkpoints.get,
            "max_evaluations": self.settings.max_evaluations,
            "has_package": self.has_package,
            "list_pulled": self.list_pulled,
        }


SubmissionDep = Annotated[Submission, Depends()]


def _job(
    job_id: Annotated[str, Path(description="job id", examples=["01jd3q0x5v8f7m2n9k4t6w1z0y"])],
    store: StoreDep,
) -> JobRow:
    return find_job(store, job_id)


def find_job(store: TenantStore, job_id: str) -> JobRow:
    """The job with this id; NotFound: no such job. Malformed ids never reach the database."""
    if not is_id(job_id):
        raise unknown_job(job_id)
    return store.jobs.get(job_id)


def job_finder(store: TenantStore) -> Callable[[str], SourceRow | None]:
    """A look-up for the catalog: the job with an id as a source of weights, or None."""

    @functools.cache  # a grid of attacks names one job many times
    def find(job_id: str) -> SourceRow | None:
        try:
            return store.jobs.source(job_id) if is_id(job_id) else None
        except NotFound:
            return None

    return find


JobDep = Annotated[JobRow, Depends(_job)]


def media_type(request: Request, *allowed: str) -> str:
    """The media type of a body; UnsupportedMediaType: another than allowed."""
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found not in allowed:
        given = repr(found[:60]) if found else "missing"
        raise UnsupportedMediaType(f"the Content-Type is {given}; allowed: {', '.join(allowed)}")
    return found


async def raw_body(request: Request) -> bytes:
    """The bytes of a JSON body. Raises UnsupportedMediaType."""
    media_type(request, "application/json")
    return await request.body()


def _json_body(raw: Annotated[bytes, Depends(raw_body)], settings: SettingsDep) -> Any:
    """Runs in the thread pool: a body of the maximum size takes tens of milliseconds."""
    return parse_json(raw, settings.max_json_depth)


BodyDep = Annotated[Any, Depends(_json_body)]
Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], body: Any) -> Model:
    """The body as a model; its errors are reported like any other parameter's."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from None


def keys_used(settings: SettingsDep) -> None:
    """A dependency that refuses key management where no keys are required."""
    # Anyone who reaches such a service could make a key that works once keys are required.
    if not settings.keys_required:
        raise InvalidState(
            "this service asks for no keys; its operator manages them with `assay keys --state PATH`"
        )


GUARDED = [Depends(keys_used), Depends(administrator)]


def stored(view: BaseModel, path: str, *, status: int) -> Response:
    """The answer of a call that stores something: its view, and the path where it is from now on."""
    return JSONResponse(view.model_dump(mode="json"), status_code=status, headers={"Location": path})


def located(what: str) -> dict[str, Any]:
    """The documentation of an answer of `stored`."""
    return {"headers": {"Location": {"description": f"path of the {what}", "schema": {"type": "string"}}}}


def split_jobs(jobs: str, least: int, most: int) -> list[str]:
    """The ids in a list with commas; InvalidSpec: too few, too many, or an id twice."""
    ids = [job_id.strip() for job_id in jobs.split(",")]
    if not least <= len(ids) <= most or len(set(ids)) != len(ids) or not all(ids):
        allowed = f"{least} to {most} different job ids, separated by commas"
        detail = ErrorDetail(loc=["query", "jobs"], message=f"give {allowed}", given=jobs, allowed=allowed)
        raise InvalidSpec(detail.message, [detail])
    return ids


def unchanged(request: Request, etag: str) -> Response | None:
    """A 304 answer when `If-None-Match` has this tag, `W/` or not, or `*`; else None."""
    given = ", ".join(request.headers.getlist("if-none-match"))
    if given.strip() == "*" or etag in TAG.findall(given):
        return Response(status_code=304, headers={"ETag": etag})
    return None


# A hash in the address of what browsers keep: another content, another address. Nothing reads it.
Version = Annotated[str, Query(include_in_schema=False)]


class StrictRoute(APIRoute):
    """Refuses query parameters that its signature lacks (a misspelt filter filters nothing) or has twice."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler that FastAPI calls, behind the check of names."""
        handle = super().get_route_handler()
        repeatable = dict(_parameters(self.dependant))
        fields = [*_query_fields(self.dependant)]

        async def checked(request: Request) -> Response:
            check_query(request, repeatable, fields)
            return await handle(request)

        return checked


class StrictRouter(APIRouter):
    """Strict routes under a tag, which OpenAPI calls as their functions."""

    def __init__(
        self,
        prefix: str = "",
        *,
        tag: str,
        dependencies: Sequence[Dependency] | None = None,
        route_class: type[StrictRoute] = StrictRoute,
    ) -> None:
        super().__init__(
            prefix=prefix,
            tags=[tag],
            dependencies=dependencies,
            route_class=route_class,
            generate_unique_id_function=lambda route: route.name,
        )

    def add_api_route(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        responses: dict[int | str, dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """Adds a route, which without other `responses` documents those that every route can answer."""
        super().add_api_route(path, endpoint, responses=responses or documented(), **options)


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """The `openapi_extra` of a route that checks its JSON body by a model itself."""
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


def _query_fields(dependant: Dependant) -> Iterator[Any]:
    """The parameters of dependencies, then of the function."""
    for dependency in dependant.dependencies:
        yield from _query_fields(dependency)
    yield from dependant.query_params


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Names of the parameters, and whether they are lists."""
    for field in _query_fields(dependant):
        annotation = field.field_info.annotation
        yield field.alias, list in {get_origin(part) for part in (annotation, *get_args(annotation))}


def check_query(request: Request, repeatable: dict[str, bool], fields: Sequence[Any] = ()) -> None:
    """Raises InvalidSpec: a query parameter is none of these names, or twice where it is no list.

    Wrong values of the fields are told with them; alone they are left to FastAPI.
    """
    problems = Problems()
    every: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        every.setdefault(name, []).append(value)
    known = tuple(repeatable)
    for name, given in every.items():
        if problems.full:
            problems.unlisted += 1
        elif name not in repeatable:
            near = nearest(name, known)
            problems.add(("query", name), "unknown parameter", given=given[-1], allowed=known, nearest=near)
        elif len(given) > 1 and not repeatable[name]:
            problems.add(("query", name), "is given more than once", given=given, allowed="one value")
    if problems.details:
        add_wrong_values(problems, request_params_to_args(fields, request.query_params)[1])
    problems.raise_if_any()
