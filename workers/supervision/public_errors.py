"""Errors of a worker for a job's user: no SQL, and no path of the machine."""

from __future__ import annotations

import re

from sqlalchemy.exc import SQLAlchemyError

from assay.service.contract.weights.pulled import VARIABLE as WEIGHTS_ROOT
from assay.service.submission.data_folders import name_roots
from assay.workers.settings import WorkerSettings

ELSEWHERE = "(a file of the service)"


def in_words(error: BaseException) -> str:
    """An error's type and text; of the database its type alone."""
    if isinstance(error, SQLAlchemyError):
        return f"{type(error).__name__}: the database refused it; the worker's log says what"
    return f"{type(error).__name__}: {error}"


def without_paths(text: str, settings: WorkerSettings, job_id: str) -> str:
    """An error with paths relative to the job's folder, or to the roots of data and weights by name.

    It has no other path of the state folder. The user may sit at another machine in each mode.
    """
    text = text.replace(f"{settings.folder(job_id)}/", "")
    text = name_roots(text, {"ASSAY_DATA_ROOT": settings.data_root, WEIGHTS_ROOT: settings.weights_root})
    return re.sub(rf"{re.escape(str(settings.state))}(?:/[^\s'\",;:)]*)?", ELSEWHERE, text)
