"""Random draws keyed by example, independent of the batch.

Each draw has its own stream of random words (`philox`), keyed by a 128-bit hash of (seed, attack, restart,
target, example id, step, purpose): an example gets the same numbers in every batch, shard, dtype and device,
and after every resume. Numbers are made in float32 (`variates`) and cast.

`LibraryStream` is the exception, for comparisons: the draws of a library that seeds torch's generator once
per batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypedDict, Unpack, cast

import numpy as np
import torch
from torch import Tensor

from assay.attacks import philox, variates
from assay.attacks.sending import sent

VERSION = 2
"""Of the draws, in results. 1: torch's CPU generators, until 2026-11."""

CPU = torch.device("cpu")
# So many words are made together: on the CPU they fit into a core's cache, on a device they are 64 MB.
WORDS_TOGETHER = {False: 2**16, True: 2**23}
# From so many words on a device makes them: a CPU takes 0.7 ms for them, about as long as to start operators.
WORDS_FOR_DEVICE = 2**18


class Key(TypedDict, total=False):
    """What a draw is keyed by beside seed, attack and ids; numbers for all examples or one for each.

    The target of attacks that run once per class is the class, or its index in the attack's order, else -1.
    `purpose` tells draws of a step apart.
    """

    restart: int | Sequence[int]
    target: int | Sequence[int]
    step: int | Sequence[int]
    purpose: str


