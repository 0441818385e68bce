"""Folders of data below ASSAY_DATA_ROOT: names come from clients, so no path may leave it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from assay.service.submission.data_folders import FolderProblem, check_folder
from assay.service.submission.data_folders import check_inside as check_inside
from assay.workers.data.formats.dataset import CorruptData, MissingData, reason_of

LISTED = 20  # in a message


def resolve_folder(root: Path | None, name: str, *, create: bool = False) -> Path:
    """Resolve a job's folder by the rules of submission (`check_folder`)."""
    _refuse(name, check_folder(name, None))
    if root is None:
        raise MissingData(
            f"The data folder {name!r} is wanted, but this worker has no data root. Set the environment "
            f"variable ASSAY_DATA_ROOT to the directory that holds {name!r} and start the worker again."
        )
    if not root.is_dir():
        raise MissingData(
            f"The data folder {name!r} is wanted, but ASSAY_DATA_ROOT ({root}) is not a directory on this "
            f"worker. Create or mount it, with the data in {root / name}."
        )
    _refuse(name, check_folder(name, root, must_exist=False))
    folder = (root / name).resolve()
    if create:
        folder.mkdir(parents=True, exist_ok=True)
    elif not folder.is_dir():
        raise MissingData(_not_found(root, name))
    return folder


def find_folder(root: Path | None, name: str) -> tuple[Path, Path]:
    """The data root and a job's folder, both resolved; errors as of `resolve_folder`."""
    folder = resolve_folder(root, name)
    assert root is not None
    return root.resolve(), folder


def find_file(root: Path | None, folder: str, name: str, *, advice: str) -> Path:
    """The file `name` of a folder below the data root."""
    root, where = find_folder(root, folder)
    path = where / name
    if not path.is_file():
        raise MissingData(f"{name} not found in {where}. {advice}")
    check_inside(path, root)
    return path


def file_sha256(path: Path) -> str:
    """Hash of a file's bytes. Raises CorruptData: it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CorruptData(f"{path} cannot be read ({reason_of(error)})") from error


def _refuse(name: str, problem: FolderProblem | None) -> None:
    if problem is not None:
        allowed = f"; allowed: {problem.allowed}" if problem.allowed else ""
        raise ValueError(f"folder {name!r} {problem.message}{allowed}")


def _not_found(root: Path, name: str) -> str:
    problem = check_folder(name, root)
    known = (problem.allowed if problem else None) or []
    listing = ", ".join(known[:LISTED]) or "no folder"
    guess = f" Did you mean {problem.nearest!r}?" if problem and problem.nearest else ""
    return (
        f"The data folder {name!r} is wanted, but {root / name} does not exist. {root} holds {listing}"
        f"{' and more' if len(known) > LISTED else ''}.{guess} Put the data there, or name another folder."
    )
