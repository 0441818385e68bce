"""Training on several devices of a machine: one process per device, started and watched by torchrun.

    evaluator                  waits, relays the reports of the first process, then evaluates the model
      workers.training.distributed.torchrun    torchrun
        workers.training.distributed.rank      one per device: trains its part of every batch

All stay in the evaluator's process group, so that one signal ends them, and die with their parent.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.service.contract.messages import Failure, RankFailure, RankReport, TrainedRecord, TrainRequest
from assay.workers import accelerator
from assay.workers.jobs.failures import FailedElsewhere
from assay.workers.jobs.session import resolve_device
from assay.workers.jobs.trainer import Report
from assay.workers.training.result import Trained

POLL_SECONDS = 0.2
STOP_SECONDS = 5.0
# Wait for another process in a sum, for processes that hang (torchrun notices dead processes). Longer than
# what the first process does alone: a checkpoint on a slow disk, a language model's loss on its evaluation
# split.
SUM_TIMEOUT_SECONDS = 15 * 60.0
CHUNK = 1 << 16
REQUEST, REPORTS, DEATH = "request.json", "reports", "death.json"
PREFIX = "assay-training-"
HUNG = "process_hung"  # The contract's error where a process did not answer in time
# No connection leaves the machine.
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
# torchrun starts processes without -P, which would import from the current folder.
SAFE_PATH = {"PYTHONSAFEPATH": "1"}


def train_on_devices(request: TrainRequest, report: Report, timeout: float = SUM_TIMEOUT_SECONDS) -> Trained:
    """Train a request's model in `execution.devices` processes; returns when all have ended.

    A process waits `timeout` seconds at most for another in a sum.
    """
    count = request["spec"]["execution"].get("devices", 1)
    _check_devices(request["spec"]["execution"]["device"], count)
    accelerator.empty_cache()  # leave the GPU memory to the ranks
    with _shared_folder() as folder:
        (folder / REQUEST).write_text(json.dumps(request, default=str))
        os.mkfifo(folder / REPORTS, mode=0o600)
        # Before the first writer connects: polling must report no end of file yet.
        reports = os.open(folder / REPORTS, os.O_RDONLY | os.O_NONBLOCK)
        try:
            trained = _follow(_command(count, folder, timeout), reports, report)
        finally:
            os.close(reports)
        if trained is None:
            raise FailedElsewhere(_reason(folder))
        return trained


def _check_devices(device: str, count: int) -> None:
    if accelerator.is_accelerator(resolve_device(device)) and accelerator.count() < count:
        raise ValueError(
            f"execution.devices is {count}, but this worker has {accelerator.count()}; give a worker so"
            " many with ASSAY_DEVICES"
        )


def _command(count: int, folder: Path, timeout: float) -> list[str]:
    """Torchrun's command line; the rendezvous is a file, not a port."""
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={folder / 'meeting'}", "--rdzv-conf=store_type=file"]
    box = ["--nnodes=1", f"--nproc-per-node={count}", "--max-restarts=0", "--local-addr=127.0.0.1"]
    logs = [f"--log-dir={folder / 'logs'}"]  # created even if unused
    launcher = [
        sys.executable,
        "-P",
        "-m",
        "assay.workers.training.distributed.torchrun",
        str(folder / DEATH),
    ]
    rank = ["-m", "assay.workers.training.distributed.rank", str(folder), str(timeout)]
    return [*launcher, *meeting, *box, *logs, *rank]


def _follow(command: list[str], reports: int, report: Report) -> Trained | None:
    environment = LOOPBACK | dict(os.environ) | SAFE_PATH
    launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)  # noqa: S603
    trained: Trained | None = None
    try:
        ended, pending = False, b""
        while not ended:
            ended = launcher.poll() is not None  # before the last read: nothing is missed
            *lines, pending = (pending + _read(reports)).split(b"\n")
            for line in lines:
                message: RankReport = json.loads(line)
                if message["type"] == "trained":
                    trained = _from_json(message["outcome"])
                else:
                    report(message)
    finally:
        _end(launcher)
    return trained if launcher.returncode == 0 else None


def _read(reports: int) -> bytes:
    poll = select.poll()
    poll.register(reports, select.POLLIN)
    found = b""
    if poll.poll(POLL_SECONDS * 1000):
        while True:
            try:
                chunk = os.read(reports, CHUNK)
            except BlockingIOError:
                break
            if not chunk:
                break
            found += chunk
    return found


def _end(launcher: subprocess.Popen[bytes]) -> None:
    if launcher.poll() is None:
        launcher.terminate()
        try:
            launcher.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            launcher.kill()
            launcher.wait()


def _reason(folder: Path) -> Failure:
    told: list[RankFailure] = [json.loads(path.read_text()) for path in folder.glob("failure-*.json")]
    first = min(told, key=lambda entry: entry["time"])["failure"] if told else None
    if first is not None and (not first["retry"] or first["error_type"] == HUNG):
        return first
    # A killed process reports nothing, the others only that it is gone.
    death = folder / DEATH
    if death.exists() and (killed := json.loads(death.read_text())["killed"]):
        return Failure(error_type="evaluator_raised", message=killed, retry=True)
    if first is not None:
        return first
    message = "the processes of the training ended without a word; the worker's log has their output"
    return Failure(error_type="evaluator_raised", message=message, retry=True)


def to_json(trained: Trained) -> TrainedRecord:
    """The outcome as plain values; paths are text."""
    return {
        "steps": trained.steps,
        "batch_size": trained.batch_size,
        "epochs": trained.epochs,
        "final_loss": trained.final_loss,
        "log_path": str(trained.log_path),
        "curves_path": str(trained.curves_path),
        "weights_path": str(trained.weights_path),
        "average_path": None if trained.average_path is None else str(trained.average_path),
        "at_once": trained.at_once,
        "selected_step": trained.selected_step,
        "reduced": trained.reduced,
        "unsaved": trained.unsaved,
    }


def _from_json(values: TrainedRecord) -> Trained:
    average = values["average_path"]
    return Trained(
        steps=values["steps"],
        batch_size=values["batch_size"],
        epochs=values["epochs"],
        final_loss=values["final_loss"],
        log_path=Path(values["log_path"]),
        curves_path=Path(values["curves_path"]),
        weights_path=Path(values["weights_path"]),
        average_path=None if average is None else Path(average),
        at_once=values["at_once"],
        selected_step=values["selected_step"],
        reduced=values["reduced"],
        unsaved=values["unsaved"],
    )


@contextmanager
def _shared_folder() -> Iterator[Path]:
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = left.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not _alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-") as folder:
        yield Path(folder)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return True
