"""Fractions as text: "8/255" is how the field writes the radius of a perturbation."""

from __future__ import annotations

import functools
import math
import re
from typing import Any

from assay.service.contract.row_protocols import RadiusUnit

PIXEL_STEPS = 255
# The lengths are capped so that the quotient is always finite.
PATTERN = r"^\s*-?[0-9]{1,15}(\.[0-9]{1,15})?\s*/\s*[0-9]{1,15}(\.[0-9]{1,15})?\s*$"
_FRACTION = re.compile(PATTERN)


@functools.lru_cache(maxsize=4096)  # Pages of long jobs parse the same radii again and again.
def parse_fraction(text: str) -> float:
    """The value of "0.5/255": two decimal numbers, the second positive; ValueError for another text."""
    if not _FRACTION.match(text):
        raise ValueError(f"{text!r} is not a fraction; allowed: two numbers with a stroke, like '8/255'")
    numerator, denominator = (float(part) for part in text.split("/"))
    if denominator == 0:
        raise ValueError(f"{text!r} has denominator 0; allowed: a positive denominator, like '8/255'")
    return numerator / denominator


def fraction_value(given: float | str) -> float:
    """A parameter, a number or a fraction, as a number; ValueError for a text that is no fraction."""
    return parse_fraction(given) if isinstance(given, str) else float(given)


def radius_text(value: Any, unit: RadiusUnit = "pixel") -> str:
    """A radius as people write it: 1/255 for 0.00392156862745098, 0.2 sd, other values as they are."""
    if unit == "sd":
        return f"{value} sd"
    if unit == "pixel" and isinstance(value, float) and 0 < value < 1:
        steps = value * PIXEL_STEPS
        if math.isclose(steps, round(steps), rel_tol=1e-9):
            return f"{round(steps)}/{PIXEL_STEPS}"
    return str(value)


def canonical(value: Any) -> Any:
    """A JSON value with "2/255" and 2/255 written the same way, numbers to 12 digits."""
    if isinstance(value, dict):
        return {key: canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [canonical(item) for item in value]
    if isinstance(value, str) and "/" in value:
        try:
            return canonical(parse_fraction(value))
        except ValueError:
            return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(f"{value:.12g}")
    return value
