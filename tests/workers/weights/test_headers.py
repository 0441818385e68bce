"""Headers of weights files: reading, comparison with models, and derived facts."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from assay.models.layers.layers import Classifier
from assay.models.vit import vit
from assay.workers.jobs.failures import BadWeights
from assay.workers.weights.headers import Build, counts, fit, in_words, read_shapes, shapes_of

SHAPE: dict[str, Any] = {"image_size": 16, "patch_size": 8, "width": 12, "depth": 1, "heads": 3}
BUILD: Build = functools.partial(vit, **SHAPE)


def shapes(module: nn.Module, prefix: str = "") -> dict[str, tuple[int, ...]]:
    return {prefix + key: tuple(tensor.shape) for key, tensor in module.state_dict().items()}


def classifier(classes: int = 7, channels: int = 3) -> Classifier:
    return Classifier(BUILD(classes, channels), [0.0] * channels, [1.0] * channels)


def test_the_shapes_of_a_model_take_no_memory() -> None:
    huge = functools.partial(vit, image_size=224, width=16384, heads=16, depth=48)  # 600 GB
    assert shapes_of(huge, 10, 3)["backbone.blocks.47.mlp.fc1.weight"] == (65536, 16384)
    assert shapes_of(BUILD, 7, 3) == shapes(classifier())


def test_a_model_that_needs_values_while_it_is_built_is_built() -> None:
    def build(classes: int, channels: int) -> nn.Module:
        width = int(torch.linspace(0, 4, 2)[-1].item())
        return nn.Linear(channels * width, classes)

    assert shapes_of(build, 2, 1)["backbone.weight"] == (2, 4)


@pytest.mark.parametrize("prefix", ["", "model.", "module.", "state_dict.module."])
def test_files_tell_classes_and_channels(prefix: str) -> None:
    assert counts(BUILD, shapes(BUILD(1000, 1), prefix)) == (1000, 1)
    assert counts(BUILD, shapes(classifier(12, 4))) == (12, 4)


def test_files_that_lack_the_tensors_do_not_tell() -> None:
    given = shapes(BUILD(7, 3))
    body = {key: shape for key, shape in given.items() if not key.startswith(("head", "patch_embed"))}
    assert counts(BUILD, body) == (None, None)
    assert counts(BUILD, {**body, "head.weight": (9,)}) == (None, None)
    assert counts(BUILD, {}) == (None, None)


def test_weights_of_timm_fit() -> None:
    found = fit(shapes(BUILD(7, 3)), shapes(classifier()))
    assert (found.layout.name, found.faults) == ("timm", [])


def test_every_fault_is_listed_by_the_names_of_the_file() -> None:
    given = shapes(BUILD(7, 3), "model.") | {
        "model.head.weight": (3, 12),
        "optimizer": (1,),
        "model.tail": (),
    }
    del given["model.norm.bias"]
    found = fit(given, shapes(classifier()))
    assert found.layout.name == "deit"
    assert found.missing == ("model.norm.bias",)
    assert found.unexpected == ("optimizer", "model.tail")
    assert found.shapes == {"model.head.weight": ((3, 12), (7, 12))}
    assert found.faults[-1] == "model.head.weight has shape (3, 12), the model's is (7, 12)"
    assert found.other_classes(7) is None


def test_a_head_for_other_classes_is_told_apart() -> None:
    found = fit(shapes(BUILD(1000, 3)), shapes(classifier()))
    assert set(found.shapes) == {"head.weight", "head.bias"}
    assert found.other_classes(7) == 1000
    narrower: Build = functools.partial(vit, **(SHAPE | {"width": 6}))
    assert fit(shapes(narrower(7, 3)), shapes(classifier())).other_classes(7) is None
    assert fit(shapes(BUILD(7, 3)), shapes(classifier())).other_classes(7) is None


def test_a_long_list_is_cut() -> None:
    assert in_words(["a"] * 8).count("a;") == 7
    assert in_words(["a"] * 20).endswith("and 12 more")


def test_only_the_header_is_read(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    safetensors.torch.save_file({"a": torch.zeros(2, 3), "b": torch.tensor(1)}, path, metadata={"x": "y"})
    assert read_shapes(path) == ({"a": (2, 3), "b": ()}, {"x": "y"})
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadWeights, match="is damaged"):
        read_shapes(path)
    path.unlink()
    with pytest.raises(BadWeights, match="is gone"):
        read_shapes(path)
