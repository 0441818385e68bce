"""Attention that does not fit its model is refused at submission with the reason: the committed catalog."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.problems import path_text
from assay.service.submission.validate import validate

SIZES = {"image_size": 32, "patch_size": 8, "depth": 4, "width": 96, "heads": 3}


def job(attention: dict[str, Any], model: str = "vit", **changes: Any) -> dict[str, Any]:
    params = SIZES | {"attention": attention} | changes
    return {
        "kind": "train",
        "model": {"name": model, "params": params},
        "data": {"name": "digits"},
        "recipe": {"name": "small_vit"},
    }


@pytest.mark.parametrize(
    ("attention", "changes"),
    [
        ({"name": "scaled_learned", "params": {"patches": 16}}, {}),
        ({"name": "scaled_learned", "params": {"patches": 16}}, {"model": "fan_vit"}),
        ({"name": "rpc_causal"}, {"layers": [0, 1, 2]}),
        ({"name": "rpc_causal"}, {"model": "fan_vit"}),
        ({"name": "rpc_causal", "params": {"mu_tokens": "sequence"}}, {"layers": "last"}),
        ({"name": "rpc_asymmetric", "params": {"dual_sign": 1}}, {}),
        ({"name": "scaled_exact"}, {"layers": "first"}),
    ],
)
def test_what_fits_is_taken(attention: dict[str, Any], changes: dict[str, Any]) -> None:
    checked = validate(load(), job(attention, **changes)).spec["model"]["params"]["attention"]
    assert checked["params"].items() >= attention.get("params", {}).items()


@pytest.mark.parametrize(
    ("attention", "changes", "place", "reason"),
    [
        ({"name": "scaled_learned"}, {}, "", "patches must be the model's number of patches"),
        ({"name": "rpc_causal"}, {}, "", "the class token comes first and would see no patch"),
        ({"name": "rpc_causal"}, {"layers": [0, 1, 2, 3]}, "", "must not be in every layer"),
        ({"name": "softmax_standardized"}, {"heads": 96}, "", "one feature cannot be standardised"),
        ({"name": "scaled_exact", "params": {"log_range": 100}}, {}, ".log_range", "80"),
        ({"name": "rpc_causal", "params": {"mu_tokens": "all"}}, {"layers": [0]}, ".mu_tokens", "prefix"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(
    attention: dict[str, Any], changes: dict[str, Any], place: str, reason: str
) -> None:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), job(attention, **changes))
    (detail,) = caught.value.details
    assert path_text(detail.loc) == f"model.params.attention.params{place}"
    assert reason in f"{detail.message} {detail.allowed}"


LEARNED = {"name": "scaled_learned", "params": {"patches": 16}}


def segmentation(backbone: dict[str, Any], **params: Any) -> dict[str, Any]:
    return {
        "kind": "train",
        "model": {"name": "segmenter", "params": {"backbone": backbone} | params},
        "data": {"name": "shapes"},
        "recipe": {"name": "small_segmenter"},
    }


@pytest.mark.parametrize(
    ("backbone", "params", "reason"),
    [
        ({"name": "vit", "params": SIZES}, {"decoder_heads": 5}, "decoder_heads must divide the width"),
        ({"name": "symvit_tiny"}, {"decoder_heads": 5}, "backbone_width is 192"),
        (
            {"name": "vit", "params": SIZES | {"width": 202, "heads": 2}},
            {},
            "absent, it is that width / 64",
        ),
        ({"name": "vit", "params": SIZES | {"attention": LEARNED}}, {"image_size": 33}, "learned S"),
    ],
)
def test_a_decoder_that_does_not_fit_its_backbone_is_refused(
    backbone: dict[str, Any], params: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), segmentation(backbone, **params))
    (detail,) = caught.value.details
    assert path_text(detail.loc) == "model.params"
    assert reason in detail.message


@pytest.mark.parametrize(
    ("backbone", "params"),
    [
        ({"name": "vit", "params": SIZES}, {"decoder_heads": 4}),
        ({"name": "vit", "params": SIZES}, {"decoder_heads": 5, "decoder": "linear"}),
        ({"name": "symvit_base"}, {"decoder_heads": 12}),
        ({"name": "vit", "params": SIZES | {"attention": LEARNED}}, {"image_size": 24}),
    ],
)
def test_a_decoder_that_fits_its_backbone_is_taken(backbone: dict[str, Any], params: dict[str, Any]) -> None:
    assert (
        validate(load(), segmentation(backbone, **params)).spec["model"]["params"].items() >= params.items()
    )
