"""Spectral errors against singular values in NumPy, and for every task."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.attention.probe import QueriesKeysValues
from assay.models.layers.heads import attend
from assay.models.layers.layers import Classifier
from assay.models.layers.token_model import TokenModel
from assay.models.lm import lm
from assay.models.vit import vit
from assay.service.metrics.table import Context
from assay.service.metrics.tables.spectral_error import TARGETS, SpectralError
from assay.workers.data.formats.text import Documents
from assay.workers.data.formats.vocabulary import Vocabulary
from assay.workers.evaluation.engine.analysis import Measured
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.spectral_error import (
    _SpectralError,
    errors,
    linformer,
    performer,
    spectral_error,
)
from tests.support.shards import Given, shard

WORDS = [f"w{number}" for number in range(40)]
TEXTS = [30, 7, 25]  # words of each document
OPTIONS: dict[str, Any] = {"gamma": 0.1, "iterations": 6, "seed": 0}


def operands(length: int = 12, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    q, k, v = torch.randn(3, 1, 2, length, 4, dtype=torch.float64, generator=generator)
    return scale * q, scale * k, v


def test_is_the_largest_singular_value_of_the_difference() -> None:
    q, k, v = operands()
    found = errors(q, k, v, 4, **OPTIONS)
    exact, near = attend(q, k, v, None, 0.0), linformer(q, k, v, 4, 0)
    norms = [
        (np.linalg.svd((exact - near)[0, head], compute_uv=False)[0], np.linalg.svd(exact[0, head])[1][0])
        for head in range(2)
    ]
    assert float(found["linformer_error"]) == pytest.approx(np.mean([error for error, _ in norms]))
    relative = np.mean([error / whole for error, whole in norms])
    assert float(found["linformer_relative_error"]) == pytest.approx(relative)


@pytest.mark.parametrize("method", ["nystrom_scores", "skyformer", "nystromformer"])
def test_vanishes_with_a_landmark_for_each_token_and_a_converged_inverse(method: str) -> None:
    q, k, v = operands(scale=2.0)
    k = q if method == "nystromformer" else k
    found = errors(q, k, v, 32, gamma=1e-10, iterations=90, seed=0)
    assert found[f"{method}_relative_error"] < 1e-8


def test_random_features_converge_to_softmax() -> None:
    q, k, v = operands(scale=0.5)
    exact = attend(q, k, v, None, 0.0)
    few, many = ((performer(q, k, v, count, 0) - exact).abs().max() for count in (4, 4096))
    assert many < 0.02 < few


def images() -> Shard:
    torch.manual_seed(0)
    model = Classifier(
        vit(3, 1, image_size=8, patch_size=2, width=12, depth=2, heads=3), (0.5,), (0.5,)
    ).eval()
    pixels = torch.rand(5, 1, 8, 8)
    given = Given([str(row) for row in range(5)], classes=3, images=lambda rows: pixels[list(rows)])
    return shard(model, given)


def language() -> Shard:
    torch.manual_seed(0)
    vocabulary = Vocabulary(["<pad>", "<unk>", *WORDS])
    data = Documents(
        name="given",
        ids=["a", "b", "c"],
        read=lambda index: [WORDS[(7 * index + place) % 40] for place in range(TEXTS[index])],
        vocabulary=vocabulary,
    )
    count = len(vocabulary)
    model = TokenModel(
        lm(count, count, width=12, depth=2, heads=3, hidden=8, length=16, cutoffs=[], dropout=0.0)
    ).eval()
    return shard(model, data, image_size=16)


@pytest.mark.parametrize("make", [images, language])
def test_measures_every_example_for_any_batch(make: Any) -> None:
    evaluation = spectral_error(features=[4, 8], length=10)
    whole = evaluation.measure(make())
    assert isinstance(whole, Measured)
    for method in TARGETS:
        values = whole.values[f"{method}_relative_error"]
        assert values.shape == (len(whole.ids), 2 * 2)
        assert torch.isfinite(values).all()
        assert (values > 0).all()
    given = make()
    last = Shard(
        data=given.data,
        order=[len(whole.ids) - 1],
        classifier=given.classifier,
        image_size=given.image_size,
        batch_size=1,
        device=given.device,
    )
    alone = evaluation.measure(last)
    for name, values in whole.values.items():
        torch.testing.assert_close(alone.values[name][0], values[-1], rtol=1e-4, atol=1e-6)


def test_windows_of_a_text_begin_with_the_documents() -> None:
    found = spectral_error(features=[4], length=10).measure(language())
    assert found.values["tokens"].tolist() == [10, 10, 10]
    longest = spectral_error(features=[4], length=500).measure(language())
    assert longest.values["tokens"].tolist() == [16, 16, 16]


def test_padding_is_left_out() -> None:
    q, k, v = operands()
    evaluation = _SpectralError((4,), 10, 0.1, 6, "all")
    mask = (torch.arange(12) < 9)[None]
    look = evaluation._looking(0)
    found = look(0, QueriesKeysValues(q, k, v, mask), ["a"])
    own = errors(q[:, :, :9], k[:, :, :9], v[:, :, :9], 4, **OPTIONS)
    assert found["tokens"].tolist() == [9]
    for name, value in own.items():
        assert float(found[name][0, 0]) == pytest.approx(float(value), rel=1e-12)


def test_results_have_a_value_per_method_and_number_of_features() -> None:
    features = [4, 8]
    measured = spectral_error(features=features).measure(images())
    context = Context(params={"features": features}, evidence=[measured.evidence()])  # type: ignore[list-item]
    found = SpectralError().summarise(measured.columns(), context)
    assert len(found.metrics) == 5 * 2 * 2 + 1
    for method in TARGETS:
        values = measured.values[f"{method}_relative_error"]
        metric = found.metrics[f"{method}_relative_error_8"]
        assert metric.value == pytest.approx(float(values[:, 1::2].mean()))
        assert found.breakdown[1].metrics[f"{method}_relative_error_8"].value == pytest.approx(
            float(values[:, 3].mean())
        )
    assert found.metrics["tokens"].value == 17
    assert found.plot is not None
    assert found.plot.count("<polyline") == 5
    assert not math.isnan(float(found.metrics["skyformer_error_4"].value or 0))
    assert found.warnings == []


def test_more_features_than_tokens_are_told() -> None:
    features = [16, 32, 64]
    measured = spectral_error(features=features).measure(images())
    context = Context(params={"features": features}, evidence=[measured.evidence()])  # type: ignore[list-item]
    found = SpectralError().summarise(measured.columns(), context)
    (warning,) = found.warnings
    assert warning.code == "more_features_than_tokens"
    assert warning.evidence == {"features": [32, 64], "tokens": 17}
    values = [found.metrics[f"nystromformer_error_{count}"].value for count in (32, 64)]
    assert values[0] == values[1], "the premise"


def test_models_without_such_layers_are_refused() -> None:
    given = Given(["a"], classes=2, images=lambda rows: torch.rand(len(rows), 1, 8, 8))
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), (0.5,), (0.5,)).eval()
    with pytest.raises(ValueError, match="no layers of self-attention"):
        spectral_error(features=[4]).measure(shard(model, given))
