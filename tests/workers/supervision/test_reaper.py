"""The reaper takes back what is lost and merges what was not merged, and leaves the rest alone."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError

from assay.service.reports.summaries import summarise_earlier
from assay.service.store.clock import now
from assay.service.store.fleet import lease_owner
from assay.service.store.fleet.clock_marks import ClockMark, mark_of
from assay.service.store.fleet.duty import Duty
from assay.service.store.fleet.workers import REAPER
from assay.service.store.store import Store
from assay.service.store.tables import duties, jobs, shards
from assay.service.store.tenant_tables import clock_marks
from assay.service.store.transactions.transitions import lock_job
from assay.service.sweeper import Sweeper
from assay.workers.supervision.reaper import Reaper
from tests.support.databases import ALWAYS_ON_BOTH
from tests.support.jobs import WORKER, claim, planned
from tests.support.jobs import plan as plan_of
from tests.support.workers import away, settings, submit, supervising, wait_for

ME = lease_owner.worker_id(0)
DEAD = ":".join([*ME.split(":")[:2], "999999999", "1", "0"])


def states(store: Store, job_id: str) -> list[str]:
    return [str(s.state) for s in store.shards.of(job_id) if s.kind == "evaluate"]


def test_a_dead_owner_loses_its_shard_before_its_lease_is_over(either_store: Store, tmp_path: Path) -> None:
    job_id = planned(either_store, 1)
    claim(either_store, DEAD, lease_seconds=3600)
    Reaper(either_store, settings(tmp_path), device_classes=("cpu",)).sweep()
    (shard,) = (s for s in either_store.shards.of(job_id) if s.kind == "evaluate")
    assert (str(shard.state), shard.losses, shard.failures) == ("queued", 1, 0)


@pytest.mark.parametrize("worker", [ME, "elsewhere:kernel:1:2:0"], ids=["me", "elsewhere"])
def test_living_and_unknown_owners_keep_theirs(store: Store, tmp_path: Path, worker: str) -> None:
    job_id = planned(store, 1)
    claim(store, worker)
    Reaper(store, settings(tmp_path), device_classes=("cpu",)).sweep()
    assert states(store, job_id) == ["running"]


def test_a_lease_that_ran_out_frees_the_shard(store: Store, tmp_path: Path) -> None:
    job_id = planned(store, 1)
    claim(store, "elsewhere:kernel:1:2:0", lease_seconds=-1)
    Reaper(store, settings(tmp_path), device_classes=("cpu",)).sweep()
    assert states(store, job_id) == ["queued"]


def test_a_worker_may_renew_its_lease_after_the_service_was_away(store: Store, tmp_path: Path) -> None:
    job_id = planned(store, 2)
    held = claim(store, "elsewhere:kernel:1:2:0", lease_seconds=-1)
    claim(store, "dead:kernel:1:2:0", lease_seconds=-1)
    reaper = Reaper(store, settings(tmp_path), device_classes=("cpu",), grace_seconds=60)
    reaper.sweep()
    assert states(store, job_id) == ["running", "running"]
    assert store.shards.renew(held, 60) == "run"
    reaper._expires_from = 0.0
    reaper.sweep()
    assert states(store, job_id) == ["running", "queued"]


def test_jobs_of_earlier_versions_get_a_summary(either_store: Store, tmp_path: Path) -> None:
    reaper = Reaper(either_store, settings(tmp_path), device_classes=("cpu",))
    job_id = planned(either_store, 1)
    reaper.sweep()
    with either_store._database.writing() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(state="succeeded"))
    metric = {
        "value": 0.8,
        "n": 10,
        "ci_low": 0.5,
        "ci_high": 0.9,
        "ci_method": "wilson",
        "higher_is_better": True,
    }
    row = {"name": "clean", "params": {}, "data": {"name": "digits", "params": {}}, "protocol": "pixel"}
    row |= {"backend": "native", "seconds": 1.0, "forward_passes": 1, "backward_passes": 0}
    either_store.results.save(job_id, 0, {**row, "metrics": {"top1": metric}})
    assert either_store.jobs.get(job_id).summary is None
    Reaper(either_store, settings(tmp_path), device_classes=("cpu",)).sweep()
    found = either_store.jobs.get(job_id).summary
    assert found is not None
    assert found.model_dump() == {
        "clean": {"metric": "top1", "value": 0.8, "n": 10, "at": "", "radius": None, "invalid": []},
        "worst": None,
        "invalid": [],
    }
    assert either_store.jobs.listed(sort="-clean").rows[0].id == job_id
    either_store.results.save(job_id, 0, {**row, "metrics": {"top1": {"broken": 1}}})
    with either_store._database.writing() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(summary=None))
    assert summarise_earlier(either_store) == 1
    assert summarise_earlier(either_store) == 0


def test_a_job_that_an_older_process_merges_later_gets_a_summary_and_a_seed(
    either_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaper = Reaper(either_store, settings(tmp_path), device_classes=("cpu",))
    for _ in range(2):
        reaper.sweep()
    job_id = planned(either_store, 1)
    this = jobs.c.id == job_id
    with either_store._database.writing() as connection:
        connection.execute(update(jobs).where(this).values(state="succeeded", seed=None))
    reaper.sweep()
    assert either_store.jobs.get(job_id).summary is None
    monkeypatch.setattr("assay.workers.supervision.reaper.PRUNE_SECONDS", 0.0)
    for _ in range(2):
        reaper.sweep()
    assert either_store.jobs.get(job_id).summary is not None
    with either_store._database.reading() as connection:
        seed = connection.execute(select(jobs.c.seed).where(this)).scalar()
    assert seed == either_store.jobs.get(job_id).spec["seed"]


def test_overdue_jobs_time_out(store: Store, tmp_path: Path) -> None:
    job_id = planned(store, 1, timeout_seconds=-1)
    Reaper(store, settings(tmp_path), device_classes=("cpu",)).sweep()
    assert store.jobs.get(job_id).state == "timed_out"


def test_a_lost_merge_is_made_up_for(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, job_id = settings(tmp_path), submit(store, "shards=1", evaluations=2)
    monkeypatch.setattr("assay.workers.supervision.direct_ledger.merge_and_finish", lambda *a: None)
    with supervising(store, chosen):
        wait_for(lambda: store.jobs.ready_to_finish() == [job_id])
    reaper = Reaper(store, chosen, device_classes=("cpu",))
    reaper.sweep()
    assert store.jobs.get(job_id).state == "running", "most likely a supervisor is merging it just now"
    reaper.sweep()
    assert store.jobs.get(job_id).state == "succeeded"
    assert sorted(store.results.of(job_id)) == [0, 1]


def test_an_evaluation_that_its_workers_leave_unmerged_is_merged_while_its_job_runs(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, job_id = settings(tmp_path), submit(store, "shards=1", evaluations=2)
    monkeypatch.setattr("assay.workers.supervision.direct_ledger.merge_and_finish", lambda *a: None)
    take, allowed = store.shards.claim, [True, True]  # the plan and the first evaluation
    limited = lambda *a, **o: take(*a, **o) if allowed and allowed.pop() else None  # noqa: E731
    monkeypatch.setattr(store.shards, "claim", limited)
    with supervising(store, chosen):
        wait_for(lambda: store.jobs.unmerged() == [(job_id, 0)])
    monkeypatch.setattr("assay.workers.supervision.reaper.MERGE_SECONDS", 0.0)
    reaper = Reaper(store, chosen, device_classes=("cpu",))
    reaper.sweep()
    assert store.results.of(job_id) == {}, "most likely a supervisor is merging it just now"
    reaper.sweep()
    assert list(store.results.of(job_id)) == [0]
    assert store.jobs.unmerged() == []
    assert store.jobs.get(job_id).state == "running"


def test_no_error_ends_the_reaper(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [OperationalError("", {}, Exception("away")), RuntimeError("a defect")]
    job_id = planned(store, 1)
    claim(store, DEAD)
    running = store.shards.running

    def flaky() -> object:
        if errors:
            raise errors.pop()
        return running()

    monkeypatch.setattr(store.shards, "running", flaky)
    reaper = Reaper(store, settings(tmp_path, sweep_seconds=0.01), device_classes=("cpu",))
    reaper.start()
    wait_for(lambda: states(store, job_id) == ["queued"])
    reaper.stop()
    reaper.join(120)
    assert not reaper.is_alive()


def leader(store: Store, worker: str, mark: ClockMark | None = None) -> None:
    assert store.workers.lead("reaper", worker, 60, lambda one: False, mark=mark).worker == worker


def test_one_reaper_sweeps_for_all(either_store: Store, tmp_path: Path) -> None:
    leader(either_store, "elsewhere:kernel:1:2:0")
    lost, dead = planned(either_store, 1), planned(either_store, 1)
    for job_id, worker in ((lost, "elsewhere:kernel:7:2:0"), (dead, DEAD)):
        assert claim(either_store, worker, lease_seconds=-1, warm_job=job_id).job_id == job_id
    reaper = Reaper(either_store, settings(tmp_path), device_classes=("cpu",))
    reaper.sweep()
    assert (states(either_store, lost), states(either_store, dead)) == (["running"], ["queued"])
    either_store.workers.resign("reaper", "elsewhere:kernel:1:2:0")
    reaper.sweep()
    assert states(either_store, lost) == ["queued"]


def test_a_duty_goes_from_one_that_is_silent_or_dead_to_another(either_store: Store) -> None:
    workers = either_store.workers
    seen = workers.lead("reaper", "a", -1, lambda one: False)
    assert seen.worker == "a"
    assert workers.lead("reaper", "b", 60, lambda one: False).worker == "a", "not by the database's clock"
    assert workers.lead("reaper", "b", 60, lambda one: False, seen).worker == "b", "a was silent"
    assert workers.lead("reaper", "a", 60, lambda one: False, seen).worker == "b", "b has been there since"
    assert workers.duty("reaper").worker == "b"
    assert workers.lead("reaper", "c", 60, lambda one: one == "b").worker == "c"
    assert workers.duty("another").worker is None


@ALWAYS_ON_BOTH
def test_two_never_lead_at_once(either_store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda n: either_store.workers.lead("r", f"w{n}", 60, lambda one: False), range(16))
        )
    assert len({one.worker for one in found}) == 1


def all_times(store: Store, jump: float) -> None:
    """Let the database's clock jump. It cannot be set here: all times in it are moved the other way."""
    with store._database.writing() as connection:
        of_jobs = (jobs, ("deadline", "started_at"))
        of_clocks = ((duties, ("until",)), (clock_marks, ("at",)))
        for table, columns in ((shards, ("lease_until", "claimed_at")), of_jobs, *of_clocks):
            moved = {name: table.c[name] - jump for name in columns}
            connection.execute(update(table).values(moved))


