"""ImageNet-O: its images are the anomalies, ImageNet's of the same 200 classes the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data.formats.dataset import CorruptData, DataSet, MissingData, logit_groups
from assay.workers.data.formats.images.imagenet_classes import class_list
from assay.workers.data.imagenet_o import imagenet_o
from tests.support.imagenet_trees import change, write_set

# As in the authors' evaluation.
LOGITS = [1, 51, 70, 79]


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> Callable[[str], DataSet]:
    """For tests/laws: one image for each class, two for the first."""
    del monkeypatch
    change(write_set(root, "imagenet_o"), changed)
    write_set(root, "imagenet", "val")
    return lambda split: imagenet_o(root, "train" if split == "train" else "test")


def test_anomalies_and_the_validation_images_of_their_classes(tmp_path: Path) -> None:
    write_set(tmp_path, "imagenet_o")
    write_set(tmp_path, "imagenet", "val")
    data = imagenet_o(tmp_path, "test")
    assert (data.name, data.task, data.classes, data.published) == (
        "imagenet_o",
        "anomaly_detection",
        200,
        12_000,
    )
    assert int(data.labels.sum()) == 201
    assert logit_groups(data)[:4] == [[place] for place in LOGITS]  # type: ignore[index]
    wnids = class_list("imagenet_o")
    normal = [identifier for identifier in data.ids if identifier.startswith("normal/")]
    assert [identifier.split("/")[1] for identifier in normal] == list(wnids)
    assert [bool(label) for label in data.labels] == [name.startswith("anomaly/") for name in data.ids]


def test_folders_have_no_part_in_ids_and_hash(tmp_path: Path) -> None:
    write_set(tmp_path, "imagenet_o")
    write_set(tmp_path, "imagenet", "val")
    first = imagenet_o(tmp_path, "test")
    ids, digest = list(first.ids), first.content_sha256()
    (tmp_path / "imagenet-o").rename(tmp_path / "o")
    (tmp_path / "imagenet" / "val").rename(tmp_path / "v")
    second = imagenet_o(tmp_path, "test", folder="o", negatives_folder="v")
    assert (list(second.ids), second.content_sha256()) == (ids, digest)


def test_each_of_the_two_folders_is_checked(tmp_path: Path) -> None:
    write_set(tmp_path, "imagenet_o")
    with pytest.raises(MissingData, match="data folder 'imagenet' is wanted"):
        imagenet_o(tmp_path, "test")
    write_set(tmp_path, "imagenet", "val")
    (tmp_path / "imagenet-o" / "more").mkdir()
    with pytest.raises(CorruptData, match=r"ImageNet-O is wanted in .*1 unexpected \(more\)"):
        imagenet_o(tmp_path, "test")


def test_another_set_is_recognised(tmp_path: Path) -> None:
    write_set(tmp_path, "imagenet", "val")
    write_set(tmp_path, "imagenet_a").rename(tmp_path / "imagenet-o")
    with pytest.raises(MissingData, match=r"These are the classes of ImageNet-A\."):
        imagenet_o(tmp_path, "test")
    write_set(tmp_path / "nested", "imagenet_o")
    with pytest.raises(MissingData, match=r"200 missing .*Did you mean the folder 'imagenet-o' in it\?"):
        imagenet_o(tmp_path, "test", folder="nested")


def test_there_is_nothing_to_train_on(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="ImageNet-O is a test set"):
        imagenet_o(tmp_path, "train")
