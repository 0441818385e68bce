"""The subcommand `export`: results in the formats of other projects."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from assay.service.cli import commands, output
from assay.service.cli.arguments import JOB, Subcommands, add_remote
from assay.service.cli.commands import Options, UsageError
from assay.service.reports.robustbench import robustbench_paths


def add_export(subcommands: Subcommands[argparse.ArgumentParser]) -> None:
    """Adds `export`."""
    parser = add_remote(
        subcommands,
        "export",
        export,
        "write results in the format of another project",
        f"assay export {JOB} --format robustbench",
        f"assay export {JOB} --format robustbench -o model_info",
    )
    parser.add_argument("jobs", metavar="JOB", nargs="+", help="job ids")
    parser.add_argument("--format", choices=["robustbench"], required=True)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        help="write a file for each entry, as DATASET/THREAT/NAME.json (default: a list on standard output)",
    )


def export(options: Options) -> int:
    """Prints the entries of the jobs, or writes them into a folder."""
    with commands.connected(options) as client:
        found = [(job, client.robustbench(job)) for job in options.jobs]
    empty = [job for job, entries in found if not entries]
    if empty:
        raise UsageError(
            f"job {', '.join(empty)}: no accuracy of an evaluation that RobustBench has a place for"
        )
    entries = [entry for _, some in found for entry in some]
    if options.output is None:
        sys.stdout.write(f"{output.json_text(entries)}\n")
    else:
        _write(Path(options.output), entries)
    return commands.OK


def _write(folder: Path, entries: list[dict[str, Any]]) -> None:
    for path, entry in zip(robustbench_paths(entries), entries, strict=True):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{output.json_text(entry)}\n", encoding="utf-8")
        sys.stdout.write(f"{target}\n")
