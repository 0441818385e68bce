"""The evaluator as a process: started, spoken to, listened to, and ended with everything it started.

The evaluator has a pipe of its own for requests and one for reports, because libraries print to
stdout. It runs in its own session, so that one signal ends its process group, and it ends itself
when its request pipe closes (`workers.evaluator`).
"""

from __future__ import annotations

import collections
import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.settings import WorkerSettings

log = logging.getLogger(__name__)

Message = dict[str, Any]
REQUESTS = "ASSAY_REQUESTS_FD"
REPORTS = "ASSAY_REPORTS_FD"
# An evaluator holds no credentials: it gets these variables and nothing else that starts with ASSAY_.
PASSED_ON = ("ASSAY_DATA_ROOT", "ASSAY_TORCH_THREADS")


class EvaluatorDied(Exception):
    """The evaluator's report pipe closed before it answered."""


class EvaluatorProcess:
    """One evaluator. Make it in a long-lived thread: the death signal follows that thread."""

    def __init__(self, settings: WorkerSettings) -> None:
        request_read, self._request_write = os.pipe()
        self._report_read, report_write = os.pipe()
        self._process = subprocess.Popen(  # noqa: S603 (the command is the operator's setting)
            settings.evaluator_argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(request_read, report_write),
            start_new_session=True,
            env=_environment(settings, request_read, report_write),
        )
        os.close(request_read)
        os.close(report_write)
        self._buffer = b""
        self._tail: collections.deque[str] = collections.deque(maxlen=50)
        threading.Thread(target=self._drain, name=f"drain-{self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        """The evaluator's process id, which is also its process group."""
        return self._process.pid

    @property
    def last_output(self) -> str:
        """The last lines that the process printed."""
        return "\n".join(self._tail)

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def send(self, request: Mapping[str, Any]) -> None:
        """Hand over one request.

        Raises:
            EvaluatorDied: it no longer reads.
        """
        line = json.dumps(request, separators=(",", ":")).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self._request_write, line) :]
        except OSError as error:
            raise EvaluatorDied(str(error)) from error

    def receive(self, timeout: float) -> Message | None:
        """The next report, or None when none came within `timeout` seconds.

        Raises:
            EvaluatorDied: the pipe closed.
        """
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if not select.select([self._report_read], [], [], max(left, 0))[0]:
                return None
            chunk = os.read(self._report_read, 1 << 16)
            if not chunk:
                raise EvaluatorDied(f"exit code {self._process.wait()}")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        message: Message = json.loads(line)
        return message

    def stop(self, grace: float) -> None:
        """SIGTERM to the group, `grace` seconds later SIGKILL; returns when the process is gone."""
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=grace)
        except subprocess.TimeoutExpired:
            log.warning("evaluator %d ignored SIGTERM for %.0f s", self.pid, grace)
        # Children that it left behind are in its group too.
        self._signal(signal.SIGKILL)
        self._process.wait()
        for descriptor in (self._request_write, self._report_read):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _drain(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            line = raw.decode(errors="replace").rstrip()
            self._tail.append(line)
            log.info("evaluator %d: %s", self.pid, line)


def _environment(settings: WorkerSettings, requests: int, reports: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")}
    kept |= {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    if settings.data_root is not None:
        kept["ASSAY_DATA_ROOT"] = str(settings.data_root)
    threads = str(settings.torch_threads)
    packages = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [packages, kept.get("PYTHONPATH")]))
    return kept | {
        REQUESTS: str(requests),
        REPORTS: str(reports),
        "ASSAY_TORCH_THREADS": threads,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
