"""Log lines of all our processes: as text for people, or as one JSON object for each record.

    {"time": "2026-01-31T12:00:00.000Z", "level": "INFO", "logger": "assay.workers.supervision.shard_run",
     "message": "shard ...: claimed", "job": "01jd...", "shard": "01jd...-000-00003"}

The subject of a line (job, shard, request) comes from `about`, and `extra={"fields": {...}}` adds to one
record. Passwords in addresses and API keys are masked in all records.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Literal, TextIO

from assay.service.contract.times import iso

LogFormat = Literal["text", "json"]
LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
QUIET = ("alembic", "httpx", "httpcore")  # These libraries log every step at INFO.
_SECRETS = (
    (re.compile(r"(://[^\s:/@]*):[^\s@/]+@"), r"\1:***@"),
    (re.compile(r"\b(assay_[A-Za-z0-9]{8})_[A-Za-z0-9_-]{16,}"), r"\1_***"),
)
_about: ContextVar[Mapping[str, str]] = ContextVar("about", default={})  # noqa: B039 (never changed in place)


@contextlib.contextmanager
def about(**fields: str) -> Iterator[None]:
    """Adds these fields to all records that this thread or task, no thread begun there, logs in the block."""
    token = _about.set({**_about.get(), **fields})
    try:
        yield
    finally:
        _about.reset(token)


class TextFormatter(logging.Formatter):
    """A line for people, its exception below it."""

    def __init__(self) -> None:
        super().__init__(LINE)

    def format(self, record: logging.LogRecord) -> str:
        """The record as text: its message has no line break, so that no message looks like a record."""
        return blotted(escaped(super().format(record), kept="\n\t"))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name of the library)
        """The line of the record, before its exception."""
        record.message = escaped(record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One line per record, for any content."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a JSON object without line breaks."""
        line: dict[str, Any] = {
            "time": iso(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": blotted(record.getMessage()),
            **_about.get(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = blotted(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


def escaped(text: str, kept: str = "") -> str:
    """The text with escapes for what controls a terminal or breaks a line, except characters kept."""
    return "".join(one if one.isprintable() or one in kept else ascii(one)[1:-1] for one in text)


def blotted(text: str) -> str:
    """The text without the passwords of addresses and without the secret parts of API keys."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class _Handler(logging.StreamHandler[TextIO]):
    """The handler of `set_up`, a class of its own so that it can be found again."""


def set_up(level: str = "INFO", format: LogFormat = "text") -> None:  # noqa: A002 (the setting's name)
    """Sends all records of this process to stderr; the last call wins.

    uvicorn and Celery must be told to leave logging alone (`log_config=None`, `worker_hijack_root_logger`).
    """
    handler = _Handler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root = logging.getLogger()
    for ours in [one for one in root.handlers if isinstance(one, _Handler)]:
        root.removeHandler(ours)
    # Does nothing where another program, such as a test runner, collects the records.
    logging.basicConfig(level=level, handlers=[handler])
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    if format == "json":
        logging.captureWarnings(True)
        sys.excepthook = _uncaught
        threading.excepthook = _uncaught_in_thread


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logging.getLogger("uncaught").critical("%s", kind.__name__, exc_info=(kind, error, trace))


def _uncaught_in_thread(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_value is not None and not issubclass(arguments.exc_type, SystemExit):
        name = arguments.thread.name if arguments.thread is not None else "?"
        error = (arguments.exc_type, arguments.exc_value, arguments.exc_traceback)
        logging.getLogger("uncaught").critical("thread %s ended", name, exc_info=error)
