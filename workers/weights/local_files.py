"""Weights that are on this machine already, for `assay pull NAME --from PATH`: no network is asked."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

from assay.service.contract.errors import InvalidSpec
from assay.service.contract.weights.pulled import LOCAL, PulledReference
from assay.service.files.safetensors_header import read_header
from assay.workers.weights.download import PullFailed, Remote
from assay.workers.weights.hub import license_of_card
from assay.workers.weights.origins import Origin, files_of_model, origin_of
from assay.workers.weights.pulled import digest_of_files, file_sha256

DIGITS = 40  # of the content's hash in a revision, as many as a commit has
SAVE = "model.save_pretrained(folder, safe_serialization=True) writes safetensors"


def local_origin(reference: PulledReference, path: Path) -> Origin:
    """The origin of weights on this machine: a folder of transformers, or the published file of a library.

    The revision of a folder is `local-` and the beginning of the hash over its files.
    """
    if reference.source == "hf":
        return _folder(reference, path)
    return _published(reference, path)


def _folder(reference: PulledReference, folder: Path) -> Origin:
    if not folder.is_dir():
        raise PullFailed(f"{folder} is no folder; allowed for hf: a folder that save_pretrained has written")
    real = folder.resolve()
    there = {path.name: path for path in real.iterdir() if not path.is_dir()}
    listed = {name: Remote(url=path.as_uri(), name=name) for name, path in there.items()}
    wanted = [_taken(real, there[file.name]) for file in files_of_model(str(folder), listed, SAVE)]
    for file in wanted:
        if file.cached is not None and file.name.endswith(".safetensors"):
            _check_tensors(file.cached)
    content = digest_of_files({file.name: {"sha256": file.sha256} for file in wanted})
    revision = f"{LOCAL}{content[:DIGITS]}"
    named = reference.revision or "main"
    if named.startswith(LOCAL) and named != revision:
        raise ValueError(f"{folder} has the content {revision}, not {named}; name hf:{reference.name} alone")
    return Origin(
        replace(reference, revision=revision),
        tuple(wanted),
        license_of_card(real) if any(file.name == "README.md" for file in wanted) else None,
        None,
        revision=revision,
        refs=None if named == revision else named,
    )


def _published(reference: PulledReference, path: Path) -> Origin:
    own = "For weights of your own: assay checkpoints upload"
    if reference.source != "torchvision":
        raise PullFailed(
            f"{reference} cannot be taken from a file: its source states no hash to compare the file with."
            f" Allowed: a copy of the weights folder of a machine that has pulled it. {own}"
        )
    origin = origin_of(reference)
    (file,) = origin.files
    if not path.is_file():
        raise PullFailed(f"{path} is no file; allowed for {origin.reference}: the published {file.name}")
    if file.sha256 is None or not file_sha256(path).startswith(file.sha256):
        raise PullFailed(
            f"{path} is not the published {file.name}, whose sha256 begins with {file.sha256}: results would"
            f" state its name for other weights. {own}"
        )
    return replace(origin, files=(replace(file, cached=path.resolve()),))


def _taken(folder: Path, path: Path) -> Remote:
    real = path.resolve()
    if not real.is_relative_to(folder):
        raise PullFailed(f"{path} is a link to {real}, out of the folder: copy the folder with cp -rL")
    found = real.stat()
    if not stat.S_ISREG(found.st_mode):
        raise PullFailed(f"{path} is no regular file")
    return Remote(
        url=real.as_uri(), name=path.name, size=found.st_size, sha256=file_sha256(real), cached=real
    )


def _check_tensors(path: Path) -> None:
    try:
        read_header(path)
    except InvalidSpec as error:
        said = "; ".join(detail.message for detail in error.details) or error.message
        raise PullFailed(f"{path} is no safetensors file: {said}") from error
