"""Runs checks, each in a process of its own or in several, and keeps their records. Never imports torch."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from assay.workers import identity
from assay.workers.diagnosis.machine import driver
from benchmarks.acceptance.checks import Check
from benchmarks.acceptance.parts import Part, parts_of, whole
from benchmarks.acceptance.process import CHILD, ROOT, STOP_SECONDS, Process
from benchmarks.acceptance.record import Key, Kind, Machine, Record, load, save

# Beside the product's own source: what the checks measure with.
MEASURING = ("benchmarks", "tests/e2e", "tests/laws", "tests/support")
DESCRIBE_SECONDS = 300
POLL_SECONDS = 0.1


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


@dataclass
class Run:
    """What a run gave: the records, and the checks that did not fit into its time."""

    records: list[Record] = field(default_factory=list)
    not_run: list[Check] = field(default_factory=list)


def run_all(
    checks: Sequence[Check],
    machine: Machine,
    folder: Path,
    *,
    again: bool = False,
    together: int = 1,
    seconds: float | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Run:
    """Runs checks; one that has passed for the same key is not repeated, nor is a part of one.

    Args:
        checks: In order.
        machine: On which they run. Where its kind is not `cuda` this is a dry run.
        folder: Of the records; made where it is missing.
        again: Whether to repeat those too.
        together: Processes side by side. Checks that measure time or memory follow, each alone.
        seconds: Of the whole run. Checks of most worth come first, and a part that may take longer than
            what is left is not begun.
        tell: Gets a line for each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    key, run = key_of(machine), Run()

    def passed(name: str) -> Record | None:
        record = None if again else load(name, folder)
        return record if record is not None and record["passed"] and record["key"] == key else None

    known = {check.name: record for check in checks if (record := passed(check.name)) is not None}
    for record in known.values():
        tell(f"{record['check']}: passed on {record['finished']}, not repeated")
    parts = {check: parts_of(check, together) for check in checks if check.name not in known}
    wanted = [part for check in parts for part in parts[check]]
    done = {part: record for part in wanted if part.count > 1 and (record := passed(part.name)) is not None}
    start = partial(Process, machine=machine, key=key, folder=folder)
    waiting = [part for part in wanted if part not in done]
    for queue, width in _queues(waiting, together, ranked=seconds is not None):
        for part, record in _ended(queue, width, start, deadline, tell, dry=machine["kind"] != "cuda"):
            save(record, folder, part.name)
            done[part] = record
    for check in checks:
        if check not in parts:
            run.records.append(known[check.name])
        elif all(part in done for part in parts[check]):
            run.records.append(whole([done[part] for part in parts[check]]))
            save(run.records[-1], folder)
        else:
            run.not_run.append(check)
    return run


def _queues(waiting: list[Part], together: int, *, ranked: bool) -> list[tuple[list[Part], int]]:
    """What shares the device and then what runs alone, each with its number of processes."""
    if ranked:
        waiting = sorted(waiting, key=lambda part: part.check.worth)
    elif together > 1:
        waiting = sorted(waiting, key=lambda part: -part.seconds())  # the longest first
    if together == 1:
        return [(waiting, 1)]
    alone = [part for part in waiting if part.check.alone]
    return [([part for part in waiting if not part.check.alone], together), (alone, 1)]


def _ended(
    queue: list[Part],
    width: int,
    start: Callable[..., Process],
    deadline: float,
    tell: Callable[[str], None],
    *,
    dry: bool,
) -> Iterator[tuple[Part, Record]]:
    """Parts and their records, as they end; what may not end before the deadline is not begun."""
    running: list[Process] = []
    try:
        while queue or running:
            while queue and len(running) < width:
                part, left = queue.pop(0), deadline - time.monotonic()
                limit = part.seconds(dry=dry)
                if limit + STOP_SECONDS > left:
                    tell(f"{part.name}: not begun: it may take {limit} s, {left:.0f} s are left")
                    continue
                tell(f"{part.name}: {part.check.title} (at most {limit} s)")
                running.append(start(part, together=width))
            for process in list(running):
                record = process.record()
                if record is not None:
                    running.remove(process)
                    end = "passed" if record["passed"] else "FAILED"
                    tell(f"{process.part.name}: {end} after {record['seconds']:.0f} s")
                    yield process.part, record
            if running:
                time.sleep(POLL_SECONDS)
    finally:
        for process in running:
            process.stop()
