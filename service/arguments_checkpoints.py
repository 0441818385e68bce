"""The subcommand `checkpoints` with its actions."""

from __future__ import annotations

import argparse

from assay.service.arguments import Subcommands, add, add_remote, json_argument
from assay.service.cli import checkpoints as checkpoint_commands


def add_checkpoints(subcommands: Subcommands[argparse.ArgumentParser]) -> None:
    """Adds `checkpoints upload`, `list`, `show` and `delete`."""
    summary, example = "upload, list and delete weights", "assay checkpoints list"
    checkpoints = add(subcommands, "checkpoints", checkpoint_commands.list_all, summary, example)
    actions = checkpoints.add_subparsers(title="actions", metavar="ACTION", required=True)
    upload = add_remote(
        actions,
        "upload",
        checkpoint_commands.upload,
        "upload weights or an exported program and wait until it is checked",
        "assay checkpoints upload ours weights.safetensors",
        "assay checkpoints upload deit deit_tiny.safetensors --model vit --normalization imagenet",
        "assay checkpoints upload resnet resnet.pt2",
    )
    listing = add_remote(actions, "list", checkpoint_commands.list_all, "list all weights", example)
    show = add_remote(
        actions, "show", checkpoint_commands.show, "show one, with its faults", "assay checkpoints show ours"
    )
    delete = add_remote(
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
        json_argument(parser)
