"""The subcommands that work on this machine, without a service to speak to."""

from __future__ import annotations

import argparse
from pathlib import Path

from assay.service.arguments import Subcommands, add, count, json_argument
from assay.service.cli import checkpoints, commands
from assay.service.cli import keys as key_commands
from assay.service.contract.keys import SCOPES


def add_local(subcommands: Subcommands[argparse.ArgumentParser]) -> None:
    """Adds `serve`, `data` and `demo`."""
    parser = add(
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

    data = add(
        subcommands,
        "data",
        commands.data_check,
        "look at the data sets",
        "assay data check --data-root /data",
    )
    actions = data.add_subparsers(title="actions", metavar="ACTION", required=True)
    check = add(
        actions,
        "check",
        commands.data_check,
        "list the data sets that a worker sees",
        "assay data check --data-root /data",
    )
    check.add_argument("--data-root", type=Path, help="folder with the data sets (default: ASSAY_DATA_ROOT)")
    check.add_argument("--no-hash", action="store_true", help="do not read all files for their hash")
    json_argument(check)

    parser = add(
        subcommands,
        "demo",
        commands.demo,
        "train two models on handwritten digits, attack and compare them",
        "assay demo --output demo-output",
    )
    parser.add_argument("--output", type=Path, help="folder for its files (default: demo-output)")
    parser.add_argument("--epochs", type=int, help="epochs of each training (default: 40)")


def add_keys(subcommands: Subcommands[argparse.ArgumentParser]) -> None:
    """Adds `keys create`, `list` and `revoke`."""
    example = "assay keys create --name ci --scope submit --expires-days 90"
    keys = add(
        subcommands, "keys", key_commands.list_all, "make, list and revoke API keys", "assay keys list"
    )
    actions = keys.add_subparsers(title="actions", metavar="ACTION", required=True)

    create = add(actions, "create", key_commands.create, "make a key; prints it this once", example)
    create.add_argument("--name", required=True, help="what people call it")
    create.add_argument(
        "--scope",
        required=True,
        action="append",
        choices=SCOPES,
        help="what it allows: read, submit (and read), admin (everything, all tenants)",
    )
    create.add_argument("--tenant", help="whose jobs it makes and sees (default: its own)")
    create.add_argument("--expires-days", type=count, help="how long it works (default: for ever)")

    listing = add(actions, "list", key_commands.list_all, "list all keys", "assay keys list --json")

    revoke = add(
        actions, "revoke", key_commands.revoke, "end a key and its sessions", "assay keys revoke 3k9x7m2q"
    )
    revoke.add_argument("key_id", metavar="ID", help="the key's id")
    for parser in (create, listing, revoke):
        parser.add_argument(
            "--state", type=Path, help="folder of the embedded service (default: ASSAY_STATE)"
        )
        json_argument(parser)


def add_import_pickle(subcommands: Subcommands[argparse.ArgumentParser]) -> None:
    """Adds `import-pickle`."""
    parser = add(
        subcommands,
        "import-pickle",
        checkpoints.import_pickle,
        "convert a legacy PyTorch checkpoint to safetensors",
        "assay import-pickle deit_tiny.pth deit_tiny.safetensors",
    )
    parser.add_argument("file", metavar="FILE", help="what torch.save wrote (.pth, .pt, .bin)")
    parser.add_argument("output", metavar="OUTPUT", help="the safetensors file to write")
    parser.add_argument("--key", help="which part of the file is the state dict (default: found by its name)")
