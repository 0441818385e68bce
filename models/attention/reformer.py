"""Reformer: attention among tokens that locality-sensitive hashing puts into one bucket.

Kitaev et al., "Reformer: The Efficient Transformer", ICLR 2020, section 2. Queries are also keys. In each of
R rounds, with a random matrix W (D, b / 2) for each head,

    bucket(x) = argmax([x W; -x W])
    s = place of a token when all are sorted by bucket, then by position; chunk = floor(s / m)
    A_ij over the tokens j of i's chunk and of the one before:  softmax_j(q_i . q_j / |q_j|)

A token sees itself only if it sees no other. The rounds are weighted by their sums of exponentials. As
released (Trax, Hugging Face's `LSHSelfAttention`): a token seen in two rounds counts twice, where the paper
divides by the count; the chunk before the first is the last of the round before (of the last, for the first);
tokens of a chunk see each other across buckets; up to m tokens see all others without hashing. Padding has a
bucket of its own, the last.

Deviations. b is 2^floor(log2(2 N / m)) as released, with N the longest sequence of the model, not the first
that comes along. W is drawn at construction and stored (rotations = "stored"); released outputs are random
(rotations = "each_pass"). In the causal form later tokens move the chunks' borders, which decide what is seen
(chunks = "released"). The default there, chunks = "past", has token i see the m tokens before it in its
bucket, 0 < s_i - s_j <= m, which later tokens don't change.

R = rounds, m = tokens of a chunk, G = chunks of all rounds, P = N rounded up to whole chunks.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Unpack

import torch
from annotated_types import Interval
from torch import Tensor
from torch.nn.functional import dropout, pad

from assay.models.layers.checks import at_least, one_of
from assay.models.layers.heads import Causal, Grid, HeadParameters, HeadProjections, Tokens
from assay.models.layers.parameters import past_rule

__all__ = ["ReformerAttention"]

FACTS = {"causal_form": True, "cost": "n log n"}
CAUSAL_WITH = ("chunks", "past")
RULES = (past_rule(*CAUSAL_WITH),)
PAPER = "Kitaev et al., Reformer: The Efficient Transformer, ICLR 2020"

Rounds = Annotated[int, Interval(ge=1, le=64)]
BucketLength = Annotated[int, Interval(ge=1, le=8192)]

ALONE = -1e5  # the released logit of a token with itself
MIN_SQUARE = 1e-6  # added to the mean square of a key, as released


class ReformerAttention(HeadProjections):
    """Attention of hashed neighbours with shared queries and keys; N log N in the tokens, by the sort.

    The weights are `qkv` (2C, C) with the row blocks q = k and v, and `proj`; the buffer `rotations` is
    stored. Padding changes nothing.

    Args:
        hashes: number R of rounds; Skyformer's tables have 2.
        bucket_length: tokens m of a chunk; no more tokens than this see all others.
        rotations: "stored" with the weights, or drawn again in "each_pass", which makes outputs random.
        chunks: what a token sees in the causal form: the m tokens before it in its bucket ("past"), or the
            tokens of its chunk and of the chunk before ("released"), which depends on later tokens.
        tokens: longest sequence of the model, which decides the number of buckets.
        causal: each token attends to tokens before it, and to itself where it sees no other.
    """

    name: ClassVar[str] = "reformer"
    projections: ClassVar[int] = 2
    causal_with: ClassVar[tuple[str, str]] = CAUSAL_WITH
    permutation_equivariant: ClassVar[bool] = False
    padding_invariant: ClassVar[bool] = True
    rotations: Tensor

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        hashes: Rounds = 2,
        bucket_length: BucketLength = 64,
        rotations: Literal["stored", "each_pass"] = "stored",
        chunks: Literal["past", "released"] = "past",
        tokens: Tokens = 197,
        causal: Causal = False,
        **shared: Unpack[HeadParameters],
    ) -> None:
        super().__init__(dim, heads, **shared)
        at_least("hashes", hashes, 1)
        at_least("bucket_length", bucket_length, 1)
        one_of("rotations", rotations, "stored", "each_pass")
        one_of("chunks", chunks, "past", "released")
        self.bucket_length = bucket_length
        self.factors = bucket_factors(tokens, bucket_length)
        self.drawn_anew = rotations == "each_pass"
        self.past_only = causal and chunks == "past"
        self.sees_later_tokens = causal and chunks == "released"
        # Causal outputs may not depend on how long the sequence happens to be.
        self.hashed_beyond = 0 if self.past_only and tokens > bucket_length else bucket_length
        self.causal = causal
        seed = int(torch.randint(2**31 - 1, (), device="cpu"))
        shape = (heads, dim // heads, hashes, sum(self.factors) // 2)
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed), device="cpu")
        self.register_buffer("rotations", drawn)

    def forward(self, x: Tensor, *, grid: Grid | None = None, mask: Tensor | None = None) -> Tensor:
        """As `AttentionFactory` says."""
        queries, values = self.project(x)
        wide = torch.promote_types(values.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            q, v = queries.to(wide), values.to(wide)
            present = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask
            hashed = x.shape[1] > self.hashed_beyond
            attended = self._attend_hashed(q, v, present) if hashed else self._attend_all(q, v, present)
        return self.merge(attended.to(queries.dtype))

    def _attend_all(self, queries: Tensor, values: Tensor, present: Tensor) -> Tensor:
        places = torch.arange(queries.shape[2], device=queries.device).expand(*queries.shape[:3])
        seen = present[:, None, None, :].expand(*queries.shape[:3], -1)  # (B, H, N, N)
        mixed, _ = self._mix(queries, unit(queries), values, seen, places, places)
        return mixed

    def _attend_hashed(self, queries: Tensor, values: Tensor, present: Tensor) -> Tensor:
        batch, heads, count, _ = queries.shape
        length = self.bucket_length
        filled = -count % length
        queries, values = (pad(one, (0, 0, 0, filled)) for one in (queries, values))  # (B, H, P, D)
        present = pad(present, (0, filled))  # (B, P)
        buckets = self._buckets(queries.detach()).masked_fill(~present[:, None, None], 2**30)  # (B, H, R, P)
        order = buckets.sort(dim=-1, stable=True).indices  # (B, H, R, P): token at each sorted place
        rounds, total = order.shape[2:]
        chunked = (batch, heads, -1, length)
        place = order.flatten(2)  # (B, H, R P)
        bucket = buckets.gather(-1, order) + torch.arange(rounds, device=order.device)[:, None] * 2**31
        rows = present[:, None].expand(-1, heads, -1).gather(-1, place).view(chunked)  # (B, H, G, m)
        index = place[..., None].expand(-1, -1, -1, values.shape[-1])
        q, v = (one.gather(2, index).unflatten(2, (-1, length)) for one in (queries, values))
        before = chunk_before(present, rounds, length)  # (B, G)
        by_chunk = (place.view(chunked), bucket.flatten(2).view(chunked), rows)
        places, own_bucket, _ = by_chunk
        key_places, key_bucket, seen = (beside(one, before) for one in by_chunk)  # (B, H, G, 2m)
        seen = seen[..., None, :].expand(-1, -1, -1, length, -1)  # (B, H, G, m, 2m)
        if self.past_only:
            sorted_place = torch.arange(rounds * total, device=order.device).view(1, 1, -1, length)
            distance = (
                sorted_place[..., None] - beside(sorted_place.expand(batch, -1, -1, -1), before)[..., None, :]
            )
            seen = seen & (own_bucket[..., None] == key_bucket[..., None, :]) & (distance <= length)
        mixed, weight = self._mix(q, beside(unit(q), before), beside(v, before), seen, places, key_places)
        back = order.argsort(dim=-1)  # (B, H, R, P)
        weight = weight.view(order.shape).gather(-1, back).softmax(dim=2)  # (B, H, R, P)
        mixed = mixed.reshape(*order.shape, -1).gather(3, back[..., None].expand(-1, -1, -1, -1, v.shape[-1]))
        return (weight[..., None] * mixed).sum(dim=2)[:, :, :count]

    def _buckets(self, points: Tensor) -> Tensor:
        """Bucket of each token in each round: (B, H, P, D) to int64 (B, H, R, P)."""
        rotations = self.rotations.to(points.dtype)
        if self.drawn_anew:
            rotations = torch.randn_like(rotations)
        rotated = torch.einsum("bhnd,hdrk->bhrnk", points, rotations)
        buckets, product = torch.zeros(rotated.shape[:-1], dtype=torch.int64, device=points.device), 1
        parts = rotated.split([factor // 2 for factor in self.factors], dim=-1)
        for factor, part in zip(self.factors, parts, strict=True):
            buckets = buckets + product * torch.cat([part, -part], dim=-1).argmax(dim=-1)
            product *= factor
        return buckets

    def _mix(
        self, queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor, places: Tensor, key_places: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Values mixed by softmax over the seen keys (..., m, D), and the log of its denominator (..., m)."""
        here, there = places[..., None], key_places[..., None, :]
        if self.causal:
            seen = seen & (there <= here)
        logits = (queries @ keys.transpose(-2, -1)).masked_fill(~seen, -torch.inf)
        logits = logits.masked_fill(here == there, ALONE)
        weights = dropout(logits.softmax(dim=-1), self.dropout, self.training)
        return weights @ values, logits.logsumexp(dim=-1)


