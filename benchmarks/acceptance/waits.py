"""How often a step of an attack makes the host wait, by torch's own watch on a GPU.

The emulated device says how often a step waits to learn something, and how often it sends something and waits
until that has arrived; torch's watch counts both. Where it expects neither, any wait of the GPU is an error.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch

from assay.attacks.ensemble import Ensemble
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.protocols import attack_pixel
from benchmarks.acceptance.context import Context, emulation
from benchmarks.acceptance.laws.attacks import attack_cases
from benchmarks.acceptance.record import Row, told
from benchmarks.acceptance.worst import Cases
from tests.laws.test_attack_laws import IDS, Network, make
from tests.laws.test_emulated_waits import STATED
from tests.support import networks

N, SLOTS = 8, 6
SYNCHRONIZING = "synchronizing CUDA operation"  # torch's own words


def steps(context: Context) -> list[Row]:
    """The waits of each step of the native attacks, against what the emulated device expects."""
    found, sending = Cases(), []
    for case, module, name, params in attack_cases(context.dry):
        attack = make(module, name, params)
        if params.get("backend", "native") != "native" or isinstance(attack, Ensemble):
            continue
        with found.case("attacks", case):
            with emulation() as device:
                waits, sends = _counted(module, name, params, device.device, lambda: _of(device))
            limit, _ = STATED.get((name, params.get("norm")), (0, ""))
            found.worst("waits of a step above what the attack states, emulated", max(waits) - limit, 0, case)
            if max(sends):
                sending.append(name)
            if context.kind == "cuda":
                expected = max(one + other for one, other in zip(waits, sends, strict=True))
                seen = _on_gpu(module, name, params, expected)
                found.worst("waits of a step above the emulated device's, GPU", seen - expected, 0, case)
    listed = ", ".join(dict.fromkeys(sending)) or "none"
    return [*found.rows(), told("attacks whose steps send something and wait until it is there", listed)]


def _of(device: Any) -> tuple[int, int]:
    return device.waits.total(), device.uploads.total()


def _counted(
    module: ModuleType,
    name: str,
    params: dict[str, Any],
    device: torch.device,
    count: Callable[[], tuple[int, int]],
) -> tuple[list[int], list[int]]:
    """Waits and sends of each step of a run."""
    waits, sends = [], []

    def around(step: Callable[..., None], *args: Any, **options: Any) -> None:
        before = count()
        step(*args, **options)
        after = count()
        waits.append(after[0] - before[0])
        sends.append(after[1] - before[1])

    _run(module, name, params, device, around)
    return waits, sends


def _on_gpu(module: ModuleType, name: str, params: dict[str, Any], expected: int) -> int:
    """The most waits of a step.

    Raises:
        RuntimeError: None is expected, and a step waited.
    """
    most = 0

    def around(step: Callable[..., None], *args: Any, **options: Any) -> None:
        nonlocal most
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn" if expected else "error")
            try:
                step(*args, **options)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        most = max(most, sum(SYNCHRONIZING in str(one.message) for one in seen))

    _run(module, name, params, torch.device("cuda", 0), around)
    return most


def _run(
    module: ModuleType, name: str, params: dict[str, Any], device: torch.device, around: Callable[..., None]
) -> None:
    """A run with something around each step."""
    attack = make(module, name, params)
    images, labels = networks.digits()
    step = type(attack).step
    with patch.object(type(attack), "step", lambda *args, **options: around(step, *args, **options)):
        attack_pixel(
            attack,
            copy.deepcopy(Network().eval().double()).to(device),
            lambda rows: images[list(rows)],
            labels[:N],
            IDS[:N],
            randomness=Randomness(0, attack.name),
            batch_size=SLOTS,
            dtype="float64",
            device=device,
        )
