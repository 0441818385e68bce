"""Times as answers, logs and events state them: ISO 8601 in UTC, with milliseconds and 'Z'."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(seconds: float) -> str:
    """The text of unix seconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_or_none(seconds: float | None) -> str | None:
    """As `iso`, for optional times."""
    return None if seconds is None else iso(seconds)
