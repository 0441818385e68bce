"""Attention matrices as analyses see them: those of the layers, without padding and without later tokens.

New mechanisms that state `softmax`, `attention_matrix` or `kernel_matrix` are covered automatically.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.attention.lookup import attentions
from assay.models.layers.attention.probe import KernelLayer, SoftmaxLayer
from assay.models.layers.heads import has_causal_form, merge_heads
from assay.models.layers.series_model import SeriesModel
from assay.models.layers.token_model import TokenModel
from assay.models.lm import lm
from assay.models.sequence_transformer import sequence_transformer
from assay.models.series_transformer import series_transformer
from assay.models.text_classifier import text_classifier
from assay.service.catalog.catalog import load
from assay.workers.data.formats.sequences import Alphabet, TokenSequences
from assay.workers.data.formats.text import Documents
from assay.workers.data.formats.vocabulary import Vocabulary
from assay.workers.evaluation.attention_cost import attention_cost
from assay.workers.evaluation.attention_spectrum import attention_spectrum
from assay.workers.evaluation.efficiency import efficiency
from assay.workers.evaluation.engine.analysis import Measured
from assay.workers.evaluation.engine.attention_layers import attention_of
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.head_distance import head_distance
from assay.workers.evaluation.spectral_error import spectral_error
from tests.support.shards import Given, shard

WIDTH, HEADS, TOKENS, PRESENT = 24, 3, 12, 8
FORMS = [
    (name, causal)
    for name, mechanism in sorted(attentions().items())
    if load().find("attention", name).offers
    for causal in ((False, True) if has_causal_form(mechanism) else (False,))
]


@pytest.fixture(params=FORMS, ids=[f"{name}-{'causal' if causal else 'all'}" for name, causal in FORMS])
def layer(request: pytest.FixtureRequest) -> Iterator[nn.Module]:
    name, causal = request.param
    form = {"causal": True} if causal else {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = attentions()[name](WIDTH, HEADS, prefix_tokens=0, **form).double().eval()
        with torch.no_grad():
            for parameter in made.parameters():
                if not parameter.any():
                    parameter.normal_(std=0.1)
        yield made


X = torch.randn(2, TOKENS, WIDTH, generator=torch.Generator().manual_seed(3)).double()
MASK = (torch.arange(TOKENS) < PRESENT).expand(2, -1)


@pytest.mark.sampled
def test_a_causal_matrix_has_nothing_for_later_tokens(layer: nn.Module) -> None:
    with torch.no_grad():
        matrix = attention_of(layer, X)
    assert matrix.shape == (2, HEADS, TOKENS, TOKENS)
    if not isinstance(layer, KernelLayer):
        later = matrix.triu(1).abs().amax()
        assert (later == 0) if getattr(layer, "causal", False) else (later > 0)
        torch.testing.assert_close(matrix.sum(dim=-1), torch.ones_like(matrix[..., 0]))


@pytest.mark.sampled
def test_the_matrix_times_the_values_is_the_output(layer: nn.Module) -> None:
    if not isinstance(layer, SoftmaxLayer):
        pytest.skip("has no values of its own to multiply")
    with torch.no_grad():
        values = layer.queries_keys_values(X)[2]
        output = layer.proj(merge_heads(attention_of(layer, X) @ values))  # type: ignore[operator]
        torch.testing.assert_close(output, layer(X), rtol=1e-9, atol=1e-12)


@pytest.mark.sampled
def test_padding_changes_nothing_of_the_tokens_that_are_there(layer: nn.Module) -> None:
    if not getattr(layer, "padding_invariant", True):
        pytest.skip("depends on the number of tokens by itself")
    with torch.no_grad():
        padded = attention_of(layer, X, MASK)[..., :PRESENT, :PRESENT]
        alone = attention_of(layer, X[:, :PRESENT])
    torch.testing.assert_close(padded, alone, rtol=1e-9, atol=1e-12)


SYMBOLS = Alphabet("abcdefgh")
LENGTHS = (9, 4, 6, 1, 11)
SIZES: dict[str, Any] = {"width": 24, "heads": 3, "depth": 2, "hidden": 32, "length": 12}


def sequences(*, pairs: bool = False) -> Shard:
    """Of different lengths, so that another batch has other padding."""

    def one(index: int, shift: int) -> Tensor:
        return 1 + (torch.arange(LENGTHS[index]) * (index + 2) + shift) % 8

    data = TokenSequences(
        name="given",
        class_names=("no", "yes"),
        ids=[*"abcde"],
        labels=[0, 1, 0, 1, 0],
        vocabulary=SYMBOLS,
        read=lambda index: (one(index, 0), one(index, 3)) if pairs else (one(index, 0),),
    )
    torch.manual_seed(0)
    model = TokenModel(sequence_transformer(2, len(SYMBOLS), **SIZES, pairs=pairs)).eval()
    return shard(model, data, image_size=12)


def texts() -> Shard:
    """A causal encoder, which is told of no padding."""
    given = sequences()
    count = len(SYMBOLS)
    torch.manual_seed(0)

    def small(classes: int, channels: int) -> nn.Module:
        return lm(classes, channels, **SIZES, cutoffs=[], dropout=0.0, initialization="scaled")

    model = TokenModel(text_classifier(2, count, backbone=small)).eval()
    return shard(model, given.data, image_size=12)


def series() -> Shard:
    values = torch.randn(5, 3, 12, generator=torch.Generator().manual_seed(1))
    present = (torch.arange(12) < torch.tensor(LENGTHS)[:, None]).float()[:, None]
    rows = torch.cat([values, torch.ones(5, 1, 12)], dim=1) * present
    given = Given([*"abcde"], task="series", classes=4, images=lambda chosen: rows[list(chosen)])
    torch.manual_seed(0)
    model = SeriesModel(series_transformer(4, 3, **SIZES), [0.0] * 3, [1.0] * 3).eval()
    return shard(model, given, image_size=12)


def language() -> Shard:
    words = [f"w{number}" for number in range(20)]
    vocabulary = Vocabulary(["<pad>", "<unk>", *words])
    data = Documents(
        name="given",
        ids=[*"abcde"],
        read=lambda index: [words[(7 * index + place) % 20] for place in range(13)],
        vocabulary=vocabulary,
    )
    count = len(vocabulary)
    torch.manual_seed(0)
    model = TokenModel(lm(count, count, **SIZES, cutoffs=[], dropout=0.0, initialization="scaled")).eval()
    return shard(model, data, image_size=12)


ANALYSES = {
    "attention_spectrum": attention_spectrum,
    "head_distance": head_distance,
    "spectral_error": lambda: spectral_error(features=[4]),
}
KINDS = {"sequences": sequences, "texts": texts, "series": series, "language": language}


@pytest.mark.sampled
@pytest.mark.parametrize("analysis", ANALYSES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_analysis_of_an_example_depends_on_no_other_example(kind: str, analysis: str) -> None:
    given = KINDS[kind]()
    whole = ANALYSES[analysis]().measure(given)
    assert isinstance(whole, Measured)
    assert whole.facts["layers"] == [0, 1]
    if "tokens" in whole.values and kind != "language":
        assert whole.values["tokens"].reshape(5, -1)[:, 0].tolist() == [*LENGTHS]
    for row in (1, 3):
        again = shard(given.classifier, given.data, [row], image_size=12)
        alone = ANALYSES[analysis]().measure(again)
        assert isinstance(alone, Measured)
        for name, values in whole.values.items():
            torch.testing.assert_close(
                alone.values[name][0], values[row], rtol=1e-4, atol=1e-6, equal_nan=True
            )


@pytest.mark.parametrize("analysis", ANALYSES)
def test_of_a_pair_the_first_sequence_is_looked_at(analysis: str) -> None:
    pairs, single = sequences(pairs=True), sequences()
    first = {name: value for name, value in pairs.classifier.state_dict().items() if ".head." not in name}
    single.classifier.load_state_dict(first, strict=False)
    found, wanted = (ANALYSES[analysis]().measure(given) for given in (pairs, single))
    assert isinstance(found, Measured)
    assert isinstance(wanted, Measured)
    for name, values in wanted.values.items():
        torch.testing.assert_close(found.values[name], values, rtol=1e-4, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_cost_of_attention_in_models_of_other_input(kind: str) -> None:
    found = attention_cost(lengths=[4, 8], repeats=3).measure(KINDS[kind]())
    assert isinstance(found, Measured)
    assert found.facts["mechanism"] == "softmax"
    assert [one["length"] for one in found.facts["counted"]] == [4, 8]
    assert all(one["test_flops"] == one["softmax_test_flops"] for one in found.facts["counted"])


@pytest.mark.parametrize("kind", ["sequences", "texts", "series"])
def test_the_efficiency_of_models_of_other_input(kind: str) -> None:
    given = KINDS[kind]()
    found = efficiency(batch_size=2, repeats=3, warmup=1).measure(given)
    assert isinstance(found, Measured)
    assert found.facts["parameters"] == sum(one.numel() for one in given.classifier.parameters())
    assert found.facts["train_flops"] > found.facts["test_flops"] > 0
