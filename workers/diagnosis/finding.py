"""One line of `assay doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["ok", "warn", "fail"]
GIB = 1024**3


@dataclass(frozen=True)
class Finding:
    """What a check has found."""

    name: str  # of the check
    status: Status  # `fail`: this box does not work as configured
    text: str  # for people
    remedy: str | None = None  # what to do; None for nothing
    facts: Mapping[str, Any] = field(default_factory=dict)  # for programs

    def to_json(self) -> dict[str, Any]:
        """As in `assay doctor --json`."""
        return asdict(self)


def ok(name: str, text: str, /, **facts: Any) -> Finding:
    """Nothing to do."""
    return Finding(name, "ok", text, None, facts)


def warn(name: str, text: str, remedy: str, /, **facts: Any) -> Finding:
    """It works, with less than it could."""
    return Finding(name, "warn", text, remedy, facts)


def fail(name: str, text: str, remedy: str, /, **facts: Any) -> Finding:
    """It does not work."""
    return Finding(name, "fail", text, remedy, facts)
