"""The protocol that a row of the results states."""

from __future__ import annotations

from collections.abc import Mapping

from assay.service.contract.results import RowProtocol
from assay.service.contract.specs import Protocol

# By the data's task.
ROW_PROTOCOLS: Mapping[str, RowProtocol] = {
    "language": "language",
    "sequence": "sequence",
    "series": "series",
    "series_regression": "series",
    "control": "control",
}


def row_protocol(protocol: Protocol, task: str) -> RowProtocol:
    """The protocol that a row states.

    Args:
        protocol: of the run.
        task: of the data; those with one protocol state the task's word.
    """
    word = ROW_PROTOCOLS.get(task, protocol)
    return protocol if word == "series" and protocol == "paper" else word
