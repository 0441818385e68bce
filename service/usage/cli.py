"""`assay usage`: device-seconds by job, tenant, tag or study."""

from __future__ import annotations

import argparse
import sys
from datetime import date
from typing import get_args

from assay.service.cli import output
from assay.service.cli.arguments import Subcommands, add_remote, count, format_argument
from assay.service.cli.commands import OK, connected
from assay.service.usage.wire import DeviceSeconds, Usage, UsageBy, UsageLine

KINDS = get_args(UsageBy)


def add_commands(subcommands: Subcommands) -> None:
    """Adds `usage`."""
    summary = "show GPU-seconds and CPU-seconds by job, tenant, tag or study"
    examples = "--by tag --since 2026-11-01", "--by tenant --format csv > usage.csv"
    parser = add_remote(subcommands, "usage", show, summary, *examples, topic="administration")
    parser.add_argument("--by", choices=KINDS, default="job", help="what a line is of (default: job)")
    parser.add_argument("--since", type=_day, metavar="DAY", help="first day, in UTC (default: 30 days)")
    parser.add_argument("--until", type=_day, metavar="DAY", help="last day, in UTC (default: today)")
    parser.add_argument("--limit", type=count, default=50, help="lines; csv has all (default: 50)")
    format_argument(parser, "table", "csv", "json", default="table")


def show(options: argparse.Namespace) -> int:
    """Shows the lines, most GPU-seconds first."""
    days = {"since": options.since, "until": options.until}
    with connected(options) as client:
        if options.format == "csv":
            sys.stdout.write(client.usage_csv(options.by, **days))
            return OK
        found = client.usage(options.by, **days, limit=options.limit)
    output.show(found.model_dump(mode="json"), usage_text(found), as_json=options.format == "json")
    return OK


def usage_text(found: Usage) -> str:
    """A table, its sum, and how much of the sum was wasted."""
    header = [found.by.upper(), "NAME", "JOBS", "GPU S", "WASTED", "CPU S", "WASTED"]
    total = found.total.model_copy(update={"key": "total"})
    lines = [
        f"{found.since} to {found.until} (UTC)",
        output.table(header, [_cells(line) for line in [*found.items, total]]),
    ]
    if found.next_cursor is not None:
        lines.append(f"the first {len(found.items)} lines; --format csv has all")
    lines += [
        f"{name}: {_parts(part)}" for name, part in (("GPU", total.gpu), ("CPU", total.cpu)) if part.total
    ]
    return "\n".join(lines)


def _cells(line: UsageLine) -> list[str]:
    known = [line.key or "-", line.name or "-", str(line.jobs)]
    return known + [f"{value:.1f}" for part in (line.gpu, line.cpu) for value in (part.total, _wasted(part))]


def _wasted(part: DeviceSeconds) -> float:
    return part.starts + part.lost + part.repeated


def _parts(part: DeviceSeconds) -> str:
    named = (("starts", part.starts), ("lost", part.lost), ("repeated", part.repeated))
    shares = ", ".join(f"{name} {seconds:.1f} s ({seconds / part.total:.1%})" for name, seconds in named)
    return f"{part.total:.1f} s; wasted: {shares}; {part.running:.1f} s still run"


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} given; allowed: a day such as 2026-01-31") from None
