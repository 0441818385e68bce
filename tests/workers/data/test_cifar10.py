from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.workers.data import cifar10 as module
from assay.workers.data.cifar10 import cifar10
from assay.workers.data.formats.dataset import CorruptData, DataSet, MissingData

ROWS = 12


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "ROWS", ROWS)
    write_binary(tmp_path)
    return tmp_path


def table(number: int) -> np.ndarray:
    """Rows of one file of the binary version; file 5 is the test part."""
    rows = np.random.default_rng(number).integers(0, 256, (ROWS, module.ROW_BYTES), dtype=np.uint8)
    rows[:, 0] %= 10
    return rows


def write_binary(root: Path, change: str = "none") -> None:
    folder = root / "cifar10" / module.BINARY
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate([*module.FILES["train"], *module.FILES["test"]]):
        rows = table(number)
        if change == "pixel":
            rows[-1, -1] ^= 1
        if change == "label":
            rows[0, 0] = (rows[0, 0] + 1) % 10
        rows.tofile(folder / f"{name}.bin")


def write_python(root: Path) -> Path:
    folder = root / "cifar10" / module.PYTHON
    folder.mkdir(parents=True)
    for name in [*module.FILES["train"], *module.FILES["test"], "batches.meta"]:
        (folder / name).touch()
    return folder


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], DataSet]:
    """For tests/laws: a tiny binary version, with one pixel or one label of every file changed."""
    monkeypatch.setattr(module, "ROWS", ROWS)
    write_binary(root, change)
    return lambda split: cifar10(root, split)


class FakeTorchvision:
    """Stands for torchvision.datasets.CIFAR10: the same rows as images (n, H, W, C) and a list of labels."""

    calls: list[SimpleNamespace]

    def __init__(self, root: str, train: bool, download: bool) -> None:
        self.calls.append(SimpleNamespace(root=root, train=train, download=download))
        if download:
            write_python(Path(root).parent)
        rows = np.concatenate([table(number) for number in range(5)]) if train else table(5)
        self.data = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        self.targets = rows[:, 0].tolist()


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    monkeypatch.setattr(FakeTorchvision, "calls", [], raising=False)
    monkeypatch.setattr("torchvision.datasets.CIFAR10", FakeTorchvision)
    return FakeTorchvision.calls


def every_image(data: DataSet) -> Tensor:
    return data.images(range(len(data)), 32)


def test_binary_version_is_read_row_by_row(root: Path) -> None:
    train, test = cifar10(root, "train"), cifar10(root, "test")
    assert (len(train), len(test)) == (5 * ROWS, ROWS)
    assert train.ids[ROWS] == "train/00012"
    row = table(1)[0]  # the first of data_batch_2
    assert int(train.labels[ROWS]) == row[0]
    expected = torch.from_numpy(row[1:].reshape(3, 32, 32)).to(torch.float32) / 255
    assert torch.equal(train.images([ROWS], 32)[0], expected)


def test_facts_are_those_of_the_complete_set() -> None:
    assert module.FACTS["train"] == module.ROWS * len(module.FILES["train"])
    assert module.FACTS["test"] == module.ROWS
    assert module.FACTS["classes"] == len(module.CLASS_NAMES)


def test_only_the_files_of_the_split_are_needed(root: Path) -> None:
    (root / "cifar10" / module.BINARY / "data_batch_3.bin").unlink()
    assert len(cifar10(root, "test")) == ROWS
    with pytest.raises(MissingData, match=r"data_batch_3\.bin is missing"):
        cifar10(root, "train")


def test_incomplete_file_is_named_with_its_size(root: Path) -> None:
    file = root / "cifar10" / module.BINARY / "test_batch.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(MissingData) as caught:
        cifar10(root, "test")
    wanted = ROWS * module.ROW_BYTES
    assert f"test_batch.bin has {wanted - 1} bytes instead of {wanted}" in str(caught.value)
    assert str(root / "cifar10") in str(caught.value)
    assert "cifar-10-binary.tar.gz" in str(caught.value)


def test_label_out_of_range_is_corrupt(root: Path) -> None:
    rows = table(5)
    rows[3, 0] = 10
    rows.tofile(root / "cifar10" / module.BINARY / "test_batch.bin")
    with pytest.raises(CorruptData, match="label"):
        cifar10(root, "test")


def test_missing_folder_and_link_out_are_refused(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.raises(MissingData, match="does not exist"):
        cifar10(root, "test", folder="cifar")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "test_batch.bin").touch()
    (root / "linked").mkdir()
    (root / "linked" / module.BINARY).symlink_to(elsewhere)
    with pytest.raises(ValueError, match="symbolic link"):
        cifar10(root, "test", folder="linked")


def test_python_version_gives_the_same_set(
    root: Path, tmp_path_factory: pytest.TempPathFactory, torchvision: list[SimpleNamespace]
) -> None:
    other = tmp_path_factory.mktemp("python")
    write_python(other)
    for split in ("train", "test"):
        binary, python = cifar10(root, split), cifar10(other, split)
        assert list(binary.ids) == list(python.ids)
        assert torch.equal(binary.labels, python.labels)
        assert torch.equal(every_image(binary), every_image(python))
        assert binary.content_sha256() == python.content_sha256()
    assert [call.download for call in torchvision] == [False, False]


def test_download_happens_only_when_asked_and_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torchvision: list[SimpleNamespace]
) -> None:
    with pytest.raises(MissingData, match="does not exist"):
        cifar10(tmp_path, "test")
    assert torchvision == []
    data = cifar10(tmp_path, "test", folder="sets/cifar10", download=True)
    assert len(data) == ROWS
    assert [call.download for call in torchvision] == [True, False]
    assert torchvision[0].root == str(tmp_path / "sets" / "cifar10")
    cifar10(tmp_path, "test", folder="sets/cifar10", download=True)
    assert [call.download for call in torchvision] == [True, False, False]


@pytest.mark.parametrize("error", [OSError("no route to host"), RuntimeError("File not found or corrupted.")])
def test_failed_download_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr("torchvision.datasets.CIFAR10", fail)
    with pytest.raises(MissingData, match=r"downloading it failed .*by hand"):
        cifar10(tmp_path, "test", download=True)


def test_python_version_with_a_wrong_checksum_is_corrupt_and_never_unpickled(tmp_path: Path) -> None:
    folder = write_python(tmp_path)
    marker = tmp_path / "unpickled"
    (folder / "test_batch").write_bytes(b"cos\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR.")
    with pytest.raises(CorruptData, match="MD5"):
        cifar10(tmp_path, "test")
    assert not marker.exists()


def test_download_without_a_root_says_so() -> None:
    with pytest.raises(MissingData, match="ASSAY_DATA_ROOT"):
        cifar10(None, "test", download=True)


def test_images_are_normalised_by_the_train_pixels_mean_and_deviation(root: Path) -> None:
    """Not by the mean of the images' own deviations, 0.2023, 0.1994 and 0.2010, which many programs have."""
    data = cifar10(root, "test")
    assert data.mean == (0.4914, 0.4822, 0.4465)
    assert data.std == (0.2470, 0.2435, 0.2616)
