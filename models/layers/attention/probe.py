"""Probe of attention, layer by layer, during a forward pass: queries, keys and values, or matrices.

A mechanism with the output proj(softmax(q k^T / sqrt(D)) v), over all tokens, has `queries_keys_values` and
states `OFFERS = ("softmax",)`: also RPC, with q = k = Z, the points of its last iteration, and Scaled
Attention, with v = (I - S) V. A model states the same if `softmax_layers` finds its layers.

L = layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn


class QueriesKeysValues(NamedTuple):
    """Queries, keys, values, all (B, H, N, D). `mask`: bool (B, N), true for tokens that count; None: all."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    mask: Tensor | None = None


class PursuitTrace(NamedTuple):
    """The keys K of a layer, and S and L of each of its n iterations; every tensor is (B, H, N, D)."""

    keys: Tensor
    sparse: tuple[Tensor, ...]
    low_rank: tuple[Tensor, ...]


@runtime_checkable
class SoftmaxLayer(Protocol):
    """Attention that ends in softmax(q k^T / sqrt(D)) v over all tokens."""

    def queries_keys_values(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Operands of the last softmax, each (B, H, N, D), for tokens (B, N, C)."""
        ...


@runtime_checkable
class MatrixLayer(Protocol):
    """Attention that weighs tokens otherwise than by such a softmax."""

    def attention_matrix(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Weight of token j for token i of each head, (B, H, N, N), for tokens (B, N, C)."""
        ...


@runtime_checkable
class KernelLayer(Protocol):
    """Attention in the primal form of a kernel matrix L R^T, which it does not compute."""

    def kernel_factors(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """L and R of each head, (B, H, N, P) each, for tokens (B, N, C)."""
        ...


@runtime_checkable
class PursuitLayer(Protocol):
    """RPC-Attention in any form: it splits its keys into a sparse and a low-rank part, in iterations."""

    regularization: float  # lambda
    threshold: Literal["code", "paper"]  # "code" or "paper"
    dual_sign: Literal[-1, 1]  # -1 or 1
    prefix_tokens: int  # tokens before the patches' tokens

    def pursuit(self, x: Tensor, mask: Tensor | None = None) -> PursuitTrace:
        """All iterations for tokens (B, N, C)."""
        ...


def softmax_layers(model: nn.Module, *, causal: bool = False) -> list[nn.Module]:
    """Self-attention layers of a model's encoder, in order: of its `blocks` those that have `attn`.

    Of a Segmenter only the `encoder` is searched; class attention is skipped. If `causal`, layers may hide
    later tokens; their q, k, v are taken before the mask.
    """
    return _layers(model, (SoftmaxLayer,), "does not end in a softmax over all tokens", causal)


def matrix_layers(model: nn.Module, *, kernels: bool, causal: bool = False) -> list[nn.Module]:
    """Layers of a model with an attention matrix that can be computed, as `softmax_layers` finds them."""
    able: tuple[type, ...] = (SoftmaxLayer, MatrixLayer, *([KernelLayer] if kernels else []))
    return _layers(model, able, "has no attention matrix to look at", causal)


def pursuit_layers(model: nn.Module) -> list[tuple[int, PursuitLayer]]:
    """Layers with RPC-Attention and their numbers, from 0, in a model's encoder; empty without any."""
    layers = enumerate(_attention(_encoder(model)))
    return [(number, layer) for number, layer in layers if isinstance(layer, PursuitLayer)]


def _encoder(model: nn.Module) -> nn.Module:
    backbone = getattr(model, "backbone", model)
    encoder: nn.Module = getattr(backbone, "encoder", backbone)
    return encoder


def _attention(encoder: nn.Module) -> list[nn.Module]:
    return [block.attn for block in getattr(encoder, "blocks", ()) if hasattr(block, "attn")]


def _layers(model: nn.Module, able: tuple[type, ...], lack: str, causal: bool) -> list[nn.Module]:
    encoder = _encoder(model)
    layers = _attention(encoder)
    if not layers:
        raise ValueError(f"{type(encoder).__name__} has no layers of self-attention that can be looked at")
    for number, layer in enumerate(layers):
        if not isinstance(layer, able) or (getattr(layer, "causal", False) and not causal):
            name = getattr(layer, "name", type(layer).__name__)
            raise ValueError(f"the attention of layer {number}, {name!r}, {lack}")
    return layers


def queries_keys_values(layer: nn.Module, x: Tensor, mask: Tensor | None = None) -> QueriesKeysValues:
    """What a layer of `softmax_layers` attends with, for tokens (B, N, C) and their mask (B, N)."""
    assert isinstance(layer, SoftmaxLayer)
    return QueriesKeysValues(*layer.queries_keys_values(x, mask), mask)


See = Callable[[int, nn.Module, Tensor, Tensor | None], None]
"""Told a layer's number, the module, its tokens (B, N, C), and their mask (B, N) or None."""


@contextmanager
def observed(layers: Sequence[tuple[int, nn.Module]], see: See, *, padding: bool = False) -> Iterator[None]:
    """Reports what enters the numbered layers in every forward pass inside the block.

    `see` is called before its layer runs, under the layer's autocast. Without `padding`, a mask is an error.
    """
    with ExitStack() as hooks:
        for number, layer in layers:
            handle = layer.register_forward_pre_hook(_hook(number, see, padding), with_kwargs=True)
            hooks.callback(handle.remove)
        yield


def _hook(number: int, see: See, padding: bool) -> Callable[..., None]:
    def tell(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        mask = kwargs.get("mask")
        if mask is not None and not padding:
            raise ValueError("sequences with padding cannot be looked at: the mask hides tokens")
        see(number, layer, args[0] if args else kwargs["x"], mask)

    return tell
