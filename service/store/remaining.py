"""How long a job will still take, from its mean speed so far."""

from __future__ import annotations

from typing import Protocol

from service.contract.states import JobState


class Standing(Protocol):
    """What the estimate reads: a row of `jobs`, or some of its columns."""

    @property
    def state(self) -> str: ...  # noqa: D102
    @property
    def started_at(self) -> float | None: ...  # noqa: D102
    @property
    def progress_done(self) -> int: ...  # noqa: D102
    @property
    def progress_total(self) -> int | None: ...  # noqa: D102
    @property
    def cost_done(self) -> float: ...  # noqa: D102
    @property
    def cost_total(self) -> float | None: ...  # noqa: D102


def eta_seconds(row: Standing, now: float) -> float | None:
    """Seconds until the job is done, from its mean speed so far; None when it cannot be known.

    Cost (model passes) is the better measure where it is known: attacked examples take longer than
    clean ones.
    """
    if row.state not in (JobState.STARTING, JobState.RUNNING) or row.started_at is None:
        return None
    if row.cost_total:
        share = row.cost_done / row.cost_total
    elif row.progress_total:
        share = row.progress_done / row.progress_total
    else:
        return None
    elapsed = max(now - row.started_at, 0.0)
    if not 0 < share <= 1:
        return None
    return round(elapsed * (1 - share) / share, 1)
