"""A full disk: the training goes on without checkpoints, and no file is ever a part of one."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from assay.workers.jobs.failures import describe
from assay.workers.training import training_log
from assay.workers.training.checkpoint import Checkpoint, Checkpoints
from assay.workers.training.files import save_weights
from assay.workers.training.training_log import LOG_NAME, EpochRecord, TrainingLog
from tests.support.children import in_a_child

pytestmark = pytest.mark.trains

NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
SCRIPT = Path(__file__)


def lines(folder: Path) -> list[dict[str, Any]]:
    """The log without what differs from run to run."""
    found = [json.loads(line) for line in (folder / LOG_NAME).read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in found]


def failing(monkeypatch: pytest.MonkeyPatch, steps: range, error: OSError = NO_SPACE) -> None:
    """Checkpoints of these steps find no room."""
    save = Checkpoints.save

    def limited(self: Checkpoints, checkpoint: Checkpoint) -> Path:
        if checkpoint.step in steps:
            raise error
        return save(self, checkpoint)

    monkeypatch.setattr(Checkpoints, "save", limited)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_training_goes_on_and_says_so(
    standins: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    whole = standins.run(tmp_path / "whole")
    failing(monkeypatch, range(4, 9), OSError(number, os.strerror(number)))
    reports: list[Mapping[str, Any]] = []
    found = standins.run(tmp_path / "full", checkpoint_seconds=0.0, report=reports.append)
    assert found.unsaved == 5
    assert found.weights_path.read_bytes() == whole.weights_path.read_bytes()
    assert lines(tmp_path / "full") == lines(tmp_path / "whole")
    saved = [report["step"] for report in reports if report["type"] == "checkpoint"]
    assert saved == [step for step in range(1, 31) if step not in range(4, 9)]
    messages = {report["done"]: report["message"] for report in reports if report["type"] == "progress"}
    for step in range(4, 9):
        assert "the disk is full: the last checkpoint is of step 3" in messages[step]
    assert "full" not in messages[30]


def test_the_count_survives_an_interruption(
    standins: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, range(4, 9))
    with pytest.raises(KeyboardInterrupt):
        standins.run(tmp_path, checkpoint_seconds=0.0, report=standins.stop_at(9))
    assert standins.run(tmp_path).unsaved == 5


def test_other_errors_of_a_checkpoint_end_the_training(
    standins: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, range(2, 3), OSError(errno.EIO, "Input/output error"))
    with pytest.raises(OSError, match="Input/output"):
        standins.run(tmp_path, checkpoint_seconds=0.0)


def record(epoch: int) -> EpochRecord:
    return EpochRecord(epoch, epoch, 1.0, 0.5, 0.1, 2.0)


def test_lines_of_the_log_wait_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / LOG_NAME
    log = TrainingLog(path, [record(1)])
    resource_limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = path.read_bytes()
    # A part of the next line finds room: the system writes it, and refuses the rest.
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, resource_limits[1]))
    try:
        log.append(record(2))
        log.append(record(3))
        with pytest.raises(OSError, match="too large"):
            log.complete()
        assert path.read_bytes() == before
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, resource_limits)
    log.append(record(4))
    assert [json.loads(line)["epoch"] for line in path.read_text().splitlines()] == [1, 2, 3, 4]
    assert [file.name for file in tmp_path.iterdir()] == [LOG_NAME]

    def refuse(text: str, path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(training_log, "save_text", refuse)
    with pytest.raises(OSError, match="Input/output"):
        TrainingLog(path, [])


def test_a_limit_of_one_file_stops_checkpoints_and_not_the_training(
    standins: ModuleType, tmp_path: Path
) -> None:
    """A real one: the weights are within it, a checkpoint is not."""

    def work() -> Any:
        resource.setrlimit(resource.RLIMIT_FSIZE, (9000, resource.RLIM_INFINITY))
        found = standins.run(tmp_path, checkpoint_seconds=0.0)
        return [found.unsaved, sorted(path.name for path in tmp_path.iterdir())]

    unsaved, files = in_a_child(work)
    assert unsaved == 30
    assert files == [
        "training_curves.svg",
        "training_log.jsonl",
        "weights.safetensors",
        "weights_ema.safetensors",
    ]


def test_weights_that_find_no_room_leave_the_ones_before(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_weights(torch.nn.Linear(2, 2), path, {})
    before = path.read_bytes()

    def work() -> Any:
        resource.setrlimit(resource.RLIMIT_FSIZE, (9000, resource.RLIM_INFINITY))
        try:
            save_weights(torch.nn.Linear(200, 200), path, {})
        except OSError as error:
            return [error.errno, describe(error)["error_type"]]

    assert in_a_child(work) == [errno.EFBIG, "disk_full"]
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


MOUNT = 'mount -t tmpfs -o size=300k tmpfs "$1" && shift && exec "$@"'


def on_a_small_disk(folder: Path, *arguments: str) -> Any:
    """What this file prints when it is run with FOLDER as a disk of 300 KB of its own."""
    mounted = ["unshare", "-Urm", "sh", "-c", MOUNT, "sh", str(folder)]
    command = [*mounted, sys.executable, str(SCRIPT), str(folder), *arguments]
    try:
        subprocess.run(["unshare", "-Urm", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this system lets no user mount a disk")
    environment = os.environ | {"PYTHONPATH": str(SCRIPT.parents[3])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.costly
def test_a_real_full_disk_with_room_in_time(standins: ModuleType, tmp_path: Path) -> None:
    """Room is made again in the middle: the weights and the log are those of a training without trouble."""
    (tmp_path / "disk").mkdir()
    found = on_a_small_disk(tmp_path / "disk", "freed")
    whole = standins.run(tmp_path / "whole")
    assert found["unsaved"] > 0
    assert found["weights"] == whole.weights_path.read_bytes().hex()
    assert found["log"] == lines(tmp_path / "whole")
    assert found["temporary"] == []


@pytest.mark.costly
def test_a_real_full_disk_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    found = on_a_small_disk(tmp_path / "disk", "full")
    assert (found["failure"]["error_type"], found["failure"]["retry"]) == ("disk_full", True)
    assert "No space left on device" in found["failure"]["message"]
    assert found["temporary"] == []
    assert "weights.safetensors" not in found["files"]


def fill(folder: Path) -> Path:
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 512):
                pass
        except OSError:
            return path


def train_on(folder: Path, run: Callable[..., Any], *, freed: bool) -> dict[str, Any]:
    filler: list[Path] = []

    def report(message: Mapping[str, Any]) -> None:
        if message["type"] == "checkpoint" and message["step"] == 3:
            filler.append(fill(folder))
        if message["type"] == "progress" and message["done"] == 18 and freed:
            filler[0].unlink(missing_ok=True)

    facts: dict[str, Any] = {}
    try:
        trained = run(folder, checkpoint_seconds=0.0, report=report)
        facts = {
            "unsaved": trained.unsaved,
            "weights": trained.weights_path.read_bytes().hex(),
            "log": lines(folder),
        }
    except OSError as error:
        facts = {"failure": describe(error)}
    files = sorted(path.name for path in folder.iterdir())
    return facts | {"files": files, "temporary": [name for name in files if name.endswith(".tmp")]}


if __name__ == "__main__":
    sys.path.insert(0, str(SCRIPT.parent))
    import standins as own

    torch.set_num_threads(1)
    print(json.dumps(train_on(Path(sys.argv[1]), own.run, freed=sys.argv[2] == "freed")))
