"""Adaptive softmax over a large vocabulary, with weights tied to the word embedding.

Grave et al., "Efficient softmax approximation for GPUs", ICML 2017; Baevski and Auli, "Adaptive input
representations for neural language modeling", ICLR 2019, section 3. Words are sorted by frequency and cut
into clusters. The head is a softmax over the words of the first cluster and one place for each other cluster;
a word of cluster k has

    log p(w | h) = log softmax(head)_k + log softmax(h W_k^T + b_k)_w

As in the code of the published small models (lmtool-fwp, `div_val` 1), all clusters have the full width and
no projection.

Logits of the head are computed in chunks of positions, and recomputed for the gradient: memory does not grow
with batch times length times vocabulary.

V = words, C = width, K = clusters after the first, n = positions.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear
from torch.utils.checkpoint import checkpoint

# Logits per chunk: 128 MiB of float32.
LOGITS = 2**25


class AdaptiveSoftmax(nn.Module):
    """The output layer of a language model; the word weights (V, C) are an argument of each call.

    Cut-offs, in any order, start the clusters after the first; those not below V are dropped.
    """

    def __init__(self, width: int, vocabulary: int, cutoffs: Sequence[int]) -> None:
        super().__init__()
        if vocabulary < 1 or min(cutoffs, default=1) < 1:
            raise ValueError(f"vocabulary and cutoffs must be at least 1: got {vocabulary}, {list(cutoffs)}")
        used = sorted({cutoff for cutoff in cutoffs if cutoff < vocabulary})
        self.bounds = (0, *used, vocabulary)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.clusters = nn.Linear(width, len(used)) if used else None

    def forward(self, hidden: Tensor, words: Tensor) -> Tensor:
        """Log-probabilities (..., V) of hidden states (..., C), in float32 at least."""
        head = _log_softmax(linear(hidden, *self._head(words)))
        parts = [head[..., : self.bounds[1]]]
        for number, (first, end) in enumerate(self._tails()):
            tail = _log_softmax(linear(hidden, words[first:end], self.bias[first:end]))
            parts.append(head[..., self.bounds[1] + number, None] + tail)
        return torch.cat(parts, dim=-1)

    def negative_log_likelihood(self, hidden: Tensor, words: Tensor, targets: Tensor) -> Tensor:
        """-log p of each target, in nats, (n,), in float32 at least.

        Hidden states are (n, C), the word weights (V, C), targets int64 (n,), in [0, V).
        """
        in_head = targets
        for number, (first, end) in enumerate(self._tails()):
            inside = (targets >= first) & (targets < end)
            in_head = torch.where(inside, self.bounds[1] + number, in_head)
        loss = _losses(hidden, *self._head(words), in_head)
        for first, end in self._tails():
            (rows,) = torch.nonzero((targets >= first) & (targets < end), as_tuple=True)
            tail = _losses(hidden[rows], words[first:end], self.bias[first:end], targets[rows] - first)
            loss = loss.index_put((rows,), loss[rows] + tail)
        return loss

    def _head(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Weight (V_0 + K, C) and bias of the head."""
        first = self.bounds[1]
        if self.clusters is None:
            return words, self.bias
        weight = torch.cat([words[:first], self.clusters.weight])
        return weight, torch.cat([self.bias[:first], self.clusters.bias])

    def _tails(self) -> list[tuple[int, int]]:
        return list(itertools.pairwise(self.bounds[1:]))


def _losses(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropies (n,) of hidden states (n, C) in a softmax with weight (V, C)."""
    rows = max(LOGITS // len(weight), 1)
    if len(hidden) <= rows:
        return _some_losses(hidden, weight, bias, targets)
    parts = zip(hidden.split(rows), targets.split(rows), strict=True)
    if not torch.is_grad_enabled():
        return torch.cat([_some_losses(some, weight, bias, wanted) for some, wanted in parts])
    again = [
        checkpoint(
            _some_losses, some, weight, bias, wanted, use_reentrant=False, preserve_rng_state=False
        )  # nothing random inside
        for some, wanted in parts
    ]
    return torch.cat(again)


def _some_losses(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(_wide(linear(hidden, weight, bias)), targets, reduction="none")


def _log_softmax(logits: Tensor) -> Tensor:
    return _wide(logits).log_softmax(dim=-1)


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
