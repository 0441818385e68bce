"""What code tries that has got out of a model: it writes what it likes to the pipe of its evaluator.

The evaluators of this service are `tests/support/hostile_reports.py`; the job's name chooses the attack.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.hostile.attempt import Attempt, Target

EVALUATOR = Path(__file__).resolve().parents[1] / "support" / "hostile_reports.py"
ENVIRONMENT = {
    "ASSAY_EVALUATOR_COMMAND": f"{sys.executable} -S {EVALUATOR}",
    "ASSAY_CANCEL_GRACE_SECONDS": "1",
}
SECRET = b"another tenant's weights"
END_SECONDS = 120.0
MAX_GROWTH = 256 << 20
MODEL = {"name": "vit", "params": {"image_size": 8, "patch_size": 4}}
NEVER_SAID = re.compile(r"\[SQL|INSERT|sqlalchemy|psycopg|sqlite|Traceback|artifacts/|\x1b|\r")
OF_TEXTS = re.compile(r"forged|script|Set-Cookie|DROP")


def ask(target: Target, path: str, body: Any = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {target.alice}"}
    method = "GET" if body is None else "POST"
    return httpx.request(method, f"{target.url}{path}", json=body, headers=headers, timeout=60)


def secret(target: Target) -> Path:
    """A file in the folder of another tenant's job."""
    path = target.state / "artifacts" / "01anotherjob00000000000000" / "weights.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(SECRET)
    return path


def memory(target: Target) -> int:
    """The most memory that the serving process has had, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{target.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def attacked(target: Target, name: str, *expected: str) -> str:
    """Run a job of that name to its end; nothing of another tenant is readable then, and no worker unfit."""
    kind = name.split(" ")[0]
    body: dict[str, Any] = {"kind": "evaluate", "evaluations": [{"name": "clean"}]}
    if kind == "train":
        body = {"kind": "train", "recipe": {"name": "small_vit", "params": {"epochs": 1}}}
    before = memory(target)
    body |= {"name": name, "model": MODEL, "data": {"name": "digits"}, "execution": {"device": "cpu"}}
    answer = ask(target, "/api/v1/jobs", body)
    assert answer.status_code == 201, answer.text
    job = answer.json()
    deadline = time.monotonic() + END_SECONDS
    while job["state"] not in ("succeeded", "failed"):
        assert time.monotonic() < deadline, f"{job['state']}: {job['message']}"
        time.sleep(0.2)
        job = ask(target, f"/api/v1/jobs/{job['id']}").json()
    assert memory(target) - before < MAX_GROWTH, "the service grew by more than 256 MiB"
    said = f"{job['message']} {(job['error'] or {}).get('message', '')}"
    assert not NEVER_SAID.search(said), said
    for artifact in ask(target, f"/api/v1/jobs/{job['id']}/artifacts").json()["items"]:
        content = ask(target, artifact["href"])
        assert SECRET not in content.content, artifact
        assert content.headers["content-type"] != "text/html"
    ready = httpx.get(f"{target.url}/readyz", timeout=60)
    assert ready.status_code == 200
    assert (ready.json()["unfit"], ready.json()["workers_unfit"]) == ({}, 0)
    assert not OF_TEXTS.search(ready.text), ready.text
    if not expected:
        return f"{job['state']}: {said.strip()[:90]}"
    assert job["state"] == "failed", job["state"]
    assert job["error"]["type"] in expected, job["error"]
    return f"{job['error']['type']}: {job['error']['message'][:90]}"


def attack(name: str, *expected: str) -> Callable[[Target], str]:
    return lambda target: attacked(target, name, *(expected or ("bad_report",)))


def stolen(how: str) -> Callable[[Target], str]:
    return lambda target: attacked(target, f"evaluate described 0 {how} {secret(target)}", "bad_report")


def exchanged(target: Target) -> str:
    return attacked(target, f"evaluate exchanged 0 {secret(target)}")


def mutated(kind: str) -> Callable[[Target], str]:
    """Ten reports with a field exchanged, dropped or added; some of these are still reports."""

    def run(target: Target) -> str:
        return [attacked(target, f"{kind} mutated {seed}") for seed in range(100, 110)][-1]

    return run


ATTEMPTS: tuple[Attempt, ...] = (
    Attempt("a plan with something wrong in a field", mutated("plan")),
    Attempt("an outcome with something wrong in a field", mutated("evaluate")),
    Attempt("a training's outcome with something wrong in a field", mutated("train")),
    Attempt("an answer to another request", attack("evaluate typed 1")),
    Attempt("a file of another tenant by its path", stolen("name")),
    Attempt("a file that is a link to another tenant's", stolen("link")),
    Attempt("a file that is a second name of another tenant's", stolen("hard")),
    Attempt("a file that is a pipe without a writer", stolen("pipe")),
    Attempt("a file that is a folder", stolen("folder")),
    Attempt("a file that is not there", stolen("none")),
    Attempt("a file that becomes a link once it is known", exchanged),
    Attempt(
        "an error that says that the worker has other code",
        attack("evaluate said 3 other_identity", "other_identity"),
    ),
    Attempt(
        "an error that says that the worker has other data",
        attack("evaluate said 3 other_data", "other_data"),
    ),
    Attempt(
        "an error that says that the device is broken", attack("evaluate said 3 device_fault", "device_fault")
    ),
    Attempt("an error that says that the worker is unfit", attack("evaluate said 3 unfit", "unfit")),
    Attempt("an error of a type that is no name", attack("evaluate said 3 A_b\r\n")),
    Attempt("32 MiB of objects in a line that never ends", attack("evaluate raw 0 containers")),
    Attempt("8 MiB of objects in a message", attack("evaluate raw 0 inner")),
    Attempt("4 million numbers in a message", attack("evaluate raw 0 values")),
    Attempt("2 million texts in a message", attack("evaluate raw 0 strings")),
    Attempt("64 MiB without the end of a line", attack("evaluate raw 0 endless")),
    Attempt("lists in lists, 130,000 levels", attack("evaluate raw 0 deep")),
    Attempt("half a million escaped quotes", attack("evaluate raw 0 quotes")),
    Attempt("an integer of 130,000 digits", attack("evaluate raw 0 integer")),
    Attempt("bytes that are no text", attack("evaluate raw 0 garbage")),
    Attempt("progress without a pause", attack("evaluate raw 0 progress")),
    Attempt("20,000 lines of output with control characters", attack("evaluate raw 0 output")),
)
