"""ImageNet's folders: where they lie, what is missing, and links."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.imagenet import imagenet
from tests.support.imagenet_trees import LISTS, WNIDS, write_classes, write_flat, write_set


@pytest.mark.parametrize("place", ["val", "ILSVRC2012_img_val", "ILSVRC/Data/CLS-LOC/val", "."])
def test_where_the_class_folders_lie_changes_nothing(tmp_path: Path, place: str) -> None:
    write_classes(tmp_path / "usual" / "val", WNIDS)
    write_classes(tmp_path / "other" / place, WNIDS)
    usual, other = (imagenet(tmp_path, "test", folder=name) for name in ("usual", "other"))
    assert list(usual.ids) == list(other.ids)
    assert usual.ids[0] == f"val/{WNIDS[0]}/{WNIDS[0]}_0.png"
    assert usual.content_sha256() == other.content_sha256()
    assert torch.equal(usual.images([3, 7], 8), other.images([3, 7], 8))


def test_two_kinds_at_once_are_refused(tmp_path: Path) -> None:
    folder = write_set(tmp_path, "imagenet", "val")
    (folder / WNIDS[5]).mkdir()
    with pytest.raises(CorruptData, match="has both class folders and the folder val"):
        imagenet(tmp_path, "test")
    (folder / WNIDS[5]).rmdir()
    write_flat(folder / "val", 1)
    with pytest.raises(CorruptData, match="has both class folders and images beside them"):
        imagenet(tmp_path, "test")


def test_what_is_missing_or_too_much_is_listed(tmp_path: Path) -> None:
    folder = write_set(tmp_path, "imagenet", "val") / "val"
    for wnid in WNIDS[10:17]:
        (folder / wnid / f"{wnid}_0.png").unlink()
    for wnid in WNIDS[10:16]:
        (folder / wnid).rmdir()
    (folder / "cats").mkdir()
    with pytest.raises(MissingData) as caught:
        imagenet(tmp_path, "test")
    for part in (
        f"6 missing ({', '.join(WNIDS[10:15])}, ...)",
        f"1 without an image ({WNIDS[16]})",
        "1 unexpected (cats)",
        "its 1000 classes",
        "Layouts: FOLDER/val/WNID/IMAGE",
    ):
        assert part in str(caught.value)


def test_a_missing_training_part_is_explained(tmp_path: Path) -> None:
    write_set(tmp_path, "imagenet", "val")
    with pytest.raises(MissingData, match=r"training images are wanted in .*train, which does not exist"):
        imagenet(tmp_path, "train")


def test_links_must_stay_inside(tmp_path: Path) -> None:
    write_classes(tmp_path / "outside", WNIDS)
    (tmp_path / "root" / "imagenet").mkdir(parents=True)
    (tmp_path / "root" / "imagenet" / "val").symlink_to(tmp_path / "outside")
    with pytest.raises(ValueError, match="leads out of the data root"):
        imagenet(tmp_path / "root", "test")
    write_flat(tmp_path / "root" / "flat" / "val", 2)
    (tmp_path / "val.txt").write_text(LISTS["val.txt"])
    (tmp_path / "root" / "flat" / "val.txt").symlink_to(tmp_path / "val.txt")
    with pytest.raises(ValueError, match="leads out of the data root"):
        imagenet(tmp_path / "root", "test", folder="flat")
