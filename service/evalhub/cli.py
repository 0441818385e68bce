"""`assay evalhub` prints the file of a provider for an EvalHub server, which starts `assay-evalhub`."""

from __future__ import annotations

import logging
import sys

from assay.service.catalog.catalog import load
from assay.service.cli.arguments import Subcommands, add
from assay.service.cli.commands import INVALID, OK, Options
from assay.service.contract.extras import MissingExtra, require
from assay.service.evalhub.provider import PROGRAM, provider
from assay.service.fitted_text import tell


def add_commands(subcommands: Subcommands) -> None:
    """Adds `evalhub`."""
    summary = "print the file that makes the suites benchmarks of an EvalHub server"
    example = "--url https://assay.example > config/providers/assay.yaml"
    parser = add(subcommands, "evalhub", show, summary, example, topic="this machine")
    parser.add_argument(
        "--url",
        help="address of the service that measures (default: a service of its own for each benchmark)",
    )


def show(options: Options) -> int:
    """Prints the provider file."""
    require("`assay evalhub`", "evalhub")
    import yaml

    sys.stdout.write(yaml.safe_dump(provider(load(), options.url), sort_keys=False, width=110))
    return OK


def main() -> int:
    """`assay-evalhub`: runs the benchmark that EVALHUB_JOB_SPEC_PATH names; the exit code."""
    try:
        require(f"`{PROGRAM}`", "evalhub")
    except MissingExtra as error:
        tell(f"error: {error}")
        return INVALID
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    from assay.service.evalhub.adapter import run

    return run()
