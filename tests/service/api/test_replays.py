"""`Idempotency-Key`: a call that is repeated makes one job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

JOBS = "/api/v1/jobs"
Make = Callable[..., dict[str, Any]]


def test_the_same_key_and_body_is_the_same_job(api: httpx.Client, train_body: Make, bell: Any) -> None:
    headers = {"Idempotency-Key": "key 1"}
    first = api.post(JOBS, json=train_body(), headers=headers)
    again = api.post(JOBS, json=dict(reversed(train_body().items())), headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["location"] == first.headers["location"]
    assert bell.rung == [first.json()["id"]]


def test_the_same_key_and_another_body_is_422(api: httpx.Client, train_body: Make) -> None:
    headers = {"Idempotency-Key": "key"}
    api.post(JOBS, json=train_body(), headers=headers)
    other = api.post(JOBS, json=train_body(seed=1), headers=headers)
    assert other.status_code == 422
    assert other.json()["error"]["type"] == "idempotency_mismatch"
    assert len(api.get(JOBS).json()["items"]) == 1


def test_a_replay_is_answered_though_the_spec_would_be_refused_now(
    api: httpx.Client, train_body: Make, evaluate_body: Make, worker: Any
) -> None:
    training, headers = api.post(JOBS, json=train_body()).json()["id"], {"Idempotency-Key": "key"}
    body = evaluate_body(model={"name": "tiny_vit", "weights": {"job": training}})
    first = api.post(JOBS, json=body, headers=headers)
    worker.fail(training)
    assert api.post(JOBS, json=body, headers={"Idempotency-Key": "new"}).status_code == 422
    again = api.post(JOBS, json=body, headers=headers)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    assert again.json()["state"] == "failed"
    assert api.post(JOBS, json=body, headers=headers, params={"dry_run": "true"}).status_code == 422
    mismatch = api.post(JOBS, json={"kind": "nonsense"}, headers=headers)
    assert mismatch.json()["error"]["type"] == "idempotency_mismatch"


@pytest.mark.parametrize("key", ["", "x" * 201, "caf\u00e9", " padded\t"])
def test_odd_keys_are_refused(api: httpx.Client, train_body: Make, key: str) -> None:
    answer = api.post(JOBS, json=train_body(), headers=[(b"Idempotency-Key", key.encode("latin-1"))])
    assert answer.json()["error"]["details"][0]["loc"] == ["header", "Idempotency-Key"]
