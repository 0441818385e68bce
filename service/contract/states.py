"""The states of jobs and shards, and which state may follow which."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """State of a job."""

    WAITING = "waiting"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    CANCELING = "canceling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMED_OUT = "timed_out"

    @property
    def terminal(self) -> bool:
        """Whether nothing more will happen unless the user retries."""
        return self in TERMINAL


class ShardState(StrEnum):
    """State of a shard."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"


TERMINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELED, JobState.TIMED_OUT})
RETRYABLE = frozenset({JobState.FAILED, JobState.CANCELED, JobState.TIMED_OUT})
STOPPED = frozenset({JobState.CANCELING, JobState.CANCELED, JobState.TIMED_OUT})  # Their memory is freed.

JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    # waiting: the weights come from a job that has not finished.
    JobState.WAITING: frozenset({JobState.QUEUED, JobState.FAILED, JobState.CANCELED, JobState.TIMED_OUT}),
    JobState.QUEUED: frozenset({JobState.STARTING, JobState.CANCELED, JobState.TIMED_OUT, JobState.FAILED}),
    JobState.STARTING: frozenset(  # starting: a worker holds the plan or train shard and loads model and data
        {
            JobState.RUNNING,
            JobState.QUEUED,
            JobState.CANCELING,
            JobState.CANCELED,
            JobState.FAILED,
            JobState.TIMED_OUT,
            JobState.SUCCEEDED,
        }
    ),
    JobState.RUNNING: frozenset(
        {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELING, JobState.CANCELED, JobState.TIMED_OUT}
    ),
    JobState.CANCELING: frozenset({JobState.CANCELED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset({JobState.QUEUED, JobState.WAITING}),
    JobState.CANCELED: frozenset({JobState.QUEUED, JobState.WAITING}),
    JobState.TIMED_OUT: frozenset({JobState.QUEUED, JobState.WAITING}),
}

SHARD_TRANSITIONS: dict[ShardState, frozenset[ShardState]] = {
    ShardState.QUEUED: frozenset({ShardState.RUNNING, ShardState.CANCELED, ShardState.FAILED}),
    ShardState.RUNNING: frozenset(
        {ShardState.DONE, ShardState.QUEUED, ShardState.FAILED, ShardState.CANCELED}
    ),
    ShardState.DONE: frozenset(),
    ShardState.FAILED: frozenset({ShardState.QUEUED}),
    ShardState.CANCELED: frozenset({ShardState.QUEUED}),
}
