"""Random draws that belong to an example, not to a batch.

Each draw has its own generator, seeded from a hash of (seed, attack, restart, target, example id, step,
purpose). It runs on the CPU in float64 and is cast afterwards, so that the same example gets the same
numbers in every batch, dtype and device, in every shard, and after every resume.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import torch
from torch import Tensor


class Randomness:
    """The source of all random numbers of one attack in one job.

    Args:
        seed: The job's seed.
        attack: The attack's name; two attacks with the same seed draw different numbers.
    """

    def __init__(self, seed: int, attack: str) -> None:
        self.seed = seed
        self.attack = attack

    def uniform(
        self,
        ids: Sequence[str],
        shape: tuple[int, ...],
        *,
        restart: int | Sequence[int] = 0,
        target: int = -1,
        step: int = 0,
        purpose: str = "start",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """Draws uniform numbers in [0, 1); after the cast to a short dtype 1 itself can occur.

        Args:
            ids: Example ids, one for each row.
            shape: Shape of one example's draw.
            restart: One number for all examples, or one for each.
            target: The attacked class where an attack runs once per class, else -1.
            step: The iteration that the numbers are for.
            purpose: Keeps several draws of the same step apart.
            dtype: Result type.
            device: Result device.

        Returns:
            Tensor of shape (len(ids), *shape).
        """
        rows = [
            torch.rand(shape, generator=generator, dtype=torch.float64)
            for generator in self._generators(ids, restart, target, step, purpose)
        ]
        return _stack(rows, shape, dtype, device)

    def normal(
        self,
        ids: Sequence[str],
        shape: tuple[int, ...],
        *,
        restart: int | Sequence[int] = 0,
        target: int = -1,
        step: int = 0,
        purpose: str = "start",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """Draws standard normal numbers; the arguments are those of `uniform`."""
        rows = [
            torch.randn(shape, generator=generator, dtype=torch.float64)
            for generator in self._generators(ids, restart, target, step, purpose)
        ]
        return _stack(rows, shape, dtype, device)

    def _generators(
        self, ids: Sequence[str], restart: int | Sequence[int], target: int, step: int, purpose: str
    ) -> list[torch.Generator]:
        restarts = [restart] * len(ids) if isinstance(restart, int) else list(restart)
        assert len(restarts) == len(ids), "one restart for each example"
        return [
            torch.Generator().manual_seed(self._key(example, number, target, step, purpose))
            for example, number in zip(ids, restarts, strict=True)
        ]

    def _key(self, example: str, restart: int, target: int, step: int, purpose: str) -> int:
        parts = (self.seed, self.attack, restart, target, example, step, purpose)
        # Lengths keep ("a", "bc") and ("ab", "c") apart.
        text = "".join(f"{len(str(part))}:{part}" for part in parts)
        # Torch's CPU generator keeps 32 bits of a seed. Two examples of a large set may therefore share
        # their draws now and then, which is harmless: each example's own draws stay what they are.
        return int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "little")


def _stack(
    rows: list[Tensor], shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str
) -> Tensor:
    draws = torch.stack(rows) if rows else torch.empty(0, *shape, dtype=torch.float64)
    return draws.to(dtype).to(device)
