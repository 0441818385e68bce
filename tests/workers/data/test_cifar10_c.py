"""CIFAR-10-C: its severities are blocks of an array, and its examples are CIFAR-10's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.workers.data import cifar10 as clean
from assay.workers.data import cifar10_c as module
from assay.workers.data.cifar10_c import cifar10_c
from assay.workers.data.formats.dataset import Levels, resize
from assay.workers.data.formats.sampling import evaluation_order, sampled_as
from assay.workers.data.formats.stored_arrays import StoredArrays
from tests.support.stored_arrays import IMAGES, array_of, labels_of, write_arrays


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "IMAGES", IMAGES)
    write_arrays(tmp_path / "CIFAR-10-C", ["fog", "snow"], 10)
    return tmp_path


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], StoredArrays]:
    """For tests/laws: one corruption of a few images."""
    monkeypatch.setattr(module, "IMAGES", IMAGES)
    write_arrays(root / "CIFAR-10-C", ["fog"], 10, change)
    return lambda split: cifar10_c(root, "train" if split == "train" else "test")


def test_severities_are_blocks_of_the_array(root: Path) -> None:
    data = cifar10_c(root, "test")
    assert data.cells == [(name, severity) for name in ("snow", "fog") for severity in range(1, 6)]
    assert data.labels.tolist() == labels_of(10)[:IMAGES].tolist()
    whole = torch.from_numpy(array_of("fog")).permute(0, 3, 1, 2).float() / 255
    for severity in range(1, 6):
        found = data.cell_images(("fog", severity), range(IMAGES), 32)
        assert isinstance(found, Levels)
        assert torch.equal(found.pixels(), whole[(severity - 1) * IMAGES : severity * IMAGES])
    resized = data.cell_images(("fog", 2), [3], 16)
    assert isinstance(resized, torch.Tensor)
    assert torch.equal(resized, resize(whole[IMAGES + 3 : IMAGES + 4], 16))


def test_one_array_is_mapped_at_a_time_and_none_is_read(root: Path) -> None:
    data = cifar10_c(root, "test")
    for name, other in (("fog", "snow"), ("snow", "fog")):
        data.cell_images((name, 1), [0], 32)
        mapped = Path("/proc/self/maps").read_text()
        assert str(root / "CIFAR-10-C" / f"{name}.npy") in mapped
        assert str(root / "CIFAR-10-C" / f"{other}.npy") not in mapped


def test_a_limit_takes_the_images_that_it_takes_of_cifar10(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clean, "ROWS", IMAGES)
    (root / "cifar10" / clean.BINARY).mkdir(parents=True)
    np.zeros((IMAGES, clean.ROW_BYTES), np.uint8).tofile(root / "cifar10" / clean.BINARY / "test_batch.bin")
    stored, original = cifar10_c(root, "test"), clean.cifar10(root, "test")
    assert list(stored.ids) == list(original.ids)
    assert (stored.class_names, stored.mean, stored.std) == (clean.CLASS_NAMES, clean.MEAN, clean.STD)
    taken = evaluation_order(sampled_as(stored), stored.ids, 5)
    assert taken == evaluation_order(sampled_as(original), original.ids, 5)
    assert taken != evaluation_order("cifar10_c", stored.ids, 5)


def test_facts_are_those_of_the_complete_set() -> None:
    assert (module.FACTS["test"], module.FACTS["classes"]) == (module.IMAGES, len(clean.CLASS_NAMES))
