"""`assay fleet`: fleets of a service, and the controller of a fleet on Slurm."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

from pydantic import ValidationError

from assay.service.cli import output
from assay.service.cli.arguments import Subcommands, actions_of, add_remote, json_argument
from assay.service.cli.commands import OK, Options, connected
from assay.service.cli.usage import Parser
from assay.service.contract.problems import Problems, message_of
from assay.service.fitted_text import tell

if TYPE_CHECKING:
    from assay.service.workers.slurm import SlurmFleet

HELP = {
    "name": "its name, and its jobs' in Slurm (default: assay)",
    "partition": "Slurm's partition",
    "max": "workers at most",
    "device": "cuda or cpu: what its workers compute on (default: cuda)",
    "gres": "a worker's GPU (default: gpu:1)",
    "cpus": "a worker's cores (default: 1)",
    "memory": "a worker's memory, such as 32G",
    "constraint": "features that its nodes must have",
    "account": "Slurm's account",
    "qos": "Slurm's quality of service",
    "idle": "seconds without work after which a worker ends (default: 300)",
    "shard-seconds": "length of planned shards: what a preemption costs at most (default: 120)",
    "max-seconds": "seconds after which a worker ends (default: 13800)",
    "logs": "folder of the nodes for the workers' logs (default: /tmp)",
    "command": "the command on the nodes (default: assay)",
    "container": "none, enroot or apptainer (default: none)",
    "image": "the container's image",
    "every": "seconds between two looks (default: 30)",
}


def list_all(options: Options) -> int:
    """Lists all fleets."""
    with connected(options) as client:
        found = client.fleets()
    header = ["FLEET", "ENGINE", "DEVICE", "STATE", "RUNNING", "PENDING", "MAX", "REASON", "QUEUED", "BUSY"]
    rows = [
        [
            one.name,
            one.engine,
            one.device,
            "online" if one.online else f"away since {one.last_report}",
            *map(str, (one.running, one.pending, one.most)),
            one.reason,
            *map(str, (one.queued, one.busy)),
        ]
        for one in found
    ]
    text = output.table(header, rows) if rows else "no fleet: start one with `assay fleet slurm`"
    output.show([one.model_dump(mode="json") for one in found], text, as_json=options.json)
    return OK


def slurm(options: Options) -> int:
    """Scales a fleet on Slurm until it is interrupted."""
    from assay.service.workers.slurm_controller import SlurmController

    fleet = fleet_of(options)
    script = fleet.script()
    if options.dry_run:
        sys.stdout.write(script)
        return OK
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with connected(options) as client:
        SlurmController(fleet, client, script).run(stopping, _say)
    return OK


def fleet_of(options: Options) -> SlurmFleet:
    """The fleet that the options state. Raises InvalidSpec: every wrong option."""
    # Building its schema would take a hundredth of a second of every command's start.
    from assay.service.workers.slurm import SlurmFleet

    problems = Problems()
    stated = {name.replace("-", "_"): getattr(options, name.replace("-", "_")) for name in HELP}
    given = {field: value for field, value in stated.items() if value is not None}
    worker = [word for word in options.worker if word != "--"]
    try:
        fleet = SlurmFleet(**given, worker=worker)
    except ValidationError as error:
        for wrong in error.errors(include_url=False):
            field = str(wrong["loc"][0])
            option = "the options after --" if field == "worker" else f"--{field.replace('_', '-')}"
            problems.add((option,), message_of(wrong), given=given.get(field))
    problems.raise_if_any()
    options.parser.verbs.choices["worker"].parse_args(worker)
    return fleet


def _say(text: str) -> None:
    tell(output.printable(text))
    sys.stderr.flush()


def add_fleet(subcommands: Subcommands) -> None:
    """Adds `fleet list` and `fleet slurm`."""
    summary = "list the fleets of workers, and scale a fleet on Slurm; needs an admin key"
    command = add_remote(subcommands, "fleet", list_all, summary, "list", topic="administration")
    actions = actions_of(command)
    listing = add_remote(actions, "list", list_all, "list all fleets", "", "--json")
    for parser in (command, listing):
        json_argument(parser)
    _add_slurm(actions)


def _add_slurm(actions: Subcommands) -> None:
    summary = "ask Slurm for as many workers as there is work for, until interrupted"
    examples = "--partition gpu --max 64", "--partition gpu --max 8 --dry-run -- --data-root /data"
    parser: Parser = add_remote(actions, "slurm", slurm, summary, *examples)
    for name, told in HELP.items():
        parser.add_argument(f"--{name}", required=name in ("partition", "max"), help=told)
    parser.add_argument("--dry-run", action="store_true", help="print the script of a worker; asks for none")
    parser.add_argument(
        "worker",
        nargs="*",
        metavar="-- OPTION",
        help="further options of `assay worker`, such as --data-root",
    )
