"""What a hostile evaluator tries, contained as every evaluator on this machine is."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from assay.workers.containment.limits import SPARE_PROCESSES
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.evaluator_process import EvaluatorDied, EvaluatorProcess
from assay.workers.supervision.job_limits import EvaluatorWatch, OverLimit
from tests.hostile.attempt import Attempt, Target

HOSTILE = f"{sys.executable} -P {Path(__file__).resolve().parents[1] / 'support' / 'hostile_evaluator.py'}"
LIMITS: dict[str, Any] = {
    "max_evaluator_bytes": 256 << 20,
    "max_processor_seconds": 2,
    "max_file_bytes": 8 << 20,
}
MANY = SPARE_PROCESSES + 200
# The policy of a machine with NVIDIA devices.
HOSTILE_ON_GPU = f"env HOSTILE_GPU=1 {HOSTILE}"
# A user of its own, and no other part of the containment.
HOSTILE_USER = f"env HOSTILE_USER=1 {HOSTILE}"
EVALUATION: dict[str, Any] = {"kind": "evaluate", "cores": 1}
TRAINING: dict[str, Any] = {"kind": "train", "cores": 4}


def tried(name: str, target: Target, kind: dict[str, Any], **changes: Any) -> str:
    """What came of an attempt, in a contained evaluator of its own."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        chosen = WorkerSettings(
            state=state, sandbox="required", **({"evaluator_command": HOSTILE} | LIMITS | changes)
        )
        evaluator = EvaluatorProcess(chosen)
        try:
            places = {
                "state": target.state,
                "service": target.pid,
                "template": evaluator.pid,
                "library": os.__file__,
                "own": state,
            }
            other = chosen.folder("other")
            other.mkdir(parents=True)
            (other / "weights").write_text("secret")
            (state / "signing").mkdir()
            for file in ("assay.sqlite", "signing/key.pem"):
                (state / file).write_text("secret")
            spec = {"kind": kind["kind"], "name": name.format(**places), "execution": {"devices": 1}}
            request: Any = kind | {
                "job": "job",
                "spec": spec,
                "folder": str(chosen.folder("job")),
                "weights": None,
            }
            evaluator.send(request)
            message = evaluator.receive(60)
        except EvaluatorDied as error:
            return f"refused: {error}"
        finally:
            evaluator.stop(2)
    assert message is not None, "no answer within a minute"
    assert message["type"] == "error", message
    return message["message"]


def refused(name: str, kind: dict[str, Any], target: Target, **changes: Any) -> str:
    said = tried(name, target, kind, **changes)
    assert said.startswith("refused: "), said
    return said.removeprefix("refused: ")


def connection(target: Target) -> str:
    """To a server of this machine that would answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return refused(f"connect 127.0.0.1:{server.getsockname()[1]}", EVALUATION, target)


def too_many(name: str, kind: dict[str, Any], target: Target) -> str:
    """Of processes or threads: refused by their number, not for the time or memory that they take."""
    said = refused(name, kind, target, max_processor_seconds=60, max_evaluator_bytes=8 << 30)
    count = int(said.partition(" after ")[2].split()[0])
    assert SPARE_PROCESSES - 50 < count <= SPARE_PROCESSES, said
    return said


def many_files(target: Target) -> str:
    """Each is within the limit of a file; their supervisor counts them."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = WorkerSettings(state=Path(folder), sandbox="required", evaluator_command=HOSTILE, **LIMITS)
        evaluator = EvaluatorProcess(chosen)
        try:
            watch = EvaluatorWatch(evaluator, chosen.folder("job"), 16 << 20, 0.0)
            spec = {"kind": "evaluate", "name": "fill_with_many 32", "execution": {"devices": 1}}
            request: Any = EVALUATION | {"job": "job", "spec": spec, "weights": None}
            evaluator.send(request | {"folder": str(chosen.folder("job"))})
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                assert evaluator.receive(0.1) is None, "it got to its end"
                watch.look_when_due()
        except OverLimit as error:
            return str(error)
        finally:
            evaluator.stop(2)
    raise AssertionError("32 MiB were written where 16 are allowed")


def evaluation(name: str) -> Callable[[Target], str]:
    return partial(refused, name, EVALUATION)


def training(name: str) -> Callable[[Target], str]:
    return partial(refused, name, TRAINING)


