"""Labels of ImageNet's images: from class folders, from a list, or from the development kit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.imagenet import imagenet
from tests.support.imagenet_trees import LISTS, WNIDS, classes_of_flat, lines, name_of, write_flat


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """1000 validation images in one folder; image i is of class 64 + i, and image 1 as it should be."""
    write_flat(tmp_path / "imagenet" / "val", 1000)
    return tmp_path


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


@pytest.mark.costly
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
