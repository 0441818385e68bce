"""The verbs on a job: its routes, subcommands, and the buttons of its page are made of them.

Written out are the methods of the same names: `Jobs` (`store/jobs.py`) does the work, `AssayClient`
(`client/jobs.py`) asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from assay.service.contract.states import RETRYABLE, TERMINAL, JobState

JobAction = Literal["job.cancel", "job.retry", "job.replan", "job.delete"]  # What the audit calls them.


@dataclass(frozen=True)
class Situation:
    """What decides which buttons the page of a job has."""

    state: JobState
    planned: bool
    doubted: bool  # a shard had other numbers when it was computed again
    stranded: Callable[[], bool]  # whether no worker online measures it; asks the database


@dataclass(frozen=True)
class Button:
    """A button of the job's page; with a `consequence` it asks first."""

    offered: Callable[[Situation], bool]
    label: str
    style: Literal["primary", "danger"] = "danger"
    consequence: str = ""
    confirm: str = ""  # label of the second button


@dataclass(frozen=True)
class Verb:
    """What is done to a job as a whole, without further input."""

    name: str
    summary: str
    description: str
    help: str
    button: Button
    said: str = ""  # what the subcommand prints of the job
    limited: bool = False  # whether it adds work, within the limits of the tenant
    deletes: bool = False


ATTEMPT = "{job.state.value}, attempt {job.attempt}"

VERBS = (
    Verb(
        "cancel",
        summary="Cancel a job",
        description="A job that has not started is canceled at once, a running job stops within 20 seconds.",
        help="cancel a job",
        button=Button(lambda job: job.state not in TERMINAL, "Cancel"),
        said="{job.state.value}",
    ),
    Verb(
        "retry",
        summary="Retry a job",
        description="""\
Queues a failed, canceled or timed-out job again under the same id; finished shards are kept.""",
        help="queue a failed, canceled or timed-out job again",
        button=Button(lambda job: job.state in RETRYABLE and not job.doubted, "Retry", "primary"),
        said=ATTEMPT,
        limited=True,
    ),
    Verb(
        "replan",
        summary="Plan a job again",
        description="""\
Plans an evaluation again with the code of the present workers, and measures it again.

For a job that was planned by workers that are gone, after an upgrade: its shards wait for them. It may
be running, as long as no worker has a shard of it. What was measured is deleted, and the provenance of
the results has what was planned before.""",
        help="plan an evaluation again, and measure it again",
        button=Button(
            lambda job: job.planned and (job.state in RETRYABLE or job.stranded()),
            "Plan again",
            consequence="Deletes what was measured, and measures all of it by the code of the present"
            " workers.",
            confirm="Plan it again",
        ),
        said=ATTEMPT,
        limited=True,
    ),
    Verb(
        "delete",
        summary="Delete a finished job",
        description="""\
Deletes the job with its results and artifacts; only when none of it runs and no job waits for it.""",
        help="delete a job that has ended, with its results and files",
        button=Button(
            lambda job: job.state in TERMINAL,
            "Delete",
            consequence="Deletes the job with its results and files.",
            confirm="Delete it",
        ),
        deletes=True,
    ),
)
