"""Limits and weights of tenants, and what a tenant has used of them, as users see them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from assay.service.contract.results import Answer

MAX_NUMBER = 2**53 - 1
MIN_WEIGHT, MAX_WEIGHT = 0.01, 1000.0


@dataclass(frozen=True)
class Limits:
    """Limits of a tenant; 0 means no limit."""

    queued_jobs: int = 0  # jobs that have not started: queued, or waiting for other jobs
    running_shards: int = 0  # shards that workers hold at one moment
    gpu_seconds: int = 0  # device-seconds on workers with a GPU, per calendar day in UTC
    cpu_seconds: int = 0  # the same on workers without a GPU
    stored_bytes: int = 0  # of checkpoints, artifacts and uploads in flight
    uploads: int = 0  # in flight

    def overridden(self, own: dict[str, int | None]) -> Limits:
        """These limits with a tenant's own; None keeps the default."""
        return replace(self, **{name: value for name, value in own.items() if value is not None})

    def max_day_seconds(self, pool: str) -> int:
        """The limit of device-seconds per day on a pool of workers; 0 for none, as for checks of uploads."""
        return {"cuda": self.gpu_seconds, "cpu": self.cpu_seconds}.get(pool, 0)


LIMITS: tuple[str, ...] = tuple(field.name for field in fields(Limits))
UNLIMITED = Limits()
Number = Annotated[int, Field(ge=0, le=MAX_NUMBER)] | None


class TenantSettings(BaseModel):
    """Weight of a tenant and its own limits: null is the default of the service, 0 is no limit."""

    model_config = ConfigDict(extra="forbid", strict=True)

    weight: Annotated[float, Field(ge=MIN_WEIGHT, le=MAX_WEIGHT, allow_inf_nan=False)] = 1.0
    queued_jobs: Number = None
    running_shards: Number = None
    gpu_seconds: Number = None
    cpu_seconds: Number = None
    stored_bytes: Number = None
    uploads: Number = None

    @property
    def own_limits(self) -> dict[str, int | None]:
        """The limits by name."""
        return {name: getattr(self, name) for name in LIMITS}


class Tenant(Answer):
    """A tenant as operators see it. `limits` are the limits in force, `own` the limits set for it alone."""

    name: str
    weight: float
    own: dict[str, int | None]
    limits: dict[str, int]


class LimitStatus(Answer):
    """One limit: `limit` and `left` are null without a limit, `resets_at` without a clock."""

    limit: int | None
    used: int
    left: int | None
    resets_at: str | None


class QueueStatus(Answer):
    """Place of a tenant in the queue of a device class.

    `queued` shards of its own can be claimed now. About `before` shards of other tenants are claimed before
    its next one. `share` is its part of the workers while all that queue now go on queueing, in [0, 1].
    """

    device: Literal["cpu", "cuda"]
    queued: int
    running: int
    before: int
    share: float


class QuotaStatus(Answer):
    """Limits and usage of the caller's tenant; `tenant` is empty where the service asks for no keys."""

    tenant: str
    weight: float
    limits: dict[str, LimitStatus]
    queue: list[QueueStatus]
    delayed_by: list[str]


def limit_values(limits: Limits) -> dict[str, int]:
    """The limits by name."""
    return asdict(limits)
