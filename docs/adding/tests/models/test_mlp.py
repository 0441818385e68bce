"""The perceptron has the parameters of its two layers."""

from __future__ import annotations

from assay.models.mlp import PRESETS, mlp


def test_number_of_parameters() -> None:
    model = mlp(4, 1, image_size=16, width=8)
    assert sum(parameter.numel() for parameter in model.parameters()) == (256 + 1) * 8 + (8 + 1) * 4


def test_the_preset_fixes_the_width() -> None:
    model = PRESETS["mlp_wide"].build(4, 1, image_size=16)
    assert sum(parameter.numel() for parameter in model.parameters()) == (256 + 1) * 256 + (256 + 1) * 4
