"""Informer against its algorithm written out query by query, and against softmax where all are taken."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.models.attention.informer import InformerAttention, query_count
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.keyed_draws import keyed_uniform

WIDTH, HEADS = 12, 3
SIZE = WIDTH // HEADS


def made(**parameters: Any) -> InformerAttention:
    torch.manual_seed(0)
    given = {"factor": 2, "tokens": 40} | parameters
    attention = InformerAttention(WIDTH, HEADS, **given).double().eval()
    torch.nn.init.normal_(attention.qkv.weight, std=0.5)
    return attention


def tokens(count: int, batch: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(batch, count, WIDTH, generator=generator, dtype=torch.float64)


def explicit_head(attention: InformerAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One head of one example without padding, (N, D)."""
    count = len(q)
    u = query_count(attention.tokens if attention.past_only else count, attention.factor)
    measures = []
    for row in range(count):
        pool = row + 1 if attention.past_only else count
        draws = [
            int(float(keyed_uniform(attention.key, torch.tensor(row), torch.tensor(draw))) * pool)
            for draw in range(min(u, pool))
        ]
        products = [float(q[row] @ k[one]) for one in draws]
        measures.append(max(products) - sum(products) / pool)
    output = torch.zeros_like(v)
    for row in range(count):
        if attention.past_only:
            before = sorted(measures[: row // u * u], reverse=True)
            taken = len(before) < u or measures[row] > before[u - 1]
        else:
            taken = sum(other > measures[row] for other in measures) < u
        visible = row + 1 if attention.causal else count
        if taken:
            output[row] = (q[row] @ k[:visible].T / math.sqrt(SIZE)).softmax(0) @ v[:visible]
        else:
            output[row] = v[:visible].sum(dim=0) if attention.causal else v.mean(dim=0)
    return output


@torch.no_grad()
def explicit(attention: InformerAttention, x: Tensor) -> Tensor:
    parts = [part.split(SIZE, dim=-1) for part in attention.qkv(x).split(WIDTH, dim=-1)]
    heads = [
        torch.stack(
            [explicit_head(attention, *one) for one in zip(*(part[head] for part in parts), strict=True)]
        )
        for head in range(HEADS)
    ]
    return attention.proj(torch.cat(heads, dim=-1))


@pytest.mark.sampled
@pytest.mark.parametrize("count", [1, 2, 9, 25, 40])
@pytest.mark.parametrize(
    "parameters", [{}, {"factor": 1}, {"causal": True}, {"causal": True, "factor": 1}], ids=str
)
def test_equals_the_algorithm_query_by_query(parameters: dict[str, Any], count: int) -> None:
    attention, x = made(**parameters), tokens(count)
    torch.testing.assert_close(attention(x), explicit(attention, x), rtol=1e-10, atol=1e-12)


def test_the_released_causal_choice_is_among_all_queries() -> None:
    attention, x = made(causal=True, choice="sequence"), tokens(40)
    torch.testing.assert_close(attention(x), explicit(attention, x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("factor", [None, 16])
def test_is_softmax_where_every_query_is_taken(causal: bool, factor: int | None) -> None:
    attention, x = made(causal=causal, factor=factor), tokens(40)
    softmax = SoftmaxAttention(WIDTH, HEADS, causal=causal).double()
    softmax.load_state_dict({name: part for name, part in attention.state_dict().items() if name != "key"})
    torch.testing.assert_close(attention(x), softmax(x))


@pytest.mark.parametrize(
    ("count", "factor", "expected"),
    [
        (1, None, 1),
        (2, None, 2),
        (100, None, 100),
        (197, None, 150),
        (4096, None, 144),
        (96, 5, 25),
        (8192, 5, 50),
    ],
)
def test_number_of_queries(count: int, factor: int | None, expected: int) -> None:
    # 197: ceil(128 / 5.28) ceil(5.28) = 25 * 6; 4096: ceil(128 / 8.32) ceil(8.32) = 16 * 9.
    assert query_count(count, factor) == expected


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("present", [range(25), range(15, 40), (0, 3, 4, 7, 8, 9, 15, 31, 39), (5,)], ids=str)
def test_padding_anywhere_changes_nothing(causal: bool, present: Any) -> None:
    attention, rows = made(causal=causal), list(present)
    mask = torch.ones(2, 40, dtype=torch.bool)
    mask[0] = False
    mask[0, rows] = True
    x = torch.where(mask[..., None], tokens(40), 50 * tokens(40))
    output = attention(x, mask=mask)
    torch.testing.assert_close(output[:1, rows], attention(x[:1, rows]), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(output[1:], attention(x[1:]), rtol=1e-10, atol=1e-12)


def test_the_released_form_ignores_the_mask() -> None:
    attention, x = made(padding="released"), tokens(40)
    mask = torch.arange(40).expand(2, -1) < 25
    assert torch.equal(attention(x, mask=mask), attention(x))
    assert not torch.allclose(attention(x)[:, :25], attention(x[:, :25]))


@pytest.mark.parametrize(("choice", "causal"), [("past", True), ("sequence", False)])
def test_later_tokens_decide_in_the_released_form_only(choice: str, causal: bool) -> None:
    attention = made(causal=True, choice=choice)
    x = tokens(40, batch=8)
    changed = x.clone()
    changed[:, 30:] = 3 * tokens(10, batch=8)
    assert torch.allclose(attention(changed)[:, :30], attention(x)[:, :30], rtol=1e-10, atol=1e-12) is causal
    assert attention.sees_later_tokens is not causal


@pytest.mark.costly
@pytest.mark.parametrize("causal", [False, True])
def test_gradient_equals_finite_differences(causal: bool) -> None:
    attention = made(causal=causal, factor=1)
    assert torch.autograd.gradcheck(attention, (tokens(14, batch=1).requires_grad_(),))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"factor": 0}, "factor must be at least 1, or absent: got 0"),
        ({"padding": "ignored"}, "padding must be 'respected' or 'released': got 'ignored'"),
        ({"choice": "all"}, "choice must be 'past' or 'sequence': got 'all'"),
    ],
)
def test_refuses_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**parameters)
