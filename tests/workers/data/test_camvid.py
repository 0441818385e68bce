"""CamVid's folders, and what all sets of paired files do with theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data.camvid import camvid
from assay.workers.data.formats.images.segmentation_files import SegmentationFiles
from assay.workers.data.formats.segmentation import IGNORE, SegmentationSet
from tests.support.camvid import write
from tests.support.segmentation_files import change_pixel


@pytest.fixture
def data(tmp_path: Path) -> SegmentationFiles:
    write(tmp_path)
    return camvid(tmp_path, "test")


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], SegmentationSet]:
    """For tests/laws: four pairs in each part, with one pixel of an image or annotation changed."""
    del monkeypatch
    write(root)
    for part in ("train", "test"):
        if change == "pixel":
            change_pixel(root / "camvid" / part / f"{part}0.png", (1, 2, 3))
        if change == "label":
            change_pixel(root / "camvid" / f"{part}annot" / f"{part}0.png", 7)
    return lambda split: camvid(root, "train" if split == "train" else "test")


def test_description(data: SegmentationFiles) -> None:
    assert (data.name, data.task, data.classes, data.channels, data.size) == (
        "camvid", "segmentation", 11, 3, None,
    )  # fmt: skip
    assert list(data.ids) == [f"test/test{number}" for number in range(4)]
    assert data.class_names[3] == "road"


def test_parts(tmp_path: Path) -> None:
    write(tmp_path)
    assert camvid(tmp_path, "train").ids[0] == "train/train0"
    assert camvid(tmp_path, "test", evaluated="val").ids[0] == "val/val0"


def test_void_is_ignored_and_classes_are_kept(data: SegmentationFiles) -> None:
    # Of 48 columns in stripes of 12, the centre 32 x 32 begins at column 8.
    row = data.label_maps([0], 32)[0, 0].tolist()
    assert row == [0] * 4 + [3] * 12 + [IGNORE] * 12 + [10] * 4
