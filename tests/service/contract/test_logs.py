"""One line per record, with its subject and without secrets."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from assay.service.contract import logs

KEY = "assay_a1b2c3d4_" + "s3cr3tS3CR3T-s3cr3t_s3cr3t"


@pytest.fixture
def written() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """A logger of its own with JSON lines."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    logger = logging.getLogger("tests.json")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield logger, stream
    logger.removeHandler(handler)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_record_is_a_line(written: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = written
    logger.warning("two\nlines and %r", {"x": "é\u2028"})
    (line,) = lines(stream)
    assert len(stream.getvalue().splitlines()) == 1
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "WARNING",
        "logger": "tests.json",
        "message": "two\nlines and {'x': 'é\\u2028'}",
    }


def test_what_it_is_about_comes_with_it(written: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = written
    with logs.about(job="j"):
        with logs.about(shard="s"):
            logger.info("inner", extra={"fields": {"ms": 1.5}})
        thread = threading.Thread(target=logger.info, args=("of a thread",))
        thread.start()
        thread.join()
    logger.info("outer")
    inner, of_a_thread, outer = lines(stream)
    assert (inner["job"], inner["shard"], inner["ms"]) == ("j", "s", 1.5)
    assert not {"job", "shard"} & set(of_a_thread)
    assert not {"job", "shard"} & set(outer)


def test_exceptions_are_in_the_line(written: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = written
    try:
        raise RuntimeError(f"cannot reach postgresql://assay:hunter2hunter2@host/db with {KEY}")
    except RuntimeError:
        logger.exception("it failed")
    (line,) = lines(stream)
    assert "RuntimeError" in line["exception"]
    assert "test_logs.py" in line["exception"]
    assert "hunter2" not in stream.getvalue()
    assert "s3cr3t" not in stream.getvalue()


@pytest.mark.parametrize(
    ("text", "blotted"),
    [
        ("redis://:p%40ss@redis:6379/0 is away", "redis://:***@redis:6379/0 is away"),
        ("postgresql+psycopg://assay:pw@db/assay", "postgresql+psycopg://assay:***@db/assay"),
        (f"Bearer {KEY}!", "Bearer assay_a1b2c3d4_***!"),
        ("http://127.0.0.1:8000/docs", "http://127.0.0.1:8000/docs"),
        (
            "assay_database_up 0, assay_forward_passes_total",
            "assay_database_up 0, assay_forward_passes_total",
        ),
    ],
)
def test_secrets_are_blotted_out(text: str, blotted: str) -> None:
    assert logs.blotted(text) == blotted
    record = logging.LogRecord("x", logging.INFO, __file__, 1, "%s", (text,), None)
    assert json.loads(logs.JsonFormatter().format(record))["message"] == blotted
    assert logs.TextFormatter().format(record).endswith(f"INFO x: {blotted}")


PROGRAM = """
import logging, threading, warnings
from assay.service.contract import logs
logs.set_up("INFO", "text")
logs.set_up("INFO", "json")
logging.getLogger("alembic.runtime").info("not shown")
logging.getLogger("a").debug("not shown")
logging.getLogger("a").info("shown")
warnings.warn("a warning", stacklevel=1)
thread = threading.Thread(target=lambda: 1 / 0, name="t")
thread.start()
thread.join()
raise ValueError("the end")
"""


def test_a_process_writes_nothing_but_json() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert run.returncode == 1
    found = [json.loads(line) for line in run.stderr.splitlines()]
    assert [(line["logger"], line["level"]) for line in found] == [
        ("a", "INFO"),
        ("py.warnings", "WARNING"),
        ("uncaught", "CRITICAL"),
        ("uncaught", "CRITICAL"),
    ]
    assert "ZeroDivisionError" in found[2]["exception"]
    assert "the end" in found[3]["exception"]
    assert run.stdout == ""


def test_text_is_as_it_was() -> None:
    program = PROGRAM.replace('logs.set_up("INFO", "json")', "")
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    first = run.stderr.splitlines()[0]
    assert first.endswith("INFO a: shown")
    assert "ValueError: the end" in run.stderr.splitlines()[-1]
