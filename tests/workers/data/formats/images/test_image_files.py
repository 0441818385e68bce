from __future__ import annotations

from pathlib import Path

import pytest

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.images.image_files import ImageFiles, find_images


def make(folder: Path, *paths: str) -> None:
    """Empty files: finding images opens none."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()


def find(folder: Path, split: str, splits: str = "auto") -> ImageFiles:
    return find_images(folder, folder.resolve(), split, splits, "image_folder")  # type: ignore[arg-type]


def test_imagenet_layout_evaluates_val_and_numbers_classes_by_name(tmp_path: Path) -> None:
    make(
        tmp_path,
        "train/n02/a.JPEG",
        "train/n01/b.JPEG",
        "val/n02/c.JPEG",
        "val/n01/d.JPEG",
        "test/n01/e.JPEG",
    )
    test = find(tmp_path, "test")
    assert test.class_names == ("n01", "n02")
    assert (test.ids, test.labels) == (["val/n01/d.JPEG", "val/n02/c.JPEG"], [0, 1])
    assert find(tmp_path, "train").ids == ["train/n01/b.JPEG", "train/n02/a.JPEG"]


def test_test_folder_is_used_without_val_and_an_unlabelled_one_is_not(tmp_path: Path) -> None:
    make(tmp_path, "train/a/1.png", "test/a/2.png")
    assert find(tmp_path, "test").ids == ["test/a/2.png"]
    other = tmp_path / "unlabelled"
    make(other, "train/a/1.png", "test/2.png", "test/3.png")
    with pytest.raises(MissingData, match="has only train"):
        find(other, "test")


def test_evaluation_classes_keep_the_numbers_of_train(tmp_path: Path) -> None:
    make(tmp_path, "train/a/1.png", "train/b/1.png", "train/c/1.png", "val/c/1.png")
    test = find(tmp_path, "test")
    assert (test.class_names, test.labels) == (("a", "b", "c"), [2])


def test_classes_that_train_lacks_are_refused(tmp_path: Path) -> None:
    make(tmp_path, "train/a/1.png", "train/b/1.png", "val/images/1.png")
    for split in ("train", "test"):
        with pytest.raises(CorruptData, match="class folders that train lacks: images"):
            find(tmp_path, split)


def test_missing_split_is_not_replaced_by_another(tmp_path: Path) -> None:
    make(tmp_path, "val/a/1.png", "val/b/1.png")
    with pytest.raises(MissingData, match=r"has only val\. Put them in .*/train/CLASS/"):
        find(tmp_path, "train")
    assert find(tmp_path, "train", "all").ids == ["val/a/1.png", "val/b/1.png"]


def test_users_folder_is_split_so_that_nothing_is_shared(tmp_path: Path) -> None:
    make(tmp_path, *(f"{name}/{index}.jpg" for name in ("cat", "dog") for index in range(11)))
    train, test = find(tmp_path, "train"), find(tmp_path, "test")
    assert (len(train.ids), len(test.ids)) == (18, 4)
    assert not set(train.ids) & set(test.ids)
    assert sorted(test.labels) == [0, 0, 1, 1]
    assert len(find(tmp_path, "test", "all").ids) == 22
    assert find(tmp_path, "train", "all") == find(tmp_path, "test", "all")


def test_all_takes_every_split_folder(tmp_path: Path) -> None:
    make(tmp_path, "train/a/1.png", "val/a/2.png", "test/a/3.png")
    assert find(tmp_path, "test", "all").ids == ["test/a/3.png", "train/a/1.png", "val/a/2.png"]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    make(tmp_path, *(f"{name}/{index}.jpg" for name in ("bus", "train") for index in range(5)))
    assert find(tmp_path, "test").class_names == ("bus", "train")


def test_hidden_files_and_other_suffixes_are_ignored_and_nested_ones_found(tmp_path: Path) -> None:
    make(
        tmp_path,
        "a/.hidden.png",
        "a/notes.txt",
        "a/deep/er/1.PNG",
        "a/.cache/2.png",
        "b/3.webp",
        ".git/4.png",
    )
    files = find(tmp_path, "test", "all")
    assert (files.ids, files.labels) == (["a/deep/er/1.PNG", "b/3.webp"], [0, 1])


def test_a_class_without_images_keeps_its_number(tmp_path: Path) -> None:
    make(tmp_path, "a/1.png", "c/1.png")
    (tmp_path / "b").mkdir()
    assert find(tmp_path, "test", "all").labels == [0, 2]


@pytest.mark.parametrize(
    ("paths", "error", "message"),
    [
        (["train/1.png", "val/2.png"], CorruptData, "images directly in train and val"),
        (["train/a/1.png", "dog/2.png"], CorruptData, r"split folders \(train\) and class folders \(dog\)"),
        (["only/1.png"], MissingData, "at least 2 class folders.*its folders are: only"),
        (["1.png"], MissingData, "its folders are: none"),
        (["a/1.txt", "b/1.txt"], MissingData, "class folders hold none"),
        (["a/1.png", "b/1.png"], MissingData, "every class has a single image"),
    ],
)
def test_layouts_that_cannot_be_meant_are_explained(
    tmp_path: Path, paths: list[str], error: type[Exception], message: str
) -> None:
    make(tmp_path, *paths)
    with pytest.raises(error, match=message):
        find(tmp_path, "test")


def test_links_may_stay_inside_but_not_leave_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(root, "set/a/1.png", "set/b/1.png", "store/x.png")
    make(tmp_path, "secret/x.png")
    (root / "set/a/2.png").symlink_to(root / "store/x.png")
    (root / "set/a/broken.png").symlink_to(root / "store/nothing.png")
    base = root.resolve()
    files = find_images(base / "set", base, "test", "all", "image_folder")
    assert files.ids == ["a/1.png", "a/2.png", "b/1.png"]
    (root / "set/a/3.png").symlink_to(tmp_path / "secret/x.png")
    with pytest.raises(ValueError, match="leads out of the data root"):
        find_images(base / "set", base, "test", "all", "image_folder")


def test_linked_folders_are_checked_and_loops_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(root, "set/a/1.png", "set/b/1.png")
    make(tmp_path, "secret/x.png")
    base = root.resolve()
    (root / "set/c").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match="leads out of the data root"):
        find_images(base / "set", base, "test", "all", "image_folder")
    (root / "set/c").unlink()
    (root / "set/a/loop").symlink_to(root / "set")
    with pytest.raises(ValueError, match="link to a folder inside a class"):
        find_images(base / "set", base, "test", "all", "image_folder")
