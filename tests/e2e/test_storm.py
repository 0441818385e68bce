"""A short storm, and one by one what a node must survive; `make chaos` runs the long one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.service.contract.states import JobState, ShardState
from assay.service.store.store import Store
from tests.e2e.running import wait_for
from tests.storm.cluster import Cluster, Servers
from tests.storm.storm import Plan, run
from tests.support.workers import ended, group, losses_and_failures, submit

Kill = Callable[[Cluster], None]


@pytest.mark.slow
def test_a_short_storm_loses_nothing_and_changes_no_number(tmp_path: Path) -> None:
    size = {"jobs": 12, "shards": 8, "workers": 2, "faults": 8, "cancels": 2, "real": False}
    plan = Plan(seed=5, **size, submit_seconds=0.1, longest_calm=3.0)
    report = run(plan, tmp_path)
    print("\n".join(report.lines()))
    assert report.problems == []
    assert sum(report.faults.values()) >= plan.faults // 2, "there was a storm"
    assert sum(report.doorbells.values()) >= plan.jobs


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One box with one node."""
    with Servers() as servers:
        started = Cluster(servers, "kills", tmp_path_factory.mktemp("kills"), 1, "")
        yield started
        assert started.stop() == [0]


@pytest.fixture
def store(cluster: Cluster) -> Iterator[Store]:
    """The store of the box."""
    with cluster.store() as opened:
        yield opened


def _kill_supervisor(cluster: Cluster) -> None:
    (pid,) = cluster.supervisors()
    os.kill(pid, signal.SIGKILL)


def _kill_node(cluster: Cluster) -> None:
    (pid,) = cluster.nodes()
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("kill", [_kill_supervisor, _kill_node])
def test_a_killed_node_leaves_no_evaluator_and_its_shard_is_done_by_the_next(
    cluster: Cluster, store: Store, kill: Kill
) -> None:
    """`test_crashes.py` checks the same for whole boxes."""
    job_id = submit(store, "shards=1 evaluate:seconds=3")
    wait_for(lambda: store.jobs.get(job_id).state is JobState.RUNNING and _busy(store), 60)
    before = cluster.evaluators()
    assert len(before) == 1
    kill(cluster)
    wait_for(lambda: not set(before) & set(cluster.evaluators()), 20)
    assert ended(store, job_id).state is JobState.SUCCEEDED
    assert losses_and_failures(store, job_id) == (1, 0), "a lost worker is no failure of the shard"
    assert len(cluster.evaluators()) == 1


@pytest.mark.slow
def test_a_canceled_evaluator_that_resists_is_gone_and_the_next_shard_runs_within_20_seconds(
    cluster: Cluster, store: Store
) -> None:
    """SIGTERM is ignored, and there is a child process: SIGKILL goes to the group."""
    job_id = submit(store, "evaluate:hang evaluate:deaf evaluate:child")
    waiting = submit(store, "evaluate:hang", priority=0)
    wait_for(lambda: store.jobs.get(job_id).state is JobState.RUNNING and _busy(store), 60)
    (evaluator,) = cluster.evaluators()
    wait_for(lambda: len(group(evaluator)) == 2, 20)
    begun = time.monotonic()
    store.jobs.cancel(job_id)
    wait_for(lambda: store.jobs.get(job_id).state is JobState.CANCELED, 20)
    assert group(evaluator) == [], "its memory is free when the job is said to be canceled"
    wait_for(lambda: store.jobs.get(waiting).state is JobState.RUNNING, 20)
    assert time.monotonic() - begun < 20
    store.jobs.cancel(waiting)
    ended(store, waiting, 20)


def _busy(store: Store) -> bool:
    return any(row.kind == "evaluate" and row.state is ShardState.RUNNING for row in store.shards.running())
