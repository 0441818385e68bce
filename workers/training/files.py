"""Atomic file writes: a file is whole or absent, whenever the process or the machine stops."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import safetensors.torch
import torch
from torch import Tensor, nn

TEMPORARY_SUFFIX = ".tmp"
CONTENT = "content_sha256"  # Metadata key of the tensor hash in a weights file


def temporary_path(folder: Path, stem: str) -> Path:
    """Unused name in the folder for a file still being written."""
    return folder / f"{stem}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"


@contextmanager
def written_through(path: Path) -> Iterator[BinaryIO]:
    """New file, synced when the block ends, removed if it fails (OSError)."""
    try:
        with path.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def rename_durably(source: Path, target: Path) -> None:
    """Rename within a folder, durable across a power failure."""
    source.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def save_text(text: str, path: Path) -> None:
    """Write or replace a text file."""
    temporary = temporary_path(path.parent, path.name)
    with written_through(temporary) as file:
        file.write(text.encode())
    rename_durably(temporary, path)


def save_weights(model: nn.Module, path: Path, metadata: Mapping[str, str]) -> None:
    """Write a state dict as safetensors; equal weights and metadata give equal bytes.

    Tensors that share memory are written once per name.
    """
    save_tensors(model.state_dict(), path, metadata)


def save_tensors(given: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str]) -> None:
    """As `save_weights`, for tensors by name."""
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in given.items()}
    texts = {**metadata, CONTENT: content_sha256(sorted(tensors.items()))}
    payload = safetensors.torch.save(tensors, metadata=texts)
    length = int.from_bytes(payload[:8], "little")
    # The library's metadata have a hash table's random order.
    header = json.loads(payload[8 : 8 + length])
    ordered = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    ordered += b" " * (-len(ordered) % 8)
    temporary = temporary_path(path.parent, path.name)
    with written_through(temporary) as file:
        file.write(len(ordered).to_bytes(8, "little") + ordered)
        file.write(memoryview(payload)[8 + length :])
    rename_durably(temporary, path)


def content_sha256(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Hash of tensors with names, dtypes and shapes, in the given order (by name)."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name}|{plain.dtype}|{tuple(plain.shape)}|".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
