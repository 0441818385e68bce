"""Short storms, and one by one what a node must survive; `make chaos` runs the long one."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.service.contract.states import JobState, ShardState
from assay.service.store.store import Store
from tests.e2e.jobs import training
from tests.e2e.running import wait_for
from tests.storm import verdict
from tests.storm.cluster import ROOT, Cluster
from tests.storm.disguise import LIE, version_of
from tests.storm.jobs import Wish, spec_of
from tests.storm.lies import LIES
from tests.storm.site import Servers, Site
from tests.storm.storm import FORMS, NAMED, Plan, Report, run
from tests.support.jobs import claim, outcome, planned
from tests.support.workers import ended, group, losses_and_failures, submit

Kill = Callable[[Cluster], None]


def weathered(folder: Path, form: str, kinds: Iterable[str]) -> Report:
    """The report of a short storm of these faults, each of which strikes, and no number of which changes."""
    plan = Plan(
        seed=5,
        jobs=10,
        shards=8,
        workers=2,
        faults=8,
        longest_calm=1.0,
        submit_seconds=0.1,
        cancels=2,
        shard_seconds=0.3,
        real=False,
        stall_seconds=2.0,
        form=form,
        kinds=tuple(kinds),
        apis=1,
    )
    report = run(plan, folder)
    print("\n".join(report.lines()))
    assert report.problems == []
    assert set(report.faults) == set(kinds)
    assert min(report.faults.values()) > 0
    assert report.counts["duplicates"] == 0
    assert report.counts["repetitions with equal bits"] > 0
    assert report.named.keys() == NAMED & set(kinds)
    return report


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", FORMS)
def test_a_short_storm_loses_nothing_and_changes_no_number(tmp_path: Path, form: str) -> None:
    report = weathered(tmp_path, form, [*FORMS[form].faults, *FORMS[form].surroundings])
    assert report.users["replanned"] > 0, "the version before had left a job"
    assert report.counts["clock jumps seen"] == 2
    if form == "direct":
        assert sum(report.counts[f"doorbells {how}"] for how in ("dropped", "passed on", "repeated")) >= 10


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", FORMS)
def test_a_short_storm_of_lies_is_refused_by_name(tmp_path: Path, form: str) -> None:
    report = weathered(tmp_path, form, LIES)
    assert report.counts["merges refused"] > 0
    assert report.users["replanned"] > 0


@pytest.mark.costly
def test_the_verdict_finds_a_liars_number_and_who_planned(tmp_path: Path) -> None:
    honest, liar = version_of(""), version_of("a liar's")
    with Servers() as servers:
        site = Site(servers, "verdict", tmp_path)
        with site.store() as store:
            job_id = planned(store, 2, planned_by=honest["digest"])
            for loss in (0.5, LIE):
                held = claim(store, identity=honest["digest"])
                columns = {"id": [str(n) for n in range(10)], "loss": [loss] * 10}
                assert store.shards.finish(held, replace(outcome(held), columns=columns)) is not None
            assert store.jobs.succeed(job_id, {"code": {"source_sha256": liar["source_sha256"]}, "times": {}})
        found = verdict.versions(site, {honest["digest"]: honest["source_sha256"]}, {job_id})
    assert len(found) == 3
    assert f"{job_id}: measured by the source {liar['source_sha256']}" in found[0]
    assert "its provenance says that it was planned again: []" in found[1]
    assert found[2].endswith("-0-1: the outcome is a liar's")


@pytest.mark.costly
def test_an_emulated_full_disk_takes_no_file(tmp_path: Path) -> None:
    """For machines where none can be mounted. In another process: its hook stays."""
    (tmp_path / "state").mkdir()
    script = (
        "import sys, pathlib; from tests.storm.disguise import fill_up\n"
        "flag, state = map(pathlib.Path, sys.argv[1:])\n"
        "fill_up(flag, state)\n"
        "(state / 'before').write_text('x'); flag.touch()\n"
        "for write in (lambda: (state / 'during').write_text('x'), lambda: (state / 'folder').mkdir()):\n"
        "    try: write()\n"
        "    except OSError as error: print(error.strerror)\n"
        "print((state / 'before').read_text()); flag.unlink(); (state / 'after').write_text('x')\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "full"), str(tmp_path / "state")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["No space left on device"] * 2 + ["x"]
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["after", "before"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One box with one node."""
    with Servers() as servers:
        started = Cluster(servers, "kills", tmp_path_factory.mktemp("kills"), 1, "", apis=0)
        with contextlib.closing(started):
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
    wait_for(lambda: store.jobs.get(job_id).state is JobState.RUNNING and _busy(store), 180)
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


@pytest.mark.slow
def test_a_full_disk_costs_a_training_its_checkpoints_alone(cluster: Cluster, store: Store) -> None:
    first, second = (_train(store, "real training") for _ in range(2))
    wait_for(lambda: list((cluster.state / "artifacts" / first).glob("step-*.pt")), 120)
    cluster.disk.fill()
    try:
        wait_for(lambda: re.search(r"no checkpoint of step \d+: .*No space left", _log(cluster)), 60)
    finally:
        cluster.disk.free()
    assert [ended(store, job_id, 240).state for job_id in (first, second)] == [JobState.SUCCEEDED] * 2
    assert losses_and_failures(store, first) == (0, 0)
    weights = [_provenance(store, job_id)["weights_sha256"] for job_id in (first, second)]
    assert weights[0] == weights[1], "the second had room all the time"
    assert store.results.of(first)[0]["metrics"] == store.results.of(second)[0]["metrics"]


@pytest.mark.slow
def test_a_full_disk_keeps_outcomes_and_tables_wait_for_room(cluster: Cluster, store: Store) -> None:
    # Checkpoints of a training are deleted just after its end, which gives room back.
    wait_for(lambda: not list((cluster.state / "artifacts").rglob("step-*.pt")), 30)
    cluster.disk.fill()
    try:
        job_id = submit(store, "shards=3")
        job = ended(store, job_id)
        assert job.error is not None
        assert (job.state, job.error["type"]) == (JobState.FAILED, "save_failed")
        assert "No space left on device" in job.error["message"]
        assert (
            len(re.findall(f"shard {job_id}.*: outcome not kept on disk: .*No space left", _log(cluster)))
            == 3
        )
    finally:
        cluster.disk.free()
    store.jobs.retry(job_id)
    assert ended(store, job_id).state is JobState.SUCCEEDED
    claims = [shard.fence for shard in store.shards.of(job_id) if shard.kind != "repeat"]
    assert claims == [1] * 4, "nothing was measured again"


def _train(store: Store, name: str) -> str:
    spec = spec_of(Wish(name, training(epochs=40, name=name)), {})
    return store.jobs.add(spec, body_sha256="sha")[0].id


def _provenance(store: Store, job_id: str) -> Mapping[str, Any]:
    found = store.jobs.get(job_id).provenance
    assert found is not None
    return found


def _log(cluster: Cluster) -> str:
    return (cluster.logs / "box-0.log").read_text()


def _busy(store: Store) -> bool:
    return any(row.kind == "evaluate" and row.state is ShardState.RUNNING for row in store.shards.running())
