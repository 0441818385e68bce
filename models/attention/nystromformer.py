"""Nystromformer: softmax attention from means over segments of the tokens.

Xiong et al., "Nystromformer: A Nystrom-based algorithm for approximating self-attention", AAAI 2021, equation
13, as in the code of Chen et al. (Skyformer, NeurIPS 2021). q~ and k~ (L rows) are means of q and k over
contiguous segments:

    F1 = softmax(q k~^T D^-1/2),    F2 = softmax(q~ k~^T D^-1/2),    F3 = softmax(q~ k^T D^-1/2)
    output = proj(F1 F2^-1 F3 v + conv(v)),    the inverse by 6 steps of products

Deviations from that code; the parameters in parentheses restore its form:

- q and k of padding are zeros there, which enter the means (`padding` = "released"). Here the segments have
  only tokens that take part.
- Its inverse starts from a number of the whole batch (`normaliser` = "tensor"). Here from each matrix's own.
- It needs a number of tokens that L divides; here segments differ in size by one at most.
- It has no convolution (`kernel` 0) and no dropout. The depth-wise convolution over tokens, one kernel per
  head, is from Xiong et al.; the code of Chen et al., "Primal-Attention" (NeurIPS 2023), has 35 taps.
  Dropout acts here on the output before its projection.

There is no causal form.

L = landmarks.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Unpack

import torch
from annotated_types import Interval
from torch import Tensor, nn
from torch.nn.functional import dropout as drop

from assay.models.layers.attention.nystrom import (
    NORMALISERS,
    Iterations,
    LandmarkCount,
    Normaliser,
    iterative_inverse,
    segment_weights,
)
from assay.models.layers.attention.projected_attention import ProjectedAttention, without_padding
from assay.models.layers.checks import at_least, one_of
from assay.models.layers.heads import HeadParameters

__all__ = ["NystromformerAttention"]

FACTS = {"cost": "linear"}
RULES = (("params.kernel % 2 == 1 or params.kernel == 0", "kernel must be odd, or 0 for no convolution"),)
PAPER = "Xiong et al., Nystromformer: A Nystrom-based algorithm for approximating self-attention, AAAI 2021"

Padding = Literal["excluded", "released"]
Kernel = Annotated[int, Interval(ge=0, le=255)]


class NystromformerAttention(ProjectedAttention):
    """Softmax attention in time and memory linear in the number of tokens.

    With a convolution, `conv` is (H, 1, kernel, 1).

    Args:
        landmarks: L, the number of segments; a sequence of fewer tokens has one segment for each.
        padding: whether the means leave padding out ("excluded"), or count it as zeros ("released").
        kernel: taps of the depth-wise convolution of the values over the tokens; odd, or 0 for none.
        dropout: rate of dropout of the output before its projection, in [0, 1).
    """

    name: ClassVar[str] = "nystromformer"
    permutation_equivariant: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        landmarks: LandmarkCount = 128,
        iterations: Iterations = 6,
        normaliser: Normaliser = "matrix",
        padding: Padding = "excluded",
        kernel: Kernel = 0,
        **shared: Unpack[HeadParameters],
    ) -> None:
        super().__init__(dim, heads, **shared)
        at_least("landmarks", landmarks, 2)
        at_least("iterations", iterations, 1)
        one_of("normaliser", normaliser, *NORMALISERS)
        one_of("padding", padding, "excluded", "released")
        if kernel < 0 or (kernel > 0 and kernel % 2 == 0):
            raise ValueError(f"kernel must be odd, or 0 for no convolution: got {kernel}")
        self.landmarks, self.iterations, self.normaliser = landmarks, iterations, normaliser
        self.counts_padding = padding == "released"
        self.conv = (
            nn.Conv2d(heads, heads, (kernel, 1), padding=(kernel // 2, 0), groups=heads, bias=False)
            if kernel
            else None
        )

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """The approximation of softmax attention, (B, H, N, D); see `ProjectedAttention.mix`."""
        mixed = nystrom(
            queries,
            keys,
            values,
            mask,
            landmarks=self.landmarks,
            iterations=self.iterations,
            normaliser=self.normaliser,
            counts_padding=self.counts_padding,
        )
        if self.conv is not None:
            own = without_padding(values, mask)
            mixed = mixed + self.conv(own.to(self.conv.weight.dtype)).to(own.dtype)
        return drop(mixed, self.training_rate())


def nystrom(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    *,
    landmarks: int,
    iterations: int = 6,
    normaliser: Normaliser = "matrix",
    counts_padding: bool = False,
) -> Tensor:
    """F1 F2^-1 F3 v: (B, H, N, D), as queries, keys and values, before any scale.

    `mask` is boolean (B, N), true for tokens that take part; None = all. There are at most `landmarks`
    segments; with `counts_padding` of all tokens, zeros of padding among them.
    """
    length, scale = queries.shape[2], queries.shape[3] ** -0.5
    everything = torch.ones(1, length, dtype=torch.bool, device=queries.device)
    segmented = everything if mask is None or counts_padding else mask
    weights, used = segment_weights(length, landmarks, segmented)  # (B, L, N), (B, L)
    means = weights[:, None].to(queries.dtype)  # (B, 1, L, N)
    queries, keys = without_padding(queries, mask), without_padding(keys, mask)
    few_queries, few_keys = means @ queries, means @ keys  # (B, H, L, D)
    unused = ~used[:, None, None, :]  # (B, 1, 1, L)
    first = (queries @ few_keys.mT * scale).masked_fill(unused, -math.inf).softmax(dim=-1)
    second = (few_queries @ few_keys.mT * scale).masked_fill(unused, -math.inf).softmax(dim=-1)
    third = few_queries @ keys.mT * scale  # (B, H, L, N)
    if mask is not None:
        third = third.masked_fill(~mask[:, None, None, :], -math.inf)
    inverse = iterative_inverse(second.masked_fill(unused.mT, 0.0), iterations, normaliser)
    mixed: Tensor = first @ (inverse @ (third.softmax(dim=-1) @ values))
    return mixed
