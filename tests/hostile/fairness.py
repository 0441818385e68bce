"""One tenant against the others: queue, disk, limits, and what can be learned of another tenant."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from tests.hostile.attempt import Attempt, Target

QUEUE_LIMIT = 200
FILE_BYTES = 200_000
SECONDS = 60.0
SPEC = {
    "kind": "evaluate",
    "model": {"name": "symvit", "params": {"depth": 1, "width": 16, "heads": 1}},
    "data": {"name": "digits"},
    "evaluations": [{"name": "clean"}],
    "limit": 8,
    "execution": {"device": "cpu"},
}


def _client(target: Target, key: str) -> httpx.Client:
    return httpx.Client(
        base_url=f"{target.url}/api/v1", headers={"Authorization": f"Bearer {key}"}, timeout=60
    )


@contextmanager
def _limits(target: Target, tenant: str, **limits: float) -> Iterator[None]:
    """Sets a tenant's limits, and takes them away again."""
    with _client(target, target.admin) as admin:
        answer = admin.put(f"/tenants/{tenant}", json=limits)
        assert answer.status_code == 200, answer.text
        try:
            yield
        finally:
            admin.put(f"/tenants/{tenant}", json={})


def _submit(client: httpx.Client, **changes: Any) -> httpx.Response:
    return client.post("/jobs", json={**SPEC, "name": "hostile", **changes})


def _is_over_limit(answer: httpx.Response, name: str) -> None:
    assert answer.status_code == 429, answer.text
    assert answer.json()["error"]["type"] == "too_many_requests", answer.text
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["ratelimit-policy"].startswith(f'"{name}";q=')
    assert answer.headers["ratelimit"].startswith(f'"{name}";r=')


def _cancel_all(client: httpx.Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        while jobs := client.get("/jobs", params={"state": "queued", "limit": 200}).json()["items"]:
            list(pool.map(lambda job: client.post(f"/jobs/{job['id']}/cancel"), jobs))


def flood(target: Target) -> str:
    """Fills the queue at the highest priority until it is refused; another tenant's job is next."""
    with (
        _limits(target, "alice", queued_jobs=QUEUE_LIMIT),
        _client(target, target.alice) as alice,
        _client(target, target.bob) as bob,
        ThreadPoolExecutor(8) as pool,
    ):
        try:
            answers = list(pool.map(lambda _: _submit(alice, priority=9), range(QUEUE_LIMIT + 60)))
            refused = [answer for answer in answers if answer.status_code != 201]
            assert refused, "no limit held"
            _is_over_limit(refused[0], "queued-jobs")
            job = _submit(bob, priority=0).json()
            place = next(part for part in bob.get("/quota").json()["queue"] if part["device"] == "cpu")
            assert place["before"] <= 2, place
            begun = time.monotonic()
            while bob.get(f"/jobs/{job['id']}").json()["state"] == "queued":
                assert time.monotonic() - begun < SECONDS, "the other tenant's job does not start"
                time.sleep(0.1)
            seconds = time.monotonic() - begun
            left = alice.get("/quota").json()["limits"]["queued_jobs"]["used"]
            assert left > QUEUE_LIMIT / 2, f"the flood was over: {left}"
        finally:
            _cancel_all(alice)
    return f"429 from job {QUEUE_LIMIT} on; bob's job started after {seconds:.1f} s, before {left} of alice"


def uploads_over_the_quota(target: Target) -> str:
    """Eight uploads at once into room for one."""

    def content() -> Iterator[bytes]:
        for _ in range(10):
            yield b"x" * (FILE_BYTES // 10)
            time.sleep(0.05)

    def upload(_: int) -> httpx.Response:
        headers = {"Content-Length": str(FILE_BYTES)}
        with _client(target, target.alice) as client:
            params = {"name": f"race-{secrets.token_hex(4)}", "model": "symvit"}
            return client.post("/checkpoints", params=params, content=content(), headers=headers)

    with _limits(target, "alice", stored_bytes=FILE_BYTES * 3 // 2), ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(upload, range(8)))
    over = [answer for answer in answers if answer.status_code == 429]
    # The file is no safetensors file: those that get room are refused for that, one after the other.
    assert all(answer.status_code in (422, 429) for answer in answers), [one.text for one in answers]
    assert len(over) >= 5, [answer.status_code for answer in answers]
    _is_over_limit(over[0], "stored-bytes")
    return f"429 for {len(over)} of 8"


def many_uploads(target: Target) -> str:
    """Uploads that never end hold all that are allowed; broken off, they give their room back."""

    def stuck() -> Iterator[bytes]:
        yield b"x" * 1000
        time.sleep(4)
        raise ConnectionAbortedError

    def upload(number: int) -> None:
        with suppress(httpx.HTTPError, ConnectionAbortedError), _client(target, target.bob) as client:
            client.post("/checkpoints", params={"name": f"stuck-{number}"}, content=stuck())

    with _limits(target, "bob", uploads=2), _client(target, target.bob) as bob, ThreadPoolExecutor(2) as pool:

        def used() -> int:
            return int(bob.get("/quota").json()["limits"]["uploads"]["used"])

        ended = [pool.submit(upload, number) for number in range(2)]
        while used() < 2:
            assert not all(one.done() for one in ended), "the uploads were over before they were counted"
        _is_over_limit(bob.post("/checkpoints", params={"name": "third"}, content=b"x" * 1000), "uploads")
        for one in ended:
            one.result()
        begun = time.monotonic()
        while used():
            assert time.monotonic() - begun < SECONDS, "a broken upload keeps its room"
            time.sleep(0.1)
    return (
        f"429 for the third; all room was back {time.monotonic() - begun:.1f} s after the connections broke"
    )


def other_tenants_limits(target: Target) -> str:
    """What a tenant can learn of another's limits, and do to its own."""
    with _client(target, target.bob) as bob:
        own = bob.get("/quota")
        assert own.json()["tenant"] == "bob", own.text
        assert "alice" not in own.text
        assert bob.get("/quota", params={"tenant": "alice"}).status_code == 422
        for method, path in (
            ("GET", ""),
            ("GET", "/alice"),
            ("PUT", "/bob"),
            ("PUT", "/alice"),
            ("GET", "/x/y"),
        ):
            answer = bob.request(method, f"/tenants{path}", json={"weight": 1000.0})
            assert answer.status_code == 403, (method, path, answer.text)
        metrics = httpx.get(f"{target.url}/metrics", headers=bob.headers).text
        assert "assay_jobs" in metrics
        assert "assay_tenant_" not in metrics
    return "403 and 422; /metrics names no tenant"


ATTEMPTS: tuple[Attempt, ...] = (
    Attempt(f"{QUEUE_LIMIT + 60} urgent jobs of one tenant before one of another", flood),
    Attempt("eight uploads at once into room for one", uploads_over_the_quota),
    Attempt("uploads that never end", many_uploads),
    Attempt("limits and queues of another tenant, a weight of 1000 for oneself", other_tenants_limits),
)
