"""What a fleet's controller reports, and fleets as administrators see them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from assay.service.contract.results import Answer

NAME_PATTERN = r"^[a-z0-9][a-z0-9-]{0,39}$"
MAX_WORKERS = 10_000
WorkerCount = Annotated[int, Field(ge=0, le=MAX_WORKERS)]

Phase = Literal["begins", "runs", "ends"]


class FleetReport(BaseModel):
    """The workers of a fleet: at most, started, and asked for with the scheduler's reason (`Priority`).

    `phase`: of its controller; when it begins, the code of its workers is learned again.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    engine: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9 ._-]{0,39}$")]
    device: Literal["cpu", "cuda"]
    devices: Annotated[int, Field(ge=1, le=64)] = 1
    most: Annotated[int, Field(ge=1, le=MAX_WORKERS)]
    running: WorkerCount
    pending: WorkerCount
    reason: Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    phase: Phase = "runs"


class FleetStatus(Answer):
    """A fleet's last report, `online` if it is of the last three minutes and no end, and its work now.

    `queued` shards could be run by its workers, `busy` shards are; `withheld` shards are queued for other
    code, or held back by a limit of their tenant. `identity`: of the code of its workers; empty for unknown.
    `refused`: why this code may take no work, "unknown" or "withdrawn"; else empty. `last_report` is ISO 8601
    in UTC. `ended`: its controller said that it ends. `names`: of its workers with a sign of life in the
    last minute; None from services of an earlier version.
    """

    name: str
    engine: str
    device: str
    devices: int
    most: int
    running: int
    pending: int
    reason: str
    online: bool
    ended: bool = False
    names: list[str] | None = None
    queued: int
    busy: int
    withheld: int = 0
    identity: str = ""
    refused: str = ""
    last_report: str
