"""Jobs that ask for too much, and bodies whose mere checking would cost too much."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx

from tests.hostile.attempt import Attempt, Target

MIB = 1 << 20
# Of one request, on a machine that is busy with other things too.
MAX_SECONDS = 10.0
MAX_ANSWER = 200_000

Body = dict[str, Any]


def job(**changes: Any) -> Body:
    """A small evaluation job with these changes."""
    model = {"name": "vit", "params": {"image_size": 8, "patch_size": 4}}
    small = {"kind": "evaluate", "model": model, "data": {"name": "digits"}}
    return small | {"execution": {"device": "cpu"}, "evaluations": [{"name": "clean"}]} | changes


def pgd(**params: Any) -> list[Body]:
    return [{"name": "pgd", "params": params}]


def post(target: Target, raw: bytes, path: str = "/api/v1/jobs") -> httpx.Response:
    headers = {"Authorization": f"Bearer {target.alice}", "Content-Type": "application/json"}
    return httpx.post(f"{target.url}{path}", content=raw, headers=headers, timeout=60)


def get(target: Target, path: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {target.alice}"}
    return httpx.get(f"{target.url}{path}", headers=headers, timeout=60)


def refused(ask: Callable[[Target], httpx.Response], *allowed: int) -> Callable[[Target], str]:
    """An attempt that must be answered soon, shortly, and with one of these statuses."""

    def run(target: Target) -> str:
        begun = time.monotonic()
        answer = ask(target)
        seconds = time.monotonic() - begun
        assert answer.status_code in allowed, (answer.status_code, answer.text[:300])
        assert seconds < MAX_SECONDS, f"answered after {seconds:.1f} s"
        assert len(answer.content) < MAX_ANSWER, f"an answer of {len(answer.content)} bytes"
        message = answer.json()["error"]["message"]
        return f"{answer.status_code}, {len(answer.content)} bytes: {message[:90]}"

    return run


def spec(body: object, *allowed: int) -> Callable[[Target], str]:
    raw = json.dumps(body).encode()
    assert len(raw) <= MIB, len(raw)
    return refused(lambda target: post(target, raw), *(allowed or (422,)))


def raw_body(raw: bytes, *allowed: int) -> Callable[[Target], str]:
    return refused(lambda target: post(target, raw), *allowed)


def timeless(target: Target) -> str:
    """A job without `timeout_seconds` gets a deadline with its plan."""
    made = post(target, json.dumps(job(limit=4)).encode())
    assert made.status_code == 201, made.text
    path, until = f"/api/v1/jobs/{made.json()['id']}", time.monotonic() + 60
    while time.monotonic() < until:
        found = get(target, path).json()
        assert found["state"] not in ("failed", "canceled", "timed_out"), found["error"]
        if found["deadline"] is not None:
            return f"ends at {found['deadline']}, started at {found['started_at']}"
        time.sleep(0.2)
    raise AssertionError("no deadline within 60 s")


ATTEMPTS = (
    Attempt("500 copies of the suite full", spec(job(evaluations=[{"suite": "full"}] * 500))),
    Attempt("60,000 unknown parameters", spec(job(evaluations=pgd(**{f"p{i}": 1 for i in range(60_000)})))),
    Attempt(
        "60,000 unknown fields of an evaluation", spec(job(evaluations=[{f"z{i}": 1 for i in range(60_000)}]))
    ),
    Attempt("60,000 unknown fields of a job", spec(job() | {f"z{i}": 1 for i in range(60_000)})),
    Attempt(
        "500 evaluations of 120 unknown fields",
        spec(job(evaluations=[{f"z{i}": 1 for i in range(120)}] * 500)),
    ),
    Attempt(
        "10^15 passes of an attack",
        spec(job(evaluations=pgd(steps=100_000, restarts=10_000, eot=10_000))),
    ),
    Attempt(
        "500 attacks of 10^9 passes each",
        spec(job(evaluations=pgd(steps=100_000, restarts=10_000) * 500)),
    ),
    Attempt(
        "a training of 10,000 adversarial epochs",
        spec(
            {key: value for key, value in job().items() if key != "evaluations"}
            | {
                "kind": "train",
                "recipe": {
                    "name": "small_vit",
                    "params": {"epochs": 10_000, "adversarial": "pgd_at", "attack_steps": 1000},
                },
            }
        ),
    ),
    Attempt("100,000 tags", spec(job(tags=["a"] * 100_000))),
    Attempt("a tag of a megabyte", spec(job(tags=["a" * (MIB - 1000)]))),
    Attempt("a name of a megabyte", spec(job(name="a" * (MIB - 1000)))),
    Attempt("a key of a megabyte", spec(job() | {"a" * (MIB - 1000): 1})),
    Attempt("a fraction of a megabyte", spec(job(evaluations=pgd(epsilon=" " * (MIB - 1000))))),
    Attempt(
        "a list of 200,000 layers",
        spec(job(evaluations=[{"name": "eigenvector_check", "params": {"layers": [1] * 200_000}}])),
    ),
    Attempt("1 MiB of empty lists", raw_body(b"[" + b"[]," * 349_000 + b"[]]", 400)),
    Attempt("1 MiB of lists 30 deep", raw_body(b"[" + (b"[" * 29 + b"]" * 29 + b",") * 17_000 + b"[]]", 400)),
    Attempt("1 MiB of opening brackets", raw_body(b"[" * MIB, 400)),
    Attempt("1 MiB of backslashes in a text", raw_body(b'"' + b"\\" * (MIB - 2), 400)),
    Attempt("a fraction with a million digits", raw_body(b"0." + b"1" * (MIB - 2), 422)),
    Attempt("an integer of 4,000 digits", raw_body(b'{"seed": ' + b"9" * 4000 + b"}", 400)),
    Attempt(
        "1e400 steps",
        raw_body(json.dumps(job(evaluations=pgd(steps=7))).replace("7}", "1e400}").encode(), 400),
    ),
    Attempt("1e308 steps", spec(job(evaluations=pgd(steps=1e308)))),
    Attempt(
        "30 unknown fields of 30 KB",
        spec(job() | {f"f{k}": [[[["x" * 200] * 20] * 2] * 2] * 2 for k in range(30)}),
    ),
    Attempt(
        "a query of 5,000 unknown parameters",
        refused(
            lambda target: get(target, "/api/v1/jobs?" + "&".join(f"a{i}=" for i in range(5000))),
            422,
            400,
            414,
        ),
    ),
    Attempt(
        "a comparison of 5,000 jobs",
        refused(lambda target: get(target, "/api/v1/compare?jobs=" + "a," * 5000), 422),
    ),
    Attempt("a job without a timeout", timeless),
)
