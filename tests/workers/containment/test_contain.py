"""The parts of the containment, one by one and missing; and what a real evaluator gets of them."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from pydantic import ValidationError

from assay.workers.containment import contain as containing
from assay.workers.containment import landlock, limits, policy, seccomp
from assay.workers.containment.contain import PARTS, contain
from assay.workers.containment.kernel import Unavailable, drop_capabilities
from assay.workers.containment.limits import Limits
from assay.workers.containment.policy import Policy
from assay.workers.containment.probe import Sandbox, missing_parts
from assay.workers.containment.settings import PREFIX, VARIABLE, Containment, from_environment
from assay.workers.containment.system_call_numbers import NUMBERS
from assay.workers.containment.template import sweep
from assay.workers.jobs import check
from assay.workers.jobs.failures import describe
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.evaluator_process import EvaluatorDied, EvaluatorProcess
from tests.support.children import in_a_child
from tests.support.jobs import evaluate_spec
from tests.support.workers import CLEAN, wait_for


def test_a_kernel_that_has_all_parts_lacks_none() -> None:
    """The tests below skip where a part is missing: a defect that reports one must not hide them."""
    release = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    abi = ctypes.CDLL(None).syscall(444, None, 0, 1)
    if release < (6, 12) or abi < 6 or os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip(f"Linux {os.uname().release} with Landlock ABI {abi}")
    assert missing_parts() == {}


contained = pytest.mark.skipif(bool(missing_parts()), reason=f"this machine lacks {list(missing_parts())}")


def trial(folder: Path, **changes: Any) -> Policy:
    values = {"folder": folder, "files": frozenset(), "libraries": (), "temporary": folder}
    return Policy(**(values | changes))


@contained
def test_a_compiler_is_the_one_thing_that_an_allowance_opens(tmp_path: Path) -> None:
    """Programs of the system start; no program of the job's folder, and nothing of others is within reach."""

    def tried() -> dict[str, bool]:
        missing = contain(trial(tmp_path, compiler=True, temporary=tmp_path))
        own = tmp_path / "own"
        own.write_bytes(Path("/bin/true").read_bytes())
        refused: dict[str, Callable[[], object]] = {
            "own program": lambda: subprocess.run([str(own)], check=False),
            "socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
            "file": lambda: Path("/etc/passwd").read_text(),
            "process": lambda: os.kill(os.getppid(), 0),
        }
        started = subprocess.run(["/bin/true"], check=False).returncode == 0
        found = {"missing": bool(missing), "program": started}
        for name, act in refused.items():
            try:
                act()
                found[name] = True
            except OSError:
                found[name] = False
        return found

    (tmp_path / "own").touch(0o777)
    open_to_it = {"missing", "program", "own program", "socket", "file", "process"}
    assert in_a_child(tried) == dict.fromkeys(open_to_it, False) | {"program": True}


@contained
def test_nothing_is_missing_here(tmp_path: Path) -> None:
    assert in_a_child(lambda: contain(trial(tmp_path))) == {}
    assert in_a_child(lambda: contain(trial(tmp_path, processes=True, loopback=True))) == {}


@contained
def test_a_training_uses_shared_memory_and_does_not_see_that_of_others(tmp_path: Path) -> None:
    def work() -> list[str]:
        from multiprocessing import synchronize
        from multiprocessing.context import ForkContext

        contain(trial(tmp_path, processes=True))
        with synchronize.Semaphore(1, ctx=ForkContext()):
            try:
                return os.listdir("/dev/shm")
            except PermissionError:
                return ["refused"]

    assert in_a_child(work) == ["refused"]


@contained
def test_without_landlock_the_rest_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    secret = tmp_path / "secret"
    secret.write_text("x")

    def work() -> tuple[dict[str, str], str, int]:
        missing = contain(trial(tmp_path / "job"))
        try:
            os.fork()
        except PermissionError as error:
            return missing, secret.read_text(), error.errno or 0
        return missing, "", 0

    missing, text, refused = in_a_child(work)
    assert set(missing) == {"files", "truncation", "devices"}
    assert text == "x", "that is what is missing"
    assert refused == errno.EPERM