def descriptors(target: Target) -> str:
    """A descriptor that the supervisor has open and inheritable."""
    secret = os.open(target.state, os.O_RDONLY)
    try:
        os.set_inheritable(secret, True)
        return refused("open_descriptors", EVALUATION, target)
    finally:
        os.close(secret)


def forbidden(name: str, kind: dict[str, Any], gpu: bool, target: Target) -> str:
    """Refused by a rule, not for the want of what is asked for; the state folder stays as it is."""
    before = state_of(target.state)
    command = HOSTILE_ON_GPU if gpu else HOSTILE
    said = refused(name, kind, target, evaluator_command=command)
    assert said.startswith("PermissionError"), said
    assert state_of(target.state) == before
    return said


def state_of(path: Path) -> tuple[int, ...]:
    """Mode, owner and extended attributes of a file."""
    found = path.stat()
    return (found.st_mode, found.st_uid, found.st_gid, len(os.listxattr(path)))


def a_datagram(kind: dict[str, Any], gpu: bool, target: Target) -> str:
    """To a socket that would take it."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(f"{folder}/log")
        server.settimeout(0.1)
        said = forbidden(f"datagram {folder}/log", kind, gpu, target)
        with suppress(TimeoutError):
            raise AssertionError(f"it came: {server.recv(100)!r}")
    return said


def a_packet(target: Target) -> str:
    """The connection that CUDA asks for, to a server that would take it."""
    packets = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with tempfile.TemporaryDirectory() as folder, packets as server:
        server.bind(f"{folder}/control")
        server.listen()
        said = refused(f"packet {folder}/control", EVALUATION, target, evaluator_command=HOSTILE_ON_GPU)
    assert "No such file" in said, said
    return said


def by_its_user(name: str, kind: dict[str, Any], target: Target) -> str:
    """Refused by the kernel's ordinary rules alone."""
    said = refused(name, kind, target, evaluator_command=HOSTILE_USER, sandbox_user="required")
    assert said.startswith("PermissionError"), said
    return said


# By the evaluators of root: others have no user to give.
BY_ITS_USER = (
    ("signals the service", "signals supervisor"),
    ("chooses the service's processors", "affinity {service}"),
    ("slows the service's scheduling", "scheduler {service}"),
    ("reads the service's environment", "read /proc/{service}/environ"),
    ("reads the service's memory", "read /proc/{service}/mem"),
    ("takes the state folder's mode away", "mode {own},0"),
    ("sets the times of the state folder", "times {own}"),
    ("lists the state folder", "listing {own}"),
    ("lists the artifacts", "listing {own}/artifacts"),
    ("watches the artifacts by inotify", "watch {own}/artifacts"),
    ("reads the database", "read {own}/assay.sqlite"),
    ("truncates the database", "truncate {own}/assay.sqlite"),
    ("reads another job's file", "read {own}/artifacts/other/weights"),
    ("plants a file in another job's folder", "write {own}/artifacts/other/planted"),
    ("becomes root", "system_call setresuid,0,0,0"),
)
# Each by an evaluation and by a training, without a GPU and with its policy.
ON_FILES_AND_PROCESSES = (
    ("takes the state folder's mode away", "mode {state},0"),
    ("opens the state folder to all", "mode {state},777"),
    ("gives the state folder away", "owner {state}"),
    ("takes the database's mode away", "mode {own}/assay.sqlite,0"),
    ("opens the signing key to all", "mode {own}/signing/key.pem,666"),
    ("sets the times of the state folder", "times {state}"),
    ("sets an extended attribute of the state folder", "attribute {state}"),
    ("sets flags of a library's file", "file_flags {library}"),
    ("watches the artifacts by inotify", "watch {state}/artifacts"),
    ("watches the artifacts by fanotify", "system_call fanotify_init,0,0"),
    ("chooses the service's processors", "affinity {service}"),
    ("slows the service's scheduling", "scheduler {service}"),
    ("sets the service's scheduling parameters", "system_call sched_setparam,{service},0"),
    ("sets the service's scheduling attributes", "system_call sched_setattr,{service},0,0"),
    ("signals the service by F_SETOWN", "owned_by F_SETOWN,{service}"),
    ("signals the service by F_SETOWN_EX", "owned_by F_SETOWN_EX,{service}"),
    ("signals the service by FIOSETOWN", "owned_by FIOSETOWN,{service}"),
    ("removes semaphores", "system_call semctl,0,0,0,0"),
    ("sends a message with an address in memory", "system_call sendmsg,0,0,0"),
)
KINDS = (
    ("an evaluator", EVALUATION, False),
    ("a training", TRAINING, False),
    ("an evaluator on a GPU", EVALUATION, True),
    ("a training on a GPU", TRAINING, True),
)

