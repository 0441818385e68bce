"""Errors of a worker in words that a job's user may read: no SQL, and no path of anything but the job."""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

ELSEWHERE = "(a file of the service)"


def in_words(error: BaseException) -> str:
    """An error by its type and text; one of the database by its type alone."""
    if isinstance(error, SQLAlchemyError):
        return f"{type(error).__name__}: the database refused it; the worker's log says what"
    return f"{type(error).__name__}: {error}"


def without_paths(text: str, folder: Path, state: Path) -> str:
    """A text whose paths in the job's folder are relative to it, and all others in the state folder hidden.

    `text`: of an error; `folder`: of the job's files; `state`: of the service.
    """
    text = text.replace(f"{folder}/", "")
    return re.sub(rf"{re.escape(str(state))}(?:/[^\s'\",;:)]*)?", ELSEWHERE, text)
