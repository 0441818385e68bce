"""Asymmetric RPC-Attention: Principal Attention Pursuit with separate queries.

Teo and Nguyen, NeurIPS 2024 (`rpc.py`), appendix E.10, version "4iter/layer1". The iteration of rpc.py with
another L step:

    L <- softmax(Q Z^T / sqrt(D)) V

where Q is the unchanged query projection. No code was released: mu, tau and the signs are from the symmetric
code, with the same switches. The causal form has a causal mask in the softmax of every iteration and one mu
for each token, over its past, as in rpc_causal.py. The paper's "Sym/Asym" is symmetric RPC in the first layer
and softmax attention in the others.
"""

from __future__ import annotations

from typing import ClassVar, Unpack

from torch import Tensor

from assay.models.attention import rpc
from assay.models.attention.rpc import Operands, PursuitParameters, RPCAttention, penalty
from assay.models.attention.rpc_causal import prefix_penalty
from assay.models.layers.heads import Causal, attend

__all__ = ["AsymmetricRPCAttention"]

OFFERS = ("softmax", "pursuit")
FACTS = {"causal_form": True, "layout": "qkv", "cost": "quadratic"}
PAPER = rpc.PAPER


class AsymmetricRPCAttention(RPCAttention):
    """Attention with robust principal components of the keys, and queries that take no part in the pursuit.

    With one iteration and a large `regularization` this is softmax attention.

    Args:
        iterations: number n of PAP iterations.
        causal: each token attends to itself and to those before it, and mu is taken over these.
    """

    name: ClassVar[str] = "rpc_asymmetric"
    projections: ClassVar[int] = 3

    def __init__(
        self, dim: int, heads: int, *, causal: Causal = False, **shared: Unpack[PursuitParameters]
    ) -> None:
        super().__init__(dim, heads, **shared)
        self.causal = causal
        self.penalty = prefix_penalty if causal else penalty

    def operands(self, x: Tensor, mask: Tensor | None = None) -> Operands:
        """What the pursuit starts from for tokens (B, N, C)."""
        queries, keys, values = self.project(x)

        def low_rank_step(point: Tensor, dropout: float) -> Tensor:
            return attend(queries, point, values, mask, dropout, causal=self.causal)

        return Operands(keys, values, self.penalty(keys, self.width, mask), low_rank_step)

    def queries_keys_values(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Operands of the last softmax, each (B, H, N, D): k is Z."""
        queries = self.project(x)[0]
        _, point, values = super().queries_keys_values(x, mask)
        return queries, point, values
