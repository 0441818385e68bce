"""Linear attention: a product of features in place of the exponential, and no N x N matrix.

Katharopoulos et al., "Transformers are RNNs", ICML 2020, equations 5 and 7, the baseline of Nguyen et al.,
ICLR 2023 (`layers/key_normalization.py`), section 2.2.1:

    h_i = phi(q_i)^T S / phi(q_i)^T z,  S = sum_j phi(k_j) v_j^T,  z = sum_j phi(k_j),  phi(x) = elu(x) + 1

without 1 / sqrt(D), as in both papers. Causal: sums over j <= i (equations 9 to 12), in chunks of 64 tokens,
so that memory grows linearly.

phi is computed as exp(min(x, 0)) + max(x, 0), without the cancellation below -16 in float32; a factor of
phi(q_i), which cancels, keeps it from vanishing. There is no dropout of weights.

B = batch, N = queries, M = keys, H = heads, D = width of a head.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from assay.models.layers.attention.scaled_heads import ScaledHeads
from assay.models.layers.heads import Causal, PrefixTokens, running_sum

__all__ = ["LinearAttention"]

OFFERS = ("attention_matrix",)
FACTS = {"causal_form": True, "layout": "qkv", "cost": "linear"}
PAPER = "Katharopoulos et al., Transformers are RNNs, ICML 2020"

CHUNK = 64
# Of the denominator: outputs and gradients stay finite where all features of all keys are below exp(-41).
MIN_SUM = 1e-18


class LinearHeads(ScaledHeads):
    """Linear attention at each head's resolution."""

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, factor: int) -> Tensor:
        """Linear attention of the heads with the same factor, (B, h, N, D)."""
        del factor
        return linear_attend(queries, keys, values, mask, causal=self.causal)


class LinearAttention(LinearHeads):
    """Attention with the features elu + 1, in time and memory that grow linearly with the tokens."""

    name: ClassVar[str] = "linear"
    permutation_equivariant: ClassVar[bool] = True

    def __init__(
        self, dim: int, heads: int, *, prefix_tokens: PrefixTokens = 1, causal: Causal = False
    ) -> None:
        super().__init__(dim, heads, factors=[1], prefix_tokens=prefix_tokens, causal=causal)


def linear_attend(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, causal: bool = False
) -> Tensor:
    """sum_j phi(q_i).phi(k_j) v_j / sum_j phi(q_i).phi(k_j), (B, H, N, D), in float32 at least.

    Keys and values are (B, H, M, D), `mask` boolean (B, M), true for keys that may be attended to. If causal,
    each query attends to the keys up to its own, N = M; where it has no key the result is 0.
    """
    wide = torch.promote_types(values.dtype, torch.float32)
    queries, keys = queries.to(wide), _features(keys.to(wide))
    queries = _features(queries, queries.detach().amax(dim=-1, keepdim=True).clamp(max=0.0))
    if mask is not None:
        keys = keys * mask[:, None, :, None]
    extended = torch.cat([values.to(wide), torch.ones_like(values[..., :1], dtype=wide)], dim=-1)
    sums = _causal_sums(queries, keys, extended) if causal else queries @ (keys.mT @ extended)
    weighted = sums[..., :-1] / sums[..., -1:].clamp(min=MIN_SUM)  # (B, H, N, D)
    return weighted.to(values.dtype)


def _features(x: Tensor, scale: Tensor | float = 0.0) -> Tensor:
    """(elu(x) + 1) / exp(scale), for a scale of at most 0 that is below 0 only where no x is above 0."""
    return (x.clamp(max=0.0) - scale).exp() + x.relu()


def _causal_sums(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """sum_{j <= i} (q_i . k_j) v_j for each i: (B, H, N, D) twice and (B, H, N, F) to (B, H, N, F)."""
    tokens = queries.shape[-2]
    chunk = min(CHUNK, tokens)
    missing = -tokens % chunk
    q, k, v = (
        pad(part, (0, 0, 0, missing)).unflatten(-2, (-1, chunk)) for part in (queries, keys, values)
    )  # (B, H, chunks, chunk, D or F)
    inside = (q @ k.mT).tril() @ v
    own = k.mT @ v  # (B, H, chunks, D, F)
    earlier = pad(running_sum(own.flatten(-2))[..., :-1, :], (0, 0, 1, 0)).view_as(own)
    sums: Tensor = (inside + q @ earlier).flatten(-3, -2)[..., :tokens, :]
    return sums
