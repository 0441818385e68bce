"""ImageNet-R: 200 of ImageNet's classes, in the order of their own WordNet ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data.formats.dataset import DataSet, MissingData, logit_groups
from assay.workers.data.formats.images.imagenet_classes import class_list
from assay.workers.data.imagenet_r import imagenet_r
from tests.support.imagenet_trees import change, write_set

PUBLISHED = 30_000
# As in the authors' evaluation.
LOGITS = [1, 2, 4, 6]


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> Callable[[str], DataSet]:
    """For tests/laws: one image for each class, two for the first."""
    del monkeypatch
    change(write_set(root, "imagenet_r"), changed)
    return lambda split: imagenet_r(root, "train" if split == "train" else "test")


def test_labels_are_places_among_the_200_and_logits_among_the_1000(tmp_path: Path) -> None:
    write_set(tmp_path, "imagenet_r")
    data = imagenet_r(tmp_path, "test")
    assert (data.name, data.classes, len(data), data.published) == ("imagenet_r", 200, 201, PUBLISHED)
    assert data.labels.tolist() == [0, *range(200)]
    groups = logit_groups(data)
    assert groups is not None
    logits = [place for (place,) in groups]
    assert [class_list("imagenet")[logit] for logit in logits] == list(data.class_names)
    assert logits[:4] == LOGITS
    for label, identifier in zip(data.labels.tolist(), data.ids, strict=True):
        assert identifier.startswith(f"{data.class_names[label]}/")


def test_there_is_nothing_to_train_on(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="ImageNet-R is a test set"):
        imagenet_r(tmp_path, "train")
