"""The unit of a radius, by the protocol that a row of the results states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

RadiusUnit = Literal["pixel", "sd", ""]
"""What a radius counts: the range of pixels is 1, standard deviations of each feature, or neither."""
_UNITS: Mapping[str, RadiusUnit] = {"pixel": "pixel", "paper": "pixel", "series": "sd", "control": "sd"}
# The unit of the radii of a row, by its data set ({"name", "params"}) and its protocol.
RadiusUnitOf = Callable[[Mapping[str, Any], str], RadiusUnit]


def protocol_unit(data: Mapping[str, Any], protocol: str) -> RadiusUnit:
    """The unit by the protocol alone, where the catalog lacks the data set."""
    return _UNITS.get(protocol, "")
