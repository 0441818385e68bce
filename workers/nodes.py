"""All nodes of a box: a worker for each visible GPU, pinned to it, or for the CPU.

    python -m assay.workers.nodes

The workers are Celery's, or a gateway's where ASSAY_GATEWAY is set; a single worker takes this process.
A node that dies is started again. SIGTERM or SIGINT ends them all, and each gives its shard back first. At a
gateway the first node delivers the outcomes of nodes that the box no longer has.
"""

from __future__ import annotations

from assay.service.contract.extras import require_to_run

if __name__ == "__main__":
    require_to_run("assay.workers.nodes", "worker")

import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.service.contract import logs
from assay.service.store.connections import settings_of
from assay.workers.containment.kernel import forbid_dumps
from assay.workers.devices import device_files
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.outcome_spool import LEFT, SPOOL

log = logging.getLogger(__name__)
POLL_SECONDS = 0.5
MAX_PAUSE_SECONDS = 30.0
SETTLED_SECONDS = 60.0  # A node's life that counts as a good run
STOP_SECONDS = 50.0
GATEWAY_STOP_SECONDS = 120.0  # its last calls may wait for a gateway that is away
CANNOT_START, WRONG_SETTINGS = 1, 2
WORKER = [sys.executable, "-P", "-m", "assay.workers.worker"]
PR_SET_PDEATHSIG = 1
MIG = "MIG-"
SLOT = re.compile(r"gpu\d+(-\d+)?|cpu\d+")
UUID = re.compile(r"\(UUID: ((?:GPU|MIG)-[^)\s]+)\)")


