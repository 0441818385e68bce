"""The `assay` command: a thin layer over the Python client.

Exit codes: 0 done, 1 the job failed or the service cannot start, 2 wrong usage or invalid spec,
3 the service cannot be reached.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from service import checkpoint_commands, commands, key_commands, list_commands, terminal
from service.client import DEFAULT_URL, KEY_VARIABLE
from service.contract.errors import AssayError, Unauthorized
from service.contract.keys import SCOPES
from service.contract.states import JobState

INTERRUPTED = 130
JOB = "01jd3q0x5v8f7m2n9k4t6w1z0y"

Command = Callable[[commands.Options], int]

EPILOG = """examples:
  assay serve --state assay-state           start the service on this machine
  assay submit train.json                   post a job; prints its id
  assay watch JOB                           follow it to its end
  assay results JOB                         its numbers, with 95 % intervals

exit codes: 0 done, 1 the job failed or the service cannot start, 2 wrong usage or invalid spec,
3 the service cannot be reached
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; the exit code."""
    options = build_parser().parse_args(arguments)
    run: Command = options.run
    try:
        code = run(options)
        sys.stdout.flush()
    except AssayError as error:
        sys.stderr.write(terminal.error_text(error) + "\n")
        if isinstance(error, Unauthorized):
            sys.stderr.write(f"{_key_hint()}\n")
        return commands.INVALID if error.status < 500 else commands.UNREACHABLE
    except (commands.UsageError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            return _reader_is_gone()
        sys.stderr.write(f"error: {terminal.printable(str(error))}\n")
        return commands.INVALID
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _key_hint() -> str:
    if os.environ.get(KEY_VARIABLE):
        return f"the key in {KEY_VARIABLE} does not work here: it is another service's, revoked or expired"
    return f"set {KEY_VARIABLE} to an API key of this service: export {KEY_VARIABLE}=assay_..."


def _reader_is_gone() -> int:
    """Standard output was closed (`assay jobs | head`): nothing more can be said, not even at exit."""
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
    _add_local(subcommands)
    _add_keys(subcommands)
    _add_checkpoints(subcommands)
    _add_submission(subcommands)
    _add_reading(subcommands)
    _add_results(subcommands)
    _add_changing(subcommands)
    return parser


Subcommands = argparse._SubParsersAction


def _add(
    subcommands: Subcommands[argparse.ArgumentParser], name: str, run: Command, summary: str, *examples: str
) -> argparse.ArgumentParser:
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


def _add_remote(
    subcommands: Subcommands[argparse.ArgumentParser], name: str, run: Command, summary: str, *examples: str
) -> argparse.ArgumentParser:
    """A subcommand that speaks to the service."""
    parser = _add(subcommands, name, run, summary, *examples)
    parser.add_argument(
        "--url",
        default=os.environ.get("ASSAY_URL", DEFAULT_URL),
        help="address of the service (default: ASSAY_URL, else %(default)s)",
    )
    return parser


def _add_local(subcommands: Subcommands[argparse.ArgumentParser]) -> None:
    parser = _add(
        subcommands,
        "serve",
        commands.serve,
        "start the embedded service on this machine",
        "assay serve --state assay-state --workers 2",
    )
    parser.add_argument(
        "--host", help="address to listen on; not on loopback it asks for keys (default: 127.0.0.1)"
    )
    parser.add_argument("--port", type=int, help="port to listen on (default: 8000)")
    parser.add_argument("--state", type=Path, help="folder for everything it writes (default: assay-state)")
    parser.add_argument("--workers", type=int, help="how many jobs run side by side (default: 1)")
    parser.add_argument("--data-root", type=Path, help="folder with the data sets (default: ASSAY_DATA_ROOT)")

    data = _add(
        subcommands,
        "data",
        commands.data_check,
        "look at the data sets",
        "assay data check --data-root /data",
    )
    actions = data.add_subparsers(title="actions", metavar="ACTION", required=True)
    check = _add(
        actions,
        "check",
        commands.data_check,
        "list the data sets that a worker sees",
        "assay data check --data-root /data",
    )
    check.add_argument("--data-root", type=Path, help="folder with the data sets (default: ASSAY_DATA_ROOT)")
    check.add_argument("--no-hash", action="store_true", help="do not read all files for their hash")
    _json_argument(check)

    parser = _add(
        subcommands,
        "demo",
        commands.demo,
        "train two models on handwritten digits, attack and compare them",
        "assay demo --output demo-output",
    )
    parser.add_argument("--output", type=Path, help="folder for its files (default: demo-output)")
    parser.add_argument("--epochs", type=int, help="epochs of each training (default: 40)")


def _add_keys(subcommands: Subcommands[argparse.ArgumentParser]) -> None:
    example = "assay keys create --name ci --scope submit --expires-days 90"
    keys = _add(
        subcommands, "keys", key_commands.list_all, "make, list and revoke API keys", "assay keys list"
    )
    actions = keys.add_subparsers(title="actions", metavar="ACTION", required=True)

    create = _add(actions, "create", key_commands.create, "make a key; prints it this once", example)
    create.add_argument("--name", required=True, help="what people call it")
    create.add_argument(
        "--scope",
        required=True,
        action="append",
        choices=SCOPES,
        help="what it allows: read, submit (and read), admin (everything, all tenants)",
    )
    create.add_argument("--tenant", help="whose jobs it makes and sees (default: its own)")
    create.add_argument("--expires-days", type=_count, help="how long it works (default: for ever)")

    listing = _add(actions, "list", key_commands.list_all, "list all keys", "assay keys list --json")

    revoke = _add(
        actions, "revoke", key_commands.revoke, "end a key and its sessions", "assay keys revoke 3k9x7m2q"
    )
    revoke.add_argument("key_id", metavar="ID", help="the key's id")
    for parser in (create, listing, revoke):
        parser.add_argument(
            "--state", type=Path, help="folder of the embedded service (default: ASSAY_STATE)"
        )
        _json_argument(parser)


def _add_checkpoints(subcommands: Subcommands[argparse.ArgumentParser]) -> None:
    summary, example = "upload, list and delete weights", "assay checkpoints list"
    checkpoints = _add(subcommands, "checkpoints", checkpoint_commands.list_all, summary, example)
    actions = checkpoints.add_subparsers(title="actions", metavar="ACTION", required=True)
    upload = _add_remote(
        actions,
        "upload",
        checkpoint_commands.upload,
        "upload weights or an exported program and wait until it is checked",
        "assay checkpoints upload ours weights.safetensors",
        "assay checkpoints upload deit deit_tiny.safetensors --model vit --normalization imagenet",
        "assay checkpoints upload resnet resnet.pt2",
    )
    listing = _add_remote(actions, "list", checkpoint_commands.list_all, "list all weights", example)
    show = _add_remote(
        actions, "show", checkpoint_commands.show, "show one, with its faults", "assay checkpoints show ours"
    )
    delete = _add_remote(
        actions,
        "delete",
        checkpoint_commands.delete,
        "delete weights that no job needs",
        "assay checkpoints delete ours",
    )
    for parser in (upload, show, delete):
        parser.add_argument("name", metavar="NAME", help="the checkpoint's name")
    upload.add_argument("file", metavar="FILE", help="the safetensors file, or the .pt2 file")
    upload.add_argument(
        "--model", help="of which model: its name, or {name, params} as JSON (default: as the file says)"
    )
    upload.add_argument(
        "--normalization",
        help="of a file from elsewhere: imagenet, inception, data (each job's), or {mean, std} as JSON",
    )
    upload.add_argument(
        "--positions",
        help="resize position embeddings of another grid: bilinear, bicubic or bicubic_antialias",
    )
    upload.add_argument("--no-wait", action="store_true", help="do not wait for the check")
    for parser in (upload, listing, show):
        _json_argument(parser)

    parser = _add(
        subcommands,
        "import-pickle",
        checkpoint_commands.import_pickle,
        "convert a legacy PyTorch checkpoint to safetensors",
        "assay import-pickle deit_tiny.pth deit_tiny.safetensors",
    )
    parser.add_argument("file", metavar="FILE", help="what torch.save wrote (.pth, .pt, .bin)")
    parser.add_argument("output", metavar="OUTPUT", help="the safetensors file to write")
    parser.add_argument("--key", help="which part of the file is the state dict (default: found by its name)")


def _add_submission(subcommands: Subcommands[argparse.ArgumentParser]) -> None:
    parser = _add_remote(
        subcommands,
        "submit",
        commands.submit,
        "post a job; prints its id",
        "assay submit evaluate.json --watch",
        """echo '{"kind": "train", "model": {"name": "symvit"}, "data": {"name": "digits"},
              "recipe": {"name": "small_vit"}}' | assay submit - --dry-run""",
    )
    parser.add_argument("file", metavar="FILE", help="the spec as JSON; - reads standard input")
    parser.add_argument("--dry-run", action="store_true", help="validate and estimate, store nothing")
    parser.add_argument("--watch", action="store_true", help="follow the job to its end")
    parser.add_argument("--idempotency-key", help="repeating the call with this key gives the same job")

    parser = _add_remote(
        subcommands,
        "run",
        list_commands.run,
        "post a list of jobs, wait for them, and print one table of their results",
        "assay run docs/models.jobs.json > table.md",
    )
    parser.add_argument("file", metavar="FILE", help="the list as JSON; - reads standard input")
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        help="which metric to show, may be repeated (default: the first one of each evaluation)",
    )
    parser.add_argument("--idempotency-key", help="repeating the call with this key gives the same jobs")
    _json_argument(parser)

    parser = _add_remote(
        subcommands,
        "watch",
        commands.watch,
        "follow a job to its end",
        f"assay watch {JOB}",
    )
    _job_argument(parser)


