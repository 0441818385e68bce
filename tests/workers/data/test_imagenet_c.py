"""ImageNet-C as published: its classes, its ids and its size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.images.imagenet_classes import class_list
from assay.workers.data.formats.sampling import evaluation_order, sampled_as
from assay.workers.data.formats.stored_corruptions import StoredCorruptions
from assay.workers.data.imagenet import imagenet
from assay.workers.data.imagenet_c import imagenet_c
from tests.support.imagenet_trees import write_classes
from tests.support.stored_trees import change, write_cells


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> Callable[[str], StoredCorruptions]:
    """For tests/laws: one image for each class, two for the first, in one cell."""
    del monkeypatch
    write_cells(root / "imagenet-c", [("fog", 3)], class_list("imagenet"))
    change(root / "imagenet-c" / "fog" / "3", changed)
    return lambda split: imagenet_c(root, "train" if split == "train" else "test")


def test_a_limit_takes_the_images_that_it_takes_of_imagenet(tmp_path: Path) -> None:
    write_cells(tmp_path / "imagenet-c", [("snow", 1)], class_list("imagenet"))
    write_classes(tmp_path / "imagenet" / "val", class_list("imagenet"))
    stored, clean = imagenet_c(tmp_path, "test"), imagenet(tmp_path, "test")
    assert stored.ids == list(clean.ids)
    assert stored.labels.tolist() == clean.labels.tolist()
    assert stored.class_names == clean.class_names
    assert stored.published == clean.published == 50_000
    taken = evaluation_order(sampled_as(stored), stored.ids, 20)
    assert taken == evaluation_order(sampled_as(clean), clean.ids, 20)
    assert taken != evaluation_order("imagenet_c", stored.ids, 20)


def test_classes_must_be_imagenets(tmp_path: Path) -> None:
    write_cells(tmp_path / "imagenet-c", [("snow", 1)], [*class_list("imagenet")[1:], "n99999999"])
    with pytest.raises(MissingData) as caught:
        imagenet_c(tmp_path, "test").check()
    assert "ImageNet-C is wanted in" in str(caught.value)
    assert "(n01440764); 1 folders are none of the classes (snow/1: n99999999)" in str(caught.value)


def test_images_that_are_too_small_are_another_set(tmp_path: Path) -> None:
    write_cells(tmp_path / "imagenet-c", [("snow", 1)], class_list("imagenet"), side=64)
    data = imagenet_c(tmp_path, "test")
    with pytest.raises(CorruptData, match="has 64 x 64 pixels; images of ImageNet-C have 224 x 224"):
        data.check()
    with pytest.raises(CorruptData, match="64 x 64"):
        data.images([0], 224)
