"""A user's own images in the layout of ImageNet-C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data.corrupted_folder import corrupted_folder
from assay.workers.data.formats.sampling import evaluation_order, sampled_as
from assay.workers.data.formats.stored_corruptions import StoredCorruptions
from assay.workers.data.image_folder import image_folder
from tests.support.stored_trees import change, write_cells


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> Callable[[str], StoredCorruptions]:
    """For tests/laws: three classes in one cell."""
    del monkeypatch
    write_cells(root / "stored", [("fog", 3)], ["ant", "bee", "cat"], side=30, images=3)
    change(root / "stored" / "fog" / "3", changed)
    return lambda split: corrupted_folder(root, "train" if split == "train" else "test", folder="stored")


def test_ids_are_those_of_the_clean_folder(tmp_path: Path) -> None:
    write_cells(tmp_path / "stored", [("fog", 3)], ["ant", "bee"], side=8, images=9)
    stored = corrupted_folder(tmp_path, "test", folder="stored")
    clean = image_folder(tmp_path, "test", folder="stored/fog/3", splits="all")
    assert stored.ids == list(clean.ids)
    assert stored.class_names == ("ant", "bee")
    orders = [evaluation_order(sampled_as(data), data.ids, 5) for data in (stored, clean)]
    assert orders[0] == orders[1]
