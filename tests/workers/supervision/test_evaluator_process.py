"""Evaluator processes, fake and real: their inputs, their permissions, and that none survives."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.service.contract.messages import EvaluatorReport
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.evaluator_process import ALLOCATOR, EvaluatorDied, EvaluatorProcess
from tests.support.jobs import evaluate_spec
from tests.support.workers import CLEAN, group, running, settings, wait_for

ROOT = Path(__file__).resolve().parents[3]
REAL = f"{sys.executable} -m assay.workers.evaluator"
# A supervisor in small: it starts an evaluator, hands it work, says who it is and waits to be killed.
PARENT = """
import json, sys, time
from pathlib import Path
from assay.workers.supervision.evaluator_process import EvaluatorProcess
from assay.workers.settings import WorkerSettings
evaluator = EvaluatorProcess(WorkerSettings(state=Path(sys.argv[1]), evaluator_command=sys.argv[2]))
evaluator.send(json.loads(sys.argv[3]))
if sys.argv[4] == "working":
    evaluator.receive(60)
print(evaluator.pid, flush=True)
time.sleep(600)
"""


def request(folder: Path, name: str, kind: str = "plan") -> dict[str, Any]:
    return {
        "kind": kind,
        "spec": evaluate_spec(name=name) | {"evaluations": [CLEAN]},
        "evaluation": 0,
        "start": 0,
        "stop": 5,
        "folder": str(folder),
    }


def answer(evaluator: EvaluatorProcess) -> EvaluatorReport:
    """The report that ends the request."""
    while (message := evaluator.receive(120)) is None or message["type"] == "progress":
        assert message is not None, "no report within 120 s"
    return message


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with; the kernel shows none while it is being started."""
    file = Path(f"/proc/{pid}/environ")
    wait_for(lambda: file.read_text() != "")
    return dict(entry.split("=", 1) for entry in file.read_text().split("\0") if entry)


