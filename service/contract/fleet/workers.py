"""Workers, as administrators see them."""

from __future__ import annotations

from typing import Literal

from assay.service.contract.results import Answer

# `cordoned` is out of service by an administrator, `unfit` by its own self-test or its missing containment,
# `unknown` since its code is neither the service's own nor allowed.
WorkerState = Literal["online", "cordoned", "unknown", "unfit", "offline"]
# `declared` by the service at its start, the others by an administrator.
Admission = Literal["declared", "allowed", "withdrawn"]
DIGEST_PATTERN = r"^[0-9a-f]{16}$"
LOG_FOLLOWS = ": log "  # In a fleet's reason, before the place of a log, which is no tenant's


class WorkerDevice(Answer):
    """A device in the latest self-test; `fault` is null where it computed right. Memory is in bytes."""

    device: str
    name: str | None
    fault: str | None
    total: int | None
    free: int | None
    capability: str | None


class WorkerCordon(Answer):
    """Who took a worker out of service, and when; with `drain` its running shard was taken back too."""

    by: str
    since: str
    drain: bool


class WorkerStatus(Answer):
    """A worker: its place (`name`, which a restart keeps), its process, and whether it takes shards.

    `reason`: why it does not, `unfit`: why it does not serve a device class. It runs `shard` and `job`.
    `last_beat` is ISO 8601 in UTC. `torch`, `cuda`, `source_sha256` and `self_test` are of its latest
    self-test; a worker without a GPU makes its first with its first shard. A cordon alone has no process:
    `id`, `host`, `pid` and `last_beat` are null. `folders` are the first below its data root, `data` the
    sha256 of the data sets that it has hashed, by label, `weights` of its pulled weights, by reference;
    `staged` the data sets that were copied from the store, by folder, with the sha256 of their tree;
    `lacks`: why it leaves waiting shards to others.
    `proposal` says how many workers should share its GPU, where others than now.
    `identity` is the digest of its source, packages and catalog, `version` and `commit` are its release's.
    """

    name: str
    id: str | None
    host: str | None
    pid: int | None
    state: WorkerState
    reason: str | None
    device_classes: list[str]
    devices: int
    last_beat: str | None
    cordon: WorkerCordon | None
    unfit: dict[str, str]
    shard: str | None
    job: str | None
    self_test: list[WorkerDevice]
    torch: str | None
    cuda: str | None
    source_sha256: str | None
    identity: str | None
    version: str | None
    commit: str | None
    catalog: str | None
    folders: list[str]
    data: dict[str, str]
    weights: dict[str, str]
    staged: dict[str, str]
    lacks: list[str]
    proposal: str | None = None


class IdentityStatus(Answer):
    """Whether workers of an identity may take work, who said so, and since when.

    `identity` is a digest; what a service declares of its own release is the hash of its source, or its
    commit or version where it lacks a part of the source. `workers` counts workers online.
    """

    identity: str
    verdict: Admission
    by: str
    since: str
    workers: int
