"""Probe of the queries, keys and values of softmax attention, layer by layer, during a forward pass.

A mechanism whose output is proj(softmax(q k^T / sqrt(D)) v), over all tokens, can report q, k and v: it has
`queries_keys_values` and states `OFFERS = ("softmax",)` in its module. That covers more than softmax:
RPC ends with q = k = Z, the points of its last iteration, and Scaled Attention with v = (I - S) V. A model
states the same if `softmax_layers` finds its layers, so that the service knows without building it.

Layers are observed by hooks: an unobserved model has no overhead.

B = batch, N = tokens (CLS included), C = width, H = heads, D = C / H, L = layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn


class QueriesKeysValues(NamedTuple):
    """Queries, keys and values of one layer, each (B, H, N, D)."""

    queries: Tensor
    keys: Tensor
    values: Tensor


@runtime_checkable
class SoftmaxLayer(Protocol):
    """Attention that ends in softmax(q k^T / sqrt(D)) v over all tokens."""

    def queries_keys_values(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Operands of the last softmax, each (B, H, N, D), for tokens (B, N, C)."""
        ...


def softmax_layers(model: nn.Module) -> list[nn.Module]:
    """Self-attention layers of a model's encoder, in order.

    In a model with an `encoder` (Segmenter), only that is searched. Other kinds of attention are skipped:
    class attention, whose only query is the class token.

    Raises:
        ValueError: no such layers, or the mechanism of some cannot report its q, k and v.
    """
    backbone = getattr(model, "backbone", model)
    encoder = getattr(backbone, "encoder", backbone)
    blocks = [block for block in getattr(encoder, "blocks", ()) if hasattr(block, "attn")]
    layers = [block.attn for block in blocks]
    if not layers:
        raise ValueError(f"{type(encoder).__name__} has no layers of self-attention that can be looked at")
    for number, layer in enumerate(layers):
        if not isinstance(layer, SoftmaxLayer) or getattr(layer, "causal", False):
            name = getattr(layer, "name", type(layer).__name__)
            raise ValueError(
                f"the attention of layer {number}, {name!r}, does not end in a softmax over all tokens"
            )
    return layers


@contextmanager
def observed(
    layers: Sequence[tuple[int, nn.Module]], see: Callable[[int, QueriesKeysValues], None]
) -> Iterator[None]:
    """Reports q, k and v of the layers in every forward pass inside the block.

    Args:
        layers: (number, module) of the observed layers.
        see: called with the number and q, k, v, before that layer runs; under autocast these are what the
            layer itself would compute.
    """
    with ExitStack() as hooks:
        for number, layer in layers:
            handle = layer.register_forward_pre_hook(_hook(number, see), with_kwargs=True)
            hooks.callback(handle.remove)
        yield


def _hook(number: int, see: Callable[[int, QueriesKeysValues], None]) -> Callable[..., None]:
    def tell(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert isinstance(layer, SoftmaxLayer)
        x = args[0] if args else kwargs["x"]
        if kwargs.get("mask") is not None:
            raise ValueError("sequences with padding cannot be looked at: the mask hides tokens")
        see(number, QueriesKeysValues(*layer.queries_keys_values(x)))

    return tell
