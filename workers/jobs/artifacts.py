"""Files written by a job: named, sized and hashed once complete."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from pathlib import Path

from assay.service.contract.records import ArtifactDescription, OutcomeExtra
from assay.service.files.job_files import is_job_file, media_type_of, open_job_file


def describe(path: Path) -> ArtifactDescription:
    """Size, hash and name of a finished file; an OSError where it is no regular file of its folder."""
    digest, size = hashlib.sha256(), 0
    with open_job_file(path.parent, path.name) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
    return _described(path, size, digest.hexdigest())


def write_text(path: Path, text: str) -> ArtifactDescription:
    """Like `write`, for text."""
    return write(path, text.encode())


def write(path: Path, data: bytes) -> ArtifactDescription:
    """Write a file atomically, and describe it; several may write the same file at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    # Not read back: on a shared file system an equal one may just replace it, and reading fails.
    return _described(path, len(data), hashlib.sha256(data).hexdigest())


def of_shards(folder: Path, extras: Sequence[OutcomeExtra]) -> list[ArtifactDescription]:
    """The files of an evaluation's shards; supervisors describe them, in earlier versions evaluators did."""
    return [
        {**artifact, "path": str(folder / artifact["name"]), "media_type": media_type_of(artifact["name"])}
        for extra in extras
        for artifact in extra.get("artifacts", [])
        if is_job_file(artifact["name"])
    ]


def _described(path: Path, size: int, sha256: str) -> ArtifactDescription:
    return ArtifactDescription(
        name=path.name, path=str(path), size=size, sha256=sha256, media_type=media_type_of(path.name)
    )
