"""A real supervisor, and an evaluator whose code has got out: hostile lines of all types, in all fields.

No other tenant's byte is readable afterwards, no worker is unfit, the supervisor's memory is bounded, and the
job fails with a reason. The seeds are fixed; `SEEDS` grows for a longer search.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.service.api.artifacts import open_artifact
from assay.service.contract.errors import NotFound
from assay.service.files.file_store import FolderFiles
from assay.service.store.rows import JobRow
from assay.service.store.store import Store
from assay.workers.supervision.supervisor import Supervisor
from tests.support.workers import ended, settings, submit, submit_training, supervising, wait_for

HOSTILE = Path(__file__).resolve().parents[2] / "support" / "hostile_reports.py"
SEEDS = int(os.environ.get("ASSAY_FUZZ_REPORTS", "5"))
SECRET = b"another tenant's weights"
MIB = 1 << 20
# Of SQL, of Python's and of the database's words; of the files of the service and of others.
NEVER_SAID = re.compile(r"\[SQL|INSERT INTO|sqlalchemy|psycopg|sqlite3|Traceback|artifacts/|another tenant")
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")


@pytest.fixture
def supervisor(either_store: Store, tmp_path: Path) -> Iterator[Supervisor]:
    chosen = settings(tmp_path, evaluator_command=f"{sys.executable} -S {HOSTILE}", cancel_grace_seconds=0.2)
    with supervising(either_store, chosen) as (one,):
        yield one


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "artifacts" / "another" / "weights.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(SECRET)
    return path


def nothing_came_of_it(store: Store, supervisor: Supervisor, job: JobRow, state: Path) -> None:
    """What must hold after any attack."""
    assert supervisor.is_alive()
    assert (supervisor._evaluator.health.reason, store.workers.unfit()) == ("", [])
    text = f"{job.message} {(job.error or {}).get('message', '')}"
    assert not NEVER_SAID.search(text), text
    assert not CONTROLS.search(text), text
    assert len(text) < 20_000
    for row in store.artifacts.of(job.id):
        try:
            with open_artifact(FolderFiles(state / "artifacts"), row) as file:
                assert SECRET not in file.read(), row
        except NotFound:
            continue


def refused(job: JobRow, *types: str) -> str:
    """The message of the error of a job that has failed with one of these types."""
    assert job.state == "failed", (job.name, job.state)
    assert job.error is not None
    assert job.error["type"] in types, job.error
    return str(job.error["message"])


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["plan", "evaluate", "train"])
def test_reports_with_something_wrong_in_them(
    either_store: Store, supervisor: Supervisor, tmp_path: Path, kind: str
) -> None:
    add = submit_training if kind == "train" else submit
    reasons = set()
    for seed in range(SEEDS):
        job_id = add(either_store, f"{kind} mutated {seed}", timeout_seconds=None)
        job = ended(either_store, job_id)
        nothing_came_of_it(either_store, supervisor, job, tmp_path)
        if job.state != "succeeded":  # what was wrong may be a field that is free, or may be left out
            reasons.add(
                refused(job, "bad_report", "save_failed", "told_to", "over_limit", "mixed_identities")
            )
    assert reasons
    wait_for(lambda: either_store.workers.online("cpu") == 1)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["plan", "evaluate"])
def test_a_report_that_answers_another_request(store: Store, tmp_path: Path, kind: str) -> None:
    chosen = settings(tmp_path, evaluator_command=f"{sys.executable} -S {HOSTILE}", cancel_grace_seconds=0.2)
    with supervising(store, chosen) as (supervisor,):
        for seed in range(4):
            job = ended(store, submit(store, f"{kind} typed {seed}"))
            assert "it sent a report of type" in refused(job, "bad_report")
            nothing_came_of_it(store, supervisor, job, tmp_path)
    assert store.shards.running() == []


@pytest.mark.sampled
@pytest.mark.parametrize("error_type", ["other_identity", "other_data", "device_fault", "unfit", "A b\r\n"])
def test_an_error_that_says_what_its_worker_is(store: Store, tmp_path: Path, error_type: str) -> None:
    chosen = settings(tmp_path, evaluator_command=f"{sys.executable} -S {HOSTILE}", cancel_grace_seconds=0.2)
    with supervising(store, chosen, count=2) as supervisors:
        name = error_type.replace(" ", "\t")
        job = ended(store, submit(store, f"evaluate said 3 {name}"))
        refused(job, "bad_report" if "A" in error_type else error_type)
        for supervisor in supervisors:
            nothing_came_of_it(store, supervisor, job, tmp_path)
        wait_for(lambda: store.workers.online("cpu") == 2)


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["name", "link", "hard", "pipe", "folder", "none"])
def test_a_file_that_is_not_the_jobs(
    either_store: Store, supervisor: Supervisor, tmp_path: Path, secret: Path, how: str
) -> None:
    job = ended(either_store, submit(either_store, f"evaluate described 0 {how} {secret}"))
    assert "file" in refused(job, "bad_report")
    nothing_came_of_it(either_store, supervisor, job, tmp_path)
    assert either_store.artifacts.of(job.id) == []


def test_a_file_that_becomes_a_link_once_it_is_known(store: Store, tmp_path: Path, secret: Path) -> None:
    chosen = settings(tmp_path, evaluator_command=f"{sys.executable} -S {HOSTILE}")
    with supervising(store, chosen) as (supervisor,):
        job = ended(store, submit(store, f"evaluate exchanged 0 {secret}"))
        assert job.state == "succeeded"
        place = tmp_path / "artifacts" / job.id / "stolen.csv"
        wait_for(place.is_symlink)
        (row,) = [one for one in store.artifacts.of(job.id) if one.name == "stolen.csv"]
        assert (row.size, row.media_type) == (4, "text/csv; charset=utf-8")
        with pytest.raises(NotFound):
            open_artifact(FolderFiles(tmp_path / "artifacts"), row)
        nothing_came_of_it(store, supervisor, job, tmp_path)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "how",
    [
        *("containers", "inner", "values", "strings", "deep", "quotes", "garbage", "integer", "endless"),
        *("progress", "output"),
    ],
)
def test_lines_that_are_no_reports(store: Store, tmp_path: Path, how: str) -> None:
    chosen = settings(tmp_path, evaluator_command=f"{sys.executable} -S {HOSTILE}", cancel_grace_seconds=0.2)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = peak()
    with supervising(store, chosen) as (supervisor,):
        job = ended(store, submit(store, f"evaluate raw 0 {how}"))
        refused(job, "bad_report")
        nothing_came_of_it(store, supervisor, job, tmp_path)
    assert peak() - before < 160 * MIB


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
