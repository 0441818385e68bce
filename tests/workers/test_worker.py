"""`assay worker`: refused starts, and a worker beside an embedded service without workers of its own."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from sqlalchemy import select

from assay.service.store.fleet import lease_owner
from assay.service.store.store import Store, open_store
from assay.service.store.tables import shards
from assay.workers import settings as settings_module
from assay.workers import worker
from assay.workers.gateway.connection import Gateway
from assay.workers.gateway.files import GatewayFiles
from assay.workers.gateway.ledger import left_spools
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.ledger import GatewayAway
from assay.workers.supervision.outcome_spool import LEFT, SPOOL, Spool
from assay.workers.supervision.supervisor import Supervisor
from tests.e2e.jobs import finished, learning
from tests.e2e.running import FAST, RunningGateway, RunningService, processes, wait_for
from tests.support.gateways import ledger_of, node_settings, serving, worker_key
from tests.support.jobs import add, train_spec
from tests.support.workers import FAKE, ended, submit, submit_training
from tests.workers.supervision.test_ledger import claimed, outcome


def refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], **variables: str
) -> tuple[int, str]:
    for name, value in variables.items():
        monkeypatch.setenv(f"ASSAY_{name}", value)
    code = worker.main()
    return code, capfd.readouterr().err


def test_without_a_service_it_names_the_command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, text = refused(monkeypatch, capfd, STATE=str(tmp_path))
    assert code == 1
    assert text == (
        f"no service has been started with the state folder {tmp_path}: begin with"
        f" `assay serve --state {tmp_path}`\n"
    )
    assert not list(tmp_path.iterdir())


def test_a_worker_without_a_key_ends_where_the_gateway_wants_a_key(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, store: Store
) -> None:
    with serving(store, tmp_path / "state") as server:
        code, text = refused(monkeypatch, capfd, GATEWAY=server.url, STATE=str(tmp_path / "node"))
    assert code == 1
    assert "ASSAY_WORKER_KEY, ASSAY_WORKER_KEY_FILE: missing; the gateway answers: " in text
    assert not (tmp_path / "node").exists()


def test_the_address_of_the_interface_is_not_the_services(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code, text = refused(monkeypatch, capfd, GATEWAY="https://assay.example/api/v1/")
    assert code == 2
    assert "allowed: the service's address, https://assay.example" in text


def test_wrong_settings_are_lines(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, text = refused(monkeypatch, capfd, STATE=str(tmp_path), TORCH_THREADS="0", LEASE_SECONDS="-1")
    assert code == 2
    assert [line.partition(":")[0] for line in text.splitlines()] == [
        "ASSAY_TORCH_THREADS",
        "ASSAY_LEASE_SECONDS",
    ]


def test_the_distributed_mode_has_nodes(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    addresses = {
        "DATABASE_URL": "postgresql+psycopg://me@127.0.0.1/assay",
        "REDIS_URL": "redis://127.0.0.1:1/0",
    }
    code, text = refused(monkeypatch, capfd, STATE=str(tmp_path), MODE="distributed", **addresses)
    assert (code, "assay.workers.nodes" in text) == (1, True)


def test_an_end_without_room_for_a_shard_is_refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, text = refused(monkeypatch, capfd, STATE=str(tmp_path), WORKER_MAX_SECONDS="250")
    assert (code, text) == (
        2,
        "ASSAY_WORKER_MAX_SECONDS: 250 s have no room for a shard of 240 s (ASSAY_SHARD_SECONDS); allowed: at"
        " least 253\n",
    )


class Alone:
    """A worker of a fake evaluator, on a state folder without a service."""

    def __init__(self, state: Path, **own: str) -> None:
        state.mkdir()
        (state / "lock").touch()
        self.store = open_store(f"sqlite:///{state / 'assay.sqlite'}")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")}
        fake = {"ASSAY_STATE": str(state), "ASSAY_EVALUATOR_COMMAND": f"{sys.executable} -S {FAKE}", **FAST}
        command = [sys.executable, "-m", "assay.workers.worker"]
        environment = kept | fake | {f"ASSAY_{name}": value for name, value in own.items()}
        self.log = state.with_suffix(".log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def shards(self, job_id: str) -> list[tuple[str, int, int]]:
        """State, losses and failures of a job's shards."""
        return [(one.state.value, one.losses, one.failures) for one in self.store.shards.of(job_id)]


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Callable[..., Alone]]:
    started: list[Alone] = []

    def start(**own: str) -> Alone:
        started.append(Alone(tmp_path / "state", **own))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        one.store.close()


