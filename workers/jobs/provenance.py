"""Provenance of a number: code, packages, device, arithmetic."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from assay.attacks.randomness import VERSION
from assay.service.catalog.catalog import load
from assay.service.contract.records import DeviceProvenance, Plan, ShardProvenance
from assay.service.contract.stored_specs import Execution, ModelReference, UserSpec
from assay.service.submission.requirements import libraries_of
from assay.workers import accelerator
from assay.workers.discovery.packages import packages_of
from assay.workers.identity import code, identity, packages, versions
from assay.workers.jobs.failures import OtherIdentity
from assay.workers.precision import has_tf32
from assay.workers.weights.pulled import origin_of

# Packages that a job's data set says it needs: they simulate what the returns are measured in.
SIMULATORS = ("gymnasium", "mujoco")


def collect(device: torch.device, dtype: torch.dtype, spec: UserSpec) -> ShardProvenance:
    """The `code`, `packages`, `device`, `draws` and `pulled` parts of the provenance of a job's results."""
    used = packages() | packages_of(spec, load())
    used |= versions(libraries_of(load(), spec, {}))
    if (load().find("data", spec["data"]["name"]).facts or {}).get("package") in SIMULATORS:
        used |= versions(SIMULATORS)
    about: ShardProvenance = {
        "code": code(),
        "packages": used,
        "device": describe_device(device, dtype, spec["execution"]),
        "draws": VERSION,
    }
    if (origin := origin_of(spec["model"])) is not None:
        about["pulled"] = origin
    return about


def remember_origin(model: ModelReference) -> None:
    """Look up where a model's pulled weights come from, for `collect` to know."""
    origin_of(model)


def check_identity(plan: Plan) -> None:
    """Refuse to measure a job that a worker of another identity has planned: OtherIdentity has both."""
    planned, mine = plan.get("identity"), identity()
    if planned is not None and planned["digest"] != mine["digest"]:
        raise OtherIdentity(
            f"a worker of identity {planned['digest']} has planned the job, this one is {mine['digest']}"
        )


def describe_device(
    device: torch.device, dtype: torch.dtype, execution: Execution | None = None
) -> DeviceProvenance:
    """The device class: equal device classes give equal bits."""
    cuda = accelerator.is_accelerator(device)
    found: DeviceProvenance = {
        "type": accelerator.device_class(device),
        "name": accelerator.name_of(device) if cuda else _processor(),
        "instruction_set": None if cuda else torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
        "tf32": execution is not None and execution["dtype"] == "tf32" and has_tf32(device),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    if execution is not None and execution.get("channels_last"):
        found["channels_last"] = True
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
