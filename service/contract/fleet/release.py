"""A release of Assay: its version, its commit, and a hash of the source that computes numbers.

Workers state theirs, and the service its own: both come with the same distribution, so a checkout, a wheel
and both images have the whole source. Where a part of it is missing, the hash is unknown.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from assay.service.contract.extras import DISTRIBUTION, version_of
from assay.service.contract.fleet.worker_records import CodeProvenance

ROOT = Path(__file__).resolve().parents[3]
CODE = (
    "models", "attacks", "workers", "service/catalog", "service/contract", "service/files",
    "service/metrics", "service/submission",
)  # fmt: skip
SUFFIXES = (".py", ".json")  # The code, and the files that it reads, such as the classes of ImageNet-A.


def source_sha256(root: Path, folders: Sequence[str] = CODE) -> str | None:
    """SHA-256 of the names and contents of the files that compute numbers; None where a folder is missing."""
    if not all((root / folder).is_dir() for folder in folders):
        return None
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(path for path in (root / folder).rglob("*") if path.suffix in SUFFIXES):
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def own_release(root: Path = ROOT) -> CodeProvenance:
    """This installation's release; the commit is what ASSAY_COMMIT says."""
    version, commit = version_of(DISTRIBUTION), os.environ.get("ASSAY_COMMIT") or None
    found: CodeProvenance = {"version": version, "commit": commit}
    source = source_sha256(root)
    return found if source is None else {**found, "source_sha256": source}


def release_names(code: CodeProvenance) -> list[str]:
    """By which names a worker's code may be declared, the strictest first: source, commit, version."""
    names = (code.get("source_sha256"), code.get("commit"), code["version"])
    return [name for name in names if name]


def release_text(code: CodeProvenance) -> str:
    """For people: version, and commit where known."""
    commit = code.get("commit")
    return f"version {code['version'] or 'unknown'}{f', commit {commit}' if commit else ''}"