ATTEMPTS: tuple[Attempt, ...] = (
    Attempt("an evaluator lists the service's state folder", evaluation("listing {state}")),
    Attempt("an evaluator lists the other jobs' artifacts", evaluation("listing {state}/artifacts")),
    Attempt("an evaluator reads the service's environment", evaluation("read /proc/{service}/environ")),
    Attempt("an evaluator reads the service's memory", evaluation("read /proc/{service}/mem")),
    Attempt("a training reads the service's environment", training("read /proc/{service}/environ")),
    Attempt("a training reads the service's memory", training("read /proc/{service}/mem")),
    Attempt("an evaluator reads its supervisor's environment", evaluation("environment_of supervisor")),
    Attempt("an evaluator reads /etc/shadow", evaluation("read /etc/shadow")),
    Attempt("an evaluator connects to a server of the machine", connection),
    Attempt("an evaluator connects to Redis", evaluation("connect 127.0.0.1:6379")),
    Attempt(
        "an evaluator connects to PostgreSQL's socket",
        evaluation("connect_unix /var/run/postgresql/.s.PGSQL.5432"),
    ),
    Attempt("a training connects to Redis", training("connect 127.0.0.1:6379")),
    Attempt("an evaluator writes into the state folder", evaluation("write {state}/planted")),
    Attempt("an evaluator links to the database file", evaluation("symlink {state}/assay.sqlite")),
    Attempt("an evaluator traces its parent", evaluation("system_call ptrace,16,{template},0,0")),
    Attempt("an evaluator makes a user namespace", evaluation("system_call unshare,268435456")),
    Attempt("an evaluator makes a network namespace", evaluation("system_call unshare,1073741824")),
    Attempt("an evaluator loads a BPF program", evaluation("system_call bpf,0,0,0")),
    Attempt("an evaluator starts an io_uring", evaluation("system_call io_uring_setup,1,0")),
    Attempt("an evaluator forks", evaluation("fork")),
    Attempt("an evaluator starts a program", evaluation("run /bin/true")),
    Attempt("an evaluator leaves its session", evaluation("system_call setsid")),
    Attempt("a training leaves its process group", training("system_call setpgid,0,0")),
    Attempt("an evaluator signals its supervisor", evaluation("signals supervisor")),
    Attempt("a training signals its supervisor", training("signals supervisor")),
    Attempt("an evaluator allocates 1 GiB of 256 MiB", evaluation("allocate 1073741824")),
    Attempt("an evaluator writes a file of 16 MiB where 8 are allowed", evaluation("fill 16777216")),
    Attempt("an evaluator writes 32 files of 1 MiB where 16 MiB are allowed", many_files),
    Attempt("an evaluator starts threads without end", partial(too_many, f"threads {MANY}", EVALUATION)),
    Attempt("a training forks without end", partial(too_many, f"bomb {MANY}", TRAINING)),
    Attempt("an evaluator changes its user", evaluation("system_call setresuid,0,0,0")),
    Attempt("a training starts a program", training("run /bin/true")),
    Attempt("an evaluator computes without end", evaluation("spin")),
    Attempt("an evaluator looks for inherited descriptors", descriptors),
    *(
        Attempt(f"{who} {title}", partial(forbidden, name, kind, gpu))
        for who, kind, gpu in KINDS
        for title, name in ON_FILES_AND_PROCESSES
    ),
    *(
        Attempt(f"{who} sends to a socket with a path", partial(a_datagram, kind, gpu))
        for who, kind, gpu in KINDS
    ),
    Attempt("an evaluator on a GPU connects to a socket with a path", a_packet),
    *(
        Attempt(
            f"{who} of its own user, without Landlock and filter, {title}", partial(by_its_user, name, kind)
        )
        for who, kind, gpu in KINDS
        for title, name in BY_ITS_USER
        if os.getuid() == 0 and not gpu
    ),
)
