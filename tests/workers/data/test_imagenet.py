"""ImageNet in its layouts: the same ids, labels and hash in each, and nothing that is half there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data.formats.dataset import DataSet, logit_groups
from assay.workers.data.formats.images.imagenet_classes import class_list, listed_sets
from assay.workers.data.imagenet import imagenet
from tests.support.imagenet_trees import change, write_set

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
    for name in listed_sets():
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