@dataclass
class Slot:
    """A node's slot: name, GPUs, share of the machine (memory in bytes), process.

    `state`: the folder of a node that works for a gateway, None for Celery's; `left`: as `left_behind`.
    """

    name: str
    gpus: tuple[str, ...]
    devices: int = 1
    cores: int = 1
    memory: int = 0
    state: Path | None = None
    left: Sequence[Path] = ()
    ends_at: float | None = None  # by the monotonic clock
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    pause: float = 0.0

    def start(self) -> None:
        """Start the node's process."""
        own = {
            "ASSAY_DEVICES": str(self.devices),
            "ASSAY_CORES": str(self.cores),
            "ASSAY_MAX_EVALUATOR_BYTES": str(self.memory),
        }
        # Unpinned, a node without a GPU would take the first.
        own["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
        program = command(self.name)
        if self.state is not None:
            program = WORKER
            own["ASSAY_STATE"] = str(self.state)
            own[LEFT] = os.pathsep.join(map(str, self.left))
        if self.ends_at is not None:
            own["ASSAY_WORKER_MAX_SECONDS"] = str(max(1.0, self.ends_at - time.monotonic()))
        environment = {**os.environ, "ASSAY_NODES_PID": str(os.getpid()), "ASSAY_NODE": self.name, **own}
        self.process = subprocess.Popen(  # noqa: S603 (our own program)
            program,
            env=environment,
            preexec_fn=None if self.state is None else _end_with_box,  # noqa: PLW1509 (this process has one thread)
        )
        self.started = time.monotonic()
        log.info("node %s: process %d, GPU %s", self.name, self.process.pid, ", ".join(self.gpus) or "none")

    @property
    def has_ended(self) -> bool:
        """Whether a gateway's node has left by itself, or could not start: it stays ended."""
        code = None if self.process is None else self.process.poll()
        return self.state is not None and code in (0, CANNOT_START, WRONG_SETTINGS)

    def tend(self) -> None:
        """Restart an ended process, with growing delays when it keeps ending."""
        if self.process is None or self.process.poll() is None or self.has_ended:
            return
        lived = time.monotonic() - self.started
        if lived < self.pause:
            return
        log.warning("node %s ended with code %d after %.0f s", self.name, self.process.returncode, lived)
        self.pause = 1.0 if lived > SETTLED_SECONDS else min(MAX_PAUSE_SECONDS, max(1.0, 2 * self.pause))
        self.start()


def command(name: str) -> list[str]:
    """The command line of a node."""
    celery = [sys.executable, "-P", "-m", "assay.workers.doorbell", "--quiet", "worker"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    return [*celery, "--pool", "prefork", "--concurrency", "1", "--hostname", f"{name}@%h", *quiet]


def slots(gpus: Sequence[str], settings: WorkerSettings) -> list[Slot]:
    """A slot for every `devices` GPUs, the last perhaps with fewer; without any, `nodes` on the CPU.

    With `workers_per_gpu` above 1 each GPU has so many slots. A MIG slice has its own slot: CUDA shows a
    process one slice at most.
    """
    whole = [gpu for gpu in gpus if not gpu.startswith(MIG)]
    groups = [tuple(whole[at : at + settings.devices]) for at in range(0, len(whole), settings.devices)]
    groups += [(gpu,) for gpu in gpus if gpu.startswith(MIG)]
    each = settings.workers_per_gpu
    count = each * len(groups) or settings.nodes
    cores, memory = settings.cores_each(count), settings.memory_each(count)
    own = f"{settings.node}-" if settings.node else ""
    if groups:
        return [
            Slot(f"{own}gpu{n}" + (f"-{part}" if each > 1 else ""), group, len(group), cores, memory)
            for n, group in enumerate(groups)
            for part in range(each)
        ]
    return [Slot(f"{own}cpu{n}", (), settings.devices, cores, memory) for n in range(settings.nodes)]


def left_behind(settings: WorkerSettings, own: Collection[Path]) -> list[Path]:
    """State folders of a box, besides its `own`, with outcomes of slots that it had before."""
    mine, prefix = settings.state, f"{settings.node}-" if settings.node else ""
    named = [one for one in mine.glob(f"{prefix}*") if SLOT.fullmatch(one.name.removeprefix(prefix))]
    return [one for one in sorted({mine, *named} - {*own}) if any((one / SPOOL).glob("*.json"))]


def visible_gpus(dev: Path = Path("/dev")) -> list[str]:
    """Values for CUDA_VISIBLE_DEVICES: its own list, else nvidia-smi's GPUs and MIG slices."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name.strip() for name in chosen.split(",") if name.strip() not in {"", "-1"}]
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"],  # noqa: S607 (wherever it is)
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
    except FileNotFoundError as error:
        if device_files(dev):
            _warn(error)
        return []  # no driver: a machine for the CPU
    except (OSError, subprocess.SubprocessError) as error:
        _warn(error)
        return []
    found = _uuids(listed)
    if not found and device_files(dev):
        _warn(ValueError("it lists no GPU"))
    return found


def _uuids(listed: str) -> list[str]:
    groups: list[list[str]] = []
    for name in UUID.findall(listed):
        if not name.startswith(MIG) or not groups:
            groups.append([])
        groups[-1].append(name)
    return [name for group in groups for name in (group[1:] or group)]


def _warn(error: Exception) -> None:
    log.warning(
        "nvidia-smi fails, so this box works on the CPU alone: %s. If it has GPUs: let `nvidia-smi -L` work"
        " (driver, container toolkit, NVIDIA_DRIVER_CAPABILITIES with `utility`), or name them in"
        " CUDA_VISIBLE_DEVICES; `assay doctor` says more",
        error,
    )


def main(arguments: Sequence[str] = ()) -> int:
    """Run this box's nodes until a signal; 0, or 2 for wrong settings."""
    settings = settings_of(WorkerSettings, "assay.workers.nodes", __doc__, arguments)
    if settings is None:
        return WRONG_SETTINGS
    if settings.mode != "distributed" and not settings.gateway:
        sys.stderr.write("ASSAY_MODE: nodes are of the distributed mode; `assay serve` has its own workers\n")
        return WRONG_SETTINGS
    box = slots(visible_gpus(), settings)
    if settings.gateway:
        if len(box) == 1:
            os.environ[LEFT] = os.pathsep.join(map(str, left_behind(settings, [settings.state])))
            os.execv(sys.executable, [*WORKER, *arguments])  # noqa: S606 (our own interpreter and module)
        for slot in box:
            slot.state, slot.ends_at = settings.state / slot.name, _end_of(settings)
        box[0].left = left_behind(settings, [settings.state / slot.name for slot in box])
    logs.set_up(settings.log_level, settings.log_format)
    forbid_dumps()  # an evaluator of the same user must not read its secrets
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda *_: stopping.set())
    return run_box(box, stopping)


def _end_of(settings: WorkerSettings) -> float | None:
    most = settings.worker_max_seconds
    return None if most is None else time.monotonic() + most


def run_box(box: Sequence[Slot], stopping: threading.Event) -> int:
    """Start the nodes and tend them until `stopping` is set or each has left; then end what still runs.

    The highest code of a node that has left, else 0.
    """
    for slot in box:
        slot.start()
    while not stopping.wait(POLL_SECONDS) and not all(slot.has_ended for slot in box):
        for slot in box:
            slot.tend()
    codes = [slot.process.returncode for slot in box if slot.process is not None and slot.has_ended]
    processes = [slot.process for slot in box if slot.process is not None]
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + max(GATEWAY_STOP_SECONDS if slot.state else STOP_SECONDS for slot in box)
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.warning("process %d does not end: killing it", process.pid)
            process.kill()
            process.wait()
    return max(codes, default=0)


def _end_with_box() -> None:
    """Has SIGTERM reach a node, which this process is about to become, when its box is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
