"""Shared parts of the attention mechanisms: their type, head splitting and exact softmax attention.

In all modules of attention: B = batch, N = tokens (CLS included), C = width (`dim`), H = heads, D = C / H.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Protocol, TypedDict, get_args, get_type_hints, is_typeddict

import torch
from annotated_types import Interval, doc
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

PrefixTokens = Annotated[int, "system", doc("tokens before the patches; all see them, and they see all.")]
Causal = Annotated[bool, "system", doc("each token attends to itself and to those before it.")]
Tokens = Annotated[int, "system", doc("length of the longest sequence, prefix included.")]
Dropout = Annotated[
    float, Interval(ge=0, lt=1), doc("share of the attention weights that is dropped in training, in [0, 1).")
]


Grid = tuple[int, int]


class HeadParameters(TypedDict, total=False):
    """Parameters that mechanisms hand on to `HeadProjections`."""

    prefix_tokens: PrefixTokens
    dropout: Dropout


class CausalParameters(HeadParameters, total=False):
    """Parameters that mechanisms with a causal form hand on to their base class."""

    causal: Causal


class AttentionFactory(Protocol):
    """Makes one layer's attention: an attention class, or one with the user's parameters bound.

    `forward(x, *, grid=None, mask=None)` maps (B, N, C) to (B, N, C). `grid` is the (height, width) of the
    patch tokens, row by row. `mask` is boolean (B, N), true for the tokens that take part; each sequence
    needs at least one.
    """

    def __call__(self, dim: int, heads: int, *, prefix_tokens: int = 1) -> nn.Module:
        """Make the attention of a layer; `prefix_tokens` counts the tokens before the patches (CLS)."""
        ...


class CausalFactory(Protocol):
    """Makes one layer's causal attention, in which a token's output depends on no later token."""

    def __call__(self, dim: int, heads: int, *, prefix_tokens: int = 1, causal: bool = True) -> nn.Module:
        """Make the attention of a layer."""
        ...


def make_attention(
    factory: Callable[..., nn.Module],
    dim: int,
    heads: int,
    *,
    prefix_tokens: int,
    tokens: int,
    causal: bool | None = None,
) -> nn.Module:
    """Make one layer's attention of width C and H heads, and tell it what its constructor asks for.

    `tokens` is N of the longest sequence, prefix included, for mechanisms with weights or landmarks for
    places. `causal` is true where a layer must not see later tokens; None for mechanisms without such a form.
    """
    wanted: dict[str, int] = {"prefix_tokens": prefix_tokens}
    if "tokens" in inspect.signature(factory).parameters:
        wanted["tokens"] = tokens
    if causal is not None:
        wanted["causal"] = causal
    return factory(dim, heads, **wanted)


def check_past_only(attention: nn.Module) -> None:
    """Rejects an attention that sees later tokens, for models that predict them.

    `sees_later_tokens` says so; `causal_with` is the parameter to change, with its only causal value.
    """
    if not getattr(attention, "sees_later_tokens", False):
        return
    name = getattr(attention, "name", type(attention).__name__)
    parameter, value = getattr(attention, "causal_with", (None, None))
    remedy = "" if parameter is None else f"; {parameter} must be {value!r}"
    raise ValueError(
        f"{name} sees later tokens with these parameters, in a model that predicts the next token{remedy}"
    )


def has_causal_form(attention: Callable[..., nn.Module]) -> bool:
    """Whether a mechanism can be made causal: its constructor takes `causal`.

    The fact `causal_form` of the catalog. The module's `causal` tells whether it has a causal mask.
    """
    return "causal" in inspect.signature(attention).parameters


def check_heads(dim: int, heads: int) -> None:
    """Rejects, with a ValueError, a width that does not split into equal heads."""
    if heads < 1 or dim % heads:
        raise ValueError(f"heads must divide width: got width {dim} and heads {heads}")


def split_heads(projected: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """Split (B, N, parts * C) into `parts` tensors (B, H, N, D): parts first, head-major inside a part."""
    batch, tokens, features = projected.shape
    by_head = projected.reshape(batch, tokens, parts, heads, features // (parts * heads))
    return by_head.permute(2, 0, 3, 1, 4).unbind(0)  # parts x (B, H, N, D)


def merge_heads(by_head: Tensor) -> Tensor:
    """Undo `split_heads` for one part: (B, H, N, D) to (B, N, C)."""
    return by_head.transpose(1, 2).flatten(2)


class HeadProjections(nn.Module):
    """The projections around a mechanism.

    `qkv` is (`projections` * C, C), head-major inside a row block; `proj` is (C, C). Dropout is the rate that
    the mechanism drops in training, in [0, 1).
    """

    projections: ClassVar[int] = 3

    def __init_subclass__(cls) -> None:
        """Show `help`, editors and the catalog the parameters that `**` hands on to the base class."""
        super().__init_subclass__()
        function: Any = vars(cls).get("__init__", HeadProjections.__init__)
        *own, last = inspect.signature(function).parameters.values()
        if last.kind is last.VAR_KEYWORD:
            shared = get_type_hints(function, include_extras=True).get(last.name)
            handed_on = inspect.signature(super(cls, cls).__init__).parameters
            for group in filter(is_typeddict, get_args(shared)):
                types = get_type_hints(group, include_extras=True)
                own += [handed_on[name].replace(annotation=shown) for name, shown in types.items()]
                function.__signature__ = inspect.Signature(own)

    def __init__(
        self, dim: int, heads: int, *, prefix_tokens: PrefixTokens = 1, dropout: Dropout = 0.0
    ) -> None:
        super().__init__()
        check_heads(dim, heads)
        self.heads = heads
        self.prefix_tokens = prefix_tokens
        self.dropout = dropout
        self.qkv = nn.Linear(dim, self.projections * dim)
        self.proj = nn.Linear(dim, dim)

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        """The row blocks of `qkv` applied to tokens (B, N, C), each (B, H, N, D)."""
        return split_heads(self.qkv(x), self.projections, self.heads)

    def merge(self, attended: Tensor) -> Tensor:
        """`proj` of what the heads attended to, (B, H, N, D) to (B, N, C)."""
        output: Tensor = self.proj(merge_heads(attended))
        return output

    def training_rate(self) -> float:
        """The dropout rate in the present mode."""
        return self.dropout if self.training else 0.0


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    dropout: float,
    *,
    causal: bool = False,
) -> Tensor:
    """softmax(q k^T / sqrt(D)) v, by torch's fused kernel: the N x N matrix is not stored.

    Operands and result are (B, H, N, D); `mask` is boolean (B, N), true for tokens that may be attended to.
    Pass a dropout of 0 outside training. Causal with a mask holds booleans (B, 1, N, N).
    """
    allowed = None if mask is None else mask[:, None, None, :]  # (B, 1, 1, N)
    if allowed is not None and causal:
        present = torch.eye(allowed.shape[-1], dtype=torch.bool, device=allowed.device)
        allowed = allowed.expand(-1, -1, allowed.shape[-1], -1).tril() | present  # no row without a key
    return scaled_dot_product_attention(
        queries, keys, values, attn_mask=allowed, dropout_p=dropout, is_causal=causal and mask is None
    )


def running_sum(values: Tensor) -> Tensor:
    """Cumulative sum over the tokens, (B, H, N, F) to the same, with no trace of later tokens.

    By doubling strides: torch.cumsum has no deterministic CUDA kernel.
    """
    stride = 1
    while stride < values.shape[-2]:
        values = values + pad(values[..., :-stride, :], (0, 0, stride, 0))
        stride *= 2
    return values
