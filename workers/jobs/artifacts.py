"""Files written by a job: named, sized and hashed once complete."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.service.contract.records import ArtifactDescription, OutcomeExtra
from assay.service.files.file_store import described, digest_of
from assay.service.files.job_files import is_job_file, media_type_of, open_job_file


def describe(path: Path) -> ArtifactDescription:
    """Size, hash and name of a finished file; an OSError where it is no regular file of its folder."""
    with open_job_file(path.parent, path.name) as file:
        sha256, size = digest_of(file)
    return described(path.name, str(path), size, sha256)


def of_shards(extras: Sequence[OutcomeExtra]) -> list[ArtifactDescription]:
    """The files of an evaluation's shards; supervisors describe them, in earlier versions evaluators did."""
    return [
        {**artifact, "media_type": media_type_of(artifact["name"])}
        for extra in extras
        for artifact in extra.get("artifacts", [])
        if is_job_file(artifact["name"])
    ]
