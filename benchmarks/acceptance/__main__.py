"""Acceptance of a machine with a GPU: `make accept-gpu`, or `python -m benchmarks.acceptance`.

Each check (`checks.py`) runs in a process of its own with a time limit, and leaves a record. A run that was
interrupted goes on where it was: what has passed with the same source, torch and device is not repeated. At
the end there is a table, and from the records `benchmarks/results-gpu.json`, `docs/results-gpu.md` and
`docs/measurements/results-gpu.csv`.

With `--device emulated` it is a dry run without a GPU: tiny sizes on the emulated device of the tests, on the
CPU where a check needs a real driver. It leaves all three beside its records.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.acceptance.checks import CHECKS, Check, chosen, planned
from benchmarks.acceptance.page import COMMAND, page, values
from benchmarks.acceptance.process import ROOT
from benchmarks.acceptance.record import load, write_whole
from benchmarks.acceptance.results import Results, load_results, of_run, places, store
from benchmarks.acceptance.runner import Run, key_of, machine_of, run_all

FOLDERS = {"cuda": ROOT / "build" / "accept-gpu", "emulated": ROOT / "build" / "accept-gpu-dry"}
FAILED, NO_GPU, NOT_RUN = 1, 2, 3


def main(arguments: Sequence[str] | None = None, checks: Sequence[Check] = CHECKS) -> int:
    """Runs the checks.

    Returns:
        0 where all passed, 1 where one failed, 2 without a GPU or for wrong arguments, 3 where none failed
        and some did not fit into the time.
    """
    options = _parser().parse_args(arguments)
    try:
        total, wanted = planned(checks), chosen(checks, options.only)
    except ValueError as error:
        _parser().error(str(error))
    wanted = [replace(check, seconds=options.longer * check.seconds) for check in wanted]
    total *= options.longer
    if options.list:
        _tell(listed(wanted))
        return 0
    folder: Path = options.records or FOLDERS[options.device]
    stored, *written = places(options.device, folder)
    if options.page:
        _write(load_results(stored), checks, written)
        return 0
    machine = machine_of(options.device)
    if machine["kind"] == "cuda" and not machine["gpus"]:
        sys.stderr.write(f"{COMMAND} needs a GPU, and torch {machine['torch']} sees none here.\n")
        return NO_GPU
    limit = f"all take at most {total} s" if options.seconds is None else f"{options.seconds} s for all"
    limit += "" if options.together == 1 else f", {options.together} side by side"
    _tell(f"{len(wanted)} of {len(checks)} checks on {machine['device']}; {limit}")
    run = run_all(
        wanted,
        machine,
        folder,
        again=options.again,
        together=options.together,
        seconds=options.seconds,
        tell=_tell,
    )
    _tell("\n" + table(run))
    key = key_of(machine)
    found = [one for check in checks if (one := load(check.name, folder)) is not None and one["key"] == key]
    if found:
        results = of_run(found)
        store(results, stored)
        _write(results, checks, written)
    if not all(one["passed"] for one in run.records):
        return FAILED
    return NOT_RUN if run.not_run else 0


def _write(results: Results, checks: Sequence[Check], places: Sequence[Path]) -> None:
    texts = (page(results, checks), values(results, checks))
    for place, text in zip(places, texts, strict=True):
        write_whole(place, text)
        _tell(f"written: {place}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.acceptance", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--device", choices=list(FOLDERS), default="cuda")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these checks alone")
    parser.add_argument(
        "--together", type=_positive, default=1, metavar="N", help="processes side by side; default: 1"
    )
    parser.add_argument(
        "--seconds", type=_positive, metavar="S", help="of the whole run; checks of most worth come first"
    )
    parser.add_argument(
        "--longer", type=_positive, default=1, metavar="N", help="each check may take N times as long"
    )
    parser.add_argument("--records", type=Path, metavar="FOLDER", help="default: build/accept-gpu")
    parser.add_argument("--again", action="store_true", help="repeat what has passed")
    parser.add_argument("--list", action="store_true", help="list the checks, and run none")
    parser.add_argument(
        "--page", action="store_true", help="write the page from stored results, and run none"
    )
    return parser


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} given; a whole number of at least 1 is needed")
    return int(text)


def listed(checks: Sequence[Check]) -> str:
    """A line for each check, by worth."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in sorted(checks, key=lambda check: check.worth):
        sharing = "alone" if check.alone else f"{check.parts} parts" if check.parts > 1 else ""
        lines.append(f"{check.name:<{width}}  {check.seconds:>4} s  {sharing:<7}  {check.title}")
    return "\n".join(lines)


def table(run: Run) -> str:
    """A line for each check."""
    names = [one["check"] for one in run.records] + [check.name for check in run.not_run]
    width = max(map(len, names))
    lines = []
    for one in run.records:
        end = "passed" if one["passed"] else f"FAILED  {one['why']}"
        lines.append(f"{one['check']:<{width}}  {one['kind']:<8}  {one['seconds']:7.1f} s  {end}")
    lines += [f"{check.name:<{width}}  {'':<8}  {'':7}    not run" for check in run.not_run]
    passed = sum(one["passed"] for one in run.records)
    left = f", {len(run.not_run)} not run" if run.not_run else ""
    return "\n".join([*lines, f"{passed} of {len(names)} passed{left}"])


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
