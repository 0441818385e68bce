"""The subcommands `report`, `table` and `export`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from assay.service.cli import commands, output
from assay.service.cli.arguments import JOB, Subcommands, add_remote
from assay.service.cli.commands import Options, UsageError
from assay.service.reports.client import ENDINGS, report_format
from assay.service.reports.robustbench import robustbench_paths

OTHER = "01jd3q0x5v8f7m2n9k4t6w1z0z"


def add_commands(subcommands: Subcommands) -> None:
    """Adds `report`, `table` and `export`."""
    summary = "write a report on up to ten jobs"
    examples = f"{JOB} {OTHER} -o report.html", "--tag paper -o numbers.csv"
    parser = add_remote(
        subcommands, "report", report, summary, *examples, topic="results", first="JOB -o report.html"
    )
    _add_choice(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="report.html",
        help=f"file to write; its ending is the format: {', '.join(ENDINGS)} (default: %(default)s)",
    )

    summary = "print a table of the numbers of jobs"
    examples = (
        f"{JOB} {OTHER} --rows attack --columns model",
        "--tag paper --format latex --rows epsilon --columns name -o table.tex",
    )
    parser = add_remote(subcommands, "table", table, summary, *examples, topic="results")
    _add_choice(parser)
    parser.add_argument("--format", choices=["md", "latex", "csv", "html"], default="md")
    fields = "attack, model, data, protocol, metric, part, seed, name, job, or a parameter"
    parser.add_argument("--rows", metavar="FIELD", default="attack", help=f"{fields} (default: %(default)s)")
    parser.add_argument("--columns", metavar="FIELD", default="model", help="default: %(default)s")
    parser.add_argument("--metric", help="default: the first one of each evaluation")
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write (default: standard output)")
    _add_export(subcommands)


def report(options: Options) -> int:
    """Writes a report."""
    target = Path(options.output)
    ending = report_format(target, "--output")
    with commands.connected(options) as client:
        text = client.report(_jobs(options), tag=options.tag, format=ending, adjust=options.adjust)
    _write(target, text)
    return commands.OK


def table(options: Options) -> int:
    """Prints a table, or writes it into a file."""
    with commands.connected(options) as client:
        text = client.table(
            _jobs(options),
            tag=options.tag,
            rows=options.rows,
            columns=options.columns,
            metric=options.metric,
            format=options.format,
            adjust=options.adjust,
        )
    if options.output is None:
        sys.stdout.write(text)
    else:
        _write(Path(options.output), text)
    return commands.OK


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobs", metavar="JOB", nargs="*", help="job ids")
    parser.add_argument("--tag", help="in place of ids: all jobs with this tag and results")
    parser.add_argument(
        "--adjust",
        choices=["holm", "benjamini_hochberg"],
        default="holm",
        help="how p-values are adjusted for the number of tests",
    )


def _jobs(options: Options) -> list[str] | None:
    if bool(options.jobs) == (options.tag is not None):
        raise UsageError("give job ids, or --tag")
    return options.jobs or None


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8", newline="")
    sys.stdout.write(f"{target}\n")


def _add_export(subcommands: Subcommands) -> None:
    summary = "write results in the format of another project"
    examples = f"{JOB} --format robustbench", f"{JOB} --format robustbench -o model_info"
    parser = add_remote(subcommands, "export", export, summary, *examples, topic="results")
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
        _write_entries(Path(options.output), entries)
    return commands.OK


def _write_entries(folder: Path, entries: list[dict[str, Any]]) -> None:
    for path, entry in zip(robustbench_paths(entries), entries, strict=True):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{output.json_text(entry)}\n", encoding="utf-8")
        sys.stdout.write(f"{target}\n")
