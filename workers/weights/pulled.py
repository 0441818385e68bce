"""The weights folder: what `assay pull` left there, and its check against the recorded hashes.

    ROOT/timm/NAME.TAG/  ROOT/torchvision/NAME.TAG/    model.safetensors, pulled.json
    ROOT/hf/ORG/NAME/COMMIT/                           the files of a commit, pulled.json; of a folder of this
                                                       machine `local-` and its hash in place of the commit
    ROOT/hf/ORG/NAME/refs.json                         {"main": COMMIT}

`pulled.json` is written last: a folder without it is not pulled.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from assay.service.catalog.catalog import load
from assay.service.contract.errors import WeightsUnavailable
from assay.service.contract.records import PulledOrigin
from assay.service.contract.stored_specs import ModelReference
from assay.service.contract.times import iso
from assay.service.contract.weights.pulled import (
    VARIABLE,
    PulledFacts,
    PulledRecord,
    PulledReference,
    PulledSource,
    default_weights_root,
    is_pulled,
    not_pulled,
    parse_reference,
    reference_to,
)

RECORD = "pulled.json"
REFS = "refs.json"
CHUNK = 1 << 20
FACTS = ("classes", "channels", "image_size")
# Path to (size, time of change, sha256): hashed once in a process while the file stays the same.
_hashed: dict[Path, tuple[int, int, str]] = {}
# By the model of a job, as JSON.
_origins: dict[str, PulledOrigin | None] = {}


@dataclass(frozen=True)
class PulledWeights:
    """Weights in the weights folder."""

    reference: str  # To exactly these: with the tag, or the commit
    source: PulledSource  # timm, torchvision or hf
    name: str  # Of the architecture, or the repository
    revision: str | None  # The commit of a repository; None elsewhere
    folder: Path  # Has the files
    sha256: str  # One digest over all files
    license: str | None  # As stated by the source; None where it states none
    config: Mapping[str, Any]  # Facts by source (`classes`, `channels`, `image_size`, `mean`, `std`, ...)
    repository: str | None = None  # Where they come from, a URL
    pulled_at: str = ""  # ISO 8601, in UTC
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # Name to {"size", "sha256"}
    aliases: tuple[str, ...] = ()  # Other references that mean them

    @property
    def record(self) -> PulledRecord:
        """For heartbeats and submission."""
        facts = {fact: self.config[fact] for fact in FACTS if isinstance(self.config.get(fact), int)}
        return {"sha256": self.sha256, "aliases": [*self.aliases], "facts": cast(PulledFacts, facts)}

    @property
    def origin(self) -> PulledOrigin:
        """For the provenance of results."""
        return {
            "reference": self.reference,
            "revision": self.revision,
            "license": self.license,
            "sha256": self.sha256,
        }

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(int(one["size"]) for one in self.files.values())

    def faults(self) -> list[str]:
        """What differs from the record: files that are missing, or have other content. Reads all files."""
        found = []
        for name, stated in sorted(self.files.items()):
            path = self.folder / name
            if not path.is_file():
                found.append(f"{name} is missing")
            elif (digest := file_sha256(path)) != stated["sha256"]:
                found.append(f"{name} has the sha256 {digest}, pulled was {stated['sha256']}")
        return found


def weights_root() -> Path:
    """The weights folder of this process: ASSAY_WEIGHTS_ROOT, or the default."""
    return Path(os.environ.get(VARIABLE) or default_weights_root())


def find(root: Path, reference: str) -> PulledWeights:
    """The pulled weights that a reference means, by the records alone; a ValueError if it is none."""
    parsed = parse_reference(reference)
    alike = [one for one in listed(root, parsed.source) if str(parsed) in (one.reference, *one.aliases)]
    if not alike:
        raise WeightsUnavailable(not_pulled(parsed))
    exact = [one for one in alike if one.reference == str(parsed)]
    # Another version of a library may have another default; the one pulled last is meant.
    return exact[0] if exact else max(alike, key=lambda one: one.pulled_at)


def checked(root: Path, reference: str, sha256: str | None) -> PulledWeights:
    """As `find`, with all files compared with the record and, where given, the digest of a spec."""
    found = find(root, reference)
    command = parse_reference(reference).command
    if faults := found.faults():
        raise WeightsUnavailable(
            f"the pulled weights {found.reference} are damaged: {'; '.join(faults)}. Run: {command}"
        )
    if sha256 not in (None, "", found.sha256):
        raise WeightsUnavailable(
            f"the weights {found.reference} of this machine have the content {found.sha256}, the spec"
            f" names {sha256}"
        )
    return found


def pulled_weights(model: ModelReference) -> PulledWeights | None:
    """A job's pulled weights, as `checked`; None of other weights, a ValueError if the model has none."""
    weights = model.get("weights")
    if weights is None or not is_pulled(weights):
        return None
    source = load().find("model", model["name"]).pulled
    if source is None:
        raise ValueError(f"the model {model['name']!r} has no pulled weights")
    return checked(weights_root(), str(reference_to(source, model["params"])), weights.get("sha256"))


