"""A hostile evaluator tries each thing, contained as every evaluator is, and sees it refused."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.service.store.store import Store
from assay.workers.containment.limits import SPARE_PROCESSES
from assay.workers.containment.probe import missing_parts
from assay.workers.settings import WorkerSettings
from assay.workers.supervision import job_limits
from assay.workers.supervision.evaluator_process import EvaluatorDied, EvaluatorProcess
from assay.workers.supervision.job_limits import MAX_TASKS, EvaluatorWatch, OverLimit, TooManyFiles
from tests.support.workers import ended, group, running, settings, submit, supervising, wait_for

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = f"{sys.executable} -P {ROOT / 'tests/support/hostile_evaluator.py'}"
LIMIT = 256 << 20

pytestmark = pytest.mark.skipif(bool(missing_parts()), reason=f"this machine lacks {list(missing_parts())}")

Try = Callable[..., str]


def hostile(state: Path, **changes: Any) -> WorkerSettings:
    limits = {"max_evaluator_bytes": LIMIT, "max_processor_seconds": 60, "max_file_bytes": 8 << 20}
    return settings(state, evaluator_command=HOSTILE, **(limits | changes))


def request(state: Path, name: str, *, job: str = "mine", **changes: Any) -> Any:
    spec = {"kind": "evaluate", "name": name, "execution": {"devices": 1}}
    return {
        "kind": "evaluate",
        "job": job,
        "spec": spec,
        "folder": str(state / "artifacts" / job),
        "weights": None,
        "sources": {},
        "cores": 1,
        **changes,
    }


def answer(evaluator: EvaluatorProcess) -> str:
    message = evaluator.receive(60)
    assert message is not None
    assert message["type"] == "error"
    return message["message"]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with the secrets of others."""
    other = tmp_path / "artifacts" / "other"
    other.mkdir(parents=True)
    (other / "weights.safetensors").write_text("another tenant's")
    (tmp_path / "assay.sqlite").write_text("all tenants'")
    return tmp_path


@pytest.fixture
def evaluator(state: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EvaluatorProcess]:
    monkeypatch.setenv("DATABASE_PASSWORD", "s3cret")
    started = EvaluatorProcess(hostile(state))
    yield started
    started.stop(2)


@pytest.fixture
def attempt(evaluator: EvaluatorProcess, state: Path) -> Try:
    def try_it(name: str, **changes: Any) -> str:
        evaluator.send(request(state, name, **changes))
        return answer(evaluator)

    return try_it


ALWAYS = (
    "read {state}/assay.sqlite",
    "read {state}/artifacts/other/weights.safetensors",
    "read /etc/passwd",
    "read /etc/shadow",
    "read {root}/pyproject.toml",
    "listing {state}/artifacts/other",
    "listing {state}/artifacts",
    "listing /",
    "listing /tmp",
    "write {state}/artifacts/other/planted",
    "write {state}/planted",
    "write /tmp/planted",
    "write {root}/workers/planted.py",
    "truncate {state}/assay.sqlite",
    "environment_of supervisor",
    "environment_of template",
    "memory_of supervisor",
    "memory_of template",
    "connect_unix {state}/socket",
    "connect_unix @assay-test-abstract",
    "system_call ptrace,16,{template},0,0",
    "system_call process_vm_readv,{template},0,0,0,0,0",
    "system_call pidfd_getfd,0,0,0",
    "system_call unshare,268435456",
    "system_call unshare,1073741824",
    "system_call setns,0,0",
    "system_call mount,0,0,0,0,0",
    "system_call bpf,0,0,0",
    "system_call perf_event_open,0,0,0,0,0",
    "system_call userfaultfd,1",
    "system_call io_uring_setup,1,0",
    "system_call keyctl,0,0,0,0,0",
    "system_call kcmp,{template},{template},1,0,0",
    "system_call personality,4294967295",
    "system_call open_by_handle_at,0,0,0",
    "system_call setsid",
    "system_call setpgid,0,0",
    "system_call clone,268435473,0,0,0,0",
    "system_call clone3,0,0",
    "system_call prctl,1,0",
    "system_call prctl,4,1",
    "system_call setresuid,0,0,0",
    "system_call setreuid,0,0",
    "system_call setuid,0",
    "system_call shmget,0,4096,512",
    "signals supervisor",
    "signals template",
    "signals all",
    "symlink {state}/assay.sqlite",
    "hardlink {state}/assay.sqlite",
    "fifo",
    "set_user_id",
    "allocate 1073741824",
    "fill 16777216",
    "environment DATABASE_PASSWORD",
    "environment s3cret",
    "open_descriptors",
)
# The numbers of another process's descriptors are in /proc, which a training may list; not where they lead.
ALONE = (
    "descriptors_of supervisor",
    "fork",
    "system_call memfd_create,0,0",
)
# To all but a training on several devices.
PROGRAMS = ("run /bin/true", "execute /bin/true")


