from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from assay.service.api.authentication import GATEWAY_PATH
from assay.service.app import create_app
from assay.service.contract.specs import JOB_SPEC
from assay.service.contract.verbs import VERBS
from assay.service.features import FEATURES
from assay.service.settings import Settings
from assay.service.store.store import Store
from tests.support.serving import LiveServer

ROUTES = {
    "submit_job", "list_jobs", "get_job", "cancel_job", "retry_job", "replan_job", "delete_job", "tag_job",
    "get_results",
    "list_artifacts", "download_artifact", "list_catalog", "get_component", "compare_jobs", "healthz",
    "readyz", "version",
    "metrics", "stream_events", "log_in", "get_session",
    "log_out", "get_quota",
    "list_plots", "get_plot", "plot_jobs", "get_report", "get_table", "list_warnings",
}  # fmt: skip
FEATURE_ROUTES: dict[str, set[str]] = {
    "gateway": set(),  # between a service and workers of its release
    "datasets": set(),  # published data for nodes, beside the gateway
    "signing": {"get_signature", "list_signing_keys"},
    "checkpoints": {"upload_checkpoint", "list_checkpoints", "get_checkpoint", "delete_checkpoint"},
    "studies": {
        "submit_study", "list_studies", "get_study", "get_study_results", "extend_study", "cancel_study",
        "retry_study", "delete_study", "register_design", "list_designs", "get_design", "delete_design",
        "submit_design",
    },
    "leaderboard": set(),
    "webhooks": {
        "list_webhooks", "create_webhook", "get_webhook", "delete_webhook", "rotate_webhook",
        "enable_webhook", "test_webhook", "list_webhook_deliveries", "redeliver_webhook",
    },
    "tenants": {"list_keys", "create_key", "revoke_key", "list_tenants", "get_tenant", "set_tenant"},
    "audit": {"list_audit"},
    "workers": {
        "list_workers", "cordon_worker", "uncordon_worker", "drain_worker",
        "list_identities", "allow_identity", "withdraw_identity", "list_fleets", "report_fleet",
    },
    "usage": {"get_usage"},
    "mcp": set(),  # asks the service as any client
    "evalhub": set(),  # too
}  # fmt: skip


@pytest.fixture
def document(api: httpx.Client) -> dict[str, Any]:
    document: dict[str, Any] = api.get("/openapi.json").json()
    return document


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_operation_ids_are_stable(document: dict[str, Any]) -> None:
    verbs = {f"{verb.name}_job" for verb in VERBS}
    routes = ROUTES.union(verbs, *(FEATURE_ROUTES[feature] for feature in FEATURES))
    assert {operation["operationId"] for _, _, operation in operations(document)} == routes


