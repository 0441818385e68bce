"""Performer: the softmax kernel by positive orthogonal random features (FAVOR+), in linear time.

Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, lemma 1 and section 2.3: with M random
vectors w_f with orthogonal directions (in blocks of D) and the lengths of normal vectors,

    exp(q . k / sqrt(D)) = E[phi(q) . phi(k)],   phi_f(x) = exp(w_f . x' - |x'|^2 / 2) / sqrt(M)
    x' = x / D^1/4
    output_i = proj(sum_j (phi(q_i) . phi(k_j)) v_j / sum_j phi(q_i) . phi(k_j))

As released, phi is stabilised: the largest w_f . x' is subtracted, of each query for itself and of the keys
together, then EPSILON is added to each feature. EPSILON does not cancel in the quotient, so the result
depends on what "the keys together" means:

    stabilizer = "example"   the keys of an example and head that take part; causal: the keys up to token i
    stabilizer = "batch"     all heads of all examples and padding too, as in the code of Skyformer's authors
    scaling = "once"         x' = x / D^1/4
    scaling = "twice"        x' = x / D^1/2, as there: queries and keys reach a kernel that scales them again

"batch" lets an output depend on its batch, and the causal form on later tokens. Deviation: LAPACK's QR fixes
a sign of each direction, so that the first is never uniform on the sphere and the estimate is biased; here
R's diagonal is positive. Features are drawn at construction by torch's generator and stored; the released
code may draw again in training. Gradients go through the largest exponents, too.

M = features, L = tokens of a chunk.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Unpack

import torch
from annotated_types import Interval
from torch import Tensor
from torch.nn.functional import dropout, pad

from assay.models.layers.checks import one_of
from assay.models.layers.heads import Causal, Grid, HeadParameters, HeadProjections, merge_heads
from assay.models.layers.parameters import past_rule

__all__ = ["PerformerAttention"]

FACTS = {"causal_form": True, "cost": "linear"}
CAUSAL_WITH = ("stabilizer", "example")
RULES = (past_rule(*CAUSAL_WITH),)
PAPER = "Choromanski et al., Rethinking Attention with Performers, ICLR 2021"

Features = Annotated[int, Interval(ge=1, le=8192)]
Scaling = Literal["once", "twice"]
Stabilizer = Literal["example", "batch"]

EPSILON = 1e-4  # added to every feature, as released
CHUNK = 64  # tokens with products that are written out in the causal form


def orthogonal_features(count: int, size: int, generator: torch.Generator | None = None) -> Tensor:
    """Random vectors of features: (count, size), float32, on the CPU.

    Each is distributed as a standard normal vector; within blocks of `size` they are orthogonal. The
    generator is of the CPU; None is torch's.
    """
    blocks = []
    for first in range(0, count, size):
        normal = torch.randn(size, size, generator=generator, dtype=torch.float64, device="cpu")
        directions, triangle = torch.linalg.qr(normal)
        uniform = directions * triangle.diagonal().sign()  # columns, of Haar's distribution
        blocks.append(uniform.T[: count - first])
    lengths = torch.randn(count, size, generator=generator, dtype=torch.float64, device="cpu").norm(dim=1)
    vectors: Tensor = torch.cat(blocks) * lengths[:, None]
    return vectors.float()


class PerformerAttention(HeadProjections):
    """Softmax attention estimated with random features, at a cost that grows linearly with the tokens.

    The weights are `qkv` (3C, C) with the row blocks q, k, v, and `proj`; the buffer `features` (M, D),
    shared by the heads, is stored. Padding changes nothing.

    Args:
        features: number M of random features; 128 in Skyformer's tables, 256 in Primal-Attention's tables.
        scaling: how often queries and keys are divided by D^1/4; "twice" is a slip of Skyformer's code.
        stabilizer: which keys share the largest exponent: the keys of an "example" and head, or all keys of a
            "batch", which makes outputs depend on the batch.
        dropout: share of the values that is dropped in training, in [0, 1): no matrix of weights exists.
    """

    name: ClassVar[str] = "performer"
    causal_with: ClassVar[tuple[str, str]] = CAUSAL_WITH
    permutation_equivariant: ClassVar[bool] = True
    padding_invariant: ClassVar[bool] = True
    features: Tensor

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        features: Features = 128,
        scaling: Scaling = "once",
        stabilizer: Stabilizer = "example",
        causal: Causal = False,
        **shared: Unpack[HeadParameters],
    ) -> None:
        super().__init__(dim, heads, **shared)
        if not 1 <= features <= 8192:
            raise ValueError(f"features must be from 1 to 8192: got {features}")
        one_of("scaling", scaling, "once", "twice")
        one_of("stabilizer", stabilizer, "example", "batch")
        self.scale = (dim // heads) ** (-0.25 if scaling == "once" else -0.5)
        self.by_example = stabilizer == "example"
        self.causal = causal
        self.sees_later_tokens = causal and not self.by_example
        seed = int(torch.randint(2**31 - 1, (), device="cpu"))  # one number of torch, independent of M and D
        drawn = orthogonal_features(features, dim // heads, torch.Generator().manual_seed(seed))
        self.register_buffer("features", drawn)

    def forward(self, x: Tensor, *, grid: Grid | None = None, mask: Tensor | None = None) -> Tensor:
        """As `AttentionFactory` says."""
        queries, keys, values = self.project(x)
        wide = torch.promote_types(values.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            values = dropout(values.to(wide), self.dropout, self.training)
            q, k = self._exponents(queries.to(wide)), self._exponents(keys.to(wide))
            attended = (self._attend_causal if self.causal else self._attend)(q, k, values, mask)
        output: Tensor = self.proj(merge_heads(attended).to(queries.dtype))
        return output

    def _exponents(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """w_f . x' (B, H, N, M) and |x'|^2 / 2 (B, H, N, 1)."""
        scaled = points * self.scale
        return scaled @ self.features.to(points.dtype).T, scaled.square().sum(dim=-1, keepdim=True) / 2

    def _attend(
        self, query: tuple[Tensor, Tensor], key: tuple[Tensor, Tensor], values: Tensor, mask: Tensor | None
    ) -> Tensor:
        products, halves = key
        largest = _largest(products, mask, over=(-2, -1)) if self.by_example else products.amax()
        phi = (products - halves - largest).exp() + EPSILON  # (B, H, N, M)
        if mask is not None:
            phi = phi.masked_fill(~mask[:, None, :, None], 0.0)
        mixed = phi.transpose(-2, -1) @ values  # (B, H, M, D)
        weights = phi.sum(dim=-2).unsqueeze(-1)  # (B, H, M, 1)
        phi_q = _query_features(*query)
        return (phi_q @ mixed) / (phi_q @ weights)

    def _attend_causal(
        self, query: tuple[Tensor, Tensor], key: tuple[Tensor, Tensor], values: Tensor, mask: Tensor | None
    ) -> Tensor:
        """The same over the tokens up to each one, by running sums over chunks, (B, H, N, D).

        Each key is stabilised by its own largest exponent; r_i, the largest up to token i, enters as the
        factor exp(own - r_i) <= 1, and epsilon by running sums: row i is `_attend` of tokens 1..i.
        """
        products, halves = key
        own = products.amax(dim=-1, keepdim=True)  # (B, H, N, 1)
        present = torch.ones_like(own) if mask is None else mask[:, None, :, None].to(own).expand_as(own)
        running = _running_largest(own.masked_fill(present == 0, -torch.inf))
        if not self.by_example:
            running = torch.ones_like(own) * products.amax()
        phi = (products - own - halves).exp() * present  # (B, H, N, M)
        phi_q = _query_features(*query)
        values = torch.cat([values, torch.ones_like(own)], dim=-1) * present  # (B, H, N, D + 1)
        state = values.new_zeros(*values.shape[:2], phi.shape[-1], values.shape[-1])  # (B, H, M, D + 1)
        total = values.new_zeros(*values.shape[:2], 1, values.shape[-1])
        before = torch.full_like(own[:, :, :1], -torch.inf)  # r at the end of the last chunk
        mixes = []
        for place in range(0, values.shape[-2], CHUNK):
            part = slice(place, place + CHUNK)
            q, k, v, m, r = (one[:, :, part] for one in (phi_q, phi, values, own, running))
            gaps = (m.transpose(-2, -1) - r).tril()  # (B, H, L, L); later tokens may be larger
            inside = ((q @ k.transpose(-2, -1)) * gaps.clamp(max=0.0).exp()).tril() @ v
            sums = (
                total + torch.ones_like(gaps[0, 0]).tril() @ v
            )  # (B, H, L, D + 1); cumsum is not deterministic
            mixes.append(inside + (before - r).exp() * (q @ state) + EPSILON * q.sum(-1, keepdim=True) * sums)
            last = r[:, :, -1:]
            state = (before - last).exp() * state + ((m - last).clamp(max=0.0).exp() * k).transpose(
                -2, -1
            ) @ v
            total, before = sums[:, :, -1:], last
        mixed = torch.cat(mixes, dim=-2)  # (B, H, N, D + 1)
        weights = mixed[..., -1:]
        # Padding before the first token has no key.
        return mixed[..., :-1] / torch.where(weights > 0, weights, 1.0)


def _query_features(products: Tensor, halves: Tensor) -> Tensor:
    """phi of queries, each stabilised by its own largest exponent, (B, H, N, M)."""
    return (products - halves - products.amax(dim=-1, keepdim=True)).exp() + EPSILON


def _largest(products: Tensor, mask: Tensor | None, *, over: tuple[int, ...]) -> Tensor:
    if mask is not None:
        products = products.masked_fill(~mask[:, None, :, None], -torch.inf)
    return products.amax(dim=over, keepdim=True)


def _running_largest(values: Tensor) -> Tensor:
    """The largest value up to each token, (B, H, N, 1), finite: by doubling strides, as `running_sum`."""
    stride = 1
    while stride < values.shape[-2]:
        shifted = pad(values[..., :-stride, :], (0, 0, stride, 0), value=-torch.inf)
        values, stride = torch.maximum(values, shifted), 2 * stride
    return values.clamp(min=torch.finfo(values.dtype).min)
