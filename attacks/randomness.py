"""Random draws keyed by example, independent of the batch.

Each draw has its own generator, seeded from a hash of (seed, attack, restart, target, example id, step,
purpose). It runs on the CPU in float64 and is cast afterwards, so that an example gets the same numbers in
every batch, shard, dtype and device, and after every resume.

`LibraryStream` is the exception, for comparisons: the draws of a library that seeds torch's generator once
per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TypedDict

import torch
from torch import Tensor

Draw = Callable[..., Tensor]
"""torch.rand or torch.randn."""


class Key(TypedDict):
    """Arguments of a draw beside the ids, as of `Randomness.uniform`."""

    restart: int | Sequence[int]
    target: int | Sequence[int]
    step: int
    purpose: str


class Randomness:
    """Source of all random numbers of one attack in one job, keyed by its seed and the attack's name."""

    def __init__(self, seed: int, attack: str) -> None:
        self.seed = seed
        self.attack = attack

    def of(self, attack: str) -> Randomness:
        """The same source for another attack, such as a stage of an ensemble."""
        return Randomness(self.seed, attack)

    def uniform(
        self,
        ids: Sequence[str],
        shape: tuple[int, ...],
        *,
        restart: int | Sequence[int] = 0,
        target: int | Sequence[int] = -1,
        step: int = 0,
        purpose: str = "start",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """Draws uniform numbers in [0, 1), a row per id; after the cast to a short dtype 1 itself can occur.

        The shape is one example's. Restart and target are one for all examples or one for each; the target of
        attacks that run once per class is the class, or its index in the attack's order, else -1. `purpose`
        distinguishes several draws of the same step.
        """
        key = Key(restart=restart, target=target, step=step, purpose=purpose)
        return self.drawn(torch.rand, ids, shape, key).to(dtype).to(device)

    def normal(
        self,
        ids: Sequence[str],
        shape: tuple[int, ...],
        *,
        restart: int | Sequence[int] = 0,
        target: int | Sequence[int] = -1,
        step: int = 0,
        purpose: str = "start",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """Draws standard normal numbers; arguments as for `uniform`."""
        key = Key(restart=restart, target=target, step=step, purpose=purpose)
        return self.drawn(torch.randn, ids, shape, key).to(dtype).to(device)

    def drawn(self, draw: Draw, ids: Sequence[str], shape: tuple[int, ...], key: Key) -> Tensor:
        """The numbers of `uniform` and `normal` before the cast, (len(ids), *shape), on the CPU."""
        rows = [
            draw(shape, generator=generator, dtype=torch.float64) for generator in self.generators(ids, **key)
        ]
        return torch.stack(rows) if rows else torch.empty(0, *shape, dtype=torch.float64)

    def generators(
        self,
        ids: Sequence[str],
        *,
        restart: int | Sequence[int] = 0,
        target: int | Sequence[int] = -1,
        step: int = 0,
        purpose: str = "start",
    ) -> list[torch.Generator]:
        """CPU generators behind the draws, one per example; arguments as for `uniform`."""
        restarts, targets = _one_for_each(restart, ids), _one_for_each(target, ids)
        return [
            torch.Generator().manual_seed(self._key(example, run, aim, step, purpose))
            for example, run, aim in zip(ids, restarts, targets, strict=True)
        ]

    def _key(self, example: str, restart: int, target: int, step: int, purpose: str) -> int:
        parts = (self.seed, self.attack, restart, target, example, step, purpose)
        # Lengths keep ("a", "bc") and ("ab", "c") apart.
        text = "".join(f"{len(str(part))}:{part}" for part in parts)
        # Torch's CPU generator keeps 32 bits of a seed, so two examples of a large set may occasionally
        # share their draws. That is harmless: each example's own draws remain reproducible.
        return int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "little")


class LibraryStream(Randomness):
    """Draws of a library that seeds torch's generator and then draws for a whole batch at a time.

    Each call draws one float32 tensor for all its examples on the CPU, in their order, and continues where
    the last call ended: the numbers of `torch.manual_seed(seed)` followed by `torch.rand` or `torch.randn`.
    The keys are ignored, so an example's draws depend on its batch. One stream serves one batch.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, "library")
        self._generator = torch.Generator().manual_seed(seed)

    def drawn(self, draw: Draw, ids: Sequence[str], shape: tuple[int, ...], key: Key) -> Tensor:
        """The next numbers of the stream for all ids together; `key` is ignored."""
        return draw((len(ids), *shape), generator=self._generator, dtype=torch.float32)


def _one_for_each(value: int | Sequence[int], ids: Sequence[str]) -> list[int]:
    values = [value] * len(ids) if isinstance(value, int) else list(value)
    assert len(values) == len(ids), "one number for each example"
    return values
