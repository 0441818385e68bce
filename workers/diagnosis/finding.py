"""One line of `assay doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["ok", "warn", "fail"]
GIB = 1024**3


@dataclass(frozen=True)
class Finding:
    """What a check has found.

    Attributes:
        name: of the check.
        status: `fail` is something without which this box does not work as it is configured.
        text: what was found, for people.
        remedy: what to do about it; None where nothing is.
        facts: the same for programs.
    """

    name: str
    status: Status
    text: str
    remedy: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

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
