"""The process of one part of a check, from its start to its record. Never imports torch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.acceptance.parts import Part
from benchmarks.acceptance.record import Key, Kind, Machine, Record, answer_of, why_not

ROOT = Path(__file__).resolve().parents[2]
CHILD = "benchmarks.acceptance.child"
STOP_SECONDS = 15.0
MAX_THREADS = 8


class Process:
    """A part in a process of its own, with a temporary folder of its own; its output goes to a log.

    Args:
        part: What runs.
        machine: On which. Where its kind is not `cuda` this is a dry run.
        key: What the record holds for.
        folder: Gets the log.
        together: The number of processes that share the machine.
    """

    def __init__(self, part: Part, machine: Machine, key: Key, folder: Path, together: int = 1) -> None:
        self.part, self._machine, self._key, self._together = part, machine, key, together
        dry = machine["kind"] != "cuda"
        self._kind: Kind = "cpu" if dry and part.check.driver else machine["kind"]
        self._limit = part.seconds(dry=dry)
        self._scratch = tempfile.TemporaryDirectory(prefix="assay-acceptance-")
        scratch = Path(self._scratch.name)
        self._answer = scratch / "answer.json"
        for name in ("folder", "tmp"):
            (scratch / name).mkdir()
        request = {"target": part.check.target, "kind": self._kind, "dry": dry, "seconds": self._limit}
        request |= {"number": part.number, "parts": part.count}
        threads = 1 if dry else min(MAX_THREADS, max(1, (os.cpu_count() or 1) // together))
        request |= {"threads": threads, "folder": str(scratch / "folder"), "answer": str(self._answer)}
        self._begun = time.monotonic()
        with (folder / f"{part.name}.log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 (itself)
                [sys.executable, "-m", CHILD, json.dumps(request)],
                cwd=ROOT,
                env=os.environ | {"PYTHONUNBUFFERED": "1", "TMPDIR": str(scratch / "tmp")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def record(self) -> Record | None:
        """The record, once the process has ended or its time is over; None before."""
        code = self._process.poll()
        late = time.monotonic() - self._begun > self._limit
        if code is None and not late:
            return None
        self._end()
        found = answer_of(self._answer.read_text()) if self._answer.exists() else {}
        fault = f"it was ended when its {self._limit:g} s were over" if code is None else _fault(code)
        if fault is None and "rows" not in found:
            fault = found.get("raised", "its process ended without an answer")
        self._scratch.cleanup()
        rows = found.get("rows", [])
        why = fault or why_not(rows)
        return Record(
            check=self.part.check.name,
            key=self._key,
            machine=self._machine,
            kind=self._kind,
            passed=why is None,
            why=why,
            rows=rows,
            seconds=round(time.monotonic() - self._begun, 1),
            planned=self.part.seconds(),
            parts=self.part.count,
            together=self._together,
            finished=datetime.now(UTC).date().isoformat(),
        )

    def stop(self) -> None:
        """Ends it, without a record."""
        self._end()
        self._scratch.cleanup()

    def _end(self) -> None:
        """Ends a process that is still there in order, then it and all of its group."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _fault(code: int) -> str | None:
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with code {code}" if code else None