@contained
def test_an_older_landlock_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 1)
    monkeypatch.setattr(containing, "enter_private_network", _refuse)
    several = trial(tmp_path, processes=True, loopback=True)
    assert set(in_a_child(lambda: contain(several))) == {"truncation", "devices", "signals", "ports"}
    secret = tmp_path.parent / "secret"
    secret.write_text("x")
    assert "PermissionError" in in_a_child(lambda: (contain(several), secret.read_text()))


def _refuse(*arguments: Any, **options: Any) -> None:
    raise Unavailable("refused for the test")


@pytest.mark.costly
@contained
def test_without_a_network_of_its_own_it_has_ephemeral_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containing, "enter_private_network", _refuse)

    def work() -> dict[str, int]:
        import socket

        missing = contain(trial(tmp_path, processes=True, loopback=True))
        found = {f"missing {part}": 1 for part in missing}
        for port in (0, 5432, 6379, 8000):
            with socket.socket() as one:
                found[str(port)] = one.connect_ex(("127.0.0.1", port))
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as one:
            found["own"] = one.connect_ex(server.getsockname())
        return found

    refused = errno.EACCES
    found = in_a_child(work)
    assert found.pop("0") != 0
    assert found == {"5432": refused, "6379": refused, "8000": refused, "own": 0}


@contained
def test_without_seccomp_the_rest_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "install", _refuse)
    secret = tmp_path / "secret"
    secret.write_text("x")
    lacking = {"calls", "sockets", "metadata", "scheduling"}
    assert set(in_a_child(lambda: contain(trial(tmp_path / "job")))) == lacking
    assert "PermissionError" in in_a_child(lambda: (contain(trial(tmp_path / "job")), secret.read_text()))


def test_an_unknown_processor_has_no_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containing, "machine", lambda: "riscv64")
    monkeypatch.setattr(seccomp, "machine", lambda: "riscv64")
    assert "x86_64 and aarch64" in in_a_child(lambda: contain(trial(tmp_path)))["calls"]


def test_elsewhere_than_on_linux_everything_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert contain(trial(tmp_path)).keys() == PARTS.keys()


@pytest.mark.parametrize(("mode", "refuses"), [("off", False), ("auto", False), ("required", True)])
def test_required_takes_no_work_where_a_part_is_missing(
    mode: Any, refuses: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        "assay.workers.containment.probe.missing_parts",
        lambda _: {"files": "no Landlock", "user": "not root"},
    )
    sandbox = Sandbox(WorkerSettings(sandbox=mode).trial)
    sandbox.find_out()
    record = wait_for(lambda: sandbox.record)
    assert record["mode"] == mode
    assert record["missing"] == (list(PARTS) if mode == "off" else ["files"])
    assert sandbox.refuses == refuses
    if mode == "required":
        assert "takes no work" in caplog.text
        assert "files beside those of the job (Landlock)): no Landlock" in caplog.text
        assert "With ASSAY_SANDBOX=auto work is taken" in caplog.text
    if mode != "off":
        assert record["optional"] == ["user"]


@contained
def test_an_evaluator_that_misses_a_part_ends_where_all_are_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = Containment("required", tmp_path)
    monkeypatch.setattr(landlock, "abi", lambda: 3)

    def work() -> int:
        from assay.workers.containment.template import Template

        sys.stderr = os.fdopen(2, "w", closefd=False)  # pytest's has a descriptor that is closed
        served: list[int] = []
        requests, reports = os.pipe()
        template = Template(
            chosen,
            requests,
            reports,
            prepare=lambda request: None,
            serve=lambda *pipes: served.append(1),
            threads=1,
            gpu=False,
        )
        pid = os.fork()
        if pid == 0:
            policy_read, policy_write = os.pipe()
            os.write(policy_write, trial(tmp_path).to_text().encode() + b"\n")
            template._be_a_child(tmp_path, os.getppid(), policy_read, reports)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert in_a_child(work) == 3


