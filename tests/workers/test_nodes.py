"""A box of Celery nodes: how it starts, what its nodes do, how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from assay.service import server
from assay.service.dispatch import CeleryDispatcher
from assay.service.store.store import Store, open_store
from assay.workers import nodes
from assay.workers.settings import WorkerSettings
from tests.e2e.running import command_line, processes
from tests.support.databases import *  # noqa: F403 (fixtures)
from tests.support.servers import PrivateRedis
from tests.support.workers import FAKE, ended, losses_and_failures, running, submit, wait_for

ROOT = Path(__file__).resolve().parents[2]
Box = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def redis_server() -> Iterator[PrivateRedis]:
    with PrivateRedis() as server:
        yield server


@pytest.fixture
def store(emptied_postgresql_url: str) -> Iterator[Store]:
    with open_store(emptied_postgresql_url, migrate=False) as opened:
        yield opened


@pytest.fixture
def box(emptied_postgresql_url: str, redis_server: PrivateRedis, tmp_path: Path) -> Iterator[Box]:
    """Starts `workers.nodes` with the fake evaluator; ended at the end of the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(**changes: str) -> subprocess.Popen[bytes]:
        environment = {
            "ASSAY_MODE": "distributed",
            "ASSAY_DATABASE_URL": emptied_postgresql_url,
            "ASSAY_REDIS_URL": redis_server.url,
            "ASSAY_STATE": str(tmp_path / "state"),
            "ASSAY_EVALUATOR_COMMAND": f"{sys.executable} -S {FAKE}",
            "ASSAY_CONTROL_SECONDS": "0.1",
            "ASSAY_CANCEL_GRACE_SECONDS": "2",
            "CUDA_VISIBLE_DEVICES": "",
            **changes,
        }
        with (tmp_path / "nodes.log").open("ab") as log:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "assay.workers.nodes"],
                    cwd=ROOT,
                    env=os.environ | environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.wait(timeout=60)


def family(pid: int) -> list[int]:
    """A process and everything that descends from it."""
    everything, found = processes(), [pid]
    for one in found:
        found += [child for child, parent in everything.items() if parent == one]
    return found


def evaluators(pid: int) -> list[int]:
    return [one for one in family(pid) if FAKE.name in command_line(one)]


@pytest.mark.slow
def test_a_ring_wakes_an_idle_node_and_its_plan_wakes_the_others(
    box: Box, store: Store, redis_server: PrivateRedis
) -> None:
    """With polls an hour apart, only doorbells can make two nodes share a job."""
    started = box(ASSAY_NODES="2", ASSAY_POLL_SECONDS="3600", ASSAY_SWEEP_SECONDS="3600")
    wait_for(lambda: store.workers.online("cpu") == 2)
    dispatcher = CeleryDispatcher(redis_server.url)
    try:
        job_id = submit(store, "shards=16 evaluate:seconds=0.5")

        def both_work() -> bool:
            return len({row.worker for row in store.shards.running()}) == 2

        # A node says that it is online a moment before it listens.
        while store.jobs.get(job_id).state == "queued":
            dispatcher.ring(job_id, "auto")
            time.sleep(0.5)
        wait_for(both_work)
        assert ended(store, job_id).state == "succeeded"
    finally:
        dispatcher.close()
    assert len(evaluators(started.pid)) == 2, "they stay warm"


@pytest.mark.slow
def test_without_doorbells_the_reaper_wakes_the_node(
    box: Box, store: Store, redis_server: PrivateRedis
) -> None:
    box(ASSAY_POLL_SECONDS="3600", ASSAY_SWEEP_SECONDS="0.2")
    wait_for(lambda: store.workers.online("cpu") == 1)
    job_id = submit(store, "lost doorbell")
    assert ended(store, job_id).state == "succeeded"


