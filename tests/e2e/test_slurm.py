"""A fleet on a real Slurm of four nodes behind a gateway: nodes die, arrays are requeued, no number changes.

Nodes share neither a home nor a state folder, with each other or with the service.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from assay.service.client import AssayClient
from assay.service.store.store import Store, open_store
from assay.service.store.tables import shards
from assay.service.workers.fleet_wire import FleetStatus
from tests.e2e.jobs import attacking, finished, learning, outcomes, pgd, weights
from tests.e2e.running import FAST, RunningGateway, RunningService, wait_for
from tests.support.slurm_cluster import SlurmCluster, installed

DOWN_SECONDS = 14  # longer than Slurm waits for a silent node
STRIKE_SECONDS = 20  # between two deaths
MIN_STRIKES = 3
MAX_WASTED = 0.05  # of the workers' time
ASSAY = str(Path(sys.executable).with_name("assay"))
QUICK = {"ASSAY_CHECKPOINT_SECONDS": "1", "ASSAY_LEASE_SECONDS": "20", "CUDA_VISIBLE_DEVICES": ""}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SlurmCluster]:
    if not installed():
        pytest.skip("no Slurm here, and none to be installed")
    running = SlurmCluster(tmp_path / "slurm")
    try:
        yield running.start()
    finally:
        running.stop()


class Fleet:
    """The controller's process, beside a service without workers of its own."""

    def __init__(self, cluster: SlurmCluster, state: Path, command: str = ASSAY) -> None:
        self.cluster, self._command = cluster, command
        self.service = RunningGateway(state, ASSAY_WORKERS="0", ASSAY_SHARD_SECONDS="1", **QUICK).start()
        self.store: Store = open_store(self.service.database, migrate=False)
        self._key = self.store.keys.create("fleet", ["admin"])[1]
        self.log = state.with_name("fleet.log")
        self.lost_seconds = 0.0  # of shards that were cut off
        self.start()

    @property
    def client(self) -> AssayClient:
        return self.service.client

    def start(self) -> None:
        """Starts the controller."""
        command = [ASSAY, "fleet", "slurm", "--name", "storm", "--partition", "gpu", "--max", "4"]
        command += ["--device", "cpu", "--constraint", "gpu", "--idle", "6", "--shard-seconds", "1"]
        command += ["--every", "1", "--max-seconds", "1800", "--logs", str(self.cluster.folder)]
        command += ["--command", self._command, "--", "--gateway", self.client.url]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")}
        keys = {"ASSAY_KEY": self._key, "ASSAY_WORKER_KEY": self.service.worker_key}
        own = {"ASSAY_URL": self.client.url, **keys, **FAST, **QUICK, **self.cluster.environment}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=kept | own, stdout=log, stderr=log)

    def restart(self) -> None:
        """Kills the controller, and starts another."""
        self.process.kill()
        self.process.wait()
        self.start()

    def cut_off(self, job: dict[str, str]) -> None:
        """Counts what the worker of a job loses now; an evaluator that still starts has computed nothing."""
        log = (self.cluster.folder / f"storm-{job['id']}.log").read_text()
        if "over after" not in log.rpartition(": worker ")[2]:
            return
        pids = {str(pid) for pid in self.cluster.processes_of(job["node"])}
        running = select(shards.c.owner, self._clock() - shards.c.claimed_at).where(
            shards.c.state == "running"
        )
        with self.store.shards._database.reading() as connection:
            for owner, seconds in connection.execute(running):
                self.lost_seconds += seconds if owner.split(":")[-3] in pids else 0.0

    def _clock(self) -> float:
        return self.store.workers.clock()

    def told(self) -> FleetStatus:
        """What the service knows of the fleet."""
        with AssayClient(self.client.url, self._key) as admin:
            return admin.fleets()[0]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.store.close()
        self.service.close()


@pytest.fixture
def fleet(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Fleet]:
    running = Fleet(cluster, tmp_path / "state")
    try:
        yield running
    finally:
        running.close()


