"""Published sets of images are known by what is in their folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.service.catalog.catalog import load
from assay.workers.data.formats.images.imagenet_classes import class_list
from assay.workers.data.formats.images.known_sets import known_set, set_of_imagenet

MARKS = {c.name: c.facts["marks"] for c in load().list("data") if c.facts and "marks" in c.facts}


@pytest.mark.parametrize(("name", "mark"), [(name, mark) for name, marks in MARKS.items() for mark in marks])
def test_a_folder_with_a_mark_of_a_set_is_the_set(tmp_path: Path, name: str, mark: str) -> None:
    assert known_set(tmp_path) is None
    (tmp_path / mark).mkdir(parents=True)
    assert known_set(tmp_path) == name


def test_seven_sets_have_marks() -> None:
    assert sorted(MARKS) == [
        "ade20k", "camvid", "cifar10", "cifar100", "objectnet", "svhn", "tiny_imagenet",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["imagenet", "imagenet_a", "imagenet_o", "imagenet_r"])
def test_a_set_of_imagenet_is_known_by_its_classes(tmp_path: Path, name: str) -> None:
    assert set_of_imagenet(tmp_path) is None
    for wnid in class_list(name):
        (tmp_path / wnid).mkdir()
    assert set_of_imagenet(tmp_path) == name