def seen_before(duty: Duty, jump: float) -> None:
    """So far ahead of time was the clock when this process last looked."""
    assert duty._clock is not None
    duty._clock = replace(duty._clock, at=duty._clock.at - jump)
    duty._right = duty._right and replace(duty._right, at=duty._right.at - jump)
    seen = duty._silence._seen
    assert seen is not None
    assert seen.until is not None
    duty._silence._seen = replace(seen, until=seen.until - jump)


@pytest.mark.parametrize("jump", [3600.0, -3600.0], ids=["forward", "back"])
def test_a_jump_of_the_clock_costs_no_shard_and_no_job(
    either_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    job_id = planned(either_store, 2, timeout_seconds=600)
    held = claim(either_store, "elsewhere:kernel:1:2:0")
    reaper = Reaper(either_store, settings(tmp_path), device_classes=("cpu",))
    reaper.sweep()
    before = either_store.jobs.get(job_id)
    all_times(either_store, jump)
    seen_before(reaper._duty, jump)
    reaper.sweep()
    assert states(either_store, job_id) == ["running", "queued"]
    assert either_store.shards.renew(held, 60) == "run"
    after = either_store.jobs.get(job_id)
    assert after.state == "running"
    if jump > 0:
        assert after.deadline == pytest.approx(before.deadline, abs=30)
    (shard,) = (one for one in either_store.shards.running())
    with either_store._database.reading() as connection:
        lease, claimed, at = connection.execute(
            select(shards.c.lease_until, shards.c.claimed_at, now()).where(shards.c.id == shard.id)
        ).one()
    assert 0 < lease - at <= 90
    assert abs(at - claimed) < 60


@pytest.mark.parametrize("jump", [3600.0, -3600.0], ids=["forward", "back"])
def test_a_jump_of_the_clock_makes_no_other_reaper_lead(
    either_store: Store, tmp_path: Path, jump: float
) -> None:
    """It would not know that the clock has jumped, and end every lease."""
    leader(either_store, "elsewhere:kernel:1:2:0")
    job_id = planned(either_store, 1)
    claim(either_store, "elsewhere:kernel:1:2:0")
    before = Reaper(either_store, settings(tmp_path), device_classes=("cpu",))
    before.sweep()
    all_times(either_store, jump)
    seen_before(before._duty, jump)
    for reaper in (before, Reaper(either_store, settings(tmp_path), device_classes=("cpu",))):
        reaper.sweep()
        assert states(either_store, job_id) == ["running"]
        assert either_store.workers.duty(REAPER).worker == "elsewhere:kernel:1:2:0"


def test_who_follows_a_silent_reaper_finds_a_jump_of_the_clock_since(
    either_store: Store, tmp_path: Path
) -> None:
    leader(either_store, "elsewhere:kernel:1:2:0")
    job_id = planned(either_store, 1)
    claim(either_store, "elsewhere:kernel:3:2:0")
    reaper = Reaper(either_store, settings(tmp_path), device_classes=("cpu",))
    reaper.sweep()
    all_times(either_store, 3600.0)
    seen_before(reaper._duty, 3600.0)
    reaper._duty._silence._since -= 3600
    reaper.sweep()
    assert either_store.workers.duty(REAPER).worker == ME
    assert states(either_store, job_id) == ["running"]


@pytest.mark.parametrize("jump", [3600.0, -3600.0], ids=["forward", "back"])
@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "killed"])
def test_a_reaper_that_begins_to_lead_after_a_jump_of_the_clock_finds_it(
    either_store: Store, tmp_path: Path, jump: float, stopped: bool
) -> None:
    """The only service of a gateway is started again, and its nodes work on."""
    job_id = planned(either_store, 1, timeout_seconds=600)
    held = claim(either_store, "elsewhere:kernel:1:2:0")
    before = Reaper(either_store, settings(tmp_path), device_classes=("cpu",))
    before.sweep()
    before.sweep()  # what it has found right is kept by its next look
    deadline = either_store.jobs.get(job_id).deadline
    if stopped:
        before._duty.release(either_store)
    else:
        with either_store._database.writing() as connection:
            connection.execute(update(duties).values(worker=DEAD))
    all_times(either_store, jump)
    for _ in range(2):  # what was found is found once, also by a second service
        after = Reaper(either_store, settings(tmp_path), device_classes=("cpu",))
        after.sweep()
        assert states(either_store, job_id) == ["running"]
        assert either_store.shards.renew(held, 60) == "run"
        row = either_store.jobs.get(job_id)
        assert row.state == "running"
        assert row.deadline == pytest.approx(deadline, abs=30) or jump < 0


