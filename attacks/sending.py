"""Small tensors that the host sends to the device of the images while it queues a step."""

from __future__ import annotations

import torch
from torch import Tensor


def sent(values: Tensor, to: Tensor | torch.device) -> Tensor:
    """The values on a device, or on a tensor's; the host goes on before they have arrived.

    Through pinned memory: `Tensor.to` alone ends when all that was queued before it has run.
    """
    device = to.device if isinstance(to, Tensor) else to
    if values.device.type != "cpu" or device.type in ("cpu", "meta"):
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
