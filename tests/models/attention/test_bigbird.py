"""BigBird against dense softmax with the mask of its blocks, written out from the rule, and Hugging Face's.

`tests/vectors/huggingface_bigbird.npz` has outputs of transformers' `BigBirdBlockSparseAttention` with its
random blocks (`about` in it says how they were made); that package is not among the requirements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.models.attention.bigbird import BigBirdAttention
from assay.models.attention.softmax import SoftmaxAttention
from tests.models.attention.conftest import Vector

WIDTH, HEADS, SIZE, RANDOM = 12, 3, 2, 1
FULL = (5 + 2 * RANDOM) * SIZE


def made(**parameters: Any) -> BigBirdAttention:
    torch.manual_seed(0)
    given = {"block_size": SIZE, "random_blocks": RANDOM} | parameters
    attention = BigBirdAttention(WIDTH, HEADS, **given).double().eval()
    torch.nn.init.normal_(attention.qkv.weight, std=0.5)
    return attention


def tokens(count: int, batch: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(batch, count, WIDTH, generator=generator, dtype=torch.float64)


def counts_of(attention: BigBirdAttention, count: int) -> Tensor:
    """How often query i sees key j, (H, N, N), from the rule; the random blocks are the module's."""
    size = attention.block_size
    blocks = math.ceil(count / size)
    last = torch.tensor([blocks - 1])
    drawn, valid = (part[0, :, :, 5:] for part in attention._seen_blocks(HEADS, blocks, last))
    seen = torch.zeros(HEADS, blocks, blocks, dtype=torch.float64)
    for head in range(HEADS):
        for row in range(blocks):
            if row in (0, blocks - 1):
                seen[head, row] = 1
                continue
            for column in {0, row - 1, row, row + 1, blocks - 1}:
                seen[head, row, column] = 1
            for column, counts in zip(drawn[head, row].tolist(), valid[head, row].tolist(), strict=True):
                assert counts
                seen[head, row, column] += 1
    return seen.repeat_interleave(size, 1).repeat_interleave(size, 2)[:, :count, :count]


