"""Normalisation of queries and keys by the statistics of the keys (Attention-BN).

Nguyen et al., "A primal-dual framework for transformers and neural networks", ICLR 2023: equations 22 and 23
(form "full") and equation 26 of the appendix (form "beta", used in all of its experiments):

    full    q' = (q - beta mu) / s,  k' = (k - beta mu) / s,  s = sqrt(var + eps)     (printed with beta = 1)
    beta    q' = q - beta mu,        k' = k - beta mu

mu and var are the mean and the biased variance of the keys of a sequence and head, feature by feature,
without running statistics. eps is not stated in the paper; 1e-5 here. No code was released.

Causal forms (not in the paper): the statistics of token i are of the keys up to i.

B = batch, H = heads, N = queries, M = keys, D = width of a head.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from annotated_types import Interval, doc
from torch import Tensor, nn

from assay.models.layers.checks import one_of
from assay.models.layers.heads import running_sum

Form = Annotated[
    Literal["beta", "full"],
    doc('"beta" subtracts beta times the mean of the keys; "full" also divides by their deviation.'),
]
Beta = Annotated[float, Interval(ge=0, le=10)]

EPSILON = 1e-5


class KeyNormalization(nn.Module):
    """Shift, and in the form "full" scale, of queries and keys by the statistics of the keys.

    A learned beta is the weight `beta`.
    """

    def __init__(self, form: Form, beta: float, *, learn_beta: bool) -> None:
        super().__init__()
        one_of("form", form, "beta", "full")
        if not 0 <= beta <= 10:
            raise ValueError(f"beta must be from 0 to 10: got {beta}")
        self.form = form
        self.beta = nn.Parameter(torch.tensor(float(beta))) if learn_beta else beta

    def forward(
        self, queries: Tensor, keys: Tensor, mask: Tensor | None, *, causal: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Normalised queries (B, H, N, D) and keys (B, H, M, D); if causal, each with the keys up to itself.

        `mask` is boolean (B, M), true for the keys that count.
        """
        mean, scale = self._statistics(keys, mask, causal)
        return ((queries - mean) * scale).to(queries.dtype), ((keys - mean) * scale).to(keys.dtype)

    def folded(self, queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        """Queries (B, H, N, D) that give, with the keys as they are, the softmax of the causal form.

        In q'_i . k'_j = ((q_i - beta mu_i) / s_i^2) . k_j + c_i a softmax over j cancels c_i, so every query
        can have the statistics of its own past.
        """
        mean, scale = self._statistics(keys, mask, causal=True)
        return ((queries - mean) * scale * scale).to(queries.dtype)

    def _statistics(self, keys: Tensor, mask: Tensor | None, causal: bool) -> tuple[Tensor, Tensor | float]:
        """beta mu and 1 / s, each (B, H, 1, D), or (B, H, M, D) if causal, in float32 at least."""
        wide = keys.to(torch.promote_types(keys.dtype, torch.float32))
        present = torch.ones_like(wide[:1, :1, :, :1]) if mask is None else mask[:, None, :, None].to(wide)
        count = _total(present, causal).clamp(min=1.0)
        # Subtracted before the sums: the variance is a difference of large numbers otherwise.
        origin = _origin(wide, present, count, causal)
        apart = (wide - origin) * present
        mean = _total(apart, causal) / count
        if self.form == "beta":
            return self.beta * (mean + origin), 1.0
        variance = (_total(apart.square(), causal) / count - mean.square()).clamp(min=0.0)
        return self.beta * (mean + origin), (variance + EPSILON).rsqrt()


def _total(values: Tensor, causal: bool) -> Tensor:
    return running_sum(values) if causal else values.sum(dim=-2, keepdim=True)


def _origin(keys: Tensor, present: Tensor, count: Tensor, causal: bool) -> Tensor:
    """A point (B, H, 1, D) near the keys: their mean, or if causal the first key, which all tokens see."""
    if causal:
        keep = present * (running_sum(present) == 1)
        return (keys * keep).sum(dim=-2, keepdim=True)
    return (keys * present).sum(dim=-2, keepdim=True) / count
