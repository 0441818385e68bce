"""An embedded service for as long as a `with` block: started on a free port, stopped at the end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from assay.service.client.data_place import wrong
from assay.service.client.jobs import AssayClient
from assay.service.client.transport import KEY_VARIABLE, Unreachable
from assay.service.contract.extras import require
from assay.service.files.state_lock import PRIVATE, Holder, holder_of

MODULE = "assay.workers.embedded"
START_SECONDS = 300.0  # on a busy machine imports and self-tests take minutes
STOP_SECONDS = 60.0
POLL_SECONDS = 0.1
LOG = "service.log"
LINES_SHOWN = 5
MAX_WORKERS = 4  # each holds a copy of the model and of torch
PR_SET_PDEATHSIG = 1
LOGGED = re.compile(r"\d{4}-\d\d-\d\d |\{\"")


@contextlib.contextmanager
def local_service(
    state: Path, *, workers: int | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[AssayClient]:
    """A client of an embedded service, which ends with the block, and with this process.

    The state folder, made if missing, has `service.log`; a next service there resumes unfinished jobs.
    `workers`: evaluators; None: one with a GPU, else one per core, at most four. `environment`: further
    ASSAY_ variables. Raises MissingExtra, an ImportError, without service or worker; InvalidSpec: the folder
    cannot be written; Unreachable, with the log's end: no start, or a service has the folder.
    """
    require("a service on this machine", "service", "worker")
    if (holder := holder_of(state)) is not None:
        raise Unreachable(in_use(holder))
    port = _free_port()
    own = {
        "ASSAY_MODE": "embedded",
        "ASSAY_STATE": str(state.absolute()),
        "ASSAY_HOST": "127.0.0.1",
        "ASSAY_PORT": str(port),
        "ASSAY_WORKERS": str(workers or _workers()),
        "ASSAY_REQUIRE_KEYS": "false",
        **(environment or {}),
    }
    # Without another service's database, and a key unknown to the new service.
    kept = {
        name: text
        for name, text in os.environ.items()
        if name not in ("ASSAY_DATABASE_URL", "ASSAY_REDIS_URL", "ASSAY_URL", KEY_VARIABLE)
    }
    with _log_in(state) as log:
        begun = log.tell()
        process = subprocess.Popen(  # noqa: S603 (our own module)
            [sys.executable, "-P", "-m", MODULE, PRIVATE],
            env=kept | own,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_end_with_parent(),  # noqa: PLW1509 (one system call)
        )
        try:
            with AssayClient(f"http://127.0.0.1:{port}", key="") as client:
                client.state = state
                _wait_until_ready(client, process, state / LOG, begun)
                yield client
        finally:
            process.terminate()
            try:
                process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def in_use(holder: Holder) -> str:
    """Why a call cannot start a service with a state folder, and what to do."""
    use = f"use it: --url {shlex.quote(holder.address)}" if holder.address else "wait until it ends"
    return f"{holder}; {use}, or give this call its own folder: --state DIR"


def _log_in(state: Path) -> IO[bytes]:
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        return (state / LOG).open("ab")
    except OSError as error:
        message = f"cannot be the state folder: {error.strerror}"
        raise wrong(("state",), message, given=str(state), allowed="a folder that can be written") from None


def _wait_until_ready(client: AssayClient, process: subprocess.Popen[bytes], log: Path, begun: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not client.ready():
        if process.poll() is not None or time.monotonic() > deadline:
            lines = log.read_bytes()[begun:].decode(errors="replace").strip().splitlines()
            # Its own words before the log: another service of this folder writes there, too.
            said = [line for line in lines if LOGGED.match(line) is None] or lines
            ended = "" if process.poll() is not None else f"it was not ready within {START_SECONDS:.0f} s; "
            reason = ended + "; ".join(said[-LINES_SHOWN:]) or f"it ended with code {process.returncode}"
            raise Unreachable(
                f"the embedded service did not start: {reason} (its log is {log}; a service that runs is used"
                " with its address: --url, ASSAY_URL)"
            )
        time.sleep(POLL_SECONDS)


def _end_with_parent() -> Callable[[], object] | None:
    """What the child does first: it asks for SIGTERM when this thread ends (Linux)."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _workers() -> int:
    if list(Path("/dev").glob("nvidia[0-9]*")):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MAX_WORKERS)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
