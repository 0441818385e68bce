"""Primal-Attention: attention in the primal form of a kernel singular value decomposition (KSVD).

Chen, Tao, Tonin and Suykens, "Primal-Attention: Self-attention through Asymmetric Kernel SVD in Primal
Representation", NeurIPS 2023, equations 6, 8, 10 and 11, supplement B. Of one head:

    phi(z) = z / max(||z||, 1e-12)
    e_i = W_e|X^T phi(q_i),   r_i = W_r|X^T phi(k_i),   o_i = W_o [e_i; r_i] + b    W_o shared by the heads
    W_e|X = X'^T W_e,   W_r|X = X'^T W_r           data-dependent: X' has n rows of the layer's input
    W_e|X = W_e,   W_r|X = W_r                     data-independent
    q_i <- mean_{j<=i} q_j,   k_i likewise         causal form, before phi; data-independent only

There are no values. Row m of X' is token m (N - 1) // (n - 1), from 0; the released code rounds linspace
down, which depends on the type of floats. n = min(s rank_multi, tokens of the longest sequence); released for
Long Range Arena: s rank_multi. Shorter sequences repeat rows, as there.

The KSVD loss of a layer is eta J^2:

    paper   J = mean_h (1/2 sum_i e_i^T Lambda e_i + 1/2 sum_j r_j^T Lambda r_j - Tr(W_e^T W_r)); layers are
            summed
    code    J = 1/2 mean_hi ||Lambda e_i||^2 + 1/2 mean_hj ||Lambda r_j||^2 - mean_h Tr(W_e^T W_r); layers
            are averaged

The code for images and Long Range Arena squares the mean of J over the batch, the code for time series,
control and language takes the mean of each example's J^2. The supplement gives the language model
data-dependent weights; its code has independent ones, as rows of later tokens would not be causal.

Deviation: padding takes no part in rows, means and losses; padding = "included" is the released behaviour.

s = rank, n = sampled rows.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

import torch
from annotated_types import Ge, Interval, doc
from torch import Tensor, nn
from torch.nn import functional

from assay.models.layers.auxiliary import add_loss, wanted
from assay.models.layers.checks import at_least, one_of
from assay.models.layers.heads import (
    Causal,
    Dropout,
    Grid,
    PrefixTokens,
    Tokens,
    check_heads,
    merge_heads,
    running_sum,
    split_heads,
)

__all__ = ["PrimalAttention"]

OFFERS = ("kernel_matrix",)
FACTS = {"causal_form": True, "cost": "linear"}
PAPER = (
    "Chen et al., Primal-Attention: Self-attention through Asymmetric Kernel SVD in Primal Representation, "
    "NeurIPS 2023"
)
RULES = (
    (
        "params.projection != 'data_dependent' or not model.predicts_next",
        "projection must be data_independent in a causal model: sampled rows of later tokens would leak",
    ),
    (
        "params.projection != 'data_independent' or model.prefix_tokens == 0 or model.layers != 'all' and "
        "(len(model.layers) < model.depth or model.layers in ('first', 'last') and model.depth > 1)",
        "projection must not be data_independent in every layer: tokens would not see each other, and the "
        "class token no patch",
    ),
)

Rank = Annotated[int, Interval(ge=1, le=1024)]
RankMulti = Annotated[int, Interval(ge=1, le=1024)]
Projection = Literal["data_dependent", "data_independent"]
SampledRows = Literal["capped", "uncapped"]
Eta = Annotated[float, Ge(0), doc("weight of the KSVD loss in training.")]
KsvdForm = Annotated[Literal["code", "paper"], doc('the loss as released ("code") or as printed ("paper").')]
KsvdReduction = Literal["example", "batch"]
KsvdTrace = Annotated[
    Literal["parameters", "projected"],
    doc('whether its trace has W_e and W_r ("parameters") or W_e|X and W_r|X ("projected").'),
]
KeyScores = Annotated[
    bool, doc("whether the output has the scores of the keys; without is the paper's ablation.")
]
Padding = Literal["excluded", "included"]

MIN_NORM = 1e-12
OPTIONS = {
    "projection": Projection,
    "sampled_rows": SampledRows,
    "ksvd_form": get_args(KsvdForm)[0],
    "ksvd_reduction": KsvdReduction,
    "ksvd_trace": get_args(KsvdTrace)[0],
    "padding": Padding,
}


class PrimalAttention(nn.Module):
    """Primal-Attention: projection scores of queries and keys, at a cost linear in the number of tokens.

    The weights have the authors' names and layout: `qk` (2C, C) with the row blocks q, k, `we` and `wr` (H, n
    or D, s), `Lambda` (H, s), `concate_weight` (D, 2s), and `proj`. Data-independent weights without the
    causal form mix no tokens.

    Args:
        rank: projection directions s of each head; the authors use 20 to 40, and 32 to 96 for images.
        rank_multi: s rank_multi rows are sampled; 10, and 5 for short time series.
        projection: W_e|X of sampled rows of the input ("data_dependent"), or W_e alone ("data_independent").
            If absent, data_dependent, and data_independent in the causal form, which has no other.
        sampled_rows: at most as many as the longest sequence has ("capped"), or s rank_multi always
            ("uncapped"), as released for Long Range Arena.
        ksvd_reduction: the mean of each example's J^2 ("example"), or the square of the mean of J ("batch").
        padding: whether padding is left out of rows, means and losses ("excluded") or not ("included").
        tokens: N of the longest sequence; bounds n.
        causal: the causal form: q and k are means over the tokens up to each one.
        dropout: share of the output that is dropped in training, in [0, 1).
    """

    name: ClassVar[str] = "primal"

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        rank: Rank = 32,
        rank_multi: RankMulti = 10,
        projection: Projection | None = None,
        sampled_rows: SampledRows = "capped",
        r_scores: KeyScores = True,
        eta: Eta = 0.05,
        ksvd_form: KsvdForm = "code",
        ksvd_reduction: KsvdReduction = "example",
        ksvd_trace: KsvdTrace = "parameters",
        padding: Padding = "excluded",
        prefix_tokens: PrefixTokens = 1,
        tokens: Tokens = 197,
        causal: Causal = False,
        dropout: Dropout = 0.0,
    ) -> None:
        super().__init__()
        check_heads(dim, heads)
        projection = _projection_of(projection, causal)
        _check(
            {"rank": rank, "rank_multi": rank_multi, "tokens": tokens},
            eta,
            projection=projection,
            sampled_rows=sampled_rows,
            ksvd_form=ksvd_form,
            ksvd_reduction=ksvd_reduction,
            ksvd_trace=ksvd_trace,
            padding=padding,
        )
        self.heads = heads
        self.data_dependent = projection == "data_dependent"
        self.r_scores = r_scores
        self.eta = eta
        self.ksvd_form = ksvd_form
        self.ksvd_reduction = ksvd_reduction
        self.ksvd_trace = ksvd_trace
        self.excludes_padding = padding == "excluded"
        self.prefix_tokens = prefix_tokens
        self.causal = causal
        self.dropout = dropout
        self.mixes_tokens = self.data_dependent or causal
        self.permutation_equivariant = not self.mixes_tokens
        self.padding_invariant = self.excludes_padding
        size = dim // heads
        rows = rank * rank_multi if sampled_rows == "uncapped" else min(rank * rank_multi, tokens)
        shape = (heads, rows if self.data_dependent else size, rank)
        self.qk = nn.Linear(dim, 2 * dim)
        # As released: of a tensor of three axes this makes the heads orthogonal, not the columns of a head.
        self.we = nn.Parameter(nn.init.orthogonal_(torch.empty(shape)))
        self.wr = nn.Parameter(nn.init.orthogonal_(torch.empty(shape)))
        self.Lambda = nn.Parameter(torch.rand(heads, rank))
        self.concate_weight = nn.Linear(2 * rank if r_scores else rank, size)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, *, grid: Grid | None = None, mask: Tensor | None = None) -> Tensor:
        """As `AttentionFactory` says; in training the KSVD loss joins the objective (`auxiliary.py`)."""
        seen = mask if self.excludes_padding else None
        queries, keys = self._features(x, seen)  # (B, H, N, D) each
        rows = self._rows(x, seen)
        scores = e = _scores(queries, _projected(rows, self.we))  # (B, H, N, s)
        trained = self.eta > 0 and wanted()
        if self.r_scores or trained:
            r = _scores(keys, _projected(rows, self.wr))
            if self.r_scores:
                scores = torch.cat([e, r], dim=-1)  # (B, H, N, 2s)
            if trained:
                self._add_loss(e, r, rows, seen)
        attended = self.concate_weight(scores)  # (B, H, N, D)
        if mask is not None:
            attended = attended.masked_fill(~mask[:, None, :, None], 0.0)
        return functional.dropout(self.proj(merge_heads(attended)), self.dropout, self.training)

    def kernel_factors(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """L and R of the kernel matrix K = L R^T of each head, (B, H, N, D) each, for tokens (B, N, C).

        K_ij = <f(X) phi(q_i), f(X) phi(k_j)> of Theorem 3.2, with f(X) = X', or the identity where the
        weights are data-independent.
        """
        seen = mask if self.excludes_padding else None
        queries, keys = self._features(x, seen)
        rows = self._rows(x, seen)
        return queries, keys if rows is None else keys @ (rows.transpose(-2, -1) @ rows)

    def _features(self, x: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        queries, keys = split_heads(self.qk(x), 2, self.heads)
        if self.causal:
            queries, keys = running_mean(queries, seen), running_mean(keys, seen)
        return _unit(queries), _unit(keys)

    def _rows(self, x: Tensor, seen: Tensor | None) -> Tensor | None:
        """X', (B, H, n, D): heads' slices of sampled tokens; None where the weights are data-independent."""
        if not self.data_dependent:
            return None
        sampled = x
        if seen is not None or x.shape[1] != self.we.shape[1]:
            places = sampled_places(x, self.we.shape[1], seen)  # (B, n)
            sampled = x.gather(1, places[..., None].expand(-1, -1, x.shape[2]))  # (B, n, C)
        return split_heads(sampled, 1, self.heads)[0]

    def _add_loss(self, e: Tensor, r: Tensor, rows: Tensor | None, seen: Tensor | None) -> None:
        with torch.autocast(e.device.type, enabled=False):
            objective = self._objective(_wide(e), _wide(r), rows, seen)  # (B,)
            if self.ksvd_reduction == "batch":
                loss = self.eta * objective.mean().square()
            else:
                loss = self.eta * objective.square().mean()
        add_loss(loss, averaged=("ksvd", self) if self.ksvd_form == "code" else None)

    def _objective(self, e: Tensor, r: Tensor, rows: Tensor | None, seen: Tensor | None) -> Tensor:
        """J of each example, (B,), of the scores (B, H, N, s)."""
        scale = _wide(self.Lambda)[:, None]  # (H, 1, s)
        if self.ksvd_form == "paper":
            energy = (scale * (e.square() + r.square())).sum(dim=-1).mean(dim=1)  # (B, N)
        else:
            energy = ((scale * e).square() + (scale * r).square()).sum(dim=-1).mean(dim=1)
        present = torch.ones_like(energy) if seen is None else seen.to(energy.dtype)
        total = (present * energy).sum(dim=1)  # (B,)
        if self.ksvd_form == "code":
            total = total / present.sum(dim=1)
        left, right = _wide(self.we), _wide(self.wr)
        if self.ksvd_trace == "projected" and rows is not None:
            left, right = _projected(_wide(rows), left), _projected(_wide(rows), right)  # (B, H, D, s)
        return total / 2 - (left * right).sum(dim=(-2, -1)).mean(dim=-1)


def sampled_places(x: Tensor, rows: int, seen: Tensor | None) -> Tensor:
    """Evenly spaced tokens of (B, N, C), with the first and the last that take part: int64 (B, n).

    The m-th has the number m (N - 1) // (n - 1) of the N that take part: more rows n than tokens repeat some.
    `seen` is boolean (B, N), true for the tokens that take part; None = all.
    """
    steps = torch.arange(rows, device=x.device)
    if seen is None:
        return (steps * (x.shape[1] - 1) // max(rows - 1, 1)).expand(x.shape[0], -1)
    order = (~seen).to(torch.int8).sort(dim=1, stable=True).indices  # those that take part first
    last = seen.sum(dim=1, keepdim=True).clamp(min=1) - 1  # (B, 1)
    return order.gather(1, steps * last // max(rows - 1, 1))


def running_mean(values: Tensor, seen: Tensor | None) -> Tensor:
    """Mean over the tokens up to each one, (B, H, N, D) to the same, in float32 at least.

    Tokens that are false in `seen`, (B, N), do not count.
    """
    wide = _wide(values)
    if seen is None:
        counts = torch.arange(1, values.shape[-2] + 1, dtype=wide.dtype, device=wide.device)[:, None]
        return (running_sum(wide) / counts).to(values.dtype)
    present = seen[:, None, :, None]  # (B, 1, N, 1)
    counts = running_sum(present.to(wide.dtype)).clamp(min=1.0)
    return (running_sum(wide.masked_fill(~present, 0.0)) / counts).to(values.dtype)


def _scores(features: Tensor, weights: Tensor) -> Tensor:
    """W^T phi of each token: (B, H, N, D) and W, (B, H, D, s) or (H, D, s), to (B, H, N, s)."""
    if weights.dim() == 3:
        return torch.einsum("bhnd,hds->bhns", features, weights)
    return features @ weights


def _projected(rows: Tensor | None, weights: Tensor) -> Tensor:
    """X'^T W: (B, H, n, D) and (H, n, s) to (B, H, D, s); W itself without rows."""
    return weights if rows is None else torch.einsum("bhnd,hns->bhds", rows, weights)


def _unit(features: Tensor) -> Tensor:
    return functional.normalize(_wide(features), dim=-1, eps=MIN_NORM).to(features.dtype)


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _check(counts: dict[str, int], eta: float, **choices: str) -> None:
    for name, count in counts.items():
        at_least(name, count, 1)
    at_least("eta", eta, 0)
    for name, choice in choices.items():
        one_of(name, choice, *get_args(OPTIONS[name]))


def _projection_of(given: Projection | None, causal: bool) -> Projection:
    if causal and given == "data_dependent":
        raise ValueError(
            "projection must be 'data_independent' in the causal form: sampled rows of later tokens would "
            f"leak; got {given!r}"
        )
    return given or ("data_independent" if causal else "data_dependent")
