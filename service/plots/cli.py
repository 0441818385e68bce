"""The subcommand `plot`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast, get_args

from assay.service.cli import commands, output
from assay.service.cli.arguments import JOB, Subcommands, add_remote, target
from assay.service.cli.commands import Options, UsageError
from assay.service.contract.problems import nearest
from assay.service.plots.kinds import KINDS
from assay.service.plots.wire import PlotFormat

FORMATS: tuple[str, ...] = get_args(PlotFormat)


def add_commands(subcommands: Subcommands) -> None:
    """Adds `plot`."""
    summary = "draw the results of a job, or of several jobs in one plot"
    examples = (
        JOB,
        f"{JOB} --kind curve -o curve.pdf",
        f"{JOB} 01jd3q0x5v8f7m2n9k4t6w1z0z --kind tradeoff -o tradeoff.svg",
    )
    parser = add_remote(subcommands, "plot", plot, summary, *examples, topic="results")
    parser.add_argument("jobs", metavar="JOB", nargs="+", help="job ids, at most ten")
    parser.add_argument(
        "--kind",
        metavar="KIND",
        help=f"{', '.join(KINDS)} (default: list those that the results of the job allow)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=target,
        help=f"file to write; its ending is the format: {', '.join(FORMATS)} (default: KIND.svg)",
    )
    parser.add_argument("--scheme", choices=["light", "dark"], default="light", help="colours")


def plot(options: Options) -> int:
    """Writes a plot; without a kind, lists the plots of the job."""
    if options.kind is None:
        return _list(options)
    if options.kind not in KINDS:
        near = nearest(options.kind, KINDS)
        hint = f"; did you mean {near}?" if near else ""
        raise UsageError(f"--kind {options.kind}: there is no such plot; allowed: {', '.join(KINDS)}{hint}")
    file = Path(options.output or f"{options.kind}.svg")
    format = next((ending for ending in FORMATS if file.name.endswith(f".{ending}")), None)  # noqa: A001
    if format is None:
        endings = ", ".join(f".{ending}" for ending in FORMATS)
        raise UsageError(f"--output {file}: its ending says the format; allowed: {endings}")
    with commands.connected(options) as client:
        content = client.plot(
            options.jobs, options.kind, format=cast(PlotFormat, format), scheme=options.scheme
        )
    file.write_bytes(content)
    sys.stdout.write(f"{file}\n")
    return commands.OK


def _list(options: Options) -> int:
    if options.output is not None:
        raise UsageError(f"--output needs --kind; allowed: {', '.join(KINDS)}")
    if len(options.jobs) > 1:
        raise UsageError(f"several jobs need --kind; allowed: {', '.join(KINDS)}")
    with commands.connected(options) as client:
        found = client.plots(options.jobs[0])
    rows = [(one.kind, output.printable(one.description)) for one in found]
    sys.stdout.write(output.table(("KIND", "IN WORDS"), rows) + "\n")
    return commands.OK
