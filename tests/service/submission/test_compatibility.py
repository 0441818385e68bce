"""Analyses that need attention to be seen are refused where it cannot be: the committed catalog."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import Catalog, load
from assay.service.contract.errors import ErrorDetail, InvalidSpec
from assay.service.contract.problems import path_text
from assay.service.submission.validate import validate

SIZES = {"image_size": 32, "patch_size": 8, "depth": 4, "width": 96, "heads": 3}
CAUSAL = {"attention": {"name": "rpc_causal"}, "layers": "first"}
ANALYSES = ("projection_loss", "eigenvector_check")


def job(model: dict[str, Any], *evaluations: dict[str, Any], data: str = "digits") -> dict[str, Any]:
    return {"kind": "evaluate", "model": model, "data": {"name": data}, "evaluations": list(evaluations)}


def refused(body: dict[str, Any]) -> tuple[ErrorDetail, ...]:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), body)
    return tuple(caught.value.details)


def segmenter(**params: Any) -> dict[str, Any]:
    return {"name": "segmenter", "params": {"backbone": {"name": "vit", "params": SIZES | params}}}


@pytest.mark.parametrize(
    ("model", "data"),
    [
        ({"name": "vit", "params": SIZES}, "digits"),
        ({"name": "vit", "params": SIZES | {"attention": "scaled_exact"}}, "digits"),
        ({"name": "symvit_tiny"}, "digits"),
        ({"name": "rpc_fan_vit_tiny"}, "digits"),
        (segmenter(), "shapes"),
    ],
)
def test_what_can_be_looked_at_is_taken(model: dict[str, Any], data: str) -> None:
    spec = validate(load(), job(model, *({"name": name} for name in ANALYSES), data=data)).spec
    assert [item["params"]["layers"] for item in spec["evaluations"]] == ["all", "all"]


@pytest.mark.parametrize("name", ANALYSES)
def test_attention_that_cannot_be_looked_at_is_refused_with_what_can(name: str) -> None:
    (detail,) = refused(job({"name": "vit", "params": SIZES | CAUSAL}, {"name": "clean"}, {"name": name}))
    assert path_text(detail.loc) == "evaluations[1].name"
    assert "the attention 'rpc_causal' does not offer" in detail.message
    assert "a softmax over all tokens" in detail.message
    assert {"rpc", "softmax"} <= set(detail.allowed)  # type: ignore[arg-type]
    assert "rpc_causal" not in detail.allowed  # type: ignore[operator]


def test_models_that_cannot_be_looked_at_are_refused() -> None:
    model = {"name": "timm", "params": {"architecture": "resnet18"}}
    (detail,) = refused(job(model, {"name": "projection_loss"}))
    assert "the model 'timm' does not offer" in detail.message
    assert "vit" in detail.allowed  # type: ignore[operator]


def test_the_attention_of_a_backbone_counts() -> None:
    (detail,) = refused(job(segmenter(**CAUSAL), {"name": "eigenvector_check"}, data="shapes"))
    assert "'rpc_causal'" in detail.message


TEXTS = {
    "hotflip": ("text_classifier", "sst", {"sequence_transformer", "text_classifier"}),
    "gcg": ("text_classifier", "sst", {"sequence_transformer", "text_classifier"}),
    "gradient_word_swap": ("lm", "pydoc", {"lm", "rpc_symmlm", "symmlm"}),
}


@pytest.mark.parametrize("name", TEXTS)
def test_attacks_by_word_vectors_are_refused_for_models_without(name: str) -> None:
    """A package's model `plain`, which does not state that it has them."""
    model, data, able = TEXTS[name]
    plain = load().find("model", model).model_copy(update={"name": "plain", "offers": ["softmax"]})
    catalog = Catalog([*load().list(), plain])
    with pytest.raises(InvalidSpec) as caught:
        validate(catalog, job({"name": "plain"}, {"name": "clean"}, {"name": name}, data=data))
    found = [detail for detail in caught.value.details if "does not offer" in detail.message]
    (detail,) = found
    assert path_text(detail.loc) == "evaluations[1].name"
    assert f"{name!r} needs the layer that makes words vectors" in detail.message
    assert "the model 'plain' does not offer" in detail.message
    assert detail.given == name
    assert able <= set(detail.allowed)  # type: ignore[arg-type]
    assert {"plain", "vit"}.isdisjoint(detail.allowed)  # type: ignore[arg-type]
    # Its attention offers none either, and is not asked.
    validate(catalog, job({"name": model}, {"name": name}, data=data))


def test_the_backbone_of_a_classifier_must_have_word_vectors() -> None:
    plain = load().find("model", "lm").model_copy(update={"name": "plain", "offers": ["softmax"]})
    model = {"name": "text_classifier", "params": {"backbone": {"name": "plain"}}}
    with pytest.raises(InvalidSpec) as caught:
        validate(Catalog([*load().list(), plain]), job(model, {"name": "gcg"}, data="sst"))
    (detail,) = caught.value.details
    assert "the model 'plain' does not offer" in detail.message
    assert "lm" in detail.allowed  # type: ignore[operator]


def test_a_model_of_another_task_has_one_error() -> None:
    (detail,) = refused(job({"name": "vit", "params": SIZES}, {"name": "hotflip"}))
    assert "'hotflip' is for sequence" in detail.message


@pytest.mark.parametrize(
    ("model", "data", "layers", "right"),
    [
        ({"name": "vit", "params": SIZES}, "digits", [0, 3], True),
        ({"name": "vit", "params": SIZES}, "digits", [4], False),
        ({"name": "symvit_tiny"}, "digits", [11], True),
        ({"name": "symvit_tiny"}, "digits", [12], False),
        ({"name": "fan_vit_base"}, "digits", [17], True),
        (segmenter(), "shapes", [3], True),
        (segmenter(), "shapes", [4], False),
        ({"name": "vit", "params": SIZES}, "digits", [], False),
    ],
)
def test_layers_have_to_be_there(model: dict[str, Any], data: str, layers: list[int], right: bool) -> None:
    body = job(model, {"name": "projection_loss", "params": {"layers": layers}}, data=data)
    if right:
        validate(load(), body)
        return
    (detail,) = refused(body)
    assert path_text(detail.loc) == "evaluations[0].params"
    assert "a list of layers from 0 to depth - 1" in detail.message


def test_wrong_parameters_are_named() -> None:
    (detail,) = refused(
        job({"name": "symvit_tiny"}, {"name": "projection_loss", "params": {"form": "papers"}})
    )
    assert detail.nearest == "paper"


def test_what_measures_the_machine_counts_its_repeats() -> None:
    model = {"name": "timm", "params": {"architecture": "resnet18", "image_size": 32}}
    body = job(model, {"name": "efficiency", "params": {"repeats": 7, "batch_size": 4}})
    found = validate(load(), body).estimate
    assert found == {"examples": 7, "forward_passes": 56, "backward_passes": 28}
    assert load().find("evaluation", "clean").repeats_with({}) is None