def test_every_route_declares_the_error_envelope(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        errors = {code: answer for code, answer in operation["responses"].items() if code >= "400"}
        assert {"403", "422", "500", "503"} <= set(errors), (path, method)
        for answer in errors.values():
            schema = answer["content"]["application/json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/ErrorEnvelope"}
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_the_request_body_is_the_job_spec(document: dict[str, Any]) -> None:
    body = document["paths"]["/api/v1/jobs"]["post"]["requestBody"]
    content = body["content"]["application/json"]
    assert body["required"] is True
    assert content["schema"] == {"$ref": "#/components/schemas/JobSpec"}
    spec = document["components"]["schemas"]["JobSpec"]
    assert {part["$ref"].rpartition("/")[2] for part in spec["oneOf"]} == {"TrainSpec", "EvaluateSpec"}
    assert set(content["examples"]) == {"train", "evaluate"}
    for example in content["examples"].values():
        JOB_SPEC.validate_python(example["value"])


def test_every_reference_resolves(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]

    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for item in value.values():
                yield from references(item)
        elif isinstance(value, list):
            for item in value:
                yield from references(item)

    found = set(references(document))
    assert len(found) > 20
    for reference in found:
        prefix, _, name = reference.rpartition("/")
        assert prefix == "#/components/schemas"
        assert name in schemas


def test_every_route_refuses_unknown_query_parameters(api: httpx.Client, document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        url = (
            path.replace("{job_id}", "0" * 26)
            .replace("{name}", "x")
            .replace("{kind}", "model")
            .replace("{tenant}", "t")
        )
        headers = {"content-type": "application/json"} if method == "post" else {}
        answer = api.request(method, f"{url}?unknwon=1", headers=headers)
        assert answer.status_code in (422, 400, 404), (path, method)
        if answer.status_code == 422:
            assert ["query", "unknwon"] in [item["loc"] for item in answer.json()["error"]["details"]]
        known = {part["name"] for part in operation.get("parameters", []) if part["in"] == "query"}
        filters = {"state", "kind", "task", "model", "tag", "search", "study", "sort", "limit", "cursor"}
        stated = {"name", "normalization", "positions", "class_names"}
        audit = {"after", "before", "tenant", "action", "key"}
        drawn = {"scheme", "narrow", "rows", "columns", "metric"}
        others = {
            "adjust",
            "decode",
            "dry_run",
            "follow",
            "format",
            "jobs",
            "by",
            "since",
            "until",
            "design",
            "budget",
        }
        assert known <= filters | stated | audit | drawn | others


def test_events_are_declared_as_a_stream(document: dict[str, Any]) -> None:
    answers = document["paths"]["/api/v1/jobs/{job_id}/events"]["get"]["responses"]
    assert set(answers["200"]["content"]) == {"text/event-stream"}
    assert {"204", "404"} <= set(answers)


def test_docs_are_served(api: httpx.Client) -> None:
    answer = api.get("/docs")
    assert answer.status_code == 200
    assert "/openapi.json" in answer.text


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/api/v1", 404, "not_found"),
        ("GET", "/api/v1/jobs/", 404, "not_found"),
        ("GET", "/api/v1/jobs/%2e%2e/x/y/z", 404, "not_found"),
        ("PUT", "/api/v1/jobs", 405, "method_not_allowed"),
        ("PATCH", "/api/v1/jobs/x", 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
    ],
)
def test_unknown_routes_and_methods(
    api: httpx.Client, method: str, path: str, status: int, kind: str
) -> None:
    answer = api.request(method, path)
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)


def test_allowed_methods_are_listed(api: httpx.Client) -> None:
    assert api.put("/api/v1/jobs").headers["allow"] == "GET, HEAD, OPTIONS, POST"
    assert api.put("/api/v1/jobs/x").headers["allow"] == "DELETE, GET, HEAD, OPTIONS"


def test_no_route_is_left_out(document: dict[str, Any], transport: Any) -> None:
    routes = transport.app.state.routes
    hidden = [route.path for route in routes if not route.include_in_schema]
    assert len(routes) - len(hidden) == len(list(operations(document)))
    assert all(path.startswith(f"{GATEWAY_PATH}/") for path in hidden)


# What the layers around the routes refuse, on every path.
REFUSED = {
    "400": ["Host: a", "Host: b"],
    "403": ["Host: elsewhere.example"],
    "413": ["Host: 127.0.0.1", f"Content-Length: {2**40}"],
    "431": ["Host: a", *["A: b"] * 20_000],
}


@pytest.mark.parametrize("status", REFUSED)
def test_what_is_refused_before_a_route_is_documented(
    settings: Settings, app_store: Store, document: dict[str, Any], status: str
) -> None:
    server = LiveServer(create_app(settings, store=app_store))
    for path, method, operation in operations(document):
        first = f"{method.upper()} {path.replace('{', '').replace('}', '')} HTTP/1.1"
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as call:
            with contextlib.suppress(OSError):
                call.sendall("\r\n".join([first, *REFUSED[status], "", ""]).encode())
            answer = call.recv(20).decode()
        assert answer.split()[1] == status, (method, path, answer)
        assert {status, "401", "408", "429"} <= set(operation["responses"]), (method, path)
    server.stop()
