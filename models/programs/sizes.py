"""Bound on the results of a program's calls: found on torch's meta device, before anything is allocated.

Small inputs can have huge results (`repeat`, `arange`, an outer product). Sizes of results follow from those
of the arguments but for three operators, whose values `guards.py` checks; so they are found once for each
shape of the images. What an operator allocates within a call is not seen here: the process's memory limit is
for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from assay.models.programs.payload import MAX_DIMENSIONS
from assay.models.programs.reading import refuse, shown

# Of one result, for each image of the batch: 1 GiB in float32.
MAX_ELEMENTS = 2**28
META = torch.device("meta")


def check_prediction(
    operator: OpOverload[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    results: Sequence[str | list[str]],
    max_elements: int,
) -> None:
    """Refuse a call whose results would be too large, without making it.

    Args:
        operator: the function.
        arguments: by position; tensors on any device.
        keywords: the others.
        results: the names of the node's results, for the message.
        max_elements: of one result.

    Raises:
        UnsafeProgram: a result would have more elements, or more than `MAX_DIMENSIONS` dimensions.
    """
    with torch.no_grad():
        try:
            found = operator(*_on_meta(list(arguments)), **_on_meta(dict(keywords)))
        except Exception:
            # No sizes without values, or wrong arguments: of these the call itself complains, and plainly.
            return
    check_results(operator, found, results, max_elements)


def check_results(
    operator: OpOverload[..., Any], found: Any, results: Sequence[str | list[str]], max_elements: int
) -> None:
    """Refuse results that are too large; see `check_prediction`."""
    for tensor in _tensors(found):
        if tensor.numel() > max_elements or tensor.dim() > MAX_DIMENSIONS:
            shape, node = shown(tuple(tensor.shape)), shown(results[0] if results else "")
            refuse(
                f"its node {node} ({operator}) makes a tensor of shape {shape}, allowed: at most"
                f" {max_elements} elements ({MAX_ELEMENTS} for each image of the batch) and {MAX_DIMENSIONS}"
                " dimensions"
            )


def _tensors(found: Any) -> Iterator[Tensor]:
    if isinstance(found, Tensor):
        yield found
    elif isinstance(found, list | tuple):
        for item in found:
            yield from _tensors(item)


def _on_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=META)
    if isinstance(value, torch.device):
        return META
    if isinstance(value, list):
        return [_on_meta(item) for item in value]
    if isinstance(value, dict):
        return {name: _on_meta(item) for name, item in value.items()}
    return value