def test_every_call_of_the_filter_is_known_on_some_architecture() -> None:
    known = {name for numbers in NUMBERS.values() for name in numbers}
    named = {
        *seccomp.DENIED,
        *seccomp.METADATA,
        *seccomp.SCHEDULING,
        *seccomp.ABSENT,
        *seccomp.PROCESSES,
        *seccomp.PROGRAMS,
        *(name for name, *_ in seccomp.DENIED_BITS),
    }
    assert named <= known
    for numbers in NUMBERS.values():
        assert max(numbers.values()) <= seccomp.NEWEST
        assert len(set(numbers.values())) == len(numbers)


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
@pytest.mark.parametrize("processes", [False, True])
def test_every_jump_of_the_filter_stays_in_it(architecture: str, processes: bool) -> None:
    code = seccomp.program(
        processes=processes,
        programs=processes,
        loopback=processes,
        gpu=False,
        strangers=[1, 2],
        architecture=architecture,
    )
    steps = list(struct.iter_unpack("=HBBI", code))
    assert len(steps) < 4096
    for at, (operation, true, false, _) in enumerate(steps):
        if operation & 7 == 5:
            assert at + 1 + max(true, false) < len(steps)
    assert steps[-1][0] == 6


def test_limits_only_fall() -> None:
    def work() -> list[Any]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        limits.apply(Limits(file_bytes=1 << 30, processor_seconds=50), programs=False, gpu=False)
        kinds = (resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_CORE)
        return [resource.getrlimit(kind) for kind in kinds]

    assert in_a_child(work) == [[1 << 20, 1 << 20], [50, 60], [0, 0]]


def test_a_shard_gets_what_its_plan_needs_and_the_next_one_more() -> None:
    def allocates(size: int) -> bool:
        try:
            return len(mmap.mmap(-1, size)) == size
        except OSError:
            return False

    def work() -> list[Any]:
        limits.narrow(1, 1.0)  # not limited yet: without effect
        before = resource.getrlimit(resource.RLIMIT_AS)
        limits.apply(Limits(memory=1 << 30, processor_seconds=500), programs=False, gpu=False)
        found: list[Any] = [before[0] == resource.getrlimit(resource.RLIMIT_AS)[0]]
        for memory in (1 << 26, 1 << 28, 1 << 40):
            limits.narrow(memory, 20.5)
            found.append([allocates(size) for size in (1 << 25, 1 << 27, 1 << 31)])
        used = resource.getrusage(resource.RUSAGE_SELF)
        soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
        found.append([0 <= soft - (used.ru_utime + used.ru_stime) - 20 < 2, hard])
        limits.narrow(0, 10_000.0)
        return [*found, resource.getrlimit(resource.RLIMIT_CPU)]

    small, larger, largest = [True, False, False], [True, True, False], [True, True, False]
    assert in_a_child(work) == [False, small, larger, largest, [True, 510], [510, 510]]


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [(False, {"shared": False, "reserved": False, "data": False}),
     (True, {"shared": True, "reserved": True, "data": False})],
)  # fmt: skip
def test_addresses_are_limited_on_a_cpu_and_data_on_a_gpu(gpu: bool, expected: dict[str, bool]) -> None:
    """CUDA reserves addresses far beyond any memory; shared memory and reserved addresses are no data."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    kinds: dict[str, dict[str, int]] = {
        "shared": {"flags": mmap.MAP_SHARED | mmap.MAP_ANONYMOUS},
        "reserved": {"flags": private, "prot": mmap.PROT_READ},
        "data": {"flags": private, "prot": mmap.PROT_READ | mmap.PROT_WRITE},
    }

    def allocates(how: dict[str, int]) -> bool:
        try:
            return len(mmap.mmap(-1, 1 << 29, **how)) > 0
        except OSError:
            return False

    def work() -> list[dict[str, bool]]:
        limits.apply(Limits(memory=1 << 30), programs=False, gpu=gpu)
        wide = {name: allocates(how) for name, how in kinds.items()}
        limits.narrow(1 << 28, None)
        return [wide, {name: allocates(how) for name, how in kinds.items()}]

    assert in_a_child(work) == [dict.fromkeys(kinds, True), expected]


def test_a_check_limits_data_and_not_addresses() -> None:
    def work() -> list[bool]:
        found = []
        with check.limited_memory(1 << 28):
            for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
                try:
                    found.append(len(mmap.mmap(-1, 1 << 29, flags | mmap.MAP_ANONYMOUS)) > 0)
                except OSError:
                    found.append(False)
        return found

    assert in_a_child(work) == [True, False]


@pytest.mark.sampled
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
@pytest.mark.parametrize(("user", "programs"), [(0, False), (54321, False), (54321, True)])
def test_a_fork_bomb_ends_at_the_limit(user: int, programs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's too, whose processes Linux does not count by themselves."""
    monkeypatch.setattr(limits, "SPARE_PROCESSES", 20)

    def work() -> int:
        os.setgid(user)
        os.setuid(user)
        limits.apply(Limits(), programs=programs, gpu=False)
        drop_capabilities()
        children = []
        try:
            while len(children) < 40:
                pid = os.fork()
                if pid == 0:
                    signal_wait()
                children.append(pid)
        except BlockingIOError:
            return len(children)
        finally:
            for pid in children:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
        return -1

    assert 15 <= in_a_child(work) <= 20


