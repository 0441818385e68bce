"""Attention-Conv1D and -Conv2D: the identity kernel is softmax, and the kernels against loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay.models.attention import conv2d_attention
from assay.models.attention.conv1d_attention import Conv1DAttention
from assay.models.attention.conv2d_attention import Conv2DAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.heads import attend, merge_heads, split_heads
from assay.models.lm import lm
from assay.service.catalog.rules import UnknownName, evaluate

WIDTH, HEADS, GRID = 12, 3, (3, 5)
TOKENS = 1 + GRID[0] * GRID[1]


def tokens(count: int = TOKENS, seed: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2.0 * torch.randn(2, count, WIDTH, generator=generator, dtype=torch.float64)


def any_kernel(attention: nn.Module) -> nn.Module:
    with torch.no_grad():
        attention.kernel.normal_(generator=torch.Generator().manual_seed(4))  # type: ignore[operator]
    return attention.double().eval()


def from_parts(attention: nn.Module, parts: list[Tensor], *, causal: bool = False) -> Tensor:
    queries, keys, values = (split_heads(part, 1, HEADS)[0] for part in parts)
    result: Tensor = attention.proj(merge_heads(attend(queries, keys, values, None, 0.0, causal=causal)))  # type: ignore[operator]
    return result


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("mechanism", [Conv1DAttention, Conv2DAttention])
def test_begins_as_softmax(mechanism: type[nn.Module], size: int) -> None:
    attention, softmax = mechanism(WIDTH, HEADS, size=size).double(), SoftmaxAttention(WIDTH, HEADS).double()
    state = attention.state_dict()
    assert state.pop("kernel").numel() == (size if mechanism is Conv1DAttention else size * size)
    softmax.load_state_dict(state)
    torch.testing.assert_close(attention(tokens(), grid=GRID), softmax(tokens()), rtol=0, atol=1e-13)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("size", [1, 2, 4, 5])
@pytest.mark.parametrize("prefix", [0, 1])
def test_conv1d_equals_a_loop(prefix: int, size: int, causal: bool) -> None:
    attention = any_kernel(Conv1DAttention(WIDTH, HEADS, size=size, prefix_tokens=prefix, causal=causal))
    x = tokens(7)
    parts = list(attention.qkv(x).chunk(3, dim=-1))  # type: ignore[operator]
    first = -(size - 1) if causal else -((size - 1) // 2)
    for part in (0, 1):
        old, new = parts[part], parts[part].clone()
        for place in range(prefix, 7):
            new[:, place] = 0.0
            for step in range(size):
                if prefix <= place + first + step < 7:
                    new[:, place] += attention.kernel[step] * old[:, place + first + step]  # type: ignore[index]
        parts[part] = new
    torch.testing.assert_close(attention(x), from_parts(attention, parts, causal=causal), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("prefix", [0, 1])
def test_conv2d_equals_a_loop(prefix: int, size: int) -> None:
    attention = any_kernel(Conv2DAttention(WIDTH, HEADS, size=size, prefix_tokens=prefix))
    x = tokens(prefix + 15)
    parts = list(attention.qkv(x).chunk(3, dim=-1))  # type: ignore[operator]
    before = (size - 1) // 2
    for part in (0, 1):
        old, new = parts[part], parts[part].clone()
        for row, column in ((r, c) for r in range(3) for c in range(5)):
            total = torch.zeros_like(old[:, 0])
            for down, right in ((a, b) for a in range(size) for b in range(size)):
                r, c = row + down - before, column + right - before
                if 0 <= r < 3 and 0 <= c < 5:
                    total = total + attention.kernel[down, right] * old[:, prefix + 5 * r + c]  # type: ignore[index]
            new[:, prefix + 5 * row + column] = total
        parts[part] = new
    torch.testing.assert_close(attention(x, grid=GRID), from_parts(attention, parts), rtol=0, atol=1e-12)


@pytest.mark.parametrize("mechanism", [Conv1DAttention, Conv2DAttention])
def test_masked_tokens_count_as_zeros_beyond_the_end(mechanism: type[nn.Module]) -> None:
    """The last row of patches masked is a grid without it."""
    attention = any_kernel(mechanism(WIDTH, HEADS, size=3))
    x, kept = tokens(), 1 + 2 * 5
    mask = torch.arange(TOKENS).expand(2, -1) < kept
    masked = attention(x, grid=GRID, mask=mask)
    torch.testing.assert_close(masked[:, :kept], attention(x[:, :kept], grid=(2, 5)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("mechanism", [Conv1DAttention, Conv2DAttention])
def test_gradients(mechanism: type[nn.Module]) -> None:
    attention = any_kernel(mechanism(WIDTH, HEADS))
    x = tokens(7)[:1].requires_grad_()

    def run(x: Tensor, kernel: Tensor) -> Tensor:
        output: Tensor = torch.func.functional_call(attention, {"kernel": kernel}, (x,), {"grid": (2, 3)})
        return output

    assert torch.autograd.gradcheck(run, (x, attention.kernel.detach().clone().requires_grad_()))  # type: ignore[union-attr, operator]


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (None, "needs the grid of an image's patches"),
        ((2, 5), "grid must have the 15 patches of the sequence"),
    ],
)
def test_conv2d_refuses_what_is_no_image(grid: tuple[int, int] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Conv2DAttention(WIDTH, HEADS)(torch.zeros(1, TOKENS, WIDTH), grid=grid)


def test_conv2d_is_refused_by_rule_in_models_of_sequences() -> None:
    ((rule, _),) = conv2d_attention.RULES
    assert not evaluate(rule, {"model": {"image_plane": False}})
    with pytest.raises(UnknownName):  # skipped: models of images do not state it
        evaluate(rule, {"model": {"image_size": 224}})


@pytest.mark.parametrize("mechanism", [Conv1DAttention, Conv2DAttention])
def test_a_kernel_has_a_size(mechanism: type[nn.Module]) -> None:
    with pytest.raises(ValueError, match="size must be at least 1: got 0"):
        mechanism(WIDTH, HEADS, size=0)


def test_a_language_model_keeps_its_order() -> None:
    model = lm(
        50, 50, width=12, depth=2, heads=3, hidden=16, length=8, cutoffs=[], attention="conv1d_attention"
    )
    for block in model.blocks:  # type: ignore[union-attr]
        any_kernel(block.attn)  # type: ignore[arg-type]
    model.double().eval()
    words = torch.tensor([[3, 5, 7, 9, 11]])
    changed = torch.tensor([[3, 5, 7, 9, 12]])
    with torch.no_grad():
        torch.testing.assert_close(model(changed)[:, :4], model(words)[:, :4], rtol=0, atol=1e-12)
        assert (model(changed)[:, 4] - model(words)[:, 4]).abs().max() > 1e-6