def test_a_jump_since_another_boot_of_the_machine_cannot_be_told(either_store: Store, tmp_path: Path) -> None:
    """Monotonic clocks of two machines say nothing of each other: leases are taken as they are."""
    job_id = planned(either_store, 1)
    held = claim(either_store, "elsewhere:kernel:1:2:0")
    leader(either_store, DEAD, replace(mark_of(0.0), boot="another"))
    Reaper(either_store, settings(tmp_path), device_classes=("cpu",)).sweep()
    assert states(either_store, job_id) == ["running"]
    assert either_store.shards.renew(held, 60) == "run"


def test_a_jump_of_the_clock_does_not_wake_the_sweeper_of_the_service(
    either_store: Store, tmp_path: Path
) -> None:
    leader(either_store, "elsewhere:kernel:1:2:0")
    job_id = planned(either_store, 1)
    claim(either_store, "elsewhere:kernel:3:2:0")
    with closing(Sweeper(lambda: either_store, seconds=3600)) as sweeper:
        sweeper.sweep()
        all_times(either_store, 3600.0)
        sweeper.sweep()
        assert states(either_store, job_id) == ["running"]
        either_store.workers.resign(REAPER, "elsewhere:kernel:1:2:0")
        assert sweeper._duty._clock is not None
        sweeper._duty._clock = replace(sweeper._duty._clock, at=sweeper._duty._clock.at - 3600)
        sweeper.sweep()
        assert states(either_store, job_id) == ["running"], "it has looked at the clock while another led"