def signal_wait() -> None:
    import time

    time.sleep(60)
    os._exit(0)


def test_the_share_of_memory() -> None:
    assert WorkerSettings(max_evaluator_bytes=1 << 26).memory_each(4) == 1 << 26
    with pytest.raises(ValidationError, match="5 given; allowed: 0, or at least 16777216 bytes"):
        WorkerSettings(max_evaluator_bytes=5)
    with pytest.raises(ValidationError, match="'A B' given; allowed: names of variables"):
        WorkerSettings(evaluator_environment="A B")
    assert WorkerSettings().memory_each(4) == limits.machine_memory() // 4 > 0


def test_what_is_out_of_memory_is_told_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Containment("auto", Path("/state"), Limits(memory=123_456))
    monkeypatch.setenv(VARIABLE, chosen.to_text())
    assert from_environment() == chosen

    def work() -> list[Any]:
        limits.apply(Limits(memory=1 << 28), programs=False, gpu=False)
        try:
            torch.empty(1 << 32, dtype=torch.uint8)
        except RuntimeError as error:
            failure = describe(error)
            return [failure["error_type"], failure["message"], failure["retry"]]
        return []

    kind, message, retry = in_a_child(work)
    assert (kind, retry) == ("out_of_memory", False)
    assert "the plan of the job needs several times, at most 123,456 bytes (ASSAY_MAX_EVALUATOR" in message


