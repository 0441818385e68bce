"""A real embedded service in its own process, spoken to over HTTP, killed when a test says so."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.client import AssayClient

ROOT = Path(__file__).resolve().parents[2]
FAST = {
    "ASSAY_POLL_SECONDS": "0.1",
    "ASSAY_CONTROL_SECONDS": "0.5",
    "ASSAY_CANCEL_GRACE_SECONDS": "2",
}


class RunningService:
    """One service on one state folder; it can be killed and started again."""

    def __init__(self, state: Path, **environment: str) -> None:
        self.state = state
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self.client: AssayClient

    def start(self) -> RunningService:
        """Start and wait until it answers."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        own = {"ASSAY_STATE": str(self.state), "ASSAY_PORT": str(port), **FAST, **self._environment}
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ASSAY_")}
        self.log = self.state.with_suffix(".log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "workers.embedded"],
            cwd=ROOT,
            env=kept | own,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        self.client = AssayClient(f"http://127.0.0.1:{port}")
        process = self._process
        wait_for(lambda: self.client.ready() or process.poll() is not None, 60)
        if process.poll() is not None:
            self.stop()
            raise AssertionError(self.state.with_suffix(".log").read_text()[-3000:])
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def evaluators(self) -> list[int]:
        """Process ids of the evaluators that belong to this service."""
        return [pid for pid, parent in processes().items() if parent == self.pid]

    def kill(self) -> None:
        """SIGKILL, as a crash or the out-of-memory killer does it."""
        assert self._process is not None
        self.client.close()
        self._process.kill()
        self._process.wait()
        self.log.close()

    def stop(self) -> None:
        """SIGTERM, as an operator does it."""
        self.client.close()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(timeout=60)
        self.log.close()


def processes() -> dict[int, int]:
    """Process id -> parent id of everything that runs."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(entry.name)] = int(parent)
    return found


def wait_for(condition: Callable[[], Any], seconds: float) -> Any:
    """Poll until the condition holds; the tests' only clock."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s")


def kill(pid: int) -> None:
    """SIGKILL to one process."""
    os.kill(pid, signal.SIGKILL)
