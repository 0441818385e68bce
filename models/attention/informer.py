"""Informer: full attention for the queries that need it most, the mean of the values for all others.

Zhou et al., "Informer: Beyond Efficient Transformer for Long Sequence Time-Series Forecasting", AAAI 2021,
section 3.1, equations 3 and 4, algorithm 1 (ProbSparse self-attention). With U random keys for each query,

    M_i = max_s(q_i . k_s) - (1 / N) sum_s(q_i . k_s)       over the drawn keys s
    output_i = softmax(q_i k^T / sqrt(D)) v                  of the u queries with the largest M
    output_i = mean_j(v_j); in the causal form sum_j<=i(v_j) of the others (as released, not divided)
    u = U = c ceil(ln N), at most N

The paper has c = 5 and Skyformer's tables c = ceil(128 / ln N), the default here (factor = None), so that u
is at least 128 and up to about 150 tokens all have full attention.

`padding` = "respected": N counts the tokens that take part, and only they have queries, keys and values.
"released" ignores the mask, as Skyformer's code does: outputs then depend on the batch's padding.

In the causal form the released choice lets later tokens decide: keys are drawn from all, and u queries are
taken from all (choice = "sequence"). The default there, "past", draws the keys of query i from 1..i, and
takes query i if its M is among the u largest of all tokens before its block of u, about u (1 + ln(N / u))
queries; N in u is then the longest sequence of the model.

Draws are a hash of the layer's key, the query's place and the draw, shared by the heads, with replacement as
released; the released code draws again in each pass.

K = queries taken.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Unpack

import torch
from annotated_types import Interval
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from assay.models.layers.checks import one_of
from assay.models.layers.heads import (
    Causal,
    Grid,
    HeadParameters,
    HeadProjections,
    Tokens,
    attend,
    merge_heads,
    running_sum,
)
from assay.models.layers.keyed_draws import draw_key, keyed_uniform
from assay.models.layers.parameters import past_rule

__all__ = ["InformerAttention"]

FACTS = {"causal_form": True, "cost": "n log n"}
CAUSAL_WITH = ("choice", "past")
RULES = (past_rule(*CAUSAL_WITH),)
PAPER = (
    "Zhou et al., Informer: Beyond Efficient Transformer for Long Sequence Time-Series Forecasting, AAAI 2021"
)

Factor = Annotated[int, Interval(ge=1, le=1024)]

DRAWS = 8  # keys of a query that are looked at together


class InformerAttention(HeadProjections):
    """ProbSparse attention: softmax for the queries with the least uniform weights, else the mean of v.

    The weights are `qkv` (3C, C) with the row blocks q, k, v, and `proj`; the buffer `key` of the draws is
    stored. Padding changes nothing unless the mask is ignored.

    Args:
        factor: c; None is ceil(128 / ln N).
        padding: masks are "respected", or ignored as in the "released" code.
        choice: what decides about a query in the causal form: tokens up to it ("past") or all ("sequence"),
            which is not causal.
    """

    name: ClassVar[str] = "informer"
    causal_with: ClassVar[tuple[str, str]] = CAUSAL_WITH
    permutation_equivariant: ClassVar[bool] = False
    padding_invariant: ClassVar[bool] = True
    key: Tensor

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        factor: Factor | None = None,
        padding: Literal["respected", "released"] = "respected",
        choice: Literal["past", "sequence"] = "past",
        tokens: Tokens = 197,
        causal: Causal = False,
        **shared: Unpack[HeadParameters],
    ) -> None:
        super().__init__(dim, heads, **shared)
        if factor is not None and factor < 1:
            raise ValueError(f"factor must be at least 1, or absent: got {factor}")
        one_of("padding", padding, "respected", "released")
        one_of("choice", choice, "past", "sequence")
        self.factor = factor
        self.respects_padding = padding == "respected"
        self.past_only = causal and choice == "past"
        self.sees_later_tokens = causal and choice == "sequence"
        self.tokens = tokens
        self.causal = causal
        self.register_buffer("key", draw_key())

    def forward(self, x: Tensor, *, grid: Grid | None = None, mask: Tensor | None = None) -> Tensor:
        """As `AttentionFactory` says."""
        queries, keys, values = self.project(x)
        if mask is None or not self.respects_padding:
            present = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        else:
            present = mask
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            taken = self._taken(queries, keys, present)  # (B, H, N)
        shown = values.masked_fill(~present[:, None, :, None], 0.0)
        if self.causal:
            others = running_sum(shown)  # (B, H, N, D)
        else:
            counts = present.sum(dim=1)[:, None, None, None].clamp(min=1)
            others = (shown.sum(dim=2, keepdim=True) / counts).to(values.dtype).expand_as(values)
        attended = self._attend_taken(queries, keys, values, present, taken, others)
        output: Tensor = self.proj(merge_heads(attended))
        return output

    def _attend_taken(
        self, queries: Tensor, keys: Tensor, values: Tensor, present: Tensor, taken: Tensor, others: Tensor
    ) -> Tensor:
        """Attention for the queries taken, and `others` for the rest, (B, H, N, D)."""
        rate = self.training_rate()
        if bool(taken.all()):
            return attend(queries, keys, values, present, rate, causal=self.causal)
        first = (
            taken.to(torch.uint8).sort(dim=-1, descending=True, stable=True).indices
        )  # those taken come first
        places = torch.arange(queries.shape[2], device=taken.device)
        step = query_count(max(self.tokens, queries.shape[2]), self.factor)
        for begin in range(0, int(taken.sum(dim=-1).amax()), step):
            rows = first[..., begin : begin + step]  # (B, H, K)
            allowed = present[:, None, None, :]  # (B, 1, 1, N)
            if self.causal:
                allowed = allowed & (places <= rows[..., None])  # (B, H, K, N)
                allowed = allowed | (places == rows[..., None])  # padding sees itself
            index = rows[..., None].expand(-1, -1, -1, values.shape[-1])
            mixed = scaled_dot_product_attention(
                queries.gather(2, index), keys, values, attn_mask=allowed, dropout_p=rate
            )
            mixed = torch.where(taken.gather(2, rows)[..., None], mixed, others.gather(2, index))
            others = others.scatter(2, index, mixed.to(others.dtype))
        return others

    def _taken(self, queries: Tensor, keys: Tensor, present: Tensor) -> Tensor:
        """Which queries get attention of their own, boolean (B, H, N)."""
        lengths = present.sum(dim=1)  # (B,)
        order = (~present).to(torch.uint8).sort(dim=-1, stable=True).indices  # (B, N): tokens, then padding
        wide = torch.promote_types(queries.dtype, torch.float32)
        index = order[:, None, :, None].expand_as(queries)
        q, k = (one.to(wide).gather(2, index) for one in (queries, keys))
        if self.past_only:
            wanted = query_count(self.tokens, self.factor)
            ranks = torch.arange(q.shape[2], device=q.device)
            seen = (ranks + 1).expand(len(lengths), -1)  # (B, N): keys to draw from
            taken = self._largest_so_far(self._sparsity(q, k, seen, seen.clamp(max=wanted), lengths), wanted)
        else:
            counts = [query_count(length, self.factor) for length in lengths.tolist()]
            u = torch.tensor(counts, device=q.device)[:, None]  # (B, 1)
            seen = lengths[:, None].expand(-1, q.shape[2])
            measure = self._sparsity(q, k, seen, u.expand_as(seen), lengths)
            rank = measure.sort(dim=-1, descending=True, stable=True).indices.argsort(dim=-1)
            taken = (rank < u[:, None]) & measure.isfinite()
        return torch.zeros_like(taken).scatter(2, order[:, None].expand_as(taken), taken)

    def _sparsity(self, q: Tensor, k: Tensor, seen: Tensor, draws: Tensor, lengths: Tensor) -> Tensor:
        """M of each query, (B, H, N), -inf for padding."""
        ranks = torch.arange(q.shape[2], device=q.device)
        largest, total = torch.full_like(q[..., 0], -torch.inf), torch.zeros_like(q[..., 0])
        for begin in range(0, int(draws.max()), DRAWS):
            draw = torch.arange(begin, begin + DRAWS, device=q.device)
            uniform = keyed_uniform(self.key, ranks[:, None], draw)  # (N, DRAWS)
            drawn = (uniform * seen[..., None]).long()  # (B, N, DRAWS)
            index = drawn.flatten(1)[:, None, :, None].expand(-1, q.shape[1], -1, q.shape[-1])
            picked = k.gather(2, index).unflatten(2, (-1, DRAWS))  # (B, H, N, DRAWS, D)
            products = (picked @ q[..., None]).squeeze(-1)
            counted = (draw < draws[..., None])[:, None]  # (B, 1, N, DRAWS)
            largest = torch.maximum(largest, products.masked_fill(~counted, -torch.inf).amax(dim=-1))
            total = total + products.masked_fill(~counted, 0.0).sum(dim=-1)
        measure = largest - total / seen[:, None]
        return measure.masked_fill(~(ranks < lengths[:, None])[:, None], -torch.inf)

    def _largest_so_far(self, measure: Tensor, wanted: int) -> Tensor:
        """Whether each M is among the largest of all before its block of `wanted` tokens, (B, H, N)."""
        top = torch.full_like(measure[..., :1], -torch.inf).expand(-1, -1, wanted)
        taken = []
        for block in measure.split(wanted, dim=-1):
            taken.append(block > top.amin(dim=-1, keepdim=True))
            top = torch.cat([top, block], dim=-1).topk(wanted, dim=-1).values
        return torch.cat(taken, dim=-1)


def query_count(tokens: int, factor: int | None) -> int:
    """u: queries that get attention of their own, of so many tokens; 1 at least."""
    if tokens <= 2:
        return max(tokens, 1)
    factor = math.ceil(128 / math.log(tokens)) if factor is None else factor
    return min(factor * math.ceil(math.log(tokens)), tokens)
