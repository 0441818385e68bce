"""ImageNet in its layouts: the same ids, labels and hash in each, and nothing that is half there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from assay.workers.data.formats.dataset import CorruptData, DataSet, MissingData, logit_groups
from assay.workers.data.formats.imagenet_classes import TITLES, class_list
from assay.workers.data.imagenet import imagenet
from tests.support.imagenet_trees import change, write_classes, write_flat, write_set

WNIDS = class_list("imagenet")


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> Callable[[str], DataSet]:
    """For tests/laws: one image for each class in either part, two for the first."""
    del monkeypatch
    folder = write_set(root, "imagenet", "train", "val")
    for part in ("train", "val"):
        change(folder / part, changed)
    return lambda split: imagenet(root, "train" if split == "train" else "test")


def test_the_lists_are_imagenets() -> None:
    # Hash of the folder names, a line each; known before the lists were written.
    digest = hashlib.sha256("".join(f"{wnid}\n" for wnid in WNIDS).encode()).hexdigest()
    assert digest == "70002b0ff5de60a3a17a82dbfcff291931f96225ddf941ad2e182fc39e183d15"
    for name in TITLES:
        names = class_list(name)
        assert list(names) == sorted(set(names))
        assert set(names) <= set(WNIDS)
        assert len(names) == (1000 if name == "imagenet" else 200)


def test_description(tmp_path: Path) -> None:
    write_set(tmp_path, "imagenet", "train", "val")
    data = imagenet(tmp_path, "test")
    assert (data.name, data.classes, len(data), data.published) == ("imagenet", 1000, 1001, 50_000)
    assert (data.class_names, data.labels.tolist()) == (WNIDS, [0, *range(1000)])
    assert logit_groups(data) is None
    train = imagenet(tmp_path, "train")
    assert (train.ids[0], train.published) == (f"train/{WNIDS[0]}/{WNIDS[0]}_0.png", None)


@pytest.mark.parametrize("place", ["val", "ILSVRC2012_img_val", "ILSVRC/Data/CLS-LOC/val", "."])
def test_where_the_class_folders_lie_changes_nothing(tmp_path: Path, place: str) -> None:
    write_classes(tmp_path / "usual" / "val", WNIDS)
    write_classes(tmp_path / "other" / place, WNIDS)
    usual, other = (imagenet(tmp_path, "test", folder=name) for name in ("usual", "other"))
    assert list(usual.ids) == list(other.ids)
    assert usual.ids[0] == f"val/{WNIDS[0]}/{WNIDS[0]}_0.png"
    assert usual.content_sha256() == other.content_sha256()
    assert torch.equal(usual.images([3, 7], 8), other.images([3, 7], 8))


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """1000 validation images in one folder; image i is of class 64 + i, and image 1 as it should be."""
    write_flat(tmp_path / "imagenet" / "val", 1000)
    return tmp_path


def classes_of_flat() -> list[int]:
    return [(64 + number) % 1000 for number in range(1, 1001)]


def name_of(number: int, suffix: str = ".JPEG") -> str:
    return f"ILSVRC2012_val_{number:08d}{suffix}"


def lines(texts: list[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


LISTS = {
    "val.txt": lines([f"{name_of(i)} {label}" for i, label in enumerate(classes_of_flat(), 1)]),
    "val_list.txt": lines([f"val/{name_of(i)} {label}" for i, label in enumerate(classes_of_flat(), 1)]),
    "imagenet2012_val_synset_codes.txt": lines(
        [f"{name_of(i)} {WNIDS[label]}" for i, label in enumerate(classes_of_flat(), 1)]
    ),
    "imagenet_2012_validation_synset_labels.txt": lines([WNIDS[label] for label in classes_of_flat()]),
    "LOC_val_solution.csv": "ImageId,PredictionString\n"
    + lines([f"{name_of(i, '')},{WNIDS[label]} 1 2 3 4 " for i, label in enumerate(classes_of_flat(), 1)]),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("place", ["", "val"])
def test_a_list_of_labels_does_for_one_folder_of_images(flat: Path, name: str, place: str) -> None:
    (flat / "imagenet" / place / name).write_text(LISTS[name])
    check_flat(flat)


def test_the_development_kit_does(flat: Path) -> None:
    kit = flat / "imagenet" / "ILSVRC2012_devkit_t12" / "data"
    kit.mkdir(parents=True)
    order = [WNIDS[(7 * number) % 1000] for number in range(1000)]  # the kit numbers classes in its own way
    rows = [(number, wnid, 0) for number, wnid in enumerate(order, 1)] + [(1001, "n00001740", 3)]
    synsets = np.array(rows, dtype=[("ILSVRC2012_ID", "i4"), ("WNID", "O"), ("num_children", "i4")])
    savemat(kit / "meta.mat", {"synsets": synsets})
    numbers = {wnid: number for number, wnid, _ in rows}
    truth = [str(numbers[WNIDS[label]]) for label in classes_of_flat()]
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text(lines(truth))
    check_flat(flat)
    (kit / "meta.mat").write_bytes(b"no matrix")
    with pytest.raises(CorruptData, match=r"is not the meta\.mat of the development kit"):
        imagenet(flat, "test")


def check_flat(root: Path) -> None:
    data = imagenet(root, "test")
    assert data.ids[0] == f"val/{WNIDS[0]}/{name_of(936, '.png')}"
    assert data.labels.tolist() == list(range(1000))
    assert data.paths[65].endswith(name_of(1, ".png"))
    assert data.images([65], 8).shape == (1, 3, 8, 8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LISTS["val.txt"].replace(" 65\n", " 490\n", 1), f"image 1 the class {WNIDS[490]}.*another order"),
        (LISTS["val.txt"].replace(" 66\n", " 1000\n"), "the class '1000'.*from 0 to 999"),
        (LISTS["val.txt"].replace(name_of(2), "cat.jpg"), "a line for 'cat.jpg'"),
        (LISTS["val.txt"].rpartition(name_of(1000))[0], "1 images have no label in .*00001000.png"),
        (LISTS["val.txt"].replace(" 66\n", " 67\n"), r"1 without an image \(n01753488\)"),
    ],
    ids=["another order", "no class", "no image", "too short", "a class without images"],
)
def test_a_list_that_is_wrong_is_refused(flat: Path, content: str, message: str) -> None:
    (flat / "imagenet" / "val.txt").write_text(content)
    with pytest.raises((CorruptData, MissingData), match=message):
        imagenet(flat, "test")


def test_a_whole_list_has_fifty_of_each_class(flat: Path) -> None:
    fifty = [classes_of_flat()[number % 1000] for number in range(50_000)]
    text = lines([WNIDS[label] for label in fifty])
    (flat / "imagenet" / "imagenet_2012_validation_synset_labels.txt").write_text(text)
    check_flat(flat)
    changed = text[: text.rindex("n")] + WNIDS[0] + "\n"
    (flat / "imagenet" / "imagenet_2012_validation_synset_labels.txt").write_text(changed)
    with pytest.raises(CorruptData, match="does not have 50 images of every class"):
        imagenet(flat, "test")


def test_images_without_classes_and_without_a_list_are_explained(flat: Path) -> None:
    with pytest.raises(MissingData, match=r"one of LOC_val_solution\.csv, .*in its data, ILSVRC2012_devkit"):
        imagenet(flat, "test")


def test_other_names_in_one_folder_are_refused(flat: Path) -> None:
    (flat / "imagenet" / "val.txt").write_text(LISTS["val.txt"])
    (flat / "imagenet" / "val" / name_of(1, ".png")).rename(flat / "imagenet" / "val" / "cat.png")
    with pytest.raises(CorruptData, match=r"1 images are not called ILSVRC2012_val_NUMBER: cat\.png"):
        imagenet(flat, "test")


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
