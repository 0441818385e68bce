"""Mechanisms whose released form depends on chance or on the batch raise the warnings about it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn

from assay.models.layers.attention.lookup import find_attention
from assay.models.vit import vit
from tests.workers.jobs.test_whole_jobs import SIZE, Bench, bench

__all__ = ["bench"]


def model(name: str, sharpness: float, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    attention = functools.partial(find_attention(name), landmarks=8, **options)
    made = vit(10, 1, image_size=SIZE, patch_size=1, width=24, depth=3, heads=3, attention=attention)
    with torch.no_grad():
        for block in made.blocks:  # type: ignore[union-attr]
            block.attn.qkv.weight.mul_(sharpness)  # type: ignore[operator, union-attr]
    return made


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "sharpness", "options", "expected"),
    [
        ("skyformer", 1.0, {}, set()),
        ("skyformer", 1.0, {"normaliser": "tensor"}, {"batch_dependent"}),
        ("nystrom_scores", 1.0, {}, set()),
        ("nystrom_scores", 1.0, {"normaliser": "tensor"}, {"batch_dependent"}),
        ("nystromformer", 1.0, {"normaliser": "tensor"}, {"batch_dependent"}),
        ("skyformer", 1.0, {"draw": "training"}, set()),
        ("skyformer", 1.0, {"draw": "released"}, {"random_outputs"}),
        ("nystrom_scores", 1.0, {"draw": "released"}, {"random_outputs"}),
        ("nystromformer", 5.0, {}, set()),
        ("nystromformer", 5.0, {"normaliser": "tensor"}, {"batch_dependent"}),
    ],
)
def test_warnings_of_the_released_form(
    bench: Bench, name: str, sharpness: float, options: dict[str, Any], expected: set[str]
) -> None:
    results = bench.run(model(name, sharpness, **options), {"name": "clean"}, limit=16)
    (row,) = results.evaluations
    assert {one.code for one in row.warnings} & {"random_outputs", "batch_dependent"} == expected