@pytest.mark.parametrize("jump", [3600.0, -3600.0], ids=["forward", "back"])
def test_what_was_written_since_a_jump_of_the_clock_stays(
    either_store: Store, tmp_path: Path, jump: float
) -> None:
    """A plan sets a deadline, and its shards wait: moved along, the job would be over at once."""
    before = submit(either_store, "")
    plan = claim(either_store, WORKER)
    reaper = Reaper(either_store, settings(tmp_path), device_classes=("cpu",))
    reaper.sweep()
    all_times(either_store, jump)
    seen_before(reaper._duty, jump)
    assert either_store.shards.finish_plan(plan, {**plan_of(1), "deadline_seconds": 3000.0})
    started = planned(either_store, 1, timeout_seconds=3000)
    deadlines = {job: either_store.jobs.get(job).deadline for job in (before, started)}
    reaper.sweep()
    for job, deadline in deadlines.items():
        row = either_store.jobs.get(job)
        assert row.state == "running"
        assert row.deadline == pytest.approx(deadline, abs=30) or (jump > 0 and row.deadline > deadline)
        held = claim(either_store, WORKER)
        reaper.sweep()
        assert either_store.jobs.get(job).state == "running", "its clock stood still, and runs on"
        either_store.shards.release(held)


@pytest.mark.parametrize("jump", [3600.0, -3600.0], ids=["forward", "back"])
def test_a_jump_of_the_clock_and_back_ends_no_job(either_store: Store, tmp_path: Path, jump: float) -> None:
    """A deadline of an hour; the start of a job stays where it was when all else has been put right."""
    job_id = planned(either_store, 1, timeout_seconds=3600)
    held = claim(either_store, "elsewhere:kernel:1:2:0")
    reaper = Reaper(either_store, settings(tmp_path), device_classes=("cpu",))
    reaper.sweep()
    deadline = either_store.jobs.get(job_id).deadline
    for step in (jump, -jump):
        all_times(either_store, step)
        seen_before(reaper._duty, step)
        reaper.sweep()
        assert either_store.jobs.get(job_id).state == "running"
    assert either_store.jobs.get(job_id).deadline == pytest.approx(deadline, abs=30)
    assert either_store.shards.renew(held, 60) == "run"


