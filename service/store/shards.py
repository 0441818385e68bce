"""Shards: claimed by one worker at a time, and finished once.

A claim's fence grows with every claim of the shard and guards every write of a worker: a worker that was
presumed dead and returns changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Literal

from sqlalchemy import ColumnElement, Connection, bindparam, select, update

from assay.service.contract.fleet.worker_records import Requirements
from assay.service.contract.limits import UNLIMITED, Limits
from assay.service.contract.records import PlanWithShards, TrainingSpeed
from assay.service.contract.states import JobState, ShardState
from assay.service.store.clock import now
from assay.service.store.database import StorePart
from assay.service.store.fleet.fair_queue import Lane
from assay.service.store.row_mapping import read_job, shard_row
from assay.service.store.rows import (
    Claim,
    Finished,
    JobRow,
    OutcomeRow,
    ProgressSnapshot,
    ShardReport,
    ShardRow,
)
from assay.service.store.tables import RUNNING, jobs, shards
from assay.service.store.transactions.charge import ALL, charge
from assay.service.store.transactions.claim import Claimer, candidate, changed_clock, fits, retake, take
from assay.service.store.transactions.deadline import lower_deadline
from assay.service.store.transactions.event_log import one_line, record_message
from assay.service.store.transactions.finish import finish, finished_before
from assay.service.store.transactions.progress import progress_snapshot, set_done, take_reports
from assay.service.store.transactions.release import ShardFailure, count_failure, expire, fail, requeue
from assay.service.store.transactions.standings import read_pool, set_clock
from assay.service.store.transactions.transitions import (
    CLAIMABLE,
    HELD,
    complete,
    lock_claim,
    lock_job,
    of_claim,
    transition_job,
)
from assay.service.store.transactions.write_plan import write_plan

RenewalVerdict = Literal["run", "cancel", "lost"]
MAX_LOOKS = 20  # At jobs that a worker with an end has no time for
RENEWED = update(shards).where(HELD).values(lease_until=now() + bindparam("seconds"))
JOB_STATE = select(jobs.c.state).where(jobs.c.id == bindparam("job"))
# A list of fixed length: the statement is compiled once. A worker has three device classes at most.
DEVICES = ("device_0", "device_1", "device_2", "device_3")
PLANNED_NOW = (
    select(shards.c.id)
    .where(RUNNING, shards.c.kind == "plan", shards.c.device.in_([bindparam(name) for name in DEVICES]))
    .limit(1)
)


class Shards(StorePart):
    """The work queue."""

    def claim(
        self,
        worker: str,
        device_classes: Sequence[str],
        *,
        lease_seconds: float,
        identity: str = "",
        without: Sequence[str] = (),
        warm_job: str | None = None,
        warm_shards: int = 0,
        devices: int = 1,
        limits: Limits = UNLIMITED,
        lanes: Sequence[Lane] | None = None,
        seconds: float | None = None,
        unknown_seconds: float = 0.0,
        admitted: bool | None = None,
    ) -> Claim | None:
        """Claims the best shard for a worker (an opaque id); None when no shard is claimable.

        `device_classes`: "cpu", "cuda"; shards for "auto" run anywhere. `lease_seconds`: of the claim without
        renewal. `identity`: jobs planned by other code give no shard. `without`: unfit jobs. `warm_job`: its
        model is loaded, and `warm_shards` of its shards ran in a row; it comes first within its tenant, and
        for `fair_queue.WARM_SHARDS` in a row also in another tenant's turn. `devices`: for a shard. `lanes`:
        with requirements that the worker meets; None: all. `seconds`: a job whose next shard takes longer is
        left to others, `MAX_LOOKS` in a call; None: any length. `unknown_seconds`: what a shard of unknown
        length counts for. `admitted`: whether code of this `identity` may take work; None: not yet known.
        """
        known = (warm_job, warm_shards, tuple(without), identity, None if lanes is None else tuple(lanes))
        claimer = Claimer(worker, device_classes, devices, *known, admitted)
        looks = 0
        while looks < MAX_LOOKS:
            with self._database.reading() as connection:  # Polls take no lock: idle workers cost nothing.
                found = candidate(connection, claimer, limits)
                if found is None:
                    return None
                if seconds is not None and not fits(connection, found, claimer, seconds, unknown_seconds):
                    claimer, looks = replace(claimer, without=(*claimer.without, found.job_id)), looks + 1
                    continue
            with self._database.writing() as connection:
                claim = take(connection, found, claimer, lease_seconds)
            if claim is not None:
                return claim
        return None

    def claimable(
        self,
        device_classes: Sequence[str],
        devices: int = 1,
        limits: Limits = UNLIMITED,
        identity: str = "",
        *,
        without: Sequence[str] = (),
        lanes: Sequence[Lane] | None = None,
    ) -> bool:
        """Whether a worker with so many devices of these classes could claim; the rest as of `claim`."""
        met = None if lanes is None else tuple(lanes)
        claimer = Claimer("", device_classes, devices, without=tuple(without), identity=identity, lanes=met)
        with self._database.reading() as connection:
            return candidate(connection, claimer, limits) is not None

    def keep_time(self, device_classes: Sequence[str], devices: int = 1, limits: Limits = UNLIMITED) -> None:
        """Sets the pool's clock forward, as claims do; for sweeps, as hours may pass without a claim."""
        with self._database.reading() as connection:
            pool = read_pool(connection, device_classes, devices, limits)
        clock, known = changed_clock(pool)
        if clock is not None:
            with self._database.writing() as connection:
                set_clock(connection, pool.name, clock, known=known)

    def being_planned(self, device_classes: Sequence[str]) -> bool:
        """Whether a worker could claim shards of a job that is being planned."""
        with self._database.reading() as connection:
            return is_being_planned(connection, device_classes)

    def renew(self, claim: Claim, lease_seconds: float) -> RenewalVerdict:
        """Extends the lease to this many seconds from now, and says how the worker goes on.

        "cancel": the job is being canceled or has ended: stop, then call `canceled`; "lost": the claim is
        void: stop, and write nothing.
        """
        with self._database.writing() as connection:
            return renew(connection, claim, lease_seconds)

    def progress(
        self,
        claim: Claim,
        done: int,
        total: int | None,
        message: str | None = None,
        speed: TrainingSpeed | None = None,
    ) -> None:
        """Reports how many examples or steps of the shard are done; void claims are ignored."""
        # A training shard's first report moves its job from `starting` to `running`. A plan shard keeps only
        # its message.
        with self._database.writing() as connection:
            found = lock_claim(connection, claim)
            if found is None:
                return
            job, shard = found
            set_done(connection, shard, done, total, speed)
            if shard.kind == "train" and job.state == JobState.STARTING:
                transition_job(connection, job.id, {JobState.STARTING}, JobState.RUNNING)
            if message is not None:
                record_message(connection, job.id, one_line(message))

    def report(self, job_id: str, reports: Sequence[ShardReport]) -> None:
        """As `progress`, for evaluate shards of a job: however many, in one short transaction."""
        with self._database.writing() as connection:
            if lock_job(connection, job_id) is not None:
                take_reports(connection, reports)

    def checkpoint(self, claim: Claim, step: int) -> None:
        """Records a saved training step; a later step voids earlier failures and losses."""
        with self._database.writing() as connection:
            none = {"failures": 0, "failed_as": None, "losses": 0, "device_faults": 0}
            later = update(shards).where(HELD, shards.c.saved_step < step)
            connection.execute(later.values(**none, saved_step=step, saved_at=now()), of_claim(claim))

    def limit(self, claim: Claim, seconds: float) -> None:
        """Gives the job a deadline in so many seconds, unless an earlier one or a user's timeout exists."""
        with self._database.writing() as connection:
            found = lock_claim(connection, claim)
            if found is not None:
                lower_deadline(connection, found[0], seconds)

    def finish_plan(
        self,
        claim: Claim,
        plan: PlanWithShards,
        requirements: Sequence[Requirements] = (),
        *,
        repeat: float = 0.0,
    ) -> bool:
        """Writes the job's evaluate shards, once; a share `repeat` of them is to be computed again.

        `plan`: `{"device", "shards": [{"evaluation", "number", "start", "stop", "cost"}], ...}`;
        `requirements`: of each evaluation's shards; empty for none.
        """
        assert claim.kind == "plan", claim.kind
        with self._database.writing() as connection:
            found = lock_claim(connection, claim)
            if found is None:
                return False
            job, shard = found
            planned = bool(job.state == JobState.STARTING)
            if planned:
                complete(connection, shard)
                write_plan(connection, job, plan, requirements, repeat)
            else:
                requeue(connection, job, shard)
            charge(connection, job, [shard], measured=ALL if planned else None)
            return planned

    def finish(self, claim: Claim, outcome: OutcomeRow) -> Finished | None:
        """Writes a shard's outcome and marks it done, in one transaction; None: void claim, nothing written.

        Kept too: an outcome after its job was canceled or has failed, for a retry, and after the lease ran
        out, unless another worker has claimed the shard since. A second call with the same claim (the worker
        missed the answer) writes nothing and returns the same.
        """
        with self._database.writing() as connection:
            found, retaken = lock_claim(connection, claim), False
            if found is None and retake(connection, claim):
                found, retaken = lock_claim(connection, claim), True
            if found is None:
                return finished_before(connection, claim)
            job, shard = found
            completions = finish(connection, job, shard, outcome)
            charge(connection, job, [shard], measured=outcome.seconds, retaken=retaken)
            return completions

    def fail(
        self,
        claim: Claim,
        error_type: str,
        message: str,
        *,
        retry: bool,
        fingerprint: str | None = None,
        cap: int = 3,
        cap_in_all: int = 20,
    ) -> JobRow:
        """Records that the evaluator raised an error or died.

        The shard is queued again; at its `cap`th failure since a checkpoint, its `cap_in_all`th of the
        attempt, the second in a row with a `fingerprint`, or without `retry`, it fails with its job. A void
        claim changes nothing. NotFound: the job has been deleted.
        """
        with self._database.writing() as connection:
            found = lock_claim(connection, claim)
            if found is not None:
                failure = ShardFailure(error_type, message, retry, fingerprint)
                count_failure(connection, *found, failure, cap, cap_in_all)
                charge(connection, found[0], [found[1]])
            return read_job(connection, claim.job_id)

    def canceled(self, claim: Claim) -> None:
        """Records that the worker stopped the shard as told; the last shard cancels the job."""
        self._give_back(claim)

    def release(self, claim: Claim, message: str = "") -> None:
        """Gives the shard back. Counts neither as failure nor as loss."""
        self._give_back(claim, message)

    def device_fault(self, claim: Claim, message: str, *, cap: int = 3) -> None:
        """Gives the shard back after a device's fault; the `cap`th fails its job with `device_fault`."""
        with self._database.writing() as connection:
            found = lock_claim(connection, claim)
            if found is None:
                return
            job, shard = found
            faults = shard.device_faults + 1
            if JobState(job.state) in CLAIMABLE and faults >= cap:
                text = f"devices failed {faults} times under shard {shard.id}, the last time: {message}"
                fail(connection, job, shard, "device_fault", text, device_faults=faults)
            else:
                requeue(connection, job, shard, device_faults=faults)
                record_message(connection, job.id, one_line(message))
            charge(connection, job, [shard])

    def expire(
        self, *, cap: int = 20, dead_owners: Sequence[str] = (), leases: bool = True, at: float | None = None
    ) -> int:
        """Takes back shards with an expired lease (if `leases`) or an owner known to be dead.

        Each is queued again with one more loss; at its `cap`th the job fails with `lost_too_often`. `at`
        None: the database's clock.
        """
        return expire(self._database, cap, dead_owners, leases=leases, at=at)

    def adrift(self, shard_id: str, fence: int) -> bool:
        """Whether a shard's newest claim, of this fence, has run out: `finish` still accepts its outcome."""
        newest = (shards.c.id == shard_id) & (shards.c.fence == fence)
        expired = RUNNING & (shards.c.lease_until < now())
        free = expired | (shards.c.state == str(ShardState.QUEUED))
        with self._database.reading() as connection:
            return connection.execute(select(shards.c.id).where(newest, free)).first() is not None

    def running(self) -> list[ShardRow]:
        """All running shards by id, with `owner`, `fence` and `lease_until`."""
        return self._rows(RUNNING)

    def of(self, job_id: str) -> list[ShardRow]:
        """All shards of a job, by id."""
        return self._rows(shards.c.job_id == job_id)

    def progress_snapshot(self, job_id: str) -> ProgressSnapshot | None:
        """Progress of a job and its running shards at one moment; None for an unknown job."""
        with self._database.reading() as connection:
            return progress_snapshot(connection, job_id)

    def _rows(self, condition: ColumnElement[bool]) -> list[ShardRow]:
        with self._database.reading() as connection:
            rows = connection.execute(select(shards).where(condition).order_by(shards.c.id)).all()
        return [shard_row(row) for row in rows]

    def _give_back(self, claim: Claim, message: str = "") -> None:
        with self._database.writing() as connection:
            found = lock_claim(connection, claim)
            if found is not None:
                job, shard = found
                requeue(connection, job, shard)
                if message:
                    record_message(connection, job.id, one_line(message))
                charge(connection, job, [shard])


def renew(connection: Connection, claim: Claim, lease_seconds: float) -> RenewalVerdict:
    """As `Shards.renew`."""
    if connection.execute(RENEWED, {**of_claim(claim), "seconds": lease_seconds}).rowcount == 0:
        return "lost"
    state = connection.execute(JOB_STATE, {"job": claim.job_id}).scalar_one()
    return "run" if JobState(state) in CLAIMABLE else "cancel"


def is_being_planned(connection: Connection, device_classes: Sequence[str]) -> bool:
    """As `Shards.being_planned`."""
    return connection.execute(PLANNED_NOW, planned_for(device_classes)).scalar() is not None


def planned_for(device_classes: Sequence[str]) -> dict[str, str]:
    """The parameters of `PLANNED_NOW`."""
    assert len(device_classes) < len(DEVICES), device_classes
    return dict(zip_longest(DEVICES, device_classes, fillvalue="auto"))