@torch.no_grad()
def explicit(attention: BigBirdAttention, x: Tensor) -> Tensor:
    q, k, v = (
        part.unflatten(2, (HEADS, WIDTH // HEADS)).transpose(1, 2)
        for part in attention.qkv(x).split(WIDTH, dim=-1)
    )
    scores = (q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)).exp() * counts_of(attention, x.shape[1])
    mixed = scores / scores.sum(dim=-1, keepdim=True) @ v
    return attention.proj(mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("count", [FULL + 1, FULL + 2, 21, 40])
@pytest.mark.parametrize("parameters", [{}, {"random_blocks": 0}, {"random_at": "training"}], ids=str)
def test_equals_softmax_with_the_mask_of_the_blocks(parameters: dict[str, Any], count: int) -> None:
    attention, x = made(**parameters), tokens(count)
    torch.testing.assert_close(attention(x), explicit(attention, x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", ["training", "evaluation", "masked"])
def test_equals_the_module_of_hugging_face(
    vector: Callable[[str], Vector], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    part = vector("huggingface_bigbird").case(case)
    x, mask, drawn = part["x"], part["mask"].bool(), part["random"].long()
    width, (heads, rows, blocks) = x.shape[2], drawn.shape
    attention = BigBirdAttention(
        width, heads, block_size=4, random_blocks=blocks, random_at="training"
    ).double()
    weights = {
        "qkv.weight": part["weight"],
        "qkv.bias": part["bias"],
        "proj.weight": torch.eye(width),
        "proj.bias": torch.zeros(width),
        "key": attention.key,
    }
    attention.load_state_dict(weights)
    rule = attention._seen_blocks

    def theirs(count: int, length: int, last: Tensor) -> tuple[Tensor, Tensor]:
        seen, valid = rule(count, length, last)
        seen[:, :, 1:-1, 5:], valid[:, :, 1:-1, 5:] = drawn, True
        return seen, valid

    training = bool(part["training"])
    if training:  # their draw is another; blocks 0 and T - 1 see all
        assert (rows, len(drawn.unique()) > 2) == (x.shape[1] // 4 - 2, True)
        monkeypatch.setattr(attention, "_seen_blocks", theirs)
    with torch.no_grad():
        output = attention.train(training)(x, mask=None if mask.all() else mask)
    torch.testing.assert_close(output[mask], part["out"][mask], rtol=1e-12, atol=1e-13)


def test_random_blocks_are_others_none_twice_and_differ_by_head_and_layer() -> None:
    attention = made(random_blocks=3)
    counts = counts_of(attention, 60)
    assert counts.max() == 1
    seen = counts[:, ::SIZE, ::SIZE].sum(dim=-1)  # of 30 blocks
    assert set(seen[:, 3:-3].flatten().tolist()) == {8.0}
    assert not torch.equal(counts[0], counts[1])
    torch.manual_seed(1)
    other = BigBirdAttention(WIDTH, HEADS, block_size=SIZE, random_blocks=3)
    assert not torch.equal(counts_of(other, 60), counts)


@pytest.mark.costly
def test_random_blocks_are_uniform() -> None:
    drawn = torch.zeros(20)
    for seed in range(300):
        torch.manual_seed(seed)
        attention = BigBirdAttention(WIDTH, HEADS, block_size=SIZE, random_blocks=3)
        seen, _ = attention._seen_blocks(HEADS, 20, torch.tensor([19]))
        drawn += torch.bincount(seen[0, :, 10, 5:].flatten(), minlength=20)
    legal = [column for column in range(1, 19) if abs(column - 10) > 1]
    assert drawn.sum() == drawn[legal].sum() == 300 * HEADS * 3
    expected = drawn.sum() / len(legal)
    # A share of 1/5 in each of 900 sets of three: the variance is 900 x 0.2 x 0.8.
    assert (drawn[legal] - expected).abs().max() < 4 * math.sqrt(900 * 0.2 * 0.8)


@pytest.mark.parametrize("count", [1, FULL])
def test_short_sequences_have_full_attention(count: int) -> None:
    attention, x = made(), tokens(count)
    softmax = SoftmaxAttention(WIDTH, HEADS).double()
    softmax.load_state_dict({name: part for name, part in attention.state_dict().items() if name != "key"})
    torch.testing.assert_close(attention(x), softmax(x))


@pytest.mark.parametrize("own", [1, 5, FULL - 1, FULL, FULL + 1, 20, 21, 31])
def test_padding_after_the_tokens_changes_nothing(own: int) -> None:
    attention, x = made(), tokens(32)
    mask = torch.ones(2, 32, dtype=torch.bool)
    mask[0, own:] = False
    x = torch.where(mask[..., None], x, 50 * x)
    output = attention(x, mask=mask)
    torch.testing.assert_close(output[:1, :own], attention(x[:1, :own]), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(output[1:], attention(x[1:]), rtol=1e-10, atol=1e-12)


def test_masked_tokens_before_and_between_are_not_seen() -> None:
    attention, x = made(), tokens(32)
    mask = torch.ones(2, 32, dtype=torch.bool)
    mask[0, :7] = mask[1, 11:15] = False
    changed = torch.where(mask[..., None], x, 50 * x)
    assert torch.isfinite(attention(changed, mask=mask)).all()
    torch.testing.assert_close(attention(changed, mask=mask)[mask], attention(x, mask=mask)[mask])


def test_gradients_with_blocks_of_padding_are_finite_and_right() -> None:
    attention, x = made(), tokens(18, batch=1)
    mask = torch.arange(18)[None] >= 5
    assert torch.autograd.gradcheck(lambda given: attention(given, mask=mask)[mask], (x.requires_grad_(),))
    (gradient,) = torch.autograd.grad(attention(x, mask=mask).sum(), x)
    assert torch.isfinite(gradient).all()


def test_random_blocks_in_training_only_follow_the_mode() -> None:
    attention, x = made(random_at="training"), tokens(40)
    evaluated = attention(x)
    assert not torch.allclose(attention.train()(x), evaluated)
    torch.testing.assert_close(attention(x), explicit(attention, x))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"block_size": 0}, "block_size must be at least 1 and random_blocks at least 0: got 0 and 1"),
        ({"random_blocks": -1}, "block_size must be at least 1 and random_blocks at least 0: got 2 and -1"),
        ({"random_at": "never"}, "random_at must be 'always' or 'training': got 'never'"),
    ],
)
def test_refuses_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**parameters)
