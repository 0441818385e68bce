"""ImageNet-Sketch: all of ImageNet's classes, and another test set than ImageNet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data import imagenet_sketch as module
from assay.workers.data.formats.dataset import DataSet, MissingData, logit_groups
from assay.workers.data.formats.images.imagenet_classes import class_list
from assay.workers.data.formats.sampling import sampled_as
from assay.workers.data.imagenet_sketch import imagenet_sketch
from tests.support.imagenet_trees import change, write_classes

WNIDS = class_list("imagenet")


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> Callable[[str], DataSet]:
    """For tests/laws: one image for each class, two for the first."""
    del monkeypatch
    write_classes(root / "imagenet-sketch", WNIDS)
    change(root / "imagenet-sketch", changed)
    return lambda split: imagenet_sketch(root, "train" if split == "train" else "test")


def test_description(tmp_path: Path) -> None:
    write_classes(tmp_path / "imagenet-sketch", WNIDS)
    data = imagenet_sketch(tmp_path, "test")
    assert (data.name, data.classes, len(data), data.published) == ("imagenet_sketch", 1000, 1001, 50_889)
    assert (data.class_names, data.labels.tolist()) == (WNIDS, [0, *range(1000)])
    assert (logit_groups(data), sampled_as(data)) == (None, "imagenet_sketch")
    assert module.FACTS["test"] == data.published


def test_a_class_without_drawings_and_the_archives_folder_are_told(tmp_path: Path) -> None:
    write_classes(tmp_path / "imagenet-sketch" / "sketch", WNIDS)
    with pytest.raises(MissingData, match=r"ImageNet-Sketch is wanted .*Did you mean the folder 'sketch'"):
        imagenet_sketch(tmp_path, "test")
    where = tmp_path / "imagenet-sketch" / "sketch"
    (where / WNIDS[5] / f"{WNIDS[5]}_0.png").unlink()
    with pytest.raises(MissingData, match=rf"1 without an image \({WNIDS[5]}\)\. Unpack ImageNet-Sketch"):
        imagenet_sketch(tmp_path, "test", folder="imagenet-sketch/sketch")