@pytest.mark.slow
def test_sigterm_gives_the_shard_back_uncounted(box: Box, store: Store) -> None:
    started = box()
    job_id = submit(store, "shards=1 seconds=600")
    wait_for(lambda: store.shards.running() and evaluators(started.pid))
    everything = family(started.pid)
    started.terminate()
    assert started.wait(timeout=60) == 0
    assert not [pid for pid in everything if running(pid)]
    assert store.shards.running() == []
    assert {shard.state for shard in store.shards.of(job_id)} == {"queued"}
    assert losses_and_failures(store, job_id) == (0, 0)
    assert store.workers.online("cpu") == 0


@pytest.mark.slow
def test_after_kill_9_of_the_launcher_its_nodes_give_their_shard_back_and_end(box: Box, store: Store) -> None:
    """tests/e2e/test_storm.py kills the nodes themselves."""
    started = box()
    job_id = submit(store, "shards=2 evaluate:seconds=1.5")
    wait_for(lambda: store.shards.running() and evaluators(started.pid))
    (evaluator,) = evaluators(started.pid)
    launcher, celery, supervisor = family(started.pid)[:3]
    os.kill(launcher, signal.SIGKILL)
    wait_for(lambda: not any(running(pid) for pid in (evaluator, celery, supervisor)))
    assert store.shards.running() == []
    assert store.workers.online("cpu") == 0
    box()
    assert ended(store, job_id).state == "succeeded"
    assert losses_and_failures(store, job_id) == (0, 0)


