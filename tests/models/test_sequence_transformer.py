"""The transformer of Long Range Arena: sizes, padding, pairs, pooling, layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from assay.models.layers.attention.lookup import attentions
from assay.models.layers.language import PAD
from assay.models.sequence_transformer import PRESETS, SequenceTransformer, sequence_transformer
from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.validate import validate

TOKENS, CLASSES, LENGTH = 20, 3, 12
SMALL: dict[str, Any] = {"width": 16, "heads": 2, "hidden": 24, "length": LENGTH}
LENGTHS = (12, 5, 1)


def made(**parameters: Any) -> SequenceTransformer:
    torch.manual_seed(0)
    model = sequence_transformer(CLASSES, TOKENS, **SMALL, **parameters).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model  # type: ignore[return-value]


def sequences() -> Tensor:
    """Three sequences of 12, 5 and 1 tokens, padded, (3, 12)."""
    tokens = torch.randint(1, TOKENS, (3, LENGTH), generator=torch.Generator().manual_seed(1))
    return tokens.masked_fill(torch.arange(LENGTH) >= torch.tensor(LENGTHS)[:, None], PAD)


@pytest.mark.parametrize(
    ("preset", "vocabulary", "classes", "length", "pairs", "count"),
    [
        ("lra_transformer", 257, 2, 4096, False, 354_242),
        ("lra_transformer", 257, 2, 4096, True, 378_818),
        ("lra_transformer", 17, 10, 2048, False, 208_842),
        ("lra_transformer", 257, 10, 1024, False, 158_666),
        ("lra_transformer_as_printed", 257, 2, 4096, False, 765_250),
    ],
)
def test_parameter_counts(
    preset: str, vocabulary: int, classes: int, length: int, pairs: bool, count: int
) -> None:
    with torch.device("meta"):
        model = PRESETS[preset].build(classes, vocabulary, length=length, pairs=pairs)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    summary = load().find("model", preset).summary
    assert (f"{count:,}" in summary) == (length == 4096 and not pairs)


ON_SEQUENCES = sorted(set(attentions()) - {"conv2d_attention"})  # which needs an image's plane


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("attention", "pooling"),
    [*((name, "mean") for name in ON_SEQUENCES), ("softmax", "released"), ("softmax", "last")],
)
def test_neither_padding_nor_other_sequences_change_an_answer(attention: str, pooling: Any) -> None:
    model, together = made(pooling=pooling, attention=attention), sequences()
    answers = model(together)
    assert answers.shape == (3, CLASSES)
    for number, length in enumerate(LENGTHS):
        for shown in {length, LENGTH}:
            alone = model(together[number, None, :shown])
            assert_close(alone[0], answers[number], rtol=0, atol=1e-11)


def test_padding_before_and_between_tokens_is_left_out() -> None:
    """As in the released way of reading grey images, where black is padding."""
    model, tokens = made(), torch.tensor([[0, 3, 0, 4]])
    features = model.encoder(model.embedding(tokens), tokens != PAD)
    assert_close(model(tokens), model.head(features[:, [1, 3]].mean(1)), rtol=0, atol=1e-12)


def test_a_sequence_of_padding_alone_has_an_answer() -> None:
    for pooling in ("mean", "released", "last"):
        empty = torch.zeros(1, 4, dtype=torch.int64)
        assert torch.isfinite(made(pooling=pooling)(empty)).all()
        assert_close(made(pooling=pooling)(empty), made(pooling=pooling)(empty[:, :1]), rtol=0, atol=1e-12)


def test_pairs_are_compared_by_the_head() -> None:
    model, tokens = made(pairs=True), sequences()
    pairs = torch.stack([tokens, tokens.flip(0)], dim=1)  # (3, 2, 12)
    first, second = model._pooled(tokens), model._pooled(tokens.flip(0))
    expected = model.head(torch.cat([first, second, first * second, first - second], 1))
    assert_close(model(pairs), expected, rtol=0, atol=1e-12)
    assert (model(pairs.flip(1)) - model(pairs)).abs().max() > 1e-6


def test_the_gradient_reaches_every_weight() -> None:
    for options in ({}, {"pairs": True}, {"embedding": 6}):
        model = made(**options).train()
        tokens = torch.stack([sequences()] * 2, 1) if options.get("pairs") else sequences()
        torch.nn.functional.cross_entropy(model(tokens), torch.arange(3)).backward()
        assert all(it.grad is not None and it.grad.any() for it in model.parameters())


def test_attention_is_put_into_the_chosen_layers() -> None:
    names = [type(block.attn).__name__ for block in made(attention="rpc", layers="last").encoder.blocks]
    assert names == ["SoftmaxAttention", "RPCAttention"]
    assert made(attention_dropout=0.2, attention="rpc", layers="last").encoder.blocks[0].attn.dropout == 0.2


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(batch, 1 to 12\): got \(3, 13\)"):
        made()(torch.ones(3, 13, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"\(batch, 2, 1 to 12\): got \(3, 12\)"):
        made(pairs=True)(sequences())
    with pytest.raises(ValueError, match="no attention is called 'softmux'"):
        made(attention="softmux")


def job(data: str, **parameters: Any) -> dict[str, Any]:
    return {
        "kind": "train",
        "model": {"name": "sequence_transformer", "params": parameters},
        "data": {"name": data},
        "recipe": {"name": "small_sequence"},
    }


def test_the_service_refuses_what_does_not_fit_at_submission() -> None:
    assert validate(load(), job("recall")).spec["model"]["name"] == "sequence_transformer"
    for data, parameters, message in (
        ("recall", {"pairs": True}, "pairs must be true for data of pairs"),
        ("lra_retrieval", {}, "pairs must be true for data of pairs"),
        ("recall", {"heads": 3}, "heads must divide width"),
        ("recall", {"attention": "conv2d_attention"}, "image"),
    ):
        with pytest.raises(InvalidSpec, match=message):
            validate(load(), job(data, **parameters))
