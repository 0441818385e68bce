"""Bound on the results of a program's calls: found on torch's meta device, before anything is allocated.

Small inputs can have huge results (`repeat`, `arange`, an outer product). Sizes of results follow from sizes
of arguments, except for three operators, where `guards.py` checks the values; so they are found once for each
shape of the images.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from assay.models.programs.operators import ELEMENTWISE, REDUCTIONS
from assay.models.programs.payload import MAX_DIMENSIONS
from assay.models.programs.reading import refuse, shown

# Elements of a result, for each image of the batch: 1 GiB in float32.
MAX_ELEMENTS = 2**28
# Their results have at most the shape that their tensors broadcast to.
LIKE_ARGUMENTS = frozenset([*ELEMENTWISE.split(), *REDUCTIONS.split()]) - {"quantile"} | {
    *("batch_norm", "group_norm", "instance_norm", "layer_norm", "native_batch_norm", "native_group_norm"),
    *("native_layer_norm", "rms_norm", "_fused_rms_norm", "_native_batch_norm_legit_no_training"),
}
JOINING = frozenset(["cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack"])
META = torch.device("meta")


def check_prediction(
    operator: OpOverload[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    results: Sequence[str | list[str]],
    max_elements: int,
) -> None:
    """Refuse a call with results that would be too large, without making it."""
    simple = bound(operator, arguments, keywords)
    if simple is not None and simple <= max_elements:
        return
    given = _on_meta(dict(keywords))
    if any(argument.name == "device" and argument.kwarg_only for argument in operator._schema.arguments):
        given["device"] = META  # without it, one without tensors would make its result here
    with torch.no_grad():
        try:
            found = operator(*_on_meta(list(arguments)), **given)
        except Exception:
            # No sizes without values, or wrong arguments: of these the call itself complains, and plainly.
            return
    check_results(operator, found, results, max_elements)


def bound(
    operator: OpOverload[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> int | None:
    """Elements that no result exceeds, for frequent operators; None for others."""
    name = operator._schema.name.removeprefix("aten::")
    tensors = list(_tensors([*arguments, *keywords.values()]))
    if name in LIKE_ARGUMENTS or name.removesuffix("_") in LIKE_ARGUMENTS:
        return math.prod(max(size, 1) for size in _broadcast(tensor.shape for tensor in tensors))
    if name in JOINING:
        return sum(tensor.numel() for tensor in tensors)
    if name == "linear" and tensors[0].dim() and tensors[1].dim() == 2:
        return math.prod(tensors[0].shape[:-1]) * tensors[1].shape[0]
    if name == "addmm" and tensors[1].dim() == tensors[2].dim() == 2:
        return tensors[1].shape[0] * tensors[2].shape[1]
    if name == "scaled_dot_product_attention" and min(tensor.dim() for tensor in tensors[:3]) >= 2:
        query, _, value = tensors[:3]
        leading = _broadcast(tensor.shape[:-2] for tensor in tensors)
        return math.prod(leading) * query.shape[-2] * value.shape[-1]
    return None


def _broadcast(shapes: Iterable[Sequence[int]]) -> list[int]:
    return [
        max(sizes) for sizes in itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=0)
    ]


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
