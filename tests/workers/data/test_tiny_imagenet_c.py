"""Tiny ImageNet-C: 200 classes of 64 pixels, with the labels of Tiny ImageNet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.sampling import sampled_as
from assay.workers.data.formats.stored_corruptions import StoredCorruptions
from assay.workers.data.tiny_imagenet import tiny_imagenet
from assay.workers.data.tiny_imagenet_c import tiny_imagenet_c
from tests.support.stored_trees import change, write_cells
from tests.workers.data.test_tiny_imagenet import WNIDS, write


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> Callable[[str], StoredCorruptions]:
    """For tests/laws: one image for each class, two for the first, in one cell."""
    del monkeypatch
    write_cells(root / "Tiny-ImageNet-C", [("fog", 3)], WNIDS, side=64)
    change(root / "Tiny-ImageNet-C" / "fog" / "3", changed)
    return lambda split: tiny_imagenet_c(root, "train" if split == "train" else "test")


def test_classes_are_those_of_tiny_imagenet(tmp_path: Path) -> None:
    write_cells(tmp_path / "Tiny-ImageNet-C", [("snow", 1), ("snow", 2)], WNIDS, side=64)
    write(tmp_path)
    stored, clean = tiny_imagenet_c(tmp_path, "test"), tiny_imagenet(tmp_path, "test")
    stored.check()
    assert stored.class_names == clean.class_names
    assert (stored.classes, stored.published, len(stored)) == (200, 10_000, 201)
    assert sampled_as(stored) == "tiny_imagenet_c"  # its images are others


def test_another_number_of_classes_is_another_set(tmp_path: Path) -> None:
    write_cells(tmp_path / "Tiny-ImageNet-C", [("snow", 1)], WNIDS[1:], side=64)
    with pytest.raises(MissingData, match=r"Tiny ImageNet-C is wanted .*it has 199 classes instead of 200"):
        tiny_imagenet_c(tmp_path, "test").check()


def test_images_that_are_too_small_are_another_set(tmp_path: Path) -> None:
    write_cells(tmp_path / "Tiny-ImageNet-C", [("snow", 1)], WNIDS, side=32)
    with pytest.raises(CorruptData, match="has 32 x 32 pixels; images of Tiny ImageNet-C have 64 x 64"):
        tiny_imagenet_c(tmp_path, "test").check()
