"""What a shard asks of its worker: folders, content of data sets, a GPU and its memory.

A shard that plans, trains or checks goes to a worker that meets its requirements where one is online, else to
any, which says what is missing. A planned shard goes only to workers that meet them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from assay.service.catalog.catalog import Catalog
from assay.service.catalog.component import Component
from assay.service.contract.corruption_cells import content_label
from assay.service.contract.errors import NotFound
from assay.service.contract.extras import extra_of
from assay.service.contract.fleet.worker_records import Requirements
from assay.service.contract.records import Plan
from assay.service.contract.results import data_label
from assay.service.contract.stored_specs import (
    ComponentReference,
    EvaluateJobSpec,
    EvaluationItem,
    ModelReference,
    Spec,
    evaluations_in,
)
from assay.service.contract.weights.pulled import READERS, is_pulled, reference_to
from assay.service.submission.data_folders import named_places

DIGEST_LENGTH = 16
AMPERE = "8.0"  # Compute capability of the first GPUs that compute in bfloat16 and in TF32.
IN_AMPERE = ("bfloat16", "tf32")
# A plan's batch needs what it keeps for the backward pass, twice, and the weights with their gradients.
BATCHES_HELD, WEIGHTS_HELD, WEIGHT_BYTES = 2, 4, 4
STORED = "stored"  # The source of stored images: nothing is made, so no files are read.
MIN_MEMORY = 4 * 2**30  # Any GPU has so much: nothing is asked below it.


class Files(TypedDict):
    """Where files are that a component reads: a folder below the data root, or a module's own."""

    folder: str
    package: str


@dataclass(frozen=True)
class PlanningDevice:
    """The GPU that made a plan: its memory in bytes and its compute capability; None for a CPU."""

    memory: int | None = None
    capability: str | None = None