def ignores(pid: int, number: int) -> bool:
    """Whether a process ignores a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(mask, 16) >> (number - 1) & 1)


class Started:
    """Evaluators that are ended with the test."""

    def __init__(self) -> None:
        self.all: list[EvaluatorProcess] = []

    def __call__(self, chosen: WorkerSettings) -> EvaluatorProcess:
        self.all.append(EvaluatorProcess(chosen))
        return self.all[-1]


@pytest.fixture
def start() -> Iterator[Started]:
    started = Started()
    yield started
    for evaluator in started.all:
        evaluator.stop(1)


def test_request_and_answer(start: Started, tmp_path: Path) -> None:
    evaluator = start(settings(tmp_path))
    evaluator.send(request(tmp_path, "shards=3"))
    assert len(answer(evaluator)["plan"]["shards"]) == 3
    evaluator.send(request(tmp_path, "", "evaluate"))
    assert answer(evaluator)["n"] == 5
    assert evaluator.alive()
    assert evaluator.receive(0) is None


def test_what_it_prints_does_not_disturb_the_reports(start: Started, tmp_path: Path) -> None:
    evaluator = start(settings(tmp_path))
    evaluator.send(request(tmp_path, "noise shards=3"))
    assert len(answer(evaluator)["plan"]["shards"]) == 3
    wait_for(lambda: "x" * 4096 in evaluator.last_output)
    assert len(evaluator.last_output) < 300_000, "a line without end is kept in part"


def test_the_group_is_ended_with_grandchildren(start: Started, tmp_path: Path) -> None:
    evaluator = start(settings(tmp_path))
    evaluator.send(request(tmp_path, "child"))
    answer(evaluator)
    child = int((tmp_path / "child.pid").read_text())
    assert set(group(evaluator.pid)) == {evaluator.pid, child}
    evaluator.stop(0.2)
    wait_for(lambda: not group(evaluator.pid))
    assert not running(child)


def test_one_that_ignores_sigterm_is_killed(start: Started, tmp_path: Path) -> None:
    evaluator = start(settings(tmp_path))
    evaluator.send(request(tmp_path, "deaf hang"))
    wait_for(lambda: ignores(evaluator.pid, signal.SIGTERM))
    evaluator.stop(0.1)
    assert not running(evaluator.pid)
    evaluator.stop(0.1)  # again is harmless


def test_death_is_reported_with_exit_code_and_last_output(start: Started, tmp_path: Path) -> None:
    evaluator = start(settings(tmp_path))
    evaluator.send(request(tmp_path, "crash=always"))
    with pytest.raises(EvaluatorDied, match="exit code 7"):
        answer(evaluator)
    assert evaluator.last_output.endswith("last words")
    assert not evaluator.alive()


def test_death_by_a_signal_says_which(start: Started, tmp_path: Path) -> None:
    evaluator = start(settings(tmp_path))
    evaluator.send(request(tmp_path, "kill=always"))
    with pytest.raises(EvaluatorDied, match="SIGKILL, perhaps for want of memory"):
        answer(evaluator)
    other = start(settings(tmp_path))
    os.kill(other.pid, signal.SIGTERM)
    with pytest.raises(EvaluatorDied, match="killed by SIGTERM"):
        other.receive(120)


@pytest.mark.costly
def test_death_is_seen_while_a_grandchild_holds_the_report_pipe(start: Started, tmp_path: Path) -> None:
    evaluator = start(settings(tmp_path))
    evaluator.send(request(tmp_path, "holder crash=always"))
    with pytest.raises(EvaluatorDied, match="exit code 7"):
        answer(evaluator)
    evaluator.stop(1)
    wait_for(lambda: not running(int((tmp_path / "child.pid").read_text())))


def test_what_is_no_report_ends_the_conversation(start: Started, tmp_path: Path) -> None:
    evaluator = start(settings(tmp_path))
    evaluator.send(request(tmp_path, "garbage"))
    with pytest.raises(EvaluatorDied, match="not a report: b'Epoch 1"):
        answer(evaluator)


def test_a_request_larger_than_the_pipe_does_not_block(start: Started, tmp_path: Path) -> None:
    evaluator = start(settings(tmp_path, evaluator_command="sleep 600"))
    evaluator.send({"kind": "check", "padding": "x" * 1_000_000})
    assert evaluator.receive(0.1) is None, "unread, and the supervisor can still stop"
    reader = start(settings(tmp_path))
    reader.send(request(tmp_path, "shards=3") | {"padding": "x" * 1_000_000})
    assert len(answer(reader)["plan"]["shards"]) == 3


def test_descriptors_beyond_1023_work(start: Started, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        hard = 2048  # raising it needs root; the setrlimit below then says so
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        evaluator = start(settings(tmp_path))
        evaluator.send(request(tmp_path, "shards=3"))
        assert len(answer(evaluator)["plan"]["shards"]) == 3
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_descriptors_are_left_open(start: Started, tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    start(settings(tmp_path)).stop(5)
    with pytest.raises(FileNotFoundError):
        EvaluatorProcess(settings(tmp_path, evaluator_command="/no/such/program"))
    assert set(os.listdir("/proc/self/fd")) == before


def test_the_environment_holds_no_credentials(
    start: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = ("ASSAY_DATABASE_URL", "ASSAY_API_KEY", "PGPASSWORD", "DATABASE_URL", "AWS_SESSION", "HF_TOKEN")
    for name in secrets:
        monkeypatch.setenv(name, "s3cret")
    monkeypatch.setenv("ASSAY_COMMIT", "c0ffee")
    evaluator = start(settings(tmp_path, data_root=tmp_path, torch_threads=3))
    evaluator.send(request(tmp_path, ""))
    answer(evaluator)
    environment = environment_of(evaluator.pid)
    assert not set(secrets) & set(environment)
    assert "s3cret" not in environment.values()
    ours = {name for name in environment if name.startswith("ASSAY_")}
    assert ours == {
        "ASSAY_COMMIT",
        "ASSAY_CONTAINMENT",
        "ASSAY_DATA_ROOT",
        "ASSAY_REPORTS_FD",
        "ASSAY_REQUESTS_FD",
        "ASSAY_TORCH_THREADS",
        "ASSAY_WORKERS_PER_GPU",
        "ASSAY_WEIGHTS_ROOT",
    }
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["ASSAY_DATA_ROOT"] == str(tmp_path)
    assert environment["OMP_NUM_THREADS"] == environment["ASSAY_TORCH_THREADS"] == "3"


def test_freed_memory_stays_unless_the_operator_says_otherwise(
    start: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "4096")
    environment = environment_of(start(settings(tmp_path)).pid)
    assert environment["MALLOC_MMAP_THRESHOLD_"] == ALLOCATOR["MALLOC_MMAP_THRESHOLD_"]
    assert environment["MALLOC_TRIM_THRESHOLD_"] == "4096"


@pytest.mark.costly
@pytest.mark.parametrize(
    ("command", "name", "when"),
    [
        (settings(Path()).evaluator_command, "deaf seconds=600 child", "working"),
        (REAL, "", "loading"),
    ],
    ids=["fake", "real"],
)
def test_no_evaluator_is_left_when_its_parent_is_killed(
    tmp_path: Path, command: str, name: str, when: str
) -> None:
    work = json.dumps(request(tmp_path, name))
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), command, work, when],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        evaluator = int(parent.stdout.readline())
        assert running(evaluator)
        parent.kill()
    try:
        wait_for(lambda: not running(evaluator))
    finally:
        for left in group(evaluator):  # what the fake started is not an evaluator
            os.kill(left, signal.SIGKILL)


@pytest.mark.costly
def test_the_real_evaluator_ends_with_its_request_pipe(tmp_path: Path) -> None:
    """Without a death signal too: the pipe alone must do, even with a request under way."""
    request_read, request_write = os.pipe()
    report_read, report_write = os.pipe()
    environment = os.environ | {"ASSAY_REQUESTS_FD": str(request_read), "ASSAY_REPORTS_FD": str(report_write)}
    process = subprocess.Popen(
        [sys.executable, "-m", "assay.workers.evaluator"],
        cwd=ROOT,
        env=environment,
        pass_fds=(request_read, report_write),
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    os.close(request_read)
    os.close(report_write)
    os.write(request_write, b'{"kind": "nonsense"}\n')
    with os.fdopen(report_read) as reports:
        assert '"type":"error"' in reports.readline(), "an unknown request is answered"
        assert process.poll() is None
        os.close(request_write)
        assert process.wait(120) == -signal.SIGKILL
        assert reports.read() == ""
