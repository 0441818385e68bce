"""Self-test of a worker's devices: sums that every device must give exactly, and its memory.

All inputs are small integers, so that float32 holds each result for every order of its terms, also where a
device rounds its factors (TF32).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional

from assay.service.contract.fleet.worker_records import DeviceTest
from assay.service.contract.messages import SelfTestReport, SelfTestRequest
from assay.workers import accelerator
from assay.workers.identity import code
from assay.workers.jobs import provenance

MATMUL = "65cad48ff3e7727f"
CONVOLUTION = "b5fcad038297e397"
SIZE = 256
# Some algorithms of convolutions compute in fractions; their results are this close to the integers.
MAX_ROUNDING = 1 / 16
# Below this share of free memory other processes hold the device.
MIN_FREE_SHARE = 0.05


def run(request: SelfTestRequest) -> SelfTestReport:
    """Test every device of the classes that the worker wants to serve."""
    devices: list[DeviceTest] = []
    if "cpu" in request["device_classes"]:
        devices.append(_test(torch.device("cpu")))
    if "cuda" in request["device_classes"]:
        seen = [accelerator.numbered(number) for number in range(accelerator.count())]
        devices += [_test(device) for device in seen] or [_without_gpu()]
    return {
        "type": "self_tested",
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "nccl": accelerator.collectives(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "source_sha256": code().get("source_sha256", ""),
        "devices": devices,
    }


def matmul(device: torch.device) -> torch.Tensor:
    """The product of two matrices of integers from -9 to 9."""
    return _integers(SIZE, SIZE, modulus=17).to(device) @ _integers(SIZE, SIZE, modulus=19).to(device)


def convolution(device: torch.device) -> torch.Tensor:
    """A convolution of integers from -3 to 3, and its gradients by image and weights, in one vector."""
    images = _integers(2, 4, 16, 16, modulus=7).to(device).requires_grad_()
    weights = _integers(8, 4, 3, 3, modulus=5).to(device).requires_grad_()
    result = functional.conv2d(images, weights, padding=1)
    # The sum is a scalar: for gradients of a tensor torch imports its symbolic shapes, which takes seconds.
    scalar = (result * _integers(2, 8, 16, 16, modulus=3).to(device)).sum()
    gradients = torch.autograd.grad(scalar, [images, weights])
    return torch.cat([part.detach().flatten() for part in (result, *gradients)])


def checksum(result: torch.Tensor) -> str:
    """The beginning of the SHA-256 of a result, which must be close to integers: else a ValueError."""
    values = result.cpu()
    rounded = values.round()
    if not bool(((values - rounded).abs() <= MAX_ROUNDING).all()):
        raise ValueError("results are not the integers that they must be")
    return hashlib.sha256(rounded.to(torch.int32).numpy().astype("<i4").tobytes()).hexdigest()[:16]


def _integers(*shape: int, modulus: int) -> torch.Tensor:
    """Integers around 0, fixed and without a short period."""
    count = torch.Size(shape).numel()
    values = torch.arange(count, dtype=torch.int64)
    mixed = (values * 2654435761 + values // 7 * 40503) % 4294967291
    return (mixed % modulus - modulus // 2).to(torch.float32).reshape(shape)


def _test(device: torch.device) -> DeviceTest:
    found = DeviceTest(
        device=accelerator.label(device), name=None, fault=None, total=None, free=None, capability=None
    )
    try:
        _describe(device, found)
        found["fault"] = _short_of_memory(found) or _wrong(device)
    except Exception as error:  # an error of any kind is what the test looks for
        found["fault"] = _words(error)
    return found


def _describe(device: torch.device, found: DeviceTest) -> None:
    found["name"] = provenance.describe_device(device, torch.float32).get("name")
    if accelerator.is_accelerator(device):
        found["free"], found["total"], _ = accelerator.memory(device)
        found["capability"] = accelerator.capability(device)
    else:
        found["free"], found["total"] = _machine_memory()


def _short_of_memory(found: DeviceTest) -> str | None:
    free, total = found["free"], found["total"]
    if found["device"] == "cpu" or free is None or total is None or free >= MIN_FREE_SHARE * total:
        return None
    return f"only {free:,} of its {total:,} bytes are free: other processes hold them"


def _wrong(device: torch.device) -> str | None:
    known: list[tuple[str, Callable[[torch.device], torch.Tensor], str]] = [
        ("a matmul", matmul, MATMUL),
        ("a convolution with its gradients", convolution, CONVOLUTION),
    ]
    for name, compute, expected in known:
        found = checksum(compute(device))
        if found != expected:
            return f"{name} of fixed integers gives the checksum {found} where it must give {expected}"
    return None


def _without_gpu() -> DeviceTest:
    """The answer where torch sees no GPU, though the machine has a GPU's device files."""
    found = DeviceTest(device="cuda", name=None, fault=None, total=None, free=None, capability=None)
    if torch.version.cuda is None:
        fault = f"torch {torch.__version__} is built without CUDA"
    else:
        try:
            accelerator.start_driver()
            fault = "torch sees no GPU; CUDA_VISIBLE_DEVICES is " + repr(
                os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
            )
        except (RuntimeError, AssertionError) as error:
            fault = _words(error)
    found["fault"] = fault
    return found


def _machine_memory() -> tuple[int | None, int | None]:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None, None
    sizes = {line.partition(":")[0]: line.split()[1] for line in lines if line.endswith(" kB")}
    return tuple(1024 * int(sizes[name]) if name in sizes else None for name in ("MemAvailable", "MemTotal"))  # type: ignore[return-value]


def _words(error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
