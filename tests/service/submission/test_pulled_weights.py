"""Pulled weights at submission: refused where they are missing, pinned where they are there."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec, WeightsUnavailable
from assay.service.contract.weights.pulled import PulledRecord, reference_to
from assay.service.submission.requirements import first_requirements
from assay.service.submission.validate import ValidSpec, validate

SHA = "5" * 64
RECORD: PulledRecord = {
    "sha256": SHA,
    "aliases": ["timm:resnet50"],
    "facts": {"classes": 1000, "channels": 3, "image_size": 224},
}
PULLED = {"timm:resnet50.a1_in1k": RECORD}
IMAGENET = {"name": "imagenet", "params": {"folder": "imagenet"}}


def body(data: Any = IMAGENET, **model: Any) -> dict[str, Any]:
    chosen = {"name": "timm", "params": {"architecture": "resnet50"}, "weights": {"pulled": True}} | model
    return {"kind": "evaluate", "model": chosen, "data": data, "evaluations": [{"name": "top1"}]}


def submitted(given: dict[str, Any], pulled: Any = PULLED) -> ValidSpec:
    return validate(load(), given, list_pulled=lambda: pulled)


@pytest.mark.parametrize("weights", [{"pulled": True}, {"timm": True}, {"pulled": True, "sha256": SHA}])
def test_the_spec_is_pinned_to_the_content(weights: dict[str, Any]) -> None:
    spec = submitted(body(weights=weights)).spec
    assert spec["model"]["weights"] == {"pulled": True, "sha256": SHA}
    assert spec["model"]["params"] == {"architecture": "resnet50", "tag": "a1_in1k", "image_size": None}
    assert first_requirements(load(), spec)["weights"] == {"timm:resnet50.a1_in1k": SHA}


def test_missing_ones_are_refused_with_the_command() -> None:
    with pytest.raises(WeightsUnavailable) as caught:
        submitted(body(params={"architecture": "vit_tiny_patch16_224"}))
    error = caught.value
    assert (error.type, error.status) == ("weights_unavailable", 422)
    assert error.message.endswith("Run: assay pull timm:vit_tiny_patch16_224")
    (detail,) = error.details
    assert detail.loc == ["model", "weights"]
    assert detail.allowed == "weights that are pulled: timm:resnet50.a1_in1k"


def test_with_other_errors_the_spec_is_invalid() -> None:
    given = body(params={"architecture": "vit_tiny_patch16_224"}) | {"limit": 0}
    with pytest.raises(InvalidSpec) as caught:
        submitted(given)
    assert caught.value.type == "invalid_spec"
    assert [detail.loc for detail in caught.value.details] == [["limit"], ["model", "weights"]]


def test_what_is_not_known_is_accepted_and_not_pinned() -> None:
    spec = submitted(body(), pulled=None).spec
    assert spec["model"]["weights"] == {"pulled": True, "sha256": None}
    assert first_requirements(load(), spec)["weights"] == {"timm:resnet50": ""}


def test_data_of_other_classes_and_channels_are_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidSpec) as caught:
        submitted(body(data={"name": "digits"}))
    messages = [detail.message for detail in caught.value.details]
    assert messages == [
        "'digits' has 10 classes, the model is made for the 1000 of its weights",
        "'digits' has 1 channels, the model is made for the 3 of its weights",
    ]


def test_other_content_is_refused() -> None:
    with pytest.raises(InvalidSpec) as caught:
        submitted(body(weights={"pulled": True, "sha256": "0" * 64}))
    (detail,) = caught.value.details
    assert (detail.loc, detail.allowed) == (["model", "weights", "sha256"], [SHA])


@pytest.mark.parametrize(
    ("model", "loc", "message"),
    [
        (
            {"name": "vit", "params": {}},
            ["model", "weights", "pulled"],
            "the model 'vit' has no pulled weights",
        ),
        (
            {"name": "torchvision", "weights": {"timm": True}},
            ["model", "weights", "timm"],
            "these weights are not timm's",
        ),
        (
            {"params": {"architecture": "resnet50", "tag": "../x"}},
            ["model", "params"],
            "'timm:resnet50.../x' does not have the form timm:NAME[.TAG]",
        ),
    ],
)
def test_models_without_such_weights(model: dict[str, Any], loc: list[str], message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        submitted(body(**model))
    assert (loc, message) in [(detail.loc, detail.message) for detail in caught.value.details]


def test_every_source_names_its_weights_by_parameters() -> None:
    found = {
        str(reference_to("timm", {"architecture": "a", "tag": None})),
        str(reference_to("torchvision", {"architecture": "a", "tag": "V1"})),
        str(reference_to("hf", {"repository": "o/n", "revision": "main"})),
        str(reference_to("hf", {"repository": "o/n", "revision": None})),
    }
    assert found == {"timm:a", "torchvision:a.V1", "hf:o/n@main", "hf:o/n"}
