"""Checks that end in every way, and a program that runs two of them and may be killed."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.acceptance.checks import Check
from benchmarks.acceptance.record import Machine, Row, at_most, told
from benchmarks.acceptance.runner import run_all

MODULE = "tests.benchmarks.acceptance.planted"  # also where it is the program
# A file to which each check that begins writes its name and its process.
NOTES = "ASSAY_TEST_NOTES"
# Set where `waits` need not wait.
QUICK = "ASSAY_TEST_QUICK"
MACHINE: Machine = {
    "kind": "emulated",
    "device": "emulated",
    "gpus": 0,
    "driver": None,
    "torch": "0",
    "cuda": None,
    "commit": "c0ffee",
}


def check(name: str, seconds: int = 60, driver: str | None = None, **options: Any) -> Check:
    return Check(name, "Planted", f"it {name}", f"{MODULE}:{name}", seconds, driver, **options)


def note(name: str) -> None:
    if NOTES in os.environ:
        with Path(os.environ[NOTES]).open("a") as file:
            file.write(f"{name} {os.getpid()}\n")


def passes(context: Any) -> list[Row]:
    note("passes")
    return [told("kind", context.kind), told("dry", str(context.dry)), at_most("ratio", 1.25, 2.0)]


def shares(context: Any) -> list[Row]:
    """Its cases, and where its temporary files go."""
    note(f"shares-{context.number}of{context.parts}")
    cases = context.share(range(5))
    return [
        told("cases", len(cases)),
        at_most("case", float(max(cases)), 4.0, f"worst: {max(cases)}"),
        told("folder", tempfile.gettempdir()),
    ]


def meets(context: Any) -> list[Row]:
    """Ends once the other part has begun."""
    note(f"meets-{context.number}")
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline and Path(os.environ[NOTES]).read_text().count("meets") < 2:
        time.sleep(0.05)
    return [told("met", 1), at_most("waited", float(time.monotonic() > deadline), 0.0)]


def fails(context: Any) -> list[Row]:
    return [at_most("ratio", 3.0, 2.0), at_most("no number", float("nan"), 2.0), told("rest", 1)]


def measures_nothing(context: Any) -> list[Row]:
    return []


def raises(context: Any) -> list[Row]:
    raise ValueError("planted error")


def dies(context: Any) -> list[Row]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return []


def waits(context: Any) -> list[Row]:
    note("waits")
    if QUICK not in os.environ:
        time.sleep(300)
    return [told("waited", 1)]


if __name__ == "__main__":
    run_all([check("passes"), check("waits")], MACHINE, Path(sys.argv[1]))
