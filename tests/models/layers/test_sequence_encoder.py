"""The encoder of sequences: both forms against torch's own layers, padding, pooling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.sequence_encoder import SequenceEncoder, pool, with_one_place

WIDTH, HEADS, HIDDEN, LENGTH, DEPTH = 12, 3, 20, 9, 2
LENGTHS = (9, 4, 1)


def made(**options: Any) -> SequenceEncoder:
    torch.manual_seed(0)
    encoder = SequenceEncoder(
        [SoftmaxAttention] * DEPTH, width=WIDTH, heads=HEADS, hidden=HIDDEN, length=LENGTH, **options
    )
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return encoder.double().eval()


def sequences() -> tuple[Tensor, Tensor]:
    """Three sequences of 9, 4 and 1 places, (3, 9, C), and their mask (3, 9)."""
    x = torch.randn(3, LENGTH, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return x, torch.arange(LENGTH) < torch.tensor(LENGTHS)[:, None]


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_equals_torchs_encoder(norm_first: bool, activation: Any) -> None:
    encoder = made(norm_first=norm_first, activation=activation)
    theirs = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(
            WIDTH, HEADS, HIDDEN, dropout=0.0, activation=activation, batch_first=True, norm_first=norm_first
        ),
        DEPTH,
        nn.LayerNorm(WIDTH),
        enable_nested_tensor=False,
    ).double()
    names = {"self_attn.in_proj_": "attn.qkv.", "self_attn.out_proj": "attn.proj", "linear": "fc"}
    weights = {}
    for name in theirs.state_dict():
        ours = name.replace("layers.", "blocks.")
        for their, our in names.items():
            ours = ours.replace(their, our)
        weights[name] = encoder.state_dict()[ours]
    theirs.load_state_dict(weights)
    x, mask = sequences()
    expected = theirs.train()(x + encoder.positions, src_key_padding_mask=~mask)
    assert_close(encoder(x, mask)[mask], expected[mask], rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"norm_first": False, "normalization": "batch"}])
def test_padding_and_other_sequences_change_nothing(options: Any) -> None:
    encoder, (x, mask) = made(**options), sequences()
    together = encoder(x, mask)
    changed = encoder(torch.where(mask[..., None], x, 7.0), mask)
    assert_close(changed[mask], together[mask], rtol=0, atol=1e-12)
    for number, length in enumerate(LENGTHS):
        alone = encoder(x[number : number + 1, :length])
        assert_close(alone[0], together[number, :length], rtol=0, atol=1e-12)


class MeanAttention(nn.Module):
    """Gives every place the mean over all of them, padding too."""

    padding_invariant = False

    def __init__(self, dim: int, heads: int, *, prefix_tokens: int = 1, tokens: int = 197) -> None:
        super().__init__()
        assert (prefix_tokens, tokens) == (0, LENGTH)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, *, grid: Any = None, mask: Tensor | None = None) -> Tensor:
        output: Tensor = self.proj(x.mean(1, keepdim=True).expand_as(x))
        return output


def test_attention_that_sees_padding_gets_the_full_length() -> None:
    torch.manual_seed(0)
    encoder = SequenceEncoder([MeanAttention], width=WIDTH, heads=1, hidden=8, length=LENGTH).double().eval()
    x, mask = sequences()
    together = encoder(torch.where(mask[..., None], x, 0.0), mask)
    for number, length in enumerate(LENGTHS):
        for seen in (None, mask[number : number + 1, :length]):
            alone = encoder(x[number : number + 1, :length], seen)
            assert alone.shape[1] == length
            assert_close(alone[0], together[number, :length], rtol=0, atol=1e-12)


def test_places_differ() -> None:
    encoder, (x, _) = made(), sequences()
    assert (encoder(x).flip(1) - encoder(x.flip(1))).abs().max() > 1e-3


def test_pooling() -> None:
    x, mask = sequences()
    for number, length in enumerate(LENGTHS):
        kept = x[number, :length]
        assert_close(pool(x, mask, "mean", LENGTH)[number], kept.mean(0), rtol=0, atol=1e-14)
        assert_close(pool(x, mask, "released", LENGTH)[number], kept.sum(0) / LENGTH, rtol=0, atol=1e-14)
        assert torch.equal(pool(x, mask, "last", LENGTH)[number], kept[-1])
    assert_close(pool(x, None, "mean", LENGTH), x.mean(1), rtol=0, atol=1e-14)


def test_a_sequence_without_places_counts_as_its_first() -> None:
    x, mask = sequences()
    mask[2] = False
    assert with_one_place(mask)[2].tolist() == [True] + [False] * (LENGTH - 1)
    features = made()(x, mask)
    assert torch.isfinite(features).all()
    assert torch.equal(pool(features, mask, "mean", LENGTH)[2], features[2, 0])


def test_batch_norm_trains_on_batch_and_places() -> None:
    encoder, (x, _) = made(normalization="batch").train(), sequences()
    before = encoder.blocks[0].norm1.running_mean.clone()  # type: ignore[union-attr, operator]
    encoder(x)
    expected = 0.9 * before + 0.1 * (x + encoder.positions).mean((0, 1))
    assert_close(encoder.blocks[0].norm1.running_mean, expected, rtol=0, atol=1e-12)  # type: ignore[union-attr]


def test_the_gradient_reaches_every_weight() -> None:
    encoder, (x, mask) = made(dropout=0.1).train(), sequences()
    torch.manual_seed(0)
    pool(encoder(x, mask), mask, "mean", LENGTH).square().sum().backward()
    assert all(it.grad is not None and it.grad.any() for it in encoder.parameters())


def test_what_does_not_fit_is_refused() -> None:
    x, mask = sequences()
    with pytest.raises(ValueError, match=r"\(batch, 1 to 9, 12\): got \(3, 10, 12\)"):
        made()(torch.zeros(3, 10, WIDTH))
    with pytest.raises(ValueError, match=r"mask must be boolean \(3, 9\): got torch.float64 \(3, 9\)"):
        made()(x, mask.double())
    with pytest.raises(ValueError, match="pooling must be 'mean', 'released' or 'last': got 'max'"):
        pool(x, mask, "max", LENGTH)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="activation must be 'gelu' or 'relu': got 'silu'"):
        made(activation="silu")
    with pytest.raises(ValueError, match="normalization must be 'layer' or 'batch': got 'none'"):
        made(normalization="none")
    with pytest.raises(ValueError, match="length must be at least 1: got 0"):
        SequenceEncoder([], width=4, heads=1, hidden=4, length=0)
