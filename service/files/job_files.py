"""Files in the folder of a job, which the job itself writes: names, media types, and opening without links.

Their writer may run a stranger's code. A name never leads out of the job's folder: the path is made of folder
and name, and only a regular file with no other name is opened, never a link or a pipe.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

FOLDER_MODE, FILE_MODE = 0o770, 0o640  # of a job's folder and of files placed in it: closed to other users
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 ._+=-]{0,199}", re.ASCII)
PLAIN = "application/octet-stream"
# Names that a job's own files cannot take: a file called so is never part of a signed statement.
SIGNATURE_FILE, RESULTS_FILE = "signature.json", "results.json"
RESERVED = frozenset({SIGNATURE_FILE, RESULTS_FILE})
MEDIA_TYPES = {
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".safetensors": PLAIN,
    ".svg": "image/svg+xml",
}


def is_job_file(name: str) -> bool:
    """Whether a file of a job may have the name: no separators, controls or markup, and no leading dot."""
    return NAME.fullmatch(name) is not None


def media_type_of(name: str) -> str:
    """The media type of a job's file, by its suffix alone."""
    return MEDIA_TYPES.get(Path(name).suffix, PLAIN)


def open_job_file(folder: Path, name: str) -> BinaryIO:
    """Open a job's file; OSError if missing, misnamed, a link, no regular file, or of a second name."""
    if not is_job_file(name):
        raise OSError(errno.EINVAL, f"{name[:100]!r} is no name of a job's file")
    return open_plain_file(folder, name)


def open_plain_file(folder: Path, name: str) -> BinaryIO:
    """As `open_job_file`, of any name."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    place = os.open(folder, flags | os.O_DIRECTORY)
    try:
        descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=place)  # No pipe without a writer blocks it.
    finally:
        os.close(place)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{name} is no regular file, or has a second name")
    return os.fdopen(descriptor, "rb")