def test_a_jump_of_the_clock_that_could_not_be_put_right_is_found_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = planned(store, 1)
    claim(store, "elsewhere:kernel:1:2:0")
    reaper = Reaper(store, settings(tmp_path), device_classes=("cpu",))
    reaper.sweep()
    all_times(store, 3600.0)
    seen_before(reaper._duty, 3600.0)
    monkeypatch.setattr(store.workers, "reset_clock", away(1, store.workers.reset_clock))
    with pytest.raises(OperationalError):
        reaper.sweep()
    reaper.sweep()
    assert states(store, job_id) == ["running"]


@pytest.mark.costly
@ALWAYS_ON_BOTH
def test_leases_begin_anew_beside_work_on_a_job(either_store: Store) -> None:
    """Who works on a job locks it, and then its shards: in the other order, each waits for the other."""
    job_id = planned(either_store, 1)
    held = claim(either_store)
    with ThreadPoolExecutor(1) as pool:
        with either_store._database.writing() as connection:
            assert lock_job(connection, job_id) is not None
            resetting = pool.submit(either_store.workers.reset_clock, 3600.0, 60.0, time.time(), mark_of(0.0))
            time.sleep(0.5)  # in which it would have locked the shard
            connection.execute(update(shards).where(shards.c.id == held.shard_id).values(done=1))
        resetting.result(30)
    assert either_store.shards.renew(held, 60) == "run"


def test_a_jump_of_the_clock_within_a_sweep_takes_nothing(
    either_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = planned(either_store, 1, timeout_seconds=600)
    claim(either_store, "elsewhere:kernel:1:2:0")
    reaper = Reaper(either_store, settings(tmp_path), device_classes=("cpu",))
    reaper.sweep()
    running = either_store.shards.running

    def meanwhile() -> object:
        """The clock jumps once the reaper has looked at it."""
        all_times(either_store, 3600.0)
        reaper._duty.at -= 3600.0
        return running()

    monkeypatch.setattr(either_store.shards, "running", meanwhile)
    reaper.sweep()
    assert states(either_store, job_id) == ["running"]
    assert either_store.jobs.get(job_id).state == "running"
