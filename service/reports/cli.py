"""The subcommand `report`: reports, tables, and the formats of other projects."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from assay.service.cli import commands, output
from assay.service.cli.arguments import JOB, Subcommands, add_remote, format_argument, target
from assay.service.cli.commands import Options, UsageError
from assay.service.cli.progress_bars import Spinner
from assay.service.reports.client import report_format
from assay.service.reports.pdf import NoPdf, find_browser, print_pdf
from assay.service.reports.robustbench import robustbench_paths

OTHER = "01jd3q0x5v8f7m2n9k4t6w1z0z"
ROBUSTBENCH = "robustbench"


def add_commands(subcommands: Subcommands) -> None:
    """Adds `report`."""
    parser = add_remote(
        subcommands,
        "report",
        report,
        "write a report on up to ten jobs; or a table, or the format of another project",
        f"{JOB} {OTHER} -o report.html",
        "--tag paper -o numbers.csv",
        f"{JOB} {OTHER} --table --rows attack --columns model",
        f"{JOB} --format robustbench -o model_info",
        topic="results",
        first="JOB -o report.html",
        older={"table": "--table", "export": f"--format {ROBUSTBENCH}"},
    )
    parser.add_argument("jobs", metavar="JOB", nargs="*", help="job ids")
    parser.add_argument("--tag", help="in place of ids: all jobs with this tag and results")
    parser.add_argument(
        "--adjust",
        choices=["holm", "benjamini_hochberg"],
        default="holm",
        help="how p-values are adjusted for the number of tests",
    )
    told = "default: by the ending of --output, else html"
    format_argument(parser, "html", "pdf", "md", "tex", "csv", ROBUSTBENCH, default=None, told=told)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=target,
        help="file to write, or - (default: report.html; of --table and robustbench standard output); of"
        " robustbench a folder with a file for each entry, DATASET/THREAT/NAME.json",
    )
    parser.add_argument("--table", action="store_true", help="a table of the numbers alone (default: md)")
    fields = "attack, model, data, protocol, metric, part, seed, name, job, or a parameter"
    parser.add_argument("--rows", metavar="FIELD", help=f"of a table: {fields} (default: attack)")
    parser.add_argument("--columns", metavar="FIELD", help="of a table (default: model)")
    parser.add_argument("--metric", help="of a table (default: the first one of each evaluation)")


def report(options: Options) -> int:
    """Writes a report, a table or the entries of another project."""
    try:
        return _report(options)
    except NoPdf as error:
        raise UsageError(str(error)) from None


def _report(options: Options) -> int:
    if options.format == ROBUSTBENCH:
        if options.table:
            raise UsageError(f"--format {ROBUSTBENCH} is no table")
        if options.tag is not None or not options.jobs:
            raise UsageError(f"--format {ROBUSTBENCH} takes job ids")
        return export(options)
    if options.table:
        if options.format == "pdf":
            raise UsageError("--format pdf is of a report, not of a --table")
        options.format = options.format or "md"
        return table(options)
    if given := [name for name in ("rows", "columns", "metric") if getattr(options, name) is not None]:
        raise UsageError(f"--{given[0]} is of a table: give --table too")
    file = Path(options.output or f"report.{options.format or 'html'}")
    pdf = "pdf" in (options.format, file.suffix.removeprefix(".") if options.format is None else "")
    browser = find_browser() if pdf else ""
    ending = "html" if pdf else options.format or report_format(file, "--output", "pdf")
    with commands.connected(options) as client, Spinner(lines=False) as waiting:
        waiting.tell("the service writes the report")
        text = client.report(_jobs(options), tag=options.tag, format=ending, adjust=options.adjust)
        if pdf:
            waiting.tell("the browser prints the report")
            printed = print_pdf(text, browser)
    _write(file, printed if pdf else text)
    return commands.OK


def table(options: Options) -> int:
    """Prints a table, or writes it into a file."""
    with commands.connected(options) as client, Spinner(lines=False) as waiting:
        waiting.tell("the service makes the table")
        text = client.table(
            _jobs(options),
            tag=options.tag,
            rows=options.rows or "attack",
            columns=options.columns or "model",
            metric=options.metric,
            format=options.format,
            adjust=options.adjust,
        )
    if options.output is None:
        sys.stdout.write(text)
    else:
        _write(Path(options.output), text)
    return commands.OK


def _jobs(options: Options) -> list[str] | None:
    if bool(options.jobs) == (options.tag is not None):
        raise UsageError("give job ids, or --tag")
    return options.jobs or None


def _write(file: Path, content: str | bytes) -> None:
    written = content.encode() if isinstance(content, str) else content
    if str(file) == "-":
        sys.stdout.buffer.write(written)
        return
    file.write_bytes(written)
    sys.stdout.write(f"{file}\n")


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
    if options.output in (None, "-"):
        sys.stdout.write(f"{output.json_text(entries)}\n")
    else:
        _write_entries(Path(options.output), entries)
    return commands.OK


def _write_entries(folder: Path, entries: list[dict[str, Any]]) -> None:
    for path, entry in zip(robustbench_paths(entries), entries, strict=True):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{output.json_text(entry)}\n", encoding="utf-8")
        sys.stdout.write(f"{file}\n")