def test_the_folder_of_all_jobs_is_never_a_library(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (tmp_path / "data").mkdir()
    environment = {"ASSAY_DATA_ROOT": str(tmp_path / "data"), "LD_LIBRARY_PATH": f"{tmp_path}:/:{state}"}
    found = policy.libraries(environment, [state])
    assert (tmp_path / "data").resolve() in found
    (tmp_path / "weights").mkdir()
    weights = {"ASSAY_WEIGHTS_ROOT": str(tmp_path / "weights"), "HF_HUB_CACHE": str(tmp_path / "data")}
    found = policy.libraries(weights, [state])
    assert (tmp_path / "weights").resolve() in found
    assert (tmp_path / "data").resolve() not in found, "the hub's cache is none of theirs"
    assert not {tmp_path.resolve(), Path("/"), state.resolve()} & set(found)


def spec_with(*items: dict[str, Any], **data: Any) -> dict[str, Any]:
    """A plan request over an image folder, whose parameters are given, with some evaluations."""
    part = {"name": "image_folder", "params": data}
    return {"kind": "plan", "spec": {"kind": "evaluate", "data": part, "evaluations": [*items]}}


def test_data_beside_the_folder_of_all_jobs_are_read_by_name_alone(tmp_path: Path) -> None:
    state, photos = tmp_path / "assay-state", tmp_path / "photos"
    for folder in (photos / "birds", tmp_path / "words", tmp_path / "frost-photographs"):
        folder.mkdir(parents=True)
    state.mkdir()
    environment = {"ASSAY_DATA_ROOT": str(tmp_path)}

    def opened(request: Any, *forbidden: Path) -> set[str]:
        found = policy.data_of(request, environment, [state, *forbidden])
        return {path.relative_to(tmp_path.resolve()).as_posix() for path in found}

    assert tmp_path.resolve() not in policy.libraries(environment, [state])
    assert opened(spec_with(folder="photos/")) == {"photos"}
    assert policy.data_of(spec_with(folder="photos"), {}, [state]) == frozenset()  # type: ignore[arg-type]
    nested = {"vocabulary": {"name": "wikitext", "params": {"folder": "photos/birds"}}}
    other = {"name": "top1", "params": {}, "data": {"name": "sst", "params": nested}}
    synonyms = {"name": "textfooler", "params": {"vectors": "words"}, "data": None}
    frost = {"name": "corruptions", "params": {"corruptions": ["frost"]}, "data": None}
    assert opened(spec_with(other, synonyms, frost)) == {"photos/birds", "words", "frost-photographs"}
    known = spec_with(folder="photos")
    known["spec"]["data"] = {"name": "cifar10", "params": {"folder": "photos", "download": True}}
    assert opened(known) == {"photos"}
    assert opened({"kind": "self_test"}) == opened({"kind": "plan", "spec": {"kind": "check"}}) == set()


HOSTILE = (
    *("assay-state", "assay-state/", "./assay-state", "photos/../assay-state", "assay-state/jobs/mine"),
    *("link-to-state", "link-to-state/jobs", "link-out", "link-to-root/assay-state", "link-to-root", "loop"),
    *("link-to-hidden", ".ssh", "photos/../.ssh", "photos/.hidden", "keys", "holds", "holds/assay.db"),
    *("link-into-hidden", "photos/.hidden/deeper"),
    *(".", "..", "", "/", "//", "~", "../root", "/etc", "{root}", "{root}/assay-state", "{root}/../other"),
    *("secret.txt", "photos/a.png", "none", "photos\0", "photos\\..", "x" * 5000, "a/" * 3000, "\ud800"),
    *("ASSAY-STATE", "{root}/photos", "photos/../photos", "./photos"),
)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_name_of_a_tenant_opens_what_is_not_data(tmp_path: Path, text: str) -> None:
    root = tmp_path / "root"
    state, keys, database = root / "assay-state", root / "keys", root / "holds" / "assay.db"
    for folder in (
        state / "jobs" / "mine",
        keys,
        database.parent,
        root / ".ssh" / "deeper",
        root / "photos" / ".hidden" / "deeper",
    ):
        folder.mkdir(parents=True)
    (tmp_path / "other").mkdir()
    for file in (database, root / "secret.txt", root / "photos" / "a.png"):
        file.touch()
    links = {"link-to-state": state, "link-out": Path("/usr"), "link-to-root": root, "loop": root / "loop"}
    hidden = {"link-to-hidden": root / ".ssh", "link-into-hidden": root / ".ssh" / "deeper"}
    for name, target in {**links, **hidden}.items():
        (root / name).symlink_to(target)
    request: Any = spec_with(folder=text.replace("{root}", str(root)))
    environment = {"ASSAY_DATA_ROOT": str(root)}
    assert policy.data_of(request, environment, [state, keys, database]) == frozenset()


def test_a_free_text_of_a_tenant_opens_no_folder_of_another(tmp_path: Path) -> None:
    for folder in ("mine", "others", "assay-state"):
        (tmp_path / folder).mkdir()
    request: Any = spec_with({"name": "pgd", "params": {"norm": "others"}, "data": None}, folder="mine")
    table = {"folder": "mine", "text": "others", "label": "others", "class_names": ["others"]}
    request["spec"]["data"] = {"name": "text_table", "params": table}
    request["spec"]["model"] = {"name": "others", "params": {"repository": "others", "folder": "others"}}
    environment = {"ASSAY_DATA_ROOT": str(tmp_path)}
    found = policy.data_of(request, environment, [tmp_path / "assay-state"])
    assert found == {(tmp_path / "mine").resolve()}


def test_a_data_root_in_the_state_folder_opens_no_name_and_a_linked_home_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state" / "data" / "birds").mkdir(parents=True)
    environment = {"ASSAY_DATA_ROOT": str(tmp_path / "state" / "data")}
    request: Any = spec_with(folder="birds")
    assert policy.data_of(request, environment, [tmp_path / "state"]) == frozenset()
    (tmp_path / "home").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path / "linked"))
    (tmp_path / "home" / "birds").mkdir()
    for root, names in ((tmp_path / "home", ["birds"]), (tmp_path, ["home/birds"])):
        environment = {"ASSAY_DATA_ROOT": str(root)}
        assert root.resolve() not in policy.libraries(environment, [Path("/elsewhere")])
        for name in ("home", "linked", *names):
            found = policy.data_of(cast(Any, spec_with(folder=name)), environment, [Path("/elsewhere")])
            assert found == ({(root / name).resolve()} if name in names else frozenset())