def origin_of(model: ModelReference) -> PulledOrigin | None:
    """Where a model's pulled weights come from; None for other weights."""
    key = json.dumps(model, sort_keys=True)
    if key not in _origins:
        found = pulled_weights(model)
        _origins[key] = None if found is None else found.origin
    return _origins[key]


def listed(root: Path, source: str | None = None) -> list[PulledWeights]:
    """Everything pulled, by reference. Folders without a whole record are left out."""
    found = [one for one in map(_read, _records(root, source)) if one is not None]
    return sorted(found, key=lambda one: one.reference)


def keep(
    staged: Path,
    root: Path,
    reference: PulledReference,
    *,
    revision: str | None = None,
    license: str | None = None,  # noqa: A002  # as in the record
    repository: str | None = None,
    config: Mapping[str, Any] | None = None,
    aliases: Sequence[str] = (),
) -> PulledWeights:
    """Record a folder of fetched files and move it to its place, in one step for readers."""
    files = {
        path.name: {"size": path.stat().st_size, "sha256": file_sha256(path)}
        for path in sorted(staged.iterdir())
        if path.name != RECORD
    }
    record = {
        "reference": str(reference),
        "revision": revision,
        "license": license,
        "repository": repository,
        "pulled_at": iso(time.time()),
        "files": files,
        "sha256": digest_of_files(files),
        "config": dict(config or {}),
        "aliases": [*aliases],
    }
    _write(staged / RECORD, record)
    target = folder_of(root, reference)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():  # without a record, or to be replaced
        old = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        target.rename(old)
        shutil.rmtree(old, ignore_errors=True)
    staged.rename(target)
    found = _read(target / RECORD)
    assert found is not None
    return found


def name_commit(root: Path, repository: str, name: str, commit: str) -> None:
    """Write into `refs.json` which commit a branch or a tag of a repository was when it was pulled."""
    path = root / "hf" / repository / REFS
    try:
        refs = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        refs = {}
    _write(path, {**refs, name: commit})


def digest_of_files(files: Mapping[str, Mapping[str, Any]]) -> str:
    """One digest over the names and hashes of all files."""
    lines = "".join(f"{name}\0{files[name]['sha256']}\n" for name in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """The hash of a file's content, read again when its size or time has changed."""
    state = path.stat()
    known = _hashed.get(path)
    if known is not None and known[:2] == (state.st_size, state.st_mtime_ns):
        return known[2]
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    _hashed[path] = (state.st_size, state.st_mtime_ns, digest.hexdigest())
    return digest.hexdigest()


def folder_of(root: Path, reference: PulledReference) -> Path:
    """The folder of a whole reference: with its tag where it has one, or the commit."""
    if reference.source == "hf":
        assert reference.revision is not None
        return root / "hf" / reference.name / reference.revision
    return root / reference.source / str(reference).partition(":")[2]


def folder_below(reference: str) -> str:
    """The folder of a whole reference below a weights folder. Raises ValueError."""
    root, parsed = Path("/"), parse_reference(reference)
    if parsed.source == "hf" and parsed.revision is None:
        raise ValueError(f"{reference!r} names no commit")
    return folder_of(root, parsed).relative_to(root).as_posix()


def _write(path: Path, content: object) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def _records(root: Path, source: str | None) -> Iterator[Path]:
    for name, depth in (("timm", "*"), ("torchvision", "*"), ("hf", "*/*/*")):
        if source in (None, name):
            found = (root / name).glob(f"{depth}/{RECORD}")
            yield from (path for path in found if not path.parent.name.startswith("."))


def _read(path: Path) -> PulledWeights | None:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        reference = parse_reference(record["reference"])
        aliases = record.get("aliases", [])
        if reference.source == "hf":
            aliases = _names_of(path.parent, reference)
        return PulledWeights(
            reference=str(reference),
            source=reference.source,
            name=reference.name,
            revision=record["revision"],
            folder=path.parent,
            sha256=str(record["sha256"]),
            license=record["license"],
            config=dict(record["config"]),
            repository=record["repository"],
            pulled_at=str(record["pulled_at"]),
            files=dict(record["files"]),
            aliases=tuple(map(str, aliases)),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _names_of(folder: Path, reference: PulledReference) -> list[str]:
    try:
        refs = json.loads((folder.parent / REFS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    names = [str(name) for name, commit in refs.items() if commit == folder.name]
    found = [f"hf:{reference.name}@{name}" for name in names]
    return [*found, f"hf:{reference.name}"] if "main" in names else found