def _add_reading(subcommands: Subcommands[argparse.ArgumentParser]) -> None:
    parser = _add_remote(
        subcommands, "jobs", commands.jobs, "list jobs, newest first", "assay jobs --state running --tag demo"
    )
    parser.add_argument("--state", choices=[state.value for state in JobState])
    parser.add_argument("--kind", choices=["train", "evaluate"])
    parser.add_argument("--model", help="catalog name of the model")
    parser.add_argument("--tag")
    parser.add_argument("--limit", type=_count, default=50, help="how many (default: %(default)s)")
    _json_argument(parser)

    parser = _add_remote(subcommands, "status", commands.status, "show a job", f"assay status {JOB} --json")
    _job_argument(parser)
    _json_argument(parser)


def _add_results(subcommands: Subcommands[argparse.ArgumentParser]) -> None:
    parser = _add_remote(
        subcommands,
        "results",
        commands.results,
        "show the results of a job so far",
        f"assay results {JOB} --format csv > results.csv",
    )
    _job_argument(parser)
    parser.add_argument("--format", choices=["table", "json", "csv"], default="table")

    parser = _add_remote(
        subcommands,
        "compare",
        commands.compare,
        "compare the results of jobs with those of the first one",
        f"assay compare {JOB} 01jd3q0x5v8f7m2n9k4t6w1z0z",
    )
    parser.add_argument("jobs", metavar="JOB", nargs="+", help="two or more job ids")
    _json_argument(parser)

    parser = _add_remote(
        subcommands,
        "artifacts",
        commands.artifacts,
        "list the files of a job",
        f"assay artifacts {JOB}",
    )
    _job_argument(parser)
    _json_argument(parser)

    parser = _add_remote(
        subcommands,
        "download",
        commands.download,
        "download a file of a job and check its hash",
        f"assay download {JOB} weights.safetensors --output models/",
    )
    _job_argument(parser)
    parser.add_argument("name", metavar="NAME", help="the artifact's name")
    parser.add_argument(
        "--output", default=".", help="file, or folder with / at its end (default: this folder)"
    )

    parser = _add_remote(
        subcommands,
        "catalog",
        commands.catalog,
        "list what jobs may name, or show one component",
        "assay catalog attack",
        "assay catalog attack pgd",
    )
    parser.add_argument("kind", metavar="KIND", nargs="?", help="model, attack, data, recipe, ...")
    parser.add_argument("name", metavar="NAME", nargs="?", help="a component of that kind")
    _json_argument(parser)


def _add_changing(subcommands: Subcommands[argparse.ArgumentParser]) -> None:
    for name, run, summary in (
        ("cancel", commands.cancel, "cancel a job"),
        ("retry", commands.retry, "queue a failed, canceled or timed-out job again"),
        ("delete", commands.delete, "delete a job that has ended, with its results and files"),
    ):
        parser = _add_remote(subcommands, name, run, summary, f"assay {name} {JOB}")
        _job_argument(parser)


def _job_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="job id")


def _json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text[:9]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} given; allowed: an integer of at least 1")
    return int(text[:9])


if __name__ == "__main__":
    sys.exit(main())
