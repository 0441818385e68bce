"""Which operators a CUDA device refuses, and which make the host wait for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor


class DeviceMixError(RuntimeError):
    """An operator got tensors of two devices."""


class NotDeterministicError(RuntimeError):
    """An operator has no deterministic algorithm on CUDA, and deterministic algorithms are demanded."""


class PinnedMemoryError(RuntimeError):
    """Pinned memory was used wrongly."""


Arguments = Mapping[str, Any]

# From the documentation of `torch.use_deterministic_algorithms` in torch 2.15, "will throw": modules and
# functions are named there, here the operators that they run, with a condition on the arguments.
Condition = Callable[[Arguments], bool]


def _always(given: Arguments) -> bool:
    return True


NO_DETERMINISTIC_ALGORITHM: dict[str, Condition] = {
    "avg_pool3d_backward": _always,
    "_adaptive_avg_pool2d_backward": _always,
    "_adaptive_avg_pool3d_backward": _always,
    "adaptive_max_pool2d_backward": _always,
    "adaptive_max_pool3d_backward": _always,
    "fractional_max_pool2d_backward": _always,
    "fractional_max_pool3d_backward": _always,
    "max_unpool2d": _always,
    "max_unpool3d": _always,
    "upsample_linear1d_backward": _always,
    "upsample_bilinear2d_backward": _always,
    "_upsample_bilinear2d_aa_backward": _always,
    "upsample_bicubic2d_backward": _always,
    "_upsample_bicubic2d_aa_backward": _always,
    "upsample_trilinear3d_backward": _always,
    "reflection_pad1d_backward": _always,
    "reflection_pad2d_backward": _always,
    "reflection_pad3d_backward": _always,
    "nll_loss2d_forward": _always,  # `NLLLoss` of maps; of rows it is deterministic
    "nll_loss2d_backward": _always,
    "_ctc_loss_backward": _always,
    "_embedding_bag_backward": lambda given: given.get("mode") == 2,
    "put": _always,
    "histc": lambda given: given["self"].is_floating_point(),
    "bincount": lambda given: given.get("weights") is not None,
    "median": lambda given: "dim" in given,
    "nanmedian": lambda given: "dim" in given,
    "grid_sampler_2d_backward": _always,
    "grid_sampler_3d_backward": _always,
    "scatter_reduce": lambda given: given["reduce"] not in ("sum", "mean"),
}

# Their results have a size, or are a number of the host, that only the device knows.
WAITING: dict[str, Condition] = {
    "_local_scalar_dense": _always,
    "equal": _always,
    "nonzero": _always,
    "masked_select": _always,
    "_unique": _always,
    "_unique2": _always,
    "unique_dim": _always,
    "unique_consecutive": _always,
    "unique_dim_consecutive": _always,
    "bincount": _always,
    "_linalg_check_errors": _always,
    "repeat_interleave": lambda given: given.get("output_size") is None,
}
_div = torch.ops.aten.div, torch.ops.aten.div_
DIVISIONS = [getattr(each, overload) for each in _div for overload in ("Tensor", "Scalar")]
WITHOUT_WORK = ("empty", "empty_like", "empty_strided", "new_empty", "_unsafe_view", "_reshape_alias")
INDEXING = ("index", "index_put", "_index_put_impl", "_unsafe_index", "_unsafe_index_put")


def base_name(func: Any) -> str:
    """`add` of `aten.add_.Tensor` and of `aten.add.out`."""
    name: str = func._schema.name.partition("::")[2]
    return name.removesuffix("_") if not name.startswith("__") else name


def named(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by the names of the operator's schema."""
    return {**dict(zip((one.name for one in func._schema.arguments), args, strict=False)), **kwargs}


