"""Language models of a size that a laptop trains in minutes."""

from __future__ import annotations

from typing import Any

from torch import nn

from assay.models.attention import rpc
from assay.models.layers.parameters import LANGUAGE_FACTS, DropRate, SequenceLength
from assay.models.rpc_symmlm import rpc_symmlm
from assay.models.symmlm import symmlm

__all__ = ["rpc_symmlm_tiny", "symmlm_tiny"]

TASKS = ("language",)
# With a plain softmax over 30,000 words most of a step on a CPU would be the softmax.
CUTOFFS = [2_000, 10_000]
SIZE: dict[str, Any] = {"width": 64, "depth": 4, "heads": 4, "hidden": 256}
FACTS = LANGUAGE_FACTS | {"layout": "kv", **SIZE}
PAPER = rpc.PAPER


def symmlm_tiny(
    classes: int, channels: int, *, length: SequenceLength = 64, dropout: DropRate = 0.1
) -> nn.Module:
    """Symmlm with 4 layers of width 64, cut-offs at 2,000 and 10,000; 832,593 parameters for 10,000 words.

    Args:
        classes: words of the vocabulary.
        channels: the same.
        length: the most tokens of a sequence; no weight depends on it.
        dropout: dropout rate of embedding, attention output, MLP, and of what enters the softmax.

    Returns:
        Module from tokens, int64 (B, N), to log-probabilities (B, N, words).
    """
    return symmlm(
        classes,
        channels,
        length=length,
        dropout=dropout,
        cutoffs=CUTOFFS,
        initialization="scaled",
        **SIZE,
    )


def rpc_symmlm_tiny(
    classes: int,
    channels: int,
    *,
    length: SequenceLength = 64,
    iterations: rpc.Iterations = 4,
    regularization: rpc.Regularization = 4.0,
    dropout: DropRate = 0.1,
) -> nn.Module:
    """The same size with causal RPC-Attention in the first layer: 832,593 parameters for 10,000 words.

    Args:
        classes: words of the vocabulary.
        channels: the same.
        length: the most tokens of a sequence; no weight depends on it.
        iterations: iterations of Principal Attention Pursuit.
        regularization: lambda, the weight of the sparse part.
        dropout: dropout rate of embedding, attention output, MLP, and of what enters the softmax.

    Returns:
        Module from tokens, int64 (B, N), to log-probabilities (B, N, words).
    """
    return rpc_symmlm(
        classes,
        channels,
        length=length,
        rpc_layers="first",
        iterations=iterations,
        regularization=regularization,
        dropout=dropout,
        cutoffs=CUTOFFS,
        initialization="scaled",
        **SIZE,
    )
