"""How long a job will still take, from its speed since its present attempt began to measure."""

from __future__ import annotations

from typing import Protocol

from assay.service.contract.states import JobState


class Standing(Protocol):
    """What the estimate reads: a row of `jobs`, or some of its columns."""

    @property
    def state(self) -> str: ...  # noqa: D102
    @property
    def paced_at(self) -> float | None: ...  # noqa: D102
    @property
    def paced_from(self) -> float: ...  # noqa: D102
    @property
    def cost_done(self) -> float: ...  # noqa: D102
    @property
    def cost_total(self) -> float | None: ...  # noqa: D102


def eta_seconds(row: Standing, now: float) -> float | None:
    """Seconds until the job is done at its mean speed so far; None when it cannot be known.

    Measured in cost (model passes, training steps) and not in examples, because attacked ones take longer
    than clean ones; from the claim of the attempt's first shard that measures, because planning and
    what an earlier attempt did say nothing about speed.
    """
    if row.state not in (JobState.STARTING, JobState.RUNNING) or row.paced_at is None or not row.cost_total:
        return None
    done = row.cost_done - row.paced_from
    left = row.cost_total - row.cost_done
    if done <= 0 or left < 0:
        return None
    return round(max(now - row.paced_at, 0.0) * left / done, 1)
