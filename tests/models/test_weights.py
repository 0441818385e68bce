"""Key maps: names of state dicts from elsewhere."""

from __future__ import annotations

import pytest

from models.layers import Classifier
from models.symvit import symvit
from models.vit import vit
from models.weights import LAYOUTS, Layout, find_layout

SHAPE = {"image_size": 16, "patch_size": 8, "width": 12, "depth": 1, "heads": 3}
WANTED = list(Classifier(symvit(10, 3, **SHAPE), [0.0] * 3, [1.0] * 3).state_dict())
BARE = [key.removeprefix("backbone.") for key in WANTED if key.startswith("backbone.")]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_names_of_each_layout_are_known_and_go_both_ways(layout: Layout) -> None:
    named = {key: layout.to_theirs(key) for key in WANTED}
    theirs = [there for there in named.values() if there is not None]
    assert {key for key, there in named.items() if there is None} == (
        set() if layout.name == "assay" else {"mean", "std"}
    )
    assert find_layout(theirs, WANTED) == layout
    assert [layout.to_ours(there) for there in theirs] == [key for key, there in named.items() if there]


def test_names_of_another_layout_are_nobodys() -> None:
    deit = LAYOUTS[2]
    assert (deit.to_ours("optimizer.step"), deit.to_ours("model.norm.bias")) == (None, "backbone.norm.bias")


def test_an_extra_tensor_does_not_change_the_layout() -> None:
    assert find_layout([*(f"model.{key}" for key in BARE), "optimizer.step", "epoch"], WANTED).name == "deit"
    assert find_layout(["nothing", "known"], WANTED).name == "assay"


def test_a_timm_vit_has_the_names_of_ours() -> None:
    from timm import create_model

    options = {"img_size": 16, "patch_size": 8, "embed_dim": 12, "depth": 2, "num_heads": 3, "num_classes": 7}
    theirs = create_model("vit_tiny_patch16_224", **options).state_dict()
    ours = vit(7, 3, **(SHAPE | {"depth": 2})).state_dict()
    assert {key: tuple(t.shape) for key, t in theirs.items()} == {
        key: tuple(t.shape) for key, t in ours.items()
    }
