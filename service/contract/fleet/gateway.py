"""What workers and the gateway say to each other; a call about a shard carries the token of its claim."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from assay.service.contract.typed_values import MAX_INTEGER

MAX_WAIT_SECONDS = 50.0  # Less than a worker without a sign of life is called online
MAX_CHECKPOINTS = 2  # Of a training that are kept
STEP_FILE = r"step-(\d{9})\.([0-9a-f]{16})\.pt"  # As workers/training/checkpoint.py names them

WireName = Annotated[str, Field(max_length=300)]
WireId = Annotated[
    str, Field(max_length=300, pattern=r"^[^%\x00-\x1f\x7f]*$")
]  # A lane's text is in statements
WireIds = Annotated[list[WireId], Field(max_length=300)]
WireDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{0,64}$")]
WireDevice = Literal["cpu", "cuda", "checks"]
WireDevices = Annotated[list[WireDevice], Field(max_length=3)]
WireLaneDevice = Literal["auto", "cpu", "cuda", "checks"]
WireText = Annotated[str, Field(max_length=10_000)]
WireCount = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
WireDeviceCount = Annotated[int, Field(ge=0, le=64)]
WireSeconds = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
WireFacts = dict[str, Any]  # Checked by a TypedDict of the contract


def gateway_address(url: str) -> str:
    """The same; ValueError: neither empty nor an address of HTTP, or with the interface's path."""
    parts = urlsplit(url)
    if url and not (parts.hostname and parts.scheme in ("http", "https")):
        raise ValueError(f"{url!r} given; allowed: https://host, or http://host on a network of your own")
    address, api, _ = url.partition("/api/v1")
    if api:
        raise ValueError(f"{url!r} given; allowed: the service's address, {address}")
    return url


class Call(BaseModel):
    """A call of a worker."""

    model_config = ConfigDict(extra="forbid", strict=True)


class LanePart(Call):
    """A lane, as `store.fleet.fair_queue.Lane`."""

    device: WireLaneDevice
    identity: WireDigest
    requirements: WireDigest


class BeatPart(Call):
    """A worker's sign of life; `name` and `worker` without the pool that the key gives them."""

    worker: WireId
    host: WireName
    device_classes: WireDevices
    pid: WireCount
    gauges: WireFacts
    devices: WireDeviceCount
    name: WireId
    identity: WireDigest


class WorkerCall(Call):
    """A call of a worker about itself."""

    name: WireId
    identity: WireDigest
    device_classes: WireDevices
    beat: BeatPart | None = None


class ClaimCall(WorkerCall):
    """A question for a shard, held open for `wait_seconds`; `seen`: the lanes that were judged.

    `checks`: the answer also says whether there is an upload to check, for another supervisor of the node.
    `seconds`: what the worker has for the shard, None: any length; `unknown_seconds`: what a shard of unknown
    length counts for.
    """

    worker: WireId
    lease_seconds: Annotated[float, Field(ge=1, le=3600)]
    without: WireIds
    warm_job: WireId | None
    warm_shards: WireCount
    devices: WireDeviceCount
    lanes: Annotated[list[LanePart], Field(max_length=1000)]
    seen: WireDigest
    wait_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)]
    seconds: Annotated[float, Field(allow_inf_nan=False)] | None = None
    unknown_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    checks: bool = False


class OnlineCall(Call):
    """How many other workers serve a device class?"""

    device: WireLaneDevice
    devices: WireDeviceCount
    besides: WireId


class UnmetCall(Call):
    """Does every worker of a device class lack it?"""

    device: WireLaneDevice
    requirements: WireDigest


class NamedCall(Call):
    """A call about the worker alone."""

    worker: WireId


class CounterPart(Call):
    """An amount to be added to a counter."""

    name: Annotated[str, Field(pattern=r"^assay_[a-z_]{1,80}$")]
    labels: Annotated[dict[WireName, WireName], Field(max_length=10)]
    amount: Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class CountersCall(Call):
    """Amounts to be added to counters."""

    counters: Annotated[list[CounterPart], Field(max_length=1000)]


class HeldCall(Call):
    """A call about a claimed shard."""

    token: Annotated[str, Field(max_length=4000)]


class ProgressPart(Call):
    """Examples or steps done."""

    done: WireCount
    total: WireCount | None
    message: WireText | None
    speed: WireFacts


class ProgressCall(HeldCall, ProgressPart):
    """Progress without a renewal."""


class RenewCall(HeldCall):
    """Extends the lease."""

    lease_seconds: Annotated[float, Field(ge=1, le=3600)]
    beat: BeatPart | None = None
    progress: ProgressPart | None = None


class CheckpointCall(HeldCall):
    """A saved training step."""

    step: WireCount


class LimitCall(HeldCall):
    """A deadline of the job."""

    seconds: WireSeconds


class MessageCall(HeldCall):
    """A message for the job's user."""

    message: WireText


class ReleaseCall(MessageCall):
    """The shard goes back; `fault`: since a device failed."""

    fault: bool


class FailCall(MessageCall):
    """A failure of the shard."""

    error_type: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    retry: bool
    fingerprint: WireName | None


class CheckedCall(HeldCall):
    """The verdict on an upload."""

    verdict: WireFacts
    error: WireText | None


class PlanCall(HeldCall):
    """A plan, with the requirements of each evaluation's shards."""

    plan: WireFacts
    requirements: Annotated[list[WireFacts], Field(max_length=1000)]
    repeat: Annotated[float, Field(ge=0, le=1)]


class FinishCall(HeldCall):
    """An outcome; `columns` and `extra` as `store.rows.OutcomeRow`, whose numbers may be non-finite."""

    n: WireCount
    columns: WireFacts
    seconds: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
    forward_passes: WireCount
    backward_passes: WireCount
    extra: WireFacts


class PresignCall(HeldCall):
    """A file that a worker would get from the store of files itself, or put there, with its hash and size."""

    method: Literal["GET", "PUT"]
    job: WireId
    name: WireName
    sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    size: WireCount = 0


class DownloadCall(HeldCall):
    """A file that the claim's job needs; `known`: the SHA-256 of the worker's copy."""

    job: WireId
    name: WireName
    known: WireDigest | None
