"""States change only along the transition tables: by construction, and in a long random life."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

import assay.service.store
from assay.service.contract.errors import InvalidState, NotFound
from assay.service.contract.states import JOB_TRANSITIONS, SHARD_TRANSITIONS, TERMINAL, JobState, ShardState
from assay.service.store.rows import Claim
from assay.service.store.store import Store
from assay.service.store.tables import shards
from assay.service.store.transactions.transitions import (
    IllegalTransitionError,
    states_before,
    transition_job,
    transition_shards,
)
from tests.support.jobs import add, evaluate_spec, outcome, plan, states, train_spec


def test_every_state_has_its_transitions() -> None:
    assert set(JOB_TRANSITIONS) == set(JobState)
    assert set(SHARD_TRANSITIONS) == set(ShardState)
    assert {state for state, following in JOB_TRANSITIONS.items() if not following} == {JobState.SUCCEEDED}
    # Every state but the first ones can be reached, and every job that has not ended can end.
    assert all(states_before(state) for state in JobState)
    assert all(JOB_TRANSITIONS[state] & TERMINAL for state in set(JobState) - TERMINAL)


@pytest.mark.parametrize("start", list(JobState))
@pytest.mark.parametrize("to", list(JobState))
def test_a_job_moves_only_where_the_table_says(start: JobState, to: JobState) -> None:
    class Nothing:
        rowcount = 0

    class Recorder:
        calls = 0

        def execute(self, statement: object) -> type[Nothing]:
            self.calls += 1
            return Nothing

    recorder = Recorder()
    if to in JOB_TRANSITIONS[start]:
        assert not transition_job(recorder, "id", {start}, to)  # type: ignore[arg-type]
        assert recorder.calls == 1
    else:
        with pytest.raises(IllegalTransitionError):
            transition_job(recorder, "id", {start}, to)  # type: ignore[arg-type]
        assert recorder.calls == 0


def test_a_move_is_compare_and_set(store: Store) -> None:
    job_id = add(store, evaluate_spec())
    with store._database.writing() as connection:
        assert not transition_job(connection, job_id, {JobState.WAITING}, JobState.QUEUED)
        assert transition_job(connection, job_id, {JobState.WAITING, JobState.QUEUED}, JobState.CANCELED)
        assert not transition_job(connection, job_id, {JobState.WAITING, JobState.QUEUED}, JobState.CANCELED)
        of_job = shards.c.job_id == job_id
        assert transition_shards(connection, of_job, {ShardState.QUEUED}, ShardState.RUNNING) == 1
        with pytest.raises(IllegalTransitionError):
            transition_shards(connection, of_job, {ShardState.DONE}, ShardState.QUEUED)


def test_no_other_code_sets_a_state() -> None:
    folder = Path(assay.service.store.__file__).parent
    setting = re.compile(r"\.values\([^)]*\bstate=")
    found = [path.name for path in sorted(folder.rglob("*.py")) if setting.search(path.read_text())]
    assert found == ["transitions.py"]


def watch(connection: Connection) -> None:
    """Makes the database itself write down every change of a state."""
    connection.execute(text("CREATE TABLE moves (of_table TEXT, before TEXT, after TEXT)"))
    for table in ("jobs", "shards"):
        insert = f"INSERT INTO moves VALUES ('{table}', OLD.state, NEW.state)"
        if connection.dialect.name == "sqlite":
            on = f"AFTER UPDATE OF state ON {table} WHEN OLD.state <> NEW.state"
            connection.exec_driver_sql(f"CREATE TRIGGER watch_{table} {on} BEGIN {insert}; END")
        else:
            body = f"BEGIN {insert}; RETURN NULL; END"
            make = f"CREATE FUNCTION watch_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$"
            connection.exec_driver_sql(make)
            on = f"AFTER UPDATE ON {table} FOR EACH ROW WHEN (OLD.state <> NEW.state)"
            connection.exec_driver_sql(f"CREATE TRIGGER watch_{table} {on} EXECUTE FUNCTION watch_{table}()")


def unwatch(connection: Connection) -> None:
    for table in ("jobs", "shards"):
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql(f"DROP TRIGGER watch_{table}")
        else:
            connection.exec_driver_sql(f"DROP FUNCTION watch_{table} CASCADE")
    connection.exec_driver_sql("DROP TABLE moves")


class Life:
    """Random calls on a handful of jobs, by users, workers dead and alive, and the reaper."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.draw = random.Random(seed)
        self.claims: list[Claim] = []
        self.jobs: list[str] = []

    def step(self) -> None:
        """One call; a refusal that the contract names is fine."""
        calls: list[Callable[[], object]] = [self.add, self.on_job, self.on_job, self.reap]
        calls += [self.take] * 3 + [self.on_claim] * 5
        with contextlib.suppress(InvalidState, NotFound):
            self.draw.choice(calls)()

    def add(self) -> None:
        if len(self.jobs) >= 5:
            return
        open_jobs = [job for job in self.jobs if states(self.store, job)[0] not in {str(s) for s in TERMINAL}]
        trains = [job for job in open_jobs if self.store.jobs.get(job).kind == "train"]
        source = self.draw.choice([*trains, None])
        make = self.draw.choice([train_spec, evaluate_spec])
        self.jobs.append(add(self.store, make(weights_from=source, priority=self.draw.randrange(3))))

    def on_job(self) -> None:
        if not self.jobs:
            return
        jobs, job = self.store.jobs, self.draw.choice(self.jobs)
        call = self.draw.choice(["cancel", "retry", "retry", "fail", "delete", "succeed"])
        if call == "fail":
            jobs.fail(job, "save_failed", "disk full")
        elif call == "succeed":
            jobs.succeed(job, {})
        elif call == "delete":
            jobs.delete(job)
            self.jobs.remove(job)
        else:
            getattr(jobs, call)(job)

    def reap(self) -> None:
        dead = [self.draw.choice(self.claims).worker] if self.claims else []
        self.store.shards.expire(cap=2, dead_owners=dead)
        for job in self.store.jobs.ready_to_finish():
            assert self.store.jobs.succeed(job, {})

    def take(self) -> None:
        worker = f"worker-{len(self.claims)}"
        taken = self.store.shards.claim(worker, ["cpu"], lease_seconds=60)
        if taken is not None:
            self.claims.append(taken)

    def on_claim(self) -> None:
        if not self.claims:
            return
        # Old claims too: most of them are void by now.
        held, queue = self.draw.choice(self.claims[-6:]), self.store.shards
        call = self.draw.choice(
            ["end", "end", "progress", "checkpoint", "fail", "renew", "release", "canceled"]
        )
        if call == "end":
            self.end(held)
        elif call == "fail":
            queue.fail(held, "boom", "no", retry=self.draw.random() < 0.8, cap=2)
        elif call == "progress":
            queue.progress(held, self.draw.randrange(12), 12, "at work")
        elif call == "renew":
            queue.renew(held, 60)
        elif call == "checkpoint":
            queue.checkpoint(held, self.draw.randrange(12))
        else:
            getattr(queue, call)(held)

    def end(self, held: Claim) -> None:
        if held.kind == "plan":
            self.store.shards.finish_plan(held, plan(2, 1))
        else:
            self.store.shards.finish(held, outcome(held))

    def check(self) -> None:
        """Invariants between any two calls."""
        for job_id in self.jobs:
            job, parts = self.store.jobs.get(job_id), self.store.shards.of(job_id)
            standing = {part.state for part in parts}
            live = ShardState.QUEUED in standing or ShardState.RUNNING in standing
            assert (job.finished_at is not None) == job.state.terminal
            assert (job.error is not None) == (job.state in {JobState.FAILED, JobState.TIMED_OUT})
            if job.state.terminal or job.state is JobState.CANCELING:
                assert ShardState.QUEUED not in standing
            else:
                # Never stuck: there is work to claim or to finish, or all is done and the merge is due.
                assert live or standing == {ShardState.DONE}
                assert not standing & {ShardState.FAILED, ShardState.CANCELED}
            if job.state is JobState.CANCELING:
                assert ShardState.RUNNING in standing
            if job.state is JobState.STARTING:
                # At work, or a training that never reported and has just finished.
                assert standing <= {ShardState.RUNNING, ShardState.DONE}
            if job.state in {JobState.WAITING, JobState.QUEUED}:
                assert ShardState.RUNNING not in standing
            assert all((part.owner is not None) == (part.state is ShardState.RUNNING) for part in parts)
            if job.state is not JobState.SUCCEEDED:
                assert job.progress_done == sum(part.done for part in parts)


def test_a_random_life_makes_only_legal_moves_and_is_never_stuck(store: Store) -> None:
    with store._database.writing() as connection:
        watch(connection)
    try:
        life = Life(store, seed=3)
        for _ in range(150):
            life.step()
            life.check()
        with store._database.reading() as connection:
            rows = connection.execute(text("SELECT DISTINCT of_table, before, after FROM moves")).all()
    finally:
        with store._database.writing() as connection:
            unwatch(connection)
    for table, before, after in rows:
        if table == "jobs":
            assert JobState(after) in JOB_TRANSITIONS[JobState(before)]
        else:
            assert ShardState(after) in SHARD_TRANSITIONS[ShardState(before)]
    # The walk saw most of life; there are 27 such moves without time-outs.
    assert len(rows) >= 16
