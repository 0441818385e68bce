"""Heads with keys and values from the layer's input at several resolutions (Attention-SH).

Nguyen et al., "A primal-dual framework for transformers and neural networks", ICLR 2023, definition 2
(equation 25) and remark 5: the input of the layer is average-pooled over the tokens with windows of f_h, a
factor for each head h; its keys and values are projections of the pooled tokens. Queries come from all
tokens. Factors in the paper: 1, 1, 2, 2, 4, 4, 8, 8 (UEA, UCR), 1, 2 (LRA), 1, 1, 2, 4 (ImageNet).

Not stated there: the last window may be shorter and is averaged over what it has; padding is left out of the
averages, and a window of padding alone is padding; the class token is not pooled but has a key of its own;
images are pooled along the rows of patches.

No causal form: the key of a window has seen all of its tokens, later ones than a query inside it included;
without windows that are not over, the first tokens would have no key.

P = prefix tokens, M = P + ceil((N - P) / f) keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Unpack

import torch
from annotated_types import Interval, Len, doc
from torch import Tensor
from torch.nn.functional import linear, pad

from assay.models.layers.attention.key_normalization import KeyNormalization
from assay.models.layers.checks import at_least
from assay.models.layers.heads import Grid, HeadParameters, HeadProjections, attend, split_heads

Factors = Annotated[
    Annotated[list[Annotated[int, Interval(ge=1, le=1024)]], Len(1, 512)] | None,
    doc(
        "tokens that are averaged, for each head; a shorter list is repeated. Without it 1, 2 for 2 "
        "heads, 1, 1, 2, 4 for 4, and otherwise 1, 1, 2, 2, 4, 4, 8, 8, ..."
    ),
]

# The paper's factors by the number of heads; with eight heads the general rule holds.
PUBLISHED_FACTORS = {2: (1, 2), 4: (1, 1, 2, 4)}
LARGEST_DEFAULT = 8
FACTOR_RULES = (
    (
        "params.factors is None or model.heads % len(params.factors) == 0",
        "the number of factors must divide heads: the list is repeated until every head has one",
    ),
)


def factors_of(factors: Sequence[int] | None, heads: int) -> tuple[int, ...]:
    """The factor of each head, from a list that is repeated until every head has one.

    None is the published factors, else factors that double with every second head, up to 8.
    """
    if factors is None:
        doubling = tuple(min(2 ** (head // 2), LARGEST_DEFAULT) for head in range(heads))
        return PUBLISHED_FACTORS.get(heads, doubling)
    if not factors or heads % len(factors):
        raise ValueError(f"the number of factors must divide heads: got {list(factors)} for {heads} heads")
    at_least("factors", min(factors), 1)
    return tuple(factors) * (heads // len(factors))


def pool_tokens(
    x: Tensor, factor: int, prefix_tokens: int, mask: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Average tokens (B, N, C) in windows of `factor`, the last of what is left, without P prefix tokens.

    `mask` is boolean (B, N), true for the tokens that count; None = all. Returns (B, M, C) and the mask (B,
    M), true where a window has a token; None without a mask.
    """
    if factor == 1:
        return x, mask
    prefix, rest = x[:, :prefix_tokens], x[:, prefix_tokens:]
    wide = rest.to(torch.promote_types(rest.dtype, torch.float32))
    present = torch.ones_like(wide[:1, :, :1]) if mask is None else mask[:, prefix_tokens:, None].to(wide)
    counts = _windows(present, factor)  # (B or 1, M - P, 1)
    pooled = _windows(wide * present, factor) / counts.clamp(min=1.0)  # (B, M - P, C)
    tokens = torch.cat([prefix, pooled.to(x.dtype)], dim=1)
    if mask is None:
        return tokens, None
    return tokens, torch.cat([mask[:, :prefix_tokens], counts[..., 0] > 0], dim=1)