class Randomness:
    """Source of all random numbers of an attack in one job, keyed by its seed and the attack's name.

    Shapes are one example's; results have a row per id. Longer draws begin with shorter ones, except normal
    numbers.
    """

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
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        **key: Unpack[Key],
    ) -> Tensor:
        """Draws uniform numbers in (0, 1), odd multiples of 2^-24; 1, too, in shorter dtypes than float32."""
        place = torch.device(device)
        return sent(self.drawn("uniform", ids, shape, key, place).to(dtype), place)

    def normal(
        self,
        ids: Sequence[str],
        shape: tuple[int, ...],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        **key: Unpack[Key],
    ) -> Tensor:
        """Draws standard normal numbers, multiples of 2^-20."""
        place = torch.device(device)
        return sent(self.drawn("normal", ids, shape, key, place).to(dtype), place)

    def words(
        self,
        ids: Sequence[str],
        shape: tuple[int, ...],
        *,
        device: torch.device | str = "cpu",
        **key: Unpack[Key],
    ) -> Tensor:
        """Draws uniform signed 32-bit words, int32."""
        count, place = math.prod(shape), torch.device(device)
        streams = self._streams("words", ids, count, key, _place("words", len(ids), count, place))
        parts = [variates.halves(words, count) for _, words in streams]
        if not parts:
            return torch.empty(0, *shape, dtype=torch.int32, device=place)
        made = parts[0] if len(parts) == 1 else torch.cat(parts)
        return sent(made.reshape(len(ids), *shape), place)

    def below(
        self,
        ids: Sequence[str],
        shape: tuple[int, ...],
        bound: int | Sequence[int],
        *,
        device: torch.device | str = "cpu",
        **key: Unpack[Key],
    ) -> Tensor:
        """Draws integers in [0, bound), int64; a bound of at most 2^31 for all examples, or one for each."""
        words = self.words(ids, (math.prod(shape),), device=device, **key)
        bounds = bound if isinstance(bound, int) else sent(torch.tensor(bound)[:, None], words)
        return variates.below(words, bounds).view(len(ids), *shape)

    def permutation(
        self, ids: Sequence[str], count: int, *, device: torch.device | str = "cpu", **key: Unpack[Key]
    ) -> Tensor:
        """Draws orders of 0..count-1, int64 (len(ids), count)."""
        return variates.order(self.words(ids, (count,), device=device, **key))

    def drawn(
        self, law: variates.Law, ids: Sequence[str], shape: tuple[int, ...], key: Key, device: torch.device
    ) -> Tensor:
        """`uniform` or `normal` before the cast, (len(ids), *shape), float32, on the device or the CPU."""
        count = math.prod(shape)
        place = _place(law, len(ids), count, device)
        made = torch.empty(len(ids), count, dtype=torch.float32, device=place)
        for part, words in self._streams(law, ids, count, key, made.device):
            variates.FILL[law](words, made if len(words) == len(made) else made[part])
        return made.view(len(ids), *shape)

    def _streams(
        self, law: variates.Law, ids: Sequence[str], count: int, key: Key, place: torch.device
    ) -> Iterator[tuple[slice, Tensor]]:
        """Words of a few examples at a time: their slice, and int64 (R, W)."""
        length, keys = variates.words_for(law, count), self._keys(ids, key)
        on_device = place.type != "cpu"
        together = max(1, WORDS_TOGETHER[on_device] // max(length, 1))
        for start in range(0, len(ids), together):
            part = slice(start, start + together)
            own = keys[part]
            yield part, philox.on_device(own, length, place) if on_device else philox.on_cpu(own, length)

    def _keys(self, ids: Sequence[str], key: Key) -> philox.Keys:
        restarts = _one_for_each(key.get("restart", 0), ids)
        targets = _one_for_each(key.get("target", -1), ids)
        steps = _one_for_each(key.get("step", 0), ids)
        purpose = key.get("purpose", "start")
        hashes = [self._key(*parts, purpose) for parts in zip(ids, restarts, targets, steps, strict=True)]
        return np.frombuffer(b"".join(hashes), dtype="<u8").reshape(-1, 2)

    def _key(self, example: str, restart: int, target: int, step: int, purpose: str) -> bytes:
        parts = (self.seed, self.attack, restart, target, example, step, purpose)
        # Lengths keep ("a", "bc") and ("ab", "c") apart.
        text = "".join(f"{len(str(part))}:{part}" for part in parts)
        return blake2b(text.encode(), digest_size=16).digest()


@dataclass(frozen=True)
class Source:
    """Draws of some examples under one key and several purposes."""

    randomness: Randomness
    ids: Sequence[str]
    step: int = 0
    device: torch.device = CPU

    def uniform(self, shape: tuple[int, ...], purpose: str = "start") -> Tensor:
        """As `Randomness.uniform`, float32."""
        return self.randomness.uniform(self.ids, shape, step=self.step, purpose=purpose, device=self.device)

    def normal(self, shape: tuple[int, ...], purpose: str = "start") -> Tensor:
        """As `Randomness.normal`, float32."""
        return self.randomness.normal(self.ids, shape, step=self.step, purpose=purpose, device=self.device)

    def words(self, shape: tuple[int, ...], purpose: str = "start") -> Tensor:
        """As `Randomness.words`."""
        return self.randomness.words(self.ids, shape, step=self.step, purpose=purpose, device=self.device)

    def permutation(self, count: int, purpose: str = "start") -> Tensor:
        """As `Randomness.permutation`."""
        return self.randomness.permutation(
            self.ids, count, step=self.step, purpose=purpose, device=self.device
        )

    def below(self, shape: tuple[int, ...], bound: int | Sequence[int], purpose: str = "start") -> Tensor:
        """As `Randomness.below`."""
        return self.randomness.below(
            self.ids, shape, bound, step=self.step, purpose=purpose, device=self.device
        )


class LibraryStream(Randomness):
    """Draws of a library that seeds torch's generator and then draws for a whole batch at a time.

    Each call draws one float32 tensor for all its examples on the CPU, in their order, where the last call
    ended: the numbers of `torch.manual_seed(seed)` followed by `torch.rand` or `torch.randn`. Keys are
    ignored: an example's draws depend on its batch. One stream serves one batch.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, "library")
        self._generator = torch.Generator().manual_seed(seed)

    def drawn(
        self, law: variates.Law, ids: Sequence[str], shape: tuple[int, ...], key: Key, device: torch.device
    ) -> Tensor:
        """The next numbers of the stream for all ids together, on the CPU; `key` is ignored."""
        draw = torch.rand if law == "uniform" else torch.randn
        return draw((len(ids), *shape), generator=self._generator, dtype=torch.float32)


def _place(law: variates.Law, rows: int, count: int, device: torch.device) -> torch.device:
    few = rows * variates.words_for(law, count) < WORDS_FOR_DEVICE
    return CPU if few or device.type == "meta" else device


def of_some(key: Key, rows: Sequence[int]) -> Key:
    """The key of some of its examples."""
    own = {
        name: given if isinstance(given, (int, str)) else [cast(Sequence[int], given)[row] for row in rows]
        for name, given in key.items()
    }
    return cast(Key, own)


def _one_for_each(value: int | Sequence[int], ids: Sequence[str]) -> list[int]:
    values = [value] * len(ids) if isinstance(value, int) else list(value)
    assert len(values) == len(ids), "one number for each example"
    return values
