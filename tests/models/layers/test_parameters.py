from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from assay.models.layers.parameters import layer_rule, select_layers


@pytest.mark.parametrize(
    ("layers", "expected"),
    [("all", {0, 1, 2, 3}), ("first", {0}), ("last", {3}), ([1, 3], {1, 3}), ([2, 2], {2})],
)
def test_select_layers(layers: Any, expected: set[int]) -> None:
    assert select_layers(layers, 4) == expected


@pytest.mark.parametrize("layers", [[], [4], [-1], [0, 9], "middle"])
def test_layers_that_are_not_there_are_refused(layers: Any) -> None:
    with pytest.raises(ValueError, match="layers must be"):
        select_layers(layers, 4)


@pytest.mark.parametrize(
    ("layers", "holds"),
    [
        ("all", True),
        ("first", True),
        ("last", True),
        ([0, 3], True),
        ([], False),
        ([4], False),
        ([-1], False),
    ],
)
def test_the_rule_agrees_with_select_layers(layers: Any, holds: bool) -> None:
    rule, message = layer_rule("layers")
    assert eval(rule, {"model": SimpleNamespace(layers=layers, depth=4)}) is holds
    assert message == "layers must be all, first, last, or a list of layers from 0 to depth - 1"