class Work:
    """A training, and attacks on what it trained, in shards of a batch."""

    def __init__(self, client: AssayClient, attacks: int) -> None:
        self._client = client
        self.trained = client.submit(learning()).id
        self._wanted = [pgd(f"{number}/255", steps=150) for number in range(1, attacks + 1)]
        self.attacked: list[str] = []
        self.attack()

    def attack(self) -> None:
        """Submits the attacks, again if they were before."""
        self.attacked.append(self._client.submit(attacking(self.trained, self._wanted)).id)

    @property
    def jobs(self) -> list[str]:
        """All jobs."""
        return [self.trained, *self.attacked]

    @property
    def begun(self) -> bool:
        """Whether an attack has outcomes."""
        return self._client.job(self.attacked[0]).progress.done > 0

    @property
    def over(self) -> bool:
        """Whether all jobs have ended."""
        return all(self._client.job(job).state.terminal for job in self.jobs)

    def numbers(self, folder: Path) -> tuple[str | None, dict[str, str]]:
        """The hash of the weights, and what became of each example, every time the same."""
        for job in self.jobs:
            finished(self._client, job, 600)
        tables = [outcomes(self._client, job, folder / job) for job in self.attacked]
        assert all(table == tables[0] for table in tables)
        return weights(self._client, self.trained), tables[0]


def undisturbed(folder: Path, attacks: int) -> tuple[str | None, dict[str, str]]:
    """The numbers of an embedded worker."""
    service = RunningService(folder / "alone", ASSAY_WORKERS="1", ASSAY_SHARD_SECONDS="1", **QUICK).start()
    try:
        return Work(service.client, attacks).numbers(folder / "expected")
    finally:
        service.close()


def counts(store: Store, *jobs: str) -> tuple[int, int]:
    """Failures, and shards that are not done."""
    rows = [shard for job in jobs for shard in store.shards.of(job)]
    return sum(row.failures for row in rows), sum(row.state != "done" for row in rows)


def scaled_to_zero(fleet: Fleet) -> bool:
    """Whether Slurm has no job left, and the service knows it."""
    told = fleet.told()
    return not fleet.cluster.jobs() and (told.running, told.pending, told.queued, told.busy) == (0, 0, 0, 0)


def test_a_requeued_array_and_a_dead_node_change_no_bit_and_the_fleet_scales_to_zero(
    fleet: Fleet, tmp_path: Path
) -> None:
    expected = undisturbed(tmp_path, 3)
    work = Work(fleet.client, 3)
    wait_for(lambda: fleet.told().busy > 1, 240)
    requeued, killed = [job for job in fleet.cluster.jobs() if job["state"] == "RUNNING"][:2]
    fleet.cluster.ask("scontrol", "requeue", requeued["id"])
    fleet.cluster.kill_node(killed["node"])
    fleet.restart()
    assert work.numbers(tmp_path / "found") == expected
    assert counts(fleet.store, *work.jobs) == (0, 0)
    fleet.cluster.start_node(killed["node"])
    wait_for(lambda: scaled_to_zero(fleet), 240)


def test_a_node_that_dies_every_twenty_seconds_costs_little_and_no_number(
    fleet: Fleet, tmp_path: Path
) -> None:
    expected = undisturbed(tmp_path, 12)
    work, strikes, worked = Work(fleet.client, 12), 0, 0
    wait_for(lambda: work.begun, 240)
    for dead in itertools.cycle(fleet.cluster.nodes):
        if work.over:
            if strikes >= MIN_STRIKES:
                break
            work.attack()
        # Slurm may take a job for running on a node that died just before.
        if fleet.cluster.processes_of(dead):
            strikes += 1
        running = [job for job in fleet.cluster.jobs() if job["state"] == "RUNNING"]
        worked += len(running) * STRIKE_SECONDS
        for job in running:
            if job["node"] == dead:
                fleet.cut_off(job)
        fleet.cluster.kill_node(dead)
        time.sleep(DOWN_SECONDS)
        fleet.cluster.start_node(dead)
        time.sleep(STRIKE_SECONDS - DOWN_SECONDS)
    assert work.numbers(tmp_path / "found") == expected
    assert counts(fleet.store, *work.jobs) == (0, 0)
    share = fleet.lost_seconds / worked
    print(f"{strikes} nodes died: {fleet.lost_seconds:.1f} s of {worked} s computed again, {share:.1%}")
    assert share <= MAX_WASTED
    wait_for(lambda: scaled_to_zero(fleet), 240)


def test_a_node_where_workers_cannot_start_is_avoided(cluster: SlurmCluster, tmp_path: Path) -> None:
    starter = tmp_path / "start"
    starter.write_text(f'#!/bin/sh\n[ "$SLURMD_NODENAME" = n2 ] && exit 3\nexec {ASSAY} "$@"\n')
    starter.chmod(0o755)
    fleet = Fleet(cluster, tmp_path / "state", str(starter))
    try:
        work = Work(fleet.client, 3)
        wait_for(lambda: "no worker is asked for on n2" in fleet.log.read_text(), 240)
        wait_for(lambda: work.over, 240)
        assert counts(fleet.store, *work.jobs) == (0, 0)
    finally:
        fleet.close()
