"""The real application over a real SQLite store, with a catalog of a few components made here."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import _EffectiveRouteContext

from assay.service.app import create_app
from assay.service.catalog.catalog import Catalog
from assay.service.catalog.component import Component
from assay.service.metrics.statistics.intervals import wilson
from assay.service.settings import Settings
from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.rows import Claim, OutcomeRow
from assay.service.store.store import Store, open_store
from assay.service.store.transactions.release import DIFFERENT
from tests.support.databases import statements_once  # noqa: F401 (a fixture)

BASE_URL = "http://127.0.0.1:8000"
T = TypeVar("T")


class AppTransport(httpx.BaseTransport):
    """Carries requests of a synchronous client to an application, which runs on a loop of its own."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self._inner = httpx.ASGITransport(app=app)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self.do(self._handle(request))

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        # Streams of a synchronous client become lists here, read as one part each by the application.
        assert isinstance(request.stream, httpx.SyncByteStream)
        parts = list(request.stream)
        inner = httpx.Request(request.method, request.url, content=_parts(parts))
        inner.headers = request.headers
        response = await self._inner.handle_async_request(inner)
        # As it was sent: the client decodes it.
        body = b"".join([part async for part in response.aiter_raw()])
        return httpx.Response(response.status_code, headers=response.headers, content=body)

    def stop(self) -> None:
        # Not `close`: clients close their transport, and the application outlives them.
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _parts(parts: Sequence[bytes]) -> Any:
    for part in parts:
        yield part


@contextmanager
def running(app: FastAPI) -> Iterator[AppTransport]:
    """The application between start-up and shutdown."""
    transport = AppTransport(app)
    lifespan = app.router.lifespan_context(app)
    transport.do(lifespan.__aenter__())
    try:
        yield transport
    finally:
        transport.do(lifespan.__aexit__(None, None, None))
        transport.stop()


def component(kind: str, name: str, properties: dict[str, Any], **rest: Any) -> Component:
    entry = {
        "name": name,
        "kind": kind,
        "target": f"somewhere:{name}",
        "summary": f"The {kind} {name}.",
        "schema": {"type": "object", "properties": properties, "required": [], "additionalProperties": False},
        "rules": [],
        "tasks": ["classification"],
        "paper": None,
        "passes": None,
        "facts": None,
    }
    return Component.model_validate(entry | rest)


def integer(default: int, **bounds: int) -> dict[str, Any]:
    return {"type": "integer", "default": default, **bounds}


CATALOG = Catalog(
    [
        component(
            "model",
            "tiny_vit",
            {"width": integer(32, minimum=8), "heads": integer(4, minimum=1)},
            rules=[{"expression": "model.width % model.heads == 0", "message": "heads must divide width"}],
        ),
        component("model", "other_vit", {}),
        component("model", "exported", {}, facts={"exported_program": True}),
        component("data", "digits", {}, facts={"classes": 10, "channels": 1, "train": 1437, "test": 360}),
        component("recipe", "short", {"epochs": integer(2, minimum=1)}, tasks=[]),
        component("evaluation", "clean", {}, passes={"forward": "1", "backward": "0"}),
        component(
            "attack",
            "pgd",
            {
                "epsilon": {"type": ["number", "string"], "fraction": True, "minimum": 0, "default": "8/255"},
                "steps": integer(10, minimum=1, maximum=1000),
            },
            passes={"forward": "params.steps + 1", "backward": "params.steps"},
        ),
        component("attack", "transfer", {"job": {"type": "string", "job": True}}),
    ]
)


def train_spec(**changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "kind": "train",
        "name": "a training",
        "tags": ["first"],
        "model": {"name": "tiny_vit", "params": {"width": 16}},
        "data": {"name": "digits"},
        "recipe": {"name": "short"},
    }
    return spec | changes


def evaluate_spec(**changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "kind": "evaluate",
        "name": "an evaluation",
        "model": {"name": "tiny_vit"},
        "data": {"name": "digits"},
        "evaluations": [{"name": "clean"}, {"name": "pgd", "params": {"epsilon": "2/255"}}],
    }
    return spec | changes


class Bell:
    """A dispatcher that remembers; while `broken` it raises."""

    def __init__(self) -> None:
        self.rung: list[str] = []
        self.broken = False

    def ring(self, job_id: str, device: str) -> None:
        if self.broken:
            raise ConnectionError("no broker")
        self.rung.append(job_id)


