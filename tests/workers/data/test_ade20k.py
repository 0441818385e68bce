from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data.ade20k import ade20k
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.segmentation import IGNORE, SegmentationSet
from tests.support.segmentation_files import change_pixel, write_pair

ARCHIVE = Path("ade20k") / "ADEChallengeData2016"
HEADER = "Idx\tRatio\tTrain\tVal\tName\t\t\n"


def write(root: Path, archive: Path = ARCHIVE) -> None:
    for part in ("training", "validation"):
        for number in range(4):
            image = root / archive / "images" / part / f"ADE_{part}_{number}.jpg"
            annotation = root / archive / "annotations" / part / f"ADE_{part}_{number}.png"
            write_pair(image, annotation, [0, 1, 150], (48, 36), seed=number)
    rows = [f"{number}\t0.1\t5\t6\tthing {number}, object {number}\n" for number in range(1, 151)]
    (root / archive / "objectInfo150.txt").write_text(HEADER.rstrip() + "\n" + "".join(rows))


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], SegmentationSet]:
    """For tests/laws: four pairs in each part, with one pixel of an image or annotation changed."""
    del monkeypatch
    write(root)
    for part in ("training", "validation"):
        if change == "pixel":
            change_pixel(root / ARCHIVE / "images" / part / f"ADE_{part}_0.jpg", (1, 2, 3))
        if change == "label":
            change_pixel(root / ARCHIVE / "annotations" / part / f"ADE_{part}_0.png", 7)
    return lambda split: ade20k(root, "train" if split == "train" else "test")


def test_description(tmp_path: Path) -> None:
    write(tmp_path)
    data = ade20k(tmp_path, "test")
    assert (data.name, data.task, data.classes, data.channels) == ("ade20k", "segmentation", 150, 3)
    assert data.class_names[0] == "thing 1, object 1"
    assert data.ids[0] == "images/validation/ADE_validation_0"
    assert ade20k(tmp_path, "train").ids[0] == "images/training/ADE_training_0"


def test_zero_is_ignored_and_classes_begin_at_zero(tmp_path: Path) -> None:
    write(tmp_path)
    # Of 48 columns in stripes of 16, the centre 36 x 36 begins at column 6.
    row = ade20k(tmp_path, "test").label_maps([0], 36)[0, 0].tolist()
    assert row == [IGNORE] * 10 + [0] * 16 + [149] * 10


def test_the_folder_may_be_the_archives_own(tmp_path: Path) -> None:
    write(tmp_path, Path("scenes"))
    assert len(ade20k(tmp_path, "test", folder="scenes")) == 4


def test_missing_parts_are_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / ARCHIVE / "annotations" / "training").rename(tmp_path / "away")
    with pytest.raises(MissingData, match=r"missing: annotations/training/\."):
        ade20k(tmp_path, "train")
    assert len(ade20k(tmp_path, "test")) == 4
    (tmp_path / ARCHIVE / "objectInfo150.txt").unlink()
    with pytest.raises(MissingData, match=r"names of ADE20K's classes are wanted in .*objectInfo150\.txt"):
        ade20k(tmp_path, "test")


def test_a_wrong_list_of_classes_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / ARCHIVE / "objectInfo150.txt").write_text("Idx\tName\n1\twall\n")
    with pytest.raises(CorruptData, match="1 different names; ADE20K has 150 classes"):
        ade20k(tmp_path, "test")


def test_values_above_150_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    data = ade20k(tmp_path, "test")
    change_pixel(data.folder / "annotations" / "validation" / "ADE_validation_0.png", 151)
    with pytest.raises(CorruptData, match=r"has the value 151.*allowed: 0 to 150"):
        data.label_maps([0], 36)
