"""Skyformer: kernelized attention by the Nystrom method on queries and keys together.

Chen et al., "Skyformer: Remodel self-attention with Gaussian kernel and Nystrom method", NeurIPS 2021,
equations 4 to 6 and section 4.4; and their released code. X_S has L rows, the landmarks, of [q; k] D^-1/4:

    M = G(X_S, X_S) + gamma I,    d_i = sum_j M_ij,    W ~ (d^-1/2 M d^-1/2)^-1 by 6 steps of products
    output = proj(G(q, X_S) d^-1/2 W d^-1/2 G(X_S, k) v),    G(x, y) = exp(-|x - y|^2 / 2)

Deviations from the released code; the parameters in parentheses restore its form:

- It draws landmarks in every pass, evaluation included, half of them from the queries and half from the keys,
  with replacement (`draw` = "released"; the paper: uniformly from the 2N rows). Here their places are fixed
  by `seed` and the number of tokens, without replacement.
- Its inverse starts from a number of the whole batch (`normaliser` = "tensor"). Here from each matrix's own.
- It scales by 32^-1/4 at any D (`scale` = "released").
- It has no dropout; here it acts on the output before its projection.

There is no causal form: landmarks are later tokens, too.

L = landmarks.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Unpack

import torch
from torch import Tensor

from assay.models.attention import kernelized
from assay.models.layers.attention.nystrom import (
    Halves,
    Inverse,
    LandmarkAttention,
    LandmarkParameters,
    gaussian,
    iterative_inverse,
)
from assay.models.layers.attention.projected_attention import without_padding
from assay.models.layers.checks import one_of

__all__ = ["SkyformerAttention"]

FACTS = {"layout": "qkv", "cost": "linear"}
PAPER = kernelized.PAPER

RELEASED_WIDTH = 32  # of a head, in the released scale


class SkyformerAttention(LandmarkAttention):
    """Kernelized attention in time and memory linear in the number of tokens.

    Args:
        gamma: what is added to the diagonal of the landmarks' kernel matrix.
        scale: of q and k: D^-1/4 ("head"), or 32^-1/4 ("released").
        dropout: rate of dropout of the output before its projection, in [0, 1).
    """

    name: ClassVar[str] = "skyformer"
    permutation_equivariant: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        scale: Literal["head", "released"] = "head",
        **shared: Unpack[LandmarkParameters],
    ) -> None:
        super().__init__(dim, heads, **shared)
        one_of("scale", scale, "head", "released")
        self.scale = (RELEASED_WIDTH if scale == "released" else dim // heads) ** -0.25

    def approximate(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, halves: Halves
    ) -> Tensor:
        """The approximation of G v, (B, H, N, D); see `LandmarkAttention.approximate`."""
        return sketched(
            without_padding(queries, mask) * self.scale,
            without_padding(keys, mask) * self.scale,
            without_padding(values, mask),
            halves,
            self.inverse,
        )


def sketched(queries: Tensor, keys: Tensor, values: Tensor, halves: Halves, inverse: Inverse) -> Tensor:
    """Nystrom approximation of G(q, k) v with given landmarks, (B, H, N, D) as q, k and v.

    Queries and keys are scaled already; values are zero where a token takes no part.
    """
    landmarks, used = halves.of(queries, keys)
    pairs = used[..., None] & used[..., None, :]  # (B, 1, L, L)
    identity = torch.eye(landmarks.shape[2], dtype=landmarks.dtype, device=landmarks.device)
    matrix = (gaussian(landmarks, landmarks) + inverse.gamma * identity).where(pairs, 0.0)
    root = matrix.sum(dim=-1).masked_fill(~used, 1.0).rsqrt().where(used, 0.0)  # (B, H, L), d^-1/2
    balanced = root[..., None] * matrix * root[..., None, :]
    inverted = iterative_inverse(balanced, inverse.iterations, inverse.normaliser)
    summary = root[..., None] * (gaussian(landmarks, keys) @ values)  # (B, H, L, D)
    return gaussian(queries, landmarks) @ (root[..., None] * (inverted @ summary))
