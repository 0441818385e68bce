"""The published sizes: parameter counts as in the papers' code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from assay.models import rpc_asymvit, rpc_symvit, symvit
from assay.models.vit import vit

PRESETS = symvit.PRESETS | rpc_symvit.PRESETS | rpc_asymvit.PRESETS


def count(builder: Callable[[], nn.Module]) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in builder().parameters())


@pytest.mark.parametrize("name", ["symvit_tiny", "rpc_symvit_tiny"])
def test_tiny(name: str) -> None:
    assert count(lambda: PRESETS[name].build(1000, 3)) == 5_272_744


@pytest.mark.parametrize("name", ["symvit_base", "rpc_symvit_base"])
def test_base(name: str) -> None:
    assert count(lambda: PRESETS[name].build(1000, 3)) == 79_480_552


def test_asymmetric_base_is_vit_base() -> None:
    assert count(lambda: vit(1000, 3, width=768, heads=12)) == 86_567_656


def test_asymmetric_rpc_has_the_parameters_of_vit() -> None:
    assert count(lambda: PRESETS["rpc_asymvit_tiny"].build(1000, 3)) == 5_717_416
    assert count(lambda: PRESETS["rpc_asymvit_base"].build(1000, 3)) == 86_567_656


def test_symmetric_rpc_in_the_first_layer_saves_the_queries_of_one_layer() -> None:
    assert count(lambda: PRESETS["rpc_asymvit_tiny"].build(1000, 3, rpc_form="rpc")) == 5_680_360
    assert count(lambda: PRESETS["rpc_asymvit_base"].build(1000, 3, rpc_form="rpc")) == 85_977_064


@pytest.mark.parametrize("name", ["symvit_tiny", "rpc_symvit_tiny", "rpc_asymvit_tiny"])
def test_geometry_and_drop_path_are_free(name: str) -> None:
    model: Any = PRESETS[name].build(10, 1, image_size=32, patch_size=8, drop_path=0.2).eval()
    assert model(torch.zeros(1, 1, 32, 32)).shape == (1, 10)
    assert len(model.blocks) == 12
    assert model.blocks[11].drop_path.rate == pytest.approx(0.2)


def test_parameters_of_rpc_reach_the_attention() -> None:
    for name in ("rpc_symvit_tiny", "rpc_symvit_base", "rpc_asymvit_tiny", "rpc_asymvit_base"):
        with torch.device("meta"):
            model: Any = PRESETS[name].build(
                10,
                3,
                rpc_layers=[11],
                iterations=2,
                regularization=3.0,
                threshold="paper",
                mu_width="head",
                dual_sign=1,
            )
        attention = model.blocks[11].attn
        assert (attention.iterations, attention.regularization, attention.threshold) == (2, 3.0, "paper")
        assert (attention.width, attention.dual_sign) == (64, 1)
        assert not hasattr(model.blocks[0].attn, "iterations")


@pytest.mark.parametrize("name", PRESETS)
def test_the_size_is_fixed(name: str) -> None:
    with pytest.raises(TypeError, match="multiple values for keyword argument 'width'"):
        PRESETS[name].build(10, 1, width=96)