def test_a_drained_worker_gives_its_shard_back_and_ends(alone: Callable[..., Alone]) -> None:
    worker = alone(WORKER_IDLE_SECONDS="600")
    job_id = submit(worker.store, "shards=1 seconds=600")
    wait_for(lambda: [state for state, *_ in worker.shards(job_id)] == ["running"], 60)
    (known,) = worker.store.cordons.workers()
    worker.store.cordons.set(known.name, drain=True, by_whom="an operator")
    assert worker.process.wait(60) == 0, worker.log.read_text()
    assert worker.shards(job_id) == [("queued", 0, 0)]
    assert "ends: it is cordoned, and has no shard" in worker.log.read_text()


@pytest.mark.costly
def test_it_ends_when_it_has_had_no_work_for_its_time(alone: Callable[..., Alone]) -> None:
    worker = alone(WORKER_IDLE_SECONDS="3")
    job_id = submit(worker.store, "shards=1 seconds=4")  # longer than it may idle
    assert worker.process.wait(60) == 0, worker.log.read_text()
    assert worker.store.jobs.get(job_id).state == "succeeded"
    assert "no work for 3 s" in worker.log.read_text()
    assert worker.store.workers.online("cpu") == 0


@pytest.mark.costly
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_gives_the_shard_back_uncounted(
    alone: Callable[..., Alone], tmp_path: Path, number: signal.Signals
) -> None:
    worker = alone()
    job_id = submit_training(worker.store, f"steps=10 checkpoint until={tmp_path / 'never'}")
    wait_for(lambda: worker.store.jobs.get(job_id).progress_done == 5, 60)
    worker.process.send_signal(number)
    assert worker.process.wait(30) == 0, worker.log.read_text()
    assert worker.shards(job_id) == [("queued", 0, 0)]
    with worker.store.shards._database.reading() as connection:
        assert connection.execute(select(shards.c.saved_step)).scalar_one() == 5
    assert worker.store.workers.online("cpu") == 0


@pytest.mark.costly
def test_it_ends_at_its_time_and_leaves_what_does_not_fit(
    alone: Callable[..., Alone], tmp_path: Path
) -> None:
    worker = alone(WORKER_MAX_SECONDS="12", SHARD_SECONDS="1", CANCEL_GRACE_SECONDS="2")
    job_id = submit(worker.store, f"shards=1 evaluate:until={tmp_path / 'never'}")
    assert worker.process.wait(60) == 0, worker.log.read_text()
    assert "its 12 s are over" in worker.log.read_text()
    assert worker.shards(job_id)[0][:3] == ("queued", 0, 0)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunningService]:
    running = RunningService(tmp_path / "state", ASSAY_WORKERS="0").start()
    yield running
    running.close()


@pytest.mark.costly
def test_it_does_the_work_of_a_service_without_workers(service: RunningService, tmp_path: Path) -> None:
    job = service.client.submit(learning()).id
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")}
    own = {"ASSAY_STATE": str(service.state), "ASSAY_NODE": "beside", **FAST}
    command = [sys.executable, "-m", "assay.workers.worker"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=kept | own, stdout=log, stderr=subprocess.STDOUT)
    try:
        finished(service.client, job)
        (row,) = service.client.workers()
        assert row.name.endswith(":beside")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (tmp_path / "log").read_text()
    wait_for(lambda: not service.client.workers(), 120)


def test_a_node_works_in_a_folder_of_its_own_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outcomes wait there while the gateway is away."""
    state = tmp_path / "state"
    assert worker._not_ours(state) is None
    assert state.stat().st_mode & 0o777 == 0o700
    state.chmod(0o777)
    assert worker._not_ours(state) is None
    assert state.stat().st_mode & 0o777 == 0o700
    link = tmp_path / "link"
    link.symlink_to(state)
    assert "is not a folder of this user" in str(worker._not_ours(link))
    monkeypatch.setattr(worker.os, "getuid", lambda: 12345)
    assert "is not a folder of this user" in str(worker._not_ours(state))


def test_a_node_delivers_what_a_slot_left_that_its_box_no_longer_has(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome of another process, with a file of its job: `STATE/gpu3` after a GPU was taken out."""
    add(store, train_spec())
    key, gone, content = worker_key(store), tmp_path / "box" / "gpu3", b"x"
    dead = ":".join([*lease_owner.worker_id(0).split(":")[:2], "999999999", "1", "0"])
    with serving(store, tmp_path / "service") as server:
        chosen = node_settings(tmp_path / "box" / "gpu0", server.url, key)
        with ledger_of(chosen.model_copy(update={"state": gone})) as ledger:
            held = claimed(ledger, worker=dead)
            row = outcome(held)
            sha256 = hashlib.sha256(content).hexdigest()
            named: Any = {"name": "a.csv", "path": "/x", "size": 1, "sha256": sha256, "media_type": "x"}
            row.extra["artifacts"] = [named]
            with monkeypatch.context() as away:
                away.setattr(ledger, "finish", Mock(side_effect=GatewayAway))
                with pytest.raises(GatewayAway):
                    Spool(gone / SPOOL, ledger, dead).record(held, row)
        folder = gone / "artifacts" / held.job_id
        folder.mkdir(parents=True)
        (folder / "a.csv").write_bytes(content)
        (tmp_path / "link").symlink_to(gone)
        monkeypatch.setenv(LEFT, f"{gone}:{tmp_path / 'link'}")
        with closing(Gateway(chosen)) as gateway, ledger_of(chosen) as own:
            left = left_spools(gateway, chosen, lambda folder: worker._not_ours(folder) is None)
            assert len(left) == 1, "a link is refused, as for a state folder"
            files = GatewayFiles(gateway, chosen)
            Supervisor(own, chosen, device_classes=("cpu",), files=files, left=left)._flush()
    assert not [*gone.glob("spool/*")]
    (found,) = store.results.outcomes(held.job_id, 0)
    assert found.extra["artifacts"][0]["path"] == f"{held.job_id}/a.csv"
    assert (tmp_path / "service" / "artifacts" / held.job_id / "a.csv").read_bytes() == content


