"""Presets: what the builder has, less what they fix; refused when they do not fit it."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from assay.service.catalog.catalog import load
from assay.service.catalog.component import Component
from assay.service.catalog.rules import evaluate
from assay.workers import catalog
from assay.workers.discovery.presets import presets

MODEL = {
    "name": "net",
    "kind": "model",
    "target": "one:net",
    "summary": "A network.",
    "schema": {
        "type": "object",
        "properties": {
            "width": {"type": "integer", "minimum": 1, "description": "of the tokens."},
            "heads": {"type": "integer", "default": 2},
            "layers": {
                "type": "array",
                "items": {"type": "integer"},
                "default": [0],
                "description": "which.",
            },
            "attention": {"type": ["object", "string"], "component": "attention", "default": {"name": "a"}},
        },
        "additionalProperties": False,
        "required": ["width"],
    },
    "rules": [
        {"expression": "model.width % model.heads == 0", "message": "heads must divide width"},
        {"expression": "max(model.layers) < model.width", "message": "no such layer"},
        {"expression": "min(model.layers) >= 0", "message": "below 0"},
    ],
    "tasks": ["classification"],
    "paper": "A paper",
    "passes": None,
    "facts": {"prefix_tokens": 0},
    "offers": ["softmax"],
}


def net() -> None:
    """The builder; nothing calls it."""


def preset(**stated: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{"builder": net, "summary": "Small.", "size": {}, "fixed": {}, "defaults": {}, "descriptions": {}}
        | stated
    )


def described(name: str = "net_small", **stated: Any) -> Component:
    module = ModuleType("one")
    module.PRESETS = {name: preset(**stated)}  # type: ignore[attr-defined]
    [found] = presets(module, {"net": Component.model_validate(MODEL)})
    return found


def test_the_builder_s_entry_less_what_is_fixed() -> None:
    found = described(size={"width": 8}, fixed={"heads": 4})
    assert (found.name, found.summary, found.target) == ("net_small", "Small.", "one:net")
    assert list(found.parameters["properties"]) == ["layers", "attention"]
    assert "required" not in found.parameters
    assert found.fixed == {"width": 8, "heads": 4}
    assert found.facts == {"prefix_tokens": 0, "width": 8}
    assert (found.tasks, found.paper, found.offers) == (["classification"], "A paper", ["softmax"])


def test_rules_have_the_fixed_values_and_those_of_nothing_else_are_left_out() -> None:
    rules = described(size={"width": 8, "heads": 4}).rules
    assert [rule.expression for rule in rules] == ["max(model.layers) < 8", "min(model.layers) >= 0"]


def test_defaults_and_descriptions_may_differ() -> None:
    found = described(defaults={"layers": (1, 2), "width": 6}, descriptions={"layers": "others."})
    layers, width = (found.parameters["properties"][name] for name in ("layers", "width"))
    assert layers == {
        "type": "array",
        "items": {"type": "integer"},
        "default": [1, 2],
        "description": "others.",
    }
    assert list(width) == ["type", "minimum", "default", "description"]
    assert "required" not in found.parameters
    assert MODEL["schema"]["properties"]["layers"]["default"] == [0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ({"size": {"widht": 8}}, "no parameters .'widht'."),
        ({"size": {"width": 0}}, "default 0 is refused"),
        ({"size": {"width": 8}, "defaults": {"width": 8}}, "one of size, fixed and defaults"),
        ({"size": {"width": 8, "heads": 3}}, "heads must divide width"),
        ({"fixed": {"attention": "a"}}, "not fixed"),
        ({"builder": preset}, "in __all__ of the same module"),
        ({"name": "Small"}, "lower case"),
    ],
)
def test_what_does_not_fit_the_builder_is_refused(stated: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=rf"one: PRESETS: .*{reason}"):
        described(**stated)


def broken(name: str, **parameters: Any) -> list[str]:
    rules = load().find("model", name).rules
    return [rule.message for rule in rules if not evaluate(rule.expression, {"model": parameters})]


def test_rules_of_the_published_sizes() -> None:
    divide = ["patch_size must divide image_size"]
    for name in ("symvit_tiny", "symvit_base", "fan_vit_small"):
        assert broken(name, image_size=224, patch_size=16) == []
        assert broken(name, image_size=56, patch_size=16) == divide
    for name in ("rpc_symvit_tiny", "rpc_symvit_base", "rpc_asymvit_tiny", "rpc_fan_vit_tiny"):
        assert broken(name, image_size=224, patch_size=16, rpc_layers=[11]) == []
        assert len(broken(name, image_size=224, patch_size=16, rpc_layers=[12])) == 1
    assert load().find("model", "rpc_symmlm_tiny").rules == []


@pytest.mark.parametrize("name", [one.name for one in load().list("model") if one.fixed])
def test_a_worker_builds_it_at_its_size(name: str) -> None:
    component = load().find("model", name)
    with torch.device("meta"):
        model = catalog.build("model", name, {})(50, 50 if component.tasks == ["language"] else 3)
    assert component.facts is not None
    blocks = getattr(model, "encoder", model).blocks
    assert len(blocks) == component.facts["depth"]
    assert {block.attn.heads for block in blocks} == {component.facts["heads"]}
    with pytest.raises(ValueError, match="unknown parameter"):
        catalog.build("model", name, {"width": 8})
