"""The template of a supervisor's evaluators: forks one contained process for each job.

    supervisor  requests ->  template  requests ->  evaluator of a job
                <- reports             <- reports

Landlock's restrictions cannot be lifted, and torch takes seconds to import. So this process imports
everything, stays unrestricted and touches no job; for each job it forks a child, which restricts itself to
the job's files before it reads any. No child's memory serves two tenants. A child is forked ahead, to be
ready. The template has one thread, no CUDA context, and alone reads the request pipe. It passes requests on,
and reports back, each marked with the request's ticket: what a child writes after its answer, or leaves
unfinished, is never the answer to another job. When the job changes, it ends the child with all that it
started. It dies as the child dies: a supervisor sees one evaluator.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from assay.service.contract.messages import EvaluatorRequest
from assay.service.files.job_files import FOLDER_MODE
from assay.workers.containment import contain
from assay.workers.containment.kernel import PR_SET_PDEATHSIG, close_descriptors, forbid_dumps, prctl
from assay.workers.containment.policy import (
    Policy,
    data_of,
    files_of,
    libraries,
    needs_compiler,
    needs_loopback,
    needs_processes,
    users_here,
)
from assay.workers.containment.settings import PREFIX, Containment
from assay.workers.evaluator_link import die_with_parent

log = logging.getLogger(__name__)
CHUNK = 1 << 16
CAN_START_NONE = 3
MAX_REPORT_BYTES = 1 << 28
POLL_SECONDS = 0.02
LAST_SECONDS = 1.0
# Lead libraries to caches and temporary files.
TEMPORARY = (
    *("TMPDIR", "HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
    "CUDA_CACHE_PATH",
)

Serve = Callable[[int, int], None]
"""Serves requests until its pipe closes: descriptors of requests and reports."""


@dataclass
class Child:
    """The evaluator of a job, and this process's ends of its pipes."""

    pid: int
    temporary: Path
    requests: int
    reports: int
    ended: int | None  # readable when it ends; None on older kernels
    modules: int  # imported at its fork
    policy: Policy | None = None  # of its job; None before one
    ticket: int = 0
    once: bool = False  # serves no second request
    report_bytes: int = MAX_REPORT_BYTES  # of its present request
    buffer: bytearray = field(default_factory=bytearray)


