"""The transformer of time series: published sizes, padding, pooling, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from assay.models.attention.primal import PrimalAttention
from assay.models.layers.series_model import SeriesModel
from assay.models.layers.token_model import wrap
from assay.models.series_transformer import PRESETS, SeriesTransformer, series_transformer

SMALL: dict[str, Any] = {"width": 8, "depth": 2, "heads": 2, "hidden": 12, "length": 6}


def made(**options: Any) -> SeriesTransformer:
    torch.manual_seed(0)
    model = series_transformer(4, 3, **{**SMALL, **options})
    assert isinstance(model, SeriesTransformer)
    return model.double().eval()


def rows(length: int, *, junk: float = 0.0) -> Tensor:
    """Two series of 4 and 2 steps, (2, 4, length); padded values are `junk`."""
    generator = torch.Generator().manual_seed(1)
    series = torch.full((2, 4, length), junk, dtype=torch.float64)
    for row, steps in zip(series, (4, 2), strict=True):
        row[:-1, :steps] = torch.randn(3, steps, generator=generator, dtype=torch.float64)
        row[-1] = (torch.arange(length) < steps).double()
    return series


def test_the_published_size_has_the_parameters_of_its_layers() -> None:
    width, hidden, features, steps, classes = 512, 2048, 12, 29, 9
    model = PRESETS["uea_transformer"].build(classes, features, length=steps)
    layer = 4 * (width + 1) * width + (width + 1) * hidden + (hidden + 1) * width + 4 * width
    expected = (features + 1) * width + steps * width + 2 * layer + (steps * width + 1) * classes
    assert sum(parameter.numel() for parameter in model.parameters()) == expected == 6_459_913
    assert "6,459,913" in PRESETS["uea_transformer"].summary


@pytest.mark.parametrize(("name", "parameters"), [("primal_plus_uea", 6_216_521), ("primal_uea", 5_973_129)])
def test_the_primal_sizes_have_primal_attention_where_they_say(name: str, parameters: int) -> None:
    model = PRESETS[name].build(9, 12, length=29)
    assert isinstance(model, SeriesTransformer)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert f"{parameters:,}" in PRESETS[name].summary
    primal = [isinstance(block.attn, PrimalAttention) for block in model.blocks]
    assert primal == ([True, True] if name == "primal_uea" else [False, True])


@pytest.mark.parametrize("pooling", ["mean", "last", "flatten"])
def test_padding_changes_nothing(pooling: str) -> None:
    model = made(pooling=pooling)
    assert_close(model(rows(6)), model(rows(4)), rtol=0, atol=1e-12)
    assert_close(model(rows(6, junk=7.0).index_put((torch.tensor(0),), rows(6)[0])), model(rows(6)))


def test_the_released_mean_depends_on_the_length_of_the_model() -> None:
    same = made(pooling="mean")
    released = made(pooling="released")
    ratio = torch.tensor([4 / 6, 2 / 6], dtype=torch.float64)[:, None]
    assert_close(released(rows(6)) - released.head.bias, (same(rows(6)) - same.head.bias) * ratio)


def test_flatten_is_a_linear_layer_over_all_places() -> None:
    model = made(pooling="flatten")
    series = rows(6)
    tokens = model.embedding(series[:, :-1].transpose(1, 2)) * 8**0.5
    shown = nn.functional.gelu(model.encoder(tokens, series[:, -1] > 0)) * series[:, -1:].transpose(1, 2)
    assert_close(model(series), shown.flatten(1) @ model.head.weight.T + model.head.bias)


def test_every_step_and_its_place_matter() -> None:
    model, series = made(), rows(6)
    plain = model(series)
    for step in range(4):
        moved = series.clone()
        moved[0, 1, step] += 0.1
        assert (model(moved)[0] - plain[0]).abs().max() > 1e-4
        assert torch.equal(model(moved)[1], plain[1])
    swapped = series.clone()
    swapped[0, :-1, :4] = series[0, :-1, :4].flip(1)
    assert (model(swapped)[0] - plain[0]).abs().max() > 1e-4


@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_every_form_learns_from_every_weight(norm: str, norm_first: bool) -> None:
    model = made(norm=norm, norm_first=norm_first, dropout=0.0).train()
    model(rows(6)).square().sum().backward()
    still = [name for name, weight in model.named_parameters() if weight.grad is None]
    assert still == []


def test_other_shapes_and_poolings_are_refused() -> None:
    model = made()
    for shape in ((2, 3, 6), (2, 4, 7), (2, 4, 0), (2, 4)):
        with pytest.raises(ValueError, match=r"series must be \(batch, 4, 1 to 6\)"):
            model(torch.zeros(shape, dtype=torch.float64))
    with pytest.raises(ValueError, match="pooling must be 'mean', 'released', 'last' or 'flatten'"):
        made(pooling="max")
    with pytest.raises(ValueError, match="no attention is called 'softmx'; did you mean 'softmax'"):
        made(attention="softmx")


def test_the_wrapper_standardises_the_steps_that_exist() -> None:
    wrapped = wrap(made(), [1.0, 2.0, 3.0], [2.0, 4.0, 8.0])
    assert isinstance(wrapped, SeriesModel)
    wrapped.double()
    series = rows(6, junk=5.0)
    found = wrapped.normalize(series)
    mean, std = (torch.tensor([values], dtype=torch.float64).T for values in ([1.0, 2, 3], [2.0, 4, 8]))
    assert_close(found[0, :-1, :4], (series[0, :-1, :4] - mean) / std)
    assert not found[0, :-1, 4:].any()
    assert torch.equal(found[:, -1], series[:, -1])
    assert_close(wrapped(series), wrapped.backbone(found))
    assert {name: tuple(wrapped.state_dict()[name].shape) for name in ("mean", "std")} == {
        "mean": (1, 3, 1),
        "std": (1, 3, 1),
    }
    with pytest.raises(ValueError, match="3 features and the channel of existing steps"):
        wrapped.normalize(torch.zeros(1, 3, 6))
