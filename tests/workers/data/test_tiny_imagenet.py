"""Tiny ImageNet: the archive's layout and the sorted one are the same set, and nothing is half there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from assay.workers.data import tiny_imagenet as module
from assay.workers.data.formats.dataset import CorruptData, DataSet, MissingData
from assay.workers.data.formats.images.imagenet_classes import class_list
from assay.workers.data.tiny_imagenet import tiny_imagenet
from tests.support.imagenet_trees import change, write_classes

WNIDS = class_list("imagenet")[: module.CLASSES]


def write(root: Path, changed: str = "none", *, folder: str = "tiny-imagenet-200") -> Path:
    """The set as its archive unpacks, one image for each class and two for the first."""
    where = root / folder
    for part in ("train", "val"):
        write_classes(where / part, WNIDS)
        change(where / part, changed)
    for wnid in WNIDS:
        (where / "train" / wnid).rename(where / "train" / "moved")
        (where / "train" / wnid).mkdir()
        (where / "train" / "moved").rename(where / "train" / wnid / "images")
        (where / "train" / wnid / f"{wnid}_boxes.txt").touch()
    flatten(where / "val")
    (where / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in reversed(WNIDS)))
    return where


def flatten(val: Path) -> None:
    """Moves the images of class folders into the folder `images`, and lists their classes."""
    (val / "images").mkdir()
    lines = []
    for image in sorted(val.glob("n*/*")):
        lines.append(f"{image.name}\t{image.parent.name}\t0\t0\t9\t9\n")
        image.rename(val / "images" / image.name)
    for wnid in WNIDS:
        (val / wnid).rmdir()
    (val / "val_annotations.txt").write_text("".join(reversed(lines)))


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> Callable[[str], DataSet]:
    """For tests/laws: one image for each class in either part, two for the first."""
    del monkeypatch
    write(root, changed)
    return lambda split: tiny_imagenet(root, "train" if split == "train" else "test")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path)


def test_labels_are_in_sorted_order_of_the_wordnet_ids(folder: Path) -> None:
    data, train = tiny_imagenet(folder.parent, "test"), tiny_imagenet(folder.parent, "train")
    assert (data.name, data.classes, len(data), data.published) == ("tiny_imagenet", 200, 201, 10_000)
    assert (data.class_names, data.labels.tolist()) == (WNIDS, [0, *range(200)])
    assert data.ids[:2] == [f"val/{WNIDS[0]}/{WNIDS[0]}_{image}.png" for image in (0, 1)]
    assert data.paths[0] == f"val/images/{WNIDS[0]}_0.png"
    assert (train.ids[2], train.published) == (f"train/{WNIDS[1]}/{WNIDS[1]}_0.png", None)
    assert train.labels.tolist() == [0, *range(200)]
    assert module.FACTS["classes"] == module.CLASSES


def test_sorted_validation_images_are_the_same_set(folder: Path, tmp_path: Path) -> None:
    other = write(tmp_path, folder="sorted")
    for line in (other / "val" / "val_annotations.txt").read_text().splitlines():
        name, wnid = line.split("\t")[:2]
        (other / "val" / wnid).mkdir(exist_ok=True)
        (other / "val" / "images" / name).rename(other / "val" / wnid / name)
    with pytest.raises(CorruptData, match="1 folders are none of the classes: images"):
        tiny_imagenet(tmp_path, "test", folder="sorted")
    (other / "val" / "images").rmdir()
    usual, moved = (tiny_imagenet(tmp_path, "test", folder=name) for name in (folder.name, "sorted"))
    assert list(usual.ids) == list(moved.ids)
    assert usual.content_sha256() == moved.content_sha256()
    assert torch.equal(usual.images([3, 7], 8), moved.images([3, 7], 8))


def test_only_the_part_that_is_read_is_needed(folder: Path) -> None:
    os.rename(folder / "train", folder / "elsewhere")
    assert len(tiny_imagenet(folder.parent, "test")) == 201
    with pytest.raises(MissingData, match=r"train does not exist\. .*tiny-imagenet-200\.zip"):
        tiny_imagenet(folder.parent, "train")


def test_classes_without_images_are_listed(folder: Path) -> None:
    (folder / "val" / "images" / f"{WNIDS[7]}_0.png").unlink()
    with pytest.raises(MissingData, match=rf"1 of 200 classes have no image: {WNIDS[7]}\."):
        tiny_imagenet(folder.parent, "test")


def test_images_without_the_list_of_their_classes_are_told(folder: Path) -> None:
    (folder / "val" / "val_annotations.txt").unlink()
    with pytest.raises(MissingData, match=r"val_annotations\.txt is wanted: it has the classes"):
        tiny_imagenet(folder.parent, "test")


def test_links_out_of_the_root_are_refused(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "list.txt"
    annotations = folder / "val" / "val_annotations.txt"
    annotations.rename(outside)
    annotations.symlink_to(outside)
    with pytest.raises(ValueError, match="symbolic link"):
        tiny_imagenet(folder.parent, "test")


def test_files_of_another_set_are_corrupt(folder: Path) -> None:
    annotations = folder / "val" / "val_annotations.txt"
    whole = annotations.read_text()
    annotations.write_text(whole + "more.png\tn99999999\t0\t0\t9\t9\n")
    with pytest.raises(
        CorruptData, match=r"val_annotations\.txt line 202: 'n99999999' is none of the classes"
    ):
        tiny_imagenet(folder.parent, "test")
    annotations.write_text("\n".join(whole.splitlines()[1:]))
    with pytest.raises(CorruptData, match=r"1 images are not in val_annotations\.txt: val/images/"):
        tiny_imagenet(folder.parent, "test")
    (folder / "train" / "n99999999").mkdir()
    with pytest.raises(CorruptData, match="1 folders are none of the classes: n99999999"):
        tiny_imagenet(folder.parent, "train")
    (folder / "wnids.txt").write_text("\n".join(WNIDS[1:]))
    with pytest.raises(CorruptData, match=r"wnids\.txt has 199 different classes; Tiny ImageNet has 200"):
        tiny_imagenet(folder.parent, "train")
    (folder / "wnids.txt").unlink()
    with pytest.raises(MissingData, match=r"wnids\.txt not found in"):
        tiny_imagenet(folder.parent, "train")
