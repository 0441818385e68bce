"""Principal Attention Pursuit from the inside: what each iteration splits off, and other settings of it.

Teo and Nguyen, NeurIPS 2024, section 3; `models/attention/rpc.py` has the iteration K -> (S, L) and its two
readings of the threshold.

B = batch, H = heads, N = tokens (prefix included), P = patch tokens, D = features of a head, I = iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from assay.models.layers.attention.probe import PursuitLayer, PursuitTrace, observed, pursuit_layers
from assay.service.contract.findings.evidence import InactivePursuit

# Arm to the attribute of a layer that it sets, and the value. With this lambda the threshold is above every
# key of a working model, and finite, as its gradient has to be.
ARMS: dict[str, tuple[str, Any]] = {
    "no_sparse": ("regularization", 1e20),
    "threshold_code": ("threshold", "code"),
    "threshold_paper": ("threshold", "paper"),
    "dual_sign_minus": ("dual_sign", -1),
    "dual_sign_plus": ("dual_sign", 1),
}
POINTS = 16  # of the curve: shares of the ranks
# Share of S that is not 0, below which a pursuit counts as inactive, and the examples that are looked at.
INACTIVE, EXAMPLES = 1e-3, 16


def arms_of(layers: Sequence[PursuitLayer]) -> list[str]:
    """Names of the arms that change some layer."""
    return [
        name for name, (part, value) in ARMS.items() if any(getattr(one, part) != value for one in layers)
    ]


@contextmanager
def as_arm(layers: Sequence[PursuitLayer], arm: str | None) -> Iterator[None]:
    """Gives all layers the setting of an arm inside the block; None leaves them as they are."""
    if arm is None:
        yield
        return
    part, value = ARMS[arm]
    before = [getattr(layer, part) for layer in layers]
    try:
        for layer in layers:
            setattr(layer, part, value)
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            setattr(layer, part, own)


def decomposition(trace: PursuitTrace) -> dict[str, Tensor]:
    """Size, error and rank of one layer's K, S and L, per example; ratios and ranks are means over heads.

    In float64, (B, I) each: `nonzero`, the share of S that is not 0; `sparse_norm`, |S| / |K|; `residual`, |K
    - L - S| / |K|; `effective_rank` of L, from 1 to min(N, D). Then `keys_effective_rank` of K, (B, 1), and
    `curve`, the share of the sum of squares that the first ceil(p min(N, D) / 16) singular values of the last
    L explain, p from 0 to 16, (B, 17). Norms are Frobenius norms. Not finite where K is 0 or a part is not
    finite.
    """
    keys = trace.keys.double()
    size = torch.linalg.matrix_norm(keys)  # (B, H)
    found: dict[str, list[Tensor]] = {
        name: [] for name in ("nonzero", "sparse_norm", "residual", "effective_rank")
    }
    singular = keys[..., :0, 0]
    for sparse, low_rank in zip(trace.sparse, trace.low_rank, strict=True):
        split, rest = sparse.double(), low_rank.double()
        singular = singular_values(rest)
        found["nonzero"].append((split != 0).double().mean(dim=(-2, -1)))
        found["sparse_norm"].append(torch.linalg.matrix_norm(split) / size)
        found["residual"].append(torch.linalg.matrix_norm(keys - rest - split) / size)
        found["effective_rank"].append(effective_rank(singular))
    whole = {name: torch.stack([part.mean(dim=1) for part in parts], dim=1) for name, parts in found.items()}
    rank = effective_rank(singular_values(keys)).mean(dim=1)
    return {**whole, "keys_effective_rank": rank[:, None], "curve": explained(singular).mean(dim=1)}


def singular_values(matrix: Tensor) -> Tensor:
    """Falling singular values of (B, H, N, D), (B, H, min(N, D)); NaN where the matrix is not finite."""
    finite = torch.isfinite(matrix).flatten(-2).all(dim=-1)[..., None]  # (B, H, 1)
    singular: Tensor = torch.linalg.svdvals(matrix.where(finite[..., None], 0.0))
    return singular.where(finite, torch.nan)


def effective_rank(singular: Tensor) -> Tensor:
    """exp of the entropy of s / sum s (Roy and Vetterli, EUSIPCO 2007): (..., R) to (...); NaN of 0."""
    entropy: Tensor = torch.special.entr(singular / singular.sum(dim=-1, keepdim=True)).sum(dim=-1)
    return entropy.exp()


def explained(singular: Tensor) -> Tensor:
    """Shares of the sum of squares that the largest of R values explain: (..., R) to (..., 17)."""
    count, squares = singular.shape[-1], singular.square()
    # Sums up to each value; torch.cumsum has no deterministic CUDA kernel.
    shares = squares @ squares.new_ones(count, count).triu() / squares.sum(dim=-1, keepdim=True)
    ends = (torch.arange(POINTS + 1, device=singular.device) * count + POINTS - 1) // POINTS
    return torch.cat([0 * shares[..., :1], shares], dim=-1)[..., ends]


def token_sizes(part: Tensor, prefix: int) -> Tensor:
    """Sum of the magnitudes of each patch token over heads and features: (B, H, N, D) to float64 (B, P)."""
    return part[:, :, prefix:].double().abs().sum(dim=(1, 3))


def auroc(scores: Tensor, positive: Tensor) -> Tensor:
    """Probability that a positive token has a higher score than another one; ties count half.

    Scores (B, P), and true for some and false for some of each row's tokens, give (B,) in float64; NaN where
    a score is not finite.
    """
    ordered = scores.sort(dim=1).values
    below = torch.searchsorted(ordered, scores.contiguous(), right=False)
    upto = torch.searchsorted(ordered, scores.contiguous(), right=True)
    ranks = (below + upto + 1).double() / 2  # the mean rank of equal scores, from 1
    hits = positive.sum(dim=1).double()
    found = ((ranks * positive).sum(dim=1) - hits * (hits + 1) / 2) / (hits * (positive.shape[1] - hits))
    return found.where(torch.isfinite(scores).all(dim=1), torch.nan)


@contextmanager
def watched_pursuit(model: nn.Module) -> Iterator[dict[str, InactivePursuit]]:
    """Looks at S in the first pass of a model inside the block, and tells at its end whether it is empty.

    The yielded facts have `inactive_pursuit` after the block, if in every layer and iteration a smaller share
    than `INACTIVE` of S is not 0, over heads and the first `EXAMPLES` examples of the pass; never without
    RPC-Attention.
    """
    found: dict[str, InactivePursuit] = {}
    shares: dict[int, float] = {}
    counts: list[int] = []

    def see(number: int, layer: nn.Module, x: Tensor, mask: Tensor | None) -> None:
        if number in shares:
            return
        assert isinstance(layer, PursuitLayer)
        few, present = x[:EXAMPLES], None if mask is None else mask[:EXAMPLES]
        counts.append(len(few))
        with torch.no_grad():
            shares[number] = max(_share(sparse, present) for sparse in layer.pursuit(few, present).sparse)

    with observed(pursuit_layers(model), see, padding=True):  # type: ignore[arg-type]
        yield found
    if shares and max(shares.values()) < INACTIVE:
        found["inactive_pursuit"] = {"largest_share": max(shares.values()), "examples": max(counts)}


def _share(sparse: Tensor, mask: Tensor | None) -> float:
    """The share of S (B, H, N, D) that is not 0; padding, false in the mask (B, N), is not counted."""
    of_tokens = (sparse != 0).double().mean(dim=(1, 3))
    return float((of_tokens if mask is None else of_tokens[mask]).mean())
