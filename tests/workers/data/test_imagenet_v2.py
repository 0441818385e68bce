"""ImageNet-V2: its folders are numbers, in the order of numbers, not of their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data import imagenet_v2 as module
from assay.workers.data.formats.dataset import CorruptData, DataSet, MissingData, logit_groups
from assay.workers.data.formats.images.imagenet_classes import class_list
from assay.workers.data.imagenet_v2 import FOLDERS, imagenet_v2
from tests.support.imagenet_trees import change, write_classes


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> Callable[[str], DataSet]:
    """For tests/laws: one image for each class, two for the first."""
    del monkeypatch
    write_classes(root / "imagenet-v2", FOLDERS)
    change(root / "imagenet-v2", changed)
    return lambda split: imagenet_v2(root, "train" if split == "train" else "test")


def test_a_label_is_the_number_of_the_folder(tmp_path: Path) -> None:
    write_classes(tmp_path / "imagenet-v2", FOLDERS)
    data = imagenet_v2(tmp_path, "test")
    assert (data.name, data.classes, len(data), data.published) == ("imagenet_v2", 1000, 1001, 10_000)
    assert data.class_names == class_list("imagenet")
    assert logit_groups(data) is None
    labels = dict(zip(data.ids, data.labels.tolist(), strict=True))
    assert [labels[f"{number}/{number}_0.png"] for number in (2, 10, 100, 999)] == [2, 10, 100, 999]
    assert {int(identifier.split("/")[0]) == label for identifier, label in labels.items()} == {True}
    assert list(data.ids) == sorted(data.ids)


def test_facts_are_those_of_the_published_set(tmp_path: Path) -> None:
    write_classes(tmp_path / "v2", FOLDERS)
    assert module.FACTS["test"] == imagenet_v2(tmp_path, "test", folder="v2").published


def test_a_missing_number_and_other_folders_are_listed(tmp_path: Path) -> None:
    write_classes(tmp_path / "imagenet-v2", [*FOLDERS[:-1], "01"])
    with pytest.raises(MissingData) as caught:
        imagenet_v2(tmp_path, "test")
    assert "ImageNet-V2 is wanted in" in str(caught.value)
    assert "named by its number, 0 to 999, and no other folders" in str(caught.value)
    assert "1 missing (999); 1 unexpected (01)" in str(caught.value)


def test_the_archives_folder_and_another_set_are_recognised(tmp_path: Path) -> None:
    archive = "imagenetv2-matched-frequency-format-val"
    write_classes(tmp_path / "imagenet-v2" / archive, FOLDERS)
    with pytest.raises(MissingData, match=f"Did you mean the folder '{archive}' in it"):
        imagenet_v2(tmp_path, "test")
    assert len(imagenet_v2(tmp_path, "test", folder=f"imagenet-v2/{archive}")) == 1001
    write_classes(tmp_path / "other", class_list("imagenet"))
    with pytest.raises(MissingData, match="These are the classes of ImageNet"):
        imagenet_v2(tmp_path, "test", folder="other")


def test_a_surplus_folder_is_corrupt(tmp_path: Path) -> None:
    write_classes(tmp_path / "imagenet-v2", [*FOLDERS, "1000"])
    with pytest.raises(CorruptData, match=r"1 unexpected \(1000\)"):
        imagenet_v2(tmp_path, "test")