def filled_in(name: str, state: Path, evaluator: EvaluatorProcess) -> str:
    return name.format(state=state, root=ROOT, template=evaluator.pid)


@pytest.fixture
def listeners(state: Path) -> Iterator[None]:
    """Sockets that would answer."""
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as abstract:
        named.bind(str(state / "socket"))
        named.listen()
        abstract.bind("\0assay-test-abstract")
        abstract.listen()
        yield


@pytest.mark.usefixtures("listeners")
def test_everything_is_refused_to_an_evaluation(
    attempt: Try, evaluator: EvaluatorProcess, state: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"connect 127.0.0.1:{server.getsockname()[1]}"
        names = [filled_in(name, state, evaluator) for name in (*ALWAYS, *ALONE, *PROGRAMS)]
        found = {name: attempt(name) for name in (*names, connect)}
    assert {name: said for name, said in found.items() if not said.startswith("refused")} == {}
    assert attempt("normal") == "SUCCEEDED: all of it"


@pytest.mark.usefixtures("listeners")
def test_everything_is_refused_to_a_training_that_may_start_processes(
    attempt: Try, evaluator: EvaluatorProcess, state: Path
) -> None:
    training = {"kind": "train", "cores": 4}
    names = [filled_in(name, state, evaluator) for name in (*ALWAYS, *PROGRAMS)]
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"connect 127.0.0.1:{server.getsockname()[1]}"
        found = {name: attempt(name, **training) for name in (*names, connect)}
    assert {name: said for name, said in found.items() if not said.startswith("refused")} == {}
    assert attempt("fork", **training).startswith("SUCCEEDED")


@pytest.mark.usefixtures("listeners")
def test_a_training_on_several_devices_reaches_itself_alone(attempt: Try, state: Path) -> None:
    spec = {"kind": "train", "name": "", "execution": {"devices": 2}}
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = f"connect 127.0.0.1:{server.getsockname()[1]}"
        said = attempt("", kind="train", spec=spec | {"name": name})
    assert said.startswith("refused"), "a server of this machine is not in its network"
    for name in ("fork", "run /bin/true"):
        assert attempt("", kind="train", spec=spec | {"name": name}).startswith("SUCCEEDED"), name
    for name in ("connect 127.0.0.1:5432", "connect 127.0.0.1:6379", f"connect_unix {state}/socket"):
        assert attempt("", kind="train", spec=spec | {"name": name}).startswith("refused"), name


def test_the_weights_of_a_request_are_read_and_not_written(attempt: Try, state: Path) -> None:
    weights = str(state / "artifacts" / "other" / "weights.safetensors")
    assert attempt("normal", weights=weights) == "SUCCEEDED: all of it"
    assert attempt(f"read {weights}", weights=weights).startswith("SUCCEEDED")
    assert attempt(f"write {weights}", weights=weights).startswith("refused")
    assert attempt(f"listing {Path(weights).parent}", weights=weights).startswith("refused")
    assert attempt(f"read {weights}", job="next").startswith("refused"), "they were those of the last job"


def test_each_job_has_a_process_of_its_own(evaluator: EvaluatorProcess, state: Path) -> None:
    """Nothing that a job leaves, in memory, in a pipe or as a process, is there in the next."""
    training = {"kind": "train", "cores": 4}
    evaluator.send(request(state, "outlive", **training))
    left = int(answer(evaluator).rpartition(" ")[2])
    assert running(left)
    evaluator.send(request(state, "normal twice", **training))
    assert answer(evaluator) == "forged"
    evaluator.send(request(state, "normal", job="next"))
    assert answer(evaluator) == "SUCCEEDED: all of it"
    assert not running(left)
    assert evaluator.receive(0) is None


def test_the_end_of_the_evaluator_ends_what_its_job_has_left(
    evaluator: EvaluatorProcess, state: Path
) -> None:
    evaluator.send(request(state, "outlive", kind="train", cores=4))
    left = int(answer(evaluator).rpartition(" ")[2])
    child = os.getpgid(left)
    assert child != evaluator.pid
    os.kill(evaluator.pid, signal.SIGKILL)
    evaluator.stop(2)
    wait_for(lambda: not group(child), 20)


def group_members(session: int) -> list[int]:
    """The processes of a session."""
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in found if running(pid) and os.getsid(pid) == session]


