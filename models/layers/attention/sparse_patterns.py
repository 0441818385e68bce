"""Softmax attention over the patterns of the Sparse Transformer, without an N x N matrix.

Child et al., "Generating long sequences with sparse transformers", 2019, section 4.3, the sparse baseline of
Nguyen et al., "A primal-dual framework for transformers and neural networks", ICLR 2023 (equation 16), which
states no pattern. With a stride l, for the places i (query) and j (key):

    strided    |i - j| < l, or (i - j) mod l = 0
    fixed      floor(i / l) = floor(j / l), or j mod l >= l - c      (the last c places of each block)

Each head has the union of both sets ("merged heads"). Child et al. have only j <= i, the causal form here.
Prefix tokens (CLS) are outside the pattern: all tokens attend to them, and they to all (causal: to
themselves).

With scaled heads (factor f) the pattern is over the shorter sequence of pooled keys; f queries share a place.
Scores are of a block of l places with 3 blocks (strided; causal 2) or its own (fixed), and with one place, or
c, of every other block: memory and operations grow with N (3 l + N / l), or N (l + c N / l), i.e. N sqrt(N)
for l near sqrt(N), and N^2 for l near 1 or N.

P = prefix tokens, N = P + n queries, M = P + m keys, m = ceil(n / f), R = ceil(m / l) blocks, D = width of a
head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict, Unpack

import torch
from annotated_types import Interval, doc
from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import pad

from assay.models.layers.attention.key_normalization import KeyNormalization
from assay.models.layers.attention.scaled_heads import ScaledHeads
from assay.models.layers.checks import at_least, one_of
from assay.models.layers.heads import Causal, Dropout, HeadParameters, PrefixTokens, Tokens, attend

PatternName = Annotated[
    Literal["strided", "fixed"],
    doc(
        '"strided": the nearest l - 1 places on both sides and every l-th; "fixed": blocks of l '
        "places, and the last c places of each."
    ),
]
Stride = Annotated[
    Annotated[int, Interval(ge=1, le=65536)] | None,
    doc("l, in places; the square root of their number in the longest sequence if absent."),
]
Summary = Annotated[
    Annotated[int, Interval(ge=1, le=65536)] | None,
    doc('c, for "fixed"; a 16th of l, at least 1, if absent.'),
]

# Child et al. use 8 of 128 places.
SUMMARY_SHARE = 16
PATTERN_RULES = (
    (
        "params.stride is None or params.summary is None or params.summary <= params.stride",
        "summary, the last places of a block, must not be more than stride, all of them",
    ),
)


class SparseParameters(TypedDict, total=False):
    """Parameters that mechanisms hand on to `SparseHeads`."""

    pattern: PatternName
    stride: Stride
    summary: Summary
    prefix_tokens: PrefixTokens
    tokens: Tokens
    dropout: Dropout


@dataclass(frozen=True)
class Pattern:
    """A pattern with its parameters. Raises ValueError: an unknown name, or a number is out of its range."""

    name: PatternName  # "strided" or "fixed"
    # places l of a block; None for the square root of the places of the longest sequence, rounded
    stride: int | None
    # places c of a block that all others see ("fixed"); None for a 16th of them, at least 1
    summary: int | None

    def __post_init__(self) -> None:
        one_of("pattern", self.name, "strided", "fixed")
        for field, given in (("stride", self.stride), ("summary", self.summary)):
            if given is not None:
                at_least(field, given, 1)
        if self.stride is not None and self.summary is not None and self.summary > self.stride:
            raise ValueError(f"summary must not be more than stride: got {self.summary} and {self.stride}")

    def sizes(self, longest: int, places: int) -> tuple[int, int]:
        """l and c for a sequence of so many places, at most it, where the longest sequence has `longest`."""
        stride = self.stride or max(1, round(math.sqrt(longest)))
        summary = self.summary or max(1, stride // SUMMARY_SHARE)
        stride = max(1, min(stride, places))
        return stride, min(summary, stride)


def sparse_attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    dropout: float,
    *,
    pattern: PatternName,
    stride: int,
    summary: int,
    prefix_tokens: int,
    factor: int = 1,
    causal: bool = False,
) -> Tensor:
    """Softmax attention of queries (B, H, N, D) over a pattern of keys and values (B, H, M, D): (B, H, N, D).

    `mask` is boolean (B, M), true for the keys that may be attended to. Pass a dropout of 0 outside training,
    l as `stride`, c <= l as `summary` for "fixed", f as `factor`, which is 1 if causal.
    """
    tokens, places = queries.shape[2] - prefix_tokens, keys.shape[2] - prefix_tokens
    output = values[:, :, :0]  # as wide as the values
    if prefix_tokens:
        ahead = slice(0, prefix_tokens if causal else None)
        seen = None if mask is None else mask[:, ahead]
        output = attend(
            queries[:, :, :prefix_tokens],
            keys[:, :, ahead],
            values[:, :, ahead],
            seen,
            dropout,
            causal=causal,
        )
    if not tokens:
        return output
    blocks = _Blocks(pattern, stride, summary, factor, causal, -(-places // stride))
    present = torch.ones_like(keys[:1, :1, :, :1]) if mask is None else mask[:, None, :, None].to(keys.dtype)
    asked = blocks.split(queries[:, :, prefix_tokens:] * queries.shape[-1] ** -0.5, stride * factor)
    prefix_keys, prefix_values, prefix_present = (
        part[:, :, None, :prefix_tokens] for part in (keys, values, present)
    )  # (B, H, 1, P, D) and (B, 1, 1, P, 1)
    rest_keys, rest_values, rest_present = (
        blocks.split(part[:, :, prefix_tokens:], stride) for part in (keys, values, present)
    )  # (B, H, R, l, D)
    near_keys, near_values = blocks.near(rest_keys), blocks.near(rest_values)
    allowed = (
        prefix_present.mT > 0,
        (blocks.near(rest_present).mT > 0) & blocks.near_allowed(keys.device),
        blocks.far_present(rest_present) & blocks.far_allowed(keys.device),
    )
    scores = (asked @ prefix_keys.mT, asked @ near_keys.mT, blocks.far_scores(asked, rest_keys))
    # Not -inf: a row without a key, which is padding, has no NaN then.
    hidden = [
        part.masked_fill(~shown, torch.finfo(part.dtype).min)
        for part, shown in zip(scores, allowed, strict=True)
    ]
    wide = torch.promote_types(values.dtype, torch.float32)
    weights = drop(torch.cat(hidden, dim=-1).softmax(dim=-1, dtype=wide).to(values.dtype), dropout)
    to_prefix, to_near, to_far = weights.split([part.shape[-1] for part in scores], dim=-1)
    attended = to_prefix @ prefix_values + to_near @ near_values + blocks.far_sums(to_far, rest_values)
    return torch.cat([output, attended.flatten(2, 3)[:, :, :tokens]], dim=2)


@dataclass(frozen=True)
class _Blocks:
    """Sequences cut into R blocks of l places: a query sees those near it, and some of every other block."""

    pattern: PatternName
    stride: int
    summary: int
    factor: int
    causal: bool
    count: int

    def split(self, x: Tensor, length: int) -> Tensor:
        """(B, H, n, D) to blocks (B, H, R, length, D), the last one filled with zeros."""
        filled = pad(x, (0, 0, 0, self.count * length - x.shape[2]))
        blocks: Tensor = filled.unflatten(2, (self.count, length))
        return blocks

    def near(self, x: Tensor) -> Tensor:
        """What each block sees of its surroundings: (B, H, R, l, D) to (B, H, R, L, D)."""
        if self.pattern == "fixed" or self.count == 1:
            return x
        earlier = pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1]
        if self.causal:
            return torch.cat([earlier, x], dim=3)
        return torch.cat([earlier, x, pad(x, (0, 0, 0, 0, 0, 1))[:, :, 1:]], dim=3)

    def near_allowed(self, device: torch.device) -> Tensor:
        """Boolean (l f, L)."""
        neighbours = self.pattern == "strided" and self.count > 1
        last = 2 * self.stride if neighbours and not self.causal else self.stride
        places = torch.arange(-self.stride if neighbours else 0, last, device=device)
        own = torch.arange(self.stride * self.factor, device=device)[:, None] // self.factor
        allowed = (places - own).abs() < self.stride
        return allowed & (places <= own) if self.causal else allowed

    def far_allowed(self, device: torch.device) -> Tensor:
        """Boolean (R, 1, R), or (R, 1, R c) for "fixed": other blocks than the query's own."""
        others = torch.arange(self.count, device=device)
        if self.pattern == "fixed":
            others = others.repeat_interleave(self.summary)
        own = torch.arange(self.count, device=device)[:, None, None]
        return others < own if self.causal else others != own

    def far_present(self, present: Tensor) -> Tensor:
        """Boolean (B, 1, 1, l f, R), or (B, 1, 1, 1, R c) for "fixed"."""
        if self.pattern == "fixed":
            return self._summaries(present).mT > 0
        return present[..., 0].mT.repeat_interleave(self.factor, dim=2)[:, :, None] > 0

    def far_scores(self, asked: Tensor, keys: Tensor) -> Tensor:
        """Queries (B, H, R, l f, D) times keys of all blocks: (B, H, R, l f, R), or R c for "fixed"."""
        if self.pattern == "fixed":
            return asked @ self._summaries(keys).mT
        return self._rows(self._columns(asked, self.factor) @ self._columns(keys, 1).mT)

    def far_sums(self, weights: Tensor, values: Tensor) -> Tensor:
        """Sums of values of all blocks, with weights as `far_scores` has them: (B, H, R, l f, D)."""
        if self.pattern == "fixed":
            return weights @ self._summaries(values)
        return self._rows(self._columns(weights, self.factor) @ self._columns(values, 1))

    def _summaries(self, x: Tensor) -> Tensor:
        """The last c places of each block, together: (B, H, 1, R c, D)."""
        return x[:, :, :, self.stride - self.summary :].flatten(2, 3)[:, :, None]

    def _columns(self, x: Tensor, factor: int) -> Tensor:
        """Of each place the same one of all blocks: (B, H, R, l f, D) to (B, H, l, R f, D)."""
        by_place: Tensor = x.unflatten(3, (self.stride, factor)).transpose(2, 3)  # (B, H, l, R, f, D)
        return by_place.flatten(3, 4)

    def _rows(self, x: Tensor) -> Tensor:
        by_place: Tensor = x.unflatten(3, (self.count, self.factor)).transpose(2, 3)  # (B, H, R, l, f, D)
        return by_place.flatten(3, 4)


