"""The subcommands `report` and `table`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from assay.service.cli import commands
from assay.service.cli.arguments import JOB, Subcommands, add_remote
from assay.service.cli.commands import Options, UsageError
from assay.service.client.reports import ENDINGS, report_format

OTHER = "01jd3q0x5v8f7m2n9k4t6w1z0z"


def add_reports(subcommands: Subcommands[argparse.ArgumentParser]) -> None:
    """Adds `report` and `table`."""
    parser = add_remote(
        subcommands,
        "report",
        report,
        "write a report on one to ten jobs",
        f"assay report {JOB} {OTHER} -o report.html",
        "assay report --tag paper -o numbers.csv",
    )
    _add_choice(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="report.html",
        help=f"file to write; its ending is the format: {', '.join(ENDINGS)} (default: %(default)s)",
    )

    parser = add_remote(
        subcommands,
        "table",
        table,
        "print a table of the numbers of jobs",
        f"assay table {JOB} {OTHER} --rows attack --columns model",
        "assay table --tag paper --format latex --rows epsilon --columns name -o table.tex",
    )
    _add_choice(parser)
    parser.add_argument("--format", choices=["md", "latex", "csv", "html"], default="md")
    fields = "attack, model, data, protocol, metric, part, seed, name, job, or a parameter"
    parser.add_argument("--rows", metavar="FIELD", default="attack", help=f"{fields} (default: %(default)s)")
    parser.add_argument("--columns", metavar="FIELD", default="model", help="default: %(default)s")
    parser.add_argument("--metric", help="default: the first one of each evaluation")
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write (default: standard output)")


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
