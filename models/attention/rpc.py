"""RPC-Attention: attention with robust principal components, by Principal Attention Pursuit (PAP).

Teo and Nguyen, "Unveiling the hidden structure of self-attention via kernel principal component analysis",
NeurIPS 2024, section 3 and Algorithm 1. With L = Y = 0 at the start, each of n iterations does

    S <- shrink(K - L + Y/mu, tau)               the sparse part; shrink(m, t) = sign(m) max(|m| - t, 0)
    Z <- K - S - Y/mu                            dual_sign = +1 has + Y/mu here
    L <- softmax(Z Z^T / sqrt(D)) V              the low-rank part, and the output
    Y <- Y + mu (K - L - S)

    mu = N C / (4 ||K_h||_1)                     mu_width = "head" has D in place of C
    tau = lambda mu                              threshold = "paper" has lambda / mu

The defaults are the released code. The paper's text has tau = lambda / mu and may be read as N D in mu; the L
step that minimises the stated Lagrangian has + Y/mu, where paper and code have - Y/mu. Here the iteration
keeps U = Y / mu, the same in exact arithmetic and finite when mu is large. The gradient flows through mu.
Further forms: rpc_asymmetric.py, rpc_causal.py.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Annotated, ClassVar, Literal, NamedTuple, TypedDict

import torch
from annotated_types import Ge, Interval, doc
from torch import Tensor

from assay.models.layers import parameters
from assay.models.layers.attention.probe import PursuitTrace
from assay.models.layers.attention.pursuit_steps import LowRankStep, fastest_step, plain_step, pursue
from assay.models.layers.checks import at_least, one_of
from assay.models.layers.heads import Grid, HeadProjections, PrefixTokens, attend

__all__ = ["RPCAttention"]

OFFERS = ("softmax", "pursuit")
FACTS = {"cost": "quadratic"}
PAPER = (
    "Teo and Nguyen, Unveiling the hidden structure of self-attention via kernel principal component "
    "analysis, NeurIPS 2024"
)

Iterations = Annotated[int, Interval(ge=1, le=1000), doc("iterations of Principal Attention Pursuit.")]
Regularization = Annotated[float, Ge(0), doc("lambda, the weight of the sparse part.")]
Threshold = Annotated[
    Literal["code", "paper"], doc('the shrinkage threshold, lambda * mu ("code") or lambda / mu ("paper").')
]
MuWidth = Annotated[
    Literal["full", "head"], doc('the width in mu: of the model ("full", as released) or of a head ("head").')
]
DualSign = Annotated[
    Literal[-1, 1], doc("sign of Y / mu in the L step; -1 as published, +1 minimises the stated Lagrangian.")
]


class PursuitParameters(TypedDict, total=False):
    """Parameters that mechanisms hand on to `RPCAttention`."""

    iterations: Iterations
    regularization: Regularization
    threshold: Threshold
    mu_width: MuWidth
    dual_sign: DualSign
    prefix_tokens: PrefixTokens
    dropout: parameters.LastDropout


MIN_NORM = 1e-12  # mu and its derivative stay finite in float32, also for keys that are all zero


def penalty(keys: Tensor, width: int, mask: Tensor | None = None) -> Tensor:
    """The penalty mu = N width / (4 ||K_h||_1) of each image and head.

    (B, H, 1, 1), positive and finite, in float32 at least; `width` is C as released, or D. Tokens that are
    false in `mask`, (B, N), count neither in N nor in the norm.
    """
    norm = magnitudes(keys, mask).sum(dim=(-2, -1), keepdim=True)  # (B, H, 1, 1)
    tokens = keys.shape[-2] if mask is None else mask.sum(dim=-1)[:, None, None, None]  # (B, 1, 1, 1)
    return tokens * width / (4.0 * norm.clamp(min=MIN_NORM))


def magnitudes(keys: Tensor, mask: Tensor | None) -> Tensor:
    """|K| in float32 at least, 0 for masked tokens: (B, H, N, D) to the same."""
    magnitude = keys.abs().to(torch.promote_types(keys.dtype, torch.float32))
    return magnitude if mask is None else magnitude.masked_fill(~mask[:, None, :, None], 0.0)


class Operands(NamedTuple):
    """What the pursuit of a layer starts from."""

    keys: Tensor  # K, (B, H, N, D)
    values: Tensor  # V, (B, H, N, D)
    mu: Tensor  # the penalty, (B, H, 1, 1), or (B, H, N, 1) with one for each token
    low_rank_step: LowRankStep  # the L step


class RPCAttention(HeadProjections):
    """Attention with robust principal components: symmetric attention that splits off sparse corruption.

    The weights have the authors' layout: `qkv` (2C, C) with the row blocks k, v, and `proj`. The published
    models have 4 to 6 iterations in the first layer, or 2 in all layers. With one iteration and a large
    `regularization` this is symmetric attention.

    Args:
        iterations: number n of PAP iterations.
        regularization: lambda, the weight of the sparse part; the authors use 4, and 3 for all layers.
    """

    name: ClassVar[str] = "rpc"
    permutation_equivariant: ClassVar[bool] = True
    projections: ClassVar[int] = 2

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        iterations: Iterations = 4,
        regularization: Regularization = 4.0,
        threshold: Threshold = "code",
        mu_width: MuWidth = "full",
        dual_sign: DualSign = -1,
        prefix_tokens: PrefixTokens = 1,
        dropout: parameters.LastDropout = 0.0,
    ) -> None:
        super().__init__(dim, heads, prefix_tokens=prefix_tokens, dropout=dropout)
        at_least("iterations", iterations, 1)
        at_least("regularization", regularization, 0)
        one_of("threshold", threshold, "code", "paper")
        one_of("mu_width", mu_width, "full", "head")
        one_of("dual_sign", dual_sign, -1, 1)
        self.iterations = iterations
        self.regularization = regularization
        self.threshold = threshold
        self.width = dim if mu_width == "full" else dim // heads
        self.dual_sign = dual_sign

    def forward(self, x: Tensor, *, grid: Grid | None = None, mask: Tensor | None = None) -> Tensor:
        """As `AttentionFactory` says."""
        keys, _, mu, low_rank_step = self.operands(x, mask)
        # As released: dropping weights earlier would feed the noise back through the iteration.
        last_point = self._last_point(keys, mu, low_rank_step)
        return self.merge(low_rank_step(last_point, self.training_rate()))

    def operands(self, x: Tensor, mask: Tensor | None = None) -> Operands:
        """What the pursuit starts from for tokens (B, N, C)."""
        keys, values = self.project(x)

        def low_rank_step(point: Tensor, dropout: float) -> Tensor:
            return attend(point, point, values, mask, dropout)

        return Operands(keys, values, penalty(keys, self.width, mask), low_rank_step)

    def queries_keys_values(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Operands of the last softmax, each (B, H, N, D): q and k are Z."""
        keys, values, mu, low_rank_step = self.operands(x, mask)
        point = self._last_point(keys, mu, low_rank_step)
        return point, point, values

    def pursuit(self, x: Tensor, mask: Tensor | None = None) -> PursuitTrace:
        """All iterations for tokens (B, N, C), without dropout; the last L is the layer's before `proj`."""
        keys, _, mu, low_rank_step = self.operands(x, mask)
        step, given = partial(plain_step, self.dual_sign), (keys, self._tau(mu, keys))
        states = list(pursue(step, given, low_rank_step, self.iterations))
        low_rank = tuple(low_rank_step(state.point, 0.0) for state in states)
        return PursuitTrace(keys, tuple(state.sparse for state in states), low_rank)

    def _last_point(self, keys: Tensor, mu: Tensor, low_rank_step: LowRankStep) -> Tensor:
        """Z of the last iteration, (B, H, N, D); arguments as in `Operands`."""
        given = keys, self._tau(mu, keys)
        step = fastest_step(self.dual_sign, *given)
        return deque(pursue(step, given, low_rank_step, self.iterations), maxlen=1)[0].point

    def _tau(self, mu: Tensor, keys: Tensor) -> Tensor:
        """The threshold, in the keys' type: (B, H, 1, 1), or (B, H, N, 1) as mu."""
        tau = self.regularization * mu if self.threshold == "code" else self.regularization / mu
        return tau.to(keys.dtype)
