"""Are all numbers of a weights file numbers? One NaN makes every logit one, and every accuracy chance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor


def not_finite(tensors: Iterable[tuple[str, Tensor]]) -> Iterator[str]:
    """Each tensor that has NaNs or infinities, in words; one after the other is looked at.

    Args:
        tensors: names and tensors; those that are not floating are left out.
    """
    for name, tensor in tensors:
        if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:  # torch cannot ask float8
            continue
        bad = tensor.numel() - int(torch.isfinite(tensor).sum())
        if bad:
            yield f"{name} has {bad} values of {tensor.numel()} that are NaN or infinite"