def test_a_nodes_evaluators_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_module, "machine_memory", lambda: 800 << 20)
    assert worker.parts(WorkerSettings()) == (700 << 20, 100 << 20)
    assert worker.parts(WorkerSettings(max_evaluator_bytes=300 << 20)) == (300 << 20, 300 << 20), "as is said"


def test_supervisors_of_a_node_say_together_that_they_go() -> None:
    together, order = threading.Barrier(2, timeout=30), list[str]()

    def supervisor(name: str) -> Any:
        calls = {one: lambda one=one: order.append(f"{one} {name}") for one in ("start", "stop")}
        calls |= {"join": lambda _: order.append(f"join {name}"), "is_alive": lambda: False}
        return SimpleNamespace(**calls, known_as=name, idle_seconds=0.0, inventory=None)

    def leave(one: Any) -> None:
        together.wait()  # a call that waits for an answer

    ended = threading.Event()
    ended.set()
    end: Any = SimpleNamespace(reason=lambda idle: None)
    worker._supervise(WorkerSettings(), [supervisor("a"), supervisor("b")], end, ended, leave)
    assert order[:4] == [f"{what} {name}" for what in ("start", "stop") for name in ("a", "b")]
    assert sorted(order[4:]) == ["join a", "join b"]


class Asking(threading.Thread):
    """A supervisor whose question for a shard was on its way when it was told to stop."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.known_as, self.idle_seconds, self.inventory = "asking", 0.0, None
        self.asks, self.answered = threading.Event(), threading.Event()

    def stop(self) -> None:
        """Too late for the question."""

    def run(self) -> None:
        """Ask, and wait for the answer."""
        self.asks.wait(60)
        self.answered.wait(60)


def test_a_node_says_again_that_it_goes_to_end_a_question_that_was_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gateway would answer it within three quarters of a minute, and an engine does not wait so long."""
    monkeypatch.setattr(worker, "AGAIN_SECONDS", 0.05)

    def leave(supervisor: Any) -> None:
        (supervisor.answered if supervisor.asks.is_set() else supervisor.asks).set()

    ended, asking, end = threading.Event(), Asking(), SimpleNamespace(reason=lambda idle: None)
    ended.set()
    node: Any = (WorkerSettings(), [asking], end, ended, leave)
    ending = threading.Thread(target=worker._supervise, args=node, daemon=True)
    ending.start()
    ending.join(30)
    assert not ending.is_alive()


@pytest.mark.slow
def test_workers_of_a_box_share_a_job_and_leave_when_there_is_no_more(tmp_path: Path) -> None:
    fake = {"ASSAY_EVALUATOR_COMMAND": f"{sys.executable} -S {FAKE}", "CUDA_VISIBLE_DEVICES": ""}
    state = tmp_path / "state"
    soon = {"ASSAY_LEASE_SECONDS": "5", "ASSAY_RENEW_SECONDS": "1", "ASSAY_WORKER_IDLE_SECONDS": "12"}
    service = RunningGateway(state, ASSAY_NODES="2", **soon, **fake)
    service.program = "assay.workers.nodes"
    try:
        service.start()
        (box,) = service.nodes
        with open_store(f"sqlite:///{state / 'assay.sqlite'}", migrate=False) as store:
            job_id = submit(store, "shards=24 evaluate:seconds=0.5")

            def both_work() -> bool:
                return len({row.worker for row in store.shards.running()}) == 2

            wait_for(both_work, 60)
            first = min(pid for pid, parent in processes().items() if parent == box.pid)
            os.kill(first, signal.SIGKILL)
            wait_for(both_work, 60)
            assert ended(store, job_id).state == "succeeded"
            assert box.wait(60) == 0
            assert store.workers.online("cpu") == 1, "the killed worker alone has not said goodbye"
        assert first not in processes()
        folders = sorted(path.name for path in service.worker_states[0].iterdir() if path.is_dir())
        assert folders == ["node0-cpu0", "node0-cpu1"]
    finally:
        service.close()
