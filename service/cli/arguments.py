"""Declaration of subcommands, shared arguments, and the subcommands that are about no single job."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from assay.service import features
from assay.service.cli import commands
from assay.service.cli.commands import Options
from assay.service.cli.usage import Parser, Topic
from assay.service.client import DEFAULT_URL
from assay.service.contract.problems import MAX_INTEGER
from assay.service.contract.weights.pulled import FORMS, VARIABLE

JOB = "01jd3q0x5v8f7m2n9k4t6w1z0y"  # A job id, for examples.

Command = Callable[[Options], int]
Subcommands: TypeAlias = "argparse._SubParsersAction[Parser]"


def add_local(subcommands: Subcommands) -> None:
    """Adds `serve`, `worker`, `doctor`, `data` and `demo`."""
    summary = "start a service on this machine"
    example, first = "--state assay-state --workers 2", "--state assay-state"
    parser = add(subcommands, "serve", commands.serve, summary, example, topic="this machine", first=first)
    parser.add_argument("--workers", help="how many jobs run side by side (default: 1)")

    worker = add(
        subcommands,
        "worker",
        commands.worker,
        "start one more worker of this machine's embedded service, or of a service elsewhere (--gateway)",
        "--state assay-state --name textattack",
        "--gateway https://assay.example",
        topic="this machine",
    )
    worker_arguments(worker)

    summary = "look at this box: driver, devices, disk, clock, data, ports; each line ok or with its remedy"
    examples = "", "--json --no-data"
    doctor = add(subcommands, "doctor", commands.doctor, summary, *examples, topic="this machine")
    for one in (parser, doctor):
        _address_arguments(one)
    for one in (parser, worker, doctor):
        _folder_arguments(one)
    doctor.add_argument("--no-data", action="store_true", help="do not read the data sets for their hashes")
    json_argument(doctor)

    _add_data(subcommands)
    if features.names("demo"):
        _add_demo(subcommands)


def worker_arguments(worker: argparse.ArgumentParser) -> None:
    """Adds what a worker is told, folders apart."""
    worker.add_argument("--name", help="its name on this machine (default: worker; at a gateway 0)")
    worker.add_argument(
        "--gateway",
        metavar="URL",
        help="work for a service elsewhere, with the key in ASSAY_WORKER_KEY; the state folder is its own"
        " (default: assay-worker)",
    )
    worker.add_argument("--devices", type=count, metavar="N", help="devices of each worker (default: 1)")
    worker.add_argument(
        "--stage", action="store_true", help="stage published data and weights that waiting jobs need"
    )
    worker.add_argument(
        "--until", type=_until, metavar="idle=SECONDS", help="end after so long without work (default: never)"
    )
    worker.add_argument(
        "--max-seconds", type=count, metavar="N", help="end after N seconds; takes only shards that fit"
    )
    worker.add_argument(
        "--shard-seconds", type=count, metavar="N", help="length of the shards that it plans (default: 240)"
    )


def _until(text: str) -> int:
    name, _, seconds = text.partition("=")
    if name != "idle" or not seconds.isdecimal() or int(seconds[:9]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} given; allowed: idle=SECONDS, such as idle=300")
    return int(seconds[:9])


def _add_demo(subcommands: Subcommands) -> None:
    summary = "train two models on handwritten digits, attack and compare them"
    parser = add(subcommands, "demo", commands.demo, summary, "--output demo-output", topic="this machine")
    parser.add_argument("-o", "--output", type=Path, help="folder for its files (default: demo-output)")
    parser.add_argument("--epochs", type=count, help="epochs of each training (default: 40)")


def _add_data(subcommands: Subcommands) -> None:
    example = "--data-root /data"
    summary = "look at the data sets, publish them, and stage them on nodes"
    data = add(
        subcommands, "data", commands.data_check, summary, f"check {example}", topic="data and weights"
    )
    actions = data.add_subparsers(title="actions", metavar="ACTION", required=True)
    summary = "list the data sets that a worker sees, and what is wrong with them"
    check = add(actions, "check", commands.data_check, summary, example)
    check.add_argument("--data-root", type=Path, help="folder with the data sets (default: ASSAY_DATA_ROOT)")
    check.add_argument("--no-hash", action="store_true", help="do not read all files for their hash")
    check.add_argument(
        "--seconds",
        type=number,
        metavar="N",
        help="to decode the examples of each part (default: 10; 0: decode none)",
    )
    check.add_argument(
        "--data", action="append", metavar="JSON", help='only this set: {"name": ..., "params": {...}}'
    )
    json_argument(check)
    summary = "put folders of the data root into the store of data, from which nodes fetch them"
    publish = _data_action(actions, "publish", summary, "imagenet-c --store /srv/assay/data-store")
    publish.add_argument(
        "--tenant",
        action="append",
        default=[],
        metavar="NAME",
        help="who may fetch it (default: every tenant)",
    )
    summary = "copy published data sets to this node, verified and whole or not there"
    stage = _data_action(actions, "stage", summary, "imagenet-c --limit 200GB")
    stage.add_argument(
        "--limit",
        metavar="SIZE",
        help="of all staged sets; those unused for longest go (default: ASSAY_STAGE_BYTES)",
    )
    summary = "take published data sets out of the store, with what no other set needs"
    unpublish = _data_action(actions, "unpublish", summary, "imagenet-c")
    for one in (publish, stage, unpublish):
        one.add_argument(
            "names",
            nargs="+",
            metavar="NAME",
            help="folder below the data root, or the reference of pulled weights",
        )
    _data_action(actions, "list", "list the data sets that are staged here, and those in the store", "--json")


def _data_action(actions: Subcommands, action: str, summary: str, example: str) -> Parser:
    parser = add(actions, action, commands.data_store, summary, example)
    parser.set_defaults(action=action, names=[], tenant=[], limit=None, gateway=None)
    parser.add_argument("--data-root", type=Path, help="folder with the data sets (default: ASSAY_DATA_ROOT)")
    parser.add_argument("--store", type=Path, help="folder of the store (default: ASSAY_DATA_STORE)")
    parser.add_argument(
        "--weights-root", metavar="DIR", help=f"the weights folder (default: {VARIABLE}, or the cache)"
    )
    if action in ("stage", "list"):
        parser.add_argument(
            "--gateway", metavar="URL", help="fetch from a service, with the key in ASSAY_WORKER_KEY"
        )
    json_argument(parser)
    return parser


def _address_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", help="address to listen on; not on loopback it asks for keys (default: 127.0.0.1)"
    )
    parser.add_argument("--port", help="port to listen on (default: 8000)")


def _folder_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", type=Path, help="folder for everything it writes (default: assay-state)")
    parser.add_argument("--data-root", type=Path, help="folder with the data sets (default: ASSAY_DATA_ROOT)")


def add_pull(subcommands: Subcommands) -> None:
    """Adds `pull`."""
    summary = "fetch pretrained weights, which jobs then read without a network"
    examples = (
        "timm:resnet50",
        "torchvision:vit_b_16 hf:google/vit-base-patch16-224",
        "hf:me/tiny --from ./tiny",
        "--list",
    )
    parser = add(subcommands, "pull", commands.pull, summary, *examples, topic="data and weights")
    parser.add_argument("reference", nargs="*", metavar="REFERENCE", help=FORMS)
    parser.add_argument("--list", action="store_true", help="what is pulled; fetches nothing")
    parser.add_argument(
        "--verify", action="store_true", help="compare all files, or those named, with their hashes"
    )
    parser.add_argument("--json", action="store_true", help="with --list or --verify: JSON")
    parser.add_argument(
        "--from",
        dest="local",
        metavar="PATH",
        help="take them from this machine: for hf: a folder of save_pretrained, else the published file",
    )
    parser.add_argument(
        "--weights-root", metavar="DIR", help=f"the weights folder (default: {VARIABLE}, or the cache)"
    )


def add(
    subcommands: Subcommands,
    name: str,
    run: Command,
    summary: str,
    *examples: str,
    topic: Topic | None = None,
    first: str = "",
    older: Mapping[str, str] | None = None,
) -> Parser:
    """Adds a subcommand that calls `run`, with its summary and examples.

    An example is what follows the command, by default nothing; or a line with the command in it. `topic`: its
    heading in `assay help more`. `first`: an example for `assay` alone. `older`: names that it had, each with
    the words to add.
    """
    parser = subcommands.add_parser(
        name,
        help=summary,
        description=f"{summary[:1].upper()}{summary[1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.topic, parser.first, parser.older = topic, first, older or {}
    own = f"{parser.prog} "
    lines = [line if own in line else f"{own}{line}".rstrip() for line in examples or ("",)]
    parser.epilog = "\n  ".join(["example:", *lines])
    parser.set_defaults(run=run, called=parser)
    return parser


def actions_of(command: Parser) -> Subcommands:
    """The actions of a command that lists without an action."""
    return command.add_subparsers(title="actions (default: list)", metavar="ACTION", required=False)


def add_remote(
    subcommands: Subcommands, name: str, run: Command, summary: str, *examples: str, **facts: Any
) -> Parser:
    """Adds a subcommand that calls the service; `facts` as in `add`."""
    parser = add(subcommands, name, run, summary, *examples, **facts)
    url_arguments(parser)
    return parser


def url_arguments(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Adds `--url` and `--profile`, which say what service is asked."""
    parser.add_argument(
        "--url", help=f"address of the service{more} (default: ASSAY_URL, the profile's, else {DEFAULT_URL})"
    )
    parser.add_argument(
        "--profile", metavar="NAME", help="profile of `assay config` (default: ASSAY_PROFILE, the one in use)"
    )


