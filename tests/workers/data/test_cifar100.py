"""CIFAR-100: the fine label is the second byte of a row, and both versions are the same set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.workers.data import cifar100 as module
from assay.workers.data.cifar100 import cifar100
from assay.workers.data.formats.dataset import CorruptData, DataSet, MissingData

ROWS = {"train": 20, "test": 12}
COARSE, FINE = 0, 1


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "ROWS", ROWS)
    write_binary(tmp_path)
    return tmp_path


def table(split: str) -> np.ndarray:
    """Rows of the binary version: coarse label, fine label, pixels."""
    random = np.random.default_rng(len(split))
    rows = random.integers(0, 256, (ROWS[split], 2 + 3 * 32 * 32), dtype=np.uint8)
    rows[:, COARSE] %= 20
    rows[:, FINE] = 40 + rows[:, FINE] % 60  # never a coarse label
    return rows


def write_binary(root: Path, change: str = "none") -> None:
    folder = root / "cifar100" / module.BINARY
    folder.mkdir(parents=True, exist_ok=True)
    for split in ROWS:
        rows = table(split)
        if change == "pixel":
            rows[-1, -1] ^= 1
        if change == "label":
            rows[0, FINE] -= 1
        rows.tofile(folder / f"{split}.bin")


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], DataSet]:
    """For tests/laws: a tiny binary version, with one pixel or one label of every file changed."""
    monkeypatch.setattr(module, "ROWS", ROWS)
    write_binary(root, change)
    return lambda split: cifar100(root, "train" if split == "train" else "test")


def test_the_label_is_the_fine_one(root: Path) -> None:
    for split in ("train", "test"):
        data, rows = cifar100(root, split), table(split)
        assert data.labels.tolist() == rows[:, FINE].tolist()
        assert data.ids[-1] == f"{split}/{ROWS[split] - 1:05d}"
        expected = torch.from_numpy(rows[5, 2:].reshape(3, 32, 32)).to(torch.float32) / 255
        assert torch.equal(data.images([5], 32)[0], expected)


def test_facts_are_those_of_the_complete_set() -> None:
    assert {split: module.FACTS[split] for split in module.ROWS} == module.ROWS
    names = module.CLASS_NAMES
    assert module.FACTS["classes"] == len(set(names)) == len(names) == 100
    assert list(names) == sorted(names)


def test_incomplete_file_is_named_with_its_size(root: Path) -> None:
    file = root / "cifar100" / module.BINARY / "test.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(MissingData) as caught:
        cifar100(root, "test")
    wanted = ROWS["test"] * (2 + 3 * 32 * 32)
    assert f"test.bin has {wanted - 1} bytes instead of {wanted}" in str(caught.value)
    assert "In cifar-100-python: train is missing, test is missing, meta is missing" in str(caught.value)
    assert "cifar-100-binary.tar.gz" in str(caught.value)
    assert len(cifar100(root, "train")) == ROWS["train"]


def test_label_out_of_range_is_corrupt(root: Path) -> None:
    rows = table("test")
    rows[3, FINE] = 100
    rows.tofile(root / "cifar100" / module.BINARY / "test.bin")
    with pytest.raises(CorruptData, match=r"outside 0\.\.99"):
        cifar100(root, "test")


class FakeTorchvision:
    """Stands for torchvision.datasets.CIFAR100: the same rows as images (n, H, W, C) and fine labels."""

    def __init__(self, root: str, train: bool, download: bool) -> None:
        del root
        assert not download
        rows = table("train" if train else "test")
        self.data = rows[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        self.targets = rows[:, FINE].tolist()


def write_python(root: Path) -> Path:
    folder = root / "cifar100" / module.PYTHON
    folder.mkdir(parents=True)
    for name in ("train", "test", "meta"):
        (folder / name).touch()
    return folder


def test_python_version_gives_the_same_set(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchvision.datasets.CIFAR100", FakeTorchvision)
    other = tmp_path_factory.mktemp("python")
    write_python(other)
    for split in ("train", "test"):
        binary, python = cifar100(root, split), cifar100(other, split)
        assert list(binary.ids) == list(python.ids)
        assert binary.content_sha256() == python.content_sha256()


def test_python_version_with_a_wrong_checksum_is_corrupt_and_never_unpickled(tmp_path: Path) -> None:
    folder = write_python(tmp_path)
    marker = tmp_path / "unpickled"
    (folder / "test").write_bytes(b"cos\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR.")
    with pytest.raises(CorruptData, match="MD5"):
        cifar100(tmp_path, "test")
    assert not marker.exists()
