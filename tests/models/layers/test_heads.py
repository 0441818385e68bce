from __future__ import annotations

import inspect
from typing import Any, Unpack

import pytest
import torch

from assay.models.layers.heads import (
    CausalParameters,
    HeadParameters,
    HeadProjections,
    attend,
    has_causal_form,
    merge_heads,
    running_sum,
    split_heads,
)


class Grouped(HeadProjections):
    def __init__(
        self, dim: int, heads: int, *, causal: bool = True, **shared: Unpack[HeadParameters]
    ) -> None:
        super().__init__(dim, heads, **shared)


class TwiceGrouped(Grouped):
    def __init__(self, dim: int, heads: int, **shared: Unpack[CausalParameters]) -> None:
        super().__init__(dim, heads, **shared)


class Untyped(HeadProjections):
    def __init__(self, dim: int, heads: int, **options: Any) -> None:
        super().__init__(dim, heads, **options)


class Bare(Grouped):
    pass


@pytest.mark.parametrize(
    ("mechanism", "shown"),
    [
        (Grouped, {"causal": True, "prefix_tokens": 1, "dropout": 0.0}),
        (TwiceGrouped, {"prefix_tokens": 1, "dropout": 0.0, "causal": True}),
        (Bare, {"causal": True, "prefix_tokens": 1, "dropout": 0.0}),
    ],
)
def test_a_signature_shows_the_parameters_of_its_group(
    mechanism: type[HeadProjections], shown: dict[str, object]
) -> None:
    parameters = inspect.signature(mechanism).parameters.values()
    given = {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert list(given.items()) == list(shown.items())
    assert has_causal_form(mechanism)
    assert mechanism(6, 2, dropout=0.25).dropout == 0.25


def test_keywords_without_a_group_stay_as_they_are() -> None:
    assert list(inspect.signature(Untyped).parameters) == ["dim", "heads", "options"]
    assert not has_causal_form(Untyped)


def test_a_group_refuses_other_names() -> None:
    with pytest.raises(TypeError, match="dropuot"):
        Grouped(6, 2, dropuot=0.5)  # type: ignore[call-arg]


def test_split_is_parts_first_then_head_major() -> None:
    projected = torch.arange(2 * 3 * 12).reshape(2, 3, 12)  # two parts of width 6, two heads of width 3
    keys, values = split_heads(projected, 2, 2)
    assert keys.shape == values.shape == (2, 2, 3, 3)
    assert torch.equal(keys[1, 0], projected[1, :, 0:3])
    assert torch.equal(values[0, 1], projected[0, :, 9:12])


def test_merge_undoes_split() -> None:
    projected = torch.randn(2, 3, 12)
    keys, values = split_heads(projected, 2, 2)
    assert torch.equal(torch.cat([merge_heads(keys), merge_heads(values)], dim=-1), projected)


@pytest.mark.parametrize("masked", [False, True])
def test_causal_attention_sees_no_later_token(masked: bool) -> None:
    queries, keys, values = torch.randn(3, 2, 3, 6, 4, dtype=torch.float64)
    mask = torch.tensor([[True] * 6, [True, True, False, True, True, False]]) if masked else None
    allowed = torch.ones(6, 6, dtype=torch.bool).tril()
    if mask is not None:
        allowed = (allowed & mask[:, None, None, :]) | torch.eye(6, dtype=torch.bool)
    scores = (queries @ keys.transpose(-1, -2) / 2.0).masked_fill(~allowed, -torch.inf)
    expected = torch.softmax(scores, dim=-1) @ values
    output = attend(queries, keys, values, mask, 0.0, causal=True)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


def test_padding_before_the_first_token_gives_no_row_without_keys() -> None:
    queries, keys, values = torch.randn(3, 1, 1, 4, 2)
    mask = torch.tensor([[False, False, True, True]])
    assert torch.isfinite(attend(queries, keys, values, mask, 0.0, causal=True)).all()


@pytest.mark.parametrize("tokens", [1, 2, 7, 8, 197])
def test_running_sum(tokens: int) -> None:
    values = torch.randn(2, 3, tokens, 2, dtype=torch.float64, requires_grad=True)
    sums = running_sum(values)
    torch.testing.assert_close(sums, values.cumsum(dim=-2), rtol=0, atol=1e-12)
    (gradient,) = torch.autograd.grad(sums.sum(), values)
    later = torch.arange(tokens, 0, -1, dtype=torch.float64)[:, None].expand_as(values)
    torch.testing.assert_close(gradient, later, rtol=0, atol=1e-12)
    torch.testing.assert_close(running_sum(values[:, :, :-1]), sums[:, :, :-1], rtol=0, atol=0)
