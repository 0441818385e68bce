"""The `assay` command: a thin layer over the Python client.

Exit codes: 0 done, 1 the job failed, a signature or a requirement does not hold or assay serve cannot start,
2 wrong usage or invalid spec, 3 the service cannot be reached, or a command's own service does not start.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence

from assay.service import features
from assay.service.cli import arguments, commands, completion, config, evaluate, job_arguments, mirror, output
from assay.service.cli.arguments import Command
from assay.service.cli.spec_files import RefusedSpec
from assay.service.cli.usage import Parser, as_typed
from assay.service.client import KEY_VARIABLE
from assay.service.contract.errors import AssayError, Unauthorized
from assay.service.contract.extras import DISTRIBUTION, explained, version_of
from assay.service.fitted_text import say, tell
from assay.service.reports import gate_cli as gate

INTERRUPTED = 130

# In the order of the help; features stand after them.
ADDERS = (
    evaluate.add_evaluation, arguments.add_local, job_arguments.add_submission, job_arguments.add_results,
    job_arguments.add_reading, job_arguments.add_changing, gate.add_gate, mirror.add_mirror,
    arguments.add_pull, config.add_config, completion.add_completion,
)  # fmt: skip

EPILOG = """exit codes: 0 done; 1 the job failed, a signature or a requirement does not hold, or
assay serve cannot start; 2 wrong usage or invalid spec; 3 the service cannot be reached,
or a command's own service does not start
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; the exit code."""
    parser = build_parser()
    given = sys.argv[1:] if argv is None else argv
    parser.refuse_early_options(given)
    options = parser.parse_args(given, argparse.Namespace(parser=parser))
    run: Command | None = getattr(options, "run", None)
    if run is None:
        parser.print_help(sys.stderr)
        return commands.INVALID
    try:
        code = run(options)
        sys.stdout.flush()
    except AssayError as error:
        tell(output.error_text(as_typed(error, options.called)))
        if isinstance(error, Unauthorized):
            tell(_key_hint())
        return commands.INVALID if error.status < 500 else commands.UNREACHABLE
    except ImportError as error:
        said = explained(f"`{options.called.prog}`", error)
        if said is None:
            raise
        tell(f"error: {said}")
        return commands.INVALID
    except RefusedSpec as error:
        tell(str(error))
        return commands.INVALID
    except (commands.UsageError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            return _reader_is_gone()
        tell(f"error: {output.printable(str(error))}")
        return commands.INVALID
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def show_help(options: commands.Options) -> int:
    """Shows the help of all verbs, or of those named, as their `--help`."""
    parser: Parser = options.parser
    if options.verb == ["more"]:
        sys.stdout.write(parser.format_more())
        return commands.OK
    parser.parse_args([*options.verb, "--help"])
    raise AssertionError


class ShowVersion(argparse.Action):
    """Prints the versions and ends, as argparse's own `version`, which would look them up at every start."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Prints them, torch's without importing it."""
        ours = [f"{name} {version_of(name) or 'not installed'}" for name in (DISTRIBUTION, "torch")]
        say(f"{ours[0]}, Python {platform.python_version()}, {ours[1]}")
        parser.exit()


def _key_hint() -> str:
    if os.environ.get(KEY_VARIABLE):
        return f"the key in {KEY_VARIABLE} does not work here: it is another service's, revoked or expired"
    return (
        f"set {KEY_VARIABLE} to an API key of this service: export {KEY_VARIABLE}=assay_...,"
        " or keep it in a profile: assay config set key -"
    )


def _reader_is_gone() -> int:
    """Standard output was closed (`assay jobs | head`): no further output is possible, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return commands.OK


def build_parser() -> Parser:
    """The parser with all subcommands."""
    parser = Parser(prog="assay", description="Robustness evaluation of transformer models.", epilog=EPILOG)
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="print the versions of what runs here")
    verbs = parser.verbs = parser.add_subparsers(title="verbs", metavar="VERB", parser_class=Parser)
    for add in (*ADDERS, *(feature.add_commands for feature in features.modules("cli"))):
        add(verbs)
    summary = "show the options of a verb, or all verbs"
    helping = arguments.add(verbs, "help", show_help, summary, "submit", "studies run", "more")
    helping.add_argument("verb", metavar="VERB", nargs="*", help="the verb, with its action")
    return parser


if __name__ == "__main__":
    sys.exit(main())
