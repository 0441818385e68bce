"""`assay workers`: the workers of a service, and taking them out of service."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Container, Sequence

from assay.service.cli import output
from assay.service.cli.arguments import Subcommands, actions_of, add_remote, json_argument
from assay.service.cli.commands import OK, connected
from assay.service.cli.usage import Parser
from assay.service.contract.findings.data_disagreements import disagreements, first_names, on_workers
from assay.service.contract.fleet.workers import DIGEST_PATTERN, IdentityStatus, WorkerDevice, WorkerStatus
from assay.service.workers.fleet_cli import add_fleet

GIB = 1024**3
NO_WORKER = "(no worker yet)"


def list_all(options: argparse.Namespace) -> int:
    """Lists all workers."""
    with connected(options) as client:
        found = client.workers()
    _show(options, [one.model_dump(mode="json") for one in found], workers_table(found))
    return OK


def cordon(options: argparse.Namespace) -> int:
    """Takes a worker out of service; it finishes its shard."""
    with connected(options) as client:
        found = client.cordon_worker(options.name)
    return _changed(options, found, f"finishes its shard of job {found.job}, then takes no other")


def drain(options: argparse.Namespace) -> int:
    """Takes a worker out of service; its shard goes back to the queue."""
    with connected(options) as client:
        found = client.drain_worker(options.name)
    return _changed(
        options,
        found,
        f"gives its shard of job {found.job} back: another begins it again, a training at its checkpoint",
    )


def uncordon(options: argparse.Namespace) -> int:
    """Puts a worker back into service."""
    with connected(options) as client:
        found = client.uncordon_worker(options.name)
    return _changed(options, found, "")


def identities(options: argparse.Namespace) -> int:
    """Lists the identities that are declared, allowed and withdrawn."""
    with connected(options) as client:
        found, workers = client.identities(), client.workers()
    ruled = {one.identity for one in found}
    rows = [
        [identity, one.verdict, str(count), one.since, one.by]
        for one in found
        for identity, count in _digests(one, workers, ruled).items()
    ]
    header = ["IDENTITY", "VERDICT", "WORKERS", "SINCE", "BY"]
    text = output.table(header, rows) if rows else "none is declared: any worker takes work"
    _show(options, [one.model_dump(mode="json") for one in found], text)
    return OK


def allow(options: argparse.Namespace) -> int:
    """Lets workers of an identity take work."""
    with connected(options) as client:
        found = client.allow_identity(options.identity)
    return _ruled(options, found, "may take work")


def withdraw(options: argparse.Namespace) -> int:
    """Gives workers of an identity no more work."""
    with connected(options) as client:
        found = client.withdraw_identity(options.identity)
    return _ruled(options, found, "finish their shards and take no others; jobs that they have planned wait")


def add_commands(subcommands: Subcommands) -> None:
    """Adds the actions of `workers`, and `fleet`."""
    summary = "list workers, and say which take work; needs an admin key"
    command = add_remote(subcommands, "workers", list_all, summary, "list", topic="administration")
    actions = actions_of(command)
    parsers = [
        add_remote(actions, "list", list_all, "list all workers", "", "--json"),
        add_remote(actions, "cordon", cordon, "let a worker finish its shard and take no other", "box2:gpu0"),
        add_remote(actions, "uncordon", uncordon, "put a worker back into service", "box2:gpu0"),
        add_remote(
            actions, "drain", drain, "as cordon, and give its running shard back at once", "box2:gpu0"
        ),
    ]
    for parser in parsers[1:]:
        parser.add_argument("name", metavar="NAME", help="its name in `assay workers list`, or its id")
    for parser in (command, *parsers, *_add_identities(actions)):
        json_argument(parser)
    add_fleet(subcommands)


def _add_identities(actions: Subcommands) -> list[Parser]:
    listing = add_remote(actions, "identities", identities, "list the code that may take work")
    ruling = [
        add_remote(
            actions,
            "allow",
            allow,
            "let workers of other code than the service's take work",
            "7eb77f24b63ba2d7",
        ),
        add_remote(
            actions, "withdraw", withdraw, "give workers of some code no more work", "7eb77f24b63ba2d7"
        ),
    ]
    for parser in ruling:
        parser.add_argument("identity", metavar="IDENTITY", help="its digest, as `assay workers list` shows")
    return [listing, *ruling]


def workers_table(found: Sequence[WorkerStatus]) -> str:
    """A line per worker, then a line for each reason why a worker leaves shards to others."""
    header = ["NAME", "HOST", "PID", "STATE", "SERVES", "DEVICES", "MEMORY FREE"]
    header += ["TORCH", "IDENTITY", "JOB", "LAST BEAT"]
    rows = [
        [
            one.name,
            one.host or "",
            "" if one.pid is None else str(one.pid),
            one.state,
            ",".join(one.device_classes),
            _devices(one),
            _memory(one.self_test),
            one.torch or "",
            one.identity or "",
            one.job or "",
            one.last_beat or "",
        ]
        for one in found
    ]
    notes = [f"{one.name}: {one.reason}" for one in found if one.reason]
    notes += [
        f"{one.name}: {device} is not served: {why}"
        for one in found
        for device, why in one.unfit.items()
        if one.state != "unfit"
    ]
    notes += [f"{one.name}: leaves shards to others: {why}" for one in found for why in one.lacks]
    notes += [f"{one.name}: {one.proposal}" for one in found if one.proposal]
    serving = [(one.name, one.data) for one in found if one.state == "online"]
    notes += [
        f"several contents of {label}: {on_workers(by_hash)}"
        for label, by_hash in disagreements(serving).items()
    ]
    notes += [
        f"{one.name}: pulled weights: {first_names(sorted(one.weights))}" for one in found if one.weights
    ]
    notes += [f"{one.name}: staged data: {first_names(sorted(one.staged))}" for one in found if one.staged]
    lines = [output.table(header, rows) if rows else "no workers", *map(output.printable, notes)]
    return "\n".join(lines)


def _digests(
    ruling: IdentityStatus, workers: Sequence[WorkerStatus], ruled: Container[str]
) -> dict[str, int]:
    """Workers online by digest: a release has a digest for each set of packages of its workers."""
    if re.fullmatch(DIGEST_PATTERN, ruling.identity):
        return {ruling.identity: ruling.workers}
    found: Counter[str] = Counter()
    for one in workers:
        of_release = ruling.identity in (one.source_sha256, one.commit, one.version)
        if of_release and one.identity and one.identity not in ruled:
            found[one.identity] += one.state != "offline"
    return found or {NO_WORKER: 0}


def _devices(worker: WorkerStatus) -> str:
    gpus = [device.name for device in worker.self_test if device.device != "cpu" and device.name]
    return ", ".join(gpus) or str(worker.devices)


def _memory(devices: Sequence[WorkerDevice]) -> str:
    gpus = [device for device in devices if device.device != "cpu"]
    known = [one for one in gpus or devices if one.free is not None and one.total is not None]
    return ", ".join(f"{(one.free or 0) / GIB:.0f} of {(one.total or 0) / GIB:.0f} GiB" for one in known)


def _changed(options: argparse.Namespace, worker: WorkerStatus, then: str) -> int:
    said = f": {worker.reason}" if worker.reason else ""
    after = [] if not then else [f"it {then}" if worker.job else "it runs no shard now, and takes none"]
    lines = [output.printable(f"{worker.name} is {worker.state}{said}"), *after]
    _show(options, worker.model_dump(mode="json"), "\n".join(lines))
    return OK


def _ruled(options: argparse.Namespace, found: IdentityStatus, then: str) -> int:
    online = f"{found.workers} workers online have it" if found.workers else "no worker online has it"
    lines = f"identity {found.identity} is {found.verdict}: its workers {then}; {online}"
    _show(options, found.model_dump(mode="json"), lines)
    return OK


def _show(options: argparse.Namespace, value: object, text: str) -> None:
    output.show(value, text, as_json=options.json)
