"""Stored corruptions, as in ImageNet-C."""

from __future__ import annotations

from assay.workers.tasks.classification import Task

__all__ = ["stored_corruptions"]

FACTS = {"labelled": True, "done_by": "classification"}


def stored_corruptions() -> Task:
    """Classification of images that are stored corrupted."""
    return Task()
