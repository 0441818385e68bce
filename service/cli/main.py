"""The `assay` command: a thin layer over the Python client.

Exit codes: 0 done, 1 the job failed, a signature does not hold or the service cannot start, 2 wrong usage or
invalid spec, 3 the service cannot be reached.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from assay.service.cli import (
    arguments,
    commands,
    job_arguments,
    output,
    plots,
    reports,
    study_arguments,
    workers,
)
from assay.service.cli.arguments import Command
from assay.service.client import KEY_VARIABLE
from assay.service.contract.errors import AssayError, Unauthorized

INTERRUPTED = 130

EPILOG = """examples:
  assay serve --state assay-state           start the service on this machine
  assay submit train.json                   post a job; prints its id
  assay watch JOB                           follow it to its end
  assay results JOB                         its numbers, with 95 % intervals

exit codes: 0 done, 1 the job failed, a signature does not hold or the service cannot start, 2 wrong usage
or invalid spec, 3 the service cannot be reached
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; the exit code."""
    options = build_parser().parse_args(argv)
    run: Command = options.run
    try:
        code = run(options)
        sys.stdout.flush()
    except AssayError as error:
        sys.stderr.write(output.error_text(error) + "\n")
        if isinstance(error, Unauthorized):
            sys.stderr.write(f"{_key_hint()}\n")
        return commands.INVALID if error.status < 500 else commands.UNREACHABLE
    except (commands.UsageError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            return _reader_is_gone()
        sys.stderr.write(f"error: {output.printable(str(error))}\n")
        return commands.INVALID
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _key_hint() -> str:
    if os.environ.get(KEY_VARIABLE):
        return f"the key in {KEY_VARIABLE} does not work here: it is another service's, revoked or expired"
    return f"set {KEY_VARIABLE} to an API key of this service: export {KEY_VARIABLE}=assay_..."


def _reader_is_gone() -> int:
    """Standard output was closed (`assay jobs | head`): no further output is possible, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return commands.OK


def build_parser() -> argparse.ArgumentParser:
    """The parser with all subcommands."""
    parser = argparse.ArgumentParser(
        prog="assay",
        description="Robustness evaluation of transformer models.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subcommands = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)
    arguments.add_local(subcommands)
    arguments.add_keys(subcommands)
    arguments.add_audit(subcommands)
    arguments.add_tenants(subcommands)
    workers.add_workers(subcommands)
    arguments.add_checkpoints(subcommands)
    arguments.add_import_pickle(subcommands)
    job_arguments.add_submission(subcommands)
    study_arguments.add_studies(subcommands)
    job_arguments.add_reading(subcommands)
    job_arguments.add_results(subcommands)
    plots.add_plots(subcommands)
    reports.add_reports(subcommands)
    job_arguments.add_signatures(subcommands)
    job_arguments.add_changing(subcommands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