def refuse_nondeterminism(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises as CUDA does under deterministic algorithms."""
    condition = NO_DETERMINISTIC_ALGORITHM.get(base_name(func))
    if condition is None or not torch.are_deterministic_algorithms_enabled():
        return
    if not torch.is_deterministic_algorithms_warn_only_enabled() and condition(named(func, args, kwargs)):
        raise NotDeterministicError(
            f"{func} has no deterministic algorithm on CUDA, and deterministic algorithms are demanded"
        )


def index_masks(func: Any, args: Sequence[Any]) -> list[Tensor]:
    """The boolean tensors that an operator of indexing has as indices."""
    if base_name(func) not in INDEXING:
        return []
    return [one for one in args[1] if isinstance(one, Tensor) and one.dtype in (torch.bool, torch.uint8)]


@cache
def launches(func: Any) -> bool:
    """Whether the operator has work on the device: no view, and no memory that is not written."""
    aliases = [one.alias_info for one in func._schema.returns]
    view = any(alias is not None and not alias.is_write for alias in aliases)
    return not view and base_name(func) not in WITHOUT_WORK


def waits(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the operator makes the host wait, copies between devices apart."""
    condition = WAITING.get(base_name(func))
    if condition is not None:
        return condition(named(func, args, kwargs))
    return bool(index_masks(func, args))


# They read of their first argument no more than they give.
LOOKING_UP = ("index_select", "gather", "index", "_unsafe_index", "embedding", "take")
# They take no values from their first argument.
OVERWRITING = ("fill", "zero", "copy", "new_full", "new_zeros", "new_ones")
OVERWRITING += ("full_like", "zeros_like", "ones_like")


def traffic(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> int:
    """Bytes that an operator reads, each argument once, and writes, each result once."""
    kind, given = base_name(func), named(func, args, kwargs)
    unread = {
        one.name
        for place, one in enumerate(func._schema.arguments)
        if one.is_out or (place == 0 and kind in OVERWRITING)
    }
    written = _bytes(out)
    read = sum(_bytes(value) for name, value in given.items() if name not in unread)
    if kind in LOOKING_UP:
        read += min(0, written - _bytes(args[0]))
    return read + written


def _bytes(value: Any) -> int:
    if isinstance(value, Tensor):
        sides = [side for side, step in zip(value.shape, value.stride(), strict=True) if step or not side]
        return math.prod(sides) * value.element_size()
    return sum(map(_bytes, value)) if isinstance(value, list | tuple) else 0


# Products and convolutions: the first of their factors, and the number of these, among the arguments.
PRODUCTS = dict.fromkeys(("mm", "bmm", "mv", "dot"), (0, 2)) | dict.fromkeys(
    ("addmm", "baddbmm", "addbmm", "addmv"), (1, 2)
)
CONVOLUTIONS = {"convolution": (0, 2), "convolution_backward": (0, 3)}


def in_tf32(func: Any) -> bool | None:
    """Whether a product or a convolution rounds its factors under the present flags; None of others."""
    if base_name(func) in CONVOLUTIONS:
        return torch.backends.cudnn.allow_tf32
    return torch.backends.cuda.matmul.allow_tf32 if base_name(func) in PRODUCTS else None


def with_rounded_factors(func: Any, args: Sequence[Any], in_tf32: bool | None) -> Sequence[Any]:
    """The arguments, in TF32 with float32 factors of 10 bits after the point; ties go away from zero."""
    if not in_tf32:
        return args
    start, count = (PRODUCTS | CONVOLUTIONS)[base_name(func)]
    rounded = [_tf32(one) for one in args[start : start + count]]
    return [*args[:start], *rounded, *args[start + count :]]


def _tf32(factor: Tensor) -> Tensor:
    if factor.dtype != torch.float32:
        return factor
    bits = factor.view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def quotient(func: Any, args: Sequence[Any], theirs: Sequence[Tensor]) -> Tensor | None:
    """A division by a number of the host: CUDA multiplies by its reciprocal, which rounds in another way.

    Args:
        func: The operator.
        args: Its arguments, as the CPU has them.
        theirs: The tensors of the CPU among them.

    Returns:
        The result; None for all other operators.
    """
    if func not in DIVISIONS or (isinstance(args[1], Tensor) and not _is_of_the_host(args[1], theirs)):
        return None
    dividend, divisor = args
    common = torch.result_type(dividend, divisor)
    if not (common.is_floating_point or common.is_complex):
        common = torch.get_default_dtype()
    wide = torch.float32 if common in (torch.float16, torch.bfloat16) else common
    product = (dividend.to(wide) * (1 / torch.as_tensor(divisor, dtype=wide))).to(common)
    return dividend.copy_(product) if func._schema.is_mutable else product


def _is_of_the_host(value: Tensor, theirs: Sequence[Tensor]) -> bool:
    return value.dim() == 0 and any(value is one for one in theirs)


def refuse_mix(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], theirs: Sequence[Tensor]) -> None:
    """Raises as CUDA does where tensors of the CPU are among the arguments beside those of the device.

    Args:
        func: The operator.
        args: Its arguments.
        kwargs: Its named arguments.
        theirs: Those on the CPU.
    """
    given = named(func, args, kwargs)
    if base_name(func) in INDEXING:
        values = given.get("values")
        allowed = {id(one) for one in given["indices"] if one is not None}
        if base_name(func) != "index" and isinstance(values, Tensor) and values.dim() == 0:
            allowed.add(id(values))
        theirs = [one for one in theirs if id(one) not in allowed]
    elif torch.Tag.pointwise in func.tags or base_name(func) in ("where", "masked_fill", "fill", "lerp"):
        written = {
            id(given.get(one.name))
            for one in func._schema.arguments
            if one.alias_info is not None and one.alias_info.is_write
        }
        theirs = [one for one in theirs if one.dim() > 0 or id(one) in written]
    elif base_name(func).startswith("_ctc_loss"):
        lengths = {id(given.get("input_lengths")), id(given.get("target_lengths"))}
        theirs = [one for one in theirs if id(one) not in lengths]
    if theirs:
        places = {id(value): name for name, value in given.items()}
        where = ", ".join(places.get(id(one), "a list") for one in theirs)
        raise DeviceMixError(
            f"{func}: expected all tensors to be on the same device, but {where} is on the CPU"
        )
