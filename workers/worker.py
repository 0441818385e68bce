"""A worker in a process of its own: beside an embedded service on its machine, or at a gateway.

    python -P -m assay.workers.worker

It claims from the database in the state folder; with ASSAY_GATEWAY from a service anywhere, and then its
state folder is its own. In an environment of its own it runs what the service's workers cannot: packages that
want other releases of others (docs/operations.md, Extras).
"""

from __future__ import annotations

from assay.service.contract.extras import require_to_run

if __name__ == "__main__":
    require_to_run("assay.workers.worker", "worker")

import contextlib
import logging
import os
import shlex
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from sqlalchemy import make_url

from assay.service.contract import logs
from assay.service.contract.errors import AssayError
from assay.service.contract.fleet import traces
from assay.service.store.connections import settings_of
from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.store import Store, open_store
from assay.workers.containment.kernel import forbid_dumps
from assay.workers.containment.probe import why_refused
from assay.workers.devices import device_classes
from assay.workers.gateway.connection import Gateway
from assay.workers.gateway.files import GatewayFiles
from assay.workers.gateway.ledger import GatewayLedger, NodeWait, left_spools
from assay.workers.identity import identity
from assay.workers.settings import WorkerSettings
from assay.workers.staging.stager import Stager
from assay.workers.supervision.direct_ledger import DirectLedger
from assay.workers.supervision.ledger import GatewayAway, KeyRefused
from assay.workers.supervision.supervisor import Supervisor
from assay.workers.supervision.worker_end import WorkerEnd

log = logging.getLogger(__name__)
CANNOT_START, WRONG_SETTINGS = 1, 2
NAME = "worker"
LOOK_SECONDS = 0.5
AGAIN_SECONDS = 2.0  # Between two goodbyes
STARTED = time.monotonic()
CHECK_PARTS = 8  # Checks of uploads have an eighth of a node's memory
SHARES = 2  # The service's own workers have the other half of the memory


def main(arguments: Sequence[str] = ()) -> int:
    """Work until a signal or the worker's end; a running shard goes back to the queue."""
    settings = settings_of(WorkerSettings, "assay.workers.worker", __doc__, arguments)
    if settings is None:
        return WRONG_SETTINGS
    if (problem := _refused(settings)) is not None:
        sys.stderr.write(f"{problem}\n")
        return CANNOT_START
    logs.set_up(settings.log_level, settings.log_format)
    traces.set_up("assay-worker")
    forbid_dumps()  # an evaluator of the same user must not read its secrets
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda *_: stopping.set())
    if settings.gateway:
        _work_for_gateway(settings, stopping)
        return 0
    memory = settings.memory_each(SHARES)
    settings = settings.model_copy(update={"node": settings.node or NAME, "max_evaluator_bytes": memory})
    with closing(open_store(settings.database, migrate=False)) as store:
        _work(store, settings, stopping)
    return 0


def _refused(settings: WorkerSettings) -> str | None:
    if settings.gateway:
        if settings.worker_key_file is not None and not settings.read_worker_key():
            return f"ASSAY_WORKER_KEY_FILE: {settings.worker_key_file} has no key"
        return _keyless(settings) or _not_ours(settings.state) or why_refused(settings.trial)
    if settings.mode != "embedded":
        return "ASSAY_MODE: the workers of the distributed mode are `python -P -m assay.workers.nodes`"
    address = make_url(settings.database)
    if address.get_backend_name() == "sqlite" and not settings.state.joinpath("lock").is_file():
        return (
            f"no service has been started with the state folder {settings.state}: begin with"
            f" `assay serve --state {shlex.quote(str(settings.state))}`"
        )
    return why_refused(settings.trial)


def _keyless(settings: WorkerSettings) -> str | None:
    """Why a worker without a key is refused; a gateway that is away is waited for."""
    if settings.read_worker_key():
        return None
    with closing(Gateway(settings)) as gateway, contextlib.suppress(GatewayAway, AssayError):
        try:
            gateway.call("/gone", {"worker": "keyless"})
        except KeyRefused as error:
            return f"ASSAY_WORKER_KEY, ASSAY_WORKER_KEY_FILE: missing; the gateway answers: {error}"
    return None


