"""Reformer against Hugging Face's, hashing and masks written out token by token, and shared-QK softmax.

`tests/vectors/huggingface_reformer.npz` has outputs of transformers' `LSHSelfAttention` (`about` in it says
how they were made); that package is not among the requirements. `explicit` follows the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.models.attention.reformer import ReformerAttention, bucket_factors
from tests.models.attention.conftest import Vector

WIDTH, HEADS, LENGTH = 12, 3, 4
SIZE = WIDTH // HEADS


def made(**parameters: Any) -> ReformerAttention:
    torch.manual_seed(0)
    given = {"bucket_length": LENGTH, "tokens": 24} | parameters
    attention = ReformerAttention(WIDTH, HEADS, **given).double().eval()
    torch.nn.init.normal_(attention.qkv.weight, std=0.5)
    return attention


def tokens(count: int, batch: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(batch, count, WIDTH, generator=generator, dtype=torch.float64)


def buckets(attention: ReformerAttention, points: Tensor, head: int, turn: int) -> list[int]:
    found = []
    for point in points:
        first, number, product = 0, 0, 1
        for factor in attention.factors:
            rotation = attention.rotations[head, :, turn, first : first + factor // 2]
            rotated = (point @ rotation).tolist()
            both = rotated + [-value for value in rotated]
            number += product * max(range(factor), key=both.__getitem__)
            first, product = first + factor // 2, product * factor
        found.append(number)
    return found


def explicit_head(attention: ReformerAttention, q: Tensor, v: Tensor, head: int) -> Tensor:
    """One head of one example without padding, (N, D)."""
    count, turns = len(q), attention.rotations.shape[2]
    keys = q / (q.square().mean(dim=1, keepdim=True) + 1e-6).sqrt() / math.sqrt(SIZE)
    orders, mixes, sums = [], [], []
    for turn in range(turns):
        bucket = buckets(attention, q, head, turn)
        orders.append(sorted(range(count), key=lambda token, bucket=bucket: (bucket[token], token)))
    for turn, order in enumerate(orders):
        bucket = buckets(attention, q, head, turn)
        mix, log_sum = torch.zeros_like(v), torch.zeros(count, dtype=v.dtype)
        for place, token in enumerate(order):
            if attention.past_only:
                visible = [
                    other
                    for s, other in enumerate(order)
                    if bucket[other] == bucket[token] and 0 <= place - s <= LENGTH
                ]
            else:
                chunk, last = place // LENGTH, (count - 1) // LENGTH
                visible = order[chunk * LENGTH : (chunk + 1) * LENGTH]
                if chunk:
                    visible = visible + order[(chunk - 1) * LENGTH : chunk * LENGTH]
                else:
                    visible = visible + orders[turn - 1][last * LENGTH :]
            logits = torch.stack([q[token] @ keys[other] for other in visible])
            for spot, other in enumerate(visible):
                if attention.causal and other > token:
                    logits[spot] = -math.inf
                if other == token:
                    logits[spot] = -1e5
            mix[token], log_sum[token] = logits.softmax(0) @ v[visible], logits.logsumexp(0)
        mixes.append(mix)
        sums.append(log_sum)
    shares = torch.stack(sums).softmax(dim=0)[..., None]
    return (shares * torch.stack(mixes)).sum(dim=0)


@torch.no_grad()
def explicit(attention: ReformerAttention, x: Tensor) -> Tensor:
    shared, values = attention.qkv(x).split(WIDTH, dim=-1)
    heads = [
        torch.stack(
            [
                explicit_head(attention, q, v, head)
                for q, v in zip(
                    shared.split(SIZE, dim=-1)[head], values.split(SIZE, dim=-1)[head], strict=True
                )
            ]
        )
        for head in range(HEADS)
    ]
    return attention.proj(torch.cat(heads, dim=-1))


@pytest.mark.sampled
@pytest.mark.parametrize("count", [8, 12, 19, 24])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"hashes": 1},
        {"hashes": 3, "tokens": 200},  # two factors
        {"causal": True},
        {"causal": True, "hashes": 3},
        {"causal": True, "chunks": "released"},
    ],
    ids=str,
)
def test_equals_hashing_token_by_token(parameters: dict[str, Any], count: int) -> None:
    attention, x = made(**parameters), tokens(count)
    torch.testing.assert_close(attention(x), explicit(attention, x), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("case", ["plain", "factors", "causal", "masked"])
def test_equals_the_module_of_hugging_face(vector: Callable[[str], Vector], case: str) -> None:
    part = vector("huggingface_reformer").case(case)
    x, mask, rotations, factors = part["x"], part["mask"].bool(), part["rotations"], part["factors"]
    heads, _, rounds, _ = rotations.shape
    attention = ReformerAttention(
        x.shape[2],
        int(heads),
        hashes=int(rounds),
        bucket_length=int(part["chunk"]),
        tokens=x.shape[1],
        causal=bool(part["causal"]),
        chunks="released",
    ).double()
    assert attention.factors == [int(factor) for factor in factors]
    weights = {
        "qkv.weight": torch.cat([part["query_key"], part["value"]]),
        "qkv.bias": torch.zeros(2 * x.shape[2]),
        "proj.weight": torch.eye(x.shape[2]),
        "proj.bias": torch.zeros(x.shape[2]),
        "rotations": rotations,
    }
    attention.load_state_dict(weights)
    with torch.no_grad():
        points = (x @ part["query_key"].T).unflatten(2, (int(heads), -1)).transpose(1, 2)
        found = attention._buckets(points).masked_fill(~mask[:, None, None], math.prod(attention.factors))
        output = attention.eval()(x, mask=None if mask.all() else mask)
    # Theirs have another offset in each round, and padding may be a bucket more.
    step = math.prod(attention.factors) + (0 if mask.all() else 1)
    assert torch.equal(found + step * torch.arange(rounds)[:, None], part["buckets"].long())
    torch.testing.assert_close(output[mask], part["out"][mask], rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("hashes", [1, 2])
def test_within_one_chunk_it_is_softmax_of_shared_queries_and_keys_without_oneself(
    causal: bool, hashes: int
) -> None:
    attention, x = made(bucket_length=32, hashes=hashes, causal=causal), tokens(9)
    with torch.no_grad():
        q, v = (
            part.unflatten(2, (HEADS, SIZE)).transpose(1, 2) for part in attention.qkv(x).split(WIDTH, -1)
        )
        scores = q @ torch.nn.functional.normalize(q, dim=-1).transpose(-2, -1)
        scores = scores.masked_fill(torch.eye(9, dtype=torch.bool), -math.inf)
        if causal:
            scores = scores.masked_fill(torch.ones(9, 9).triu(1).bool(), -math.inf)
            scores[..., 0, 0] = 0.0  # the first token has no other
        expected = attention.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x), expected, rtol=1e-5, atol=1e-6)  # 1e-6 is added to the squares


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "present", [range(11), range(9, 20), (0, 3, 4, 7, 8, 9, 15), (5,), (2, 6, 7)], ids=str
)
def test_padding_anywhere_changes_nothing(causal: bool, present: Any) -> None:
    attention, rows = made(causal=causal), list(present)
    mask = torch.zeros(2, 20, dtype=torch.bool)
    mask[:, rows] = True
    x = torch.where(mask[..., None], tokens(20), 50 * tokens(20))
    torch.testing.assert_close(attention(x, mask=mask)[:, rows], attention(x[:, rows]), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("chunks", "causal"), [("past", True), ("released", False)])
def test_later_tokens_decide_what_is_seen_in_the_released_form_only(chunks: str, causal: bool) -> None:
    attention = made(causal=True, chunks=chunks)
    x = tokens(24, batch=16)
    changed = x.clone()
    changed[:, 20:] = tokens(4, batch=16)
    same = torch.isclose(attention(changed)[:, :20], attention(x)[:, :20], rtol=1e-9, atol=1e-11).all()
    assert bool(same) is causal
    assert attention.sees_later_tokens is not causal


@pytest.mark.costly
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("count", [3, 11])
def test_gradient_equals_finite_differences(causal: bool, count: int) -> None:
    attention = made(causal=causal)
    assert torch.autograd.gradcheck(attention, (tokens(count, batch=1).requires_grad_(),))


def test_rotations_are_stored_unless_each_pass_draws() -> None:
    stored, anew, x = made(), made(rotations="each_pass"), tokens(24)
    assert torch.equal(stored(x), stored(x))
    assert not torch.equal(anew(x), anew(x))
    assert "rotations" in stored.state_dict()


@pytest.mark.parametrize(
    ("count", "length", "factors"),
    [
        (16, 64, [2]),
        (197, 64, [4]),
        (1024, 64, [32]),
        (4096, 64, [128]),
        (8192, 64, [16, 16]),
        (512, 4, [16, 16]),
    ],
)
def test_number_of_buckets_is_the_released_one(count: int, length: int, factors: list[int]) -> None:
    assert bucket_factors(count, length) == factors


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hashes": 0}, "hashes must be at least 1: got 0"),
        ({"bucket_length": 0}, "bucket_length must be at least 1: got 0"),
        ({"rotations": "new"}, "rotations must be 'stored' or 'each_pass': got 'new'"),
        ({"chunks": "sorted"}, "chunks must be 'past' or 'released': got 'sorted'"),
    ],
)
def test_refuses_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**parameters)
