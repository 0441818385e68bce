"""`torch.autocast` of the emulated device: the lists of CUDA, above autograd, so that casts have gradients.

torch casts in C++ and by the kind of device that a tensor truly has; so this casts by the function called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

# From torch's page on autocast, "CUDA Ops that can autocast to lower precision", "to float32", "promote".
LOWER_NAMES = """
    __matmul__ __rmatmul__ addbmm addmm addmv addr baddbmm bmm chain_matmul multi_dot conv1d conv2d
    conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear matmul mm mv prelu einsum
    scaled_dot_product_attention
"""
SINGLE_NAMES = """
    __pow__ __rdiv__ __rpow__ __rtruediv__ acos asin binary_cross_entropy_with_logits cosh
    cosine_embedding_loss cdist cosine_similarity cross_entropy cumprod cumsum dist erfinv exp expm1
    group_norm hinge_embedding_loss kl_div l1_loss layer_norm log log10 log_softmax log1p log2
    logsumexp margin_ranking_loss mse_loss multilabel_margin_loss multi_margin_loss nll_loss norm
    normalize pdist poisson_nll_loss pow prod reciprocal rsqrt sinh smooth_l1_loss soft_margin_loss
    softmax softmin softplus sum renorm tan triplet_margin_loss vector_norm
"""
WIDEST_NAMES = """
    addcdiv addcmul atan2 bilinear cross dot grid_sample index_put index_put_ scatter_add tensordot
    cat stack concat concatenate
"""
LOWER, SINGLE, WIDEST = (frozenset(names.split()) for names in (LOWER_NAMES, SINGLE_NAMES, WIDEST_NAMES))


class _State(threading.local):
    dtype: torch.dtype | None = None


_state = _State()


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_mapped(one, change) for one in value)
    return value


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
    return found


class Casting(TorchFunctionMode):
    """Casts the arguments of listed functions, while autocast is on."""

    def __init__(self, own: type[Tensor]) -> None:
        super().__init__()
        self._own = own

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        target = self._target(name, [*args, *given.values()])
        if target is None:
            return func(*args, **given)

        def cast(tensor: Tensor) -> Tensor:
            eligible = isinstance(tensor, self._own) and tensor.is_floating_point()
            return tensor.to(target) if eligible and tensor.dtype != torch.float64 else tensor

        return func(*_mapped(args, cast), **{key: _mapped(value, cast) for key, value in given.items()})

    def _target(self, name: str, given: Iterable[Any]) -> torch.dtype | None:
        if _state.dtype is None:
            return None
        if name in LOWER:
            return _state.dtype
        if name in SINGLE:
            return torch.float32
        if name not in WIDEST:
            return None
        dtypes = {
            one.dtype for one in _tensors(given) if isinstance(one, self._own) and one.is_floating_point()
        }
        return torch.float32 if torch.float32 in dtypes and len(dtypes) > 1 else None


def told(real: type[torch.autocast], kind: str, own: type[Tensor]) -> type[torch.autocast]:
    """`torch.autocast`, which also knows a kind of device.

    Args:
        real: The present one.
        kind: The kind of device.
        own: The class of its tensors.
    """

    class Autocast(real):  # type: ignore[misc, valid-type]
        """As torch's, for one more kind of device."""

        def __init__(self, device_type: str, dtype: torch.dtype | None = None, **options: Any) -> None:
            self._emulated = device_type == kind
            self._wanted = (dtype or torch.float16) if options.get("enabled", True) else None
            self._before: list[tuple[torch.dtype | None, Casting | None]] = []
            if not self._emulated:
                super().__init__(device_type, dtype, **options)

        def __enter__(self) -> Any:
            if not self._emulated:
                return super().__enter__()
            mode = Casting(own) if self._wanted is not None else None
            self._before.append((_state.dtype, mode))
            _state.dtype = self._wanted
            if mode is not None:
                mode.__enter__()
            return self

        def __exit__(self, *error: Any) -> Any:
            if not self._emulated:
                return super().__exit__(*error)
            _state.dtype, mode = self._before.pop()
            if mode is not None:
                mode.__exit__(*error)
            return None

    return Autocast
