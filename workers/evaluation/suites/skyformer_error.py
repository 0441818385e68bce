"""Spectral-norm error of approximate attention against its number of features: Skyformer's figure 1."""

from __future__ import annotations

from typing import Any

__all__ = ["skyformer_error"]

TASKS = ("classification", "segmentation", "language", "sequence", "series", "series_regression")
PAPER = (
    "Chen et al. 2021, Skyformer: remodel self-attention with Gaussian kernel and Nystrom method, figure 1"
)
FEATURES = (16, 32, 64, 128, 256)


def skyformer_error() -> list[dict[str, Any]]:
    """Error of every approximation of softmax and of kernelized attention, with 16 to 256 features.

    On the queries, keys and values of the job's model; the paper's are BERT's on WikiText-2, before and after
    its training, which are two jobs. Of a text, windows of 512 words: the text does not state its lengths.
    """
    return [{"name": "spectral_error", "params": {"features": list(FEATURES), "length": 512}}]
