"""Argument checks for operators that would read or write out of bounds.

Found by fuzzing all listed operators with hostile arguments. A check runs before the call, so that a program
fails with a message instead of crashing the evaluator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from assay.models.programs.reading import refuse, shown

Given = Mapping[str, Any]
# Upper bound of the layer count, which comes from an untrusted file.
MAX_LAYERS = 1000
# Results of a call, and elements of a result where an argument's value decides the size.
MAX_PIECES, MAX_COUNTED = 10_000, 2**28


def guarded(operator: OpOverload[..., Any]) -> Callable[..., Any]:
    """The operator wrapped in its argument check; unchanged if it needs none.

    The wrapper raises `UnsafeProgram`, which names the operator, the argument, its value and the allowed
    values.
    """
    check = find_check(operator)
    if check is None:
        return operator

    def call(*arguments: Any, **keywords: Any) -> Any:
        check(*arguments, **keywords)
        return operator(*arguments, **keywords)

    return call


def find_check(operator: OpOverload[..., Any]) -> Callable[..., None] | None:
    """The argument check of an operator, which takes what the operator takes; None if it needs none."""
    schema = operator._schema
    check = GUARDS.get(schema.name.removeprefix("aten::"))
    names = [argument.name for argument in schema.arguments]
    if check is None or (check is _division and "rounding_mode" not in names):
        return None
    defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}

    def checked(*arguments: Any, **keywords: Any) -> None:
        check(str(operator), {**defaults, **dict(zip(names, arguments, strict=False)), **keywords})

    return checked


def _wrong(operator: str, argument: str, given: object, allowed: str) -> None:
    refuse(f"it calls {operator} with {argument} {_brief(given)}, allowed: {allowed}")


def _brief(given: object) -> str:
    if isinstance(given, Tensor):
        return f"of shape {tuple(given.shape)} and type {str(given.dtype).removeprefix('torch.')}"
    return shown(given)


def _fourier(operator: str, given: Given) -> None:
    dims, rank = given["dim"], given["self"].dim()
    if not dims or len(set(dims)) < len(dims) or not all(0 <= dim < rank for dim in dims):
        _wrong(operator, "dim", dims, f"different dimensions from 0 to {rank - 1}, at least one")
    if not 0 <= given["normalization"] <= 2:
        _wrong(operator, "normalization", given["normalization"], "0 to 2")
    size = given.get("last_dim_size")
    half = given["self"].shape[dims[-1]]
    if size is not None and (size < 1 or half != size // 2 + 1):
        _wrong(operator, "last_dim_size", size, f"{2 * half - 2} or {2 * half - 1}, for {half} frequencies")


def _per_channel(operator: str, given: Given) -> None:
    images = given["input"]
    if images.dim() < 2:
        _wrong(operator, "input", images, "at least two dimensions")
    for name in ("weight", "bias", "running_mean", "running_var"):
        _vector(operator, name, given.get(name), images.shape[1])


def _vector(operator: str, name: str, found: Tensor | None, length: int) -> None:
    if found is not None and tuple(found.shape) != (length,):
        _wrong(operator, name, found, f"none, or the shape ({length},)")


def _groups(operator: str, given: Given) -> None:
    images, groups = given["input"], given["group"]
    if images.dim() < 2 or 0 in images.shape:
        _wrong(operator, "input", images, "at least two dimensions, none of them empty")
    wanted = {"N": images.shape[0], "C": images.shape[1], "HxW": math.prod(images.shape[2:])}
    for name, size in wanted.items():
        if given[name] != size:
            _wrong(operator, name, given[name], f"{size}, as the input has")
    if groups < 1 or images.shape[1] % groups:
        _wrong(operator, "group", groups, f"a divisor of {images.shape[1]} channels")
    for name in ("weight", "bias"):
        _vector(operator, name, given[name], images.shape[1])


def _sampling(operator: str, given: Given) -> None:
    modes = 1 if operator.startswith("aten.grid_sampler_3d") or given["input"].dim() == 5 else 2
    if not 0 <= given["interpolation_mode"] <= modes:
        _wrong(operator, "interpolation_mode", given["interpolation_mode"], f"0 to {modes}")
    if not 0 <= given["padding_mode"] <= 2:
        _wrong(operator, "padding_mode", given["padding_mode"], "0 to 2")


def _scaling(operator: str, given: Given) -> None:
    """A stated scale must match the sizes, as torch rounds them; other scales read outside the images."""
    names = [name for name in ("scales", "scales_d", "scales_h", "scales_w") if name in given]
    if not names or given.get("output_size") is None:  # with factors alone, torch works out the sizes
        return
    sizes = given["self"].shape[-len(names) :]
    for name, size, wanted in zip(names, sizes, given["output_size"], strict=False):
        scale = given[name]
        if scale is not None and not (0 < scale < math.inf and abs(size * scale - wanted) <= 1):
            _wrong(operator, name, scale, f"none, or that from {size} to {wanted} pixels")


def _pooling(operator: str, given: Given) -> None:
    """Every window must contain a pixel: the index of an empty one is invalid, and gradients follow it."""
    images = given["self"]
    count = int(operator.split("pool")[1][0])
    if images.dim() <= count:
        return  # torch refuses it
    paddings, dilations = (_spread(given[name], count) for name in ("padding", "dilation"))
    for size, padding, dilation in zip(images.shape[-count:], paddings, dilations, strict=False):
        if padding and dilation > max(size, 1):
            _wrong(
                operator, "dilation", given["dilation"], f"at most {size} with a padding, as the image has"
            )


def _spread(value: int | Sequence[int], count: int) -> Sequence[int]:
    values = [value] if isinstance(value, int) else value
    return list(values) * count if len(values) == 1 else values


def _lstm(operator: str, given: Given) -> None:
    states = given["hx"]
    if len(states) != 2:
        _wrong(operator, "hx", len(states), "two states")
    _recurrent(operator, given, states[0], states[1], 4)


def _gru(operator: str, given: Given) -> None:
    _recurrent(operator, given, given["hx"], given["hx"], 3)


def _recurrent(operator: str, given: Given, output: Tensor, cell: Tensor, gates: int) -> None:
    """Shapes of all states and weights; T = steps, B = batch, H = hidden, R = size of the output."""
    images, layers, directions = given["input"], given["num_layers"], 2 if given["bidirectional"] else 1
    if images.dim() != 3 or 0 in images.shape:
        _wrong(operator, "input", images, "three dimensions, none of them empty")
    if not 1 <= layers <= MAX_LAYERS:
        _wrong(operator, "num_layers", layers, f"1 to {MAX_LAYERS}")
    batch = images.shape[0 if given["batch_first"] else 1]
    hidden, returned = cell.shape[-1:].numel(), output.shape[-1:].numel()
    for state, size in ((output, returned), (cell, hidden)):
        if tuple(state.shape) != (layers * directions, batch, size) or size < 1:
            _wrong(operator, "hx", state, f"({layers * directions}, {batch}, at least 1)")
    wanted: list[tuple[int, ...]] = []
    for layer in range(layers):
        taken = images.shape[2] if layer == 0 else directions * returned
        cells: list[tuple[int, ...]] = [(gates * hidden, taken), (gates * hidden, returned)]
        cells += [(gates * hidden,)] * 2 if given["has_biases"] else []
        cells += [(returned, hidden)] if returned != hidden else []
        wanted += cells * directions
    weights = given["params"]
    if [tuple(weight.shape) for weight in weights] != wanted:
        _wrong(
            operator,
            "params",
            [tuple(weight.shape) for weight in weights],
            f"for these states {shown(wanted)}",
        )


def _median(operator: str, given: Given) -> None:
    """Along an expanded dimension torch reads past its one element."""
    values, dim = given["self"], given.get("dim")
    if dim is None or not -values.dim() <= dim < values.dim():
        return  # torch refuses it
    if values.stride(dim) == 0 and values.shape[dim] > 1:
        _wrong(
            operator, "self of strides", values.stride(), f"none of 0 along {dim}: call contiguous() first"
        )


def _attention(operator: str, given: Given) -> None:
    query, key, value, mask = (given[name] for name in ("query", "key", "value", "attn_mask"))
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() < 2:
            _wrong(operator, name, tensor, "at least two dimensions")
    if key.shape[-1] != query.shape[-1]:
        _wrong(operator, "key", key, f"{query.shape[-1]} features, as the query has")
    if value.shape[-2] != key.shape[-2]:
        _wrong(operator, "value", value, f"{key.shape[-2]} positions, as the key has")
    if mask is None:
        return
    wanted = (query.shape[-2], key.shape[-2])
    if any(size not in (1, most) for size, most in zip(mask.shape[-2:], wanted, strict=False)):
        _wrong(operator, "attn_mask", mask, f"{wanted} at its end, or 1 in place of these")


def _division(operator: str, given: Given) -> None:
    """The lowest integer has no negation: dividing it by -1 traps."""
    left, right = given["self"], given["other"]
    if given["rounding_mode"] is None or left.device.type != "cpu":
        return
    kind = torch.result_type(left, right)
    if kind not in (torch.int32, torch.int64):
        return
    lowest = left == torch.iinfo(kind).min
    if lowest.any() and bool((lowest & torch.as_tensor(right == -1)).any()):
        _wrong(operator, "other", -1, f"other divisors of {torch.iinfo(kind).min}, the lowest {kind}")


def _pieces(operator: str, given: Given) -> None:
    values = given.get("self")
    if not isinstance(values, Tensor) or values.dim() == 0:
        return
    dim = given.get(
        "dim", {"vsplit": 0, "dsplit": 2}.get(operator.split(".")[1], 1 if values.dim() > 1 else 0)
    )
    if not isinstance(dim, int) or not -values.dim() <= dim < values.dim():
        return  # torch refuses it
    length = values.shape[dim]
    sizes = given.get("split_size", given.get("chunks", given.get("sections", given.get("indices", length))))
    places = given.get("tensor_indices_or_sections")
    if isinstance(places, Tensor):
        count = max(places.numel(), int(places) if places.numel() == 1 and places.dim() == 0 else 0)
    elif isinstance(sizes, list):
        count = len(sizes)
    elif "split_size" in given:
        count = math.ceil(length / sizes) if sizes > 0 else 0
    else:
        count = sizes or 0
    if count > MAX_PIECES:
        _wrong(operator, "self", values, f"at most {MAX_PIECES} pieces, not {count}")


def _counted(operator: str, given: Given) -> None:
    name = operator.split(".")[1]
    if name == "repeat_interleave":
        repeats = given["repeats"]
        if not isinstance(repeats, Tensor) or repeats.is_floating_point() or repeats.is_complex():
            return
        if repeats.numel() and int(repeats.min()) < 0:
            _wrong(operator, "repeats", int(repeats.min()), "at least 0")
        count = sum(repeats.flatten().tolist()) if repeats.numel() <= MAX_COUNTED else MAX_COUNTED + 1
    elif given["self"].is_floating_point() or given["self"].is_complex() or not given["self"].numel():
        return
    else:
        count = int(given["self"].max()) + 1
    if name == "one_hot" and given["num_classes"] != -1:
        return
    if count * (given["self"].numel() if name == "one_hot" else 1) > MAX_COUNTED:
        _wrong(operator, "counts up to", count, f"at most {MAX_COUNTED} elements of the result")


def _looked_up(operator: str, given: Given) -> None:
    """On a GPU a wrong index ends every later call of the process; on the CPU torch refuses it."""
    indices, weight = given["indices"], given["weight"]
    if indices.device.type in ("cpu", "meta") or not indices.numel() or not weight.dim():
        return
    lowest, highest = torch.stack(torch.aminmax(indices)).tolist()
    if lowest < 0 or highest >= len(weight):
        _wrong(operator, "indices", (lowest, highest), f"0 to {len(weight) - 1}, the rows of its weight")


_NORMS = ("", "_legit", "_legit_functional", "_legit_no_training")
_SCALED = (
    "upsample_bicubic2d",
    "upsample_bilinear2d",
    "upsample_linear1d",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_trilinear3d",
    "_upsample_bicubic2d_aa",
    "_upsample_bilinear2d_aa",
    "_upsample_nearest_exact2d",
)
_SPLITS = (
    *("chunk", "dsplit", "hsplit", "split", "split_with_sizes", "tensor_split", "unbind", "unsafe_chunk"),
    *("unsafe_split", "unsafe_split_with_sizes", "vsplit"),
)
GUARDS: Mapping[str, Callable[[str, Given], None]] = {
    **dict.fromkeys(("_fft_c2c", "_fft_c2r", "_fft_r2c"), _fourier),
    **{f"{'_' if norm else ''}native_batch_norm{norm}": _per_channel for norm in _NORMS},
    "native_group_norm": _groups,
    **dict.fromkeys(("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), _sampling),
    **dict.fromkeys(_SCALED, _scaling),
    **{f"max_pool{n}d{kind}": _pooling for n in (1, 2, 3) for kind in ("", "_with_indices")},
    **dict.fromkeys(("div", "div_", "divide", "divide_"), _division),
    "median": _median,
    **dict.fromkeys(("scaled_dot_product_attention", "_scaled_dot_product_attention_math"), _attention),
    "embedding": _looked_up,
    "lstm": _lstm,
    "gru": _gru,
    **dict.fromkeys(_SPLITS, _pieces),
    **dict.fromkeys(("bincount", "one_hot", "repeat_interleave"), _counted),
}
