"""The examples of one evaluation of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.service.submission.imagenet_c_layout import cells_of
from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.data.formats.stored_corruptions import StoredCorruptions
from assay.workers.jobs.session import Session


def examples_of(session: Session, spec: Mapping[str, Any], item: Mapping[str, Any]) -> ExampleSet:
    """The data set of an evaluation; of stored corrupted images those that it asks for.

    Raises:
        MissingData: they are not there.
    """
    data = session.data(item["data"] or spec["data"], "test")
    return data.of_cells(cells_of(item["params"])) if isinstance(data, StoredCorruptions) else data
