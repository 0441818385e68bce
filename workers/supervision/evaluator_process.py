"""The evaluator process: start, requests, reports, and its end with all its children.

Requests and reports have their own pipes, because libraries print to stdout. A session of its own lets one
signal end the process group; it ends itself when its request pipe closes (`workers.evaluator`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.service.contract.messages import EvaluatorReport, EvaluatorRequest
from assay.service.contract.weights.pulled import VARIABLE as WEIGHTS_ROOT
from assay.workers.containment.settings import PREFIX, VARIABLE
from assay.workers.evaluator_link import REPORTS, REQUESTS
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.evaluator_output import EvaluatorOutput, Rate
from assay.workers.supervision.report_bounds import SMALL
from assay.workers.supervision.reports import AllowedReports, BadReport

log = logging.getLogger(__name__)

CHUNK = 1 << 16
# It sends two each second; more wait in its pipe, and it with them.
REPORTS_AT_ONCE, REPORTS_PER_SECOND = 200, 20.0
POLL_SECONDS = 0.5
LAST_WORDS_SECONDS = 1.0


class EvaluatorDied(Exception):
    """The evaluator ended, closed its pipe, or broke the protocol, before it answered."""


class ProtocolBroken(EvaluatorDied):
    """The evaluator sent what its request does not allow; for the job's user."""


class UnfitWorker(Exception):
    """No device of this worker passed its self-test; the message says why."""


@dataclass(frozen=True)
class Work:
    """Processor time of an evaluator and its children, and whether any is stopped."""

    seconds: float
    stopped: bool


class EvaluatorProcess:
    """One evaluator; make it in a long-lived thread, whose death kills it. Raises OSError: no program."""

    def __init__(self, settings: WorkerSettings) -> None:
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            request_read, self._request_write = os.pipe()
            theirs.callback(os.close, request_read)
            ours.callback(os.close, self._request_write)
            self._report_read, report_write = os.pipe()
            theirs.callback(os.close, report_write)
            ours.callback(os.close, self._report_read)
            self._process = subprocess.Popen(  # noqa: S603 (the command is the operator's setting)
                settings.evaluator_argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(request_read, report_write),
                start_new_session=True,
                env=_environment(settings, request_read, report_write),
            )
            self._processor_seconds = settings.containment.limits.processor_seconds
            self._pipes = ours.pop_all()  # closed by `stop`, or without a process
        os.set_blocking(self._request_write, False)
        self.has_served = False  # a job's request, whose output may be in `last_output`
        self._outgoing = b""
        self._ticket = 0
        self._allowed: AllowedReports | None = None
        self._rate = Rate(REPORTS_AT_ONCE, REPORTS_PER_SECOND)
        self._late = 0  # reports to earlier requests
        self._incoming = bytearray()
        self._searched = 0  # bytes without an end of line
        assert self._process.stdout is not None
        self._output = EvaluatorOutput(self._process.stdout, self.pid)

    @property
    def pid(self) -> int:
        """The evaluator's process id, which is also its process group."""
        return self._process.pid

    @property
    def about(self) -> Mapping[str, str]:
        """Fields of its output in the log: its present job and shard."""
        return self._output.about

    @about.setter
    def about(self, fields: Mapping[str, str]) -> None:
        self._output.about = fields

    @property
    def last_output(self) -> str:
        """The last printed lines, without control characters."""
        return self._output.tail

    @property
    def tasks(self) -> int:
        """Processes and threads of its session, which none can leave; 0 but on Linux."""
        return sum(int(fields[17]) for fields in _members(self.pid))

    @property
    def work(self) -> Work:
        """What its session's processes have done, and whether all could go on."""
        members = [*_members(self.pid)]
        ticks = sum(int(field) for fields in members for field in fields[11:15])
        return Work(ticks / os.sysconf("SC_CLK_TCK"), any(fields[0] in "Tt" for fields in members))

    @property
    def temporary_folders(self) -> list[Path]:
        """The folders for temporary files of its template's evaluators."""
        return list(Path(tempfile.gettempdir()).glob(f"{PREFIX}{self.pid}-*"))

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._exit() is None

    def send(self, request: EvaluatorRequest) -> None:
        """Send a request without waiting: `receive` sends the rest."""
        self._ticket += 1
        self._allowed, self._late = AllowedReports.of(request), 0
        self.has_served |= request["kind"] not in ("self_test", "hash")
        numbered = {**request, "ticket": self._ticket, "report_bytes": self._allowed.bounds.size}
        self._outgoing += json.dumps(numbered, separators=(",", ":")).encode() + b"\n"
        self._push()

    def receive(self, timeout: float) -> EvaluatorReport | None:
        """The next report, or None within `timeout` seconds."""
        try:
            line = self._next_line(timeout)
            if line is None:
                return None
            if self._allowed is None:
                raise BadReport(f"it sent a report that none has asked for: {line[:200]!r}")
            return self._allowed.report(line)
        except BadReport as error:
            raise ProtocolBroken(str(error)) from None

    def _next_line(self, timeout: float) -> bytes | None:
        self._rate.wait()
        deadline = time.monotonic() + timeout
        bounds = SMALL if self._allowed is None else self._allowed.bounds
        while (line := self._line()) is None:
            if len(self._incoming) > bounds.size:
                raise BadReport(f"it sent a report of more than {bounds.size:,} bytes")
            left = deadline - time.monotonic()
            readable = self._wait(min(max(left, 0.0), POLL_SECONDS))
            if readable:
                chunk = os.read(self._report_read, CHUNK)
                if not chunk:
                    raise EvaluatorDied(self._how_it_ended())
                self._incoming += chunk
            elif not self.alive() and not self._wait(0):
                raise EvaluatorDied(self._how_it_ended())  # A child of the evaluator may hold the pipe open
            elif left <= 0:
                return None
        return line

    def stop(self, grace: float) -> None:
        """SIGTERM to the group, `grace` seconds later SIGKILL; returns when the process is gone."""
        if self._process.returncode is not None:
            return
        self._signal(signal.SIGTERM)
        if not self._gone_within(grace):
            log.warning("evaluator %d ignored SIGTERM for %.0f s", self.pid, grace)
        # Children left behind are in its group. It is not reaped yet: its number cannot be another group's.
        self._signal(signal.SIGKILL)
        _end_groups_of(self.pid)
        self._process.wait()
        self._pipes.close()
        self._output.join(POLL_SECONDS)  # Processes that left the group may hold stdout open

    def _exit(self) -> int | None:
        if self._process.returncode is not None:
            return self._process.returncode
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _push(self) -> None:
        try:
            while self._outgoing:
                self._outgoing = self._outgoing[os.write(self._request_write, self._outgoing) :]
        except BlockingIOError:
            return
        except OSError as error:
            raise EvaluatorDied(self._how_it_ended()) from error

    def _wait(self, seconds: float) -> bool:
        """Waits for a report, sends the rest of the request. True when there is data to read."""
        # select() refuses descriptors above 1023.
        poll = select.poll()
        poll.register(self._report_read, select.POLLIN)
        if self._outgoing:
            poll.register(self._request_write, select.POLLOUT)
        ready = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
        if self._request_write in ready:
            self._push()
        return self._report_read in ready

    def _line(self) -> bytes | None:
        """The next report to the present request; reports to earlier requests are dropped.

        A template marks each with its request's ticket (`containment/template.py`); without a template there
        is no mark.
        """
        while (end := self._incoming.find(b"\n", self._searched)) >= 0:
            line = bytes(self._incoming[:end])
            del self._incoming[: end + 1]
            self._searched = 0
            ticket, space, report = line.partition(b" ")
            if not space or not ticket.isdigit():
                return line
            if ticket == b"%d" % self._ticket:
                return report
            if not self._late:
                log.warning("evaluator %d: a report came after the end of its request", self.pid)
            self._late += 1
        self._searched = len(self._incoming)
        return None

    def _how_it_ended(self) -> str:
        if not self._gone_within(LAST_WORDS_SECONDS):
            return "closed its pipe, but still runs"
        self._output.join(LAST_WORDS_SECONDS)  # its last output is complete
        code = self._exit()
        if code == -signal.SIGKILL:
            return "killed by SIGKILL, perhaps for want of memory"
        if code == -signal.SIGXCPU:
            limit = f"its limit of {self._processor_seconds:,} s of processor time"
            return f"it used up {limit} (ASSAY_MAX_PROCESSOR_SECONDS), or the time of its job in every thread"
        if code is not None and code < 0:
            return f"killed by {_signal_name(-code)}"
        return f"exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# Freed memory stays with the process. glibc would give large tensors back to the kernel and take them again,