class Template:
    """Forks evaluators, between them and the supervisor.

    `prepare`: imports a request's modules of Assay. `serve`: the evaluator, in the child.
    """

    def __init__(
        self,
        chosen: Containment,
        requests: int,
        reports: int,
        *,
        prepare: Callable[[EvaluatorRequest], None],
        serve: Serve,
        rehearse: Callable[[], None] = lambda: None,
        threads: int,
        gpu: bool,
    ) -> None:
        self._chosen = chosen
        self._requests = requests
        self._reports = reports
        self._prepare = prepare
        self._serve = serve
        self._rehearse = rehearse
        self._threads = threads
        self._gpu = gpu
        self._users = users_here(chosen, os.environ, gpu=gpu)
        self._pending = b""
        self._child: Child | None = None
        self._spare: Child | None = None
        # Before an import reads it: jobs read pulled weights alone.
        os.environ["HF_HUB_OFFLINE"] = "1"
        sweep()
        signal.signal(signal.SIGTERM, self._terminate)
        # A signal that can be caught: the child's group must end too.
        parent = os.getppid()
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(0)
        forbid_dumps()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def run(self) -> None:
        """Pass on requests and reports until the request pipe closes."""
        while True:
            poll = select.poll()
            poll.register(self._requests, select.POLLIN)
            child = self._child
            if child is not None:
                poll.register(child.reports, select.POLLIN)
                if child.ended is not None:
                    poll.register(child.ended, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll(None if child is None or child.ended else 200)}
            # Requests first: they may end the child with waiting reports.
            if self._requests in ready:
                self._read_requests()
            if child is not None and child is self._child:
                if child.reports in ready and not self._forward(child):
                    self._die_if_it_has(child, grace=LAST_SECONDS)
                elif child.reports in ready and child.once and not child.buffer:
                    # It would keep its device's context until the first job.
                    self._end(child)
                    self._child = None
                    continue
                if child.ended in ready or child.ended is None:
                    self._die_if_it_has(child)

    def _read_requests(self) -> None:
        chunk = os.read(self._requests, CHUNK)
        if not chunk:
            self._end(self._child)
            self._end(self._spare)
            os._exit(0)
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        for line in lines:
            self._hand_over(line)

    def _hand_over(self, line: bytes) -> None:
        request: EvaluatorRequest = json.loads(line)
        processes = needs_processes(request, self._threads)
        needs = {"processes": processes, "compiler": needs_compiler(request, self._chosen)}
        if self._child is not None and not covers(self._child.policy, request, **needs):
            self._end(self._child)
            self._child = None
        # Before the fork: later evaluators have it already.
        self._prepare(request)
        fresh = self._child is None
        if self._child is None:
            self._child = self._take_child()
            self._child.policy = self._policy(request, processes, self._child.temporary)
            self._send(self._child, self._child.policy.to_text().encode())
        self._child.ticket = request.get("ticket", 0)
        self._child.report_bytes = request.get("report_bytes", MAX_REPORT_BYTES)
        self._child.once = request["kind"] in ("self_test", "hash")
        self._send(self._child, line)
        # A fork after a self-test would lack the first job's imports.
        if fresh and request["kind"] != "self_test":
            self._spare = self._fork()

    def _policy(self, request: EvaluatorRequest, processes: bool, temporary: Path) -> Policy:
        # A self-test or a hash is of no job: its evaluator serves nothing else.
        folder = Path(request["folder"]) if request["folder"] else temporary
        with contextlib.suppress(OSError):  # the evaluator says so at its first file
            folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        return Policy(
            folder=folder,
            files=files_of(request) | data_of(request, os.environ, self._chosen.forbidden),
            # For each job: the weights folder may be new.
            libraries=libraries(os.environ, self._chosen.forbidden),
            temporary=temporary,
            limits=self._chosen.limits,
            processes=processes,
            loopback=needs_loopback(request),
            gpu=self._gpu,
            compiler=needs_compiler(request, self._chosen),
            users=self._users,
        )

    def _send(self, child: Child, line: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # its end says how it died
            _write(child.requests, line + b"\n")

    def _take_child(self) -> Child:
        """The waiting process; a new one if imports since its fork are missing."""
        spare, self._spare = self._spare, None
        if spare is not None and spare.modules == len(sys.modules):
            return spare
        if spare is not None:
            self._end(spare)
        return self._fork()

    def _fork(self) -> Child:
        temporary = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        request_read, request_write = os.pipe()
        report_read, report_write = os.pipe()
        gc.freeze()  # the collector would copy all shared pages
        sys.stdout.flush()
        sys.stderr.flush()
        template, pid = os.getpid(), os.fork()
        if pid == 0:
            self._be_a_child(temporary, template, request_read, report_write)
        with contextlib.suppress(OSError):  # either may be first
            os.setpgid(pid, pid)
        os.close(request_read)
        os.close(report_write)
        ended = None
        with contextlib.suppress(AttributeError, OSError):
            ended = os.pidfd_open(pid)
        return Child(pid, temporary, request_write, report_read, ended, len(sys.modules))

    def _be_a_child(self, temporary: Path, template: int, requests: int, reports: int) -> None:
        """Get ready, wait for a job, contain this process, and serve; never returns."""
        status = 1
        try:
            # A group that it cannot leave: one signal ends all that it starts.
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            die_with_parent()
            if os.getppid() != template:
                os._exit(0)
            close_descriptors({requests, reports})
            os.environ.update(dict.fromkeys(TEMPORARY, str(temporary)))
            tempfile.tempdir = None
            self._rehearse()
            missing = contain.contain(Policy.from_text(_first_line(requests)))
            die_with_parent(template)  # a change of user has taken that back
            missing = contain.demanded(missing, self._chosen.users)
            if (problem := contain.refusal(missing, self._chosen.mode)) is not None:
                sys.stderr.write(f"{problem}\n")
                status = CAN_START_NONE
            else:
                self._serve(requests, reports)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _forward(self, child: Child) -> bool:
        chunk = os.read(child.reports, CHUNK)
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            _write(self._reports, b"%d %s%s\n" % (child.ticket, child.buffer, line))
            child.buffer.clear()
        child.buffer += rest
        if len(child.buffer) > child.report_bytes:
            sys.stderr.write(f"the evaluator sent a line of more than {child.report_bytes} bytes\n")
            _kill_group(child.pid)
        return bool(chunk)

    def _die_if_it_has(self, child: Child, grace: float = 0.0) -> None:
        """Die as the child did, if it has ended; it is killed after a grace in seconds."""
        deadline = time.monotonic() + grace
        while not os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if grace == 0.0:
                return
            if time.monotonic() > deadline:
                sys.stderr.write("the evaluator closed its report pipe, but still ran\n")
                _kill_group(child.pid)
                break
            time.sleep(POLL_SECONDS)
        # Not reaped: its number cannot be another group's.
        _kill_group(child.pid)
        status = os.waitpid(child.pid, 0)[1]
        os.set_blocking(child.reports, False)
        with contextlib.suppress(BlockingIOError):
            while self._forward(child):
                pass
        shutil.rmtree(child.temporary, ignore_errors=True)
        self._end(self._spare)
        die_like(status)

    def _end(self, child: Child | None) -> None:
        if child is None:
            return
        _kill_group(child.pid)
        os.waitpid(child.pid, 0)
        for descriptor in (child.requests, child.reports, child.ended):
            if descriptor is not None:
                os.close(descriptor)
        shutil.rmtree(child.temporary, ignore_errors=True)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        del frame
        for child in filter(None, (self._child, self._spare)):
            _kill_group(child.pid)
            shutil.rmtree(child.temporary, ignore_errors=True)
        die_like(number)


def _kill_group(pid: int) -> None:
    # Right after the fork the group may be missing.
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def die_like(status: int) -> None:
    """End this process as one of this wait status ended; never returns."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.waitstatus_to_exitcode(status))


def covers(
    policy: Policy | None, request: EvaluatorRequest, *, processes: bool, compiler: bool = False
) -> bool:
    """Whether a process under a policy can serve a request: same job, no further needs."""
    return (
        policy is not None
        and policy.folder == Path(request["folder"])
        and files_of(request) <= policy.files
        and policy.processes >= processes
        and policy.loopback == needs_loopback(request)
        and policy.compiler == compiler
    )


def _first_line(descriptor: int) -> str:
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            os._exit(0)  # no job came
        line += byte
    return line.decode()


def _write(descriptor: int, line: bytes) -> None:
    while line:
        line = line[os.write(descriptor, line) :]


def sweep(folder: Path | None = None, alive: Collection[int] | None = None) -> None:
    """Removes the temporary folders of evaluators whose template was killed."""
    for left in (folder or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        owner = left.name.removeprefix(PREFIX).partition("-")[0]
        running = (
            int(owner) in alive if alive is not None and owner.isdigit() else Path("/proc", owner).exists()
        )
        if owner.isdigit() and not running:
            shutil.rmtree(left, ignore_errors=True)
