"""The regression is the classifier's network with one output."""

from __future__ import annotations

import pytest
import torch

from assay.models.series_regressor import series_regressor
from assay.models.series_transformer import series_transformer
from assay.service.catalog.catalog import load


def test_it_is_the_network_of_the_classifier() -> None:
    sizes = {"width": 8, "depth": 2, "heads": 2, "hidden": 12, "length": 6, "attention": "attention_bn"}
    torch.manual_seed(0)
    one = series_regressor(1, 3, **sizes).eval()  # type: ignore[arg-type]
    torch.manual_seed(0)
    other = series_transformer(1, 3, **sizes).eval()  # type: ignore[arg-type]
    series = torch.cat([torch.randn(2, 3, 6), torch.ones(2, 1, 6)], dim=1)
    assert one(series).shape == (2, 1)
    assert torch.equal(one(series), other(series))
    mine, theirs = (load().find("model", name) for name in ("series_regressor", "series_transformer"))
    assert mine.parameters == theirs.parameters


def test_a_regression_has_one_output() -> None:
    with pytest.raises(ValueError, match="a regression has 1 output: got 2"):
        series_regressor(2, 3)
