"""Parts of the Nystrom methods: Gaussian kernel, iterative inverse, landmarks.

Chen et al., "Skyformer: Remodel self-attention with Gaussian kernel and Nystrom method", NeurIPS 2021 [S];
Xiong et al., "Nystromformer", AAAI 2021; Razavi et al., the inverse by products (cited by both).

    kernel     G(x, y) = exp(-|x - y|^2 / 2)                                                  [S] section 4.1
    inverse    Z_0 = M^T / c,    Z <- 1/4 Z (13 I - P (15 I - P (7 I - P))),    P = M Z        [S] section 4.4

c is the largest column sum of |M|: of each matrix ("matrix"), or as released of the whole tensor, batch and
heads ("tensor"), so that an output depends on its batch.

Landmarks are rows of an example that take part; the first of them has rank 0, wherever padding is.

L = landmarks.
"""

from __future__ import annotations

import functools
import random
from abc import abstractmethod
from typing import Annotated, Literal, NamedTuple, TypedDict, Unpack

import torch
from annotated_types import Interval, doc
from torch import Tensor
from torch.nn.functional import dropout as drop

from assay.models.layers.attention.projected_attention import ProjectedAttention
from assay.models.layers.checks import at_least, one_of
from assay.models.layers.heads import Dropout, HeadParameters, PrefixTokens

Normaliser = Annotated[
    Literal["matrix", "tensor"],
    doc(
        'where the inverse starts: from the largest column sum of each matrix ("matrix"), or of the whole '
        'batch, so that answers depend on it ("tensor", as released).'
    ),
]
NORMALISERS: tuple[Normaliser, ...] = ("matrix", "tensor")
Draw = Annotated[
    Literal["fixed", "training", "released"],
    doc(
        'how landmarks are drawn: "fixed", places by seed and number of tokens alone; "training", the same '
        'in evaluation, and drawn again in each pass of a training; "released", drawn again in every pass, '
        "with replacement, so that answers are random."
    ),
]
DRAWS: tuple[Draw, ...] = ("fixed", "training", "released")
Iterations = Annotated[int, Interval(ge=1, le=100), doc("steps of the inverse.")]
LandmarkCount = Annotated[
    int,
    Interval(ge=2, le=4096),
    doc("L; half of them are queries, half keys. From twice the number of tokens, all are."),
]
Gamma = Annotated[float, Interval(ge=0, le=1000)]
Seed = Annotated[int, Interval(ge=0, le=2**31 - 1), doc("of the draw.")]


class LandmarkParameters(TypedDict, total=False):
    """Parameters that mechanisms hand on to `LandmarkAttention`."""

    landmarks: LandmarkCount
    draw: Draw
    gamma: Gamma
    iterations: Iterations
    normaliser: Normaliser
    seed: Seed
    prefix_tokens: PrefixTokens
    dropout: Dropout


def gaussian(x: Tensor, y: Tensor) -> Tensor:
    """exp(-|x_i - y_j|^2 / 2) of (..., n, D) and (..., m, D): (..., n, m), at most 1."""
    squares = x.square().sum(dim=-1)[..., None] + y.square().sum(dim=-1)[..., None, :]
    return (x @ y.mT - squares / 2).clamp(max=0.0).exp()


def iterative_inverse(matrix: Tensor, iterations: int, normaliser: Normaliser) -> Tensor:
    """Approximate inverse Z of M, both (..., L, L), by products of matrices.

    Rows and columns of M that are zero stay so. It converges if |I - M| < 1.
    """
    sums = matrix.abs().sum(dim=-2)  # (..., L), of columns
    largest = sums.amax() if normaliser == "tensor" else sums.amax(dim=-1)[..., None, None]
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    inverse = matrix.mT / largest
    for _ in range(iterations):
        product = matrix @ inverse
        inner = 15 * identity - product @ (7 * identity - product)
        inverse = inverse @ (13 * identity - product @ inner) / 4
    return inverse


class Landmarks(NamedTuple):
    """Rows of queries or keys that stand for all."""

    places: Tensor  # positions in the sequence, int64 (B, L) or (1, L)
    used: Tensor  # boolean of the same shape; false where an example has fewer rows than L

    def of(self, rows: Tensor) -> Tensor:
        """Those rows of (B, H, N, D): (B, H, L, D)."""
        batch, heads, _, features = rows.shape
        at = self.places[:, None, :, None].expand(batch, heads, -1, features)
        return rows.gather(2, at)


