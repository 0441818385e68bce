"""Checkpoints of a training run: durable, checked against their own hash, the last two kept.

The name of a file `step-000001234.0123456789abcdef.pt` (`torch.save`) holds the step and the start of the
content's SHA-256. A file that does not match is never loaded.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

import torch

from assay.workers.training.files import TEMPORARY_SUFFIX, rename_durably, temporary_path, written_through

logger = logging.getLogger(__name__)

KEEP_CHECKPOINTS = 2
DIGEST_LENGTH = 16
NAME = re.compile(r"step-(\d{9})\.([0-9a-f]{16})\.pt")


@dataclass(frozen=True)
class Checkpoint:
    """State of a run after `step` steps; `state` holds only tensors and plain values."""

    step: int
    state: Mapping[str, object]


class Checkpoints:
    """Checkpoints of a run in a folder, created if missing."""

    def __init__(self, folder: Path, *, tidy: bool = True):
        """Remove a killed process's partial files; `tidy`: for the one process that writes."""
        self._folder = folder
        if not tidy:
            return
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(f"*{TEMPORARY_SUFFIX}"):
            leftover.unlink(missing_ok=True)

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint that survives a power failure; an OSError leaves earlier checkpoints."""
        stem = f"step-{checkpoint.step:09d}"
        temporary = temporary_path(self._folder, stem)
        with written_through(temporary) as file:
            hashing = _HashingWriter(file)
            _save({"step": checkpoint.step, "state": dict(checkpoint.state)}, hashing)
        path = self._folder / f"{stem}.{hashing.digest()}.pt"
        rename_durably(temporary, path)
        for _, old in self._newest_first()[KEEP_CHECKPOINTS:]:
            old.unlink(missing_ok=True)
        return path

    def newest(self) -> Checkpoint | None:
        """Latest intact checkpoint, or None; damaged ones are deleted with a warning."""
        for step, path in self._newest_first():
            if _digest_of(path) == path.suffixes[-2].lstrip("."):
                loaded = torch.load(path, map_location="cpu", weights_only=True)
                return Checkpoint(step=step, state=loaded["state"])
            logger.warning("checkpoint %s is damaged; using the one before it", path)
            path.unlink(missing_ok=True)
        return None

    def _newest_first(self) -> list[tuple[int, Path]]:
        named = [(NAME.fullmatch(path.name), path) for path in self._folder.glob("step-*.pt")]
        found = [(int(match[1]), path) for match, path in named if match]
        return sorted(found, key=lambda item: item[0], reverse=True)


def _save(values: Mapping[str, object], file: _HashingWriter) -> None:
    try:
        torch.save(values, cast("IO[bytes]", file))
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):  # torch hides the file's error behind its own
            raise error.__context__ from None
        raise


class _HashingWriter:
    """Hashes what is written, so that a large checkpoint is not read back."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def digest(self) -> str:
        return self._hash.hexdigest()[:DIGEST_LENGTH]


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:DIGEST_LENGTH]