MANY = SPARE_PROCESSES + 200


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(f"bomb {MANY}", {"kind": "train", "cores": 4}, marks=pytest.mark.slow),
        (f"threads {MANY}", {}),
        (f"threads {MANY}", {"kind": "train", "cores": 4}),
    ],
)
def test_processes_and_threads_are_limited(state: Path, name: str, kind: dict[str, Any]) -> None:
    """Of root too, whom Linux does not count by itself; by their number, not their memory."""
    evaluator = EvaluatorProcess(hostile(state, max_evaluator_bytes=8 << 30))
    try:
        evaluator.send(request(state, name, **kind))
        said = answer(evaluator)
        assert said.startswith("refused"), said
        count = int(said.partition(" after ")[2].split()[0])
        assert SPARE_PROCESSES - 50 < count <= SPARE_PROCESSES < MAX_TASKS
        evaluator.send(request(state, "normal", **kind))
        assert answer(evaluator) == "SUCCEEDED: all of it"
    finally:
        evaluator.stop(2)


def test_the_supervisor_counts_where_the_kernel_does_not(
    evaluator: EvaluatorProcess, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training on several devices starts programs, so root's stays root's: the kernel does not count it."""
    monkeypatch.setattr(job_limits, "MAX_TASKS", 30)
    watch = EvaluatorWatch(evaluator, state / "artifacts" / "mine", 0, 0.0)
    watch.look()
    spec = {"kind": "train", "name": "bomb 60", "execution": {"devices": 2}}
    evaluator.send(request(state, "", kind="train", spec=spec))

    def over() -> str:
        try:
            watch.look()
        except OverLimit as error:
            return str(error)
        return ""

    said = wait_for(over, 20)
    assert "processes and threads; allowed: 30" in said
    groups = {os.getpgid(pid) for pid in group_members(evaluator.pid)}
    assert len(groups) > 1
    evaluator.stop(2)
    wait_for(lambda: not any(map(group, groups)), 20)


def test_temporary_files_count_among_those_of_a_job(evaluator: EvaluatorProcess, state: Path) -> None:
    folder = state / "artifacts" / "mine"
    evaluator.send(request(state, "normal"))
    assert answer(evaluator) == "SUCCEEDED: all of it"
    (own,) = [path for path in evaluator.temporary_folders if (path / "pipe").exists()]
    EvaluatorWatch(evaluator, folder, 1 << 20, 0.0).look()
    (own / "large").write_bytes(b"x" * (1 << 20))
    with pytest.raises(TooManyFiles, match="ASSAY_MAX_JOB_FILES_BYTES"):
        EvaluatorWatch(evaluator, folder, 1 << 20, 0.0).look()


@pytest.mark.costly
def test_processor_time_is_limited(state: Path) -> None:
    evaluator = EvaluatorProcess(hostile(state, max_processor_seconds=1))
    try:
        evaluator.send(request(state, "spin"))
        with pytest.raises(EvaluatorDied, match="limit of 1 s of processor time"):
            answer(evaluator)
    finally:
        evaluator.stop(2)


@pytest.mark.parametrize(
    "name",
    ["read {state}/assay.sqlite", "environment_of supervisor", "connect 127.0.0.1:6379", "fork", "normal"],
)
def test_a_job_through_a_supervisor_is_refused_too(store: Store, tmp_path: Path, name: str) -> None:
    """The whole way: claimed from the database, run, and its failure recorded."""
    job_id = submit(store, name.format(state=tmp_path))
    with supervising(store, hostile(tmp_path)):
        row = ended(store, job_id)
    assert row.error is not None
    expected = "SUCCEEDED: all of it" if name == "normal" else "refused"
    assert row.error["message"].startswith(expected)
