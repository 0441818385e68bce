"""Provenance of a number: code, packages, device, arithmetic."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from functools import cache
from pathlib import Path

import torch

from assay.service.catalog.catalog import load
from assay.service.contract.records import CodeProvenance, DeviceProvenance, ShardProvenance
from assay.service.contract.stored_specs import UserSpec
from assay.workers.discovery.packages import packages_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "torchvision", "timm", "numpy", "scikit-learn", "cleverhans", "safetensors")
# Of jobs whose data set states that it needs a package: they simulate what the returns are measured in.
SIMULATORS = ("gymnasium", "mujoco")
CODE = (
    "models",
    "attacks",
    "workers",
    "service/catalog",
    "service/contract",
    "service/files",
    "service/metrics",
    "service/submission",
)
# With files read beside it, such as the classes of ImageNet-A among those of ImageNet.
SUFFIXES = (".py", ".json")


def collect(device: torch.device, dtype: torch.dtype, spec: UserSpec) -> ShardProvenance:
    """The `code`, `packages` and `device` parts of the provenance of a job's results.

    The packages are those that any number can depend on, and those with components named by the job.
    """
    used = packages() | packages_of(spec, load())
    if (load().find("data", spec["data"]["name"]).facts or {}).get("package") in SIMULATORS:
        used |= {name: version for name in SIMULATORS if (version := _version(name)) is not None}
    return {"code": code(), "packages": used, "device": describe_device(device, dtype)}


@cache
def code() -> CodeProvenance:
    """Version, commit (null outside a checkout) and a hash of the source that computes numbers.

    The commit ends in "-dirty" when files were changed.
    """
    digest = hashlib.sha256()
    for folder in CODE:
        for path in sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return {"version": _version("assay-robustness"), "commit": _commit(), "source_sha256": digest.hexdigest()}


@cache
def packages() -> dict[str, str]:
    """Versions of the packages that a number can depend on."""
    # torch's version with the build ("+cpu", "+cu132"): kernels differ between builds.
    found = {name: _version(name) for name in PACKAGES} | {"torch": str(torch.__version__)}
    return {"python": platform.python_version()} | {name: v for name, v in found.items() if v is not None}


def describe_device(device: torch.device, dtype: torch.dtype) -> DeviceProvenance:
    """The device class: equal device classes give equal bits."""
    cuda = device.type == "cuda"
    return {
        "type": device.type,
        "name": torch.cuda.get_device_name(device) if cuda else _processor(),
        "instruction_set": None if cuda else torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    if "ASSAY_COMMIT" in os.environ:
        return os.environ["ASSAY_COMMIT"] or None
    if not (ROOT / ".git").exists():
        return None  # installed: a repository around a virtual environment is not Assay's
    try:
        answer = subprocess.run(  # noqa: S603 (fixed command)
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
