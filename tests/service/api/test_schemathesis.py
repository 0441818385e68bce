"""schemathesis over the OpenAPI document, against a real server: no 500, and answers as documented."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from assay.service.app import create_app
from assay.service.contract.verbs import VERBS
from assay.service.settings import Settings
from assay.service.store.store import Store
from tests.support.jobs import add, claim, evaluate_spec
from tests.support.serving import LiveServer

EXAMPLES = 20
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SCHEMA = schemathesis.openapi.from_dict(create_app(Settings(state=Path("unused"))).openapi())
OPERATIONS = {
    str(found.ok().definition.raw["operationId"]): found.ok() for found in SCHEMA.get_all_operations()
}
# The others take a name in their path at most, where any text is as good as another.
CHECKED = ["submit_job", "list_jobs", "get_results", "stream_events", "compare_jobs", "list_catalog"]
CHECKED += ["create_key", "log_in", "upload_checkpoint", "list_checkpoints", "list_audit", "set_tenant"]
CHECKED += ["submit_study", "list_studies", "get_study_results", "extend_study"]
CHECKED += ["register_design", "list_designs", "get_design"]
CHECKED += ["get_plot", "plot_jobs", "get_report", "get_table"]
CHECKED += ["create_webhook", "list_webhook_deliveries", "report_fleet", "tag_job", "get_usage"]
CASES = [(name, GenerationMode.POSITIVE) for name in OPERATIONS]
CASES += [(name, GenerationMode.NEGATIVE) for name in CHECKED]

STATES = ["queued", "starting", "failed", "succeeded"]
# The events of these end; those of a job at work are sent for as long as it runs.
ENDED = ["failed", "succeeded"]
CHANGING = {f"{verb.name}_job" for verb in VERBS}


class World:
    """A real server, and jobs in several states."""

    def __init__(self, url: str, settings: Settings, store: Store, worker: Any) -> None:
        self.url = url
        self._settings, self._store, self._worker = settings, store, worker
        self._made: dict[str, str] = {}

    def job(self, state: str, *, fresh: bool) -> str:
        """The id of a job in this state; another than before where the call will change it."""
        if fresh or state not in self._made:
            self._made[state] = self._make(state)
        return self._made[state]

    def _make(self, state: str) -> str:
        evaluations = [{"name": "clean", "params": {}}, {"name": "pgd", "params": {"epsilon": 0.1}}]
        job_id = add(self._store, evaluate_spec(tags=["a"]) | {"evaluations": evaluations})
        if state == "starting":
            claim(self._store, warm_job=job_id)
        elif state == "failed":
            self._store.shards.fail(claim(self._store, warm_job=job_id), "told_to", "as told", retry=False)
        elif state == "succeeded":
            self._worker.run(job_id, [1, 0, 1, 1], [0, 0, 1, 0])
            file = self._settings.artifacts / job_id / "log.csv"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("step,loss\n")
            self._store.artifacts.add(job_id, "log.csv", str(file), 10, "0" * 64, "text/csv")
        assert self._store.jobs.get(job_id).state == state
        return job_id


@pytest.fixture
def world(settings: Settings, app_store: Store, worker: Any) -> Iterator[World]:
    server = LiveServer(create_app(settings, store=app_store))
    yield World(server.url, settings, app_store, worker)
    server.stop()


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "mode"), CASES, ids=lambda value: getattr(value, "value", value))
def test_answers_are_documented(world: World, name: str, mode: GenerationMode) -> None:
    operation = OPERATIONS[name]
    states = ENDED if name == "stream_events" else STATES

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode), state=st.none() | st.sampled_from(states))
    def check(case: Any, state: str | None) -> None:
        if state is not None:
            use(case, world.job(state, fresh=name in CHANGING))
        response = case.call(base_url=world.url, session=session, timeout=30)
        case.validate_response(response, checks=CHECKS)

    with requests.Session() as session:
        check()


def use(case: Any, job_id: str) -> None:
    """Makes the call about a job that there is."""
    if "job_id" in (case.path_parameters or {}):
        case.path_parameters["job_id"] = job_id
    if "name" in (case.path_parameters or {}) and case.path_parameters.get("job_id") == job_id:
        case.path_parameters["name"] = "log.csv"


def test_every_operation_is_called() -> None:
    """That is how this file learns of a new one: it belongs into CHECKED if it takes a query or a body."""
    taking = [name for name, operation in OPERATIONS.items() if operation.query or operation.body]
    assert sorted(taking) == sorted(CHECKED)