class Halves(NamedTuple):
    """Landmarks among the queries and among the keys; drawn, half of L each, queries one more if L is odd."""

    queries: Landmarks
    keys: Landmarks

    def of(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """All landmarks of q and k (B, H, N, D): (B, H, L, D), and which are used, (B or 1, 1, L)."""
        rows = torch.cat([self.queries.of(queries), self.keys.of(keys)], dim=2)
        return rows, torch.cat([self.queries.used, self.keys.used], dim=1)[:, None]


class Inverse(NamedTuple):
    """How the landmarks' matrix is inverted."""

    gamma: float  # added to its diagonal
    iterations: int  # steps of `iterative_inverse`
    normaliser: Normaliser = "matrix"


def draw_landmarks(
    rows: Tensor, mask: Tensor | None, count: int, *, draw: Draw, key: str, training: bool
) -> Landmarks:
    """Draw positions of `count` landmarks at most among rows (B, H, N, D), the same for all heads.

    "fixed" draws without replacement, by `key` and the number of the example's tokens alone: neither content,
    batch, padding nor device matters. "training" draws again in every pass of a training, otherwise as
    "fixed". "released" draws again in every pass, with replacement. `key` distinguishes draws for the same
    sequence; `mask` is boolean (B, N), true for tokens that take part, None = all.
    """
    batch, _, length, _ = rows.shape
    if draw == "released":
        return _with_replacement(batch, length, mask, count, rows.device)
    if draw == "training" and training:
        order = torch.rand(batch, length, device=rows.device)
        shown = order if mask is None else order.masked_fill(~mask, -1.0)
        found = shown.topk(min(count, length), dim=1)
        return Landmarks(found.indices, found.values >= 0)
    lengths = [length] if mask is None else mask.sum(dim=1).tolist()
    ranks = [fixed_ranks(key, present, count) for present in lengths]
    most = min(count, length)
    filled = torch.tensor([[*row, *(0 for _ in range(most - len(row)))] for row in ranks], device=rows.device)
    taken = torch.tensor([len(row) for row in ranks], device=rows.device)[:, None]
    used = torch.arange(most, device=rows.device) < taken  # (B, L)
    return Landmarks(_places(filled, mask), used)


def draw_halves(
    rows: Tensor, mask: Tensor | None, count: int, *, draw: Draw, seed: int, training: bool
) -> Halves:
    """Draw `count` landmarks; see `draw_landmarks`."""

    def drawn(part: str, half: int) -> Landmarks:
        return draw_landmarks(rows, mask, half, draw=draw, key=f"{part}/{seed}", training=training)

    return Halves(drawn("queries", (count + 1) // 2), drawn("keys", count // 2))


class LandmarkAttention(ProjectedAttention):
    """Attention approximated from L landmarks among queries and keys, by an iterative inverse.

    Half of the landmarks are queries, half keys (`draw_landmarks`, `iterative_inverse`). Gamma is added to
    the diagonal of the landmarks' matrix. Dropout acts on the output before its projection.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        landmarks: LandmarkCount = 128,
        draw: Draw = "fixed",
        gamma: Gamma = 0.1,
        iterations: Iterations = 6,
        normaliser: Normaliser = "matrix",
        seed: Seed = 0,
        **shared: Unpack[HeadParameters],
    ) -> None:
        super().__init__(dim, heads, **shared)
        at_least("landmarks", landmarks, 2)
        at_least("gamma", gamma, 0)
        at_least("iterations", iterations, 1)
        one_of("draw", draw, *DRAWS)
        one_of("normaliser", normaliser, *NORMALISERS)
        self.landmarks, self.draw, self.seed = landmarks, draw, seed
        self.inverse = Inverse(gamma, iterations, normaliser)

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """The approximation with drawn landmarks, (B, H, N, D); see `ProjectedAttention.mix`."""
        halves = draw_halves(
            queries, mask, self.landmarks, draw=self.draw, seed=self.seed, training=self.training
        )
        mixed = self.approximate(queries, keys, values, mask, halves)
        return drop(mixed, self.training_rate())

    @abstractmethod
    def approximate(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, halves: Halves
    ) -> Tensor:
        """The mechanism, (B, H, N, D), with given landmarks; arguments as of `ProjectedAttention.mix`."""


@functools.lru_cache(maxsize=4096)
def fixed_ranks(key: str, length: int, count: int) -> tuple[int, ...]:
    """min(count, length) different ranks below `length`, in order; on every machine the same."""
    chosen = random.Random(f"landmarks/{key}/{length}").sample(range(length), min(count, length))
    return tuple(sorted(chosen))


def _with_replacement(
    batch: int, length: int, mask: Tensor | None, count: int, device: torch.device
) -> Landmarks:
    present = length if mask is None else mask.sum(dim=1, keepdim=True)
    ranks = (torch.rand(batch, count, device=device) * present).long()
    return Landmarks(_places(ranks, mask), torch.ones_like(ranks, dtype=torch.bool))


def _places(ranks: Tensor, mask: Tensor | None) -> Tensor:
    """Positions of the tokens of these ranks (B, L) among those that take part."""
    if mask is None:
        return ranks
    order = mask.to(torch.int8).argsort(dim=1, descending=True, stable=True)  # (B, N), present ones first
    return order.gather(1, ranks)


def segment_weights(length: int, count: int, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Means over contiguous segments of the tokens that take part (`mask`, boolean (B, N) or (1, N)).

    An example of n tokens has min(count, n) segments; token of rank r is in segment r min(count, n) // n.
    Returns the weights (B, L, N), L = min(count, N), with rows that sum to 1, or to 0 for a missing segment;
    and which segments exist, boolean (B, L).
    """
    most = min(count, length)
    present = mask.sum(dim=1, keepdim=True)  # (B, 1)
    segments = present.clamp(max=most)
    rank = mask.long().cumsum(dim=1) - 1
    segment = (rank * segments // present.clamp(min=1)).masked_fill(~mask, -1)  # (B, N)
    number = torch.arange(most, device=mask.device)
    inside = segment[:, None, :] == number[:, None]  # (B, L, N)
    weights = inside / inside.sum(dim=-1, keepdim=True).clamp(min=1)
    return weights, number < segments
