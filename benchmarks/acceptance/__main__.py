"""Acceptance of a machine with a GPU: `make accept-gpu`, or `python -m benchmarks.acceptance`.

Each check (`checks.py`) runs in a process of its own with a time limit, and leaves a record. A run that was
interrupted goes on where it was: what has passed with the same source, torch and device is not repeated. At
the end there is a table, and `docs/results-gpu.md` from the records.

With `--device emulated` it is a dry run without a GPU: tiny sizes on the emulated device of the tests, on the
CPU where a check needs a real driver. It leaves its page beside its records, never in `docs/`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.acceptance.checks import CHECKS, Check, chosen, planned
from benchmarks.acceptance.page import page
from benchmarks.acceptance.record import Record, load, write_whole
from benchmarks.acceptance.runner import ROOT, key_of, machine_of, run_all

FOLDERS = {"cuda": ROOT / "build" / "accept-gpu", "emulated": ROOT / "build" / "accept-gpu-dry"}
PAGE = "results-gpu.md"
NO_GPU = 2


def main(arguments: Sequence[str] | None = None, checks: Sequence[Check] = CHECKS) -> int:
    """Runs the checks.

    Returns:
        0 where all passed, 1 where one failed, 2 without a GPU or for wrong arguments.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.acceptance", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--device", choices=list(FOLDERS), default="cuda")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these checks alone")
    parser.add_argument("--records", type=Path, metavar="FOLDER", help="default: build/accept-gpu")
    parser.add_argument("--again", action="store_true", help="repeat what has passed")
    options = parser.parse_args(arguments)
    try:
        total, wanted = planned(checks), chosen(checks, options.only)
    except ValueError as error:
        parser.error(str(error))
    machine = machine_of(options.device)
    if machine["kind"] == "cuda" and not machine["gpus"]:
        sys.stderr.write(f"make accept-gpu needs a GPU, and torch {machine['torch']} sees none here.\n")
        return NO_GPU
    folder: Path = options.records or FOLDERS[options.device]
    _tell(f"{len(wanted)} of {len(checks)} checks on {machine['device']}; all take at most {total} s")
    records = run_all(wanted, machine, folder, again=options.again, tell=_tell)
    _tell("\n" + table(records))
    key = key_of(machine)
    found = [one for check in checks if (one := load(check.name, folder)) is not None and one["key"] == key]
    target = (ROOT / "docs" if machine["kind"] == "cuda" else folder) / PAGE
    write_whole(target, page(found, checks))
    _tell(f"written: {target}")
    return 0 if all(one["passed"] for one in records) else 1


def table(records: Sequence[Record]) -> str:
    """A line for each record."""
    width = max(len(one["check"]) for one in records)
    lines = []
    for one in records:
        end = "passed" if one["passed"] else f"FAILED  {one['why']}"
        lines.append(f"{one['check']:<{width}}  {one['kind']:<8}  {one['seconds']:7.1f} s  {end}")
    passed = sum(one["passed"] for one in records)
    return "\n".join([*lines, f"{passed} of {len(records)} passed"])


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
