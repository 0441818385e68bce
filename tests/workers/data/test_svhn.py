"""SVHN: its labels, of which 10 is the digit 0, and its arrays, whose last axis counts the images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import loadmat, savemat

from assay.workers.data import svhn as module
from assay.workers.data.formats.dataset import CorruptData, DataSet, MissingData
from assay.workers.data.svhn import svhn

IMAGES = {"train": 15, "test": 11}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "IMAGES", IMAGES)
    write(tmp_path)
    return tmp_path


def arrays(split: str) -> dict[str, Any]:
    """Content of a file: X, uint8 (32, 32, 3, n), and y, uint8 (n, 1)."""
    n = IMAGES[split]
    pixels = np.random.default_rng(n).integers(0, 256, (32, 32, 3, n), dtype=np.uint8)
    return {"X": pixels, "y": (np.arange(n, dtype=np.uint8)[::-1, None] % 10) + 1}


def write(root: Path, change: str = "none") -> None:
    (root / "svhn").mkdir()
    for split in IMAGES:
        content = arrays(split)
        if change == "pixel":
            content["X"][-1, -1, -1, -1] ^= 1
        if change == "label":
            content["y"][0] = content["y"][0] % 10 + 1
        savemat(root / "svhn" / f"{split}_32x32.mat", content, do_compression=True)


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], DataSet]:
    """For tests/laws: a few images, with one pixel or one label of both files changed."""
    monkeypatch.setattr(module, "IMAGES", IMAGES)
    write(root, change)
    return lambda split: svhn(root, "train" if split == "train" else "test")


def test_labels_are_digits_and_images_are_upright(root: Path) -> None:
    data = svhn(root, "test")
    assert data.labels.tolist() == [1, 0, 9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert [data.class_names[label] for label in data.labels[:3].tolist()] == ["1", "0", "9"]
    assert data.ids[10] == "test/00010"
    pixels = torch.from_numpy(arrays("test")["X"]).float() / 255
    found = data.images([4], 32)[0]
    assert torch.equal(found[1, 3, 30], pixels[3, 30, 1, 4])  # channel, row, column
    assert torch.equal(found, pixels[..., 4].permute(2, 0, 1))


def test_facts_are_those_of_the_complete_set() -> None:
    assert {split: module.FACTS[split] for split in module.IMAGES} == module.IMAGES
    assert module.FACTS["classes"] == len(module.CLASS_NAMES)


def test_pixels_are_unpacked_once_and_only_when_asked_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked: list[list[str]] = []

    def counted(path: Path, variable_names: list[str]) -> dict[str, Any]:
        unpacked.append(variable_names)
        found: dict[str, Any] = loadmat(path, variable_names=variable_names)
        return found

    monkeypatch.setattr("scipy.io.loadmat", counted)
    data = svhn(root, "test")
    assert unpacked == [["y"]]
    data.images([1], 8)
    data.content_sha256()
    assert unpacked == [["y"], ["X"]]


def test_only_the_file_of_the_split_is_needed(root: Path) -> None:
    (root / "svhn" / "train_32x32.mat").unlink()
    assert len(svhn(root, "test")) == IMAGES["test"]
    with pytest.raises(MissingData, match=r"train_32x32\.mat not found in .*housenumbers"):
        svhn(root, "train")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"y": np.ones((10, 1), np.uint8)}, r"array y has shape \(11, 1\) .* has shape \(10, 1\)"),
        ({"x": np.ones((11, 1), np.uint8)}, "array y .* no such array"),
        ({"y": np.full((11, 1), 11, np.uint8)}, r"a label is outside 1\.\.10"),
        ({"y": np.zeros((11, 1), np.uint8)}, r"a label is outside 1\.\.10"),
        ({"y": np.ones((11, 1))}, "array y .* type float64"),
    ],
)
def test_other_arrays_are_corrupt(root: Path, content: dict[str, Any], message: str) -> None:
    savemat(root / "svhn" / "test_32x32.mat", content)
    with pytest.raises(CorruptData, match=message):
        svhn(root, "test")


def test_a_file_that_is_cut_off_or_of_another_kind_is_corrupt(root: Path) -> None:
    path = root / "svhn" / "test_32x32.mat"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:64], b"", b"<html>not found</html>" * 20):
        path.write_bytes(content)
        with pytest.raises(CorruptData, match=r"test_32x32\.mat"):
            svhn(root, "test").images([0], 32)
