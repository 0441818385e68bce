"""The protocol that a row of the results states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

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

RadiusUnit = Literal["pixel", "sd", ""]
"""What a radius counts: the range of pixels is 1, standard deviations of each feature, or neither."""
_UNITS: Mapping[str, RadiusUnit] = {"pixel": "pixel", "paper": "pixel", "series": "sd", "control": "sd"}
# The unit of the radii of a row, by its data set ({"name", "params"}) and its protocol.
RadiusUnitOf = Callable[[Mapping[str, Any], str], RadiusUnit]


def protocol_unit(data: Mapping[str, Any], protocol: str) -> RadiusUnit:
    """The unit by the protocol alone, where the catalog lacks the data set."""
    return _UNITS.get(protocol, "")


def row_protocol(protocol: Protocol, task: str) -> RowProtocol:
    """The protocol that a row states; data of a task with one protocol state the task's word."""
    word = ROW_PROTOCOLS.get(task, protocol)
    return protocol if word == "series" and protocol == "paper" else word
