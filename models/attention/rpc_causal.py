"""Causal RPC-Attention, for language models.

Teo and Nguyen, NeurIPS 2024 (`rpc.py`), use RPC in language models (section 4) without a formula or code.
Here every softmax of rpc.py's iteration has a causal mask. There are two readings of mu:

    mu   = N C / (4 ||K_h||_1)              mu_tokens = "sequence": as printed, over the whole sequence
    mu_i = i C / (4 sum_{j<=i} ||k_j||_1)   mu_tokens = "prefix": one for each token i = 1..N, over its past

The first leaks the norm of future keys into every token: outputs are not causal, and the perplexity is not a
predictor's. The second is therefore the default. They agree at the last token.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Unpack

import torch
from torch import Tensor

from assay.models.attention import rpc
from assay.models.attention.rpc import (
    MIN_NORM,
    Operands,
    PursuitParameters,
    RPCAttention,
    magnitudes,
    penalty,
)
from assay.models.layers.checks import one_of
from assay.models.layers.heads import Causal, attend, running_sum
from assay.models.layers.parameters import past_rule

__all__ = ["CausalRPCAttention"]

OFFERS = ("pursuit",)
PAPER = rpc.PAPER
FACTS = {"causal_form": True, "layout": "kv", "cost": "quadratic"}
CAUSAL_WITH = ("mu_tokens", "prefix")
RULES = (
    past_rule(*CAUSAL_WITH),
    (
        "model.prefix_tokens == 0 or model.layers != 'all' and "
        "(len(model.layers) < model.depth or model.layers in ('first', 'last') and model.depth > 1)",
        "causal attention must not be in every layer: the class token comes first and would see no patch",
    ),
)

MuTokens = Literal["prefix", "sequence"]


def prefix_penalty(keys: Tensor, width: int, mask: Tensor | None = None) -> Tensor:
    """Penalty mu_i of each token i, (B, H, N, 1): `rpc.penalty` of the sequence that ends with it."""
    norm = running_sum(magnitudes(keys, mask).sum(dim=-1, keepdim=True))  # (B, H, N, 1)
    present = torch.ones_like(norm[:, :1]) if mask is None else mask[:, None, :, None].to(norm.dtype)
    tokens = running_sum(present).clamp(min=1.0)  # (B, 1, N, 1); padding before the first token has none
    return tokens * width / (4.0 * norm.clamp(min=MIN_NORM))


class CausalRPCAttention(RPCAttention):
    """Symmetric RPC-Attention in which a token attends to itself and to the tokens before it.

    Weights as of `rpc`.

    Args:
        iterations: number n of PAP iterations; the authors' language model has 4, in its first four layers.
        regularization: lambda, the weight of the sparse part; the authors use 4.
        mu_tokens: what mu is taken over: the tokens up to each one ("prefix"), or all, which is not causal
            ("sequence").
        causal: always true here; `rpc` is the form without the mask.
    """

    name: ClassVar[str] = "rpc_causal"
    causal_with: ClassVar[tuple[str, str]] = CAUSAL_WITH
    permutation_equivariant: ClassVar[bool] = False
    causal: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        mu_tokens: MuTokens = "prefix",
        causal: Causal = True,
        **shared: Unpack[PursuitParameters],
    ) -> None:
        super().__init__(dim, heads, **shared)
        one_of("mu_tokens", mu_tokens, "prefix", "sequence")
        if not causal:
            raise ValueError("rpc_causal is always causal: rpc is the form without the mask")
        self.sees_later_tokens = mu_tokens == "sequence"
        self.penalty = prefix_penalty if mu_tokens == "prefix" else penalty

    def operands(self, x: Tensor, mask: Tensor | None = None) -> Operands:
        """What the pursuit starts from for tokens (B, N, C)."""
        keys, values = self.project(x)

        def low_rank_step(point: Tensor, dropout: float) -> Tensor:
            return attend(point, point, values, mask, dropout, causal=True)

        return Operands(keys, values, self.penalty(keys, self.width, mask), low_rank_step)
