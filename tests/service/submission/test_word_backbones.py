"""Language models whose weights fit a text classifier's backbone."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.problems import Problems
from assay.service.submission.backbone import check_backbone, layouts, may_begin_with, with_backbone

SMALL = {"width": 64, "depth": 2, "heads": 4, "hidden": 128}
RPC = {"attention": {"name": "rpc_asymmetric", "params": {"iterations": 2}}, "layers": "all"}


def filled(name: str, **params: Any) -> dict[str, Any]:
    problems = Problems()
    checked = load().check_reference(("model",), {"name": name, "params": params}, problems, ())
    assert checked is not None
    assert not problems.details
    return {"name": name, "params": checked.params}


def classifier(source: dict[str, Any], backbone: Any, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The classifier's backbone as it is completed, and what is wrong by place."""
    problems = Problems()
    asked = {"name": "text_classifier", "params": params | ({"backbone": backbone} if backbone else {})}
    model = load().check_reference(("model",), with_backbone(load(), asked, source), problems, ("model",))
    check_backbone(load(), model, source, problems, training=True)
    assert model is not None
    found = {".".join(map(str, one.loc)): one.message for one in problems.details}
    return model.params.get("backbone", {}), found


PAIRS = [
    (("symmlm", {}), {"name": "rpc_symmlm", "params": {"rpc_layers": "all", "iterations": 2}}),
    (("rpc_symmlm", {"rpc_layers": "first"}), "symmlm"),
    (("lm", {}), {"name": "lm", "params": RPC}),
    (("lm", {}), {"name": "lm", "params": RPC | {"layers": [1]}}),
    (("lm", {"attention": "symmetric"}), {"name": "lm", "params": {"attention": "rpc_causal"}}),
    (("lm", {"attention": "symmetric"}), {"name": "rpc_symmlm", "params": {"rpc_layers": [0]}}),
    (("symmlm", {}), {"name": "symmlm", "params": {"length": 512, "dropout": 0.3, "cutoffs": [10]}}),
]


@pytest.mark.parametrize(("trained", "backbone"), PAIRS, ids=str)
def test_attention_may_change_where_the_weights_stay(trained: Any, backbone: Any) -> None:
    name, params = trained
    made, found = classifier(filled(name, **SMALL, **params), backbone)
    assert found == {}
    assert {
        key: made["params"][key] for key in SMALL
    } == SMALL  # those that were not said are the trained ones'


def test_a_published_size_gives_its_own() -> None:
    made, found = classifier(filled("symmlm_tiny"), {"name": "rpc_symmlm", "params": {"rpc_layers": "all"}})
    assert found == {}
    assert (made["params"]["width"], made["params"]["depth"], made["params"]["length"]) == (64, 4, 64)
    assert classifier(filled("symmlm_tiny"), "rpc_symmlm_tiny")[1] == {}
    found = classifier(filled("symmlm", **SMALL), "rpc_symmlm_tiny")[1]
    assert set(found) == {"model.params.backbone.params.depth", "model.params.backbone.params.hidden"}


def test_other_projections_and_sizes_are_refused() -> None:
    place = "model.params.backbone"
    found = classifier(filled("lm", **SMALL), {"name": "symmlm"})[1]
    assert found == {f"{place}.name": "layer 0 has the projections kv, the weights have qkv"}
    wrong = {"attention": "rpc_causal", "layers": "last", "width": 32}
    found = classifier(filled("lm", **SMALL), {"name": "lm", "params": wrong})[1]
    assert found == {
        f"{place}.params.width": "the weights are of a model with width 64",
        f"{place}.params.attention": "layer 1 has the projections kv, the weights have qkv",
    }
    learned = {"name": "scaled_learned", "params": {"patches": 256}}
    found = classifier(filled("lm", **SMALL), {"name": "lm", "params": {"attention": learned}})[1]
    assert "has the projections of scaled_learned" in found[f"{place}.params.attention"]
    again = classifier(filled("lm", **SMALL, attention=learned), {"name": "lm", "params": {}})
    assert again[1] == {}
    found = classifier(filled("vit"), "symmlm")[1]
    assert found == {f"{place}.name": "the weights are of the model 'vit'"}


def test_only_language_models_are_backbones_of_text_classifiers() -> None:
    problems = Problems()
    asked = {"name": "text_classifier", "params": {"backbone": "vit"}}
    load().check_reference(("model",), asked, problems, ("model",))
    (detail,) = problems.details
    assert detail.message == "the model 'vit' has no word_features, which backbone must have"
    assert "symmlm" in detail.allowed
    assert not may_begin_with(load(), "segmenter", "symmlm")


def test_the_layouts_of_layers() -> None:
    mixed = filled("lm", **SMALL | {"depth": 4}, attention="symmetric", layers=[1, 3])
    assert layouts(load(), mixed) == ["qkv", "kv", "qkv", "kv"]
    assert layouts(load(), filled("rpc_symmlm_tiny")) == ["kv"] * 4


def test_only_sentences_of_words_are_classified() -> None:
    component, params = load().find("model", "text_classifier"), filled("text_classifier")["params"]
    for facts, refused in (({"words": True}, 0), ({}, 0), ({"words": False}, 1)):
        problems = Problems()
        load().check_rules(component, params, {"data": facts}, problems, ())
        assert len(problems.details) == refused


def test_attention_of_a_language_model_must_have_a_causal_form() -> None:
    problems = Problems()
    asked = {"name": "lm", "params": {"attention": "scaled_exact"}}
    load().check_reference(("model",), asked, problems, ("model",))
    (detail,) = problems.details
    assert detail.loc == ["model", "params", "attention", "name"]
    assert detail.message == "the attention 'scaled_exact' has no causal_form, which attention must have"
    assert {"softmax", "rpc_causal"} < set(detail.allowed)  # type: ignore[arg-type]
    assert detail.nearest in detail.allowed  # type: ignore[operator]
