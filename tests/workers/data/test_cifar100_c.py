"""CIFAR-100-C: the arrays of CIFAR-10-C with the fine classes of CIFAR-100."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data import cifar100 as clean
from assay.workers.data import cifar100_c as module
from assay.workers.data.cifar100_c import cifar100_c
from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.formats.stored_arrays import StoredArrays
from tests.support.stored_arrays import IMAGES, labels_of, write_arrays


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], StoredArrays]:
    """For tests/laws: one corruption of a few images."""
    monkeypatch.setattr(module, "IMAGES", IMAGES)
    write_arrays(root / "CIFAR-100-C", ["fog"], 100, change)
    return lambda split: cifar100_c(root, "train" if split == "train" else "test")


def test_description(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = law_case(tmp_path, monkeypatch, "none")("test")
    assert (data.name, data.classes, len(data), data.sampled_as) == ("cifar100_c", 100, IMAGES, "cifar100")
    assert (data.class_names, data.mean, data.std) == (clean.CLASS_NAMES, clean.MEAN, clean.STD)
    assert data.labels.tolist() == labels_of(100)[:IMAGES].tolist()


def test_facts_are_those_of_the_complete_set() -> None:
    assert (module.FACTS["test"], module.FACTS["classes"]) == (module.IMAGES, len(clean.CLASS_NAMES))


def test_labels_of_another_set_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IMAGES", IMAGES)
    write_arrays(tmp_path / "CIFAR-100-C", ["fog"], 200)
    with pytest.raises(CorruptData, match=r"a label is outside 0\.\.99; this is not CIFAR-100-C"):
        cifar100_c(tmp_path, "test")
