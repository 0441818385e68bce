"""Errors as envelopes and as problem documents."""

from __future__ import annotations

import httpx
import pytest

from assay.service.api.errors import prefers_problem
from assay.service.contract.errors import ErrorEnvelope, Problem

JOBS = "/api/v1/jobs"

PROBLEM = "application/problem+json"


def test_a_problem_document_for_who_prefers_it(api: httpx.Client) -> None:
    body = {"kind": "train", "modle": 1}
    usual = api.post(JOBS, json=body, headers={"accept": "application/json"})
    assert usual.headers["content-type"] == "application/json"
    assert usual.headers["vary"] == "Accept"
    error = ErrorEnvelope.model_validate_json(usual.content).error
    answer = api.post(JOBS, json=body, headers={"accept": PROBLEM})
    assert (answer.status_code, answer.headers["content-type"]) == (422, PROBLEM)
    assert answer.headers["vary"] == "Accept"
    problem = Problem.model_validate_json(answer.content)
    assert problem.details == error.details
    assert (problem.status, problem.detail) == (422, error.message)
    assert (problem.type, problem.title) == ("urn:assay:error:invalid_spec", "invalid spec")
    assert problem.instance == JOBS


@pytest.mark.parametrize(
    ("method", "path", "status", "header"),
    [
        ("GET", "/nope%0a%22", 404, None),
        ("PUT", JOBS, 405, "allow"),
        ("GET", f"{JOBS}/x", 404, None),
        ("GET", "/api/v1/catalog?kind=x", 422, None),
    ],
)
def test_every_kind_of_error_is_a_problem(
    api: httpx.Client, method: str, path: str, status: int, header: str | None
) -> None:
    answer = api.request(method, path, headers={"accept": f"{PROBLEM}, application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM)
    assert Problem.model_validate_json(answer.content).status == status
    assert header is None or answer.headers[header]
    large = api.post(JOBS, content=b" " * 20_001, headers={"accept": PROBLEM})
    assert (large.status_code, large.json()["type"]) == (413, "urn:assay:error:too_large")


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ([PROBLEM], True),
        ([f"application/json, {PROBLEM}"], True),
        (["application/json", PROBLEM.upper()], True),
        ([f"{PROBLEM};q=0.5, application/json;q=0.4"], True),
        ([f"{PROBLEM}; charset=utf-8; q=0.5, */*"], True),
        ([f"{PROBLEM};q=0.5, application/json"], False),
        ([f"{PROBLEM};q=0"], False),
        ([f"{PROBLEM};q=x"], False),
        (["*/*"], False),
        (["application/*"], False),
        (["application/json"], False),
        ([""], False),
        ([], False),
    ],
)
def test_what_accept_prefers(accept: list[str], wanted: bool) -> None:
    assert prefers_problem(accept) is wanted


def test_the_documentation_has_both_forms_of_an_error(api: httpx.Client) -> None:
    document = api.get("/openapi.json").json()
    reference = {"schema": {"$ref": "#/components/schemas/Problem"}}
    for methods in document["paths"].values():
        for operation in methods.values():
            errors = [answer for code, answer in operation["responses"].items() if code >= "400"]
            assert errors
            assert all(answer["content"][PROBLEM] == reference for answer in errors)
    assert set(document["components"]["schemas"]["Problem"]["required"]) >= {"type", "title", "status"}


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/api/v1/jbos", "/api/v1/jobs"),
        (
            "/api/v1/jobs/01m8hh71qfcxvw0b4vsjbehhnf/resluts",
            "/api/v1/jobs/01m8hh71qfcxvw0b4vsjbehhnf/results",
        ),
        ("/api/v1/workers/box:1/cordn", "/api/v1/workers/box:1/cordon"),
        ("/api/v1/warnings/nope", "/api/v1/warnings"),
        ("/api/v1/checkpoints/bad/2", "/api/v1/checkpoints/bad"),
    ],
)
def test_an_unknown_path_names_the_nearest(api: httpx.Client, path: str, near: str) -> None:
    assert api.post(path).json()["error"]["message"] == f"no route {path!r}; meant: {near}? see /docs"


def test_a_path_with_control_characters_is_not_said_as_it_is(api: httpx.Client) -> None:
    answer = api.get("/api/v1/jobs/a%1b[31m/resluts")
    assert answer.json()["error"]["message"] == "no route '/api/v1/jobs/a\\x1b[31m/resluts'; see /docs"


def test_a_path_like_no_other_names_none(api: httpx.Client) -> None:
    assert api.get("/wp-admin.php").json()["error"]["message"] == "no route '/wp-admin.php'; see /docs"


def test_parameters_of_a_path_are_refused_in_plain_words(api: httpx.Client) -> None:
    (detail,) = api.post("/api/v1/workers/identities/xyz/allow").json()["error"]["details"]
    assert (detail["message"], detail["allowed"]) == (
        "must have 16 characters of 0-9a-f",
        "16 characters of 0-9a-f",
    )