def job_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the argument for the job."""
    parser.add_argument("job", metavar="JOB", help="job id")


def full_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `--full`, for all rows before the summary."""
    parser.add_argument("--full", action="store_true", help="show all rows of the results, then the summary")


def json_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `--json`, for JSON in place of readable lines."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def format_argument(
    parser: argparse.ArgumentParser, *names: str, default: str | None, told: str = "default: %(default)s"
) -> None:
    """Adds `--format`, with `--json` where it has JSON; older names of formats are taken too."""
    parser.add_argument("--format", type=_format, choices=names, default=default, help=f"({told})")
    if "json" in names:
        parser.add_argument("--json", dest="format", action="store_const", const="json", help="print JSON")


def _format(text: str) -> str:
    return {"markdown": "md", "latex": "tex"}.get(text, text)


def count(text: str) -> int:
    """The `type` of integer arguments of at least 1."""
    if not text.isdecimal() or int(text[:9]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} given; allowed: an integer of at least 1")
    return int(text[:9])


def seed(text: str) -> int:
    """The `type` of seeds."""
    if not text.isdecimal() or int(text[:20]) > MAX_INTEGER:
        raise argparse.ArgumentTypeError(f"{text!r} given; allowed: an integer from 0 to 2**63 - 1")
    return int(text)


def target(text: str) -> str:
    """The `type` of files to write, `-` for standard output."""
    if not Path(text).parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} given; allowed: a file in a folder that is there")
    return text


def number(text: str) -> float:
    """The `type` of arguments that are numbers."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} given; allowed: a number") from None
