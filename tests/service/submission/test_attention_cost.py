"""Lengths that `attention_cost` cannot measure are refused at submission: the committed catalog."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.validate import validate

VIT = {"image_size": 32, "patch_size": 8, "depth": 2, "width": 24, "heads": 3}  # 17 tokens
LEARNED = {"name": "scaled_learned", "params": {"patches": 16}}


def job(model: str, data: str, lengths: list[int], **params: Any) -> dict[str, Any]:
    return {
        "kind": "evaluate",
        "model": {"name": model, "params": params},
        "data": {"name": data},
        "evaluations": [{"name": "attention_cost", "params": {"lengths": lengths}}],
    }


def backbone(attention: Any) -> dict[str, Any]:
    return {"backbone": {"name": "vit", "params": {**VIT, "attention": attention}}}


@pytest.mark.parametrize("lengths", [[512, 256], [256, 256]])
def test_lengths_must_rise(lengths: list[int]) -> None:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), job("vit", "digits", lengths, **VIT))
    (detail,) = caught.value.details
    assert detail.loc == ["evaluations", 0, "params"]
    assert "lengths must be in ascending order, each once" in detail.message
    assert detail.given == {"params.lengths": lengths}


@pytest.mark.parametrize(
    ("model", "data", "params", "tokens"),
    [
        ("vit", "digits", {**VIT, "attention": "linformer"}, 17),
        ("vit", "digits", {**VIT, "attention": LEARNED}, 17),
        ("segmenter", "shapes", backbone("linformer"), 17),
        ("sequence_transformer", "recall", {"length": 64, "attention": "linformer"}, 64),
        ("series_transformer", "motions", {"length": 64, "attention": "linformer"}, 64),
    ],
)
def test_one_length_must_be_within_the_weights_for_places(
    model: str, data: str, params: dict[str, Any], tokens: int
) -> None:
    assert validate(load(), job(model, data, [tokens, 2 * tokens], **params))
    with pytest.raises(InvalidSpec, match="takes no longer one") as caught:
        validate(load(), job(model, data, [tokens + 1, 2 * tokens], **params))
    assert [detail.loc for detail in caught.value.details] == [["evaluations", 0, "params"]]


@pytest.mark.parametrize(
    ("model", "data"),
    [
        ("vit", "digits"),
        ("lm", "pydoc"),
        ("sequence_transformer", "recall"),
        ("series_transformer", "motions"),
    ],
)
def test_other_attention_takes_any_length(model: str, data: str) -> None:
    assert validate(load(), job(model, data, [256, 4096]))