def _windows(values: Tensor, factor: int) -> Tensor:
    """Sums of windows: (B, N, F) to (B, ceil(N / factor), F)."""
    windows = -(-values.shape[1] // factor)
    filled = pad(values, (0, 0, 0, windows * factor - values.shape[1]))
    sums: Tensor = filled.unflatten(1, (windows, factor)).sum(dim=2)
    return sums


class ScaledHeads(HeadProjections, ABC):
    """Attention of queries to keys and values at each head's resolution; subclasses say how, in `mix`.

    The weights are `qkv` (3C, C) with the row blocks q, k, v, head-major inside a block (timm's and DeiT's
    layout), and `proj` (C, C). The normalization, if any, is by the statistics of each head's own keys.
    `causal` is given to `mix`, only with factors of 1. Dropout is the share of the attention weights that is
    dropped in training, in [0, 1).
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        factors: Sequence[int] | None,
        normalization: KeyNormalization | None = None,
        causal: bool = False,
        **shared: Unpack[HeadParameters],
    ) -> None:
        super().__init__(dim, heads, **shared)
        self.factors = factors_of(factors, heads)
        if causal and max(self.factors) > 1:
            raise ValueError(f"scaled heads have no causal form: got factors {list(self.factors)}")
        self.causal = causal
        self.normalization = normalization
        self.groups = {
            factor: [head for head in range(heads) if self.factors[head] == factor]
            for factor in sorted(set(self.factors))
        }
        places = [head for group in self.groups.values() for head in group]
        self.order = [places.index(head) for head in range(heads)]

    def forward(self, x: Tensor, *, grid: Grid | None = None, mask: Tensor | None = None) -> Tensor:
        """As `AttentionFactory` says."""
        if list(self.groups) == [1]:
            queries, keys, values = self.project(x)
            attended = self._attend(queries, keys, values, mask, 1)
        else:
            (queries,) = split_heads(self._project(x, slice(0, 1), range(self.heads)), 1, self.heads)
            found = [self._group(x, mask, queries, factor) for factor in self.groups]
            attended = torch.cat(found, dim=1)[:, _places(self.order)]  # (B, H, N, D)
        return self.merge(attended)

    def attention_matrix(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Weight of token j for token i of each head, (B, H, N, N), for tokens (B, N, C).

        The tokens of a window share its weight.
        """
        (queries,) = split_heads(self._project(x, slice(0, 1), range(self.heads)), 1, self.heads)
        unit = torch.eye(x.shape[1], dtype=x.dtype, device=x.device).expand(x.shape[0], -1, -1)  # (B, N, N)
        found = []
        for factor, heads in self.groups.items():
            pooled, present = pool_tokens(x, factor, self.prefix_tokens, mask)
            (keys,) = split_heads(self._project(pooled, slice(1, 2), heads), 1, len(heads))
            values = pool_tokens(unit, factor, self.prefix_tokens, mask)[0][:, None]  # (B, 1, M, N)
            expanded = values.expand(-1, len(heads), -1, -1)
            found.append(self._attend(queries[:, heads], keys, expanded, present, factor))
        return torch.cat(found, dim=1)[:, self.order]

    @abstractmethod
    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, factor: int) -> Tensor:
        """Attention of the heads with the same factor, (B, h, N, D), from normalised queries and keys.

        Queries are (B, h, N, D), keys and values (B, h, M, D); `mask` is boolean (B, M), true for the keys
        that may be attended to, None = all.
        """

    def normalized(self, queries: Tensor, keys: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Queries and keys as `mix` gets them."""
        if self.normalization is None:
            return queries, keys
        changed: tuple[Tensor, Tensor] = self.normalization(queries, keys, mask, causal=self.causal)
        return changed

    def _attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, factor: int
    ) -> Tensor:
        queries, keys = self.normalized(queries, keys, mask)
        return self.mix(queries, keys, values, mask, factor)

    def _group(self, x: Tensor, mask: Tensor | None, queries: Tensor, factor: int) -> Tensor:
        """The heads with the same factor, (B, h, N, D)."""
        heads = self.groups[factor]
        pooled, present = pool_tokens(x, factor, self.prefix_tokens, mask)
        keys, values = split_heads(self._project(pooled, slice(1, 3), heads), 2, len(heads))
        return self._attend(queries[:, _places(heads)], keys, values, present, factor)

    def _project(self, x: Tensor, parts: slice, heads: Sequence[int]) -> Tensor:
        def chosen(rows: Tensor) -> Tensor:
            by_head: Tensor = rows.unflatten(0, (3, self.heads, -1))[parts]
            return by_head[:, _places(heads)].flatten(0, 2)

        bias = self.qkv.bias
        return linear(x, chosen(self.qkv.weight), None if bias is None else chosen(bias))


class SoftmaxHeads(ScaledHeads):
    """Softmax attention at each head's resolution."""

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, factor: int) -> Tensor:
        """softmax(q k^T / sqrt(D)) v of the heads with the same factor, (B, h, N, D)."""
        del factor
        return attend(queries, keys, values, mask, self.training_rate())


def _places(heads: Sequence[int]) -> slice | list[int]:
    if list(heads) == list(range(heads[0], heads[0] + len(heads))):
        return slice(heads[0], heads[0] + len(heads))
    return list(heads)