def bucket_factors(tokens: int, length: int) -> list[int]:
    """The number of buckets as a list of even factors: one, or two.

    Two beyond 2 max(sqrt(tokens / length), length), as released: each is a hash of its own, at the cost of
    the square root.
    """
    power = max((2 * (tokens // length)).bit_length() - 1, 1)
    if 2**power <= 2 * max(int((tokens // length) ** 0.5), length) or power < 2:
        return [2**power]
    return [2 ** (power // 2), 2 ** (power - power // 2)]


def chunk_before(present: Tensor, rounds: int, length: int) -> Tensor:
    """The chunk that each sees beside itself, (B, G): the chunk before, without chunks of padding only."""
    chunks = present.shape[1] // length
    last = (present.sum(dim=1).clamp(min=1) - 1) // length  # (B,)
    index = torch.arange(rounds * chunks, device=present.device)  # (G,)
    wrapped = (index // chunks - 1) % rounds * chunks + last[:, None]  # (B, G)
    return torch.where(index % chunks == 0, wrapped, index - 1)


def beside(chunked: Tensor, before: Tensor) -> Tensor:
    """Each chunk and the chunk that it sees beside itself: (B, H, G, m, ...) to (B, H, G, 2m, ...)."""
    index = before[:, None].reshape(len(before), 1, -1, *[1] * (chunked.dim() - 3))
    return torch.cat([chunked, chunked.take_along_dim(index, dim=2)], dim=3)


def unit(points: Tensor) -> Tensor:
    """Points (..., D) divided by their lengths."""
    size = points.shape[-1]
    shrunk: Tensor = points * (points.square().mean(dim=-1, keepdim=True) + MIN_SQUARE).rsqrt()
    return shrunk / math.sqrt(size)
