"""CIFAR-10 from the binary or the python version of its authors' archive.

Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images": 60 000 colour images of
32 x 32, 10 classes, 50 000 train and 10 000 test. The binary version has one row of 3073 bytes per
image: the label, then 1024 red, 1024 green and 1024 blue bytes, row by row.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from assay.workers.data.formats.arrays import ArrayDataSet
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.folders import check_inside, resolve_folder

__all__ = ["cifar10"]

TASKS = ("classification",)
PAPER = "Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images"
FACTS = {"classes": 10, "channels": 3, "size": 32, "train": 50_000, "test": 10_000}

CLASS_NAMES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
# Per channel over the train pixels in [0, 1], to the usual four digits.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)

ROWS = 10_000  # images per file
ROW_BYTES = 1 + 3 * 32 * 32
BINARY = "cifar-10-batches-bin"
PYTHON = "cifar-10-batches-py"
FILES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}

Pixels = Callable[[list[int]], Tensor]


def cifar10(
    root: Path | None,
    split: Literal["train", "test"],
    *,
    folder: Annotated[str, "folder"] = "cifar10",
    download: bool = False,
) -> ArrayDataSet:
    """CIFAR-10 (10 classes, 32 x 32 colour images; 50 000 train, 10 000 test).

    Below the folder, `cifar-10-batches-bin` (binary version) or `cifar-10-batches-py` (python version,
    checked by torchvision against the published MD5 sums before it is unpickled) must be complete for
    the split. Both give the same ids ("test/00012"), pixels, labels and content hash.

    Args:
        root: ASSAY_DATA_ROOT.
        split: which part.
        folder: relative name of the folder that holds one of the two versions.
        download: fetch the python version (170 MB) through torchvision when neither is complete.

    Returns:
        The part; the binary version is memory-mapped, not read.

    Raises:
        MissingData: no complete version; names what is missing, where, and how to get it.
        CorruptData: a file exists but has invalid content.
        ValueError: the folder's name leads out of the root.
    """
    where = resolve_folder(root, folder, create=download and root is not None)
    assert root is not None
    _check_links(where, root.resolve())
    labels, read = _open(where, split, download)
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(CLASS_NAMES):
        raise CorruptData(f"CIFAR-10 {split} in {where}: a label is outside 0..9; unpack the archive again")
    return ArrayDataSet(
        name="cifar10",
        class_names=CLASS_NAMES,
        ids=[f"{split}/{index:05d}" for index in range(len(labels))],
        labels=labels,
        shape=(3, 32, 32),
        white=255,
        mean=MEAN,
        std=STD,
        read=read,
    )


def _open(where: Path, split: str, download: bool) -> tuple[Tensor, Pixels]:
    """Labels, int64 (n,), and the reader of the first complete version."""
    binary, python = missing_binary(where, split), missing_python(where)
    if not binary:
        return _open_binary(where, split)
    if python and not download:
        raise MissingData(
            f"CIFAR-10 {split} is wanted in {where}, but it is not complete there. "
            f"{_listing(BINARY, binary)}; {_listing(PYTHON, python)}. Unpack cifar-10-binary.tar.gz or "
            f"cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html in that folder, or "
            f'set the parameter "download": true on a worker with internet access.'
        )
    return _open_python(where, split, download=bool(python))


def missing_binary(where: Path, split: str) -> list[str]:
    """Files that the binary version lacks for the split; empty if complete."""
    wanted = ROWS * ROW_BYTES
    problems = []
    for name in FILES[split]:
        file = where / BINARY / f"{name}.bin"
        if not file.is_file():
            problems.append(f"{file.name} is missing")
        elif file.stat().st_size != wanted:
            problems.append(f"{file.name} has {file.stat().st_size} bytes instead of {wanted}")
    return problems


def missing_python(where: Path) -> list[str]:
    """Files that the python version lacks, of both splits, because torchvision checks them all."""
    names = [*FILES["train"], *FILES["test"], "batches.meta"]
    return [f"{name} is missing" for name in names if not (where / PYTHON / name).is_file()]


def _listing(version: str, problems: list[str]) -> str:
    return f"In {version}: {', '.join(problems)}"


def _check_links(where: Path, base: Path) -> None:
    for version in (BINARY, PYTHON):
        for path in (where / version, *(where / version).glob("*")):
            check_inside(path, base)


def _open_binary(where: Path, split: str) -> tuple[Tensor, Pixels]:
    files = [
        np.memmap(where / BINARY / f"{name}.bin", dtype=np.uint8, mode="r", shape=(ROWS, ROW_BYTES))
        for name in FILES[split]
    ]
    labels = torch.from_numpy(np.concatenate([file[:, 0] for file in files]).astype(np.int64))

    def read(indices: list[int]) -> Tensor:
        rows = np.empty((len(indices), ROW_BYTES - 1), dtype=np.uint8)
        for row, index in enumerate(indices):
            rows[row] = files[index // ROWS][index % ROWS, 1:]
        return torch.from_numpy(rows).reshape(-1, 3, 32, 32)

    return labels, read


def _open_python(where: Path, split: str, *, download: bool) -> tuple[Tensor, Pixels]:
    if download:
        _download(where)
    try:
        loaded = _torchvision(where, train=split == "train", download=False)
    except RuntimeError as error:
        raise CorruptData(
            f"CIFAR-10 in {where / PYTHON}: a file is not the published one (MD5); delete that folder and "
            f"unpack cifar-10-python.tar.gz again ({error})"
        ) from error
    pixels = torch.from_numpy(np.ascontiguousarray(loaded.data))  # uint8 (n, 32, 32, 3)
    labels = torch.tensor(loaded.targets, dtype=torch.int64)

    def read(indices: list[int]) -> Tensor:
        chosen = pixels[torch.tensor(indices, dtype=torch.int64)]
        return chosen.permute(0, 3, 1, 2).contiguous()

    return labels, read


def _download(where: Path) -> None:
    """Fetch and unpack the python version; workers sharing the folder wait for each other."""
    with (where / ".cifar10.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            _torchvision(where, train=True, download=True)
        except (OSError, RuntimeError) as error:
            raise MissingData(
                f"CIFAR-10 is wanted in {where}, and downloading it failed ({error}). Unpack "
                f"cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html there by hand."
            ) from error


def _torchvision(where: Path, *, train: bool, download: bool) -> Any:
    """Torchvision's reader, which checks every file's published MD5 sum, then unpickles."""
    from torchvision import datasets  # seconds of import that the binary version does not need

    return datasets.CIFAR10(root=str(where), train=train, download=download)