def test_a_slot_for_each_group_of_gpus_and_as_many_cpu_nodes_as_asked_for(tmp_path: Path) -> None:
    def slots(gpus: list[str], **settings: int) -> list[tuple[str, tuple[str, ...], int, int]]:
        found = nodes.slots(gpus, WorkerSettings(state=tmp_path, cores=3, **settings))
        return [(slot.name, slot.gpus, slot.devices, slot.cores) for slot in found]

    named = nodes.slots([], WorkerSettings(state=tmp_path, node="right", nodes=2))
    assert [slot.name for slot in named] == ["right-cpu0", "right-cpu1"]
    assert slots(["a", "b"], nodes=5) == [("gpu0", ("a",), 1, 3), ("gpu1", ("b",), 1, 3)]
    assert slots(["a", "b", "c"], devices=2) == [("gpu0", ("a", "b"), 2, 3), ("gpu1", ("c",), 1, 3)]
    shared = slots(["a", "MIG-b"], workers_per_gpu=2)
    assert [(name, gpus) for name, gpus, _, _ in shared] == [
        ("gpu0-0", ("a",)),
        ("gpu0-1", ("a",)),
        ("gpu1-0", ("MIG-b",)),
        ("gpu1-1", ("MIG-b",)),
    ]
    whole = nodes.slots(["a"], WorkerSettings(state=tmp_path))
    parts = nodes.slots(["a"], WorkerSettings(state=tmp_path, workers_per_gpu=2))
    assert [slot.memory for slot in parts] == [whole[0].memory // 2] * 2
    with pytest.raises(ValidationError, match="shares none of them; allowed: 1"):
        WorkerSettings(state=tmp_path, devices=2, workers_per_gpu=2)
    assert slots([], nodes=2, devices=4) == [("cpu0", (), 4, 3), ("cpu1", (), 4, 3)]


def listing(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An `nvidia-smi` of this script."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


GPUS = """cat <<'END'
GPU 0: NVIDIA H200 (UUID: GPU-1234)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-5678)
  MIG 3g.20gb     Device  0: (UUID: MIG-aa-1)
  MIG 3g.20gb     Device  1: (UUID: MIG-aa-2)
END"""


def test_visible_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listing(tmp_path, GPUS, monkeypatch)
    assert nodes.visible_gpus() == ["GPU-1234", "MIG-aa-1", "MIG-aa-2"], "of a cut GPU its slices"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1, 3")
    assert nodes.visible_gpus() == ["1", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert nodes.visible_gpus() == []


@pytest.mark.parametrize("script", ["echo 'Failed to initialize NVML' >&2; exit 9", "true"])
def test_where_nvidia_smi_fails_the_nodes_see_no_gpu_and_say_what_helps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, script: str
) -> None:
    listing(tmp_path, script, monkeypatch)
    (tmp_path / "nvidia0").touch()
    assert nodes.visible_gpus(tmp_path) == []
    assert "this box works on the CPU alone" in caplog.text
    assert "NVIDIA_DRIVER_CAPABILITIES" in caplog.text
    (slot,) = nodes.slots([], WorkerSettings(state=tmp_path))
    seen = tmp_path / "seen"
    command = ["/bin/sh", "-c", f'echo "[$CUDA_VISIBLE_DEVICES] $ASSAY_NODE" > {seen}']
    monkeypatch.setattr(nodes, "command", lambda name: command)
    slot.start()
    assert slot.process is not None
    slot.process.wait()
    assert seen.read_text() == "[] cpu0\n", "set and empty: no GPU is claimed unpinned"


def test_device_files_without_nvidia_smi_are_said_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nodes.visible_gpus(tmp_path) == []
    assert caplog.text == "", "a machine without a GPU"
    (tmp_path / "nvidia0").touch()
    assert nodes.visible_gpus(tmp_path) == []
    assert "nvidia-smi fails" in caplog.text


def test_a_slice_has_a_node_of_its_own(tmp_path: Path) -> None:
    found = nodes.slots(["GPU-1", "MIG-1", "MIG-2", "GPU-2"], WorkerSettings(state=tmp_path, devices=2))
    assert [(slot.name, slot.gpus, slot.devices) for slot in found] == [
        ("gpu0", ("GPU-1", "GPU-2"), 2),
        ("gpu1", ("MIG-1",), 1),
        ("gpu2", ("MIG-2",), 1),
    ]


def test_a_node_is_pinned_to_its_gpu_and_started_later_and_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pinned = tmp_path / "pinned"
    monkeypatch.setattr(
        nodes,
        "command",
        lambda name: [
            "/bin/sh",
            "-c",
            f'echo "{name} $CUDA_VISIBLE_DEVICES $ASSAY_DEVICES $ASSAY_CORES" >> {pinned}; exit 3',
        ],
    )
    clock = [1000.0]
    monkeypatch.setattr(nodes.time, "monotonic", lambda: clock[0])
    slot = nodes.Slot("gpu1", ("GPU-b", "GPU-c"), 2, 6)
    slot.start()
    pauses = []
    for _ in range(7):
        assert slot.process is not None
        slot.process.wait()
        begun = clock[0]
        count = len(pinned.read_text().splitlines())
        process = slot.process
        while slot.process is process:
            clock[0] += 0.5
            slot.tend()
        pauses.append(clock[0] - begun)
        slot.process.wait()
        assert len(pinned.read_text().splitlines()) == count + 1
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert set(pinned.read_text().splitlines()) == {"gpu1 GPU-b,GPU-c 2 6"}


@pytest.mark.parametrize(("code", "starts"), [(0, 1), (1, 1), (2, 1), (3, 2)])
def test_a_gateways_node_that_has_left_or_cannot_start_stays_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, starts: int
) -> None:
    """2 is also its answer where no time for a shard is left."""
    script = (
        f'echo "$ASSAY_STATE $ASSAY_WORKER_MAX_SECONDS $ASSAY_LEFT_BEHIND" >> {tmp_path}/starts;'
        f"[ $(wc -l < {tmp_path}/starts) -gt 1 ] && exit 0; exit {code}"
    )
    monkeypatch.setattr(nodes, "WORKER", ["/bin/sh", "-c", script])
    slot = nodes.Slot("gpu0", (), state=tmp_path / "gpu0", ends_at=time.monotonic() + 500)
    slot.left = [tmp_path / "gpu1", tmp_path / "gpu2"]
    assert nodes.run_box([slot], threading.Event()) == (code if starts == 1 else 0)
    lines = [line.split() for line in (tmp_path / "starts").read_text().splitlines()]
    assert [line[0] for line in lines] == [str(tmp_path / "gpu0")] * starts
    assert all(490 < float(line[1]) <= 500 for line in lines)
    assert {line[2] for line in lines} == {f"{tmp_path}/gpu1:{tmp_path}/gpu2"}


def test_a_gateway_has_a_worker_for_each_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = {"GATEWAY": "http://127.0.0.1:1", "WORKER_KEY": "assay_x", "STATE": str(tmp_path), "NODE": "lab"}
    for name, value in given.items():
        monkeypatch.setenv(f"ASSAY_{name}", value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c")
    monkeypatch.setattr("assay.service.contract.logs.set_up", lambda *given: None)
    monkeypatch.setattr(nodes, "forbid_dumps", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *given: None)
    boxes: list[list[nodes.Slot]] = []

    def run_box(box: list[nodes.Slot], stopping: threading.Event) -> int:
        boxes.append(box)
        return 0

    monkeypatch.setattr(nodes, "run_box", run_box)
    gone = tmp_path / "lab-gpu3"
    (gone / "spool").mkdir(parents=True)
    (gone / "spool" / "shard-1.json").touch()
    assert nodes.main() == 0
    assert [slot.left for slot in boxes[0]] == [[gone], (), ()]
    assert [(slot.name, slot.gpus, slot.state, slot.ends_at) for slot in boxes[0]] == [
        (f"lab-gpu{n}", (f"GPU-{letter}",), tmp_path / f"lab-gpu{n}", None) for n, letter in enumerate("abc")
    ]
    monkeypatch.setenv("ASSAY_DEVICES", "3")
    replaced: list[list[str]] = []
    monkeypatch.setenv(nodes.LEFT, "")

    def take_its_place(path: str, command: list[str]) -> None:
        replaced.append([*command, os.environ[nodes.LEFT]])
        raise SystemExit

    monkeypatch.setattr(os, "execv", take_its_place)
    with pytest.raises(SystemExit):
        nodes.main()
    assert replaced == [[*nodes.WORKER, str(gone)]]


@pytest.mark.parametrize(
    ("own", "node", "left"),
    [
        (["gpu0", "gpu1"], "", [".", "cpu0", "gpu0-1", "gpu3"]),
        (["."], "", ["cpu0", "gpu0-1", "gpu1", "gpu3"]),
        (["lab-gpu0"], "lab", [".", "lab-gpu7"]),
    ],
)
def test_what_earlier_slots_of_a_box_left_is_found(
    tmp_path: Path, own: list[str], node: str, left: list[str]
) -> None:
    for name in (".", "cpu0", "gpu0-1", "gpu1", "gpu3", "lab-gpu7", "other", "gpu4x"):
        (tmp_path / name / "spool").mkdir(parents=True)
        (tmp_path / name / "spool" / "shard-1.json").touch()
    (tmp_path / "gpu8" / "spool").mkdir(parents=True)  # delivered all
    found = nodes.left_behind(WorkerSettings(state=tmp_path, node=node), [tmp_path / name for name in own])
    assert found == [tmp_path / name for name in left]


def test_wrong_settings_are_a_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASSAY_MODE", "distributed")
    monkeypatch.setenv("ASSAY_LEASE_SECONDS", "-1")
    assert nodes.main() == 2
    assert capsys.readouterr().err == "ASSAY_LEASE_SECONDS: must be more than 0 (given '-1')\n"
    monkeypatch.setenv("ASSAY_LEASE_SECONDS", "90")
    assert nodes.main() == 2
    assert capsys.readouterr().err.startswith("ASSAY_DATABASE_URL: the distributed mode keeps its truth")
    monkeypatch.setenv("ASSAY_MODE", "embedded")
    assert nodes.main() == 2
    assert "assay serve" in capsys.readouterr().err


@pytest.mark.parametrize("program", [nodes, server])
def test_a_program_without_arguments_says_so_and_does_not_start(
    program: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program.logs, "set_up", lambda *given: pytest.fail("it starts"))
    for given, code in ((["--help"], 0), (["--port", "80"], 2)):
        with pytest.raises(SystemExit) as ended:
            program.main(given)
        assert ended.value.code == code
    told = capsys.readouterr()
    assert "environment variables" in told.out
    assert "unrecognized arguments: --port 80" in told.err