class SparseHeads(ScaledHeads):
    """Softmax attention over a pattern, with keys and values at each head's resolution.

    Arguments as of `ScaledHeads` and `Pattern`; the stride may follow from `tokens`, the length of the
    longest sequence, prefix included.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        factors: Sequence[int] | None,
        normalization: KeyNormalization | None = None,
        pattern: PatternName = "strided",
        stride: Stride = None,
        summary: Summary = None,
        tokens: Tokens = 197,
        causal: Causal = False,
        **shared: Unpack[HeadParameters],
    ) -> None:
        chosen = Pattern(pattern, stride, summary)
        super().__init__(dim, heads, factors=factors, normalization=normalization, causal=causal, **shared)
        self.pattern = chosen
        self.tokens = tokens

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, factor: int) -> Tensor:
        """Attention of the heads with the same factor over the pattern, (B, h, N, D)."""
        longest = -(-(self.tokens - self.prefix_tokens) // factor)
        stride, summary = self.pattern.sizes(longest, keys.shape[2] - self.prefix_tokens)
        return sparse_attend(
            queries,
            keys,
            values,
            mask,
            self.training_rate(),
            pattern=self.pattern.name,
            stride=stride,
            summary=summary,
            prefix_tokens=self.prefix_tokens,
            factor=factor,
            causal=self.causal,
        )

    def normalized(self, queries: Tensor, keys: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Queries and keys as `mix` gets them; if causal, each query with the statistics of its own past."""
        if self.causal and self.normalization is not None:
            return self.normalization.folded(queries, keys, mask), keys
        return super().normalized(queries, keys, mask)
