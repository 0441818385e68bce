"""Algorithm 1 of the RPC paper for one head in NumPy, as printed: with Y, mu and the N x N matrix."""

from __future__ import annotations

import numpy as np


def weights(queries: np.ndarray, keys: np.ndarray, *, causal: bool = False) -> np.ndarray:
    """softmax(q k^T / sqrt(D)), (N, N)."""
    scores = queries @ keys.T / np.sqrt(keys.shape[1])
    if causal:
        scores[~np.tri(len(scores), dtype=bool)] = -np.inf
    matrix = np.exp(scores - scores.max(axis=1, keepdims=True))
    normalized: np.ndarray = matrix / matrix.sum(axis=1, keepdims=True)
    return normalized


def pursue(
    k: np.ndarray,
    v: np.ndarray,
    *,
    width: int,
    iterations: int,
    regularization: float,
    threshold: str = "code",
    dual_sign: int = -1,
    q: np.ndarray | None = None,
    causal: bool = False,
    prefix: bool = False,
) -> np.ndarray:
    """L of the last iteration, (N, D); `q` is fixed (asymmetric), `prefix` has a mu for each token."""
    tokens = len(k)
    mu: np.ndarray | float = tokens * width / (4 * np.abs(k).sum())
    if prefix:
        lengths = range(1, tokens + 1)
        mu = np.array([[n * width / (4 * np.abs(k[:n]).sum())] for n in lengths])
    tau = regularization * mu if threshold == "code" else regularization / mu
    low_rank, y = np.zeros_like(k), np.zeros_like(k)
    for _ in range(iterations):
        m = k - low_rank + y / mu
        s = np.sign(m) * np.maximum(np.abs(m) - tau, 0)
        z = k - s + dual_sign * y / mu
        low_rank = weights(z if q is None else q, z, causal=causal) @ v
        y = y + mu * (k - low_rank - s)
    return low_rank
