"""What has been computed, as the service answers."""

from __future__ import annotations

from typing import Literal

from assay.service.contract.results import Answer

UsageBy = Literal["job", "tenant", "tag", "study"]


class DeviceSeconds(Answer):
    """Seconds times devices; `total` has the other fields within it.

    `starts`: evaluators started, loaded models and data, and sent outcomes. `lost`: claims without outcome
    (failures, lost and preempted workers; of trainings what no checkpoint kept), and outcomes that a new plan
    voided. `repeated`: shards computed again as a proof. `running`: claims that have not ended.
    """

    total: float
    starts: float
    lost: float
    repeated: float
    running: float


class UsageLine(Answer):
    """What the jobs of a key have used.

    `key`: the job, tenant, tag or study; null for jobs without, and by job for checks of uploads. `name`: of
    the job or study; null if it is deleted, and for tenants and tags.
    """

    key: str | None
    name: str | None
    jobs: int
    gpu: DeviceSeconds
    cpu: DeviceSeconds


class Usage(Answer):
    """Lines, most GPU-seconds first. `total` counts each job once, also a job with several tags."""

    by: UsageBy
    since: str  # days in UTC, both included
    until: str
    total: UsageLine
    items: list[UsageLine]
    next_cursor: str | None
