"""Small tensors that the device sends to the host while both go on."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from assay.workers import accelerator


class Arriving:
    """Copies of tensors on their way to the host, in pinned memory; a tensor of the CPU is there already."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        """Queues the copies behind all that the device was given before."""
        self._event: accelerator.Recorded | None = None
        self._values = {name: self._copied(value) for name, value in values.items()}
        if any(accelerator.is_accelerator(value.device) for value in values.values()):
            self._event = accelerator.record_event()

    @staticmethod
    def _copied(value: Tensor) -> Tensor:
        if not accelerator.is_accelerator(value.device):
            return value
        copy = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
        return copy.copy_(value, non_blocking=True)

    def read(self) -> dict[str, Tensor]:
        """The tensors on the CPU; waits for the last of them alone, not for what was queued since."""
        if self._event is not None:
            self._event.synchronize()
            self._event = None
        return self._values
