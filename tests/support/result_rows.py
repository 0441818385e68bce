"""Rows of results as JSON, for tests of what reads them."""

from __future__ import annotations

from typing import Any


def row(name: str, metrics: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A row of an evaluation on digits; the changes come last."""
    return {
        "name": name,
        "params": {},
        "data": {"name": "digits", "params": {}},
        "protocol": "pixel",
        "backend": "native",
        "metrics": metrics,
        "seconds": 1.0,
        "forward_passes": 1,
        "backward_passes": 0,
    } | changes
