"""The memory of the emulated device: bytes held, their peak, and a size at which it runs out."""

from __future__ import annotations

from weakref import WeakValueDictionary

import torch
from torch import Tensor

BLOCK = 512  # CUDA's allocator rounds up to it


class Lease:
    """Bytes of one storage, held until the last tensor that shares it is gone."""

    __slots__ = ("__weakref__", "_memory", "_storage", "size")

    def __init__(self, memory: Memory, storage: torch.UntypedStorage, size: int) -> None:
        self._memory = memory
        self._storage = storage  # so that its address is not given to another
        self.size = size
        memory.held += size
        memory.peak = max(memory.peak, memory.held)

    def __del__(self) -> None:
        self._memory.held -= self.size


class Memory:
    """Counts what storages of the device hold.

    Attributes:
        limit: Bytes that there are; None for no end. May be changed at any time.
        held: Bytes that are held now.
        peak: The most that were held.
        others: Bytes that other processes hold, which are not there for this one.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.held = self.peak = self.others = 0
        self._leases: WeakValueDictionary[int, Lease] = WeakValueDictionary()

    def lease(self, host: Tensor) -> Lease | None:
        """The lease of a tensor's storage; a new one if the storage is new.

        Raises:
            torch.OutOfMemoryError: It would be more than there is.
        """
        storage = host.untyped_storage()
        address = storage.data_ptr()
        if (known := self._leases.get(address)) is not None or not storage.nbytes():
            return known
        size = -(-storage.nbytes() // BLOCK) * BLOCK
        if self.limit is not None and self.held + self.others + size > self.limit:
            by_others = f", and {self.others} by other processes" * (self.others > 0)
            raise torch.OutOfMemoryError(
                f"CUDA out of memory (emulated). Tried to allocate {size} bytes; {self.held} of {self.limit}"
                f" are held{by_others}"
            )
        made = self._leases[address] = Lease(self, storage, size)
        return made
