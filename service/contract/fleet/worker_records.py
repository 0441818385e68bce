"""Types of what a worker says of itself: its identity, and the measurements that come with its heartbeat."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NotRequired, TypedDict

from assay.service.contract.weights.pulled import PulledRecord

# How the reasons of a worker that lacks data begin: no data root, no folder, or the folder is on its way.
NO_ROOT, NO_FOLDER, STAGES = "it has no data root", "it has no folder", "it stages"
NO_WEIGHTS, STAGES_WEIGHTS = "it lacks the weights", f"{STAGES} the weights"
LACKS_DATA = (NO_ROOT, NO_FOLDER, STAGES)
MAX_STAGED = 200  # data sets that a worker announces


class WorkerIdentity(TypedDict):
    """The code that a worker's numbers depend on; workers with the same `digest` may share a job.

    `source_sha256` is the hash of Assay's source, `packages` are versions by name, `catalog` is the digest of
    the catalog. `libraries` are versions of packages that run attacks of jobs that name them: no part of the
    worker's digest, and missing in plans of earlier versions.
    """

    digest: str
    source_sha256: str
    packages: dict[str, str]
    catalog: str
    libraries: NotRequired[dict[str, str]]


class CodeProvenance(TypedDict):
    """The code that ran: its version, commit (None outside a checkout), and a hash of its source."""

    version: str | None
    commit: NotRequired[str | None]
    source_sha256: NotRequired[str]


class Requirements(TypedDict, total=False):
    """What a shard's worker must have beside its device class and its identity.

    `folders` are below its data root, `data` are the sha256 of data sets' content by label, `weights` the
    sha256 of pulled weights by reference, empty where submission could not know it. Each GPU must have
    `memory` bytes and the compute `capability`; `gpu` asks for a GPU at all. `libraries` are versions of
    packages that run attacks, empty for any. `files` are folders below the data root, each with the module
    that has the files too. `besides` names a worker that the shard is not for, as it has measured it.
    """

    folders: list[str]
    data: dict[str, str]
    weights: dict[str, str]
    memory: int
    capability: str
    gpu: bool
    libraries: dict[str, str]
    files: dict[str, str]
    besides: str


class Repeated(TypedDict):
    """Shards computed again: with `equal` bits, by `other_workers` of these, or `not_compared` and why."""

    shards: int
    equal: int
    other_workers: int
    not_compared: dict[str, int]


class GpuMemory(TypedDict):
    """Bytes of a GPU's memory: total, used by all processes, and reserved by the evaluator.

    `busy` is the share of the last moment in which it computed, for any process; missing where unknown.
    """

    name: str
    total: int
    used: int
    reserved: int
    busy: NotRequired[float]


class ContainmentRecord(TypedDict):
    """A worker's ASSAY_SANDBOX, and the parts of the containment that its evaluators lack.

    `optional` are missing parts that the mode `required` does without: `user`, unless it is demanded.
    `compiles` says whether evaluators of jobs that ask for compiled passes may start compilers.
    """

    mode: Literal["off", "auto", "required"]
    missing: list[str]
    optional: NotRequired[list[str]]
    compiles: NotRequired[bool]


def refused_parts(mode: str, missing: Iterable[str]) -> list[str]:
    """The parts without which a worker takes no work. `missing`: no optional parts."""
    return [part for part in missing if mode == "required" or (mode == "auto" and part == "user")]


class DeviceTest(TypedDict):
    """One device as the self-test found it: `fault` says what is wrong, None where it computes as it must.

    `device` is "cpu" or "cuda:0", memory is in bytes, `capability` is the GPU's compute capability. What the
    test could not read is None.
    """

    device: str
    name: str | None
    fault: str | None
    total: int | None
    free: int | None
    capability: str | None


class SelfTestRecord(TypedDict):
    """A worker's self-test: versions of torch, of its CUDA and NCCL (None without), and each device.

    `deterministic` says whether torch refuses operators with results that do not repeat.
    """

    torch: str
    cuda: str | None
    nccl: str | None
    deterministic: bool
    source_sha256: str
    devices: list[DeviceTest]


class Gauges(TypedDict, total=False):
    """The GPU's memory while an evaluator uses it, the digest of the worker's catalog, its containment.

    `code` is the worker's release; workers of earlier versions do not say it. `other_data` says which of its
    data sets differ from a plan's. `self_test` is the latest self-test, `unfit` says why each device class
    failed it, `cordoned` why the worker takes no work at all. `proposal` says how many workers should share
    a GPU, where others than now. `folders` are the first folders below its data root, `data` the sha256 of
    the data sets that it has hashed, by label, `weights` its pulled weights, by reference, `libraries` the
    versions of packages that run attacks. `staged` are the data sets that were copied from the store, by
    folder, with the sha256 of their tree. `lacks` says, by the digest of requirements of queued shards, why
    it does not meet them.
    """

    gpu: GpuMemory
    catalog: str
    code: CodeProvenance
    containment: ContainmentRecord
    other_data: list[str]
    folders: list[str]
    data: dict[str, str]
    weights: dict[str, PulledRecord]
    libraries: dict[str, str]
    staged: dict[str, str]
    lacks: dict[str, str]
    self_test: SelfTestRecord
    unfit: dict[str, str]
    cordoned: str
    proposal: str
