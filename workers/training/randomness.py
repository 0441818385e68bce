"""Random numbers keyed by purpose, independent of earlier draws: a resumed run draws the same numbers."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from assay.workers import accelerator


def derive_seed(seed: int, purpose: str, number: int) -> int:
    """63-bit seed from a job's seed, a purpose ("order", "augment") and an epoch or step."""
    key = f"{seed}/{purpose}/{number}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 1


def generator(seed: int, purpose: str, number: int) -> torch.Generator:
    """CPU generator for a purpose: the numbers are the same on every device."""
    return torch.Generator().manual_seed(derive_seed(seed, purpose, number))


def epoch_order(n: int, *, seed: int, epoch: int) -> Tensor:
    """Order of an epoch's examples: a permutation of 0..n-1, int64 (n,)."""
    return torch.randperm(n, generator=generator(seed, "order", epoch))


def seed_layers(seed: int, step: int, device: torch.device, rank: int = 0, piece: int = 0) -> None:
    """Seed dropout and drop-path, for a process of a training and a piece of its batch."""
    purpose = f"layers/{rank}" if rank else "layers"
    seed_generators(derive_seed(seed, f"{purpose}/piece {piece}" if piece else purpose, step), device)


def seed_generators(value: int, device: torch.device) -> None:
    """Seed torch's global generators: the CPU's and the device's."""
    accelerator.seed(value, device)


@contextmanager
def caller_generators_restored(device: torch.device) -> Iterator[None]:
    """Restores torch's global generators on exit."""
    with accelerator.generators_restored(device):
        yield


def seed_libraries(value: int) -> None:
    """Seed the CPU generators used by libraries: Python's, numpy's and torch's."""
    random.seed(value)
    np.random.seed(value & 0xFFFFFFFF)
    torch.default_generator.manual_seed(value)


@contextmanager
def library_generators_restored() -> Iterator[None]:
    """Restores those generators on exit."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([]):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
