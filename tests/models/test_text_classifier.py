"""The text classifier: padding changes nothing, pooling, and the weights of language models."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.models.layers.language import PAD
from assay.models.lm import lm
from assay.models.rpc_symmlm import rpc_symmlm
from assay.models.symmlm import symmlm
from assay.models.symvit import symvit
from assay.models.text_classifier import TextClassifier, text_classifier
from assay.service.catalog.catalog import load
from assay.workers import catalog

WORDS, CLASSES = 50, 3
SMALL: dict[str, Any] = {"width": 24, "depth": 2, "heads": 3, "hidden": 32, "length": 12, "cutoffs": []}
BACKBONES = {
    "lm": functools.partial(lm, **SMALL),
    "lm with rpc": functools.partial(lm, **SMALL, attention="rpc_asymmetric"),
    "symmlm": functools.partial(symmlm, **SMALL),
    "rpc_symmlm": functools.partial(rpc_symmlm, **SMALL, rpc_layers="all", regularization=0.2),
    "leaking": functools.partial(
        rpc_symmlm, **SMALL, rpc_layers="all", regularization=0.2, mu_tokens="sequence"
    ),
}
LENGTHS = (12, 5, 1)


def made(backbone: str = "symmlm", **parameters: Any) -> TextClassifier:
    torch.manual_seed(0)
    model = text_classifier(CLASSES, WORDS, backbone=BACKBONES[backbone], **parameters).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model  # type: ignore[return-value]


def texts() -> Tensor:
    """Three texts of 12, 5 and 1 words, padded, (3, 12)."""
    words = torch.randint(2, WORDS, (3, 12), generator=torch.Generator().manual_seed(1))
    return words.masked_fill(torch.arange(12) >= torch.tensor(LENGTHS)[:, None], PAD)


@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_neither_padding_nor_other_texts_change_an_answer(backbone: str, pooling: str) -> None:
    model = made(backbone, pooling=pooling)
    together = model(texts())
    assert together.shape == (3, CLASSES)
    for number, length in enumerate(LENGTHS):
        for shown in {length, 12}:
            alone = model(texts()[number, None, :shown])
            torch.testing.assert_close(alone[0], together[number], rtol=0, atol=1e-11)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_pooling_is_over_the_words(backbone: str) -> None:
    for pooling in ("mean", "last"):
        model = made(backbone, pooling=pooling)
        for number, length in enumerate(LENGTHS):
            features = model.encoder.features(texts()[number, None, :length])[0]
            pooled = features.mean(0) if pooling == "mean" else features[-1]
            expected = model.head(pooled)
            torch.testing.assert_close(model(texts())[number], expected, rtol=0, atol=1e-11)


def test_every_word_counts_and_so_does_their_order() -> None:
    for pooling in ("mean", "last"):
        model, changed = made(pooling=pooling), texts()
        changed[0, 0] = 2 + (changed[0, 0] - 1) % (WORDS - 2)
        assert (model(changed) - model(texts()))[0].abs().max() > 1e-6
        assert (model(texts()[:1].flip(1)) - model(texts()[:1])).abs().max() > 1e-6


def test_a_text_of_no_words_has_an_answer() -> None:
    for pooling in ("mean", "last"):
        empty = torch.zeros(1, 4, dtype=torch.int64)
        found = made(pooling=pooling)(empty)
        torch.testing.assert_close(found, made(pooling=pooling)(empty[:, :1]), rtol=0, atol=1e-12)
        assert torch.isfinite(found).all()


@pytest.mark.parametrize(("trained", "wanted"), [("symmlm", "rpc_symmlm"), ("lm", "lm with rpc")])
def test_rpc_takes_the_weights_of_attention_without_it(trained: str, wanted: str) -> None:
    source, model = BACKBONES[trained](WORDS, WORDS), made(wanted)
    weights = {name: it for name, it in source.state_dict().items() if not name.startswith("head.")}
    assert set(weights) == set(model.encoder.state_dict())  # type: ignore[attr-defined]
    model.encoder.load_state_dict(weights)  # type: ignore[attr-defined]
    assert torch.equal(model.encoder.embedding.weight, source.embedding.weight.double())  # type: ignore[attr-defined]


def test_the_gradient_reaches_every_weight() -> None:
    model = made("rpc_symmlm").train()
    torch.nn.functional.cross_entropy(model(texts()), torch.arange(3)).backward()
    assert all(it.grad is not None and it.grad.any() for it in model.parameters())


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(batch, 1 to 12\): got \(3, 13\)"):
        made()(torch.ones(3, 13, dtype=torch.int64))
    with pytest.raises(ValueError, match="pooling must be 'mean' or 'last': got 'max'"):
        made(pooling="max")
    with pytest.raises(ValueError, match="must be a language model: got VisionTransformer"):
        text_classifier(2, 3, backbone=symvit)


def test_models_that_state_word_features_have_them_and_no_others() -> None:
    stated = {entry.name for entry in load().list("model") if (entry.facts or {}).get("word_features")}
    assert {"lm", "symmlm", "rpc_symmlm_tiny"} <= stated
    for component in load().list("model"):
        if not component.parameters.get("required") and component.name != "exported":
            with torch.device("meta"):
                built = catalog.resolve(component)(1 if "series_regression" in component.tasks else 3, 3)
            assert hasattr(built, "features") == (component.name in stated), component.name
