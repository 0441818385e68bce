"""The order of class folders as it is stated: labels move, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.workers.data.corrupted_folder import corrupted_folder
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.image_folder import image_folder
from tests.support.levels import write_levels


def test_labels_follow_the_stated_order_and_the_hash_pins_it(tmp_path: Path) -> None:
    write_levels(tmp_path / "set", ["ant", "bee", "cat"], each=5)
    plain = image_folder(tmp_path, "test", folder="set")
    stated = image_folder(tmp_path, "test", folder="set", class_names=["cat", "ant", "bee"])
    assert plain.sorted_classes
    assert not stated.sorted_classes
    assert stated.class_names == ("cat", "ant", "bee")
    assert [*stated.ids] == [*plain.ids], "the held-out part is the same"
    assert [stated.class_names[k] for k in stated.labels] == [plain.class_names[k] for k in plain.labels]
    assert stated.content_sha256() != plain.content_sha256()
    same = image_folder(tmp_path, "test", folder="set", class_names=["ant", "bee", "cat"])
    assert same.content_sha256() == plain.content_sha256()


def test_the_train_folder_names_the_classes_of_both_parts(tmp_path: Path) -> None:
    for part in ("train", "val"):
        write_levels(tmp_path / "set" / part, ["9", "10", "11"])
    (tmp_path / "set" / "labels.json").write_text('["11", "10", "9"]')
    plain = image_folder(tmp_path, "test", folder="set")
    assert plain.class_names == ("9", "10", "11")
    for split in ("train", "test"):
        stated = image_folder(tmp_path, split, folder="set", class_names_file="labels.json")  # type: ignore[arg-type]
        assert stated.class_names == ("11", "10", "9")


def test_other_names_are_refused_with_all_of_them(tmp_path: Path) -> None:
    write_levels(tmp_path / "set", ["ant", "bee"])
    with pytest.raises(CorruptData, match=r"'wasp'.*'bee', which the class names lack"):
        image_folder(tmp_path, "test", folder="set", class_names=["wasp", "ant"])
    with pytest.raises(CorruptData, match=r"has no file 'labels\.txt'"):
        image_folder(tmp_path, "test", folder="set", class_names_file="labels.txt")


def test_stored_corruptions_of_the_same_classes_have_the_same_labels(tmp_path: Path) -> None:
    for cell in ("fog/1", "fog/3"):
        write_levels(tmp_path / "stored" / cell, ["9", "10", "11"])
    write_levels(tmp_path / "clean", ["9", "10", "11"])
    stored = corrupted_folder(tmp_path, "test", folder="stored")
    clean = image_folder(tmp_path, "test", folder="clean", splits="all")
    assert stored.class_names == clean.class_names == ("9", "10", "11")
    assert stored.labels.tolist() == clean.labels.tolist()
    names = ["11", "9", "10"]
    stated = corrupted_folder(tmp_path, "test", folder="stored", class_names=names)
    clean = image_folder(tmp_path, "test", folder="clean", splits="all", class_names=names)
    assert stated.labels.tolist() == clean.labels.tolist()
    stated.check()
    with pytest.raises(MissingData, match="12"):
        corrupted_folder(tmp_path, "test", folder="stored", class_names=["9", "10", "11", "12"]).check()
