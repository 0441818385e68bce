"""Looks at this box: what Assay needs of it, each line ok or with its remedy.

    python -P -m assay.workers.doctor [--json] [--no-data]

It changes nothing, makes no state folder and no database, and needs no running service. torch is loaded in
processes of their own alone, so that it also speaks where torch is missing or broken.
"""

from __future__ import annotations

from assay.service.contract.extras import require_to_run

if __name__ == "__main__":
    require_to_run("assay.workers.doctor", "worker")

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from pydantic import ValidationError
from pydantic_settings import SettingsError

from assay.service.fitted_text import say
from assay.service.store.connections import wrong_settings
from assay.service.store.fleet import lease_owner
from assay.workers.diagnosis import devices, machine, service
from assay.workers.diagnosis.finding import Finding, fail, ok
from assay.workers.settings import WorkerSettings

MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
NAME_WIDTH = 24
REMEDY_INDENT = NAME_WIDTH + 8


def examine(settings: WorkerSettings, *, data: bool = True) -> Iterator[Finding]:
    """All findings on this box in the report's order; `data`: whether to hash data sets."""
    yield machine.driver()
    source = None
    for found in devices.devices(settings):
        source = source or found.facts.get("source_sha256")
        if found.name == "deterministic mode":
            yield machine.memory(settings)
        yield found
    yield from machine.disks(settings)
    database, ahead = service.database(settings)
    yield service.clock(settings, ahead)
    missing = machine.missing_root(settings)
    if missing is not None:
        yield missing
    elif data:
        yield from machine.data_sets(settings)
    else:
        yield ok("data", "not looked at: --no-data")
    if ahead is not None and (agreed := service.agreement(settings)) is not None:
        yield agreed
    yield machine.pulled_weights(settings)
    yield service.versions(source)
    yield service.port()
    yield database
    yield service.redis(settings)
    yield machine.sandbox(settings)


def without_settings(lines: Iterable[str]) -> Iterator[Finding]:
    """Findings for wrong settings: each fault, and checks without settings."""
    for line in lines:
        yield fail("settings", line, "correct the variable, or unset it")
    yield machine.driver()
    yield service.versions(None)
    yield service.port()


def line_of(found: Finding) -> str:
    """A finding as a line, with its remedy below it."""
    text = f"{MARKS[found.status]}  {found.name:<{NAME_WIDTH}}  {found.text}"
    return text if found.remedy is None else f"{text}\n{'':{REMEDY_INDENT}}-> {found.remedy}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the report; 0 where nothing failed, else 1."""
    parser = argparse.ArgumentParser(
        prog="assay doctor", description="Look at this box: each line is ok or says what to do."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--no-data", action="store_true", help="do not read the data sets for their hashes")
    options = parser.parse_args(arguments)
    show: Callable[[Finding], None] = (lambda found: None) if options.json else _print
    try:
        findings = examine(WorkerSettings(), data=not options.no_data)
    except (ValidationError, SettingsError) as error:
        findings = without_settings(wrong_settings(error))
    every = []
    for found in findings:
        show(found)
        every.append(found)
    failed = [found for found in every if found.status == "fail"]
    if options.json:
        listed = [found.to_json() for found in every]
        report = {"ok": not failed, "host": lease_owner.host(), "findings": listed}
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        warned = sum(found.status == "warn" for found in every)
        say(f"{len(every)} checks: {len(failed)} failed, {warned} with a warning")
    return 1 if failed else 0


def _print(found: Finding) -> None:
    say(line_of(found), REMEDY_INDENT)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
