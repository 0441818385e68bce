"""`assay fleet`: fleets of a service, and the controller of a fleet on Slurm."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from assay.service.cli import output
from assay.service.cli.arguments import Subcommands, actions_of, add_remote, json_argument
from assay.service.cli.commands import OK, Options, connected
from assay.service.cli.usage import Parser
from assay.service.contract.errors import AssayError, Forbidden, Unauthorized
from assay.service.contract.problems import Problems, message_of
from assay.service.fitted_text import tell

if TYPE_CHECKING:
    from assay.service.client import AssayClient
    from assay.service.workers.slurm import SlurmFleet

URL, KEY, WORKER_KEY, GATEWAY = "ASSAY_URL", "ASSAY_KEY", "ASSAY_WORKER_KEY", "ASSAY_GATEWAY"
SERVICE = {GATEWAY, "ASSAY_STATE"}
AFTER = "the options after --"
HELP = {
    "name": "its name, and its jobs' in Slurm (default: assay)",
    "partition": "Slurm's partition",
    "max": "workers at most",
    "device": "cuda or cpu: what its workers compute on (default: cuda)",
    "gres": "a worker's GPU; none where Slurm does not count GPUs (default: gpu:1)",
    "cpus": "a worker's cores (default: 1)",
    "memory": "a worker's memory, such as 32G",
    "constraint": "features that its nodes must have",
    "account": "Slurm's account",
    "qos": "Slurm's quality of service",
    "idle": "seconds without work after which a worker ends (default: 300)",
    "shard-seconds": "length of planned shards by the plan's guess of a worker's speed (default: 120)",
    "max-seconds": "seconds after which a worker ends, within the partition's limit (default: 13800)",
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
    header.append("WITHHELD")
    rows = [
        [
            one.name,
            one.engine,
            one.device,
            "online" if one.online else f"{'ended' if one.ended else 'away since'} {one.last_report}",
            # Without a controller, what Slurm has of a fleet is unknown.
            *map(str, (one.running, one.pending) if one.online else ("?", "?")),
            str(one.most),
            one.reason if one.online else "",
            *map(str, (one.queued, one.busy, one.withheld)),
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
        sys.stdout.flush()
    with connected(options) as client:
        _check(client, fleet, script, dry=options.dry_run)
        if options.dry_run:
            return OK
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        try:
            SlurmController(fleet, client, script).run(stopping, _say)
        except (Unauthorized, Forbidden) as error:
            problems = Problems()
            _add_key(problems, error)
            problems.raise_if_any()
    return OK


def _check(client: AssayClient, fleet: SlurmFleet, script: str, *, dry: bool) -> None:
    """Raises InvalidSpec: all that no wait mends; `dry`: also a service or a Slurm that is away."""
    from assay.service.workers import slurm_queue

    problems = Problems()
    reached = _check_service(client, fleet, problems, dry=dry)
    if gateway_of(fleet.worker)[1]:
        _check_gateway(fleet, problems, refuse_silence=dry or reached)
    before = len(problems)
    try:
        with problems.gathered():
            slurm_queue.check(fleet)
        if dry and len(problems) == before:
            _say(slurm_queue.tried(script))
    except slurm_queue.SlurmUnavailable as error:
        if dry:  # else the controller asks again, and says so
            problems.add(("the script",), f"not checked by Slurm, or refused: {error}")
    problems.raise_if_any()


def _check_service(client: AssayClient, fleet: SlurmFleet, problems: Problems, *, dry: bool) -> bool:
    """Whether the service answers."""
    try:
        same = [one for one in client.fleets() if one.name == fleet.name and one.online]
    except (Unauthorized, Forbidden) as error:
        _add_key(problems, error)
    except AssayError as error:
        if dry:
            problems.add((URL,), error.message, given=client.url)
        return False
    else:
        for one in same:
            text = f"a controller of the fleet {one.name} reported at {one.last_report} and has not ended"
            _say(f"warning: {text}: if it still runs, stop it, or choose another --name")
    return True


def _add_key(problems: Problems, error: AssayError) -> None:
    said = "has not the scope admin" if isinstance(error, Forbidden) else "the service refuses it"
    if not isinstance(error, Forbidden) and not os.environ.get(KEY):
        said = "is not set"
    make = "`assay keys create --state DIR --name fleet --scope admin` makes a key"
    problems.add((KEY,), f"{said}: {make}, on the service's machine")


def _check_gateway(fleet: SlurmFleet, problems: Problems, *, refuse_silence: bool) -> None:
    from assay.service.client import AssayClient
    from assay.service.client.transport import BadAnswer, Unreachable

    place, gateway = gateway_of(fleet.worker)
    key = os.environ.get(WORKER_KEY, "").strip()
    try:
        with AssayClient(gateway, key) as there:
            there.try_gateway(key)
    except (Unauthorized, Forbidden):
        if os.environ.get(f"{WORKER_KEY}_FILE"):
            return  # it may be of the nodes alone
        said = "the gateway refuses it" if key else "is not set"
        make = "`assay keys create --scope worker --tenant nodes` makes a key"
        problems.add((WORKER_KEY,), f"{said}, and every worker would wait without end: {make}")
    except (Unreachable, BadAnswer) as error:
        if refuse_silence:
            problems.add((place,), f"no worker would find a service: {error.message}", given=gateway)
    except AssayError:
        return  # of a service that is busy


def fleet_of(options: Options) -> SlurmFleet:
    """The fleet that the options state. Raises InvalidSpec: every wrong option."""
    # Building its schema would take a hundredth of a second of every command's start.
    from assay.service.contract.fleet.gateway import gateway_address
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
            option = AFTER if field == "worker" else f"--{field.replace('_', '-')}"
            problems.add((option,), message_of(wrong), given=given.get(field))
    if not named_options(worker) & {"--gateway", "--state"} and not SERVICE & {*os.environ}:
        allowed = "--gateway URL, or --state DIR that all nodes mount"
        problems.add((AFTER,), "name no service", given=" ".join(worker) or None, allowed=allowed)
    place, gateway = gateway_of(worker)
    try:
        gateway_address(gateway)
    except ValueError as error:
        problems.add((place,), str(error))
    problems.raise_if_any()
    options.parser.verbs.choices["worker"].parse_args(worker)
    return fleet


def gateway_of(words: Sequence[str]) -> tuple[str, str]:
    """Where the address of the workers' gateway is given, and the address; empty where none is."""
    for number, word in enumerate(words):
        name, stated, value = word.partition("=")
        if name == "--gateway":
            return "--gateway after --", value if stated else "".join(words[number + 1 : number + 2])
    return GATEWAY, os.environ.get(GATEWAY, "")


def named_options(words: Sequence[str]) -> set[str]:
    """The names among options."""
    return {word.partition("=")[0] for word in words if word.startswith("--")}


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
    after = "-- --gateway https://assay.example --data-root /data"
    examples = f"--partition gpu --max 64 {after}", f"--partition cpu --device cpu --max 8 --dry-run {after}"
    parser: Parser = add_remote(actions, "slurm", slurm, summary, *examples)
    for name, told in HELP.items():
        parser.add_argument(f"--{name}", required=name in ("partition", "max"), help=told)
    parser.add_argument(
        "--dry-run", action="store_true", help="print a worker's script, and check all that a start needs"
    )
    parser.add_argument(
        "worker",
        nargs="*",
        metavar="-- OPTION",
        help="further options of `assay worker`, such as --data-root",
    )