def _not_ours(folder: Path) -> str | None:
    """Makes a node's state folder; why it is refused, where another user could change what waits there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
            return f"--state: {folder} is not a folder of this user; give this worker its own"
        folder.chmod(0o700)
    except OSError as error:
        return f"--state: {folder} cannot be used: {error.strerror}"
    return None


def _work(store: Store, settings: WorkerSettings, stopping: threading.Event) -> None:
    end = _end_of(settings)
    ledger = DirectLedger(store, settings)
    supervisor = Supervisor(
        ledger,
        settings,
        files=ledger.files,
        device_classes=device_classes(),
        seconds_left=end.seconds_left,
    )
    libraries = ", ".join(f"{name} {version}" for name, version in identity().get("libraries", {}).items())
    log.info("worker %s of %s, with %s", supervisor.known_as, settings.state, libraries or "no library")
    _supervise(settings, [supervisor], end, stopping)


def _work_for_gateway(settings: WorkerSettings, stopping: threading.Event) -> None:
    end = _end_of(settings)
    with closing(Gateway(settings)) as gateway:
        files, wait = GatewayFiles(gateway, settings), NodeWait()
        ledgers = GatewayLedger(gateway, files, asks=wait), GatewayLedger(gateway, files, waits=wait)
        classes = device_classes(), (CHECKS,)
        supervisors = [
            Supervisor(
                ledger,
                settings.model_copy(update={"max_evaluator_bytes": memory}),
                device_classes=mine,
                number=n,
                files=files,
                seconds_left=end.seconds_left,
                left=[] if n else left_spools(gateway, settings, lambda folder: _not_ours(folder) is None),
            )
            for n, (ledger, mine, memory) in enumerate(zip(ledgers, classes, parts(settings), strict=True))
        ]
        log.info("worker %s at the gateway %s", supervisors[0].known_as, settings.gateway)

        def leave(supervisor: Supervisor) -> None:
            with contextlib.suppress(GatewayAway, AssayError):  # its wait then ends by itself
                gateway.call("/gone", {"worker": supervisor.worker_id})

        _supervise(settings, supervisors, end, stopping, leave)


def parts(settings: WorkerSettings) -> tuple[int, int]:
    """Bytes of memory of a node's evaluator for work, and of the other for checks."""
    whole, checks = settings.memory_each(1), settings.memory_each(CHECK_PARTS)
    return (whole if settings.max_evaluator_bytes else whole - checks), checks


def _end_of(settings: WorkerSettings) -> WorkerEnd:
    return WorkerEnd(
        settings.worker_idle_seconds, settings.worker_max_seconds, settings.cancel_grace_seconds, STARTED
    )


def _supervise(
    settings: WorkerSettings,
    supervisors: Sequence[Supervisor],
    end: WorkerEnd,
    stopping: threading.Event,
    leave: Callable[[Supervisor], None] = lambda supervisor: None,
) -> None:
    stager = Stager(settings, [supervisor.inventory for supervisor in supervisors])
    stager.start()
    for supervisor in supervisors:
        supervisor.start()
    why = None
    while not stopping.wait(LOOK_SECONDS) and why is None:
        idle = min(supervisor.idle_seconds for supervisor in supervisors)
        why = end.reason(idle, cordoned=supervisors[0].is_cordoned)
    log.info("worker %s ends: %s", supervisors[0].known_as, why or "a signal")
    for supervisor in supervisors:
        supervisor.stop()
    stager.stop()
    with ThreadPoolExecutor(len(supervisors)) as leaving:  # a call may take half a minute
        list(leaving.map(lambda supervisor: _end(supervisor, leave), supervisors))


def _end(supervisor: Supervisor, leave: Callable[[Supervisor], None]) -> None:
    """Waits for its end. A question for a shard may arrive after the goodbye, and be answered late."""
    leave(supervisor)
    supervisor.join(AGAIN_SECONDS)
    while supervisor.is_alive():
        leave(supervisor)
        supervisor.join(AGAIN_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