# page by page, in every pass (`benchmarks.allocator`). Variables already set are kept.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(4 << 30)}


# An evaluator holds no credentials: it gets these variables alone.
PASSED_ON = frozenset(
    {
        *(
            "PATH",
            "HOME",
            "TMPDIR",
            "LANG",
            "LANGUAGE",
            "TZ",
            "TZDIR",
            "LD_LIBRARY_PATH",
            "LD_PRELOAD",
            "VIRTUAL_ENV",
            "GLIBC_TUNABLES",
        ),
        *("PYTHONPATH", "PYTHONHASHSEED", "PYTHONWARNINGS", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"),
        *("PYTHONNOUSERSITE", "PYTHONFAULTHANDLER", "MPLBACKEND", "ATEN_CPU_CAPABILITY"),
        *("ASSAY_CATALOG", "ASSAY_COMMIT", "ASSAY_DATA_ROOT"),
    }
)
PASSED_ON_PREFIXES = (
    *("LC_", "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "NCCL_", "GLOO_", "OMP_", "GOMP_", "KMP_", "MKL_"),
    *("OPENBLAS_", "ONEDNN_", "DNNL_", "TORCH_", "PYTORCH_", "TORCHINDUCTOR_", "TRITON_", "MALLOC_"),
)


def _environment(settings: WorkerSettings, requests: int, reports: int) -> dict[str, str]:
    named = PASSED_ON | settings.evaluator_variables
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in named or name.startswith(PASSED_ON_PREFIXES)
    }
    if settings.data_root is not None:
        kept["ASSAY_DATA_ROOT"] = str(settings.data_root)
    threads = str(settings.torch_threads)
    packages = str(Path(__file__).absolute().parents[3])
    path = os.pathsep.join(filter(None, [packages, kept.get("PYTHONPATH")]))
    return (
        ALLOCATOR
        | kept
        | {
            WEIGHTS_ROOT: str(settings.weights_root),
            "HF_HUB_OFFLINE": "1",
            REQUESTS: str(requests),
            REPORTS: str(reports),
            VARIABLE: settings.containment.to_text(),
            "ASSAY_TORCH_THREADS": threads,
            "ASSAY_WORKERS_PER_GPU": str(settings.workers_per_gpu),
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            # Its user has no name there.
            "LOGNAME": "assay",
        }
    )


def _end_groups_of(session: int) -> None:
    """Kill a session's process groups: a template's evaluator has its own, and cannot leave the session."""
    for group in {int(fields[2]) for fields in _members(session)} - {session}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _members(session: int) -> Iterator[list[str]]:
    """A session's processes: fields of `/proc/PID/stat` from the state on."""
    for name in os.listdir("/proc") if sys.platform == "linux" else ():
        if name.isdigit():
            try:
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[3]) == session:
                yield fields
