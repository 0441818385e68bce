"""Supervisors on a fake evaluator, and a look at the processes of this machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy.exc import OperationalError

from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.rows import JobRow
from assay.service.store.store import Store
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.direct_ledger import DirectLedger
from assay.workers.supervision.supervisor import Supervisor
from tests.support.jobs import evaluate_spec, train_spec

FAKE = Path(__file__).with_name("fake_evaluator.py")
CLEAN = {"name": "clean", "params": {}, "data": None}
ENDED = {"succeeded", "failed", "canceled", "timed_out"}


def settings(state: Path, **changes: Any) -> WorkerSettings:
    """Short intervals and the fake evaluator."""
    values: dict[str, Any] = {
        "state": state,
        "evaluator_command": f"{sys.executable} -S {FAKE}",
        "lease_seconds": 30,
        "poll_seconds": 0.02,
        "control_seconds": 0.05,
        "database_away_seconds": 0.05,
        "cancel_grace_seconds": 2,
    }
    return WorkerSettings(**(values | changes))


@contextmanager
def supervising(store: Store, chosen: WorkerSettings, count: int = 1) -> Iterator[list[Supervisor]]:
    """Running supervisors, stopped at the end."""
    supervisors = [
        Supervisor(ledger, chosen, device_classes=("cpu", CHECKS), number=n, files=ledger.files)
        for n, ledger in enumerate(DirectLedger(store, chosen) for _ in range(count))
    ]
    for supervisor in supervisors:
        supervisor.start()
    try:
        yield supervisors
    finally:
        for supervisor in supervisors:
            supervisor.stop()
        for supervisor in supervisors:
            supervisor.join(120)
            assert not supervisor.is_alive()


def submit(store: Store, name: str, *, evaluations: int = 1, **changes: Any) -> str:
    """An evaluation job whose name tells the fake evaluator what to do."""
    spec = evaluate_spec(name=name, **changes) | {"evaluations": [CLEAN] * evaluations}
    return store.jobs.add(spec, body_sha256="sha")[0].id


def submit_training(store: Store, name: str, **changes: Any) -> str:
    """A training job whose name tells the fake evaluator what to do."""
    return store.jobs.add(train_spec(name=name, **changes), body_sha256="sha")[0].id


def ended(store: Store, job_id: str, seconds: float = 120) -> JobRow:
    """The job, once it has ended."""
    return wait_for(lambda: (row := store.jobs.get(job_id)).state in ENDED and row, seconds)


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> Any:
    """Poll until the condition holds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s")


def running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def group(pgid: int) -> list[int]:
    """The living processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and running(int(entry.name)):
            try:
                if os.getpgid(int(entry.name)) == pgid:
                    found.append(int(entry.name))
            except ProcessLookupError:
                continue
    return found


def away(times: int, then: Callable[..., Any]) -> Callable[..., Any]:
    """A method of the store that cannot reach its database the first few times."""
    left = [times]

    def call(*arguments: Any, **options: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            raise OperationalError("", {}, Exception("connection refused"))
        return then(*arguments, **options)

    return call


def unanswered(times: int, then: Callable[..., Any]) -> Callable[..., Any]:
    """A method of the store that does its work, and whose answer is lost the first few times."""
    left = [times]

    def call(*arguments: Any, **options: Any) -> Any:
        answer = then(*arguments, **options)
        if left[0] > 0:
            left[0] -= 1
            raise OperationalError("", {}, Exception("server closed the connection unexpectedly"))
        return answer

    return call


def losses_and_failures(store: Store, job_id: str) -> tuple[int, int]:
    """Losses and failures of the job's shards."""
    shards = store.shards.of(job_id)
    return sum(s.losses for s in shards), sum(s.failures for s in shards)


def measured(store: Store, job_id: str) -> list[str]:
    """The ids of the examples of the first evaluation that have an outcome."""
    rows = store.results.outcomes(job_id, 0)
    return sorted(i for row in rows for i in row.columns["id"])
