"""Sparse attention and its BN and SH forms against softmax with the whole matrix, masked by the pattern."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from assay.models.attention import sparse as module
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.attention.sparse import SparseAttention
from assay.models.attention.sparse_bn import SparseAttentionBN
from assay.models.attention.sparse_bn_sh import SparseAttentionBNSH
from assay.models.attention.sparse_sh import SparseAttentionSH
from assay.models.layers.attention.scaled_heads import pool_tokens
from assay.models.layers.attention.sparse_patterns import Pattern
from assay.models.layers.heads import merge_heads, split_heads
from assay.service.catalog.rules import evaluate
from tests.models.attention.test_memory import LargestTensor

WIDTH, HEADS = 12, 3
PATTERNS = [("strided", 3, None), ("strided", 1, None), ("fixed", 3, 1), ("fixed", 4, 2), ("fixed", 1, 1)]


def tokens(count: int, seed: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3.0 * torch.randn(2, count, WIDTH, generator=generator, dtype=torch.float64)


def made(mechanism: type[nn.Module], **parameters: object) -> nn.Module:
    torch.manual_seed(1)
    return mechanism(WIDTH, HEADS, **parameters).double().eval()


def sees(query: int, key: int, name: str, stride: int, summary: int, *, causal: bool) -> bool:
    """Whether the pattern of Child et al. has the pair of places."""
    if causal and key > query:
        return False
    if name == "strided":
        return abs(query - key) < stride or (query - key) % stride == 0
    return query // stride == key // stride or key % stride >= stride - summary


def shown(count: int, keys: int, prefix: int, factor: int, *pattern: object, causal: bool = False) -> Tensor:
    """The pattern as a boolean matrix (N, M)."""
    matrix = torch.ones(count, keys, dtype=torch.bool)
    for i in range(count):
        for j in range(keys):
            if i >= prefix and j >= prefix:
                matrix[i, j] = sees((i - prefix) // factor, j - prefix, *pattern, causal=causal)  # type: ignore[arg-type]
            elif causal and j > i:
                matrix[i, j] = False
    return matrix


def whole(queries: Tensor, keys: Tensor, values: Tensor, matrix: Tensor) -> Tensor:
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
    return scores.masked_fill(~matrix, -torch.inf).softmax(-1) @ values


def parts(attention: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    return split_heads(attention.qkv(x), 3, HEADS)  # type: ignore[operator]


def output(attention: nn.Module, by_head: Tensor) -> Tensor:
    result: Tensor = attention.proj(merge_heads(by_head))  # type: ignore[operator]
    return result


@pytest.mark.sampled
@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 10, 13])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("pattern", "stride", "summary"), PATTERNS)
def test_equals_softmax_masked_by_the_pattern(
    pattern: str, stride: int, summary: int | None, causal: bool, count: int, prefix: int
) -> None:
    options = {"pattern": pattern, "stride": stride, "summary": summary}
    attention = made(SparseAttention, **options, prefix_tokens=prefix, causal=causal)
    x = tokens(count)
    matrix = shown(count, count, prefix, 1, pattern, stride, summary or 1, causal=causal)
    expected = output(attention, whole(*parts(attention, x), matrix))
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize(("pattern", "stride", "summary"), PATTERNS)
def test_scaled_heads_have_the_pattern_of_their_own_keys(
    pattern: str, stride: int, summary: int | None, count: int
) -> None:
    factors, x, beta = [1, 3, 2], tokens(count), 0.6
    options = {"pattern": pattern, "stride": stride, "summary": summary, "factors": factors}
    for attention in (made(SparseAttentionSH, **options), made(SparseAttentionBNSH, **options, beta=beta)):
        heads = []
        for head, factor in enumerate(factors):
            queries = parts(attention, x)[0][:, head]
            _, keys, values = (part[:, head] for part in parts(attention, pool_tokens(x, factor, 1)[0]))
            mean = (beta if "bn" in attention.name else 0.0) * keys.mean(1, keepdim=True)  # type: ignore[operator]
            matrix = shown(count, keys.shape[1], 1, factor, pattern, stride, summary or 1)
            heads.append(whole(queries - mean, keys - mean, values, matrix))
        expected = output(attention, torch.stack(heads, dim=1))
        torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("pattern", "stride"), [("strided", 1), ("strided", 20), ("fixed", 1), ("fixed", 20)]
)
def test_the_full_pattern_is_softmax(pattern: str, stride: int, causal: bool) -> None:
    attention = made(SparseAttention, pattern=pattern, stride=stride, causal=causal)
    softmax = made(SoftmaxAttention, causal=causal)
    softmax.load_state_dict(attention.state_dict())
    torch.testing.assert_close(attention(tokens(14)), softmax(tokens(14)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("form", ["beta", "full"])
@pytest.mark.parametrize("pattern", ["strided", "fixed"])
def test_bn_has_the_statistics_of_all_keys(pattern: str, form: str, causal: bool) -> None:
    attention = made(SparseAttentionBN, pattern=pattern, stride=3, form=form, beta=0.8, causal=causal)
    x = tokens(11)
    queries, keys, values = parts(attention, x)
    matrix = shown(11, 11, 1, 1, pattern, 3, 1, causal=causal)
    found = torch.zeros_like(values)
    for i in range(11):
        past = keys[:, :, : i + 1] if causal else keys
        mean, scale = 0.8 * past.mean(2, keepdim=True), 1.0
        if form == "full":
            scale = (past.var(2, correction=0, keepdim=True) + 1e-5).rsqrt()  # type: ignore[assignment]
        asked = (queries[:, :, i : i + 1] - mean) * scale
        found[:, :, i : i + 1] = whole(asked, (keys - mean) * scale, values, matrix[i : i + 1])
    torch.testing.assert_close(attention(x), output(attention, found), rtol=0, atol=1e-10)


def test_without_a_mean_and_with_factors_of_one_it_is_the_plain_mechanism() -> None:
    plain, x = made(SparseAttention, stride=3), tokens(11)
    others = (
        made(SparseAttentionBN, stride=3, beta=0.0),
        made(SparseAttentionSH, stride=3, factors=[1]),
        made(SparseAttentionBNSH, stride=3, factors=[1], beta=0.0),
    )
    for other in others:
        torch.testing.assert_close(other(x), plain(x), rtol=0, atol=1e-13)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("pattern", ["strided", "fixed"])
def test_masked_tokens_are_not_seen(pattern: str, causal: bool) -> None:
    attention, x = made(SparseAttention, pattern=pattern, stride=3, causal=causal), tokens(11)
    mask = torch.tensor([1, 1, 0, 0, 0, 0, 1, 1, 0, 1, 0], dtype=torch.bool).expand(2, -1)
    matrix = shown(11, 11, 1, 1, pattern, 3, 1, causal=causal) & mask[0]
    expected = output(attention, whole(*parts(attention, x), matrix))
    found = attention(x, mask=mask)
    torch.testing.assert_close(found[:, mask[0]], expected[:, mask[0]], rtol=0, atol=1e-12)
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("mechanism", [SparseAttentionSH, SparseAttentionBNSH])
def test_padding_does_not_count_in_scaled_heads(mechanism: type[nn.Module]) -> None:
    attention = made(mechanism, stride=2, factors=[1, 2, 3])
    for count in (2, 7, 9):
        mask = torch.arange(count + 4).expand(2, -1) < count
        padded = attention(torch.cat([tokens(count), 40 * tokens(4, 5)], dim=1), mask=mask)
        torch.testing.assert_close(padded[:, :count], attention(tokens(count)), rtol=0, atol=1e-11)


def test_sizes_follow_the_longest_sequence() -> None:
    assert Pattern("strided", None, None).sizes(196, 196) == (14, 1)
    assert Pattern("strided", None, None).sizes(196, 5) == (5, 1)
    assert Pattern("fixed", None, None).sizes(4096, 4096) == (64, 4)
    assert Pattern("fixed", 128, 8).sizes(4096, 1000) == (128, 8)


@pytest.mark.parametrize("mechanism", [SparseAttention, SparseAttentionBN, SparseAttentionSH])
@pytest.mark.parametrize("pattern", ["strided", "fixed"])
def test_memory_grows_with_n_root_n(mechanism: type[nn.Module], pattern: str) -> None:
    for count in (512, 2048):
        attention = mechanism(16, 2, pattern=pattern, tokens=count, prefix_tokens=0).eval()
        with torch.no_grad(), LargestTensor() as seen:
            attention(torch.zeros(1, count, 16))
        limit = 2 * count * 4.5 * math.sqrt(count)
        assert seen.elements <= limit < 2 * count * count / 2


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("pattern", ["strided", "fixed"])
def test_gradients(pattern: str, causal: bool) -> None:
    attention = made(SparseAttention, pattern=pattern, stride=2, causal=causal)
    x = (tokens(6)[:1] / 3).requires_grad_()
    assert torch.autograd.gradcheck(attention, (x,))


def test_dropout_acts_in_training_only() -> None:
    attention, x = made(SparseAttention, stride=3, dropout=0.5), tokens(11)
    assert torch.equal(attention(x), made(SparseAttention, stride=3)(x))
    attention.train()
    assert (attention(x) - made(SparseAttention, stride=3)(x)).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"pattern": "random"}, "pattern must be 'strided' or 'fixed': got 'random'"),
        ({"stride": 0}, "stride must be at least 1: got 0"),
        (
            {"pattern": "fixed", "stride": 2, "summary": 3},
            "must not be more than stride: got 3 and 2",
        ),
    ],
)
def test_refuses(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(SparseAttention, **parameters)


def test_rule_compares_summary_with_stride() -> None:
    ((rule, _),) = module.RULES
    for stride, summary, holds in ((None, 9, True), (4, None, True), (4, 4, True), (4, 5, False)):
        assert evaluate(rule, {"params": {"stride": stride, "summary": summary}}) is holds
