"""Stored corruptions, as in ImageNet-C."""

from __future__ import annotations

from typing import cast

from assay.service.contract.corruption_cells import cells_of
from assay.service.contract.stored_specs import Params
from assay.workers.data.formats.dataset import CorruptedSet, ExampleSet
from assay.workers.published.match import known_corrupted_as
from assay.workers.tasks.classification import Task

__all__ = ["stored_corruptions"]

FACTS = {"labelled": True, "done_by": "classification"}


class _StoredCorruptionsTask(Task):
    def check(self, data: ExampleSet) -> None:
        """Every file: shards are to find them all."""
        cast(CorruptedSet, data).check()

    def chosen(self, data: ExampleSet, params: Params) -> ExampleSet:
        return cast(CorruptedSet, data).of_cells(cells_of(params))

    def known_as(self, data: ExampleSet) -> str | None:
        return known_corrupted_as(data.class_names, len(data.ids))


def stored_corruptions() -> Task:
    """Classification of images that are stored corrupted."""
    return _StoredCorruptionsTask()
