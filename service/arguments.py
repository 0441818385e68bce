"""How a subcommand of `assay` is declared, and the arguments that several of them have."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from assay.service.cli.commands import Options
from assay.service.client import DEFAULT_URL

# A job id, for examples.
JOB = "01jd3q0x5v8f7m2n9k4t6w1z0y"

Command = Callable[[Options], int]
Subcommands = argparse._SubParsersAction


def add(
    subcommands: Subcommands[argparse.ArgumentParser], name: str, run: Command, summary: str, *examples: str
) -> argparse.ArgumentParser:
    """A subcommand: what `run` does, said in a summary and shown in examples."""
    parser = subcommands.add_parser(
        name,
        help=summary,
        description=f"{summary[:1].upper()}{summary[1:]}.",
        epilog="example:\n" + "\n".join(f"  {example}" for example in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


def add_remote(
    subcommands: Subcommands[argparse.ArgumentParser], name: str, run: Command, summary: str, *examples: str
) -> argparse.ArgumentParser:
    """A subcommand that speaks to the service."""
    parser = add(subcommands, name, run, summary, *examples)
    parser.add_argument(
        "--url",
        default=os.environ.get("ASSAY_URL", DEFAULT_URL),
        help="address of the service (default: ASSAY_URL, else %(default)s)",
    )
    return parser


def job_argument(parser: argparse.ArgumentParser) -> None:
    """The job that it is about."""
    parser.add_argument("job", metavar="JOB", help="job id")


def json_argument(parser: argparse.ArgumentParser) -> None:
    """JSON instead of lines for a person."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def count(text: str) -> int:
    """The `type` of arguments that are integers of at least 1."""
    if not text.isdecimal() or int(text[:9]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} given; allowed: an integer of at least 1")
    return int(text[:9])