def test_the_database_and_the_signing_keys_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_SIGNING_FOLDER", str(tmp_path / "keys"))
    settings = WorkerSettings(state=tmp_path / "state", database_url=f"sqlite:///{tmp_path}/assay.db")
    told = settings.containment
    assert told.private == (tmp_path / "keys", tmp_path / "assay.db")
    monkeypatch.setenv(VARIABLE, told.to_text())
    assert from_environment() == told
    environment = {"ASSAY_DATA_ROOT": str(tmp_path)}
    assert tmp_path.resolve() not in policy.libraries(environment, told.forbidden)


def test_folders_of_dead_templates_are_removed(tmp_path: Path) -> None:
    mine, dead, foreign = (tmp_path / f"{PREFIX}{name}" for name in (f"{os.getpid()}-a", "99999999-b", "c"))
    for folder in (mine, dead, foreign):
        folder.mkdir()
    sweep(tmp_path)
    assert mine.exists()
    assert foreign.exists()
    assert not dead.exists()


@pytest.mark.costly
@contained
def test_the_real_evaluator_is_contained_and_its_template_has_one_thread(tmp_path: Path) -> None:
    chosen = WorkerSettings(state=tmp_path, sandbox="required")
    evaluator = EvaluatorProcess(chosen)
    request: Any = {
        "kind": "plan",
        "job": "job",
        "spec": evaluate_spec(name="") | {"evaluations": [CLEAN]},
        "plan": None,
        "evaluation": 0,
        "start": 0,
        "stop": 0,
        "folder": str(chosen.folder("job")),
        "weights": None,
        "sources": {},
        "shard_seconds": 240.0,
        "checkpoint_seconds": 60.0,
        "cores": 1,
    }
    try:
        evaluator.send(request)
        wait_for(lambda: (message := evaluator.receive(5)) and message["type"] == "plan", 120)
        template, child = status(evaluator.pid), status(children(evaluator.pid)[0])
        assert template["Threads"] == "1"
        assert (child["Seccomp"], child["NoNewPrivs"]) == ("2", "1")
        assert {int(child[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
        os.kill(children(evaluator.pid)[0], 11)
        with pytest.raises(EvaluatorDied, match="SIGSEGV"):
            evaluator.receive(20)
    finally:
        evaluator.stop(2)


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