class Worker:
    """Does by hand, through the store, what a supervisor does."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.identity = ""

    def claim(self, job_id: str) -> Claim:
        claim = self.store.shards.claim(
            "worker", ["cpu", CHECKS], lease_seconds=60, warm_job=job_id, identity=self.identity
        )
        assert claim is not None
        assert claim.job_id == job_id
        return claim

    def train(self, job_id: str) -> None:
        claim = self.claim(job_id)
        self.store.shards.progress(claim, 5, 10, "epoch 1")
        self.store.shards.finish(claim, OutcomeRow(0, 0, 0, {}, 1.0, 1, 1, {}))
        assert self.store.jobs.succeed(job_id, provenance())

    def fail(self, job_id: str) -> None:
        self.store.shards.fail(self.claim(job_id), "out_of_memory", "8 GB were not enough", retry=False)

    def plan(
        self, job_id: str, n: int = 4, identity: str = "", requirements: Any = (), repeat: float = 0.0
    ) -> None:
        claim = self.claim(job_id)
        evaluations = claim.spec["evaluations"]
        shards = [
            {"evaluation": index, "number": 0, "start": 0, "stop": n, "cost": float(n)}
            for index in range(len(evaluations))
        ]
        planner = {"digest": identity, "source_sha256": "s", "packages": {}, "catalog": "c"}
        plan = {
            **({"identity": planner} if identity else {}),
            "device": "cpu",
            "batch_size": 2,
            "parameters": 1234,
            "data_sha256": {"digits": "d" * 64},
            "evaluations": [{"n": n} for _ in evaluations],
            "shards": shards,
        }
        assert self.store.shards.finish_plan(claim, plan, requirements, repeat=repeat)

    def evaluate(self, job_id: str, correct: Sequence[int], extra: Any = ()) -> None:
        """Finishes the next evaluation of the job with these outcomes, example by example."""
        claim = self.claim(job_id)
        n = len(correct)
        columns = {"id": [f"x{i}" for i in range(n)], "correct": list(correct)}
        self.store.shards.finish(claim, OutcomeRow(claim.evaluation, 0, n, columns, 1.0, n, 0, dict(extra)))
        if claim.repeat:
            return
        evaluation = claim.spec["evaluations"][claim.evaluation]
        self.store.results.save(job_id, claim.evaluation, result(evaluation, correct))

    def run(self, job_id: str, *correct: Sequence[int]) -> None:
        """Plans and finishes an evaluate job with two evaluations."""
        self.plan(job_id, len(correct[0]))
        for outcomes in correct:
            self.evaluate(job_id, outcomes)
        assert self.store.jobs.succeed(job_id, provenance())

    def differ(self, job_id: str, correct: Sequence[int]) -> None:
        """Measures two evaluations of a job, and a shard of them again with other numbers."""
        extra = {"evidence": {}, "provenance": {"device": {"type": "cpu"}}}
        self.plan(job_id, len(correct), self.identity, repeat=1.0)
        for outcomes in (correct, correct, [1 - one for one in correct]):
            self.evaluate(job_id, outcomes, extra)
        assert (self.store.jobs.get(job_id).error or {})["type"] == DIFFERENT


def result(evaluation: dict[str, Any], correct: Sequence[int]) -> dict[str, Any]:
    low, high = wilson(sum(correct), len(correct))
    top1 = {
        "value": sum(correct) / len(correct),
        "n": len(correct),
        "ci_low": low,
        "ci_high": high,
        "ci_method": "wilson",
        "higher_is_better": True,
    }
    return {
        "name": evaluation["name"],
        "params": evaluation["params"],
        "data": {"name": "digits", "params": {}},
        "protocol": "pixel",
        "backend": "native",
        "metrics": {"top1": top1},
        "seconds": 1.0,
        "forward_passes": len(correct),
        "backward_passes": 0,
    }


def provenance() -> dict[str, Any]:
    return {
        "spec": {},
        "seed": 0,
        "code": {},
        "packages": {},
        "device": {},
        "weights_sha256": None,
        "data_sha256": {},
        "times": {},
    }


@pytest.fixture
def train_body() -> Callable[..., dict[str, Any]]:
    return train_spec


@pytest.fixture
def evaluate_body() -> Callable[..., dict[str, Any]]:
    return evaluate_spec


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state=tmp_path / "state", max_body_bytes=20_000)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all tables: a copy of it is there much sooner than the migrations are done."""
    path = tmp_path_factory.mktemp("empty") / "assay.sqlite"
    open_store(f"sqlite:///{path}").close()
    return path


@pytest.fixture(scope="session", autouse=True)
def routes_once() -> Iterator[None]:
    """Applications share what FastAPI makes of their routes, a third of a second for each application."""
    build, made = _EffectiveRouteContext.from_api_route, dict[int, list[tuple[Any, Any, Any]]]()

    def build_once(*, original_route: Any, include_context: Any) -> Any:
        # Overrides of dependencies, which no test uses, would be the first application's.
        context = dataclasses.replace(include_context, dependency_overrides_provider=None)
        known = made.setdefault(id(original_route), [])
        if (found := next((one for place, one, _ in known if place == context), None)) is None:
            found = build(original_route=original_route, include_context=context)
            known.append((context, found, original_route))  # kept alive: its id is the key
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_EffectiveRouteContext, "from_api_route", build_once)
        yield


@pytest.fixture
def app_store(settings: Settings, empty_database: Path) -> Iterator[Store]:
    settings.state.mkdir()
    shutil.copy(empty_database, settings.state / "assay.sqlite")
    with open_store(settings.database, migrate=False) as store:
        yield store


@pytest.fixture
def worker(app_store: Store) -> Worker:
    return Worker(app_store)


@pytest.fixture
def bell() -> Bell:
    return Bell()


@pytest.fixture
def transport(settings: Settings, app_store: Store, bell: Bell) -> Iterator[AppTransport]:
    app = create_app(settings, store=app_store, dispatcher=bell, catalog=CATALOG)
    with running(app) as transport:
        yield transport


@pytest.fixture
def api(transport: AppTransport) -> Iterator[httpx.Client]:
    with httpx.Client(transport=transport, base_url=BASE_URL) as client:
        yield client


@pytest.fixture
def serve() -> Callable[..., Any]:
    """Runs an application with other settings or another store: `with serve(settings, store) as client`."""

    @contextmanager
    def serving(settings: Settings, store: Store | None = None) -> Iterator[httpx.Client]:
        with (
            running(create_app(settings, store=store, catalog=CATALOG)) as transport,
            httpx.Client(transport=transport, base_url=BASE_URL) as client,
        ):
            yield client

    return serving


@pytest.fixture(autouse=True)
def config_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder for the configuration, so that no test reads that of whoever runs it."""
    folder = tmp_path / "xdg"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    monkeypatch.delenv("ASSAY_PROFILE", raising=False)
    return folder / "assay"