def digest_of(stated: Requirements) -> str:
    """A short name of requirements: equal ones have the same."""
    text = json.dumps(stated, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def folders_of(catalog: Catalog, kind: str, reference: ComponentReference) -> list[str]:
    """Folders below the data root that a component reads, sorted; those that it may download are left out."""
    return sorted(_folders(catalog, kind, reference))


def folders_read(catalog: Catalog, spec: Spec) -> set[str]:
    """Folders below the data root that a job may read, with folders of downloads and corruptions' files."""
    if spec["kind"] == "check":
        return set()
    items = evaluations_in(spec)
    found = {*_files_of(catalog, items)}
    named: list[tuple[str, ComponentReference]] = [("data", spec["data"])]
    for item in items:
        named += [("evaluation", item), ("data", item.get("data") or spec["data"])]
    for kind, reference in named:
        found |= _folders(catalog, kind, reference, downloads=True)
    return found


def first_requirements(catalog: Catalog, spec: Spec) -> Requirements:
    """The requirements of the shard that plans, trains or checks."""
    if spec["kind"] == "check":
        return {"gpu": True} if spec["model"]["name"] == catalog.program_model else {}
    folders = {*folders_of(catalog, "data", spec["data"])}
    for item in evaluations_in(spec):
        folders |= {*folders_of(catalog, "evaluation", item)}
        folders |= {*folders_of(catalog, "data", item.get("data") or spec["data"])}
    found: Requirements = {"folders": sorted(folders)} if folders else {}
    if weights := weights_of(catalog, spec["model"]):
        found["weights"] = weights
    if libraries := libraries_of(catalog, spec, {}):
        found["libraries"] = libraries
    if files := _files_of(catalog, evaluations_in(spec)):
        found["files"] = files
    execution = spec["execution"]
    if execution.get("dtype") in IN_AMPERE and execution["device"] == "cuda":
        found["capability"] = AMPERE
    return found


def planned_requirements(
    catalog: Catalog, spec: EvaluateJobSpec, plan: Plan, evaluation: int, planner: PlanningDevice
) -> Requirements:
    """The requirements of the shards of an evaluation."""
    item, found = spec["evaluations"][evaluation], Requirements()
    if weights := weights_of(catalog, spec["model"]):
        found["weights"] = weights
    label, folders = label_of(catalog, spec, evaluation)
    if read := sorted({*folders, *folders_of(catalog, "evaluation", item)}):
        found["folders"] = read
    if folders and label in plan["data_sha256"]:
        found["data"] = {label: plan["data_sha256"][label]}
    # Those of the whole job: its shards state the same packages.
    versions = plan["identity"].get("libraries", {}) if "identity" in plan else {}
    if libraries := libraries_of(catalog, spec, versions):
        found["libraries"] = libraries
    if files := _files_of(catalog, [item]):
        found["files"] = files
    if plan["device"] != "cuda":
        return found
    memory = planned_memory(plan)
    if memory > MIN_MEMORY:
        found["memory"] = memory if planner.memory is None else min(memory, planner.memory)
    if spec["execution"].get("dtype") in IN_AMPERE and at_least(planner.capability, AMPERE):
        found["capability"] = AMPERE
    return found


def weights_of(catalog: Catalog, model: ModelReference) -> dict[str, str]:
    """The sha256 of a model's pulled weights by their reference, empty where it is not known."""
    weights = model.get("weights")
    if weights is None or not is_pulled(weights) or model["name"] not in catalog.names("model"):
        return {}
    source = catalog.find("model", model["name"]).pulled
    if source is None:
        return {}
    return {str(reference_to(source, model["params"])): weights.get("sha256") or ""}


def label_of(catalog: Catalog, spec: EvaluateJobSpec, evaluation: int) -> tuple[str, list[str]]:
    """The label of an evaluation's data, as in `Plan.data_sha256`, and the folders that they are in."""
    item = spec["evaluations"][evaluation]
    data = item["data"] or spec["data"]
    return content_label(data_label(data), item["params"]), folders_of(catalog, "data", data)


def planned_memory(plan: Plan) -> int:
    """Bytes of a GPU that a batch of a plan takes, rounded up to a power of two; 0 where it is not known."""
    if "example_bytes" not in plan or "parameters" not in plan:
        return 0
    taken = BATCHES_HELD * plan["batch_size"] * plan["example_bytes"]
    taken += WEIGHTS_HELD * WEIGHT_BYTES * plan["parameters"]
    return int(2 ** math.ceil(math.log2(max(taken, 1))))


def libraries_of(catalog: Catalog, spec: Spec, versions: Mapping[str, str]) -> dict[str, str]:
    """The libraries of a job's model and attacks, in the planned versions; those are empty without a plan."""
    found = {library_of(item.get("params") or {}) for item in evaluations_in(spec)}
    if (model := spec["model"]["name"]) in catalog.names("model"):
        found.add(READERS.get(catalog.find("model", model).pulled or ""))
    return {library: versions.get(library, "") for library in sorted(filter(None, found))}


def at_least(capability: str | None, wanted: str) -> bool:
    """Whether a compute capability such as "8.6" is known, and as high as wanted."""
    return capability is not None and _numbers(capability) >= _numbers(wanted)


def library_of(params: Mapping[str, Any]) -> str | None:
    """The library that an attack with these parameters runs; None for Assay's own code."""
    backend = params.get("backend")
    return backend if isinstance(backend, str) and extra_of(backend) is not None else None


def files_of(catalog: Catalog, component: Component, params: Mapping[str, Any]) -> dict[str, Files]:
    """The files that parts of an evaluation read, by the name of the part; none of data stored corrupted."""
    if params.get("source") == STORED:
        return {}
    known = ((kind, name) for kind, name in component.named(params) if name in catalog.names(kind))
    named = {name: catalog.find(kind, name).facts or {} for kind, name in known}
    return {name: facts["files"] for name, facts in named.items() if "files" in facts}


def _files_of(catalog: Catalog, items: Iterable[EvaluationItem]) -> dict[str, str]:
    """The folders that corruptions read, each with the module that has the files too."""
    found: dict[str, str] = {}
    for item in items:
        try:
            component = catalog.find_evaluation(item["name"])
        except NotFound:
            continue
        files = files_of(catalog, component, item.get("params") or {})
        found |= {one["folder"]: one["package"] for one in files.values()}
    return found


def _numbers(capability: str) -> list[int]:
    return [int(part) if part.isdigit() else 0 for part in capability.split(".")]


def _folders(
    catalog: Catalog, kind: str, reference: ComponentReference, *, downloads: bool = False
) -> set[str]:
    name = reference["name"]
    try:
        component = catalog.find_evaluation(name) if kind == "evaluation" else catalog.find(kind, name)
    except NotFound:
        return set()
    places = named_places(catalog, component, reference.get("params", {}))
    return {name for _, name, what, loads in places if what == "folder" and (downloads or not loads)}
