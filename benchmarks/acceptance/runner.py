"""Runs checks, each in a process of its own, and keeps their records. Never imports torch."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from assay.workers import identity
from assay.workers.diagnosis.machine import driver
from benchmarks.acceptance.checks import Check
from benchmarks.acceptance.record import Key, Kind, Machine, Record, answer_of, load, save, why_not

ROOT = Path(__file__).resolve().parents[2]
CHILD = "benchmarks.acceptance.child"
# Beside the product's own source: what the checks measure with.
MEASURING = ("benchmarks", "tests/e2e", "tests/laws", "tests/support")
DESCRIBE_SECONDS = 300
STOP_SECONDS = 15.0
# A dry run has more time: it shares its processor with other tests. At most, in seconds, and so many times.
DRY_PATIENCE, DRY_SECONDS = 3, 280


def machine_of(kind: Kind) -> Machine:
    """What this machine is; `gpus` is 0 where torch sees none."""
    commit = identity.code()["commit"]
    if kind != "cuda":
        torch = identity.packages().get("torch", "")
        return Machine(kind=kind, device=kind, gpus=0, driver=None, torch=torch, cuda=None, commit=commit)
    done = subprocess.run(  # noqa: S603 (itself)
        [sys.executable, "-m", CHILD, "describe"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DESCRIBE_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"torch does not answer: {' '.join(done.stderr.split())[-500:]}")
    found = json.loads(done.stdout)
    return Machine(
        kind=kind,
        device=found["device"] or "no GPU",
        gpus=found["gpus"],
        driver=driver().facts.get("version"),
        torch=found["torch"],
        cuda=found["cuda"],
        commit=commit,
    )


def key_of(machine: Machine) -> Key:
    """What the records of this source on this machine hold for."""
    digest = hashlib.sha256(identity.code()["source_sha256"].encode())
    for folder in MEASURING:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return Key(code=digest.hexdigest(), torch=machine["torch"], device=machine["device"])


def run_all(
    checks: Sequence[Check],
    machine: Machine,
    folder: Path,
    *,
    again: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Record]:
    """The records of these checks; one that has passed for the same key is not repeated.

    Args:
        checks: In order.
        machine: On which they run. Where its kind is not `cuda` this is a dry run.
        folder: Of the records; made where it is missing.
        again: Whether to repeat those too.
        tell: Gets a line for each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key, records = key_of(machine), []
    for check in checks:
        known = load(check.name, folder)
        if known is not None and known["passed"] and known["key"] == key and not again:
            tell(f"{check.name}: passed on {known['finished']}, not repeated")
            records.append(known)
            continue
        tell(f"{check.name}: {check.title} (at most {check.seconds} s)")
        record = measured(check, machine, key, folder)
        save(record, folder)
        tell(f"{check.name}: {'passed' if record['passed'] else 'FAILED'} after {record['seconds']:.0f} s")
        records.append(record)
    return records


def measured(check: Check, machine: Machine, key: Key, folder: Path) -> Record:
    """Runs a check in a process of its own; its output goes to a log beside the records."""
    dry = machine["kind"] != "cuda"
    kind: Kind = "cpu" if dry and check.driver else machine["kind"]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="assay-acceptance-") as scratch:
        own, answer = Path(scratch, "folder"), Path(scratch, "answer.json")
        own.mkdir()
        limit = min(DRY_PATIENCE * check.seconds, DRY_SECONDS) if dry else check.seconds
        request = {"target": check.target, "kind": kind, "dry": dry, "seconds": limit}
        request |= {"folder": str(own), "answer": str(answer)}
        with (folder / f"{check.name}.log").open("wb") as log:
            fault = _fault(request, limit, log.fileno())
        found = answer_of(answer.read_text()) if answer.exists() else {}
    if fault is None and "rows" not in found:
        fault = found.get("raised", "its process ended without an answer")
    rows = found.get("rows", [])
    why = fault or why_not(rows)
    return Record(
        check=check.name,
        key=key,
        machine=machine,
        kind=kind,
        passed=why is None,
        why=why,
        rows=rows,
        seconds=round(time.monotonic() - begun, 1),
        planned=check.seconds,
        finished=datetime.now(UTC).date().isoformat(),
    )


def _fault(request: dict[str, object], limit: float, output: int) -> str | None:
    """Runs the process; what ended it, None where it came to its end."""
    process = subprocess.Popen(  # noqa: S603 (itself)
        [sys.executable, "-m", CHILD, json.dumps(request)],
        cwd=ROOT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        return f"it was ended when its {limit:g} s were over"
    finally:
        _end(process)
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with code {code}" if code else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that is still there in order, then it and all of its group."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
