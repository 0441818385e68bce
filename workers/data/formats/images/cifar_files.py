"""CIFAR-10 and CIFAR-100 from the binary or the python version of their authors' archives.

A row of the binary version: a byte for each kind of label, then 1024 red, 1024 green and 1024 blue bytes of
an image of 32 x 32, row by row.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.workers.data.formats.arrays import ArrayDataSet
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.folders import check_inside, resolve_folder

PIXEL_BYTES = 3 * 32 * 32
AUTHORS = "https://www.cs.toronto.edu/~kriz/cifar.html"

Pixels = Callable[[list[int]], Tensor]


@dataclass(frozen=True)
class CifarArchive:
    """Description of CIFAR-10 or CIFAR-100."""

    name: str
    title: str
    archive: str  # start of archive names, which end in -binary.tar.gz and -python.tar.gz
    binary: str  # folder of the binary version
    python: str  # folder of the python version
    files: Mapping[str, Sequence[str]]  # names of each split's files, .bin in the binary version
    meta: str  # the python version's file of class names
    rows: Mapping[str, int]  # images of each file, by split
    label_bytes: int  # at a row's beginning; the last is the class
    reader: str  # class of `torchvision.datasets`
    class_names: tuple[str, ...]
    mean: tuple[float, float, float]  # per channel over train pixels in [0, 1], as `std`
    std: tuple[float, float, float]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the binary version."""
        return self.label_bytes + PIXEL_BYTES


def read_archive(
    archive: CifarArchive, root: Path | None, split: str, folder: str, *, download: bool
) -> ArrayDataSet:
    """A part from the first complete version; both give the same ids, pixels, labels and hash."""
    where = resolve_folder(root, folder, create=download and root is not None)
    assert root is not None
    for version in (where / archive.binary, where / archive.python):
        for path in (version, *version.glob("*")):
            check_inside(path, root.resolve())
    labels, read = _open(archive, where, split, download)
    last = len(archive.class_names) - 1
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) <= last:
        raise CorruptData(
            f"{archive.title} {split} in {where}: a label is outside 0..{last}; unpack the archive again"
        )
    return ArrayDataSet(
        name=archive.name,
        class_names=archive.class_names,
        ids=[f"{split}/{index:05d}" for index in range(len(labels))],
        labels=labels,
        shape=(3, 32, 32),
        white=255,
        mean=archive.mean,
        std=archive.std,
        read=read,
    )


def _open(archive: CifarArchive, where: Path, split: str, download: bool) -> tuple[Tensor, Pixels]:
    binary, python = _missing_binary(archive, where, split), _missing_python(archive, where)
    if not binary:
        return _open_binary(archive, where, split)
    if python and not download:
        raise MissingData(
            f"{archive.title} {split} is wanted in {where}, but it is not complete there. "
            f"{_listing(archive.binary, binary)}; {_listing(archive.python, python)}. Unpack "
            f"{archive.archive}-binary.tar.gz or {archive.archive}-python.tar.gz from {AUTHORS} in that "
            f'folder, or set the parameter "download": true on a worker with internet access.'
        )
    return _open_python(archive, where, split, download=bool(python))


def _missing_binary(archive: CifarArchive, where: Path, split: str) -> list[str]:
    wanted = archive.rows[split] * archive.row_bytes
    problems = []
    for name in archive.files[split]:
        file = where / archive.binary / f"{name}.bin"
        if not file.is_file():
            problems.append(f"{file.name} is missing")
        elif file.stat().st_size != wanted:
            problems.append(f"{file.name} has {file.stat().st_size} bytes instead of {wanted}")
    return problems


def _missing_python(archive: CifarArchive, where: Path) -> list[str]:
    names = [*archive.files["train"], *archive.files["test"], archive.meta]
    return [f"{name} is missing" for name in names if not (where / archive.python / name).is_file()]


def _listing(version: str, problems: list[str]) -> str:
    return f"In {version}: {', '.join(problems)}"


def _open_binary(archive: CifarArchive, where: Path, split: str) -> tuple[Tensor, Pixels]:
    count, first = archive.rows[split], archive.label_bytes
    files = [
        np.memmap(
            where / archive.binary / f"{name}.bin", dtype=np.uint8, mode="r", shape=(count, archive.row_bytes)
        )
        for name in archive.files[split]
    ]
    labels = torch.from_numpy(np.concatenate([file[:, first - 1] for file in files]).astype(np.int64))

    def read(indices: list[int]) -> Tensor:
        rows = np.empty((len(indices), PIXEL_BYTES), dtype=np.uint8)
        for row, index in enumerate(indices):
            rows[row] = files[index // count][index % count, first:]
        return torch.from_numpy(rows).reshape(-1, 3, 32, 32)

    return labels, read


def _open_python(archive: CifarArchive, where: Path, split: str, *, download: bool) -> tuple[Tensor, Pixels]:
    if download:
        _download(archive, where)
    try:
        loaded = _torchvision(archive, where, train=split == "train", download=False)
    except RuntimeError as error:
        raise CorruptData(
            f"{archive.title} in {where / archive.python}: a file is not the published one (MD5); "
            f"delete that folder and unpack {archive.archive}-python.tar.gz again ({error})"
        ) from error
    pixels = torch.from_numpy(np.ascontiguousarray(loaded.data))  # uint8 (n, 32, 32, 3)
    labels = torch.tensor(loaded.targets, dtype=torch.int64)

    def read(indices: list[int]) -> Tensor:
        chosen = pixels[torch.tensor(indices, dtype=torch.int64)]
        return chosen.permute(0, 3, 1, 2).contiguous()

    return labels, read


def _download(archive: CifarArchive, where: Path) -> None:
    """Fetch and unpack the python version; workers sharing the folder wait for each other."""
    with (where / f".{archive.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            _torchvision(archive, where, train=True, download=True)
        except (OSError, RuntimeError) as error:
            raise MissingData(
                f"{archive.title} is wanted in {where}, and downloading it failed ({error}). Unpack "
                f"{archive.archive}-python.tar.gz from {AUTHORS} there by hand."
            ) from error


def _torchvision(archive: CifarArchive, where: Path, *, train: bool, download: bool) -> Any:
    """Torchvision's reader, which checks every file's published MD5 sum, then unpickles."""
    from torchvision import datasets  # seconds of import that the binary version does not need

    return getattr(datasets, archive.reader)(root=str(where), train=train, download=download)
